"""XlaBuilder and XlaOp: the operations of the specification, under its names and arguments, in snake_case.

Methods whose operation is one HLO instruction with inferred shape come from the declarations in `hloom.ops`; those here
do more: they broadcast, derive attributes, or make several instructions. Shapes are known while building, and every
error names the line of the user's program that caused it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from hloom import ops
from hloom.broadcasting import Broadcasting, broadcast_shapes
from hloom.errors import ArgumentError, HloomError, RuleError
from hloom.ir import Computation, Instruction, Module, callees_first, clone_computation
from hloom.literal import Literal
from hloom.ops.attributes import (
    ComparisonDirection,
    ComparisonType,
    ConvolutionDimensionNumbers,
    RandomDistribution,
    SliceDimension,
    WindowDimension,
)
from hloom.ops.operation import OPERATIONS, Operation
from hloom.shape import TOKEN, Shape, normalize_dimension, scalar
from hloom.types import BY_NAME, PrimitiveType
from hloom.verifier import verify_module

Computationlike = Any
Padding = str | Sequence[tuple[int, int]]


class XlaOp:
    """A value in a computation that is being built. Operators follow XLA's strict broadcasting (BC-1 to BC-3)."""

    __array_priority__ = 1000
    __array_ufunc__ = None
    __slots__ = ("builder", "instruction")

    def __init__(self, builder: XlaBuilder, instruction: Instruction) -> None:
        self.builder = builder
        self.instruction = instruction

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    def __repr__(self) -> str:
        return f"XlaOp({self.instruction!r})"

    def __bool__(self) -> bool:
        raise ArgumentError("the value of an XlaOp is not known while building: use select or conditional")

    def __iter__(self) -> Any:
        raise ArgumentError("an XlaOp cannot be iterated: use slice or get_tuple_element")

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> XlaOp:  # type: ignore[override]
        return self.builder.eq(self, other)

    def __ne__(self, other: object) -> XlaOp:  # type: ignore[override]
        return self.builder.ne(self, other)

    def __getitem__(self, index: Any) -> XlaOp:
        """An element of a tuple, or a slice of an array: integers, `start:limit:stride` and `...` as in NumPy."""
        if self.shape.is_tuple:
            return self.builder.get_tuple_element(self, index)
        return self.builder._index(self, index if isinstance(index, tuple) else (index,))

    def __neg__(self) -> XlaOp:
        return self.builder.neg(self)

    def __invert__(self) -> XlaOp:
        return self.builder.not_(self)

    def __abs__(self) -> XlaOp:
        return self.builder.abs(self)


def _operator(method: str, swapped: bool) -> Callable[[XlaOp, Any], XlaOp]:
    def apply(self: XlaOp, other: Any) -> XlaOp:
        function = getattr(self.builder, method)
        result: XlaOp = function(other, self) if swapped else function(self, other)
        return result

    return apply


