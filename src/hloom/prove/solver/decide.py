"""Decides whether elements are equal for all values of their variables.

Pairs of elements go through stages, from the cheapest: one normal form; the same pair of other variables; some values,
random and special ones; choices case by case; all values, if there are few; the solver, first without arithmetic of
floats, then with it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import z3

from hloom.prove.solver.cases import equal_by_cases
from hloom.prove.solver.encoder import Encoder
from hloom.prove.terms.concrete import from_codes, to_codes, values
from hloom.prove.terms.functions import FALSE, TRUE
from hloom.prove.terms.normal import SUMS, Sums, normal
from hloom.prove.terms.term import Combination, Term, Unknown, Unsupported, in_order, variables_of
from hloom.types import PrimitiveType
from hloom.values import Array

MAX_BITS = 16
"""Bits of all variables of a pair of elements, up to which all values are tried first."""
MAX_BITS_OF_SOLVED = 24
"""Bits of all variables up to which all values are tried where the solver did not decide."""
CHUNK_BITS = 18
"""Logarithm of the number of values that are tried at once."""
SAMPLES = 256
"""Values of variables that are tried where there are too many."""

Pair = tuple[Term, Term]
Found = dict[Term, int]
"""The bits of variables for which elements differ; those of other variables do not matter."""


class Deadline:
    """The end of a proof's time."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The remaining time in seconds, negative after the end."""
        return self.end - time.monotonic()

    def check(self, what: str) -> None:
        """Raises Unsupported after the end, naming what took so long."""
        if self.left < 0:
            raise Unsupported(f"the time was not enough for {what}")


@dataclass
class Outcome:
    """The outcome of a decision: values of variables on which elements differ, or why it is open, or neither."""

    found: Found | None = None
    reason: str = ""
    clauses: set[str] = field(default_factory=set)
    """Clauses that the equality rests on: GEN-13, where sums have another order."""


def decide(pairs: Sequence[Pair], deadline: Deadline, assumption: Term = TRUE) -> Outcome:
    """Decides whether the elements of all pairs are equal where an assumption holds."""
    outcome = Outcome()
    open_pairs: dict[Any, Pair] = {}
    for a, b in pairs:
        x, y = normal(a), normal(b)
        if x is y:
            continue
        if _is_reordered(a, b):
            outcome.clauses.add("GEN-13")
        else:
            open_pairs.setdefault(_shape_of(x, y, assumption), (x, y))
    for x, y in open_pairs.values():
        deadline.check("the comparison of all elements")
        decided = _decided(x, y, assumption, deadline)
        if decided.found is not None:
            return decided
        outcome.reason = outcome.reason or decided.reason
    return outcome


def _is_reordered(before: Term, after: Term) -> bool:
    """Whether one element has the sums of another, up to what is open (GEN-13).

    Each way to compute `after` must be one to compute `before`. Instructions of `after` may add in an order of their
    own, but the order of those of `before` counts.
    """
    for of_instructions in (False, True):
        if of_instructions and _adds_sums(normal(before, Sums(any_order=True))):
            return False
        forms = [
            Sums(any_order=True, of_instructions=of_instructions, from_zero=from_zero) for from_zero in (True, False)
        ]
        if {normal(after, form) for form in forms} <= {normal(before, form) for form in forms}:
            return True
    return False


def _adds_sums(root: Term) -> bool:
    """Whether an instruction adds to a sum, or a sum has one of an instruction among its terms."""
    for term in in_order([root]):
        op = term.op.op if isinstance(term.op, Combination) else term.op
        if isinstance(op, SUMS) and not term.type.is_integer:
            sums = (op,) if isinstance(term.op, Combination) else (op, Combination(op))
            if any(operand.op in sums for operand in term.operands):
                return True
    return False


def _shape_of(*roots: Term) -> Any:
    """Returns a key that is the same for formulas that differ in the names of their variables alone."""
    ordinals: dict[Term, int] = {}
    key: list[Any] = []
    for term in in_order(roots):
        ordinals[term] = len(ordinals)
        if term.known is not None:
            key.append((term.type, term.known))
        else:
            key.append((term.type, term.op, *(ordinals[operand] for operand in term.operands)))
    return (*key, *(ordinals[root] for root in roots))


def _decided(x: Term, y: Term, assumption: Term, deadline: Deadline) -> Outcome:
    roots = [x, y] if assumption is TRUE else [x, y, normal(assumption)]
    variables = variables_of(roots)
    bits = sum(_bits(variable.type) for variable in variables)
    is_known = not any(isinstance(term.op, Unknown) for term in in_order(roots))
    if is_known:
        found = _differing(roots, [samples(variables)])
        if found is not None:
            return Outcome(found)
    if equal_by_cases(x, y):
        return Outcome()
    if is_known and bits <= MAX_BITS:
        return Outcome(_differing(roots, all_values(variables, bits)))
    outcome = Outcome()
    for is_opaque in (True, False):
        outcome = _solved(roots, is_opaque, deadline)
        if outcome == Outcome():
            return outcome
    if is_known and outcome.found is not None and _differing(roots, [_arrays(variables, outcome.found)]) is None:
        outcome = Outcome(reason="the solver assumes values of functions that they do not have")
    if outcome.reason and is_known and bits <= MAX_BITS_OF_SOLVED and deadline.left > 0:
        return Outcome(_differing(roots, all_values(variables, bits), deadline))
    return outcome


def _bits(type: PrimitiveType) -> int:
    return 1 if type.is_pred else type.bits


