"""Devices of one process run without Python: their collectives, stops, concurrent runs, forks."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.executable import CpuExecutable
from hloom.backends.cpu.llvm.native.types import Array, u64
from hloom.backends.cpu.llvm.native.vocabulary import SEQ_CST
from hloom.backends.cpu.runtime.device_threads import MAX_DEVICES
from hloom.backends.cpu.runtime.interrupts import Host
from hloom.backends.cpu.runtime.local_exchange import Group, Groups, exchange_locally, reset_groups, stop_groups

TYPES = {"f32": np.float32, "s8": np.int8, "f64": np.float64, "c64": np.complex64, "pred": np.bool_}
GROUPS = ("", "{{0,1,2,3}}", "{{2,0},{3,1}}", "{{0},{3},{2},{1}}")


def native(text: str) -> CpuExecutable:
    """Compiles a program that runs on its devices without Python."""
    run = hl.compile(text)
    assert isinstance(run, CpuExecutable) and run._team is not None
    return run


def check(text: str, arguments: list[list[Any]]) -> None:
    """Two native runs of one executable give the bits of the interpreter."""
    run = native(text)
    wanted = hl.compile(text, backend="interpreter").run_replicas(arguments)
    for _ in range(2):
        for found, expected in zip(run.run_replicas(arguments), wanted, strict=True):
            for one, other in zip(hl.values.leaves(found), hl.values.leaves(expected), strict=True):
                np.testing.assert_array_equal(one, other)


def module(line: str, type: str, sizes: tuple[int, ...], combiner: str = "add") -> str:
    scalars = f"a = {type}[] parameter(0)\n b = {type}[] parameter(1)"
    shape = f"{type}[{','.join(map(str, sizes))}]"
    return f"""HloModule m, replica_count=4
c {{ {scalars}\n ROOT r = {type}[] {combiner}(a, b) }}
ENTRY e {{ x = {shape} parameter(0)\n y = {shape} copy(x)\n z = {shape} add(x, x)
  ROOT r = {line.replace("SHAPE", shape)} }}"""


def drawn(type: str, sizes: tuple[int, ...]) -> list[list[Any]]:
    rng = np.random.default_rng(sum(sizes))
    return [[rng.integers(-9, 10, sizes).astype(TYPES[type])] for _ in range(4)]


@pytest.mark.parametrize("type", TYPES)
def test_all_reduce(type: str) -> None:
    """Shares of the members begin at multiples of 64 elements; some are empty."""
    combiner = "or" if type == "pred" else "add"
    check(module("SHAPE all-reduce(y), to_apply=c", type, (5, 70), combiner), drawn(type, (5, 70)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("sizes", [(1,), (0, 4), (4001,)], ids=str)
def test_all_reduce_in_groups(groups: str, sizes: tuple[int, ...]) -> None:
    line = f"SHAPE all-reduce(y), replica_groups={groups or '{}'}, to_apply=c"
    check(module(line, "f32", sizes), drawn("f32", sizes))


@pytest.mark.parametrize("combiner", ["multiply", "maximum", "minimum"])
def test_reductions_of_special_values(combiner: str) -> None:
    values = [np.float32(v) for v in (np.nan, np.inf, -0.0, 0.0)]
    rows = [[np.array([values[(k + j) % 4] for j in range(4)])] for k in range(4)]
    check(module("SHAPE all-reduce(y), to_apply=c", "f32", (4,), combiner), rows)


@pytest.mark.parametrize("dimension", range(3))
@pytest.mark.parametrize(("groups", "count"), [("{{3,2,0,1}}", 4), ("{{2,0},{3,1}}", 2)])
def test_blocks_along_each_dimension(dimension: int, groups: str, count: int) -> None:
    sizes = (4, 8, 12)
    rows = drawn("f32", sizes)
    for opcode, factor in (("all-gather", count), ("all-to-all", 1), ("reduce-scatter", 1 / count)):
        result = [int(size * factor) if d == dimension else size for d, size in enumerate(sizes)]
        combine = ", to_apply=c" if opcode == "reduce-scatter" else ""
        shape = f"f32[{','.join(map(str, result))}]"
        line = f"{shape} {opcode}(y), replica_groups={groups}, dimensions={{{dimension}}}{combine}"
        check(module(line, "f32", sizes), rows)


@pytest.mark.parametrize("dimension", range(3))
def test_blocks_of_reshaped_arrays(dimension: int) -> None:
    """Buffers have the shapes of the parameter and of the result."""
    text = f"""HloModule m, replica_count=4
