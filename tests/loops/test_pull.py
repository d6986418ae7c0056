"""Element functions: the expression of an element of each operation over the buffers b0, b1 .. of its parameters."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, interpreted, module_text
from hloom.affine import Expression
from hloom.loops.expression_space import ExpressionSpace
from hloom.loops.expressions import Load, ReductionResult, walk
from hloom.loops.pull import Puller

X = "x = f32[4,6] parameter(0)\n"
V = "x = f32[4] parameter(0)\nseven = f32[] constant(7)\n"
W = "x = f32[8] parameter(0)\nzero = f32[] constant(0)\n"
Z = f"{X}zero = f32[] constant(0)\n"

MOVES = [
    # Moving elements is index arithmetic alone.
    (X + "ROOT r = f32[6,4] transpose(x), dimensions={1,0}", "b0[i0 + 6*i1]"),
    (X + "ROOT r = f32[24] reshape(x)", "b0[i0]"),
    (X + "ROOT r = f32[8,3] reshape(x)", "b0[3*i0 + i1]"),
    (X + "ROOT r = f32[4,6] reverse(x), dimensions={1}", "b0[6*i0 + -1*i1 + 5]"),
    (X + "ROOT r = f32[2,2] slice(x), slice={[1:4:2],[3:5]}", "b0[12*i0 + i1 + 9]"),
    (
        X + "y = f32[6,4] transpose(x), dimensions={1,0}\nROOT r = f32[24] reshape(y)",
        "b0[6*(i0 mod 4) + (i0 // 4)]",
    ),
    (V + "ROOT r = f32[4,6] broadcast(x), dimensions={0}", "b0[i0]"),
    ("ROOT r = s32[4,6] iota(), iota_dimension=1", "s32(i1)"),
    # Padding and concatenation are selections, which ranges may decide.
    (V + "ROOT r = f32[6] pad(x, seven), padding=0_2", "(b0[i0] if (0 <= i0 < 4) else 7.0)"),
    (V + "ROOT r = f32[2] pad(x, seven), padding=-1_-1", "b0[i0 + 1]"),
    (
        V + "ROOT r = f32[7] pad(x, seven), padding=0_0_1",
        "(b0[(i0 // 2)] if (0 <= (i0 mod 2) < 1) else 7.0)",
    ),
    (
        V + "y = f32[2] parameter(1)\nROOT r = f32[6] concatenate(x, y), dimensions={0}",
        "(b0[i0] if (0 <= i0 < 4) else b1[i0 + -4])",
    ),
    (
        V + "y = f32[2] parameter(1)\nz = f32[6] concatenate(x, y), dimensions={0}\n"
        "ROOT r = f32[2] slice(z), slice={[4:6]}",
        "b1[i0]",
    ),
    # Indices computed at run time are clamped.
    (
        X + "a = s32[] parameter(1)\nb = s32[] parameter(2)\n"
        "ROOT r = f32[2,6] dynamic-slice(x, a, b), dynamic_slice_sizes={2,6}",
        "b0[6*i0 + i1 + 6*clamp(0, b1[0], 2)]",
    ),
    (
        V + "u = f32[2] parameter(1)\na = s32[] parameter(2)\nROOT r = f32[4] dynamic-update-slice(x, u, a)",
        "(b1[i0 + -1*clamp(0, b2[0], 2)] if (0 <= i0 + -1*clamp(0, b2[0], 2) < 2) else b0[i0])",
    ),
    (
        V + "u = f32[2] parameter(1)\nnine = s32[] constant(9)\nROOT r = f32[4] dynamic-update-slice(x, u, nine)",
        "(b1[i0 + -2] if (0 <= i0 + -2 < 2) else b0[i0])",
    ),
    (
        X + "a = s32[5] parameter(1)\nROOT r = f32[5,6] gather(x, a), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}",
        "b0[i1 + 6*clamp(0, b1[i0], 3)]",
    ),
    # Element-wise operations apply to the elements.
    (V + "y = f32[4] sine(x)\nROOT r = f32[4] multiply(y, seven4)", "multiply(sine(b0[i0]), 7.0)"),
    (V + "ROOT r = f32[4] map(x, seven4), dimensions={0}, to_apply=sum", "add(b0[i0], 7.0)"),
]

REDUCTIONS = [
    (Z + "ROOT r = f32[4] reduce(x, zero), dimensions={1}, to_apply=sum", "reduce[r2 < 6; add](b0[6*i0 + r2])"),
    (
        Z + "ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=largest",
        "reduce[r1 < 4, r3 < 6; maximum](b0[6*r1 + r3])",
    ),
    (
        Z + "y = f32[4] reduce(x, zero), dimensions={1}, to_apply=largest\n"
        "ROOT r = f32[] reduce(y, zero), dimensions={0}, to_apply=sum",
        "reduce[r1 < 4; add](reduce[r3 < 6; maximum](b0[6*r1 + r3]))",
    ),
    # A combiner without a name is printed as an expression: %0 is the accumulator, %1 the value.
    (
        Z + "ROOT r = f32[4] reduce(x, zero), dimensions={1}, to_apply=second",
        "reduce[r2 < 6; (%1,)](b0[6*i0 + r2])",
    ),
    (
        W + "ROOT r = f32[4] reduce-window(x, zero), window={size=2 stride=2}, to_apply=sum",
        "reduce[r2 < 2; add](b0[2*i0 + r2])",
    ),
    # In the padding, a named combiner gets its identity, and another one is skipped.
    (
        W + "ROOT r = f32[8] reduce-window(x, zero), window={size=3 pad=1_1}, to_apply=largest",
        "reduce[r2 < 3; maximum]((b0[i0 + r2 + -1] if (0 <= i0 + r2 + -1 < 8) else -inf))",
    ),
    (
        W + "ROOT r = f32[8] reduce-window(x, zero), window={size=3 pad=1_1}, to_apply=second",
        "reduce[r2 < 3; ((%1 if %2 else %0),)]((b0[i0 + r2 + -1] if (0 <= i0 + r2 + -1 < 8) else 0.0), "
        "(0 <= i0 + r2 + -1 < 8))",
    ),
]


def pulled(entry: str) -> tuple[hl.Module, list[Expression]]:
    """The elements of the root at (i0, i1 ..), with the module."""
    if "seven4" in entry:
        entry = entry.replace("ROOT", "seven4 = f32[4] broadcast(seven), dimensions={}\nROOT")
    module = hl.parse(module_text(entry))
    parameters = module.entry.parameters
    space = ExpressionSpace([p.shape.element_count for p in parameters])
    sizes = next(module.entry.root.shape.leaves()).dimensions
    index = tuple(space.indices.of(space.indices.variable(f"i{d}", size)) for d, size in enumerate(sizes))
    puller = Puller(space, {p: k for k, p in enumerate(parameters)})
    return module, puller.elements(module.entry.root, index)


@pytest.mark.parametrize(("entry", "expected"), MOVES + REDUCTIONS)
def test_the_expression_of_an_element(entry: str, expected: str) -> None:
    _, (element,) = pulled(entry)
    assert str(element) == expected


def test_moves_read_the_elements_that_the_interpreter_moves() -> None:
    """The index of an expression that is a single load is that of the operand's element."""
    checked = 0
    for entry, expected in MOVES:
        module, (element,) = pulled(entry)
        if isinstance(element, Load) and "clamp" not in expected and element.buffer == 0:
            (wanted,) = interpreted(module, *arrays_for(module))
            flat = arrays_for(module)[0].reshape(-1)
            positions = np.indices(wanted.shape)
            names = {f"i{d}": positions[d] for d in range(wanted.ndim)}
            indices = eval(str(element.index).replace("mod", "%"), {}, names)
            np.testing.assert_array_equal(flat[indices], wanted)
            checked += 1
    assert checked == 8


