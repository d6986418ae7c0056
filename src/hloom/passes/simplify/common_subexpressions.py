"""cse: common subexpression elimination, of instructions and computations."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar, Generic, TypeVar

from hloom.ir import Computation, Instruction, Module
from hloom.passes.edit import (
    Edit,
    callees_first_of,
    calls,
    effectful_computations,
    has_control_edges,
    has_effect,
)
from hloom.system.records import record

T = TypeVar("T")


@record
class CommonSubexpressionElimination:
    """Merges equal computations, then equal instructions of each computation.

    Before: instructions with the same operation (attributes; constants by their bits), operands, shape with layout,
    sharding and frontend attributes; computations with the same instructions in the same order. After: the first of
    them is used instead of the others, which are removed. Instructions with effects, random numbers, tokens,
    asynchronous pairs, barriers and instructions with control edges are not merged.
    """

    name: ClassVar[str] = "cse"
    optional: ClassVar[bool] = True
    settles: ClassVar[bool] = True

    def run(self, module: Module) -> int:
        """Merges computations and instructions; returns the number of those removed."""
        changes = merge_computations(module)
        effectful = effectful_computations(module)
        return changes + sum(_merge_instructions(computation, effectful) for computation in module.computations)


def merge_computations(module: Module) -> int:
    """Redirects calls to the first of equal computations, and removes the others; returns the number removed."""
    firsts = _Firsts(_computation_key)
    merged: dict[Computation, Computation] = {}
    for computation in callees_first_of(module):
        if merged:
            for instruction in computation.instructions:
                if any(callee in merged for callee in calls(instruction.op)):
                    instruction.op = instruction.op.with_computations(lambda callee: merged.get(callee, callee))
        if computation is module.entry_computation:
            continue
        same = firsts.find(tuple([i.op.opcode for i in computation.instructions]), computation)
        if same is not computation:
            merged[computation] = same
    if merged:
        module.computations = [computation for computation in module.computations if computation not in merged]
    return len(merged)


def _computation_key(computation: Computation) -> Hashable:
    """Returns a key that is equal for computations whose instructions differ at most in names and metadata."""
    index = {instruction: k for k, instruction in enumerate(computation.instructions)}
    instructions = tuple(
        (
            *_key(instruction),
            tuple(index[operand] for operand in instruction.operands),
            tuple(index[before] for before in instruction.control_predecessors),
        )
        for instruction in computation.instructions
    )
    return computation.execution_thread, index[computation.root], instructions


def _key(instruction: Instruction) -> tuple[Hashable, ...]:
    """Returns a key of everything but the operands that must be equal: operation, shape, sharding, attributes."""
    if instruction.sharding is None and not instruction.frontend_attributes and not instruction.backend_config:
        return instruction.op, instruction.shape
    attributes = tuple(sorted(instruction.frontend_attributes.items()))
    return instruction.op, instruction.shape, instruction.sharding, attributes, instruction.backend_config


def _merge_instructions(computation: Computation, effectful: set[Computation]) -> int:
    edit = Edit(computation)
    firsts = _Firsts[Instruction](lambda instruction: _instruction_key(instruction, effectful))
    for instruction in computation.instructions:
        same = firsts.find((instruction.op.opcode, *instruction.operands), instruction)
        if same is not instruction:
            instruction.replace_all_uses_with(same)
            edit.remove(instruction)
    edit.finish()
    return len(edit.removed)


def _instruction_key(instruction: Instruction, effectful: set[Computation]) -> Hashable:
    """Returns a key that is equal for instructions that may be merged."""
    if (
        instruction.op.is_pinned
        or instruction.shape.is_token
        or has_control_edges(instruction)
        or has_effect(instruction, effectful)
    ):
        return instruction
    return (*_key(instruction), *instruction.operands)


class _Firsts(Generic[T]):
    """The first of equal things; a key is made only of things whose outline, such as an opcode, is not theirs alone."""

    def __init__(self, key: Callable[[T], Hashable]) -> None:
        self._key = key
        self._alone: dict[Hashable, T | None] = {}
        """The only thing with each outline; None if there are several."""
        self._firsts: dict[Hashable, T] = {}

    def find(self, outline: Hashable, thing: T) -> T:
        """Returns the first thing with the key of this one; things with equal keys have equal outlines."""
        other = self._alone.setdefault(outline, thing)
        if other is thing:
            return thing
        if other is not None:
            self._firsts[self._key(other)] = other
            self._alone[outline] = None
        return self._firsts.setdefault(self._key(thing), thing)
