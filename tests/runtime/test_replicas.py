"""Replicas and partitions in one process: collectives, channels, and errors instead of hangs (COLL-1 to COLL-7)."""

from __future__ import annotations

import time

import numpy as np
import pytest

import hloom as hl

ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"


def run(text: str, inputs: list[list[float]], **options: object) -> list[list[float]]:
    executable = hl.compile(text, timeout=2.0, **options)
    results = executable.run_replicas([[np.array(row, np.float32)] for row in inputs])
    return [np.asarray(result).tolist() for result in results]


def test_all_reduce_over_partitions_with_global_device_ids() -> None:
    """COLL-7: with use_global_device_ids the groups hold device ids, replica * P + partition."""
    text = f"""HloModule m, replica_count=2, num_partitions=2
{ADD}
ENTRY e {{
  p = f32[1] parameter(0)
  ROOT r = f32[1] all-reduce(p), channel_id=1, replica_groups={{{{0,3}},{{1,2}}}}, use_global_device_ids=true, to_apply=add
}}"""
    assert run(text, [[1], [2], [4], [8]]) == [[9], [6], [6], [9]]


def test_a_channel_without_global_ids_takes_all_partitions_of_the_replicas() -> None:
    text = f"""HloModule m, replica_count=2, num_partitions=2
{ADD}
ENTRY e {{
  p = f32[1] parameter(0)
  ROOT r = f32[1] all-reduce(p), channel_id=1, replica_groups={{{{0}},{{1}}}}, to_apply=add
}}"""
    assert run(text, [[1], [2], [4], [8]]) == [[3], [3], [12], [12]]


def test_iota_groups_and_asynchronous_pairs() -> None:
    text = """HloModule m, replica_count=4
ENTRY e {
  p = f32[1] parameter(0)
  s = (f32[1], f32[2]) all-gather-start(p), replica_groups=[2,2]<=[2,2]T(1,0), dimensions={0}
  ROOT r = f32[2] all-gather-done(s)
}"""
    assert run(text, [[0], [1], [2], [3]]) == [[0, 2], [1, 3], [0, 2], [1, 3]]


def test_collective_broadcast_gives_the_first_members_value_and_zeros_outside() -> None:
    text = """HloModule m, replica_count=3
ENTRY e { p = f32[1] parameter(0)
  ROOT r = f32[1] collective-broadcast(p), replica_groups={{1,0}} }"""
    assert run(text, [[5], [6], [7]]) == [[6], [6], [0]]


def test_ragged_all_to_all_moves_slices_of_different_sizes() -> None:
    text = """HloModule m, replica_count=2
ENTRY e {
  p = f32[3] parameter(0)
  o = f32[4] broadcast(z), dimensions={}
  id = s32[] convert(rid)
  ROOT r = f32[4] ragged-all-to-all(p, o, in, send, out, recv), replica_groups={{0,1}}
}"""
    body = """  rid = u32[] replica-id()
  z = f32[] constant(0)
  in = s32[2] constant({0, 1})
  send = s32[2] constant({1, 2})
  recv0 = s32[2] constant({1, 1})
  recv1 = s32[2] constant({2, 2})
  one = u32[] constant(1)
  second = pred[] compare(rid, one), direction=EQ
  recv = s32[2] select(second, recv1, recv0)
  out0 = s32[2] constant({0, 0})
  out1 = s32[2] constant({1, 2})
  out = s32[2] select(second, out1, out0)
"""
    text = text.replace("  o = f32[4]", body + "  o = f32[4]")
    assert run(text, [[1, 2, 3], [4, 5, 6]]) == [[1, 4, 0, 0], [2, 3, 5, 6]]


def test_a_replica_that_does_not_arrive_is_named() -> None:
    """COLL-6: here replica 1 leaves the loop earlier than replica 0; the other must not wait for ever."""
    text = f"""HloModule m, replica_count=2
{ADD}
cond {{ t = (f32[1], f32[1]) parameter(0)
  n = f32[1] get-tuple-element(t), index=1
  s = f32[] reshape(n)
  z = f32[] constant(0)
  ROOT c = pred[] compare(s, z), direction=GT }}
body {{ t = (f32[1], f32[1]) parameter(0)
  x = f32[1] get-tuple-element(t), index=0
  n = f32[1] get-tuple-element(t), index=1
  r = f32[1] all-reduce(x), replica_groups={{}}, to_apply=add
  one = f32[1] constant({{1}})
  m = f32[1] subtract(n, one)
  ROOT u = (f32[1], f32[1]) tuple(r, m) }}
ENTRY e {{ p = f32[1] parameter(0)
  i = (f32[1], f32[1]) tuple(p, p)
  w = (f32[1], f32[1]) while(i), condition=cond, body=body
  ROOT r = f32[1] get-tuple-element(w), index=0 }}"""
    started = time.monotonic()
    with pytest.raises(hl.RunError, match=r"COLL-6.*device 1 has ended its program"):
        run(text, [[2], [1]])
    assert time.monotonic() - started < 10


