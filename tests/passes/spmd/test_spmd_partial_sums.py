"""Arrays of which partitions hold partial sums: where they are added up, and which operations work on partial sums."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for
from hloom.passes.spmd.partitioner import partition
from hloom.text.scanner import Scanner
from hloom.text.sharding import scan_sharding
from passes.spmd.partitions import check, collectives, run

ADD = """add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
"""
PARTIAL_SUMS = "sharding={unreduced}"
WHOLE = "sharding={replicated}"
ROWS, COLUMNS = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}"
HALF = "sharding={devices=[2,1,2]<=[4] last_tile_dims={unreduced}}"
X = f"x = f32[8,4] parameter(0), {PARTIAL_SUMS}\n"
Y = f"y = f32[8,4] parameter(1), {PARTIAL_SUMS}\n"
W = "w = f32[8,4] parameter(1)\n"
PRODUCT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
FACTORS = f"a = f32[6,8] parameter(0), {COLUMNS}\n b = f32[8,4] parameter(1), {ROWS}\n"


def constrained(value: str, annotation: str, shape: str = "f32[8,4]") -> str:
    """A constraint whose value is the result, with the same annotation."""
    return (
        f'r = {shape} custom-call({value}), custom_call_target="Sharding", {annotation}\n'
        f"ROOT t = ({shape}) tuple(r), {annotation.replace('{', '{{', 1)}}}"
    )


# name: the entry, and the collectives that its partitioned program may have
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "wanted whole": (X + constrained("x", WHOLE), {"all-reduce": 1}),
    "wanted in blocks": (X + constrained("x", ROWS), {"reduce-scatter": 1}),
    "wanted as partial sums": (X + constrained("x", PARTIAL_SUMS), {}),
    "some of the axes wanted whole": (
        X + constrained("x", "sharding={devices=[1,1,2,2]<=[4] last_tile_dims={replicated, unreduced}}"),
        {"all-reduce": 1},
    ),
    "a whole array as partial sums": ("x = f32[8,4] parameter(0)\n" + constrained("x", PARTIAL_SUMS), {}),
    "blocks as partial sums": (f"x = f32[8,4] parameter(0), {ROWS}\n" + constrained("x", PARTIAL_SUMS), {}),
    "blocks of partial sums": (f"x = f32[8,4] parameter(0), {HALF}\n" + constrained("x", ROWS), {"reduce-scatter": 1}),
    "used by what is not linear": (X + "ROOT r = f32[8,4] sine(x)", {"all-reduce": 1}),
    "rounded": (X + "ROOT r = s32[8,4] convert(x)", {"all-reduce": 1}),
    "a linear chain": (
        X + Y + "s = f32[8,4] subtract(x, y)\n t = f32[4,8] transpose(s), dimensions={1,0}\n"
        "c = f32[4,16] concatenate(t, t), dimensions={1}\n l = f32[4,10] slice(c), slice={[0:4], [3:13]}\n"
        "n = f32[4,10] negate(l)\n ROOT r = f32[40] reshape(n)",
        {"all-reduce": 1},
    ),
    "added to zeros": (
        X + "z = f32[] constant(0)\n zs = f32[8,4] broadcast(z), dimensions={}\n a = f32[8,4] add(x, zs)\n"
        + constrained("a", PARTIAL_SUMS),
        {},
    ),
    "added to a whole array": (X + W + "ROOT r = f32[8,4] add(x, w)", {"all-reduce": 1}),
    "multiplied by a whole array": (X + W + "p = f32[8,4] multiply(x, w)\n" + constrained("p", PARTIAL_SUMS), {}),
    "multiplied by partial sums": (X + Y + "p = f32[8,4] multiply(x, y)\n" + constrained("p", PARTIAL_SUMS), {"all-reduce": 1}),
    "divided, perhaps by zero": (
        X + W + "p = f32[8,4] divide(x, w)\n" + constrained("p", PARTIAL_SUMS), {"all-reduce": 1},
    ),
    "a factor of a product of matrices": (
        X + f"w = f32[4,3] parameter(1)\n p = f32[8,3] dot(x, w), {PRODUCT}\n" + constrained("p", PARTIAL_SUMS, "f32[8,3]"),
        {},
    ),
    "a contraction left open": (
        FACTORS + f"p = f32[6,4] dot(a, b), {PRODUCT}\n" + constrained("p", PARTIAL_SUMS, "f32[6,4]"), {},
    ),
    "a contraction left open behind a reshape": (
        FACTORS + f"p = f32[6,4] dot(a, b), {PRODUCT}\n s = f32[24] reshape(p)\n"
        + constrained("s", PARTIAL_SUMS, "f32[24]"),
        {},
    ),
    "a contraction that somebody wants complete": (
        FACTORS + f"p = f32[6,4] dot(a, b), {PRODUCT}\n s = f32[6,4] sine(p)\n"
        f'o = f32[6,4] custom-call(p), custom_call_target="Sharding", {PARTIAL_SUMS}\n'
        f"ROOT t = (f32[6,4], f32[6,4]) tuple(s, o), sharding={{{{replicated}}, {{unreduced}}}}",
        {"all-reduce": 1},
    ),
    "a sum left open, with a first value": (
        f"x = f32[8,4] parameter(0), {ROWS}\n z = f32[] constant(5)\n"
        "s = f32[4] reduce(x, z), dimensions={0}, to_apply=add\n" + constrained("s", PARTIAL_SUMS, "f32[4]"),
        {},
    ),
    "a sum of partial sums": (
        X + "z = f32[] constant(0)\n s = f32[4] reduce(x, z), dimensions={0}, to_apply=add\n"
        + constrained("s", PARTIAL_SUMS, "f32[4]"),
        {},
    ),
    "a sum of blocks of partial sums": (
        f"x = f32[8,4] parameter(0), {HALF}\n z = f32[] constant(0)\n"
        "ROOT s = f32[4] reduce(x, z), dimensions={0}, to_apply=add",
        {"all-reduce": 2},
    ),
    "a sum of partial sums with a first value": (
        X + "z = f32[] constant(5)\n s = f32[4] reduce(x, z), dimensions={0}, to_apply=add\n"
        + constrained("s", PARTIAL_SUMS, "f32[4]"),
        {"all-reduce": 1},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_partial_sums_are_added_up_where_their_sum_is_needed(name: str) -> None:
    entry, wanted = CASES[name]
    module = hl.parse(f"HloModule m\n{ADD}\nENTRY e {{\n{entry}\n}}\n")
    assert check(module, arrays_for(module), 4, 1e-5, 1e-5) is None
    partitioned = partition(module, 4)
    assert dict(collectives(partitioned.module)) == wanted, partitioned.module.to_text()


LOOP = f"""HloModule m
body {{ t = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[8,4] get-tuple-element(t), index=1
  s = f32[8,4] get-tuple-element(t), index=2
  y = f32[8,4] add(s, x)
  ROOT r = (s32[], f32[8,4], f32[8,4]) tuple(n, x, y) }}
