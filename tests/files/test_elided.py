"""Elided constants, whose values the text omits: formats preserve them, and programs can run with random values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from compare_graphs import difference
from hloom.cli import main
from hloom.passes import run_passes
from hloom.passes.registry import simplification_pipeline

TEXT = """HloModule m
ENTRY e {
  p = f32[3] parameter(0)
  c = f32[3] constant({...})
  k = s32[2,2] constant({...})
  known = f32[3] constant({1, 2, 3})
  s = f32[3] multiply(p, c)
  ROOT r = (f32[3], s32[2,2], f32[3]) tuple(s, k, known)
}
"""


@pytest.mark.parametrize("suffix", [".hlo", ".pb", ".mlir"])
def test_they_survive_every_format(suffix: str, tmp_path: Path) -> None:
    module = hl.parse(TEXT)
    hl.save(module, tmp_path / f"m{suffix}")
    back = hl.load(tmp_path / f"m{suffix}")
    names = [i.shape for i in back.instructions() if i.opcode == "elided-constant"]
    assert sorted(map(str, names)) == ["f32[3]", "s32[2,2]"]
    if suffix != ".mlir":
        assert difference(module, back) is None


def test_they_print_as_they_were_written() -> None:
    text = hl.parse(TEXT).to_text()
    assert "c = f32[3]{0} constant({...})" in text and "k = s32[2,2]{1,0} constant({...})" in text
    assert hl.parse(text).to_text() == text


def test_passes_leave_them_alone() -> None:
    module = hl.parse(TEXT)
    run_passes(module, simplification_pipeline(), verify=True)
    assert sum(i.opcode == "elided-constant" for i in module.instructions()) == 2


def test_elided_constants_are_not_merged() -> None:
    module = hl.parse(
        "HloModule m\nENTRY e {\n  a = f32[3] constant({...})\n  b = f32[3] constant({...})\n"
        "  ROOT s = f32[3] subtract(a, b)\n}"
    )
    (got,) = (np.asarray(hl.compile(module, fill_elided=0)()),)
    assert np.all(got != 0)


def test_running_them_is_an_error_with_a_hint(backend: str) -> None:
    with pytest.raises(hl.ArgumentError, match=r"leaves out the values of %c, %k: .*fill_elided") as error:
        hl.compile(hl.parse(TEXT), backend=backend)
    assert "--fill-elided" in str(error.value)


def test_a_seed_gives_both_backends_the_same_values() -> None:
    module, p = hl.parse(TEXT), np.ones(3, np.float32)
    one = hl.compile(module, backend="cpu", fill_elided=3)(p)
    two = hl.compile(module, backend="interpreter", fill_elided=3)(p)
    other = hl.compile(module, backend="cpu", fill_elided=4)(p)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.any(one[0] != 0) and np.any(one[0] != other[0])
    np.testing.assert_array_equal(one[2], [1, 2, 3])
    assert any(i.opcode == "elided-constant" for i in module.instructions()), "the module itself is unchanged"


def test_the_command_takes_a_seed(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(TEXT)
    arguments = ["run", str(tmp_path / "m.hlo"), "--random", "0"]
    refused = CliRunner().invoke(main, arguments)
    assert refused.exit_code == 2 and "--fill-elided" in refused.output + refused.stderr
    ran = CliRunner().invoke(main, [*arguments, "--fill-elided", "1"])
    assert ran.exit_code == 0 and "r1 s32[2,2]" in ran.output
