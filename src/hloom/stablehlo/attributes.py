"""Conversions between the attributes of StableHLO ops and the fields of HLO operations, in both directions.

A `ValueCodec` converts the value of one attribute. An `AttributeCodec` converts one or more attributes of an op, which
need not correspond to fields one to one. `operations.py` lists the codecs of each op. The syntax of attributes is that
of the StableHLO specification and its TableGen files (StablehloAttrs.td, StablehloEnums.td).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from hloom.errors import ArgumentError
from hloom.ops.attributes import (
    AxisRef,
    ComparisonDirection,
    ComparisonType,
    ConvolutionDimensionNumbers,
    CustomCallApiVersion,
    FftType,
    MeshReplicaGroups,
    PaddingDimension,
    Precision,
    RandomAlgorithm,
    RandomDistribution,
    ReplicaGroups,
    ResultAccuracy,
    SliceDimension,
    Transpose,
    WindowDimension,
)
from hloom.shape import Shape
from hloom.stablehlo.mlir.ir import (
    Attribute,
    DenseArray,
    DenseElements,
    DialectAttribute,
    Number,
    ScalarType,
)
from hloom.stablehlo.mlir.types import I1, I32, i64, i64_array, i64_table

Attributes = Mapping[str, Attribute]
REQUIRED: Any = object()


# Plain values


def integer(attribute: Attribute) -> int:
    """Value of an integer attribute, or of a constant of one element; raises ArgumentError for anything else."""
    if isinstance(attribute, Number) and isinstance(attribute.value, int):
        return attribute.value
    if isinstance(attribute, DenseElements) and attribute.values.size == 1:
        return int(attribute.values.reshape(())[()])
    raise ArgumentError(f"expected an integer, got {attribute!r}")


def floating_point(attribute: Attribute) -> float:
    """Value of a numeric attribute as a float; raises ArgumentError for anything else."""
    if isinstance(attribute, Number):
        return float(attribute.value)
    raise ArgumentError(f"expected a number, got {attribute!r}")


def boolean(attribute: Attribute) -> bool:
    """Value of `true`, `false`, 0, 1 or a unit attribute, which means true; raises ArgumentError for anything else."""
    if attribute is None or isinstance(attribute, bool):
        return attribute is not False
    if isinstance(attribute, Number) and attribute.value in (0, 1):
        return bool(attribute.value)
    raise ArgumentError(f"expected true or false, got {attribute!r}")


def string(attribute: Attribute) -> str:
    """Value of a string attribute; raises ArgumentError for anything else."""
    if isinstance(attribute, str):
        return attribute
    raise ArgumentError(f"expected a string, got {attribute!r}")


def integers(attribute: Attribute) -> tuple[int, ...]:
    """Elements of `array<i64: 1, 2>`, or of the older forms `dense<[1, 2]> : tensor<2xi64>` and `[1, 2]`.

    Raises ArgumentError for anything else.
    """
    if isinstance(attribute, DenseArray):
        return tuple(map(int, attribute.values))
    if isinstance(attribute, DenseElements):
        return tuple(int(v) for v in attribute.values.reshape(-1))
    if isinstance(attribute, list):
        return tuple(map(integer, attribute))
    raise ArgumentError(f"expected a list of integers, got {attribute!r}")


def table(attribute: Attribute) -> tuple[tuple[int, ...], ...]:
    """Rows of `dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>`; raises ArgumentError for anything else."""
    if not isinstance(attribute, DenseElements):
        raise ArgumentError(f"expected dense<..> : tensor<..xi64>, got {attribute!r}")
    values = attribute.values
    if values.ndim != 2:
        raise ArgumentError(f"expected a table of two dimensions, got {values.ndim}")
    return tuple(tuple(int(v) for v in row) for row in values)


@dataclass(frozen=True, slots=True)
class ValueCodec:
    """Conversion of an attribute to a Python value (`read`) and back (`write`)."""

    read: Callable[[Attribute], Any]
    write: Callable[[Any], Attribute]


INT64 = ValueCodec(integer, i64)
INT32 = ValueCodec(integer, lambda value: Number(value, I32))
FLOAT32 = ValueCodec(floating_point, lambda value: Number(float(value), ScalarType("f32")))
BOOLEAN = ValueCodec(boolean, lambda value: value)
UNIT = ValueCodec(boolean, lambda value: None)
STRING = ValueCodec(string, lambda value: value)
INT64_ARRAY = ValueCodec(integers, i64_array)


# Enumerations


def enum_case(attribute: Attribute, name: str) -> str:
    """The case `LT` of `#stablehlo<comparison_direction LT>`, or of the older string "LT".

    Raises ArgumentError for anything else.
    """
    if isinstance(attribute, DialectAttribute) and attribute.name.partition(".")[2] == name:
        return str(attribute.body).strip()
    if isinstance(attribute, str):
        return attribute
    raise ArgumentError(f"expected #stablehlo<{name} ..>, got {attribute!r}")


def enumeration(name: str, members: Mapping[str, enum.Enum | None]) -> ValueCodec:
    """Codec of the enumeration attribute `#stablehlo<name CASE>`; `members` maps StableHLO's cases to HLO's members.

    Reading raises ArgumentError for an unknown case.
    """
    cases = {member: case for case, member in members.items()}

    def read(attribute: Attribute) -> enum.Enum | None:
        case = enum_case(attribute, name)
        if case not in members:
            raise ArgumentError(f"there is no {name} {case!r}; there is: {', '.join(members)}")
        return members[case]

    return ValueCodec(read, lambda value: DialectAttribute(f"stablehlo.{name}", cases[value]))


def _same_cases(enumeration_type: type[enum.Enum], prefix: str = "") -> dict[str, enum.Enum]:
    """Members by case, for enumerations whose cases have the same names in StableHLO and HLO, but for HLO's prefix."""
    return {name.removeprefix(prefix): member for name, member in enumeration_type.__members__.items()}


