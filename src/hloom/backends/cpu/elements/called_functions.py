"""Calls of mathematical functions that a loop nest applies many times.

LLVM takes long for their code. A call takes little beside the work of a function on vectors, whose operands and result
are in registers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeGuard, cast

from hloom.affine import Expression
from hloom.backends.cpu.elements import ops
from hloom.backends.cpu.elements.functions.vector_math import FUNCTIONS, callees
from hloom.backends.cpu.elements.shared import shared
from hloom.backends.cpu.elements.types import Element
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Function, Parameter, Value
from hloom.loops.expressions import Apply, Constant
from hloom.ops.elementwise_binary import Power

MIN_CALLS = 4
"""The number of applications of a function from which they are calls."""
MIN_FUNCTION_COST = 18
"""Cost of a function, in additions, from which calls pay."""


def called_functions(expressions: Iterable[Expression]) -> set[int]:
    """Returns the ids of the applications of functions that are calls."""
    functions = [*filter(_is_callable, expressions)]
    counts = Counter((e.op, e.type) for e in functions)
    return {id(e) for e in functions if counts[e.op, e.type] >= MIN_CALLS}


def _is_callable(expression: Expression) -> TypeGuard[Apply]:
    """Whether an expression is a function with long code, which no constant operand shortens."""
    if not isinstance(expression, Apply) or expression.op.cost < MIN_FUNCTION_COST or not expression.type.is_float:
        return False
    is_function = type(expression.op) in FUNCTIONS or isinstance(expression.op, Power)
    return is_function and not any(isinstance(operand, Constant) for operand in expression.operands)


def call_function(b: Builder, expression: Apply, operands: list[Element]) -> Element:
    """Emits a call of the shared function that applies a mathematical function."""
    types = [cast(Value, operand).type for operand in operands]
    name = f"{expression.op.opcode}.{expression.type}.{types[0].suffix}"

    parameters = [Parameter(f"x{k}", type) for k, type in enumerate(types)]

    def write() -> Builder:
        f = Builder(Function(name, parameters, types[0]), processor().vector_bytes)
        f.ret(cast(Value, ops.apply(f, expression, [*parameters])))
        return f

    function = shared(Function(name, parameters, types[0]), write, callees(type(expression.op), types[0]))
    return b.call_function(function, *cast(list[Value], operands))
