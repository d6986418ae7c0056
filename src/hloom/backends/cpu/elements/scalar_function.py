"""Calls of scalar computations that are compiled as functions: an element-wise operation that calls one for each lane.

Computations with loops or arrays are compiled as functions (`codegen/outline.py`), so that a combiner or comparator
that calls one has only element-wise operations.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from hloom.backends.cpu.elements.types import (
    Element,
    element_of,
    load_element,
    map_parts,
    memory_element,
    parts,
    store_element,
    width_of,
)
from hloom.lir import (
    I1,
    I64,
    Builder,
    Function,
    Parameter,
    Value,
    constant,
    poison,
    struct_of,
    type_of,
    zero,
)
from hloom.loops.expressions import Apply, FunctionCall
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import BOOL, COMPUTATION, INT, AttributeKind
from hloom.ops.operation import attribute
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType


@record
class ScalarFunction:
    """A function `void @name(ptr ..)` that takes a pointer for each parameter, and then for each result.

    `definitions` are it and the functions that it calls; the name stands for them.
    """

    name: str
    definitions: tuple[Function, ...] = field(compare=False)
    parameters: tuple[PrimitiveType, ...]
    results: tuple[PrimitiveType, ...]


FUNCTION = AttributeKind("FUNCTION", "a native function", lambda value: value)


class ScalarFunctionCall(FunctionCall):
    """Result `position` of a scalar function of the operands' elements; the function computes `calls`.

    If `is_guarded`, a predicate precedes the operands: the function runs where it holds, and the result is 0 elsewhere.
    """

    opcode = "scalar-function-call"
    operands = {"*operands": "elements of the operands"}
    function: ScalarFunction = attribute(FUNCTION, text="", proto="")
    position: int = attribute(INT, text="", proto="")
    calls: Computation = attribute(COMPUTATION, text="", proto="")
    is_guarded: bool = attribute(BOOL, default=False, text="", proto="")

    def guarded(self) -> ScalarFunctionCall:
        return self.replace(is_guarded=True)

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        """The shape of the first operand with the element type of the result."""
        result = Shape.array(self.function.results[self.position])
        return operands[0].with_element_type(result.element_type).without_layout() if operands else result

    def evaluate(self, ctx: Context, operands: tuple[Any, ...]) -> Any:
        """Interprets `calls` on each element."""
        arrays = np.broadcast_arrays(*operands[self.is_guarded :])
        value = ctx.map(self.calls, *arrays)
        return value[self.position] if isinstance(value, tuple) else value


def apply_function(op: ScalarFunctionCall, b: Builder, expression: Apply, *operands: Element) -> Element:
    """Emits a call of the function for each lane of the operands."""
    if _name(op) not in b.needs:
        b.needs[_name(op)] = _wrapper(op)
    width = max(map(width_of, operands), default=0)
    if not width:
        return _call(b, op, list(operands))
    lanes = [_call(b, op, [_lane(b, operand, lane) for operand in operands]) for lane in range(width)]
    return _side_by_side(b, lanes)


def _name(op: ScalarFunctionCall) -> str:
    return f"{op.function.name}.{op.position}" + (".guarded" if op.is_guarded else "")


def _call(b: Builder, op: ScalarFunctionCall, operands: list[Element]) -> Element:
    arguments: list[Value] = list(parts(operands.pop(0))) if op.is_guarded else []
    for operand, type in zip(operands, op.function.parameters, strict=True):
        arguments += [part if type.is_complex else store_element(b, part, type) for part in parts(operand)]
    result = op.function.results[op.position]
    memory = type_of(memory_element(result))
    if not result.is_complex:
        return load_element(b, b.call(_name(op), memory, *arguments), result)
    pair = b.call(_name(op), struct_of(memory, memory), *arguments)
    return b.extract_field(pair, 0), b.extract_field(pair, 1)


def _wrapper(op: ScalarFunctionCall) -> Function:
    """Returns a function that takes and returns values, with stack memory for the pointers of the wrapped function."""
    function, result = op.function, op.function.results[op.position]
    memory = type_of(memory_element(result))
    parameters = [Parameter("go", I1)] if op.is_guarded else []
    values = [
        [Parameter(f"p{k}.{part}", type_of(memory_element(type))) for part in range(2 if type.is_complex else 1)]
        for k, type in enumerate(function.parameters)
    ]
    parameters += [part for value in values for part in value]
    returned = struct_of(memory, memory) if result.is_complex else memory
    b = Builder(Function(_name(op), parameters, returned))
    if op.is_guarded:
        run, skip = b.label("run"), b.label("skip")
        b.branch_if(parameters[0], run, skip)
        b.start(skip)
        b.ret(zero(returned))
        b.start(run)
    pointers = []
    for type in (*function.parameters, *function.results):
        pointers.append(b.stack_array(type_of(memory_element(type)), 2 if type.is_complex else 1, 16))
    for type, value, pointer in zip(function.parameters, values, pointers, strict=False):
        for k, part in enumerate(value):
            address = b.element_pointer(pointer, constant(I64, k), part.type.element)
            b.store(part, address, max(1, type.byte_width // len(value)))
    b.needs.update((need.name, need) for need in function.definitions)
    b.call_void(function.name, *pointers)
    b.ret(b.load(pointers[len(function.parameters) + op.position], returned, 1))
    return b.function


def _lane(b: Builder, element: Element, lane: int) -> Element:
    return map_parts(lambda part: b.extract(part, lane) if part.type.width else part, element)


def _side_by_side(b: Builder, lanes: list[Element]) -> Element:
    """Combines scalars as the lanes of vectors."""
    vectors = []
    for scalars in zip(*map(parts, lanes), strict=True):
        vector: Value = poison(type_of(scalars[0].type.element, len(scalars)))
        for k, value in enumerate(scalars):
            vector = b.insert(vector, value, k)
        vectors.append(vector)
    return element_of(vectors)
