"""Proofs of programs with loops, choices, sizes, sums and effects."""

from __future__ import annotations

import pytest

import hloom as hl
from hlo_text import module_text
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.passes import clone_module
from hloom.passes.pipeline import run_passes
from hloom.prove import Proved, Refuted, Undecided, Verdict, prove

PARAMETERS = """
x = f32[4] parameter(0)
y = f32[4] parameter(1)
n = s32[] parameter(2)
i = s32[4] parameter(3)
q = f16[4] parameter(4)
zero = f32[] constant(0)
t = token[] after-all()
"""

LOOPS = """
below {
  a = (s32[], s32[]) parameter(0)
  k = s32[] get-tuple-element(a), index=0
  m = s32[] get-tuple-element(a), index=1
  ROOT r = pred[] compare(k, m), direction=LT
}
next {
  a = (s32[], s32[]) parameter(0)
  k = s32[] get-tuple-element(a), index=0
  m = s32[] get-tuple-element(a), index=1
  ROOT r = (s32[], s32[]) tuple(s32[] add(k, s32[] constant(1)), m)
}
"""

CLAMPED = "zero_s = s32[] constant(0); m = s32[] clamp(zero_s, n, s32[] constant(5)); "
SUM = "ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=sum"
DOT = "ROOT r = f32[] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}"
GEN_13 = Proved(clauses=("GEN-13",))


def program(lines: str) -> hl.Module:
    return hl.parse(module_text(PARAMETERS + lines.replace("; ", "\n"), LOOPS))


def verdict(before: str, after: str) -> Verdict:
    return prove(program(before), program(after), seconds=0.5)


def test_loops_of_bounded_length_are_unrolled() -> None:
    loop = CLAMPED + "w = (s32[], s32[]) while((s32[], s32[]) tuple(zero_s, m)), condition=below, body=next; "
    assert (
        verdict(loop + "ROOT r = s32[] get-tuple-element(w), index=0", CLAMPED + "ROOT r = s32[] copy(m)") == Proved()
    )
    wrong = verdict(loop + "ROOT r = s32[] get-tuple-element(w), index=0", CLAMPED + "ROOT r = s32[] negate(m)")
    assert isinstance(wrong, Refuted)


SIZED = "d = f32[<=4] set-dimension-size(x, n), dimensions={0}; "
MASKED = """j = s32[4] iota(), iota_dimension=0; p = pred[4] compare(j, s32[4] broadcast(n)), direction=LT; z = f32[4] broadcast(zero); """


def test_sizes_that_depend_on_arguments_are_tried() -> None:
    """SETDIMENSIONSIZE-1: elements beyond the size are ignored."""
    masked = MASKED + "v = f32[4] select(p, x, z); ROOT r = f32[] reduce(v, zero), dimensions={0}, to_apply=sum"
    assert verdict(SIZED + SUM.replace("(x", "(d"), masked) == GEN_13
    assert isinstance(verdict(SIZED + SUM.replace("(x", "(d"), SUM), Refuted)
    assert verdict(SIZED + "ROOT r = s32[] get-dimension-size(d), dimensions={0}", "ROOT r = s32[] copy(n)") == Proved()


@pytest.mark.parametrize("lines", [SIZED + SUM.replace("(x", "(d"), SIZED + "ROOT r = f32[<=4] negate(d)"])
def test_the_expansion_of_dynamic_sizes_is_proved(lines: str) -> None:
    given = program(lines)
    expanded = clone_module(given)
    run_passes(expanded, cpu_pipeline(Topology.SINGLE))
    assert prove(given, expanded) == Proved()


def scalars(*names: str) -> str:
    """The elements of x, as scalars with names."""
    return "".join(
        f"{name}1 = f32[1] slice(x), slice={{[{k}:{k + 1}]}}; {name} = f32[] reshape({name}1); "
        for k, name in enumerate(names)
    )


def test_instructions_may_compute_a_sum_in_an_order_of_their_own() -> None:
    """GEN-13: the order of a reduction is free; that of additions is not."""
    chain = (
        scalars(*"abcd") + "e = f32[] add(a, b); f = f32[] add(e, c); g = f32[] add(f, d); ROOT r = f32[] add(zero, g)"
    )
    assert verdict(SUM, chain) == GEN_13
    assert verdict(chain, SUM) != GEN_13
    other = (
        scalars(*"abcd") + "e = f32[] add(b, c); f = f32[] add(a, e); g = f32[] add(f, d); ROOT r = f32[] add(zero, g)"
    )
    assert isinstance(verdict(chain, other), Refuted)


def test_a_sum_of_products_may_start_from_zero() -> None:
    """GEN-13: the sign of a sum of products that are all -0 is open."""
    products = "m = f32[4] multiply(x, y); "
    assert verdict(DOT, products + SUM.replace("(x", "(m")) == Proved()
    negative = products + "z = f32[] constant(-0); " + SUM.replace("(x, zero", "(m, z")
    assert verdict(DOT, negative) == GEN_13
    assert verdict(negative, DOT) != GEN_13


def test_effects_are_compared_in_order() -> None:
    two = "a = token[] outfeed(x, t); b = token[] outfeed(y, a); ROOT r = f32[4] copy(x)"
    swapped = "a = token[] outfeed(y, t); b = token[] outfeed(x, a); ROOT r = f32[4] copy(x)"
    assert verdict(two, two) == Proved()
    assert verdict(two, swapped) != Proved()
    one = "a = token[] outfeed(x, t); ROOT r = f32[4] copy(x)"
    assert "the effects of the modules differ" in str(verdict(two, one))


def test_draws_are_compared_in_order() -> None:
    first = (
        "a = f32[4] rng(zero, zero), distribution=rng_uniform; b = f32[4] rng(zero, zero), distribution=rng_uniform; "
    )
    assert verdict(first + "ROOT r = f32[4] add(a, b)", first + "ROOT r = f32[4] add(b, a)") == Proved()
    assert isinstance(verdict(first + "ROOT r = f32[4] copy(a)", first + "ROOT r = f32[4] copy(b)"), Undecided)


def test_nans_with_other_bits_are_told_apart() -> None:
    """GEN-7: x * 1 is x as a number, but not the bits of a NaN."""
    product = "one = f16[] constant(1); o = f16[4] broadcast(one), dimensions={}; m = f16[4] multiply(q, o); "
    assert verdict(product + "ROOT r = f16[4] copy(m)", "ROOT r = f16[4] copy(q)") == Proved()
    bits = "ROOT r = u16[4] bitcast-convert({})"
    assert verdict(product + bits.format("m"), bits.format("q")) != Proved()
