"""Checked native code has the same findings as the interpreter."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.backends.interpreter.debug import stop_at
from hloom.cli import main
from hloom.errors import ArgumentError, RunError
from hloom.faults import check
from hloom.faults.instrument import instrumented
from hloom.files.arrays import difference, flat
from hloom.verifier import verify_module
from test_corpus import STORED, load_case

LOOP = """HloModule loop
body { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = f32[] convert(i)
  b = f32[4] broadcast(f), dimensions={}
  y = f32[4] subtract(x, b)
  z = f32[4] sqrt(y)
  ROOT t = (s32[], f32[4]) tuple(j, z) }
condition { p = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { x = f32[4] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  ROOT y = f32[4] get-tuple-element(w), index=1 }
"""
BRANCHES = """HloModule branches
left { x = f32[2,3] parameter(0)
  ROOT l = f32[2,3] log(x) }
right { x = f32[2,3] parameter(0)
  ROOT r = f32[2,3] sqrt(x) }
inner { a = f32[2,3] parameter(0)
  b = f32[2,3] parameter(1)
  ROOT d = f32[2,3] divide(a, b) }
ENTRY main { x = f32[2,3] parameter(0)
  choice = pred[] parameter(1)
  c = f32[2,3] conditional(choice, x, x), true_computation=left, false_computation=right
  m = f32[2,3] maximum(c, c)
  ROOT y = f32[2,3] call(m, x), to_apply=inner }
"""
FUSION = """HloModule fused
inside { x = f32[4] parameter(0)
  s = f32[4] subtract(x, x)
  ROOT d = f32[4] divide(s, s) }
ENTRY main { x = f32[4] parameter(0)
  ROOT f = f32[4] fusion(x), kind=kLoop, calls=inside }
"""
INDICES = """HloModule indices
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY main { x = f32[5,6] parameter(0)
  i = s32[] parameter(1)
  j = s32[] parameter(2)
  k = s32[2,2] parameter(3)
  u = f32[2,3] parameter(4)
  d = f32[2,3] dynamic-slice(x, i, j), dynamic_slice_sizes={2,3}
  w = f32[5,6] dynamic-update-slice(x, u, j, i)
  g = f32[2,3] gather(w, k), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,3}
  s = f32[5,6] scatter(x, k, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=add
  ROOT t = (f32[2,3], f32[2,3], f32[5,6]) tuple(d, g, s) }
"""


def by_the_interpreter(module: hl.Module, arguments: list[object], kind: str) -> str | None:
    """The instruction at which the interpreter stops."""
    try:
        hl.compile(module, "interpreter", observer=stop_at(kind), seed=0)(*arguments)
    except RunError as error:
        found = re.search(r"first arises in %([\w.-]+) =", str(error))
        assert found
        return found[1]
    return None


@pytest.mark.sampled(12)
@pytest.mark.parametrize("text", [LOOP, BRANCHES, FUSION], ids=["loop", "branches", "fusion"])
@pytest.mark.parametrize("kind", ["nan", "inf"])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_what_the_interpreter_finds(text: str, kind: str, seed: int) -> None:
    module, rng = hl.parse(text), np.random.default_rng(seed)
    scale = [1.0, 1e6, 1e30, 1e-3][seed]
    arguments: list[object] = []
    for shape in module.entry.parameter_shapes:
        if shape.rank:
            arguments.append((np.abs(rng.standard_normal(shape.dimensions)) * scale).astype(np.float32))
        else:
            arguments.append(np.bool_(seed % 2))
    found = check(module, arguments, [kind])
    assert (found.instruction.name if found else None) == by_the_interpreter(module, arguments, kind)


def test_the_position_is_that_of_the_first() -> None:
    found = check(LOOP, [np.array([100, 1e6, 9, 1e5], np.float32)])
    assert found is not None
    assert (found.instruction.name, found.kind, found.position) == ("z", "nan", (2,))
    assert str(found) == "a NaN first arises in %z = f32[4] sqrt(%y), at [2]"


@pytest.mark.parametrize(
    ("i", "j", "k", "expected"),
    [
        (3, 2, [[0, 0], [4, 3]], None),
        (4, 2, [[0, 0], [4, 3]], ("d", (0,), 4, 3)),
        (0, -1, [[0, 0], [4, 3]], ("d", (1,), -1, 3)),
        (3, 3, [[0, 0], [4, 3]], None),
        (0, 0, [[0, 0], [2, 4]], ("g", (1, 1), 4, 3)),
        (0, 0, [[-7, 0], [2, 4]], ("g", (0, 0), -7, 4)),
    ],
)
def test_indices_out_of_bounds(
    i: int, j: int, k: list[list[int]], expected: tuple[str, tuple[int, ...], int, int] | None
) -> None:
    x, u = np.ones((5, 6), np.float32), np.ones((2, 3), np.float32)
    found = check(INDICES, [x, np.int32(i), np.int32(j), np.array(k, np.int32), u])
    if expected is None:
        assert found is None
        return
    name, position, value, limit = expected
    assert found is not None
    assert (found.instruction.name, found.position, found.value) == (name, position, value)
    assert f"it is {value}, and windows fit in [0, {limit}]: it is clamped" in str(found)


def test_a_window_that_a_scatter_skips() -> None:
    text = re.sub(r"  (d|w|g) = .*\n", "", INDICES).replace(
        "ROOT t = (f32[2,3], f32[2,3], f32[5,6]) tuple(d, g, s)", "ROOT t = (f32[5,6]) tuple(s)"
    )
    x, u = np.ones((5, 6), np.float32), np.ones((2, 3), np.float32)
    found = check(text, [x, np.int32(0), np.int32(0), np.array([[0, 0], [5, 1]], np.int32), u])
    assert found is not None
    assert (found.instruction.name, found.position, found.value) == ("s", (1, 0), 5)
    assert "the window is skipped" in str(found)


def _same_as_the_interpreter(case: Path) -> None:
    """The instrumented program is valid, has the same result, and the same findings as the interpreter."""
    meta, module, inputs = load_case(case)
    if meta.get("replicas"):
        pytest.skip("checks are of one device")
    with_checks = instrumented(module, frozenset(["nan", "bounds"])).module
    verify_module(with_checks)
    result, _ = hl.compile(with_checks, "interpreter", seed=0)(*inputs[0])
    expected = hl.compile(module, "interpreter", seed=0)(*inputs[0])
    for got, want in zip(flat(result), flat(expected), strict=True):
        assert difference(got, want, 0, 0) is None
    found = check(module, inputs[0], ["nan"])
    assert (found.instruction.name if found else None) == by_the_interpreter(module, list(inputs[0]), "nan")


SOME = {"gather_oob", "scatter_window", "nested_loops", "conds", "calls_map", "unary_float32"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", [c for c in STORED if c.name in SOME], ids=lambda case: case.name)
def test_programs(case: Path) -> None:
    _same_as_the_interpreter(case)


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in STORED if c.name not in SOME], ids=lambda case: case.name)
def test_all_programs(case: Path) -> None:
    _same_as_the_interpreter(case)


def test_what_cannot_be_checked() -> None:
    with pytest.raises(ArgumentError, match="checks are nan, inf, bounds"):
        check(LOOP, [np.ones(4, np.float32)], ["zero"])
    with pytest.raises(ArgumentError, match="for several"):
        check(LOOP.replace("HloModule loop", "HloModule loop, replica_count=2"), [np.ones(4, np.float32)])


def test_the_command(tmp_path: Path) -> None:
    path = tmp_path / "loop.hlo"
    path.write_text(LOOP)
    done = CliRunner().invoke(main, ["check", str(path), "--random", "0"])
    assert done.exit_code == 1
    assert "a NaN first arises in %z" in done.output
    done = CliRunner().invoke(main, ["check", str(path), "--random", "0", "--no-nan"])
    assert (done.exit_code, done.output) == (0, "nothing fails\n")
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == 2
    assert "give --input FILE or --random SEED" in done.output
