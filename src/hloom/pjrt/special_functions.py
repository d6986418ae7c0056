"""Special functions of JAX as custom calls `hloom.NAME`, which the lowering rules of the platform emit.

JAX hands its programs over with functions such as sinh and lgamma replaced by XLA's expansions, which lose digits.
Custom calls pass unchanged; here they become the operation of that opcode, or an expansion of hloom.
"""

from __future__ import annotations

import functools

from hloom.builder import XlaBuilder
from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, Module
from hloom.ops.custom_call import CustomCall
from hloom.ops.operation import OPERATIONS
from hloom.ops.structure import Parameter
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.shape import Shape
from hloom.stablehlo.special_functions import FUNCTIONS

PREFIX = "hloom."
"""The prefix of the targets; an opcode or the name of a special function follows."""


def expand(module: Module) -> int:
    """Replaces the custom calls and returns their number; raises ArgumentError for unknown functions."""
    return expand_each(module, CustomCall, _expanded)


def _expanded(op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
    if not op.target_name.startswith(PREFIX):
        return None
    name = op.target_name.removeprefix(PREFIX)
    if name in OPERATIONS:
        return build(OPERATIONS[name](), *old.operands)
    expansion = _expansion(name, tuple(operand.shape.without_layout() for operand in old.operands))
    copies: dict[int, Instruction] = {}
    for instruction in expansion.instructions:
        if isinstance(instruction.op, Parameter):
            copies[id(instruction)] = old.operands[instruction.op.number]
        else:
            operands = [copies[id(operand)] for operand in instruction.operands]
            copies[id(instruction)] = build(instruction.op, *operands, shape=instruction.shape)
    return copies[id(expansion.root)]


@functools.lru_cache(256)
def _expansion(name: str, shapes: tuple[Shape, ...]) -> Computation:
    if name not in FUNCTIONS:
        raise ArgumentError(f"hloom has no function {name!r}; it has {', '.join(sorted(FUNCTIONS))}")
    builder = XlaBuilder(name)
    result = FUNCTIONS[name](*(builder.parameter(number, shape) for number, shape in enumerate(shapes)))
    return builder.build(result).module.entry
