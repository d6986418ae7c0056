"""Profiles: their counts, coverage and output formats."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
from conftest import ROOT
from hloom.backends.cpu.codegen.step_timer import ITERATION
from hloom.bench import machine
from hloom.bench.limits import Bandwidth, Limits, Work
from hloom.errors import ArgumentError
from hloom.faults import Case
from hloom.profiler import Kernel, Profile
from hloom.profiler.calls import Calls
from hloom.profiler.trace import trace
from hloom.system.machine import thread_count

LOOP = """
HloModule loop

body { state = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[32,32] get-tuple-element(state), index=1
  product = f32[32,32] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,32] tanh(product)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT new = (s32[], f32[32,32]) tuple(next, t) }

condition { state = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(50)
  ROOT less = pred[] compare(i, limit), direction=LT }

ENTRY main { x = f32[32,32] parameter(0)
  zero = s32[] constant(0)
  state = (s32[], f32[32,32]) tuple(zero, x)
  loop = (s32[], f32[32,32]) while(state), condition=condition, body=body
  ROOT y = f32[32,32] get-tuple-element(loop), index=1 }
"""


@pytest.fixture(scope="module")
def found() -> Profile:
    return hl.profile(LOOP, np.ones((32, 32), np.float32), seconds=0.05)


def test_kernels_of_a_loop_count_its_iterations(found: Profile) -> None:
    (product,) = [kernel for kernel in found.kernels if kernel.kind == "dot"]
    assert product.runs == 50
    assert product.flops == 2 * 32**3
    assert product.bytes == 3 * 4 * 32 * 32
    assert product.seconds > 0


def test_threads_wait_while_one_works_alone(found: Profile) -> None:
    assert all(0 <= kernel.waiting < 1 for kernel in found.kernels)
    (product,) = [kernel for kernel in found.kernels if kernel.kind == "dot"]
    assert product.waiting == pytest.approx(1 - 1 / thread_count(), abs=0.01)


def test_threads_that_share_a_kernel_work(found: Profile) -> None:
    """All threads take part in a product of this size, as far as the machine has them free."""
    arrays = [np.ones((768, 768), np.float32)] * 2
    waiting = [hl.profile(product_text(768), *arrays, seconds=0.05).kernels[0].waiting for _ in range(4)]
    assert min(waiting) < 1 - 1 / thread_count() or thread_count() == 1


def product_text(size: int) -> str:
    shape = f"f32[{size},{size}]"
    return (
        f"HloModule m\nENTRY e {{ a = {shape} parameter(0)\n b = {shape} parameter(1)\n"
        f" ROOT c = {shape} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"
    )


def test_kernels_account_for_the_call(found: Profile) -> None:
    assert 0.3 < found.accounted <= 1.05


def test_kernels_of_a_parallel_loop_share_its_time() -> None:
    """The iterations multiply slices on several threads."""
    state, row = "(s32[], f32[16,128,128], f32[16,128,128])", "f32[1,128,128]"
    text = f"""
HloModule parallel

body {{ state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[16,128,128] get-tuple-element(state), index=1
  y = f32[16,128,128] get-tuple-element(state), index=2
  zero = s32[] constant(0)
  own = {row} dynamic-slice(x, i, zero, zero), dynamic_slice_sizes={{1,128,128}}
  square = {row} dot(own, own), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
  new = f32[16,128,128] dynamic-update-slice(y, square, i, zero, zero)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = {state} tuple(next, x, new) }}

condition {{ state = {state} parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(16)
  ROOT less = pred[] compare(i, limit), direction=LT }}

ENTRY main {{ x = f32[16,128,128] parameter(0)
  zero = s32[] constant(0)
  empty = f32[] constant(0)
  y = f32[16,128,128] broadcast(empty), dimensions={{}}
  state = {state} tuple(zero, x, y)
  loop = {state} while(state), condition=condition, body=body
  ROOT r = f32[16,128,128] get-tuple-element(loop), index=2 }}
"""
    found = hl.profile(text, np.ones((16, 128, 128), np.float32), seconds=0.05)
    (product,) = (kernel for kernel in found.kernels if kernel.flops == 2 * 128**3)
    loops = [kernel for kernel in found.kernels if kernel.kind == "loop"]
    assert product.runs == 16 and product.seconds > 0
    assert (len(loops) == 1 and product.waiting < 0.01) or thread_count() == 1
    assert all(loop.seconds >= 0 and loop.flops is None for loop in loops)
    assert found.accounted <= 1.05


def test_kernels_of_a_called_computation_count_its_calls() -> None:
    """Forks of the computation are timed once, though its parts run inside of others that time theirs."""
    shape = "f32[256,256]"
    text = f"""
HloModule called

