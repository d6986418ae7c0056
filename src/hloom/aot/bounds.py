"""Modules with dynamic sizes, built once for all sizes up to bounds: as modules on arrays padded to the bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hloom.aot.sizes import Sizes
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module
from hloom.ops.control_flow import Call
from hloom.ops.dynamic_size import GetDimensionSize, SetDimensionSize
from hloom.ops.select import Clamp
from hloom.ops.structure import Parameter
from hloom.passes import Pipeline, clone_module, run_passes, simplification_pipeline
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.legalize.dynamic.padder import DynamicPadder
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.passes.unbounded import specialized
from hloom.shape import Shape, scalar
from hloom.system.records import record
from hloom.types import PrimitiveType

S32 = PrimitiveType.S32


@record
class Open:
    """A size that is known at run time: its bound, and its number among size parameters and then computed sizes."""

    bound: int
    number: int


Dimensions = Sequence[int | Open]


@record
class PaddedModule:
    """A module on arrays padded to their bounds: its last parameters are sizes, its last results computed sizes."""

    module: Module
    bounds: Sequence[int]
    """The greatest value of each size parameter."""
    inputs: Sequence[Dimensions]
    outputs: Sequence[Dimensions]


def padded(name: str, module: Module, bounds: Sizes | None) -> PaddedModule:
    """Returns a module whose parameters have dynamic sizes as one of static shapes, for the processor in force.

    `bounds` has a number for each dynamic dimension of the parameters, in order, or is one for all, which then have one
    size; None stands for the bounds in the module. Raises ArgumentError for another number of bounds, and HloomError if
    a size does not follow from those of the parameters.
    """
    opens = _open_sizes(name, module, bounds)
    left = iter(opens)
    shapes = [_with_bounds(shape, left) for shape in module.entry.parameter_shapes]
    is_unbounded = any(shape.is_unbounded for shape in module.entry.parameter_shapes)
    bounded = specialized(module, shapes) if is_unbounded else clone_module(module)
    results = [leaf for leaf in bounded.entry.result_shape.leaves() if leaf.is_array]
    limits = {each.number: each.bound for each in opens}
    _take_sizes(bounded, shapes, opens, [*limits.values()])
    steps = itertools.takewhile(lambda step: not isinstance(step, DynamicPadder), cpu_pipeline(Topology.SINGLE).passes)
    run_passes(bounded, Pipeline("padded", (*steps, CallInliner(), DynamicPadder(), simplification_pipeline())))
    found = iter(_computed_sizes(bounded, len(results), len(shapes), len(limits)))
    ordinals = iter([each.number for each in opens])
    inputs = [_dimensions(leaf, ordinals) for shape in shapes for leaf in shape.leaves() if leaf.is_array]
    return PaddedModule(bounded, [*limits.values()], inputs, [_dimensions(leaf, found) for leaf in results])


def _open_sizes(name: str, module: Module, bounds: Sizes | None) -> list[Open]:
    """Returns the dynamic dimensions of the parameters, in order."""
    leaves = [leaf for shape in module.entry.parameter_shapes for leaf in shape.leaves()]
    own = [size for leaf in leaves for size, flag in zip(leaf.dimensions, leaf.dynamic_dimensions, strict=True) if flag]
    given = own if bounds is None else [bounds] * len(own) if isinstance(bounds, int) else [*bounds]
    if len(given) != len(own) or any(bound < 0 or 0 <= size < bound for bound, size in zip(given, own, strict=True)):
        message = f"{name} has {len(own)} dynamic sizes: give bounds, one for all or for each, or a list of sizes"
        raise ArgumentError(f"{message}{'' if bounds is None else f', not {bounds}'}")
    return [Open(bound, 0 if isinstance(bounds, int) else number) for number, bound in enumerate(given)]


def _with_bounds(shape: Shape, opens: Iterator[Open]) -> Shape:
    """Returns the shape with the bounds of its dynamic dimensions."""
    if shape.is_tuple:
        return Shape.tuple_of([_with_bounds(element, opens) for element in shape.elements])
    if not shape.is_dynamic:
        return shape
    flags = shape.dynamic_dimensions
    sizes = [next(opens).bound if flag else size for size, flag in zip(shape.dimensions, flags, strict=True)]
    return Shape.array(shape.element_type, sizes, flags, shape.layout)


def _dimensions(shape: Shape, left: Iterator[int]) -> Dimensions:
    pairs = zip(shape.dimensions, shape.dynamic_dimensions, strict=True)
    return [Open(size, next(left)) if flag else size for size, flag in pairs]


def _take_sizes(module: Module, shapes: Sequence[Shape], opens: Sequence[Open], limits: Sequence[int]) -> None:
    """Adds an entry that takes padded arrays and sizes, and returns padded arrays and the size of each dimension."""
    entry = new_computation(module, module.entry.name)
    build = OpBuilder.of(entry)
    given = [build.parameter(k, shape.static()) for k, shape in enumerate(shapes)]
    values = [build.parameter(len(shapes) + k, scalar(S32)) for k in range(len(limits))]
    bounds = [(build.constant(0, S32), build.constant(limit, S32)) for limit in limits]
    # The caller refuses other sizes: the bounds are for the compiler.
    sizes = [build(Clamp(), low, value, high) for value, (low, high) in zip(values, bounds, strict=True)]
    left = iter([sizes[each.number] for each in opens])
    arguments = [_sized(build, value, shape, left) for value, shape in zip(given, shapes, strict=True)]
    result = build(Call(computation=module.entry), *arguments)
    leaves = [leaf for leaf in build.leaves(result) if leaf.shape.is_array]
    actual = [build(GetDimensionSize(dimension=d), leaf) for leaf in leaves for d in _dynamic(leaf.shape)]
    entry.root = build.tuple(*(_static(build, leaf) for leaf in leaves), *actual)
    module.entry_computation = entry
    module.computations = [*(c for c in module.computations if c is not entry), entry]
    module.input_output_alias, module.buffer_donors = [], []
    module.set_default_entry_layouts()


def _dynamic(shape: Shape) -> list[int]:
    return [d for d, flag in enumerate(shape.dynamic_dimensions) if flag]


def _sized(build: OpBuilder, value: Instruction, shape: Shape, sizes: Iterator[Instruction]) -> Instruction:
    """Gives a value of static shape the dynamic sizes of another shape."""
    if shape.is_tuple:
        parts = enumerate(shape.elements)
        return build.tuple(*(_sized(build, build.element(value, k), element, sizes) for k, element in parts))
    for d in _dynamic(shape):
        value = build(SetDimensionSize(dimension=d), value, next(sizes), shape=value.shape.with_dynamic(d))
    return value


def _static(build: OpBuilder, value: Instruction) -> Instruction:
    """Pads an array to its bounds with zeros."""
    for d in _dynamic(value.shape):
        bound, shape = build.constant(value.shape.dimensions[d], S32), value.shape.with_dynamic(d, is_dynamic=False)
        value = build(SetDimensionSize(dimension=d), value, bound, shape=shape)
    return value


def _computed_sizes(module: Module, arrays: int, first: int, count: int) -> list[int]:
    """Returns the number of the size of each dynamic dimension of results; the root keeps only sizes that it computes.

    Parameters from `first` on are sizes, `count` of them.
    """
    entry, results = module.entry, module.entry.root.operands
    computed: dict[Instruction, int] = {}
    found = []
    for size in results[arrays:]:
        source = size.operands[1] if isinstance(size.op, Clamp) else size
        if isinstance(source.op, Parameter) and source.parameter_number >= first:
            found.append(source.parameter_number - first)
        else:
            found.append(computed.setdefault(size, count + len(computed)))
    kept = [*results[:arrays], *computed]
    entry.root = kept[0] if len(kept) == 1 else OpBuilder.of(entry).tuple(*kept)
    module.set_default_entry_layouts()
    return found
