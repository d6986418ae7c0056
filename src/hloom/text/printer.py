"""Printer of HLO text, in the syntax of XLA's `HloModule::ToString` (`as_hlo_text()`), which XLA's parser reads."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from hloom.errors import ParseError
from hloom.ir import Computation, InputOutputAlias, Instruction, Module, called_by, callees_first, post_order
from hloom.literal import Literal
from hloom.ops import kinds
from hloom.ops.attributes import OutputOperandAlias
from hloom.ops.control_flow import Conditional
from hloom.ops.kinds import ComputationKind
from hloom.ops.operation import Field
from hloom.shape import Shape
from hloom.system.records import record
from hloom.text.attributes import alias_text, write
from hloom.text.literals import ELIDED, print_literal
from hloom.text.scanner import Scanner, braced, is_printable, quote, without_comments
from hloom.text.sharding import sharding_text
from hloom.types import PrimitiveType

# XLA's parser reads these names as keywords unless a percent sign precedes them. Names of instructions may not be names
# of types, nor begin with two underscores unless these are followed by `xla_`.
_WORDS = {"true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT", "maximal", "replicated", "manual", "unreduced"}
_WORDS |= {"unknown", "last_tile_dim_replicate", "shard_as", "shard_like"}
_TYPES = {"s1", "u1", "token", "opaque", *(kind.text for kind in PrimitiveType if kind.is_array)}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
_STRINGS = {"op_type", "op_name", "source_file", "deduplicated_name", "scheduling_name"}
_INTERNAL = re.compile(r"__(?!xla_)")


@record
class PrintOptions:
    """Options of printing.

    - `layouts`: print the layouts of shapes.
    - `metadata`: print metadata and the tables of stack frames.
    - `backend_configs`: print backend configs.
    - `operand_shapes`: print the shape of each operand before its name.
    - `percent`: print `%` before names.
    - `elide`: print constants of more elements as `{...}`; None prints all elements.
    - `canonical`: rename computations and instructions by their position in a canonical order, and omit what does not
      change the meaning, so that equal programs print equally.
    """

    layouts: bool = True
    metadata: bool = True
    backend_configs: bool = True
    operand_shapes: bool = False
    percent: bool = False
    elide: int | None = None
    canonical: bool = False

    @staticmethod
    def short() -> PrintOptions:
        """Options without layouts, metadata and backend configs that elide constants of more than 10 elements."""
        return PrintOptions(layouts=False, metadata=False, backend_configs=False, elide=10)


def print_module(
    module: Module,
    *,
    short: bool = False,
    canonical: bool = False,
    layouts: bool = True,
    metadata: bool = True,
    backend_configs: bool = True,
    operand_shapes: bool = False,
    percent: bool = False,
    elide: int | None = None,
) -> str:
    """The HLO text of a module; `short` is `PrintOptions.short()`, see `PrintOptions` for the others."""
    if short:
        options = PrintOptions.short()
    else:
        options = PrintOptions(
            layouts, metadata and not canonical, backend_configs, operand_shapes, percent, elide, canonical
        )
    return _Printer(options).module(module)


def print_computation(computation: Computation, options: PrintOptions | None = None) -> str:
    """The HLO text of a computation."""
    return _Printer(options or PrintOptions()).computation(computation, entry=False)


def print_instruction(instruction: Instruction, options: PrintOptions | None = None) -> str:
    """The HLO text of an instruction, without ROOT."""
    return _Printer(options or PrintOptions()).instruction(instruction)


def fingerprint(module: Module) -> str:
    """A hash of a module that is independent of names, metadata and the order in which instructions are listed.

    Returns 32 hexadecimal digits.
    """
    printer = _Printer(PrintOptions(canonical=True, metadata=False, elide=_SHORT_LITERAL))
    digest = hashlib.sha256(printer.module(module).encode())
    for literal in printer.elided:
        digest.update(literal.bits())
    return digest.hexdigest()[:32]


_SHORT_LITERAL = 16
"""Number of elements up to which a fingerprint prints constants; longer ones are hashed as bytes, which is faster."""


class _Printer:
    def __init__(self, options: PrintOptions) -> None:
        self.options = options
        self.sigil = "%" if options.percent else ""
        self.names: dict[int, str] = {}
        self.taken: dict[int, set[str]] = {}
        """Names that are in use, by the id of the computation or module that they belong to."""
        self.orders: dict[int, list[Instruction]] = {}
        self.elided: list[Literal] = []
        self.shapes: dict[int, tuple[str, Shape]] = {}
        """Texts of shapes by their ids, and the shapes, which keep their ids meanwhile."""

    def shape(self, shape: Shape) -> str:
        known = self.shapes.get(id(shape))
        if known is None:
            known = self.shapes[id(shape)] = shape.to_text(self.options.layouts), shape
        return known[0]

    def name(self, thing: Computation | Instruction) -> str:
        """The name of a computation or instruction, changed if XLA's parser would read it as something else."""
        known = self.names.get(id(thing))
        if known is None:
            plain = _is_plain(thing.name) and not (isinstance(thing, Instruction) and _INTERNAL.match(thing.name))
            known = self.names[id(thing)] = self.sigil + thing.name if plain else self._other_name(thing)
        return known

    def _other_name(self, thing: Computation | Instruction) -> str:
        """A substitute for a name that XLA's parser would misread: with a percent sign, underscores, or both."""
        name = _spelt(thing.name)
        taken = self._taken_beside(thing)
        while (isinstance(thing, Instruction) and name in _TYPES) or (name != thing.name and name in taken):
            name += "_"
        taken.add(name)
        return self.sigil + name if _is_plain(name) else f"%{name}"

    def _taken_beside(self, thing: Computation | Instruction) -> set[str]:
        """The names of all instructions of the computation, or computations of the module, and their substitutes."""
        if id(thing.parent) not in self.taken:
            siblings: Sequence[Computation | Instruction] = ()
            if thing.parent is not None:
                siblings = thing.parent.instructions if isinstance(thing, Instruction) else thing.parent.computations
            self.taken[id(thing.parent)] = {other.name for other in siblings}
        return self.taken[id(thing.parent)]

    # Modules

    def module(self, module: Module) -> str:
        computations = module.computations
        if self.options.canonical:
            computations = callees_first(module.entry, called=lambda c: called_by(self._ordered(c)))
            self._rename(computations)
        parts = [self._header(module)]
        if self.options.metadata:
            for table, rows in module.stack_frames.items():
                parts.append("\n".join([table, *(f"{i + 1} {row}" for i, row in enumerate(rows))]))
        if _has_padding(module):
            parts.append("// padded_dimensions and padding_value of layouts have no text form: they are left out.")
        parts += [self.computation(c, c is module.entry_computation) for c in computations]
        return "\n\n".join(parts) + "\n"

    def _rename(self, computations: list[Computation]) -> None:
        for i, computation in enumerate(computations):
            self.names[id(computation)] = f"{self.sigil}c{i}"
            for j, instruction in enumerate(self._ordered(computation)):
                self.names[id(instruction)] = f"{self.sigil}i{j}"

    def _ordered(self, computation: Computation) -> list[Instruction]:
        """The instructions of a computation; in canonical form parameters first, then in post-order from the root."""
        if not self.options.canonical:
            return computation.instructions
        known = self.orders.get(id(computation))
        if known is None:
            known = self.orders[id(computation)] = self._canonical_order(computation)
        return known

    @staticmethod
    def _canonical_order(computation: Computation) -> list[Instruction]:
        order: dict[Instruction, None] = dict.fromkeys(computation.parameters)
        copy = Computation(computation.name)
        copy.instructions = [computation.root, *(i for i in computation.instructions if i.op.has_side_effect)]
        order.update(dict.fromkeys(post_order(copy)))
        order.update(dict.fromkeys(computation.instructions))
        return list(order)

    def _header(self, module: Module) -> str:
        name = "m" if self.options.canonical else _spelt(module.name)
        fields = [f"HloModule {name}" if _is_plain(name) else f"HloModule %{name}"]
        if module.is_scheduled and not self.options.canonical:
            fields.append("is_scheduled=true")
        if module.input_output_alias:
            fields.append(f"input_output_alias={{ {', '.join(map(_alias, module.input_output_alias))} }}")
        if module.buffer_donors:
            donors = ", ".join(
                f"({d.parameter_number}, {braced(d.parameter_index, ', ')})" for d in module.buffer_donors
            )
            fields.append(f"buffer_donor={{ {donors} }}")
        if module.entry_parameter_layouts is not None and module.entry_result_layout is not None:
            parameters = ", ".join(map(self.shape, module.entry_parameter_layouts))
            fields.append(f"entry_computation_layout={{({parameters})->{self.shape(module.entry_result_layout)}}}")
        fields += [f"{name}={text}" for name, text in module.extra_attributes.items()]
        if module.replica_count != 1:
            fields.append(f"replica_count={module.replica_count}")
        if module.num_partitions != 1:
            fields.append(f"num_partitions={module.num_partitions}")
        if module.frontend_attributes:
            fields.append(f"frontend_attributes={_frontend(module.frontend_attributes)}")
        return ", ".join(fields)

    # Computations and instructions

    def computation(self, computation: Computation, entry: bool) -> str:
        lines = [("ENTRY " if entry else "") + self.name(computation) + " {"]
        for instruction in self._ordered(computation):
            mark = "ROOT " if instruction is computation.root else ""
            lines.append(f"  {mark}{self.instruction(instruction)}")
        thread = computation.execution_thread
        lines.append("}" + ("" if thread == "main" else f", execution_thread={quote(thread)}"))
        return "\n".join(lines)

    def instruction(self, instruction: Instruction) -> str:
        op = instruction.op
        payload = ""
        attributes = []
        for field in op.fields:
            value = op.__dict__[field.name]
            if field.in_parentheses:
                payload = self._value(field, value)
            elif field.text and (field.always_printed or value != field.default):
                attributes += self._attribute(instruction, field, value)
        if not payload:
            payload = ", ".join(map(self._operand, instruction.operands))
        attributes += self._common(instruction)
        text = f"{self.name(instruction)} = {self.shape(instruction.shape)} {op.text_opcode or op.opcode}({payload})"
        return ", ".join([text, *attributes])

    def _operand(self, operand: Instruction) -> str:
        shape = self.shape(operand.shape) + " " if self.options.operand_shapes else ""
        return shape + self.name(operand)

    def _attribute(self, instruction: Instruction, field: Field, value: Any) -> list[str]:
        if isinstance(instruction.op, Conditional) and instruction.operands[0].shape.element_type.is_pred:
            # With a predicate, each branch has an attribute.
            return [f"true_computation={self.name(value[0])}", f"false_computation={self.name(value[1])}"]
        return [f"{field.text}={self._value(field, value)}"]

    def _value(self, field: Field, value: Any) -> str:
        if isinstance(field.kind, ComputationKind):
            if field.kind is kinds.COMPUTATIONS:
                return braced(map(self.name, value), ", ")
            return self.name(value)
        if field.kind is kinds.LITERAL:
            text = print_literal(value, self.options.elide)
            if ELIDED in text:
                self.elided.append(value)
            return text if field.in_parentheses else f"{value.shape.to_text()} {text}"
        return write(field.kind, value)

    def _common(self, instruction: Instruction) -> list[str]:
        attributes = []
        if instruction.sharding is not None:
            attributes.append(f"sharding={sharding_text(instruction.sharding)}")
        if instruction.frontend_attributes:
            attributes.append(f"frontend_attributes={_frontend(instruction.frontend_attributes)}")
        if instruction.control_predecessors:
            names = braced(map(self.name, instruction.control_predecessors), ", ")
            attributes.append(f"control-predecessors={names}")
        if not self.options.canonical:
            attributes += [f"{name}={text}" for name, text in instruction.extra_attributes.items()]
        if self.options.metadata and instruction.metadata:
            entries = " ".join(f"{key}={_metadata(key, value)}" for key, value in instruction.metadata.items())
            attributes.append(f"metadata={{{entries}}}")
        config = instruction.backend_config
        if self.options.backend_configs and config:
            raw = config.startswith("{") and config.endswith("}") and _is_balanced(config)
            attributes.append(f"backend_config={config if raw else quote(config)}")
        return attributes


