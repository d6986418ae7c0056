"""gather and scatter against the formulas of their clauses, one element at a time (spec: GATHER, SCATTER)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from built import built
from hloom.bench.peer_process import XlaPeer


@dataclass
class Dims:
    """The dimension numbers of both operations: `window` and `collapsed` are offset and collapsed dimensions for gather,
    update window and inserted window dimensions for scatter."""

    window: list[int]
    collapsed: list[int]
    index_map: list[int]
    index_vector_dim: int
    operand_batching: list[int] = field(default_factory=list)
    indices_batching: list[int] = field(default_factory=list)


def braces(values: Any) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def sizes(values: Any) -> str:
    return "[" + ",".join(map(str, values)) + "]"


def combine(batch: list[int], i: int, dims: Dims, rank: int) -> tuple[int, ...]:
    """GATHER-5: Combine(A, b) inserts b into A at position index_vector_dim; an implied dimension is not indexed."""
    if dims.index_vector_dim == rank:
        return tuple(batch)
    return (*batch[: dims.index_vector_dim], i, *batch[dims.index_vector_dim :])


def start_of(indices: np.ndarray, batch: list[int], dims: Dims, rank: int) -> list[int]:
    """S_in of GATHER-5 and SCATTER-4, with the batching dimensions of GATHER-13."""
    start = [0] * rank
    for k, d in enumerate(dims.index_map):
        start[d] = int(indices[combine(batch, k, dims, indices.ndim)])
    for d, e in zip(dims.operand_batching, dims.indices_batching):
        start[d] = batch[e - (e > dims.index_vector_dim)]
    return start


def remapped(dims: Dims, rank: int) -> list[int]:
    """GATHER-6: the increasing map onto the remaining operand dimensions."""
    return [d for d in range(rank) if d not in dims.collapsed and d not in dims.operand_batching]


def naive_gather(operand: np.ndarray, indices: np.ndarray, dims: Dims, slice_sizes: list[int]) -> np.ndarray:
    """GATHER-2 to GATHER-7."""
    batch_sizes = [n for d, n in enumerate(indices.shape) if d != dims.index_vector_dim]
    left = remapped(dims, operand.ndim)
    result_sizes, batches, offsets = [], iter(batch_sizes), iter(left)
    for d in range(len(batch_sizes) + len(dims.window)):
        result_sizes.append(slice_sizes[next(offsets)] if d in dims.window else next(batches))
    out = np.zeros(result_sizes, operand.dtype)
    for index in itertools.product(*map(range, result_sizes)):
        batch = [index[d] for d in range(len(index)) if d not in dims.window]
        start = start_of(indices, batch, dims, operand.ndim)
        start = [min(max(s, 0), n - size) for s, n, size in zip(start, operand.shape, slice_sizes)]
        for k, d in enumerate(dims.window):
            start[left[k]] += index[d]
        out[index] = operand[tuple(start)]
    return out


def gather_text(operand: np.ndarray, indices: np.ndarray, dims: Dims, slice_sizes: list[int], result: Any) -> str:
    batching = ""
    if dims.operand_batching:
        batching = (
            f", operand_batching_dims={braces(dims.operand_batching)}"
            f", start_indices_batching_dims={braces(dims.indices_batching)}"
        )
    return f"""HloModule m
