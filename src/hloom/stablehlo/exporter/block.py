"""Exports an HLO computation as a block of StableHLO operations.

`BlockExporter` emits operations and keeps the leaves (arrays and tokens) of each instruction's value, since StableHLO
programs have no tuples; the rules of single operations (`rules.py`, `expansions.py`) work on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Protocol

import numpy as np

from hloom.errors import ArgumentError, HloomError
from hloom.ir import Computation, Instruction, Module
from hloom.ops.communication import PAIRS_ATTRIBUTE
from hloom.ops.registry import Registry
from hloom.ops.structure import Parameter
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.stablehlo.exporter.locations import Locations
from hloom.stablehlo.mlir.ir import (
    Attribute,
    Block,
    DenseElements,
    Operation,
    Region,
    TensorType,
    Type,
    Value,
)
from hloom.stablehlo.mlir.types import INDEX, mlir_type, tensor_type
from hloom.stablehlo.operations import BY_OPCODE
from hloom.text.sharding import sharding_text

Leaf = Value | None
"""A leaf of a value; None is undefined, such as the context of a start, and becomes zeros if it is used."""
Leaves = Sequence[Leaf]
"""The leaves of a value, in order."""


class ExportContext(Protocol):
    """The module being exported, and its functions, which blocks call."""

    module: Module
    locations: Locations | None

    def symbol(self, computation: Computation) -> str:
        """The name of the function that a computation becomes."""
        ...


class BlockExporter:
    """Exports the instructions of one computation to one block; `values` has the leaves of exported instructions."""

    def __init__(self, context: ExportContext) -> None:
        self.context = context
        self.block = Block()
        self.values: dict[Instruction, list[Leaf]] = {}
        self.current: Instruction | None = None

    @property
    def module(self) -> Module:
        """The HLO module that is exported."""
        return self.context.module

    # Blocks

    def take_parameters(self, computation: Computation) -> None:
        """Adds a block argument for each leaf of the computation's parameters."""
        for parameter in computation.parameters:
            arguments = list(map(Value, leaf_types(parameter.shape)))
            for argument in arguments:
                argument.location = self._location(parameter)
            self.block.arguments += arguments
            self.values[parameter] = list(arguments)

    def body(self, computation: Computation, terminator: str) -> None:
        """Exports the instructions of a computation whose parameters have values, and ends the block with `terminator`.

        Raises HloomError with the instruction for anything that StableHLO cannot express.
        """
        for instruction in computation.instructions:
            if isinstance(instruction.op, Parameter):
                continue
            self.current = instruction
            try:
                self.values[instruction] = list(self._export(instruction))
            except HloomError as error:
                raise error.at(f"instruction {instruction!r}") from None
        self.current = None
        self.block.operations.append(Operation(terminator, self.leaves(computation.root)))

    def region(self, computation: Computation, bound: Sequence[Leaves] | None = None) -> Region:
        """Exports a computation as a region; `bound` has outer values for its parameters (default: region
        arguments).
        """
        inner = BlockExporter(self.context)
        if bound is None:
            inner.take_parameters(computation)
        else:
            for parameter, leaves in zip(computation.parameters, bound, strict=True):
                inner.values[parameter] = list(leaves)
        inner.body(computation, "stablehlo.return")
        return Region([inner.block])

    @contextmanager
    def emitted_region(self, types: Sequence[Type]) -> Iterator[tuple[BlockExporter, Region]]:
        """Opens a region with arguments of these types; the caller emits operations into it."""
        inner = BlockExporter(self.context)
        inner.current = self.current
        inner.block.arguments = [Value(type_) for type_ in types]
        yield inner, Region([inner.block])

    # Values

    def leaves(self, *instructions: Instruction) -> list[Value]:
        """The leaves of the values of some instructions; undefined leaves become zeros."""
        values: list[Value] = []
        for instruction in instructions:
            leaves = self.values[instruction]
            for i, (leaf, shape) in enumerate(zip(leaves, instruction.shape.leaves(), strict=True)):
                if leaf is None:
                    leaves[i] = leaf = self.zeros(shape)
                values.append(leaf)
        return values

    def zeros(self, shape: Shape) -> Value:
        """Emits a constant of zeros, or a new token."""
        if shape.is_token:
            return self.emit("stablehlo.create_token", [], [mlir_type(shape)])[0]
        return self.constant(np.zeros(shape.dimensions, shape.element_type.dtype), tensor_type(shape))

    def constant(self, array: np.ndarray, type_: TensorType) -> Value:
        """Emits `stablehlo.constant` with the elements of an array."""
        return self.emit("stablehlo.constant", [], [type_], {"value": DenseElements(type_, array)})[0]

    def element(self, instruction: Instruction, index: int) -> list[Leaf]:
        """The leaves of an element of an instruction's tuple."""
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
        """Appends an operation with results of these types, and returns the results."""
        operation = Operation(name, list(operands), [Value(type_) for type_ in types], attributes or {}, list(regions))
        if self.current is not None:
            operation.location = self._location(self.current)
        self.block.operations.append(operation)
        return operation.results

    def emit_for(
        self,
        instruction: Instruction,
        name: str,
        *,
        operands: Iterable[Value] | None = None,
        types: Iterable[Type] | None = None,
        attributes: Mapping[str, Attribute] = MappingProxyType({}),
        regions: Iterable[Region] = (),
    ) -> list[Value]:
        """Appends an operation for an instruction, with its sharding and frontend attributes, and returns the results.

        Operands and types of results are those of the instruction unless they are given.
        """
        types = leaf_types(instruction.shape) if types is None else list(types)
        operands = self.leaves(*instruction.operands) if operands is None else operands
        return self.emit(name, operands, types, {**attributes, **carried_attributes(instruction, types)}, regions)

    def _export(self, instruction: Instruction) -> Leaves:
        rule = RULES.get(instruction.op)
        return rule(instruction.op, self, instruction) if rule is not None else self.regular(instruction)

    def regular(self, instruction: Instruction, opcode: str = "", shape: Shape | None = None) -> Leaves:
        """Exports an instruction by its row: same operands, leaves of the result, converted attributes and regions.

        A start gives the opcode and the result shape of the whole operation. Raises ArgumentError for an opcode that
        StableHLO lacks.
        """
        row = BY_OPCODE.get(opcode or instruction.opcode)
        if row is None:
            raise ArgumentError(f"{instruction.opcode} has no meaning in StableHLO, which has no such operation")
        regions = [self.region(getattr(instruction.op, field)) for field in row.regions]
        return self.emit_for(
            instruction,
            f"{row.dialect}.{row.name}",
            types=leaf_types(shape or instruction.shape),
            attributes=row.attributes(instruction.op.canonical(instruction.operand_shapes)),
            regions=regions,
        )

    def _location(self, instruction: Instruction) -> str:
        return self.context.locations.of(instruction.metadata) if self.context.locations is not None else ""


