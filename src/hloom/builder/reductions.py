"""Builder methods for operations with a computation of scalars (spec 90, 95, 98, 105, 107, 111)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.builder.arguments import array_type, integer, makes, sequence
from hloom.builder.core import BuilderCore
from hloom.builder.window import make_window
from hloom.builder.xla_op import Computationlike, Padding, XlaOp
from hloom.errors import RuleError
from hloom.literal import Literal
from hloom.ops.operation import OPERATIONS
from hloom.ops.structure import Constant
from hloom.shape import scalar


class ReductionMethods(BuilderCore):
    """Methods for operations with a computation of scalars."""

    @makes("reduce")
    def reduce(self, operands: Any, init_values: Any, computation: Computationlike, dimensions: Sequence[int]) -> XlaOp:
        """Reduces one or several operands along dimensions (REDUCE-1)."""
        arrays, inits = self._reduction_operands(operands, init_values)
        op = OPERATIONS["reduce"](dimensions=dimensions, computation=self._reducer(computation, arrays))
        return self._add(op, (*arrays, *inits))

    @makes(
        "reduce-window",
        window_dimensions="size of the window in each dimension",
        window_strides="step of the window in each dimension; 1 if not given",
        base_dilations="distance of operand elements in each dimension; 1 if not given",
        window_dilations="distance of window elements in each dimension; 1 if not given",
        padding="SAME, VALID, or (low, high) of each dimension",
    )
    def reduce_window(
        self,
        operands: Any,
        init_values: Any,
        computation: Computationlike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int] | None = None,
        base_dilations: Sequence[int] | None = None,
        window_dilations: Sequence[int] | None = None,
        padding: Padding = "VALID",
    ) -> XlaOp:
        """Reduces the elements of each window (REDUCEWINDOW-1)."""
        arrays, inits = self._reduction_operands(operands, init_values)
        window = make_window(
            "reduce-window",
            list(arrays[0].shape.dimensions) if arrays else [],
            window_dimensions,
            window_strides,
            padding,
            base_dilations,
            window_dilations,
        )
        op = OPERATIONS["reduce-window"](window=window, computation=self._reducer(computation, arrays))
        return self._add(op, (*arrays, *inits))

    @makes(
        "select-and-scatter",
        window_dimensions="size of the window in each dimension",
        window_strides="step of the window in each dimension; 1 if not given",
        padding="SAME, VALID, or (low, high) of each dimension",
    )
    def select_and_scatter(
        self,
        operand: Any,
        select: Computationlike,
        window_dimensions: Sequence[int],
        window_strides: Sequence[int],
        padding: Padding,
        source: Any,
        init_value: Any,
        scatter: Computationlike,
    ) -> XlaOp:
        """Selects one element of each window and combines `source` into its position (SELECTANDSCATTER-1)."""
        operand = self._array(operand, "select-and-scatter", "SELECTANDSCATTER-4")
        source, init_value = (self._operand(x, operand.shape.element_type) for x in (source, init_value))
        element = scalar(operand.shape.element_type)
        window = make_window(
            "select-and-scatter", list(operand.shape.dimensions), window_dimensions, window_strides, padding, None, None
        )
        op = OPERATIONS["select-and-scatter"](
            window=window,
            select=self._callable(select, [element, element], "select"),
            scatter=self._callable(scatter, [element, element], "scatter"),
        )
        return self._add(op, (operand, source, init_value))

    def _reduction_operands(self, operands: Any, init_values: Any) -> tuple[list[XlaOp], list[XlaOp]]:
        arrays = self._list(operands)
        inits = list(init_values) if isinstance(init_values, (list, tuple)) else [init_values]
        types = [a.shape.element_type for a in arrays] + [None] * len(inits)
        return arrays, [self._operand(init, kind) for init, kind in zip(inits, types, strict=False)]

    @makes("map", static_operands="constants or scalars that the computation takes besides")
    def map(
        self,
        operands: Any,
        computation: Computationlike,
        dimensions: Sequence[int],
        static_operands: Sequence[Any] = (),
    ) -> XlaOp:
        """Applies a scalar computation to the elements at equal indices (MAP-1).

        HLO has no static operands (MAP-3): constants become part of the mapped computation, other scalars are broadcast
        and mapped along.
        """
        arrays = self._list(operands)
        count = len(arrays)
        captured: list[Literal | None] = []
        for static in sequence("map", "static_operands", static_operands):
            literal = _constant_value(static)
            captured.append(literal)
            if literal is None:
                if not static.shape.is_scalar or not arrays:
                    raise RuleError("map", "MAP-3", f"static operands are constants or scalars, got {static.shape}")
                arrays.append(self.broadcast(static, arrays[0].shape.dimensions))
        scalars = [scalar(array_type(a.shape, "map", "MAP-3")) for a in arrays]
        if captured:
            computation = _with_statics(computation, count, captured)
        mapped = self._callable(computation, scalars, "mapped")
        return self._add(OPERATIONS["map"](dimensions=dimensions, computation=mapped), arrays)

    @makes("sort", dimension="dimension along which the operands are sorted; a negative one counts from the end")
    def sort(self, operands: Any, comparator: Computationlike, dimension: int = -1, is_stable: bool = False) -> XlaOp:
        """Sorts operands together along a dimension by a less-than comparator (SORT-1 to SORT-5)."""
        arrays = self._list(operands)
        if not arrays:
            raise RuleError("sort", "SORT-7", "needs at least one operand")
        types = [scalar(array_type(a.shape, "sort", "SORT-7")) for a in arrays]
        rank = arrays[0].shape.rank
        if not -rank <= integer("sort", "dimension", dimension) < rank:
            raise RuleError(
                "sort", "SORT-7", f"dimension {dimension} must be in [{-rank}, {rank}) of {arrays[0].shape}"
            )
        compare = self._callable(comparator, [t for t in types for _ in range(2)], "comparator")
        op = OPERATIONS["sort"](dimension=dimension % rank, comparator=compare, is_stable=is_stable)
        return self._add(op, arrays)

    @makes("scatter")
    def scatter(
        self,
        operands: Any,
        scatter_indices: Any,
        updates: Any,
        update_computation: Computationlike,
        index_vector_dim: int,
        update_window_dims: Sequence[int],
        inserted_window_dims: Sequence[int],
        scatter_dims_to_operand_dims: Sequence[int],
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        input_batching_dims: Sequence[int] = (),
        scatter_indices_batching_dims: Sequence[int] = (),
    ) -> XlaOp:
        """Combines windows of `updates` into `operands` at indices (SCATTER-1)."""
        arrays, values = self._list(operands), self._list(updates)
        op = OPERATIONS["scatter"](
            update_computation=self._reducer(update_computation, arrays),
            index_vector_dim=index_vector_dim,
            update_window_dims=update_window_dims,
            inserted_window_dims=inserted_window_dims,
            scatter_dims_to_operand_dims=scatter_dims_to_operand_dims,
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            input_batching_dims=input_batching_dims,
            scatter_indices_batching_dims=scatter_indices_batching_dims,
        )
        return self._add(op, (*arrays, self._operand(scatter_indices), *values))


def _constant_value(static: Any) -> Literal | None:
    """The value of a static operand that is a constant; None if it is another XlaOp."""
    if not isinstance(static, XlaOp):
        return Literal.from_value(static)
    op = static.instruction.op
    return op.literal if isinstance(op, Constant) else None


def _with_statics(computation: Computationlike, count: int, captured: Sequence[Literal | None]) -> Callable[..., XlaOp]:
    """Wraps the computation as a function of `count` elements and the static operands that are not constants."""

    def mapped(*scalars: XlaOp) -> XlaOp:
        inner, further = scalars[0].builder, iter(scalars[count:])
        statics = [next(further) if literal is None else inner.constant(literal) for literal in captured]
        arguments = [*scalars[:count], *statics]
        result: XlaOp = computation(*arguments) if callable(computation) else inner.call(computation, *arguments)
        return result

    return mapped
