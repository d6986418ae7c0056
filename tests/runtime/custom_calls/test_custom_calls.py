"""Custom calls: Python functions, C functions, and the LAPACK targets of JAX's CPU lowering (CUSTOMCALL-1 to -6)."""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.runtime.buffers import release_cached
from hloom.runtime.custom_calls.registry import CustomCallSite, parse_attributes


def call(target: str, args: list[np.ndarray], shape: str, config: str = "") -> object:
    b = hl.XlaBuilder()
    operands = [b.parameter(i, hl.Literal.from_numpy(a).shape) for i, a in enumerate(args)]
    from hloom.text import parse_shape

    return hl.compile(b.build(b.custom_call(target, operands, parse_shape(shape), opaque=config)))(*args)


def test_a_c_function_gets_the_buffers_of_the_specification() -> None:
    """CUSTOMCALL-2, CUSTOMCALL-3: z[0][0] = x[1] + y[1][0]."""

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
    def myfunc(out: int, ins: object) -> None:
        x = ctypes.cast(ins[0], ctypes.POINTER(ctypes.c_float))  # type: ignore[index]
        y = ctypes.cast(ins[1], ctypes.POINTER(ctypes.c_float))  # type: ignore[index]
        ctypes.cast(out, ctypes.POINTER(ctypes.c_float))[0] = x[1] + y[3]

    hl.register_custom_call("c_myfunc", myfunc, api="c")
    x, y = np.array([1, 2], np.float32), np.array([[10, 20, 30], [40, 50, 60]], np.float32)
    z = call("c_myfunc", [x, y], "f32[3,3]")
    assert z[0, 0] == 42 and z.sum() == 42  # type: ignore[index, attr-defined]


def test_a_c_function_with_tuples_gets_arrays_of_pointers() -> None:
    """CUSTOMCALL-5."""

    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)
    def two(out: object, ins: object) -> None:
        ctypes.cast(out[0], ctypes.POINTER(ctypes.c_int))[0] = 7  # type: ignore[index]
        ctypes.cast(out[1], ctypes.POINTER(ctypes.c_double))[1] = 0.5  # type: ignore[index]

    hl.register_custom_call("c_two", two, api="c")
    a, b = call("c_two", [], "(s32[], f64[2])")  # type: ignore[misc]
    assert a == 7 and b.tolist() == [0, 0.5]


def test_python_functions_may_take_the_site() -> None:
    seen: list[CustomCallSite] = []

    def double(site: CustomCallSite, x: np.ndarray) -> np.ndarray:
        seen.append(site)
        return x * 2

    hl.register_custom_call("py_double", double, wants_site=True)
    assert call("py_double", [np.ones(2, np.float32)], "f32[2]", '{n = 3 : i32, s = "x"}').tolist() == [2, 2]  # type: ignore[attr-defined]
    assert seen[0].attributes == {"n": 3, "s": "x"} and str(seen[0].shape) == "f32[2]"


@pytest.mark.parametrize(
    ("result", "shape"),
    [(np.arange(3), "s32[3]"), (3, "u8[]"), (np.float64(0.1), "f16[]"), ([1, True], "c64[2]"), (2, "bf16[]")],
)
def test_results_of_python_functions_are_converted(result: object, shape: str) -> None:
    hl.register_custom_call("py_converts", lambda: result)
    dtype = hl.parse_shape(shape).element_type.dtype
    np.testing.assert_array_equal(call("py_converts", [], shape), np.asarray(result, dtype))


def test_results_of_subclasses_are_their_elements() -> None:
    hl.register_custom_call("py_matrix", lambda: np.ones((2, 2), np.float32).view(np.matrix))
    text = """ENTRY e { c = f32[2,2] custom-call(), custom_call_target="py_matrix"
      ROOT r = f32[4] reshape(c) }"""
    assert hl.compile(text, "interpreter")().tolist() == [1] * 4


