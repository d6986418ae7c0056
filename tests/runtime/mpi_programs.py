"""Programs that several processes run together: `mpiexec -n N python mpi_programs.py NAME`. Each checks its own
results.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from collective_oracle import GROUPINGS, Case, Devices, arguments, cases, reductions_of

import hloom as hl
from hloom.bench import collectives
from hloom.bench.limits import Bandwidth, Limits
from hloom.files.arrays import flat
from hloom.runtime.mpi.world import world
from hloom.types import PrimitiveType

DEVICES = (Devices(1, 2), Devices(2, 2), Devices(8, 1))
SEND = """t = token[] after-all()
  s = (T[4,4], u32[], token[]) send(p, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="PAIRS"}
  v = (T[4,4], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="PAIRS"}
  e = token[] send-done(s), channel_id=1
  w = (T[4,4], token[]) recv-done(v), channel_id=1
  ROOT x = T[4,4] get-tuple-element(w), index=0""".replace("PAIRS", "{{0,3},{3,0},{1,2},{2,1}}")


def type_of(name: str) -> PrimitiveType:
    return next(type for type in PrimitiveType if str(type) == name)


def check(case: Case, devices: Devices, element_type: PrimitiveType, reducer: str, backend: str = "cpu") -> None:
    """Compares with NumPy, bit by bit."""
    text = case.text(devices, element_type, reducer)
    given = arguments(devices, element_type)
    run = hl.compile(text, backend, distributed=True, timeout=20)
    for _ in range(2):
        own = run.run_replicas(run.local_lists([[array] for array in given]))
        for got, want in zip(own, run.local_lists(case.expected(given)), strict=True):
            for g, w in zip(flat((got,)), flat((want,)), strict=True):
                assert g.dtype == element_type.dtype and np.array_equal(g, w), f"{text}\n{g}\n{w}"


def check_all(
    types: Iterable[PrimitiveType], some_devices: Iterable[Devices], groupings: Iterable[str] = GROUPINGS
) -> None:
    for element_type in types:
        for devices in some_devices:
            if devices.count % world().size:
                continue
            for grouping in groupings:
                reducer, *more = reductions_of(element_type)
                for case in cases(grouping, devices, reducer).values():
                    if "negate" not in case.body or element_type.is_signed or str(element_type) == "f32":
                        check(case, devices, element_type, reducer)
                for other in more if grouping == "all" else []:
                    check(cases(grouping, devices, other)["all-reduce"], devices, element_type, other)


def one_device_each() -> None:
    """Collectives that native code does: each in all groupings of one type, and in some of others."""
    devices = [Devices(world().size, 1), Devices(1, world().size)]
    check_all([PrimitiveType.F32], devices)
    check_all([PrimitiveType.BF16, PrimitiveType.PRED], devices, ("all", "channel"))


def some_collectives() -> None:
    """The part of `one_device_each` that the default run has."""
    check_all([PrimitiveType.F32], [Devices(world().size, 1)])
    check_all([PrimitiveType.BF16], [Devices(1, world().size)], ("all", "channel"))


def several_devices_each() -> None:
    """Collectives of threads, then ranks."""
    check_all([PrimitiveType.F32, PrimitiveType.BF16], [Devices(world().size, 2)])
    some = Devices(4, 1)
    check(Case(SEND, lambda p: [p[3], p[2], p[1], p[0]]), some, PrimitiveType.F32, "add")
    check(cases("all", some)["all-gather along 0"], some, PrimitiveType.F32, "add", "interpreter")


def every_type() -> None:
    check_all(array_types(), DEVICES)


def array_types() -> list[PrimitiveType]:
    return [type for type in PrimitiveType if type.is_array]


STEP = """HloModule step
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[64,16] parameter(0), sharding={devices=[4,1]<=[4]}
  y = f32[64] parameter(1), sharding={devices=[4]<=[4]}
  w = f32[16] parameter(2), sharding={replicated}
  p = f32[64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[64] subtract(p, y)
  s = f32[64] multiply(d, d)
  z = f32[] constant(0)
  loss = f32[] reduce(s, z), dimensions={0}, to_apply=add
  g = f32[16] dot(d, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  c = f32[] constant(0.005)
  cs = f32[16] broadcast(c), dimensions={}
  u = f32[16] multiply(g, cs)
  n = f32[16] subtract(w, u)
  ROOT t = (f32[], f32[16]) tuple(loss, n)
}
"""


def training() -> None:
    """The losses of a linear fit on all ranks are those of one device."""
    rng = np.random.default_rng(1)
    x, true = rng.standard_normal((64, 16)).astype(np.float32), np.arange(16, dtype=np.float32)
    step, alone = hl.compile(STEP, partitions=4, distributed=True), hl.compile(STEP)
    w = v = np.zeros(16, np.float32)
    for _ in range(60):
        (loss, w), (expected, v) = step(x, x @ true, w), alone(x, x @ true, v)
        assert np.allclose(loss, expected, rtol=1e-3, atol=1e-4)
    assert loss < 1e-2


OVERLAPPING = """HloModule m, replica_count=COUNT
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
go { p = (s32[], f32[64,64], f32[64,64]) parameter(0) i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5) ROOT c = pred[] compare(i, n), direction=LT }
step { p = (s32[], f32[64,64], f32[64,64]) parameter(0) i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1 y = f32[64,64] get-tuple-element(p), index=2
  o = s32[] constant(1) j = s32[] add(i, o)
  s = f32[64,64] all-reduce(x), to_apply=add
  v = f32[64,64] collective-permute(y), source_target_pairs={PAIRS}
  d = f32[64,64] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  e = f32[64,64] add(d, v)
  ROOT t = (s32[], f32[64,64], f32[64,64]) tuple(j, s, e) }
