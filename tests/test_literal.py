"""Literals preserve every bit and are immutable."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.index import linear_index, multi_index, next_index


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([-(2**63), 5], "s64[2]"),
        ([-(2**31)], "s32[1]"),
        ([2**31 - 1], "s32[1]"),
        ([2**31], "s64[1]"),
        ([-(2**31) - 1], "s64[1]"),
    ],
)
def test_python_integers_take_the_narrowest_of_s32_and_s64_that_holds_them(values: list[int], text: str) -> None:
    literal = hl.Literal.from_value(values)
    assert str(literal.shape) == text and literal.value.tolist() == values


def test_a_literal_does_not_change_with_the_array_it_was_made_of() -> None:
    array = np.ones(2, np.float32)
    literal = hl.Literal.from_numpy(array)
    before = hash(literal)
    array[0] = 9
    assert literal.value.tolist() == [1, 1] and hash(literal) == before
    with pytest.raises(ValueError, match="read-only"):
        literal.value[0] = 3


@pytest.mark.parametrize(
    "text", ["s2[5]{0:E(4)}", "s4[5]{0:E(2)}", "pred[9]{0:E(4)}", "s8[3]{0:E(4)}", "f32[3]{0:E(4)}"]
)
def test_an_element_size_that_is_not_the_types_is_refused(text: str) -> None:
    """SL-23."""
    with pytest.raises(hl.HloomError, match="SL-23"):
        hl.parse_shape(text)


def test_equality_is_by_the_bits_of_the_element() -> None:
    """SL-23: the upper bits of a byte that holds an s4 do not count."""
    shape = hl.s4[1]
    assert hl.Literal.from_linear_memory(shape, b"\xf1") == hl.Literal.from_linear_memory(shape, b"\x01")
    assert hl.Literal.from_linear_memory(hl.pred[1], b"\x02") == hl.Literal.from_linear_memory(hl.pred[1], b"\x01")
    nans = [np.array([bits], np.uint32).view(np.float32) for bits in (0x7FC00000, 0x7FC00001)]
    assert hl.Literal.from_numpy(nans[0]) != hl.Literal.from_numpy(nans[1])


def test_memory_may_come_as_a_view_of_any_format() -> None:
    memory = memoryview(np.arange(6, dtype=np.float32))
    assert hl.Literal.from_linear_memory(hl.f32[2, 3], memory).value.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(hl.RuleError, match="has 24 bytes, got 20"):
        hl.Literal.from_linear_memory(hl.f32[2, 3], bytes(20))


@pytest.mark.parametrize("index", [(1.5, 0), "ab", None, 3, (None, 0)])
def test_indices_are_integers(index: object) -> None:
    """SL-17, SL-18."""
    with pytest.raises(hl.RuleError, match="SL-1"):
        linear_index(hl.f32[2, 3], index)  # type: ignore[arg-type]
    with pytest.raises(hl.RuleError, match="SL-1"):
        multi_index(hl.f32[2, 3], index if index != 3 else 1.5)  # type: ignore[arg-type]


def test_stepping_through_an_array_without_elements_ends_at_once() -> None:
    """SL-19."""
    assert not next_index(hl.f32[0, 2], [0, 0])
