"""The normal form of a convolution: no labels, padding, base dilation or reversal, and a single kind of group.

Along one spatial axis, output o and window element w meet the input at p = (o * stride + w * window_dilation - padding)
/ base_dilation, if that is an integer inside the input. The outputs fall into `period` classes by their remainder: all
outputs of a class meet the same window elements, and adjacent ones are `step` inputs apart. Each class is therefore a
convolution without base dilation, whose elements (`Tap`) start at any position, possibly outside of the input.

Complex numbers count as two real ones: strides are in real elements.
"""

from __future__ import annotations

import math

from hloom.ir import Instruction
from hloom.ops.attributes import WindowDimension
from hloom.ops.convolution import Convolution
from hloom.shape import Shape
from hloom.system.lazy import cached_property
from hloom.system.records import record
from hloom.types import PrimitiveType

MAX_DEPTHWISE_TAPS = 64
"""Taps of a depthwise window: the code has each of them, for each vector of a block."""


@record
class Tap:
    """A window element: the input position where it meets the first output of a class, and its offset in the kernel."""

    position: int
    weight: int


@record
class Axis:
    """A spatial axis: sizes of input and output, and the classes of outputs with their taps."""

    size: int
    outputs: int
    step: int
    period: int
    classes: tuple[tuple[Tap, ...], ...]
    input_stride: int
    output_stride: int

    @property
    def max_outputs(self) -> int:
        """Outputs of the first class, which has the most."""
        return self.count(0)

    def count(self, class_index: int) -> int:
        """Outputs of a class."""
        return -(-(self.outputs - class_index) // self.period)

    @cached_property
    def positions(self) -> tuple[int, ...]:
        """Input positions of the taps of all classes."""
        return tuple(tap.position for taps in self.classes for tap in taps)

    @cached_property
    def min_position(self) -> int:
        """The lowest input position that any output reads."""
        return min(self.positions)

    @property
    def spacing(self) -> Tap:
        """Distances between adjacent taps, for an axis with one class."""
        taps = self.classes[0]
        if len(taps) == 1:
            return Tap(1, 0)
        return Tap(taps[1].position - taps[0].position, taps[1].weight - taps[0].weight)


@record
class Form:
    """out[b, g, o.., n] = sum over taps and f of lhs[b, g, p.., f] * rhs[g, taps.., f, n].

    `group_strides` are of lhs, rhs and out. Groups are contiguous ranges of the input features (`has_feature_groups`),
    or else of the batch.
    """

    types: tuple[PrimitiveType, PrimitiveType, PrimitiveType]
    is_complex: bool
    batch: int
    groups: int
    inputs: int
    outputs: int
    axes: tuple[Axis, ...]
    has_feature_groups: bool
    batch_strides: tuple[int, int]
    group_strides: tuple[int, int, int]
    input_stride: int
    kernel_strides: tuple[int, int]
    output_stride: int

    @property
    def parts(self) -> int:
        """Real elements of an element."""
        return 2 if self.is_complex else 1

    @cached_property
    def taps(self) -> int:
        """The number of taps of all classes."""
        return math.prod(len(axis.positions) for axis in self.axes)

    @cached_property
    def classes(self) -> int:
        """The number of output classes."""
        return math.prod(len(axis.classes) for axis in self.axes)

    @property
    def is_depthwise(self) -> bool:
        """Whether each feature has a small window of its own, with the same distances everywhere."""
        is_of_one = self.inputs == self.outputs == self.classes == 1 and not self.is_complex
        return is_of_one and bool(self.axes) and self.taps <= MAX_DEPTHWISE_TAPS

    @property
    def work(self) -> int:
        """Multiply-adds of real numbers."""
        each = math.prod(sum(len(t) * axis.count(r) for r, t in enumerate(axis.classes)) for axis in self.axes)
        return self.batch * self.groups * self.inputs * self.outputs * each * self.parts**2


def strides_of(shape: Shape, parts: int) -> list[int]:
    """Strides of a dense row-major array, in real elements."""
    return [parts * math.prod(shape.dimensions[d + 1 :]) for d in range(shape.rank)]


def normal_form(op: Convolution, instruction: Instruction) -> Form:
    """Returns the normal form of a convolution whose result is not empty."""
    lhs, rhs, out = *(operand.shape for operand in instruction.operands), instruction.shape
    n, groups = op.dimension_numbers, op.feature_group_count * op.batch_group_count
    is_complex = out.element_type.is_complex
    a, b, c = (strides_of(shape, 2 if is_complex else 1) for shape in (lhs, rhs, out))
    batch, outputs = out.dimensions[n.output_batch_dimension], out.dimensions[n.output_feature_dimension] // groups
    inputs = rhs.dimensions[n.kernel_input_feature_dimension]
    has_feature_groups = op.batch_group_count == 1
    lhs_group_stride = (
        a[n.input_feature_dimension] * inputs if has_feature_groups else a[n.input_batch_dimension] * batch
    )
    kernel_strides = b[n.kernel_input_feature_dimension], b[n.kernel_output_feature_dimension]
    output_stride = c[n.output_feature_dimension]
    spatial_dimensions = zip(
        n.input_spatial_dimensions, n.kernel_spatial_dimensions, n.output_spatial_dimensions, strict=True
    )
    return Form(
        (lhs.element_type.real, rhs.element_type.real, out.element_type.real),
        is_complex,
        batch,
        groups,
        inputs,
        outputs,
        tuple(
            _axis(window, lhs.dimensions[i], out.dimensions[o], a[i], b[k], c[o])
            for window, (i, k, o) in zip(op.window, spatial_dimensions, strict=True)
        ),
        has_feature_groups,
        (a[n.input_batch_dimension], c[n.output_batch_dimension]),
        (lhs_group_stride, kernel_strides[1] * outputs, output_stride * outputs),
        a[n.input_feature_dimension],
        kernel_strides,
        output_stride,
    )


def _axis(window: WindowDimension, size: int, outputs: int, lhs: int, rhs: int, out: int) -> Axis:
    """Returns the axis of a window; `lhs`, `rhs` and `out` are the strides of the arrays along it."""
    common = math.gcd(window.stride, window.base_dilation)
    period = window.base_dilation // common
    classes = []
    for remainder in range(min(period, outputs)):
        taps = []
        for w in range(window.size):
            position = remainder * window.stride + w * window.window_dilation - window.padding_low
            if position % window.base_dilation == 0:
                index = window.size - 1 - w if window.window_reversal else w
                taps.append(Tap(position // window.base_dilation, index * rhs))
        classes.append(tuple(taps))
    return Axis(size, outputs, window.stride // common, period, tuple(classes), lhs, out)
