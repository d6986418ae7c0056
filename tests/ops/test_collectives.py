"""Collectives: cases beyond the specification's examples."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import hloom as hl
from built import shape_of

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def replicas(backend: str, text: str, inputs: list[list[Any]], timeout: float = 5.0) -> list[Any]:
    executable = hl.compile(text, backend=backend, timeout=timeout)
    arrays = [[np.array(x, np.float32) for x in row] for row in inputs]
    return [
        tuple(np.asarray(part).tolist() for part in result)
        if isinstance(result, tuple)
        else np.asarray(result).tolist()
        for result in executable.run_replicas(arrays)
    ]


def test_the_gathered_dimension_is_multiplied_by_the_size_of_a_group() -> None:
    """ALLGATHER-2."""
    x = hl.f32[2, 3]
    assert shape_of(lambda b, x: b.all_gather(x, 0, 4), x) == "f32[8,3]"
    assert shape_of(lambda b, x: b.all_gather(x, 1, 4), x) == "f32[2,12]"


def test_several_operands_are_gathered_into_a_tuple(backend: str) -> None:
    """ALLGATHER-6: one element for each operand; with global ids the groups hold devices (COLL-7)."""
    text = """HloModule m, replica_count=2
ENTRY e {
  a = f32[1] parameter(0)
  b = f32[1,2] parameter(1)
  ROOT r = (f32[2], f32[2,2]) all-gather(a, b), dimensions={0}, channel_id=1, replica_groups={{1,0}},
    use_global_device_ids=true
}"""
    found = replicas(backend, text, [[[1], [[2, 3]]], [[4], [[5, 6]]]])
    assert found == [([4, 1], [[5, 6], [2, 3]])] * 2


def test_an_all_reduce_waits_for_one_input_of_each_member(backend: str) -> None:
    """ALLREDUCE-4: replica 1 does not reach the loop's second iteration, and is named (COLL-6)."""
    text = f"""HloModule m, replica_count=2
{ADD}
more {{ s = (f32[], f32[]) parameter(0)
  k = f32[] get-tuple-element(s), index=0
  zero = f32[] constant(0)
  ROOT m = pred[] compare(k, zero), direction=GT }}
round {{ s = (f32[], f32[]) parameter(0)
  k = f32[] get-tuple-element(s), index=0
  v = f32[] get-tuple-element(s), index=1
  one = f32[] constant(1)
  left = f32[] subtract(k, one)
  sum = f32[] all-reduce(v), replica_groups={{}}, to_apply=add
  ROOT n = (f32[], f32[]) tuple(left, sum) }}
ENTRY e {{
  k = f32[] parameter(0)
  v = f32[] parameter(1)
  s = (f32[], f32[]) tuple(k, v)
  w = (f32[], f32[]) while(s), condition=more, body=round
  ROOT r = f32[] get-tuple-element(w), index=1
}}"""
    assert replicas(backend, text, [[2, 1], [2, 2]]) == [6, 6]
    started = time.monotonic()
    with pytest.raises(hl.HloomError, match="all-reduce"):
        replicas(backend, text, [[2, 1], [1, 2]], timeout=0.5)
    assert time.monotonic() - started < 20


def test_blocks_are_joined_in_the_order_of_their_senders(backend: str) -> None:
    """ALLTOALL-2: in group order, not in the order of ids."""
    text = """HloModule m, replica_count=3
ENTRY e {
  x = f32[3] parameter(0)
  ROOT r = f32[3] all-to-all(x), dimensions={0}, replica_groups={{2,0,1}}
}"""
    found = replicas(backend, text, [[[1, 2, 3]], [[4, 5, 6]], [[7, 8, 9]]])
    # The group's first member, 2, receives the first block of everybody: of 2, of 0, of 1.
    assert found == [[8, 2, 5], [9, 3, 6], [7, 1, 4]]


def test_the_tuple_form_has_an_operand_for_each_member(backend: str) -> None:
    """ALLTOALL-7."""
    text = """HloModule m, replica_count=2
ENTRY e {
  to0 = f32[2] parameter(0)
  to1 = f32[2] parameter(1)
  ROOT r = (f32[2], f32[2]) all-to-all(to0, to1), replica_groups={{0,1}}
}"""
    found = replicas(backend, text, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    assert found == [([1, 2], [5, 6]), ([3, 4], [7, 8])]


def test_a_reduce_scatter_is_a_block_of_the_all_reduce(backend: str) -> None:
    """REDUCESCATTER-1."""
    whole = f"""HloModule m, replica_count=2
{ADD}
ENTRY e {{
  x = f32[2,4] parameter(0)
  ROOT r = f32[2,4] all-reduce(x), replica_groups={{{{1,0}}}}, to_apply=add
}}"""
    scattered = whole.replace("f32[2,4] all-reduce(x)", "f32[2,2] reduce-scatter(x), dimensions={1}")
    inputs = [[np.arange(8).reshape(2, 4)], [10 * np.arange(8).reshape(2, 4)]]
    sums = np.array(replicas(backend, whole, inputs)[0])
    assert np.array_equal(sums, 11 * np.arange(8).reshape(2, 4))
    # Replica 1 is the group's first member.
    assert replicas(backend, scattered, inputs) == [sums[:, 2:].tolist(), sums[:, :2].tolist()]
    x = hl.f32[2, 4]
    assert shape_of(lambda b, x: b.reduce_scatter(x, lambda p, q: p + q, 1, 2), x) == "f32[2,2]"
