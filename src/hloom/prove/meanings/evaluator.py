"""The evaluator: runs computations on arrays of terms, instruction by instruction.

Arrays have their actual sizes, as in the interpreter. Element-wise operations are applied to the terms; others have a
rule, in `meanings/`. An operation without one raises `Unsupported`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction
from hloom.ops.registry import Registry
from hloom.ops.structure import Parameter
from hloom.ops.traits import Identity
from hloom.prove.solver.decide import Deadline
from hloom.prove.terms.concrete import from_codes
from hloom.prove.terms.functions import apply, converted
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term, Unsupported, array_of
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array, Token, leaves
from hloom.verifier.precision import is_mixed, widest_float, with_float

Symbol = Any
"""An array of terms, a token, or a tuple of symbols."""


class Refused(Unsupported):
    """Raised for sizes with which a program does not run: it has no result, and an error instead."""


class OpenSize(Unsupported):
    """Raised for a size that depends on the arguments: `term`, from 0 to `bound`, of which nothing is assumed yet."""

    def __init__(self, term: Term, bound: int) -> None:
        super().__init__(f"a size up to {bound} that depends on the arguments")
        self.term, self.bound = term, bound


def arrays_of(symbol: Symbol) -> Iterator[Array]:
    """Yields the arrays of a symbol, without its tokens."""
    return (leaf for leaf in leaves(symbol) if not isinstance(leaf, Token))


RULES = Registry[["Evaluator", Instruction, Sequence[Symbol]], Symbol]()
"""Rules of operations: the value of an instruction, given those of its operands."""

NO_LIMIT = 1e9


@dataclass
class Evaluator:
    """Evaluates computations on symbols, until a deadline.

    `sizes` are the values that are assumed for sizes that depend on the arguments.
    `sources` counts the values that a run has taken from outside, such as random numbers: the n-th ones of two programs
    are the same. `effects` are the values that it has given away, with the kind of each.
    """

    deadline: Deadline = field(default_factory=lambda: Deadline(NO_LIMIT))
    sizes: Mapping[Term, int] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    effects: list[tuple[str, Symbol]] = field(default_factory=list)

    def run(self, computation: Computation, arguments: Sequence[Symbol]) -> Symbol:
        """Returns the value of a computation. Raises Unsupported, with the instruction."""
        values: dict[Instruction, Symbol] = {}
        for instruction in computation.instructions:
            if isinstance(op := instruction.op, Parameter):
                values[instruction] = arguments[op.number]
                continue
            try:
                self.deadline.check("the evaluation")
                values[instruction] = self.value(instruction, [values[operand] for operand in instruction.operands])
            except OpenSize:
                raise
            except Unsupported as error:
                raise error.at(f"%{instruction.name} = {instruction.shape} {instruction.opcode}") from None
        return values[computation.root]

    def scalars(self, computation: Computation, terms: Sequence[Term]) -> list[Term]:
        """Applies a computation of scalars; returns its results."""
        value = self.run(computation, [array_of([term], ()) for term in terms])
        return [part[()] for part in (value if isinstance(value, tuple) else (value,))]

    def size(self, term: Term, bound: int) -> int:
        """Returns the value of a size: a constant, or what is assumed.

        Raises OpenSize without one, and Refused for a value that is not in [0, bound].
        """
        size = normal(term)
        if size.known is None and size not in self.sizes:
            raise OpenSize(size, bound)
        value = self.sizes[size] if size.known is None else int(from_codes(size.type, [size.known])[0])
        if not 0 <= value <= bound:
            raise Refused(f"a size of {value}, not from 0 to {bound}")
        return value

    def next_source(self, kind: str) -> str:
        """Returns the name of the next value of a kind that comes from outside."""
        self.sources[kind] = self.sources.get(kind, 0) + 1
        return f"{kind} {self.sources[kind]}"

    def value(self, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
        """Returns the value of an instruction, given those of its operands. Raises Unsupported without a meaning."""
        op = instruction.op
        if op.mixes_precision and is_mixed(instruction):
            return self._mixed(instruction, operands)
        rule = RULES.get(op)
        if rule is not None:
            return rule(op, self, instruction, operands)
        if isinstance(op, Identity):
            return operands[0]
        if op.elementwise:
            return elementwise(instruction, operands)
        raise Unsupported(f"{op.opcode} has no symbolic meaning")

    def _mixed(self, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
        """Evaluates an instruction in its widest floating-point type. Raises Unsupported for other combiners."""
        wide = widest_float(instruction)
        assert wide is not None, "an instruction of one floating-point type is not mixed"
        shapes = [s for c in instruction.op.computations for s in (*c.parameter_shapes, c.result_shape)]
        if any(not shape.compatible(with_float(shape, wide)) for shape in shapes):
            raise Unsupported(f"a computation with floats other than {wide} has no symbolic meaning here")
        inputs = [
            Instruction(operand.name, with_float(operand.shape, wide), Parameter(number=number))
            for number, operand in enumerate(instruction.operands)
        ]
        uniform = Instruction(instruction.name, with_float(instruction.shape, wide), instruction.op, inputs)
        value = self.value(uniform, [_converted(x, i.shape) for x, i in zip(operands, inputs, strict=True)])
        return _converted(value, instruction.shape)


def _converted(value: Symbol, shape: Shape) -> Symbol:
    """Converts the floats of a value to the types of a shape."""
    if shape.is_tuple:
        return tuple(map(_converted, value, shape.elements))
    if not shape.element_type.is_float:
        return value
    return array_of([converted(x, shape.element_type) for x in value.reshape(-1)], value.shape)


def elementwise(instruction: Instruction, operands: Sequence[Array]) -> Array:
    """Applies an operation to the elements at each index; scalars are broadcast."""
    found = {operand.shape for operand in operands if operand.ndim} or {()}
    if len(found) > 1:
        raise Refused(f"operands of the actual sizes {sorted(found)}")
    (sizes,) = found
    wide = [np.broadcast_to(operand, sizes).reshape(-1) for operand in operands]
    type = instruction.shape.element_type
    return array_of([apply(instruction.op, type, terms) for terms in zip(*wide, strict=True)], sizes)


def leaf_types(instruction: Instruction) -> list[PrimitiveType]:
    """Returns the element types of the arrays of an instruction's result."""
    return [leaf.element_type for leaf in instruction.shape.leaves() if leaf.is_array]
