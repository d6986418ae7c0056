"""Combiners that are one commutative and associative operation with an identity, and independent parts of others."""

from __future__ import annotations

from hloom.ir import Computation, Instruction, reachable
from hloom.ops.elementwise_binary import Monoid, Multiply
from hloom.ops.structure import Parameter, Tuple
from hloom.system.records import record
from hloom.types import PrimitiveType

COMPLEX = {PrimitiveType.C64, PrimitiveType.C128}


def monoid_of(computation: Computation) -> type[Monoid] | None:
    """Returns the operation that a computation applies to its two parameters; None if it does anything else, or if the
    operation is not a Monoid.

    The product of complex numbers is none: 1 * (inf + NaN i) is NaN + NaN i.
    """
    return _monoid(computation.root)


def _monoid(result: Instruction) -> type[Monoid] | None:
    if isinstance(result.op, Multiply) and result.shape.leaf_types & COMPLEX:
        return None
    if (
        isinstance(result.op, Monoid)
        and {o.opcode for o in result.operands} == {"parameter"}
        and len(set(result.operands)) == 2
    ):
        return type(result.op)
    return None


@record(slots=True)
class CombinerPart:
    """Accumulators of a combiner, by number, that depend on themselves and on their values alone; `monoid` is the
    operation of a single one, if it is a Monoid.
    """

    accumulators: tuple[int, ...]
    monoid: type[Monoid] | None


def independent_parts(combiner: Computation) -> list[CombinerPart]:
    """Returns the parts of a combiner, of which each is that of a reduction of its own."""
    count = len(combiner.parameters) // 2
    results = combiner.root.operands if isinstance(combiner.root.op, Tuple) else (combiner.root,)
    if count == 1 or len(results) != count:
        return [CombinerPart(tuple(range(count)), monoid_of(combiner) if count == 1 else None)]
    parts: list[set[int]] = []
    for k, result in enumerate(results):
        sources = reachable([result], lambda instruction: instruction.operands)
        part = {k, *(i.op.number % count for i in sources if isinstance(i.op, Parameter))}
        parts = [*(p for p in parts if not p & part), part.union(*(p for p in parts if p & part))]
    return [CombinerPart((*sorted(p),), _monoid(results[min(p)]) if len(p) == 1 else None) for p in parts]
