"""Buffer assignment: live ranges, coalescing, and that sharing memory never changes results."""

from __future__ import annotations

import pytest

import hloom.backends.cpu.program.program as program_module
from backends.cpu.fused_programs import draw_program
from backends.cpu.program.assigned import assigned, check_results, copies
from backends.cpu.program.simulated_programs import Drawer, Simulation
from backends.cpu.test_compiled import check
from hlo_text import loop, module_text, run_loop
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.liveness import Region, Use, live_intervals
from hloom.backends.cpu.program.program import CodeStep, WhileStep, all_steps

PAIR = "f32[1000] f32[1000]"
BOTH = "\nROOT r = (f32[1000], f32[1000]) tuple(y0, y1)"


def in_loop(state: str, body: str, root: str) -> str:
    return module_text(run_loop(state) + root, loop(state, body))


def body_copies(text: str) -> int:
    """Returns how many arrays an iteration of the module's loop copies."""
    program, assignment = assigned(text)
    (step,) = [s for s in all_steps(program.steps) if isinstance(s, WhileStep)]
    return len(copies(program, assignment, step.body))


# Liveness


def uses(*written: str, regions: dict[int, tuple[Region, ...]] | None = None) -> list[Use]:
    """ "w1" writes at step 1, "r3" reads, "u5" does both."""
    found = []
    for text in written:
        position, kind = int(text[1:]), text[0]
        region = (regions or {}).get(position, ())
        found.append(Use(position, kind in "ru", kind in "wu", step=None, region=region, part=0))  # type: ignore[arg-type]
    return found


def regions(*spans: tuple[int, int], exit: int | None = None) -> list[Region]:
    """The branches of a conditional, or a loop with its exit."""
    branches: list[Region] = []
    branches += [Region(start, branches, end, exit) for start, end in spans]
    return branches


def alive(found: list[Use]) -> list[tuple[int, int]]:
    return sorted(live_intervals(found, 0, 100))


def test_a_buffer_lives_from_a_write_to_the_last_read_of_it() -> None:
    assert alive(uses("w1", "r3", "r5")) == [(1, 5)]
    assert alive(uses("w1", "r3", "w4", "r6")) == [(1, 3), (4, 6)]
    assert alive(uses("w1", "u3", "r6")) == [(1, 3), (3, 6)]
    assert alive(uses("w1", "w4", "r6")) == [(4, 6)]
    assert alive(uses("w1")) == []
    assert alive(uses("r2")) == [(0, 2)], "what is read first, lived before"


def test_a_value_read_first_in_a_loop_is_live_through_its_iterations() -> None:
    """Steps 3 to 8 are a loop."""
    inside = dict.fromkeys(range(3, 9), (*regions((2, 9), exit=4),))
    carried = alive(uses("w1", "r4", "w7", "r12", regions=inside))
    assert covered(carried) == {1, 2, 3, 7, 8, 9, 10, 11}
    read_only = alive(uses("w1", "r4", regions=inside))
    assert covered(read_only) == set(range(1, 9)), "each round reads it again"
    inner = alive(uses("w4", "r6", regions=inside))
    assert covered(inner) == {4, 5}


def test_one_branch_of_a_conditional_is_taken() -> None:
    """Steps 3 to 5 are a branch, 7 to 9 the other one: what both write before it is read was not needed before."""
    one, other = regions((2, 6), (6, 10))
    inside = dict.fromkeys(range(3, 6), (one,)) | dict.fromkeys(range(7, 10), (other,))
    assert covered(alive(uses("w1", "w4", "w8", "r12", regions=inside))) == {4, 5, 8, 9, 10, 11}
    assert covered(alive(uses("w1", "w4", "r12", regions=inside))) == {1, *range(4, 12)}, "the other leaves it as it is"
    assert covered(alive(uses("w1", "w8", "r12", regions=inside))) == {*range(1, 6), *range(8, 12)}
    assert covered(alive(uses("w1", "r12", regions=inside))) == set(range(1, 12))
    assert covered(alive(uses("w1", "r4", regions=inside))) == {1, 2, 3}
    assert covered(alive(uses("w1", "r4", "r8", regions=inside))) == {1, 2, 3, 6, 7}


def covered(intervals: list[tuple[int, int]]) -> set[int]:
    """The steps after which the value is still wanted."""
    return {k for first, last in intervals for k in range(first, last)}


# Coalescing


