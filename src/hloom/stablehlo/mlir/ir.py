"""MLIR as data: operations with operands, attributes, regions and types. The parser makes it, the printer writes it.

Attributes are Python values where Python has them: `bool`, `str`, `list`, `dict[str, Attribute]`, None for a unit
attribute; the classes here stand for the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class ScalarType:
    """An element type, by the name that MLIR gives it: `f32`, `i1`, `ui8`, `index`, `complex<f32>`, `f8E4M3FN`."""

    name: str


@dataclass(frozen=True, slots=True)
class QuantizedType:
    """`!quant.uniform<i8:f32, 0.1:3>`; per axis where `axis` is set, with one scale and zero point for each index."""

    storage: ScalarType
    expressed: ScalarType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    storage_range: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class TensorType:
    """`tensor<2x?xf32>`: None is a size that is not known; `bounds` are those of `#stablehlo.bounds<...>`."""

    dimensions: tuple[int | None, ...]
    element_type: ScalarType | QuantizedType
    bounds: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class TupleType:
    elements: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class FunctionType:
    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class DialectType:
    """A type of a dialect that stands for itself: `!stablehlo.token`; the name without the exclamation mark."""

    name: str


Type = ScalarType | TensorType | TupleType | FunctionType | DialectType


@dataclass(frozen=True, slots=True)
class Number:
    """`2 : i64` or `1.5 : f32`."""

    value: int | float
    type: ScalarType


@dataclass(frozen=True, slots=True)
class Symbol:
    """`@name`."""

    name: str


@dataclass(frozen=True, slots=True)
class DenseArray:
    """`array<i64: 1, 2>`."""

    element_type: ScalarType
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DenseElements:
    """`dense<[[1, 2]]> : tensor<1x2xi32>`; splats and hexadecimal strings are spelt out in `values`."""

    type: TensorType
    values: np.ndarray[Any, np.dtype[Any]]


ELIDED_RESOURCE = "__elided__"


@dataclass(frozen=True, slots=True)
class ElidedElements:
    """`dense_resource<__elided__> : tensor<2xf32>`: elements that were left out of the text."""

    type: TensorType


@dataclass(frozen=True, slots=True)
class DialectAttribute:
    """`#stablehlo.gather<offset_dims = [1], ...>` or `#stablehlo<comparison_direction LT>`.

    `name` is `stablehlo.gather` or `stablehlo.comparison_direction`. `body` is a dictionary of the fields where the
    text has fields, and otherwise the text between the angle brackets, without the name: `LT`,
    `[b, 0, f]x[0, i, o]->[b, 0, f]`.
    """

    name: str
    body: dict[str, Attribute] | str


Attribute = (
    bool
    | str
    | None
    | list[Any]
    | dict[str, Any]
    | Number
    | Symbol
    | DenseArray
    | DenseElements
    | ElidedElements
    | DialectAttribute
    | ScalarType
    | TensorType
    | TupleType
    | FunctionType
    | DialectType
)


@dataclass(eq=False, slots=True)
class Value:
    """The result of an operation or the argument of a block."""

    type: Type
    name: str = ""
    """As the text has it, without the percent sign; `0#1` is the second result of `%0:2`."""
    location: str = ""
    """The MLIR location of a block argument, where the text gives one."""


@dataclass(eq=False, slots=True)
class Operation:
    """`%0 = "stablehlo.add"(%a, %b) : (T, T) -> T`: inherent and discardable attributes are one dictionary."""

    name: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    location: str = ""
    """The MLIR location where the text gives one, `"name"("file.py":3:4)`: name, file and place alone."""
    line: int = 0
    column: int = 0


@dataclass(eq=False, slots=True)
class Block:
    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Region:
    blocks: list[Block] = field(default_factory=list)

    @property
    def block(self) -> Block:
        """The one block of a region, as all regions of StableHLO have it."""
        (block,) = self.blocks
        return block
