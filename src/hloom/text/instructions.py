"""Parser of the instructions of computations: names, shapes, opcodes, operands and attributes.

`hloom.text.attributes` reads the values of attributes. Parts that hand-written text may omit are added here: shapes
that follow from the operands, and names of instructions that are written inside others' operands.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NoReturn, TypeVar

from hloom.errors import ArgumentError, HloomError, close_names
from hloom.ir import Computation, Instruction, Module
from hloom.layout import Layout
from hloom.ops import kinds
from hloom.ops.communication import Outfeed, Receiving, Transfer
from hloom.ops.control_flow import AsyncStart, Conditional
from hloom.ops.kinds import ComputationKind
from hloom.ops.operation import REQUIRED, Field, Operation
from hloom.ops.plugins import operation_named, unknown_opcode
from hloom.ops.structure import AfterAll, Constant, ElidedConstant, GetTupleElement, Parameter
from hloom.ops.transpose import Transpose
from hloom.shape import TOKEN, Shape
from hloom.system.shield import checkpoint
from hloom.text import attributes
from hloom.text.annotations import read_annotation, read_metadata
from hloom.text.async_syntax import expand_async, is_short_form
from hloom.text.attribute_texts import AttributeTexts, scan_attributes
from hloom.text.literals import is_elided, parse_literal
from hloom.text.repeated import FLAT_INSTRUCTION, RepeatedOperations
from hloom.text.scanner import MAX_NESTING, NAME, OPCODE, Scanner
from hloom.text.shapes import scan_shape, usual_shape

T = TypeVar("T")

_INSTRUCTION = re.compile(r'\s*+((ROOT\s++)?%?([A-Za-z_][\w.\-]*+|"[^"\n]*+"))\s*+=\s*+')
SINGLE_INSTRUCTION = re.compile(r"\s*+(?:(?:ROOT\s++)?%?[A-Za-z_][\w.\-]*+\s*+=|\(|[a-z]\w*+\[)")
"""The beginning of an instruction without a computation around it."""

_SHAPE = re.compile(r"\s*+(?:\(|[a-z]\w*+\s*+\[|b\s*+\()")
_PARENTHESIS = re.compile(r"\s*+\(")
_OPERAND = re.compile(r"\s*+%?([A-Za-z_][\w.\-]*+)\s*+(,|\))")
_ELEMENT = re.compile(r"\s*+%?([A-Za-z_][\w.\-]*+)((?:\s*+#\s*+\d{1,9}+)*+)\s*+(?=[,)])")
_BODY = re.compile(r'\{\s*+(?:ROOT\s++)?%?(?:[A-Za-z_][\w.\-]*+|"[^"\n]*+")\s*+=')

_CHECKED = 32
"""Number of instructions between checkpoints."""


class InstructionParser:
    """Parses instructions from the scanner's position on.

    `computations` are by name; `undefined` maps those that are used but not defined so far to the offset of the use.
    Methods that read raise ParseError for malformed text, and RuleError, with the line, for attributes or operands that
    break a rule.
    """

    def __init__(self, scanner: Scanner, module: Module) -> None:
        self.scanner = scanner
        self.text = scanner.text
        self.module = module
        self.computations: dict[str, Computation] = {}
        self.undefined: dict[str, int] = {}
        self.operations: dict[tuple[Hashable, ...], Operation] = {}
        """Operations without computations, by declaration and texts of attributes."""
        self.repeated = RepeatedOperations()
        self.elided_count = 0
        self.line = 1
        self.counted_to = 0
        self.computation = Computation("")
        self.by_name: dict[str, Instruction] = {}
        self.depth = 0
        self.creates_parameters = False

    def computation_named(self, name: str, used_at: int | None) -> Computation:
        """The computation of a name; `used_at` is the offset of a use, None for the definition."""
        computation = self.computations.get(name)
        if computation is None:
            computation = self.computations[name] = Computation(name)
            if used_at is not None:
                self.undefined[name] = used_at
        if used_at is None:
            self.undefined.pop(name, None)
        return computation

    def read(self, computation: Computation) -> None:
        """Reads the instructions of a computation up to and including its closing brace."""
        scanner, text = self.scanner, self.text
        self.computation, self.by_name = computation, {}
        root: Instruction | None = None
        while match := _INSTRUCTION.match(text, scanner.pos):
            if len(self.by_name) % _CHECKED == 0:
                checkpoint()
            scanner.pos, position = match.end(), match.start(1)
            name = match[3].strip('"')
            if name in self.by_name:
                scanner.fail(f"instruction {name!r} is defined twice", position)
            flat = FLAT_INSTRUCTION.match(text, scanner.pos)
            instruction = self._repeated(name, position, flat) or self._instruction(name, position, flat)
            if match[2]:
                if root is not None:
                    scanner.fail("a computation has one ROOT", position)
                root = instruction
        if not scanner.take("}"):
            scanner.fail(f"expected an instruction 'name = shape opcode(..)' or '}}', got {scanner.preview()}")
        if not computation.instructions:
            scanner.fail(f"computation {computation.name!r} has no instructions", scanner.pos - 1)
        if root is not None:
            computation.root = root

    def read_single(self, computation: Computation) -> None:
        """Reads a single instruction, named or not; operands that are written with their shapes become parameters."""
        scanner = self.scanner
        self.computation, self.by_name, self.creates_parameters = computation, {}, True
        scanner.skip()
        start = scanner.pos
        match = scanner.match(_INSTRUCTION)
        computation.root = self._instruction(match[3].strip('"') if match else "r", start)
        if not scanner.at_end():
            scanner.fail("expected a single instruction, or instructions in a computation: name { .. }")

    def _location(self, position: int) -> str:
        self.line += self.text.count("\n", self.counted_to, position)
        self.counted_to = position
        return f"line {self.line}, column {position - self.text.rfind(chr(10), 0, position)}"

    def _repeated(self, name: str, start: int, flat: re.Match[str] | None) -> Instruction | None:
        """Reads an instruction, from its shape on, whose operation was read before, and adds it; None for others."""
        found = self.repeated.find(flat) if flat else None
        if flat is None or found is None:
            return None
        op, has_operands = found
        inside = flat[3] if has_operands else ""
        names = [operand.strip().removeprefix("%") for operand in inside.split(",")] if inside else []
        operands = [self.by_name[operand] for operand in names if operand in self.by_name]
        shape = usual_shape(flat[1])
        if shape is None or len(operands) < len(names):
            return None
        instruction = Instruction(name, shape, op, operands)
        if flat[5]:
            instruction.metadata = read_metadata(Scanner(flat[5], self.scanner.full_text, flat.start(5)))
        self.scanner.pos = flat.end()
        return self._added(instruction, start)

    def _added(self, instruction: Instruction, start: int) -> Instruction:
        """Adds an instruction that begins at an offset to the computation."""
        instruction.location = self._location(start)
        self.by_name[instruction.name] = self.computation.add(instruction)
        return instruction

    def _instruction(self, name: str | None, start: int, flat: re.Match[str] | None = None) -> Instruction:
        """Reads an instruction from its shape on and adds it; an unnamed one is an operand, which has no attributes."""
        scanner = self.scanner
        shape, opcode, opcode_at = self._shape_and_opcode()
        parentheses_at = scanner.pos + 1
        declaration = operation_named(opcode)
        payload = declaration.payload if declaration else None
        operands: list[Instruction] = []
        inside = ""
        if payload is None:
            operands = self._operands()
        else:
            inside = scanner.parenthesised()
        texts = scan_attributes(scanner) if name is not None else {}
        if declaration is None or is_short_form(declaration, shape, operands):
            op = self._asynchronous(opcode, shape, operands, texts, opcode_at)
        elif payload is not None and payload.kind is kinds.LITERAL:
            op = self._constant(inside, parentheses_at, shape)
        else:
            op = self.operation(declaration, texts, start, operands, payload, (inside, parentheses_at))
        instruction = Instruction(
            name or self._new_name(f"{opcode}.anon"), self._result(op, shape, operands, opcode_at), op, operands
        )
        if flat and type(op) is declaration and not texts.keys() - {"metadata"}:
            self.repeated.keep(flat, op)
        if texts:
            self._common_attributes(instruction, texts)
        return self._added(instruction, start)

    def _shape_and_opcode(self) -> tuple[Shape | None, str, int]:
        """Reads a shape, which may be missing, and an opcode; returns them, and the opcode's offset."""
        scanner, text = self.scanner, self.text
        shape = scan_shape(scanner) if _SHAPE.match(text, scanner.pos) else None
        scanner.skip()
        match = OPCODE.match(text, scanner.pos)
        if not match:
            scanner.fail(f"expected {'an opcode' if shape else 'a shape'}, got {scanner.preview()}")
        scanner.pos = match.end()
        scanner.skip()
        return shape, match[0], match.start()

    def _new_name(self, base: str) -> str:
        """A name that no instruction of the computation has so far."""
        name, count = base, 0
        while name in self.by_name:
            count += 1
            name = f"{base}.{count}"
        return name

    def _inferred(self, op: Operation, operands: list[Instruction], position: int) -> Shape:
        """The shape that the operation's rule gives, for text that omits it."""
        if any(not computation.instructions for computation in op.computations):
            self.scanner.fail(
                f"the result of {op.opcode} follows from a computation that is defined further on: write its shape",
                position,
            )
        if type(op).infer is Operation.infer:
            self.scanner.fail(f"the shape of {op.opcode} does not follow from its operands: write it", position)
        shape = self._located(position, lambda: op.infer(*op.bind([operand.shape for operand in operands])))
        layout = operands[0].shape.layout if isinstance(op, Transpose) else None
        if isinstance(op, Transpose) and layout is not None:
            # As in XLA, the layout of the result makes the transpose a bitcast.
            order = tuple(op.permutation.index(d) for d in layout.minor_to_major)
            return shape.with_layout(Layout(order))
        return shape

    def _asynchronous(
        self, opcode: str, shape: Shape | None, operands: list[Instruction], texts: AttributeTexts, at: int
    ) -> Operation:
        """The operation of an undeclared opcode: syntax sugar for an asynchronous operation."""
        scanner = self.scanner
        names = {computation.name for computation in self.module.computations} | set(self.computations)
        try:
            op = expand_async(
                opcode, shape, operands, texts, names, lambda of: self.operation(of, texts, scanner.pos, operands)
            )
        except ArgumentError as error:
            scanner.fail(error.message)
        if op is None:
            self._unknown_opcode(opcode, at)
        if isinstance(op, AsyncStart):
            self.computations[op.calls.name] = op.calls
            self.module.add(op.calls)
        return op

    def _unknown_opcode(self, opcode: str, position: int) -> NoReturn:
        self.scanner.fail(unknown_opcode(opcode), position)

    # Operands

    def _operands(self) -> list[Instruction]:
        """Reads operands in parentheses: names, optionally after their shapes, or unnamed instructions."""
        scanner, text = self.scanner, self.text
        scanner.expect("(", "before the operands")
        operands: list[Instruction] = []
        if scanner.take(")"):
            return operands
        while True:
            match = _OPERAND.match(text, scanner.pos)
            if match:
                operands.append(self._operand(match[1], match.start(1)))
                scanner.pos = match.end()
                more = match[2] == ","
            else:
                operand = self._long_operand()
                operands += [] if operand is None else [operand]
                more = scanner.take(",")
                if not more:
                    scanner.expect(")", "after the operands")
            if not more:
                return operands

    def _operand(self, name: str, position: int) -> Instruction:
        operand = self.by_name.get(name)
        if operand is None:
            hint = close_names(name, self.by_name)
            self.scanner.fail(f"there is no instruction {name!r} before this one{hint}", position)
        return operand

    def _long_operand(self) -> Instruction | None:
        """Reads an operand with its shape, an element of a tuple (`%t#0#1`), or an instruction.

        A shape without a name is a parameter of a single instruction; elsewhere it is ignored, as in XLA.
        """
        scanner, text = self.scanner, self.text
        scanner.skip()
        start = scanner.pos
        shape = scan_shape(scanner) if _SHAPE.match(text, start) else None
        match = _ELEMENT.match(text, scanner.pos)
        if match:
            scanner.pos = match.end()
            if self.creates_parameters and shape and match[1] not in self.by_name:
                self._parameter(match[1], shape)
            operand = self._operand(match[1], match.start(1))
            for index in re.findall(r"\d+", match[2]):
                operand = self._element(operand, int(index), match.start(2))
            return operand
        scanner.skip()
        if text.startswith(",", scanner.pos) or (shape is not None and text.startswith(")", scanner.pos)):
            return self._parameter(self._new_name("parameter"), shape) if self.creates_parameters and shape else None
        name = NAME.match(text, scanner.pos)
        if not name or not _PARENTHESIS.match(text, name.end()):
            scanner.pos = name.end() if name else scanner.pos
            after = f"',' or ')' after the operand {name[1]!r}" if name else "an operand's name"
            scanner.fail(f"expected {after}, got {scanner.preview()}")
        self.depth += 1
        if self.depth > MAX_NESTING:
            scanner.fail(f"operands nest more than {MAX_NESTING} deep", start)
        scanner.pos = start
        operand = self._instruction(None, start)
        self.depth -= 1
        return operand

    def _parameter(self, name: str, shape: Shape) -> Instruction:
        number = len(self.computation.parameters)
        self.by_name[name] = parameter = self.computation.add(Instruction(name, shape, Parameter(number=number)))
        return parameter

    def _element(self, operand: Instruction, index: int, position: int) -> Instruction:
        """The get-tuple-element that `#index` after a name stands for."""
        name = f"{operand.name}_{index}"
        known = self.by_name.get(name)
        if known is not None and known.operands == [operand]:
            return known
        op = GetTupleElement(index=index)
        shape = self._inferred(op, [operand], position)
        element = Instruction(self._new_name(name), shape, op, [operand])
        element.location = self._location(position)
        self.by_name[element.name] = self.computation.add(element)
        return element

    # Attributes

    def _constant(self, inside: str, position: int, shape: Shape | None) -> Operation:
        if shape is None:
            self.scanner.fail("the shape of a constant does not follow from its text: write it", position)
        if is_elided(inside):
            self.elided_count += 1
            return ElidedConstant(number=self.elided_count, text=inside.strip())
        return Constant(literal=parse_literal(inside, shape, self.scanner, position))

    def operation(
        self,
        declaration: type[Operation],
        texts: AttributeTexts,
        start: int,
        operands: list[Instruction],
        payload: Field | None = None,
        inside: tuple[str, int] = ("", 0),
    ) -> Operation:
        """Builds an operation of the attributes that its declaration names, which are removed from `texts`.

        `payload` is the field that is written in parentheses in place of operands, with its text and offset in
        `inside`.
        """
        fields = declaration.fields if texts else ()
        written = {field: texts.pop(field.text) for field in fields if field.text and field.text in texts}
        if payload is not None:
            written[payload] = inside
        key = (declaration, *[(field.name, text) for field, (text, _) in written.items()])
        op = self.operations.get(key)
        if op is None:
            values = self._values(declaration, written, texts, start)
            op = self._located(start, lambda: declaration(**values))
            if not declaration.calling_fields:
                self.operations[key] = op
        if declaration.canonical is Operation.canonical:
            return op
        return self._located(start, functools.partial(op.canonical, [operand.shape for operand in operands]))

    def _located(self, position: int, make: Callable[[], T]) -> T:
        """Returns `make()`; its errors have the line of a position."""
        try:
            return make()
        except HloomError as error:
            raise error.at(self._location(position)) from None

    def _values(
        self,
        declaration: type[Operation],
        written: dict[Field, tuple[str, int]],
        texts: AttributeTexts,
        start: int,
    ) -> dict[str, Any]:
        """Reads the values of attributes from their texts."""
        values: dict[str, Any] = {}
        for field in declaration.fields:
            if field in written:
                values[field.name] = self._value(field, *written[field])
            elif declaration is Conditional and "true_computation" in texts and "false_computation" in texts:
                branches = (texts.pop("true_computation"), texts.pop("false_computation"))
                values[field.name] = tuple(self._computations(*branch)[0] for branch in branches)
            elif field.default is REQUIRED:
                self.scanner.fail(f"{declaration.opcode} needs the attribute {field.text or field.name}=..", start)
        return values

    def _result(self, op: Operation, declared: Shape | None, operands: list[Instruction], position: int) -> Shape:
        """The shape of a result: that of the text, or the inferred one.

        As in XLA, shapes of channels, queues and tokens in the text are ignored, except for the data that a recv or
        infeed declares.
        """
        if isinstance(op, AfterAll):
            return TOKEN
        if declared is not None and isinstance(op, Receiving):
            if not declared.is_tuple or not declared.elements:
                self.scanner.fail(f"the result of {op.opcode} is a tuple that begins with the data", position)
            return op.result_of(declared.elements[0])
        if declared is None or isinstance(op, (Transfer, Outfeed)):
            return self._inferred(op, operands, position)
        return declared

    def _value(self, field: Field, text: str, position: int) -> Any:
        if isinstance(field.kind, ComputationKind):
            computations = self._computations(text, position)
            return computations if field.kind is kinds.COMPUTATIONS else computations[0]
        if field.kind is kinds.LITERAL:
            scanner = Scanner(text, self.scanner.full_text, position)
            shape = scan_shape(scanner)
            return parse_literal(text[scanner.pos :], shape, self.scanner, position)
        return attributes.read(field.kind, text, self.scanner.full_text, position)

    def _computations(self, text: str, position: int) -> tuple[Computation, ...]:
        """Reads the computations of an attribute: names, or definitions in braces."""
        if _BODY.match(text):
            return (self._inline_computation(position + 1),)
        if text.startswith("{") and "=" in text:
            return tuple(self._computation_list(position + 1))
        names = attributes.scan_names(Scanner(text, self.scanner.full_text, position))
        if not names:
            self.scanner.fail("expected a computation's name", position)
        return tuple(self.computation_named(name, position) for name in names)

    def _computation_list(self, position: int) -> Iterator[Computation]:
        """Reads a list of computations, some of which are defined inline, in braces."""
        scanner, after = self.scanner, self.scanner.pos
        scanner.pos = position
        while not scanner.take("}"):
            scanner.skip()
            start = scanner.pos
            if scanner.take("{"):
                yield self._inline_computation(start + 1)
            else:
                yield self.computation_named(scanner.name("a computation"), start)
            scanner.take(",")
        scanner.pos = after

    def _inline_computation(self, position: int) -> Computation:
        """Reads a computation that is defined in an attribute, from after its opening brace."""
        if self.depth > MAX_NESTING // 4:
            self.scanner.fail("computations nest too deep", position)
        count = sum(name.startswith("nested_computation") for name in self.computations)
        computation = self.computation_named(f"nested_computation.{count}", None)
        outer = self.computation, self.by_name, self.scanner.pos
        self.scanner.pos = position
        self.depth += 1
        self.read(computation)
        self.depth -= 1
        after = self.scanner.pos
        self.module.add(computation)
        self.computation, self.by_name, self.scanner.pos = outer
        self.scanner.pos = max(self.scanner.pos, after)
        return computation

    def _common_attributes(self, instruction: Instruction, texts: AttributeTexts) -> None:
        for name, (text, position) in texts.items():
            scanner = Scanner(text, self.scanner.full_text, position)
            if name == "control-predecessors":
                for before in attributes.scan_names(scanner):
                    if before not in self.by_name:
                        scanner.fail(f"there is no instruction {before!r} before this one", 0)
                    self.by_name[before].add_control_dependency(instruction)
            else:
                read_annotation(instruction, name, scanner)
