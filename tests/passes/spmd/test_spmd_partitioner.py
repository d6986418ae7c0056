"""SPMD partitioning: the blocks of the partitioned program make up the results of the whole program."""

from __future__ import annotations

import os
import warnings

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for
from hloom.errors import ArgumentError
from hloom.passes.spmd.partitioner import partition
from hloom.sharding import Sharding, ShardingType
from passes.spmd.partitions import check, collectives
from passes.spmd.sharded_programs import draw

COMPUTATIONS = """
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
larger { av = f32[] parameter(0)
  ai = s32[] parameter(1)
  bv = f32[] parameter(2)
  bi = s32[] parameter(3)
  g = pred[] compare(av, bv), direction=GE
  v = f32[] select(g, av, bv)
  i = s32[] select(g, ai, bi)
  ROOT t = (f32[], s32[]) tuple(v, i) }
"""

ROWS, COLUMNS = "sharding={devices=[4,1]<=[4]}", "sharding={devices=[1,4]<=[4]}"
BOTH = "sharding={devices=[2,2]<=[4]}"
FIRST = "sharding={devices=[4,1,1]<=[4]}"
X = f"x = f32[8,12] parameter(0), {ROWS}\n"
XC = f"x = f32[8,12] parameter(0), {COLUMNS}\n"
XB = f"x = f32[8,12] parameter(0), {BOTH}\n"
GATHER_ROWS = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,12}"
ADD_ROWS = "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1"
LABELS = "dim_labels=b01f_01io->b01f"
WITH_BIAS = "b = f32[12] parameter(1)\n c = f32[8,12] broadcast(b), dimensions={1}\n s = f32[8,12] add(x, c)\n"

