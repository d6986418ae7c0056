"""Decides whether two modules have the same results for all arguments."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from hloom.comparison import Tolerance
from hloom.errors import ArgumentError, HloomError
from hloom.faults.case import Case, interpret
from hloom.files.arrays import flat
from hloom.ir import Module
from hloom.ops import elementwise_unary as unary
from hloom.ops.batch_norm import BatchNorm
from hloom.ops.convolution import Convolution
from hloom.ops.dot import DotDimensions
from hloom.ops.rules import listed
from hloom.ops.traits import Reduction
from hloom.prove.meanings.evaluator import Evaluator, OpenSize, Refused, Symbol, arrays_of
from hloom.prove.solver.decide import Deadline, Found, Outcome, Pair, are_different, decide
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.functions import apply, both, is_equal
from hloom.prove.terms.term import Term, Unsupported, array_of, constant, variable
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import BY_DTYPE
from hloom.values import TOKEN_VALUE, Array, Token, Value

RANDOM_CASES = 8
"""Random cases that are tried where a counterexample differs by rounding."""
MAX_ELEMENTS = 4096
"""Elements of all parameters, up to which modules are evaluated."""

MAX_CASES = 256
"""Combinations of sizes that are distinguished."""


@record
class Proved:
    """The results are equal for all arguments; all NaNs are equal, zeros of both signs are not.

    `clauses` of the specification are those that let results differ in a way that the proof leaves out: GEN-13, where
    sums have another order.
    """

    clauses: tuple[str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    """Sizes of dimensions with the smaller ones that the proof is for, if it is not for the modules as they are."""


@record
class Refuted:
    """The results differ on some arguments: the interpreter's results for them are `before` and `after`."""

    arguments: tuple[Value, ...]
    before: Value
    after: Value
    difference: str


@record
class Undecided:
    """Neither a proof nor a counterexample was found, for a reason."""

    reason: str


Verdict = Proved | Refuted | Undecided


def prove(before: Module, after: Module, seconds: float = 60.0) -> Verdict:
    """Decides whether two modules have equal results for all arguments, within `seconds`.

    Raises ArgumentError if parameters or results have different shapes.
    """
    shapes = before.entry.parameter_shapes
    _check_interfaces(before, after)
    if any(module.replica_count * module.num_partitions > 1 for module in (before, after)):
        return Undecided("the modules run on several devices: proofs are about one, or about partitions of a whole")
    if sum(leaf.element_count for shape in shapes for leaf in shape.leaves() if leaf.is_array) > MAX_ELEMENTS:
        return Undecided(f"the parameters have more than {MAX_ELEMENTS} elements: prove it for smaller sizes")
    deadline, outcome = Deadline(seconds), Outcome()
    try:
        for case in _cases(before, after, deadline):
            decided = decide(case.pairs, deadline, case.assumption)
            if decided.found is not None:
                given = [values_in(a, s, decided.found) for a, s in zip(case.arguments, shapes, strict=True)]
                return _confirmed(before, after, given)
            outcome = Outcome(None, outcome.reason or decided.reason, outcome.clauses | decided.clauses)
    except Unsupported as error:
        return Undecided(str(error))
    return Undecided(outcome.reason) if outcome.reason else Proved(tuple(sorted(outcome.clauses)))


@record
class _Case:
    """Elements that are to be equal, for arguments of known sizes, where `assumption` holds."""

    arguments: Sequence[Symbol]
    pairs: list[Pair]
    assumption: Term


def _cases(before: Module, after: Module, deadline: Deadline) -> Iterator[_Case]:
    """Yields a case for each value of the unknown sizes; those with which `before` does not run are left out.

    Raises Unsupported for too many cases.
    """
    waiting: list[tuple[Sequence[Symbol], dict[Term, int]]] = [
        (a, {}) for a in _arguments(before.entry.parameter_shapes)
    ]
    for _ in range(MAX_CASES):
        if not waiting:
            return
        arguments, sizes = waiting.pop()
        try:
            result = _outputs(before, arguments, sizes, deadline)
            pairs = _pairs(result, _outputs(after, arguments, sizes, deadline))
        except OpenSize as size:
            for value in range(size.bound + 1):
                known = constant(size.term.type, value)
                if size.term.is_variable:
                    waiting.append(([_replaced(a, size.term, known) for a in arguments], sizes))
                else:
                    waiting.append((arguments, {**sizes, size.term: value}))
        except Refused:
            _outputs_are_refused(before, arguments, sizes, deadline)
        else:
            assumed = (is_equal(term, constant(term.type, value)) for term, value in sizes.items())
            yield _Case(arguments, pairs, both([*assumed]))
    raise Unsupported(f"more than {MAX_CASES} combinations of sizes that depend on the arguments")


def _outputs_are_refused(
    before: Module, arguments: Sequence[Symbol], sizes: dict[Term, int], deadline: Deadline
) -> None:
    """Returns if a module does not run. Raises Unsupported otherwise: then it is the other one that does not."""
    try:
        _outputs(before, arguments, sizes, deadline)
    except Refused:
        return
    raise Unsupported("sizes with which only the first module runs")


