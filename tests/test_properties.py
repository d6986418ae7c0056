"""Property-based tests: properties that hold for all inputs, checked on random ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.index import indices, linear_index, linear_indices, multi_index
from hloom.numerics import bits_of, convert
from hloom.shape import tiled_buffer_size
from hloom.text import parse_shape
from hloom.types import PrimitiveType

TYPES = [t for t in PrimitiveType if t.is_array]


@st.composite
def layouts(draw: Any, rank: int, sizes: list[int]) -> hl.Layout:
    order = draw(st.permutations(range(rank)))
    padded = tuple(n + draw(st.integers(0, 2)) for n in sizes) if draw(st.booleans()) else ()
    tiles = []
    dims = rank
    for _ in range(draw(st.integers(0, 2)) if rank else 0):
        length = draw(st.integers(1, min(dims, 3)))
        tile = [draw(st.sampled_from([1, 2, 3, hl.Tile.COMBINE])) for _ in range(length - 1)] + [
            draw(st.integers(1, 3))
        ]
        tiles.append(hl.Tile(tuple(tile)))
        stars = tile.count(hl.Tile.COMBINE)
        dims += length - stars - stars
    return hl.Layout(tuple(order), padded, hl.PaddingValue.ZERO_PAD if padded else None, tuple(tiles))


@st.composite
def shapes(draw: Any) -> hl.Shape:
    sizes = draw(st.lists(st.integers(0, 4), max_size=4))
    return hl.Shape.array(draw(st.sampled_from(TYPES)), sizes, layout=draw(layouts(len(sizes), sizes)))


@given(shapes())
def test_the_linear_index_is_injective_stays_inside_and_has_an_inverse(shape: hl.Shape) -> None:
    """SL-17, SL-18, SL-27."""
    seen = set()
    for index in indices(shape):
        linear = linear_index(shape, index)
        assert 0 <= linear < tiled_buffer_size(shape)
        assert multi_index(shape, linear) == index
        assert linear_indices(shape)[index] == linear
        seen.add(linear)
    assert len(seen) == shape.element_count
    rejected = 0
    for linear in range(tiled_buffer_size(shape)):
        try:
            assert linear_index(shape, multi_index(shape, linear)) == linear
        except hl.RuleError:
            rejected += 1
    assert rejected == tiled_buffer_size(shape) - shape.element_count


@given(shapes(), st.integers(0, 2**32))
def test_literals_survive_linear_memory_bit_for_bit(shape: hl.Shape, seed: int) -> None:
    """SL-15, SL-16, SL-23, SL-28."""
    literal = hl.Literal(shape, random_bits(shape, seed))
    memory = literal.to_linear_memory()
    assert len(memory) == shape.byte_size
    assert hl.Literal.from_linear_memory(shape, memory) == literal


@given(
    st.lists(st.integers(0, 5), max_size=3), st.sampled_from(["s4", "u4", "s2", "u2", "f4e2m1fn"]), st.integers(0, 999)
)
def test_packed_types_take_their_bits(sizes: list[int], name: str, seed: int) -> None:
    """SL-23: E(bits)."""
    bits = int(name[1])
    order = ",".join(str(d) for d in range(len(sizes)))
    shape = parse_shape(f"{name}[{','.join(map(str, sizes))}]{{{order}:E({bits})}}")
    literal = hl.Literal(shape, random_bits(shape, seed))
    memory = literal.to_linear_memory()
    assert len(memory) == (shape.element_count * bits + 7) // 8
    assert hl.Literal.from_linear_memory(shape, memory) == literal


def random_bits(shape: hl.Shape, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    element_type = shape.element_type
    if element_type.is_pred:
        return rng.random(shape.dimensions) < 0.5
    if element_type.bits < 8:
        codes = rng.integers(0, 1 << element_type.bits, shape.dimensions)
        return (
            codes.astype(np.int8).astype(element_type.dtype)
            if element_type.is_integer
            else codes.astype(np.uint8).view(element_type.dtype)
        )
    raw = rng.integers(0, 256, (*shape.dimensions, element_type.dtype.itemsize), np.uint8)
    return raw.view(element_type.dtype).reshape(shape.dimensions)


@given(shapes())
def test_printing_and_parsing_shapes_are_inverse(shape: hl.Shape) -> None:
    """SL-24; padding has no text form."""
    layout = shape.layout
    assert layout is not None
    plain = shape.with_layout(hl.Layout(layout.minor_to_major, tiles=layout.tiles))
    assert parse_shape(plain.to_text()) == plain


@given(st.sampled_from(TYPES), st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2**32))
def test_constants_survive_text_bit_for_bit(element_type: PrimitiveType, sizes: list[int], seed: int) -> None:
    shape = hl.Shape.array(element_type, sizes)
    value = random_bits(shape, seed)
    builder = hl.XlaBuilder()
    builder.constant(value)
    again = hl.parse(builder.build().to_text()).entry.root.op.literal  # type: ignore[attr-defined]
    if element_type.text.endswith(("fn", "fnuz", "fnu")):
        # Types with a single NaN have no payload to keep.
        assert np.array_equal(again.value.astype(np.float32), value.astype(np.float32), equal_nan=True)
    else:
        assert again.value.tobytes() == value.tobytes()


@given(st.lists(st.floats(width=64, allow_nan=False), min_size=1, max_size=20))
def test_float_to_integer_saturates(values: list[float]) -> None:
    """CONVERT-3."""
    for dtype in (np.int8, np.uint16, np.int32, np.uint64, np.int64):
        limits = np.iinfo(dtype)
        want = [
            limits.max if v == np.inf else limits.min if v == -np.inf else min(max(int(v), limits.min), limits.max)
            for v in values
        ]
        assert convert(np.array(values), np.dtype(dtype)).tolist() == want


@given(st.lists(st.floats(width=64, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_f64_to_bf16_rounds_once(values: list[float]) -> None:
    """CONVERT-2: the nearest bf16, ties to even, found by comparing exact fractions."""
    from fractions import Fraction

    array = np.array(values)
    rounded = convert(array, hl.bf16.dtype)
    for value, got in zip(values, rounded, strict=True):
        if not np.isfinite(got.astype(np.float64)):
            continue
        neighbours = [
            (bits_of(np.asarray([got])).astype(np.int32) + step).astype(np.uint16).view(hl.bf16.dtype)[0]
            for step in (-1, 1)
        ]
        distance = abs(Fraction(float(got)) - Fraction(value))
        for neighbour in neighbours:
            if np.isfinite(neighbour.astype(np.float64)):
                assert distance <= abs(Fraction(float(neighbour)) - Fraction(value))


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(0, 3))
def test_sorting_is_stable_and_correct_for_any_strict_weak_order(values: list[int], modulus: int) -> None:
    """SORT-1, SORT-5."""
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.s32[len(values)])
    order = b.iota(hl.s32[len(values)], 0) if values else b.parameter(1, hl.s32[0])
    m = modulus + 1
    root = b.sort([x, order], lambda p, q, i, j: p.builder.lt(p % m, q % m), is_stable=True)
    arguments = [np.array(values, np.int32)] + ([] if values else [np.array([], np.int32)])
    got, indices = hl.compile(b.build(root), backend="interpreter")(*arguments)
    want = sorted(range(len(values)), key=lambda i: values[i] % m)
    assert indices.tolist() == want and got.tolist() == [values[i] for i in want]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=30), st.integers(0, 2**16))
def test_an_inconsistent_comparator_still_gives_a_permutation(values: list[float], seed: int) -> None:
    """SORT-6."""
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.f32[len(values)])
    root = b.sort([x], lambda p, q: p.builder.gt(p.builder.sin(p * float(seed + 1)), p.builder.sin(q * 7.0)))
    got = hl.compile(b.build(root), backend="interpreter")(np.array(values, np.float32))
    assert sorted(got.tolist()) == sorted(np.array(values, np.float32).tolist())