# name: the entry, and the collectives that its partitioned program may have
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "element by element": (X + "s = f32[8,12] sine(x)\n ROOT r = f32[8,12] multiply(s, x)", {}),
    "broadcast": (X + WITH_BIAS + "ROOT r = f32[8,12] tanh(s)", {}),
    "iota": (X + "i = f32[8,12] iota(), iota_dimension=0\n ROOT r = f32[8,12] add(x, i)", {}),
    "transpose": (X + "t = f32[12,8] transpose(x), dimensions={1,0}\n ROOT r = f32[12,8] negate(t)", {}),
    "reshape that splits rows": (X + "ROOT r = f32[4,2,12] reshape(x)", {}),
    "reshape that joins rows": (X + "ROOT r = f32[96] reshape(x)", {}),
    "reshape that joins sharded columns": (XC + "ROOT r = f32[96] reshape(x)", {"all-gather": 1}),
    "reverse of whole columns": (X + "ROOT r = f32[8,12] reverse(x), dimensions={1}", {}),
    "reverse of sharded columns": (XC + "ROOT r = f32[8,12] reverse(x), dimensions={1}", {"collective-permute": 1}),
    "reverse of both": (XB + "ROOT r = f32[8,12] reverse(x), dimensions={0,1}", {"collective-permute": 1}),
    "concatenate": (X + "ROOT r = f32[8,24] concatenate(x, x), dimensions={1}", {}),
    "pad": (X + "z = f32[] constant(0)\n ROOT r = f32[8,15] pad(x, z), padding=0_0x1_2", {}),
    "slice": (X + "ROOT r = f32[8,5] slice(x), slice={[0:8], [1:11:2]}", {}),
    "dynamic-slice": (
        X + "i = s32[] parameter(1)\n z = s32[] constant(0)\n"
        "ROOT r = f32[8,3] dynamic-slice(x, z, i), dynamic_slice_sizes={8,3}",
        {},
    ),
    "dynamic-update-slice": (
        X + "u = f32[8,1] parameter(1)\n i = s32[] parameter(2)\n z = s32[] constant(0)\n"
        "ROOT r = f32[8,12] dynamic-update-slice(x, u, z, i)",
        {},
    ),
    "gather of rows by sharded indices": (
        f"x = f32[8,12] parameter(0)\n i = s32[20,1] parameter(1), {ROWS}\n ROOT r = f32[20,12] gather(x, i), {GATHER_ROWS}",
        {},
    ),
    "gather of rows sharded along columns": (
        XC + f"i = s32[20,1] parameter(1)\n ROOT r = f32[20,12] gather(x, i), {GATHER_ROWS}", {},
    ),
    "scatter that adds sharded updates": (
        f"x = f32[8,12] parameter(0)\n i = s32[20,1] parameter(1), {ROWS}\n u = f32[20,12] parameter(2), {ROWS}\n"
        f"ROOT r = f32[8,12] scatter(x, i, u), {ADD_ROWS}, to_apply=add",
        {"all-reduce": 1},
    ),
    "dot over batches": (
        f"x = f32[4,3,5] parameter(0), {FIRST}\n y = f32[4,5,2] parameter(1), {FIRST}\n ROOT r = f32[4,3,2] dot(x, y), "
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}",
        {},
    ),
    "dot with sharded rows": (
        X + "y = f32[12,6] parameter(1)\n ROOT r = f32[8,6] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        {},
    ),
    "dot with sharded contraction": (
        XC + f"y = f32[12,6] parameter(1), {ROWS}\n ROOT r = f32[8,6] dot(x, y), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        {"all-reduce": 1},
    ),
    "dot with sharded contraction and a sharded result": (
        XC + f"y = f32[12,6] parameter(1), {ROWS}\n d = f32[8,6] dot(x, y), lhs_contracting_dims={{1}}, "
        "rhs_contracting_dims={0}\n ROOT r = f32[8,6] custom-call(d), custom_call_target=\"Sharding\", " + ROWS,
        {"reduce-scatter": 1},
    ),
    "convolution with sharded batch": (
        f"x = f32[4,6,6,3] parameter(0), sharding={{devices=[4,1,1,1]<=[4]}}\n k = f32[3,3,3,8] parameter(1)\n"
        f"ROOT r = f32[4,4,4,8] convolution(x, k), window={{size=3x3}}, {LABELS}",
        {},
    ),
    "convolution with sharded input features": (
        "x = f32[2,6,6,4] parameter(0), sharding={devices=[1,1,1,4]<=[4]}\n"
        "k = f32[3,3,4,8] parameter(1), sharding={devices=[1,1,4,1]<=[4]}\n"
        f"ROOT r = f32[2,4,4,8] convolution(x, k), window={{size=3x3}}, {LABELS}",
        {"all-reduce": 1},
    ),
    "reduce of whole columns": (X + "z = f32[] constant(1)\n ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=add", {}),
    "reduce of sharded columns, with an initial value": (
        XC + "z = f32[] constant(1)\n ROOT r = f32[8] reduce(x, z), dimensions={1}, to_apply=add", {"all-reduce": 1},
    ),
    "maximum of everything": (
        XB + "z = f32[] constant(-inf)\n ROOT r = f32[] reduce(x, z), dimensions={0,1}, to_apply=max", {"all-reduce": 1},
    ),
    "argmax of whole rows": (
        X + "i = s32[8,12] iota(), iota_dimension=1\n v = f32[] constant(-inf)\n k = s32[] constant(0)\n"
        "ROOT r = (f32[8], s32[8]) reduce(x, i, v, k), dimensions={1}, to_apply=larger",
        {},
    ),
    "windows": (
        X + "z = f32[] constant(0)\n ROOT r = f32[8,12] reduce-window(x, z), window={size=1x12 pad=0_0x11_0}, to_apply=add", {},
    ),
    "sort": (X + "ROOT r = f32[8,12] sort(x), dimensions={1}, to_apply=less", {}),
    "sort of sharded columns": (XC + "ROOT r = f32[8,12] sort(x), dimensions={1}, to_apply=less", {"all-gather": 1}),
    "topk": (X + "ROOT r = (f32[8,2], s32[8,2]) topk(x), k=2, largest=true", {}),
    "softmax of whole rows": (
        X + "m = f32[] constant(-inf)\n h = f32[8] reduce(x, m), dimensions={1}, to_apply=max\n"
        "hb = f32[8,12] broadcast(h), dimensions={0}\n d = f32[8,12] subtract(x, hb)\n e = f32[8,12] exponential(d)\n"
        "z = f32[] constant(0)\n s = f32[8] reduce(e, z), dimensions={1}, to_apply=add\n"
        "sb = f32[8,12] broadcast(s), dimensions={0}\n ROOT r = f32[8,12] divide(e, sb)",
        {},
    ),
    "rows to columns": (
        X + f'ROOT r = f32[8,12] custom-call(x), custom_call_target="Sharding", {COLUMNS}', {"all-to-all": 1},
    ),
    "random bits are drawn whole": (
        "s = u64[2] parameter(0)\n b = (u64[2], u32[8,12]) rng-bit-generator(s), algorithm=rng_three_fry\n"
        f'g = u32[8,12] get-tuple-element(b), index=1\n ROOT r = u32[8,12] custom-call(g), custom_call_target="Sharding", {BOTH}',
        {},
    ),
}  # fmt: skip


def program(entry: str) -> hl.Module:
    return hl.parse(f"HloModule m\n{COMPUTATIONS}\nENTRY e {{\n{entry}\n}}\n")


