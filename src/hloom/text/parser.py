"""Parser of HLO text: header, stack frame tables and computations; `hloom.text.instructions` reads the instructions."""

from __future__ import annotations

import re

from hloom.errors import ParseError
from hloom.forms import write_declared_forms
from hloom.ir import BufferDonor, Computation, InputOutputAlias, Module
from hloom.ops import kinds
from hloom.text import attributes
from hloom.text.annotations import read_frontend_attributes
from hloom.text.attribute_texts import ATTRIBUTE
from hloom.text.instructions import SINGLE_INSTRUCTION, InstructionParser
from hloom.text.scanner import Scanner, scan_ints, scan_list, unquoted, without_comments
from hloom.text.shapes import scan_shape
from hloom.verifier import verify_module

_HEADER = re.compile(r"HloModule(?![\w.\-])")
_HEADER_NAME = re.compile(r"[^\s,]++")
_COMPUTATION = re.compile(r"(ENTRY\b\s*+)?%?([A-Za-z_][\w.\-]*+)?")
_BODY = re.compile(r"\s*+[({]")
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_TABLE = re.compile("|".join(_TABLES))
_ROW = re.compile(r"\d++[ \t]++([^\n]++)")
_LAYOUT_HEADER = "entry_computation_layout"


def parse_module(text: str) -> Module:
    """Parses HLO text and verifies the module.

    The `HloModule` line may be missing; without ENTRY the last computation is the entry. A single instruction is a
    module too, whose parameters are its operands.

    Raises ParseError, with line, column and caret, for text that is not HLO; RuleError or VerifyError, with the line of
    the instruction, for a module that breaks a rule.
    """
    if not isinstance(text, str):
        raise ParseError(f"HLO text is a str, got {type(text).__name__}")
    module = _ModuleParser(text).parse()
    verify_module(module)
    return module


class _ModuleParser:
    """Parser of one text; `module` is the module so far."""

    def __init__(self, text: str) -> None:
        self.text = without_comments(text)
        self.scanner = Scanner(self.text, text)
        self.module = Module("")
        self.instructions = InstructionParser(self.scanner, self.module)

    def parse(self) -> Module:
        scanner, module = self.scanner, self.module
        if scanner.match(_HEADER):
            self._header()
        elif scanner.at_end():
            scanner.fail("HLO text starts with 'HloModule name' or with a computation; this text is empty")
        elif SINGLE_INSTRUCTION.match(self.text, scanner.pos):
            self._single_instruction()
        while scanner.match(_TABLE):
            self._table()
        while not scanner.at_end():
            self._computation()
        for name, position in self.instructions.undefined.items():
            scanner.fail(f"there is no computation {name!r}", position)
        if module.entry_computation is None:
            self._choose_entry()
        module.name = module.name or f"module_{module.entry.name}"
        self._entry_layouts()
        write_declared_forms(module)
        return module

    def _choose_entry(self) -> None:
        """Makes the last computation the entry, as XLA does without ENTRY."""
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
        scanner = self.scanner
        match = scanner.match(_HEADER_NAME)
        self.module.name = match[0].strip('%"') if match else ""
        if not self.module.name:
            scanner.fail(f"expected the module's name, got {scanner.preview()}")
        seen: set[str] = set()
        while match := ATTRIBUTE.match(self.text, self.scanner.pos):
            self.scanner.pos = match.end()
            name = match[1]
            if name in seen:
                self.scanner.fail(f"attribute {name} is given twice", match.start(1))
            seen.add(name)
            self._header_attribute(name)

    def _header_attribute(self, name: str) -> None:
        module, start = self.module, self.scanner.pos
        raw = self.scanner.raw_value()
        value = Scanner(raw, self.scanner.full_text, start)
        if name == _LAYOUT_HEADER:
            self._entry_layout(value)
        elif name == "is_scheduled":
            module.is_scheduled = attributes.read(kinds.BOOL, raw, self.scanner.full_text, start)
        elif name in ("replica_count", "num_partitions"):
            setattr(module, name, attributes.read(kinds.INT, raw, self.scanner.full_text, start))
        elif name == "input_output_alias":
            for alias in scan_list(value, attributes.scan_alias):
                must = alias.kind == "must-alias"
                module.input_output_alias.append(
                    InputOutputAlias(alias.output_index, alias.operand_number, alias.operand_index, must)
                )
        elif name == "buffer_donor":
            module.buffer_donors = scan_list(value, _donor)
        elif name == "frontend_attributes":
            module.frontend_attributes = read_frontend_attributes(value)
        else:
            module.extra_attributes[name] = raw

    def _entry_layout(self, value: Scanner) -> None:
        value.expect("{")
        self.module.entry_parameter_layouts = scan_list(value, scan_shape, "(", ")")
        value.expect("->")
        self.module.entry_result_layout = scan_shape(value)
        value.expect("}")

    def _table(self) -> None:
        """Reads a table such as FileNames: numbered rows, kept as text."""
        scanner = self.scanner
        start = max(self.text.rfind(table, 0, scanner.pos) for table in _TABLES)
        name = self.text[start : scanner.pos]
        rows: list[str] = []
        while match := scanner.match(_ROW):
            rows.append(match[1].strip())
        self.module.stack_frames[name] = rows

    # Computations

    def _computation(self) -> None:
        scanner = self.scanner
        scanner.skip()
        start = scanner.pos
        match = _COMPUTATION.match(self.text, start)
        if not match or match[2] is None:
            scanner.fail(f"expected a computation, got {scanner.preview()}")
        scanner.pos = match.end()
        name = match[2]
        if not self.module.name and not self.module.computations and not _BODY.match(self.text, scanner.pos):
            scanner.fail(f"HLO text starts with 'HloModule name' or with a computation, got {name!r}", start)
        computation = self.instructions.computation_named(name, None)
        if computation.parent is not None:
            scanner.fail(f"computation {name!r} is defined twice", start)
        if match[1] and self.module.entry_computation is not None:
            scanner.fail("a module has one ENTRY computation", start)
        self._signature()
        scanner.expect("{", "at the start of a computation")
        self.instructions.read(computation)
        self.module.add(computation, entry=bool(match[1]))
        while attribute := ATTRIBUTE.match(self.text, scanner.pos):
            scanner.pos = attribute.end()
            raw = scanner.raw_value()
            if attribute[1] == "execution_thread":
                computation.execution_thread = unquoted(raw)

    def _single_instruction(self) -> None:
        computation = Computation("entry_computation")
        self.instructions.read_single(computation)
        self.module.add(computation, entry=True)

    def _signature(self) -> None:
        """Skips `(name: shape, ..) -> shape`, which repeats the shapes of parameters and root."""
        scanner = self.scanner
        if not scanner.peek("("):
            return
        scanner.parenthesised()
        scanner.expect("->")
        scan_shape(scanner)


def _donor(scanner: Scanner) -> BufferDonor:
    scanner.expect("(")
    number = scanner.integer("a parameter number")
    index: tuple[int, ...] = ()
    if scanner.take(","):
        index = scan_ints(scanner)
    scanner.expect(")")
    return BufferDonor(number, index)
