"""Random values for elided constants, whose values the text omits, as in XLA's HLO runner."""

from __future__ import annotations

import numpy as np

from hloom.files.arrays import random_value
from hloom.ir import Module
from hloom.literal import Literal
from hloom.ops.structure import Constant, ElidedConstant
from hloom.passes import clone_module
from hloom.values import Value, leaves


def fill_elided(module: Module, seed: int) -> Module:
    """Copies a module and replaces its elided constants by random values, which depend on the seed and their ordinal.

    The copy shares no instructions with the module. Equal seeds give equal copies.
    """
    filled = clone_module(module)
    for instruction in filled.instructions():
        if isinstance(instruction.op, ElidedConstant):
            rng = np.random.default_rng([seed, instruction.op.number])
            value = _frozen(random_value(rng, instruction.shape))
            instruction.op = Constant(literal=Literal(instruction.shape, value))
    return filled


def _frozen(value: Value) -> Value:
    for leaf in leaves(value):
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
    return value
