"""Programs that several processes run together: `mpiexec -n N python mpi_programs.py NAME`. Each asserts for itself."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import hloom as hl
from hloom.files.arrays import flat, random_value
from hloom.runtime.mpi import world

TYPES = ("f32", "f64", "f16", "bf16", "f8e4m3fn", "s32", "u8", "s64", "s4", "pred", "c64")
REDUCERS = ("add", "multiply", "maximum", "minimum", "and", "or", "xor")
COLLECTIVES = {
    "all-reduce in pairs": "ROOT r = T[6] all-reduce(p), replica_groups={{0,2},{1,3}}, to_apply=add",
    "all-reduce of several": "ROOT r = (T[6], T[6]) all-reduce(p, p), to_apply=add",
    "reduce-scatter": "q = T[12] concatenate(p, p), dimensions={0}\nROOT r = T[3] reduce-scatter(q), dimensions={0}, "
    "replica_groups={{0,1,2,3}}, to_apply=add",
    "all-gather": "ROOT r = T[24] all-gather(p), dimensions={0}",
    "all-gather of the others": "ROOT r = T[12] all-gather(p), dimensions={0}, replica_groups={{3,0},{1,2}}",
    "all-to-all": "q = T[12] concatenate(p, p), dimensions={0}\nROOT r = T[12] all-to-all(q), dimensions={0}",
    "collective-permute": "ROOT r = T[6] collective-permute(p), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}",
    "collective-permute to one": "ROOT r = T[6] collective-permute(p), source_target_pairs={{3,0}}",
    "collective-permute of several": "q = T[6] copy(p)\nROOT r = (T[6], T[6]) collective-permute(p, q), "
    "source_target_pairs={{0,2},{1,3},{2,1}}",
    "collective-broadcast": "ROOT r = T[6] collective-broadcast(p), replica_groups={{2,0,1,3}}",
    "started and done": "s = (T[6], T[24]) all-gather-start(p), dimensions={0}\nROOT d = T[24] all-gather-done(s)",
    "send and recv": "t = token[] after-all()\ns = (T[6], u32[], token[]) send(p, t), channel_id=1, frontend_attributes="
    '{_xla_send_recv_source_target_pairs="{{0,3},{3,0},{1,2},{2,1}}"}\n'
    "v = (T[6], u32[], token[]) recv(t), channel_id=1, frontend_attributes="
    '{_xla_send_recv_source_target_pairs="{{0,3},{3,0},{1,2},{2,1}}"}\n'
    "e = token[] send-done(s), channel_id=1\nw = (T[6], token[]) recv-done(v), channel_id=1\n"
    "ROOT x = T[6] get-tuple-element(w), index=0",
}


def text_of(body: str, element_type: str, reducer: str = "add") -> str:
    return (
        "HloModule m, replica_count=4\nadd {\n  a = T[] parameter(0)\n  b = T[] parameter(1)\n"
        f"  ROOT r = T[] {reducer}(a, b)\n}}\nENTRY e {{\n  p = T[6] parameter(0)\n  {body}\n}}\n"
    ).replace("T[", f"{element_type}[")


def check(text: str, backend: str = "cpu") -> None:
    """Compares with devices that are threads of one process."""
    module = hl.parse(text)
    rng = np.random.default_rng(0)
    arguments = [[random_value(rng, p.shape) for p in module.entry.parameters] for _ in range(4)]
    run = hl.compile(module, backend, distributed=True, timeout=20)
    got = run.gathered(run.run_replicas(run.own(arguments)))
    want = hl.compile(module, "interpreter").run_replicas(arguments)
    for g, w in zip(flat(tuple(got)), flat(tuple(want)), strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape, text
        assert np.allclose(g.astype(np.complex128), w.astype(np.complex128), rtol=1e-5, equal_nan=True), text


def collectives() -> None:
    for element_type in TYPES:
        for body in COLLECTIVES.values():
            if "to_apply" not in body or element_type != "pred":
                check(text_of(body, element_type))
    check(text_of(COLLECTIVES["all-gather"], "f32"), "interpreter")


def reductions() -> None:
    for element_type in TYPES:
        for reducer in REDUCERS:
            if reducer in ("and", "or", "xor") and element_type[0] in "fbc":
                continue
            if reducer in ("maximum", "minimum") and element_type == "c64":
                continue
            check(text_of("ROOT r = T[6] all-reduce(p), to_apply=add", element_type, reducer))


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


SUM = text_of("ROOT r = T[6] all-reduce(p), to_apply=add", "f32").replace("replica_count=4", "replica_count=2")


def run_sum(text: str = SUM, timeout: float = 20.0) -> Any:
    run = hl.compile(text, distributed=True, timeout=timeout)
    return run.run_replicas([[np.ones(6, np.float32)]])


def another_program() -> None:
    run_sum(SUM.replace("add(a, b)", "multiply(a, b)") if world().rank else SUM)


def another_shape() -> None:
    run_sum(SUM.replace("[6]", "[7]") if world().rank else SUM)


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
    run_sum(BRANCHES, timeout=1.5)


def is_killed() -> None:
    run_sum()
    if world().rank:
        os.kill(os.getpid(), signal.SIGKILL)
    run_sum()


def does_not_share_evenly() -> None:
    hl.compile(SUM.replace("replica_count=2", "replica_count=3"), distributed=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(f"rank {world().rank} is well")
