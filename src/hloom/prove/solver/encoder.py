"""Terms as formulas: each term becomes an expression of z3 once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, ReducePrecision
from hloom.ops.operation import Operation
from hloom.ops.select import Select
from hloom.prove.solver import arithmetic, conversions
from hloom.prove.solver.element import FORMATS, Element, from_bits, from_code, from_number, identical, sort_of
from hloom.prove.solver.narrow import NARROW, narrowed, reduced_narrow, rounded_to_odd, widened
from hloom.prove.terms.float_laws import SIGNED_ZEROS
from hloom.prove.terms.term import Combination, Function, Join, Part, Polynomial, Term, Unsupported, in_order
from hloom.types import PrimitiveType

MOVES = (Select, BitcastConvert, binary.Complex, unary.Real, unary.Imag)
"""Operations that only move bits."""


class Encoder:
    """Makes formulas of terms.

    Where `is_opaque`, nothing is known of functions of floats but that monoids commute: elements that are equal for all
    such functions need no arithmetic of floats. Else operations have the meaning of their clauses if they have a
    formula on their types; others are unknown functions.
    """

    def __init__(self, is_opaque: bool) -> None:
        self.is_opaque = is_opaque
        self.elements: dict[Term, Element] = {}
        self.variables: dict[Term, Any] = {}

    def element(self, root: Term) -> Element:
        """Returns the expression of a term."""
        for term in in_order([root]):
            if term not in self.elements:
                self.elements[term] = self._made(term)
        return self.elements[root]

    def differ(self, a: Term, b: Term) -> Any:
        """Returns a formula of all arguments on which two elements differ; all NaNs are equal."""
        x, y = self.element(a), self.element(b)
        if not self.is_opaque and x.type in NARROW:
            x, y = widened(x), widened(y)
        if self.is_opaque or x.type not in FORMATS:
            return x.bits != y.bits
        return z3.Not(identical(x.number, y.number))

    def _made(self, term: Term) -> Element:
        if term.known is not None:
            return from_code(term.type, term.known)
        if term.op is None:
            name = term.name
            self.variables[term] = z3.Bool(name) if term.type.is_pred else z3.BitVec(name, term.type.bits)
            return from_bits(term.type, self.variables[term])
        return self._applied(term.op, term.type, [self.elements[operand] for operand in term.operands])

    def _applied(self, op: Function, type: PrimitiveType, operands: Sequence[Element]) -> Element:
        if isinstance(op, Combination) and not (type.is_float and isinstance(op.op, (binary.Add, binary.Multiply))):
            result = operands[0]
            for operand in operands[1:]:
                result = self._applied(op.op, type, [result, operand])
            return result
        if isinstance(op, Polynomial):
            return _polynomial(op, type, operands)
        if isinstance(op, Part):
            low = op.index * type.bits
            return from_bits(type, z3.Extract(low + type.bits - 1, low, operands[0].bits))
        if isinstance(op, Join):
            return from_bits(type, z3.Concat(*(x.bits for x in reversed(operands))))
        types = (type, *(x.type for x in operands))
        if not self.is_opaque and not NARROW.isdisjoint(types) and not isinstance(op, MOVES):
            return self._in_f32(op, type, operands)
        is_exact = all(t.is_integer or t.is_pred or (t in FORMATS and not self.is_opaque) for t in types)
        formula = conversions.FORMULAS.get(op) if isinstance(op, Operation) else None
        if formula is None or not (is_exact or isinstance(op, MOVES)):
            return self._unknown(op, type, operands)
        try:
            return formula(op, type, operands)
        except Unsupported:
            return self._unknown(op, type, operands)

    def _in_f32(self, op: Function, type: PrimitiveType, operands: Sequence[Element]) -> Element:
        """Applies an operation on narrow floats in f32, and rounds the result once."""
        if isinstance(op, Compare) and op.is_total_order:
            return self._unknown(op, type, operands)
        if isinstance(op, (unary.Negate, unary.Abs)) and type in SIGNED_ZEROS:
            return arithmetic.with_sign(op, operands[0])
        if isinstance(op, ReducePrecision):
            return reduced_narrow(op, operands[0])
        wide = [widened(x) if x.type in NARROW else x for x in operands]
        if type not in NARROW:
            return self._applied(op, type, wide)
        if isinstance(op, Convert) and wide[0].type is PrimitiveType.F64:
            result = rounded_to_odd(wide[0])
        else:
            result = self._applied(op, PrimitiveType.F32, wide)
        is_moved = isinstance(op, Convert) and wide[0].type.is_float
        return narrowed(result, type, of_nan=wide[0] if is_moved else None)

    def _unknown(self, op: Function, type: PrimitiveType, operands: Sequence[Element]) -> Element:
        """Applies an unknown function, the same for all equal operations; numbers matter by their values alone."""
        is_number = not self.is_opaque and type in FORMATS
        arguments = [x.number if is_number and x.type in FORMATS else x.bits for x in operands]
        result = sort_of(type) if is_number else z3.BoolSort() if type.is_pred else z3.BitVecSort(type.bits)
        function = z3.Function(f"{_name(op)}.{type}", *(a.sort() for a in arguments), result)
        if not arguments:
            value = function()
        elif isinstance(op, binary.Monoid) and not is_number:
            x, y = arguments
            value = z3.If(z3.ULE(x, y), function(x, y), function(y, x))
        else:
            value = function(*arguments)
        return from_number(type, value) if is_number else from_bits(type, value)


def _name(op: Function) -> str:
    if not isinstance(op, Operation):
        return str(op)
    return f"{op.opcode}{sorted((k, str(v)) for k, v in vars(op).items())}"


def _polynomial(polynomial: Polynomial, type: PrimitiveType, operands: Sequence[Element]) -> Element:
    total = z3.BitVecVal(0, type.bits)
    for coefficient, factors in polynomial.products:
        product = z3.BitVecVal(coefficient, type.bits)
        for factor in factors:
            product = product * operands[factor].bits
        total = total + product
    return from_bits(type, z3.simplify(total))
