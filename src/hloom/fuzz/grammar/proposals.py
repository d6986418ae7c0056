"""Proposals: an instruction of a drawn operation, with operands from the body.

    @proposal(Transpose)
    def _transpose(body: Body, declaration: type[Operation]) -> Instruction: ...

`propose` takes the proposal of the nearest base class; that of `Operation` is derived from the declaration: the first
operand is any array of the declared kinds, the others are like it, and attributes are drawn by their kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hloom.errors import HloomError
from hloom.fuzz.grammar.attributes import draw_attributes
from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.draw import ARRAYS
from hloom.ir import Instruction
from hloom.ops.communication import Transfer
from hloom.ops.operation import Operation
from hloom.ops.traits import Communication
from hloom.types import Kind

Proposal = Callable[[Body, Any], Instruction]
Own = TypeVar("Own", bound=Proposal)

MAX_DEPTH = 3
"""The number of callers from which a computation calls none itself."""

WEIGHTS: dict[type[Operation], float] = {}
"""Operations that bodies get, with weights; `generate.py` fills it when all proposals are there."""
SCALAR_WEIGHTS: dict[type[Operation], float] = {}
"""Operations that bodies applied to elements get."""

PROPOSALS: dict[type[Operation], Proposal] = {}
PATTERNS: list[Callable[[Body], Instruction]] = []
"""Groups of operations that are drawn together."""
PATTERN_SHARE = 0.08
"""The share of patterns among the draws of bodies of arrays."""


def proposal(*declarations: type[Operation]) -> Callable[[Own], Own]:
    """Decorates the function that proposes instructions of some operations."""

    def add(function: Own) -> Own:
        PROPOSALS.update(dict.fromkeys(declarations, function))
        return function

    return add


def pattern(function: Callable[[Body], Instruction]) -> Callable[[Body], Instruction]:
    """Decorates a function that adds a group of operations."""
    PATTERNS.append(function)
    return function


def propose(body: Body, declaration: type[Operation]) -> Instruction:
    """Adds an instruction of an operation to the body. Raises RuleError if the operation refuses what was drawn."""
    found = next(PROPOSALS[base] for base in declaration.__mro__ if base in PROPOSALS)
    return found(body, declaration)


def grow(body: Body, steps: int) -> None:
    """Adds instructions of drawn operations to a body: up to `steps`, with those that their operands need."""
    weights = SCALAR_WEIGHTS if body.scalar else WEIGHTS
    if body.depth >= MAX_DEPTH:
        weights = {op: weight for op, weight in weights.items() if not op.calling_fields}
    if not body.uniform:
        weights = {op: weight for op, weight in weights.items() if not issubclass(op, (Communication, Transfer))}
    added = 0
    for _ in range(4 * steps):
        try:
            if not body.scalar and body.depth < MAX_DEPTH and body.draw.chance(PATTERN_SHARE):
                body.draw.pick(PATTERNS)(body)
            else:
                propose(body, body.draw.operation(weights))
            added += 1
        except HloomError:
            continue
        if added >= steps:
            return


def kinds_of(declaration: type[Operation]) -> frozenset[Kind]:
    """Returns the kinds of elements that an operation declares; all kinds of arrays if it declares none."""
    return getattr(declaration, "kinds", ARRAYS)


@proposal(Operation)
def _declared(body: Body, declaration: type[Operation]) -> Instruction:
    """Proposes by the declaration; a variadic operand gets one to three arrays."""
    names = [*declaration.operands]
    if not names:
        return body.add(declaration())
    first = body.array(declaration.opcode, kinds_of(declaration))
    operands = [first]
    for name in names[1:]:
        operands.append(body.want(first.shape) if name[0] != "*" else first)
    if names[0][0] == "*":
        operands += [body.want(first.shape) for _ in range(body.draw.below(3))]
    return body.add(declaration(**draw_attributes(body.draw, declaration, first.shape)), *operands)
