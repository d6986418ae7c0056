"""dynamic-padder: replaces arrays of dynamic sizes by arrays padded to their bounds, with scalars for the sizes."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import repeat
from typing import ClassVar

from hloom.ir import Computation, Instruction, Module
from hloom.ops.control_flow import Call, Fusion
from hloom.ops.custom_call import PAD_TO_STATIC, SLICE_TO_DYNAMIC, CustomCall
from hloom.ops.dynamic_size import SetDimensionSize
from hloom.ops.structure import Constant, OptimizationBarrier, Tuple
from hloom.ops.traits import ControlFlow, Structural
from hloom.passes.edit import Edit, callees_first_of, calls, copy_annotations, has_control_edges, is_dynamic
from hloom.passes.legalize.dynamic.rules import rule_of
from hloom.passes.legalize.dynamic.site import S32, Padded, Site
from hloom.passes.op_builder import OpBuilder, new_computation
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.shape import Shape
from hloom.stablehlo.importer.size_bounds import SizeBounds
from hloom.system.records import record
from hloom.types import PrimitiveType

_CALLS = (ControlFlow, Fusion)
_FORWARDING = (*_CALLS, Structural, OptimizationBarrier)
"""Operations that forward values as they are, but for constants, which are structural, too."""


@record
class DynamicPadder:
    """Before: f32[<=8] negate(%x). After: f32[8] negate(%padded), and the size as s32[].

    A dynamic array becomes a tuple of the array, padded to its bounds with arbitrary elements, and the size of each
    dynamic dimension; tuples, loops, branches and calls contain these tuples. Operations that combine elements along a
    dynamic dimension mask the elements beyond its size. The entry's parameters and result stay dynamic and are
    converted by PadToStatic and SliceToDynamic; so are operands and results of operations without a rule. Modules with
    control edges between dynamic values, or with such values in computations of custom calls, are left alone.
    """

    name: ClassVar[str] = "dynamic-padder"

    def run(self, module: Module) -> int:
        """Pads the dynamic arrays; returns the number of instructions changed."""
        dynamic = {i.parent for i in module.instructions() if _has_size(i)}
        if not dynamic or not all(_can_pad(i, dynamic) for i in module.instructions()):
            return 0
        DeadCodeElimination().run(module)  # sizes that nothing uses are not checked
        shapes, result = module.entry.parameter_shapes, module.entry.result_shape
        changes = sum(_ComputationPadder(computation).run() for computation in callees_first_of(module))
        _wrap_entry(module, shapes, result)
        module.computations = callees_first_of(module)
        return changes


def _has_size(instruction: Instruction) -> bool:
    """Whether an instruction has dynamic arrays, or sets a size, which is checked even where the type is static."""
    return is_dynamic(instruction) or isinstance(instruction.op, SetDimensionSize)


def _can_pad(instruction: Instruction, dynamic: AbstractSet[Computation | None]) -> bool:
    """Whether an instruction can be changed to padded arrays; `dynamic` are the computations with dynamic shapes."""
    if _has_size(instruction) and (has_control_edges(instruction) or instruction.shape.is_unbounded):
        return False
    return isinstance(instruction.op, _CALLS) or dynamic.isdisjoint(calls(instruction.op))


def padded_shape(shape: Shape) -> Shape:
    """Returns the shape of a padded value: (array, size of each dynamic dimension..) for each dynamic array."""
    if shape.is_tuple:
        return Shape.tuple_of(padded_shape(element) for element in shape.elements)
    if not shape.is_dynamic:
        return shape
    return Shape.tuple_of([shape.static(), *(S32 for dynamic in shape.dynamic_dimensions if dynamic)])


class _ComputationPadder:
    """The padding of one computation; `shapes` has the dynamic shapes that values had before."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.edit = Edit(computation)
        self.shapes: dict[Instruction, Shape] = {}
        self.bounds = SizeBounds()

    def run(self) -> int:
        """Pads the dynamic arrays; returns the number of instructions changed."""
        involved = [instruction for instruction in self.computation.instructions if _has_size(instruction)]
        for instruction in involved:
            self.shapes[instruction] = instruction.shape
            if isinstance(instruction.op, _FORWARDING) and not isinstance(instruction.op, Constant):
                instruction.shape = padded_shape(instruction.shape)
            else:
                self._replace(instruction)
        self.edit.finish()
        return len(involved)

    def _replace(self, old: Instruction) -> None:
        build = OpBuilder.at(self.edit, old)
        shapes = [self.shapes.get(operand, operand.shape) for operand in old.operands]
        operands = [unpacked(build, operand, shape) for operand, shape in zip(old.operands, shapes, strict=True)]
        rule = rule_of(old.op)
        given = [operand for operand in operands if operand is not None]
        assert self.computation.parent is not None
        site = Site(build, old, shapes, self.computation.parent, self.bounds)
        leaves = rule(old.op, site, given) if len(given) == len(operands) else None
        new = self._packed(build, old.shape, leaves) if leaves is not None else self._converted(build, old, shapes)
        self.shapes[new] = old.shape
        self.edit.replace(old, new)
        if old not in self.edit.removed:
            self.edit.remove(old)

    @staticmethod
    def _packed(build: OpBuilder, shape: Shape, leaves: Sequence[Padded]) -> Instruction:
        values = [
            build.tuple(leaf.array, *(leaf.sizes[d] for d in sorted(leaf.sizes))) if leaf.sizes else leaf.array
            for leaf in leaves
        ]
        return build.tuple(*values) if shape.is_tuple else values[0]

    @staticmethod
    def _converted(build: OpBuilder, old: Instruction, shapes: Sequence[Shape]) -> Instruction:
        """Copies the instruction, with its operands converted to dynamic arrays and its result to padded ones."""
        operands = [to_dynamic(build, operand, shape) for operand, shape in zip(old.operands, shapes, strict=True)]
        copy = build(old.op, *operands, shape=old.shape)
        copy_annotations(old, copy)
        return to_static(build, copy)


