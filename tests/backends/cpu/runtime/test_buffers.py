"""Memory that is used again: what keeps it in use, when it is free, and how much of it is kept."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hloom.backends.cpu.runtime.buffers import allocate, empty, release_cached
from hloom.backends.cpu.runtime.memory_pool import memory_pool
from hloom.errors import RunError
from hloom.system import machine

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_cached(older_objects_frozen: None) -> Iterator[None]:
    gc.collect()
    release_cached()
    yield
    release_cached()


def address(array: np.ndarray) -> int:
    return array.ctypes.data


@pytest.mark.parametrize(
    "shape, dtype",
    [
        ((), "f4"),
        ((0, 7), "i8"),
        ((3, 5), ml_dtypes.bfloat16),
        ((70, 1000), "u1"),
        ((3, 1024, 1024), np.float32),
        ((MIB,), ml_dtypes.float8_e4m3fn),
    ],
)
def test_an_array_has_the_requested_shape_and_type_and_is_writeable(shape: tuple[int, ...], dtype: str) -> None:
    array = empty(shape, dtype)
    assert array.shape == shape and array.dtype == np.dtype(dtype)
    assert array.flags.c_contiguous and array.flags.writeable and type(array) is np.ndarray
    array[...] = 1
    assert np.array_equal(array, np.ones(shape, dtype))


@pytest.mark.parametrize("size", [64 << 10, 3 * MIB, 4 * MIB, 9 * MIB])
def test_large_memory_starts_at_lines_that_are_not_a_page_apart(size: int) -> None:
    kept = [allocate(size) for _ in range(3)]
    assert all(block.address % 64 == 0 and block.byte_size == size == len(block) for block in kept)
    assert len({block.address % mmap.PAGESIZE for block in kept}) == 3


def kept_bytes(size: int) -> int:
    """The bytes that the pool keeps once memory of a size is given back."""
    pool = memory_pool()
    taken = pool.take(size)
    before = pool.cached_bytes
    pool.give(taken, size)
    return pool.cached_bytes - before


def test_sizes_waste_at_most_a_quarter() -> None:
    assert kept_bytes(1) == kept_bytes(64 << 10) == 64 << 10
    assert kept_bytes((64 << 10) + 1) == 80 << 10
    for _ in range(200):
        size = random.randrange(64 << 10, 32 * MIB)
        release_cached()
        kept = kept_bytes(size)
        assert size <= kept <= size * 1.25
        assert kept_bytes(kept) == kept == memory_pool().cached_bytes, "a class holds its own size"


def test_memory_of_a_dead_array_is_used_again() -> None:
    first = empty((MIB,), np.float32)
    where = address(first)
    del first
    assert memory_pool().cached_bytes == 4 * MIB
    second = empty((512, 2048), np.int32)
    assert address(second) == where and memory_pool().cached_bytes == 0


@pytest.mark.parametrize(
    "derive",
    [
        lambda a: a[100:],
        lambda a: a.T,
        lambda a: a.reshape(-1)[::-1][5:].view(np.int32),
        lambda a: memoryview(a),
        lambda a: np.asarray(memoryview(a))[1:],
        lambda a: np.broadcast_to(a, (2, *a.shape)),
        lambda a: a.flat,
        lambda a: pickle.PickleBuffer(a),
        lambda a: np.from_dlpack(a),
        lambda a: a.base[7:9],
    ],
    ids=range(10),
)
def test_a_view_keeps_the_memory_in_use(derive: Callable[[np.ndarray], object]) -> None:
    array = empty((1024, 1024), np.float32)
    where = address(array)
    view = derive(array)
    del array
    gc.collect()
    assert memory_pool().cached_bytes == 0
    assert address(empty((1024, 1024), np.float32)) != where
    release_cached()
    del view
    gc.collect()
    assert address(empty((1024, 1024), np.float32)) == where


def test_arrays_and_blocks_survive_pickling_and_copying() -> None:
    array = empty((512, 512), np.float32)
    array[...] = np.arange(512)
    block = allocate(MIB)
    block[:] = 3
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert np.array_equal(pickle.loads(pickle.dumps(array, protocol)), array)
        copied = pickle.loads(pickle.dumps(block, protocol))
        assert copied.address != block.address and np.array_equal(copied, block)


@pytest.fixture
def limited() -> Iterator[None]:
    """Lets the pool keep at most 3 MiB of free memory."""
    pool = memory_pool()
    before, pool.limit = pool.limit, 3 * MIB
    yield
    pool.limit = before


def test_what_is_free_goes_when_it_would_be_more_than_the_limit(limited: None) -> None:
    blocks = [allocate(MIB), allocate(2 * MIB), allocate(MIB)]
    del blocks[:2]
    assert memory_pool().cached_bytes == 3 * MIB
    where = blocks[0].address
    blocks.clear()
    assert memory_pool().cached_bytes == MIB
    assert allocate(MIB).address == where


def test_memory_larger_than_the_limit_is_not_kept_and_displaces_nothing(limited: None) -> None:
    small, large = allocate(MIB), allocate(4 * MIB)
    del small, large
    assert memory_pool().cached_bytes == MIB


def test_released_memory_goes_back_to_the_system() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    array = empty((64 * MIB,), np.uint8)
    array.fill(1)
    full = resident()
    del array
    assert resident() > full - 8 * MIB
    release_cached()
    assert resident() < full - 56 * MIB


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 40, 1 << 40)])
def test_memory_that_cannot_be_had_is_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(RunError, match=r"^no memory for a buffer of [\d,]+ bytes: "):
        empty(shape, np.uint8)


@pytest.mark.skipif("HLOOM_PYTHON" in os.environ, reason="an emulator has memory of its own")
def test_want_of_memory_frees_the_cache_first() -> None:
    program = """
