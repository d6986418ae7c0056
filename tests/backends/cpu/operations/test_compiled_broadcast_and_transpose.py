"""Broadcast, transpose, reshape, bitcast-convert and iota, compiled; `nests/test_tiles.py` has large transpositions."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import TYPES, Array, check, values
from hlo_text import compiled
from hloom.types import BY_NAME


def braces(values: list[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def check_broadcast(sizes: list[int], result: list[int], dimensions: list[int], type: str = "f32") -> None:
    def formula(x: Array) -> Array:
        out = np.empty(result, x.dtype)
        for index in np.ndindex(out.shape):
            out[index] = x[tuple(index[d] for d in dimensions)]
        return out

    check(f"broadcast(x0), dimensions={braces(dimensions)}", formula, values(sizes, type, 5))


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("sizes", "result", "dimensions"),
    [
        ([], [2, 3], []),
        ([], [], []),
        ([20], [3, 20], [1]),
        ([3], [3, 20], [0]),
        ([2, 3], [4, 2, 5, 3], [1, 3]),
        ([2, 3], [3, 4, 2], [2, 0]),  # a transposing broadcast
        ([1], [1, 7], [0]),
        ([3], [0, 3], [1]),
        ([0], [4, 0], [1]),
    ],
)
def test_broadcasts(sizes: list[int], result: list[int], dimensions: list[int]) -> None:
    """BROADCAST-1, BROADCAST-2, BROADCASTINDIM-2 and BROADCASTINDIM-4."""
    check_broadcast(sizes, result, dimensions)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types_of_broadcasts(type: str) -> None:
    """BROADCASTINDIM-2."""
    check_broadcast([3], [2, 3, 9], [1], type)


def check_transpose(sizes: list[int], permutation: list[int], type: str = "f32") -> None:
    def formula(x: Array) -> Array:
        out = np.empty([x.shape[p] for p in permutation], x.dtype)
        for index in np.ndindex(out.shape):
            target = [0] * x.ndim
            for k, p in enumerate(permutation):
                target[p] = index[k]
            out[index] = x[tuple(target)]
        return out

    check(f"transpose(x0), dimensions={braces(permutation)}", formula, values(sizes, type))


@pytest.mark.parametrize(
    ("sizes", "permutation"),
    [
        ([3, 5], [1, 0]),
        ([8, 8], [1, 0]),
        ([17, 33], [1, 0]),
        ([2, 3, 4], [2, 0, 1]),
        ([2, 3, 4, 5], [0, 2, 1, 3]),
        ([1, 5, 1], [2, 1, 0]),
        ([3, 0], [1, 0]),
        ([4, 5], [0, 1]),
        ([], []),
    ],
)
def test_transpositions(sizes: list[int], permutation: list[int]) -> None:
    """TRANSPOSE-1."""
    check_transpose(sizes, permutation)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", TYPES)
def test_element_types_of_transpositions(type: str) -> None:
    """TRANSPOSE-1."""
    check_transpose([9, 20], [1, 0], type)


@pytest.mark.parametrize(
    ("sizes", "result"), [([4, 6], [8, 3]), ([24], [2, 3, 4]), ([1, 1], []), ([], [1, 1]), ([0, 3], [5, 0]), ([6], [6])]
)
def test_reshapes(sizes: list[int], result: list[int]) -> None:
    """RESHAPE-1 and RESHAPE-4: element k in row-major order stays element k."""

    def formula(x: Array) -> Array:
        out = np.empty(result, x.dtype)
        for index, other in zip(np.ndindex(out.shape), np.ndindex(x.shape)):
            out[index] = x[other]
        return out

    check("reshape(x0)", formula, values(sizes))


def test_bits_are_reinterpreted_least_significant_part_first() -> None:
    """BITCASTCONVERT-1 to BITCASTCONVERT-4."""
    x = np.array([0x12345678, 0x9ABCDEF0], np.uint32)
    split = "ENTRY e { x = u32[2] parameter(0) ROOT r = u16[2,2] bitcast-convert(x) }"
    assert compiled(split, x)[0].tolist() == [[0x5678, 0x1234], [0xDEF0, 0x9ABC]]
    joined = "ENTRY e { x = u8[1,4] parameter(0) ROOT r = u32[1] bitcast-convert(x) }"
    assert compiled(joined, np.array([[0x78, 0x56, 0x34, 0x12]], np.uint8))[0].tolist() == [0x12345678]
    nibbles = "ENTRY e { x = u32[2] parameter(0) ROOT r = u4[2,8] bitcast-convert(x) }"
    assert compiled(nibbles, x)[0].astype(int).tolist() == [[8, 7, 6, 5, 4, 3, 2, 1], [0, 15, 14, 13, 12, 11, 10, 9]]


def test_bits_of_a_signalling_nan_pass_unchanged() -> None:
    """BITCASTCONVERT-7."""
    bits = np.array([0x7F800001, 0xFFC12345], np.uint32)
    away = "ENTRY e { x = f32[2] parameter(0) ROOT r = u32[2] bitcast-convert(x) }"
    assert compiled(away, bits.view(np.float32))[0].tolist() == bits.tolist()
    back = "ENTRY e { x = u32[2] parameter(0) ROOT r = f32[2] bitcast-convert(x) }"
    assert compiled(back, bits)[0].view(np.uint32).tolist() == bits.tolist()


@pytest.mark.parametrize(
    ("type", "sizes", "dimension"),
    [("s32", [4, 8], 0), ("s32", [4, 8], 1), ("u8", [300], 0), ("c64", [3, 1, 2], 2), ("f64", [3, 0], 0)],
)
def test_iotas(type: str, sizes: list[int], dimension: int) -> None:
    """IOTA-1 to IOTA-3: integers too narrow for the size wrap."""
    text = f"{type}[{','.join(map(str, sizes))}]"
    (found,) = compiled(f"ENTRY e {{ ROOT r = {text} iota(), iota_dimension={dimension} }}")
    expected = np.empty(sizes, np.int64)
    for index in np.ndindex(*sizes):
        expected[index] = index[dimension]
    np.testing.assert_array_equal(found, expected.astype(BY_NAME[type].dtype))


def test_an_iota_of_bfloat16() -> None:
    """IOTA-2: 257 lies between 256 and 258, whose last bit is odd; 259 between 258 and 260."""
    (found,) = compiled("ENTRY e { ROOT r = bf16[260] iota(), iota_dimension=0 }")
    assert found[255:].astype(int).tolist() == [255, 256, 256, 258, 260]
