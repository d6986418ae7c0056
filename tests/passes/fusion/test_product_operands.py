"""Operands that dots compute themselves: each dot becomes one fusion, which the pass leaves alone."""

from __future__ import annotations

import hloom as hl
from hloom.ops.control_flow import Fusion
from hloom.passes.fusion.product_operands import ProductOperands

TWO = """
HloModule two
ENTRY e { x = f32[8,64] parameter(0)
  v = s8[64,64] parameter(1)
  w = s8[64,64] parameter(2)
  wide = f32[64,64] convert(v)
  p = f32[8,64] dot(x, wide), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  other = f32[64,64] convert(w)
  ROOT q = f32[8,64] dot(p, other), lhs_contracting_dims={1}, rhs_contracting_dims={0} }
"""


def test_several_dots_of_a_computation_are_fused_once() -> None:
    module = hl.parse(TWO)
    step = ProductOperands(lambda _: True, lambda *_: True)
    assert step.run(module) == 2
    fusions = [i for i in module.instructions() if isinstance(i.op, Fusion)]
    assert len(fusions) == 2 and all(fusion.parent is module.entry for fusion in fusions)


def test_a_gather_is_computed_inside_only_if_its_elements_are_narrower() -> None:
    for type, conversion, fused in (("f32", "copy", 0), ("s8", "convert", 1)):
        module = hl.parse(f"""
HloModule gathered
ENTRY e {{ x = f32[64,8] parameter(0)
  rows = {type}[16,64] parameter(1)
  ids = s32[256,1] parameter(2)
  g = {type}[256,64] gather(rows, ids), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,64}}
  w = f32[256,64] {conversion}(g)
  ROOT p = f32[256,8] dot(w, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
        assert ProductOperands(lambda _: True, lambda *_: True).run(module) == fused


def test_values_with_several_users_are_visited_once() -> None:
    """Each of 60 sums reads the one before twice, as the iterations of random bits do: 2^60 paths."""
    for first, size in (("s8[64,64] parameter(1)", "64,64"), ("s8[64] iota(), iota_dimension=0", "64")):
        lines = [f"v0 = {first}", *(f"v{k + 1} = s8[{size}] add(v{k}, v{k})" for k in range(60))]
        lines += [] if size == "64,64" else ["v = s8[64,64] broadcast(v60), dimensions={0}"]
        last = "v60" if size == "64,64" else "v"
        module = hl.parse(f"""HloModule chain
ENTRY e {{ x = f32[8,64] parameter(0)
  {chr(10).join(lines)}
  w = f32[64,64] convert({last})
  ROOT p = f32[8,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
        ProductOperands(lambda _: True, lambda *_: True).run(module)


def test_the_search_ends_at_a_source_as_wide_as_the_operand() -> None:
    lines = [f"v{k + 1} = f32[64,64] negate(v{k})" for k in range(30)]
    module = hl.parse(f"""HloModule chain
ENTRY e {{ x = f32[8,64] parameter(0)
  v0 = f32[64,64] parameter(1)
  bias = f32[64,64] parameter(2)
  {chr(10).join(lines)}
  w = f32[64,64] add(v30, bias)
  ROOT p = f32[8,64] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    looked: list[str] = []
    step = ProductOperands(lambda instruction: not looked.append(instruction.name), lambda *_: True)  # type: ignore[func-returns-value]
    assert step.run(module) == 0
    assert looked == ["w"]
