"""Arguments of executables: accepted values, and the errors for all others."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest

import hloom as hl
from hloom.errors import ResourceExhaustedError

TEXT = """HloModule m
ENTRY e { x = f32[2,3] parameter(0)
  t = (s32[], pred[2]) parameter(1)
  ROOT r = (f32[2,3], s32[]) tuple(x, n)
}"""
TEXT = TEXT.replace("  ROOT", "  n = s32[] get-tuple-element(t), index=0\n  ROOT")


NESTED: list[object] = []
for _ in range(3000):
    NESTED = [NESTED]


def test_shapes_are_reported() -> None:
    executable = hl.compile(TEXT)
    assert list(map(str, executable.input_shapes)) == ["f32[2,3]", "(s32[], pred[2])"]
    assert str(executable.output_shape) == "(f32[2,3], s32[])"


def test_python_scalars_lists_and_foreign_arrays_are_accepted() -> None:
    class Foreign:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            return np.ones((2, 3), np.float32)

    x, n = hl.compile(TEXT)(Foreign(), (7, [True, False]))
    assert x.sum() == 6 and n == 7 and n.dtype == np.int32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], r"takes 2 arguments \(%x: f32\[2,3\], %t: \(s32\[\], pred\[2\]\)\), got 0"),
        ([np.ones((2, 3)), (1, [True, True])], r"argument 0 \(%x\) has element type f32, got float64\[2, 3\]"),
        (
            [np.ones((3, 2), np.float32), (1, [True, True])],
            r"argument 0 \(%x\) has shape f32\[2,3\], got float32\[3, 2\]",
        ),
        ([np.ones((2, 3), np.float32), 1], r"argument 1 \(%t\) takes a tuple"),
        (
            [np.ones((2, 3), np.float32), (2**40, [True, True])],
            r"argument 1 \(%t\)\[0\] has shape s32\[\], got 1099511627776",
        ),
        (
            [None, (1, [True, True])],
            r"argument 0 \(%x\) has shape f32\[2,3\], got NoneType: there is no element type for arrays of object",
        ),
        (
            [[[1, 2, 3]] * 2, (1.5, [True, False])],
            r"argument 1 \(%t\)\[0\] has shape s32\[\], got 1.5: int32 cannot hold",
        ),
        (
            [[[1, 2, 3]] * 2, (1, [2, 0])],
            r"argument 1 \(%t\)\[1\] has shape pred\[2\], got a list of 2: bool cannot hold",
        ),
        ([[["1", "2", "3"]] * 2, (1, [True, False])], r"got a list of 2: float32 cannot hold every value"),
        ([[[1, None, 3]] * 2, (1, [True, False])], r"got a list of 2: float32 cannot hold every value"),
        ([NESTED, (1, [True, False])], r"argument 0 \(%x\) has shape f32\[2,3\], got a list of 1: "),
        ([10**5000, (1, [True, False])], r"argument 0 \(%x\) has shape f32\[2,3\], got int: int too large"),
        (
            [np.ma.masked_equal(np.ones((2, 3), np.float32), 1), (1, [True, False])],
            r"has shape f32\[2,3\], got float32\[2, 3\]: a masked array has elements without a value: give array.filled",
        ),
    ],
)
def test_arguments_that_do_not_fit(arguments: list[object], message: str) -> None:
    with pytest.raises(hl.ArgumentError, match=message):
        hl.compile(TEXT)(*arguments)


class Guarded(np.ndarray):
    """An array with operators of its own."""

    def __array_ufunc__(self, *arguments: object, **options: object) -> object:
        raise AssertionError("an operator of a subclass")

    def __array_function__(self, *arguments: object, **options: object) -> object:
        raise AssertionError("a function of a subclass")


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("kind", [np.matrix, np.ma.MaskedArray, Guarded])
def test_arrays_of_subclasses_are_their_elements(kind: type, backend: str) -> None:
    text = "ENTRY e { x = f32[2,2] parameter(0)\n y = f32[2,2] multiply(x, x)\n ROOT r = f32[4] reshape(y) }"
    x = np.array([[1, 2], [3, 4]], np.float32)
    result = hl.compile(text, backend)(x.view(kind))
    assert type(result) is np.ndarray and result.tolist() == [1, 4, 9, 16]
    again = hl.compile(text.replace("multiply(x, x)", "copy(x)"), backend)(x.view(kind))
    assert type(again) is np.ndarray and again.tolist() == [1, 2, 3, 4]


def test_dynamic_parameters_take_any_size_up_to_the_bound_and_results_come_at_their_size() -> None:
    """SETDIMENSIONSIZE-6."""
    run = hl.compile("HloModule m\nENTRY e { x = f32[<=4] parameter(0)\n ROOT y = f32[<=4] negate(x) }")
    assert run(np.ones(3, np.float32)).shape == (3,)
    with pytest.raises(hl.ArgumentError, match=r"has shape f32\[<=4\]"):
        run(np.ones(5, np.float32))


def test_element_wise_operands_of_different_actual_sizes_are_an_error() -> None:
    """SETDIMENSIONSIZE-3."""
    text = (
        "HloModule m\nENTRY e { x = f32[<=4] parameter(0)\n y = f32[<=4] parameter(1)\n ROOT z = f32[<=4] add(x, y) }"
    )
    with pytest.raises(hl.RunError, match="SETDIMENSIONSIZE-3"):
        hl.compile(text)(np.ones(3, np.float32), np.ones(2, np.float32))


def test_the_step_limit_stops_an_endless_loop() -> None:
    b = hl.XlaBuilder()
    loop = b.while_(lambda x: x >= 0, lambda x: x * 1, b.constant(0))
    with pytest.raises(hl.RunError, match="step limit of 500"):
        hl.compile(b.build(loop), "interpreter", step_limit=500)()


def test_inputs_are_not_changed_and_results_may_be_written_to_files() -> None:
    b = hl.XlaBuilder()
    x = b.parameter(0, hl.f32[4])
    run = hl.compile(b.build(b.dynamic_update_slice(x, np.zeros(2, np.float32), [1])))
    given = np.ones(4, np.float32)
    assert run(given).tolist() == [1, 0, 0, 1] and given.tolist() == [1, 1, 1, 1]


def test_rng_is_reproducible_with_a_seed_and_not_without() -> None:
    """RNGNORMAL-3, RNGUNIFORM-1."""
    b = hl.XlaBuilder()
    computation = b.build(b.rng_uniform(2.0, 3.0, hl.f32[1000]))
    first, again, other = (hl.compile(computation, seed=s)() for s in (1, 1, 2))
    assert np.array_equal(first, again) and not np.array_equal(first, other)
    assert first.min() >= 2 and first.max() < 3 and abs(first.mean() - 2.5) < 0.05
    assert not np.array_equal(hl.compile(computation)(), hl.compile(computation)())


def nested(depth: int, calls: int) -> str:
    """Computations that call the one before `calls` times."""
    parts = ["HloModule m", "c0 { ROOT x = f32[] parameter(0) }"]
    for level in range(1, depth):
        lines = [f"x = f32[] parameter(0)\n y0 = f32[] call(x), to_apply=c{level - 1}"]
        lines += [f"y{k} = f32[] call(y{k - 1}), to_apply=c{level - 1}" for k in range(1, calls)]
        lines[-1] = "ROOT " + lines[-1] if calls > 1 else lines[-1].replace("y0", "ROOT y0")
        name = f"c{level}" if level < depth - 1 else "ENTRY e"
        parts.append(name + " { " + "\n ".join(lines) + " }")
    return "\n".join(parts)


def test_deeply_nested_calls_are_an_error_and_not_a_crash() -> None:
    run = hl.compile(nested(3000, 1), "interpreter")
    with pytest.raises(hl.RunError, match="too deeply"):
        run(np.float32(1))


def test_computations_shared_by_many_calls_take_linear_time_to_compile() -> None:
    assert hl.compile(nested(60, 2)).input_shapes == [hl.f32[()]]


def test_results_are_arrays_of_their_own() -> None:
    text = "HloModule m\nENTRY e { x = f32[3] parameter(0)\n b = f32[2,3] broadcast(x), dimensions={1}\n"
    text += " t = (f32[3]) tuple(x)\n ROOT r = (f32[3], f32[2,3], (f32[3])) tuple(x, b, t) }"
    given = np.ones(3, np.float32)
    x, b, (y,) = hl.compile(text)(given)
    x += 1
    b[0, 0] = 5
    y += 2
    assert given.tolist() == [1, 1, 1] and x.tolist() == [2, 2, 2] and b[1, 0] == 1 and y.tolist() == [3, 3, 3]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_results_larger_than_any_memory_are_an_error(backend: str) -> None:
    text = "HloModule m\nENTRY e {\n  p = f32[] parameter(0)\n  ROOT b = f32[1048576,1048576,16] broadcast(p), dimensions={}\n}"
    with pytest.raises(ResourceExhaustedError, match="no memory") as raised:
        hl.compile(text, backend=backend)(np.float32(1))
    if backend == "cpu":
        assert "70,368,744,177,664 bytes: %b = f32[1048576,1048576,16] broadcast(%p)" in str(raised.value)


MANY_DIMENSIONS = ",".join("1" * 65)


@pytest.mark.parametrize(
    "text",
    [
        f"ENTRY e {{ x = f32[] parameter(0)  ROOT y = f32[{MANY_DIMENSIONS}] broadcast(x), dimensions={{}} }}",
        f"ENTRY e {{ y = f32[{MANY_DIMENSIONS}] parameter(0)  ROOT x = f32[] reshape(y) }}",
    ],
)
def test_arguments_and_results_have_as_many_dimensions_as_numpy(backend: str, text: str) -> None:
    with pytest.raises(hl.ArgumentError, match="at most 64 dimensions, the value of %y has 65"):
        hl.compile(f"HloModule m  {text}", backend=backend)


def test_other_values_may_have_more_in_native_code() -> None:
    text = f"""HloModule m  ENTRY e {{
      x = f32[] parameter(0)
      y = f32[{MANY_DIMENSIONS}] broadcast(x), dimensions={{}}
      ROOT z = f32[] reshape(y)
    }}"""
    assert hl.compile(text)(np.float32(3)) == 3
    with pytest.raises(hl.ArgumentError, match="the value of %y has 65"):
        hl.compile(text, backend="interpreter")


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_executables_are_not_copied(backend: str, copied: Callable[[object], object]) -> None:
    run = hl.compile("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }", backend=backend)
    with pytest.raises(hl.ArgumentError, match="pickle or copy its module"):
        copied(run)