ENTRY e {{
  x = s32{sizes(operand.shape)} parameter(0)
  i = s64{sizes(indices.shape)} parameter(1)
  ROOT r = s32{sizes(result)} gather(x, i), offset_dims={braces(dims.window)}, collapsed_slice_dims={braces(dims.collapsed)},
    start_index_map={braces(dims.index_map)}, index_vector_dim={dims.index_vector_dim},
    slice_sizes={braces(slice_sizes)}{batching}
}}"""


def gather(operand: np.ndarray, indices: Any, dims: Dims, slice_sizes: list[int]) -> np.ndarray:
    """hloom's result; its shape is checked by the verifier against the naive one's."""
    indices = np.array(indices, np.int64)
    want = naive_gather(operand, indices, dims, slice_sizes)
    got = hl.compile(gather_text(operand, indices, dims, slice_sizes, want.shape), backend="interpreter")(
        operand, indices
    )
    assert np.array_equal(got, want)
    return got


TABLE = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)


def test_a_batched_dynamic_slice() -> None:
    """GATHER-8: Out[G, O0, O1] = operand[X + O0, Y + O1] with (X, Y) = row G."""
    rows = [[0, 0], [8, 5], [3, 1], [2, 4], [7, 0]]
    got = gather(TABLE, rows, Dims([1, 2], [], [0, 1], 1), [8, 6])
    assert got.shape == (5, 8, 6)
    assert np.array_equal(got, np.stack([TABLE[x : x + 8, y : y + 6] for x, y in rows]))


def test_two_batch_dimensions() -> None:
    """GATHER-9."""
    indices = np.random.default_rng(0).integers(0, 5, (4, 5, 2))
    assert gather(TABLE, indices, Dims([2, 3], [], [0, 1], 2), [8, 6]).shape == (4, 5, 8, 6)


def test_whole_rows() -> None:
    """GATHER-10, as tf.gather_nd."""
    indices = np.random.default_rng(0).integers(0, 16, (4, 5, 1))
    got = gather(TABLE, indices, Dims([2], [0], [0], 2), [1, 11])
    assert np.array_equal(got, TABLE[indices[..., 0]])


def test_an_implied_index_vector() -> None:
    """GATHER-2."""
    indices = np.array([[3, 1], [0, 15]])
    assert np.array_equal(gather(TABLE, indices, Dims([2], [0], [0], 2), [1, 11]), TABLE[indices])


def test_starts_are_clamped_so_that_slices_lie_inside() -> None:
    """GATHER-7."""
    got = gather(TABLE, [[-5, 100], [2**62, -(2**62)]], Dims([1, 2], [], [0, 1], 1), [2, 3])
    assert np.array_equal(got, [TABLE[0:2, 8:11], TABLE[14:16, 0:3]])


def test_unsigned_starts_are_large_and_not_negative() -> None:
    """GATHER-7."""
    text = gather_text(TABLE, np.zeros((1, 1)), Dims([1], [0], [0], 1), [1, 11], (1, 11))
    for name, largest in (("u64", 2**64 - 1), ("u32", 2**32 - 1), ("u8", 255)):
        run = hl.compile(text.replace("s64", name), backend="interpreter")
        assert run(TABLE, np.array([[largest]], np.dtype(name.replace("u", "uint"))))[0].tolist() == TABLE[15].tolist()


def test_the_index_vector_may_come_first_and_name_dimensions_in_any_order() -> None:
    """GATHER-5."""
    got = gather(TABLE, [[1, 2, 3], [10, 9, 8]], Dims([1, 2], [], [1, 0], 0), [2, 2])
    assert got[0].tolist() == TABLE[10:12, 1:3].tolist()


def test_offset_dimensions_skip_the_collapsed_ones() -> None:
    """GATHER-6: 4 offset dimensions, rank 6, collapsed {0, 2}: {0->1, 1->3, 2->4, 3->5}."""
    operand = np.arange(2 * 3 * 2 * 2 * 1 * 2, dtype=np.int32).reshape(2, 3, 2, 2, 1, 2)
    got = gather(operand, [[1, 0]], Dims([1, 2, 3, 4], [0, 2], [0, 2], 1), [1, 3, 1, 2, 1, 2])
    assert got.tolist() == operand[1:2, :, 0].tolist()


def test_batching_dimensions_of_gather() -> None:
    """GATHER-13: row b of the indices picks in row b of the operand."""
    dims = Dims([1], [], [1], 1, [0], [0])
    got = gather(TABLE[:3], [[1], [5], [9]], dims, [1, 2])
    assert got.tolist() == [[1, 2], [16, 17], [31, 32]]


def test_promises_change_nothing() -> None:
    """GATHER-12."""
    text = gather_text(TABLE, np.zeros((2, 1)), Dims([1], [0], [0], 1), [1, 11], (2, 11))
    text = text.replace("slice_sizes={1,11}", "slice_sizes={1,11}, indices_are_sorted=true")
    assert (
        hl.compile(text, backend="interpreter")(TABLE, np.array([[9], [2]], np.int64)).tolist()
        == TABLE[[9, 2]].tolist()
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("offset_dims={1}", "offset_dims={}"),
        ("offset_dims={1}", "offset_dims={2}"),
        ("offset_dims={1}", "offset_dims={-1}"),
        ("collapsed_slice_dims={0}", "collapsed_slice_dims={2}"),
        ("collapsed_slice_dims={0}", "collapsed_slice_dims={1}"),
        ("collapsed_slice_dims={0}", "collapsed_slice_dims={0,0}"),
        ("slice_sizes={1,11}", "slice_sizes={1}"),
        ("slice_sizes={1,11}", "slice_sizes={1,12}"),
        ("slice_sizes={1,11}", "slice_sizes={2,11}"),
        ("slice_sizes={1,11}", "slice_sizes={1,-1}"),
        ("start_index_map={0}", "start_index_map={}"),
        ("start_index_map={0}", "start_index_map={2}"),
        ("start_index_map={0}", "start_index_map={0,1}"),
        ("index_vector_dim=1", "index_vector_dim=3"),
        ("index_vector_dim=1", "index_vector_dim=-1"),
        ("i = s64[2,1]", "i = f32[2,1]"),
    ],
)
def test_gathers_that_are_refused(old: str, new: str) -> None:
    """GATHER-11."""
    text = gather_text(TABLE, np.zeros((2, 1)), Dims([1], [0], [0], 1), [1, 11], (2, 11))
    hl.parse(text)
    assert text.count(old) == 1
    with pytest.raises(hl.RuleError) as error:
        hl.parse(text.replace(old, new))
    assert error.value.clause == "GATHER-11" and error.value.subject == "gather"


def test_an_index_does_not_choose_along_a_batching_dimension() -> None:
    """GATHER-11, SCATTER-10: batching dimensions have the position of the batch."""
    dims = Dims([1], [], [0], 1, operand_batching=[0], indices_batching=[0])
    table, indices = np.zeros((2, 3)), np.zeros((2, 1))
    texts = gather_text(table, indices, dims, [1, 3], (2, 3)), scatter_text(table, indices, table, dims, "add(a, b)")
    for text in texts:
        with pytest.raises(hl.RuleError, match="batching dimensions of the operand: \\[0\\]"):
            hl.parse(text)


@st.composite
def cases(draw: Any) -> tuple[np.ndarray, np.ndarray, Dims, list[int]]:
    """An operand, index vectors (some outside), dimension numbers and window sizes."""
    operand_sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    rank = len(operand_sizes)
    batch_sizes = draw(st.lists(st.integers(0, 3), max_size=2))
    operand_batching, batch_positions = [], []
    free = list(range(rank))
    if batch_sizes and draw(st.booleans()):
        d, e = draw(st.sampled_from(free)), draw(st.integers(0, len(batch_sizes) - 1))
        if batch_sizes[e]:
            operand_sizes[d] = batch_sizes[e]
            operand_batching, batch_positions = [d], [e]
            free.remove(d)
    collapsed = [d for d in free if draw(st.booleans())]
    index_map = draw(st.permutations(free))[: draw(st.integers(0, len(free)))]
    index_vector_dim = draw(st.integers(0, len(batch_sizes)))
    indices_sizes = [*batch_sizes[:index_vector_dim], len(index_map), *batch_sizes[index_vector_dim:]]
    if len(index_map) == 1 and index_vector_dim == len(batch_sizes) and draw(st.booleans()):
        indices_sizes = batch_sizes
    slice_sizes = [
        1 if d in collapsed or d in operand_batching else draw(st.integers(0, n)) for d, n in enumerate(operand_sizes)
    ]
    windowed = rank - len(collapsed) - len(operand_batching)
    window = sorted(draw(st.permutations(range(windowed + len(batch_sizes))))[:windowed])
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    dims = Dims(
        window,
        collapsed,
        list(index_map),
        index_vector_dim,
        operand_batching,
        [e + (e >= index_vector_dim and len(indices_sizes) > len(batch_sizes)) for e in batch_positions],
    )
    operand = rng.integers(-99, 99, operand_sizes).astype(np.int32)
    return operand, rng.integers(-2, 5, indices_sizes), dims, slice_sizes


@given(cases())
def test_gather_is_the_formula_of_the_specification(case: tuple[np.ndarray, np.ndarray, Dims, list[int]]) -> None:
    """GATHER-2 to GATHER-7, GATHER-13."""
    gather(*case)


# Scatter


def naive_scatter(
    operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, dims: Dims, function: Any
) -> np.ndarray:
    """SCATTER-3 to SCATTER-7: window after window, those partly outside skipped."""
    out, left = operand.copy(), remapped(dims, operand.ndim)
    extents = [1] * operand.ndim
    for k, u in enumerate(dims.window):
        extents[left[k]] = updates.shape[u]
    scattered = [u for u in range(updates.ndim) if u not in dims.window]
    order = [*scattered, *dims.window]
    for ordered in itertools.product(*(range(updates.shape[u]) for u in order)):
        index = tuple(ordered[order.index(u)] for u in range(updates.ndim))
        batch = [index[u] for u in scattered]
        start = start_of(indices, batch, dims, operand.ndim)
        if any(not 0 <= s <= n - extent for s, n, extent in zip(start, operand.shape, extents)):
            continue
        for k, u in enumerate(dims.window):
            start[left[k]] += index[u]
        out[tuple(start)] = function(int(out[tuple(start)]), int(updates[index]))
    return out


FUNCTIONS: dict[str, tuple[str, Any]] = {
    "add": ("add(a, b)", lambda a, b: a + b),
    "subtract": ("subtract(a, b)", lambda a, b: a - b),
    "last": ("add(b, z)", lambda a, b: b),
    "first": ("add(a, z)", lambda a, b: a),
}


def scatter_text(
    operand: np.ndarray, indices: np.ndarray, updates: np.ndarray, dims: Dims, body: str, more: str = ""
) -> str:
    batching = ""
    if dims.operand_batching:
        batching = (
            f", input_batching_dims={braces(dims.operand_batching)}"
            f", scatter_indices_batching_dims={braces(dims.indices_batching)}"
        )
    return f"""HloModule m