def test_a_failing_replica_is_the_error_that_is_raised() -> None:
    text = """HloModule m, replica_count=2
ENTRY e {
  p = f32[2] parameter(0)
  n = s32[] constant(5)
  id = u32[] replica-id()
  i = s32[] convert(id)
  size = s32[] multiply(n, i)
  d = f32[<=2] set-dimension-size(p, size), dimensions={0}
  z = f32[] constant(0)
  r = f32[] reduce(d, z), dimensions={0}, to_apply=add
  ROOT g = f32[] all-reduce(r), replica_groups={}, to_apply=add
}"""
    with pytest.raises(hl.RunError, match="SETDIMENSIONSIZE-5"):
        run(text.replace("ENTRY", ADD + "ENTRY"), [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("groups", "clause"), [("{{0},{1,2}}", "COLL-3"), ("{{0,0},{1,2}}", "COLL-3"), ("{{0,1}}", "COLL-3")]
)
def test_groups_hold_each_replica_once(groups: str, clause: str) -> None:
    text = f"HloModule m, replica_count=4\n{ADD}ENTRY e {{ p = f32[1] parameter(0)\n"
    text += f" ROOT r = f32[1] all-reduce(p), replica_groups={groups}, to_apply=add }}"
    with pytest.raises(hl.RuleError) as error:
        hl.compile(text)
    assert error.value.clause == clause


def test_send_and_receive_in_a_pipeline() -> None:
    """A chain of waits that is not a cycle runs: device 0 sends to 1, and 1 to 2 (SEND-4)."""
    text = """HloModule m, replica_count=3
ENTRY e {
  p = f32[1] parameter(0)
  t = token[] after-all()
  rc = (f32[1], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}
  rd = (f32[1], token[]) recv-done(rc), channel_id=1
  x = f32[1] get-tuple-element(rd), index=0
  y = f32[1] add(x, p)
  sc = (f32[1], u32[], token[]) send(y, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}
  sd = token[] send-done(sc), channel_id=1
  ROOT r = f32[1] copy(y)
}"""
    assert run(text, [[1], [10], [100]]) == [[1], [11], [111]]


def test_infeed_outfeed_and_host_transfers() -> None:
    text = """HloModule m
ENTRY e {
  t = token[] after-all()
  i = (f32[2], token[]) infeed(t)
  x = f32[2] get-tuple-element(i), index=0
  u = token[] get-tuple-element(i), index=1
  y = f32[2] add(x, x)
  o = token[] outfeed(y, u), outfeed_shape=f32[2]{0}
  s = (f32[2], u32[], token[]) send(y, o), channel_id=3, is_host_transfer=true
  d = token[] send-done(s), channel_id=3, is_host_transfer=true
  ROOT r = f32[2] copy(x)
}"""
    device = hl.Device(timeout=0.2)
    run_it = hl.compile(text, devices=[device])
    device.transfer_to_infeed(np.array([1, 2], np.float32))
    assert run_it().tolist() == [1, 2]
    assert device.transfer_from_outfeed().tolist() == [2, 4]
    assert device.receive_from_program(3).tolist() == [2, 4]
    with pytest.raises(hl.RunError, match=r"no item of shape f32\[2\] through the infeed of device 0 within 0.2 s"):
        run_it()
    device.transfer_to_infeed(np.array([1, 2, 3], np.float32))
    with pytest.raises(hl.RunError, match=r"INFEED-1: .*f32\[3\]"):
        run_it()
    with pytest.raises(hl.RunError, match="outfeed"):
        device.transfer_from_outfeed(timeout=0.05)


def test_the_host_sends_through_a_channel() -> None:
    text = """HloModule m
ENTRY e {
  t = token[] after-all()
  v = (f32[2], u32[], token[]) recv(t), channel_id=3, is_host_transfer=true
  d = (f32[2], token[]) recv-done(v), channel_id=3, is_host_transfer=true
  ROOT r = f32[2] get-tuple-element(d), index=0
}"""
    device = hl.Device(timeout=0.2)
    device.send_to_program(3, np.array([1, 2], np.float32))
    assert hl.compile(text, devices=[device])().tolist() == [1, 2]


def test_a_cross_replica_sum_adds_over_all_replicas() -> None:
    b = hl.XlaBuilder("m")
    summed = hl.compile(b.build(b.cross_replica_sum(b.parameter(0, hl.f32[1], "x"))), replicas=2)
    assert [r.tolist() for r in summed.run_replicas([[np.float32([1])], [np.float32([10])]])] == [[11], [11]]


def test_unordered_infeeds_are_rejected() -> None:
    text = """HloModule m
ENTRY e { t = token[] after-all()
  a = (f32[], token[]) infeed(t)
  b = (f32[], token[]) infeed(t)
  ROOT r = ((f32[], token[]), (f32[], token[])) tuple(a, b) }"""
    with pytest.raises(hl.RuleError, match="INFEED-2"):
        hl.compile(text)