@pytest.mark.parametrize("name", CASES)
def test_rules_preserve_results_and_add_no_unneeded_collectives(name: str) -> None:
    entry, wanted = CASES[name]
    module = program(entry)
    assert check(module, arrays_for(module), 4, 1e-5, 1e-5) is None
    partitioned = partition(module, 4)
    assert dict(collectives(partitioned.module)) == wanted, partitioned.module.to_text()


LOOP = """HloModule m
body { t = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  one = s32[] constant(1)
  n = s32[] add(i, one)
  x = f32[8,4] get-tuple-element(t), index=1
  y = f32[8,4] cosine(x)
  ROOT r = (s32[], f32[8,4]) tuple(n, y) }
condition { t = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8,4] parameter(0), sharding={devices=[4,1]<=[4]}
  z = s32[] constant(0)
  t = (s32[], f32[8,4]) tuple(z, x)
  ROOT r = (s32[], f32[8,4]) while(t), condition=condition, body=body }
"""


def test_loops_carry_blocks() -> None:
    module = hl.parse(LOOP)
    assert check(module, arrays_for(module), 4, 1e-6, 1e-6) is None
    partitioned = partition(module, 4)
    assert not collectives(partitioned.module)
    assert [str(leaf) for leaf in partitioned.module.entry.result_shape.leaves()] == ["s32[]", "f32[2,4]"]


def test_replicas_of_partitioned_programs_do_not_mix() -> None:
    """Blocks are moved and summed within each replica, for every kind of collective that partitioning adds."""
    entry = (
        X + f'c = f32[8,12] custom-call(x), custom_call_target="Sharding", {COLUMNS}\n'
        f'a = f32[8,12] custom-call(c), custom_call_target="Sharding", {ROWS}\n'
        "z = f32[] constant(0)\n s = f32[] reduce(a, z), dimensions={0,1}, to_apply=add\n"
        "w = f32[8,12] sort(c), dimensions={1}, to_apply=less\n ROOT t = (f32[], f32[8,12]) tuple(s, w)"
    )
    module = program(entry)
    module.replica_count = 2
    made = partition(module, 4)
    assert {*collectives(made.module)} == {"all-to-all", "all-gather", "all-reduce"}
    arrays = [arrays_for(module, seed)[0] for seed in (1, 2)]
    blocks = [[block] for array in arrays for block in np.split(array, 4)]
    results = hl.compile(made.module).run_replicas(blocks)
    for replica, array in enumerate(arrays):
        mine = results[4 * replica : 4 * replica + 4]
        for total, _ in mine:
            assert np.allclose(total, array.sum(), atol=1e-4)
        assert np.array_equal(mine[0][1], np.sort(array, 1)[: len(mine[0][1])])


def test_the_module_itself_is_not_changed() -> None:
    module = program(CASES["sort of sharded columns"][0])
    before = module.to_text()
    partition(module, 4)
    assert module.to_text() == before


def test_results_that_were_left_open_are_reported() -> None:
    module = program(X + "ROOT r = f32[12,8] transpose(x), dimensions={1,0}")
    (result,) = partition(module, 4).results
    assert result.tile_assignment_dimensions == (1, 4) and result.iota_reshape_dims == (4,)


def test_an_open_flag_overrides_replicated() -> None:
    module = program(X + "s = f32[8,12] sine(x)\n ROOT t = (f32[8,12]) tuple(s), sharding={{replicated}}")
    assert partition(module, 4).results == [Sharding(ShardingType.REPLICATED)]
    assert partition(module, 4, [True]).results[0].tile_assignment_dimensions == (4, 1)
    with pytest.raises(ArgumentError, match="the program has 1 results, got 2 flags for open ones"):
        partition(module, 4, [True, False])


def test_uneven_blocks_are_padded() -> None:
    """Parameters and results may have blocks that reach over the end of the array."""
    module = program(
        f"x = f32[7,12] parameter(0), {ROWS}\n s = f32[7,12] sine(x)\n"
        "ROOT t = (f32[7,12]) tuple(s), sharding={{devices=[3,1]2,0,1}}".replace("[3,1]2,0,1", "[1,4]3,1,0,2")
    )
    assert check(module, arrays_for(module), 4, 1e-6, 1e-6) is None
    assert str(partition(module, 4).module.entry.parameter_shapes[0]) == "f32[2,12]{1,0}"[: len("f32[2,12]")]


