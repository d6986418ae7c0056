"""From HLO text to the program of steps, where its buffers lie, and its results, for tests."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted
from hloom.backends.cpu.compiler import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import Assignment, assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CopyStep, Program, Step, all_steps
from hloom.passes import run_passes


def assigned(text: str, threads: int = 2) -> tuple[Program, Assignment]:
    module = hl.parse(text)
    run_passes(module, cpu_pipeline())
    program = build_program(module, 32, threads)
    return program, assign_buffers(program)


def copies(program: Program, assignment: Assignment, steps: list[Step] | None = None) -> list[CopyStep]:
    """The copies of arrays that are left: from one memory to another."""
    found = [step for step in all_steps(program.steps if steps is None else steps) if isinstance(step, CopyStep)]
    return [
        c
        for c in found
        if assignment.representative(c.target) is not assignment.representative(c.source) and c.target.dimensions
    ]


def check_results(text: str, *arrays: np.ndarray, rtol: float = 0.0) -> None:
    """Compiled as interpreted, on these arrays or on random ones."""
    arguments = arrays or arrays_for(text)
    for got, want in zip(compiled(text, *arguments), interpreted(text, *arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol)
