"""The grammar: every module is valid, is made of its seed alone, and survives its text and proto."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from hloom.errors import RuleError
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.grammar.body import MAX_ELEMENTS, Body, Program
from hloom.fuzz.grammar.draw import TYPES, Draw
from hloom.fuzz.grammar.generate import pairs
from hloom.fuzz.grammar.proposals import PATTERNS, WEIGHTS
from hloom.fuzz.grammar.values import draw_array
from hloom.fuzz.oracles import proto_round_trip, text_round_trip
from hloom.fuzz.reference import reference_of
from hloom.ir import Instruction, Module, callees_first
from hloom.numerics import has_infinity, has_nan, widen
from hloom.runtime.arguments import check_argument
from hloom.text import fingerprint
from hloom.types import Kind, PrimitiveType
from hloom.verifier import verify_module

CASES = int(os.environ.get("HLOOM_CASES", "2000"))


def check(seed: int, reached: Counter[tuple[str, str]]) -> None:
    case = draw_case(seed, reached)
    verify_module(case.module)
    assert case.arguments is not None
    for value, shape in zip(case.arguments, case.module.entry.parameter_shapes, strict=True):
        check_argument(value, shape, "argument")
    assert fingerprint(case.module) == fingerprint(draw_case(seed, reached).module)
    reference = reference_of(case)
    for round_trip in (text_round_trip, proto_round_trip):
        assert reference is None or round_trip(case, reference, Draw(0)) is None, seed
    reached.update(pairs(case.module))


def test_modules_are_valid_and_reproducible() -> None:
    reached: Counter[tuple[str, str]] = Counter()
    for seed in range(12):
        check(seed, reached)


@pytest.mark.long
def test_more_modules_are_valid_and_reproducible() -> None:
    reached: Counter[tuple[str, str]] = Counter()
    for seed in range(1000, 1000 + CASES):
        check(seed, reached)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_valid(pattern: Callable[[Body], Instruction]) -> None:
    for seed in (1, 2, 31):
        body = Body(Program(Draw(seed)), "entry")
        body.end([pattern(body)])
        module = Module("pattern")
        for computation in callees_first(body.computation):
            module.add(computation, entry=computation is body.computation)
        verify_module(module)


def test_a_parameter_that_is_refused_leaves_no_argument() -> None:
    body = Body(Program(Draw(0)), "entry")
    with pytest.raises(RuleError, match="too large"):
        body.parameter(np.zeros(4 * MAX_ELEMENTS + 1, np.int8))
    assert not body.program.arguments


def test_arrays_are_of_the_requested_kinds() -> None:
    for seed in range(20):
        body = Body(Program(Draw(seed)), "entry")
        body.parameter(np.zeros(3, np.complex128))
        with contextlib.suppress(RuleError):
            found = body.array("sqrt", {Kind.FLOAT}, fits=lambda shape: shape.element_type.bits == 128)
            assert found.shape.element_type.is_float


def test_what_was_reached_is_drawn_less() -> None:
    draw = Draw(0, Counter({("add", "f32"): 10_000, ("add", ""): 10_000}))
    types = Counter(draw.element_type("add").text for _ in range(300))
    others = Counter(draw.element_type("subtract").text for _ in range(300))
    assert types["f32"] < 5 < 20 < others["f32"]
    declarations = Counter(draw.operation(WEIGHTS).opcode for _ in range(2000))
    assert declarations["add"] < declarations["subtract"]


@pytest.mark.parametrize("element_type", [t for t in TYPES if t.is_float], ids=str)
def test_arrays_have_special_values(element_type: PrimitiveType) -> None:
    draw = Draw(0)
    arrays = [widen(draw_array(draw, element_type, (20,))) for _ in range(40)]
    x = np.concatenate(arrays).astype(np.float64)
    assert np.isnan(x).any() == has_nan(element_type.dtype)
    assert np.isinf(x).any() == has_infinity(element_type.dtype)
    assert (x < 0).any() == (element_type is not PrimitiveType.F8E8M0FNU)