DIRECTION = enumeration("comparison_direction", _same_cases(ComparisonDirection))
COMPARE_TYPE = enumeration("comparison_type", {**_same_cases(ComparisonType), "NOTYPE": None})
FFT_TYPE = enumeration("fft_type", _same_cases(FftType))
TRANSPOSE = enumeration("transpose", _same_cases(Transpose))
RNG_DISTRIBUTION = enumeration("rng_distribution", _same_cases(RandomDistribution, "RNG_"))
RNG_ALGORITHM = enumeration("rng_algorithm", _same_cases(RandomAlgorithm, "RNG_"))
PRECISION = enumeration("precision", _same_cases(Precision))


def _api_version(attribute: Attribute) -> CustomCallApiVersion:
    """Reads an i32, or the name of the member as in older files."""
    if isinstance(attribute, Number):
        members = list(CustomCallApiVersion)
        if 0 <= integer(attribute) < len(members):
            return members[integer(attribute)]
        raise ArgumentError(f"api_version is 0 .. {len(members) - 1}, got {attribute.value}")
    return CustomCallApiVersion(enum_case(attribute, "custom_call_api_version"))


API_VERSION = ValueCodec(_api_version, lambda value: Number(list(CustomCallApiVersion).index(value), I32))


# Correspondences of attributes and fields


