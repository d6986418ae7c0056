"""Numbers of lanes: those of a vector register for the element types of a computation, and those worth using."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.affine import Expression, Index, Variable
from hloom.loops.expressions import Apply, Load, Reduction, Where, walk
from hloom.loops.nest import expression_cost, loads_of
from hloom.target import UNROLLED_ROWS, min_masked_bits, unroll_factor


def native_lanes(expressions: Sequence[Expression], vector_bytes: int) -> int:
    """The number of lanes of one vector register, for the widest element type of the expressions."""
    widths = [e.type.real.bits for e in expressions if isinstance(e, (Apply, Load)) and not e.type.is_pred]
    wide = sum(bits == 64 for bits in widths)
    # A few 64-bit operations among many of 32 bits take two registers each.
    widest = 64 if 4 * wide > len(widths) else 32
    if all(e.type.bits <= 8 and (e.type.is_pred or e.type.is_integer) for e in expressions):
        is_affine = all(_is_affine(index) for e in expressions for index in e.indices)
        return vector_bytes if is_affine else 16
    return vector_bytes * 8 // widest


def _is_affine(index: Index) -> bool:
    """Whether an index is affine in all loop variables."""
    return all(isinstance(atom, Variable) for atom, _ in index.terms)


def emulates_masks(expressions: Sequence[Expression], vector_bytes: int) -> bool:
    """Whether there are conditional loads that the processor can only do element by element, with branches."""
    narrow = any(isinstance(e, Load) and e.type.bits < min_masked_bits(vector_bytes) for e in expressions)
    return narrow and any(isinstance(e, Where) for e in expressions)


def fitting_lanes(lanes: int, minimum: int, extent: int) -> int:
    """The number of lanes for a loop of this extent: `lanes`, halved while half of a vector or more would be idle."""
    while lanes > minimum and extent < lanes:
        lanes //= 2
    while lanes > 4 and extent <= lanes // 2:
        lanes //= 2
    return lanes


def stride_score(index: Index, loop: Variable) -> float:
    """Rates the stride of an index along the loop: 1 if contiguous, 0 if invariant, negative otherwise."""
    if loop not in index.variables:
        return 0.0
    if not index.is_affine_in(loop):
        return -1.0
    coefficient = index.coefficient(loop)
    return 1.0 if coefficient == 1 else -0.25 if 0 < coefficient <= 4 else -1.0


def reduction_lanes(reductions: Sequence[Reduction], vector_bytes: int) -> tuple[Variable | None, int]:
    """The loop along which reductions of scalars are vectorised, and the number of lanes; (None, 0) for no loop."""
    if not all(reduction.monoid for reduction in reductions):
        return None, 0
    values = [value for reduction in reductions for value in reduction.values]
    loads = loads_of(values)
    best = max(
        reductions[0].over, key=lambda v: (sum(stride_score(load.index, v) for load in loads), v.extent), default=None
    )
    if best is None or best.extent < 8:
        return None, 0
    expressions = walk(values)
    width = native_lanes(expressions, vector_bytes)
    cost = sum(expression_cost(e) for e in expressions)
    factor = unroll_factor(cost, UNROLLED_ROWS)
    if emulates_masks(expressions, vector_bytes):
        width, factor = min(width, 16), 1
    factor = max(1, factor // len(reductions))
    return best, fitting_lanes(width * factor, width, best.extent)
