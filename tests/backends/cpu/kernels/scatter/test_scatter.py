"""Scatter kernels against the interpreter: dimension numbers, out-of-bounds windows, combiners, threads, in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.run_kernel import Array, Kernel, assert_same, check, interpreted
from hloom.backends.cpu.kernels.scatter import plan, scatter
from hloom.ops.scatter import Scatter
from hloom.target import Target
from hloom.types import BY_DTYPE

ADD = "ROOT r = T[] add(a0, b0)"
LAST = "ROOT r = T[] copy(b0)"
SWAP = "s = s32[] subtract(b1, a0)\n  t = s32[] maximum(a1, b0)\n  ROOT r = (s32[], s32[]) tuple(s, t)"


def text(operands: list[Array], indices: Array, updates: list[Array], combiner: str, **attributes: Any) -> str:
    types = [str(BY_DTYPE[a.dtype]) for a in operands]
    n = len(operands)

    def shape(a: Array) -> str:
        return f"{BY_DTYPE[a.dtype]}[{','.join(map(str, a.shape))}]"

    parameters = [
        f"  {side}{k} = {t}[] parameter({k + s * n})" for s, side in enumerate("ab") for k, t in enumerate(types)
    ]
    arrays = [*operands, indices, *updates]
    lines = [f"  x{k} = {shape(a)} parameter({k})" for k, a in enumerate(arrays)]
    result = shape(operands[0]) if n == 1 else "(" + ", ".join(map(shape, operands)) + ")"
    names = ", ".join(f"x{k}" for k in range(len(arrays)))
    fields = "".join(
        f", {key}={{{','.join(map(str, value))}}}" if isinstance(value, tuple) else f", {key}={value}"
        for key, value in attributes.items()
    )
    root = f"  ROOT r = {result} scatter({names}){fields}, to_apply=combine"
    combiner = combiner.replace("T[]", f"{types[0]}[]")
    return "\n".join(["HloModule m", "combine {", *parameters, "  " + combiner, "}", "ENTRY e {", *lines, root, "}"])


def integers(shape: tuple[int, ...], dtype: type = np.int32, low: int = -50, high: int = 50) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


def rows(*, inserted: int = 0) -> dict[str, Any]:
    return {
        "update_window_dims": (1,),
        "inserted_window_dims": (inserted,),
        "scatter_dims_to_operand_dims": (inserted,),
        "index_vector_dim": 1,
    }


@pytest.mark.sampled(8)
@pytest.mark.parametrize("combiner", [ADD, LAST])
@pytest.mark.parametrize("width", [1, 2, 3, 16, 17, 50, 96])
@pytest.mark.parametrize("count", [0, 1, 40, 5000])
def test_rows(count: int, width: int, combiner: str) -> None:
    """Updates at indices outside of the operand are skipped, those at equal indices are applied in order."""
    x, i, u = integers((30, width)), integers((count, 1), low=-3, high=34), integers((count, width))
    check(scatter.emit, text([x], i, [u], combiner, **rows()), x, i, u)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64])
def test_index_types(dtype: type) -> None:
    x, u = integers((90, 4)), integers((300, 4))
    i = integers((300, 1), np.int64, -200, 200).astype(dtype)
    check(scatter.emit, text([x], i, [u], ADD, **rows()), x, i, u)


@pytest.mark.parametrize(
    "dtype", [np.bool_, np.int8, np.uint16, np.int64, np.float16, np.float32, np.float64, np.complex64]
)
def test_element_types(dtype: type) -> None:
    x, u = integers((30, 21)).astype(dtype), integers((200, 21)).astype(dtype)
    i = integers((200, 1), low=-3, high=34)
    check(scatter.emit, text([x], i, [u], ADD, **rows()), x, i, u)


@pytest.mark.parametrize("size", [10, 1000, 400000])
def test_single_elements(size: int) -> None:
    x, u = integers((size,)), integers((70000,))
    i = integers((70000,), low=-2, high=size + 2)
    attributes = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
    }
    check(scatter.emit, text([x], i, [u], LAST, **attributes), x, i, u, threads=(1, 2, 4))


def test_windows_of_several_dimensions() -> None:
    """Windows that are partly outside of the operand are skipped."""
    x, u = integers((9, 7, 8)), integers((60, 3, 7, 2))
    i = np.stack([integers((60,), low=-1, high=9), np.roll(integers((60,), low=-1, high=9), 5)], axis=1)
    attributes = {
        "update_window_dims": (1, 2, 3),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (0, 2),
        "index_vector_dim": 1,
    }
    check(scatter.emit, text([x], i, [u], ADD, **attributes), x, i, u)


def test_window_dimensions_before_scatter_dimensions() -> None:
    x, u, i = integers((9, 20)), integers((20, 5, 4)), integers((2, 5, 4), low=0, high=9)
    attributes = {
        "update_window_dims": (0,),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 0,
    }
    i = i[:1]
    check(scatter.emit, text([x], i, [u], ADD, **attributes), x, i, u)


@pytest.mark.parametrize("batch", [3, 40])
def test_batching_dimensions(batch: int) -> None:
    x, u = integers((batch, 50, 6)), integers((batch, 400, 6))
    i = integers((batch, 400, 1), low=-2, high=52)
    attributes = {
        "update_window_dims": (2,), "inserted_window_dims": (1,), "scatter_dims_to_operand_dims": (1,), "input_batching_dims": (0,),
        "scatter_indices_batching_dims": (0,), "index_vector_dim": 2,
    }  # fmt: skip
    check(scatter.emit, text([x], i, [u], ADD, **attributes), x, i, u)


def test_several_operands() -> None:
    x, y, u, v = integers((30, 9)), integers((30, 9)) + 1, integers((8000, 9)), integers((8000, 9)) - 7
    i = integers((8000, 1), low=-3, high=34)
    check(scatter.emit, text([x, y], i, [u, v], SWAP, **rows()), x, y, i, u, v)


@pytest.mark.parametrize("columns", [8, 40])
def test_inserted_minor_dimension(columns: int) -> None:
    """Elements of a window are far apart; if they are many, each is that of all index vectors first."""
    x, u, i = integers((columns, 30)), integers((3000, columns)), integers((3000, 1), low=-3, high=34)
    check(scatter.emit, text([x], i, [u], LAST, **rows(inserted=1)), x, i, u)


def test_far_windows_of_several_operands() -> None:
    """Windows of two dimensions: threads divide the windows."""
    x, y, u, v = integers((5, 9, 30)), integers((5, 9, 30)) + 1, integers((5, 900, 9)), integers((5, 900, 9)) - 7
    i = integers((900, 1), low=-3, high=34)
    attributes = {**rows(inserted=2), "update_window_dims": (0, 2)}
    check(scatter.emit, text([x, y], i, [u, v], SWAP, **attributes), x, y, i, u, v)


def test_large_operands() -> None:
    """Targets are prefetched, including those outside of the operand."""
    x, u, i = integers((20000, 48)), integers((3000, 48)), integers((3000, 1), low=-(2**31), high=2**31 - 1)
    i[::2] = integers((1500, 1), low=0, high=20000)
    check(scatter.emit, text([x], i, [u], ADD, **rows()), x, i, u)


def test_large_copy() -> None:
    x, u, i = integers((400000, 2)), integers((5, 2)), integers((5, 1), low=0, high=34)
    check(scatter.emit, text([x], i, [u], ADD, **rows()), x, i, u)


@pytest.mark.parametrize("threads", [1, 2])
def test_in_place(threads: int) -> None:
    x, u, i = integers((30, 20)), integers((5000, 20)), integers((5000, 1), low=-3, high=34)
    module = text([x], i, [u], ADD, **rows())
    expected = interpreted(module, x, i, u)
    Kernel(scatter.emit, module, threads)(x, i, u, into=[x])
    assert_same([x], expected)


@pytest.mark.parametrize("shape", [(0, 4), (5, 0)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x, u, i = integers(shape), integers((3, shape[1])), integers((3, 1), low=0, high=3)
    check(scatter.emit, text([x], i, [u], ADD, **rows()), x, i, u)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("combiner", ["maximum(a0, b0)", "minimum(b0, a0)", "maximum(b0, b0)"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int8, np.uint32, np.bool_])
def test_extrema_of_many(dtype: type, combiner: str) -> None:
    """Few updates change the extremum; among them are NaN, zeros of either sign, and ties."""
    rng = np.random.default_rng(3)
    x, i, u = np.zeros(5, dtype), rng.integers(-1, 6, (400, 1)).astype(np.int32), rng.integers(0, 9, 400).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        u = rng.permutation(np.concatenate([u[:397] - dtype(4), np.array([np.nan, -0.0, -0.0], dtype)])).astype(dtype)
        u[i[:, 0] == 2] = rng.choice(np.array([-0.0, 0.0], dtype), (i[:, 0] == 2).sum())
        x[2] = -0.0
    attributes = {**rows(), "update_window_dims": ()}
    check(scatter.emit, text([x], i, [u], f"ROOT r = T[] {combiner}", **attributes), x, i, u)


@pytest.mark.parametrize("combiner", [ADD, LAST])
@pytest.mark.parametrize(
    "width", [16, pytest.param(3, marks=pytest.mark.long), pytest.param(50, marks=pytest.mark.long)]
)
def test_bins_keep_the_order_of_updates(width: int, combiner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index vectors that are sorted into parts of a large operand; those outside of it are skipped."""
    monkeypatch.setattr(plan, "MIN_BINNED_BYTES", 0)
    monkeypatch.setattr(plan, "MIN_BINNED_ROW_BYTES", 0)
    x, i, u = integers((300, width)), integers((5000, 1), low=-3, high=310), integers((5000, width))
    program = text([x], i, [u], combiner, **rows())
    check(scatter.emit, program, x, i, u)
    assert ".sort(" in Kernel(scatter.emit, program, threads=2).text