class AttributeCodec(Protocol):
    """Conversion of some attributes of an op to fields of the HLO operation (`read`) and back (`write`)."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        """Returns field name -> value; `operands` are the shapes of the op's operands.

        Raises ArgumentError if an attribute is missing or malformed.
        """
        ...

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        """Returns attribute name -> value for the fields of an operation; those with a default may be omitted.

        Raises ArgumentError for a value that StableHLO cannot express.
        """
        ...


def required(attributes: Attributes, name: str) -> Attribute:
    """The attribute of a name; raises ArgumentError if it is missing."""
    if name not in attributes:
        raise ArgumentError(f"the attribute {name} is missing")
    return attributes[name]


@dataclass(frozen=True, slots=True)
class Plain(AttributeCodec):
    """An attribute that corresponds to one field, `name` unless `field` is given.

    A value equal to `default` may be omitted from the text; `always_written` is for attributes that MLIR requires
    anyway.
    """

    name: str
    codec: ValueCodec
    field: str = ""
    default: Any = REQUIRED
    always_written: bool = False

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        if self.name not in attributes and self.default is not REQUIRED:
            return {self.field or self.name: self.default}
        return {self.field or self.name: self.codec.read(required(attributes, self.name))}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        value = fields[self.field or self.name]
        is_omitted = not self.always_written and self.default is not REQUIRED and value == self.default
        return {} if is_omitted else {self.name: self.codec.write(value)}


@dataclass(frozen=True, slots=True)
class Fields(AttributeCodec):
    """An attribute with named parameters, `#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>`.

    `lists` and `scalars` map names of parameters to fields of the HLO operation; parameters that the text omits are
    empty or 0.
    """

    name: str
    mnemonic: str
    lists: Mapping[str, str]
    scalars: Mapping[str, str]

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        attribute = required(attributes, self.name)
        if not isinstance(attribute, DialectAttribute) or not isinstance(attribute.body, dict):
            raise ArgumentError(f"{self.name} is #stablehlo.{self.mnemonic}<..>, got {attribute!r}")
        body = attribute.body
        unknown = [name for name in body if name not in self.lists and name not in self.scalars]
        if unknown:
            raise ArgumentError(f"#stablehlo.{self.mnemonic} has no field {', '.join(unknown)}")
        values: dict[str, Any] = {field: integers(body.get(name, [])) for name, field in self.lists.items()}
        return values | {field: integer(body.get(name, i64(0))) for name, field in self.scalars.items()}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        body: dict[str, Attribute] = {}
        for name, field in self.lists.items():
            if fields[field]:
                body[name] = [i64(value) for value in fields[field]]
        for name, field in self.scalars.items():
            body[name] = i64(fields[field])
        return {self.name: DialectAttribute(f"stablehlo.{self.mnemonic}", body)}


@dataclass(frozen=True, slots=True)
class Windows(AttributeCodec):
    """HLO's window, whose sizes, strides, dilations and padding are separate attributes of StableHLO.

    `sizes`, `base` and `window` name the attributes of sizes, base dilations and window dilations. A convolution has no
    attribute of sizes (`sizes` is ""): its window has the sizes of the kernel's spatial dimensions. `base` and `window`
    are "" for ops without these dilations.
    """

    sizes: str = "window_dimensions"
    base: str = "base_dilations"
    window: str = "window_dilations"

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
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

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
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


class Pads(AttributeCodec):
    """HLO's padding configuration from `edge_padding_low`, `edge_padding_high` and `interior_padding`."""

    names = ("edge_padding_low", "edge_padding_high", "interior_padding")

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        columns = [integers(required(attributes, name)) for name in self.names]
        same_length(self.names, columns)
        return {"padding_config": tuple(PaddingDimension(*row) for row in zip(*columns, strict=True))}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        config: Sequence[PaddingDimension] = fields["padding_config"]
        return {name: i64_array([getattr(row, name) for row in config]) for name in self.names}


class Slices(AttributeCodec):
    """HLO's slice from `start_indices`, `limit_indices` and `strides`."""

    names = ("start_indices", "limit_indices", "strides")

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        columns = [integers(required(attributes, name)) for name in self.names]
        same_length(self.names, columns)
        return {"slice": tuple(SliceDimension(*row) for row in zip(*columns, strict=True))}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        rows: Sequence[SliceDimension] = fields["slice"]
        columns = ([r.start for r in rows], [r.limit for r in rows], [r.stride for r in rows])
        return {name: i64_array(column) for name, column in zip(self.names, columns, strict=True)}


def same_length(names: Sequence[str], columns: Sequence[Sequence[int]]) -> None:
    """Raises ArgumentError unless the columns have equal lengths; `names` are for the message."""
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(names, columns, strict=True))
        raise ArgumentError(f"lists of different lengths: {lengths}")


