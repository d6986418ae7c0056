"""Checked runs of native code: find the first NaN, infinity or out-of-bounds index.

The checks are compiled into the program (`instrument.py`), which runs at native speed, although it is fused differently
than without them. An instruction produces a NaN if its result has one and none of its operands does. An index is out
of bounds if XLA would clamp it (dynamic-slice, dynamic-update-slice, gather) or skip the window (scatter).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from hloom.api import compile, prepare
from hloom.errors import ArgumentError
from hloom.faults.instrument import Site, instrumented
from hloom.ir import Instruction, Module
from hloom.ops.scatter import Scatter
from hloom.system.records import record
from hloom.values import Value

KINDS = ("nan", "inf", "bounds")
_WORDS = {"nan": "a NaN", "inf": "an infinity"}


@record
class Finding:
    """The first failure of a check.

    `position` is that of the bad element in the result, or, for an index out of bounds, that of the index in the
    indices; then `value` is the index and `limits` are the largest valid indices of the dimensions.

    >>> from hloom import faults
    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] log(x) }"
    >>> found = faults.check(module, [np.float32([1, -1])])
    >>> found.kind, found.position
    ('nan', (1,))
    """

    instruction: Instruction
    kind: str
    position: tuple[int, ...]
    value: int | None = None
    limits: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f"[{','.join(map(str, self.position))}]"
        lines = [f"{self._what()} {self.instruction!r}, {'at' if self.value is None else 'index'} {where}"]
        if self.value is not None:
            rule = "the window is skipped" if isinstance(self.instruction.op, Scatter) else "it is clamped"
            lines.append(f"it is {self.value}, and windows fit in [0, {self._limit()}]: {rule}")
        if self.instruction.scope:
            lines.append(f"op_name {self.instruction.scope}")
        if self.instruction.source:
            lines.append(self.instruction.source)
        return "\n  ".join(lines)

    def _what(self) -> str:
        return "an index is out of bounds in" if self.value is not None else f"{_WORDS[self.kind]} first arises in"

    def _limit(self) -> int:
        if len(self.limits) == 1:
            return self.limits[0]
        op = self.instruction.op
        along = getattr(op, "index_vector_dim", 0)
        return self.limits[self.position[along]]


def check(
    module: Module | str, arguments: Sequence[Value], kinds: Collection[str] = ("nan", "bounds")
) -> Finding | None:
    """Runs a module on one device with checks of some kinds (nan, inf, bounds); None if none fails.

    Parameters and constants may hold any values, and arrays of dynamic shape are not checked. Raises HloomError if the
    module does not compile or the arguments do not match.

    >>> from hloom import faults
    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] log(x) }"
    >>> print(faults.check(module, [np.float32([1, -1])]))
    a NaN first arises in %y = f32[2] log(%x), at [1]
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ArgumentError(f"checks are {', '.join(KINDS)}; got {', '.join(sorted(unknown))}")
    ready = prepare(module)
    if ready.replica_count * ready.num_partitions != 1:
        raise ArgumentError(f"a check runs on one device, and {ready.name} is for several")
    found = instrumented(ready, frozenset(kinds))
    _, (number, position, value) = compile(found.module, seed=0)(*arguments)
    if not number:
        return None
    return _finding(found.sites[int(number) - 1], int(position), int(value))


def _finding(site: Site, position: int, value: int) -> Finding:
    where = tuple(int(k) for k in np.unravel_index(position, site.sizes))
    return Finding(site.instruction, site.kind, where, value if site.kind == "bounds" else None, site.limits)