f {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  z = s32[] constant(0)
  ROOT c = s32[] {body}
}}
ENTRY e {{
  x = s32{sizes(operand.shape)} parameter(0)
  i = s64{sizes(indices.shape)} parameter(1)
  u = s32{sizes(updates.shape)} parameter(2)
  ROOT r = s32{sizes(operand.shape)} scatter(x, i, u), update_window_dims={braces(dims.window)},
    inserted_window_dims={braces(dims.collapsed)}, scatter_dims_to_operand_dims={braces(dims.index_map)},
    index_vector_dim={dims.index_vector_dim}{batching}{more}, to_apply=f
}}"""


def scatter(operand: Any, indices: Any, updates: Any, dims: Dims, function: str = "add", more: str = "") -> Any:
    operand, updates = np.array(operand, np.int32), np.array(updates, np.int32)
    indices = np.array(indices, np.int64)
    body, model = FUNCTIONS[function]
    text = scatter_text(operand, indices, updates, dims, body, more)
    expected = naive_scatter(operand, indices, updates, dims, model)
    for backend in ("interpreter", "cpu"):
        assert np.array_equal(hl.compile(text, backend)(operand, indices, updates), expected)
    return expected.tolist()


ELEMENTS = Dims([], [0], [0], 1)


def test_elements() -> None:
    """SCATTER-5: single elements of a vector."""
    assert scatter([0] * 5, [[1], [3]], [10, 30], ELEMENTS) == [0, 10, 0, 30, 0]


def test_rows() -> None:
    """SCATTER-5."""
    got = scatter(np.zeros((3, 2)), [[2], [0]], [[1, 2], [3, 4]], Dims([1], [0], [0], 1))
    assert got == [[3, 4], [0, 0], [1, 2]]


def test_an_implied_index_vector_of_scatter() -> None:
    """SCATTER-3."""
    assert scatter([0] * 5, [1, 3], [10, 30], ELEMENTS) == [0, 10, 0, 30, 0]


def test_the_current_value_is_the_first_argument() -> None:
    """SCATTER-2: it matters where the computation does not commute."""
    assert scatter([10, 10], [[0]], [3], ELEMENTS, "subtract") == [7, 10]


def test_several_updates_of_one_element_are_applied_in_order() -> None:
    """SCATTER-7: the last one wins when overwriting."""
    assert scatter([0, 0], [[1], [1], [1]], [5, 6, 7], ELEMENTS, "last") == [0, 7]
    assert scatter([100, 0], [[0], [1], [0]], [5, 6, 7], ELEMENTS, "subtract") == [88, -6]
    assert scatter([0, 0], [[1], [1], [1]], [5, 6, 7], ELEMENTS, "add") == [0, 18]
    for window, updates in ((0, [[1, 2], [3, 4]]), (1, [[1, 3], [2, 4]])):
        assert scatter([0] * 4, [[0], [1]], updates, Dims([window], [], [0], 1), "last") == [1, 2, 4, 0]


def test_windows_that_lie_partly_outside_are_skipped_as_a_whole() -> None:
    """SCATTER-6: the clause's example."""
    got = scatter([0] * 5, [[-1], [4], [1]], [[1, 2], [10, 20], [100, 200]], Dims([1], [], [0], 1))
    assert got == [0, 100, 200, 0, 0]


