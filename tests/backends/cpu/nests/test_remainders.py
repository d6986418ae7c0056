"""Remainders of vector loops: which vectors they become, and the results of short rows."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.backends.cpu.llvm.processor import generating_for, level_of_x86
from hloom.backends.cpu.nests.emitter import emit_nest
from hloom.cli.pipelines import stage_text
from loops.test_schedule import scheduled

ROWS = """x = {type}[7,{n}] parameter(0)
b = {type}[{n}] parameter(1)
bs = {type}[7,{n}] broadcast(b), dimensions={{1}}
{results}"""
CHEAP = "ROOT r = {type}[7,{n}] add(x, bs)"
LONG = "q = {type}[7,{n}] add(x, bs)\nROOT r = {type}[7,{n}] exponential(q)"
STATE = """HloModule m
body { p = (s32[], TYPE[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = TYPE[N] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  c = TYPE[] constant(3)
  cs = TYPE[N] broadcast(c), dimensions={}
  y = TYPE[N] add(x, cs)
  ROOT r = (s32[], TYPE[N]) tuple(next, y) }
condition { p = (s32[], TYPE[N]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  end = s32[] constant(9)
  ROOT less = pred[] compare(i, end), direction=LT }
ENTRY e { x = TYPE[N] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], TYPE[N]) tuple(zero, x)
  w = (s32[], TYPE[N]) while(state), condition=condition, body=body
  ROOT r = TYPE[N] get-tuple-element(w), index=1 }"""


def _text(results: str, n: int, vector_bytes: int) -> str:
    entry = ROWS.format(type="f32", n=n, results=results.format(type="f32", n=n))
    kernel = scheduled(module_text(entry), vector_bytes=vector_bytes)
    function, _ = emit_nest("nest0", kernel, kernel.nests[0], vector_bytes)
    return function.text()


@pytest.mark.parametrize(("n", "widths"), [(10, [8, 2]), (7, [4, 2, 1]), (11, [8, 2, 1]), (12, [8, 4])])
def test_cheap_remainders_are_vectors_of_powers_of_two(n: int, widths: list[int]) -> None:
    """Later iterations of a loop then load what was stored, and LLVM keeps it in registers."""
    text = _text(CHEAP, n, vector_bytes=32)
    assert [int(width or 1) for width in re.findall(r"= fadd (?:<(\d+) x )?float", text)] == widths
    assert "masked" not in text


@pytest.mark.parametrize(("n", "vectors", "stores"), [(7, 1, 3), (11, 2, 3), (12, 2, 2)])
def test_costly_remainders_are_computed_once(n: int, vectors: int, stores: int) -> None:
    text = _text(LONG, n, vector_bytes=32)
    assert text.count("= fadd <") == vectors
    assert text.count("  store ") == stores
    assert "masked" not in text


def test_registers_of_masks() -> None:
    """AVX-512 has them, and divides only what is shorter than a vector."""
    assert "masked.store.v16f32" in _text(CHEAP, 39, vector_bytes=64)
    assert "masked" not in _text(CHEAP, 7, vector_bytes=64)
    assert "masked.store.v8f32" in _text(LONG, 7, vector_bytes=64)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("type", ["f32", "f64", "s32", "bf16", "s8"])
@pytest.mark.parametrize("n", [3, 7, 10, 15, 23])
def test_short_state_of_a_loop(type: str, n: int) -> None:
    module = hl.parse(STATE.replace("TYPE", type).replace("N]", f"{n}]"))
    (parameter,) = module.entry.parameters
    x = np.arange(n).astype(parameter.shape.element_type.dtype)
    found = hl.compile(module)(x)
    np.testing.assert_array_equal(np.asarray(found, np.float64), np.arange(n) + 27)


@pytest.mark.parametrize(("level", "is_on_stack"), [("x86-64-v2", False), ("x86-64-v3", True), ("x86-64-v4", True)])
def test_state_of_a_few_registers_is_on_the_stack(level: str, is_on_stack: bool) -> None:
    """LLVM promotes 96 bytes to three registers of AVX2; six of SSE are slower than memory."""
    with generating_for(level_of_x86(level)):
        text = stage_text(hl.parse(STATE.replace("TYPE", "f32").replace("N]", "24]")), "llvm")
    assert ("alloca [96 x i8]" in text) == is_on_stack