def test_results_are_computed_where_they_are_handed_out() -> None:
    program, assignment = assigned(module_text("x = f32[99] parameter(0)\nROOT r = f32[99] sine(x)"))
    assert copies(program, assignment) == [] and assignment.arena_bytes == 0
    twice = module_text("x = f32[99] parameter(0)\ny = f32[99] sine(x)\nROOT r = (f32[99], f32[99]) tuple(y, y)")
    program, assignment = assigned(twice)
    assert len(copies(program, assignment)) == 1
    check_results(twice, rtol=1e-6)
    program, assignment = assigned(module_text("x = f32[99] parameter(0)\nROOT r = (f32[99], f32[99]) tuple(x, x)"))
    assert len(copies(program, assignment)) == 2


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("y0 = f32[1000] add(x0, x1)\ny1 = f32[1000] multiply(x1, x0)", 0),
        ("y0 = f32[1000] add(x0, x1)\ny1 = f32[1000] copy(x1)", 0),
        # A swap needs a third memory.
        ("y0 = f32[1000] copy(x1)\ny1 = f32[1000] copy(x0)", 3),
        ("y0 = f32[1000] copy(x1)\ny1 = f32[1000] add(x1, x0)", 2),
        # An element is read at another index than it is written, so the loop cannot update in place.
        ("y0 = f32[1000] reverse(x0), dimensions={0}\ny1 = f32[1000] negate(x1)", 1),
    ],
)
def test_the_state_of_a_loop_is_updated_in_place_if_possible(body: str, count: int) -> None:
    text = in_loop(PAIR, body, BOTH)
    assert body_copies(text) == count
    check_results(text, rtol=1e-6)


@pytest.mark.parametrize(
    ("update", "count"),
    [
        ("u = f32[1,64] reshape(x1)", 0),
        # It reads the row that it writes.
        ("v = f32[1,64] dynamic-slice(x0, i, zero), dynamic_slice_sizes={1,64}\nu = f32[1,64] sine(v)", 0),
        # It reads another row.
        ("v = f32[1,64] dynamic-slice(x0, next, zero), dynamic_slice_sizes={1,64}\nu = f32[1,64] sine(v)", 0),
    ],
)
def test_a_slice_that_a_loop_updates_is_all_that_it_writes(update: str, count: int) -> None:
    body = f"zero = s32[] constant(0)\n{update}\ny0 = f32[100,64] dynamic-update-slice(x0, u, i, zero)\n"
    text = in_loop("f32[100,64] f32[64]", body + "y1 = f32[64] cosine(x1)", "\nROOT r = f32[100,64] copy(y0)")
    assert body_copies(text) == count
    check_results(text, rtol=1e-6)


