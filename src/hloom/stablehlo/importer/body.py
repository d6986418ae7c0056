"""Imports a function or region as an HLO computation.

A `Body` is an `XlaBuilder` that records the position of the op for each instruction, so that rules write ops without a
single HLO counterpart with the builder's methods. An op is converted by its rule (`rules.rule_of`), otherwise by its
row in the table of correspondences (`operations.BY_NAME`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from hloom.builder import XlaBuilder, XlaOp
from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction
from hloom.ops.operation import Operation as HloOperation
from hloom.ops.rules import result_shape
from hloom.ops.structure import ElidedConstant, Tuple
from hloom.shape import Shape
from hloom.stablehlo.importer.annotations import annotate
from hloom.stablehlo.importer.context import ImportContext
from hloom.stablehlo.importer.meshes import with_mesh
from hloom.stablehlo.importer.size_bounds import Bounds, SizeBounds
from hloom.stablehlo.mlir.dense import is_splat
from hloom.stablehlo.mlir.ir import (
    Attribute,
    DenseElements,
    DialectAttribute,
    Number,
    Operation,
    QuantizedType,
    Region,
    TensorType,
    Type,
    Value,
)
from hloom.stablehlo.mlir.location_reader import location_parts
from hloom.stablehlo.mlir.types import is_sized, shape_of, type_text
from hloom.stablehlo.operations import BY_NAME, Row
from hloom.types import PrimitiveType
from hloom.values import Array

KnownValues = Mapping[int, Array]
"""The values of those arguments of a function that are known, by index."""
NO_VALUES: KnownValues = MappingProxyType({})
Rule: TypeAlias = Callable[["Body", Operation, list[XlaOp]], "list[XlaOp] | XlaOp"]

# Ops that regions may rematerialise, if they depend on constants only.
_MOVABLE = ("constant", "constant_like", "iota", "broadcast_in_dim", "reshape", "convert", "transpose", "negate")
_MAX_MOVED = 64
MAX_SIZES = 64
"""Maximum number of elements of an array of sizes."""
MAX_CALL_DEPTH = 32


class Body(XlaBuilder):
    """Builds one computation; `values` maps the MLIR values so far to XlaOps."""

    def __init__(self, context: ImportContext, name: str, outer: Body | None = None) -> None:
        super().__init__(name)
        self.context = context
        self.outer = outer
        self.values: dict[Value, XlaOp] = {}
        self.definitions: dict[Value, Operation] = outer.definitions if outer else {}
        self.known_values: dict[Value, Array] = outer.known_values if outer else {}
        """Values of sizes, recorded when the sizes of parameters are those of a call; regions may capture them."""
        self.size_bounds = SizeBounds()
        self.last_infeed: XlaOp | None = None
        self.location = ""
        self.metadata: dict[str, Any] = {}

    # Computations

    def function(
        self, function: Operation, shapes: Sequence[Shape], known_values: KnownValues = NO_VALUES
    ) -> Computation:
        """Imports a function: its computation returns the result, or a tuple unless there is exactly one."""
        return self.region(function.regions[0], shapes, function, known_values)

    def region(
        self, region: Region, shapes: Sequence[Shape], owner: Operation, known_values: KnownValues = NO_VALUES
    ) -> Computation:
        """Imports a region whose arguments have these shapes; `known_values` holds the values of known arguments.

        Raises ArgumentError for another number of arguments, and ParseError, with the position, for ops without HLO.
        """
        block = region.block
        if len(block.arguments) != len(shapes):
            raise ArgumentError(f"a region of {len(shapes)} arguments is needed, got {len(block.arguments)}")
        for i, (argument, shape) in enumerate(zip(block.arguments, shapes, strict=True)):
            self._set_location(owner, argument.location)
            self.values[argument] = parameter = self.parameter(i, shape, parameter_name(argument, i))
            if i in known_values:
                self.size_bounds.folder.values[parameter.instruction] = self.known_values[argument] = known_values[i]
        results = self.block(region)
        computation = self.close(results)
        if self.context.is_specialized:
            self.context.known_results[id(computation)] = [self.size_of(result) for result in results]
        return computation

    def close(self, results: Sequence[XlaOp]) -> Computation:
        """Completes the computation: a single result is the root, several form a tuple."""
        self.metadata = {}
        self._computation.root = self.packed(results).instruction
        return self._computation

    def copy_of_root(self, root: Instruction) -> Instruction:
        """Adds a root with the same value: the element of a tuple of one, as XLA writes it."""
        tuple_ = self._add(Tuple(), [XlaOp(self, root)])
        copy = self.get_tuple_element(tuple_, 0).instruction
        self._computation.root = copy
        return copy

    def block(self, region: Region) -> list[XlaOp]:
        """Imports the ops of a region and returns the values that its terminator returns.

        Raises ArgumentError for a region without a return.
        """
        for operation in region.block.operations:
            if operation.name.rpartition(".")[2] == "return":
                return [self.value(operand, operation) for operand in operation.operands]
            self.operation(operation)
        raise ArgumentError("the region does not end with a return")

    def computation(self, region: Region, name: str = "region", shapes: Sequence[Shape] | None = None) -> Computation:
        """Imports a region as a computation; its arguments have their declared types unless `shapes` are given."""
        inner = Body(self.context, self.context.unique(name), self)
        if shapes is None:
            shapes = [shape_of(argument.type) for argument in region.block.arguments]
        owner = region.block.operations[0] if region.block.operations else Operation(name)
        return inner.region(region, shapes, owner)

    # Values

    def value(self, value: Value, user: Operation) -> XlaOp:
        """The XlaOp of an MLIR value; constants of outer computations are rematerialised.

        Raises ParseError for any other value from outside the region.
        """
        result = self.values.get(value)
        if result is None and value in self.known_values:
            result = self.constant(self.known_values[value])
        if result is None:
            result = self._moved(value, _MAX_MOVED)
        if result is None:
            self.context.error(user, f"uses %{value.name} from outside its region, which HLO's computations cannot")
        return result

    def _moved(self, value: Value, budget: int) -> XlaOp | None:
        """Rematerialises an outer value if it needs at most `budget` nested movable ops; otherwise None."""
        operation = self.definitions.get(value)
        if operation is None or budget == 0:
            return None
        for operand in operation.operands:
            if operand not in self.values and self._moved(operand, budget - 1) is None:
                return None
        self.operation(operation)
        return self.values[value]

    def is_movable(self, value: Value) -> bool:
        """Whether a value from outside can be rematerialised inside a region."""
        return value in self.definitions or value in self.known_values

    # Operations

    def operation(self, operation: Operation) -> None:
        """Imports one op and records its results in `values`; raises ParseError, with the position, on failure."""
        location, metadata = self.location, self.metadata
        self._set_location(operation, operation.location)
        operands = [self.value(operand, operation) for operand in operation.operands]
        with self.context.errors_at(operation):
            try:
                results = self.results(operation, operands)
            except (ValueError, IndexError):
                # Rules unpack the operands, results and regions of their op; the text may have another number of them.
                raise ArgumentError(_arity_message(operation)) from None
            if len(results) != len(operation.results):
                raise ArgumentError(f"has {len(results)} results, the text names {len(operation.results)}")
            for declared, result in zip(operation.results, results, strict=True):
                check_type("the result", declared.type, result.shape)
                self.values[declared] = result
                self._record_size(declared, result)
            annotate(operation.attributes, [result.instruction for result in results], self.context.meshes)
        if operation.name.partition(".")[2] in _MOVABLE and all(o in self.definitions for o in operation.operands):
            self.definitions |= dict.fromkeys(operation.results, operation)
        self.location, self.metadata = location, metadata

    def _record_size(self, declared: Value, result: XlaOp) -> None:
        """Records a value in `known_values`, or removes that of an earlier inlining of the function."""
        if self.context.is_specialized:
            self.known_values.pop(declared, None)
            if (value := self.size_of(result)) is not None:
                self.known_values[declared] = value

    def results(self, operation: Operation, operands: list[XlaOp]) -> list[XlaOp]:
        """Converts an op by its rule or row and returns its results.

        Raises ArgumentError if the op has no HLO, and HloomError if it breaks a rule.
        """
        groups = operation.attributes.get("replica_groups")
        if isinstance(groups, DialectAttribute):
            operation.attributes["replica_groups"] = with_mesh(groups, self.context.meshes)
        rule = self.context.rule_of(operation)
        if rule is not None:
            result = rule(self, operation, operands)
            return result if isinstance(result, list) else [result]
        name = operation.name.replace("mhlo.", "stablehlo.", 1)
        dialect, _, short = name.partition(".")
        row = BY_NAME.get(short)
        if row is not None and not row.irregular and dialect in ("stablehlo", "chlo"):
            return self.row(row, operation, operands)
        raise ArgumentError(
            "there is no HLO for this operation; supported are the operations of StableHLO and CHLO, func.call and "
            "sdy.sharding_constraint"
        )

    def row(self, row: Row, operation: Operation, operands: list[XlaOp]) -> list[XlaOp]:
        """Converts an op that is one HLO operation, by its row in the table."""
        if len(operation.regions) != len(row.regions):
            raise ArgumentError(f"needs {len(row.regions)} regions, got {len(operation.regions)}")
        fields = row.fields(operation.attributes, [operand.shape for operand in operands])
        for name, region in zip(row.regions, operation.regions, strict=True):
            fields[name] = self.computation(region, name)
        return self.emit(operation, row.declaration(**fields), operands)

    def emit(self, operation: Operation, op: HloOperation, operands: Sequence[XlaOp]) -> list[XlaOp]:
        """Adds an HLO operation with the results of an MLIR operation; several results are the elements of a tuple."""
        op = op.canonical([operand.shape for operand in operands])
        result = self._add(op, operands, self._result_shape(op, operands, operation.result_types))
        return self.unpacked(result, len(operation.results))

    def packed(self, values: Sequence[XlaOp]) -> XlaOp:
        """A single value itself, otherwise a tuple."""
        return values[0] if len(values) == 1 else self._add(Tuple(), values)

    def unpacked(self, value: XlaOp, count: int) -> list[XlaOp]:
        """The value itself if `count` is 1, otherwise the `count` elements of a tuple."""
        return [value] if count == 1 else self.elements(value, count)

    def elements(self, value: XlaOp, count: int) -> list[XlaOp]:
        """The `count` elements of a tuple."""
        return [self.get_tuple_element(value, i) for i in range(count)]

    def _result_shape(self, op: HloOperation, operands: Sequence[XlaOp], types: Sequence[Type]) -> Shape:
        """The declared shape, or the inferred one if the declaration leaves sizes open."""
        if not any(isinstance(type_, TensorType) and None in type_.dimensions for type_ in types):
            return result_shape([*map(shape_of, types)])
        bound: Any = op.bind([operand.shape for operand in operands])
        try:
            of_element_type = getattr(op, "result_shape", None)
            if of_element_type is not None:
                return of_element_type(*bound, shape_of(_element_type(types[0])).element_type)
            return op.infer(*bound)
        except NotImplementedError:
            if all(map(is_sized, types)):
                return result_shape([*map(shape_of, types)])
            return self._same_sizes(operands, types)

    def _same_sizes(self, operands: Sequence[XlaOp], types: Sequence[Type]) -> Shape:
        """The shape of an op that changes only the element type of its operand."""
        (type_,) = types
        if len(operands) == 1 and isinstance(type_, TensorType) and operands[0].shape.rank == len(type_.dimensions):
            return operands[0].shape.with_element_type(shape_of(_element_type(type_)).element_type)
        raise ArgumentError(f"{type_text(type_)} has a size that is not known while importing")

    def _callable(self, computation: Any, parameters: Sequence[Shape], name: str) -> Computation:
        """Traces a function on XlaOps in a body of its own; overrides the builder's method."""
        if isinstance(computation, Computation):
            return computation
        inner = Body(self.context, self.context.unique(name), self)
        return inner.close([computation(*(inner.parameter(i, shape) for i, shape in enumerate(parameters)))])

    def constant_of(self, operand: XlaOp) -> Array | None:
        """The value of an operand that depends on constants only; None for any other."""
        return self.size_bounds.folder.value(operand.instruction)

    def bounds_of(self, operand: XlaOp) -> Bounds | None:
        """The bounds of an operand that depends on constants and dynamic sizes; None for any other."""
        return self.size_bounds.of(operand.instruction)

    def size_of(self, operand: XlaOp) -> Array | None:
        """The value of at most MAX_SIZES integers or predicates that depend on constants only; None otherwise."""
        shape = operand.shape
        is_whole = shape.is_array and (shape.element_type.is_integer or shape.element_type.is_pred)
        if not is_whole or shape.rank > 1 or shape.element_count > MAX_SIZES:
            return None
        return self.constant_of(operand)

    def element_type_of(self, type_: Type) -> PrimitiveType:
        """The element type of a tensor type."""
        return shape_of(_element_type(type_)).element_type

    def zeros(self, shape: Shape) -> XlaOp:
        """Adds zeros of an array shape."""
        zero = self.constant(np.zeros((), shape.element_type.dtype))
        return self.broadcast(zero, shape.dimensions)

    def sum(self, operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
        """Adds a sum over dimensions."""
        zero = self.constant(np.zeros((), operand.shape.element_type.dtype))
        return self.reduce(operand, zero, lambda x, y: x + y, dimensions)

    def dense(self, value: DenseElements) -> XlaOp:
        """Adds a constant; equal elements become a broadcast scalar, as in XLA."""
        values = value.values
        if values.size > 1 and is_splat(values):
            scalar = self.constant(values.reshape(-1)[:1].reshape(()))
            return self.broadcast(scalar, values.shape)
        return self.constant(values)

    def scalar(self, value: Attribute, type_: Type) -> XlaOp:
        """Adds a scalar constant, of the element type of an MLIR type, with the value of a number, `true` or `false`.

        Raises ArgumentError for other attributes and for integers that overflow the type.
        """
        if not isinstance(value, (bool, Number)):
            raise ArgumentError(f"value is a number, got {value!r}")
        plain = value if isinstance(value, bool) else value.value
        try:
            return self.constant(np.asarray(plain).astype(self.element_type_of(type_).dtype))
        except OverflowError:
            raise ArgumentError(f"{plain} does not fit {type_text(type_)}") from None

    def elided(self, shape: Shape) -> XlaOp:
        """Adds a constant whose elements the text omits."""
        self.context.elided_count += 1
        return self._add(ElidedConstant(number=self.context.elided_count), [], shape)

    def _record_location(self, instruction: Instruction) -> None:
        """Records the position and the metadata of the op that is being imported; overrides the builder's method."""
        instruction.location, instruction.metadata = self.location, dict(self.metadata)

    def _set_location(self, operation: Operation, location: str) -> None:
        self.location = f"line {operation.line}, column {operation.column}"
        name, file, line = location_parts(location)
        self.metadata = {"op_name": name} if name else {}
        if file:
            self.metadata |= {"source_file": file, "source_line": line}


def computation_of(
    context: ImportContext, function: Operation, shapes: Sequence[Shape], known_values: KnownValues = NO_VALUES
) -> Computation:
    """Returns the computation of a function for parameters of these shapes and known values, importing it if necessary.

    Raises ParseError, with the position, for ops without HLO and for calls nested over MAX_CALL_DEPTH deep.
    """
    name = str(function.attributes["sym_name"])
    values = tuple((index, value.tobytes()) for index, value in known_values.items())
    key = (name, tuple(str(shape.without_layout()) for shape in shapes), values)
    if key not in context.computations:
        if context.call_depth >= MAX_CALL_DEPTH:
            context.error(function, f"calls of functions with sizes from their callers nest over {MAX_CALL_DEPTH} deep")
        context.call_depth += 1
        body = Body(context, context.unique(name))
        context.computations[key] = body.function(function, shapes, known_values)
        context.call_depth -= 1
    return context.computations[key]


def _arity_message(operation: Operation) -> str:
    counts = f"{len(operation.operands)} operands, {len(operation.results)} results, {len(operation.regions)} regions"
    return f"does not have {counts}, or a region without one block"


def parameter_name(argument: Value, index: int) -> str:
    """Returns the name of an argument's location if it is an identifier, else one with its number."""
    name, _, _ = location_parts(argument.location)
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else f"Arg_{index}"


def _element_type(type_: Type) -> Type:
    if not isinstance(type_, TensorType):
        return type_
    element = type_.element_type
    return element.storage if isinstance(element, QuantizedType) else element


def check_type(what: str, declared: Type, shape: Shape) -> None:
    """Raises ArgumentError unless the declared type of a result or an argument allows the shape."""
    if not isinstance(declared, TensorType):
        return
    fits = shape.is_array and len(declared.dimensions) == shape.rank
    if fits and shape.element_type is shape_of(_element_type(declared)).element_type:
        sizes = zip(declared.dimensions, shape.dimensions, strict=True)
        if all(size is None or size == actual for size, actual in sizes):
            return
    raise ArgumentError(f"{what} is declared as {type_text(declared)}, but is {shape}")
