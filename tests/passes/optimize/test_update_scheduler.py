"""update-scheduler: readers of an array come before its update in place."""

from __future__ import annotations

import pytest

import hloom as hl
from hlo_text import module_text
from hloom.passes.optimize.update_scheduler import UpdateScheduler
from passes.modules import check_same_results, inputs

SET_ONE = "update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=0"
HEAD = "x = f32[4] parameter(0); y = f32[4] parameter(1); v = f32[1] parameter(2); k = s32[] parameter(3)"


def order(body: str) -> list[str]:
    """The names of the instructions behind the parameters, after the pass."""
    module = hl.parse(module_text("\n".join(f"{HEAD}; {body}".split(";"))))
    after = check_same_results(module, UpdateScheduler().run, inputs(module))
    return [i.name for i in after.entry.instructions if i.opcode != "parameter"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("u = f32[4] dynamic-update-slice(x, v, k); r = f32[4] negate(x); ROOT s = f32[4] add(u, r)", "r u s"),
        ("z = f32[2,2] reshape(x); u = f32[4] dynamic-update-slice(x, v, k); r = f32[2,2] negate(z); q = f32[4] reshape(r);"
         "ROOT s = f32[4] add(u, q)", "z r u q s"),
        (f"l = s32[1] reshape(k); w = f32[] reshape(v); u = f32[4] scatter(x, l, w), {SET_ONE}, to_apply=sum;"
         "r = f32[4] negate(x); ROOT s = f32[4] add(u, r)", "l w r u s"),
    ],
)  # fmt: skip
def test_readers_come_before_the_update(body: str, expected: str) -> None:
    assert " ".join(order(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        # The reader depends on the update.
        "u = f32[4] dynamic-update-slice(x, v, k); r = f32[4] add(u, x); ROOT s = f32[4] negate(r)",
        # Only the second of two updates of one array is in place.
        "u = f32[4] dynamic-update-slice(x, v, k); w = f32[4] dynamic-update-slice(x, v, k); ROOT s = f32[4] add(u, w)",
        # Each of the two updates would have to precede the other.
        "u = f32[4] dynamic-update-slice(x, v, k); n = f32[4] negate(u); a = f32[1] slice(n), slice={[0:1]};"
        "r = f32[4] dynamic-update-slice(y, a, k); q = f32[4] add(x, r); ROOT s = f32[4] add(q, y)",
    ],
)
def test_orders_that_cannot_be_improved_are_left_alone(body: str) -> None:
    names = order(body)
    assert names == [line.strip().split(" = ")[0].removeprefix("ROOT ") for line in body.split(";")]


def test_reads_of_two_arrays_come_before_their_updates() -> None:
    body = (
        "u = f32[4] dynamic-update-slice(x, v, k); w = f32[4] dynamic-update-slice(y, v, k);"
        "r = f32[4] add(x, y); t = f32[4] add(u, w); ROOT s = f32[4] add(t, r)"
    )
    assert order(body) == ["r", "u", "w", "t", "s"]


def test_a_loop_that_updates_an_array_comes_after_its_readers() -> None:
    computations = """
condition { t = (f32[4], s32[]) parameter(0)  i = s32[] get-tuple-element(t), index=1  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }
body { t = (f32[4], s32[]) parameter(0)  i = s32[] get-tuple-element(t), index=1  one = s32[] constant(1)
  x = f32[4] get-tuple-element(t), index=0  y = f32[4] negate(x)  j = s32[] add(i, one)
  ROOT s = (f32[4], s32[]) tuple(y, j) }
"""
    entry = """x = f32[4] parameter(0)
k = s32[] parameter(1)
a = f32[4] sine(x)
init = (f32[4], s32[]) tuple(a, k)
w = (f32[4], s32[]) while(init), condition=condition, body=body
r = f32[4] cosine(a)
g = f32[4] get-tuple-element(w), index=0
ROOT s = f32[4] add(g, r)"""
    module = hl.parse(module_text(entry, computations))
    after = check_same_results(module, UpdateScheduler().run, inputs(module))
    names = [i.name for i in after.entry.instructions]
    assert names.index("r") < names.index("w")
