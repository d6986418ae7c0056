"""Parts of the compiler that only make programs faster: a defect in one costs a program its speed, never its run.

Such a part is a pass with `optional: ClassVar[bool] = True`, or what `optional(name)` encloses. Where it raises,
`without_defects` compiles again without it. A warning says so once for each part, with the module in a file.
HLOOM_VERIFY=1 and hloom's own tests (`strict`) get the error itself.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from hloom.ir import Module

T = TypeVar("T")
strict = False
"""Whether a defect is an error: in tests."""
_left_out: ContextVar[frozenset[str] | None] = ContextVar("left_out", default=None)
"""The parts that the compilation under way does without; None where errors are wanted."""
_reported: set[str] = set()


class Defect(Exception):
    """An error in a part of the compiler that can be left out; the error itself is its cause."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def is_left_out(part: str) -> bool:
    """Whether the compilation under way does without a part."""
    return part in (_left_out.get() or ())


@contextmanager
def optional(part: str) -> Iterator[None]:
    """Encloses a part that can be left out: in `without_defects`, its errors are Defects."""
    try:
        yield
    except Exception as error:
        if _left_out.get() is None or isinstance(error, (MemoryError, Defect)):
            raise
        raise Defect(part) from error


def without_defects(module: Module, compile: Callable[[], T]) -> T:
    """The result of `compile`, which compiles the module, without the parts that fail on it."""
    if strict or os.environ.get("HLOOM_VERIFY", "") not in ("", "0"):
        return compile()
    left_out: frozenset[str] = frozenset()
    while True:
        token = _left_out.set(left_out)
        try:
            return compile()
        except Defect as defect:
            _report(module, defect)
            left_out |= {defect.part}
        finally:
            _left_out.reset(token)


def _report(module: Module, defect: Defect) -> None:
    if defect.part in _reported:
        return
    _reported.add(defect.part)
    path = Path(tempfile.mkdtemp(prefix="hloom-defect-")) / "module.hlo"
    path.write_text(module.to_text())
    cause = defect.__cause__
    warnings.warn(
        f"a defect in hloom: {defect.part} fails on the module {module.name} ({type(cause).__name__}: {cause}). The "
        f"program is compiled without it, and may be slower. Please report it with {path}; HLOOM_VERIFY=1 shows where "
        "it fails",
        RuntimeWarning,
        stacklevel=2,
    )
