"""Callbacks, DLPack and linear algebra on the platform, in a child process whose JAX platform is hloom."""

from __future__ import annotations

from jax_plugin.platform_process import run_in_shared_process


def test_callbacks_use_jax_and_their_errors_reach_the_caller() -> None:
    out = run_in_shared_process("""
        x = jnp.arange(4.0)
        print(jax.jit(lambda x: jax.pure_callback(lambda v: jnp.sin(v) * 0 + v, x, x) + 1)(x))
        jax.debug.print("eager {}", x[1])
        seen = []
        def body(i, c):
            jax.experimental.io_callback(lambda k: seen.append(int(k)), None, i, ordered=True)
            return c
        jax.jit(lambda x: jax.lax.fori_loop(0, 3, body, x))(x)
        jax.effects_barrier()
        print(seen)
        def unlucky(v):
            raise ValueError("no luck")
        try:
            jax.jit(lambda x: jax.pure_callback(unlucky, x, x))(x)
        except jax.errors.JaxRuntimeError as error:
            print("raised:", "ValueError: no luck" in str(error))
    """)
    assert out.splitlines() == ["[1. 2. 3. 4.]", "eager 1.0", "[0, 1, 2]", "raised: True"]


def test_callbacks_may_keep_their_arguments() -> None:
    out = run_in_shared_process("""
        from jax.experimental import io_callback
        from jax.experimental.buffer_callback import buffer_callback
        kept = []
        def keep(v):
            kept.append(v)
            return np.float32(0)
        for n in (8, 100_000):
            program = jax.jit(lambda x: io_callback(keep, jax.ShapeDtypeStruct((), np.float32), jnp.sin(x)) + jnp.cos(x))
            for k in range(3):
                program(jnp.full(n, k, np.float32)).block_until_ready()
        print(all(np.allclose(v, np.sin(k % 3)) for k, v in enumerate(kept)), len(kept))
        def keep_buffers(ctx, out, x):
            kept.append(np.asarray(x))
            np.asarray(out)[...] = np.asarray(x) + 1
        call = buffer_callback(keep_buffers, jax.ShapeDtypeStruct((8,), np.float32))
        aliased = buffer_callback(keep_buffers, jax.ShapeDtypeStruct((8,), np.float32), input_output_aliases={0: 0})
        kept.clear()
        for k in range(3):
            print(jax.jit(lambda x: call(jnp.sin(x) * 0 + x))(jnp.full(8, k, np.float32))[0])
            jax.jit(lambda x: jnp.cos(jnp.sin(x)))(jnp.full(8, k, np.float32))
        print([float(v[0]) for v in kept], jax.jit(lambda x: (aliased(x), x))(jnp.ones(8, np.float32))[0][0])
    """)
    assert out.splitlines() == ["True 6", "1.0", "2.0", "3.0", "[0.0, 1.0, 2.0] 2.0"]


def test_donated_arguments_are_deleted() -> None:
    out = run_in_shared_process("""
        import warnings
        warnings.simplefilter("error")
        x = jnp.zeros(3)
        y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
        print(x.is_deleted(), y)
    """)
    assert out == "True [1. 1. 1.]\n"


def test_dlpack_does_not_copy() -> None:
    out = run_in_shared_process("""
        x = jnp.arange(3.0)
        there = np.from_dlpack(x)
        print(x.__dlpack_device__(), there, there.ctypes.data == x.unsafe_buffer_pointer())
        host = np.arange(3, dtype=np.int32)
        y = jnp.from_dlpack(host, copy=False)
        print(y, y.devices() == x.devices(), y.unsafe_buffer_pointer() == host.ctypes.data)
        print(jnp.from_dlpack(jnp.arange(3, dtype=jnp.bfloat16)).dtype)
    """)
    assert out.splitlines() == ["(1, 0) [0. 1. 2.] True", "[0 1 2] True True", "bfloat16"]


def test_linear_algebra_fills_failures_with_nan() -> None:
    out = run_in_shared_process("""
        a = jnp.array([[[4.0, 2.0], [2.0, 5.0]], [[1.0, 2.0], [2.0, 1.0]]])
        print(jnp.linalg.cholesky(a).ravel())
        x = jnp.linalg.solve(a, jnp.ones((2, 2, 1)))
        print(bool(jnp.allclose(a @ x, 1)))
    """)
    assert out.splitlines() == ["[ 2.  0.  1.  2. nan  0. nan nan]", "True"]


def test_an_interrupted_program_raises_an_error() -> None:
    out = run_in_shared_process("""
        import os, signal, threading
        def count(x, n):
            return jax.lax.fori_loop(0, n, lambda i, x: x * 1.0000001 + i, x)
        f = jax.jit(count, donate_argnums=0)
        f(jnp.float32(1), 10)
        x = jnp.float32(1)
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            print("result", f(x, 2_000_000_000))
        except Exception as error:
            print(error, x.is_deleted())
        print(f(jnp.float32(1), 2))
    """)
    assert out.splitlines() == ["ABORTED: the run was interrupted (Ctrl-C) True", "2.0000002"]
