"""Alternative forms of instructions, which XLA reads too."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.ir import Module
from hloom.proto import module_from_proto, module_to_proto
from hloom.values import Value

ADD = "add {\n x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT s = f32[] add(x, y)\n}\n"
ADD_IN_TUPLE = """add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  s = f32[] add(x, y)
  ROOT t = (f32[]) tuple(s)
}
"""


def module_of(body: str, before: str = "") -> Module:
    return hl.parse(f"HloModule m\n{before}ENTRY e {{\n{body}\n}}\n")


def results(module: Module, *arguments: object) -> list[Value]:
    """The results of both backends, after a round trip through the text."""
    again = hl.parse(module.to_text())
    return [hl.compile(again, backend)(*arguments) for backend in ("interpreter", "cpu")]


def test_rng_may_repeat_its_sizes() -> None:
    """RNGUNIFORM-1: the distribution has two parameters; older programs give the sizes as a third operand."""
    text = """ a = f32[] constant(2)
 b = f32[] constant(3)
 n = s64[1] constant({4})
 ROOT r = f32[4] rng(a, b, n), distribution=rng_uniform"""
    module = module_of(text)
    assert [operand.name for operand in module.entry.root.operands] == ["a", "b"]
    proto = module_to_proto(module)
    (computation,) = proto.computations
    by_name = {instruction.name: instruction for instruction in computation.instructions}
    by_name["r"].operand_ids.append(by_name["n"].id)
    assert len(module_from_proto(proto).entry.root.operands) == 2
    for value in results(module):
        assert value.shape == (4,) and (value >= 2).all() and (value < 3).all()


def test_operands_that_a_form_repeats_keep_their_users() -> None:
    module = module_of(
        " a = s32[] constant(2)\n b = s32[] constant(9)\n ROOT r = s32[] rng(a, b, a), distribution=rng_uniform"
    )
    a, b = module.entry.root.operands
    assert [*a.users] == [*b.users] == [module.entry.root]


def test_random_bits_may_come_without_the_state() -> None:
    """RNGBITGENERATOR-1: the bits are those that stand beside the new state."""
    bits = " s = u64[2] parameter(0)\n ROOT r = u32[8] rng-bit-generator(s), algorithm=rng_three_fry"
    both = " s = u64[2] parameter(0)\n ROOT r = (u64[2], u32[8]) rng-bit-generator(s), algorithm=rng_three_fry"
    state = np.array([3, 4], np.uint64)
    expected = hl.compile(module_of(both))(state)[1]
    for value in results(module_of(bits), state):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("(f32[2]) reduce(x, z), dimensions={1}, to_apply=add", [3.0, 12.0]),
        ("(f32[2,2]) reduce-window(x, z), window={size=1x2}, to_apply=add", [[1.0, 3.0], [7.0, 9.0]]),
    ],
)
def test_combiners_may_return_a_tuple_of_one(instruction: str, expected: list[float]) -> None:
    """REDUCE-2: the tuple (T_0) in place of T, in the combiner and in the result."""
    module = module_of(f" x = f32[2,3] parameter(0)\n z = f32[] constant(0)\n ROOT r = {instruction}", ADD_IN_TUPLE)
    for value in results(module, np.arange(6, dtype=np.float32).reshape(2, 3)):
        assert isinstance(value, tuple) and len(value) == 1
        np.testing.assert_array_equal(value[0], np.array(expected, np.float32))


def test_combiners_of_scatter_and_all_reduce_may_return_a_tuple_of_one() -> None:
    """SCATTER-2, ALLREDUCE-1: as the combiner of a reduction."""
    body = """ x = f32[3] parameter(0)
 i = s32[2,1] constant({{0},{2}})
 u = f32[2] constant({10, 20})
 s = f32[3] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
   index_vector_dim=1, to_apply=add
 ROOT r = f32[3] all-reduce(s), replica_groups={}, to_apply=add"""
    for value in results(module_of(body, ADD_IN_TUPLE), np.array([1, 2, 3], np.float32)):
        assert value.tolist() == [11, 2, 23]


def test_the_computation_of_map_may_return_a_tuple_of_one() -> None:
    """MAP-2: the result is an array all the same."""
    module = module_of(
        " x = f32[3] parameter(0)\n ROOT r = f32[3] map(x, x), dimensions={0}, to_apply=add", ADD_IN_TUPLE
    )
    for value in results(module, np.array([1, 2, 3], np.float32)):
        assert value.tolist() == [2, 4, 6]


def test_broadcast_may_grow_dimensions_of_size_1() -> None:
    """BROADCASTINDIM-3: sizes are 1 or equal."""
    module = module_of(" x = f32[1,2] parameter(0)\n ROOT r = f32[3,2,2] broadcast(x), dimensions={0,2}")
    x = np.array([[1, 2]], np.float32)
    for value in results(module, x):
        np.testing.assert_array_equal(value, np.broadcast_to(x[:, None, :], (3, 2, 2)))


def test_convolution_takes_the_window_of_its_kernel() -> None:
    """CONVGENERAL-11: the kernel has the sizes of the window, whatever the text says."""
    module = module_of(""" x = f32[1,4,1] parameter(0)
 k = f32[2,1,1] parameter(1)
 ROOT r = f32[1,3,1] convolution(x, k), window={size=3}, dim_labels=b0f_0io->b0f""")
    x, k = np.arange(4, dtype=np.float32).reshape(1, 4, 1), np.array([1, 10], np.float32).reshape(2, 1, 1)
    for value in results(module, x, k):
        assert value.ravel().tolist() == [10, 21, 32]


def test_gather_of_no_elements_along_a_collapsed_dimension_gives_zeros() -> None:
    """GATHER-11: XLA reads slices of size 0 there; its simplifier makes zeros of them."""
    module = module_of(""" x = f32[0,2] parameter(0)
 i = s32[3] parameter(1)
 ROOT r = f32[3,2] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,
   slice_sizes={0,2}""")
    for value in results(module, np.zeros((0, 2), np.float32), np.zeros(3, np.int32)):
        np.testing.assert_array_equal(value, np.zeros((3, 2), np.float32))


@pytest.mark.parametrize(
    "start",
    [
        "f32[2] all-gather-start(x), replica_groups={{0}}, dimensions={0}",
        "f32[2] collective-permute-start(x), source_target_pairs={{0,0}}",
        "(f32[2], f32[2]) all-reduce-start(x), replica_groups={{0}}, to_apply=add",
    ],
)
def test_starts_may_have_another_context(start: str) -> None:
    """COLL-7: the context is for the done alone; XLA reads several."""
    done = start.split()[1 if start[0] == "f" else 2].split("(")[0].replace("start", "done")
    module = module_of(f" x = f32[2] parameter(0)\n s = {start}\n ROOT r = f32[2] {done}(s)", ADD)
    for value in results(module, np.array([1, 2], np.float32)):
        assert value.tolist() == [1, 2]


def test_set_dimension_size_keeps_other_dimensions_dynamic() -> None:
    """SETDIMENSIONSIZE-3: the dynamic size travels; the text may leave it out."""
    module = module_of(
        """ x = f32[3,3] parameter(0)
 n = s32[] constant(2)
 a = f32[<=3,3] set-dimension-size(x, n), dimensions={0}
 b = f32[3,<=3] set-dimension-size(a, n), dimensions={1}
 z = f32[] constant(0)
 ROOT r = f32[] reduce(b, z), dimensions={0,1}, to_apply=add""",
        ADD,
    )
    for value in results(module, np.arange(9, dtype=np.float32).reshape(3, 3)):
        assert value == 0 + 1 + 3 + 4


def test_the_header_determines_layouts() -> None:
    """SL-16: floating-point types in entry_computation_layout are those of the entry."""
    module = hl.parse("""HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[2,3]{1,0}}
ENTRY e {
  x = f16[2,3] parameter(0)
  ROOT r = f16[2,3] negate(x)
}""")
    assert [str(shape) for shape in module.entry_parameter_layouts or []] == ["f16[2,3]{0,1}"]
    for value in results(module, np.ones((2, 3), np.float16)):
        np.testing.assert_array_equal(value, -np.ones((2, 3), np.float16))