def unpacked(build: OpBuilder, value: Instruction, shape: Shape) -> Padded | None:
    """Returns the array and the sizes in a padded value, given its dynamic shape; None for tuples."""
    if shape.is_tuple:
        return None
    if not shape.is_dynamic:
        return Padded(value, {})
    dynamic = [d for d, flag in enumerate(shape.dynamic_dimensions) if flag]
    # Elements of a tuple that is seen: rules compare sizes by the instructions that compute them.
    array, *sizes = value.operands if isinstance(value.op, Tuple) else build.elements(value)
    return Padded(array, dict(zip(dynamic, sizes, strict=True)))


def to_dynamic(build: OpBuilder, value: Instruction, shape: Shape) -> Instruction:
    """Converts a padded value to a value of a dynamic shape."""
    if not shape.is_dynamic:
        return value
    if shape.is_tuple:
        return build.tuple(*map(to_dynamic, repeat(build), build.elements(value), shape.elements))
    padded = unpacked(build, value, shape)
    assert padded is not None
    sizes = [padded.sizes.get(d) or build.constant(n, PrimitiveType.S32) for d, n in enumerate(shape.dimensions)]
    return build(CustomCall(target_name=SLICE_TO_DYNAMIC), padded.array, *sizes, shape=shape)


def to_static(build: OpBuilder, value: Instruction) -> Instruction:
    """Converts a value to a padded value."""
    shape = value.shape
    if not shape.is_dynamic:
        return value
    if shape.is_tuple:
        return build.tuple(*(to_static(build, element) for element in build.elements(value)))
    sizes = [S32] * shape.rank
    padded = build(CustomCall(target_name=PAD_TO_STATIC), value, shape=Shape.tuple_of([shape.static(), *sizes]))
    dynamic = [d for d, flag in enumerate(shape.dynamic_dimensions) if flag]
    return build.tuple(build.element(padded, 0), *(build.element(padded, 1 + d) for d in dynamic))


def _wrap_entry(module: Module, shapes: Sequence[Shape], result: Shape) -> None:
    """Adds an entry that converts parameters and result, and calls the old one; `shapes` and `result` are dynamic."""
    if not any(shape.is_dynamic for shape in (*shapes, result)):
        return
    entry = new_computation(module, module.entry.name)
    build = OpBuilder.of(entry)
    parameters = [build.parameter(k, shape) for k, shape in enumerate(shapes)]
    called = build(Call(computation=module.entry), *(to_static(build, parameter) for parameter in parameters))
    entry.root = to_dynamic(build, called, result)
    module.entry_computation = entry
