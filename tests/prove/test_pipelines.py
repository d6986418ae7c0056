"""The passes before code generation preserve the results of small modules, for all arguments."""

from __future__ import annotations

import pytest

from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.ops.dot import Dot
from hloom.passes import clone_module
from hloom.passes.pipeline import run_passes
from hloom.prove import Proved, Undecided, prove
from passes.simplify.test_algebraic_simplifier import CASES, module


@pytest.mark.parametrize("part", [0, *(pytest.param(k, marks=pytest.mark.long) for k in range(1, 4))])
def test_the_passes_of_the_backend_are_proved(part: int) -> None:
    for _, before in [case[:2] for case in CASES][part::4]:
        given = module(before)
        optimised = clone_module(given)
        run_passes(optimised, cpu_pipeline(Topology.SINGLE))
        verdict = prove(given, optimised)
        # Products of matrices may become sums, whose order is open (GEN-13).
        has_product = any(isinstance(instruction.op, Dot) for instruction in given.instructions())
        assert verdict == Proved() or (has_product and isinstance(verdict, Undecided)), (before, verdict)
