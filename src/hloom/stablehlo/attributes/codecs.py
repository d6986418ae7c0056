"""`AttributeCodec`: the conversion of one or more attributes of an op, which need not correspond to fields one to one.

`stablehlo/operations.py` lists the codecs of each op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Protocol

from hloom.errors import ArgumentError
from hloom.shape import Shape
from hloom.stablehlo.attributes.values import (
    INT64_ARRAY,
    Attributes,
    FieldValues,
    ValueCodec,
    integer,
    integers,
    parameters,
    required,
)
from hloom.stablehlo.mlir.ir import Attribute, DialectAttribute
from hloom.stablehlo.mlir.types import i64
from hloom.system.records import record

REQUIRED: Any = object()


class AttributeCodec(Protocol):
    """Conversion of some attributes of an op to fields of the HLO operation (`read`) and back (`write`)."""

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        """Returns field name -> value; `operands` are the shapes of the op's operands.

        Raises ArgumentError if an attribute is missing or malformed.
        """
        ...

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        """Returns attribute name -> value for the fields of an operation; those with a default may be omitted.

        Raises ArgumentError for a value that StableHLO cannot express.
        """
        ...


@record(slots=True)
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

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        if self.name not in attributes and self.default is not REQUIRED:
            return {self.field or self.name: self.default}
        return {self.field or self.name: self.codec.read(required(attributes, self.name))}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        value = fields[self.field or self.name]
        is_omitted = not self.always_written and self.default is not REQUIRED and value == self.default
        return {} if is_omitted else {self.name: self.codec.write(value)}


@record(slots=True)
class Fields(AttributeCodec):
    """An attribute with named parameters, `#stablehlo.gather<offset_dims = [1], index_vector_dim = 1>`.

    `lists` maps names of parameters to fields of the HLO operation, `scalars` are parameters with the name of their
    field; parameters that the text omits are empty or 0.
    """

    name: str
    mnemonic: str
    lists: Mapping[str, str]
    scalars: Sequence[str] = ()
    dialect: str = "stablehlo"

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        body = parameters(required(attributes, self.name), self.mnemonic)
        unknown = [name for name in body if name not in self.lists and name not in self.scalars]
        if unknown:
            raise ArgumentError(f"#{self.dialect}.{self.mnemonic} has no field {', '.join(unknown)}")
        values: dict[str, Any] = {field: integers(body.get(name, [])) for name, field in self.lists.items()}
        return values | {name: integer(body.get(name, i64(0))) for name in self.scalars}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        body: dict[str, Attribute] = {
            name: list(map(i64, fields[field])) for name, field in self.lists.items() if fields[field]
        }
        body |= {name: i64(fields[name]) for name in self.scalars}
        return {self.name: DialectAttribute(f"{self.dialect}.{self.mnemonic}", body)}


@record(slots=True)
class Columns(AttributeCodec):
    """A field that holds records, such as slices, whose parts are separate attributes: an array for each of `names`."""

    field: str
    record: type[Any]
    names: Sequence[str]

    def read(self, attributes: Attributes, operands: Sequence[Shape]) -> FieldValues:
        columns = [integers(required(attributes, name)) for name in self.names]
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(f"{name} {len(column)}" for name, column in zip(self.names, columns, strict=True))
            raise ArgumentError(f"lists of different lengths: {lengths}")
        return {self.field: tuple(map(self.record, *columns))}

    def write(self, fields: FieldValues) -> dict[str, Attribute]:
        rows = [astuple(record) for record in fields[self.field]]
        return {name: INT64_ARRAY.write([row[i] for row in rows]) for i, name in enumerate(self.names)}
