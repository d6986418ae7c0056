"""An HLO module as StableHLO: `print_stablehlo` gives the text, `export_module` the operations.

What an operation becomes is said by its row in `operations.py`, or, where operands or results do not correspond one to
one, by a function of `export_rules.py`. Here are the parts around it: functions, regions, attributes of the module.

Tuples do not exist in the result. The value of an instruction is the list of its leaves, so tuple and
get-tuple-element are no operations; a parameter or result that is a tuple becomes one for each leaf, in order, as
XLA's own conversion has it. Layouts inside the module, schedules and control dependencies have no place in StableHLO
and are left out: they do not change results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, HloomError
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.stablehlo.locations import Locations
from hloom.stablehlo.mlir import (
    Attribute,
    Block,
    DenseElements,
    Number,
    Operation,
    Region,
    TensorType,
    Type,
    Value,
)
from hloom.stablehlo.operations import BY_OPCODE
from hloom.stablehlo.types import I32, INDEX, mlir_type, tensor_type
from hloom.text.sharding import sharding_text

# A leaf that nothing defines, such as the context of a start: zeros are made of it where it is used after all.
Leaf = Value | None


def print_stablehlo(module: Module, *, locations: bool = True) -> str:
    """The StableHLO text of a module, such as JAX and other XLA front ends read it.

    `locations` writes metadata as MLIR locations. Parameters and results that are tuples become one parameter or
    result for each leaf. Raises ArgumentError, with the instruction, for what has no meaning in StableHLO.
    """
    from hloom.stablehlo.printer import print_mlir

    return print_mlir(export_module(module, locations=locations))


def export_module(module: Module, *, locations: bool = True) -> Operation:
    """The `builtin.module` operation that holds a function for the entry and one for each computation it calls."""
    return _ModuleExporter(module, locations).export()


class _ModuleExporter:
    def __init__(self, module: Module, locations: bool) -> None:
        self.module = module
        self.locations = Locations(module.stack_frames) if locations else None
        self.names: dict[int, str] = {id(module.entry): "main"}
        self.functions: dict[int, Operation] = {}

    def export(self) -> Operation:
        entry = self.function(self.module.entry, "public")
        self._entry_attributes(entry)
        # Called functions come after the entry, callers before callees, as a reader meets them.
        order = [id(c) for c in reversed(callees_first(self.module.entry)) if id(c) in self.functions]
        block = Block([], [entry, *(self.functions[key] for key in order)])
        return Operation("builtin.module", attributes=self._module_attributes(), regions=[Region([block])])

    # Functions

    def function(self, computation: Computation, visibility: str) -> Operation:
        """A `func.func` with one argument for each leaf of the parameters and one result for each of the root's."""
        exporter = BlockExporter(self)
        exporter.take_parameters(computation)
        exporter.body(computation, "func.return")
        return Operation(
            "func.func",
            attributes={"sym_name": self.names[id(computation)], "sym_visibility": visibility},
            regions=[Region([exporter.block])],
        )

    def symbol(self, computation: Computation) -> str:
        """The name of the function that a computation is, which is made when it is first called."""
        if id(computation) not in self.names:
            taken, name, count = set(self.names.values()), computation.name, 0
            while name in taken:
                name, count = f"{computation.name}_{count}", count + 1
            self.names[id(computation)] = name
            self.functions[id(computation)] = self.function(computation, "private")
        return self.names[id(computation)]

    # What the header of the module says

    def _module_attributes(self) -> dict[str, Attribute]:
        module = self.module
        attributes: dict[str, Attribute] = {
            "sym_name": module.name,
            "mhlo.num_partitions": Number(module.num_partitions, I32),
            "mhlo.num_replicas": Number(module.replica_count, I32),
        }
        if module.frontend_attributes:
            attributes["mhlo.frontend_attributes"] = dict(module.frontend_attributes)
        parameters = _leaves(module.entry_parameter_layouts or module.entry.parameter_shapes)
        results = _leaves([module.entry_result_layout or module.entry.result_shape])
        if any(leaf.layout and not leaf.layout.is_dim0_major for leaf in (*parameters, *results)):
            attributes["mhlo.xla_entry_computation_parameter_layouts"] = list(map(layout_attribute, parameters))
            attributes["mhlo.xla_entry_computation_result_layout"] = list(map(layout_attribute, results))
        return attributes

    def _entry_attributes(self, entry: Operation) -> None:
        """Shardings, frontend attributes and donation, in the dictionaries of arguments and results."""
        computation = self.module.entry
        arguments: list[dict[str, Attribute]] = []
        for parameter in computation.parameters:
            count = leaf_count(parameter.shape)
            entries: list[dict[str, Attribute]] = [{} for _ in range(count)]
            if parameter.sharding is not None:
                for own, sharding in zip(entries, leaf_shardings(parameter.sharding, count), strict=True):
                    own["mhlo.sharding"] = sharding_text(sharding)
            if parameter.frontend_attributes:
                for own in entries:
                    own["mhlo.frontend_attributes"] = dict(parameter.frontend_attributes)
            arguments += entries
        self._donation(arguments)
        root = computation.root
        results: list[Attribute] = []
        if root.sharding is not None:
            shardings = leaf_shardings(root.sharding, leaf_count(root.shape))
            results = [{"mhlo.sharding": sharding_text(sharding)} for sharding in shardings]
        entry.attributes["arg_attrs"] = list(arguments)
        entry.attributes["res_attrs"] = results or [{} for _ in range(leaf_count(root.shape))]

    def _donation(self, arguments: list[dict[str, Attribute]]) -> None:
        """In JAX's attributes, which say that an argument may share a result's buffer, not that it must."""
        shapes = self.module.entry.parameter_shapes
        starts = [sum(map(leaf_count, shapes[:i])) for i in range(len(shapes))]
        for alias in self.module.input_output_alias:
            inputs = leaf_range(shapes[alias.parameter_number], alias.parameter_index)
            outputs = leaf_range(self.module.entry.result_shape, alias.output_index)
            for given, taken in zip(inputs, outputs, strict=True):
                arguments[starts[alias.parameter_number] + given]["tf.aliasing_output"] = Number(taken, I32)
        for donor in self.module.buffer_donors:
            for given in leaf_range(shapes[donor.parameter_number], donor.parameter_index):
                arguments[starts[donor.parameter_number] + given]["jax.buffer_donor"] = True