def test_bins_of_two_operands_and_two_indices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_BINNED_BYTES", 0)
    monkeypatch.setattr(plan, "MIN_BINNED_ROW_BYTES", 0)
    x, y = integers((20, 30, 5)), integers((20, 30, 5), low=0)
    i, u, v = integers((4000, 2), low=-2, high=32), integers((4000, 5)), integers((4000, 5), low=1)
    attributes = {
        "update_window_dims": (1,), "inserted_window_dims": (0, 1), "scatter_dims_to_operand_dims": (1, 0),
        "index_vector_dim": 1,
    }  # fmt: skip
    program = text([x, y], i, [u, v], SWAP, **attributes)
    check(scatter.emit, program, x, y, i, u, v)
    assert ".sort(" in Kernel(scatter.emit, program, threads=2).text


SINGLE = {**rows(), "update_window_dims": ()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("combiner", ["add(a0, b0)", "minimum(b0, a0)", "xor(a0, b0)"])
@pytest.mark.parametrize("shape", [(1,), (37,), (1000,), (100, 3), (50, 16)])
def test_copies_of_a_small_operand(shape: tuple[int, ...], combiner: str) -> None:
    """Shares of the index vectors, some of which are outside of the operand, are applied to copies of it."""
    x, i, u = integers(shape), integers((70000, 1), low=-2, high=shape[0] + 2), integers((70000, *shape[1:]))
    program = text([x], i, [u], f"ROOT r = T[] {combiner}", **rows() if shape[1:] else SINGLE)
    check(scatter.emit, program, x, i, u, threads=(1, 2, 4))
    assert _copies(program) == min(16, u.size // (8 * x.size))


def _copies(program: str, **options: Any) -> int:
    """The number of copies of the operand."""
    root = hl.parse(program).entry.root
    assert isinstance(root.op, Scatter)
    copies = plan.plan_scatter(root.op, root, Target(64, 2, **options)).copies
    return copies.count if copies is not None else 1


def test_sums_in_copies() -> None:
    """Sums have the same bits on any number of threads; -0.0, infinities and NaN are kept; in place."""
    rng = np.random.default_rng(5)
    i = np.concatenate([rng.integers(-1, 9, 69997), [10, 11, 12]]).astype(np.int32)
    x, u = np.full(13, -0.0, np.float32), rng.standard_normal(70000, np.float32)
    u[-3:] = -0.0, -np.inf, np.nan
    program = text([x], i[:, None], [u], ADD, **SINGLE)
    ran = [Kernel(scatter.emit, program, threads)(x, i[:, None], u)[0] for threads in (1, 2, 4)]
    in_place = x.copy()
    Kernel(scatter.emit, program, 2)(in_place, i[:, None], u, into=[in_place])
    assert len({result.tobytes() for result in (*ran, in_place)}) == 1
    sums = [np.sum(u[i == row], dtype=np.float64) for row in range(9)]
    np.testing.assert_allclose(ran[0][:9], sums, rtol=1e-5, atol=1e-4)
    assert np.signbit(ran[0][9:11]).all()
    np.testing.assert_array_equal(ran[0][9:], np.array([0, 0, -np.inf, np.nan], np.float32))


@pytest.mark.parametrize("combiner", ["subtract(a0, b0)", "copy(b0)", "add(a0, a0)"])
def test_updates_with_an_order_have_no_copies(combiner: str) -> None:
    x, i, u = integers((10,)), integers((70000, 1), low=0, high=10), integers((70000,))
    assert _copies(text([x], i, [u], f"ROOT r = T[] {combiner}", **SINGLE)) == 1


@pytest.mark.parametrize(("dtype", "count"), [(np.float32, 16), (np.float16, 1), (np.int8, 16), (np.complex64, 16)])
def test_sums_in_copies_are_of_32_bits_or_exact(dtype: type, count: int) -> None:
    """Sums of f16 may stop growing, which depends on their order; so do batch-invariant ones."""
    x, i, u = np.zeros(10, dtype), integers((70000, 1), low=0, high=10), np.ones(70000, dtype)
    program = text([x], i, [u], ADD, **SINGLE)
    assert _copies(program) == count
    assert _copies(program, batch_invariant=True) == 1
    assert _copies(text([x], i[:60000], [u[:60000]], ADD, **SINGLE)) == 1  # too little work
