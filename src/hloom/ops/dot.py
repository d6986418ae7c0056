"""Sums of products: dot, ragged-dot, scaled-dot (spec 25, 26)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.numerics import convert
from hloom.ops.attributes import DotAlgorithm, Precision
from hloom.ops.context import Context
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.kinds import INTS, PRECISIONS, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_dimensions
from hloom.shape import Ints, Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

MAX_UNSPLIT_TERMS = 128
"""Sums of at most this many products, or of the square root of all, are left to NumPy, which may add them
sequentially.
"""

_PRECISION = "precision of each operand; products here always have the highest"


class DotDimensions(Operation):
    """Base class of dots: their dimension numbers (DOTGENERAL-1)."""

    lhs_batch_dims: Ints = attribute(
        INTS,
        default=(),
        proto="dot_dimension_numbers.lhs_batch_dimensions",
        doc="dimensions of `lhs` that stay, paired with those of `rhs`",
    )
    lhs_contracting_dims: Ints = attribute(
        INTS,
        default=(),
        proto="dot_dimension_numbers.lhs_contracting_dimensions",
        doc="dimensions of `lhs` over which products are summed",
    )
    rhs_batch_dims: Ints = attribute(
        INTS,
        default=(),
        proto="dot_dimension_numbers.rhs_batch_dimensions",
        doc="dimensions of `rhs` paired with the batch dimensions of `lhs`, in order",
    )
    rhs_contracting_dims: Ints = attribute(
        INTS,
        default=(),
        proto="dot_dimension_numbers.rhs_contracting_dimensions",
        doc="dimensions of `rhs` paired with the contracting ones of `lhs`, in order",
    )

    def check_sides(self, lhs: Shape, rhs: Shape) -> None:
        """Checks that paired dimensions have equal sizes and none is listed twice (DOTGENERAL-2)."""
        check_array(self, "DOTGENERAL-2", lhs, rhs)
        for side, shape, batch, contracting in (
            ("lhs", lhs, self.lhs_batch_dims, self.lhs_contracting_dims),
            ("rhs", rhs, self.rhs_batch_dims, self.rhs_contracting_dims),
        ):
            check_dimensions(self, "DOTGENERAL-2", (*batch, *contracting), shape.rank, f"{side} dimensions")
        for what, left, right in (
            ("contracting", self.lhs_contracting_dims, self.rhs_contracting_dims),
            ("batch", self.lhs_batch_dims, self.rhs_batch_dims),
        ):
            if len(left) != len(right):
                self.reject("DOTGENERAL-2", f"{what} dimensions pair up, got {list(left)} and {list(right)}")
            for a, b in zip(left, right, strict=True):
                if lhs.dimensions[a] != rhs.dimensions[b]:
                    self.reject("DOTGENERAL-2", f"{what} dimensions {a} of {lhs} and {b} of {rhs} differ in size")

    def lhs_free_dims(self, rank: int) -> list[int]:
        """Returns the dimensions of the left side that are neither batch nor contracting ones, in increasing order."""
        return [d for d in range(rank) if d not in {*self.lhs_batch_dims, *self.lhs_contracting_dims}]

    def rhs_free_dims(self, rank: int) -> list[int]:
        """Returns those of the right side."""
        return [d for d in range(rank) if d not in {*self.rhs_batch_dims, *self.rhs_contracting_dims}]


def accumulator(*types: PrimitiveType) -> np.dtype[Any]:
    """Returns the dtype in which products of these types are summed: at least f32 for floats (DOT-3)."""
    widest = max(types, key=lambda t: (t.is_complex, t.is_float, t.bits))
    if widest.is_float and widest.bits < 32:
        return np.dtype(np.float32)
    if widest.is_pred:
        return np.dtype(np.int32)
    if widest.is_integer and widest.bits < 8:
        return np.dtype(np.int8)
    return widest.dtype


def check_product_types(op: Operation, clause: str, lhs: Shape, rhs: Shape, result: Shape | None) -> None:
    """Checks numeric operands of one type, or of two types if the result type is declared (DOT-2, DOTGENERAL-6).

    With a declared result type, predicates are valid too: JAX multiplies them.
    """
    for shape in (lhs, rhs):
        if shape.element_type.is_pred and result is None:
            op.reject(clause, f"takes numbers, got {shape}")
    if lhs.element_type is not rhs.element_type and result is None:
        op.reject(clause, f"element types must be equal, got {lhs} and {rhs}")


class Dot(DotDimensions, opcode="dot"):
    """Multiplies and sums over the contracting dimensions, for each index of the batch dimensions (DOTGENERAL-1 to -3).

    Paired dimensions have equal sizes. The dimensions of the result are those of the batch, then the free ones of `lhs`
    and of `rhs`. Integers wrap; floats accumulate in at least f32 (DOT-3). The declared result type is the preferred
    one.
    """

    see_also = ("convolution", "ragged-dot", "scaled-dot")
    operands = {
        "lhs": "left factor",
        "rhs": "right factor",
    }
    operand_precision: tuple[Precision, ...] = attribute(
        PRECISIONS,
        default=(),
        proto="precision_config.operand_precision",
        doc=_PRECISION,
    )
    algorithm: DotAlgorithm | None = attribute(
        EnumKind(DotAlgorithm), default=None, proto="precision_config.algorithm", doc="types of the products and sums"
    )

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        self.check_sides(lhs, rhs)
        check_product_types(self, "DOT-2", lhs, rhs, None)
        return self.result_shape(lhs, rhs, lhs.element_type)

    def check(self, result: Shape, lhs: Shape, rhs: Shape) -> None:
        self.check_sides(lhs, rhs)
        check_product_types(self, "DOT-2", lhs, rhs, result)
        if not result.is_array:
            self.reject("GEN-2", f"the result is an array, got {result}")
        self.check_declared(result, self.result_shape(lhs, rhs, result.element_type))

    def result_shape(self, lhs: Shape, rhs: Shape, element_type: PrimitiveType) -> Shape:
        """Returns the result shape with an element type."""
        left, right = self.lhs_free_dims(lhs.rank), self.rhs_free_dims(rhs.rank)
        sources = [*((lhs, d) for d in self.lhs_batch_dims), *((lhs, d) for d in left), *((rhs, d) for d in right)]
        return Shape.array(
            element_type,
            (shape.dimensions[d] for shape, d in sources),
            (shape.dynamic_dimensions[d] for shape, d in sources),
        )

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array) -> Array:
        dtype = ctx.shape.element_type.dtype
        left, right = self.lhs_free_dims(lhs.ndim), self.rhs_free_dims(rhs.ndim)
        computing = accumulator(BY_DTYPE[lhs.dtype], BY_DTYPE[rhs.dtype], ctx.shape.element_type)
        batch = [lhs.shape[d] for d in self.lhs_batch_dims]
        a = _matrix(lhs, self.lhs_batch_dims, left, self.lhs_contracting_dims, computing)
        b = _matrix(rhs, self.rhs_batch_dims, self.rhs_contracting_dims, right, computing)
        product = matmul(a, b, lhs.dtype, rhs.dtype)
        sizes = [*batch, *(lhs.shape[d] for d in left), *(rhs.shape[d] for d in right)]
        return convert(product.reshape(sizes), dtype)

    def indexing(self, at: Indexing, index: Indices) -> list[Read]:
        lhs, rhs = at.operands
        summed = [at.reduction(lhs.dimensions[d], k) for k, d in enumerate(self.lhs_contracting_dims)]
        left, right = self.lhs_free_dims(lhs.rank), self.rhs_free_dims(rhs.rank)
        count = len(self.lhs_batch_dims)
        batch, rows, columns = index[:count], index[count : count + len(left)], index[count + len(left) :]
        sides = (
            ((*self.lhs_batch_dims, *left, *self.lhs_contracting_dims), (*batch, *rows, *summed)),
            ((*self.rhs_batch_dims, *right, *self.rhs_contracting_dims), (*batch, *columns, *summed)),
        )
        inner = [dict(zip(dimensions, indices, strict=True)) for dimensions, indices in sides]
        return [Read(k, tuple(of[d] for d in range(len(of)))) for k, of in enumerate(inner)]


def _matrix(
    array: Array, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int], dtype: np.dtype[Any]
) -> Array:
    """Reshapes an array to a batch of matrices [batch, rows, columns]."""
    sizes = [math.prod(array.shape[d] for d in dims) for dims in (batch, rows, columns)]
    return convert(array.transpose([*batch, *rows, *columns]).reshape(sizes), dtype)


def matmul(a: Array, b: Array, lhs: np.dtype[Any], rhs: np.dtype[Any]) -> Array:
    """Returns a batched matrix product. Integers are multiplied in f64, by BLAS, if all partial sums are exact."""
    wraps = a.dtype.kind == "u" and (BY_DTYPE[lhs].is_signed or BY_DTYPE[rhs].is_signed)
    if a.dtype.kind in "iu" and not wraps:
        bits = BY_DTYPE[lhs].bits + BY_DTYPE[rhs].bits + max(1, a.shape[-1]).bit_length()
        if bits <= 53:
            return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(a.dtype)
    return _sums_of_products(a, b)


def _sums_of_products(a: Array, b: Array, max_terms: int = 0) -> Array:
    """Returns a batched matrix product whose sums are split in halves down to `max_terms` terms (GEN-13)."""
    terms = a.shape[-1]
    max_terms = max_terms or max(MAX_UNSPLIT_TERMS, math.isqrt(terms))
    if a.dtype.kind in "iu" or terms <= max_terms:
        return np.matmul(a, b)
    parts = slice(None, terms // 2), slice(terms // 2, None)
    left, right = (_sums_of_products(a[..., part], b[..., part, :], max_terms) for part in parts)
    return left + right


class RaggedDot(DotDimensions, opcode="ragged-dot"):
    """A dot in which one dimension of `lhs` is ragged: split into groups of `group_sizes` (a later addition to XLA).

    Where the ragged dimension is free, each group of rows is multiplied by its own matrix, along `rhs_group_dims`: the
    experts of a mixture. Where it is contracting, each group gives a result, in a new leading dimension: their
    gradients. Where it is a batch dimension, the result is that of dot. Rows beyond the last group give zeros.

    Otherwise dimensions are those of dot. `group_sizes` may have leading dimensions, for groups that differ by the
    batch indices, and by the indices of those free or contracting dimensions of `lhs` that come before the ragged one.
    """

    operands = {
        "lhs": "left factor, one of whose dimensions is split into groups",
        "rhs": "right factor",
        "group_sizes": "size of each group along the ragged dimension",
    }
    lhs_ragged_dims: Ints = attribute(
        INTS,
        proto="ragged_dot_dimension_numbers.lhs_ragged_dimensions",
        doc="dimension of `lhs` that is split, as a list of one",
    )
    rhs_group_dims: Ints = attribute(
        INTS,
        default=(),
        proto="ragged_dot_dimension_numbers.rhs_group_dimensions",
        doc="dimension of `rhs` that has an entry for each group, if `lhs` is split in a free one",
    )
    operand_precision: tuple[Precision, ...] = attribute(
        PRECISIONS,
        default=(),
        proto="precision_config.operand_precision",
        doc=_PRECISION,
    )

    lhs_batch_dims: Ints = attribute(
        INTS,
        default=(),
        proto="ragged_dot_dimension_numbers.dot_dimension_numbers.lhs_batch_dimensions",
        doc="as in dot",
    )
    lhs_contracting_dims: Ints = attribute(
        INTS,
        default=(),
        proto="ragged_dot_dimension_numbers.dot_dimension_numbers.lhs_contracting_dimensions",
        doc="as in dot",
    )
    rhs_batch_dims: Ints = attribute(
        INTS,
        default=(),
        proto="ragged_dot_dimension_numbers.dot_dimension_numbers.rhs_batch_dimensions",
        doc="as in dot",
    )
    rhs_contracting_dims: Ints = attribute(
        INTS,
        default=(),
        proto="ragged_dot_dimension_numbers.dot_dimension_numbers.rhs_contracting_dimensions",
        doc="as in dot",
    )

    def check(self, result: Shape, lhs: Shape, rhs: Shape, group_sizes: Shape) -> None:
        self.check_sides(lhs, rhs)
        check_product_types(self, "DOT-2", lhs, rhs, result)
        check_array(self, "DOTGENERAL-6", group_sizes, result)
        check_dimensions(self, "DOTGENERAL-6", self.rhs_group_dims, rhs.rank, "rhs_group_dims")
        if len(self.lhs_ragged_dims) != 1:
            self.reject("DOTGENERAL-6", f"exactly one dimension of lhs is ragged, got {list(self.lhs_ragged_dims)}")
        check_dimensions(self, "DOTGENERAL-6", self.lhs_ragged_dims, lhs.rank, "lhs_ragged_dims")
        if not group_sizes.element_type.is_integer or not group_sizes.rank:
            self.reject("DOTGENERAL-6", f"group_sizes are integers, at least a vector, got {group_sizes}")
        free_ragged = self.lhs_ragged_dims[0] in self.lhs_free_dims(lhs.rank)
        if (len(self.rhs_group_dims) == 1) != free_ragged:
            self.reject("DOTGENERAL-6", "one rhs group dimension is needed exactly where the ragged dimension is free")
        self._check_groups(lhs, rhs, group_sizes)
        self.check_declared(result, self.result_shape(lhs, rhs, group_sizes, result.element_type))

    def _check_groups(self, lhs: Shape, rhs: Shape, group_sizes: Shape) -> None:
        *leading, count = group_sizes.dimensions
        expected = [lhs.dimensions[d] for d in self._leading_dims(lhs.rank)]
        if leading and leading != expected:
            shown = ",".join(map(str, [*expected, count]))
            self.reject("DOTGENERAL-6", f"group_sizes are a vector, or have the shape [{shown}], got {group_sizes}")
        for d in self.rhs_group_dims:
            if d in (*self.rhs_batch_dims, *self.rhs_contracting_dims):
                self.reject("DOTGENERAL-6", f"rhs group dimension {d} is neither a batch nor a contracting dimension")
            if rhs.dimensions[d] != count:
                self.reject("DOTGENERAL-6", f"dimension {d} of {rhs} has an entry for each of the {count} groups")

    def _leading_dims(self, rank: int) -> list[int]:
        """The dimensions of `lhs` by whose indices group sizes may differ: those outside of the ragged one."""
        ragged, batch = self.lhs_ragged_dims[0], list(self.lhs_batch_dims)
        if ragged in batch:
            return batch[: batch.index(ragged)]
        others = self.lhs_contracting_dims if ragged in self.lhs_contracting_dims else self.lhs_free_dims(rank)
        return [*batch, *others[: others.index(ragged)]]

    def result_shape(self, lhs: Shape, rhs: Shape, group_sizes: Shape, element_type: PrimitiveType) -> Shape:
        """Returns the result shape with an element type."""
        left = self.lhs_free_dims(lhs.rank)
        right = [d for d in self.rhs_free_dims(rhs.rank) if d not in self.rhs_group_dims]
        sizes = [lhs.dimensions[d] for d in (*self.lhs_batch_dims, *left)] + [rhs.dimensions[d] for d in right]
        if self.lhs_ragged_dims[0] in self.lhs_contracting_dims:
            sizes = [group_sizes.dimensions[-1], *sizes]
        return Shape.array(element_type, sizes)

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        dtype = ctx.shape.element_type.dtype
        computing = accumulator(BY_DTYPE[lhs.dtype], BY_DTYPE[rhs.dtype], ctx.shape.element_type)
        ragged = self.lhs_ragged_dims[0]
        a, b = convert(lhs, computing), convert(rhs, computing)
        ends = np.cumsum(group_sizes.astype(np.int64), axis=-1)
        masks = self._group_masks(a, ragged, ends)
        products = [_product(self, a * mask, self._group_rhs(b, g), computing) for g, mask in enumerate(masks)]
        if ragged in self.lhs_contracting_dims:
            return convert(np.stack(products) if products else np.zeros(ctx.shape.dimensions, computing), dtype)
        total = sum(products) if ragged not in self.lhs_batch_dims else _product(self, a, b, computing)
        return convert(np.asarray(total, computing).reshape(ctx.shape.dimensions), dtype)

    def _group_masks(self, lhs: Array, ragged: int, ends: Array) -> list[Array]:
        """Masks over `lhs`, one for each group."""
        position = np.arange(lhs.shape[ragged]).reshape([-1 if d == ragged else 1 for d in range(lhs.ndim)])
        leading = self._leading_dims(lhs.ndim) if ends.ndim > 1 else []
        masks = []
        for g in range(ends.shape[-1]):
            sizes = [1] * lhs.ndim
            for axis, d in enumerate(leading):
                sizes[d] = ends.shape[axis]
            end = ends[..., g].reshape(sizes)
            start = ends[..., g - 1].reshape(sizes) if g else np.zeros_like(end)
            masks.append(((position >= start) & (position < end)).astype(lhs.dtype))
        return masks

    def _group_rhs(self, rhs: Array, group: int) -> Array:
        if not self.rhs_group_dims:
            return rhs
        # The group dimension would be free in the plain dot: keep it with size 1, and remove it by reshaping.
        return np.take(rhs, [group], axis=self.rhs_group_dims[0])


def _product(dot: DotDimensions, lhs: Array, rhs: Array, dtype: np.dtype[Any]) -> Array:
    left, right = dot.lhs_free_dims(lhs.ndim), dot.rhs_free_dims(rhs.ndim)
    a = _matrix(lhs, dot.lhs_batch_dims, left, dot.lhs_contracting_dims, dtype)
    b = _matrix(rhs, dot.rhs_batch_dims, dot.rhs_contracting_dims, right, dtype)
    batch = [lhs.shape[d] for d in dot.lhs_batch_dims]
    return _sums_of_products(a, b).reshape([*batch, *(lhs.shape[d] for d in left), *(rhs.shape[d] for d in right)])


class ScaledDot(DotDimensions, opcode="scaled-dot"):
    """A dot of operands that are first multiplied by block scales (a later addition to XLA).

    Narrow floats, such as the MX formats, share a scale among 16 or 32 elements. A scale has the rank of its operand,
    and sizes that divide its sizes: each element scales a block of the operand. A scalar, of any value, stands for no
    scale (XLA's ScaledDotRewriter).
    """

    operands = {
        "lhs": "left factor",
        "rhs": "right factor",
        "lhs_scale": "factors of blocks of `lhs`",
        "rhs_scale": "factors of blocks of `rhs`",
    }
    operand_precision: tuple[Precision, ...] = attribute(
        PRECISIONS,
        default=(),
        proto="precision_config.operand_precision",
        doc=_PRECISION,
    )

    def check(self, result: Shape, lhs: Shape, rhs: Shape, lhs_scale: Shape, rhs_scale: Shape) -> None:
        self.check_sides(lhs, rhs)
        check_array(self, "DOTGENERAL-6", lhs_scale, rhs_scale, result)
        for operand, scale in ((lhs, lhs_scale), (rhs, rhs_scale)):
            if scale.is_scalar:
                continue
            if scale.rank != operand.rank or any(
                s < 1 or n % s for n, s in zip(operand.dimensions, scale.dimensions, strict=True)
            ):
                self.reject("DOTGENERAL-6", f"scale sizes divide the operand's, got {scale} for {operand}")
        sizes = [lhs.dimensions[d] for d in (*self.lhs_batch_dims, *self.lhs_free_dims(lhs.rank))]
        sizes += [rhs.dimensions[d] for d in self.rhs_free_dims(rhs.rank)]
        if list(result.dimensions) != sizes:
            self.reject("GEN-2", f"the result has the dimensions {sizes}, got {result}")

    def evaluate(self, ctx: Context, lhs: Array, rhs: Array, lhs_scale: Array, rhs_scale: Array) -> Array:
        a, b = _scaled(lhs, lhs_scale), _scaled(rhs, rhs_scale)
        return convert(_product(self, a, b, np.dtype(np.float32)), ctx.shape.element_type.dtype)


def _scaled(operand: Array, scale: Array) -> Array:
    if not scale.ndim:
        return operand
    scale = convert(scale, np.dtype(np.float32))
    for axis in range(scale.ndim):
        scale = np.repeat(scale, operand.shape[axis] // scale.shape[axis], axis)
    return convert(operand, np.dtype(np.float32)) * scale
