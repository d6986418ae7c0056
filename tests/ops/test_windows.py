"""Windows: reduce-window and select-and-scatter (spec: WIN, REDUCEWINDOW, SELECTANDSCATTER)."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from built import evaluate
from hloom.bench.peer_process import XlaPeer
from hloom.ops.attributes import WindowDimension
from hloom.text.attributes import window_text

Window = tuple[WindowDimension, ...]
FLT_MAX = float(np.finfo(np.float32).max)


def reduce_window(array: np.ndarray, init: float, window: str | Window, opcode: str, element_type: str = "f32") -> Any:
    """Reduces with one binary instruction; the window as in HLO text, or as dimensions."""
    if isinstance(window, tuple):
        counts = [d.count(n) for d, n in zip(window, array.shape)]
        window = window_text(window)
    else:
        counts = counts_of(window, array.shape)
    text = f"""HloModule m
f {{
  a = {element_type}[] parameter(0)
  b = {element_type}[] parameter(1)
  ROOT c = {element_type}[] {opcode}(a, b)
}}
ENTRY e {{
  x = {element_type}[{",".join(map(str, array.shape))}] parameter(0)
  i = {element_type}[] parameter(1)
  ROOT r = {element_type}[{",".join(map(str, counts))}] reduce-window(x, i), window={window}, to_apply=f
}}"""
    return hl.compile(text, backend="interpreter")(array, np.asarray(init, array.dtype))


def counts_of(window: str, sizes: tuple[int, ...]) -> list[int]:
    """WIN-1, WIN-2, from the text."""
    fields = dict(item.split("=") for item in window.strip("{}").split())
    ones = "x".join("1" for _ in sizes)
    size, stride, base, dilation = (
        [int(n) for n in fields.get(name, ones).split("x")] for name in ("size", "stride", "lhs_dilate", "rhs_dilate")
    )
    pads = [tuple(map(int, p.split("_"))) for p in fields.get("pad", "x".join("0_0" for _ in sizes)).split("x")]
    counts = []
    for n, w, s, bd, wd, (low, high) in zip(sizes, size, stride, base, dilation, pads):
        padded = ((n - 1) * bd + 1 if n else 0) + low + high
        dilated = (w - 1) * wd + 1
        counts.append(0 if padded < dilated else (padded - dilated) // s + 1)
    return counts


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_four_tiles() -> None:
    """REDUCEWINDOW-3: 4x6 in windows of 2x3 side by side: the maximum of each."""
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    got = reduce_window(x, -math.inf, "{size=2x3 stride=2x3}", "maximum")
    assert got.tolist() == [[x[:2, :3].max(), x[:2, 3:].max()], [x[2:, :3].max(), x[2:, 3:].max()]]


def test_valid_and_same_padding() -> None:
    """REDUCEWINDOW-5."""
    x = vector(10000, 1000, 100, 10, 1)
    assert reduce_window(x, FLT_MAX, "{size=3 stride=2}", "minimum").tolist() == [100, 1]
    assert reduce_window(x, FLT_MAX, "{size=3 stride=2 pad=1_1}", "minimum").tolist() == [1000, 10, 1]


def test_the_initial_value_enters_each_window_once() -> None:
    """REDUCEWINDOW-2."""
    assert reduce_window(vector(1, 2, 3), 1, "{size=3 pad=1_1}", "add").tolist() == [4, 7, 6]


def test_both_dilations() -> None:
    """REDUCEWINDOW-6."""
    window = "{size=2 lhs_dilate=2 rhs_dilate=2}"
    assert reduce_window(vector(1, 2, 3, 4), 0, window, "add").tolist() == [3, 0, 5, 0, 7]


def test_negative_padding_removes_elements() -> None:
    """WIN-4: also elements of the dilated base."""
    assert reduce_window(vector(1, 2, 3, 4), 0, "{size=1 pad=-1_-1}", "add").tolist() == [2, 3]
    assert reduce_window(vector(1, 2, 3), 0, "{size=2 pad=-1_0 lhs_dilate=2}", "add").tolist() == [2, 2, 3]
    assert reduce_window(vector(1, 2), 7, "{size=1 pad=-2_2}", "add").tolist() == [7, 7]


def test_windows_that_do_not_fit() -> None:
    """WIN-2, GEN-10: no positions, and windows over padding alone."""
    assert reduce_window(vector(1, 2), 0, "{size=3}", "add").tolist() == []
    assert reduce_window(vector(), 5, "{size=2 pad=1_2}", "add").tolist() == [5, 5]
    assert reduce_window(np.zeros((0, 2), np.float32), 5, "{size=1x2 pad=0_0x0_0}", "add").shape == (0, 1)


def test_dilated_windows_that_do_not_fit() -> None:
    """WIN-2: 2 elements are fewer than the 4 that a window of 2 with dilation 3 covers: no positions."""
    assert reduce_window(vector(1, 2), 0, "{size=2 rhs_dilate=3}", "add").tolist() == []


@pytest.mark.parametrize(
    ("size", "window", "stride", "dilation", "low", "high"),
    [(5, 3, 2, 1, 1, 1), (4, 2, 1, 1, 0, 1), (7, 3, 3, 1, 1, 1), (4, 3, 4, 1, 0, 0), (5, 2, 1, 2, 1, 1)],
)
def test_same_padding_gives_ceil_positions(
    size: int, window: int, stride: int, dilation: int, low: int, high: int
) -> None:
    """WIN-5: ceil(n/s) positions; the odd element of the padding goes to the high end."""
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.f32[size])
    zero = b.constant(np.float32(0))
    root = b.reduce_window(
        [x], [zero], lambda a, c: a + c, [window], [stride], window_dilations=[dilation], padding="SAME"
    )
    assert root.shape.dimensions == (-(-size // stride),)
    module = b.build(root).module
    (found,) = (i.op for i in module.entry.instructions if i.opcode == "reduce-window")
    (d,) = found.window  # type: ignore[attr-defined]
    assert (d.padding_low, d.padding_high) == (low, high)


def test_several_operands_reduce_together() -> None:
    """REDUCEWINDOW-1, REDUCE-8: the maximum of each window and where it stands."""
    text = """HloModule m
