"""The values that attributes of operations take, and their kinds.

A kind says what Python values an attribute accepts (`normalize`) and stands for its syntax: `hloom.text.attributes`
and `hloom.proto.attributes` hold, for each kind, how HLO text and HloInstructionProto write it.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.errors import ArgumentError, RuleError
from hloom.literal import Literal
from hloom.ops.context import Computation
from hloom.shape import Ints, Shape
from hloom.sharding import Sharding

# Values


@dataclass(frozen=True, slots=True)
class WindowDimension:
    """One dimension of a window (WIN-1): sizes, stride, padding, dilations; `window_reversal` flips the kernel."""

    size: int = 1
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it moves element by element, over neighbours, with no holes between them."""
        return self.stride == self.window_dilation == self.base_dilation == 1

    @property
    def dilated_size(self) -> int:
        """w' of WIN-1."""
        return (self.size - 1) * self.window_dilation + 1

    def dilated_base(self, base: int) -> int:
        """n' of WIN-1."""
        return (base - 1) * self.base_dilation + 1 if base else 0

    def count(self, base: int) -> int:
        """The number of window positions over a base of that size (WIN-2)."""
        padded = self.dilated_base(base) + self.padding_low + self.padding_high
        return 0 if padded < self.dilated_size else (padded - self.dilated_size) // self.stride + 1


