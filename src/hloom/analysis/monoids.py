"""Combiners that are one commutative and associative operation with an identity."""

from __future__ import annotations

from hloom.ir import Computation
from hloom.ops.elementwise_binary import Monoid


def monoid_of(computation: Computation) -> type[Monoid] | None:
    """Returns the operation that a computation applies to its two parameters; None if it does anything else, or if the
    operation is not a Monoid.
    """
    root = computation.root
    if (
        isinstance(root.op, Monoid)
        and {o.opcode for o in root.operands} == {"parameter"}
        and len(set(root.operands)) == 2
    ):
        return type(root.op)
    return None
