"""Programs on several processes, started by MPI as users start them."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from hloom.errors import ArgumentError
from hloom.runtime.mpi.world import _comm_world

pytest.importorskip("mpi4py")
MPIEXEC = Path(sysconfig.get_path("scripts")) / "mpiexec"
PROGRAMS = Path(__file__).with_name("mpi_programs.py")
HLO = """HloModule m
ENTRY e {
  x = f32[8,8] parameter(0), sharding={devices=[2,1]<=[2]}
  y = f32[8,8] parameter(1), sharding={devices=[2,1]<=[2]}
  ROOT d = f32[8,8] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def start(ranks: int, *command: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    whole = [str(MPIEXEC), "-n", str(ranks), *command]
    return subprocess.run(whole, capture_output=True, text=True, timeout=seconds, cwd=PROGRAMS.parents[1])


def run(ranks: int, *programs: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Runs programs one after the other in the same processes."""
    return start(ranks, sys.executable, str(PROGRAMS), *programs, seconds=seconds)


def test_two_processes_agree_with_numpy_refuse_what_differs_and_time_collectives() -> None:
    done = run(2, "some_collectives", "refusals", "overlaps", "is_timed")
    assert done.returncode == 0 and done.stdout.count("is well") == 2, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("program", ["one_device_each", "several_devices_each", "training", "overlaps", "every_type"])
@pytest.mark.parametrize("ranks", [2, 1, 4])
def test_processes_agree_with_numpy(ranks: int, program: str) -> None:
    done = run(ranks, program, seconds=1500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} is well" in done.stdout for rank in range(ranks))


FAILURES = {
    "another_program": "the module of ranks [1] differs from that of ranks [0]",
    "another_shape": "the module of ranks [1] differs from that of ranks [0]",
    "raises": "rank 1 failed: the custom call 'perhaps' raised ValueError: no luck",
    "leaves": "rank 1 has ended",
    "hangs": "ranks [1] do not wait for others: they compute, or hang",
    "outside": "COLL-7: rows lie outside of the arrays",
    "does_not_share_evenly": "3 devices cannot be shared evenly by 2 processes",
}


LONG_FAILURES = ("another_program", "another_shape", "does_not_share_evenly", "hangs", "leaves")
"""The first three are also among the `refusals`, which share a start."""


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=pytest.mark.long) if name in LONG_FAILURES else name for name in FAILURES]
)
def test_a_failure_on_a_rank_ends_all_and_is_named(program: str) -> None:
    started = time.monotonic()
    done = run(2, program)
    assert done.returncode != 0 and FAILURES[program] in done.stderr, done.stdout + done.stderr
    assert "rank 0 is well" not in done.stdout
    assert time.monotonic() - started < 30


def test_ranks_that_wait_for_each_other_name_their_instructions() -> None:
    done = run(2, "waits_crosswise")
    assert done.returncode != 0 and "rank 0 is well" not in done.stdout
    assert "rank 0 waited 1 s for other ranks, %first = " in done.stderr, done.stderr
    assert "rank 1 waits, %second = " in done.stderr, done.stderr


def test_a_rank_that_is_killed_ends_all() -> None:
    done = run(2, "is_killed")
    assert done.returncode != 0 and "is well" not in done.stdout


def test_the_command_gathers_the_result(tmp_path: Path) -> None:
    module, output = tmp_path / "m.hlo", tmp_path / "out.npz"
    module.write_text(HLO)
    command = [sys.executable, "-m", "hloom", "run", str(module), "--random", "0", "--partitions", "2"]
    done = start(2, *command, "--distributed", "--compare", "interpreter", "--output", str(output))
    assert done.returncode == 0 and done.stdout.count("r0 is as expected") == 1, done.stdout + done.stderr
    assert np.load(output)["r0"].shape == (8, 8)


def test_without_a_library_of_mpi_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoLibrary(ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("cannot load MPI library\nlibmpi.so: cannot open shared object file")

    monkeypatch.setitem(sys.modules, "mpi4py", NoLibrary("mpi4py"))
    with pytest.raises(
        ArgumentError, match=r"pip install 'hloom\[mpi\]', which brings mpiexec.*cannot load MPI library"
    ):
        _comm_world()