Window = tuple[WindowDimension, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionDimensionNumbers:
    """Which dimension of input, kernel and output is batch, feature or spatial: `bf01_oi01->bf01` (CONVGENERAL-1)."""

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
        """Batch, features, then the spatial dimensions, in input and output; output, input features in the kernel."""
        rest = tuple(range(2, spatial + 2))
        return ConvolutionDimensionNumbers(0, 1, rest, 0, 1, rest, 0, 1, rest)

    @property
    def exchanged(self) -> ConvolutionDimensionNumbers:
        """Input and kernel in each other's place: output features become the batch, and the batch the features."""
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
    """The padding of one dimension (PAD-1): edges may be negative, the interior may not."""

    edge_padding_low: int = 0
    edge_padding_high: int = 0
    interior_padding: int = 0


@dataclass(frozen=True, slots=True)
class SliceDimension:
    """start, start + stride, .. below limit (SLICE-1)."""

    start: int
    limit: int
    stride: int = 1


@dataclass(frozen=True, slots=True)
class ReplicaGroups:
    """Groups of replica (or device) ids that communicate; empty means one group of all (COLL-2, COLL-3)."""

    groups: tuple[Ints, ...] = ()


@dataclass(frozen=True, slots=True)
class IotaReplicaGroups:
    """Groups in iota form, `[2,4]<=[8]` or `[4,2]<=[2,4]T(1,0)`: iota, reshaped, transposed, cut into rows (COLL-7)."""

    num_replica_groups: int
    num_devices_per_group: int
    iota_reshape_dims: Ints
    iota_transpose_perm: Ints = ()

    @property
    def groups(self) -> tuple[Ints, ...]:
        ids = np.arange(self.num_replica_groups * self.num_devices_per_group).reshape(self.iota_reshape_dims)
        if self.iota_transpose_perm:
            ids = ids.transpose(self.iota_transpose_perm)
        rows = ids.reshape(self.num_replica_groups, self.num_devices_per_group).tolist()
        return tuple(tuple(row) for row in rows)


@dataclass(frozen=True, slots=True)
class AxisRef:
    """An axis of a mesh, or a part of it: `size` of its positions after `pre_size` coarser ones; 0 means the whole."""

    axis: int
    pre_size: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class MeshReplicaGroups:
    """Groups along axes of a device mesh, `mesh['a'=2,'b'=2] {'a'}` (COLL-7).

    The devices are 0, 1, .. in row-major order of the mesh, or `device_ids`, or iota reshaped and transposed. Each
    group runs over `axes`, the first slowest; there is one for each place on the rest of the mesh.
    """

    axis_names: tuple[str, ...]
    axis_sizes: Ints
    axes: tuple[AxisRef, ...]
    device_ids: Ints = ()
    iota_reshape_dims: Ints = ()
    iota_transpose_perm: Ints = ()

    @property
    def groups(self) -> tuple[Ints, ...]:
        ids = np.array(self.device_ids) if self.device_ids else np.arange(int(np.prod(self.axis_sizes)))
        if self.iota_reshape_dims:
            ids = ids.reshape(self.iota_reshape_dims).transpose(self.iota_transpose_perm or None)
        sizes, order = self.pieces()
        used = order[: len(self.axes)]
        count = math.prod(sizes[d] for d in used)
        rows = ids.reshape(sizes).transpose(order[len(used) :] + used).reshape(-1, count).tolist()
        return tuple(tuple(row) for row in rows)

    def pieces(self) -> tuple[list[int], list[int]]:
        """The sizes of the mesh with axes that are used in part cut into coarser, used and finer positions; and the
        places of the pieces that `axes` are, in their order, before those of the rest."""
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
        """Raises ArgumentError where the mesh is none, or does not have the axes that groups run over."""
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
    """Output at `output_index` shares the buffer of operand `operand_number` at `operand_index`."""

    output_index: Ints
    operand_number: int
    operand_index: Ints
    kind: str = ""
    """"" or "must-alias" / "may-alias", as the text writes it."""


AnyReplicaGroups = ReplicaGroups | IotaReplicaGroups | MeshReplicaGroups


@dataclass(frozen=True, slots=True)
class ResultAccuracy:
    """How accurate a transcendental function is asked to be: `mode` "default" or "highest", or a tolerance."""

    mode: str = "default"
    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0

    @property
    def has_tolerance(self) -> bool:
        return bool(self.atol or self.rtol or self.ulps)


@dataclass(frozen=True, slots=True)
class Domain:
    """The shardings on both sides of a domain instruction."""

    kind: str
    entry: Sharding
    exit: Sharding


class ComparisonDirection(enum.Enum):
    EQ, NE, GE, GT, LE, LT = "EQ", "NE", "GE", "GT", "LE", "LT"


class ComparisonType(enum.Enum):
    """How compare orders elements; TOTALORDER is that of TOTALORDER-1."""

    FLOAT, TOTALORDER, SIGNED, UNSIGNED = "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"


class ComparisonOrder(enum.Enum):
    """How today's XLA says whether floats compare by TOTALORDER-1."""

    TOTAL, PARTIAL = "TOTAL", "PARTIAL"


class FftType(enum.Enum):
    FFT, IFFT, RFFT, IRFFT = "FFT", "IFFT", "RFFT", "IRFFT"


class RandomDistribution(enum.Enum):
    RNG_UNIFORM, RNG_NORMAL = "rng_uniform", "rng_normal"


class RandomAlgorithm(enum.Enum):
    RNG_DEFAULT, RNG_THREE_FRY, RNG_PHILOX = "rng_default", "rng_three_fry", "rng_philox"


class Transpose(enum.Enum):
    """Which form of a TriangularSolve uses."""

    NO_TRANSPOSE, TRANSPOSE, ADJOINT = "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"


class Precision(enum.Enum):
    DEFAULT, HIGH, HIGHEST = "default", "high", "highest"


class FusionKind(enum.Enum):
    LOOP, INPUT, OUTPUT, CUSTOM = "kLoop", "kInput", "kOutput", "kCustom"


class CustomCallSchedule(enum.Enum):
    SCHEDULE_NONE, SCHEDULE_LATEST, SCHEDULE_EARLIEST = "SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST"


class CustomCallApiVersion(enum.Enum):
    API_VERSION_UNSPECIFIED = "API_VERSION_UNSPECIFIED"
    API_VERSION_ORIGINAL = "API_VERSION_ORIGINAL"
    API_VERSION_STATUS_RETURNING = "API_VERSION_STATUS_RETURNING"
    API_VERSION_STATUS_RETURNING_UNIFIED = "API_VERSION_STATUS_RETURNING_UNIFIED"
    API_VERSION_TYPED_FFI = "API_VERSION_TYPED_FFI"


class PaddingType(enum.Enum):
    PADDING_INVALID, PADDING_VALID, PADDING_SAME = "PADDING_INVALID", "PADDING_VALID", "PADDING_SAME"


# Kinds


class AttributeKind:
    """A kind of attribute; `convert` turns an acceptable Python value into the canonical immutable one."""

    __slots__ = ("convert", "description", "name")

    def __init__(self, name: str, description: str, convert: Callable[[Any], Any]) -> None:
        self.name = name
        self.description = description
        self.convert = convert

    def __repr__(self) -> str:
        return self.name

    def normalize(self, opcode: str, field: str, value: Any) -> Any:
        """The canonical value; RuleError where `value` is not of this kind. None passes: it means "not given"."""
        if value is None:
            return None
        try:
            return self.convert(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise RuleError(opcode, "GEN-3", f"{field} takes {self.description}, got {value!r}") from None

    def computations(self, value: Any) -> Iterable[Computation]:
        """The computations in a value of this kind."""
        return ()


class ComputationKind(AttributeKind):
    __slots__ = ()

    def computations(self, value: Any) -> Iterable[Computation]:
        return () if value is None else value if isinstance(value, tuple) else (value,)


class EnumKind(AttributeKind):
    """One of an enumeration: member values are the words of HLO text, member names those of the proto."""

    __slots__ = ("enumeration",)

    def __init__(self, enumeration: type[enum.Enum]) -> None:
        words = " | ".join(str(member.value) for member in enumeration)
        super().__init__(enumeration.__name__, f"one of {words}", self._member)
        self.enumeration = enumeration

    def _member(self, value: Any) -> enum.Enum:
        if isinstance(value, str):
            if value in self.enumeration.__members__:
                return self.enumeration[value]
            return self.enumeration(value)
        if isinstance(value, self.enumeration):
            return value
        raise TypeError(value)


def _int(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(value)
    number = operator.index(value)
    if not -(2**63) <= number < 2**63:
        raise OverflowError(value)
    return number


def _bool(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(value)
    return bool(value)


def _float(value: Any) -> float:
    if isinstance(value, str):
        raise TypeError(value)
    return float(np.float32(value))


def _str(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _ints(value: Any) -> Ints:
    if type(value) is tuple and all(type(v) is int for v in value):
        return value
    return tuple(_int(v) for v in value)


def _instance(cls: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, cls):
            raise TypeError(value)
        return value

    return convert


def _sequence(cls: Callable[..., Any]) -> Callable[[Any], tuple[Any, ...]]:
    """A sequence whose entries are `cls` values, or the plain tuples that make one."""

    def convert(value: Sequence[Any]) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)):
            raise TypeError(value)
        return tuple(
            entry if isinstance(cls, type) and isinstance(entry, cls) else cls(*_ints(entry)) for entry in value
        )

    return convert


def _replica_groups(value: Any) -> AnyReplicaGroups:
    if isinstance(value, (ReplicaGroups, IotaReplicaGroups, MeshReplicaGroups)):
        return value
    return ReplicaGroups(tuple(_ints(group) for group in value))


def _precisions(value: Any) -> tuple[Precision, ...]:
    """All default says nothing, so it is the same as none."""
    precisions = tuple(Precision(v) for v in value)
    return () if all(p is Precision.DEFAULT for p in precisions) else precisions


def _computation(value: Any) -> Any:
    # A built XlaComputation carries its graph; what operations hold is the computation itself.
    return getattr(value, "entry_computation", value)


def _literal(value: Any) -> Literal:
    return value if isinstance(value, Literal) else Literal.from_value(value)


BOOL = AttributeKind("BOOL", "true or false", _bool)
INT = AttributeKind("INT", "an integer", _int)
FLOAT = AttributeKind("FLOAT", "a number", _float)
"""A number that XLA holds as f32."""
STRING = AttributeKind("STRING", "a string", _str)
WORD = AttributeKind("WORD", "a bare word", _str)
INTS = AttributeKind("INTS", "a list of integers", _ints)
BOOLS = AttributeKind("BOOLS", "a list of booleans", lambda value: tuple(_bool(v) for v in value))
DIMENSION = AttributeKind("DIMENSION", "a dimension number", _int)
"""One dimension number that text writes in braces, `dimensions={0}`, and the proto as a list of one."""
SHAPE = AttributeKind("SHAPE", "a shape", _instance(Shape))
SHAPES = AttributeKind("SHAPES", "a list of shapes", _sequence(Shape))
LITERAL = AttributeKind("LITERAL", "a literal", _literal)
COMPUTATION = ComputationKind("COMPUTATION", "a computation", _computation)
COMPUTATIONS = ComputationKind(
    "COMPUTATIONS", "a list of computations", lambda value: tuple(_computation(v) for v in value)
)
WINDOW = AttributeKind("WINDOW", "a window: one WindowDimension for each dimension", _sequence(WindowDimension))
DIM_LABELS = AttributeKind(
    "DIM_LABELS", "ConvolutionDimensionNumbers, as bf01_oi01->bf01", _instance(ConvolutionDimensionNumbers)
)
PADDING = AttributeKind("PADDING", "a list of (low, high, interior)", _sequence(PaddingDimension))
SLICES = AttributeKind("SLICES", "a list of [start:limit:stride]", _sequence(SliceDimension))
REPLICA_GROUPS = AttributeKind("REPLICA_GROUPS", "a list of lists of replica ids", _replica_groups)
PAIRS = AttributeKind("PAIRS", "a list of (source, target)", _sequence(lambda source, target: (source, target)))
PRECISIONS = AttributeKind("PRECISIONS", "a list of default | high | highest", _precisions)
ALIASING = AttributeKind("ALIASING", "a list of OutputOperandAlias", _sequence(OutputOperandAlias))
RESULT_ACCURACY = AttributeKind("RESULT_ACCURACY", "a ResultAccuracy", _instance(ResultAccuracy))
DOMAIN = AttributeKind("DOMAIN", "a Domain: kind, entry and exit sharding", _instance(Domain))
