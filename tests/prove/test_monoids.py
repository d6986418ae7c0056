"""Laws of monoids: what reductions rely on when they run in another order, or start from an identity.

Elements of up to 8 bits are tried exhaustively with the interpreter's functions; wider ones are proved by the solver.
Sums and products of floats are not associative, which GEN-13 allows. Parts of complex products are rounded in an order
that depends on that of the factors, and 1 * (inf + i) has a part that is NaN: no law of theirs holds bit for bit.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import z3

from hloom.ops import elementwise_binary as binary
from hloom.prove.solver.conversions import FORMULAS
from hloom.prove.solver.decide import are_different, samples
from hloom.prove.solver.element import FORMATS, Element, from_bits, identical, known
from hloom.prove.terms.concrete import applied, from_codes
from hloom.prove.terms.term import variable
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

MONOIDS = (binary.Add, binary.Multiply, binary.Maximum, binary.Minimum, binary.And, binary.Or, binary.Xor)
EXACT = (binary.Maximum, binary.Minimum, binary.And, binary.Or, binary.Xor)
TYPES = [t for t in PrimitiveType if t.is_array]
CASES = [
    (op, t) for op in MONOIDS for t in TYPES if t.kind in op.kinds and not (op is binary.Multiply and t.is_complex)
]

STEP = max(1, 256 * 50 // int(os.environ.get("HLOOM_CASES", "12800")))
"""Distance of the values of the first of three bytes that are tried."""


def name(case: tuple[type[binary.Monoid], PrimitiveType]) -> str:
    return f"{case[0].opcode}-{case[1]}"


def check_values(op: type[binary.Monoid], type: PrimitiveType, x: Array, y: Array, z: Array) -> None:
    """Checks the laws on vectors of elements."""

    def f(a: Array, b: Array) -> Array:
        return applied(op(), type, [a, b])

    def check(law: str, a: Array, b: Array) -> None:
        differ = are_different(type, a, b)
        at = int(np.argmax(differ))
        assert not differ.any(), (law, x[at], y[at], z[at], a[at], b[at])

    check("commutative", f(x, y), f(y, x))
    identity = op.identity(type)
    wide = BY_DTYPE[identity.dtype]  # f32 for sums of narrow floats, of which some have no zero
    start = np.broadcast_to(identity, x.shape)
    check("identity", applied(op(), wide, [x.astype(identity.dtype), start]).astype(x.dtype), x)
    if op.is_idempotent:
        check("idempotent", f(x, x), x)
    if op in EXACT or not (type.is_float or type.is_complex):
        check("associative", f(f(x, y), z), f(x, f(y, z)))


@pytest.mark.parametrize("case", [c for c in CASES if c[1].bits <= 4], ids=name)
def test_laws_of_narrow_types_hold_for_all_elements(case: tuple[type[binary.Monoid], PrimitiveType]) -> None:
    op, type = case
    codes = np.indices((1 << type.bits,) * 3).reshape(3, -1)
    check_values(op, type, *(from_codes(type, c) for c in codes))


@pytest.mark.long
@pytest.mark.parametrize("case", [c for c in CASES if c[1].bits == 8], ids=name)
def test_laws_of_bytes_hold_for_all_elements(case: tuple[type[binary.Monoid], PrimitiveType]) -> None:
    op, type = case
    for first in range(0, 2 if type.is_pred else 256, 1 if type.is_pred else STEP):
        second, third = (c.reshape(-1) for c in np.indices((2, 2) if type.is_pred else (256, 256)))
        check_values(op, type, *(from_codes(type, c) for c in (np.full(second.shape, first), second, third)))


WIDE = [c for c in CASES if c[1].bits >= 16]


@pytest.mark.parametrize("case", WIDE, ids=name)
def test_laws_of_wide_types_hold_for_special_elements(case: tuple[type[binary.Monoid], PrimitiveType]) -> None:
    op, type = case
    x, y, z = samples([variable(type, n) for n in "xyz"]).values()
    check_values(op, type, x, y, z)


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=[pytest.mark.long] * (c[1].bits > 16)) for c in WIDE if not c[1].is_complex],
    ids=name,
)
def test_laws_of_wide_types_are_proved(case: tuple[type[binary.Monoid], PrimitiveType]) -> None:
    op, type = case
    x, y, z = (from_bits(type, z3.BitVec(n, type.bits)) for n in "xyz")

    def f(a: Element, b: Element) -> Element:
        return FORMULAS[op()](op(), type, [a, b])

    laws = [(f(x, y), f(y, x)), (f(x, known(type, op.identity(type))), x)]
    laws += [(f(x, x), x)] * op.is_idempotent
    laws += [(f(f(x, y), z), f(x, f(y, z)))] * (op in EXACT or not type.is_float)
    for a, b in laws:
        differ = z3.Not(identical(a.number, b.number)) if type in FORMATS else a.bits != b.bits
        solver = z3.Solver()
        solver.add(z3.simplify(differ))
        assert solver.check() == z3.unsat, solver
