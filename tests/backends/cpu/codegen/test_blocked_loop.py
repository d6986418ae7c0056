"""Cache blocking of element-wise loops: which loops are blocked, and that results equal the interpreter's."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.program.assigned import assigned, check_results
from hlo_text import arrays_for, loop, module_text, run_loop
from hloom.backends.cpu.codegen.blocked_loop import BLOCK_BYTES, BLOCK_STEP, BlockedLoop, blocked_loop
from hloom.backends.cpu.program.program import WhileStep, all_steps

SIZE = 20_001
X = f"f32[{SIZE}]"
MANDELBROT = """
u = f32[SIZE] multiply(x0, x0)
v = f32[SIZE] multiply(x1, x1)
d = f32[SIZE] subtract(u, v)
y0 = f32[SIZE] add(d, x2)
p = f32[SIZE] multiply(x0, x1)
q = f32[SIZE] add(p, p)
y1 = f32[SIZE] add(q, x3)
y2 = f32[SIZE] copy(x2)
y3 = f32[SIZE] copy(x3)
a = f32[SIZE] add(u, v)
four = f32[] constant(4)
fours = f32[SIZE] broadcast(four), dimensions={}
inside = pred[SIZE] compare(a, fours), direction=LT
more = s32[SIZE] convert(inside)
y4 = s32[SIZE] add(x4, more)
""".replace("SIZE", str(SIZE))


def loop_module(state: str, body: str, iterations: int = 5) -> str:
    """All elements of the state and the counter are results."""
    shapes = state.split(" ")
    names = ", ".join(f"y{k}" for k in range(len(shapes)))
    root = f"\nROOT r = ({', '.join(shapes)}, s32[]) tuple({names}, count)"
    return module_text(run_loop(state, iterations) + root, loop(state, body))


def blocking(text: str) -> BlockedLoop | None:
    program, assignment = assigned(text)
    (step,) = [s for s in all_steps(program.steps) if isinstance(s, WhileStep)]
    return blocked_loop(step, assignment)


def test_a_loop_on_elements_is_blocked() -> None:
    text = loop_module(" ".join([X] * 4 + [f"s32[{SIZE}]"]), MANDELBROT, iterations=20)
    blocked = blocking(text)
    assert blocked is not None and blocked.size == SIZE
    assert blocked.block % BLOCK_STEP == 0
    assert 5 * 4 * blocked.block <= BLOCK_BYTES, "the five arrays of a block fit into the cache"
    assert [scalar.type.name for scalar in blocked.scalars].count("S32") == 1, "the counter is each block's own"
    check_results(text)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("iterations", [0, 1, 7])
@pytest.mark.parametrize("size", [16_384, 16_640, 20_001, 70_000])
def test_all_blocks_and_the_counter_end_as_the_loop_says(iterations: int, size: int) -> None:
    body = f"f = f32[] convert(i)\nb = f32[{size}] broadcast(f), dimensions={{}}\ny0 = f32[{size}] add(x0, b)"
    text = loop_module(f"f32[{size}]", body, iterations)
    assert blocking(text) is not None
    check_results(text)


def test_elements_of_several_types_and_shapes_are_blocked_together() -> None:
    state = "f64[200,100] s8[20000] pred[20000]"
    body = (
        "one8 = s8[] constant(1)\nones = s8[20000] broadcast(one8), dimensions={}\ny1 = s8[20000] add(x1, ones)\n"
        "y2 = pred[20000] compare(x1, y1), direction=GT\nwide = f64[20000] convert(x1)\n"
        "square = f64[200,100] reshape(wide)\ny0 = f64[200,100] add(x0, square)"
    )
    text = loop_module(state, body, iterations=130)
    assert blocking(text) is not None
    check_results(text, *arrays_for(text)[:2], np.zeros(20000, bool))


@pytest.mark.parametrize(
    ("state", "body"),
    [
        # Elements move.
        (X, f"y0 = {X} reverse(x0), dimensions={{0}}"),
        (X, f"a = f32[{SIZE - 1}] slice(x0), slice={{[1:{SIZE}]}}\nb = f32[1] slice(x0), slice={{[0:1]}}\n"
            f"y0 = {X} concatenate(a, b), dimensions={{0}}"),
        # Elements are added up.
        (X, f"zero = f32[] constant(0)\ns = f32[] reduce(x0, zero), dimensions={{0}}, to_apply=largest\n"
            f"b = {X} broadcast(s), dimensions={{}}\ny0 = {X} subtract(x0, b)"),
        (f"{X} {X}", f"y0 = {X} copy(x1)\ny1 = {X} reverse(x0), dimensions={{0}}"),
        # A row is updated at a time.
        ("f32[1000,50]", "zero = s32[] constant(0)\nu = f32[1,50] dynamic-slice(x0, i, zero), dynamic_slice_sizes={1,50}\n"
                         "v = f32[1,50] negate(u)\ny0 = f32[1000,50] dynamic-update-slice(x0, v, i, zero)"),
        # Arrays of two sizes.
        (f"{X} f32[30000]", f"y0 = {X} negate(x0)\ny1 = f32[30000] negate(x1)"),
        # The arrays are too small.
        ("f32[1000]", "y0 = f32[1000] negate(x0)"),
    ],
)  # fmt: skip
def test_loops_that_mix_elements_are_not_blocked(state: str, body: str) -> None:
    text = loop_module(state, body)
    assert blocking(text) is None
    check_results(text)


def test_arrays_may_be_swapped_within_a_block() -> None:
    """A swap copies blocks."""
    text = loop_module(f"{X} {X}", f"y0 = {X} copy(x1)\ny1 = {X} add(x0, x1)")
    assert blocking(text) is not None
    check_results(text)


def test_what_a_loop_only_reads_may_be_read_anywhere() -> None:
    """The reversed array does not change, so blocks do not depend on each other."""
    body = f"b = {X} reverse(x1), dimensions={{0}}\nm = {X} multiply(b, x0)\ny0 = {X} subtract(m, b)\ny1 = {X} copy(x1)"
    text = loop_module(f"{X} {X}", body)
    assert blocking(text) is not None
    check_results(text)


def test_a_condition_on_all_elements_is_not_one_of_each_block() -> None:
    body = f"two = f32[] constant(2)\nb = {X} broadcast(two), dimensions={{}}\ny0 = {X} divide(x0, b)"
    condition = (
        f"x = {X} get-tuple-element(t), index=0\nzero = f32[] constant(0)\n"
        "m = f32[] reduce(x, zero), dimensions={0}, to_apply=largest\nhalf = f32[] constant(0.1)\n"
        "ROOT less = pred[] compare(m, half), direction=GT"
    )
    text = loop_module(X, body).replace("ROOT less = pred[] compare(i, iterations), direction=LT", condition)
    assert blocking(text) is None
    check_results(text)


def test_a_condition_on_a_scalar_of_the_state_ends_every_block_in_the_same_iteration() -> None:
    body = f"b = {X} broadcast(x1), dimensions={{}}\ny0 = {X} add(x0, b)\ny1 = f32[] multiply(x1, x1)"
    condition = "x = f32[] get-tuple-element(t), index=1\nten = f32[] constant(1000)\nROOT less = pred[] compare(x, ten), direction=LT"
    text = loop_module(f"{X} f32[]", body).replace("ROOT less = pred[] compare(i, iterations), direction=LT", condition)
    assert blocking(text) is not None
    check_results(text, np.linspace(0, 1, SIZE, dtype=np.float32), np.float32(1.5))


def test_the_tasks_of_blocks_read_a_condition_that_the_loop_does_not_compute() -> None:
    """A loop whose condition is computed before it runs not at all, or without end."""
    state = f"({X}, {X}, pred[])"
    text = f"""HloModule m
condition {{ t = {state} parameter(0)\n ROOT p = pred[] get-tuple-element(t), index=2 }}
body {{ t = {state} parameter(0)
  x = {X} get-tuple-element(t), index=0\n y = {X} get-tuple-element(t), index=1
  p = pred[] get-tuple-element(t), index=2\n z = {X} add(x, y)\n ROOT r = {state} tuple(z, y, p) }}
ENTRY e {{ x = {X} parameter(0)\n y = {X} parameter(1)\n i = s32[] parameter(2)\n j = s32[] parameter(3)
  p = pred[] compare(i, j), direction=LT\n t = {state} tuple(x, y, p)
  w = {state} while(t), condition=condition, body=body\n ROOT r = {X} get-tuple-element(w), index=0 }}"""
    assert blocking(text) is not None
    x = np.arange(SIZE, dtype=np.float32)
    run = hl.compile(text)
    np.testing.assert_array_equal(run(x, x, np.int32(2), np.int32(2)), x)
    with pytest.raises(hl.RunError, match="longer than"):
        run.run(x, x, np.int32(1), np.int32(2), timeout=0.1)
