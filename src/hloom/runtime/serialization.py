"""Encodes values and records as bytes, for files and for messages between processes; decoding never executes code.

The bytes are the size of a JSON text, the text, and the contents of bytes and arrays, in the order of the text. The
text has values in columns, `[tag, ...]`: all values of one type at the same position are one list, which takes a few
calls to read, however long it is. The tag of a record is the name of its class, its columns are its fields. The reader
creates instances only of the classes that its format names, by setting their fields.
"""

from __future__ import annotations

import json
import math
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from enum import Enum
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.types import BY_DTYPE, BY_NAME
from hloom.values import TOKEN_VALUE, Array, Token

_SIZE = struct.Struct("<Q")
_PLAIN = {type(None), bool, int, float, str}
_TAGS: dict[type, str] = {
    **dict.fromkeys(_PLAIN, "plain"),
    tuple: "tuple", list: "list", dict: "dict", bytes: "bytes", np.ndarray: "array", Token: "token",
}  # fmt: skip
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, struct.error)

Column = list[Any]
NOT_STORED = {"stored": False}
"""Metadata of a field of a record that is not stored; readers leave it unset."""


class DataFormat:
    """A format for values: numbers, strings, bytes, arrays, tokens, tuples, lists, dictionaries, and some records.

    Records are instances of the given data classes and enumerations. A record that several others refer to is stored
    once.
    """

    def __init__(self, *classes: Any) -> None:
        self.tags = _TAGS | {cls: cls.__name__ for cls in classes}
        enums = [cls for cls in classes if issubclass(cls, Enum)]
        self.enums = {cls.__name__: {member.value: member for member in cls} for cls in enums}
        records = [cls for cls in classes if not issubclass(cls, Enum)]
        self.records = {cls.__name__: (cls, _stored_fields(cls)) for cls in records}

    def to_bytes(self, value: Any) -> bytes:
        """Encodes a value; ArgumentError if it is nested too deeply, TypeError for a class not in the format."""
        writer = _Writer(self)
        try:
            text = json.dumps(writer.columns_of([value]), separators=(",", ":")).encode()
        except RecursionError:
            raise ArgumentError("the value is nested too deeply to be stored") from None
        return b"".join([_SIZE.pack(len(text)), text, *writer.blobs])

    def from_bytes(self, content: bytes) -> Any:
        """Decodes a value; ArgumentError if the bytes are not of this format."""
        try:
            start = _SIZE.size + _SIZE.unpack_from(content)[0]
            reader = _Reader(self, memoryview(content)[start:])
            (value,) = reader.read(json.loads(content[_SIZE.size : start]))
            if reader.remaining.nbytes:
                raise ValueError("bytes are left over")
            return value
        except _MALFORMED as error:
            raise ArgumentError(f"these bytes hold no value of this format ({error})") from None


def _stored_fields(cls: type) -> list[str]:
    return [field.name for field in fields(cls) if field.metadata.get("stored", True)]


class _Writer:
    """Encodes values as columns of the JSON text; `blobs` are the bytes that follow it."""

    def __init__(self, data_format: DataFormat) -> None:
        self.data_format = data_format
        self.blobs: list[bytes] = []
        self.record_indices: dict[int, int] = {}
        """Indices of the records written so far, by object id."""

    def columns_of(self, values: Column) -> Column:
        """Encodes the values at one position: one column, or one for each type and the type of each value."""
        tags = list(map(self._tag, values))
        kinds = list(dict.fromkeys(tags)) or ["plain"]
        if len(kinds) == 1:
            return self._of_kind(kinds[0], values)
        groups = [self._of_kind(k, [v for v, tag in zip(values, tags, strict=True) if tag == k]) for k in kinds]
        return ["mixed", list(map(kinds.index, tags)), *groups]

    def _tag(self, value: Any) -> str:
        tag = self.data_format.tags.get(type(value))
        if tag is None or (tag == "array" and value.dtype not in BY_DTYPE):
            raise TypeError(f"a value of class {type(value).__qualname__} is not in the format")
        return tag

    def _of_kind(self, tag: str, values: Column) -> Column:
        if tag == "plain":
            return [tag, values]
        if tag in ("tuple", "list"):
            return [tag, list(map(len, values)), self.columns_of(list(chain.from_iterable(values)))]
        if tag == "dict":
            keys, items = chain.from_iterable(values), chain.from_iterable(value.values() for value in values)
            return [tag, list(map(len, values)), self.columns_of(list(keys)), self.columns_of(list(items))]
        if tag == "bytes":
            self.blobs += values
            return [tag, list(map(len, values))]
        if tag == "array":
            self.blobs += [value.tobytes() for value in values]
            return [tag, [str(BY_DTYPE[value.dtype]) for value in values], [value.shape for value in values]]
        if tag == "token":
            return [tag, [None] * len(values)]
        return [tag, [value.value for value in values]] if tag in self.data_format.enums else self._records(tag, values)

    def _records(self, tag: str, values: Column) -> Column:
        """Encodes the fields of records that have not been written yet, and the indices of all."""
        new = list({id(value): value for value in values if id(value) not in self.record_indices}.values())
        columns = [
            self.columns_of([getattr(value, name) for value in new]) for name in self.data_format.records[tag][1]
        ]
        for value in new:
            self.record_indices[id(value)] = len(self.record_indices)
        return [tag, [self.record_indices[id(value)] for value in values], columns]