ENTRY e {
  n = s32[] constant(0) x = f32[64,64] parameter(0) y = f32[64,64] parameter(1)
  i = (s32[], f32[64,64], f32[64,64]) tuple(n, x, y)
  w = (s32[], f32[64,64], f32[64,64]) while(i), condition=go, body=step
  a = f32[64,64] get-tuple-element(w), index=1 b = f32[64,64] get-tuple-element(w), index=2
  s = f32[64,64] all-reduce(b), to_apply=add
  g = f32[TALL,64] all-gather(a), dimensions={0}
  h = f32[64,64] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  k = f32[64,64] add(h, s)
  ROOT r = (f32[64,64], f32[TALL,64]) tuple(k, g)
}
"""


def overlaps() -> None:
    """Data that are on their way while the program computes arrive; small whole numbers keep all sums exact."""
    count = world().size
    pairs = ",".join(f"{{{k},{(k + 1) % count}}}" for k in range(count))
    text = OVERLAPPING.replace("COUNT", str(count)).replace("PAIRS", pairs).replace("TALL", str(64 * count))
    rng = np.random.default_rng(3)
    given = [[(rng.random((64, 64)) < 0.02).astype(np.float32) for _ in range(2)] for _ in range(count)]
    x, y = (np.stack([each[k] for each in given]) for k in range(2))
    for _ in range(5):
        x, y = np.broadcast_to(x.sum(0), x.shape), y @ x + np.roll(y, 1, 0)
    run = hl.compile(text, distributed=True, timeout=20)
    for _ in range(3):
        ((sums, gathered),) = run.run_replicas(run.local_lists(given))
        assert np.array_equal(gathered, x.reshape(-1, 64))
        np.testing.assert_allclose(sums, (x @ y + y.sum(0))[world().rank], rtol=1e-5)


MESSAGES = """HloModule m, replica_count=COUNT
ENTRY e {
  p = f32[3,2] parameter(0)
  t = token[] after-all()
  s = (f32[3,2], u32[], token[]) send(p, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="PAIRS"}
  v = (f32[3,2], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="PAIRS"}
  e = token[] send-done(s), channel_id=1
  w = (f32[3,2], token[]) recv-done(v), channel_id=1
  n = f32[3,2] get-tuple-element(w), index=0
  q = f32[3,2] negate(n)
  a = (f32[3,2], u32[], token[]) send(q, e), channel_id=2
  b = (f32[3,2], u32[], token[]) recv(e), channel_id=2
  c = token[] send-done(a), channel_id=2
  d = (f32[3,2], token[]) recv-done(b), channel_id=2
  f = f32[3,2] get-tuple-element(d), index=0
  ROOT r = (f32[3,2], f32[3,2]) tuple(n, f)
}
"""
RAGGED = """HloModule m, replica_count=COUNT
ENTRY e {
  p = f32[12,2] parameter(0) o = f32[16,2] parameter(1)
  a = TYPE[COUNT] parameter(2) b = TYPE[COUNT] parameter(3) c = TYPE[COUNT] parameter(4) d = TYPE[COUNT] parameter(5)
  r = f32[16,2] ragged-all-to-all(p, o, a, b, c, d), replica_groups={{MEMBERS}}
  ROOT t = (f32[16,2]) tuple(r)
}
"""


def messages() -> None:
    """Sends to the next rank, the last one to none, and to itself."""
    count = world().size
    pairs = ",".join(f"{{{k},{k + 1}}}" for k in range(count - 1)) or "{0,0}"
    run = hl.compile(
        MESSAGES.replace("COUNT", str(count)).replace("PAIRS", f"{{{pairs}}}"), distributed=True, timeout=20
    )
    given = [np.full((3, 2), k + 1, np.float32) for k in range(count)]
    for _ in range(3):
        ((received, negated),) = run.run_replicas(run.local_lists([[array] for array in given]))
        want = given[world().rank - 1] if world().rank or count == 1 else np.zeros((3, 2))
        assert np.array_equal(received, want) and np.array_equal(negated, -want)
    assert run.native_entry() is not None


def ragged() -> None:
    """Sends different numbers of rows to each rank, at offsets that the sender chooses."""
    count, me = world().size, world().rank
    rng = np.random.default_rng(5)
    sizes = rng.integers(0, 12 // count + 1, (count, count))
    starts = np.cumsum(sizes, 1) - sizes
    offsets = np.cumsum(sizes, 0) - sizes + 1
    rows, old = rng.random((count, 12, 2)).astype(np.float32), np.full((16, 2), 9, np.float32)
    want = old.copy()
    for k in range(count):
        want[offsets[k, me] : offsets[k, me] + sizes[k, me]] = rows[k, starts[k, me] : starts[k, me] + sizes[k, me]]
    for name in ("s32", "s64", "u32"):
        members = ",".join(map(str, range(count)))
        text = RAGGED.replace("COUNT", str(count)).replace("TYPE", name).replace("MEMBERS", members)
        run = hl.compile(text, distributed=True, timeout=20)
        index_operands = [
            each.astype(type_of(name).dtype) for each in (starts[me], sizes[me], offsets[me], sizes[:, me])
        ]
        for _ in range(3):
            ((got,),) = run.run_replicas([[rows[me], old, *index_operands]])
            assert np.array_equal(got, want)
        assert (run.native_entry() is not None) == (count > 1)


def outside() -> None:
    """Rank 1 sends rows beyond the end of its array."""
    text = RAGGED.replace("COUNT", "2").replace("TYPE", "s32").replace("MEMBERS", "0,1")
    run = hl.compile(text, distributed=True, timeout=20)
    index_operands = [np.array([0, 20 * world().rank], np.int32), *[np.array([1, 1], np.int32)] * 3]
    run.run_replicas([[np.ones((12, 2), np.float32), np.ones((16, 2), np.float32), *index_operands]])


def is_timed() -> None:
    """All collectives are timed, and fitted by one level of links."""
    collectives.SAMPLES, collectives.SAMPLE_SECONDS = 3, 0.002
    rows = collectives.measure(world(), lambda what: None, with_gloo=False, max_bytes=4)
    assert {row.opcode for row in rows} >= {"all-reduce", "all-to-all"} and all(row.ranks > 0 for row in rows)
    (level,) = collectives.fit(rows, world().size, Limits(2, 1e11, (Bandwidth(1, 1e10, 1e10, 1e10),))).levels
    assert level.count == world().size and 0 < level.latency < 1 and level.bandwidth > 0 and level.reduction_rate > 0


SUM = """HloModule m, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e { p = f32[6] parameter(0) ROOT r = f32[6] all-reduce(p), to_apply=add }
"""


def run_sum(text: str = SUM, timeout: float = 20.0) -> Any:
    run = hl.compile(text, distributed=True, timeout=timeout)
    return run.run_replicas([[np.ones(6, np.float32)]])


def another_program() -> None:
    run_sum(SUM.replace("add(a, b)", "multiply(a, b)") if world().rank else SUM)


def another_shape() -> None:
    run_sum(SUM.replace("[6]", "[7]") if world().rank else SUM)


def does_not_share_evenly() -> None:
    hl.compile(SUM.replace("replica_count=2", "replica_count=3"), distributed=True)


def refusals() -> None:
    """A program that ranks cannot run together is an error on each of them, and they remain usable."""
    other = "the module of ranks [1] differs from that of ranks [0]"
    uneven = "3 devices cannot be shared evenly by 2 processes"
    for program, message in ((another_program, other), (another_shape, other), (does_not_share_evenly, uneven)):
        try:
            program()
        except hl.HloomError as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"{program.__name__} ran")


def raises() -> None:
    def fail(x: Any) -> Any:
        if world().rank:
            raise ValueError("no luck")
        return x

    hl.register_custom_call("perhaps", fail)
    call = 'q = f32[6] custom-call(p), custom_call_target="perhaps"\n  ROOT r = f32[6] all-reduce(q), to_apply=add'
    run_sum(SUM.replace("ROOT r = f32[6] all-reduce(p), to_apply=add", call))


def leaves() -> None:
    run_sum()
    if world().rank:
        return
    run_sum()


def hangs() -> None:
    run_sum()
    if world().rank:
        time.sleep(8)
    else:
        run_sum(timeout=1.0)


BRANCHES = """HloModule m, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
one { p = f32[6] parameter(0) ROOT first = f32[6] all-reduce(p), channel_id=1, to_apply=add }
two { p = f32[6] parameter(0) ROOT second = f32[6] all-reduce(p), channel_id=2, replica_groups={{1,0}}, to_apply=add }
ENTRY e { p = f32[6] parameter(0) i = u32[] replica-id() z = u32[] constant(0) c = pred[] compare(i, z), direction=EQ
  ROOT r = f32[6] conditional(c, p, p), true_computation=one, false_computation=two }
"""


def waits_crosswise() -> None:
    run_sum(BRANCHES, timeout=1.0)


def is_killed() -> None:
    run_sum()
    if world().rank:
        os.kill(os.getpid(), signal.SIGKILL)
    run_sum()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        globals()[name]()
    print(f"rank {world().rank} is well")
