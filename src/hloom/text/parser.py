"""The parser of HLO text: header, computations, instructions. Attribute values are read by `hloom.text.attributes`."""

from __future__ import annotations

import difflib
import re
from typing import Any, NoReturn

from hloom.errors import ArgumentError, HloomError, ParseError
from hloom.ir import BufferDonor, Computation, InputOutputAlias, Instruction, Module
from hloom.ops import attributes as kinds
from hloom.ops.attributes import ComputationKind
from hloom.ops.control_flow import AsyncStart
from hloom.ops.operation import OPERATIONS, REQUIRED, Field, Operation
from hloom.shape import Shape
from hloom.text import attributes
from hloom.text.async_syntax import Raw, expand_async
from hloom.text.literals import parse_literal
from hloom.text.scanner import NAME, SPACE, STRING, Scanner, listed, unquote
from hloom.text.shapes import scan_shape
from hloom.text.sharding import scan_sharding
from hloom.verifier import verify_module

_INSTRUCTION = re.compile(r'(ROOT\s++)?%?([A-Za-z_][\w.\-]*+|"[^"\n]*+")\s*+=\s++')
_OPCODE = re.compile(r"[a-z][\w\-]*+")
_OPERAND = re.compile(r"\s*+(?:/\*.*?\*/\s*+)?%?([A-Za-z_][\w.\-]*+)\s*+(,|\))", re.DOTALL)
_ATTRIBUTE = re.compile(r"\s*+,\s*+([A-Za-z_][\w\-.]*+)\s*+=\s*+")
_MESH_GROUPS = re.compile(r"mesh\[[^\[\]{}\n]*+\](?:\s*+,\s*+device_ids=\([^{}\n]*\))?\s*+\{[^{}\n]*+\}")
_HEADER = re.compile(r"HloModule(?![\w.\-])")
_HEADER_NAME = re.compile(r"[^\s,]++")
_COMPUTATION = re.compile(r"(ENTRY\b\s*+)?%?([A-Za-z_][\w.\-]*+)?")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_METADATA = re.compile(r'([A-Za-z_]\w*+)=("(?:[^"\\]|\\.)*+"|\{[^{}]*+\}|[^\s{},"]++)')
_FRONTEND = re.compile(r'\s*+("(?:[^"\\]|\\.)*+"|[^\s={},"]++)\s*+=\s*+')
_LAYOUT_HEADER = "entry_computation_layout"


def parse_module(text: str) -> Module:
    """The verified module that HLO text holds.

    Raises ParseError, with line, column and caret, for text that is not HLO; RuleError or VerifyError, with the line of
    the instruction, for a module that breaks a rule.
    """
    if not isinstance(text, str):
        raise ParseError(f"HLO text is a str, got {type(text).__name__}")
    module = _ModuleParser(text).parse()
    verify_module(module)
    return module


