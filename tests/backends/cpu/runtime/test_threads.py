"""Results do not depend on how many threads compute them, nor on who else computes at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from backends.cpu.runtime.thread_programs import PROGRAMS, arrays_of, digest
from hlo_text import module_text
from hloom.files.arrays import flat

COUNTS = (1, 2, 3, 7)
TESTS = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def digests() -> list[dict[str, str]]:
    """The results of all programs for each number of threads."""
    script = str(Path(__file__).with_name("thread_programs.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "PYTHONPATH": str(TESTS), "HLOOM_NUM_THREADS": str(count)},
            stdout=subprocess.PIPE,
        )
        for count in COUNTS
    ]
    return [json.loads(process.communicate(timeout=600)[0]) for process in processes]


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_the_same_bits_for_any_number_of_threads(name: str, digests: list[dict[str, str]]) -> None:
    assert [each[name] for each in digests] == [digests[0][name]] * len(COUNTS)


def at_once(work: list[Callable[[], None]]) -> None:
    """Runs them in Python threads that start together; raises the first error of any."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(work))

    def run(each: Callable[[], None]) -> None:
        try:
            barrier.wait(timeout=30)
            each()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def repeated(run: Any, arguments: list[np.ndarray], expected: str, times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            assert digest(flat(run(*arguments))) == expected

    return work


@pytest.mark.parametrize("name", ["column sums", "softmax", "blocked loop", "scatter", "sort", "product"])
def test_one_executable_is_called_by_several_python_threads(name: str) -> None:
    """Each with arguments of its own: their temporaries do not mix."""
    run = hl.compile(PROGRAMS[name], backend="cpu")
    work = []
    for k in range(5):
        arguments = [a + k if a.dtype == np.float32 else a for a in arrays_of(PROGRAMS[name])]
        work.append(repeated(run, arguments, digest(flat(run(*arguments))), times=6))
    at_once(work)


def test_short_programs_are_called_by_several_python_threads() -> None:
    """Small arenas are kept for the next call: two calls at once have two."""
    lines = "x = f32[500] parameter(0)\na = f32[500] sine(x)\nb = f32[500] reverse(a), dimensions={0}\n"
    text = module_text(lines + "c = f32[500] cosine(b)\nROOT r = f32[500] reverse(c), dimensions={0}")
    run = hl.compile(text, backend="cpu")
    inputs = [np.full(500, k, np.float32) for k in range(8)]
    at_once([repeated(run, [x], digest([run(x)]), times=200) for x in inputs])


def test_several_executables_run_at_once() -> None:
    names = ["elements", "sum", "transpose", "running sums", "convolution"]
    runs = [(hl.compile(PROGRAMS[name], backend="cpu"), arrays_of(PROGRAMS[name])) for name in names]
    at_once([repeated(run, arguments, digest([run(*arguments)]), times=10) for run, arguments in runs])


def test_calls_of_the_host_at_once_keep_their_values_apart() -> None:
    """Each call has its own values on the host's side."""
    lines = "x = f32[<=40,4] parameter(0)\ns = f32[<=40,4] sine(x)\n"
    run = hl.compile(module_text(lines + "ROOT r = c64[<=40,3] fft(s), fft_type=RFFT, fft_length={4}"), backend="cpu")
    assert run.report(), "transforms of dynamic sizes are the host's"
    inputs = [np.arange(4 * k, dtype=np.float32).reshape(k, 4) for k in range(1, 9)]
    at_once([repeated(run, [x], digest([run(x)]), times=40) for x in inputs])


def test_compiling_at_once_gives_working_programs() -> None:
    def compile_and_run(size: int) -> Callable[[], None]:
        def work() -> None:
            text = module_text(f"x = f32[{size}] parameter(0)\nROOT r = f32[{size}] negate(x)")
            result = hl.compile(text, backend="cpu")(np.ones(size, np.float32))
            assert result.tolist() == [-1] * size

        return work

    at_once([compile_and_run(size) for size in range(1, 9)])
