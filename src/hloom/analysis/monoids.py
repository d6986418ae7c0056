"""Combiners that are one commutative and associative operation with an identity."""

from __future__ import annotations

from hloom.ir import Computation
from hloom.ops.elementwise_binary import Monoid, Multiply
from hloom.types import PrimitiveType

COMPLEX = {PrimitiveType.C64, PrimitiveType.C128}


def monoid_of(computation: Computation) -> type[Monoid] | None:
    """Returns the operation that a computation applies to its two parameters; None if it does anything else, or if the
    operation is not a Monoid.

    The product of complex numbers is none: 1 * (inf + NaN i) is NaN + NaN i.
    """
    root = computation.root
    if isinstance(root.op, Multiply) and root.shape.leaf_types & COMPLEX:
        return None
    if (
        isinstance(root.op, Monoid)
        and {o.opcode for o in root.operands} == {"parameter"}
        and len(set(root.operands)) == 2
    ):
        return type(root.op)
    return None