def test_errors_of_custom_calls() -> None:
    with pytest.raises(
        hl.RuleError, match=r"CUSTOMCALL-5.*no function is registered as 'lapack_sgetf_ffi'.*lapack_sgetrf_ffi"
    ):
        call("lapack_sgetf_ffi", [], "f32[]")
    hl.register_custom_call("py_wrong", lambda: np.ones(3, np.float32))
    with pytest.raises(hl.RuleError, match=r"CUSTOMCALL-5.*must return f32\[2\], it returned float32\[3\]"):
        call("py_wrong", [], "f32[2]")

    for result, shape, got in (
        (None, "f32[]", "NoneType"),
        (1.5, "s32[]", r"f32\[\]"),
        (2**40, "s32[]", "numbers that s32 does not hold"),
        (np.array([-1]), "u8[1]", "numbers that u8 does not hold"),
        (1j, "f32[]", r"c64\[\]"),
        ("a", "pred[]", "str"),
    ):
        hl.register_custom_call("py_result", lambda result=result: result)
        with pytest.raises(hl.RuleError, match=rf"CUSTOMCALL-5.*it returned {got}"):
            call("py_result", [], shape)

    def broken() -> None:
        raise ValueError("no luck")

    hl.register_custom_call("py_broken", broken)
    with pytest.raises(hl.RunError, match="'py_broken' raised ValueError: no luck"):
        call("py_broken", [], "f32[]")
    with pytest.raises(hl.ArgumentError, match="api is 'python'"):
        hl.register_custom_call("x", 3)


def test_attributes_of_the_backend_config() -> None:
    text = '{uplo = 76 : ui8, flag = true, x = 1.5 : f32, s = "a, b"}'
    assert parse_attributes(text) == {"uplo": 76, "flag": True, "x": 1.5, "s": "a, b"}
    assert parse_attributes("opaque") == {}


LONG = [pytest.param(dtype, marks=pytest.mark.long) for dtype in (np.float64, np.complex64, np.complex128)]


@pytest.mark.parametrize("dtype", [np.float32, *LONG])
def test_jax_linear_algebra_programs(dtype: type) -> None:
    """Programs as JAX lowers them for its CPU backend give JAX's results."""
    jax = pytest.importorskip("jax", reason="needs JAX, the peer")
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 4, 4))
    if np.iscomplexobj(dtype()):
        a = a + 1j * rng.standard_normal((2, 4, 4))
    a = a.astype(dtype)
    spd = (a @ np.swapaxes(a, -1, -2).conj() + 4 * np.eye(4)).astype(dtype)
    b = rng.standard_normal((2, 4, 3)).astype(dtype)
    programs = {
        "cholesky": (jnp.linalg.cholesky, (spd,)),
        "solve": (jnp.linalg.solve, (a, b)),
        "inv_det": (lambda x: (jnp.linalg.inv(x), jnp.linalg.det(x)), (a,)),
        "qr": (lambda x: [q @ r for q, r in [jnp.linalg.qr(x)]][0], (b,)),
        "svd": (lambda x: jnp.linalg.svd(x, compute_uv=False), (b,)),
        "svd_full": (lambda x: (lambda u, s, v: (u[..., :3] * s[..., None, :]) @ v)(*jnp.linalg.svd(x)), (b,)),
        "eigh": (lambda x: (lambda w, v: (w, (v * w[..., None, :]) @ v.conj().swapaxes(-1, -2)))(*jnp.linalg.eigh(x)), (spd,)),
        "eigvals": (lambda x: jnp.sort(jnp.abs(jnp.linalg.eigvals(x))), (a,)),
        "eig": (lambda x: (lambda w, v: jnp.abs(x @ v - v * w[..., None, :]).max() < 1e-3)(*jnp.linalg.eig(x)), (a,)),
        "hessenberg": (lambda x: jax.scipy.linalg.hessenberg(x[0]), (a,)),
        "schur": (lambda x: (lambda t, z: jnp.abs(z @ t @ z.conj().T - x[0]).max() < 1e-3)(*jax.scipy.linalg.schur(x[0])), (a,)),
        "tridiagonal": (
            lambda x: jax.lax.linalg.tridiagonal_solve(x[0, 0], x[0, 1] + 5, x[0, 2], jnp.ones((4, 1), x.dtype)),
            (a,),
        ),
    }  # fmt: skip
    tolerance = 2e-3 if a.real.dtype == np.float32 else 1e-9
    for name, (function, arguments) in programs.items():
        lowered = jax.jit(function).lower(*arguments)
        text = lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
        got = hl.compile(text)(*arguments)
        want = jax.tree.leaves(lowered.compile()(*arguments))
        for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            np.testing.assert_allclose(g, np.asarray(w), rtol=tolerance, atol=tolerance, err_msg=name)


