"""Normal forms of terms: terms with one form are equal for all values of their variables, without a solver.

Users of a float that compute with it need its number alone: `x * 1` is x for them. Where a program looks at bits, as
bitcast-convert does, NaNs have signs and payloads (GEN-7). So a term has a form as a number and a form as bits; and if
the order of sums is open (GEN-13), others. Laws of operations are in `integer_laws.py` and `float_laws.py`.
"""

from __future__ import annotations

from typing import NamedTuple

from hloom.ops import elementwise_binary as binary
from hloom.ops import elementwise_unary as unary
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert, Convert, StochasticConvert
from hloom.ops.operation import Operation
from hloom.ops.registry import Registry
from hloom.ops.select import Select
from hloom.prove.terms.concrete import KEEPS_NAN
from hloom.prove.terms.float_laws import converted_twice, of_floats
from hloom.prove.terms.functions import CONVERT, EQUAL, Terms, apply, choose, is_equal, negation
from hloom.prove.terms.integer_laws import compared, expanded, of_integers, resized
from hloom.prove.terms.term import (
    Combination,
    Function,
    Join,
    Part,
    Polynomial,
    Term,
    Unknown,
    constant,
    from_code,
    node,
)
from hloom.types import PrimitiveType

PRED = PrimitiveType.PRED

NORMAL_LAWS = Registry[[PrimitiveType, Terms, bool], Term | None]()
"""Laws by operation, for operands in normal form and whether only the number counts; None where no law applies."""

SUMS = (binary.Add, binary.Multiply)

PARTS = (unary.Real(), unary.Imag())

LATTICE = (binary.And, binary.Or, binary.Maximum, binary.Minimum)
"""Operations that are commutative, associative and idempotent."""


class Sums(NamedTuple):
    """Properties of sums of floats that a normal form leaves open (GEN-13)."""

    any_order: bool = False
    """Whether the order of reductions is open, as the specification has it."""
    of_instructions: bool = False
    """Whether the order of additions by instructions is open, too: they may compute a sum, but say its order."""
    from_zero: bool = True
    """Whether sums of products start from +0."""


FIXED = Sums()


def normal(root: Term, sums: Sums = FIXED) -> Term:
    """Returns the normal form of a term as a number."""
    stack = [root]
    while stack:
        term = stack[-1]
        if (sums, True) in term.forms:
            stack.pop()
            continue
        pending = [operand for operand in term.operands if (sums, True) not in operand.forms]
        if pending:
            stack += pending
            continue
        stack.pop()
        for is_number in (False, True):
            term.forms[sums, is_number] = _form(term, sums, is_number)
    return root.forms[sums, True]


def _form(term: Term, sums: Sums, is_number: bool) -> Term:
    if term.op is None:
        return term
    if is_number and not (term.type.is_float or term.type.is_complex):
        return term.forms[sums, False]
    operands = [operand.forms[sums, _needs_number(term.op, is_number)] for operand in term.operands]
    return rewritten(term.op, term.type, operands, is_number, sums)


def _needs_number(op: Function, is_number: bool) -> bool:
    """Whether an operation looks at the number of its operands alone, or whether its user does."""
    if isinstance(op, (BitcastConvert, StochasticConvert, Part, Join, Unknown)):
        return False
    if isinstance(op, KEEPS_NAN):
        return is_number
    return not (isinstance(op, Compare) and op.is_total_order)


def rewritten(op: Function, type: PrimitiveType, operands: Terms, is_number: bool, sums: Sums = FIXED) -> Term:
    """Returns the normal form of a function of terms in normal form."""
    if isinstance(op, Combination):
        return _combined(op, type, operands, is_number, sums)
    if isinstance(op, LATTICE) and (is_number or not type.is_float):
        return _lattice(op, type, operands)
    if isinstance(op, Polynomial):
        return expanded(op, type, operands)
    if not isinstance(op, Operation):
        return apply(op, type, operands)
    if sums.of_instructions and isinstance(op, SUMS) and any(x.op in (op, Combination(op)) for x in operands):
        return _combined(Combination(op), type, operands, is_number, sums)
    law = NORMAL_LAWS.get(op)
    simpler = law(op, type, operands, is_number) if law is not None else None
    if simpler is None and type.is_integer:
        simpler = of_integers(op, type, operands)
    if simpler is None and type.is_float:
        simpler = of_floats(op, type, operands, is_number)
    return simpler or _of_choice(op, type, operands) or apply(op, type, operands)


