"""MLIR as data: operations with operands, attributes, regions and types.

Attributes are Python values where possible: `bool`, `str`, `list`, `dict[str, Attribute]`, and None for a unit
attribute; other attributes are instances of the classes in this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.system.records import record


@record(slots=True)
class ScalarType:
    """An element type with MLIR's name: `f32`, `i1`, `ui8`, `index`, `complex<f32>`, `f8E4M3FN`."""

    name: str


@record(slots=True)
class QuantizedType:
    """`!quant.uniform<i8:f32, 0.1:3>`; with `axis`, each index along it has its own scale and zero point."""

    storage: ScalarType
    expressed: ScalarType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    storage_range: tuple[int, int] | None = None


@record(slots=True)
class TensorType:
    """`tensor<2x?xf32>`: None is an unknown size; `bounds` are those of `#stablehlo.bounds<...>`."""

    dimensions: tuple[int | None, ...]
    element_type: ScalarType | QuantizedType
    bounds: tuple[int | None, ...] | None = None


@record(slots=True)
class TupleType:
    """`tuple<tensor<f32>, tensor<i32>>`."""

    elements: tuple[Type, ...]


@record(slots=True)
class FunctionType:
    """`(inputs) -> (results)`."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]


@record(slots=True)
class DialectType:
    """An opaque type of a dialect, `!stablehlo.token`; the name has no exclamation mark."""

    name: str


Type = ScalarType | QuantizedType | TensorType | TupleType | FunctionType | DialectType


@record(slots=True)
class Number:
    """Numeric attribute, `2 : i64` or `1.5 : f32`."""

    value: int | float
    type: ScalarType


@record(slots=True)
class Symbol:
    """Symbol reference, `@name`."""

    name: str


@record(slots=True)
class DenseArray:
    """Dense array attribute, `array<i64: 1, 2>`."""

    element_type: ScalarType
    values: tuple[Any, ...]


@record(slots=True, eq=False)
class DenseElements:
    """`dense<[[1, 2]]> : tensor<1x2xi32>`; `values` has all elements, also for splats and hexadecimal strings."""

    type: TensorType
    values: np.ndarray[Any, np.dtype[Any]]


ELIDED_RESOURCE = "__elided__"
"""Name of the resource for elements that a printer omitted."""


@record(slots=True)
class ElidedElements:
    """`dense_resource<__elided__> : tensor<2xf32>`: elements that the text omits."""

    type: TensorType


@record(slots=True)
class DialectAttribute:
    """`#stablehlo.gather<offset_dims = [1], ...>` or `#stablehlo<comparison_direction LT>`.

    `name` is `stablehlo.gather` or `stablehlo.comparison_direction`. `body` is a dictionary if the attribute has named
    parameters, otherwise the text between the angle brackets, without the name: `LT`, `[b, 0, f]x[0, i, o]->[b, 0, f]`.
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
    | Type
)


@dataclass(eq=False, slots=True)
class Value:
    """A result of an operation or an argument of a block."""

    type: Type
    name: str = ""
    """Name in the text, without the percent sign; `0#1` is the second result of `%0:2`."""
    location: str = ""
    """MLIR location of a block argument; "" if the text gives none."""


@dataclass(eq=False, slots=True)
class Operation:
    """`%0 = "stablehlo.add"(%a, %b) : (T, T) -> T`; inherent and discardable attributes share one dictionary."""

    name: str
    operands: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    regions: list[Region] = field(default_factory=list)
    location: str = ""
    """MLIR location, reduced to name and file position, `"name"("file.py":3:4)`; "" if the text gives none."""
    line: int = 0
    column: int = 0

    @property
    def result_types(self) -> list[Type]:
        """The types of the results."""
        return [result.type for result in self.results]


@dataclass(eq=False, slots=True)
class Block:
    """A list of operations with block arguments."""

    arguments: list[Value] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Region:
    """A list of blocks."""

    blocks: list[Block] = field(default_factory=list)

    @property
    def block(self) -> Block:
        """The only block; raises ValueError unless there is exactly one, as in all regions of StableHLO."""
        (block,) = self.blocks
        return block
