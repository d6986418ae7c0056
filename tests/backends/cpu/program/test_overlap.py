"""Overlap of collectives with computation: the order of starts and waits."""

from __future__ import annotations

import hloom as hl
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.overlap import MAX_STARTED, overlap_collectives
from hloom.backends.cpu.program.program import HostStep, Step, WaitStep, WhileStep
from hloom.passes import run_passes
from hloom.target import Target

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"


def steps_of(body: str, head: str = "") -> list[Step]:
    module = hl.parse(f"HloModule m, replica_count=2\n{ADD}{head}ENTRY e {{\n{body}\n}}")
    run_passes(module, cpu_pipeline(Topology.RANKS))
    program = build_program(module, Target(32, 1))
    overlap_collectives(program)
    assert [step.site for step in program.host_steps] == [*range(len(program.host_steps))]
    return program.steps


def words(steps: list[Step]) -> str:
    """s for the start of a collective, w for a wait, . for computation."""
    return "".join("s" if isinstance(step, HostStep) else "w" if isinstance(step, WaitStep) else "." for step in steps)


def test_what_needs_nothing_of_a_collective_runs_meanwhile() -> None:
    found = words(
        steps_of("""x = f32[512,512] parameter(0)
  s = f32[512,512] all-reduce(x), replica_groups={}, to_apply=add
  y = f32[512,512] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[512,512] dot(y, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = f32[512,512] dot(z, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}""")
    )
    assert found.startswith("s.w.") and found.count("s") == 1


def test_a_collective_that_is_needed_at_once_is_one_step() -> None:
    found = words(
        steps_of("""x = f32[512] parameter(0)
  s = f32[512] all-reduce(x), replica_groups={}, to_apply=add
  ROOT r = f32[512] sine(s)""")
    )
    assert "s" in found and "w" not in found


def test_starts_keep_their_order_and_few_are_in_flight() -> None:
    lines = ["x = f32[64,64] parameter(0)"]
    for k in range(20):
        lines.append(
            f"y{k} = f32[64,64] dot({f'y{k - 1}' if k else 'x'}, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        )
        lines.append(f"s{k} = f32[64,64] all-reduce(y{k}), replica_groups={{}}, to_apply=add")
    steps = steps_of(
        "\n".join(
            [*lines, f"ROOT r = ({', '.join(['f32[64,64]'] * 20)}) tuple({', '.join(f's{k}' for k in range(20))})"]
        )
    )
    names = [step.instruction.name for step in steps if isinstance(step, HostStep)]
    assert len(names) == 20 and [int(name.strip("s")) for name in names] == [*range(20)]
    in_flight = most = 0
    for step in steps:
        in_flight += isinstance(step, HostStep) - isinstance(step, WaitStep)
        most = max(most, in_flight)
    assert 1 < most <= MAX_STARTED


def test_loops_have_schedules_of_their_own() -> None:
    steps = steps_of(
        """x = f32[256,256] parameter(0)
  n = s32[] parameter(1)
  i = (s32[], f32[256,256], f32[256,256]) tuple(n, x, x)
  ROOT w = (s32[], f32[256,256], f32[256,256]) while(i), condition=go, body=step""",
        """go { p = (s32[], f32[256,256], f32[256,256]) parameter(0) i = s32[] get-tuple-element(p), index=0
  z = s32[] constant(0) ROOT c = pred[] compare(i, z), direction=GT }
step { p = (s32[], f32[256,256], f32[256,256]) parameter(0) i = s32[] get-tuple-element(p), index=0
  x = f32[256,256] get-tuple-element(p), index=1 y = f32[256,256] get-tuple-element(p), index=2
  o = s32[] constant(1) j = s32[] subtract(i, o) s = f32[256,256] all-reduce(x), replica_groups={}, to_apply=add
  d = f32[256,256] dot(y, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[256,256], f32[256,256]) tuple(j, s, d) }
""",
    )
    (loop,) = (step for step in steps if isinstance(step, WhileStep))
    found = words(loop.body)
    assert "." in found[found.index("s") : found.index("w")]
