"""Python values of attributes, and `ValueCodec`: the conversion of the value of one attribute.

The syntax of attributes is that of the StableHLO specification and its TableGen files (StablehloAttrs.td,
StablehloEnums.td).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

from hloom.errors import ArgumentError
from hloom.ops.attributes import (
    ComparisonDirection,
    ComparisonType,
    CustomCallApiVersion,
    FftType,
    Precision,
    RandomAlgorithm,
    RandomDistribution,
    Transpose,
)
from hloom.stablehlo.mlir.ir import Attribute, DenseArray, DenseElements, DialectAttribute, Number, Symbol
from hloom.stablehlo.mlir.types import F32, i32, i64, i64_array
from hloom.system.records import record

Attributes = Mapping[str, Attribute]
FieldValues = Mapping[str, Any]
"""Values of the fields of an HLO operation, by name."""


# Values


def required(attributes: Attributes, name: str) -> Attribute:
    """The attribute of a name; raises ArgumentError if it is missing."""
    if name not in attributes:
        raise ArgumentError(f"the attribute {name} is missing")
    return attributes[name]


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


def symbol_name(attribute: Attribute) -> str:
    """The name in a symbol reference, or in a string; raises ArgumentError for anything else."""
    return attribute.name if isinstance(attribute, Symbol) else string(attribute)


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


def entries(attribute: Attribute) -> list[Attribute]:
    """Entries of a list; raises ArgumentError for anything else."""
    if isinstance(attribute, list):
        return attribute
    raise ArgumentError(f"expected a list, got {attribute!r}")


def parameters(attribute: Attribute, name: str) -> dict[str, Attribute]:
    """Named parameters of an attribute `#stablehlo.name<a = 1, ..>`; raises ArgumentError for anything else."""
    if isinstance(attribute, DialectAttribute) and isinstance(attribute.body, dict):
        return attribute.body
    raise ArgumentError(f"expected #stablehlo.{name}<..>, got {attribute!r}")


# Conversions in both directions


@record(slots=True)
class ValueCodec:
    """Conversion of an attribute to a Python value (`read`) and back (`write`)."""

    read: Callable[[Attribute], Any]
    write: Callable[[Any], Attribute]


INT64 = ValueCodec(integer, i64)
INT32 = ValueCodec(integer, i32)
FLOAT32 = ValueCodec(floating_point, lambda value: Number(float(value), F32))
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


API_VERSION = ValueCodec(_api_version, lambda value: i32(list(CustomCallApiVersion).index(value)))
