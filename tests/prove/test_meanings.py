"""Meanings: random modules of all operations, evaluated on constants as terms, have the interpreter's results."""

from __future__ import annotations

import os

import numpy as np
import pytest

from hloom.faults.case import Case
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.reference import Reference
from hloom.ir import Computation
from hloom.ops.communication import Outfeed
from hloom.prove.equivalence import variables
from hloom.prove.meanings.evaluator import Evaluator, Symbol
from hloom.prove.meanings.structure import symbol_of
from hloom.prove.solver.decide import Deadline
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.concrete import values as values_of
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term, Unsupported
from hloom.shape import Shape
from hloom.values import Token, Value

CASES = int(os.environ.get("HLOOM_CASES", "2000"))
SECONDS = 1.0


def value_of(symbol: Symbol, shape: Shape, given: dict[Term, np.ndarray]) -> Value:
    """The value of terms, for values of their variables. Raises Unsupported for unknown functions."""
    if isinstance(symbol, tuple):
        return tuple(value_of(s, element, given) for s, element in zip(symbol, shape.elements, strict=True))
    if isinstance(symbol, Token):
        return symbol
    terms = list(symbol.reshape(-1))
    found = [x[:1] for x in values_of(terms, given)] if terms else []
    return np.concatenate([from_codes(shape.element_type, []), *found]).reshape(symbol.shape)


def flat_terms(symbol: Symbol) -> list[Term]:
    if isinstance(symbol, tuple):
        return [x for part in symbol for x in flat_terms(part)]
    return [] if isinstance(symbol, Token) else list(symbol.reshape(-1))


def normalised(symbol: Symbol) -> Symbol:
    if isinstance(symbol, tuple):
        return tuple(map(normalised, symbol))
    if isinstance(symbol, Token):
        return symbol
    result = np.empty(symbol.shape, object)
    result.reshape(-1)[:] = [normal(x) for x in symbol.reshape(-1)]
    return result


def shape_of_results(entry: Computation) -> Shape:
    """The shapes of the result and of what is outfed."""
    outfed = [i.operands[0].shape for i in entry.instructions if isinstance(i.op, Outfeed)]
    return Shape.tuple_of([entry.result_shape, *outfed])


def check(case: Case, with_variables: bool) -> str:
    """Compares the meaning of a case with the interpreter; returns why it cannot, "" if it does."""
    if case.module.replica_count * case.module.num_partitions > 1:
        return "several devices"
    shapes = case.module.entry.parameter_shapes
    assert case.arguments is not None
    known = [symbol_of(v, s) for v, s in zip(case.arguments, shapes, strict=True)]
    try:
        arguments = [variables(shape, f"p{k}") for k, shape in enumerate(shapes)] if with_variables else known
        evaluator = Evaluator(Deadline(SECONDS))
        result = evaluator.run(case.module.entry, arguments)
        outfed = [symbol for kind, symbol in evaluator.effects if kind == "outfeed"]
        symbols = normalised((result, *outfed)) if with_variables else (result, *outfed)
        given = {
            x: from_codes(x.type, [y.known or 0])
            for x, y in zip(flat_terms(tuple(arguments)), flat_terms(tuple(known)), strict=True)
            if x.is_variable
        }
        got = value_of(symbols, shape_of_results(case.module.entry), given)
    except Unsupported as error:
        return str(error)
    difference = Reference(case).difference(got)
    assert difference is None, f"{difference}\n{case.module.to_text()}"
    return ""


@pytest.mark.parametrize("with_variables", [False, True], ids=["constants", "variables"])
def test_random_modules_have_the_results_of_the_interpreter(with_variables: bool) -> None:
    for seed in range(2):
        check(draw_case(seed), with_variables)


@pytest.mark.long
@pytest.mark.parametrize("with_variables", [False, True], ids=["constants", "variables"])
def test_more_random_modules_have_the_results_of_the_interpreter(with_variables: bool) -> None:
    for seed in range(2, 2 + CASES // 4):
        check(draw_case(seed), with_variables)
