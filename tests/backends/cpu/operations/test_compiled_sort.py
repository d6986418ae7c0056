"""Sort between element-wise operations, and several operands of narrow and complex types; `kernels/sort` has other cases."""

from __future__ import annotations

import numpy as np
import pytest

from backends.cpu.operations.one_operation import Array, check, same, values
from hlo_text import compiled, sort_text


def less(type: str, direction: str = "LT", more: str = "") -> str:
    return (
        f"less {{ a = {type}[] parameter(0) b = {type}[] parameter(1) "
        f"ROOT r = pred[] compare(a, b), direction={direction}{more} }}"
    )


def sorted_along(x: Array, dimension: int, descending: bool) -> Array:
    """SORT-1, SORT-2: by insertion, in each line apart."""
    out = x.copy()
    for index in np.ndindex(*(1 if d == dimension else n for d, n in enumerate(x.shape))):
        line = out[tuple(slice(None) if d == dimension else i for d, i in enumerate(index))]
        for end in range(1, len(line)):
            k = end
            while k and (line[k] > line[k - 1] if descending else line[k] < line[k - 1]):
                line[k], line[k - 1] = line[k - 1], line[k]
                k -= 1
    return out


@pytest.mark.sampled(7)
@pytest.mark.parametrize(
    ("sizes", "dimension"), [([50], 0), ([4, 30], 1), ([30, 4], 0), ([2, 9, 3], 1), ([1, 5], 0), ([0], 0), ([0, 3], 1)]
)
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_dimensions(sizes: list[int], dimension: int, direction: str) -> None:
    """SORT-1 and SORT-2."""
    check(
        f"sort(x0), dimensions={{{dimension}}}, to_apply=less",
        lambda x: sorted_along(x, dimension, direction == "GT"),
        values(sizes),
        computations=less("f32", direction),
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", ["s8", "u64", "bf16", "f8e4m3fn", "pred", "f64", "s4"])
def test_element_types(type: str) -> None:
    """SORT-1."""
    check(
        "sort(x0), dimensions={1}, to_apply=less",
        lambda x: sorted_along(x, 1, False),
        values([2, 21], type),
        computations=less(type),
    )


def test_a_total_order_puts_nans_at_the_ends() -> None:
    """SORT-6, TOTALORDER-1."""
    nan = np.float32(np.nan)
    x = np.array([nan, 1, -0.0, -nan, 0.0, -np.inf, np.inf, -1], np.float32)
    (found,) = compiled(sort_text([x], "ROOT r = pred[] compare(a0, b0), direction=LT, type=TOTALORDER", 0), x)
    expected = np.array([-nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, nan], np.float32)
    same(found, expected)
    assert np.signbit(found).tolist() == np.signbit(expected).tolist()


def test_operands_of_several_types_are_sorted_together() -> None:
    """SORT-3 and SORT-5: by the first alone; rows of equal keys keep their order."""
    keys, ids = values([40], "s8") // 4, np.arange(40, dtype=np.int32)
    complex_values, flags = values([40], "c64"), values([40], "pred")
    text = sort_text([keys, ids, complex_values, flags], "ROOT r = pred[] compare(a0, b0), direction=LT", 0)
    order = [k for key in range(-1, 4) for k in range(40) if keys[k] == key]
    for found, x in zip(
        compiled(text, keys, ids, complex_values, flags), (keys, ids, complex_values, flags), strict=True
    ):
        same(found, np.array([x[k] for k in order]))