class BlockExporter:
    """Exports the instructions of one computation into one block; `values` are the leaves of those so far."""

    def __init__(self, whole: _ModuleExporter) -> None:
        self.whole = whole
        self.block = Block()
        self.values: dict[Instruction, list[Leaf]] = {}
        self.current: Instruction | None = None

    @property
    def module(self) -> Module:
        return self.whole.module

    # Blocks

    def take_parameters(self, computation: Computation) -> None:
        """Makes an argument of the block for each leaf of the parameters."""
        for parameter in computation.parameters:
            arguments = [Value(mlir_type(leaf)) for leaf in parameter.shape.leaves()]
            for argument in arguments:
                argument.location = self._location(parameter)
            self.block.arguments += arguments
            self.values[parameter] = list(arguments)

    def body(self, computation: Computation, terminator: str) -> None:
        """Exports the instructions of a computation whose parameters have values already, and returns the root's."""
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                continue
            self.current = instruction
            try:
                self.values[instruction] = self._export(instruction)
            except HloomError as error:
                raise error.at(f"instruction {instruction!r}") from None
        self.current = None
        self.block.operations.append(Operation(terminator, self.leaves(computation.root)))

    def region(self, computation: Computation, bound: Sequence[Sequence[Leaf]] | None = None) -> Region:
        """A region that is a computation: with arguments, or with parameters `bound` to values around it."""
        inner = BlockExporter(self.whole)
        if bound is None:
            inner.take_parameters(computation)
        else:
            for parameter, leaves in zip(computation.parameters, bound, strict=True):
                inner.values[parameter] = list(leaves)
        inner.body(computation, "stablehlo.return")
        return Region([inner.block])

    @contextmanager
    def written_region(self, types: Sequence[Type]) -> Iterator[tuple[BlockExporter, Region]]:
        """A region with arguments of some types, into which the caller emits operations."""
        inner = BlockExporter(self.whole)
        inner.current = self.current
        inner.block.arguments = [Value(mlir) for mlir in types]
        yield inner, Region([inner.block])

    # Values

    def leaves(self, *instructions: Instruction) -> list[Value]:
        """The leaves of the values of some instructions; zeros where nothing defines one."""
        found: list[Value] = []
        for instruction in instructions:
            leaves = self.values[instruction]
            for i, (leaf, shape) in enumerate(zip(leaves, instruction.shape.leaves(), strict=True)):
                if leaf is None:
                    leaves[i] = leaf = self.zeros(shape)
                found.append(leaf)
        return found

    def zeros(self, shape: Shape) -> Value:
        if shape.is_token:
            return self.emit("stablehlo.create_token", [], [mlir_type(shape)])[0]
        return self.constant(np.zeros(shape.dimensions, shape.element_type.dtype), tensor_type(shape))

    def constant(self, array: np.ndarray, mlir: TensorType) -> Value:  # type: ignore[type-arg]
        return self.emit("stablehlo.constant", [], [mlir], {"value": DenseElements(mlir, array)})[0]

    def element(self, instruction: Instruction, index: int) -> list[Leaf]:
        """The leaves of one element of an instruction's tuple."""
        start = sum(map(leaf_count, instruction.shape.elements[:index]))
        return self.values[instruction][start : start + leaf_count(instruction.shape.elements[index])]

    # Operations

    def emit(
        self,
        name: str,
        operands: Iterable[Value],
        types: Iterable[Type],
        attributes: dict[str, Attribute] | None = None,
        regions: Iterable[Region] = (),
    ) -> list[Value]:
        """Appends an operation and gives its results."""
        operation = Operation(name, list(operands), [Value(mlir) for mlir in types], attributes or {}, list(regions))
        if self.current is not None:
            operation.location = self._location(self.current)
        self.block.operations.append(operation)
        return operation.results

    def emit_for(self, instruction: Instruction, name: str, types: Iterable[Type], **parts: Any) -> list[Value]:
        """Appends an operation for an instruction, on its operands, with its sharding and frontend attributes."""
        attributes = {**parts.pop("attributes", {}), **carried(instruction)}
        operands = parts.pop("operands", None)
        return self.emit(
            name, self.leaves(*instruction.operands) if operands is None else operands, types, attributes, **parts
        )

    def _export(self, instruction: Instruction) -> list[Leaf]:
        from hloom.stablehlo.export_rules import RULES

        rule = RULES.get(instruction.opcode)
        return rule(self, instruction) if rule is not None else self.regular(instruction)

    def regular(self, instruction: Instruction) -> list[Leaf]:
        """What the row of the opcode says: the same operands, the leaves of the result, attributes and regions."""
        row = BY_OPCODE.get(instruction.opcode)
        if row is None:
            raise ArgumentError(f"{instruction.opcode} has no meaning in StableHLO, which has no such operation")
        regions = [self.region(getattr(instruction.op, field)) for field in row.regions]
        return list(
            self.emit_for(
                instruction,
                f"{row.dialect}.{row.name}",
                map(mlir_type, instruction.shape.leaves()),
                attributes=row.attributes(instruction.op, instruction.operand_shapes),
                regions=regions,
            )
        )

    def _location(self, instruction: Instruction) -> str:
        return self.whole.locations.of(instruction.metadata) if self.whole.locations is not None else ""


