"""Whatever a combiner, comparator or mapped function holds, it is native code, and gives what the interpreter gives."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.codegen.scalar_computations import KEYS, ORDINARY, USES, use
from hlo_text import compiled, interpreted


def arguments(rows: int = 6, columns: int = 20) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.01, 0.99, s).astype(np.float32) for s in [(rows, columns)] * 2 + [(rows, columns // 2)]]
    return [*arrays, rng.integers(0, rows, (rows, 1)).astype(np.int32)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("key", [pytest.param(key, marks=pytest.mark.long if key in ORDINARY else ()) for key in KEYS])
def test_every_opcode_is_native_in_every_use(key: str) -> None:
    arrays = arguments()
    module = hl.parse(use(key))
    native = hl.compile(module, backend="cpu")
    assert native.report() == []
    for user, want, got in zip(USES, interpreted(module, *arrays), native(*arrays), strict=True):
        if user == "map":
            np.testing.assert_allclose(got, want, 2e-6, 2e-6)
        else:
            np.testing.assert_array_equal(got, want, user)


def test_a_computation_without_native_code_stays_with_the_interpreter() -> None:
    text = use('  ROOT r = f32[] custom-call(x), custom_call_target="nobody_knows"\n', ["sort"])
    assert len(hl.compile(hl.parse(text), backend="cpu").report()) == 1


def test_a_scatter_of_wide_rows_is_shared_among_threads() -> None:
    module = hl.parse(use("while", ["scatter"], 64, 2000))
    arrays = arguments(64, 2000)
    np.testing.assert_array_equal(compiled(module, *arrays)[0], interpreted(module, *arrays)[0])


def test_a_function_with_two_results() -> None:
    text = """HloModule m
pair {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = f32[2] constant({1, 2})
  z = f32[] constant(0)
  two = f32[] constant(2)
  p = pred[] compare(a, b), direction=GE
  v = f32[] select(p, a, b)
  k = s32[] select(p, i, j)
  vs = f32[2] broadcast(v), dimensions={}
  w = f32[2] multiply(vs, c)
  o = f32[1] slice(w), slice={[0:1]}
  r0 = f32[] reshape(o)
  ROOT t = (f32[], s32[]) tuple(r0, k)
}
ENTRY e {
  x = f32[9,40] parameter(0)
  i = s32[9,40] iota(), iota_dimension=1
  least = f32[] constant(-inf)
  none = s32[] constant(-1)
  ROOT r = (f32[9], s32[9]) reduce(x, i, least, none), dimensions={1}, to_apply=pair
}
"""
    x = np.random.default_rng(0).permutation(360).reshape(9, 40).astype(np.float32)
    assert hl.compile(hl.parse(text), backend="cpu").report() == []
    for run in (interpreted, compiled):
        largest, where = run(text, x)
        np.testing.assert_array_equal(largest, x.max(1))
        np.testing.assert_array_equal(where, x.argmax(1))
