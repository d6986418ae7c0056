"""Functions that are called around forks; apart from `machine`, since `import hloom` needs them, and little else."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any


def at_fork(
    before: Callable[[], Any] = lambda: None,
    after_in_parent: Callable[[], Any] = lambda: None,
    after_in_child: Callable[[], Any] = lambda: None,
) -> None:
    """Registers functions that are called around forks, where the system has forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=before, after_in_parent=after_in_parent, after_in_child=after_in_child)