def _combined(combination: Combination, type: PrimitiveType, operands: Terms, is_number: bool, sums: Sums) -> Term:
    """Builds the tree of the interpreter, or sorts the operands where their order is open."""
    if isinstance(combination.op, LATTICE) and (is_number or not type.is_float):
        return _lattice(combination.op, type, operands)
    if sums.any_order and (type.is_float or type.is_complex):
        return _sorted_sum(
            combination, type, operands[1:] if combination.from_zero and not sums.from_zero else operands, sums
        )
    terms = list(operands)
    while len(terms) > 1:
        pairs = [rewritten(combination.op, type, terms[k : k + 2], is_number) for k in range(0, len(terms) - 1, 2)]
        terms = [*pairs, *terms[len(terms) & ~1 :]]
    return terms[0]


def _sorted_sum(combination: Combination, type: PrimitiveType, operands: Terms, sums: Sums) -> Term:
    """Flattens and sorts the operands of a sum or product, without identities, and with +0 only once."""
    sum_of = Combination(combination.op)
    joined = (sum_of, combination.op) if sums.of_instructions else (sum_of,)
    flat = [y for x in operands for y in (x.operands if x.op in joined else (x,))]
    zero, identity = (constant(type, value) for value in (0, combination.op.identity(type)))
    kept = [x for x in flat if x is not identity and (x is not zero or not isinstance(combination.op, binary.Add))]
    if isinstance(combination.op, binary.Add) and zero in flat:
        kept.append(zero)
    kept.sort(key=lambda x: x.ordinal)
    if len(kept) < 2:
        return kept[0] if kept else identity
    return apply(combination.op, type, kept) if len(kept) == 2 and sums.of_instructions else node(type, sum_of, kept)


def _lattice(op: binary.Monoid, type: PrimitiveType, operands: Terms) -> Term:
    """Flattens, sorts and joins equal operands of and, or, maximum and minimum."""
    combination = Combination(op.replace())
    flat = {y for x in operands for y in (x.operands if x.op in (combination, op) else (x,))}
    flat = {_absorbed(x, op, flat) for x in flat}
    constants = [x for x in flat if x.known is not None]
    kept = sorted((x for x in flat if x.known is None), key=lambda x: x.ordinal)
    if constants:
        known = constants[0]
        for x in constants[1:]:
            known = apply(op, type, (known, x))
        if not kept or (not type.is_float and known is _absorbing(op, type)):
            return known
        if known is not constant(type, op.identity(type)):
            kept.insert(0, known)
    if isinstance(op, (binary.And, binary.Or)) and any(
        isinstance(x.op, unary.Not) and x.operands[0] in flat for x in kept
    ):
        return from_code(type, 0 if isinstance(op, binary.And) else (1 << (1 if type is PRED else type.bits)) - 1)
    if len(kept) == 2:
        return apply(op, type, kept)
    return node(type, combination, kept) if len(kept) > 1 else kept[0]


def _absorbed(x: Term, op: binary.Monoid, flat: set[Term]) -> Term:
    """Drops what a term of a minimum has in common with it: min(a, max(b, min(a, c))) is min(a, max(b, c))."""
    dual = _DUAL[op.__class__]
    if not isinstance(x.op.op if isinstance(x.op, Combination) else x.op, dual):
        return x
    parts = []
    for part in x.operands:
        is_same = part.op in (op, Combination(op))
        rest = [y for y in part.operands if y not in flat] if is_same else [part]
        parts.append(_lattice(op, x.type, rest) if rest else part)
    return x if tuple(parts) == x.operands else _lattice(dual(), x.type, parts)


_DUAL: dict[type[Operation], type[binary.Monoid]] = {
    binary.And: binary.Or, binary.Or: binary.And, binary.Maximum: binary.Minimum, binary.Minimum: binary.Maximum
}  # fmt: skip
"""The other operation of each lattice."""