f {
  v = f32[] parameter(0)
  i = s32[] parameter(1)
  w = f32[] parameter(2)
  j = s32[] parameter(3)
  p = pred[] compare(v, w), direction=GE
  a = f32[] select(p, v, w)
  b = s32[] select(p, i, j)
  ROOT t = (f32[], s32[]) tuple(a, b)
}
ENTRY e {
  x = f32[6] parameter(0)
  k = s32[6] iota(), iota_dimension=0
  low = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = (f32[4], s32[4]) reduce-window(x, k, low, none), window={size=3}, to_apply=f
}"""
    values, indices = hl.compile(text, backend="interpreter")(vector(3, 1, 4, 1, 5, 9))
    assert values.tolist() == [4, 4, 5, 9] and indices.tolist() == [2, 2, 4, 5]


@pytest.mark.parametrize(
    ("window", "clause"),
    [
        ("{size=0x1}", "WIN-6"), ("{size=1x1 stride=0x1}", "WIN-6"), ("{size=1x1 lhs_dilate=1x0}", "WIN-6"),
        ("{size=1x1 rhs_dilate=-1x1}", "WIN-6"), ("{size=2}", "REDUCEWINDOW-7"), ("{size=1x1x1}", "REDUCEWINDOW-7"),
    ],
)  # fmt: skip
def test_windows_that_are_refused(window: str, clause: str) -> None:
    """WIN-6, REDUCEWINDOW-7."""
    text = f"""HloModule m