class _Reader:
    """Decodes columns; `remaining` are the bytes behind the text that are still unread."""

    def __init__(self, data_format: DataFormat, remaining: memoryview) -> None:
        self.data_format = data_format
        self.remaining = remaining
        self.records: Column = []
        self.readers: dict[str, Callable[..., Column]] = {
            "mixed": self._mixed,
            "plain": _plain,
            "tuple": lambda sizes, items: list(map(tuple, _split_items(sizes, self.read(items)))),
            "list": lambda sizes, items: list(map(list, _split_items(sizes, self.read(items)))),
            "dict": self._dictionaries,
            "bytes": lambda sizes: [bytes(self._next(size)) for size in sizes],
            "array": lambda types, shapes: list(map(self._array, types, shapes)),
            "token": lambda content: [TOKEN_VALUE] * len(content),
        }

    def read(self, column: Column) -> Column:
        """Decodes the values of a column."""
        tag, *parts = column
        if tag in self.data_format.enums:
            return list(map(self.data_format.enums[tag].__getitem__, *parts))
        return self._records(tag, *parts) if tag in self.data_format.records else self.readers[tag](*parts)

    def _mixed(self, kinds: list[int], *groups: Column) -> Column:
        values = [self.read(group)[::-1] for group in groups]
        return [values[kind].pop() for kind in kinds]

    def _dictionaries(self, sizes: list[int], keys: Column, items: Column) -> Column:
        pairs = zip(self.read(keys), self.read(items), strict=True)
        return list(map(dict, _split_items(sizes, list(pairs))))

    def _array(self, type_name: str, shape: list[int]) -> Array:
        """Reads an array into memory of its own, which is aligned and writable."""
        dtype = BY_NAME[type_name].dtype
        return np.frombuffer(self._next(math.prod(shape) * dtype.itemsize), dtype).reshape(shape).copy()

    def _next(self, size: int) -> memoryview:
        if not 0 <= size <= self.remaining.nbytes:
            raise ValueError("the bytes end early")
        content, self.remaining = self.remaining[:size], self.remaining[size:]
        return content

    def _records(self, tag: str, record_indices: list[int], columns: list[Column]) -> Column:
        cls, names = self.data_format.records[tag]
        values = list(map(self.read, columns))
        instances = [cls.__new__(cls) for _ in values[0]]
        for name, column in zip(names, values, strict=True):
            if len(column) != len(instances):
                raise ValueError("the columns of a record are unequal")
            deque(map(object.__setattr__, instances, repeat(name), column), 0)
        self.records += instances
        return [self.records[index] for index in record_indices]


def _split_items(sizes: list[int], items: Column) -> Iterator[Iterator[Any]]:
    """Yields consecutive groups of the items, of the given sizes."""
    if sum(sizes) != len(items):
        raise ValueError("the sizes of containers are wrong")
    remaining = iter(items)
    for size in sizes:
        yield islice(remaining, size)


def _plain(values: Column) -> Column:
    if not {*map(type, values)} <= _PLAIN:
        raise ValueError("a column is not plain")
    return values
