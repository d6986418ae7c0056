"""Operations that give elements another shape: cases beyond the specification's examples."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import hloom as hl
from built import built, evaluate, shape_of


def test_a_bitcast_to_another_width_adds_or_removes_a_dimension(backend: str) -> None:
    """BITCASTCONVERT-5: an element of one side is several of the other, so it is not element-wise."""
    x = np.array([1.0, -2.5, 3.0], np.float32)
    halves = evaluate(backend, lambda b, x: b.bitcast_convert_type(x, "u16"), x)
    assert halves.shape == (3, 2) and halves.tobytes() == x.tobytes()
    assert evaluate(backend, lambda b, x: b.bitcast_convert_type(x, "f32"), halves).tolist() == x.tolist()
    same, wider = (built(lambda b, x, t=t: b.bitcast_convert_type(x, t), x) for t in ("u32", "u16"))
    assert same.entry_computation.result_shape.dimensions == (3,)
    assert wider.entry_computation.result_shape.dimensions == (3, 2)


def test_named_dimensions_are_kept_and_others_repeat(backend: str) -> None:
    """BROADCASTINDIM-1."""
    x = np.array([[1], [2], [3]], np.float32)
    found = evaluate(backend, lambda b, x: b.broadcast_in_dim(x, (2, 3, 4), (1, 2)), x)
    assert np.array_equal(found, np.broadcast_to(x, (2, 3, 4)))


BROADCAST = (
    "HloModule m\nENTRY e {{ x = f32[{size},3] parameter(0)\n ROOT r = f32[3,2] broadcast(x), dimensions={{{d}}} }}"
)


def test_the_broadcast_of_text_may_transpose(backend: str) -> None:
    """BROADCASTINDIM-4: entries are distinct; a size of 1 grows, another is kept."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert np.array_equal(hl.compile(BROADCAST.format(size=2, d="1,0"), backend=backend)(x), x.T)
    with pytest.raises(hl.RuleError):
        hl.parse(BROADCAST.format(size=3, d="1,0"))
    with pytest.raises(hl.RuleError):
        hl.parse(BROADCAST.format(size=2, d="1,1"))


def test_consecutive_dimensions_are_collapsed_into_one(backend: str) -> None:
    """COLLAPSE-1: the lowest number varies slowest."""
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    found = evaluate(backend, lambda b, x: b.collapse(x, (1, 2)), x)
    assert found.shape == (2, 12, 5)
    assert all(found[i, 4 * j + k, m] == x[i, j, k, m] for i, j, k, m in np.ndindex(x.shape))


def test_arrays_are_joined_in_order_and_fit_elsewhere(backend: str) -> None:
    """CONCATENATE-1."""
    x, y, z = (np.full((2, n), n, np.float32) for n in (1, 3, 2))
    found = evaluate(backend, lambda b, *x: b.concat_in_dim(x, 1), x, y, z)
    assert found.tolist() == [[1, 3, 3, 3, 2, 2]] * 2
    assert shape_of(lambda b, x: b.concat_in_dim([x], 1), x) == "f32[2,1]"
    with pytest.raises(hl.RuleError, match="CONCATENATE"):
        built(lambda b, *x: b.concat_in_dim(x, 0), x, y)
    with pytest.raises(hl.RuleError):
        built(lambda b, *x: b.concat_in_dim(x, 1), x, y.astype(np.int32))
    with pytest.raises(hl.RuleError):
        built(lambda b: b.concat_in_dim([], 0))


def test_a_slice_starts_at_run_time_indices(backend: str) -> None:
    """DYNAMICSLICE-1: [start, start + size) in each dimension."""
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    run = hl.compile(built(lambda b, x, i, j: b.dynamic_slice(x, [i, j], (2, 3)), x, np.int32(0), np.int32(0)), backend)
    for i, j in np.ndindex(4, 4):
        assert np.array_equal(run(x, np.int32(i), np.int32(j)), x[i : i + 2, j : j + 3])


def test_a_reshape_takes_only_sizes() -> None:
    """RESHAPE-5: no order of dimensions; who wants one transposes first."""
    assert list(inspect.signature(hl.XlaBuilder.reshape).parameters) == ["self", "operand", "dimensions"]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluate("interpreter", lambda b, x: b.reshape(b.transpose(x, (1, 0)), (6,)), x)
    assert found.tolist() == [0, 3, 1, 4, 2, 5]


def test_a_dimension_gets_its_size_at_run_time_below_its_bound(backend: str) -> None:
    """SETDIMENSIONSIZE-1."""
    x = np.arange(10, dtype=np.float32)
    assert shape_of(lambda b, x, n: b.set_dimension_size(x, n, 0), x, np.int32(0)) == "f32[<=10]"
    run = hl.compile(built(lambda b, x, n: b.set_dimension_size(x, n, 0), x, np.int32(0)), backend=backend)
    for size in (0, 3, 10):
        assert np.asarray(run(x, np.int32(size))).tolist() == x[:size].tolist()


def test_the_elements_of_a_tuple_are_extracted(backend: str) -> None:
    """TUPLE-2."""
    x, y = np.arange(3, dtype=np.float32), np.int32(7)

    def program(b: hl.XlaBuilder, x: hl.XlaOp, y: hl.XlaOp) -> hl.XlaOp:
        outer = b.tuple(b.tuple(x, y), x)
        inner = b.get_tuple_element(outer, 0)
        return b.tuple(b.get_tuple_element(inner, 1), b.get_tuple_element(inner, 0))

    found = evaluate(backend, program, x, y)
    assert int(found[0]) == 7 and found[1].tolist() == [0, 1, 2]
