"""Frequency with which loops read the clock: low if an iteration is short, whatever kernels it runs."""

from __future__ import annotations

import re

import hloom as hl
from hlo_text import loop, module_text, run_loop
from hloom.cli.pipelines import stage_text


def polled(state: str, body: str) -> list[int]:
    """The number of iterations between two readings of the clock, for each loop; 1 for every iteration."""
    shapes = state.split(" ")
    root = f"\nROOT r = ({', '.join(shapes)}) tuple({', '.join(f'y{k}' for k in range(len(shapes)))})"
    text = stage_text(hl.parse(module_text(run_loop(state) + root, loop(state, body))), "llvm")
    blocks = re.findall(r"^while\d+:\n(.*?)^look", text, re.MULTILINE | re.DOTALL)
    return [int(found[1]) + 1 if (found := re.search(r"and i32 %\w+, (\d+)", block)) else 1 for block in blocks]


SMALL = "y0 = f32[4,4] cholesky(x0)"


def product(size: int) -> str:
    return f"y0 = f32[{size},{size}] dot(x0, x0), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"


def test_loop_with_a_small_kernel_reads_the_clock_rarely() -> None:
    (period,) = polled("f32[4,4]", SMALL)
    assert period >= 4


def test_loop_with_a_large_kernel_reads_the_clock_in_every_iteration() -> None:
    assert polled("f32[200,200]", product(200)) == [1]
