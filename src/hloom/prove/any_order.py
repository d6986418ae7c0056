"""A meaning of operations in which sums and products of floats have no order, as reductions may (GEN-13).

Two results that are equal with this meaning combine the same elements, in orders and groupings that may differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hloom.ops.elementwise_binary import Monoid
from hloom.ops.operation import Operation
from hloom.prove.functions import apply_opaque, unknown
from hloom.prove.terms import FORMATS, Term, constant
from hloom.types import PrimitiveType


class _Combined(Term):
    """The combination of some elements by a monoid: a chain of unknown functions, in an order of its own."""

    __slots__ = ("op", "parts")

    def __init__(self, op: Monoid, type: PrimitiveType, parts: Sequence[Any]) -> None:
        super().__init__(type, self._chain)
        self.op, self.parts = op, parts

    def _chain(self) -> Any:
        function = unknown(self.op, self.type)
        value, *rest = sorted(self.parts, key=lambda bits: int(bits.get_id()))
        for part in rest:
            value = function(value, part)
        return value


def apply_in_any_order(op: Operation, type: PrimitiveType, operands: Sequence[Term]) -> Term:
    """Applies an element-wise operation as `apply_opaque` does; combinations of floats are those of all their parts."""
    if not isinstance(op, Monoid) or not (type.is_float or type.is_complex):
        return apply_opaque(op, type, operands)
    parts = [part for operand in operands for part in _parts(op, operand)]
    if type in FORMATS:
        identity = constant(type, op.identity(type)).bits
        parts = [part for part in parts if not part.eq(identity)] or [identity]
    if op.is_idempotent:
        parts = [*{part.get_id(): part for part in parts}.values()]
    return _Combined(op, type, parts)


def _parts(op: Monoid, operand: Term) -> Iterator[Any]:
    if isinstance(operand, _Combined) and operand.op == op:
        yield from operand.parts
    else:
        yield operand.bits