def _spelt(name: str) -> str:
    """A name in which other characters than letters, digits, dots, dashes and underscores are replaced."""
    spelt = re.sub(r"[^A-Za-z0-9_.\-]", "_", name)
    return spelt if _NAME.match(spelt) and not _INTERNAL.match(spelt) else f"x{spelt}"


def _is_plain(name: str) -> bool:
    """Whether XLA's parser reads a name as a name."""
    return name not in _WORDS and name not in _TYPES and _NAME.fullmatch(name) is not None


def _is_balanced(text: str) -> bool:
    """Whether text in braces reads back as one value: without control characters and comments."""

    try:
        return is_printable(text) and without_comments(text) == text and Scanner(text).raw_value() == text
    except ParseError:
        return False


def _frontend(attributes: dict[str, str]) -> str:
    entries = []
    for key, value in sorted(attributes.items()):
        raw = value.startswith("{") and value.endswith("}") and _is_balanced(value)
        name = key if _NAME.fullmatch(key) else quote(key)
        entries.append(f"{name}={value if raw else quote(value)}")
    return braced(entries)


def _metadata(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    is_list = isinstance(value, str) and value.startswith("{") and value.endswith("}") and key not in _STRINGS
    return quote(value) if isinstance(value, str) and not is_list else str(value)


def _alias(alias: InputOutputAlias) -> str:
    kind = "must-alias" if alias.must_alias else "may-alias"
    return alias_text(OutputOperandAlias(alias.output_index, alias.parameter_number, alias.parameter_index, kind))


def _has_padding(module: Module) -> bool:
    shapes = {id(instruction.shape): instruction.shape for instruction in module.instructions()}
    return any(
        leaf.layout is not None and (leaf.layout.padded_dimensions or leaf.layout.padding_value is not None)
        for shape in shapes.values()
        for leaf in shape.leaves()
    )
