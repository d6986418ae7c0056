"""Optional parts of the compiler, which only make programs faster: programs compile without one that fails.

An optional part is a pass with `optional: ClassVar[bool] = True`, or code inside `with optional(name)`. If it raises an
exception, `without_defects` compiles again without it, and warns once for each part, with the module in a file. With
HLOOM_VERIFY=1 and in hloom's own tests (`strict`) the exception is raised.
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
"""Whether exceptions in optional parts are raised, as in tests."""
_left_out: ContextVar[frozenset[str] | None] = ContextVar("left_out", default=None)
"""Optional parts that the current compilation does without; None outside of `without_defects`."""
_reported: set[str] = set()


class Defect(Exception):
    """An exception in an optional part of the compiler, which is its `__cause__`."""

    def __init__(self, part: str) -> None:
        super().__init__(part)
        self.part = part


def is_left_out(part: str) -> bool:
    """Whether the current compilation does without a part, because it failed before."""
    return part in (_left_out.get() or ())


def is_strict() -> bool:
    """Whether the compiler checks itself: its exceptions are raised, and what it writes is verified."""
    return strict or os.environ.get("HLOOM_VERIFY", "") not in ("", "0")


@contextmanager
def optional(part: str) -> Iterator[None]:
    """Marks the enclosed code as an optional part: inside of `without_defects` its exceptions become Defects."""
    try:
        yield
    except Exception as error:
        if _left_out.get() is None or isinstance(error, (MemoryError, Defect)):
            raise
        raise Defect(part) from error


def without_defects(module: Module, compile: Callable[[], T]) -> T:
    """Returns the result of `compile()`, which is repeated without each optional part that fails on the module."""
    if is_strict():
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
    path.write_text(module.to_text(), "utf-8")
    cause = defect.__cause__
    warnings.warn(
        f"a defect in hloom: {defect.part} fails on the module {module.name} ({type(cause).__name__}: {cause}). The "
        f"program is compiled without it, and may be slower. Please report it with {path}; HLOOM_VERIFY=1 shows where "
        "it fails",
        RuntimeWarning,
        stacklevel=2,
    )