def _solved(roots: Sequence[Term], is_opaque: bool, deadline: Deadline) -> Outcome:
    encoder = Encoder(is_opaque)
    solver = z3.Solver()
    solver.set("timeout", max(1, int(1000 * deadline.left)))
    solver.add(z3.simplify(encoder.differ(*roots[:2])), *(encoder.element(root).bits for root in roots[2:]))
    found = solver.check()
    if found == z3.unsat:
        return Outcome()
    if found == z3.unknown:
        return Outcome(reason=f"the solver stopped: {solver.reason_unknown()}")
    model = solver.model()
    return Outcome({term: _value(model, variable) for term, variable in encoder.variables.items()})


def _value(model: Any, variable: Any) -> int:
    value = model.eval(variable, model_completion=True)
    return int(z3.is_true(value)) if z3.is_bool(value) else int(value.as_long())


# Values of variables


def _differing(
    roots: Sequence[Term],
    given: Iterator[Mapping[Term, Array]] | Sequence[Mapping[Term, Array]],
    deadline: Deadline | None = None,
) -> Found | None:
    """Returns values of the variables for which two terms differ, if the third is true; None if they never do."""
    for arrays in given:
        if deadline is not None:
            deadline.check("trying all values")
        a, b, *rest = values(roots, arrays)
        differ = are_different(roots[0].type, a, b)
        for condition in rest:
            differ = differ & condition
        if differ.any():
            at = int(np.argmax(differ))
            return {term: to_codes(term.type, array[at : at + 1])[0] for term, array in arrays.items()}
    return None


def are_different(type: PrimitiveType, a: Array, b: Array) -> Array:
    """Returns where two vectors of elements differ in their bits, unless both are NaN."""
    if type.is_complex:
        return are_different(type.real, a.real, b.real) | are_different(type.real, a.imag, b.imag)
    if type.is_pred:
        return a != b
    raw = np.dtype(f"u{type.dtype.itemsize}")
    mask = raw.type((1 << type.bits) - 1)
    differ = (np.ascontiguousarray(a).view(raw) ^ np.ascontiguousarray(b).view(raw)) & mask != 0
    return differ & ~(np.isnan(a) & np.isnan(b)) if type.is_float and type.text != "f4e2m1fn" else differ


def _arrays(variables: Sequence[Term], found: Found) -> Mapping[Term, Array]:
    return {variable: from_codes(variable.type, [found.get(variable, 0)]) for variable in variables}


def all_values(variables: Sequence[Term], bits: int) -> Iterator[Mapping[Term, Array]]:
    """Yields all combinations of values of some variables, many at once."""
    for start in range(0, 1 << bits, 1 << min(bits, CHUNK_BITS)):
        codes = np.arange(start, start + (1 << min(bits, CHUNK_BITS)), dtype=np.uint64)
        found = {}
        for variable in variables:
            width = _bits(variable.type)
            found[variable] = from_codes(variable.type, codes & np.uint64((1 << width) - 1))
            codes = codes >> np.uint64(width)
        yield found


def samples(variables: Sequence[Term]) -> Mapping[Term, Array]:
    """Returns values of some variables: random bits, special values, and equal ones at some positions."""
    count: dict[PrimitiveType, int] = {}
    found = {}
    for variable in variables:
        number = count[variable.type] = count.get(variable.type, -1) + 1
        found[variable] = _sample(variable.type, number)
    return found


@functools.lru_cache(4096)
def _sample(type: PrimitiveType, number: int) -> Array:
    """Returns the values of the variable of a type with a number; some are those of the first one."""
    random = np.random.default_rng(number)
    bits = _bits(type)
    codes = random.integers(0, 1 << min(62, bits), SAMPLES).astype(object)
    if bits > 62:
        codes = codes | (random.integers(0, 1 << min(62, bits - 62), SAMPLES).astype(object) << 62)
    special = np.array(_special_codes(type), object)
    chosen = random.random(SAMPLES) < 0.7
    codes[chosen] = special[random.integers(0, len(special), int(chosen.sum()))]
    array = from_codes(type, list(codes)).copy()
    if number:
        same = random.random(SAMPLES) < 0.2
        array[same] = _sample(type, 0)[same]
    array.flags.writeable = False
    return array


def _special_codes(type: PrimitiveType) -> list[int]:
    """Returns the bits of values at which functions have their corners."""
    if type.is_pred:
        return [0, 1]
    if type.is_complex:
        parts = _special_codes(type.real)
        return [a | b << type.real.bits for a in parts for b in parts]
    if type.is_integer:
        mask = (1 << type.bits) - 1
        return [
            x & mask for x in (0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -3, 1 << (type.bits - 1), (1 << (type.bits - 1)) - 1)
        ]
    with np.errstate(all="ignore"):
        special = np.array(_SPECIAL, np.float64)
        limits = np.array([0, 1, -1, -2], np.int64) & ((1 << (type.bits - 1)) - 1)
        return [*to_codes(type, special.astype(type.dtype)), *(int(x) for x in limits)]


_SPECIAL = [0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2, -2, 2.5, -2.5, 3, 7, -7.25, 10, 0.1, -0.3, 100.7, np.inf, -np.inf,
            np.nan,            1e-40, -1e-40, 1e-30, 1e30, 3e38, -3e38, 65504, 300, 16777217, 2147483648, -2147483649,
            1e-3]  # fmt: skip


def can_hold(condition: Term, deadline: Deadline) -> bool:
    """Whether a condition holds for some values of its variables, as far as a second of the solver tells."""
    short = Deadline(min(1.0, deadline.left))
    return normal(condition) is not FALSE and decide([(condition, FALSE)], short) != Outcome()
