"""The thread pool: every chunk runs once, whoever calls, from wherever, and nothing waits for ever."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from hloom.backends.cpu.llvm.native.translator import native_module
from hloom.backends.cpu.runtime import thread_pool
from hloom.backends.cpu.runtime.thread_pool import Share, ThreadPool, shared_pool, take
from hloom.errors import ArgumentError
from hloom.system.machine import thread_count

CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
PARALLEL_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

# `count` adds one, not atomically, to an element of an array of i64: a chunk that ran twice or not at all shows.
# `fork_often` forks count over the same array of `chunks` elements `times` times.
COUNTING = """
define void @count(ptr %array, i64 %chunk) {
  %element = getelementptr i64, ptr %array, i64 %chunk
  %old = load i64, ptr %element
  %new = add i64 %old, 1
  store i64 %new, ptr %element
  ret void
}
define void @fork_often(ptr %parallel_for, ptr %pool, ptr %array, i64 %chunks, i64 %times) {
entry:
  br label %fork
fork:
  %done = phi i64 [ 0, %entry ], [ %next, %fork ]
  call void %parallel_for(ptr %pool, ptr @count, ptr %array, i64 %chunks)
  %next = add i64 %done, 1
  %more = icmp ult i64 %next, %times
  br i1 %more, label %fork, label %exit
exit:
  ret void
}
"""


@functools.cache
def counting() -> tuple[int, Callable[..., None]]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    engine = llvm.create_mcjit_compiler(
        llvm.parse_assembly(COUNTING), llvm.Target.from_default_triple().create_target_machine(jit=True)
    )
    engine.finalize_object()
    addresses = [engine.get_function_address(name) for name in ("count", "fork_often")]
    engine.detach()
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return addresses[0], ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)(addresses[1])


def count(pool: ThreadPool, array: np.ndarray) -> None:
    parallel_for(pool, counting()[0], array.ctypes.data, len(array))


def parallel_for(pool: ThreadPool, function: object, context: int, chunks: int) -> None:
    PARALLEL_FOR(pool.parallel_for_address)(pool.address, ctypes.cast(function, ctypes.c_void_p), context, chunks)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[(1, 1e-4), (2, 1e-4), (2, 0), (5, 1e-6), (16, 1e-5)], ids=str)
def pool(request: pytest.FixtureRequest) -> ThreadPool:
    return ThreadPool(*request.param)


def test_every_chunk_runs_once(pool: ThreadPool) -> None:
    choose = random.Random(1)
    expected, array = np.zeros(300, np.int64), np.zeros(300, np.int64)
    for _ in range(3000):
        chunks = choose.choice([0, 1, 2, 3, choose.randrange(300)])
        count(pool, array[:chunks])
        expected[:chunks] += 1
    assert np.array_equal(array, expected)


@pytest.mark.parametrize("chunks", [2, 7, 64])
def test_forks_in_a_row_from_compiled_code_lose_and_repeat_nothing(pool: ThreadPool, chunks: int) -> None:
    array = np.zeros(chunks, np.int64)
    counting()[1](pool.parallel_for_address, pool.address, array.ctypes.data, chunks, 5000)
    assert (array == 5000).all()


def test_negative_counts_run_nothing(pool: ThreadPool) -> None:
    parallel_for(pool, counting()[0], 0, -1)


def test_parked_workers_wake() -> None:
    """Two chunks that wait for each other need two threads."""
    pool = ThreadPool(2)
    for pause in (0.0, 0.02, 0.02):
        time.sleep(pause)
        barrier = threading.Barrier(2, timeout=30)
        threads: list[int] = []

        @CHUNK
        def meet(context: int, chunk: int, barrier: threading.Barrier = barrier, threads: list[int] = threads) -> None:
            barrier.wait()
            threads.append(threading.get_ident())

        parallel_for(pool, meet, 0, 2)
        assert len(set(threads)) == 2 and threading.get_ident() in threads


def test_workers_that_never_come_are_not_waited_for() -> None:
    """Threads may be missing when the system refuses to start them, or gives them no time."""
    pool = ThreadPool(4)
    pool.memory.missing = 0
    array = np.zeros(100, np.int64)
    count(pool, array)
    assert (array == 1).all()


def test_threads_have_the_same_part_of_every_loop() -> None:
    """Data that a loop left in a core's cache are there for the next one."""
    pool, runs = ThreadPool(2), []
    for _ in range(5):
        barrier = threading.Barrier(2, timeout=30)

        @CHUNK
        def meet(context: int, chunk: int, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            runs.append((chunk, threading.get_ident()))

        parallel_for(pool, meet, 0, 2)
    assert {thread for chunk, thread in runs if chunk == 0} == {threading.get_ident()}
    assert len({thread for chunk, thread in runs if chunk == 1} - {threading.get_ident()}) == 1


def test_a_share_counts_anew_in_each_generation() -> None:
    """The function under Python."""
    memory = np.zeros(1, np.uint64)
    share = Share(memory.ctypes.data)
    assert [take(share, 1, 3) for _ in range(5)] == [0, 1, 2, 3, 3]
    assert [take(share, 2, 2) for _ in range(3)] == [0, 1, 2]
    assert take(share, 3, 0) == 0


def test_nested_loops_run_serially(pool: ThreadPool) -> None:
    array = np.zeros((6, 50), np.int64)

    @CHUNK
    def outer(context: int, chunk: int) -> None:
        for _ in range(10):
            count(pool, array[chunk])

    parallel_for(pool, outer, 0, 6)
    assert (array == 10).all()


def test_callers_from_several_threads(pool: ThreadPool) -> None:
    arrays = np.zeros((6, 40), np.int64)

    def call(row: int) -> None:
        for _ in range(20):
            counting()[1](pool.parallel_for_address, pool.address, arrays[row].ctypes.data, 40, 50)

    threads = [threading.Thread(target=call, args=(row,)) for row in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (arrays == 1000).all()


def test_the_process_has_one_shared_pool() -> None:
    assert shared_pool() is shared_pool() and shared_pool().threads == thread_count()


def test_the_pool_lies_in_cache_lines_of_its_own() -> None:
    assert all(ThreadPool(1).address % 128 == 0 for _ in range(5))


SUBPROCESS = """
import os, sys
sys.path[:0] = [{here!r}]
import numpy as np
from test_thread_pool import CHUNK, ThreadPool, count, meet_others, parallel_for, shared_pool
"""


def meet_others(pool: ThreadPool, others: int) -> int:
    """The number of threads that run a loop whose chunks wait for one another."""
    barrier, threads = threading.Barrier(others, timeout=30), set()

    @CHUNK
    def meet(context: int, chunk: int) -> None:
        barrier.wait()
        threads.add(threading.get_ident())

    parallel_for(pool, meet, 0, others)
    return len(threads)


def run(program: str, **environment: str) -> tuple[int, str]:
    program = SUBPROCESS.format(here=str(Path(__file__).parent)) + program
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_forked_child_has_workers_of_its_own_at_the_same_address() -> None:
    program = """
pool = shared_pool()
assert meet_others(pool, 3) == 3
child = os.fork()
assert shared_pool() is pool and meet_others(pool, 3) == 3
if child == 0:
    grandchild = os.fork()
    assert meet_others(pool, 3) == 3
    if grandchild == 0:
        os._exit(0)
    os._exit(os.waitpid(grandchild, 0)[1])
assert os.waitpid(child, 0)[1] == 0
"""
    assert run(program, HLOOM_NUM_THREADS="3") == (0, "")


def test_a_fork_while_another_thread_owns_the_pool() -> None:
    program = """
import threading
pool, inside, leave = ThreadPool(3), threading.Event(), threading.Event()
@CHUNK
def hold(context, chunk):
    inside.set()
    leave.wait()
thread = threading.Thread(target=parallel_for, args=(pool, hold, 0, 3))
thread.start()
inside.wait()
child = os.fork()
if child == 0:
    os._exit(meet_others(pool, 3) != 3)
leave.set()
thread.join()
assert os.waitpid(child, 0)[1] == 0
"""
    assert run(program) == (0, "")


def test_the_interpreter_exits_with_workers_parked_or_polling() -> None:
    program = """
pools = [ThreadPool(3, spin) for spin in (0, 1e-4, 1000)]
for pool in pools:
    array = np.zeros(100, np.int64)
    for _ in range(100):
        count(pool, array)
    assert (array == 100).all()
"""
    assert run(program) == (0, "")


@pytest.mark.skipif("HLOOM_PYTHON" in os.environ, reason="an emulator has threads of its own")
def test_one_thread_needs_no_workers() -> None:
    program = """
import threading
array = np.zeros(100, np.int64)
count(shared_pool(), array)
assert (array == 1).all() and shared_pool().threads == 1
# This one, and the one that compiles.
assert not os.path.exists("/proc/self/task") or len(os.listdir("/proc/self/task")) == 2
"""
    assert run(program, HLOOM_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1") == (0, "")


@pytest.mark.parametrize("threads", [0, -3, 5000])
def test_a_pool_of_no_threads_is_an_error(threads: int) -> None:
    with pytest.raises(ArgumentError, match=f"from 1 to 4096 threads, got {threads}$"):
        ThreadPool(threads)


@pytest.mark.parametrize(
    "machine, triple",
    [
        ("x86_64", "x86_64-unknown-linux-gnu"),
        ("aarch64", "aarch64-unknown-linux-gnu"),
        ("aarch64", "arm64-apple-macosx"),
    ],
)
def test_the_code_compiles_for_other_machines(machine: str, triple: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(native_module([thread_pool.parallel_for], machine).text())
    module.verify()
    assembly = llvm.Target.from_triple(triple).create_target_machine().emit_assembly(module)
    assert ("pause" if machine == "x86_64" else "yield") in assembly