import resource
from hloom.backends.cpu.runtime.buffers import allocate
from hloom.backends.cpu.runtime.memory_pool import memory_pool
block = allocate(200 << 20)
del block
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (100 << 20), -1))
assert memory_pool().cached_bytes >= 200 << 20
block = allocate(250 << 20)
assert memory_pool().cached_bytes == 0
"""
    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    assert run(program) == (0, "")


def test_threads_never_share_memory_in_use() -> None:
    failures: list[int] = []

    def hammer(seed: int) -> None:
        choose = random.Random(seed)
        kept: list[tuple[np.ndarray, int]] = []
        for i in range(1500):
            array = empty((choose.choice([64, 65, 80, 200]) << 10,), np.uint8)
            mark = (seed * 31 + i) % 256
            array[::4096] = mark
            kept.append((array[4096:], mark))
            if len(kept) > 8:
                view, expected = kept.pop(choose.randrange(8))
                if not (view[::4096] == expected).all():
                    failures.append(seed)

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert 0 < memory_pool().cached_bytes <= memory_pool().limit


def test_the_cache_is_a_share_of_the_memory_that_the_process_may_use() -> None:
    assert 0 < machine.memory_size() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_pool().limit == machine.memory_size() // 8


def test_a_forked_child_allocates_though_the_lock_was_held() -> None:
    program = """
import os, warnings
from hloom.backends.cpu.runtime import buffers
from hloom.backends.cpu.runtime.memory_pool import memory_pool
warnings.simplefilter("ignore")  # Python 3.12 and newer warn of other threads
kept = buffers.allocate(1 << 20)
memory_pool().state.lock.store(1, "release")
child = os.fork()
if child == 0:
    buffers.allocate(1 << 20).fill(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
memory_pool().state.lock.store(0, "release")
"""
    assert run(program) == (0, "")


def test_arrays_that_outlive_the_interpreter_are_silent() -> None:
    program = """
import builtins, sys, threading
import numpy as np
from hloom.backends.cpu.runtime.buffers import allocate, empty
module_global = empty((1 << 20,), np.float32)
builtins.kept = empty((1 << 20,), np.float32)[5:]
sys.kept = [empty((1 << 20,), np.float32)]
cycle = [allocate(1 << 20)]
cycle.append(cycle)
class Late:
    array = empty((1 << 20,), np.float32)
    def __del__(self):
        self.array = empty((1 << 20,), np.float32) if empty else None
late = Late()
def hold():
    array = empty((1 << 20,), np.float32)
    threading.Event().wait()
threading.Thread(target=hold, daemon=True).start()
"""
    assert run(program) == (0, "")


def run(program: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr
