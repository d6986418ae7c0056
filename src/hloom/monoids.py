"""Combiners that consist of one associative and commutative operation with an identity."""

from __future__ import annotations

from hloom.ir import Computation
from hloom.ops.elementwise_binary import Add, And, Maximum, Minimum, Multiply, Or, Xor
from hloom.ops.operation import Operation

MONOIDS: tuple[type[Operation], ...] = (Add, Multiply, Maximum, Minimum, And, Or, Xor)
"""The operations; `hloom.literal.identity` returns their identities."""


def monoid_of(computation: Computation) -> type[Operation] | None:
    """Returns the operation in MONOIDS that a computation applies to its two parameters; None if it does anything
    else.
    """
    root = computation.root
    if type(root.op) in MONOIDS and {o.opcode for o in root.operands} == {"parameter"} and len(set(root.operands)) == 2:
        return type(root.op)
    return None
