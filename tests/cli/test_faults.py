"""The commands that find faults, as a shell runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main

PROGRAM = """
HloModule m
ENTRY main { x = f32[4,4] parameter(0)
  y = f32[4,4] exponential(x)
  z = f32[4,4] transpose(y), dimensions={1,0}
  ROOT w = f32[4,4] add(y, z) }
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    return str(file)


def run(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == status, result.output
    return result.output


def test_isolate_gives_a_module_and_with_inputs_a_snapshot(path: str, tmp_path: Path) -> None:
    text = run("isolate", path, "tr*", "z")
    assert [i.opcode for i in hl.parse(text).entry.instructions] == ["parameter", "transpose"]
    output = str(tmp_path / "z.hlo_snapshot.pb")
    run("isolate", path, "z", "--random", "1", "--output", output)
    snapshot = hl.Snapshot.load(output)
    (value,) = snapshot.arguments
    assert (value > 0).all()  # the exponential's
    assert "no instruction q" in run("isolate", path, "q", status=2)


def test_diff_of_modules_and_of_passes(path: str, tmp_path: Path) -> None:
    other = tmp_path / "other.hlo"
    other.write_text(PROGRAM.replace("y", "renamed").replace("add(", "multiply("))
    output = run("diff", path, str(other), status=1)
    assert "- %w = f32[4,4] add(%y, %z)" in output
    assert "+ %w = f32[4,4] multiply(%renamed, %z)" in output
    assert "exponential" not in output
    assert run("diff", path, path) == "the same\n"
    assert run("diff", path, "--passes", "dce") == "the same\n"
    assert "give another module" in run("diff", path, status=2)


def test_reduce_preserves_the_fault(path: str) -> None:
    output = run("reduce", path, "--test", "grep -q transpose {}")
    assert "exponential" not in output and "transpose" in output
    assert "does not have the fault of --test" in run("reduce", path, "--test", "grep -q tanh {}", status=2)
    assert "--test must contain {}" in run("reduce", path, "--test", "true", status=2)
    assert "give one of --differs" in run("reduce", path, status=2)


def test_bisect_finds_the_first_difference(path: str, tmp_path: Path) -> None:
    assert "no difference" in run("bisect", path, "--random", "0")
    assert "no difference" in run("bisect", path, "--random", "0", "--passes", "cpu")
    other = tmp_path / "other.hlo"
    other.write_text(PROGRAM.replace("exponential", "negate"))
    assert "first difference: %y = f32[4,4] exponential(%x)" in run(
        "bisect", path, str(other), "--random", "0", status=1
    )
    assert "--between takes two" in run("bisect", path, "--random", "0", "--between", "cpu", status=2)
    assert "give --input FILE or --random SEED" in run("bisect", path, status=2)


def test_profile_shows_kernels_and_writes_a_trace(path: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    output = run("profile", path, "--random", "0", "--seconds", "0.01", "--save", str(trace))
    assert "us per call" in output
    assert trace.read_text().startswith('{"traceEvents"')


def test_show_lists_live_values_at_the_peak(path: str) -> None:
    output = run("show", path, "--memory")
    # y and z, and then w: 4 x 4 numbers of 4 bytes each.
    assert "192 bytes at the peak after %w, beside 64 of parameters" in output


def test_explore_writes_a_page(path: str, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    run("explore", path, "--output", str(output))
    assert "<title>m</title>" in output.read_text()
