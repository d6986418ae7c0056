"""Modules with unbounded dimensions (SL-25): compiled once for each set of sizes of the arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.runtime.specialized import SpecializedExecutable
from hloom.values import Value

ADD = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"


def compiled(body: str, before: str = ADD, backend: str = "cpu") -> SpecializedExecutable:
    executable = hl.compile(f"HloModule m\n{before}ENTRY e {{\n{body}\n}}", backend)
    assert isinstance(executable, SpecializedExecutable)
    return executable


def ones(*sizes: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones(sizes, np.float32)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_sizes_follow_from_those_of_the_arguments(backend: str) -> None:
    """A dot, a sum over the open dimension, its size, and a reshape with one size for the rest."""
    run = compiled(
        """ x = f32[?,3] parameter(0)
 w = f32[3,2] parameter(1)
 d = f32[?,2] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 z = f32[] constant(0)
 t = f32[2] reduce(d, z), dimensions={0}, to_apply=add
 n = s32[] get-dimension-size(x), dimensions={0}
 f = f32[?] reshape(d)
 ROOT r = (f32[?,2], f32[2], s32[], f32[?]) tuple(d, t, n, f)""",
        backend=backend,
    )
    for n in (2, 5, 2, 0):
        d, t, size, flat = run(ones(n, 3), ones(3, 2))
        assert d.tolist() == [[3, 3]] * n and t.tolist() == [3 * n] * 2
        assert size == n and flat.tolist() == [3] * (2 * n)


def test_each_set_of_sizes_is_compiled_once() -> None:
    run = compiled(" x = f32[?] parameter(0)\n ROOT r = f32[?] negate(x)")
    for n in (1, 2, 1, 2, 1):
        assert run(ones(n)).shape == (n,)
    shape = hl.f32[1]
    assert run.for_shapes([shape]) is run.for_shapes([shape])
    assert run.for_shapes([shape]).input_shapes == [shape] and run.input_shapes[0].is_unbounded


def test_a_broadcast_scalar_has_the_size_of_the_other_operand() -> None:
    """BROADCAST-1: the size of a broadcast is that of the other operand of its element-wise user."""
    run = compiled(
        """ x = f32[?,2] parameter(0)
 c = f32[] constant(3)
 b = f32[?,2] broadcast(c), dimensions={}
 n = f32[?,2] negate(b)
 ROOT r = f32[?,2] add(n, x)"""
    )
    assert run(ones(4, 2)).tolist() == [[-2, -2]] * 4


LOOP = """less {
  s = (s32[], f32[?]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT
}
twice {
  s = (s32[], f32[?]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[?] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[?] add(x, x)
  ROOT t = (s32[], f32[?]) tuple(j, y)
}
double {
  x = f32[?] parameter(0)
  ROOT y = f32[?] add(x, x)
}
keep {
  ROOT x = f32[?] parameter(0)
}
"""


def test_loops_branches_and_calls_take_the_sizes_of_their_arguments() -> None:
    """WHILE-1, CONDITIONAL-1, CALL-1; a computation that is called with two sizes is specialised twice."""
    run = compiled(
        """ x = f32[?] parameter(0)
 y = f32[?] parameter(1)
 z = s32[] constant(0)
 s = (s32[], f32[?]) tuple(z, x)
 w = (s32[], f32[?]) while(s), condition=less, body=twice
 l = f32[?] get-tuple-element(w), index=1
 a = f32[?] call(l), to_apply=double
 b = f32[?] call(y), to_apply=double
 p = pred[] constant(true)
 c = f32[?] conditional(p, a, a), true_computation=keep, false_computation=double
 ROOT r = (f32[?], f32[?]) tuple(c, b)""",
        LOOP,
    )
    first, second = run(ones(2), ones(3))
    assert first.tolist() == [16, 16] and second.tolist() == [2, 2, 2]


def test_sizes_of_a_reshape_may_be_computed_from_sizes() -> None:
    run = compiled(
        """ x = f32[?,2] parameter(0)
 n = s32[] get-dimension-size(x), dimensions={0}
 two = s32[] constant(2)
 m = s32[] multiply(n, two)
 ROOT r = f32[?] dynamic-reshape(x, m)"""
    )
    assert run(ones(3, 2)).tolist() == [1] * 6


def test_tuples_are_taken_apart() -> None:
    run = compiled(
        """ p = (f32[?], f32[2]) parameter(0)
 ROOT x = f32[?] get-tuple-element(p), index=0"""
    )
    assert run((ones(3), ones(2))).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ones(2, 4), ones(2, 3)), r"argument 0 has shape f32\[\?,3\], got float32\[2, 4\]"),
        ((ones(2), ones(2, 3)), r"argument 0 has shape f32\[\?,3\]"),
        ((ones(2, 3),), "takes 2 arguments, got 1"),
        (
            (ones(2, 3), ones(4, 3)),
            r"(?s)equal dimensions, got f32\[2,3\], f32\[4,3\].*%x = f32\[2,3\], %y = f32\[4,3\]",
        ),
    ],
)
def test_errors_say_which_sizes_disagree(arguments: tuple[Value, ...], message: str) -> None:
    run = compiled(" x = f32[?,3] parameter(0)\n y = f32[?,3] parameter(1)\n ROOT r = f32[?,3] add(x, y)")
    with pytest.raises(hl.HloomError, match=message):
        run(*arguments)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            " x = f32[?] parameter(0)\n c = f32[] constant(1)\n ROOT b = f32[?] broadcast(c), dimensions={}",
            "do not follow",
        ),
        (" x = f32[?] parameter(0)\n ROOT b = f32[?,2] reshape(x)", "3 elements do not fill"),
    ],
)
def test_undetermined_sizes_are_an_error(body: str, message: str) -> None:
    """SL-25."""
    with pytest.raises(hl.RuleError, match=message):
        compiled(body)(ones(3))


def test_a_module_without_unbounded_parameters_is_specialized_at_once() -> None:
    text = "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n c = f32[] constant(1)\n"
    body = " b = f32[?] broadcast(c), dimensions={}\n ROOT r = f32[?] add(b, x)\n}"
    assert hl.compile(text + body)(ones(2)).tolist() == [2, 2]


def test_modules_with_unbounded_sizes_survive_every_format() -> None:
    """SL-25: text, proto and StableHLO keep the open sizes."""
    module = hl.parse("HloModule m\nENTRY e {\n x = f32[?,3] parameter(0)\n ROOT r = f32[?,3] negate(x)\n}")
    for again in (hl.parse(module.to_text()), module_from_bytes(module_to_bytes(module))):
        assert hl.compile(again)(ones(2, 3)).tolist() == [[-1, -1, -1]] * 2
