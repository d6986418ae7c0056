"""Attribute values of operations: windows, dimension numbers, replica groups, enumerations .."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

import numpy as np

from hloom.errors import ArgumentError
from hloom.shape import Ints
from hloom.sharding import Sharding


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """A dimension of a window (WIN-1): size, stride, padding and dilations; `window_reversal` reverses the window."""

    size: int = 1
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether stride and dilations are 1."""
        return self.stride == self.window_dilation == self.base_dilation == 1

    @property
    def dilated_size(self) -> int:
        """The dilated size of the window, w' of WIN-1."""
        return (self.size - 1) * self.window_dilation + 1

    def dilated_base(self, base: int) -> int:
        """Returns the dilated size of a base of `base` elements, n' of WIN-1."""
        return (base - 1) * self.base_dilation + 1 if base else 0

    def count(self, base: int) -> int:
        """Returns the number of window positions over a base of `base` elements (WIN-2)."""
        padded = self.dilated_base(base) + self.padding_low + self.padding_high
        return 0 if padded < self.dilated_size else (padded - self.dilated_size) // self.stride + 1


Window = tuple[WindowDimension, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers:
    """The batch, feature and spatial dimensions of input, kernel and output: `bf01_oi01->bf01` (CONVGENERAL-1)."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: Ints
    kernel_output_feature_dimension: int
    kernel_input_feature_dimension: int
    kernel_spatial_dimensions: Ints
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: Ints

    @staticmethod
    def default(spatial: int) -> ConvolutionDimensionNumbers:
        """Returns (batch, feature, spatial ..) for input and output and (output feature, input feature, spatial ..) for
        the kernel.
        """
        rest = tuple(range(2, spatial + 2))
        return ConvolutionDimensionNumbers(0, 1, rest, 0, 1, rest, 0, 1, rest)

    @property
    def exchanged(self) -> ConvolutionDimensionNumbers:
        """The dimension numbers with input and kernel swapped: the batch and the output features change roles."""
        return ConvolutionDimensionNumbers(
            self.kernel_output_feature_dimension,
            self.kernel_input_feature_dimension,
            self.kernel_spatial_dimensions,
            self.input_batch_dimension,
            self.input_feature_dimension,
            self.input_spatial_dimensions,
            self.output_feature_dimension,
            self.output_batch_dimension,
            self.output_spatial_dimensions,
        )


@dataclass(frozen=True, slots=True)
class PaddingDimension:
    """The padding of a dimension (PAD-1). Edge padding may be negative, interior padding not."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """The indices start, start + stride, .. below limit (SLICE-1)."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Groups of replica (or device) ids that communicate; () is one group of all (COLL-2, COLL-3)."""

    groups: tuple[Ints, ...] = ()


@dataclass(frozen=True, slots=True)
class IotaReplicaGroups:
    """Groups in iota form, `[2,4]<=[8]` or `[4,2]<=[2,4]T(1,0)`: the rows of an iota, reshaped and transposed
    (COLL-7).
    """

    num_replica_groups: int
    num_devices_per_group: int
    iota_reshape_dims: Ints
    iota_transpose_perm: Ints = ()

    @property
    def groups(self) -> tuple[Ints, ...]:
        """The groups as tuples of ids."""
        ids = np.arange(self.num_replica_groups * self.num_devices_per_group).reshape(self.iota_reshape_dims)
        if self.iota_transpose_perm:
            ids = ids.transpose(self.iota_transpose_perm)
        rows = ids.reshape(self.num_replica_groups, self.num_devices_per_group).tolist()
        return tuple(tuple(row) for row in rows)


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis of a mesh, or a sub-axis: `size` of its positions after `pre_size` more major ones; 0 is the whole
    axis.
    """

    axis: int
    pre_size: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class MeshReplicaGroups:
    """Groups along axes of a device mesh, `mesh['a'=2,'b'=2] {'a'}` (COLL-7).

    The devices are 0, 1, .. in row-major order of the mesh, or `device_ids`, or an iota reshaped and transposed. Each
    group varies along `axes`, the first slowest; there is a group for each position along the other axes.
    """

    axis_names: tuple[str, ...]
    axis_sizes: Ints
    axes: tuple[AxisRef, ...]
    device_ids: Ints = ()
    iota_reshape_dims: Ints = ()
    iota_transpose_perm: Ints = ()

    @property
    def groups(self) -> tuple[Ints, ...]:
        """The groups as tuples of device ids."""
        ids = np.array(self.device_ids) if self.device_ids else np.arange(int(np.prod(self.axis_sizes)))
        if self.iota_reshape_dims:
            ids = ids.reshape(self.iota_reshape_dims).transpose(self.iota_transpose_perm or None)
        sizes, order = self.pieces()
        used = order[: len(self.axes)]
        count = math.prod(sizes[d] for d in used)
        rows = ids.reshape(sizes).transpose(order[len(used) :] + used).reshape(-1, count).tolist()
        return tuple(tuple(row) for row in rows)

    def pieces(self) -> tuple[list[int], list[int]]:
        """Splits axes that are used in part; returns the sizes of the pieces, and an order of the pieces that has those
        of `axes` first.
        """
        sizes: list[int] = []
        piece_index: dict[AxisRef, int] = {}
        for axis, size in enumerate(self.axis_sizes):
            done = 1
            for ref in sorted((r for r in self.axes if r.axis == axis), key=lambda r: r.pre_size):
                sizes.append(max(ref.pre_size, 1) // done)
                piece_index[ref] = len(sizes)
                sizes.append(ref.size or size)
                done = max(ref.pre_size, 1) * (ref.size or size)
            sizes.append(size // done)
        used = [piece_index[ref] for ref in self.axes]
        return sizes, used + [d for d in range(len(sizes)) if d not in used]

    def check(self) -> None:
        """Raises ArgumentError if the mesh is invalid, or `axes` are not distinct (sub-)axes of it."""
        count = math.prod(self.axis_sizes)
        if any(size < 1 for size in self.axis_sizes) or count > 1 << 24 or len(set(self.axes)) != len(self.axes):
            raise ArgumentError("a mesh has named axes of sizes >= 1, and groups name each of its axes once")
        if self.device_ids and sorted(self.device_ids) != list(range(count)):
            raise ArgumentError(f"device_ids must hold each of 0 .. {count - 1} once")
        reshape, transpose = self.iota_reshape_dims, self.iota_transpose_perm
        if reshape and (
            math.prod(reshape) != count or sorted(transpose or range(len(reshape))) != [*range(len(reshape))]
        ):
            raise ArgumentError(f"device_ids must hold each of 0 .. {count - 1} once")
        if any(not 0 <= ref.axis < len(self.axis_sizes) for ref in self.axes):
            raise ArgumentError("groups run over axes that the mesh does not have")
        parts = sorted((ref.axis, max(ref.pre_size, 1), ref.size or self.axis_sizes[ref.axis]) for ref in self.axes)
        for i, (axis, before, size) in enumerate(parts):
            is_last = i + 1 == len(parts) or parts[i + 1][0] != axis
            end = self.axis_sizes[axis] if is_last else parts[i + 1][1]
            if before < 1 or size < 1 or end % (before * size):
                raise ArgumentError("the parts of an axis do not divide it")


@dataclass(frozen=True, slots=True)
class OutputOperandAlias:
    """An alias: the output at `output_index` shares the buffer of operand `operand_number` at `operand_index`."""

    output_index: Ints
    operand_number: int
    operand_index: Ints
    kind: str = ""
    """"" or "must-alias" / "may-alias", as the text writes it."""


AnyReplicaGroups = ReplicaGroups | IotaReplicaGroups | MeshReplicaGroups


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """The required accuracy of a transcendental function: `mode` "default" or "highest", or a tolerance."""

    mode: str = "default"
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    @property
    def has_tolerance(self) -> bool:
        """Whether a tolerance is given."""
        return bool(self.atol or self.rtol or self.ulps)


@dataclass(frozen=True, slots=True)
class Domain:
    """The shardings on both sides of a domain instruction."""

    kind: str
    entry: Sharding
    exit: Sharding


class ComparisonDirection(enum.Enum):
    """The relation that compare tests."""

    EQ, NE, GE, GT, LE, LT = "EQ", "NE", "GE", "GT", "LE", "LT"


class ComparisonType(enum.Enum):
    """The order by which compare compares; TOTALORDER is that of TOTALORDER-1."""

    FLOAT, TOTALORDER, SIGNED, UNSIGNED = "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"


class ComparisonOrder(enum.Enum):
    """The order of floats as current XLA writes it; TOTAL is that of TOTALORDER-1."""

    TOTAL, PARTIAL = "TOTAL", "PARTIAL"


class FftType(enum.Enum):
    """The kind of Fourier transform: complex, inverse, real to complex, complex to real."""

    FFT, IFFT, RFFT, IRFFT = "FFT", "IFFT", "RFFT", "IRFFT"


class RandomDistribution(enum.Enum):
    """The distribution of rng."""

    RNG_UNIFORM, RNG_NORMAL = "rng_uniform", "rng_normal"


class RandomAlgorithm(enum.Enum):
    """The algorithm of rng-bit-generator."""

    RNG_DEFAULT, RNG_THREE_FRY, RNG_PHILOX = "rng_default", "rng_three_fry", "rng_philox"


class Transpose(enum.Enum):
    """The form of `a` that triangular-solve uses."""

    NO_TRANSPOSE, TRANSPOSE, ADJOINT = "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"


class Precision(enum.Enum):
    """The precision of an operand of dot or convolution; only DEFAULT permits Winograd convolutions."""

    DEFAULT, HIGH, HIGHEST = "default", "high", "highest"


class DotAlgorithm(enum.Enum):
    """The types of a dot's products and sums; `dot_bf16_bf16_f32_x3` is three products of bf16 parts, added in f32."""

    ALG_UNSET = "unset"
    ALG_DOT_ANY_F8_ANY_F8_F32 = "dot_any_f8_any_f8_f32"
    ALG_DOT_ANY_F8_ANY_F8_F32_FAST_ACCUM = "dot_any_f8_any_f8_f32_fast_accum"
    ALG_DOT_F16_F16_F16 = "dot_f16_f16_f16"
    ALG_DOT_F16_F16_F32 = "dot_f16_f16_f32"
    ALG_DOT_BF16_BF16_BF16 = "dot_bf16_bf16_bf16"
    ALG_DOT_BF16_BF16_F32 = "dot_bf16_bf16_f32"
    ALG_DOT_BF16_BF16_F32_X3 = "dot_bf16_bf16_f32_x3"
    ALG_DOT_BF16_BF16_F32_X6 = "dot_bf16_bf16_f32_x6"
    ALG_DOT_BF16_BF16_F32_X9 = "dot_bf16_bf16_f32_x9"
    ALG_DOT_TF32_TF32_F32 = "dot_tf32_tf32_f32"
    ALG_DOT_TF32_TF32_F32_X3 = "dot_tf32_tf32_f32_x3"
    ALG_DOT_F32_F32_F32 = "dot_f32_f32_f32"
    ALG_DOT_F64_F64_F64 = "dot_f64_f64_f64"


class FusionKind(enum.Enum):
    """XLA's kind of a fusion, kept unchanged."""

    LOOP, INPUT, OUTPUT, CUSTOM = "kLoop", "kInput", "kOutput", "kCustom"


class CustomCallSchedule(enum.Enum):
    """The scheduling hint of a custom call, kept unchanged."""

    SCHEDULE_NONE, SCHEDULE_LATEST, SCHEDULE_EARLIEST = "SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"


class CustomCallApiVersion(enum.Enum):
    """The calling convention of a custom call, as XLA names it."""

    API_VERSION_UNSPECIFIED = "API_VERSION_UNSPECIFIED"
    API_VERSION_ORIGINAL = "API_VERSION_ORIGINAL"
    API_VERSION_STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    API_VERSION_STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    API_VERSION_TYPED_FFI = "API_VERSION_TYPED_FFI"


class PaddingType(enum.Enum):
    """The padding type of a custom call, kept unchanged."""

    PADDING_INVALID, PADDING_VALID, PADDING_SAME = "PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"
