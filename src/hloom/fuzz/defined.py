"""Conditions on cases that the verifier does not check, without which a result is not defined.

A reduction combines in any order, and how often an initial value enters is open (REDUCE-3, -4), so that its combiner
has to be associative, with the initial value as its identity; a sort needs a comparator that orders (SORT-4). The
grammar makes only those. A reduction of a case must not lose them.
"""

from __future__ import annotations

from hloom.faults.case import Case
from hloom.files.arrays import flat
from hloom.ir import Instruction
from hloom.literal import Literal
from hloom.ops.collectives import AllReduce, ReduceScatter
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.ops.sort import Sort
from hloom.ops.structure import Constant, Parameter
from hloom.text import print_computation

Condition = tuple[str, tuple[bytes, ...]]
"""The text of a computation, and the bits of the initial values."""


def conditions(case: Case) -> set[Condition]:
    """Returns the computations on whose properties the result depends, with their initial values."""
    found: set[Condition] = set()
    for instruction in case.module.instructions():
        op = instruction.op
        if isinstance(op, (Reduce, ReduceWindow, SelectAndScatter, AllReduce, ReduceScatter, Sort)):
            initial = tuple(_bits(case, operand) for operand in _initial_values(instruction))
            found.update((print_computation(computation), initial) for computation in op.computations)
    return found


def _initial_values(instruction: Instruction) -> list[Instruction]:
    if isinstance(instruction.op, SelectAndScatter):
        return instruction.operands[2:]
    if isinstance(instruction.op, (Reduce, ReduceWindow)):
        return instruction.operands[len(instruction.operands) // 2 :]
    return []


def _bits(case: Case, value: Instruction) -> bytes:
    if isinstance(value.op, Constant):
        return value.op.literal.bits()
    if isinstance(value.op, Parameter) and value.parent is case.module.entry and case.arguments is not None:
        return Literal.from_numpy(flat(case.arguments[value.op.number])[0]).bits()
    return b"unknown"