f {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{ x = f32[4,4] parameter(0)
  i = f32[] constant(0)
  ROOT r = f32[4,4] reduce-window(x, i), window={window}, to_apply=f }}"""
    with pytest.raises(hl.RuleError) as error:
        hl.parse(text)
    assert error.value.clause == clause


REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "maximum": max,
    "minimum": min,
    "or": operator.or_,
}


@st.composite
def windows(draw: Any) -> tuple[np.ndarray, Window]:
    sizes = draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    dimensions = []
    for _ in sizes:
        low, high = draw(st.integers(-3, 4)), draw(st.integers(-3, 4))
        entries = [draw(st.integers(1, 3)) for _ in range(4)]
        dimensions.append(WindowDimension(entries[0], entries[1], low, high, entries[2], entries[3]))
    array = np.random.default_rng(draw(st.integers(0, 999))).integers(-50, 50, sizes)
    return array.astype(np.int32), tuple(dimensions)


def elements(array: np.ndarray, window: Window, position: tuple[int, ...]) -> list[tuple[int, ...]]:
    """WIN-3: the base indices that the window at a position reads, in the order of the window."""
    found = []
    for k in itertools.product(*(range(d.size) for d in window)):
        index = []
        for o, element, d, n in zip(position, k, window, array.shape):
            q = o * d.stride + element * d.window_dilation - d.padding_low
            if 0 <= q < (n - 1) * d.base_dilation + 1 and n and q % d.base_dilation == 0:
                index.append(q // d.base_dilation)
        if len(index) == len(window):
            found.append(tuple(index))
    return found


def positions(array: np.ndarray, window: Window) -> list[tuple[int, ...]]:
    """WIN-1, WIN-2."""
    counts = []
    for d, n in zip(window, array.shape):
        padded = ((n - 1) * d.base_dilation + 1 if n else 0) + d.padding_low + d.padding_high
        dilated = (d.size - 1) * d.window_dilation + 1
        counts.append(0 if padded < dilated else (padded - dilated) // d.stride + 1)
    return list(itertools.product(*map(range, counts)))


@given(windows(), st.sampled_from(sorted(REDUCTIONS)), st.integers(-9, 9))
def test_reduce_window_is_the_loop_of_the_specification(
    case: tuple[np.ndarray, Window], opcode: str, init: int
) -> None:
    """WIN-1 to WIN-4, REDUCEWINDOW-1, REDUCEWINDOW-2."""
    array, window = case
    got = reduce_window(array, init, window, opcode, "s32")
    indices = positions(array, window)
    assert got.size == len(indices)
    for position in indices:
        want = init
        for index in elements(array, window, position):
            want = REDUCTIONS[opcode](want, int(array[index]))
        assert got[position] == want


@given(windows(), st.integers(-9, 9))
def test_every_reduction_keeps_the_left_element_left(case: tuple[np.ndarray, Window], init: int) -> None:
    """REDUCEWINDOW-2, REDUCEWINDOW-6: `second argument` is associative and does not commute: the last element wins."""
    array, window = case
    text_window = window_text(window)
    counts = [d.count(n) for d, n in zip(window, array.shape)]
    text = f"""HloModule m
f {{
  a = s32[] parameter(0)
  ROOT b = s32[] parameter(1)
}}
ENTRY e {{
  x = s32[{",".join(map(str, array.shape))}] parameter(0)
  i = s32[] parameter(1)
  ROOT r = s32[{",".join(map(str, counts))}] reduce-window(x, i), window={text_window}, to_apply=f
}}"""
    got = hl.compile(text, backend="interpreter")(array, np.int32(init))
    for position in positions(array, window):
        found = elements(array, window, position)
        assert got[position] == (array[found[-1]] if found else init)


def test_random_windows_agree_with_xla(peer: XlaPeer) -> None:
    """WIN-3 with every attribute at once."""
    x = np.arange(1, 36, dtype=np.float32).reshape(5, 7)
    for window in (
        "{size=2x3 stride=2x1 pad=1_0x2_1 rhs_dilate=2x1}",
        "{size=3x2 stride=1x2 pad=0_2x-1_1 lhs_dilate=2x3}",
        "{size=2x2 stride=3x3 pad=-2_3x4_-3 lhs_dilate=3x2 rhs_dilate=2x3}",
    ):
        counts = ",".join(map(str, counts_of(window, x.shape)))
        text = f"""HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY e {{
  x = f32[5,7] parameter(0)
  i = f32[] constant(0)
  ROOT r = f32[{counts}] reduce-window(x, i), window={window}, to_apply=f
}}"""
        (theirs,) = peer.run(text, [x])
        assert np.array_equal(hl.compile(text, backend="interpreter")(x), theirs)


def select_and_scatter(x: np.ndarray, source: np.ndarray, init: int, window: str, direction: str = "GE") -> Any:
    shape, counts = (",".join(map(str, a.shape)) for a in (x, source))
    text = f"""HloModule m
