"""Laws of terms: random formulas of small types have the values of their normal forms, for all values of variables."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert
from hloom.ops.operation import Operation
from hloom.ops.select import Select
from hloom.prove.solver.decide import all_values, are_different
from hloom.prove.terms.concrete import values
from hloom.prove.terms.functions import apply
from hloom.prove.terms.normal import Sums, normal
from hloom.prove.terms.term import Term, constant, from_code, node, variable
from hloom.types import PrimitiveType as T

FORMULAS = int(os.environ.get("HLOOM_CASES", "400"))

ON_FLOATS: list[Operation] = [
    binary.Add(), binary.Subtract(), binary.Multiply(), binary.Divide(), binary.Maximum(), binary.Minimum(),
    unary.Negate(), unary.Abs(), unary.Sign(), binary.Power(),
]  # fmt: skip
ON_INTEGERS: list[Operation] = [
    *ON_FLOATS[:7], binary.And(), binary.Or(), binary.Xor(), unary.Not(), binary.ShiftLeft(), binary.ShiftRightLogical(),
    binary.ShiftRightArithmetic(), binary.Remainder(), binary.Power(), binary.Mulhi(),
]  # fmt: skip
ON_PREDICATES: list[Operation] = [binary.And(), binary.Or(), binary.Xor(), unary.Not(), binary.Maximum(), binary.Add()]
TYPES = {
    "f": [T.F8E5M2, T.F8E4M3, T.F8E3M4, T.F8E4M3FN, T.F4E2M1FN, T.F8E4M3FNUZ, T.F8E5M2FNUZ, T.F8E4M3B11FNUZ, T.F8E8M0FNU],
    "i": [T.S2, T.U2, T.S4, T.U4, T.S8, T.U8],
}  # fmt: skip


class Formulas:
    """Random formulas of two variables of a type, and a predicate."""

    def __init__(self, type: T, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.type = type
        self.variables = [variable(type, "x"), variable(type, "y"), variable(T.PRED, "p")]

    def choose(self, options: list[Operation]) -> Operation:
        return options[self.random.integers(len(options))]

    def drawn(self, type: T, depth: int) -> Term:
        kind = self.random.integers(10)
        if not depth or kind == 0:
            return self.leaf(type)
        if kind == 1:
            return self.made(
                Select(), type, [self.drawn(T.PRED, depth - 1), *(self.drawn(type, depth - 1) for _ in "ab")]
            )
        if type is T.PRED and kind < 6:
            direction = list(ComparisonDirection)[self.random.integers(6)]
            return self.made(Compare(direction=direction), type, [self.drawn(self.type, depth - 1) for _ in "ab"])
        if kind == 2:
            other = [T.F32, T.S16, T.U8, T.PRED, T.F16][self.random.integers(5)]
            return self.made(Convert(), type, [self.made(Convert(), other, [self.drawn(self.type, depth - 1)])])
        if kind == 3 and type is not T.PRED:
            same = T.U8 if type.bits == 8 else T.U4 if type.bits == 4 else T.U2
            inner = self.made(BitcastConvert(), same, [self.drawn(type, depth - 1)])
            return self.made(BitcastConvert(), type, [inner])
        op = self.choose(ON_PREDICATES if type is T.PRED else ON_FLOATS if type.is_float else ON_INTEGERS)
        return self.made(op, type, [self.drawn(type, depth - 1) for _ in op.operands])

    def made(self, op: Operation, type: T, operands: list[Term]) -> Term:
        """A term, as it is or simplified at once."""
        return (apply if self.random.integers(2) else node)(type=type, op=op, operands=operands)

    def leaf(self, type: T) -> Term:
        if type is T.PRED:
            return self.variables[2]
        if self.random.integers(3):
            return self.variables[self.random.integers(2)]
        special = [0, 1, -1, 2, 0.5, -0.0, 4, -3]
        with np.errstate(all="ignore"):
            value = constant(type, np.asarray(special[self.random.integers(8)]).astype(type.dtype))
        return value if self.random.integers(4) else from_code(type, int(self.random.integers(1 << type.bits)))


@pytest.mark.parametrize(
    "type", [pytest.param(t, marks=[pytest.mark.long] * (t not in (T.F4E2M1FN, T.S4))) for t in TYPES["f"] + TYPES["i"]]
)
def test_normal_forms_have_the_values_of_their_terms(type: T) -> None:
    formulas = Formulas(type, 1)
    given = [
        {v: array[:: max(1, len(array) // 4096)] if type.bits == 8 else array for v, array in arrays.items()}
        for arrays in all_values(formulas.variables, 2 * type.bits + 1)
    ]
    for number in range(FORMULAS if type.bits == 8 else min(FORMULAS, 100)):
        term = formulas.drawn(type if number % 4 else T.PRED, 1 + number % 4)
        for form in (normal(term), normal(term, Sums(any_order=True))):
            for arrays in given:
                arrays = {v: np.broadcast_to(a, len(next(iter(arrays.values())))) for v, a in arrays.items()}
                differ = are_different(term.type, *values([term, form], arrays))
                assert not differ.any(), (term, form, {v: a[int(np.argmax(differ))] for v, a in arrays.items()})