def test_indices_far_outside_are_skipped() -> None:
    """SCATTER-6."""
    assert scatter([1, 2], [[2**63 - 1], [-(2**63)], [2**32], [1]], [9, 9, 9, 5], ELEMENTS) == [1, 7]


def test_false_promises_change_nothing() -> None:
    """SCATTER-9."""
    more = ", indices_are_sorted=true, unique_indices=true"
    assert scatter([0, 0], [[1], [0], [1]], [5, 6, 7], ELEMENTS, "add", more) == [6, 12]


def test_batching_dimensions_of_scatter() -> None:
    """SCATTER-11."""
    got = scatter(np.zeros((2, 3)), [[2], [0]], [7, 8], Dims([], [1], [1], 1, [0], [0]))
    assert got == [[0, 0, 7], [8, 0, 0]]


def test_several_operands() -> None:
    """SCATTER-1, SCATTER-8: the computation sees all current values, then all updates."""
    text = """HloModule m
f {
  a = s32[] parameter(0)
  p = f32[] parameter(1)
  b = s32[] parameter(2)
  q = f32[] parameter(3)
  c = s32[] subtract(a, b)
  r = f32[] multiply(p, q)
  ROOT t = (s32[], f32[]) tuple(c, r)
}
ENTRY e {
  x = s32[3] parameter(0)
  y = f32[3] parameter(1)
  i = s32[2,1] parameter(2)
  u = s32[2] parameter(3)
  v = f32[2] parameter(4)
  ROOT r = (s32[3], f32[3]) scatter(x, y, i, u, v), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f
}"""
    x, y = np.array([1, 2, 3], np.int32), np.array([1, 2, 3], np.float32)
    indices, u, v = np.array([[0], [2]], np.int32), np.array([10, 20], np.int32), np.array([0.5, -1], np.float32)
    first, second = hl.compile(text, backend="interpreter")(x, y, indices, u, v)
    assert first.tolist() == [-9, 2, -17] and second.tolist() == [0.5, 2, -3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("update_window_dims={1}", "update_window_dims={}"),
        ("update_window_dims={1}", "update_window_dims={2}"),
        ("inserted_window_dims={0}", "inserted_window_dims={0,1}"),
        ("inserted_window_dims={0}", "inserted_window_dims={5}"),
        ("scatter_dims_to_operand_dims={0}", "scatter_dims_to_operand_dims={}"),
        ("scatter_dims_to_operand_dims={0}", "scatter_dims_to_operand_dims={2}"),
        ("scatter_dims_to_operand_dims={0}", "scatter_dims_to_operand_dims={0,0}"),
        ("index_vector_dim=1", "index_vector_dim=2"),
        ("index_vector_dim=1", "index_vector_dim=7"),
        ("u = s32[2,2]", "u = s32[2]"),
        ("u = s32[2,2]", "u = s32[2,3]"),
        ("u = s32[2,2]", "u = s32[3,2]"),
        ("i = s64[2,1]", "i = f32[2,1]"),
    ],
)
def test_scatters_that_are_refused(old: str, new: str) -> None:
    """SCATTER-10."""
    operand, indices, updates = np.zeros((3, 2)), np.zeros((2, 1)), np.zeros((2, 2))
    text = scatter_text(operand, indices, updates, Dims([1], [0], [0], 1), "add(a, b)")
    hl.parse(text)
    assert text.count(old) == 1
    with pytest.raises(hl.RuleError) as error:
        hl.parse(text.replace(old, new))
    assert error.value.clause == "SCATTER-10" and error.value.subject == "scatter"