class Groups(AttributeCodec):
    """`replica_groups`: a table whose shorter rows are filled with -1, or axes of a mesh."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        attribute = required(attributes, "replica_groups")
        if isinstance(attribute, DialectAttribute):
            return {"replica_groups": groups_along_axes(attribute)}
        if isinstance(attribute, DenseElements) and attribute.values.size == 0:
            return {"replica_groups": ReplicaGroups()}
        return {"replica_groups": ReplicaGroups(tuple(tuple(i for i in row if i >= 0) for row in table(attribute)))}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        groups = fields["replica_groups"].groups
        width = max(map(len, groups), default=0)
        return {"replica_groups": i64_table([[*row, *[-1] * (width - len(row))] for row in groups], 0)}


def groups_along_axes(attribute: DialectAttribute) -> ReplicaGroups:
    """The explicit groups of `#stablehlo.replica_group_mesh_axes<mesh = #stablehlo.mesh<axes = [..]>, axes = [..]>`.

    They are enumerated since XLA does not read groups of one device as mesh axes. Raises ArgumentError for malformed
    axes.
    """
    body = _fields(attribute, "replica_group_mesh_axes")
    mesh = _fields(required(body, "mesh"), "mesh")
    axes = [_fields(axis, "mesh_axis") for axis in _entries(mesh)]
    names = tuple(string(required(axis, "name")) for axis in axes)
    sizes = tuple(integer(required(axis, "size")) for axis in axes)
    refs = tuple(_axis_ref(_fields(ref, "axis_ref"), names) for ref in _entries(body))
    groups = MeshReplicaGroups(names, sizes, refs, integers(mesh.get("device_ids", [])))
    groups.check()
    return ReplicaGroups(groups.groups)


def _fields(attribute: Attribute, name: str) -> dict[str, Attribute]:
    """Parameters of a `#stablehlo.name<..>` attribute."""
    if isinstance(attribute, DialectAttribute) and isinstance(attribute.body, dict):
        return attribute.body
    raise ArgumentError(f"expected #stablehlo.{name}<..>, got {attribute!r}")


def _entries(body: Attributes) -> list[Attribute]:
    """The list under `axes`."""
    axes = required(body, "axes")
    if isinstance(axes, list):
        return axes
    raise ArgumentError(f"expected a list of axes, got {axes!r}")


def _axis_ref(body: Attributes, names: Sequence[str]) -> AxisRef:
    """Reads an axis by its name; `sub_axis_info = (2)4` is a sub-axis of size 4 after sub-axes of size 2."""
    name, part = string(required(body, "name")), body.get("sub_axis_info")
    if name not in names:
        raise ArgumentError(f"the mesh has no axis {name!r}; it has: {', '.join(names) or 'none'}")
    sizes = map(int, re.findall(r"\d{1,9}", part)) if isinstance(part, str) else ()
    return AxisRef(names.index(name), *sizes)


@dataclass(frozen=True, slots=True)
class Channel(AttributeCodec):
    """HLO's channel id from `channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>`; handle 0 means none.

    `type` is the channel type that is written: 0 or 1 between devices, 2 from device to host, 3 from host to device.
    """

    type: int = 0
    optional: bool = True

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        if self.optional and "channel_handle" not in attributes:
            return {"channel_id": None}
        attribute = required(attributes, "channel_handle")
        if not isinstance(attribute, DialectAttribute) or not isinstance(attribute.body, dict):
            raise ArgumentError(f"channel_handle is #stablehlo.channel_handle<..>, got {attribute!r}")
        handle = integer(attribute.body.get("handle", i64(0)))
        return {"channel_id": handle if handle > 0 or not self.optional else None}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        channel = fields["channel_id"]
        if channel is None and self.optional:
            return {}
        body: dict[str, Attribute] = {"handle": i64(channel or 0), "type": i64(self.type)}
        return {"channel_handle": DialectAttribute("stablehlo.channel_handle", body)}


class Precisions(AttributeCodec):
    """`precision_config = [#stablehlo<precision HIGHEST>, ..]`; omitted beside a dot algorithm, which overrides it."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        entries = attributes.get("precision_config")
        if entries is not None and not isinstance(entries, list):
            raise ArgumentError(f"precision_config is a list, got {entries!r}")
        return {"operand_precision": tuple(PRECISION.read(entry) for entry in entries or ())}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        precisions = fields["operand_precision"]
        if not precisions or fields.get("algorithm") not in _NO_ALGORITHM:
            return {}
        return {"precision_config": [PRECISION.write(p) for p in precisions]}


