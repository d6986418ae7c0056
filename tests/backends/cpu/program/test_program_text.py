"""The text of a program: steps on the buffers that remain after coalescing, and where these lie."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from assigned import assigned

import hloom as hl
from conftest import ROOT
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.program_text import program_text

SORTED = """HloModule m
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[8,128] parameter(0)
  y = f32[8,128] sort(x), dimensions={1}, to_apply=less
  z = f32[8,128] sort(y), dimensions={0}, to_apply=less
  one = f32[] constant(1)
  ROOT r = (f32[8,128], f32[]) tuple(z, one)
}"""


def lines_of(text: str) -> list[str]:
    return program_text(*assigned(text, threads=1)).split("\n")


def corpus(name: str) -> str:
    return (ROOT / "tests" / "corpus" / name / "module.hlo").read_text()


def test_temporaries_have_offsets_in_the_arena_and_coalesced_copies_are_left_out() -> None:
    lines = lines_of(SORTED)
    (arena,) = re.findall(r"^arena: (\d+) bytes$", lines[0])
    assert "temp0: 4096 bytes at 0" in lines
    assert int(arena) >= 4096
    first, second, copy = (line for line in lines if line.startswith(("code", "copy")))
    assert "(parameter0: f32[8, 128], temp0: f32[8, 128]" in first
    assert "(temp0: f32[8, 128], output0: f32[8, 128]" in second
    assert copy == "copy output1: f32[] <- constant0: f32[]"


def test_small_temporaries_are_on_the_stack() -> None:
    lines = lines_of(corpus("bench_while_small"))
    assert lines[:3] == ["arena: 0 bytes", "temp0: 4 bytes on the stack", "temp1: 40 bytes on the stack"]
    assert lines[lines.index("do") - 1] == "  temp2: pred[]"
    assert lines[-1] == "copy output0: f32[10] <- temp1: f32[10]"


@pytest.mark.parametrize("name", ["lstm_forward", "conds", "nested_loops", "topk"])
def test_the_temporaries_of_all_steps_are_listed(name: str) -> None:
    lines = lines_of(corpus(name))
    listed = {line.partition(":")[0] for line in lines if re.fullmatch(r"temp\d+: \d+ bytes .*", line)}
    steps = " ".join(line for line in lines if re.match(r" *(kernel|code|copy|branch) ", line))
    assert set(re.findall(r"temp\d+", steps)) == listed


def test_donated_outputs_take_the_memory_of_parameters() -> None:
    program, _ = assigned(
        "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }\n"
        "ENTRY e { p = f32[64] parameter(0)\n ROOT q = f32[64] sine(p) }"
    )
    lines = program_text(program, assign_buffers(program, donate=True)).split("\n")
    assert lines[:2] == ["arena: 0 bytes", "output0: memory of parameter0"]
    assert lines[2].endswith("(output0: f32[64], output0: f32[64])")


def test_the_dump_holds_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_DUMP", str(tmp_path))
    hl.compile(hl.parse(SORTED))
    (dumped,) = tmp_path.rglob("*program.txt")
    assert dumped.read_text().startswith("arena: ")
