"""Scalars in the state of a loop are in registers: no call gets the address of their memory, also before the loop."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.step_emitter import INLINED_ONCE
from hloom.cli.pipelines import stage_text

RUNNING_MAXIMUM = """HloModule m
body { t = (s32[], s32[], s32[], s32[1000]) parameter(0)
  most = s32[] get-tuple-element(t), index=0
  i = s32[] get-tuple-element(t), index=1
  limit = s32[] get-tuple-element(t), index=2
  x = s32[1000] get-tuple-element(t), index=3
  part = s32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}
  number = s32[] reshape(part)
  larger = s32[] maximum(most, number)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], s32[], s32[], s32[1000]) tuple(larger, j, limit, x) }
condition { t = (s32[], s32[], s32[], s32[1000]) parameter(0)
  most = s32[] get-tuple-element(t), index=0
  limit = s32[] get-tuple-element(t), index=2
  ROOT less = pred[] compare(most, limit), direction=LT }
ENTRY e { x = s32[1000] parameter(0)
  limit = s32[] parameter(1)
  first = s32[1] slice(x), slice={[0:1]}
  start = s32[] reshape(first)
  zero = s32[] constant(0)
  t = (s32[], s32[], s32[], s32[1000]) tuple(start, zero, limit, x)
  w = (s32[], s32[], s32[], s32[1000]) while(t), condition=condition, body=body
  most = s32[] get-tuple-element(w), index=0
  count = s32[] get-tuple-element(w), index=1
  ROOT r = (s32[], s32[]) tuple(most, count) }"""


def test_kernels_of_scalars_in_registers_are_inlined() -> None:
    text = stage_text(hl.parse(RUNNING_MAXIMUM), "llvm")
    registers = set(re.findall(r"(%\w+) = alloca \[\d+ x i8\]", text))
    calls = re.findall(r"call void @nest\d+\((.*?)\)(.*)", text)
    given = [rest for arguments, rest in calls if registers & set(re.findall(r"%\w+", arguments))]
    assert len(given) >= 4
    assert all("#1" in rest for rest in given)


def test_running_maximum() -> None:
    x = np.random.default_rng(0).integers(0, 5000, 1000, np.int32)
    limit = int(np.sort(x)[-4])
    most, count = hl.compile(hl.parse(RUNNING_MAXIMUM))(x, np.int32(limit))
    reached = int(np.argmax(x >= limit))
    assert (int(most), int(count)) == (int(x[: reached + 1].max()), reached + 1 if reached else 0)


SORTED = """HloModule m
less {{ a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }}
body {{ t = (s32[], s32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = s32[8] get-tuple-element(t), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  several = s32[8] broadcast(j), dimensions={{}}
  y = s32[8] subtract(x, several)
  ROOT r = (s32[], s32[8]) tuple(j, y) }}
condition {{ t = (s32[], s32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = s32[8] get-tuple-element(t), index=1
  slice = s32[1] slice(x), slice={{[0:1]}}
  first = s32[] reshape(slice)
  ROOT less = pred[] compare(i, first), direction=LT }}
ENTRY e {{ x = s32[8] parameter(0)
  v0 = s32[8] sort(x), dimensions={{0}}, to_apply=less
{powers}
  zero = s32[] constant(0)
  t = (s32[], s32[8]) tuple(zero, v{count})
  w = (s32[], s32[8]) while(t), condition=condition, body=body
  looped = s32[8] get-tuple-element(w), index=1
  ROOT r = s32[8] sort({last}), dimensions={{0}}, to_apply=less }}"""


@pytest.mark.parametrize("last", ["v{count}", "looped"])
def test_long_kernels_outside_of_loops_are_inlined_if_loops_use_their_results(last: str) -> None:
    count = INLINED_ONCE + 1
    powers = "\n".join(f"  v{k + 1} = s32[8] multiply(v{k}, v0)" for k in range(count))
    program = SORTED.format(powers=powers, count=count, last=last.format(count=count))
    text = stage_text(hl.parse(program), "llvm")
    long = [body for body in re.findall(r"define .*?\n}", text, re.DOTALL) if body.count(" = mul <") >= count]
    (name,) = re.findall(r"@(nest\d+)\(", "".join(body.partition("\n")[0] for body in long))
    assert bool(re.search(rf"call void @{name}\(.*\) #1", text)) is (last == "looped")