# HLO's name of a dot algorithm -> types of lhs, rhs and accumulator, component counts of lhs and rhs, number of
# primitive operations, whether accumulation may be imprecise.
DOT_ALGORITHMS: dict[str, tuple[str, str, str, int, int, int, bool]] = {
    "dot_any_f8_any_f8_f32": ("f8E5M2", "f8E5M2", "f32", 1, 1, 1, False),
    "dot_any_f8_any_f8_f32_fast_accum": ("f8E5M2", "f8E5M2", "f32", 1, 1, 1, True),
    "dot_f16_f16_f16": ("f16", "f16", "f16", 1, 1, 1, False),
    "dot_f16_f16_f32": ("f16", "f16", "f32", 1, 1, 1, False),
    "dot_bf16_bf16_bf16": ("bf16", "bf16", "bf16", 1, 1, 1, False),
    "dot_bf16_bf16_f32": ("bf16", "bf16", "f32", 1, 1, 1, False),
    "dot_bf16_bf16_f32_x3": ("bf16", "bf16", "f32", 1, 1, 3, False),
    "dot_bf16_bf16_f32_x6": ("bf16", "bf16", "f32", 1, 1, 6, False),
    "dot_bf16_bf16_f32_x9": ("bf16", "bf16", "f32", 1, 1, 9, False),
    "dot_tf32_tf32_f32": ("tf32", "tf32", "f32", 1, 1, 1, False),
    "dot_tf32_tf32_f32_x3": ("tf32", "tf32", "f32", 1, 1, 3, False),
    "dot_f32_f32_f32": ("f32", "f32", "f32", 1, 1, 1, False),
    "dot_f64_f64_f64": ("f64", "f64", "f64", 1, 1, 1, False),
}
_NO_ALGORITHM = (None, "unset")
_ALGORITHM_FIELDS = (
    "lhs_precision_type",
    "rhs_precision_type",
    "accumulation_type",
    "lhs_component_count",
    "rhs_component_count",
    "num_primitive_operations",
    "allow_imprecise_accumulation",
)


class Algorithm(AttributeCodec):
    """`algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, ..>`, which has a single name in HLO."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        attribute = attributes.get("algorithm")
        if attribute is None:
            return {}
        if not isinstance(attribute, DialectAttribute) or not isinstance(attribute.body, dict):
            raise ArgumentError(f"algorithm is #stablehlo.dot_algorithm<..>, got {attribute!r}")
        values = [required(attribute.body, name) for name in _ALGORITHM_FIELDS]
        given = tuple(v.name if isinstance(v, ScalarType) else v.value if isinstance(v, Number) else v for v in values)
        any_f8 = tuple("f8E5M2" if isinstance(v, str) and v.startswith("f8") else v for v in given)
        for algorithm, components in DOT_ALGORITHMS.items():
            if components in (given, any_f8):
                return {"algorithm": algorithm}
        raise ArgumentError(f"there is no dot algorithm {given}")

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        algorithm = fields["algorithm"]
        if algorithm in _NO_ALGORITHM:
            return {}
        if algorithm not in DOT_ALGORITHMS:
            raise ArgumentError(f"StableHLO has no dot algorithm {algorithm}")
        values: list[Attribute] = []
        for value in DOT_ALGORITHMS[algorithm]:
            if isinstance(value, bool):
                values.append(value)
            else:
                values.append(ScalarType(value) if isinstance(value, str) else i64(value))
        body = dict(zip(_ALGORITHM_FIELDS, values, strict=True))
        return {"algorithm": DialectAttribute("stablehlo.dot_algorithm", body)}


class Accuracy(AttributeCodec):
    """`result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<HIGHEST>>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        attribute = attributes.get("result_accuracy")
        if attribute is None:
            return {}
        if not isinstance(attribute, DialectAttribute) or not isinstance(attribute.body, dict):
            raise ArgumentError(f"result_accuracy is #stablehlo.result_accuracy<..>, got {attribute!r}")
        body = attribute.body
        mode = enum_case(body["mode"], "result_accuracy_mode").lower() if "mode" in body else "tolerance"
        if mode != "tolerance":
            return {"result_accuracy": ResultAccuracy(mode)}
        atol, rtol = (floating_point(body[name]) if name in body else 0.0 for name in ("atol", "rtol"))
        return {"result_accuracy": ResultAccuracy("default", atol, rtol, integer(body.get("ulps", i64(0))))}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        accuracy: ResultAccuracy = fields["result_accuracy"]
        if accuracy == ResultAccuracy():
            return {}
        mode = "TOLERANCE" if accuracy.has_tolerance else accuracy.mode.upper()
        body: dict[str, Attribute] = {}
        if accuracy.has_tolerance:
            f64 = ScalarType("f64")
            body = {"atol": Number(accuracy.atol, f64), "rtol": Number(accuracy.rtol, f64), "ulps": i64(accuracy.ulps)}
        body["mode"] = DialectAttribute("stablehlo.result_accuracy_mode", mode)
        return {"result_accuracy": DialectAttribute("stablehlo.result_accuracy", body)}


class Pairs(AttributeCodec):
    """`source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        attribute = required(attributes, "source_target_pairs")
        if isinstance(attribute, DenseElements) and attribute.values.size == 0:
            return {"source_target_pairs": ()}
        return {"source_target_pairs": table(attribute)}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        return {"source_target_pairs": i64_table(fields["source_target_pairs"])}


