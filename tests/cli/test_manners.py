"""Manners of all commands: exit statuses, names, colours, JSON, progress, and short errors."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.table import Table

import hloom as hl
import hloom.profiler
from faults.test_planted_faults import other
from hloom.bench.limits import Bandwidth, Limits
from hloom.cli import main, progress
from hloom.cli.output import TOKENS, print_table
from hloom.errors import counted

PROGRAM = """HloModule m
ENTRY main { x = f32[4,4] parameter(0)
  y = f32[4,4] exponential(x)
  z = f32[4,4] transpose(y), dimensions={1,0}
  ROOT w = f32[4,4] add(y, z) }
"""
NAN = """HloModule n
ENTRY main { x = f32[4] parameter(0)
  y = f32[4] subtract(x, x)
  z = f32[4] divide(x, y)
  w = f32[4] multiply(z, y)
  ROOT r = f32[4] add(w, x) }
"""
SHARDED = """HloModule s
ENTRY e { x = f32[8,16] parameter(0), sharding={devices=[4,1]<=[4]}
  w = f32[16,8] parameter(1), sharding={replicated}
  ROOT y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""
CLUSTER = """[device]
gflops = 100.0
memory_gbs = 20.0
[[level]]
count = 4
latency_us = 1.0
gbs = 5.0
reduce_gbs = 4.0
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "m.hlo"
    file.write_text(PROGRAM)
    return str(file)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    file = tmp_path / "nan.hlo"
    file.write_text(NAN)
    return str(file)


def run(*arguments: str, status: int = 0, **options: object) -> str:
    result = CliRunner().invoke(main, arguments, **options)  # type: ignore[arg-type]
    assert result.exit_code == status, result.output
    return result.output


# Exit statuses

COMMANDS = (
    "bench",
    "bisect",
    "check",
    "debug",
    "diff",
    "explore",
    "isolate",
    "opt",
    "profile",
    "prove",
    "reduce",
    "run",
)
MORE = {"diff": ["--passes", "dce"], "isolate": ["x"], "prove": ["--xla"], "reduce": ["--nan"]}


@pytest.mark.parametrize("command", [*COMMANDS, "show"])
def test_errors_have_the_status_2(command: str) -> None:
    assert "none.hlo" in run(command, "/there/is/none.hlo", *MORE.get(command, []), status=2)


def test_a_difference_has_the_status_1(path: str, bad: str, tmp_path: Path) -> None:
    run("run", path, "--random", "0", "--output", str(tmp_path / "r.npz"))
    assert "r0 differs" in run("run", path, "--random", "1", "--expect", str(tmp_path / "r.npz"), status=1)
    assert "a NaN first arises in %w" in run("run", bad, "--random", "0", "--stop-at", "nan", status=1)
    assert "a NaN first arises in %w" in run("check", bad, "--random", "0", status=1)
    run("diff", path, bad, status=1)


# Comparison


def test_a_correct_network_is_not_accused(tmp_path: Path) -> None:
    """Three products of 300 terms: the last digits of small elements differ by more than 1e-5 of these."""
    lines = ["w = f32[300,300] parameter(1)\nv0 = f32[4,300] parameter(0)"]
    lines += [
        f"v{k + 1} = f32[4,300] dot(v{k}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}" for k in range(3)
    ]
    file = tmp_path / "net.hlo"
    file.write_text("HloModule net\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    assert "r0 is as expected" in run("run", str(file), "--random", "0", "--compare", "interpreter")
    strict = run("run", str(file), "--random", "0", "--compare", "interpreter", "--rtol", "1e-7", status=1)
    assert "r0 differs" in strict
    assert "no difference" in run("bisect", str(file), "--random", "0")
    differs = ("--differs", "cpu,interpreter")
    assert "does not have the fault" in run("reduce", str(file), "--random", "0", *differs, status=2)


# Reduction


def test_reduce_finds_what_differs_in_one_process(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    arguments = ("reduce", path, "--random", "0", "--differs", "cpu,interpreter")
    assert "does not have the fault of --differs" in run(*arguments, status=2)
    other("exponential", "exponential-minus-one")(monkeypatch)
    output = run(*arguments)
    assert "exponential(" in output and "transpose" not in output and "3 -> 1 instructions" in output


def test_reduce_finds_where_a_nan_arises(bad: str) -> None:
    output = run("reduce", bad, "--random", "0", "--nan")
    assert "multiply(" in output and "subtract" not in output and "4 -> 1 instructions" in output


@pytest.mark.long
def test_reduce_survives_crashes(path: str, tmp_path: Path) -> None:
    assert "does not have the fault of --crash" in run("reduce", path, "--random", "0", "--crash", status=2)


# Names


def test_names_are_found_with_and_without_a_percent_sign(path: str) -> None:
    assert "transpose" in run("isolate", path, "%z")
    assert "%y = f32[4,4] exponential(%x)" in run("run", path, "--random", "0", "--print", "%y")
    assert "breakpoint %z: %z = " in run("debug", path, "--random", "0", "--break", "%z", input="")
    assert "no instruction zz; close are z" in run("isolate", path, "zz", status=2)


def test_a_breakpoint_of_nothing_says_so(path: str) -> None:
    assert "m has no instruction nothing*" in run("debug", path, "--random", "0", "--break", "nothing*", input="")
    assert "breakpoint add if value.max() > 0" in run(
        "debug", path, "--random", "0", "--break", "add if value.max() > 0", input=""
    )


def test_instructions_that_passes_make_are_isolated_from_the_optimised_module(path: str) -> None:
    fusion = next(i.name for i in hl.parse(run("opt", path, "--passes", "cpu")).instructions() if i.opcode == "fusion")
    assert "made by passes: add --optimized" in run("isolate", path, fusion, status=2)
    assert "fusion(" in run("isolate", path, fusion, "--optimized")


# Output


def test_text_is_coloured_on_terminals_alone(path: str) -> None:
    assert "\x1b[" not in run("show", path)
    assert "\x1b[33mexponential\x1b[0m(x)" in run("show", path, color=True)
    assert "\x1b[36m\x1b[1mdot " in run("operations", color=True) and "\x1b[" not in run("operations")
    assert "\x1b[" not in run("show", path, color=True, env={"NO_COLOR": "1"})
    assert [m.lastgroup for m in TOKENS.finditer('ROOT a = bf16[2]{0} add(x), k="f32[]" /* f32[] */')] == [
        "magenta", "cyan", "yellow", "blue", "green", "bright_black"
    ]  # fmt: skip


def test_figures_are_written_as_json(path: str, bad: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(2, 1e11, (Bandwidth(1, 1e10, 1e10, 1e10),))
    monkeypatch.setattr(sys.modules["hloom.profiler.profile"], "limits_of_machine", lambda **_: limits)
    found = json.loads(run("check", bad, "--random", "0", "--json", "-", status=1))
    assert (found["instruction"], found["kind"], found["position"]) == ("w", "nan", [0])
    assert json.loads(run("check", path, "--random", "0", "--json", "-")) is None
    shown = json.loads(run("show", path, "--cost", "--memory", "--json", "-"))
    assert shown["cost"]["flops"] == 32 and shown["memory"]["peak_bytes"] == 192
    assert json.loads(run("show", path, "--json", "-"))["instructions"]["transpose"] == 1
    (tmp_path / "s.hlo").write_text(SHARDED)
    (tmp_path / "c.toml").write_text(CLUSTER)
    options = ("--cost", "--devices", "4", "--cluster", str(tmp_path / "c.toml"), "--json", str(tmp_path / "o.json"))
    assert "a step on 4 devices" in run("show", str(tmp_path / "s.hlo"), *options)
    assert json.loads((tmp_path / "o.json").read_text())["cost"]["devices"] == 4
    profile = json.loads(run("profile", path, "--random", "0", "--seconds", "0.01", "--json", "-"))
    assert profile["module"] == "m" and sum(k["seconds"] for k in profile["kernels"]) > 0


def test_tables_wrap_names_and_keep_figures_whole() -> None:
    table = Table("name", "bytes")
    table.columns[1].justify = "right"
    table.add_row("a_name_that_is_far_too_long_for_this_terminal", "1,234,567")
    for is_terminal, longest in ((True, 35), (False, 61)):
        console = Console(file=io.StringIO(), width=35, force_terminal=is_terminal, color_system=None)
        print_table(console, table)
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(len, lines)) == longest and any("1,234,567" in line for line in lines)


def test_counts_have_their_number() -> None:
    assert [counted(1, "step"), counted(2, "step"), counted(1000, "step")] == [
        "1 step", "2 steps", "1,000 steps"
    ]  # fmt: skip


def test_long_work_shows_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress, "terminal", lambda **_: console)
    monkeypatch.setattr(progress, "DELAY", 0.0)
    monkeypatch.setattr(progress, "INTERVAL", 0.01)
    with progress.reduction_progress("reducing") as accept:
        accept("end early", 1234)
        time.sleep(0.2)
    assert "reducing · 1,234 instructions left · end early · 0 s" in console.file.getvalue()  # type: ignore[attr-defined]


def test_shells_complete_commands() -> None:
    environment = {"_HLOOM_COMPLETE": "bash_complete", "COMP_WORDS": "hloom pro", "COMP_CWORD": "1"}
    assert "plain,profile\nplain,prove" in run(prog_name="hloom", env=environment)


def test_unknown_commands_have_close_names(path: str) -> None:
    assert "close are profile" in run("profil", path, status=2)


def test_missing_arguments_are_listed_with_their_shapes(path: str) -> None:
    for command in ("run", "profile", "check"):
        assert "the module takes 1 argument (f32[4,4]): give --input FILE" in run(command, path, status=2)


def test_files_to_compare_with_are_read_before_the_run(path: str) -> None:
    output = run("run", path, "--random", "0", "--expect", "none.npz", status=2)
    assert output == "error: cannot read arrays from none.npz: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [("opt", "m.hlo"), ("build", "m.hlo", "-o", "out"), ("show", "m.hlo"), ("convert", "m.hlo", "m.mlir")],
    ids=lambda arguments: arguments[0],
)
def test_work_that_can_be_long_shows_progress(
    arguments: tuple[str, ...], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    @contextmanager
    def recorded(what: str, detail: object = str) -> Iterator[progress.Activity]:
        shown.append(what)
        yield progress.Activity(what)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules[f"hloom.cli.{arguments[0]}"], "progress", recorded)
    run(*arguments)
    assert shown


@pytest.mark.parametrize("command", ["bisect", "diff", "isolate", "profile", "prove"])
def test_reading_shows_progress(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a long module takes seconds: commands read through `hloom.cli.arguments`."""
    shown: list[str] = []

    @contextmanager
    def recorded(what: str) -> Iterator[None]:
        shown.append(what)
        yield

    monkeypatch.setattr(sys.modules["hloom.cli.arguments"], "progress", recorded)
    run(command, "none.hlo", *MORE.get(command, []), status=2)
    assert shown == ["reading none.hlo"]


def test_a_failing_extension_is_shown_by_its_own_lines(path: str, tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text('import hloom as hl\n\n@hl.rewrite("exponential(x)", "")\ndef mine(m):\n    return m.y\n')
    output = run("--load", str(mine), "opt", path, "--passes", "mine", status=2)
    assert (
        'mine.py", line 5' in output and "the pattern binds no y; it binds x" in output and "pipeline.py" not in output
    )
    mine.write_text("import not_there\n")
    assert f"at {mine}:1" in run("--load", str(mine), "opt", path, status=2)
