"""JAX on several processes, with the platform."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("mpi4py")
MPIEXEC = Path(sysconfig.get_path("scripts")) / "mpiexec"
PROGRAMS = Path(__file__).with_name("distributed_programs.py")
ENVIRONMENT = {**os.environ, "JAX_PLATFORMS": "hloom", "HLOOM_NUM_DEVICES": "2"}


def run(name: str, *first: str, more: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*first, sys.executable, str(PROGRAMS), name, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=ENVIRONMENT)


LONG = [pytest.param(name, marks=pytest.mark.long) for name in ("training", "pmap", "elsewhere")]


@pytest.mark.parametrize("name", ["collectives,local_work", *LONG])
def test_programs_on_two_processes(name: str) -> None:
    done = run(name, str(MPIEXEC), "-n", "2")
    assert done.returncode == 0 and done.stdout.count("well") == 2, done.stdout + done.stderr


@pytest.mark.long
def test_an_error_on_one_process_ends_all() -> None:
    done = run("one_fails", str(MPIEXEC), "-n", "2")
    assert done.returncode != 0 and "well" not in done.stdout
    assert "rank 1 failed" in done.stderr and "no luck" in done.stderr, done.stderr


def test_processes_that_mpi_did_not_start_are_told_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    others = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS), "without_mpi", address, str(k)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        )
        for k in range(2)
    ]  # fmt: skip
    for process in others:
        out, error = process.communicate(timeout=120)
        assert process.returncode != 0 and "start them all by `mpiexec -n 2`" in error, out + error
