"""Builder methods for dot products and convolutions (spec 20, 21, 25, 26)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.builder.arguments import element_type, makes
from hloom.builder.core import BuilderCore
from hloom.builder.window import make_window
from hloom.builder.xla_op import Padding, XlaOp
from hloom.errors import RuleError
from hloom.ops.attributes import ConvolutionDimensionNumbers
from hloom.ops.operation import OPERATIONS
from hloom.types import PrimitiveType


class ProductMethods(BuilderCore):
    """Methods for dot products and convolutions."""

    @makes("dot")
    def dot(self, lhs: Any, rhs: Any) -> XlaOp:
        """Product of vectors or matrices: contracts the last dimension of lhs with the first of rhs (DOT-1)."""
        lhs, rhs = self._operands(lhs, rhs)
        for operand in (lhs, rhs):
            if not operand.shape.is_array or operand.shape.rank not in (1, 2):
                raise RuleError("dot", "DOT-2", f"takes vectors and matrices, got {lhs.shape} and {rhs.shape}")
        op = OPERATIONS["dot"](lhs_contracting_dims=(lhs.shape.rank - 1,), rhs_contracting_dims=(0,))
        return self._add(op, (lhs, rhs))

    @makes(
        "dot",
        dimension_numbers="contracting and batch dimensions of both sides, as above",
        preferred_element_type="element type of the result; that of the operands if not given",
    )
    def dot_general(
        self,
        lhs: Any,
        rhs: Any,
        dimension_numbers: Any,
        preferred_element_type: PrimitiveType | str | None = None,
    ) -> XlaOp:
        """Product over contracting dimensions, for each index of the batch dimensions (DOTGENERAL-1).

        `dimension_numbers` is a mapping, or an object, with `lhs_contracting_dimensions`, `rhs_contracting_dimensions`,
        `lhs_batch_dimensions` and `rhs_batch_dimensions`; missing ones are empty.
        """
        lhs, rhs = self._operands(lhs, rhs)
        attributes = {}
        for field in ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch"):
            name = f"{field}_dimensions"
            mapping = isinstance(dimension_numbers, dict)
            value = dimension_numbers.get(name, ()) if mapping else getattr(dimension_numbers, name, ())
            attributes[f"{field}_dims"] = value
        op: Any = OPERATIONS["dot"](**attributes)
        shape = None
        if preferred_element_type is not None:
            op.check_sides(lhs.shape, rhs.shape)
            shape = op.result_shape(lhs.shape, rhs.shape, element_type(preferred_element_type))
        return self._add(op, (lhs, rhs), shape)

    @makes(
        "convolution", window_strides="step of the window in each dimension; 1 if not given", padding="SAME or VALID"
    )
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

    @makes(
        "convolution",
        window_strides="step of the window in each dimension; 1 if not given",
        padding="SAME, VALID, or (low, high) of each dimension",
        lhs_dilation="distance of input elements in each dimension; 1 if not given",
        rhs_dilation="distance of kernel elements in each dimension; 1 if not given",
        preferred_element_type="element type of the result; that of the operands if not given",
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
        dims = dimension_numbers or ConvolutionDimensionNumbers.default(rank - 2)
        window = make_window(
            "convolution",
            [lhs.shape.dimensions[d] for d in dims.input_spatial_dimensions],
            [rhs.shape.dimensions[d] for d in dims.kernel_spatial_dimensions],
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
        )
        op: Any = OPERATIONS["convolution"](
            window=window,
            dimension_numbers=dims,
            feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )
        shape = None
        if preferred_element_type is not None:
            shape = op.result_shape(lhs.shape, rhs.shape, element_type(preferred_element_type))
        return self._add(op, (lhs, rhs), shape)