for _name, _method in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "mod": "rem", "pow": "pow", "and": "and_",
    "or": "or_", "xor": "xor", "lshift": "shift_left", "rshift": "shift_right_arithmetic", "matmul": "dot",
}.items():  # fmt: skip
    setattr(XlaOp, f"__{_name}__", _operator(_method, swapped=False))
    setattr(XlaOp, f"__r{_name}__", _operator(_method, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(XlaOp, f"__{_name}__", _operator(_name, swapped=False))


class XlaComputation:
    """A built computation: a module whose entry it is."""

    def __init__(self, module: Module) -> None:
        self.module = module

    @property
    def entry_computation(self) -> Computation:
        return self.module.entry

    def to_text(self, **options: Any) -> str:
        """HLO text that XLA parses; for the options see `hloom.text.print_module`."""
        return self.module.to_text(**options)

    def __repr__(self) -> str:
        return f"XlaComputation({self.entry_computation!r})"


class XlaBuilder:
    """Builds one computation: methods add instructions, `build` gives the computation.

    Array arguments may be XlaOps, or NumPy arrays and Python numbers, which become constants (numbers take the element
    type of the other operand). Computations given as arguments are XlaComputations, or Python functions on XlaOps,
    which are traced with the parameter shapes that the operation asks for. Methods raise HloomError.
    """

    def __init__(self, name: str = "computation") -> None:
        self.name = name
        self._computation = Computation(name)
        self._counts: dict[str, int] = {}
        self._last_effect: dict[str, Instruction] = {}

    # Leaves and the end

    def parameter(self, index: int, shape: Shape, name: str = "") -> XlaOp:
        """Argument `index` of the computation (GEN-12)."""
        if not isinstance(shape, Shape):
            raise ArgumentError(f"a parameter has a shape like hl.f32[2, 3], got {shape!r}")
        return self._add(OPERATIONS["parameter"](number=index), (), shape, name or f"arg{index}")

    def constant(self, literal: Any) -> XlaOp:
        """A constant of an array, a number, a nested list, a tuple of these, or a Literal."""
        value = Literal.from_value(literal)
        return self._add(OPERATIONS["constant"](literal=value), ())

    def build(self, root: XlaOp | None = None) -> XlaComputation:
        """The computation with the root given, or else the last operation (GEN-12)."""
        if root is not None:
            self._own(root)
            self._computation.root = root.instruction
        module = Module(self.name)
        # Copies: the builder may go on, and a computation may be used in several others.
        copies: dict[int, Computation] = {}
        for computation in callees_first(self._computation):
            copy = clone_computation(computation, lambda callee: copies[id(callee)])
            copies[id(computation)] = copy
            if computation is not self._computation:
                _make_name_unique(module, copy)
            module.add(copy, entry=computation is self._computation)
        module.set_default_entry_layouts()
        verify_module(module)
        return XlaComputation(module)

    # Element-wise operations that broadcast

    def _binary(self, opcode: str, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None) -> XlaOp:
        lhs, rhs = self._operands(lhs, rhs)
        plan = broadcast_shapes(opcode, lhs.shape, rhs.shape, _dimensions_or_none(opcode, broadcast_dimensions))
        return self._add(OPERATIONS[opcode](), (self._widen(lhs, plan.lhs), self._widen(rhs, plan.rhs)))

    def _compare(
        self, direction: str, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None, total_order: bool
    ) -> XlaOp:
        lhs, rhs = self._operands(lhs, rhs)
        plan = broadcast_shapes("compare", lhs.shape, rhs.shape, _dimensions_or_none("compare", broadcast_dimensions))
        element_type = lhs.shape.element_type
        kind = None
        if total_order and element_type.is_float:
            kind = ComparisonType.TOTALORDER
        elif total_order and element_type.is_complex:
            raise RuleError("compare", "TOTALORDER-2", f"complex numbers have no total order, got {lhs.shape}")
        op = OPERATIONS["compare"](direction=ComparisonDirection(direction), type=kind)
        return self._add(op, (self._widen(lhs, plan.lhs), self._widen(rhs, plan.rhs)))

    def _widen(self, operand: XlaOp, plan: Broadcasting) -> XlaOp:
        """Writes the reshape and broadcast that bring an operand to the joint shape (BC-20)."""
        if plan.is_identity:
            return operand
        shape = operand.shape
        kept = [d for d in range(shape.rank) if d not in plan.expanded]
        if plan.expanded:
            # Dimensions of size 1 that grow are dropped first: HLO's broadcast does not stretch.
            squeezed = Shape.array(
                shape.element_type,
                (shape.dimensions[d] for d in kept),
                (shape.dynamic_dimensions[d] for d in kept),
            )
            operand = self._add(OPERATIONS["reshape"](), (operand,), squeezed)
        targets = [plan.dimensions[d] for d in kept]
        if operand.shape.dimensions == plan.shape.dimensions and targets == list(range(plan.shape.rank)):
            return operand
        dynamic = [False] * plan.shape.rank
        for d, target in zip(kept, targets, strict=True):
            dynamic[target] = shape.dynamic_dimensions[d]
        result = Shape.array(shape.element_type, plan.shape.dimensions, dynamic)
        return self._add(OPERATIONS["broadcast"](broadcast_dimensions=targets), (operand,), result)

    def clamp(self, min: Any, operand: Any, max: Any) -> XlaOp:
        """Min(Max(min, operand), max), element by element; scalars apply to all elements (CLAMP-1, CLAMP-2)."""
        operand = self._operand(operand, _element_type_of(min, max))
        min, max = (self._operand(bound, operand.shape.element_type) for bound in (min, max))
        return self._add(OPERATIONS["clamp"](), (min, operand, max))

    def select(self, pred: Any, on_true: Any, on_false: Any) -> XlaOp:
        """`on_true` where `pred`, else `on_false`; tuples with a scalar `pred` too (SELECT-1 to SELECT-3)."""
        pred = self._operand(pred, PrimitiveType.PRED)
        on_true, on_false = self._operands(on_true, on_false)
        if on_true.shape.is_tuple or on_false.shape.is_tuple:
            if not pred.shape.compatible(scalar(PrimitiveType.PRED)) or not on_true.shape.compatible(on_false.shape):
                raise RuleError(
                    "select",
                    "SELECT-4",
                    f"tuples of one shape are selected by pred[], got {pred.shape}, {on_true.shape}, {on_false.shape}",
                )
            return self.conditional(pred, on_true, lambda x: x, on_false, lambda x: x)
        return self._add(OPERATIONS["select"](), (pred, on_true, on_false))

    # Shapes

    def broadcast(self, operand: Any, broadcast_sizes: Sequence[int]) -> XlaOp:
        """Adds dimensions of these sizes in front (BROADCAST-1)."""
        operand = self._array(operand, "broadcast", "BROADCAST-3")
        sizes = _ints("broadcast", "broadcast_sizes", broadcast_sizes)
        if any(size < 0 for size in sizes):
            raise RuleError("broadcast", "BROADCAST-3", f"sizes must be >= 0, got {sizes}")
        shape = operand.shape
        if not sizes:
            return operand
        result = Shape.array(
            shape.element_type, (*sizes, *shape.dimensions), (*[False] * len(sizes), *shape.dynamic_dimensions)
        )
        targets = range(len(sizes), len(sizes) + shape.rank)
        return self._add(OPERATIONS["broadcast"](broadcast_dimensions=targets), (operand,), result)

    def broadcast_in_dim(self, operand: Any, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
        """Operand dimension i becomes dimension `broadcast_dimensions[i]`; sizes of 1 grow (BROADCASTINDIM-1)."""
        operand = self._array(operand, "broadcast", "BROADCASTINDIM-3")
        sizes = _ints("broadcast", "out_dim_size", out_dim_size)
        targets = _ints("broadcast", "broadcast_dimensions", broadcast_dimensions)
        plan = Broadcasting.in_dim(operand.shape, sizes, targets)
        return self._widen(operand, plan)

    def reshape(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """The elements in row-major order in other dimensions (RESHAPE-1)."""
        operand = self._array(operand, "reshape", "RESHAPE-2")
        sizes = _ints("reshape", "dimensions", dimensions)
        if any(size < 0 for size in sizes):
            raise RuleError("reshape", "RESHAPE-2", f"sizes must be >= 0 (there is no -1 for the rest), got {sizes}")
        shape = Shape.array(operand.shape.element_type, sizes)
        if operand.shape.is_dynamic:
            shape = _reshaped_dynamic(operand.shape, shape)
        return self._add(OPERATIONS["reshape"](), (operand,), shape)

    def collapse(self, operand: Any, dimensions: Sequence[int]) -> XlaOp:
        """Replaces a run of consecutive dimensions by one with their product (COLLAPSE-1)."""
        operand = self._array(operand, "collapse", "COLLAPSE-2")
        run = _ints("collapse", "dimensions", dimensions)
        rank, sizes = operand.shape.rank, operand.shape.dimensions
        if run and (run != list(range(run[0], run[0] + len(run))) or run[0] < 0 or run[-1] >= rank):
            raise RuleError(
                "collapse", "COLLAPSE-2", f"dimensions are consecutive and increasing in [0, {rank}), got {run}"
            )
        if len(run) < 2:
            return operand
        product = 1
        for d in run:
            product *= sizes[d]
        return self.reshape(operand, [*sizes[: run[0]], product, *sizes[run[-1] + 1 :]])

    def concat_in_dim(self, operands: Sequence[Any], dimension: int) -> XlaOp:
        """Joins arrays along a dimension (CONCATENATE-1)."""
        return self._add(OPERATIONS["concatenate"](dimension=dimension), self._list(operands))

    def slice(
        self,
        operand: Any,
        start_indices: Sequence[int],
        limit_indices: Sequence[int],
        strides: Sequence[int] | None = None,
    ) -> XlaOp:
        """The elements start, start + stride, .. below limit in each dimension (SLICE-1)."""
        starts = _ints("slice", "start_indices", start_indices)
        limits = _ints("slice", "limit_indices", limit_indices)
        steps = [1] * len(starts) if strides is None else _ints("slice", "strides", strides)
        if not len(starts) == len(limits) == len(steps):
            raise RuleError(
                "slice", "SLICE-3", f"needs as many starts as limits and strides: {starts}, {limits}, {steps}"
            )
        parts = tuple(map(SliceDimension, starts, limits, steps))
        return self._add(OPERATIONS["slice"](slice=parts), (self._operand(operand),))

    def dynamic_slice(self, operand: Any, start_indices: Sequence[Any], size_indices: Sequence[int]) -> XlaOp:
        """The sub-array of these sizes at start indices known at run time (DYNAMICSLICE-1)."""
        starts = self._starts(start_indices)
        return self._add(OPERATIONS["dynamic-slice"](size_indices=size_indices), (self._operand(operand), *starts))

    def dynamic_update_slice(self, operand: Any, update: Any, start_indices: Sequence[Any]) -> XlaOp:
        """`operand` with `update` written over it at start indices known at run time (DYNAMICUPDATESLICE-1)."""
        operand, update = self._operands(operand, update)
        return self._add(OPERATIONS["dynamic-update-slice"](), (operand, update, *self._starts(start_indices)))

    def _starts(self, start_indices: Any) -> list[XlaOp]:
        if isinstance(start_indices, XlaOp):
            return [start_indices]
        starts = _sequence("dynamic-slice", "start_indices", start_indices)
        return [self._operand(start, PrimitiveType.S32) for start in starts]

    def _index(self, operand: XlaOp, index: tuple[Any, ...]) -> XlaOp:
        """NumPy-like indexing of arrays by integers, slices and `...`."""
        rank = operand.shape.rank
        if sum(entry is Ellipsis for entry in index) > 1 or len([e for e in index if e is not Ellipsis]) > rank:
            raise RuleError("slice", "SLICE-3", f"{index} has too many indices for {operand.shape}")
        if Ellipsis in index:
            at = index.index(Ellipsis)
            index = (*index[:at], *[slice(None)] * (rank - len(index) + 1), *index[at + 1 :])
        index = (*index, *[slice(None)] * (rank - len(index)))
        starts, limits, strides, kept = [], [], [], []
        for entry, size in zip(index, operand.shape.dimensions, strict=True):
            if isinstance(entry, slice):
                start, limit, step = entry.indices(size)
                if step < 1:
                    raise RuleError("slice", "SLICE-3", f"strides are >= 1 (use rev to turn round), got {step}")
                starts.append(start)
                limits.append(max(start, limit))
                strides.append(step)
                kept.append(True)
            elif isinstance(entry, int) and not isinstance(entry, bool):
                position = normalize_dimension(entry, size)
                starts.append(position)
                limits.append(position + 1)
                strides.append(1)
                kept.append(False)
            else:
                raise ArgumentError(f"XlaOps are indexed by integers, slices and '...', got {entry!r}")
        sliced = self.slice(operand, starts, limits, strides)
        sizes = [size for size, keep in zip(sliced.shape.dimensions, kept, strict=True) if keep]
        return sliced if all(kept) else self.reshape(sliced, sizes)

    # Types

    def convert_element_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Converts values element by element (CONVERT-1)."""
        operand = self._array(operand, "convert", "CONVERT-6")
        new = _element_type(new_element_type)
        return self._add(OPERATIONS["convert"](), (operand,), operand.shape.without_layout().with_element_type(new))

    def bitcast_convert_type(self, operand: Any, new_element_type: PrimitiveType | str) -> XlaOp:
        """Reinterprets the bits as another element type (BITCASTCONVERT-1 to -3)."""
        operand = self._array(operand, "bitcast-convert", "BITCASTCONVERT-6")
        new, shape = _element_type(new_element_type), operand.shape
        old_bits, new_bits = shape.element_type.bits, new.bits
        sizes, dynamic = list(shape.dimensions), list(shape.dynamic_dimensions)
        if old_bits > new_bits:
            sizes.append(old_bits // new_bits)
            dynamic.append(False)
        elif old_bits < new_bits:
            sizes, dynamic = sizes[:-1], dynamic[:-1]
        return self._add(OPERATIONS["bitcast-convert"](), (operand,), Shape.array(new, sizes, dynamic))

    def iota(self, shape: Shape, iota_dimension: int) -> XlaOp:
        """0, 1, 2 .. along a dimension (IOTA-1)."""
        return self._add(OPERATIONS["iota"](iota_dimension=iota_dimension), (), _shape(shape))

    # Products

    def dot(self, lhs: Any, rhs: Any) -> XlaOp:
        """Vector and matrix products: the last dimension of lhs with the first of rhs (DOT-1)."""
        lhs, rhs = self._operands(lhs, rhs)
        for operand in (lhs, rhs):
            if not operand.shape.is_array or operand.shape.rank not in (1, 2):
                raise RuleError("dot", "DOT-2", f"takes vectors and matrices, got {lhs.shape} and {rhs.shape}")
        op = OPERATIONS["dot"](lhs_contracting_dims=(lhs.shape.rank - 1,), rhs_contracting_dims=(0,))
        return self._add(op, (lhs, rhs))

    def dot_general(
        self,
        lhs: Any,
        rhs: Any,
        dimension_numbers: Any,
        preferred_element_type: PrimitiveType | str | None = None,
    ) -> XlaOp:
        """Sums of products over contracting dimensions, for each batch index (DOTGENERAL-1).

        `dimension_numbers` is a mapping, or an object, with `lhs_contracting_dimensions`, `rhs_contracting_dimensions`,
        `lhs_batch_dimensions` and `rhs_batch_dimensions`; missing ones are empty.
        """
        lhs, rhs = self._operands(lhs, rhs)
        numbers = {}
        for field in ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"):
            name = f"{field}_dimensions"
            mapping = isinstance(dimension_numbers, dict)
            value = dimension_numbers.get(name, ()) if mapping else getattr(dimension_numbers, name, ())
            numbers[f"{field}_dims"] = value
        op: Any = OPERATIONS["dot"](**numbers)
        shape = None
        if preferred_element_type is not None:
            op.check_sides(lhs.shape, rhs.shape)
            shape = op._result(lhs.shape, rhs.shape, _element_type(preferred_element_type))
        return self._add(op, (lhs, rhs), shape)

    def conv(
        self,
        lhs: Any,
        rhs: Any,
        window_strides: Sequence[int],
        padding: str,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> XlaOp:
        """Convolution with padding "SAME" or "VALID" (CONV-1)."""
        if not isinstance(padding, str) or padding not in ("SAME", "VALID"):
            raise RuleError("convolution", "CONV-1", f"padding is SAME or VALID, got {padding!r}")
        return self.conv_with_general_padding(
            lhs,
            rhs,
            window_strides,
            padding,
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )

    def conv_with_general_padding(
        self,
        lhs: Any,
        rhs: Any,
        window_strides: Sequence[int],
        padding: Padding,
        lhs_dilation: Sequence[int] | None = None,
        rhs_dilation: Sequence[int] | None = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        dimension_numbers: ConvolutionDimensionNumbers | None = None,
        preferred_element_type: PrimitiveType | str | None = None,
    ) -> XlaOp:
        """Convolution over n spatial dimensions with any padding, dilations and groups (CONVGENERAL-1 to -10)."""
        lhs, rhs = self._operands(lhs, rhs)
        rank = rhs.shape.rank
        if lhs.shape.rank != rank or rank < 2 or not lhs.shape.is_array:
            raise RuleError(
                "convolution",
                "CONVGENERAL-11",
                f"operands have one rank of at least 2, got {lhs.shape} and {rhs.shape}",
            )
        numbers = dimension_numbers or ConvolutionDimensionNumbers.default(rank - 2)
        window = make_window(
            "convolution",
            [lhs.shape.dimensions[d] for d in numbers.input_spatial_dimensions],
            [rhs.shape.dimensions[d] for d in numbers.kernel_spatial_dimensions],
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
        )
        op: Any = OPERATIONS["convolution"](
            window=window,
            dimension_numbers=numbers,
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )
        shape = None
        if preferred_element_type is not None:
            shape = op._result(lhs.shape, rhs.shape, _element_type(preferred_element_type))
        return self._add(op, (lhs, rhs), shape)

    # Reductions and windows

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

    def _reducer(self, computation: Computationlike, arrays: Sequence[XlaOp]) -> Computation:
        scalars = [scalar(_array_type(a.shape, "reduce", "REDUCE-9")) for a in arrays]
        return self._callable(computation, scalars * 2, "reducer")

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
        scalars = [scalar(_array_type(a.shape, "map", "MAP-3")) for a in arrays]
        statics = _sequence("map", "static_operands", static_operands)
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
        types = [scalar(_array_type(a.shape, "sort", "SORT-7")) for a in arrays]
        rank = arrays[0].shape.rank
        if not -rank <= _int("sort", "dimension", dimension) < rank:
            raise RuleError(
                "sort", "SORT-7", f"dimension {dimension} must be in [{-rank}, {rank}) of {arrays[0].shape}"
            )
        compare = self._callable(comparator, [t for t in types for _ in range(2)], "comparator")
        op = OPERATIONS["sort"](dimension=dimension % rank, comparator=compare, is_stable=is_stable)
        return self._add(op, arrays)

    def gather(
        self,
        operand: Any,
        start_indices: Any,
        index_vector_dim: int,
        offset_dims: Sequence[int],
        slice_sizes: Sequence[int],
        collapsed_slice_dims: Sequence[int],
        start_index_map: Sequence[int],
        indices_are_sorted: bool = False,
        operand_batching_dims: Sequence[int] = (),
        start_indices_batching_dims: Sequence[int] = (),
    ) -> XlaOp:
        """Stitches slices of the operand at start indices into one array (GATHER-1)."""
        op = OPERATIONS["gather"](
            offset_dims=offset_dims,
            collapsed_slice_dims=collapsed_slice_dims,
            start_index_map=start_index_map,
            operand_batching_dims=operand_batching_dims,
            start_indices_batching_dims=start_indices_batching_dims,
            index_vector_dim=index_vector_dim,
            slice_sizes=slice_sizes,
            indices_are_sorted=indices_are_sorted,
        )
        return self._add(op, (self._operand(operand), self._operand(start_indices)))

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

    # Control flow

    def call(self, computation: Computationlike, *args: Any) -> XlaOp:
        """Invokes a computation (CALL-1)."""
        operands = [self._operand(arg) for arg in args]
        callee = self._callable(computation, [operand.shape for operand in operands], "callee")
        return self._add(OPERATIONS["call"](computation=callee), operands)

    def composite_call(
        self,
        computation: Computationlike,
        *args: Any,
        name: str,
        composite_attributes: str | None = None,
        version: int = 0,
    ) -> XlaOp:
        """A named operation whose meaning is its decomposition, `computation` (COMPOSITECALL-1, -2)."""
        if not name or version < 0:
            raise RuleError("call", "COMPOSITECALL-3", f"needs a name and a version >= 0, got {name!r} and {version}")
        operands = [self._operand(arg) for arg in args]
        callee = self._callable(computation, [operand.shape for operand in operands], "decomposition")
        result = self._add(OPERATIONS["call"](computation=callee, is_composite=True), operands)
        attributes = {"composite.name": name, "composite.version": str(version)}
        if composite_attributes is not None:
            attributes["composite.attributes"] = composite_attributes
        result.instruction.frontend_attributes = attributes
        return result

    def while_(self, condition: Computationlike, body: Computationlike, init: Any) -> XlaOp:
        """Runs `body` as long as `condition` holds, starting from `init` (WHILE-1)."""
        init = self._operand(init)
        op = OPERATIONS["while"](
            condition=self._callable(condition, [init.shape], "condition"),
            body=self._callable(body, [init.shape], "body"),
        )
        return self._add(op, (init,))

    def conditional(self, index: Any, *arguments: Any) -> XlaOp:
        """Both forms of Conditional.

        `conditional(pred, true_operand, true_computation, false_operand, false_computation)` (CONDITIONAL-1), and
        `conditional(branch_index, branch_computations, branch_operands)` (CONDITIONAL-3).
        """
        index = self._operand(index)
        if len(arguments) == 4:
            operands, branches = [arguments[0], arguments[2]], [arguments[1], arguments[3]]
            if not index.shape.compatible(scalar(PrimitiveType.PRED)):
                raise RuleError("conditional", "CONDITIONAL-2", f"pred is pred[], got {index.shape}")
        elif len(arguments) == 2:
            branches = _sequence("conditional", "branch_computations", arguments[0])
            operands = _sequence("conditional", "branch_operands", arguments[1])
            if not index.shape.compatible(scalar(PrimitiveType.S32)):
                raise RuleError("conditional", "CONDITIONAL-5", f"branch_index is s32[], got {index.shape}")
        else:
            raise ArgumentError(
                "conditional takes (pred, true_operand, true_computation, false_operand, false_computation) or "
                "(branch_index, branch_computations, branch_operands)"
            )
        if len(branches) != len(operands):
            raise RuleError(
                "conditional", "CONDITIONAL-5", f"got {len(branches)} computations and {len(operands)} operands"
            )
        values = [self._operand(operand) for operand in operands]
        computations = [self._callable(b, [v.shape], "branch") for b, v in zip(branches, values, strict=True)]
        return self._add(OPERATIONS["conditional"](branch_computations=computations), (index, *values))

    # Replicas

    def all_gather(
        self,
        operand: Any,
        all_gather_dim: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """Concatenates the operands of a group's members (ALLGATHER-1)."""
        operand = self._array(operand, "all-gather", "ALLGATHER-5")
        _check_split("all-gather", "ALLGATHER-5", operand.shape, all_gather_dim, "all_gather_dim")
        if _int("all-gather", "shard_count", shard_count) < 1:
            raise RuleError("all-gather", "ALLGATHER-3", f"shard_count must be >= 1, got {shard_count}")
        op = OPERATIONS["all-gather"](
            all_gather_dim=all_gather_dim, replica_groups=replica_groups, channel_id=channel_id
        )
        return self._add(
            op,
            (operand,),
            _resized(operand.shape, all_gather_dim, operand.shape.dimensions[all_gather_dim] * shard_count),
        )

    def all_reduce(
        self,
        operand: Any,
        computation: Computationlike,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """Reduces the operands of a group's members element by element; tuples too (ALLREDUCE-1, -2)."""
        operand = self._operand(operand)
        arrays = self._tuple_elements(operand, "all-reduce", "ALLREDUCE-2")
        by_type: dict[PrimitiveType, list[int]] = {}
        for i, array in enumerate(arrays):
            by_type.setdefault(array.shape.element_type, []).append(i)
        reduced: dict[int, XlaOp] = {}
        for members in by_type.values():
            group = [arrays[i] for i in members]
            op = OPERATIONS["all-reduce"](
                computation=self._reducer(computation, group[:1]),
                replica_groups=replica_groups,
                channel_id=channel_id,
            )
            result = self._add(op, group)
            for k, i in enumerate(members):
                reduced[i] = self.get_tuple_element(result, k) if len(members) > 1 else result
        if not operand.shape.is_tuple:
            return reduced[0]
        return self.tuple(*(reduced[i] for i in range(len(arrays))))

    def cross_replica_sum(self, operand: Any, replica_groups: Sequence[Sequence[int]] = ()) -> XlaOp:
        """AllReduce with addition (CROSSREPLICASUM-1)."""
        return self.all_reduce(operand, lambda x, y: x + y, replica_groups)

    def all_to_all(
        self,
        operand: Any,
        split_dimension: int,
        concat_dimension: int,
        split_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
    ) -> XlaOp:
        """Splits along one dimension, exchanges the blocks, and joins them along another (ALLTOALL-1, -2)."""
        operand = self._operand(operand)
        shape = operand.shape
        if shape.is_tuple:
            raise RuleError("all-to-all", "ALLTOALL-5", f"takes an array, got {shape}")
        _check_split("all-to-all", "ALLTOALL-5", shape, split_dimension, "split_dimension")
        _check_split("all-to-all", "ALLTOALL-5", shape, concat_dimension, "concat_dimension")
        if _int("all-to-all", "split_count", split_count) < 1 or shape.dimensions[split_dimension] % split_count:
            raise RuleError(
                "all-to-all",
                "ALLTOALL-5",
                f"split_count {split_count} must divide dimension {split_dimension} of {shape}",
            )
        groups = OPERATIONS["all-to-all"](replica_groups=replica_groups).replica_groups  # type: ignore[attr-defined]
        if any(len(group) != split_count for group in groups.groups):
            raise RuleError("all-to-all", "ALLTOALL-4", f"split_count {split_count} must be the size of each group")
        # HLO's tuple form states the number of participants; its array form cannot.
        block = shape.dimensions[split_dimension] // split_count
        blocks = []
        for i in range(split_count):
            starts, limits = [0] * shape.rank, list(shape.dimensions)
            starts[split_dimension], limits[split_dimension] = i * block, (i + 1) * block
            blocks.append(self.slice(operand, starts, limits))
        op = OPERATIONS["all-to-all"](replica_groups=replica_groups)
        received = self._add(op, blocks)
        return self.concat_in_dim([self.get_tuple_element(received, i) for i in range(split_count)], concat_dimension)

    def reduce_scatter(
        self,
        operand: Any,
        computation: Computationlike,
        scatter_dimension: int,
        shard_count: int,
        replica_groups: Sequence[Sequence[int]] = (),
        channel_id: int | None = None,
    ) -> XlaOp:
        """An AllReduce whose result is split; member i of a group gets block i (REDUCESCATTER-1)."""
        operand = self._operand(operand)
        arrays = self._tuple_elements(operand, "reduce-scatter", "REDUCESCATTER-3")
        blocks = []
        for array in arrays:
            shape = array.shape
            _check_split("reduce-scatter", "REDUCESCATTER-4", shape, scatter_dimension, "scatter_dimension")
            size = shape.dimensions[scatter_dimension]
            if _int("reduce-scatter", "shard_count", shard_count) < 1 or size % shard_count:
                raise RuleError(
                    "reduce-scatter",
                    "REDUCESCATTER-4",
                    f"shard_count {shard_count} must divide dimension {scatter_dimension} of {shape}",
                )
            op = OPERATIONS["reduce-scatter"](
                scatter_dimension=scatter_dimension,
                computation=self._reducer(computation, [array]),
                replica_groups=replica_groups,
                channel_id=channel_id,
            )
            blocks.append(self._add(op, (array,), _resized(shape, scatter_dimension, size // shard_count)))
        return self.tuple(*blocks) if operand.shape.is_tuple else blocks[0]

    def collective_permute(
        self, operand: Any, source_target_pairs: Sequence[tuple[int, int]], channel_id: int | None = None
    ) -> XlaOp:
        """The operand of each source becomes the result on its target (COLLECTIVEPERMUTE-1)."""
        op = OPERATIONS["collective-permute"](source_target_pairs=source_target_pairs, channel_id=channel_id)
        return self._add(op, (self._operand(operand),))

    # Communication; the builder threads the tokens

    def infeed(self, shape: Shape) -> XlaOp:
        """Reads one item of `shape` from the infeed queue; infeeds happen in the order built (INFEED-1, -2)."""
        shape = _shape(shape)
        result = Shape.tuple_of([shape, TOKEN])
        item = self._add(OPERATIONS["infeed"](), (self._token("infeed"),), result)
        self._last_effect["infeed"] = self.get_tuple_element(item, 1).instruction
        return self.get_tuple_element(item, 0)

    def outfeed(self, operand: Any) -> None:
        """Puts a value into the outfeed queue; outfeeds happen in the order built (INFEED-4)."""
        operand = self._operand(operand)
        token = self._add(OPERATIONS["outfeed"](outfeed_shape=operand.shape), (operand, self._token("outfeed")))
        self._last_effect["outfeed"] = token.instruction

    def _token(self, kind: str) -> XlaOp:
        if kind not in self._last_effect:
            self._last_effect[kind] = self.after_all().instruction
        return XlaOp(self, self._last_effect[kind])

    def recv(self, shape: Shape, channel_handle: int) -> XlaOp:
        """Receives what the Send of the channel sends (RECV-1)."""
        shape = _shape(shape)
        context = Shape.tuple_of([shape, scalar(PrimitiveType.U32), TOKEN])
        receiving = self._add(OPERATIONS["recv"](channel_id=channel_handle), (self._token("channel"),), context)
        done = self._add(OPERATIONS["recv-done"](channel_id=channel_handle), (receiving,))
        self._last_effect["channel"] = self.get_tuple_element(done, 1).instruction
        return self.get_tuple_element(done, 0)

    def send(self, operand: Any, channel_handle: int) -> None:
        """Sends a value to the Recv of the channel (SEND-1)."""
        sending = self._add(
            OPERATIONS["send"](channel_id=channel_handle), (self._operand(operand), self._token("channel"))
        )
        done = self._add(OPERATIONS["send-done"](channel_id=channel_handle), (sending,))
        self._last_effect["channel"] = done.instruction

    # Random numbers, calls of functions, dynamic sizes

    def rng_uniform(self, a: Any, b: Any, shape: Shape) -> XlaOp:
        """Numbers uniform over [a, b) (RNGUNIFORM-1)."""
        return self._rng(RandomDistribution.RNG_UNIFORM, a, b, shape)

    def rng_normal(self, mu: Any, sigma: Any, shape: Shape) -> XlaOp:
        """Numbers of the normal distribution N(mu, sigma) (RNGNORMAL-1)."""
        return self._rng(RandomDistribution.RNG_NORMAL, mu, sigma, shape)

    def _rng(self, distribution: RandomDistribution, a: Any, b: Any, shape: Shape) -> XlaOp:
        shape = _shape(shape)
        operands = [self._operand(x, shape.element_type) for x in (a, b)]
        return self._add(OPERATIONS["rng"](distribution=distribution), operands, shape)

    def rng_bit_generator(self, algorithm: Any, initial_state: Any, shape: Shape) -> XlaOp:
        """Uniform random bits and a new state: (state, data) (RNGBITGENERATOR-1)."""
        state = self._operand(initial_state)
        result = Shape.tuple_of([state.shape.without_layout(), _shape(shape)])
        return self._add(OPERATIONS["rng-bit-generator"](algorithm=algorithm), (state,), result)

    def custom_call(
        self, target_name: str, args: Sequence[Any], shape: Shape, *, has_side_effect: bool = False, opaque: str = ""
    ) -> XlaOp:
        """Calls the function registered as `target_name` (CUSTOMCALL-1)."""
        op = OPERATIONS["custom-call"](target_name=target_name, has_effect=has_side_effect)
        result = self._add(op, self._list(args), _shape(shape))
        result.instruction.backend_config = opaque
        return result

    def set_dimension_size(self, operand: Any, size: Any, dimension: int) -> XlaOp:
        """Makes a dimension dynamic, with its size known at run time (SETDIMENSIONSIZE-1)."""
        operand = self._array(operand, "set-dimension-size", "SETDIMENSIONSIZE-5")
        size = self._operand(size, PrimitiveType.S32)
        shape = operand.shape
        op = OPERATIONS["set-dimension-size"](dimension=dimension)
        dynamic = [flag or d == dimension for d, flag in enumerate(shape.dynamic_dimensions)]
        if size.instruction.opcode == "constant" and 0 <= dimension < shape.rank:
            # The bound as a constant makes the dimension static again (SETDIMENSIONSIZE-5).
            value = size.instruction.op.literal.value  # type: ignore[attr-defined]
            dynamic[dimension] = value.ndim != 0 or int(value) != shape.dimensions[dimension]
        return self._add(op, (operand, size), Shape.array(shape.element_type, shape.dimensions, dynamic))

    # How instructions are added

    def _add(self, op: Operation, operands: Sequence[XlaOp], shape: Shape | None = None, name: str = "") -> XlaOp:
        """Adds an instruction; its shape is inferred where none is given, else checked."""
        for operand in operands:
            self._own(operand)
        instructions = [operand.instruction for operand in operands]
        bound = op.bind([instruction.shape for instruction in instructions])
        if shape is None:
            shape = op.infer(*bound)
        else:
            op.check(shape, *bound)
        instruction = Instruction(self._unique(name or op.opcode), shape, op, instructions)
        self._computation.add(instruction)
        instruction.location = _caller()
        return XlaOp(self, instruction)

    def _unique(self, name: str) -> str:
        count = self._counts.get(name, 0) + 1
        self._counts[name] = count
        return name if count == 1 else f"{name}.{count}"

    def _own(self, operand: XlaOp) -> None:
        if not isinstance(operand, XlaOp):
            raise ArgumentError(f"{operand!r} is no XlaOp")
        if operand.builder is not self:
            raise ArgumentError(
                f"{operand.instruction!r} belongs to the builder {operand.builder.name!r}, not to {self.name!r}"
            )

    def _operand(self, value: Any, element_type: PrimitiveType | None = None) -> XlaOp:
        """An XlaOp as it is; anything else as a constant, Python numbers in `element_type`."""
        if isinstance(value, XlaOp):
            return value
        if isinstance(value, (bool, int, float, complex)) and element_type is not None and element_type.is_array:
            return self.constant(_typed_number(value, element_type))
        return self.constant(value)

    def _operands(self, lhs: Any, rhs: Any) -> tuple[XlaOp, XlaOp]:
        return self._operand(lhs, _element_type_of(rhs)), self._operand(rhs, _element_type_of(lhs))

    def _array(self, value: Any, opcode: str, clause: str) -> XlaOp:
        operand = self._operand(value)
        _array_type(operand.shape, opcode, clause)
        return operand

    def _list(self, operands: Any) -> list[XlaOp]:
        many = operands if isinstance(operands, (list, tuple)) else [operands]
        return [self._operand(operand) for operand in many]

    def _tuple_elements(self, operand: XlaOp, opcode: str, clause: str) -> list[XlaOp]:
        """The arrays in a tuple, or the array itself."""
        if not operand.shape.is_tuple:
            return [operand]
        if not operand.shape.elements or any(not element.is_array for element in operand.shape.elements):
            raise RuleError(
                opcode, clause, f"takes an array or a tuple of arrays that is not empty, got {operand.shape}"
            )
        return [self.get_tuple_element(operand, i) for i in range(len(operand.shape.elements))]

    def _callable(self, computation: Computationlike, parameters: Sequence[Shape], name: str) -> Computation:
        """A computation of these parameters from an XlaComputation, a Computation or a Python function."""
        if isinstance(computation, XlaComputation):
            return computation.entry_computation
        if isinstance(computation, Computation):
            return computation
        if not callable(computation):
            raise ArgumentError(f"{name} is an XlaComputation or a function on XlaOps, got {computation!r}")
        inner = XlaBuilder(name)
        arguments = [inner.parameter(i, shape) for i, shape in enumerate(parameters)]
        try:
            inspect.signature(computation).bind(*arguments)
        except TypeError:
            raise RuleError(
                name, "GEN-8", f"the function is called with {len(parameters)} arguments, which it does not take"
            ) from None
        except ValueError:
            pass
        root = computation(*arguments)
        if not isinstance(root, XlaOp):
            root = inner.constant(root)
        inner._own(root)
        inner._computation.root = root.instruction
        return inner._computation

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"XlaBuilder has no operation {name!r}")


def make_window(
    opcode: str,
    base: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int] | None,
    padding: Padding,
    base_dilations: Sequence[int] | None,
    window_dilations: Sequence[int] | None,
) -> tuple[WindowDimension, ...]:
    """A window over dimensions of sizes `base`; padding SAME, VALID or pairs (WIN-5, WIN-6)."""
    count = len(base)

    def listed(what: str, values: Sequence[int] | None, default: int) -> list[int]:
        numbers = [default] * count if values is None else _ints(opcode, what, values)
        if len(numbers) != count:
            raise RuleError(opcode, "WIN-6", f"{what} needs {count} entries, got {numbers}")
        if any(number < 1 for number in numbers):
            raise RuleError(opcode, "WIN-6", f"{what} must be >= 1, got {numbers}")
        return numbers

    window_sizes = _ints(opcode, "window_dimensions", sizes)
    if len(window_sizes) != count:
        raise RuleError(opcode, "WIN-6", f"window_dimensions needs {count} entries, got {window_sizes}")
    steps = listed("window_strides", strides, 1)
    dilated_base = listed("base dilations", base_dilations, 1)
    dilated_window = listed("window dilations", window_dilations, 1)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise RuleError(opcode, "WIN-5", f"padding is SAME, VALID or pairs, got {padding!r}")
        pairs = [
            _same_padding(n, w, d, s) if padding == "SAME" else (0, 0)
            for n, w, d, s in zip(base, window_sizes, dilated_window, steps, strict=True)
        ]
    else:
        pairs = [tuple(_ints(opcode, "padding", p)) for p in _sequence(opcode, "padding", padding)]  # type: ignore[misc]
        if len(pairs) != count or any(len(pair) != 2 for pair in pairs):
            raise RuleError(opcode, "WIN-6", f"padding needs {count} pairs (low, high), got {list(padding)}")
    return tuple(
        WindowDimension(w, s, low, high, wd, bd)
        for w, s, (low, high), wd, bd in zip(window_sizes, steps, pairs, dilated_window, dilated_base, strict=True)
    )


def _same_padding(size: int, window: int, dilation: int, stride: int) -> tuple[int, int]:
    """Padding for ceil(size / stride) positions, the odd element at the high end (WIN-5)."""
    positions = -(-size // stride)
    total = max((positions - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _resized(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = size
    return Shape.array(shape.element_type, sizes)


def _check_split(opcode: str, clause: str, shape: Shape, dimension: int, what: str) -> None:
    _int(opcode, what, dimension)
    if not 0 <= dimension < shape.rank:
        raise RuleError(opcode, clause, f"{what} {dimension} must be in [0, {shape.rank}) of {shape}")


def _reshaped_dynamic(operand: Shape, shape: Shape) -> Shape:
    """The shape with the dynamic dimensions of the operand where the reshape keeps them (SETDIMENSIONSIZE-3)."""
    flagged = Shape.array(shape.element_type, shape.dimensions, [True] * shape.rank)
    kept = ops.reshape.kept_dimensions(operand, flagged)
    dynamic = [False] * shape.rank
    for d, target in kept.items():
        dynamic[target] = operand.dynamic_dimensions[d]
    return Shape.array(shape.element_type, shape.dimensions, dynamic)


def _typed_number(value: Any, element_type: PrimitiveType) -> Any:
    import numpy as np

    if isinstance(value, float) and not (element_type.is_float or element_type.is_complex):
        raise RuleError("constant", "GEN-5", f"{value} does not become {element_type}: there is no implicit conversion")
    if isinstance(value, complex) and not element_type.is_complex:
        raise RuleError("constant", "GEN-5", f"{value} does not become {element_type}: there is no implicit conversion")
    try:
        return (
            np.asarray(value).astype(element_type.dtype)
            if element_type.bits < 8
            else np.array(value, element_type.dtype)
        )
    except OverflowError:
        raise RuleError("constant", "GEN-5", f"{value} does not fit {element_type}") from None


def _element_type_of(*values: Any) -> PrimitiveType | None:
    return next((value.shape.element_type for value in values if isinstance(value, XlaOp)), None)


def _array_type(shape: Shape, opcode: str, clause: str) -> PrimitiveType:
    if not shape.is_array:
        raise RuleError(opcode, clause, f"takes arrays, got {shape}")
    return shape.element_type


def _element_type(value: PrimitiveType | str) -> PrimitiveType:
    found = BY_NAME.get(value) if isinstance(value, str) else value
    if not isinstance(found, PrimitiveType) or not found.is_array:
        raise ArgumentError(f"an element type is like hl.f32 or 'f32', got {value!r}")
    return found


def _shape(value: Shape | str) -> Shape:
    if isinstance(value, str):
        from hloom.text import parse_shape

        return parse_shape(value)
    if not isinstance(value, Shape):
        raise ArgumentError(f"a shape is like hl.f32[2, 3] or 'f32[2,3]', got {value!r}")
    return value


def _ints(opcode: str, what: str, values: Any) -> list[int]:
    try:
        return list(ops.attributes.INTS.convert(values))
    except (TypeError, ValueError, OverflowError):
        raise RuleError(opcode, "GEN-3", f"{what} is a list of integers, got {values!r}") from None


def _dimensions_or_none(opcode: str, values: Any) -> list[int] | None:
    return None if values is None else _ints(opcode, "broadcast_dimensions", values)


def _int(opcode: str, what: str, value: Any) -> int:
    try:
        return int(ops.attributes.INT.convert(value))
    except (TypeError, ValueError, OverflowError):
        raise RuleError(opcode, "GEN-3", f"{what} is an integer, got {value!r}") from None


def _sequence(opcode: str, what: str, values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        raise RuleError(opcode, "GEN-3", f"{what} is a list, got {values!r}")
    return list(values)


def _make_name_unique(module: Module, computation: Computation) -> None:
    names = {other.name for other in module.computations}
    base, number = computation.name, 1
    while computation.name in names or computation.name == module.name:
        computation.name = f"{base}.{number}"
        number += 1


def _caller() -> str:
    """The line of the user's program: the nearest frame outside hloom."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("hloom."):
        if frame.f_back is None:
            break
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# Methods that come from the declarations

# Specification's name in snake_case -> opcode, where they differ.
_UNARY = {
    "abs": "abs", "cbrt": "cbrt", "ceil": "ceil", "clz": "count-leading-zeros", "cos": "cosine", "erf": "erf",
    "exp": "exponential", "expm1": "exponential-minus-one", "floor": "floor", "imag": "imag", "is_finite": "is-finite",
    "log": "log", "log1p": "log-plus-one", "logistic": "logistic", "neg": "negate", "not_": "not",
    "population_count": "popcnt", "real": "real", "round": "round-nearest-afz",
    "round_nearest_even": "round-nearest-even", "rsqrt": "rsqrt", "sign": "sign", "sin": "sine", "sqrt": "sqrt",
    "tan": "tan", "tanh": "tanh", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atanh": "atanh",
    "cosh": "cosh", "sinh": "sinh",
}  # fmt: skip
_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power", "rem": "remainder",
    "max": "maximum", "min": "minimum", "and_": "and", "or_": "or", "xor": "xor", "shift_left": "shift-left",
    "shift_right_arithmetic": "shift-right-arithmetic", "shift_right_logical": "shift-right-logical",
    "atan2": "atan2", "complex": "complex", "mulhi": "mulhi",
}  # fmt: skip
_DECLARED = {
    "after_all": "after-all", "batch_norm_grad": "batch-norm-grad", "batch_norm_inference": "batch-norm-inference",
    "batch_norm_training": "batch-norm-training", "cholesky": "cholesky",
    "collective_broadcast": "collective-broadcast",
    "fft": "fft", "get_dimension_size": "get-dimension-size",
    "get_tuple_element": "get-tuple-element", "optimization_barrier": "opt-barrier", "pad": "pad",
    "partition_id": "partition-id", "reduce_precision": "reduce-precision", "replica_id": "replica-id",
    "rev": "reverse", "top_k": "topk", "transpose": "transpose", "triangular_solve": "triangular-solve",
    "tuple": "tuple", "add_dependency": "add-dependency", "copy": "copy",
}  # fmt: skip


def _unary_method(opcode: str) -> Callable[..., XlaOp]:
    def method(self: XlaBuilder, operand: Any) -> XlaOp:
        return self._add(OPERATIONS[opcode](), (self._operand(operand),))

    return method


def _binary_method(opcode: str) -> Callable[..., XlaOp]:
    def method(self: XlaBuilder, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        return self._binary(opcode, lhs, rhs, broadcast_dimensions)

    return method


def _compare_method(direction: str, total_order: bool) -> Callable[..., XlaOp]:
    def method(self: XlaBuilder, lhs: Any, rhs: Any, broadcast_dimensions: Sequence[int] | None = None) -> XlaOp:
        return self._compare(direction, lhs, rhs, broadcast_dimensions, total_order)

    method.__doc__ = f"lhs {direction} rhs, element by element{' in total order' if total_order else ''} (COMPARE-1)."
    return method


def _declared_method(declaration: type[Operation]) -> Callable[..., XlaOp]:
    """A method with the operands and then the attributes of a declaration as arguments."""
    names = [operand.lstrip("*") for operand in declaration.operands]
    starred = [operand.startswith("*") for operand in declaration.operands]
    only_starred = len(names) == 1 and starred[0]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("self", kind)]
    for name in names:
        parameters.append(inspect.Parameter(name, inspect.Parameter.VAR_POSITIONAL if only_starred else kind))
    for field in declaration.fields:
        default = inspect.Parameter.empty if field.required else field.default
        parameters.append(
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY if only_starred else kind, default=default)
        )
    required_first = sorted(parameters, key=lambda p: (p.kind, p.default is not inspect.Parameter.empty))
    signature = inspect.Signature(required_first)

    def method(self: XlaBuilder, *args: Any, **kwargs: Any) -> XlaOp:
        try:
            values = signature.bind(self, *args, **kwargs).arguments
        except TypeError as error:
            raise ArgumentError(f"{declaration.opcode}{signature}: {error}") from None
        values.pop("self")
        operands: list[XlaOp] = []
        element_type = _element_type_of(*(values.get(name) for name in names))
        for name, star in zip(names, starred, strict=True):
            value = values.pop(name, ())
            operands += self._list(value) if star else [self._operand(value, element_type)]
        return self._add(declaration(**values), operands)

    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _attach() -> None:
    """Gives XlaBuilder the methods that declarations determine."""
    made: dict[str, tuple[Callable[..., XlaOp], str | None]] = {}
    for name, opcode in _UNARY.items():
        made[name] = (_unary_method(opcode), OPERATIONS[opcode].__doc__)
    for name, opcode in _BINARY.items():
        made[name] = (_binary_method(opcode), OPERATIONS[opcode].__doc__)
    for direction in ComparisonDirection:
        for suffix, total in (("", False), ("_total_order", True)):
            method = _compare_method(direction.value, total)
            made[direction.value.lower() + suffix] = (method, method.__doc__)
    for name, opcode in _DECLARED.items():
        made[name] = (_declared_method(OPERATIONS[opcode]), OPERATIONS[opcode].__doc__)
    for name, (method, doc) in made.items():
        method.__name__, method.__qualname__, method.__doc__ = name, f"XlaBuilder.{name}", doc
        setattr(XlaBuilder, name, method)
    for name, method in list(vars(XlaBuilder).items()):
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(XlaBuilder, name, _locating(method))


def _locating(method: Callable[..., Any]) -> Callable[..., Any]:
    """Errors of a method name the line of the user's program that called it."""
    import functools

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except HloomError as error:
            raise error.at(_caller()) from None

    return call


_attach()
