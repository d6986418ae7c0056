"""The clock by which loops poll the host, and profiles measure."""

from __future__ import annotations

import ctypes
import time

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.timer_functions import READ_CLOCK, clock_function
from hloom.backends.cpu.llvm.machine_code import load_object, make_object
from hloom.backends.cpu.program.interface import POLL_CYCLES
from hloom.lir import LirModule

ENDLESS = """HloModule m
body { v = f32[64] parameter(0)\n ROOT w = f32[64] cosine(v) }
always { v = f32[64] parameter(0)\n ROOT p = pred[] constant(true) }
ENTRY e { x = f32[64] parameter(0)\n ROOT w = f32[64] while(x), condition=always, body=body }"""


def test_the_clock_advances() -> None:
    code = load_object(make_object(LirModule([clock_function()]).text()))
    read = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address(READ_CLOCK))
    first = read()
    time.sleep(0.5)
    assert read() - first > POLL_CYCLES


def test_a_loop_sees_a_deadline() -> None:
    with pytest.raises(hl.RunError, match="longer than 0.5 s"):
        hl.compile(ENDLESS).run(np.zeros(64, np.float32), timeout=0.5)
