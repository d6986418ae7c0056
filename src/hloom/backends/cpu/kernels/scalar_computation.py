"""Comparators and combiners: scalar computations, emitted inline on scalar or vector registers."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.affine import Expression
from hloom.backends.cpu.elements import ops as element_ops
from hloom.backends.cpu.elements.types import Element, constant_element, is_native, width_of
from hloom.ir import Computation
from hloom.lir import Builder
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Apply, Argument, Constant, is_function_call, walk
from hloom.loops.scalar_computation import can_compute, compute


class ScalarComputation:
    """A scalar computation as expressions of its parameters; equal expressions are one object of `space`."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.types = [shape.element_type for shape in computation.parameter_shapes]
        self.space = ExpressionSpace([])
        self.arguments = [self.space.argument(type, index) for index, type in enumerate(self.types)]
        self.results = self.results_for(self.arguments)

    @staticmethod
    def of(computation: Computation) -> ScalarComputation | None:
        """Returns the scalar computation; None if one of its instructions cannot be emitted."""
        if not can_compute(computation, element_ops.can_apply) or not all(
            is_native(shape.element_type) for i in computation.instructions for shape in i.shape.leaves()
        ):
            return None
        return ScalarComputation(computation)

    @property
    def calls_functions(self) -> bool:
        """Whether it calls functions, which may contain loops and so must not get the values of inactive lanes."""
        return any(map(is_function_call, walk(self.results)))

    def results_for(self, arguments: Sequence[Expression]) -> list[Expression]:
        """The result expressions for other argument expressions."""
        return compute(self.space, self.computation, arguments)

    def emit(self, b: Builder, arguments: Sequence[Element]) -> list[Element]:
        """Emits the results for arguments of equal width."""
        return emit_expressions(b, self.results, arguments)


def emit_expressions(b: Builder, roots: Sequence[Expression], arguments: Sequence[Element]) -> list[Element]:
    """Emits expressions, each Argument of which is an index into `arguments`."""
    width = max(map(width_of, arguments), default=0)
    values: dict[int, Element] = {}
    for expression in walk(roots):
        if isinstance(expression, Argument):
            value = arguments[expression.number]
        elif isinstance(expression, Constant):
            value = constant_element(expression.type, expression.value, width)
        else:
            assert isinstance(expression, Apply)
            value = element_ops.apply(b, expression, [values[id(operand)] for operand in expression.operands])
        values[id(expression)] = value
    return [values[id(root)] for root in roots]
