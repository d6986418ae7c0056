"""Codecs of windows and of the dimension numbers of convolutions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from hloom.errors import ArgumentError, ParseError
from hloom.ops.attributes import ConvolutionDimensionNumbers, WindowDimension
from hloom.ops.kinds import DIM_LABELS
from hloom.shape import Shape
from hloom.stablehlo.attributes.codecs import AttributeCodec
from hloom.stablehlo.attributes.values import Attributes, FieldValues, integer, integers, required, table
from hloom.stablehlo.mlir.ir import Attribute, DenseArray, DenseElements, DialectAttribute
from hloom.stablehlo.mlir.types import I1, i64_array, i64_table
from hloom.system.records import record
from hloom.text import attributes as text


@record(slots=True)
class Windows(AttributeCodec):
    """HLO's window, whose sizes, strides, dilations and padding are separate attributes of StableHLO.

    `sizes`, `base` and `window` name the attributes of sizes, base dilations and window dilations. A convolution has no
    attribute of sizes (`sizes` is ""): its window has the sizes of the kernel's spatial dimensions. `base` and `window`
    are "" for ops without these dilations.
    """

    sizes: str = "window_dimensions"
    base: str = "base_dilations"
    window: str = "window_dilations"

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        sizes = self._sizes(attributes, operands)
        count = len(sizes)

        def column(name: str, default: int) -> tuple[int, ...]:
            values = integers(attributes[name]) if name in attributes else (default,) * count
            if len(values) == 1 and count != 1 and isinstance(attributes[name], DenseElements):
                values *= count
            if len(values) != count:
                raise ArgumentError(f"{name} needs {count} numbers, got {len(values)}")
            return values

        strides, base, window = column("window_strides", 1), column(self.base, 1), column(self.window, 1)
        reversal = column("window_reversal", 0)
        padding = table(attributes["padding"]) if "padding" in attributes else ((0, 0),) * count
        if count and (len(padding) != count or any(len(pair) != 2 for pair in padding)):
            raise ArgumentError(f"padding needs {count} pairs of numbers, got {padding}")
        return {
            "window": tuple(
                WindowDimension(size, strides[i], padding[i][0], padding[i][1], window[i], base[i], bool(reversal[i]))
                for i, size in enumerate(sizes)
            )
        }

    def _sizes(self, attributes: Attributes, operands: Sequence[Shape]) -> Sequence[int]:
        if not self.sizes:
            spatial = dimension_numbers(attributes).kernel_spatial_dimensions
            if any(not 0 <= d < operands[1].rank for d in spatial):
                raise ArgumentError(f"the kernel {operands[1]} lacks one of the spatial dimensions {list(spatial)}")
            return [operands[1].dimensions[d] for d in spatial]
        if self.sizes not in attributes:
            return (1,) * (operands[0].rank if operands else 0)
        return integers(attributes[self.sizes])

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        window: Sequence[WindowDimension] = fields["window"]
        columns: dict[str, tuple[list[int], int | None]] = {
            self.sizes: ([w.size for w in window], None),
            "window_strides": ([w.stride for w in window], 1),
            self.base: ([w.base_dilation for w in window], 1),
            self.window: ([w.window_dilation for w in window], 1),
        }
        written: dict[str, Attribute] = {}
        for name, (values, default) in columns.items():
            if name and any(value != default for value in values):
                written[name] = i64_array(values)
        if any(w.window_reversal for w in window):
            written["window_reversal"] = DenseArray(I1, tuple(w.window_reversal for w in window))
        if any(w.padding_low or w.padding_high for w in window):
            written["padding"] = i64_table([(w.padding_low, w.padding_high) for w in window])
        if self.sizes and not window:
            written[self.sizes] = i64_array(())
        return written


class ConvolutionDimensions(AttributeCodec):
    """`dimension_numbers` of a convolution, `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        return {"dimension_numbers": dimension_numbers(attributes)}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        sides = re.split("_|->", text.write(DIM_LABELS, fields["dimension_numbers"]))
        lhs, rhs, result = (f"[{', '.join(labels)}]" for labels in sides)
        return {"dimension_numbers": DialectAttribute("stablehlo.conv", f"{lhs}x{rhs}->{result}")}


def dimension_numbers(attributes: Attributes) -> ConvolutionDimensionNumbers:
    """Reads the attribute `dimension_numbers` of a convolution; raises ArgumentError if it is missing or malformed."""
    attribute = required(attributes, "dimension_numbers")
    if not isinstance(attribute, DialectAttribute) or attribute.name.partition(".")[2] != "conv":
        raise ArgumentError(f"dimension_numbers is #stablehlo.conv<..>, got {attribute!r}")
    body = attribute.body
    if isinstance(body, dict):
        # The form with named parameters, `#stablehlo.conv<raw input_batch_dimension = 0, ..>`.
        names = [field.name for field in dataclasses.fields(ConvolutionDimensionNumbers)]
        readers = {name: integers if name.endswith("dimensions") else integer for name in names}
        values: dict[str, Any] = {name: read(required(body, name)) for name, read in readers.items()}
        return ConvolutionDimensionNumbers(**values)
    # Without brackets and commas, the labels are those of HLO text: b01f_01io->b01f.
    labels = re.sub(r"[\[\],\s]", "", body.replace("]x[", "_"))
    try:
        dimensions: ConvolutionDimensionNumbers = text.read(DIM_LABELS, labels, labels, 0)
    except ParseError as error:
        raise ArgumentError(f"convolution dimensions {body}: {error.message}") from None
    return dimensions