def _arguments(shapes: Sequence[Shape]) -> Iterator[list[Symbol]]:
    """Yields the arguments for each combination of the sizes of dynamic parameters."""
    dynamic = [
        (k, d)
        for k, shape in enumerate(shapes)
        if shape.is_array
        for d, is_dynamic in enumerate(shape.dynamic_dimensions)
        if is_dynamic
    ]
    whole = [variables(shape.static() if shape.is_array else shape, f"p{k}") for k, shape in enumerate(shapes)]
    for sizes in itertools.product(*(range(shapes[k].dimensions[d] + 1) for k, d in dynamic)):
        arguments = list(whole)
        for (k, d), size in zip(dynamic, sizes, strict=True):
            arguments[k] = np.take(arguments[k], range(size), axis=d)
        yield arguments


def _replaced(symbol: Symbol, old: Term, new: Term) -> Symbol:
    if isinstance(symbol, tuple):
        return tuple(_replaced(element, old, new) for element in symbol)
    if isinstance(symbol, Token):
        return symbol
    return array_of([new if x is old else x for x in symbol.reshape(-1)], symbol.shape)


def _outputs(
    module: Module, arguments: Sequence[Symbol], sizes: dict[Term, int], deadline: Deadline
) -> tuple[Symbol, list[tuple[str, Symbol]]]:
    """Returns the result of a module and its effects."""
    evaluator = Evaluator(deadline, sizes)
    return evaluator.run(module.entry, arguments), evaluator.effects


def _pairs(
    before: tuple[Symbol, list[tuple[str, Symbol]]], after: tuple[Symbol, list[tuple[str, Symbol]]]
) -> list[Pair]:
    """Returns the elements of results and effects that must be equal, complex ones part by part."""
    kinds = [[kind for kind, _ in effects] for _, effects in (before, after)]
    if kinds[0] != kinds[1]:
        raise Unsupported(f"the effects of the modules differ: {kinds[0]} and {kinds[1]}")
    sides = [arrays_of((result, *(value for _, value in effects))) for result, effects in (before, after)]
    pairs: list[Pair] = []
    for x, y in zip(*sides, strict=True):
        if x.shape != y.shape:
            raise Unsupported(f"the results have different actual sizes: {list(x.shape)} and {list(y.shape)}")
        for a, b in zip(x.reshape(-1), y.reshape(-1), strict=True):
            pairs += parts_of(a, b)
    return pairs


def parts_of(a: Term, b: Term) -> list[Pair]:
    """Returns the elements that must be equal if two are: themselves, or the parts of complex ones."""
    if not a.type.is_complex:
        return [(a, b)]
    return [(apply(op, a.type.real, (a,)), apply(op, a.type.real, (b,))) for op in (unary.Real(), unary.Imag())]


def _check_interfaces(before: Module, after: Module) -> None:
    sides = [(module.entry.parameter_shapes, module.entry.result_shape) for module in (before, after)]
    for kind, a, b in (
        ("parameters", [*sides[0][0]], [*sides[1][0]]),
        ("results", [sides[0][1]], [sides[1][1]]),
    ):
        if len(a) != len(b) or not all(x.compatible(y) for x, y in zip(a, b, strict=True)):
            raise ArgumentError(f"the modules have different {kind}: {listed(a)} and {listed(b)}")


def variables(shape: Shape, name: str) -> Symbol:
    """Returns unknown elements of a parameter. Raises Unsupported for dynamic sizes."""
    if shape.is_tuple:
        return tuple(variables(element, f"{name}.{k}") for k, element in enumerate(shape.elements))
    if shape.is_token:
        return TOKEN_VALUE
    if not shape.is_array or not shape.is_static:
        raise Unsupported(f"parameters {shape}")
    terms = [variable(shape.element_type, f"{name}[{k}]") for k in range(shape.element_count)]
    return array_of(terms, shape.dimensions)


def values_in(symbol: Symbol, shape: Shape, found: Found) -> Value:
    """Returns the value of a parameter, with zeros where it does not matter."""
    if shape.is_tuple:
        return tuple(values_in(s, element, found) for s, element in zip(symbol, shape.elements, strict=True))
    if not shape.is_array:
        return TOKEN_VALUE
    codes = [found.get(term, 0) if term.known is None else term.known for term in symbol.reshape(-1)]
    return from_codes(shape.element_type, codes).reshape(symbol.shape)


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
    differs = are_different(BY_DTYPE[before.dtype], one, other)
    if not differs.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(differs)[0])
    return f"differs at {list(at[: before.ndim])}: {other[at]}, before {one[at]}"


def sums_floats(module: Module) -> bool:
    """Whether a module has sums or other reductions of floats, or products of matrices."""
    reductions = [
        i for i in module.instructions() if isinstance(i.op, (Reduction, DotDimensions, Convolution, BatchNorm))
    ]
    return any(leaf.element_type.is_float for i in reductions for leaf in i.shape.leaves())