def test_equal_elements_are_one_object() -> None:
    _, (element,) = pulled(V + "y = f32[4] sine(x)\nz = f32[4] sine(x)\nROOT r = f32[4] multiply(y, z)")
    left, right = element.children
    assert left is right
    assert len(walk([element])) == 3


def reduced_pair(first: str, second: str, root: str) -> list[Expression]:
    """The elements of `root`, of the results `p` and `q` of a reduction with accumulators a, b and values c, d."""
    return pulled(
        Z + "both = (f32[4], f32[4]) reduce(x, x, zero, zero), dimensions={1}, to_apply=pair\n"
        "p = f32[4] get-tuple-element(both), index=0\nq = f32[4] get-tuple-element(both), index=1\n"
        f"ROOT r = f32[4] {root}\n}}\n"
        "pair {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nc = f32[] parameter(2)\nd = f32[] parameter(3)\n"
        f"p = f32[] {first}\nq = f32[] {second}\nROOT r = (f32[], f32[]) tuple(p, q)"
    )[1]


def test_results_of_one_reduction_share_it() -> None:
    (difference,) = reduced_pair("add(a, d)", "add(a, b)", "subtract(p, q)")
    first, second = difference.children
    assert isinstance(first, ReductionResult) and isinstance(second, ReductionResult)
    assert first.reduction is second.reduction and (first.position, second.position) == (0, 1)


def test_independent_parts_are_reductions_over_the_same_loop() -> None:
    (difference,) = reduced_pair("add(c, a)", "maximum(b, d)", "subtract(p, q)")
    assert str(difference) == "subtract(reduce[r2 < 6; add](b0[6*i0 + r2]), reduce[r2 < 6; maximum](b0[6*i0 + r2]))"
    (alone,) = reduced_pair("add(a, a)", "subtract(d, b)", "add(q, q)")
    reduction = alone.children[0].reduction  # type: ignore[attr-defined]
    assert str(reduction.combine) == "(subtract(%1, %0),)" and reduction.monoid is None
    (twice,) = reduced_pair("add(a, c)", "add(b, d)", "subtract(p, q)")
    assert twice.children[0] is twice.children[1]


def test_reductions_of_one_extent_share_their_loop_unless_nested() -> None:
    _, (element,) = pulled(
        Z + "y = f32[4] reduce(x, zero), dimensions={1}, to_apply=largest\n"
        "z = f32[4] reduce(x, zero), dimensions={1}, to_apply=sum\nROOT r = f32[4] add(y, z)"
    )
    left, right = element.children
    assert isinstance(left, ReductionResult) and isinstance(right, ReductionResult)
    assert left.reduction.over == right.reduction.over
    _, (element,) = pulled(
        "x = f32[6,6] parameter(0)\nzero = f32[] constant(0)\n"
        "y = f32[6] reduce(x, zero), dimensions={1}, to_apply=largest\n"
        "ROOT r = f32[] reduce(y, zero), dimensions={0}, to_apply=sum"
    )
    assert isinstance(element, ReductionResult) and isinstance(element.reduction.values[0], ReductionResult)
    assert element.reduction.over != element.reduction.values[0].reduction.over
