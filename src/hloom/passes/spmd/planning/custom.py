"""Partitions custom calls by functions that are registered for their targets.

- A *partitioner* builds the program of one partition for a call. Shardings propagate through the call by Shardy's rule,
  an attribute:

      xla.sdy.sharding_rule="#sdy.op_sharding_rule<([i, j], [j, k])->([i, k]) {i=8, j=8, k=4} reduction={j}, custom>"

  Each dimension has factors. Factors of the same letter are sharded alike, and only the first factor of a dimension is
  sharded.
- A *local* call runs on every partition, on the blocks that it holds, and returns nothing but tokens.
- An *inspector* is called with the sharding of the operand, which the call returns unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module, flatten
from hloom.ops.custom_call import CustomCall
from hloom.ops.rules import listed
from hloom.passes.spmd.planning.rules import Label, Labels, Rule
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.system.records import record


@record
class PartitionedCall:
    """The program that one partition runs for a custom call.

    Its entry takes blocks of the operands and returns a tuple of blocks of the results; `operands` and `results` are
    the shardings of each.
    """

    module: Module
    operands: list[Sharding]
    results: list[Sharding]


Partitioner = Callable[[Instruction, list[Sharding], list[Sharding]], PartitionedCall]
"""Function of a call, the shardings of its operands and those wanted for its results; it may choose others."""

Inspector = Callable[[Instruction, Sharding], None]

_PARTITIONERS: dict[str, Partitioner] = {}
_INSPECTORS: dict[str, Inspector] = {}
_LOCAL: set[str] = set()


def register_partitioner(target: str, partitioner: Partitioner) -> None:
    """Registers the function that partitions calls of a target."""
    _PARTITIONERS[target] = partitioner


def register_inspector(target: str, inspector: Inspector) -> None:
    """Registers a function that is called with the sharding of the operand of each call of a target."""
    _INSPECTORS[target] = inspector


def register_local(target: str) -> None:
    """Declares that calls of a target run on the blocks of every partition."""
    _LOCAL.add(target)


def _target(instruction: Instruction) -> str:
    return instruction.op.target_name if isinstance(instruction.op, CustomCall) else ""


def partitioner_of(instruction: Instruction) -> Partitioner | None:
    """The partitioner of a call's target; None if none is registered."""
    return _PARTITIONERS.get(_target(instruction))


def inspector_of(instruction: Instruction) -> Inspector | None:
    """The inspector of a call's target; None if none is registered."""
    return _INSPECTORS.get(_target(instruction))


def is_local(instruction: Instruction) -> bool:
    """Whether calls of this target run on the blocks of every partition."""
    return _target(instruction) in _LOCAL


_SIDES = re.compile(r"<\((.*?)\)\s*->\s*\((.*?)\)")
_ARRAY = re.compile(r"\[(.*?)\]")
_FACTOR = re.compile(r"[a-z](?:_\d+)?")
_FIXED = re.compile(r"(?:need_replication|permutation)=\{(.*?)\}")


def sharding_rule(instruction: Instruction) -> Rule:
    """Reads the rule of a call from its attribute; without the attribute no dimension has a label."""
    operands, results = flatten(instruction.operand_shapes), [*instruction.shape.leaves()]
    text = instruction.frontend_attributes.get("xla.sdy.sharding_rule")
    if text is None:
        return Rule(_unlabelled(operands), _unlabelled(results))
    sides = _SIDES.search(text)
    fixed = {factor for names in _FIXED.findall(text) for factor in _FACTOR.findall(names)}
    left, right = (_labels(side, fixed) for side in sides.groups()) if sides else ((), ())
    if [*map(len, left)] != [s.rank for s in operands] or [*map(len, right)] != [s.rank for s in results]:
        raise ArgumentError(
            f"a sharding rule has the factors of each dimension of {listed(operands)} -> {listed(results)}, "
            f"got {text!r}"
        ).at(repr(instruction))
    return Rule(left, right)


def _unlabelled(shapes: Sequence[Shape]) -> tuple[Labels, ...]:
    return tuple((None,) * shape.rank for shape in shapes)


def _labels(side: str, fixed: set[str]) -> tuple[Labels, ...]:
    arrays = ([*filter(None, array.split(","))] for array in _ARRAY.findall(side))
    return tuple(tuple(_label(dimension, fixed) for dimension in dimensions) for dimensions in arrays)


def _label(dimension: str, fixed: set[str]) -> Label | None:
    factors = _FACTOR.findall(dimension)
    return factors[0] if factors and factors[0] not in fixed else None
