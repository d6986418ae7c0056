"""Results are the same bits in every run, process and thread count, wherever arguments lie in memory, donated or not;
machine code is the same in every process. `docs/determinism.md` promises it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from determinism.digests import CASES as CORPUS_CASES
from determinism.digests import digests_of_runs, program

CASES = int(os.environ.get("HLOOM_CASES", "2400"))
TESTS = Path(__file__).parents[1]
FEW = ["mlp_forward", "segment_ops", "case:7", "fused:3", "loops:2"]
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
