"""Faults planted into kernels and rules are located: to the instruction, or to the pass and its instructions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.elements.ops import REAL
from hloom.errors import HloomError
from hloom.faults import Case, Tolerance, first_difference, first_faulty_pass, reduce
from hloom.faults.bisect import RUNNERS
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.elementwise_binary import Maximum, Multiply
from hloom.ops.elementwise_unary import Exponential
from hloom.ops.indexing import Indexing, Indices, Read
from hloom.ops.operation import OPERATIONS
from hloom.ops.registry import Registry
from hloom.passes import simplification_pipeline
from hloom.passes.rewrite import Rule, RuleSet
from hloom.passes.simplify import algebraic_simplifier

PROGRAM = """
HloModule program

sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

largest { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }

body { state = (s32[], f32[8,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,16] get-tuple-element(state), index=1
  w = f32[16,16] get-tuple-element(state), index=2
  wt = f32[16,16] transpose(w), dimensions={1,0}
  mixed = f32[16,16] add(w, wt)
  product = f32[8,16] dot(x, mixed), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[8,16] tanh(product)
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT new = (s32[], f32[8,16], f32[16,16]) tuple(next, t, w) }

condition { state = (s32[], f32[8,16], f32[16,16]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  limit = s32[] constant(5)
  ROOT less = pred[] compare(i, limit), direction=LT }

softmax { logits = f32[8,16] parameter(0)
  low = f32[] constant(-inf)
  m = f32[8] reduce(logits, low), dimensions={1}, to_apply=largest
  ms = f32[8,16] broadcast(m), dimensions={0}
  shifted = f32[8,16] subtract(logits, ms)
  e = f32[8,16] exponential(shifted)
  zero = f32[] constant(0)
  total = f32[8] reduce(e, zero), dimensions={1}, to_apply=sum
  totals = f32[8,16] broadcast(total), dimensions={0}
  ROOT p = f32[8,16] divide(e, totals) }

ENTRY main {
  x = f32[8,16] parameter(0)
  w = f32[16,16] parameter(1)
  start = s32[] constant(0)
  state = (s32[], f32[8,16], f32[16,16]) tuple(start, x, w)
  loop = (s32[], f32[8,16], f32[16,16]) while(state), condition=condition, body=body
  y = f32[8,16] get-tuple-element(loop), index=1
  p = f32[8,16] call(y), to_apply=softmax
  zero = f32[] constant(0)
  padded = f32[10,18] pad(p, zero), padding=1_1x1_1
  part = f32[8,16] slice(padded), slice={[0:8],[1:17]}
  flipped = f32[8,16] reverse(part), dimensions={1}
  both = f32[8,32] concatenate(flipped, y), dimensions={1}
  count = f32[8,32] iota(), iota_dimension=1
  scaled = f32[8,32] multiply(both, count)
  third = f32[] constant(0.3)
  thirds = f32[8,32] broadcast(third), dimensions={}
  large = pred[8,32] compare(scaled, thirds), direction=GT
  small = f32[8,32] minimum(scaled, thirds)
  negative = f32[8,32] negate(scaled)
  chosen = f32[8,32] select(large, negative, small)
  root = f32[8,32] logistic(chosen)
  floor = f32[8,32] floor(scaled)
  rest = f32[8,32] remainder(floor, thirds)
  side = f32[8,32] sqrt(root)
  roots = f32[8,32] divide(side, root)
  ROOT out = (f32[8,32], f32[8,32], f32[8,32]) tuple(roots, rest, chosen) }
"""


def program() -> Case:
    module = hl.parse(PROGRAM)
    rng = np.random.default_rng(0)
    return Case(
        module,
        (rng.standard_normal((8, 16)).astype(np.float32), 0.3 * rng.standard_normal((16, 16)).astype(np.float32)),
    )


# Kernels: emitters and indexing maps that are exchanged

Plant = Callable[[pytest.MonkeyPatch], None]


def replaced(registry: Registry[..., Any], opcode: str, function: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setitem(registry._found, OPERATIONS[opcode], function)


def other(opcode: str, instead: str) -> Plant:
    """Computes another operation."""
    return replaced(REAL, opcode, REAL._functions[OPERATIONS[instead]])


def swapped(opcode: str) -> Plant:
    """Swaps the operands."""
    right = REAL._functions[OPERATIONS[opcode]]
    return replaced(REAL, opcode, lambda op, b, e, x, y: right(op, b, e, y, x))


def off_by_one(opcode: str) -> Plant:
    """Makes the indexing map read the neighbour along the last dimension."""
    declaration = OPERATIONS[opcode]
    right = declaration.indexing

    def wrong(op: Any, at: Indexing, index: Indices) -> list[Read] | None:
        moved = at.space.remainder(at.space.shift(index[-1], 1), at.result.dimensions[-1])
        return right(op, at, (*index[:-1], moved))

    return lambda patch: patch.setattr(declaration, "indexing", wrong)


KERNELS: dict[str, Plant] = {
    "tanh": other("tanh", "sine"),
    "exponential": other("exponential", "exponential-minus-one"),
    "logistic": other("logistic", "tanh"),
    "subtract": swapped("subtract"),
    "divide": swapped("divide"),
    "remainder": swapped("remainder"),
    "minimum": other("minimum", "maximum"),
    "floor": other("floor", "ceil"),
    "sqrt": other("sqrt", "abs"),
    "negate": other("negate", "abs"),
    "reverse": off_by_one("reverse"),
    "pad": off_by_one("pad"),
    "reduce": off_by_one("reduce"),
    "transpose": off_by_one("transpose"),
}


FEW = ("floor", "divide", "pad")
"""A fault of each kind; the long run has all."""


@pytest.mark.parametrize(
    "opcode", [name if name in FEW else pytest.param(name, marks=pytest.mark.long) for name in KERNELS]
)
def test_a_wrong_kernel_is_found_to_the_instruction(opcode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")
    case = program()
    assert first_difference(case, RUNNERS["cpu"], RUNNERS["interpreter"]) is None
    KERNELS[opcode](monkeypatch)
    found = first_difference(case, RUNNERS["cpu"], RUNNERS["interpreter"])
    assert found is not None
    smallest, message = found
    assert smallest.module.entry.root.opcode == opcode, smallest.module.to_text()
    assert smallest.size <= 10
    assert "differs" in message


# Rules

RULES: dict[str, tuple[str, Rule]] = {
    "x - y = y * x": ("subtract", Rule("planted", "subtract(x, y)", lambda m: m.result(Multiply(), m.y, m.x), "")),
    "e^x = x": ("exponential", Rule("planted", "exponential(x)", lambda m: m.x, "")),
    "min(x, c) = max(x, c)": (
        "minimum",
        Rule("planted", "minimum(x, $c)", lambda m: m.result(Maximum(), m.x, m.c), ""),
    ),
    "-x = x": ("negate", Rule("planted", "negate(x)", lambda m: m.x, "")),
    "tanh x = e^x": ("tanh", Rule("planted", "tanh(x)", lambda m: m.result(Exponential(), m.x), "")),
    "x * iota = x": ("multiply", Rule("planted", "multiply(x, iota(*))", lambda m: m.x, "")),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_rule_is_found_to_its_pass_and_instructions(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opcode, planted = RULES[rule]
    case = program()
    assert first_faulty_pass(case, simplification_pipeline()) is None
    right = algebraic_simplifier.RULES
    monkeypatch.setattr(algebraic_simplifier, "_rule_set", lambda without: RuleSet([planted, *right]))
    found = first_faulty_pass(case, simplification_pipeline())
    assert found is not None
    assert found.name == "algsimp"
    assert found.before.size <= 10
    assert any(i.opcode == opcode for i in found.before.module.instructions()), found.before.module.to_text()


# Reduction


def test_a_crash_is_reduced_to_the_instruction_that_crashes() -> None:
    def crashes(case: Case) -> bool:
        return any(i.opcode == "remainder" for i in case.module.instructions())

    small = reduce(program(), crashes)
    assert small.size == 1
    assert [i.opcode for i in small.module.entry.instructions] == ["parameter", "parameter", "remainder"]


def test_a_case_without_the_fault_is_returned_unchanged() -> None:
    case = program()
    assert reduce(case, lambda _: False) is case

    def fails(_: Case) -> bool:
        raise HloomError("no")

    assert reduce(case, fails) is case


def test_new_parameters_have_the_values_of_the_run() -> None:
    """The fault needs a value greater than 0.3 and a limit of 0.3, which only values of the run have."""

    def shows(case: Case) -> bool:
        (compare,) = [i for i in case.module.entry.instructions if i.opcode == "compare"] or [None]
        if compare is None or compare.op.direction is not ComparisonDirection.GT:
            return False
        scaled, limit = case.values(compare.operands)
        return bool((np.asarray(scaled) > 0.3).any()) and np.unique(limit).tolist() == [np.float32(0.3)]

    small = reduce(program(), shows)
    assert small.size <= 4
    assert small.arguments is not None
    assert any(i.opcode == "compare" for i in small.module.entry.instructions)


def test_tolerances_are_relative_and_absolute() -> None:
    one, other = np.float32([1.0, 100.0]), np.float32([1.0, 101.0])
    assert Tolerance(0.02, 0.0).difference(one, other) is None
    assert "differs in 1 of 2" in str(Tolerance(0.001, 0.0).difference(one, other))
    assert Tolerance(0.0, 0.0).difference((one, one), (one, one)) is None
    assert "element 1" in str(Tolerance(0.0, 0.0).difference((one, one), (one, other)))
