"""Calls of scalar computations that are compiled as functions: an element-wise operation that calls one for each lane.

Computations with loops or arrays are compiled as functions (`codegen/outline.py`), so that a combiner or comparator
that calls one has only element-wise operations.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from hloom.backends.cpu.llvm.text import PTR, Builder, Value, type_of
from hloom.loops.expressions import Apply, FunctionCall
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import BOOL, COMPUTATION, INT, AttributeKind
from hloom.ops.operation import attribute
from hloom.shape import Shape
from hloom.types import PrimitiveType


@dataclass(frozen=True)
class ScalarFunction:
    """A function `void @name(ptr ..)` that takes a pointer for each parameter, and then for each result.

    `definitions` are the declarations and definitions that a calling module needs, each a line or a function.
    """

    name: str
    definitions: tuple[str, ...]
    parameters: tuple[PrimitiveType, ...]
    results: tuple[PrimitiveType, ...]


FUNCTION = AttributeKind("FUNCTION", "a native function", lambda value: value)


class ScalarFunctionCall(FunctionCall):
    """Result `position` of a scalar function of the operands' elements; the function computes `calls`.

    If `is_guarded`, a predicate precedes the operands: the function runs where it holds, and the result is 0 elsewhere.
    """

    opcode = "scalar-function-call"
    operands = ("*operands",)
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
    function = op.function
    for line in function.definitions:
        b.declarations[line] = None
    b.declarations[_wrapper(op)] = None
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
    memory, call = type_of(memory_element(result)), f"@{_name(op)}({', '.join(map(str, arguments))})"
    if not result.is_complex:
        return load_element(b, b.emit(f"call {memory} {call}", memory), result)
    pair = b.emit(f"call {{ {memory}, {memory} }} {call}", memory)
    real, imaginary = (b.emit(f"extractvalue {{ {memory}, {memory} }} {pair.text}, {i}", memory) for i in range(2))
    return real, imaginary


def _wrapper(op: ScalarFunctionCall) -> str:
    """A function that takes and returns values, with stack slots for the pointers of the wrapped function."""
    b, function = Builder(), op.function
    names, pointers = ["i1 %go"] if op.is_guarded else [], []
    type = function.results[op.position]
    memory = type_of(memory_element(type))
    returned = f"{{ {memory}, {memory} }}" if type.is_complex else str(memory)
    for k, slot_type in enumerate([*function.parameters, *function.results]):
        element, count = type_of(memory_element(slot_type)), 2 if slot_type.is_complex else 1
        slot = b.emit(f"alloca [{count} x {element}], align 16", PTR)
        pointers.append(slot)
        for part in range(count if k < len(function.parameters) else 0):
            names.append(f"{element} %p{k}.{part}")
            target = b.emit(f"getelementptr {element}, {slot}, i64 {part}", PTR)
            b.line(f"store {element} %p{k}.{part}, {target}, align {max(1, slot_type.byte_width // count)}")
    if op.is_guarded:
        run, skip = b.label("run"), b.label("skip")
        b.branch_if(Value("%go", type_of("i1")), run, skip)
        b.start(skip)
        b.line(f"ret {returned} zeroinitializer")
        b.start(run)
    b.line(f"call void @{function.name}({', '.join(map(str, pointers))})")
    value = b.emit(f"load {returned}, {pointers[len(function.parameters) + op.position]}, align 1", memory)
    b.line(f"ret {returned} {value.text}")
    return "\n".join([f"define internal {returned} @{_name(op)}({', '.join(names)}) #0 {{", *b.lines, "}"])


def _lane(b: Builder, element: Element, lane: int) -> Element:
    return map_parts(lambda part: b.extract(part, lane) if part.type.width else part, element)


def _side_by_side(b: Builder, lanes: list[Element]) -> Element:
    """Combines scalars as the lanes of vectors."""
    vectors = []
    for scalars in zip(*map(parts, lanes), strict=True):
        vector = Value("poison", type_of(scalars[0].type.element, len(scalars)))
        for k, value in enumerate(scalars):
            vector = b.emit(f"insertelement {vector}, {value}, i64 {k}", vector.type)
        vectors.append(vector)
    return element_of(vectors)
