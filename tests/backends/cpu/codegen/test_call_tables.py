"""Straight-line parts of a program as call tables."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.emitter import emit_program
from hloom.backends.cpu.llvm.native.types import Array, u64
from hloom.backends.cpu.llvm.native.vocabulary import python_stack
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.target import Target

LAYER = """  w{k} = f32[24,24] parameter({k})
  dot{k} = f32[24,24] dot(x{k}, w{k}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sort{k} = f32[24,24] sort(dot{k}), dimensions={{1}}, to_apply=less
  x{next} = f32[24,24] sqrt(sort{k})
"""


def straight(layers: int) -> str:
    body = "".join(LAYER.format(k=k, next=k + 1) for k in range(1, layers + 1))
    return f"""HloModule straight
less {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }}
ENTRY e {{
  x1 = f32[24,24] parameter(0)
{body}  y = f32[24,24] copy(x1)
  ROOT both = (f32[24,24], f32[24,24]) tuple(x{layers + 1}, y)
}}"""


def main_lines(layers: int) -> int:
    program = build_program(hl.parse(straight(layers)), Target(32, 2))
    main, *_ = emit_program(program, assign_buffers(program), 32)
    parts = re.findall(r"^define internal i32 @hloom_main\.part\d+\(.*?^\}", main, re.M | re.S)
    return sum(part.count("\n") for part in parts)


def test_the_code_of_straight_programs_does_not_grow() -> None:
    assert main_lines(60) == main_lines(20) == main_lines(3)


@pytest.mark.parametrize("layers", [1, 2, 9])
def test_kernels_nests_and_copies_run_from_tables(layers: int) -> None:
    random = np.random.default_rng(0)
    x, *weights = [random.random((24, 24), dtype=np.float32) for _ in range(layers + 1)]
    y, first = hl.compile(straight(layers), backend="cpu")(x, *weights)
    wanted = x
    for w in weights:
        wanted = np.sqrt(np.sort(wanted @ w, axis=1))
    np.testing.assert_allclose(y, wanted, rtol=1e-5)
    np.testing.assert_array_equal(first, x)


def test_what_is_part_of_a_loop_may_be_in_a_table_too() -> None:
    text = straight(4).replace(
        "ENTRY e {",
        """body { state = (s32[], f32[24,24]) parameter(0)
  k = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(k, one)
  x = f32[24,24] get-tuple-element(state), index=1
  sorted = f32[24,24] sort(x), dimensions={1}, to_apply=less
  root = f32[24,24] sqrt(sorted)
  ROOT after = (s32[], f32[24,24]) tuple(next, root) }
condition { state = (s32[], f32[24,24]) parameter(0)
  k = s32[] get-tuple-element(state), index=0
  n = s32[] constant(70)
  ROOT more = pred[] compare(k, n), direction=LT }
ENTRY e {""",
    )
    text = text.replace(
        "  y = f32[24,24] copy(x1)",
        """  zero = s32[] constant(0)
  begin = (s32[], f32[24,24]) tuple(zero, x1)
  end = (s32[], f32[24,24]) while(begin), condition=condition, body=body
  y = f32[24,24] get-tuple-element(end), index=1""",
    )
    random = np.random.default_rng(0)
    arrays = [random.random((24, 24), dtype=np.float32) for _ in range(5)]
    for found, wanted in zip(
        *(hl.compile(text, backend=each)(*arrays) for each in ("cpu", "interpreter")), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_frame_pointers_are_offsets_from_pointers_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function under Python, on a table in memory; what it would call is written down."""
    from hloom.backends.cpu.runtime import call_table

    called: list[tuple[int, ...]] = []
    functions = {
        7: lambda frame, argument: called.append((7, argument, Array(frame, u64)[0], Array(frame, u64)[1])),
        9: lambda pool, function, frame, chunks: called.append((pool, function, chunks, Array(frame, u64)[0])),
    }
    monkeypatch.setattr(call_table, "to", lambda _, address: functions[address])
    words = [1000, 55, 9, 0, 0, 0, 0, 2000]
    calls = [7, 0, 12, 2, 0, 16, 7, 0] + [8, 4, 0, 1, 7, 8]
    memory = [np.array(words, np.uint64), np.zeros(4, np.uint64), np.array(calls, np.uint64)]
    with python_stack():
        call_table.run_calls(*(Array(int(m.ctypes.data), u64) for m in memory), 2)
    assert called == [(7, 12, 1016, 2000), (55, 8, 4, 2008)]
