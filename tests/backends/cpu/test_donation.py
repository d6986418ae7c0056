"""Donated arguments: results in their memory where the program allows it, and never wrong."""

import numpy as np
import pytest

import hloom as hl

UPDATE = """HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }, entry_computation_layout={(f32[1024]{0}, f32[1024]{0})->(f32[1024]{0}, f32[])}
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  p = f32[1024]{0} parameter(0)
  g = f32[1024]{0} parameter(1)
  q = f32[1024]{0} subtract(p, g)
  zero = f32[] constant(0)
  total = f32[] reduce(q, zero), dimensions={0}, to_apply=sum
  ROOT t = (f32[1024]{0}, f32[]) tuple(q, total)
}"""
REVERSED = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  p = f32[1024]{0} parameter(0)
  ROOT r = f32[1024]{0} reverse(p), dimensions={0}
}"""
LOOP = """HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
cond { s = (s32[], f32[1024]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(30)
  ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[1024]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1024]{0} get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = f32[1]{0} constant({7})
  y = f32[1024]{0} dynamic-update-slice(x, v, i)
  ROOT t = (s32[], f32[1024]{0}) tuple(j, y) }
ENTRY e {
  p = f32[1024]{0} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[1024]{0}) tuple(z, p)
  w = (s32[], f32[1024]{0}) while(t), condition=cond, body=body
  ROOT r = f32[1024]{0} get-tuple-element(w), index=1
}"""
DONOR = """HloModule m, buffer_donor={ (1, {}) }
ENTRY e {
  x = f32[1024]{0} parameter(0)
  y = f32[1024]{0} parameter(1)
  ROOT r = f32[1024]{0} add(x, y)
}"""


def ramp() -> np.ndarray:
    return np.arange(1024, dtype=np.float32)


def test_elementwise_update_is_in_place():
    run = hl.compile(UPDATE, donate=True)
    p, g = ramp(), np.ones(1024, np.float32)
    q, total = run(p, g)
    assert np.shares_memory(q, p)
    np.testing.assert_array_equal(q, ramp() - 1)
    assert total == (ramp() - 1).sum(dtype=np.float64)
    np.testing.assert_array_equal(g, 1)


def test_loop_carry_is_in_place():
    p = ramp()
    result = hl.compile(LOOP, donate=True)(p)
    assert np.shares_memory(result, p)
    np.testing.assert_array_equal(result, np.where(np.arange(1024) < 30, 7, ramp()))


def test_buffer_donor_is_used_for_a_result_of_its_size():
    x, y = ramp(), ramp()
    result = hl.compile(DONOR, donate=True)(x, y)
    assert np.shares_memory(result, y) and not np.shares_memory(result, x)
    np.testing.assert_array_equal(result, 2 * ramp())


def test_results_that_would_overwrite_what_is_still_read_get_memory_of_their_own():
    p = ramp()
    result = hl.compile(REVERSED, donate=True)(p)
    assert not np.shares_memory(result, p)
    np.testing.assert_array_equal(result, ramp()[::-1])
    np.testing.assert_array_equal(p, ramp())


@pytest.mark.parametrize("text", [UPDATE, LOOP, DONOR])
def test_nothing_is_overwritten_that_was_not_given(text: str):
    for donate in (False, True):
        arguments = [ramp() for _ in hl.compile(text).input_shapes]
        if donate:
            for argument in arguments:
                argument.flags.writeable = False
        want = hl.compile(text, backend="interpreter")(*arguments)
        got = hl.compile(text, donate=donate)(*arguments)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            np.testing.assert_array_equal(a, b)
        for argument in arguments:
            np.testing.assert_array_equal(argument, ramp())


def test_an_array_that_is_given_twice_is_not_overwritten():
    p = ramp()
    q, _ = hl.compile(UPDATE, donate=True)(p, p)
    np.testing.assert_array_equal(q, 0)
    np.testing.assert_array_equal(p, ramp())


@pytest.mark.parametrize("n", [1024, 100_000])
@pytest.mark.parametrize("overlap", ["whole", "offset", "strided", "read-only", "bytes"])
def test_arguments_in_memory_of_others_are_not_overwritten(n: int, overlap: str) -> None:
    """Views are other objects over the same memory."""
    p = np.arange(2 * n, dtype=np.float32)
    given = p[:n]
    others = {
        "whole": given[:],
        "offset": p[n - 1 : 2 * n - 1],
        "strided": p[::2],
        "read-only": np.broadcast_to(p[:1], n),
        "bytes": np.frombuffer(memoryview(p).cast("B"), np.float32, n, 4),
    }
    g = others[overlap]
    want = given - g, np.sum(given - g, dtype=np.float64)
    q, total = hl.compile(UPDATE.replace("1024", str(n)), donate=True)(given, g)
    np.testing.assert_array_equal(q, want[0])
    np.testing.assert_allclose(total, want[1], rtol=1e-5)
    np.testing.assert_array_equal(p, np.arange(2 * n))


def test_neighbours_in_one_array_are_taken() -> None:
    p = np.arange(2048, dtype=np.float32)
    q, _ = hl.compile(UPDATE, donate=True)(p[:1024], p[1024:])
    assert np.shares_memory(q, p)
    np.testing.assert_array_equal(q, -1024)


def test_results_of_other_runs_are_taken() -> None:
    run = hl.compile(UPDATE.replace("1024", "100000"), donate=True)
    p, _ = run(np.full(100_000, 3, np.float32), np.ones(100_000, np.float32))
    g, _ = run(np.full(100_000, 5, np.float32), np.full(100_000, 4, np.float32))
    q, _ = run(p, g)
    assert np.shares_memory(q, p) and (q == 1).all()


def test_replicas_do_not_write_to_what_others_read() -> None:
    run = hl.compile(UPDATE, donate=True, replicas=3)
    p, g = ramp(), np.ones(1024, np.float32)
    for q, _ in run.run_replicas([[p, g], [p[:], g], [ramp(), p]]):
        assert not np.shares_memory(q, p)
        np.testing.assert_array_equal(q, ramp() - 1 if q[0] else 0)
    np.testing.assert_array_equal(p, ramp())


def test_partitions_do_not_write_to_a_whole_array_that_all_of_them_have() -> None:
    text = """HloModule m, num_partitions=4, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  p = f32[1024]{0} parameter(0), sharding={replicated}
  q = f32[1024]{0} add(p, p), sharding={replicated}
  s = f32[1024]{0} sine(p), sharding={replicated}
  ROOT t = (f32[1024]{0}, f32[1024]{0}) tuple(q, s), sharding={{replicated}, {replicated}}
}"""
    q, s = hl.compile(text, donate=True, partitions=4)(ramp())
    np.testing.assert_array_equal(q, 2 * ramp())
    np.testing.assert_allclose(s, np.sin(ramp()), atol=1e-5)


def test_large_results_take_no_memory_that_starts_in_the_middle_of_a_cache_line():
    """Kernels that touch more than the caches hold use non-temporal stores of whole lines."""
    n = 1 << 22
    text = f"""HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
ENTRY e {{
  x = f32[{n}] parameter(0)
  y = f32[{n}] parameter(1)
  ROOT r = f32[{n}] add(x, y)
}}"""
    run, memory, ones = hl.compile(text, donate=True), np.zeros(n + 32, np.float32), np.ones(n, np.float32)
    first = -memory.ctypes.data % 64 // 4
    result = run(memory[first + 5 : first + 5 + n], ones)
    assert not np.shares_memory(result, memory) and (result == 1).all() and not memory.any()
    assert np.shares_memory(run(memory[first : first + n], ones), memory)


def test_an_argument_of_another_size_is_an_error_that_names_the_shapes() -> None:
    with pytest.raises(hl.HloomError, match=r"f32\[1024\]"):
        hl.compile(DONOR, donate=True)(ramp(), ramp()[:1000].copy())
