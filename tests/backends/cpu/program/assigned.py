"""Helpers for tests: from HLO text to a program with its buffer assignment, and to its results."""

from __future__ import annotations

import numpy as np

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import Assignment, assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CopyStep, Program, Step, all_steps
from hloom.passes import run_passes
from hloom.target import Target


def assigned(text: str, threads: int = 2) -> tuple[Program, Assignment]:
    module = hl.parse(text)
    run_passes(module, cpu_pipeline())
    program = build_program(module, Target(32, threads))
    return program, assign_buffers(program)


def copies(program: Program, assignment: Assignment, steps: list[Step] | None = None) -> list[CopyStep]:
    """Returns the copies that remain, between different memory."""
    found = [step for step in all_steps(program.steps if steps is None else steps) if isinstance(step, CopyStep)]
    return [
        c
        for c in found
        if assignment.representative(c.target) is not assignment.representative(c.source) and c.target.dimensions
    ]


def check_results(text: str, *arrays: np.ndarray, rtol: float = 0.0) -> None:
    """Checks compiled results against the interpreter's, on the given arrays or on random ones."""
    arguments = arrays or arrays_for(text)
    for got, want in zip(compiled(text, *arguments), interpreted(text, *arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol)
