"""Expressions that are functions of one byte, or of one half of it, as tables: conversions of narrow types, masks and
shifts that unpack them.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from hloom.affine import Expression, Index, Quotient, Remainder, Variable
from hloom.backends.cpu.elements.byte_tables import Table, can_look_up
from hloom.loops.expressions import Apply, Constant, FromIndex, Load, walk
from hloom.shape import Shape
from hloom.types import PrimitiveType

MAX_INSTRUCTIONS = 16
"""Operations of a function."""


@dataclass(frozen=True)
class ByteFunction:
    """The float of each code that a load gives; with `is_packed`, neighbours are the two halves of a byte."""

    load: Load
    table: Table
    is_packed: bool


def byte_function(expression: Expression, along: Variable) -> ByteFunction | None:
    """Returns an expression as a function of one load, for vectors along a variable; None if it is none.

    Functions of integers of 8 bits are left to conversion instructions.
    """
    parts = walk([expression])
    loads = [part for part in parts if isinstance(part, Load)]
    if len(loads) != 1 or len(parts) > MAX_INSTRUCTIONS or not _is_float(expression.type):
        return None
    (load,) = loads
    if not all(isinstance(part, (Apply, Constant, FromIndex, Load)) for part in parts):
        return None
    if any(isinstance(part, Apply) and not part.op.elementwise for part in parts):
        return None
    varying = [part.index for part in parts if isinstance(part, FromIndex)]
    if not varying and load.index.coefficient(along) == 1 and load.index.is_affine_in(along):
        return _by_element(expression, load)
    if load.type.bits == 8 and is_halved(load.index, along) and all(_is_parity(i, along) for i in varying):
        return _by_half(expression, load)
    return None


def _is_float(type: PrimitiveType) -> bool:
    return type.is_float and 16 <= type.bits <= 32


def _by_element(expression: Expression, load: Load) -> ByteFunction | None:
    if load.type.bits > 8 or load.type.is_pred or (load.type.is_integer and load.type.bits == 8):
        return None
    table = _evaluated(expression, 0)
    if table is None or not can_look_up(table):
        return None
    return ByteFunction(load, table[:16] if load.type.bits <= 4 else table, is_packed=False)


def _by_half(expression: Expression, load: Load) -> ByteFunction | None:
    """Returns a function that is the same of the low half of a byte, at even indices, and of the high half."""
    low, high = (_evaluated(expression, parity) for parity in range(2))
    if low is None or high is None or not can_look_up(low):
        return None
    codes, table = np.arange(256), low[:16]
    same = (low == table[codes & 15]).all() and (high == table[codes >> 4]).all()
    return ByteFunction(load, table, is_packed=True) if same else None


def is_halved(index: Index, along: Variable) -> bool:
    """Returns whether an index depends on a variable by its half alone, so that neighbours are in one byte."""
    (term, *more) = [(atom, factor) for atom, factor in index.terms if along in atom.variables] or [(along, 0)]
    atom, factor = term
    is_half = isinstance(atom, Quotient) and atom.divisor == 2 and atom.operand.terms == ((along, 1),)
    return not more and factor == 1 and is_half


def _is_parity(index: Index, along: Variable) -> bool:
    """Whether an index depends on the parity of a variable alone."""
    return all(
        isinstance(atom, Remainder) and atom.divisor == 2 and atom.operand.terms == ((along, 1),)
        for atom, _ in index.terms
    )


def _evaluated(expression: Expression, parity: int) -> Table | None:
    """Returns the bits of the function of all bytes, at an even or odd index."""
    values: dict[Expression, np.ndarray[Any, Any]] = {}
    for part in walk([expression]):
        dtype = part.type.dtype
        if isinstance(part, Load):
            codes = np.arange(256, dtype=np.uint8) & ((1 << part.type.bits) - 1)
            values[part] = codes.astype(np.uint8).view(dtype)
        elif isinstance(part, Constant):
            values[part] = np.broadcast_to(np.asarray(part.value, dtype), 256)
        elif isinstance(part, FromIndex):
            number = part.index.constant + sum(factor * parity for _, factor in part.index.terms)
            values[part] = np.full(256, number).astype(dtype)
        elif isinstance(part, Apply):
            context = cast(Any, SimpleNamespace(shape=Shape.array(part.type, (256,))))
            with np.errstate(all="ignore"):
                values[part] = np.asarray(part.op.evaluate(context, *(values[o] for o in part.operands)))
    return values[expression].astype(np.float32).view(np.uint32)
