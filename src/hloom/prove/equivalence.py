"""Decides whether two modules have the same results for all arguments."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import z3

from hloom.errors import ArgumentError, HloomError
from hloom.faults.bisect import Tolerance
from hloom.faults.case import Case, interpret
from hloom.files.arrays import flat
from hloom.ir import Module
from hloom.numerics import bits_of
from hloom.ops.dot import Dot
from hloom.ops.traits import Reduction
from hloom.prove.cases import is_false_in_all_cases
from hloom.prove.evaluate import Evaluator, Symbol
from hloom.prove.functions import Apply, apply, apply_opaque
from hloom.prove.terms import Term, Unsupported, array_of, same, variable
from hloom.shape import Shape
from hloom.types import BY_DTYPE
from hloom.values import Array, Value

QUICK_SECONDS = 0.5
"""Time after which the solver gives way to an attempt by cases."""
RANDOM_CASES = 8
"""Random cases that are tried where a counterexample differs by rounding."""
MAX_ELEMENTS = 4096
"""Elements of all parameters, up to which modules are evaluated."""


@dataclass(frozen=True)
class Proved:
    """The results are equal for all arguments; all NaNs are equal, zeros of both signs are not."""

    any_order: bool = False
    """Whether sums or products of floats are taken in another order, as reductions may (GEN-13)."""


@dataclass(frozen=True)
class Refuted:
    """The results differ on some arguments: the interpreter's results for them are `before` and `after`."""

    arguments: tuple[Value, ...]
    before: Value
    after: Value
    difference: str


@dataclass(frozen=True)
class Undecided:
    """Neither a proof nor a counterexample was found, for a reason."""

    reason: str


Equal = Callable[[Term, Term], Any]
Pairs = Sequence[tuple[Term, Term]]
"""Elements that are to be equal."""
Verdict = Proved | Refuted | Undecided


def prove(before: Module, after: Module, seconds: float = 60.0) -> Verdict:
    """Decides whether two modules have equal results for all arguments, within `seconds` of the solver.

    Raises ArgumentError if parameters or results have different shapes.
    """
    shapes = before.entry.parameter_shapes
    _check_interfaces(before, after)
    if sum(leaf.element_count for shape in shapes for leaf in shape.leaves() if leaf.is_array) > MAX_ELEMENTS:
        return Undecided(f"the parameters have more than {MAX_ELEMENTS} elements: prove it for smaller sizes")
    try:
        arguments = [variables(shape, f"p{k}") for k, shape in enumerate(shapes)]
        found = decided(_pairs(before, after, arguments, apply_opaque), same_bits, seconds)
        if found is not None:
            found = decided(_pairs(before, after, arguments, apply), same, seconds)
    except Unsupported as error:
        return Undecided(str(error))
    if found is None:
        return Proved()
    if isinstance(found, str):
        return Undecided(f"the solver stopped: {found}")
    return _confirmed(before, after, [values_in(a, shape, found) for a, shape in zip(arguments, shapes, strict=True)])


def _pairs(before: Module, after: Module, arguments: Sequence[Symbol], meaning: Apply) -> Pairs:
    sides = [leaves(Evaluator(meaning).run(module.entry, arguments)) for module in (before, after)]
    return [pair for x, y in zip(*sides, strict=True) for pair in zip(x.reshape(-1), y.reshape(-1), strict=True)]


def decided(pairs: Pairs, equal: Equal, seconds: float) -> z3.ModelRef | str | None:
    """Decides whether elements that are to be equal can differ; those whose difference is one formula only once.

    Returns a model in which they do, or the solver's reason to stop; None if they are equal.
    """
    formulas: dict[Any, Any] = {}  # terms are equal as keys if they are one term
    for a, b in pairs:
        formula = z3.simplify(z3.Not(equal(a, b)))
        formulas.setdefault(_Key(_renamed(formula)), formula)
    stopped: str | None = None
    end = time.monotonic() + seconds
    for formula in formulas.values():
        solver = z3.Solver()
        solver.add(formula)
        found = _checked(solver, min(QUICK_SECONDS, end - time.monotonic()))
        if found == z3.unknown and not is_false_in_all_cases(formula):
            found = _checked(solver, end - time.monotonic())
            stopped = stopped or (solver.reason_unknown() if found == z3.unknown else None)
        if found == z3.sat:
            return solver.model()
    return stopped


def _checked(solver: z3.Solver, seconds: float) -> z3.CheckSatResult:
    solver.set("timeout", max(1, int(1000 * seconds)))
    return solver.check()


@dataclass(frozen=True)
class _Key:
    """A term as a key of a dictionary: the equality of terms of z3 is a term."""

    term: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and bool(self.term.eq(other.term))

    def __hash__(self) -> int:
        return int(self.term.hash())