def test_a_maximal_sharding_runs_an_effect_on_one_partition_alone() -> None:
    """The result of a device is broadcast; the other devices do not make the call."""
    calls: list[float] = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(float(x.sum()))
        return x + 1

    hl.register_custom_call("spmd_count", count)
    module = program(
        X + 'c = f32[8,12] custom-call(x), custom_call_target="spmd_count", custom_call_has_side_effect=true, '
        "sharding={maximal device=2}\n ROOT r = f32[8,12] negate(c)"
    )
    partitioned = partition(module, 4)
    blocks = [[np.full((2, 12), float(p), np.float32)] for p in range(4)]
    results = hl.compile(partitioned.module).run_replicas(blocks)
    assert calls == [24.0 * 6]
    assert np.allclose(np.concatenate([np.atleast_2d(r) for r in results])[0, 0], -1)


def test_an_effect_without_results_has_a_sharding_nevertheless() -> None:
    """The callback of debug.print as JAX sends it: on one device, in Shardy's form."""
    seen: list[float] = []
    hl.register_custom_call("spmd_print", lambda x: (seen.append(float(x)), ())[1])
    module = hl.parse(
        "HloModule m, frontend_attributes={xla.sdy.meshes={one = #sdy.mesh<[], device_ids=[1]>}}\n"
        "ENTRY e { x = f32[] parameter(0)\n"
        'c = () custom-call(x), custom_call_target="spmd_print", custom_call_has_side_effect=true, '
        "sharding={{maximal device=1}}, "
        'frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@one, []>]>"}\n ROOT t = () tuple() }'
    )
    hl.compile(partition(module, 2).module).run_replicas([[np.float32(5)], [np.float32(5)]])
    assert seen == [5.0]


REGION = """HloModule m
region { z = f32[] constant(0)
  o = f32[] constant(1)
  ROOT r = f32[8] rng(z, o), distribution=rng_uniform }
ENTRY e { z = f32[] constant(0)
  o = f32[] constant(1)
  outside = f32[8] rng(z, o), distribution=rng_uniform
  b = f32[8] call(), to_apply=region
  s = f32[8] custom-call(b), custom_call_target="Sharding", sharding={manual}
  inside = f32[32] custom-call(s), custom_call_target="SPMDShardToFullShape", sharding={devices=[4]<=[4]}
  ROOT t = (f32[8], f32[32]) tuple(outside, inside) }
"""


def test_random_draws_agree_outside_manual_regions_alone() -> None:
    results = hl.compile(partition(hl.parse(REGION), 4).module, seed=1).run_replicas([[]] * 4)
    assert len({outside.tobytes() for outside, _ in results}) == 1
    assert len({inside.tobytes() for _, inside in results}) == 4


def test_manual_axes_that_do_not_fit_the_block_are_refused() -> None:
    module = program(
        f'x = f32[8,12] parameter(0)\n s = f32[8,12] custom-call(x), custom_call_target="Sharding", {ROWS}\n'
        'ROOT m = f32[4,12] custom-call(s), custom_call_target="SPMDFullToShardShape", sharding={manual}'
    )
    with pytest.raises(
        ArgumentError, match=r"shard f32\[8,12\] into blocks of f32\[2,12\], but the region has f32\[4,12\]"
    ):
        partition(module, 4)


def test_shardings_that_do_not_fit_are_refused() -> None:
    module = program("ROOT x = f32[8,12] parameter(0), sharding={devices=[3,1]<=[3]}")
    with pytest.raises(ArgumentError, match=r"at least 2 tile dimensions, whose product is 4, got \[3, 1\]"):
        partition(module, 4)


# Random programs

CASES_IN_ALL = int(os.environ.get("HLOOM_CASES", "2400"))


def run_block(kind: str, first: int, count: int, backend: str) -> None:
    wrong = []
    for seed in range(first, first + count):
        module, inputs, partitions, tolerance = draw(kind, seed)
        if any(instruction.opcode == "rng" for instruction in module.instructions()):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if found := check(module, inputs, partitions, tolerance, tolerance, backend):
                wrong.append(f"seed {seed} on {partitions} partitions: {found}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
@pytest.mark.parametrize("kind", ["fused", "loops"])
def test_a_few_random_programs_with_random_shardings(kind: str, backend: str) -> None:
    run_block(kind, 0, 15 if backend == "interpreter" else 3, backend)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["fused", "loops"])