twice {{ a = {shape} parameter(0)
  b = {shape} parameter(1)
  c = {shape} dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT d = {shape} dot(c, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}

ENTRY main {{ x = {shape} parameter(0)
  y = {shape} call(x, x), to_apply=twice, frontend_attributes={{inlineable="false"}}
  ROOT z = {shape} call(y, x), to_apply=twice, frontend_attributes={{inlineable="false"}} }}
"""
    found = hl.profile(text, np.ones((256, 256), np.float32), seconds=0.05)
    assert {kernel.runs for kernel in found.kernels if kernel.kind == "dot"} == {2}


def test_events_are_the_steps_of_one_call_in_order(found: Profile) -> None:
    steps = [event for event in found.events if not event.thread and event.kind != ITERATION]
    assert [event.kernel.kind for event in steps if event.kernel].count("dot") == 50
    assert all(event.start <= event.end for event in found.events)
    assert [event.start for event in steps] == sorted(event.start for event in steps)


def test_iterations_enclose_their_steps(found: Profile) -> None:
    iterations = [event for event in found.events if event.kind == ITERATION]
    assert len(iterations) == 50
    for iteration, product in zip(iterations, (e for e in found.events if e.kind == "dot"), strict=True):
        assert iteration.start <= product.start and product.end <= iteration.end


def test_tasks_lie_in_their_steps() -> None:
    profile = hl.profile(product_text(512), *[np.ones((512, 512), np.float32)] * 2, seconds=0.05)
    (step,) = (event for event in profile.events if not event.thread)
    tasks = [event for event in profile.events if event.thread]
    assert tasks or thread_count() == 1
    assert {task.thread for task in tasks} <= {*range(1, thread_count() + 1)}
    assert all(step.start <= task.start <= task.end <= step.end and task.name == step.name for task in tasks)


def calls(durations: list[float], preemptions: list[int]) -> Calls:
    return Calls(durations, durations, [], preemptions)


def test_calls_that_the_system_interrupts_are_left_out() -> None:
    assert calls([1.0] * 5, [0, 2, 0, 0, 1]).calm == [0, 2, 3]
    assert calls([1.0] * 4, [0, 2, 3, 9]).calm == [0, 1, 2]


def test_limits_depend_on_the_size_of_arrays() -> None:
    limits = Limits(2, 1e12, (Bandwidth(1 << 14, 4e11, 3e11, 2e11), Bandwidth(1 << 26, 1e10, 2e10, 4e10)))
    between = 4e10 * 5**0.5  # the geometric mean of 2e11 and 4e10, those of copying
    found = [limits.bytes_per_second(size) for size in (1, 1 << 14, 1 << 20, 1 << 26, 1 << 30)]
    assert found == pytest.approx([4e11, 4e11, between, 4e10, 4e10])
    kernel = Kernel("k", "nest", 2e-6, 0.0, 1e-6, 1.0, 1 << 10, None, None, 0.0)
    assert kernel.share_of_limit(limits) == pytest.approx(2**10 / 4e5)
    assert limits.joined(Limits(2, 2e12, limits.bandwidths)) == Limits(2, 2e12, limits.bandwidths)


def test_the_least_time_is_that_of_the_machine_for_all_of_the_work() -> None:
    assert machine.least_seconds(Work(operations=2e15, reads=3e14)) == pytest.approx(3)  # of the fixture's rates
    assert machine.least_seconds(Work(operations=5e15, reads=3e14)) == pytest.approx(5)


def test_limits_are_measured_once_and_again_where_a_kernel_exceeds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = [Limits(2, flops, (Bandwidth(1 << 14, 4e11, 3e11, 2e11),)) for flops in (3e11, 2e11, 1e11)]
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine, "measure_limits", lambda count: measured.pop())
    assert [machine.limits_of_machine(improve).flops_per_second for improve in (False, False, True, False)] == [
        1e11, 1e11, 2e11, 2e11
    ]  # fmt: skip


def test_limits_of_a_busy_machine_are_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = Limits(2, 1e12, (Bandwidth(1 << 14, 4e11, 3e11, 2e11),), occupancy=0.5)
    measured = [
        limits,
        replace(limits, flops_per_second=3e11, occupancy=1.0),
        replace(limits, flops_per_second=1e11, occupancy=0.4),
    ]
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine, "measure_limits", lambda count: measured.pop())
    assert [machine.limits_of_machine().flops_per_second for _ in range(3)] == [1e11, 3e11, 3e11]
    assert len(measured) == 1


def test_a_measurement_knows_what_part_of_the_cpus_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("SECONDS", 0.01), ("SIZES", (1 << 14,)), ("PASS_BYTES", 1 << 20)):
        monkeypatch.setattr(machine, name, value)
    assert 0 < machine.measure_limits(1).occupancy <= 1.05


def test_work_takes_the_time_of_what_takes_longest() -> None:
    limits = Limits(2, 1e12, (Bandwidth(1, 2e10, 4e10, 1e10),), 5e11, 1e9, 2e9, 1e-6, 2e-6)
    assert limits.seconds(Work()) == pytest.approx(3e-6)
    assert limits.seconds(Work(operations=1e9, sums=1e9, reads=1e6)) == pytest.approx(3e-6 + 3e-3)
    assert limits.seconds(Work(operations=1e9, divisions=1e7, roots=2e7)) == pytest.approx(3e-6 + 2e-2)
    # Of 3 MB read and 1 MB written, 2 MB are a copy.
    assert limits.seconds(Work(reads=3e6, writes=1e6)) == pytest.approx(3e-6 + 2e-4 + 1e-4)
    assert limits.seconds(Work(reads=1e6, writes=3e6)) == pytest.approx(3e-6 + 2e-4 + 5e-5)


SCOPES = """HloModule m
ENTRY e {
  x = f32[256,256] parameter(0)
  a = f32[256,256] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/outer/one/dot"}
  b = f32[256,256] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/outer/two/dot"}
  ROOT c = f32[256,256] dot(b, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/dot" source_file="f.py" source_line=7}
}"""


def test_totals_of_scopes_include_those_inside() -> None:
    profile = hl.profile(SCOPES, np.ones((256, 256), np.float32), seconds=0.05)
    scopes = {total.key: total for total in profile.totals("scope")}
    assert {key: (total.kernels, total.depth) for key, total in scopes.items()} == {
        "f": (3, 0), "outer": (2, 1), "one": (1, 2), "two": (1, 2)
    }  # fmt: skip
    assert scopes["outer"].seconds == pytest.approx(scopes["one"].seconds + scopes["two"].seconds)
    assert [total.key for total in profile.totals("scope")[:2]] == ["f", "outer"]
    (opcode,) = profile.totals("opcode")
    assert (opcode.key, opcode.kernels) == ("dot", 3)
    assert "f.py:7" in {total.key for total in profile.totals("source")}
    with pytest.raises(ArgumentError, match="by scope, source, opcode, not by 'color'"):
        profile.totals("color")
    live = [event["args"]["bytes"] for event in trace(profile)["traceEvents"] if event["ph"] == "C"]
    assert live == [4 * 256 * 256 * arrays for arrays in (1, 2, 2)]
    lines = profile.compare(profile).splitlines()
    assert "(whole call)" in lines[3] and lines[3].split("│")[4].strip() == "+0.0"
    assert any("f/outer/one/dot" in line for line in lines)


@pytest.mark.long
@pytest.mark.parametrize("program", ["cnn_adam_step", "resblock_adam_step", "transformer_adam_step"])
def test_profiles_on_a_loaded_machine_name_the_same_costliest_kernels(program: str) -> None:
    """The order of kernels of similar times may differ: those of the smallest program are, from the third one on."""
    path = ROOT / "tests" / "corpus" / program / "module.hlo"
    case = Case.random(hl.load(path), seed=0)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * thread_count())]
    try:
        profiles = [hl.profile(hl.load(path), *case.arguments or ()) for _ in range(2)]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    first, second = ({kernel.name: kernel.seconds for kernel in profile.kernels} for profile in profiles)
    for one, other in ((first, second), (second, first)):
        least = sorted(other.values())[-3] / 2
        assert all(other[name] >= least for name in sorted(one, key=one.__getitem__)[-3:])


def test_a_profile_prints_and_saves(found: Profile, tmp_path: Path) -> None:
    assert "dot" in str(found) and "GFLOP/s" in str(found)
    assert "GFLOP/s" in found._repr_html_()
    found.save(str(tmp_path / "p.json"))
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "M"}
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {"program", "iterations"}
    pytest.importorskip("matplotlib")
    found.save(str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    with pytest.raises(ArgumentError, match=r"saved as \.svg"):
        found.save(str(tmp_path / "p.txt"))
    with pytest.raises(ArgumentError, match="cannot write"):
        found.save(str(tmp_path / "no" / "p.json"))


def test_functions_of_jax_and_unchanged_results() -> None:
    jnp = pytest.importorskip("jax.numpy")
    profile = hl.profile(lambda x, y: jnp.tanh(x @ y), np.ones((16, 16), np.float32), np.ones((16, 16), np.float32))
    assert {kernel.kind for kernel in profile.kernels} >= {"dot"}


def test_programs_of_several_devices_are_refused() -> None:
    text = "HloModule m, num_partitions=2\nENTRY m { x = f32[4] parameter(0)\n ROOT y = f32[4] negate(x) }"
    with pytest.raises(ArgumentError, match="one device"):
        hl.profile(text, np.ones(4, np.float32))
