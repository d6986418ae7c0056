"""GEN-7: arithmetic is IEEE's on threads with another floating-point environment, which is restored afterwards."""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.system import shield
from hloom.system.float_state import _control_word_functions, ieee_floats
from hloom.system.machine import architecture

# Where the control register lies in C's fenv_t, and its flush-to-zero (of operands, too) and rounding toward +infinity.
_CONTROL_REGISTER = {"x86_64": (28, 0x8040 | 0x4000), "aarch64": (0, 1 << 24 | 1 << 22)}
pytestmark = pytest.mark.skipif(sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="fenv_t of glibc")

TINY = np.array([1, 71362, 71362 * 3, 1 << 22], np.uint32).view(np.float32)
"""Subnormal numbers."""


def state() -> int:
    """The control register, without the flags of exceptions that have occurred."""
    environment = (ctypes.c_uint8 * 64)()
    ctypes.PyDLL(None).fegetenv(environment)
    offset, _ = _CONTROL_REGISTER[architecture()]
    return int.from_bytes(environment[offset : offset + 4], "little") & ~0x3F


@contextmanager
def flushing() -> Iterator[int]:
    """Sets flush-to-zero and rounding upward on this thread; yields the state."""
    environment, before = (ctypes.c_uint8 * 64)(), (ctypes.c_uint8 * 64)()
    library = ctypes.PyDLL(None)
    library.fegetenv(before)
    library.fegetenv(environment)
    offset, bits = _CONTROL_REGISTER[architecture()]
    word = int.from_bytes(environment[offset : offset + 4], "little") | bits
    environment[offset : offset + 4] = word.to_bytes(4, "little")  # type: ignore[assignment]
    library.fesetenv(environment)
    try:
        assert np.float32(1e-40) * np.ones(3, np.float32)[0] == 0
        yield word & ~0x3F
    finally:
        library.fesetenv(before)


def text(size: int) -> str:
    return f"""HloModule m
ENTRY e {{
  x = f32[{size}] parameter(0)
  three = f32[] constant(3)
  little = f32[] constant(1e-9)
  threes = f32[{size}] broadcast(three), dimensions={{}}
  c = f32[3] constant({{1e-40, 1e-40, 1e-40}})
  b = f32[3] broadcast(three), dimensions={{}}
  constant = f32[3] multiply(c, b)
  run = f32[{size}] multiply(x, threes)
  ROOT r = (f32[3], f32[{size}], f32[]) tuple(constant, run, f32[] add(three, little))
}}"""


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("size", [4, 4_000_000])
def test_subnormals_are_kept_and_results_rounded_to_nearest(backend: str, size: int) -> None:
    x = np.resize(TINY, size)
    with flushing() as before:
        constant, run, rounded = hl.compile(text(size), backend)(x)
        assert state() == before
    expected = np.resize(TINY.view(np.uint32) * 3, size)  # a multiple of the smallest number is one
    assert np.array_equal(constant.view(np.uint32), np.full(3, 3 * 71362))
    assert np.array_equal(run.view(np.uint32), expected)
    assert rounded == 3


def test_a_program_compiled_elsewhere_runs_in_its_own_state() -> None:
    run = hl.compile(text(4))
    with flushing() as before:
        results = run(TINY)
        assert state() == before
    assert np.array_equal(results[1].view(np.uint32), TINY.view(np.uint32) * 3)


def test_text_is_read_and_written_in_that_state() -> None:
    with flushing():
        module = hl.parse("HloModule m\nENTRY e { ROOT c = f32[2] constant({1e-40, 1e-45}) }")
    assert module.entry.root.op.literal.value.view(np.uint32).tolist() == [71362, 1]  # type: ignore[attr-defined]


def test_the_state_comes_back_after_an_error() -> None:
    with flushing() as before:
        with pytest.raises(ValueError, match="in between"), ieee_floats():
            assert state() != before
            raise ValueError("in between")
        assert state() == before


def test_workers_start_in_that_state() -> None:
    """A thread inherits the state of the one that starts it."""
    default, job, inbox = state(), shield.Job(state), SimpleQueue[Any]()
    for item in (job, None):
        inbox.put(item)
    with flushing():
        worker = threading.Thread(target=shield._serve, args=(inbox,))
        worker.start()
        worker.join()
    assert job.result() == default


def test_the_control_word_of_windows_comes_back() -> None:
    """On a model of `_control87`, which returns the state that it leaves."""
    state = 0x0308_0110  # subnormals are flushed, rounding is downward, some exceptions trap

    def control(new: int, mask: int) -> int:
        nonlocal state
        state = state & ~mask | new & mask
        return state

    enter, leave = _control_word_functions(control)
    before = enter()
    assert state == 0x0008_001F
    leave(before)
    assert state == 0x0308_0110


def test_replicas_compute_in_that_state() -> None:
    """Each replica is a thread of its own."""
    module = "HloModule m, replica_count=2\nENTRY e { x = f32[4] parameter(0)\n ROOT r = f32[4] add(x, x) }"
    with flushing():
        results = hl.compile(module).run_replicas([[TINY], [TINY]])
    for result in results:
        assert np.array_equal(result.view(np.uint32), TINY.view(np.uint32) * 2)