CHOICES = {
    "a select": ("", "pb = pred[100,64] broadcast(p), dimensions={}\ny0 = f32[100,64] select(pb, new, x0)"),
    "a select of two updates": (
        "",
        "other = f32[100,64] dynamic-update-slice(x0, u, next, zero)\n"
        "pb = pred[100,64] broadcast(p), dimensions={}\ny0 = f32[100,64] select(pb, new, other)",
    ),
    "a select of scattered rows": (
        "",
        "at = s32[1] reshape(i)\nrow = f32[64] reshape(u)\n"
        "set = f32[100,64] scatter(x0, at, row), update_window_dims={0}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=second\n"
        "pb = pred[100,64] broadcast(p), dimensions={}\ny0 = f32[100,64] select(pb, set, x0)",
    ),
    "a conditional": (
        "yes { t = (f32[100,64], f32[1,64], s32[]) parameter(0)\n x = f32[100,64] get-tuple-element(t), index=0\n"
        " u = f32[1,64] get-tuple-element(t), index=1\n i = s32[] get-tuple-element(t), index=2\n"
        " zero = s32[] constant(0)\n f = f32[1,64] sort(u), dimensions={1}, to_apply=less\n"
        " ROOT r = f32[100,64] dynamic-update-slice(x, f, i, zero) }\n"
        "no { t = (f32[100,64], f32[1,64], s32[]) parameter(0)\n ROOT x = f32[100,64] get-tuple-element(t), index=0 }\n",
        "state = (f32[100,64], f32[1,64], s32[]) tuple(x0, u, i)\n"
        "y0 = f32[100,64] conditional(p, state, state), true_computation=yes, false_computation=no",
    ),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_an_update_that_a_loop_may_make_is_in_place(choice: str) -> None:
    computations, update = CHOICES[choice]
    body = f"""zero = s32[] constant(0)
v = f32[1,64] dynamic-slice(x0, next, zero), dynamic_slice_sizes={{1,64}}
u = f32[1,64] sine(v)
new = f32[100,64] dynamic-update-slice(x0, u, i, zero)
m = pred[1] dynamic-slice(x1, i), dynamic_slice_sizes={{1}}
p = pred[] reshape(m)
{update}
y1 = pred[100] copy(x1)"""
    state = "f32[100,64] pred[100]"
    root = "\nROOT r = f32[100,64] copy(y0)"
    text = module_text(run_loop(state) + root, computations + loop(state, body))
    assert body_copies(text) == 0
    check_results(text, rtol=1e-6)


def test_two_arrays_that_are_computed_from_each_other_change_in_place() -> None:
    body = """zero = s32[] constant(0)
v = f32[1,64] dynamic-slice(x0, next, zero), dynamic_slice_sizes={1,64}
w = f32[1,64] dynamic-slice(x1, next, zero), dynamic_slice_sizes={1,64}
a = f32[1,64] sine(w)
b = f32[1,64] cosine(v)
y0 = f32[100,64] dynamic-update-slice(x0, a, i, zero)
y1 = f32[100,64] dynamic-update-slice(x1, b, i, zero)"""
    text = in_loop("f32[100,64] f32[100,64]", body, "\nROOT r = (f32[100,64], f32[100,64]) tuple(y0, y1)")
    assert body_copies(text) == 0
    check_results(text, rtol=1e-6)


def test_branches_write_where_their_result_is_wanted() -> None:
    text = module_text(
        "x = f32[64] parameter(0)\nk = s32[] parameter(1)\nROOT r = f32[64] conditional(k, x, x, x), "
        "branch_computations={one, two, two}",
        "one {\np = f32[64] parameter(0)\nROOT q = f32[64] sine(p)\n}\n"
        "two {\np = f32[64] parameter(0)\nROOT q = f32[64] reverse(p), dimensions={0}\n}\n",
    )
    program, assignment = assigned(text)
    assert copies(program, assignment) == [] and assignment.arena_bytes == 0
    check_results(text, rtol=1e-6)


def test_the_arena_is_used_again() -> None:
    """Sorts in a row, however many, have two arrays and one workspace at a time."""

    def arena(count: int) -> int:
        sort = "f32[4096] sort({}), dimensions={{0}}, to_apply=less"
        lines = ["x = f32[4096] parameter(0)", f"s0 = {sort.format('x')}"]
        for k in range(count):
            lines += [f"a{k} = f32[4096] sine(s{k})", f"s{k + 1} = {sort.format(f'a{k}')}"]
        lines.append(f"ROOT r = f32[4096] reverse(s{count}), dimensions={{0}}")
        program, assignment = assigned(module_text("\n".join(lines)))
        assert sum(isinstance(s, CodeStep) for s in program.steps) == count + 1
        return assignment.arena_bytes

    assert arena(8) == arena(2)


# Sharing memory never changes results


def wrong_seeds(seeds: range, busy_conditions: bool, parallel_loops: bool = False) -> list[int]:
    """Returns the seeds of programs whose results differ between shared and separate memory."""
    wrong, shared, parallel = [], 0, 0
    for seed in seeds:
        program = Drawer(seed, busy_conditions, parallel_loops).draw()
        assignment = assign_buffers(program)
        shared += len(assignment.coalesced_into)
        parallel += len(assignment.parallel_loops)
        if Simulation(program, assignment).results() != Simulation(program, None).results():
            wrong.append(seed)
    assert shared > len(seeds), "buffers are shared, or else this tests nothing"
    assert not parallel_loops or parallel > len(seeds) / 4, "rounds run at once, or else this tests nothing"
    return wrong


SEEDS = 200
random_seeds = pytest.mark.parametrize("first", [0, *(pytest.param(k * SEEDS, marks=pytest.mark.long) for k in (1, 2))])


@random_seeds
def test_random_programs_compute_the_same_in_shared_memory(first: int) -> None:
    assert wrong_seeds(range(first, first + SEEDS), busy_conditions=False) == []


def test_random_programs_in_parts_compute_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that several parts use lie in the arena."""
    monkeypatch.setattr(program_module, "PART_STEPS", 2)
    assert wrong_seeds(range(1000, 1200), busy_conditions=False) == []
    for seed in range(10):
        module, arrays = draw_program(seed)
        assert check(module, arrays) is None


@random_seeds
def test_random_programs_with_busy_conditions_compute_the_same_in_shared_memory(first: int) -> None:
    assert wrong_seeds(range(first, first + SEEDS), busy_conditions=True) == []


@random_seeds
def test_iterations_of_parallel_loops_do_not_interfere(first: int) -> None:
    assert wrong_seeds(range(first, first + SEEDS), busy_conditions=False, parallel_loops=True) == []


def test_what_a_condition_computes_does_not_overwrite_the_state_that_the_loop_ends_with() -> None:
    """The body replaces x without reading it; the sine in the condition must not share its buffer."""
    state, body = "f32[64]", "f = f32[] convert(i)\ny0 = f32[64] broadcast(f), dimensions={}"
    sorts = (
        "x = f32[64] get-tuple-element(t), index=0\na = f32[64] sine(x)\n"
        "s = f32[64] sort(a), dimensions={0}, to_apply=less\nf = f32[1] slice(s), slice={[0:1]}\n"
        "g = f32[] reshape(f)\ntwo = f32[] constant(2)\nsmall = pred[] compare(g, two), direction=LT\n"
        "few = pred[] compare(i, iterations), direction=LT\nROOT less = pred[] and(small, few)"
    )
    computations = loop(state, body).replace("ROOT less = pred[] compare(i, iterations), direction=LT", sorts)
    check_results(module_text(run_loop(state) + "\nROOT r = f32[64] copy(y0)", computations))
