"""The CPUs that a pool's workers are bound to, in a process of their own, by what the system says of its threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hloom.system.machine import allowed_cpus

CPUS = allowed_cpus()
pytestmark = pytest.mark.skipif(sys.platform != "linux" or len(CPUS) < 2, reason="needs affinity and two CPUs")

START = """
import ctypes, os, time
import numpy as np
from hloom.backends.cpu.runtime.thread_pool import ThreadPool
from hloom.system.machine import allowed_cpus
from hloom.system.shield import shielded

shielded(lambda: None)()  # starts the thread that compiles, which is no worker
CPUS, FIRST = allowed_cpus(), set(os.listdir("/proc/self/task"))
CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
FORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
rest = CHUNK(lambda context, chunk: time.sleep(0.001))

def fork(pool, times):
    for _ in range(times):
        FORK(pool.parallel_for_address)(pool.address, ctypes.cast(rest, ctypes.c_void_p), None, 2 * pool.threads)

def workers():
    tasks = sorted(set(os.listdir("/proc/self/task")) - FIRST, key=int)
    return [sorted(os.sched_getaffinity(int(task))) for task in tasks]
"""


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", START + script], check=True, timeout=120)


def test_each_worker_has_a_cpu_and_the_caller_may_run_on_any() -> None:
    run("""
fork(ThreadPool(len(CPUS)), 5)
bound = [cpu for (cpu,) in workers()]
assert len(bound) == len(set(bound)) == len(CPUS) - 1, bound
assert allowed_cpus() == CPUS
""")


def test_workers_stay_unbound_where_there_are_fewer_than_cpus_or_more() -> None:
    run("""
for threads in (len(CPUS) - 1, len(CPUS) + 1):
    fork(ThreadPool(threads), 5)
assert all(cpus == CPUS for cpus in workers()), workers()
""")


def test_a_worker_leaves_the_cpu_of_the_caller() -> None:
    run("""
pool = ThreadPool(len(CPUS))
os.sched_setaffinity(0, CPUS[:1])
fork(pool, 2)
os.sched_setaffinity(0, CPUS[1:2])
fork(pool, 1)
assert [CPUS[1]] in workers(), "one fork is no proof that the caller stays"
fork(pool, 1)
assert sorted(workers()) == sorted([[CPUS[0]], *([cpu] for cpu in CPUS[2:])]), workers()
""")


def test_workers_of_a_forked_child_are_bound_anew() -> None:
    run("""
pool = ThreadPool(len(CPUS))
fork(pool, 2)
child = os.fork()
if child == 0:
    FIRST = set(os.listdir("/proc/self/task"))
    os.sched_setaffinity(0, CPUS[1:2])
    fork(pool, 3)
    os._exit(0 if [CPUS[1]] not in workers() else 1)
assert os.waitpid(child, 0)[1] == 0
""")
