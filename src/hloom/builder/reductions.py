"""Operations that take a computation of scalars (spec 90, 95, 98, 105, 107, 111)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.builder.arguments import array_type, integer, sequence
from hloom.builder.core import BuilderCore
from hloom.builder.window import make_window
from hloom.builder.xla_op import Computationlike, Padding, XlaOp
from hloom.errors import RuleError
from hloom.literal import Literal
from hloom.ops.operation import OPERATIONS
from hloom.shape import scalar


class ReductionMethods(BuilderCore):
    """Operations that take a computation of scalars (spec 90, 95, 98, 105, 107, 111)."""

    def reduce(self, operands: Any, init_values: Any, computation: Computationlike, dimensions: Sequence[int]) -> XlaOp:
        """Folds dimensions of one or several operands into scalars (REDUCE-1)."""
        arrays, inits = self._reduction_operands(operands, init_values)
        op = OPERATIONS["reduce"](dimensions=dimensions, computation=self._reducer(computation, arrays))
        return self._add(op, (*arrays, *inits))

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
        """Folds the elements of each window (REDUCEWINDOW-1)."""
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
        """Selects one element of each window and scatters `source` there (SELECTANDSCATTER-1)."""
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

    def map(
        self,
        operands: Any,
        computation: Computationlike,
        dimensions: Sequence[int],
        static_operands: Sequence[Any] = (),
    ) -> XlaOp:
        """Applies a scalar computation to the elements at equal indices (MAP-1).

        HLO has no place for static operands: they are captured by the mapped computation as constants (MAP-3).
        """
        arrays = self._list(operands)
        scalars = [scalar(array_type(a.shape, "map", "MAP-3")) for a in arrays]
        statics = sequence("map", "static_operands", static_operands)
        if statics:
            computation = self._capturing(computation, statics)
        mapped = self._callable(computation, scalars, "mapped")
        return self._add(OPERATIONS["map"](dimensions=dimensions, computation=mapped), arrays)

    def _capturing(self, computation: Computationlike, statics: list[Any]) -> Callable[..., XlaOp]:
        """The computation with its last arguments fixed to the values of constants."""
        literals = []
        for static in statics:
            if isinstance(static, XlaOp):
                if static.instruction.opcode != "constant":
                    raise RuleError("map", "MAP-3", f"static operands are constants, got {static.instruction!r}")
                literals.append(static.instruction.op.literal)  # type: ignore[attr-defined]
            else:
                literals.append(Literal.from_value(static))

        def mapped(*scalars: XlaOp) -> XlaOp:
            inner = scalars[0].builder
            arguments = [*scalars, *(inner.constant(literal) for literal in literals)]
            return inner.call(computation, *arguments) if not callable(computation) else computation(*arguments)

        return mapped

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
        """Combines windows of updates into operands at indices (SCATTER-1)."""
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
