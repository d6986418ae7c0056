"""Rules of operations that combine elements along dynamic dimensions: reductions, windows, products and sorts.

Elements beyond the sizes are masked.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.monoids import monoid_of
from hloom.ir import Computation, Instruction
from hloom.ops.attributes import ComparisonDirection, WindowDimension
from hloom.ops.compare import Compare
from hloom.ops.control_flow import Call
from hloom.ops.convolution import Convolution
from hloom.ops.dot import Dot
from hloom.ops.elementwise_binary import And, Or
from hloom.ops.elementwise_unary import Not
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.select import Select
from hloom.ops.sort import Sort, TopK
from hloom.passes.legalize.dynamic.site import Padded, Site, Sizes
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType

PRED = scalar(PrimitiveType.PRED)


def reduce(op: Reduce, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Reduces the elements below the sizes."""
    half = len(operands) // 2
    sizes = site.joint_sizes(operands[:half])
    kept = [d for d in range(len(operands[0].bounds)) if d not in op.dimensions]
    results = _reduced(op, site, operands, {d: size for d, size in sizes.items() if d in op.dimensions})
    return [Padded(result, {kept.index(d): size for d, size in sizes.items() if d in kept}) for result in results]


def reduce_window(op: ReduceWindow, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Reduces the elements of each window that are below the sizes."""
    half = len(operands) // 2
    sizes = site.joint_sizes(operands[:half])
    crossed = {d: size for d, size in sizes.items() if op.window[d] != WindowDimension()}
    results = _reduced(op, site, operands, crossed)
    counts = {d: _positions(site, op.window[d], size) if d in crossed else size for d, size in sizes.items()}
    return [Padded(result, counts) for result in results]


def _positions(site: Site, window: WindowDimension, size: Instruction) -> Instruction:
    """Returns the number of positions of a window along a dimension (WIN-2)."""
    gaps = site.product(site.maximum(site.difference(size, 1), 0), window.base_dilation - 1)
    padded = site.sum(size, gaps, window.padding_low + window.padding_high)
    steps = site.quotient(site.sum(padded, window.stride - window.dilated_size), window.stride)
    return site.maximum(steps, 0)


def _reduced(op: Reduce | ReduceWindow, site: Site, operands: Sequence[Padded], sizes: Sizes) -> list[Instruction]:
    """Builds a reduction that skips the elements beyond the sizes; returns its results.

    Elements are replaced by the identity of the combiner. If that is not known, a mask is reduced together with them.
    """
    half = len(operands) // 2
    arrays = [operand.array for operand in operands]
    monoid = monoid_of(op.computation) if half == 1 else None
    if monoid is not None:
        element_type = arrays[0].shape.element_type
        identity_value = site.build.constant(monoid.identity(element_type), element_type)
        return [site.apply(site.masked(arrays[0], sizes, identity_value), arrays[1])]
    if not sizes:
        return site.build.elements(site.apply(*arrays))
    valid = site.valid(arrays[0].shape, sizes)
    has_value = site.build.constant(True, PrimitiveType.PRED)
    skipping = op.replace(computation=_skipping(site, op.computation, half))
    reduced = site.build(skipping, *arrays[:half], valid, *arrays[half:], has_value)
    return site.build.elements(reduced)[:half]


def _skipping(site: Site, combiner: Computation, count: int) -> Computation:
    """Extends a combiner to values with a pred[] that says whether they are valid; invalid values are ignored."""
    computation = new_computation(site.module, "skipping")
    build = OpBuilder.of(computation)
    types = [parameter.shape for parameter in combiner.parameters]
    left = [build.parameter(k, types[k]) for k in range(count)]
    has_left = build.parameter(count, PRED)
    right = [build.parameter(count + 1 + k, types[count + k]) for k in range(count)]
    has_right = build.parameter(2 * count + 1, PRED)
    combined = build.elements(build(Call(computation=combiner), *left, *right))
    chosen = [
        build(Select(), has_left, build(Select(), has_right, both, a), b)
        for a, b, both in zip(left, right, combined, strict=True)
    ]
    computation.root = build.tuple(*chosen, build(Or(), has_left, has_right))
    return computation


def dot(op: Dot, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Multiplies the operands with zeros beyond the sizes of contracting dimensions."""
    lhs, rhs = operands

    def paired(left: Sequence[int], right: Sequence[int]) -> list[Instruction]:
        pairs = zip(left, right, strict=True)
        return [site.one_size([site.size(lhs, d), site.size(rhs, e)]) for d, e in pairs]

    contracted = paired(op.lhs_contracting_dims, op.rhs_contracting_dims)
    arrays = []
    for operand, dimensions in ((lhs, op.lhs_contracting_dims), (rhs, op.rhs_contracting_dims)):
        across = dict(zip(dimensions, contracted, strict=True))
        dynamic = {d: size for d, size in across.items() if d in operand.sizes}
        arrays.append(site.masked(operand.array, dynamic, site.zero(operand.array)))
    sizes = [
        *paired(op.lhs_batch_dims, op.rhs_batch_dims),
        *(site.size(lhs, d) for d in op.lhs_free_dims(len(lhs.bounds))),
        *(site.size(rhs, d) for d in op.rhs_free_dims(len(rhs.bounds))),
    ]
    return [Padded(site.apply(*arrays), _dynamic_ones(sizes, site.old.shape))]


def _dynamic_ones(sizes: Sequence[Instruction], shape: Shape) -> Sizes:
    return {d: size for d, (size, dynamic) in enumerate(zip(sizes, shape.dynamic_dimensions, strict=True)) if dynamic}


def convolution(op: Convolution, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Convolves images whose batch size is the only dynamic size; None for others."""
    images, kernel = operands
    dimension_numbers = op.dimension_numbers
    batch = dimension_numbers.input_batch_dimension
    if kernel.sizes or set(images.sizes) != {batch} or op.batch_group_count != 1:
        return None
    return [
        Padded(site.apply(images.array, kernel.array), {dimension_numbers.output_batch_dimension: images.sizes[batch]})
    ]


def sort(op: Sort, site: Site, operands: Sequence[Padded]) -> list[Padded]:
    """Sorts the elements beyond the size behind all others."""
    sizes, arrays = site.joint_sizes(operands), [operand.array for operand in operands]
    if op.dimension not in sizes:
        return [Padded(array, sizes) for array in site.build.elements(site.apply(*arrays))]
    valid = site.valid(arrays[0].shape, {op.dimension: sizes[op.dimension]})
    result = site.build(op.replace(comparator=_valid_first(site, op.comparator)), *arrays, valid)
    return [Padded(array, sizes) for array in site.build.elements(result)[: len(arrays)]]


def _valid_first(site: Site, comparator: Computation) -> Computation:
    computation = new_computation(site.module, "valid_first")
    build = OpBuilder.of(computation)
    given = [build.parameter(k, parameter.shape) for k, parameter in enumerate(comparator.parameters)]
    left, right = build.parameter(len(given), PRED), build.parameter(len(given) + 1, PRED)
    alike = build(Compare(direction=ComparisonDirection.EQ), left, right)
    less = build(And(), alike, build(Call(computation=comparator), *given))
    computation.root = build(Or(), build(And(), left, build(Not(), right)), less)
    return computation


def top_k(op: TopK, site: Site, operands: Sequence[Padded]) -> list[Padded] | None:
    """Applies topk to rows of a static size; None for rows of a dynamic size."""
    (operand,) = operands
    if len(operand.bounds) - 1 in operand.sizes:
        return None
    return [Padded(array, operand.sizes) for array in site.build.elements(site.apply(operand.array))]