@pytest.mark.parametrize("old", ["u = s32[2,2]", "b = s32[]"])
def test_scatters_of_mixed_types_are_refused(old: str) -> None:
    """SCATTER-1, SCATTER-2, GEN-5."""
    operand, indices, updates = np.zeros((3, 2)), np.zeros((2, 1)), np.zeros((2, 2))
    text = scatter_text(operand, indices, updates, Dims([1], [0], [0], 1), "add(a, z)")
    with pytest.raises(hl.RuleError, match="SCATTER-[12]"):
        hl.parse(text.replace(old, old.replace("s32", "f32")))


def as_scatter(case: tuple[np.ndarray, np.ndarray, Dims, list[int]], seed: int) -> tuple[np.ndarray, Dims]:
    """Updates for the dimension numbers of a gather: gather's result has the shape of scatter's updates."""
    operand, indices, dims, slice_sizes = case
    shape = naive_gather(operand, indices, dims, slice_sizes).shape
    return np.random.default_rng(seed).integers(-9, 9, shape), dims


@given(cases(), st.sampled_from(sorted(FUNCTIONS)), st.integers(0, 999))
def test_scatter_is_the_formula_of_the_specification(
    case: tuple[np.ndarray, np.ndarray, Dims, list[int]], function: str, seed: int
) -> None:
    """SCATTER-2 to SCATTER-7, SCATTER-11."""
    updates, dims = as_scatter(case, seed)
    scatter(case[0], case[1], updates, dims, function)


