"""Broadcasting: bringing element-wise operands of different shapes to one shape (spec: broadcasting)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hloom.errors import RuleError
from hloom.shape import Shape


@dataclass(frozen=True, slots=True)
class Broadcasting:
    """The broadcast of one operand to `shape`: operand dimension i becomes `dimensions[i]`; those in `expanded` grow
    from 1.
    """

    shape: Shape
    dimensions: tuple[int, ...]
    expanded: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        """Whether the operand has the shape already."""
        return not self.expanded and self.dimensions == tuple(range(self.shape.rank))

    @staticmethod
    def in_dim(operand: Shape, sizes: Sequence[int], dimensions: Sequence[int]) -> Broadcasting:
        """Returns the broadcast of BroadcastInDim to the given sizes (BROADCASTINDIM-1). Raises
        RuleError[BROADCASTINDIM-3].
        """
        result = Shape.array(operand.element_type, sizes)
        _check_dimensions("broadcast", "BROADCASTINDIM-3", operand, result, dimensions)
        expanded = []
        for d, target in enumerate(dimensions):
            size = operand.dimensions[d]
            if size != sizes[target]:
                if size != 1:
                    raise RuleError(
                        "broadcast",
                        "BROADCASTINDIM-3",
                        f"dimension {d} of {operand} must be 1 or equal dimension {target} of {result}",
                    )
                expanded.append(d)
        return Broadcasting(result, tuple(dimensions), tuple(expanded))


class BroadcastPair(NamedTuple):
    """The broadcasts of the two operands of a binary operation."""

    lhs: Broadcasting
    rhs: Broadcasting


def broadcast_shapes(opcode: str, lhs: Shape, rhs: Shape, broadcast_dimensions: Sequence[int] | None) -> BroadcastPair:
    """Returns the broadcasts of both operands to their joint shape, by the algorithm of BC-16.

    Raises RuleError with the violated clause if the operands cannot be broadcast; the message proposes dimensions.
    """
    for operand in (lhs, rhs):
        if not operand.is_array:
            raise RuleError(opcode, "BINARY-1", f"takes arrays, got {operand}")
    if lhs.element_type is not rhs.element_type:
        raise RuleError(opcode, "BC-19", f"element types must be equal, got {lhs} and {rhs}")
    lower, higher = (lhs, rhs) if lhs.rank <= rhs.rank else (rhs, lhs)
    dimensions = _matched_dimensions(opcode, lower, higher, broadcast_dimensions)
    sizes, dynamic = _joint_sizes(opcode, lower, higher, dimensions)
    result = Shape.array(lhs.element_type, sizes, dynamic)
    plans = {
        id(lower): _plan(lower, dimensions, result),
        id(higher): _plan(higher, tuple(range(higher.rank)), result),
    }
    if lower is higher:
        return BroadcastPair(plans[id(lower)], plans[id(lower)])
    return BroadcastPair(plans[id(lhs)], plans[id(rhs)])


def _plan(operand: Shape, dimensions: tuple[int, ...], result: Shape) -> Broadcasting:
    expanded = tuple(d for d, target in enumerate(dimensions) if operand.dimensions[d] != result.dimensions[target])
    return Broadcasting(result, dimensions, expanded)


def _matched_dimensions(
    opcode: str, lower: Shape, higher: Shape, broadcast_dimensions: Sequence[int] | None
) -> tuple[int, ...]:
    """The dimensions of the higher-rank shape that the dimensions of the lower-rank one match."""
    if lower.rank == higher.rank:
        identity = tuple(range(higher.rank))
        if broadcast_dimensions is not None and len(broadcast_dimensions) and tuple(broadcast_dimensions) != identity:
            raise RuleError(
                opcode,
                "BC-16",
                f"operands of equal rank take no broadcast_dimensions, got {list(broadcast_dimensions)}",
            )
        return identity
    if broadcast_dimensions is None or (not lower.rank and not len(broadcast_dimensions)):
        if not lower.rank:
            return ()
        raise RuleError(
            opcode,
            "BC-3",
            f"{lower} and {higher} differ in rank: give broadcast_dimensions{_proposal(lower, higher)}",
        )
    _check_dimensions(opcode, "BC-10", lower, higher, broadcast_dimensions)
    return tuple(broadcast_dimensions)


def _check_dimensions(opcode: str, clause: str, lower: Shape, higher: Shape, dimensions: Sequence[int]) -> None:
    if len(dimensions) != lower.rank:
        raise RuleError(
            opcode, clause, f"broadcast_dimensions needs {lower.rank} entries for {lower}, got {list(dimensions)}"
        )
    for d in dimensions:
        if not isinstance(d, int) or not 0 <= d < higher.rank:
            raise RuleError(
                opcode, clause, f"broadcast_dimensions must be in [0, {higher.rank}), got {list(dimensions)}"
            )
    if any(a >= b for a, b in zip(dimensions, dimensions[1:], strict=False)):
        raise RuleError(opcode, "BC-8", f"broadcast_dimensions must be strictly increasing, got {list(dimensions)}")


def _joint_sizes(opcode: str, lower: Shape, higher: Shape, dimensions: tuple[int, ...]) -> tuple[list[int], list[bool]]:
    sizes, dynamic = list(higher.dimensions), list(higher.dynamic_dimensions)
    for d, target in enumerate(dimensions):
        a, b = lower.dimensions[d], higher.dimensions[target]
        if a != b and a != 1 and b != 1:
            clause = "BC-12" if lower.rank == higher.rank else "BC-9"
            raise RuleError(
                opcode, clause, f"dimension {d} of {lower} and {target} of {higher} must be equal, or one of them 1"
            )
        if b == 1 and a != 1:
            sizes[target] = a
            dynamic[target] = lower.dynamic_dimensions[d]
        elif a == b:
            dynamic[target] = dynamic[target] or lower.dynamic_dimensions[d]
    return sizes, dynamic


def _proposal(lower: Shape, higher: Shape) -> str:
    """Broadcast dimensions that would be valid, for the error message; "" if there are none."""
    found, start = [], 0
    for size in lower.dimensions:
        match = next((t for t in range(start, higher.rank) if higher.dimensions[t] in (size, 1) or size == 1), None)
        if match is None:
            return ""
        found.append(match)
        start = match + 1
    return f", such as {tuple(found)}"
