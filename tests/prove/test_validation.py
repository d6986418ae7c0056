"""Proofs at smaller sizes, trials, and the command with passes and XLA."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hlo_text import module_text, softmax
from hloom.cli import main
from hloom.faults.case import interpret
from hloom.prove import Proved, Refuted, Undecided, prove
from hloom.prove.sizes import smaller_sizes, stretched, with_sizes, work
from hloom.prove.trials import is_exact, trials, tried
from miscompilations.cases import CASES

BY_NAME = {case.name: case for case in CASES}


def test_equal_sizes_are_replaced_by_equal_ones() -> None:
    module = hl.parse(softmax(300, 200))
    sizes = smaller_sizes(module)
    assert sizes == {200: 2, 300: 3}
    small = with_sizes(module, sizes)
    assert small is not None and small.to_text() == hl.parse(softmax(3, 2)).to_text()
    assert work(module) == 60_000 and work(small) == 6


@pytest.mark.parametrize(
    "line",
    [
        "ROOT r = f32[499] slice(x), slice={[1:500]}",
        "ROOT r = f32[1000] concatenate(x, x), dimensions={0}",
        "ROOT r = f32[20,25] reshape(x)",
        "ROOT r = f32[500] dynamic-slice(y, s), dynamic_slice_sizes={500}",
        "ROOT r = s32[] get-dimension-size(x), dimensions={0}",
    ],
)
def test_sizes_in_which_positions_matter_are_kept(line: str) -> None:
    parameters = "x = f32[500] parameter(0)\ny = f32[501] parameter(1)\ns = s32[] parameter(2)\n"
    assert 500 not in smaller_sizes(hl.parse(module_text(parameters + line)))


def test_large_modules_are_proved_at_small_sizes() -> None:
    before = "x = f32[70000,9] parameter(0)\nt = f32[9,70000] transpose(x), dimensions={1,0}\n"
    negated = before + "ROOT r = f32[9,70000] negate(t)"
    moved = "x = f32[70000,9] parameter(0)\nn = f32[70000,9] negate(x)\nROOT r = f32[9,70000] transpose(n), dimensions={1,0}"
    verdict = prove(hl.parse(module_text(negated)), hl.parse(module_text(moved)))
    assert verdict == Proved(sizes=((9, 2), (70000, 3)))
    verdict = prove(hl.parse(module_text(negated)), hl.parse(module_text(before + "ROOT r = f32[9,70000] abs(t)")))
    assert isinstance(verdict, Refuted) and verdict.arguments[0].shape == (70000, 9)


def test_a_count_of_elements_differs_only_at_small_sizes() -> None:
    """The sum of 1000 equal elements is 1000 times one of them; of two, it is not."""
    text = "x = s32[] parameter(0)\nz = s32[] constant(0)\n"
    add = "plus {\n  a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = s32[] add(a, b)\n}\n"
    lines = "b = s32[10000] broadcast(x), dimensions={}\nROOT r = s32[] reduce(b, z), dimensions={0}, to_apply=plus"
    times = "n = s32[] constant(10000)\nROOT r = s32[] multiply(x, n)"
    verdict = prove(hl.parse(module_text(text + lines, add)), hl.parse(module_text(text + times, add)))
    assert isinstance(verdict, Undecided) and "2 for 10000" in verdict.reason


def test_arguments_are_stretched() -> None:
    (value,) = stretched(
        [np.array([[1, 2], [3, 4]])], hl.parse(module_text("ROOT x = s64[3,5] parameter(0)")).entry.parameter_shapes
    )
    assert value.tolist() == [[1, 2, 1, 2, 1], [3, 4, 3, 4, 3], [1, 2, 1, 2, 1]]


def test_trials_find_what_functions_hide() -> None:
    before = hl.parse(BY_NAME["logarithm-of-exponential"].text)
    verdict = prove(before, hl.parse("HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] copy(x) }"))
    assert isinstance(verdict, Refuted)
    assert tried(before, lambda arguments: interpret(before, arguments)) is None
    assert is_exact(hl.parse(BY_NAME["products-contracted"].text)) and not is_exact(before)


def test_trials_have_the_shapes_of_the_parameters() -> None:
    module = hl.parse(
        "HloModule m\nENTRY e { ROOT x = (s8[2], u4[], c64[2,1], pred[3], bf16[], token[]) parameter(0) }"
    )
    for arguments in trials(module, 3):
        interpret(module, arguments)


def test_the_pass_that_is_wrong_is_named(tmp_path: Path) -> None:
    rule = tmp_path / "wrong.py"
    rule.write_text(
        "import hloom as hl\nfrom hloom.ops.elementwise_unary import Abs\n\n\n"
        '@hl.rewrite("negate(negate(x))", "wrong: -(-x) = |x|")\ndef wrong(m):\n    return m.result(Abs(), m.x)\n'
    )
    module = tmp_path / "module.hlo"
    module.write_text(
        module_text("x = f32[2] parameter(0)\ne = f32[2] negate(x)\nf = f32[2] negate(e)\nROOT r = f32[2] negate(f)")
    )
    command = ["--load", str(rule), "opt", str(module), "--passes", "dce,wrong,cse", "--prove"]
    shown = CliRunner().invoke(main, command)
    assert shown.exit_code == 1 and "by run 2 of the passes, wrong, of" in shown.output, shown.output
    assert "negate(e)" in shown.output.split("passes, wrong, of")[1]


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "logarithm-of-exponential", "root-of-square", "slice-of-slice-inner-start", "slice-of-rotation",
        "update-of-slice", "shifted-slice-written-back", "matrix-times-rows-reduced", "absolute-of-wrapped-square",
        "angle-of-the-origin", "products-contracted", "quotient-of-quotients", "sum-with-two-constants",
    ],
)  # fmt: skip
def test_public_bugs_of_xla_are_found_by_the_command(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jaxlib", reason="needs XLA's CPU backend")
    file = tmp_path / "module.hlo"
    file.write_text(BY_NAME[name].text)
    shown = CliRunner().invoke(main, ["prove", str(file), "--xla", "--output", str(tmp_path / "found.pb")])
    assert shown.exit_code == 1 and "refuted" in shown.output, shown.output
    assert CliRunner().invoke(main, ["run", str(tmp_path / "found.pb")]).exit_code == 0
