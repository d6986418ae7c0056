"""Partitioned programs, called with whole arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.analysis.traffic import traffic
from hloom.cli import main
from hloom.passes import parse_passes, run_passes

TEXT = """HloModule mlp
relu { p = f32[16,64] parameter(0) z = f32[] constant(0) b = f32[16,64] broadcast(z), dimensions={}
  ROOT r = f32[16,64] maximum(p, b) }
ENTRY e {
  x = f32[16,32] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  w = (f32[32,64], f32[64,8]) parameter(1), sharding={{devices=[1,2,2]<=[2,2]T(1,0) last_tile_dim_replicate}, \
{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}}
  a = f32[32,64] get-tuple-element(w), index=0
  b = f32[64,8] get-tuple-element(w), index=1
  h = f32[16,64] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[16,64] call(h), to_apply=relu
  ROOT y = f32[16,8] dot(s, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def arguments() -> list[Any]:
    rng = np.random.default_rng(0)
    return [
        rng.standard_normal((16, 32)).astype(np.float32),
        (rng.standard_normal((32, 64)).astype(np.float32), rng.standard_normal((64, 8)).astype(np.float32)),
    ]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_whole_arrays_in_and_out(backend: str, partitions: int) -> None:
    text = (
        TEXT
        if partitions == 4
        else TEXT.replace("2,1,2]<=[4]", f"{partitions},1,1]<=[{partitions}]")
        .replace("1,2,2]<=[2,2]T(1,0)", f"1,1,{partitions}]<=[{partitions}]")
        .replace("2,1,2]<=[2,2]T(1,0)", f"1,1,{partitions}]<=[{partitions}]")
    )
    run = hl.compile(text, backend, partitions=partitions)
    want = hl.compile(text, "interpreter")(*arguments())
    assert run.module.num_partitions == partitions
    np.testing.assert_allclose(run(*arguments()), want, rtol=1e-5, atol=1e-5)


def test_replicas_of_partitions() -> None:
    run = hl.compile(TEXT, partitions=4, replicas=2)
    x, w = arguments()
    first, second = run.run_replicas([[x, w], [2 * x, w]])
    np.testing.assert_allclose(2 * first, second, rtol=1e-5)
    with pytest.raises(hl.ArgumentError, match="2 devices"):
        run(x, w)
    with pytest.raises(hl.ArgumentError, match="2 replicas need as many lists of arguments, got 1"):
        run.run_replicas([[x, w]])


@pytest.mark.parametrize("sizes", [(5,), (4,), (1,)])
def test_blocks_that_reach_over_the_end(sizes: tuple[int]) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n  p = f32[{sizes[0]}] parameter(0), sharding={{devices=[4]<=[4]}}\n"
        f"  ROOT n = f32[{sizes[0]}] negate(p), sharding={{devices=[4]<=[4]}}\n}}"
    )
    x = np.arange(sizes[0], dtype=np.float32)
    assert np.array_equal(hl.compile(text, partitions=4)(x), -x)


def test_arguments_that_do_not_fit_are_errors() -> None:
    run = hl.compile(TEXT, partitions=4)
    x, w = arguments()
    with pytest.raises(hl.ArgumentError, match="takes 2 arguments, got 1"):
        run(x)
    with pytest.raises(hl.ArgumentError, match=r"argument 0 has shape f32\[16,32\], got float32\[32, 16\]"):
        run(x.T.copy(), w)
    with pytest.raises(hl.ArgumentError, match="partitions is an integer"):
        hl.compile(TEXT, partitions="4")  # type: ignore[arg-type]
    with pytest.raises(hl.ArgumentError, match="at least one partition"):
        hl.compile(TEXT, partitions=0)


def test_the_pass_gives_the_program_of_one_partition() -> None:
    module = hl.parse(TEXT)
    run_passes(module, parse_passes("spmd{partitions=4}"), verify=True)
    assert module.num_partitions == 4 and module.entry.parameter_shapes[0].dimensions == (8, 32)
    assert hl.parse(module.to_text()).num_partitions == 4


def test_traffic_of_a_device() -> None:
    """The product over the sharded dimension is reduced in pairs: twice half of its 8x8 floats are sent around a
    ring.
    """
    rows = traffic(hl.compile(TEXT, partitions=4).module)
    assert [(row.instruction.opcode, row.members, row.times) for row in rows][:1] == [("all-reduce", 2, 1)]
    assert rows[0].sent == 8 * 8 * 4


def test_iterations_of_loops_count() -> None:
    text = """HloModule m, num_partitions=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
body { s = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(s), index=0 o = s32[] constant(1)
  j = s32[] add(i, o) x = f32[6] get-tuple-element(s), index=1
  y = f32[6] all-reduce(x), channel_id=1, replica_groups={{0,1}}, use_global_device_ids=true, to_apply=add
  ROOT t = (s32[], f32[6]) tuple(j, y) }
cond { s = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(s), index=0 c = s32[] constant(5)
  ROOT r = pred[] compare(i, c), direction=LT }
ENTRY e { p = f32[6] parameter(0) z = s32[] constant(0) t = (s32[], f32[6]) tuple(z, p)
  ROOT w = (s32[], f32[6]) while(t), condition=cond, body=body }
"""
    (row,) = traffic(hl.parse(text))
    assert (row.times, row.members, row.sent) == (5, 2, 24)


def test_the_command_runs_whole_arrays_and_reports_traffic(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    command = ["run", str(path), "--random", "0", "--partitions", "4", "--compare", "interpreter", "--rtol", "1e-4"]
    done = CliRunner().invoke(main, [*command, "--atol", "1e-4"])
    assert done.exit_code == 0, done.output
    assert "r0 is as expected" in done.output and "all-reduce" in done.output and "256" in done.output


def test_results_of_dynamic_size_are_those_of_one_partition(backend: str) -> None:
    """Arrays with dynamic dimensions are not sharded: each partition has the whole one, of the actual size."""
    text = """ENTRY e { x = f32[8] parameter(0), sharding={devices=[2]<=[2]}
      n = s32[] parameter(1)
      ROOT d = f32[<=8] set-dimension-size(x, n), dimensions={0} }"""
    x = np.arange(8, dtype=np.float32)
    assert np.array_equal(hl.compile(text, backend, partitions=2)(x, np.int32(3)), x[:3])
