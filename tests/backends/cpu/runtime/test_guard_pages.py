"""Compiled programs touch no memory beside arrays: neither arguments, results, constants nor temporary arrays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backends.cpu.kernel_programs import KERNELS
from backends.cpu.runtime.guarded import CORPUS_CASES

CASES = int(os.environ.get("HLOOM_CASES", "4000"))
BLOCK = 200
PLANTED = """
import ctypes, os
import numpy as np
import hloom as hl
from backends.cpu.runtime import guarded

class Short(guarded.Side):
    def assign(self, program, donate=False):
        assignment = super().assign(program, donate)
        self.arena = [(offset, size - 4) for offset, size in self.arena]
        return assignment

b = hl.XlaBuilder()
x = b.parameter(0, hl.f32[7, 7])
try:
    guarded.run_on(Short(right=True), b.build(b.dot(b.dot(x, x), x)).module, [np.ones((7, 7), np.float32)])
except AssertionError as error:
    print(error, flush=True)
for side in ("left", "right"):
    array = guarded.Side(right=side == "right").empty((7,), "f4")
    ctypes.string_at(array.ctypes.data, array.nbytes)
    print("inside", flush=True)
    child = os.fork()
    if not child:
        ctypes.string_at(array.ctypes.data - (side == "left"), array.nbytes + 1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def python(*arguments: str, threads: int = 2) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "HLOOM_NUM_THREADS": str(threads)}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)


def run_programs(*blocks: tuple[str, int, int], threads: int = 2) -> None:
    """Runs programs of families in a process of their own, which a fault may end."""
    script = str(Path(__file__).with_name("guarded.py"))
    done = python(script, *(str(word) for block in blocks for word in block), threads=threads)
    program, wrong = "none", []
    lines = done.stdout.splitlines()
    for line in lines:
        if line.startswith("at "):
            program = line[3:]
        elif line != "done":
            wrong.append(f"{program} {line}")
    if lines[-1:] != ["done"]:
        wrong.append(f"{program} ended the process: {done.returncode}\n{done.stderr[-3000:]}")
    assert not wrong, "\n".join(wrong)


def test_each_family_of_kernels_and_some_random_programs_stay_inside_their_arrays() -> None:
    others = ("case", 0, 6), ("fused", 0, 3), ("smooth", 0, 1), ("loops", 0, 3), ("corpus", 0, 5)
    run_programs(("kernel", 0, len(KERNELS)), *others)


def test_what_is_touched_beside_an_array_is_found() -> None:
    """An array of the arena that is taken for shorter than it is, and an element too many of an argument."""
    done = python("-c", PLANTED)
    assert done.stdout.startswith("wrote beside") and done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == ["inside", str(-signal.SIGSEGV.value)] * 2, done.stderr


SHARES = {"kernel": 2, "case": 4, "fused": 8, "smooth": 16, "loops": 16}
"""The divisor of the number of programs in the long run."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(
    ("family", "first"),
    [(family, first) for family, share in SHARES.items() for first in range(1000, 1000 + CASES // share, BLOCK)],
)
def test_programs_stay_inside_their_arrays(family: str, first: int, threads: int) -> None:
    run_programs((family, first, min(BLOCK, CASES // SHARES[family])), threads=threads)


@pytest.mark.long
def test_programs_of_the_corpus_stay_inside_their_arrays() -> None:
    run_programs(("corpus", 0, len(CORPUS_CASES)))
