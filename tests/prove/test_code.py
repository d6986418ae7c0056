"""Proofs of code: the instructions of one element compute what the operation means, for all operands."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from hloom.backends.cpu.elements import ops
from hloom.lir import Builder, Value
from hloom.loops.expressions import Apply
from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.operation import Operation
from hloom.ops.select import Clamp, Select
from hloom.prove import Proved, Undecided
from hloom.prove.generated.elements import prove_element
from hloom.types import PrimitiveType as P

INTEGERS = [P.S2, P.U2, P.S4, P.U4, P.S8, P.U8, P.S16, P.U16, P.S32, P.U32, P.S64, P.U64]
FLOATS = [t for t in P if t.is_float]
TYPES = [*INTEGERS, *FLOATS, P.PRED]
Element = tuple[Operation, P, tuple[P, ...]]

OF_TWO = (binary.Add(), binary.Multiply(), binary.Subtract(), binary.Divide(), binary.Maximum(), binary.Minimum())
OF_TWO_INTEGERS = (
    binary.Remainder(), binary.And(), binary.Or(), binary.Xor(),
    binary.ShiftLeft(), binary.ShiftRightArithmetic(), binary.ShiftRightLogical(),
)  # fmt: skip
OF_TWO_PREDICATES = (*OF_TWO[:2], *OF_TWO[4:], *OF_TWO_INTEGERS[1:4])
OF_ONE_FLOAT = (unary.Ceil(), unary.Floor(), unary.RoundNearestAfz(), unary.RoundNearestEven(), unary.Sqrt())
COMPARISONS = [Compare(direction=direction) for direction in ComparisonDirection]
TOTAL_ORDERS = [Compare(direction=direction, type=ComparisonType.TOTALORDER) for direction in ComparisonDirection]


def elements() -> Iterator[Element]:
    """All operations whose meaning is exact, on all types."""
    yield from ((op, t, (t, t)) for op in OF_TWO for t in [*INTEGERS, *FLOATS])
    yield from ((op, t, (t, t)) for op in OF_TWO_INTEGERS for t in INTEGERS)
    yield from ((op, P.PRED, (P.PRED, P.PRED)) for op in OF_TWO_PREDICATES)
    yield from ((op, t, (t,)) for op in (unary.Abs(), unary.Sign()) for t in TYPES if t.is_signed or t.is_float)
    yield from ((unary.Negate(), t, (t,)) for t in [*INTEGERS, *FLOATS])
    yield from ((op, t, (t,)) for op in (unary.PopulationCount(), unary.CountLeadingZeros()) for t in INTEGERS)
    yield from ((unary.Not(), t, (t,)) for t in [*INTEGERS, P.PRED])
    yield from ((op, t, (t,)) for op in OF_ONE_FLOAT for t in FLOATS)
    yield from ((unary.IsFinite(), P.PRED, (t,)) for t in FLOATS)
    yield from ((op, P.PRED, (t, t)) for op in COMPARISONS for t in TYPES)
    yield from ((op, P.PRED, (t, t)) for op in TOTAL_ORDERS for t in FLOATS)
    yield from ((Convert(), t, (s,)) for s, t in itertools.product(TYPES, repeat=2))
    yield from ((BitcastConvert(), t, (s,)) for s, t in itertools.product(TYPES[:-1], repeat=2) if s.bits == t.bits)
    yield from ((Select(), t, (P.PRED, t, t)) for t in TYPES)
    yield from ((Clamp(), t, (t, t, t)) for t in [*INTEGERS, *FLOATS])


def name(element: Element) -> str:
    op, t, operands = element
    of = f"{op.direction.value} {op.is_total_order} " if isinstance(op, Compare) else ""
    return f"{of}{t} {op.opcode}({', '.join(map(str, operands))})"


ELEMENTS = {name(element): element for element in elements()}
SLOW = "s64 convert(f64)"
"""A conversion that takes the solver minutes."""


def bits_of_f16_are_seen(element: Element) -> bool:
    """Whether signalling NaNs of f16 count, which registers do not hold: loops move them as u16 (`loops/moved_bits.py`)."""
    op, t, operands = element
    return P.F16 in (t, *operands) and (op in TOTAL_ORDERS or isinstance(op, BitcastConvert))


NAMES = [n for n, element in ELEMENTS.items() if not bits_of_f16_are_seen(element)]


def check(name: str) -> None:
    op, _, operands = ELEMENTS[name]
    verdict = prove_element(*ELEMENTS[name], seconds=5)
    is_narrow = any(t.is_float and t.bits <= 8 for t in (ELEMENTS[name][1], *operands))
    may_be_open = name == SLOW or (is_narrow and sum(t.bits for t in operands) > 16)  # neither tried nor solved
    assert verdict == Proved() or (may_be_open and isinstance(verdict, Undecided)), verdict


QUICK = [name for name in NAMES if not any(word in name for word in ("f8", "f64", "64 convert", "sqrt"))]
CASES = min(len(NAMES), int(os.environ.get("HLOOM_CASES", "4000")) // 4)


@pytest.mark.parametrize("name", QUICK[::25])
def test_some_elements_are_proved(name: str) -> None:
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_all_elements_are_proved(part: int) -> None:
    for name in NAMES[:: len(NAMES) // CASES][part::20]:
        check(name)


# Wrong code is found


def _without_check(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Value:
    return b.binary("sdiv", x, y)


def _shifted(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Value:
    return b.binary("shl", x, y)


def _unordered(op: Operation, b: Builder, e: Apply, x: Value, y: Value) -> Value:
    return b.select(b.compare("ogt", x, y), x, y)


def _truncated(op: Operation, b: Builder, e: Apply, x: Value) -> Value:
    return b.convert("fptosi", x, "i32")


@pytest.mark.parametrize(
    ("op", "wrong", "type", "operands"),
    [
        (binary.Divide(), _without_check, P.S8, (P.S8, P.S8)),  # divides by zero
        (binary.ShiftLeft(), _shifted, P.S8, (P.S8, P.S8)),  # poison beyond the width
        (binary.Maximum(), _unordered, P.F32, (P.F32, P.F32)),  # drops NaN
        (Convert(), _truncated, P.S32, (P.F32,)),  # poison for large numbers
    ],
)
def test_wrong_code_is_found(
    monkeypatch: pytest.MonkeyPatch, op: Operation, wrong: object, type: P, operands: tuple[P, ...]
) -> None:
    monkeypatch.setitem(ops.REAL._found, op.__class__, wrong)
    assert isinstance(prove_element(op, type, operands), str)


def test_functions_without_a_meaning_are_said() -> None:
    verdict = prove_element(unary.Exponential(), P.F32, (P.F32,))
    assert isinstance(verdict, Undecided) and "has no formula" in verdict.reason
