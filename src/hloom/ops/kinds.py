"""Kinds of attributes: the Python values that an attribute of an operation accepts.

`hloom.text.attributes` and `hloom.proto.attributes` define, for each kind, the syntax in HLO text and the fields of
HloInstructionProto.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from hloom.errors import RuleError
from hloom.literal import Literal
from hloom.ops.attributes import (
    AnyReplicaGroups,
    ConvolutionDimensionNumbers,
    Domain,
    IotaReplicaGroups,
    MeshReplicaGroups,
    OutputOperandAlias,
    PaddingDimension,
    Precision,
    ReplicaGroups,
    ResultAccuracy,
    SliceDimension,
    WindowDimension,
)
from hloom.ops.context import Computation
from hloom.shape import Ints, Shape


class AttributeKind:
    """A kind of attribute; `convert` converts a valid Python value to the canonical immutable one and raises
    otherwise.
    """

    __slots__ = ("convert", "description", "name")

    def __init__(self, name: str, description: str, convert: Callable[[Any], Any]) -> None:
        self.name = name
        self.description = description
        self.convert = convert

    def __repr__(self) -> str:
        return self.name

    def normalize(self, opcode: str, field: str, value: Any) -> Any:
        """Returns the canonical value; None stays None, "not given". Raises RuleError[GEN-3] for values of other
        kinds.
        """
        if value is None:
            return None
        try:
            return self.convert(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise RuleError(opcode, "GEN-3", f"{field} takes {self.description}, got {value!r}") from None

    def computations(self, value: Any) -> Iterable[Computation]:
        """Returns the computations in a value of this kind."""
        return ()


class ComputationKind(AttributeKind):
    """The kind of attributes that hold a computation, or a tuple of them."""

    __slots__ = ()

    def computations(self, value: Any) -> Iterable[Computation]:
        return () if value is None else value if isinstance(value, tuple) else (value,)


class EnumKind(AttributeKind):
    """A member of an enumeration; its value is the word in HLO text, its name the one in the proto."""

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
    """Returns a converter to a tuple of `cls` values, each given as such or as a tuple of its arguments."""

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
    """Converts precisions; all DEFAULT is the same as none."""
    precisions = tuple(Precision(v) for v in value)
    return () if all(p is Precision.DEFAULT for p in precisions) else precisions


def _computation(value: Any) -> Any:
    # Operations hold the Computation of an XlaComputation.
    return getattr(value, "entry_computation", value)


def _literal(value: Any) -> Literal:
    return value if isinstance(value, Literal) else Literal.from_value(value)


BOOL = AttributeKind("BOOL", "true or false", _bool)
INT = AttributeKind("INT", "an integer", _int)
FLOAT = AttributeKind("FLOAT", "a number", _float)
"""A number, rounded to f32 as in XLA."""
STRING = AttributeKind("STRING", "a string", _str)
WORD = AttributeKind("WORD", "a bare word", _str)
INTS = AttributeKind("INTS", "a list of integers", _ints)
BOOLS = AttributeKind("BOOLS", "a list of booleans", lambda value: tuple(_bool(v) for v in value))
DIMENSION = AttributeKind("DIMENSION", "a dimension number", _int)
"""A dimension that HLO text writes in braces, `dimensions={0}`, and the proto as a list of one."""
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