def _absorbing(op: binary.Monoid, type: PrimitiveType) -> Term:
    """Returns the element that an integer operation of a lattice gives with every other one."""
    return constant(type, _DUAL[op.__class__].identity(type))


def _of_choice(op: Operation, type: PrimitiveType, operands: Terms) -> Term | None:
    """Moves a function of constants and a choice between constants into the choice."""
    choices = [x for x in operands if isinstance(x.op, Select)]
    if len(choices) != 1 or isinstance(op, Select):
        return None
    (choice,) = choices
    if any(x.known is None for x in operands if x is not choice) or any(x.known is None for x in choice.operands[1:]):
        return None
    then, otherwise = (apply(op, type, [arm if x is choice else x for x in operands]) for arm in choice.operands[1:])
    return choose(choice.operands[0], then, otherwise)


@NORMAL_LAWS.rule(binary.Xor)
def _xor(op: binary.Xor, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    return _xored(op, type, operands)


def _xored(op: binary.Xor, type: PrimitiveType, operands: Terms) -> Term:
    """Cancels equal operands; complements are those of the result."""
    ones = from_code(type, (1 << (1 if type is PRED else type.bits)) - 1)
    combination = Combination(op)
    odd: dict[Term, None] = {}
    flipped = False
    for operand in (y for x in operands for y in (x.operands if x.op == combination else (x,))):
        x = operand.operands[0] if isinstance(operand.op, unary.Not) else operand
        flipped ^= x is not operand
        for y in x.operands if x.op == combination else (x,):
            odd.pop(y) if y in odd else odd.setdefault(y)
    known = from_code(type, 0)
    for x in [x for x in odd if x.known is not None]:
        known = apply(op, type, (known, x))
        del odd[x]
    if known is ones:
        known, flipped = from_code(type, 0), not flipped
    kept = sorted(odd, key=lambda x: x.ordinal) + ([known] if known.known else [])
    if not kept:
        return ones if flipped else from_code(type, 0)
    result = kept[0] if len(kept) == 1 else node(type, combination, kept)
    return apply(unary.Not(), type, (result,)) if flipped else result


@NORMAL_LAWS.rule(Compare)
def _compare(op: Compare, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    """Compares integers by their difference, predicates by their bits and complex numbers part by part."""
    x, y = operands
    if x.type.is_complex:
        equal = [is_equal(apply(o, x.type.real, (x,)), apply(o, x.type.real, (y,))) for o in PARTS]
        return _lattice(binary.And(), PRED, equal)
    if x.type.is_pred:
        if op == EQUAL:
            return negation(_xored(binary.Xor(), PRED, (x, y)))
        return _lattice(binary.And(), PRED, (negation(x), y))
    return compared(op, x, y) if x.type.is_integer else None


@NORMAL_LAWS.rule(Convert)
def _convert(op: Convert, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    (x,) = operands
    if x.type.is_pred:
        return choose(x, constant(type, 1), constant(type, 0))
    if type.is_pred and x.type.is_integer:
        return negation(rewritten(EQUAL, type, (x, from_code(x.type, 0)), is_number=False))
    if isinstance(x.op, Convert) and (is_number or not (x.type.is_float or type.is_float)):
        return converted_twice(x, type)
    return resized(op, type, x) if type.is_integer and x.type.is_integer else None


@NORMAL_LAWS.rule(BitcastConvert)
def _bitcast_convert(op: BitcastConvert, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    """A bitcast between integers of one width is a conversion."""
    between_integers = type.is_integer and operands[0].type.is_integer
    return rewritten(CONVERT, type, operands, is_number) if between_integers else None


@NORMAL_LAWS.rule(binary.Power)
def _power(op: binary.Power, type: PrimitiveType, operands: Terms, is_number: bool) -> Term | None:
    """Powers with an exponent of 0, 1 or 2 are products."""
    x, y = operands
    if (not is_number and not type.is_integer) or type is PrimitiveType.F8E8M0FNU:  # it has no 0
        return None
    for exponent, power in ((0, constant(type, 1)), (1, x)):
        if y is constant(type, exponent):
            return power
    return rewritten(binary.Multiply(), type, (x, x), is_number) if y is constant(type, 2) else None