# Leaves of shapes


def _leaves(shapes: Iterable[Shape]) -> list[Shape]:
    return [leaf for shape in shapes for leaf in shape.leaves()]


def leaf_count(shape: Shape) -> int:
    return sum(1 for _ in shape.leaves())


def leaf_range(shape: Shape, index: Sequence[int]) -> range:
    """The positions, among the leaves of a shape, of those below an index."""
    start = 0
    for i in index:
        start += sum(map(leaf_count, shape.elements[:i]))
        shape = shape.elements[i]
    return range(start, start + leaf_count(shape))


def leaf_shardings(sharding: Sharding, count: int) -> list[Sharding]:
    """One sharding for each leaf: those of a tuple sharding, or the same for all."""
    parts = list(sharding.tuple_shardings) if sharding.type is ShardingType.TUPLE else [sharding] * count
    if len(parts) != count:
        raise ArgumentError(f"a tuple sharding needs {count} shardings, one for each leaf, got {len(parts)}")
    return parts


def layout_attribute(shape: Shape) -> DenseElements:
    """The order of dimensions in memory, the fastest first: `dense<[0, 1]> : tensor<2xindex>`."""
    order = np.array(shape.layout.minor_to_major if shape.layout is not None else (), np.int64)
    return DenseElements(TensorType(order.shape, INDEX), order)


def carried(instruction: Instruction) -> dict[str, Attribute]:
    """What every operation may carry: `mhlo.sharding` and `mhlo.frontend_attributes`."""
    attributes: dict[str, Attribute] = {}
    if instruction.sharding is not None:
        attributes["mhlo.sharding"] = sharding_text(instruction.sharding)
    if instruction.frontend_attributes:
        attributes["mhlo.frontend_attributes"] = dict(instruction.frontend_attributes)
    return attributes