better {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction={direction}
}}
sum {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}}
ENTRY e {{
  x = s32[{shape}] parameter(0)
  s = s32[{counts}] parameter(1)
  i = s32[] parameter(2)
  ROOT r = s32[{shape}] select-and-scatter(x, s, i), window={window}, select=better, scatter=sum
}}"""
    return hl.compile(text, backend="interpreter")(x, source, np.int32(init))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_the_selected_elements_receive_the_source() -> None:
    """SELECTANDSCATTER-1, SELECTANDSCATTER-3: windows that overlap add up."""
    assert select_and_scatter(ints(1, 3, 2, 5), ints(10, 20), 0, "{size=2 stride=2}").tolist() == [0, 10, 0, 20]
    assert select_and_scatter(ints(1, 9, 2), ints(2, 6), 100, "{size=2}").tolist() == [100, 108, 100]


def test_equal_elements() -> None:
    """SELECTANDSCATTER-2: with GE the lower index wins, with GT the higher."""
    for direction, want in (("GE", [1, 0, 0]), ("GT", [0, 0, 1])):
        assert select_and_scatter(ints(4, 4, 4), ints(1), 0, "{size=3}", direction).tolist() == want


def test_padding_is_never_selected() -> None:
    """SELECTANDSCATTER-2: although the padding of a maximum of negative numbers might look larger."""
    assert select_and_scatter(ints(-5, -7), ints(1, 2, 4), 0, "{size=2 pad=1_1}").tolist() == [3, 4]
    assert select_and_scatter(ints(-5), ints(1, 2, 4), 0, "{size=1 pad=1_1}").tolist() == [2]


def test_nothing_is_selected_of_an_empty_array() -> None:
    """GEN-10, SELECTANDSCATTER-2: windows over padding alone select nothing."""
    assert select_and_scatter(ints(), ints(7), 0, "{size=1 pad=0_1}").tolist() == []


@pytest.mark.parametrize("source", ["s32[3]", "s32[2,1]", "f32[2]"])
def test_a_source_of_another_shape_is_refused(source: str) -> None:
    """SELECTANDSCATTER-4."""
    text = f"""HloModule m
