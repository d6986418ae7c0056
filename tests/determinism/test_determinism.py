"""Results are the same bits in every run, process and thread count, wherever arguments lie in memory, donated or not;
machine code is the same in every process. `docs/determinism.md` promises it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from determinism.digests import CASES as CORPUS_CASES
from determinism.digests import digest, digests_of_runs, program

CASES = int(os.environ.get("HLOOM_CASES", "2400"))
TESTS = Path(__file__).parents[1]
FEW = ["mlp_forward", "case:7", "fused:3"]
GENERATORS = ("case", "fused", "loops", "smooth")
CONFIGURATIONS = [
    {"HLOOM_NUM_THREADS": str(threads), "PYTHONHASHSEED": seed}
    for threads, seed in ((2, "0"), (2, "77"), (1, "1"), (3, "2"), (4, "3"), (5, "4"))
]
"""Environments of processes; the first two have the same machine code."""


@pytest.mark.parametrize("name", FEW)
def test_a_program_has_the_same_results_in_every_run(name: str) -> None:
    found = digests_of_runs(*program(name))
    found.pop("code")
    assert len(set(found.values())) == 1, found


def digests(names: list[str], environment: dict[str, str]) -> dict[str, dict[str, str]]:
    """The digests of programs in a process of its own, with an empty cache."""
    script = str(Path(__file__).with_name("digests.py"))
    path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, script],
        input=" ".join(names),
        env={**os.environ, "PYTHONPATH": path, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.mark.long
@pytest.mark.parametrize("generator", ["corpus", *GENERATORS])
def test_results_and_code_are_the_same_in_every_process(generator: str) -> None:
    """Numbers of threads and orders of Python's sets make no difference."""
    seeds = range(10_000, 10_000 + CASES // 20)
    names = (
        [f"{generator}:{seed}" for seed in seeds] if generator != "corpus" else CORPUS_CASES[:: max(1, 1000 // CASES)]
    )
    found = [digests(names, environment) for environment in CONFIGURATIONS]
    wrong = []
    for name in names:
        of_name = [each[name] for each in found]
        results = {value for each in of_name for run, value in each.items() if run != "code"}
        if len(results) > 1 or of_name[0].get("code") != of_name[1].get("code"):
            wrong.append(f"{name}: {of_name}")
    assert not wrong, "\n".join(wrong)


def test_collectives_add_in_the_order_of_their_group() -> None:
    """Whichever device arrives last combines the values."""
    text = """HloModule m, replica_count=5
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[1000] parameter(0)
  ROOT r = f32[1000] all-reduce(x), replica_groups={}, to_apply=sum }"""
    rng = np.random.default_rng(0)
    arguments = [[rng.standard_normal(1000).astype(np.float32)] for _ in range(5)]
    run = hl.compile(text)
    assert len({digest(run.run_replicas(arguments)) for _ in range(20)}) == 1