def test_the_naive_formulas_agree_with_xla(peer: XlaPeer) -> None:
    """GATHER-5, GATHER-7, SCATTER-6, SCATTER-7: what this file compares with is XLA's meaning too."""
    rng = np.random.default_rng(3)
    operand, indices = rng.integers(-9, 9, (4, 3, 2)).astype(np.int32), rng.integers(-2, 5, (2, 5))
    dims, slice_sizes = Dims([0, 2], [1], [2, 0], 0), [2, 1, 2]
    want = naive_gather(operand, indices, dims, slice_sizes)
    (theirs,) = peer.run(gather_text(operand, indices, dims, slice_sizes, want.shape), [operand, indices])
    assert np.array_equal(theirs, want)
    updates = rng.integers(-9, 9, want.shape).astype(np.int32)
    for body, model in FUNCTIONS.values():
        (theirs,) = peer.run(scatter_text(operand, indices, updates, dims, body), [operand, indices, updates])
        assert np.array_equal(theirs, naive_scatter(operand, indices, updates, dims, model))


def test_a_gather_follows_the_formulas(backend: str) -> None:
    """GATHER-1, -3, -4: slices of 1 x 2 x 3, offset dimensions 1 and 3, batch dimensions 0 and 2 of the result."""
    operand = np.arange(5 * 6 * 7, dtype=np.float32).reshape(5, 6, 7)
    starts = np.array([[[0, 1], [4, 2], [3, 0]], [[2, 4], [1, 1], [0, 3]]], np.int32)  # [2, 3, vector of (d0, d2)]
    computation = built(lambda b, x, i: b.gather(x, i, 2, (1, 3), (1, 2, 3), (0,), (0, 2)), operand, starts)
    # batch_dims = (0, 2): those not in offset_dims, as many as start_indices has without its vectors.
    assert computation.entry_computation.result_shape.dimensions == (2, 2, 3, 3)
    found = np.asarray(hl.compile(computation, backend=backend)(operand, starts))
    for i, j in np.ndindex(2, 3):
        d0, d2 = starts[i, j]
        assert np.array_equal(found[i, :, j, :], operand[d0, 0:2, d2 : d2 + 3])
