"""Collectives over replicas and partitions: the groups of devices in each mode (COLL-7)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hloom as hl

REPLICAS, PARTITIONS = 2, 3
DEVICES = REPLICAS * PARTITIONS
ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"

# mode: the attributes, and the groups that they mean as device ids
MODES: dict[str, tuple[str, list[list[int]]]] = {
    "cross_replica": ("replica_groups={{1,0}}", [[3, 0], [4, 1], [5, 2]]),
    "cross_replica of all": ("replica_groups={}", [[0, 3], [1, 4], [2, 5]]),
    "cross_replica_and_partition": ("channel_id=1, replica_groups={{1},{0}}", [[3, 4, 5], [0, 1, 2]]),
    "flattened ids": ("channel_id=1, replica_groups={{0,5},{2,1},{3,4}}, use_global_device_ids=true", [[0, 5], [2, 1], [3, 4]]),
    "flattened ids of all": (f"channel_id=1, replica_groups=[1,{DEVICES}]<=[{DEVICES}], use_global_device_ids=true", [[*range(DEVICES)]]),
}  # fmt: skip
PARTITION_MODES: dict[str, tuple[str, list[list[int]]]] = {
    "cross_replica": ("replica_groups={{1,0}}", [[3, 0], [4, 1], [5, 2]]),
    "cross_partition": ("channel_id=1, replica_groups={{2,0,1}}", [[2, 0, 1], [5, 3, 4]]),
}

Blocks = dict[int, np.ndarray]


def run(body: str, backend: str) -> list[np.ndarray]:
    """Runs a program on all devices; returns the result of each for its array of six elements."""
    text = f"HloModule m, replica_count={REPLICAS}, num_partitions={PARTITIONS}\n{ADD}ENTRY e {{\n p = f32[6] parameter(0)\n{body}\n}}"
    executable = hl.compile(text, backend=backend, timeout=5.0)
    return [np.asarray(result) for result in executable.run_replicas([[value(d)] for d in range(DEVICES)])]


def value(device: int) -> np.ndarray:
    return np.arange(6, dtype=np.float32) + 10 * device


def expect(groups: list[list[int]], combine: Callable[[list[np.ndarray], int], np.ndarray]) -> list[np.ndarray]:
    """`combine` gives the result of the member at a position, from the values of the group."""
    results = {d: combine([value(m) for m in group], k) for group in groups for k, d in enumerate(group)}
    return [results[d] for d in range(DEVICES)]


def same(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for device, (g, w) in enumerate(zip(got, want, strict=True)):
        assert np.array_equal(g, w), f"device {device}: {g}, expected {w}"


@pytest.fixture(params=["interpreter", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("mode", MODES)
def test_all_reduce(mode: str, backend: str) -> None:
    attributes, groups = MODES[mode]
    same(
        run(f"ROOT r = f32[6] all-reduce(p), {attributes}, to_apply=add", backend), expect(groups, lambda g, k: sum(g))
    )


@pytest.mark.parametrize("mode", MODES)
def test_all_gather(mode: str, backend: str) -> None:
    attributes, groups = MODES[mode]
    size = 6 * len(groups[0])
    got = run(f"ROOT r = f32[{size}] all-gather(p), {attributes}, dimensions={{0}}", backend)
    same(got, expect(groups, lambda g, k: np.concatenate(g)))


@pytest.mark.parametrize("mode", MODES)
def test_reduce_scatter(mode: str, backend: str) -> None:
    attributes, groups = MODES[mode]
    size = 6 // len(groups[0])
    got = run(f"ROOT r = f32[{size}] reduce-scatter(p), {attributes}, dimensions={{0}}, to_apply=add", backend)
    same(got, expect(groups, lambda g, k: sum(g)[k * size : (k + 1) * size]))


@pytest.mark.parametrize("mode", PARTITION_MODES)
def test_all_to_all(mode: str, backend: str) -> None:
    attributes, groups = PARTITION_MODES[mode]
    got = run(f"ROOT r = f32[6] all-to-all(p), {attributes}, dimensions={{0}}", backend)
    same(got, expect(groups, lambda g, k: np.concatenate([np.split(m, len(g))[k] for m in g])))


@pytest.mark.parametrize("mode", PARTITION_MODES)
def test_collective_broadcast(mode: str, backend: str) -> None:
    attributes, groups = PARTITION_MODES[mode]
    same(run(f"ROOT r = f32[6] collective-broadcast(p), {attributes}", backend), expect(groups, lambda g, k: g[0]))


@pytest.mark.parametrize(
    ("attributes", "source"),
    [
        ("source_target_pairs={{0,1}}", {3: 0, 4: 1, 5: 2}),
        ("channel_id=1, source_target_pairs={{0,1},{1,2},{2,0}}", {0: 2, 1: 0, 2: 1, 3: 5, 4: 3, 5: 4}),
    ],
)
def test_collective_permute(attributes: str, source: dict[int, int], backend: str) -> None:
    """Without a channel the ids are replicas of one partition, with one partitions of one replica; others get zeros."""
    got = run(f"ROOT r = f32[6] collective-permute(p), {attributes}", backend)
    same(got, [value(source[d]) if d in source else np.zeros(6, np.float32) for d in range(DEVICES)])


def test_ids_in_a_loop(backend: str) -> None:
    """Partition and replica ids, and collectives, in the body of a loop."""
    text = f"""HloModule m, replica_count={REPLICAS}, num_partitions={PARTITIONS}
{ADD}
body {{ t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[] get-tuple-element(t), index=1
  s = f32[] all-reduce(x), channel_id=1, replica_groups={{{{0,1,2}},{{3,4,5}}}}, use_global_device_ids=true, to_apply=add
  p = u32[] partition-id()
  r = u32[] replica-id()
  ten = u32[] constant(10)
  rt = u32[] multiply(r, ten)
  id = u32[] add(rt, p)
  f = f32[] convert(id)
  y = f32[] add(s, f)
  ROOT o = (s32[], f32[]) tuple(n, y) }}
condition {{ t = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(2)
  ROOT c = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[]) tuple(z, x)
  w = (s32[], f32[]) while(t), condition=condition, body=body
  ROOT r = f32[] get-tuple-element(w), index=1 }}"""
    executable = hl.compile(text, backend=backend, timeout=5.0)
    got = executable.run_replicas([[np.float32(d)] for d in range(DEVICES)])
    state = np.arange(DEVICES, dtype=np.float32).reshape(REPLICAS, PARTITIONS)
    ids = np.array([[10 * r + p for p in range(PARTITIONS)] for r in range(REPLICAS)])
    for _ in range(2):
        state = state.sum(1, keepdims=True) + ids
    assert [float(g) for g in got] == state.reshape(-1).tolist()
