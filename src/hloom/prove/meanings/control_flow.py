"""Calls, choices and loops. Loops are unrolled; a choice between results is made for each element."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir import Instruction
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call, Conditional, Fusion, While
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.structure import symbol_of
from hloom.prove.solver.decide import can_hold
from hloom.prove.terms.functions import FALSE, TRUE, both, choose, is_equal
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term, Unsupported, array_of, constant
from hloom.values import Token, zeros

MAX_ITERATIONS = 64
"""Iterations of a loop that are unrolled."""


@RULES.rule(Call)
def _call(op: Call, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return evaluator.run(op.computation, operands)


@RULES.rule(Fusion)
def _fusion(op: Fusion, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return evaluator.run(op.calls, operands)


@RULES.rule(AsyncStart)
def _async_start(op: AsyncStart, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    contexts = (symbol_of(zeros(shape), shape) for shape in instruction.shape.elements[2:])
    return (tuple(operands), evaluator.run(op.calls, operands), *contexts)


@RULES.rule(AsyncUpdate)
def _async_update(
    op: AsyncUpdate, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    return operands[0]


@RULES.rule(AsyncDone)
def _async_done(op: AsyncDone, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return operands[0][1]


@RULES.rule(Conditional)
def _conditional(op: Conditional, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Runs all branches that may be chosen; an index out of range chooses the last one (CONDITIONAL-4)."""
    index: Term = normal(operands[0][()])
    last = len(op.branch_computations) - 1
    conditions = [index] if index.type.is_pred else [is_equal(index, constant(index.type, k)) for k in range(last)]
    if TRUE in conditions:
        k = conditions.index(TRUE)
        return evaluator.run(op.branch_computations[k], [operands[k + 1]])
    effects = len(evaluator.effects), dict(evaluator.sources)
    value = evaluator.run(op.branch_computations[last], [operands[last + 1]])
    for k, condition in enumerate(conditions):
        if condition is not FALSE:
            value = chosen(condition, evaluator.run(op.branch_computations[k], [operands[k + 1]]), value)
    if effects != (len(evaluator.effects), evaluator.sources) and set(conditions) != {FALSE}:
        raise Unsupported("effects in branches that depend on the arguments")
    return value


def branch_result(index: Term, results: Sequence[Symbol]) -> Symbol:
    """Returns the result of the branch that a conditional takes for an index (CONDITIONAL-4)."""
    value = results[-1]
    for k, result in enumerate(results[:-1]):
        condition = index if index.type.is_pred else is_equal(index, constant(index.type, k))
        value = chosen(condition, result, value)
    return value


def chosen(condition: Term, then: Symbol, otherwise: Symbol) -> Symbol:
    """Chooses between two values, element by element. Raises Unsupported if their sizes differ."""
    if isinstance(then, tuple):
        return tuple(chosen(condition, a, b) for a, b in zip(then, otherwise, strict=True))
    if isinstance(then, Token):
        return then
    if then.shape != otherwise.shape:
        raise Unsupported("a choice between arrays of different actual sizes")
    pairs = zip(then.reshape(-1), otherwise.reshape(-1), strict=True)
    return array_of([choose(condition, a, b) for a, b in pairs], then.shape)


@RULES.rule(While)
def _while(op: While, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Unrolls the loop as long as another iteration is possible; later iterations change what still runs."""
    (value,) = operands
    runs = TRUE
    for _ in range(MAX_ITERATIONS + 1):
        runs = normal(both([runs, evaluator.run(op.condition, [value])[()]]))
        if runs is FALSE or (runs is not TRUE and not can_hold(runs, evaluator.deadline)):
            return value
        effects = len(evaluator.effects), dict(evaluator.sources)
        value = chosen(runs, evaluator.run(op.body, [value]), value)
        if runs is not TRUE and effects != (len(evaluator.effects), evaluator.sources):
            raise Unsupported("effects in a loop whose number of iterations depends on the arguments")
    known = "" if runs is TRUE else ", for some arguments"
    raise Unsupported(f"a loop of more than {MAX_ITERATIONS} iterations{known}")