ENTRY e {{ x = f32[1,4,8,12] parameter(0)
  y = f32[4,8,12] reshape(x)
  z = f32[4,8,12] all-to-all(y), replica_groups={{{{3,1,2,0}}}}, dimensions={{{dimension}}}
  ROOT r = f32[1,4,8,12] reshape(z) }}"""
    check(text, [[row.reshape(1, 4, 8, 12)] for (row,) in drawn("f32", (4, 8, 12))])


@pytest.mark.parametrize(
    "line",
    [
        "SHAPE collective-permute(y), source_target_pairs={{0,1},{1,3},{3,0}}",
        "SHAPE collective-permute(y), source_target_pairs={{2,2}}",
        "SHAPE collective-broadcast(y), replica_groups={{3,1}}",
        "(SHAPE, SHAPE) all-to-all(x, z), replica_groups={{2,0},{3,1}}",
        "(SHAPE, SHAPE) all-reduce(x, z), to_apply=c",
        "u32[] replica-id()",
    ],
)
def test_other_collectives(line: str) -> None:
    check(module(line, "f32", (5, 7)), drawn("f32", (5, 7)))


def test_partitions_of_replicas() -> None:
    text = """HloModule m, replica_count=2, num_partitions=2
c { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }
ENTRY e { x = f32[3] parameter(0)
  p = u32[] partition-id()
  r = u32[] replica-id()
  all = f32[3] all-reduce(x), channel_id=1, replica_groups={{0,3},{1,2}}, use_global_device_ids=true, to_apply=c
  own = f32[3] all-reduce(x), channel_id=2, replica_groups={{0},{1}}, to_apply=c
  moved = f32[3] collective-permute(x), channel_id=3, source_target_pairs={{0,1}}
  ROOT t = (u32[], u32[], f32[3], f32[3], f32[3]) tuple(p, r, all, own, moved) }"""
    check(text, drawn("f32", (3,)))


COLLECTIVE_IN = {
    "a branch": """ENTRY e { x = f32[] parameter(0)\n i = u32[] replica-id()\n z = u32[] constant(0)
  p = pred[] compare(i, z), direction=EQ
  ROOT r = f32[] conditional(p, x, x), true_computation=sum, false_computation=same }""",
    "a loop of unknown length": """
condition { v = f32[] parameter(0)\n m = f32[] constant(50)\n ROOT p = pred[] compare(v, m), direction=LT }
ENTRY e { x = f32[] parameter(0)\n ROOT r = f32[] while(x), condition=condition, body=sum }""",
}


@pytest.mark.parametrize("where", COLLECTIVE_IN)
def test_collectives_that_devices_may_not_all_reach_are_left_to_python(where: str) -> None:
    """A device that waits in vain gets an error (COLL-6)."""
    text = f"""HloModule m, replica_count=2
c {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }}
sum {{ v = f32[] parameter(0)\n ROOT r = f32[] all-reduce(v), to_apply=c }}
same {{ ROOT v = f32[] parameter(0) }}
{COLLECTIVE_IN[where]}"""
    run = hl.compile(text, timeout=0.5)
    assert isinstance(run, CpuExecutable) and run._team is None
    with pytest.raises(hl.RunError, match="COLL-6"):
        run.run_replicas([[np.float32(1)], [np.float32(60)]])


SUMS = """HloModule m, replica_count=3
c { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }
body { t = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(t), index=0\n v = f32[64] get-tuple-element(t), index=1
  one = s32[] constant(1)\n j = s32[] add(i, one)
  s = f32[64] all-reduce(v), to_apply=c
  third = f32[] constant(0.25)\n thirds = f32[64] broadcast(third), dimensions={}
  w = f32[64] multiply(s, thirds)
  ROOT r = (s32[], f32[64]) tuple(j, w) }
condition { t = (s32[], f32[64]) parameter(0)\n i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(TRIPS)\n ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[64] parameter(0)\n z = s32[] constant(0)
  t = (s32[], f32[64]) tuple(z, x)
  w = (s32[], f32[64]) while(t), condition=condition, body=body
  ROOT r = f32[64] get-tuple-element(w), index=1 }"""


def test_an_interrupt_stops_all_devices() -> None:
    """The executable runs on afterwards, though devices have left their groups in different states."""
    run = native(SUMS.replace("TRIPS", "2000000000"))
    rows = [[np.full(64, k, np.float32)] for k in range(3)]
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run.run_replicas(rows)
    assert time.monotonic() - started < 60
    check(SUMS.replace("TRIPS", "7"), rows)


def loop_then(collective: str) -> CpuExecutable:
    """A program of two devices whose loop ends unless it starts with 1, and an instruction after it."""
    return native(f"""HloModule m, replica_count=2
