"""Rules of while, if and case, whose regions may use outer values: these become operands of HLO's computations."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.builder import XlaOp
from hloom.errors import ArgumentError
from hloom.ir import Computation
from hloom.ops.control_flow import Conditional, While
from hloom.shape import Shape
from hloom.stablehlo.importer.body import Body, Rule, check_type
from hloom.stablehlo.mlir.ir import Operation, Region, Value


def captured(body: Body, regions: Sequence[Region]) -> list[Value]:
    """The outer values that regions use, in order of their uses, without those that can be rematerialised inside."""
    used: dict[Value, None] = {}
    for region in regions:
        used |= dict.fromkeys(_free_values(body, region))
    return [value for value in used if not body.is_movable(value)]


def _free_values(body: Body, region: Region) -> tuple[Value, ...]:
    """The values that a region uses and does not define; cached by the region."""
    cached = body.context.free_values.get(id(region))
    if cached is not None:
        return cached
    defined: set[Value] = set()
    used: dict[Value, None] = {}
    for block in region.blocks:
        defined.update(block.arguments)
        for operation in block.operations:
            used |= dict.fromkeys(operation.operands)
            for inner in operation.regions:
                used |= dict.fromkeys(_free_values(body, inner))
            defined.update(operation.results)
    free_values = tuple(value for value in used if value not in defined)
    body.context.free_values[id(region)] = free_values
    return free_values


def _region_computation(
    body: Body, region: Region, values: Sequence[Value], shape: Shape, name: str, *, returns_state: bool = False
) -> Computation:
    """Imports a region as a computation whose one parameter holds `values`.

    With `returns_state`, values after the region's own arguments are returned unchanged.
    """
    inner = Body(body.context, body.context.unique(name), body)
    parameter = inner.parameter(0, shape, "arg_tuple" if shape.is_tuple else "arg")
    parts = inner.unpacked(parameter, len(values))
    inner.values |= dict(zip(values, parts, strict=True))
    if body.context.is_bounded:
        outside = [(body.values[value], part) for value, part in inner.values.items() if value in body.values]
        inner.size_bounds.found |= {part.instruction: body.bounds_of(value) for value, part in outside}
    results = inner.block(region)
    if returns_state:
        results += parts[len(region.block.arguments) :]
    computation = inner.close(results)
    if computation.root.sharding is not None and not returns_state:
        # The result of a branch is sharded as the conditional, not as the instruction that computes it.
        inner.copy_of_root(computation.root)
    return computation


def _while(body: Body, operation: Operation, operands: list[XlaOp]) -> list[XlaOp]:
    if len(operation.regions) != 2:
        raise ArgumentError(f"needs two regions, a condition and a body, got {len(operation.regions)}")
    condition, loop = operation.regions
    for region in (condition, loop):
        if len(region.block.arguments) != len(operands):
            raise ArgumentError(f"{len(operands)} initial values, but {len(region.block.arguments)} arguments")
        for argument, operand in zip(region.block.arguments, operands, strict=True):
            check_type(f"%{argument.name}", argument.type, operand.shape)
    outside = captured(body, operation.regions)
    state = body.packed([*operands, *(body.value(value, operation) for value in outside)])
    op = While(
        condition=_region_computation(
            body, condition, [*condition.block.arguments, *outside], state.shape, "condition"
        ),
        body=_region_computation(
            body, loop, [*loop.block.arguments, *outside], state.shape, "body", returns_state=True
        ),
    )
    result = body._add(op, [state])
    return body.unpacked(result, len(operands) + len(outside))[: len(operands)]


def _branches(body: Body, operation: Operation, operands: list[XlaOp]) -> list[XlaOp]:
    """Rule of if and case: each branch takes the outer values that it uses."""
    states: list[XlaOp] = []
    computations: list[Computation] = []
    for i, region in enumerate(operation.regions):
        outside = captured(body, [region])
        state = body.packed([body.value(value, operation) for value in outside])
        states.append(state)
        computations.append(_region_computation(body, region, outside, state.shape, f"branch_{i}"))
    op = Conditional(branch_computations=tuple(computations))
    result = body._add(op, [*operands, *states])
    return body.unpacked(result, len(operation.results))


RULES: dict[str, Rule] = {
    "stablehlo.while": _while,
    "stablehlo.if": _branches,
    "stablehlo.case": _branches,
}