condition {{ t = (s32[], f32[8,4], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }}
ENTRY e {{ x = f32[8,4] parameter(0), {PARTIAL_SUMS}
  z = s32[] constant(0)
  t = (s32[], f32[8,4], f32[8,4]) tuple(z, x, x)
  w = (s32[], f32[8,4], f32[8,4]) while(t), condition=condition, body=body
  ROOT r = f32[8,4] get-tuple-element(w), index=2 }}
"""


def test_loops_accumulate_partial_sums() -> None:
    module = hl.parse(LOOP)
    assert check(module, arrays_for(module), 4, 1e-5, 1e-5) is None
    made = partition(module, 4).module
    assert dict(collectives(made)) == {"all-reduce": 1}
    assert any(i.opcode == "all-reduce" for i in made.entry.instructions)


BRANCHES = f"""HloModule m
same {{ ROOT a = f32[8] parameter(0) }}
negative {{ a = f32[8] parameter(0)
  ROOT n = f32[8] negate(a) }}
ENTRY e {{ i = s32[] parameter(0), {PARTIAL_SUMS}
  x = f32[8] parameter(1), {PARTIAL_SUMS}
  ROOT c = f32[8] conditional(i, x, x), branch_computations={{same, negative}} }}
"""


@pytest.mark.parametrize("index", [0, 1])
def test_branches_work_on_partial_sums_but_are_chosen_by_the_sum(index: int) -> None:
    module = hl.parse(BRANCHES)
    assert check(module, [np.int32(index), np.arange(8, dtype=np.float32)], 4) is None
    assert dict(collectives(partition(module, 4).module)) == {"all-reduce": 2}


def region(annotation: str) -> hl.Module:
    """A manual region over both axes, whose blocks go out as they came in, for partial sums along y."""
    axes = r'xla.sdy.manual_axes="#sdy<manual_axes{\"x\", \"y\"}>"'
    left = r"<[<@mesh, [{\"x\"}, {}], unreduced={\"y\"}>]>"
    return hl.parse(
        'HloModule m, frontend_attributes={xla.sdy.meshes={mesh = #sdy.mesh<["x"=2, "y"=2]>}}\n'
        f'ENTRY e {{ p = f32[8,4] parameter(0), frontend_attributes={{xla.sdy.sharding="{annotation}"}}\n'
        'i = f32[4,4] custom-call(p), custom_call_target="xla.sdy.GlobalToLocalShape", '
        f'frontend_attributes={{xla.sdy.in_shardings="{annotation}",{axes}}}\n'
        'o = f32[8,4] custom-call(i), custom_call_target="xla.sdy.LocalToGlobalShape", '
        f'frontend_attributes={{xla.sdy.out_shardings="{left}",{axes}}}\n'
        f"ROOT t = (f32[8,4]) tuple(o), {HALF.replace('{', '{{', 1)}}} }}"
    )


@pytest.mark.parametrize(("unreduced", "factor"), [(r", unreduced={\"y\"}", 1), ("", 2)])
def test_manual_regions_take_and_return_partial_sums(unreduced: str, factor: int) -> None:
    """Blocks only change their meaning: two copies that are taken for partial sums make up twice the array."""
    module = region(r"<[<@mesh, [{\"x\"}, {}]" + unreduced + ">]>")
    made = partition(module, 4)
    assert not collectives(made.module)
    (array,) = arrays_for(module)
    (result,) = run(made, [array], [*module.entry.result_shape.leaves()], "interpreter")
    np.testing.assert_allclose(result, factor * array, rtol=1e-5)
    assert made.results == [scan_sharding(Scanner(HALF.removeprefix("sharding=")))]