def test_the_status_returning_versions_get_the_opaque_text() -> None:
    """CUSTOMCALL-6: `void f(void* out, void** in, const char* opaque, size_t length, status)`."""
    seen: list[bytes] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    def unified(out: int, ins: int, opaque: int, length: int, status: int) -> None:
        seen.append(ctypes.string_at(opaque, length))
        ctypes.c_float.from_address(out).value = 3.5

    hl.register_custom_call("custom_calls_unified", unified, api="c")
    text = """HloModule m
ENTRY e { x = f32[] parameter(0)
  ROOT r = f32[] custom-call(x), custom_call_target="custom_calls_unified",
    api_version=API_VERSION_STATUS_RETURNING_UNIFIED, backend_config="some text" }"""
    assert float(hl.compile(text)(np.float32(1))) == 3.5
    assert seen == [b"some text"]


@pytest.mark.usefixtures("older_objects_frozen")
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("n", [64, 100_000])
def test_operands_keep_their_values_as_long_as_a_function_keeps_them(n: int, backend: str) -> None:
    """CUSTOMCALL-2: `in` is read only."""
    kept: list[np.ndarray] = []

    def keep(x: np.ndarray, both: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        kept.extend((x, x[::2], *both))
        return np.float32(0)  # type: ignore[return-value]

    hl.register_custom_call("custom_calls_keep", keep)
    run = hl.compile(
        f"""HloModule m
ENTRY e {{ x = f32[{n}] parameter(0)
  y = f32[{n}] negate(x)
  t = (f32[{n}], f32[{n}]) tuple(x, y)
  c = f32[] custom-call(y, t), custom_call_target="custom_calls_keep"
  b = f32[{n}] broadcast(c), dimensions={{}}
  ROOT r = f32[{n}] add(b, y) }}""",
        backend=backend,
    )
    for k in range(3):
        x = np.full(n, k, np.float32)
        run(x)
        x[...] = 7
    del run
    gc.collect()
    release_cached()
    for k in range(3):
        for array, value in zip(kept[4 * k : 4 * k + 4], (-k, -k, k, -k), strict=True):
            assert (array == value).all() and not array.flags.writeable


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_functions_may_write_to_their_earlier_results(backend: str) -> None:
    """CUSTOMCALL-5: a result is the value at the time when the function returned it."""
    state = np.zeros(3, np.float32)

    def count(x: np.ndarray) -> np.ndarray:
        state.__iadd__(x)
        return state

    hl.register_custom_call("custom_calls_count", count)
    run = hl.compile(
        """HloModule m
ENTRY e { x = f32[3] parameter(0)
  a = f32[3] custom-call(x), custom_call_target="custom_calls_count", custom_call_has_side_effect=true
  b = f32[3] custom-call(a), custom_call_target="custom_calls_count", custom_call_has_side_effect=true
  ROOT t = (f32[3], f32[3]) tuple(a, b) }""",
        backend=backend,
    )
    a, b = run(np.ones(3, np.float32))
    assert a.tolist() == [1, 1, 1] and b.tolist() == [2, 2, 2] and a.flags.writeable


def test_functions_that_write_to_their_operands_get_an_error() -> None:
    """CUSTOMCALL-2: `in` is read only."""

    def write(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    hl.register_custom_call("custom_calls_write", write)
    with pytest.raises(hl.RunError, match="'custom_calls_write' raised ValueError.*read-only"):
        call("custom_calls_write", [np.ones(2, np.float32)], "f32[2]")
