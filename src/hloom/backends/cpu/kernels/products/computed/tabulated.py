"""Expressions that are functions of one byte, or of one half of it, as tables: conversions of narrow types, masks and
shifts that unpack them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np

from hloom.affine import Expression, Variable
from hloom.backends.cpu.elements.byte_tables import CODES, LANES, Table, can_look_up, has_byte_tables
from hloom.backends.cpu.elements.lane_tables import codes_of_vector
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Constant, FromIndex, Load, Where, walk
from hloom.ops.convert import BitcastConvert
from hloom.shape import Shape
from hloom.system.records import record

MAX_INSTRUCTIONS = 48
"""Operations of a function."""


@record
class ByteFunction:
    """The float of each code that a load gives. With `half`, neighbours are the two halves of a byte: the load is that
    of the byte at this variable, which is half of theirs, and with `is_swapped` the first one is its high half.
    """

    load: Load
    table: Table
    half: Variable | None = None
    is_swapped: bool = False

    @property
    def has_codes(self) -> bool:
        """Whether it is a function of codes of 4 bits."""
        return len(self.table) == CODES

    @property
    def codes_together(self) -> int:
        """The number of codes that the processor looks up together in the table; 0 if it does not."""
        if has_byte_tables():
            return CODES if self.has_codes else LANES
        return codes_of_vector(self.table)


class Coded(NamedTuple):
    """A part of an expression that is a function of codes, and floats that others share."""

    part: Expression
    function: ByteFunction
    shared: tuple[Expression, ...]


def byte_function(space: ExpressionSpace, expression: Expression, along: Variable) -> ByteFunction | None:
    """Returns an expression as a function of one load, for vectors along a variable; None if it is none.

    Functions of integers of 8 bits are left to conversion instructions.
    """
    is_candidate = isinstance(expression, (Apply, Where)) and along in expression.variables
    if not is_candidate or not (expression.type.is_float and 16 <= expression.type.bits <= 32):
        return None
    if len(walk([expression])) > MAX_INSTRUCTIONS:
        return None
    load = _only_load(expression, along)
    return _by_half(space, expression, along) if load is None else _by_element(expression, load)


def coded_part(space: ExpressionSpace, expression: Expression, along: Variable) -> Coded | None:
    """Returns the part of an expression by which alone it depends on a variable, if that is a function of codes of 4
    bits; else None.
    """
    found = coded_with_shared_parts(space, expression, along)
    return None if found is None or found.shared else found


def coded_with_shared_parts(
    space: ExpressionSpace, expression: Expression, along: Variable, across: Variable | None = None
) -> Coded | None:
    """Returns the part of an expression that is a function of codes of 4 bits, and the floats by which it also depends
    on a variable; None for other expressions, and if anything else depends on the variable `across`.
    """
    found: dict[Expression, ByteFunction] = {}
    shared: dict[Expression, None] = {}
    stack = [expression]
    while stack:
        part = stack.pop()
        if along not in part.variables:
            if across in part.variables:
                return None
            continue
        function = byte_function(space, part, along)
        if function is not None and function.has_codes:
            found[part] = function
        elif across is not None and across not in part.variables and part.type.is_float and part.type.bits <= 32:
            shared[part] = None
        elif isinstance(part, Apply):
            stack += part.operands
        else:
            return None
    return next((Coded(part, function, tuple(shared)) for part, function in found.items() if len(found) == 1), None)


def _only_load(expression: Expression, along: Variable) -> Load | None:
    """Returns the load of adjacent elements of which an expression is a function; None for other expressions."""
    parts = walk([expression])
    loads = [part for part in parts if isinstance(part, Load)]
    if len(loads) != 1 or not all(map(_is_part, parts)):
        return None
    index = loads[0].index
    return loads[0] if index.coefficient(along) == 1 and index.is_affine_in(along) else None


def _is_part(part: Expression) -> bool:
    """Whether the value of a part depends on its operands alone."""
    if isinstance(part, Apply):
        return part.op.elementwise or isinstance(part.op, BitcastConvert)
    return isinstance(part, (Constant, Load)) or (isinstance(part, FromIndex) and not part.variables)


def _by_element(expression: Expression, load: Load) -> ByteFunction | None:
    if load.type.bits > 8 or load.type.is_pred or (load.type.is_integer and load.type.bits == 8):
        return None
    table = _evaluated(expression)
    if load.type.bits <= 4:
        return ByteFunction(load, table[:CODES])
    return ByteFunction(load, table) if can_look_up(table) else None


def _by_half(space: ExpressionSpace, expression: Expression, along: Variable) -> ByteFunction | None:
    """Returns a function that is the same of one half of a byte, at even indices, and of the other half."""
    if along.extent % 2:
        return None
    half = space.indices.variable("half", along.extent // 2)
    start = space.indices.scale(space.indices.of(half), 2)
    both = [space.indices.shift(start, parity) for parity in range(2)]
    even, odd = (space.substitute([expression], {along: index})[0] for index in both)
    load = _only_load(even, half)
    if load is None or load.type.bits != 8 or load is not _only_load(odd, half):
        return None
    low, high = _evaluated(even), _evaluated(odd)
    codes = np.arange(256)
    for is_swapped, (first, second) in enumerate([(codes & 15, codes >> 4), (codes >> 4, codes & 15)]):
        table = low[:16] if not is_swapped else low[::16]
        if (low == table[first]).all() and (high == table[second]).all():
            return ByteFunction(load, table, half, bool(is_swapped))
    return None


def _evaluated(expression: Expression) -> Table:
    """Returns the bits of the function of all bytes."""
    values: dict[Expression, np.ndarray[Any, Any]] = {}
    for part in walk([expression]):
        dtype = part.type.dtype
        if isinstance(part, Load):
            codes = np.arange(256, dtype=np.uint8) & ((1 << part.type.bits) - 1)
            values[part] = codes.astype(np.uint8).view(dtype)
        elif isinstance(part, Constant):
            values[part] = np.broadcast_to(np.asarray(part.value, dtype), 256)
        elif isinstance(part, FromIndex):
            values[part] = np.full(256, part.index.constant).astype(dtype)
        elif isinstance(part, Apply):
            context = cast(Any, SimpleNamespace(shape=Shape.array(part.type, (256,))))
            with np.errstate(all="ignore"):
                values[part] = np.asarray(part.op.evaluate(context, *(values[o] for o in part.operands)))
    return values[expression].astype(np.float32).view(np.uint32)