RULES = Registry[[BlockExporter, Instruction], Leaves]()
"""Functions that emit the operations for an instruction that no row of the table describes, and return its leaves."""


# Leaves of shapes


def leaf_types(shape: Shape) -> list[Type]:
    """The MLIR types of the leaves of a shape."""
    return list(map(mlir_type, shape.leaves()))


def leaf_count(shape: Shape) -> int:
    """The number of leaves of a shape."""
    return sum(1 for _ in shape.leaves())


def leaf_range(shape: Shape, index: Sequence[int]) -> range:
    """The positions, among the leaves of a shape, of those under a shape index."""
    start = 0
    for i in index:
        start += sum(map(leaf_count, shape.elements[:i]))
        shape = shape.elements[i]
    return range(start, start + leaf_count(shape))


def leaf_shardings(sharding: Sharding, count: int) -> list[Sharding]:
    """The shardings of `count` leaves: those of a tuple sharding, or the same for all.

    Raises ArgumentError for a tuple sharding of another size.
    """
    parts = list(sharding.tuple_shardings) if sharding.type is ShardingType.TUPLE else [sharding] * count
    if len(parts) != count:
        raise ArgumentError(f"a tuple sharding needs {count} shardings, one for each leaf, got {len(parts)}")
    return parts


def layout_attribute(shape: Shape) -> DenseElements:
    """The layout of a shape as XLA's attribute, minor to major: `dense<[0, 1]> : tensor<2xindex>`."""
    order = np.array(shape.layout.minor_to_major if shape.layout is not None else (), np.int64)
    return DenseElements(TensorType(order.shape, INDEX), order)


def carried_attributes(instruction: Instruction, types: Sequence[Type]) -> dict[str, Attribute]:
    """The attributes `mhlo.sharding` and `mhlo.frontend_attributes` of an instruction.

    `types` are the results of the exported operation: the sharding of a tuple is exported only if these are its leaves.
    """
    attributes: dict[str, Attribute] = {}
    sharding = instruction.sharding
    if sharding is not None and sharding.type is ShardingType.TUPLE:
        parts = sharding.tuple_shardings
        is_whole = leaf_types(instruction.shape) == list(types) and len(parts) == len(types)
        sharding = None if not is_whole else parts[0] if len(types) == 1 else sharding
    if sharding is not None:
        attributes["mhlo.sharding"] = sharding_text(sharding)
    if others := {k: v for k, v in instruction.frontend_attributes.items() if k != PAIRS_ATTRIBUTE}:
        attributes["mhlo.frontend_attributes"] = others
    return attributes