c {{ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT r = f32[] add(a, b) }}
body {{ v = f32[] parameter(0)\n ROOT w = f32[] multiply(v, v) }}
condition {{ v = f32[] parameter(0)\n n = f32[] constant(3)\n ROOT p = pred[] compare(v, n), direction=LT }}
ENTRY e {{ x = f32[] parameter(0)\n w = f32[] while(x), condition=condition, body=body\n ROOT r = {collective} }}""")


@pytest.mark.parametrize("last", ["f32[] all-reduce(w), to_apply=c", "f32[] add(w, w)"])
def test_an_interrupt_while_the_calling_thread_waits(last: str) -> None:
    """Python handles signals on it; the other device's loop does not end."""
    run = loop_then(last)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run.run_replicas([[np.float32(5)], [np.float32(1)]])
    ended = run.run_replicas([[np.float32(5)], [np.float32(4)]])
    np.testing.assert_array_equal(ended, [9, 9] if "all-reduce" in last else [10, 8])


def test_the_last_to_arrive_after_a_stop_reads_what_others_sent() -> None:
    """The others have returned, and their frames are overwritten."""
    run = native(module("f32[2] all-gather(y), dimensions={0}", "f32", (1,)).replace("count=4", "count=2"))
    assert run._team is not None
    arrays = [(np.full(1, k + 1, np.float32), np.zeros(2, np.float32)) for k in range(3)]
    frames = [np.array([array.ctypes.data for array in pair], np.uint64) for pair in arrays]
    hosts = [Host(host.ctypes.data) for host in run._team.hosts]
    groups = Groups(run._team.groups)
    reset_groups(groups)
    first = threading.Thread(target=exchange_locally, args=(hosts[1], 2, 0, Array(frames[1].ctypes.data, u64)))
    first.start()
    group = Group(groups.first)
    while group.arrived.load(SEQ_CST) == 0:
        time.sleep(0.001)
    stop_groups(groups)
    first.join()
    frames[1][:] = frames[2]
    assert exchange_locally(hosts[0], 2, 0, Array(frames[0].ctypes.data, u64)) == 0
    np.testing.assert_array_equal(arrays[0][1], [1, 2])


def test_concurrent_runs_of_one_executable() -> None:
    text = SUMS.replace("TRIPS", "100")
    run = native(text)
    rows = {k: [[np.full(64, k + device, np.float32)] for device in range(3)] for k in range(4)}
    wanted = {k: hl.compile(text, backend="interpreter").run_replicas(each)[0] for k, each in rows.items()}
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(10):
            if not all(np.array_equal(result, wanted[k]) for result in run.run_replicas(rows[k])):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in rows]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_child_has_threads_of_its_own() -> None:
    run = native(SUMS.replace("TRIPS", "5"))
    rows = [[np.full(64, 4.0, np.float32)] for _ in range(3)]
    wanted = run.run_replicas(rows)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(run.run_replicas(rows)[2], wanted) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_child_of_a_fork_during_a_run() -> None:
    """Two devices, of which one has arrived in the parent."""
    run = loop_then("f32[] all-reduce(w), to_apply=c")
    assert run._team is not None
    groups = Groups(run._team.groups)

    def wait_for_another() -> None:
        with contextlib.suppress(KeyboardInterrupt):
            run.run_replicas([[np.float32(5)], [np.float32(1)]])

    waiting = threading.Thread(target=wait_for_another)
    waiting.start()
    while Group(groups.first).arrived.load(SEQ_CST) == 0:
        time.sleep(0.001)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(run.run_replicas([[np.float32(5)], [np.float32(4)]]) != [9, 9])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop_groups(groups)
    waiting.join()


def test_devices_without_collectives_and_too_many_devices() -> None:
    text = "HloModule m, replica_count={}\nENTRY e {{ x = f32[70000] parameter(0)\n ROOT y = f32[70000] sine(x) }}"
    rows = [[np.full(70000, k, np.float32)] for k in range(3)]
    run = native(text.format(3))
    for result, (row,) in zip(run.run_replicas(rows), rows, strict=True):
        np.testing.assert_allclose(result, np.sin(row), rtol=1e-6)
    many = hl.compile(text.format(MAX_DEVICES + 1))
    assert isinstance(many, CpuExecutable) and many._team is None