def _renamed(formula: Any) -> Any:
    """Returns a formula with its variables renamed in the order of their occurrence."""
    order: dict[int, Any] = {}
    stack, seen = [formula], set[int]()
    while stack:
        term = stack.pop()
        if term.get_id() in seen:
            continue
        seen.add(term.get_id())
        if z3.is_const(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED:
            order.setdefault(term.get_id(), term)
        stack += reversed(term.children())
    names = [(term, z3.Const(f"v{k}", term.sort())) for k, term in enumerate(order.values())]
    return z3.substitute(formula, *names) if names else formula


def same_bits(a: Term, b: Term) -> Any:
    """Returns a z3 boolean: whether the bits of two elements are equal."""
    return a.bits == b.bits


def _check_interfaces(before: Module, after: Module) -> None:
    sides = [(module.entry.parameter_shapes, module.entry.result_shape) for module in (before, after)]
    for kind, a, b in (
        ("parameters", [*sides[0][0]], [*sides[1][0]]),
        ("results", [sides[0][1]], [sides[1][1]]),
    ):
        if len(a) != len(b) or not all(x.compatible(y) for x, y in zip(a, b, strict=True)):
            raise ArgumentError(f"the modules have different {kind}: ({_listed(a)}) and ({_listed(b)})")


def _listed(shapes: Sequence[Shape]) -> str:
    return ", ".join(map(str, shapes))


def variables(shape: Shape, name: str) -> Symbol:
    """Returns the symbol of a parameter."""
    if shape.is_tuple:
        return tuple(variables(element, f"{name}.{k}") for k, element in enumerate(shape.elements))
    if not shape.is_array or not shape.is_static:
        raise Unsupported(f"parameters {shape}")
    terms = [variable(shape.element_type, f"{name}[{k}]") for k in range(shape.element_count)]
    return array_of(terms, shape.dimensions)


def leaves(value: Symbol) -> Iterator[Array]:
    """Yields the arrays of a symbol."""
    if isinstance(value, tuple):
        for element in value:
            yield from leaves(element)
    else:
        yield value


def values_in(symbol: Symbol, shape: Shape, model: Any) -> Value:
    """Returns the value of a parameter in a model of the solver."""
    if shape.is_tuple:
        return tuple(values_in(s, element, model) for s, element in zip(symbol, shape.elements, strict=True))
    dtype = shape.element_type.dtype
    bits = [_bits(term, model) for term in symbol.reshape(-1)]
    if shape.element_type.is_pred:
        return np.array(bits, bool).reshape(shape.dimensions)
    return np.array(bits, f"u{dtype.itemsize}").view(dtype).reshape(shape.dimensions)


def _bits(term: Term, model: Any) -> int:
    value = model.eval(term.bits, model_completion=True)
    if term.type.is_pred:
        return int(z3.is_true(value))
    bits = int(value.as_long())
    is_narrow_signed = term.type.is_signed and term.type.bits < 8
    return (bits | 0x100 - (1 << term.type.bits)) if is_narrow_signed and bits >> (term.type.bits - 1) else bits


def _confirmed(before: Module, after: Module, arguments: list[Value]) -> Verdict:
    """Runs both modules on a counterexample of the solver, in which functions have the values that it assumes.

    Where the modules sum floats, results that differ by rounding prove nothing: sums may be computed in any order
    (GEN-13). Random arguments may show a larger difference.
    """
    try:
        refuted = _refuted(before, after, arguments)
    except HloomError as error:
        return Undecided(f"the solver's counterexample does not run: {error}")
    if refuted is None:
        return Undecided("the solver's counterexample is none: it assumes values of functions that they do not have")
    if not any(map(sums_floats, (before, after))):
        return refuted
    for case in (Case(before, tuple(arguments)), *(Case.random(before, seed) for seed in range(RANDOM_CASES))):
        assert case.arguments is not None
        refuted = _refuted(before, after, case.arguments)
        if refuted is not None and Tolerance().difference(refuted.after, refuted.before) is not None:
            return refuted
    return Undecided("the results differ by no more than the rounding of sums, whose order is open")


def _refuted(before: Module, after: Module, arguments: Sequence[Value]) -> Refuted | None:
    results = [interpret(module, arguments) for module in (before, after)]
    text = difference(results[0], results[1])
    return Refuted(tuple(arguments), results[0], results[1], text) if text else None


def difference(before: Value, after: Value) -> str:
    """Describes the first elements of two values that differ in their bits, unless both are NaN; "" without any."""
    differences = [_difference(a, b) for a, b in zip(flat(before), flat(after), strict=True)]
    first = next((f"element {k} {text}" for k, text in enumerate(differences) if text), "")
    return first if len(differences) > 1 else differences[0]


def _difference(before: Array, after: Array) -> str:
    """Describes the first elements of two arrays that differ in their bits, unless both are NaN; "" without any."""
    one, other = np.atleast_1d(before), np.atleast_1d(after)
    differs = _differs(one, other)
    if not differs.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"differs at {list(at[: before.ndim])}: {other[at]}, before {one[at]}"


def _differs(before: Array, after: Array) -> Array:
    if BY_DTYPE[before.dtype].is_complex:
        differs: Array = _differs(before.real, after.real) | _differs(before.imag, after.imag)
        return differs
    differs = bits_of(before) != bits_of(after)
    if BY_DTYPE[before.dtype].is_float:
        differs &= ~(np.isnan(before.astype(np.float64)) & np.isnan(after.astype(np.float64)))
    return differs


def sums_floats(module: Module) -> bool:
    """Whether a module has sums or other reductions of floats, or products of matrices."""
    reductions = [i for i in module.instructions() if isinstance(i.op, (Reduction, Dot))]
    return any(leaf.element_type.is_float for i in reductions for leaf in i.shape.leaves())
