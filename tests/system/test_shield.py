"""Interrupts and forks: no signal leaves work partially done, and forked children compile and run.

The programs run in processes of their own, because a failure ends a process, or hangs it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKS = ("parsing", "compiling", "loading", "running", "interpreting", "replicating")
CASES = int(os.environ.get("HLOOM_CASES", "1000"))

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX signals and fork")


def run(*command: str, seconds: float) -> None:
    """Runs Python with some arguments, and checks that it exits with status 0 and prints nothing."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=seconds)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def interrupt(times: int, seed: int, *works: str) -> None:
    run(str(Path(__file__).with_name("interrupted_work.py")), str(times), str(seed), *works, seconds=30 + 10 * times)


def test_interrupts_leave_all_usable() -> None:
    interrupt(4, 1, *WORKS)


@pytest.mark.long
@pytest.mark.parametrize("work", WORKS)
def test_a_thousand_interrupts_leave_all_usable(work: str) -> None:
    interrupt(-(-CASES // len(WORKS)), 2, work)


FORKS = """
import multiprocessing, os, sys, threading, time
import numpy as np, hloom as hl
from interrupted_work import check, program

def compile_and_run(constant):
    check(hl.compile(program(constant)), constant)
    return constant
"""


def fork(program: str, seconds: float = 120) -> None:
    path = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
    run("-W", "ignore", "-X", "faulthandler", "-c", f"{path}{FORKS}{program}", seconds=seconds)


def test_a_child_forked_from_an_idle_process_compiles_and_runs() -> None:
    fork(
        """
compile_and_run(1)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(compile_and_run, range(2, 6)) == [*range(2, 6)]
compile_and_run(6)
"""
    )


@pytest.mark.parametrize("cache", ["kept", pytest.param("", marks=pytest.mark.long)])
def test_a_child_forked_while_another_thread_compiles_compiles_and_runs(cache: str) -> None:
    fork(
        f"""
import tempfile
folder = tempfile.TemporaryDirectory()
os.environ["HLOOM_CACHE_DIR"] = {cache!r} and folder.name
stop = threading.Event()

def compile_often():
    constant = 1000
    while not stop.is_set():
        constant = compile_and_run(constant + 1)

thread = threading.Thread(target=compile_often)
thread.start()
for constant in range(2, 5):
    time.sleep(0.02 * constant)
    child = os.fork()
    if child == 0:
        compile_and_run(constant)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
thread.join()
"""
    )


def test_a_child_forked_while_another_thread_works_raises_an_error() -> None:
    fork(
        """
from hloom.system import shield
shield.FORK_TIMEOUT_SECONDS = 0.1
begun, stop = threading.Event(), threading.Event()

@shield.shielded
def work():
    begun.set()
    stop.wait()

thread = threading.Thread(target=work)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    try:
        hl.compile(program(1))
    except hl.RunError as error:
        os._exit(7 if "forked while another thread compiled" in str(error) else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
stop.set()
thread.join()
compile_and_run(1)
"""
    )


FIRST = """
import random, signal
signal.signal(signal.SIGALRM, signal.default_int_handler)
# The first use loads most of hloom, and some of SciPy.
factor = "ENTRY e { a = f32[2,2] parameter(0) ROOT c = f32[2,2] cholesky(a), lower=true }"

def use():
    compile_and_run(3)
    for backend in ("interpreter", "cpu"):
        result = hl.compile(hl.parse(factor), backend=backend)(np.eye(2, dtype=np.float32) * 4)
        np.testing.assert_array_equal(result, np.eye(2) * 2)

def interrupted_use(seconds):
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            use()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            pass
        use()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7

started, rng = time.perf_counter(), random.Random(1)
interrupted_use(0)
span = time.perf_counter() - started
for _ in range(TIMES):
    interrupted_use(1e-3 + rng.random() * span)
"""


@pytest.mark.parametrize("times", [1, pytest.param(CASES // 10, marks=pytest.mark.long)])
def test_an_interrupt_of_the_first_use_leaves_all_usable(times: int) -> None:
    fork(FIRST.replace("TIMES", str(times)), seconds=120 + 20 * times)


def test_a_child_forked_while_another_thread_imports_has_the_module(tmp_path: Path) -> None:
    (tmp_path / "slow_module.py").write_text("import time\ntime.sleep(0.5)\n")
    fork(
        f"""
sys.path.insert(0, {str(tmp_path)!r})
thread = threading.Thread(target=__import__, args=("slow_module",))
thread.start()
time.sleep(0.1)
child = os.fork()
if child == 0:
    __import__("slow_module")
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
thread.join()
""",
        seconds=30,
    )


def test_a_fork_waits_for_no_compilation_that_waits_for_the_fork() -> None:
    """Python's executors take a lock in `submit` that a fork takes before hloom's handler waits."""
    fork(
        """
os.environ["HLOOM_NUM_THREADS"] = "2"
from concurrent.futures.thread import _global_shutdown_lock
from hloom.backends.cpu.llvm.machine_code import Compilation
from hloom.system import shield

@shield.shielded
def work():
    with Compilation(threads=2) as compilation:
        compilation.begin(["define void @f() {\\n  ret void\\n}"])

thread = threading.Thread(target=work)
with _global_shutdown_lock:
    thread.start()
    time.sleep(0.2)
    start = time.monotonic()
    shield._wait_for_others()
    shield._gate.release()
    assert time.monotonic() - start < shield.FORK_TIMEOUT_SECONDS / 2
thread.join()
""",
        seconds=60,
    )