# Convolutions


class ConvolutionDimensions(AttributeCodec):
    """`dimension_numbers` of a convolution, `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>`."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> dict[str, Any]:
        return {"dimension_numbers": dimension_numbers(attributes)}

    def write(self, fields: Mapping[str, Any]) -> dict[str, Attribute]:
        return {"dimension_numbers": convolution_attribute(fields["dimension_numbers"])}


_SIDES = (
    ("input", (("b", "batch"), ("f", "feature"))),
    ("kernel", (("o", "output_feature"), ("i", "input_feature"))),
    ("output", (("b", "batch"), ("f", "feature"))),
)


def dimension_numbers(attributes: Attributes) -> ConvolutionDimensionNumbers:
    """Reads the attribute `dimension_numbers` of a convolution; raises ArgumentError if it is missing or malformed."""
    attribute = required(attributes, "dimension_numbers")
    if not isinstance(attribute, DialectAttribute) or attribute.name.partition(".")[2] != "conv":
        raise ArgumentError(f"dimension_numbers is #stablehlo.conv<..>, got {attribute!r}")
    if isinstance(attribute.body, dict):
        return _from_named_fields(attribute.body)
    left, arrow, output = attribute.body.replace(" ", "").partition("->")
    sides = [side.strip("[]").split(",") for side in (*left.replace("]x[", "]|[").split("|"), output)]
    values: dict[str, Any] = {}
    for (side, letters), labels in zip(_SIDES, sides, strict=False):
        for letter, name in letters:
            if labels.count(letter) != 1:
                raise ArgumentError(f"convolution dimensions {attribute.body}: each side names {letter} once")
            values[f"{side}_{name}_dimension"] = labels.index(letter)
        count = len(labels) - 2
        if any(labels.count(str(k)) != 1 for k in range(count)):
            raise ArgumentError(f"convolution dimensions {attribute.body}: spatial dimensions are 0 .. {count - 1}")
        values[f"{side}_spatial_dimensions"] = tuple(labels.index(str(k)) for k in range(count))
    if len(values) != 9:
        raise ArgumentError(f"convolution dimensions are [b, 0, f]x[0, i, o]->[b, 0, f], got {attribute.body}")
    return ConvolutionDimensionNumbers(**values)


def _from_named_fields(body: Attributes) -> ConvolutionDimensionNumbers:
    """Reads the form with named parameters, `#stablehlo.conv<raw input_batch_dimension = 0, ..>`."""
    values: dict[str, Any] = {}
    for side, letters in _SIDES:
        for _, name in letters:
            values[f"{side}_{name}_dimension"] = integer(required(body, f"{side}_{name}_dimension"))
        values[f"{side}_spatial_dimensions"] = integers(required(body, f"{side}_spatial_dimensions"))
    return ConvolutionDimensionNumbers(**values)


def convolution_attribute(dimensions: ConvolutionDimensionNumbers) -> DialectAttribute:
    """The attribute `#stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>` of a convolution's dimension numbers."""
    sides: list[str] = []
    for side, letters in _SIDES:
        spatial = getattr(dimensions, f"{side}_spatial_dimensions")
        labels = {position: str(k) for k, position in enumerate(spatial)}
        labels |= {getattr(dimensions, f"{side}_{name}_dimension"): letter for letter, name in letters}
        sides.append("[" + ", ".join(labels[position] for position in sorted(labels)) + "]")
    return DialectAttribute("stablehlo.conv", f"{sides[0]}x{sides[1]}->{sides[2]}")