class _ModuleParser:
    """The state of a parse: the module so far, and computations by name, which may be used before they are defined."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.scanner = Scanner(text)
        self.module = Module("")
        self.computations: dict[str, Computation] = {}
        self.undefined: dict[str, int] = {}
        self.line = 1
        self.counted = 0

    def parse(self) -> Module:
        scanner = self.scanner
        if not scanner.match(_HEADER):
            scanner.fail(f"HLO text starts with 'HloModule name', got {scanner.shown()}")
        found = scanner.match(_HEADER_NAME)
        self.module.name = found[0].strip('%"') if found else ""
        if not self.module.name:
            scanner.fail(f"expected the module's name, got {scanner.shown()}")
        self._header()
        while scanner.match(re.compile("|".join(_TABLES))):
            self._table()
        while not scanner.at_end():
            self._computation()
        for name, position in self.undefined.items():
            scanner.fail(f"there is no computation {name!r}", position)
        if self.module.entry_computation is None:
            self._choose_entry()
        self._entry_layouts()
        return self.module

    def _choose_entry(self) -> None:
        """Without ENTRY the last computation, or the only one, is the entry, as in XLA."""
        if not self.module.computations:
            self.scanner.fail("the module has no computations")
        self.module.entry_computation = self.module.computations[-1]

    def _entry_layouts(self) -> None:
        module = self.module
        if module.entry_parameter_layouts is None:
            module.set_default_entry_layouts()
            return
        count = len(module.entry.parameters)
        if len(module.entry_parameter_layouts) != count:
            self.scanner.fail(
                f"{_LAYOUT_HEADER} has {len(module.entry_parameter_layouts)} parameters, the entry {count}", 0
            )

    # The header

    def _header(self) -> None:
        seen: set[str] = set()
        while found := _ATTRIBUTE.match(self.text, self.scanner.pos):
            self.scanner.pos = found.end()
            name = found[1]
            if name in seen:
                self.scanner.fail(f"attribute {name} is given twice", found.start(1))
            seen.add(name)
            self._header_attribute(name)

    def _header_attribute(self, name: str) -> None:
        module, start = self.module, self.scanner.pos
        raw = self.scanner.raw_value()
        value = Scanner(raw, self.text, start)
        if name == _LAYOUT_HEADER:
            self._entry_layout(value)
        elif name == "is_scheduled":
            module.is_scheduled = attributes.read(kinds.BOOL, raw, self.text, start)
        elif name in ("replica_count", "num_partitions"):
            setattr(module, name, attributes.read(kinds.INT, raw, self.text, start))
        elif name == "input_output_alias":
            for alias in listed(value, attributes.scan_alias):
                must = alias.kind == "must-alias"
                module.input_output_alias.append(
                    InputOutputAlias(alias.output_index, alias.operand_number, alias.operand_index, must)
                )
        elif name == "buffer_donor":
            module.buffer_donors = listed(value, _donor)
        elif name == "frontend_attributes":
            module.frontend_attributes = self._frontend_attributes(value)
        else:
            module.extra_attributes[name] = raw

    def _entry_layout(self, value: Scanner) -> None:
        value.expect("{")
        value.expect("(")
        parameters: list[Shape] = []
        while not value.take(")"):
            if parameters:
                value.expect(",")
            parameters.append(scan_shape(value))
        value.expect("->")
        self.module.entry_parameter_layouts = parameters
        self.module.entry_result_layout = scan_shape(value)
        value.expect("}")

    def _table(self) -> None:
        """FileNames and the like: numbered rows, kept as they stand."""
        scanner = self.scanner
        start = max(self.text.rfind(table, 0, scanner.pos) for table in _TABLES)
        name = self.text[start : scanner.pos]
        rows: list[str] = []
        while found := scanner.match(re.compile(r"\d++[ \t]++([^\n]++)")):
            rows.append(found[1].strip())
        self.module.stack_frames[name] = rows

    # Computations

    def _computation(self) -> None:
        scanner = self.scanner
        scanner.skip()
        start = scanner.pos
        found = _COMPUTATION.match(self.text, start)
        if not found or found[2] is None:
            scanner.fail(f"expected a computation, got {scanner.shown()}")
        scanner.pos = found.end()
        name = found[2]
        computation = self._named(name, None)
        if computation.parent is not None:
            scanner.fail(f"computation {name!r} is defined twice", start)
        if found[1] and self.module.entry_computation is not None:
            scanner.fail("a module has one ENTRY computation", start)
        self._signature()
        scanner.expect("{", "at the start of a computation")
        self._instructions(computation)
        self.module.add(computation, entry=bool(found[1]))
        while found_attribute := _ATTRIBUTE.match(self.text, scanner.pos):
            scanner.pos = found_attribute.end()
            raw = scanner.raw_value()
            if found_attribute[1] == "execution_thread":
                computation.execution_thread = unquote(raw) if raw.startswith('"') else raw

    def _signature(self) -> None:
        """`(name: shape, ..) -> shape`, which repeats what parameters and root say."""
        scanner = self.scanner
        scanner.skip()
        if not self.text.startswith("(", scanner.pos):
            return
        scanner.parenthesised()
        scanner.expect("->")
        scan_shape(scanner)

    def _named(self, name: str, used_at: int | None) -> Computation:
        computation = self.computations.get(name)
        if computation is None:
            computation = self.computations[name] = Computation(name)
            if used_at is not None:
                self.undefined[name] = used_at
        if used_at is None:
            self.undefined.pop(name, None)
        return computation

    def _instructions(self, computation: Computation) -> None:
        scanner, text = self.scanner, self.text
        by_name: dict[str, Instruction] = {}
        root: Instruction | None = None
        while True:
            match = SPACE.match(text, scanner.pos)
            position = match.end() if match else scanner.pos
            scanner.pos = position
            if text.startswith("}", position):
                scanner.pos += 1
                break
            found = _INSTRUCTION.match(text, position)
            if not found:
                scanner.fail(f"expected an instruction 'name = shape opcode(..)' or '}}', got {scanner.shown()}")
            scanner.pos = found.end()
            instruction = self._instruction(found[2].strip('"'), computation, by_name, position)
            if instruction.name in by_name:
                scanner.fail(f"instruction {instruction.name!r} is defined twice", position)
            by_name[instruction.name] = computation.add(instruction)
            if found[1]:
                if root is not None:
                    scanner.fail("a computation has one ROOT", position)
                root = instruction
        if root is None and not computation.instructions:
            scanner.fail(f"computation {computation.name!r} has no instructions", position)
        if root is not None:
            computation.root = root

    def _where(self, position: int) -> str:
        self.line += self.text.count("\n", self.counted, position)
        self.counted = position
        return f"line {self.line}, column {position - self.text.rfind(chr(10), 0, position)}"

    def _instruction(
        self, name: str, computation: Computation, by_name: dict[str, Instruction], start: int
    ) -> Instruction:
        scanner = self.scanner
        shape = scan_shape(scanner)
        opcode_at = scanner.pos
        found = scanner.match(_OPCODE)
        if not found:
            scanner.fail(f"expected an opcode, got {scanner.shown()}")
        opcode = found[0]
        scanner.skip()
        parentheses_at = scanner.pos + 1
        declaration = OPERATIONS.get(opcode)
        payload = next((f for f in declaration.fields if f.in_parentheses), None) if declaration else None
        operands: list[Instruction] = []
        inside = ""
        if payload is None:
            operands = self._operands(by_name)
        else:
            inside = scanner.parenthesised()
        raw = self._raw_attributes()
        if declaration is None:
            op = self._asynchronous(opcode, shape, operands, raw, opcode_at)
        else:
            op = self.operation(declaration, raw, start, operands, payload, (inside, parentheses_at, shape))
        instruction = Instruction(name, shape, op, operands)
        instruction.location = self._where(start)
        if raw:
            self._common_attributes(instruction, raw, by_name)
        return instruction

    def _asynchronous(self, opcode: str, shape: Shape, operands: list[Instruction], raw: Raw, at: int) -> Operation:
        """The operation of an opcode that has no declaration: the short form of an asynchronous one."""
        scanner = self.scanner
        names = {computation.name for computation in self.module.computations} | set(self.computations)
        try:
            op = expand_async(
                opcode, shape, operands, raw, names, lambda of: self.operation(of, raw, scanner.pos, operands)
            )
        except ArgumentError as error:
            scanner.fail(error.message)
        if op is None:
            self._unknown_opcode(opcode, self.text.index(opcode, at))
        if isinstance(op, AsyncStart):
            self.computations[op.calls.name] = op.calls
            self.module.add(op.calls)
        return op

    def _unknown_opcode(self, opcode: str, position: int) -> NoReturn:
        close = difflib.get_close_matches(opcode, OPERATIONS, 3)
        self.scanner.fail(
            f"there is no opcode {opcode!r}" + (f"; close are {', '.join(close)}" if close else ""), position
        )

    def _operands(self, by_name: dict[str, Instruction]) -> list[Instruction]:
        """Names in parentheses, each perhaps after its shape."""
        scanner, text = self.scanner, self.text
        scanner.expect("(", "before the operands")
        operands: list[Instruction] = []
        if scanner.take(")"):
            return operands
        while True:
            found = _OPERAND.match(text, scanner.pos)
            if not found:
                name = scanner.match(NAME)
                if name and not text.startswith("[", scanner.pos):
                    scanner.fail(f"expected ',' or ')' after the operand {name[1]!r}, got {scanner.shown()}")
                scanner.pos = name.start() if name else scanner.pos
                scan_shape(scanner)
                found = _OPERAND.match(text, scanner.pos)
                if not found:
                    scanner.skip()
                    scanner.fail(f"expected an operand's name, got {scanner.shown()}")
            operand = by_name.get(found[1])
            if operand is None:
                close = difflib.get_close_matches(found[1], by_name, 1)
                hint = f"; close is {close[0]!r}" if close else ""
                scanner.fail(f"there is no instruction {found[1]!r} before this one{hint}", found.start(1))
            operands.append(operand)
            scanner.pos = found.end()
            if found[2] == ")":
                return operands

    # Attributes

    def _raw_attributes(self) -> dict[str, tuple[str, int]]:
        """Attribute name -> the text of its value and where it stands."""
        raw: dict[str, tuple[str, int]] = {}
        scanner, text = self.scanner, self.text
        while found := _ATTRIBUTE.match(text, scanner.pos):
            name = found[1]
            if name in raw:
                scanner.fail(f"attribute {name} is given twice", found.start(1))
            scanner.pos = position = found.end()
            mesh = _MESH_GROUPS.match(text, position) if name == "replica_groups" else None
            if mesh:
                scanner.pos = mesh.end()
                raw[name] = (mesh[0], position)
                continue
            if name == "literal":
                # The one value of two parts: a shape and its constant.
                scan_shape(scanner)
            scanner.raw_value()
            raw[name] = (text[position : scanner.pos], position)
        return raw

    def operation(
        self,
        declaration: type[Operation],
        raw: dict[str, tuple[str, int]],
        start: int,
        operands: list[Instruction],
        payload: Field | None = None,
        inside: tuple[str, int, Shape] | None = None,
    ) -> Operation:
        """The operation with the attributes that its declaration names; takes these out of `raw`."""
        values: dict[str, Any] = {}
        for field in declaration.fields:
            if field is payload and inside is not None:
                values[field.name] = self._payload(field, *inside)
            elif field.text and field.text in raw:
                text, position = raw.pop(field.text)
                values[field.name] = self._value(field, text, position, inside[2] if inside else None)
            elif declaration.opcode == "conditional" and "true_computation" in raw and "false_computation" in raw:
                branches = (raw.pop("true_computation"), raw.pop("false_computation"))
                values[field.name] = tuple(self._computations(*branch)[0] for branch in branches)
            elif field.default is REQUIRED:
                self.scanner.fail(f"{declaration.opcode} needs the attribute {field.text or field.name}=..", start)
        try:
            return declaration(**values).canonical([operand.shape for operand in operands])
        except HloomError as error:
            raise error.at(self._where(start)) from None

    def _payload(self, field: Field, text: str, position: int, shape: Shape) -> Any:
        if field.kind is kinds.LITERAL:
            return parse_literal(text, shape, self.scanner, position)
        return attributes.read(field.kind, text, self.text, position)

    def _value(self, field: Field, text: str, position: int, shape: Shape | None) -> Any:
        if isinstance(field.kind, ComputationKind):
            computations = self._computations(text, position)
            return computations if field.kind is kinds.COMPUTATIONS else computations[0]
        if field.kind is kinds.LITERAL:
            scanner = Scanner(text, self.text, position)
            own = scan_shape(scanner)
            return parse_literal(text[scanner.pos :], own, self.scanner, position)
        return attributes.read(field.kind, text, self.text, position)

    def _computations(self, text: str, position: int) -> tuple[Computation, ...]:
        found = attributes.names(Scanner(text, self.text, position))
        if not found:
            self.scanner.fail("expected a computation's name", position)
        return tuple(self._named(name, position) for name in found)

    def _common_attributes(
        self, instruction: Instruction, raw: dict[str, tuple[str, int]], by_name: dict[str, Instruction]
    ) -> None:
        for name, (text, position) in raw.items():
            if name == "metadata":
                instruction.metadata = self._metadata(text, position)
            elif name == "sharding":
                scanner = Scanner(text, self.text, position)
                instruction.sharding = scan_sharding(scanner)
                if not scanner.at_end():
                    scanner.fail(f"expected the end of the sharding, got {scanner.shown()}")
            elif name == "frontend_attributes":
                instruction.frontend_attributes = self._frontend_attributes(Scanner(text, self.text, position))
            elif name == "backend_config":
                instruction.backend_config = unquote(text) if text.startswith('"') else text
            elif name == "control-predecessors":
                for before in attributes.names(Scanner(text, self.text, position)):
                    if before not in by_name:
                        self.scanner.fail(f"there is no instruction {before!r} before this one", position)
                    by_name[before].add_control_dependency(instruction)
            else:
                instruction.extra_attributes[name] = text

    def _metadata(self, text: str, position: int) -> dict[str, Any]:
        body = text[1:-1].strip()
        if not text.startswith("{"):
            self.scanner.fail("metadata stands in braces", position)
        metadata: dict[str, Any] = {}
        at = 0
        while at < len(body):
            found = _METADATA.match(body, at)
            if not found:
                self.scanner.fail("cannot read the metadata: expected name=value", position + 1 + at)
            metadata[found[1]] = _plain_value(found[2])
            at = found.end()
            separator = re.compile(r"[\s,]*+").match(body, at)
            at = separator.end() if separator else at
        return metadata

    def _frontend_attributes(self, scanner: Scanner) -> dict[str, str]:
        scanner.expect("{")
        entries: dict[str, str] = {}
        while not scanner.take("}"):
            if entries:
                scanner.expect(",", "between attributes")
            found = _FRONTEND.match(scanner.text, scanner.pos)
            if not found:
                scanner.fail(f"expected name=value, got {scanner.shown()}")
            scanner.pos = found.end()
            value = scanner.raw_value()
            key = unquote(found[1]) if found[1].startswith('"') else found[1]
            entries[key] = unquote(value) if STRING.fullmatch(value) else value
        return entries


def _donor(scanner: Scanner) -> BufferDonor:
    scanner.expect("(")
    number = scanner.integer("a parameter number")
    index: tuple[int, ...] = ()
    if scanner.take(","):
        index = tuple(listed(scanner, Scanner.integer))
    scanner.expect(")")
    return BufferDonor(number, index)


def _plain_value(text: str) -> Any:
    """A metadata value: a string, a number, true or false, or text in braces as it stands."""
    if text.startswith('"'):
        return unquote(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text
