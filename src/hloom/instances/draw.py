"""Random modules that match a pattern: the instances on which a rewrite rule is proved.

An instance of `add(x, negate(y))` is a module whose root is such an add: `x` and `y` are parameters of small shapes,
`$c` is a splat of a special value, and attributes have random values (`attributes.py`). A draw that breaks a rule of
an operation is dropped, so that all instances are valid modules, and operations need no code here unless valid
operands or results are rare among random ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from hloom.errors import HloomError
from hloom.instances.attributes import drawn_attributes, special_value
from hloom.instances.operands import computations, declared_result, next_operand
from hloom.instances.palette import Palette
from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.ops.broadcast import Broadcast
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.structure import Constant, Parameter
from hloom.passes.pattern import Pattern, parse_pattern
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.verifier import verify_module

ELEMENTWISE = sorted(o for o, op in OPERATIONS.items() if op.elementwise and op.operands)
"""Opcodes of the operations that `elementwise` stands for."""
TRIES = 8
"""Draws of attributes for the same operands."""
MAX_ELEMENTS = 64
"""Elements of an array of an instance."""


@record
class Instance:
    """A module that matches a pattern at `root`, an instruction of the entry computation."""

    module: Module
    root: str


class Dropped(Exception):
    """The draw is not a valid module."""


def drawn_instance(pattern: str, chance: random.Random, type: PrimitiveType, sizes: Sequence[int]) -> Instance | None:
    """Draws a module that matches a pattern, mostly of arrays of a type and of sizes; None if the draw is not valid."""
    drawing = Drawing(Palette(chance, type, tuple(sizes)))
    try:
        root = drawing.match(parse_pattern(pattern), drawing.palette.shape())
        module = _module(root, drawing)
        verify_module(module)
    except (Dropped, HloomError):
        return None
    return Instance(module, root.name)


@dataclass
class Drawing:
    """The draw of an instance: what is drawn so far, and the instructions that names of the pattern are bound to."""

    palette: Palette
    bound: dict[str, Instruction] = field(default_factory=dict)
    made: list[Instruction] = field(default_factory=list)

    @property
    def chance(self) -> random.Random:
        """The source of chance."""
        return self.palette.chance

    def match(self, pattern: Pattern, wanted: Shape) -> Instruction:
        """Draws an instruction that matches a pattern, of the wanted shape if it is a name; raises Dropped."""
        if pattern.opcode:
            return self._operation(self._declaration(pattern.opcode), pattern, wanted)
        if pattern.name not in self.bound:
            is_shared = self.bound and self.palette.happens(0.15)
            leaf = self.chance.choice([*self.bound.values()]) if is_shared else None
            if leaf is None or leaf.shape != wanted or pattern.is_splat:
                leaf = self._splat(wanted) if pattern.is_splat else self._leaf(wanted)
            self.bound[pattern.name] = leaf
        return self.bound[pattern.name]

    def _declaration(self, opcode: str) -> type[Operation]:
        if opcode == "elementwise":
            return OPERATIONS[self.chance.choice(ELEMENTWISE)]
        return OPERATIONS[opcode]

    def _operation(self, declaration: type[Operation], pattern: Pattern, wanted: Shape) -> Instruction:
        operands = self._operands(declaration, pattern, wanted)
        shapes = [operand.shape for operand in operands]
        for _ in range(TRIES):
            try:
                found = self._attributes(declaration, shapes, wanted)
            except HloomError:
                continue
            if found is not None and all(leaf.element_count <= MAX_ELEMENTS for leaf in found[1].leaves()):
                return self.add(*found, operands)
        raise Dropped

    def _attributes(
        self, declaration: type[Operation], operands: Sequence[Shape], wanted: Shape
    ) -> tuple[Operation, Shape] | None:
        """Draws attributes and a result shape. Raises HloomError for values that are not valid."""
        given = [wanted] if declaration is Constant else operands
        values = drawn_attributes(declaration, self.chance, given)
        values |= computations(declaration, self.chance, operands)
        values, result = declared_result(declaration, self.palette, values, operands, wanted)
        op = declaration(**values)
        bound = op.bind(operands)
        if result is None:
            return op, op.infer(*bound)
        op.check(result, *bound)
        return op, result

    def _operands(self, declaration: type[Operation], pattern: Pattern, wanted: Shape) -> list[Instruction]:
        operands: list[Instruction] = []
        patterns = pattern.operands
        while patterns is None or len(operands) < len(patterns):
            shape = next_operand(declaration, self.palette, [operand.shape for operand in operands], wanted)
            if patterns is not None:
                operands.append(self.match(patterns[len(operands)], shape or wanted))
            elif shape is None:
                break
            else:
                operands.append(self._any(pattern.required_opcode, operands, shape))
        opcodes = [operand.opcode for operand in operands]
        if pattern.required_opcode and pattern.required_opcode not in opcodes:
            raise Dropped
        return operands

    def _any(self, opcode: str, before: Sequence[Instruction], wanted: Shape) -> Instruction:
        """Draws an operand of a pattern that leaves operands open: often of the required opcode, or like another."""
        if opcode and self.palette.happens(0.7):
            alike = [operand for operand in before if operand.opcode == opcode]
            if alike and alike[-1].operands and self.palette.happens(0.7):
                return self._like(alike[-1])
            return self._operation(self._declaration(opcode), Pattern(opcode=opcode, operands=None), wanted)
        if before and before[-1].shape == wanted and self.palette.happens(0.2):
            return before[-1]
        return self._leaf(wanted)

    def _like(self, other: Instruction) -> Instruction:
        """Draws an instruction of the same operation, on other operands or the same."""
        element_type = self.palette.element_type()
        operands = [
            operand if self.palette.happens(0.3) else self._leaf(operand.shape.with_element_type(element_type))
            for operand in other.operands
        ]
        return self.add(other.op, other.shape.with_element_type(operands[0].shape.element_type), operands)

    def _leaf(self, wanted: Shape) -> Instruction:
        if wanted.is_array and self.palette.happens(0.1):
            return self._splat(wanted)
        number = sum(isinstance(instruction.op, Parameter) for instruction in self.made)
        return self.add(Parameter(number=number), wanted, ())

    def _splat(self, wanted: Shape) -> Instruction:
        """Draws a constant of one element, in an array of ones sometimes, or its broadcast."""
        if not wanted.is_array:
            raise Dropped
        value = special_value(wanted.element_type, self.chance)
        ones = self.palette.happens(0.2) and 1 in wanted.dimensions
        dimensions = (wanted.dimensions.index(1),) if ones else ()
        source = self.add_constant(Literal.from_numpy(value.reshape([1] * len(dimensions))))
        if source.shape.dimensions == wanted.dimensions:
            return source
        return self.add(Broadcast(broadcast_dimensions=dimensions), wanted, [source])

    def add_constant(self, literal: Literal) -> Instruction:
        """Adds a constant."""
        return self.add(Constant(literal=literal), literal.shape, ())

    def add(self, op: Operation, shape: Shape, operands: Sequence[Instruction]) -> Instruction:
        """Adds an instruction."""
        self.made.append(Instruction(f"{op.opcode}.{len(self.made)}", shape, op, operands))
        return self.made[-1]


def _module(root: Instruction, drawing: Drawing) -> Module:
    """Returns a module of the drawn instructions; the result has another one beside the root sometimes."""
    module = Module("instance")
    for instruction in drawing.made:
        for computation in instruction.op.computations:
            if computation not in module.computations:
                computation.name = f"{computation.name}.{len(module.computations)}"
                module.add(computation)
    entry = Computation("main")
    for instruction in drawing.made:
        entry.add(instruction)
    others = [i for i in drawing.made if i is not root and i.operands]
    entry.root = root
    if others and drawing.palette.happens(0.15):
        shown = drawing.chance.choice(others)
        both = Shape.tuple_of([root.shape, shown.shape])
        entry.root = entry.add(Instruction("both", both, OPERATIONS["tuple"](), [root, shown]))
    module.add(entry, entry=True)
    module.set_default_entry_layouts()
    return module