better {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=GE }}
sum {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }}
ENTRY e {{ x = s32[4] parameter(0)
  s = {source} parameter(1)
  i = s32[] constant(0)
  ROOT r = s32[4] select-and-scatter(x, s, i), window={{size=2 stride=2}}, select=better, scatter=sum }}"""
    with pytest.raises(hl.RuleError, match=r"SELECTANDSCATTER-4.*source must be s32\[2\]"):
        hl.parse(text)


@given(windows(), st.sampled_from(["GE", "GT", "LE", "LT"]), st.integers(-3, 3))
def test_select_and_scatter_is_the_loop_of_the_specification(
    case: tuple[np.ndarray, Window], direction: str, init: int
) -> None:
    """WIN-3, SELECTANDSCATTER-1 to SELECTANDSCATTER-3."""
    array, window = case
    window = tuple(WindowDimension(d.size, d.stride, d.padding_low, d.padding_high) for d in window)
    array = array % 4
    indices = positions(array, window)
    counts = [d.count(n) for d, n in zip(window, array.shape)]
    source = np.arange(1, len(indices) + 1, dtype=np.int32).reshape(counts)
    want = np.full(array.shape, init)
    keep = {"GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt}[direction]
    for position in indices:
        found = elements(array, window, position)
        if found:
            best = found[0]
            for index in found[1:]:
                best = best if keep(array[best], array[index]) else index
            want[best] += source[position]
    assert np.array_equal(select_and_scatter(array, source, init, window_text(window), direction), want)


def test_a_short_convolution_is_the_general_one_without_dilations(backend: str) -> None:
    """CONV-2."""
    random = np.random.default_rng(0)
    x = random.normal(size=(2, 3, 9, 8)).astype(np.float32)
    k = random.normal(size=(4, 3, 3, 2)).astype(np.float32)
    for word, padding in (("VALID", [(0, 0), (0, 0)]), ("SAME", [(1, 1), (0, 1)])):
        short = evaluate(backend, lambda b, x, k, w=word: b.conv(x, k, (1, 1), w), x, k)
        general = evaluate(
            backend,
            lambda b, x, k, p=padding: b.conv_with_general_padding(x, k, (1, 1), p, (1, 1), (1, 1)),
            x,
            k,
        )
        assert np.array_equal(short, general)


REVERSED = """HloModule m
ENTRY e {{
  x = {type}[1,1,5] parameter(0)
  k = {type}[1,1,3] parameter(1)
  ROOT r = {result}[1,1,3] convolution(x, k), window={{size=3 rhs_reversal={flag}}}, dim_labels=bf0_oi0->bf0
}}"""


def test_windows_may_be_reversed_and_results_wider(backend: str) -> None:
    """CONVGENERAL-12: with reversal a convolution of mathematics; s8 with s8 gives s32 where that is preferred."""
    x, k = np.array([[[1, 2, 3, 4, 5]]], np.float32), np.array([[[1, 10, 100]]], np.float32)
    for flag, kernel in ((0, k[0, 0]), (1, k[0, 0, ::-1])):
        text = REVERSED.format(type="f32", result="f32", flag=flag)
        found = np.asarray(hl.compile(text, backend=backend)(x, k))
        assert found[0, 0].tolist() == np.correlate(x[0, 0], kernel, "valid").tolist()
    wide = np.asarray(
        hl.compile(REVERSED.format(type="s8", result="s32", flag=0), backend=backend)(
            np.full((1, 1, 5), 127, np.int8), np.full((1, 1, 3), 127, np.int8)
        )
    )
    assert wide.dtype == np.int32 and wide.tolist() == [[[3 * 127 * 127] * 3]]


@pytest.mark.parametrize(
    ("window", "x", "kernel", "expected"),
    [
        ("size=2 pad=1_1", [1, 1, 1], [np.inf, 1], [np.nan, np.inf, np.inf, np.inf]),
        ("size=2 pad=1_1", [1, 1, 1], [1, np.nan], [np.nan] * 4),
        ("size=2 lhs_dilate=2", [1, 1, 1], [1, np.nan], [1, np.nan, 1, np.nan]),
        ("size=2 lhs_dilate=2", [1, np.inf, 1], [1, 2], [1, np.inf, np.inf, 2]),
        ("size=2 rhs_dilate=2", [1, np.inf, 1], [1, 2], [3]),
        ("size=2 pad=1_1 lhs_dilate=2 rhs_dilate=2", [1, 1, 1], [np.inf, 1], [0, np.inf, 0, np.inf, 0]),
        ("size=1 pad=2_2 lhs_dilate=2", [1, 1], [np.inf], [np.nan, 0, np.inf, 0, np.inf, 0, np.nan]),
    ],
)
def test_padding_is_multiplied_and_holes_are_not(
    window: str, x: list[float], kernel: list[float], expected: list[float], backend: str
) -> None:
    """CONVGENERAL-3, CONVGENERAL-6: what a kernel that is not finite shows of padding and of holes."""
    text = f"""HloModule m
ENTRY e {{
  x = f32[1,1,{len(x)}] parameter(0)
  k = f32[1,1,{len(kernel)}] parameter(1)
  ROOT r = f32[1,1,{len(expected)}] convolution(x, k), window={{{window}}}, dim_labels=bf0_oi0->bf0
}}"""
    arrays = (np.array([[values]], np.float32) for values in (x, kernel))
    assert np.array_equal(np.asarray(hl.compile(text, backend)(*arrays))[0, 0], expected, equal_nan=True)
