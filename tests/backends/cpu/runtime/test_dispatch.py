"""Arguments and results of compiled programs: whatever a caller passes, the outcome is the interpreter's."""

from __future__ import annotations

import pickle
import sys
import threading
import time
from collections.abc import Callable
from types import BuiltinFunctionType, FrameType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.executable import CpuExecutable
from hloom.backends.cpu.runtime.dispatch import DOES_NOT_FIT, bound_call, layout_is_known

TEXT = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  n = s32[2,3] parameter(1)
  f = f32[2,3] convert(n)
  ROOT r = f32[2,3] add(x, f)
}"""
NESTED = """HloModule m
ENTRY e {
  t = ((f32[3], s32[]), f32[3]) parameter(0)
  y = pred[2] parameter(1)
  p = (f32[3], s32[]) get-tuple-element(t), index=0
  x = f32[3] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  z = f32[3] get-tuple-element(t), index=1
  a = f32[3] add(x, z)
  e = () tuple()
  i = (pred[2], s32[], ()) tuple(y, n, e)
  ROOT r = (f32[3], (pred[2], s32[], ())) tuple(a, i)
}"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.arange(6, dtype=np.int32).reshape(2, 3)


class Sub(np.ndarray):
    """An array of another class."""


class Foreign:
    """Something that can be made an array."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return X


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.empty(array.nbytes + 1, np.uint8)
    found = memory[1:].view(array.dtype).reshape(array.shape)
    found[...] = array
    assert not found.flags.aligned
    return found


def outcome(run: Callable[[], Any]) -> Any:
    """The results as lists with their types and sizes, or the class and message of the error."""
    try:
        return described(run())
    except hl.HloomError as error:
        return type(error), str(error)


def described(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(described, value))
    assert type(value) is np.ndarray and value.flags.c_contiguous and value.flags.writeable and value.flags.owndata
    # The unused bits of narrow integers are open.
    values = value.astype(np.int8) if value.dtype == ml_dtypes.int4 else value
    return value.dtype, value.shape, values.tobytes()


def check(text: str, *arguments: Any) -> Any:
    """Checks that the backends give the same, whether it is a result or an error."""
    executable = hl.compile(text, backend="cpu")
    got = outcome(lambda: executable(*arguments))
    assert got == outcome(lambda: hl.compile(text, backend="interpreter")(*arguments))
    assert got == outcome(lambda: executable(*arguments)), "and once more"
    return got


def test_arrays_lie_in_memory_as_expected() -> None:
    assert layout_is_known()


def test_the_layout_is_known_while_a_debugger_traces() -> None:
    """A trace function allocates between any two lines."""
    before = sys.gettrace()
    kept: list[Any] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        kept.append(np.ones((2, 3), np.float32))
        return trace

    sys.settrace(trace)
    try:
        assert layout_is_known.__wrapped__()
    finally:
        sys.settrace(before)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((X, N), id="dense"),
        pytest.param((np.asfortranarray(X), N), id="fortran"),
        pytest.param((np.repeat(X, 2, axis=1)[:, ::2], N), id="strided"),
        pytest.param((X[::-1], N[:, ::-1]), id="reversed"),
        pytest.param((np.broadcast_to(np.float32(3), (2, 3)), N), id="broadcast"),
        pytest.param((unaligned(X), unaligned(N)), id="unaligned"),
        pytest.param((np.frombuffer(X.tobytes(), np.float32).reshape(2, 3), N), id="read-only"),
        pytest.param((X.view(Sub), N), id="subclass"),
        pytest.param((np.ma.array(X), N), id="masked"),
        pytest.param((X.tolist(), N.tolist()), id="lists"),
        pytest.param((Foreign(), N), id="foreign"),
        pytest.param((X, pickle.loads(pickle.dumps(N))), id="unpickled"),
        pytest.param((X.astype(">f4"), N), id="big-endian"),
    ],
)
def test_arguments_of_all_kinds(arguments: tuple[Any, ...]) -> None:
    before = [np.array(a) for a in arguments]
    dtype, shape, _ = check(TEXT, *arguments)
    assert (dtype, shape) == (np.float32, (2, 3))
    for argument, old in zip(arguments, before):
        np.testing.assert_array_equal(argument, old)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "takes 2 arguments"),
        ((X,), "takes 2 arguments"),
        ((X, N, N), "takes 2 arguments"),
        ((X.astype(np.float64), N), "element type f32"),
        ((X, X), "element type s32"),
        ((X.reshape(6), N), "has shape"),
        ((X.reshape(1, 2, 3), N), "has shape"),
        ((X.T, N), "has shape"),
        ((X[:1], N), "has shape"),
        ((X, 7), "has shape"),
        ((None, N), ""),
        (("text", N), ""),
        ((X, (N,)), ""),
        ((X.astype(object), N), ""),
    ],
)
def test_arguments_that_do_not_fit_are_errors(arguments: tuple[Any, ...], message: str) -> None:
    error, text = check(TEXT, *arguments)
    assert issubclass(error, hl.HloomError) and message in text


def test_tuples_are_taken_apart_and_put_together() -> None:
    x, n, y = np.float32([1, 2, 3]), np.int32(7), np.array([True, False])
    check(NESTED, ((x, n), x), y)
    check(NESTED, [[x.tolist(), 7], x], [True, False])
    for wrong in ((((x,), x), y), ((x, x), y), (((x, n, n), x), y), (((x, n), x), ((y,),))):
        assert check(NESTED, *wrong)[0] is hl.ArgumentError


@pytest.mark.parametrize("element", ["bf16", "f16", "f8e4m3fn", "s4", "u8", "pred", "c64"])
def test_elements_of_all_widths(element: str) -> None:
    operation = "not" if element == "pred" else "negate"
    text = f"HloModule m\nENTRY e {{ x = {element}[5] parameter(0)\n ROOT r = {element}[5] {operation}(x) }}"
    dtype = hl.parse(text).entry.parameter_shapes[0].element_type.dtype
    check(text, np.array([0, 1, 1, 0, 1]).astype(dtype))
    # An equal element type need not be the same object.
    check(text, np.frombuffer(np.zeros(5, dtype).tobytes(), np.dtype(dtype.type)))
    check(text, np.zeros(5, np.float64))


@pytest.mark.parametrize("sizes", ["", "0", "3,0", "1", "1,1,1"])
def test_scalars_and_arrays_without_elements(sizes: str) -> None:
    text = f"HloModule m\nENTRY e {{ x = f32[{sizes}] parameter(0)\n ROOT r = f32[{sizes}] negate(x) }}"
    shape = tuple(int(s) for s in sizes.split(",") if s)
    check(text, np.ones(shape, np.float32))
    check(text, np.ones((*shape, 2), np.float32))
    check(text, np.float32(1))
    check(text, 1.5)


def test_many_parameters_and_results() -> None:
    count = 300
    lines = [f"p{k} = s32[{k % 3}] parameter({k})\nn{k} = s32[{k % 3}] negate(p{k})" for k in range(count)]
    shapes = ", ".join(f"s32[{k % 3}]" for k in range(count))
    root = f"ROOT r = ({shapes}) tuple({', '.join(f'n{k}' for k in range(count))})"
    text = "HloModule m\nENTRY e {\n" + "\n".join([*lines, root]) + "\n}"
    arrays = [np.full(k % 3, k, np.int32) for k in range(count)]
    check(text, *arrays)
    assert check(text, *arrays[1:], arrays[0])[0] is hl.ArgumentError


def test_results_are_new_each_time_and_arguments_stay() -> None:
    """Also where the program would give its argument back, or give one value twice."""
    same = "HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT r = (f32[4], f32[4]) tuple(x, x) }"
    run = hl.compile(same, backend="cpu")
    x = np.ones(4, np.float32)
    (a, b), (c, _) = run(x), run(x)
    for result in (a, b, c):
        result += 1
    assert x.tolist() == [1] * 4
    assert a.tolist() == b.tolist() == c.tolist() == [2] * 4
    (constant,) = (
        hl.compile("HloModule m\nENTRY e { ROOT r = f32[2] constant({1, 2}) }", backend="cpu")() for _ in "1"
    )
    constant += 1


def test_a_constant_result_is_the_callers_own() -> None:
    run = hl.compile("HloModule m\nENTRY e { ROOT r = f32[2] constant({1, 2}) }", backend="cpu")
    first = run()
    first += 1
    assert run().tolist() == [1, 2]


def test_an_executable_may_be_called_after_its_results_and_arguments_are_freed() -> None:
    run = hl.compile(TEXT, backend="cpu")
    assert isinstance(run, CpuExecutable)
    for _ in range(1000):
        assert run(X.copy(), N.copy())[1, 2] == 10


def test_the_entry_is_a_function_of_python_that_refuses_other_arguments() -> None:
    run = hl.compile(TEXT, backend="cpu")
    assert isinstance(run, CpuExecutable)
    call, result = run._call, np.zeros_like(X)
    assert isinstance(call, BuiltinFunctionType)
    for given in ((), ((X, N),), ((X,), (result,)), ((N, X), (result,)), ((X, N), (result,), ())):
        assert call(*given) == DOES_NOT_FIT
    assert not result.any()
    assert call((X, N), (result,)) == 0
    assert result.tolist() == (X + N).tolist()


def test_the_entry_keeps_its_template() -> None:
    run = hl.compile(TEXT, backend="cpu")
    assert isinstance(run, CpuExecutable)
    template = run._template.copy()
    count = sys.getrefcount(template)
    call = bound_call(template)
    assert sys.getrefcount(template) == count + 1
    del call
    assert sys.getrefcount(template) == count


def test_other_threads_run_python_during_long_programs_alone() -> None:
    product = "HloModule m\nENTRY e {\n  x = f64[1500,1500] parameter(0)\n  ROOT r = f64[1500,1500] dot(x, x), \
lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}"
    run, brief = hl.compile(product, backend="cpu"), hl.compile(TEXT, backend="cpu")
    assert isinstance(run, CpuExecutable) and isinstance(brief, CpuExecutable)
    assert (run._template[1], brief._template[1]) == (0, 1)
    thread, counted = threading.Thread(target=run, args=(np.ones((1500, 1500)),)), 0
    thread.start()
    while thread.is_alive():
        counted += 1
        time.sleep(1e-3)
    assert counted > 3