@pytest.mark.parametrize("first", range(1000, 1000 + CASES_IN_ALL // 2, 200))
def test_random_programs_with_random_shardings(kind: str, first: int) -> None:
    run_block(kind, first, min(200, 1000 + CASES_IN_ALL // 2 - first), "interpreter")


def test_loops_that_share_bodies_with_loops_in_them_get_their_own() -> None:
    shared = hl.parse("""HloModule nested
less { c = s32[] parameter(0)
  five = s32[] constant(5)
  ROOT l = pred[] compare(c, five), direction=LT }
increase { i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT s = s32[] add(i, one) }
inner { i = s32[] parameter(0)
  w1 = s32[] while(i), condition=less, body=increase
  ROOT w2 = s32[] while(w1), condition=less, body=increase }
outer { o = s32[] parameter(0)
  w1 = s32[] while(o), condition=less, body=inner
  ROOT w2 = s32[] while(w1), condition=less, body=inner }
ENTRY e { x = s32[] parameter(0)
  w1 = s32[] while(x), condition=less, body=outer
  ROOT w2 = s32[] while(w1), condition=less, body=outer }""")
    module = partition(shared, 2).module
    called = [c for i in module.instructions() for c in i.op.computations]
    assert len(called) == len(set(called)) == len({c.name for c in called}) == 2 * (2 + 4 + 8)


PRODUCTS = {
    "dot": "dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "convolution(x, y), dim_labels=bf_io->bf",
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("backend", "result"), [("interpreter", "replicated"), ("interpreter", "devices=[2,1]<=[2]"), ("cpu", "replicated")]
)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("type", ["bf16", "f16", "f8e4m3fn"])
def test_partial_sums_of_products_are_not_rounded(type: str, product: str, backend: str, result: str) -> None:
    """DOT-3: a narrow float has the sum of all addends, but not those of both halves: too large, or with too many bits."""
    module = hl.parse(f"""ENTRY e {{ x = {type}[2,4] parameter(0), sharding={{devices=[1,2]<=[2]}}
      y = {type}[4,2] parameter(1), sharding={{devices=[2,1]<=[2]}}
      p = {type}[2,2] {PRODUCTS[product]}
      ROOT t = ({type}[2,2]) tuple(p), sharding={{{{{result}}}}} }}""")
    dtype = hl.PrimitiveType[type.upper()].dtype
    most, bits = min(float(ml_dtypes.finfo(dtype).max), 2.0**120), 2 << ml_dtypes.finfo(dtype).nmant
    x = np.array([[most, most, -most, -most], [bits, 1, -bits, 1]], dtype)
    (sums,) = hl.compile(module, backend=backend, partitions=2)(x, np.ones((4, 2), dtype))
    assert sums.astype(np.float32).tolist() == [[0, 0], [2, 2]]


@pytest.mark.parametrize("sharding", ["[1,1,2,1]<=[2]", "[1,1,1,2]<=[2]", "[1,2,1,1]<=[2]", "[2,1,1,1]<=[2]"])
def test_indices_that_are_all_clamped_to_0_are_sharded_with_the_result(sharding: str) -> None:
    """GATHER-7: a slice of the whole dimension starts at 0, whatever its index."""
    module = hl.parse(f"""ENTRY e {{ x = s32[6,2] parameter(0)
      i = s32[6,4,2] parameter(1)
      g = s32[2,6,4,2] gather(x, i), offset_dims={{0}}, collapsed_slice_dims={{}}, start_index_map={{1}},
        operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=3, slice_sizes={{1,2}}
      ROOT t = (s32[2,6,4,2]) tuple(g), sharding={{{{devices={sharding}}}}} }}""")
    assert check(module, arrays_for(module), 2) is None


@pytest.mark.parametrize(
    "sharding", ["devices=[1,2]<=[2]", "devices=[2,1]<=[2]", "devices=[2,1]1,0", "devices=[1,2]1,0", "unreduced"]
)
def test_arrays_with_dynamic_dimensions_are_replicated_whatever_their_annotations(sharding: str) -> None:
    """The sizes of blocks are not known before the program runs."""
    module = hl.parse(f"""ENTRY e {{ x = s32[<=4,6] parameter(0), sharding={{{sharding}}}
      n = s32[] parameter(1)
      y = s32[<=4,6] negate(x)
      z = s32[4,6] parameter(2)
      d = s32[<=4,6] set-dimension-size(z, n), dimensions={{0}}
      ROOT t = (s32[<=4,6], s32[<=4,6]) tuple(y, d), sharding={{{{{sharding}}}, {{{sharding}}}}} }}""")
    partitioned = partition(module, 2)
    assert {s.type for s in partitioned.parameters + partitioned.results} == {ShardingType.REPLICATED}
    z = np.arange(24, dtype=np.int32).reshape(4, 6)
    negative, part = hl.compile(module, backend="interpreter", partitions=2)(z[:3], np.int32(2), z)
    np.testing.assert_array_equal(negative, -z[:3])
    np.testing.assert_array_equal(part, z[:2])
