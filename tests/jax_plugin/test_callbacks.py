"""Python functions called from programs that JAX lowers for hloom."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import hloom as hl

jax = pytest.importorskip("jax", reason="needs JAX")
from jax.experimental import io_callback  # noqa: E402

from jax_plugin.lowered_programs import Lowered, run  # noqa: E402

X = np.arange(4, dtype=np.float32)


def test_a_pure_callback_returns_arrays() -> None:
    def function(x: Any) -> Any:
        return jax.pure_callback(lambda v: np.sin(v) * 2, x, x) + 1

    np.testing.assert_allclose(run(function, X)[0], np.sin(X) * 2 + 1, rtol=1e-6)


def test_a_callback_may_return_several_results_or_none_and_take_none() -> None:
    seen: list[str] = []

    def function(x: Any) -> Any:
        jax.debug.callback(lambda: seen.append("called"))
        small = jax.ShapeDtypeStruct((2,), np.int32)
        return jax.pure_callback(lambda v: (v.sum(), np.array([1, 2], np.int32)), (x[0], small), x)

    total, pair = run(function, X)
    assert total == 6 and pair.tolist() == [1, 2] and seen == ["called"]


def test_ordered_callbacks_run_in_the_order_of_the_program() -> None:
    seen: list[Any] = []

    def function(x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            io_callback(lambda k: seen.append(int(k)), None, i, ordered=True)
            return carry + 1

        io_callback(lambda: seen.append("first"), None, ordered=True)
        x = jax.lax.fori_loop(0, 3, body, x)
        io_callback(lambda v: seen.append(float(v)), None, x[0], ordered=True)
        return x

    assert run(function, X)[0].tolist() == [3, 4, 5, 6]
    assert seen == ["first", 0, 1, 2, 3.0]


def test_debug_print_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        jax.debug.print("x is {}", x[1])
        jax.debug.print("then {y}", y=x[2], ordered=True)
        return x

    run(function, X)
    assert sorted(capsys.readouterr().out.splitlines()) == ["then 2.0", "x is 1.0"]


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap_of_a_pure_callback(method: str) -> None:
    def one(v: Any) -> Any:
        return jax.pure_callback(lambda a: np.asarray(a) + 1, v, v, vmap_method=method)

    assert run(jax.vmap(one), X)[0].tolist() == [1, 2, 3, 4]


def test_arguments_may_be_kept() -> None:
    """Arguments are copies: the program goes on to write over its memory."""
    kept: list[Any] = []

    def function(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, c: (jax.debug.callback(kept.append, c), c * 2)[1], x)

    run(function, X)
    assert [np.asarray(a).tolist() for a in kept] == [[0, 1, 2, 3], [0, 2, 4, 6], [0, 4, 8, 12]]


def test_an_error_in_a_callback_ends_the_program_with_its_message() -> None:
    def function(x: Any) -> Any:
        def unlucky(v: Any) -> Any:
            raise ValueError("no luck")

        return jax.pure_callback(unlucky, x, x)

    lowered = Lowered(function, X)
    with pytest.raises(hl.RunError, match=r"(?s)a Python callback raised ValueError: no luck.*in unlucky"):
        lowered(X)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.zeros(3, np.float32), r"Incorrect output shape for return value #0: Expected: \(4,\), Actual: \(3,\)"),
        (np.zeros(4, np.int32), "Incorrect output dtype for return value #0: Expected: float32, Actual: int32"),
        ((X, X), "Mismatched number of outputs from callback. Expected: 1, Actual: 2"),
    ],
)
def test_results_are_checked(value: Any, message: str) -> None:
    with pytest.raises(hl.RunError, match=message):
        run(lambda x: jax.pure_callback(lambda v: value, x, x), X)


def test_a_callback_may_run_its_own_program() -> None:
    programs: list[Lowered] = []

    def countdown(v: Any) -> Any:
        value = np.asarray(v)
        return value if value[0] <= 0 else programs[0](value - 1)[0]

    programs.append(Lowered(lambda x: jax.pure_callback(countdown, x, x) + 1, X))
    assert programs[0](np.full(4, 3, np.float32))[0].tolist() == [4, 4, 4, 4]


@pytest.mark.usefixtures("older_objects_frozen")
def test_a_callback_lives_as_long_as_the_executable() -> None:
    class Function:
        def __call__(self, v: Any) -> Any:
            return np.asarray(v)

    function = Function()
    alive = weakref.ref(function)
    lowered = Lowered(lambda x, f=function: jax.pure_callback(f, x, x), X)
    executable = lowered.executable
    del function
    jax.clear_caches()
    gc.collect()
    assert alive() is not None and lowered(X)[0].tolist() == X.tolist()
    del lowered
    jax.clear_caches()
    gc.collect()
    assert alive() is None
    with pytest.raises(hl.RunError, match="lives as long as the executable"):
        executable(X)
