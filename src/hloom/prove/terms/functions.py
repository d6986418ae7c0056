"""Functions of terms: those of constants are constants, and laws that need no look at a whole formula apply at once.

All laws here hold bit for bit, for NaNs too. Stronger ones are those of normal forms (`normal.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.attributes import ComparisonDirection, ComparisonType
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, StochasticConvert
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.select import Clamp, Select
from hloom.prove.terms.concrete import applied, from_codes, to_codes
from hloom.prove.terms.term import Function, Join, Part, Polynomial, Term, Unknown, constant, from_code, node
from hloom.types import PrimitiveType

PRED = PrimitiveType.PRED
TRUE, FALSE = from_code(PRED, 1), from_code(PRED, 0)

Terms = Sequence[Term]

LAWS = Registry[[PrimitiveType, Terms], Term | None]()
"""Laws by operation: the simpler term that is equal to an operation on operands; None if there is none."""


def apply(op: Function, type: PrimitiveType, operands: Terms) -> Term:
    """Returns the term of a function of other terms: a simpler one that is equal, where a law says so."""
    if isinstance(op, Operation):
        if isinstance(op, binary.Monoid) and operands[0].ordinal > operands[1].ordinal:
            operands = (operands[1], operands[0])
        law = LAWS.get(op)
        simpler = law(op, type, operands) if law is not None else None
        if simpler is not None:
            return simpler
    if operands and all(x.known is not None for x in operands) and not isinstance(op, Unknown):
        return of_constants(op, type, operands)
    return node(type, op, operands)


def of_constants(op: Function, type: PrimitiveType, operands: Terms) -> Term:
    """Returns the value of a function of constants, as the interpreter computes it."""
    arrays = [from_codes(x.type, [x.known or 0]) for x in operands]
    return from_code(type, to_codes(type, applied(op, type, arrays))[0])


def choose(condition: Term, then: Term, otherwise: Term) -> Term:
    """Returns `then` where a condition holds, else `otherwise`."""
    return apply(SELECT, then.type, (condition, then, otherwise))


def both(conditions: Terms) -> Term:
    """Returns whether all conditions hold."""
    result = TRUE
    for condition in conditions:
        result = apply(AND, PRED, (result, condition))
    return result


def negation(condition: Term) -> Term:
    """Returns whether a condition does not hold."""
    return apply(NOT, PRED, (condition,))


def is_equal(x: Term, y: Term) -> Term:
    """Returns whether two elements are equal, as `compare` has it."""
    return apply(EQUAL, PRED, (x, y))


def is_less(x: Term, y: Term) -> Term:
    """Returns whether x < y, as `compare` has it."""
    return apply(LESS, PRED, (x, y))


def converted(x: Term, type: PrimitiveType) -> Term:
    """Converts an element to another type."""
    return apply(CONVERT, type, (x,))


SELECT, AND, OR, NOT, CONVERT = Select(), binary.And(), binary.Or(), unary.Not(), Convert()
EQUAL, LESS = Compare(direction=ComparisonDirection.EQ), Compare(direction=ComparisonDirection.LT)
LESS_OR_EQUAL = Compare(direction=ComparisonDirection.LE)
TOTAL = ComparisonType.TOTALORDER
TOTAL_EQUAL, TOTAL_LESS = EQUAL.replace(type=TOTAL), LESS.replace(type=TOTAL)


@LAWS.rule(Select)
def _select(op: Select, type: PrimitiveType, operands: Terms) -> Term | None:
    condition, then, otherwise = operands
    if then is otherwise or condition is TRUE:
        return then
    if condition is FALSE:
        return otherwise
    if isinstance(condition.op, unary.Not):
        return choose(condition.operands[0], otherwise, then)
    if isinstance(then.op, Select) and then.operands[0] is condition:
        return choose(condition, then.operands[1], otherwise)
    if isinstance(otherwise.op, Select) and otherwise.operands[0] is condition:
        return choose(condition, then, otherwise.operands[2])
    if type is PRED:
        return _chosen_predicate(condition, then, otherwise)
    return None


def _chosen_predicate(condition: Term, then: Term, otherwise: Term) -> Term | None:
    if then is TRUE or then is condition:
        return apply(OR, PRED, (condition, otherwise))
    if otherwise is FALSE or otherwise is condition:
        return apply(AND, PRED, (condition, then))
    if then is FALSE:
        return apply(AND, PRED, (negation(condition), otherwise))
    if otherwise is TRUE:
        return apply(OR, PRED, (negation(condition), then))
    return None


@LAWS.rule(binary.Monoid)
def _monoid(op: binary.Monoid, type: PrimitiveType, operands: Terms) -> Term | None:
    """Sums of predicates are or, products and; laws of and, or and exclusive or on predicates and integers."""
    if type is PRED and isinstance(op, _AS_PREDICATES):
        is_or = isinstance(op, (binary.Add, binary.Maximum))
        return apply(OR if is_or else AND, type, operands)
    if isinstance(op, binary.Add):
        return _part_by_part(op, type, operands)
    if not isinstance(op, (binary.And, binary.Or)):
        return None
    ones, zero = (1 << (1 if type is PRED else type.bits)) - 1, 0
    identity, absorbing = (ones, zero) if isinstance(op, binary.And) else (zero, ones)
    x, y = operands
    for a, b in ((x, y), (y, x)):
        if a.known == identity or a is b:
            return b
        if a.known == absorbing:
            return a
        if isinstance(a.op, unary.Not) and a.operands[0] is b:
            return from_code(type, absorbing)
    return None


_AS_PREDICATES = (binary.Add, binary.Multiply, binary.Maximum, binary.Minimum)


@LAWS.rule(unary.Not)
def _not(op: unary.Not, type: PrimitiveType, operands: Terms) -> Term | None:
    (x,) = operands
    return x.operands[0] if isinstance(x.op, unary.Not) else None


@LAWS.rule(Clamp)
def _clamp(op: Clamp, type: PrimitiveType, operands: Terms) -> Term:
    low, x, high = operands
    return apply(binary.Minimum(), type, (apply(binary.Maximum(), type, (low, x)), high))


@LAWS.rule(Compare)
def _compare(op: Compare, type: PrimitiveType, operands: Terms) -> Term | None:
    """Compares by EQ and LT alone, and by LE where NaNs are neither smaller nor larger (COMPARE-2)."""
    x, y = operands
    is_total = op.is_total_order or not x.type.is_float
    equal, less = (TOTAL_EQUAL, TOTAL_LESS) if op.is_total_order and x.type.is_float else (EQUAL, LESS)
    match op.direction:
        case ComparisonDirection.EQ:
            if x is y and is_total and not x.type.is_complex:
                return TRUE
            is_sorted = x.ordinal <= y.ordinal
            return None if op is equal and is_sorted else apply(equal, type, (x, y) if is_sorted else (y, x))
        case ComparisonDirection.NE:
            return negation(apply(equal, type, (x, y)))
        case ComparisonDirection.LT:
            if x is y:
                return FALSE
            return None if op is less else apply(less, type, (x, y))
        case ComparisonDirection.GT:
            return apply(less, type, (y, x))
        case ComparisonDirection.GE:
            x, y = y, x
    if is_total:
        return negation(apply(less, type, (y, x)))
    return None if op is LESS_OR_EQUAL else apply(LESS_OR_EQUAL, type, (x, y))


@LAWS.rule(Convert)
def _convert(op: Convert, type: PrimitiveType, operands: Terms) -> Term | None:
    """Converts complex numbers part by part; numbers are complex ones without an imaginary part."""
    (x,) = operands
    if x.type is type:
        return x
    if x.type.is_complex and type.is_pred:
        return apply(OR, PRED, [converted(apply(p, x.type.real, (x,)), PRED) for p in _PARTS])
    if x.type.is_complex and not type.is_complex:
        return converted(apply(_PARTS[0], x.type.real, (x,)), type)
    if not type.is_complex:
        return None
    parts = [converted(apply(p, x.type.real, (x,)), type.real) for p in _PARTS]
    return apply(binary.Complex(), type, parts)


def _part_by_part(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    if not type.is_complex:
        return None
    parts = [[apply(p, type.real, (x,)) for x in operands] for p in _PARTS]
    return apply(binary.Complex(), type, [apply(op, type.real, terms) for terms in parts])


for _linear in (binary.Subtract, unary.Negate):
    LAWS.add(_linear, _part_by_part)


@LAWS.rule(StochasticConvert)
def _stochastic_convert(op: StochasticConvert, type: PrimitiveType, operands: Terms) -> Term | None:
    """Adds random bits below the last mantissa bit that is kept, and truncates."""
    x, random = operands
    if not type.is_float or x.type.bits < 8:
        return None
    drop = x.type.mantissa_bits - type.mantissa_bits
    if drop <= 0:
        return converted(x, type)
    unsigned = random.type
    noise = apply(binary.ShiftRightLogical(), unsigned, (random, constant(unsigned, unsigned.bits - drop)))
    total = apply(binary.Add(), unsigned, (apply(BitcastConvert(), unsigned, (x,)), noise))
    kept = apply(AND, unsigned, (total, from_code(unsigned, (1 << unsigned.bits) - (1 << drop))))
    rounded = apply(BitcastConvert(), x.type, (kept,))
    return converted(choose(apply(unary.IsFinite(), PRED, (x,)), rounded, x), type)


@LAWS.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, type: PrimitiveType, operands: Terms) -> Term | None:
    (x,) = operands
    if x.type is type:
        return x
    return apply(op, type, x.operands) if isinstance(x.op, BitcastConvert) and not x.type.is_pred else None


@LAWS.rule(unary.Real)
def _real(op: unary.Real, type: PrimitiveType, operands: Terms) -> Term | None:
    return _component(operands[0], 0)


@LAWS.rule(unary.Imag)
def _imag(op: unary.Imag, type: PrimitiveType, operands: Terms) -> Term | None:
    (x,) = operands
    return _component(x, 1) if x.type.is_complex else from_code(type, 0)


def _component(x: Term, index: int) -> Term | None:
    """Returns a part of a complex number, if it is known as a term."""
    if not x.type.is_complex:
        return x
    if isinstance(x.op, binary.Complex):
        return x.operands[index]
    if isinstance(x.op, Select):
        parts = [_component(choice, index) or apply(_PARTS[index], x.type.real, (choice,)) for choice in x.operands[1:]]
        return choose(x.operands[0], *parts)
    return None


_PARTS = (unary.Real(), unary.Imag())


@LAWS.rule(binary.Complex)
def _complex(op: binary.Complex, type: PrimitiveType, operands: Terms) -> Term | None:
    real, imaginary = operands
    is_whole = isinstance(real.op, unary.Real) and isinstance(imaginary.op, unary.Imag)
    return real.operands[0] if is_whole and real.operands == imaginary.operands else None


@LAWS.rule(unary.Abs)
def _abs(op: unary.Abs, type: PrimitiveType, operands: Terms) -> Term | None:
    """The absolute value of a complex number does not depend on the signs of its parts."""
    (x,) = operands
    if not isinstance(x.op, binary.Complex):
        return None
    parts = [y.operands[0] if isinstance(y.op, unary.Negate) else y for y in x.operands]
    return apply(op, type, (apply(x.op, x.type, parts),)) if tuple(parts) != tuple(x.operands) else None


def part(x: Term, type: PrimitiveType, index: int) -> Term:
    """Returns the bits of an element from `index` times the width of `type` on."""
    if isinstance(x.op, Join) and x.operands[0].type is type:
        return x.operands[index]
    return apply(Part(index), type, (x,))


def joined(parts: Terms, type: PrimitiveType) -> Term:
    """Returns the element whose bits are those of the parts, the first in the lowest ones."""
    whole = parts[0].operands[0] if isinstance(parts[0].op, Part) else None
    if (
        whole is not None
        and whole.type is type
        and all(x.op == Part(k) and x.operands[0] is whole for k, x in enumerate(parts))
    ):
        return whole
    return apply(Join(), type, parts)


def polynomial(type: PrimitiveType, products: dict[tuple[Term, ...], int]) -> Term:
    """Returns the sum of products of integers, given by their coefficients; factors are sorted by their ordinals."""
    mask = (1 << type.bits) - 1
    kept = {factors: c & mask for factors, c in products.items() if c & mask}
    if not set(kept) - {()}:
        return from_code(type, kept.get((), 0))
    if len(kept) == 1 and (single := next(iter(kept.items())))[1] == 1 and len(single[0]) == 1:
        return single[0][0]
    ordered = sorted(kept, key=lambda factors: [len(factors), *(x.ordinal for x in factors)])
    atoms = sorted({x for factors in kept for x in factors}, key=lambda x: x.ordinal)
    position = {x: k for k, x in enumerate(atoms)}
    return node(type, Polynomial(tuple((kept[f], tuple(position[x] for x in f)) for f in ordered)), atoms)
