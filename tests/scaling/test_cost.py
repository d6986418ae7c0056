"""`hloom show --cost`, and descriptions of clusters."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.errors import ArgumentError
from hloom.scaling.cluster import load_cluster, to_toml
from hloom.scaling.predict import predict

CLUSTER = """
[device]
gflops = 100
memory_gbs = 10
memory_gb = 1e-3

[[level]]
name = "machine"
count = 4
latency_us = 2
gbs = 1
reduce_gbs = 1
"""
HLO = """HloModule step
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
body { p = (s32[], f32[512]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[512] get-tuple-element(p), index=1
  one = s32[] constant(1) j = s32[] add(i, one) y = f32[512] all-reduce(x), channel_id=1, to_apply=add, replica_groups={{0}}
  ROOT t = (s32[], f32[512]) tuple(j, y) }
go { p = (s32[], f32[512]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  a = f32[512,512] parameter(0)
  d = f32[512,512] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[] constant(0)
  s = f32[512] reduce(d, z), dimensions={0}, to_apply=add
  k = s32[] constant(0)
  t = (s32[], f32[512]) tuple(k, s)
  w = (s32[], f32[512]) while(t), condition=go, body=body
  ROOT r = f32[512] get-tuple-element(w), index=1
}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(CLUSTER)
    return path


def test_products_take_arithmetic_and_collectives_in_loops_count_each_iteration(cluster: Path) -> None:
    module = hl.parse(HLO)
    module.num_partitions = 4
    prediction = predict(module, 1, load_cluster(cluster))
    (product,) = [part for part in prediction.parts if part.instruction.opcode == "dot"]
    assert product.algorithm == "arithmetic" and product.seconds == pytest.approx(2 * 512**3 / 100e9)
    (total,) = [part for part in prediction.parts if part.is_collective]
    assert total.times == 7 and total.sent == 7 * 2 * 2048 * 3 // 4
    assert total.seconds == pytest.approx(7 * min(2 * 2e-6 + 2 * 2 * 2048e-9, 4 * 2e-6 + 0.75 * 3 * 2048e-9))
    assert prediction.peak_bytes >= 2 * 512 * 512 * 4


def test_calls_that_double_at_each_level_are_counted_and_the_longer_branch_is_taken(cluster: Path) -> None:
    functions = ["f0 { p = f32[8] parameter(0) ROOT r = f32[8] sine(p) }"]
    for k in range(1, 31):
        calls = f"a = f32[8] call(p), to_apply=f{k - 1} ROOT r = f32[8] call(a), to_apply=f{k - 1}"
        functions.append(f"f{k} {{ p = f32[8] parameter(0) {calls} }}")
    branches = (
        "short { p = f32[8] parameter(0) ROOT r = f32[8] negate(p) }\n"
        "long { p = f32[8] parameter(0) ROOT r = f32[8] call(p), to_apply=f30 }\n"
    )
    entry = (
        "ENTRY e { p = f32[8] parameter(0) c = pred[] parameter(1)\n"
        "ROOT r = f32[8] conditional(c, p, p), true_computation=short, false_computation=long }"
    )
    prediction = predict(
        hl.parse("HloModule m\n" + "\n".join(functions) + "\n" + branches + entry), 1, load_cluster(cluster)
    )
    assert sum(part.times for part in prediction.parts) * 8 >= 2**30 / 400  # fusions have at most 400 instructions
    assert not any(part.instruction.opcode == "negate" for part in prediction.parts)


def test_the_command_shows_and_draws(cluster: Path, tmp_path: Path) -> None:
    path, plot = tmp_path / "m.hlo", tmp_path / "cost.svg"
    path.write_text(HLO)
    command = ["show", str(path), "--cost", "--devices", "4", "--cluster", str(cluster), "--plot", str(plot)]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 0, shown.output
    assert "a step on 4 devices" in shown.output and "too few" in shown.output
    assert "<svg" in plot.read_text()


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("latency_us = 2", "", "'latency_us' must be a positive number, got None"),
        ("gflops = 100", "gflops = -1", "'gflops' must be a positive number, got -1"),
        ("count = 4", "count = 1.5", "'count' of a level is a whole number"),
        ("[[level]]", "[level]", "at least one [[level]]"),
        ("[device]", "[device", "is no TOML file"),
    ],
)
def test_missing_entries_of_a_description_are_named(cluster: Path, old: str, new: str, message: str) -> None:
    cluster.write_text(CLUSTER.replace(old, new))
    with pytest.raises(ArgumentError) as caught:
        load_cluster(cluster)
    assert message in str(caught.value)


def test_a_description_is_written_as_it_is_read(cluster: Path, tmp_path: Path) -> None:
    found = load_cluster(cluster)
    (tmp_path / "again.toml").write_text(to_toml(found, "again"))
    assert load_cluster(tmp_path / "again.toml") == found


def test_devices_that_do_not_fit_are_refused(cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(HLO)
    for arguments, message in (
        (["--devices", "5", "--cluster", str(cluster)], "the cluster has 4 devices, not 5"),
        (["--cluster", str(tmp_path / "none.toml")], "cannot read"),
        (["--devices", "4"], "--devices and --plot need a description of the devices"),
    ):
        shown = CliRunner().invoke(main, ["show", str(path), "--cost", *arguments])
        assert shown.exit_code == 2 and message in shown.output, shown.output


def test_operations_and_bytes_are_counted_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("""HloModule m
ENTRY e {
  x = f32[4,8] parameter(0)
  w = f32[8,16] parameter(1)
  dot = f32[4,16] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sorted = f32[4,16] negate(dot)
}""")
    shown = CliRunner().invoke(main, ["show", str(path), "--cost", "--memory"])
    rows = [[word.strip() for word in line.split("│")[1:-1]] for line in shown.output.split("\n") if "│ %" in line]
    assert rows[:2] == [["%dot", "dot", "1,024", "896", "1.14"], ["%sorted", "negate", "64", "512", "0.125"]]
    assert "1,088 operations, 1,408 bytes" in shown.output and "at the peak" in shown.output
