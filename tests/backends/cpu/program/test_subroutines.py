"""Functions that are called often are compiled once: programs too long to be inlined."""

from __future__ import annotations

import time

import numpy as np
import pytest

import hloom as hl
from hlo_text import compiled, interpreted
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import CallStep
from hloom.passes import clone_module, run_passes
from hloom.target import Target

FUNCTIONS = {
    "element-wise": "s = f32[6] sine(p)\n  t = f32[6] multiply(s, q)\n  u = f32[6] add(t, t)\n"
    "  ROOT r = (f32[6], f32[6]) tuple(u, s)",
    "with constants": "c = f32[6] constant({1, 2, 3, 4, 5, 6})\n  s = f32[6] divide(p, c)\n  t = f32[6] reverse(q), dimensions={0}\n"
    "  d = f32[] dot(s, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n  b = f32[6] broadcast(d), dimensions={}\n"
    "  e = f32[6] tanh(b)\n  ROOT r = (f32[6], f32[6]) tuple(e, s)",
    "that hands on": "s = f32[6] cosine(q)\n  ROOT r = (f32[6], f32[6]) tuple(s, p)",
    "with a sort": "s = f32[6] sort(p), dimensions={0}, to_apply=less\n  t = f32[6] subtract(s, q)\n"
    "  ROOT r = (f32[6], f32[6]) tuple(t, s)",
    "with a loop": "n = s32[] constant(0)\n  i = (s32[], f32[6]) tuple(n, p)\n  w = (s32[], f32[6]) while(i), condition=go, body=step\n"
    "  s = f32[6] get-tuple-element(w), index=1\n  t = f32[6] multiply(s, q)\n  ROOT r = (f32[6], f32[6]) tuple(t, s)",
}
HEAD = """HloModule m
less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }
go { p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
step { p = (s32[], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[6] get-tuple-element(p), index=1
  o = s32[] constant(1) j = s32[] add(i, o) y = f32[6] sine(x) z = f32[6] add(y, x) ROOT t = (s32[], f32[6]) tuple(j, z) }
"""


def text_of(body: str, calls: int) -> str:
    """A chain of calls of a function."""
    lines = [HEAD, "f {\n  p = f32[6] parameter(0)\n  q = f32[6] parameter(1)\n  " + body]
    lines.append("}\nENTRY e {\n  x0 = f32[6] parameter(0)\n  y0 = f32[6] parameter(1)")
    for k in range(calls):
        lines.append(f"  c{k} = (f32[6], f32[6]) call(x{k}, y{k}), to_apply=f")
        lines.append(f"  x{k + 1} = f32[6] get-tuple-element(c{k}), index=0")
        lines.append(f"  y{k + 1} = f32[6] get-tuple-element(c{k}), index=1")
    lines.append(f"  ROOT r = (f32[6], f32[6]) tuple(x{calls}, y{calls})\n}}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_are_called_often_give_what_the_interpreter_gives(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = hl.parse(text_of(FUNCTIONS[name], 40))
    _inline_at_most(monkeypatch, 50)
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(6).astype(np.float32) for _ in range(2)]
    optimized = clone_module(module)
    run_passes(optimized, cpu_pipeline())
    program = build_program(optimized, Target(32, 1))
    assert sum(isinstance(step, CallStep) for step in program.steps) == 40
    for got, want in zip(compiled(module, *arguments), interpreted(module, *arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def _inline_at_most(monkeypatch: pytest.MonkeyPatch, instructions: int) -> None:
    from hloom.passes.control_flow.call_inliner import CallInliner

    monkeypatch.setattr(CallInliner.__init__, "__defaults__", (False, instructions, 2, 500))


def chain(depth: int) -> str:
    """Functions of which each calls the one before twice."""
    lines = ["HloModule chain", "f0 { p = f32[8] parameter(0) ROOT r = f32[8] sine(p) }"]
    for k in range(1, depth + 1):
        lines.append(
            f"f{k} {{ p = f32[8] parameter(0) a = f32[8] call(p), to_apply=f{k - 1} b = f32[8] add(a, p) "
            f"ROOT r = f32[8] call(b), to_apply=f{k - 1} }}"
        )
    return "\n".join([*lines, f"ENTRY e {{ p = f32[8] parameter(0) ROOT r = f32[8] call(p), to_apply=f{depth} }}"])


def test_calls_that_double_at_each_level_compute_what_they_say() -> None:
    x = np.linspace(0, 1, 8).astype(np.float32)

    def value(depth: int, x: np.ndarray) -> np.ndarray:
        return np.sin(x) if depth == 0 else value(depth - 1, value(depth - 1, x) + x)

    np.testing.assert_allclose(hl.compile(chain(12))(x), value(12, x), rtol=1e-4)


def test_calls_that_double_sixty_times_are_compiled_in_time_that_goes_with_the_text() -> None:
    short, long = (_seconds(depth) for depth in (30, 60))
    assert long < 20 * max(short, 0.05)


def _seconds(depth: int) -> float:
    start = time.perf_counter()
    hl.compile(chain(depth))
    return time.perf_counter() - start
