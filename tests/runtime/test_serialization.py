"""Values and records as bytes: they round-trip, and decoding creates nothing else."""

from __future__ import annotations

import ast
import contextlib
import pickle
import random
import struct
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from hloom.errors import ArgumentError
from hloom.runtime.serialization import DataFormat
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE


@dataclass(eq=False, slots=True)
class Node:
    name: str
    parts: tuple[Any, ...]
    data: Any = None


@dataclass(frozen=True)
class Leaf:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise AssertionError("loading runs no code of the class")


class Color(Enum):
    RED = "red"


FORMAT = DataFormat(Node, Leaf, Color)
VALUES = [
    *(None, True, False, 0, -1, 2**70, 1.5, -0.0, float("inf"), "", 'a"\u00e9\ud800\x00', b"", b"\x00\xff"),
    *((), [], {}, (1, [2, (3,)], {"k": (), 4: [None]}), Color.RED, Leaf(3), TOKEN_VALUE),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_are_restored(value: Any) -> None:
    found = FORMAT.from_bytes(FORMAT.to_bytes(value))
    assert found == value and type(found) is type(value) and repr(found) == repr(value)


@pytest.mark.parametrize("element_type", [t for t in PrimitiveType if t.is_array], ids=str)
@pytest.mark.parametrize("dimensions", [(), (0, 3), (2, 3)], ids=str)
def test_arrays_are_restored_and_writable(element_type: PrimitiveType, dimensions: tuple[int, ...]) -> None:
    count = int(np.prod(dimensions))
    array = np.arange(1, 1 + count).astype(element_type.dtype).reshape(dimensions).T
    found = FORMAT.from_bytes(FORMAT.to_bytes((array, b"between", array)))[2]
    assert found.dtype == array.dtype and np.array_equal(found, array) and found.flags.writeable
    assert found.ctypes.data % max(1, found.itemsize) == 0


def test_a_record_that_occurs_twice_is_stored_once() -> None:
    shared = Node("shared", (Leaf(1),))
    found = FORMAT.from_bytes(FORMAT.to_bytes(Node("top", (shared, [shared]), {"n": np.ones(2)})))
    assert type(found) is Node and found.parts[0] is found.parts[1][0] and found.parts[0].name == "shared"


class Evil:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of the file has run",))


def test_values_of_all_kinds_in_one_column_keep_their_order() -> None:
    rng = random.Random(1)
    for _ in range(50):
        values = tuple(rng.choice(VALUES) for _ in range(rng.randrange(20)))
        assert repr(FORMAT.from_bytes(FORMAT.to_bytes(values))) == repr(values)


def test_classes_outside_of_the_format_are_rejected_on_both_sides() -> None:
    stored = FORMAT.to_bytes((Leaf(3), Color.RED))
    for form in (DataFormat(), DataFormat(Node), DataFormat(Leaf)):
        with pytest.raises(ArgumentError, match="no value of this format"):
            form.from_bytes(stored)
    for value in (Evil(), Leaf, len, np.array([Evil()]), {1}, 1j, np.zeros(2, [("a", "f4")])):
        with pytest.raises(TypeError, match="not in the format"):
            FORMAT.to_bytes(value)


def text(column: str, rest: bytes = b"") -> bytes:
    return struct.pack("<Q", len(column)) + column.encode() + rest


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x00" * 7, b"\xff" * 64, pickle.dumps(Evil()), text('["plain",[1]]', b"more"), text("["), text("{}"),
        text("1"), text("[]"), text("null"), text('["plain"]'), text('["plain",[]]'), text('["plain",[1,2]]'),
        text('["plain",[[1]]]'), text('["plain",[{}]]'), text('["Evil",[0],[]]'), text('["Leaf",[0],[]]'),
        text('["Leaf",[1],[["plain",[1]]]]'), text('["Leaf",[0],[["plain",[1]],["plain",[1]]]]'),
        text('["Node",[0],[["plain",["n"]],["plain",[]],["plain",[1]]]]'), text('["Color",["blue"]]'),
        text('["tuple",[2],["plain",[1]]]'), text('["tuple",[-1,2],["plain",[1]]]'), text('["tuple",[1],["plain",[1]]'),
        text('["mixed",[1],["plain",[1]]]'), text('["mixed",[0,0],["plain",[1]]]'), text('["bytes",[3]]', b"12"),
        text('["bytes",[-1]]', b"12"), text('["array",["f32"],[[3]]]', b"1234"), text('["array",["O"],[[1]]]', b"12345678"),
        text('["array",["tuple"],[[]]]', b"1234"), text('["array",["f32"],[[-1]]]', b"1234"),
        text('["dict",[1],["plain",[1]],["plain",[]]]'), text('["dict",[1],["list",[0],["plain",[]]],["plain",[1]]]'),
        text("[" * 100_000), text('["tuple",[1],' * 5000 + '["plain",[1]]' + "]" * 5000), text("1" * 5000),
    ],
    ids=lambda content: repr(content[8:40]),
)  # fmt: skip
def test_other_bytes_are_an_error(content: bytes) -> None:
    with pytest.raises(ArgumentError, match="no value of this format"):
        FORMAT.from_bytes(content)


def test_a_value_that_is_nested_too_deeply_is_an_error() -> None:
    value: Any = ()
    for _ in range(100_000):
        value = (value,)
    with pytest.raises(ArgumentError, match="nested too deeply"):
        FORMAT.to_bytes(value)


def test_damage_gives_values_or_errors() -> None:
    rng = random.Random(0)
    whole = FORMAT.to_bytes((Node("n", (Leaf(1), Color.RED)), {1: np.ones(3, np.float32)}, b"123", [TOKEN_VALUE]))
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.choice([rng.randrange(256), *b'[]{}",0123456789'])
        with contextlib.suppress(ArgumentError):
            FORMAT.from_bytes(bytes(damaged))


def test_no_decoder_that_executes_code_is_used() -> None:
    """Neither Python's own formats, nor the methods of mpi4py that send objects by them."""
    formats = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    methods = {"isend", "irecv", "recv", "sendrecv", "bcast", "allgather", "allreduce", "alltoall"}
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        if not any(word in text for word in formats | methods):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                assert not formats & {alias.name.partition(".")[0] for alias in node.names}, path
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] not in formats, path
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in methods, f"{path}:{node.lineno}"
