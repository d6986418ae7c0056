"""Copies: which of them threads share, and that they copy everything."""

from __future__ import annotations

import math

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.program.build_program import COPY_COST, build_program
from hloom.backends.cpu.program.program import CopyStep
from hloom.loops.nest import Kernel
from hloom.target import MIN_PARALLEL_WORK, Target

SHARED_COPY_BYTES = math.ceil(MIN_PARALLEL_WORK / COPY_COST)

UPDATE = """ENTRY e {{
  x = {type}[{size}] parameter(0)
  u = {type}[2] parameter(1)
  i = s32[] parameter(2)
  ROOT r = {type}[{size}] dynamic-update-slice(x, u, i)
}}"""


def _copying(size: int, threads: int) -> Kernel | None:
    program = build_program(hl.parse(UPDATE.format(type="u8", size=size)), Target(32, threads))
    copies = [step for step in program.steps if isinstance(step, CopyStep)]
    return copies[0].kernel


def test_threads_share_large_copies() -> None:
    kernel = _copying(SHARED_COPY_BYTES, threads=2)
    assert kernel is not None and kernel.nests[0].schedule.chunk
    assert _copying(SHARED_COPY_BYTES - 1, threads=2) is None
    assert _copying(SHARED_COPY_BYTES, threads=1) is None


@pytest.mark.parametrize("type", ["u8", "f32", "c128"])
def test_everything_is_copied(type: str) -> None:
    dtype = {"u8": np.uint8, "f32": np.float32, "c128": np.complex128}[type]
    size = SHARED_COPY_BYTES // np.dtype(dtype).itemsize + 37
    x, u = (np.random.default_rng(0).integers(0, 99, n).astype(dtype) for n in (size, 2))
    found = hl.compile(UPDATE.format(type=type, size=size))(x, u, np.int32(5))
    expected = x.copy()
    expected[5:7] = u
    assert np.array_equal(found, expected)
