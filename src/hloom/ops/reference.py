"""The reference section of an operation, generated from its declaration."""

from __future__ import annotations

import dataclasses
import inspect

from hloom.ops.operation import Field, Operation
from hloom.types import Kind

_KINDS = {
    Kind.PRED: "predicates",
    Kind.SIGNED: "signed integers",
    Kind.UNSIGNED: "unsigned integers",
    Kind.FLOAT: "floats",
    Kind.COMPLEX: "complex numbers",
}


def section(declaration: type[Operation]) -> str:
    """Returns the section about an operation in Markdown: documentation, operands, attributes."""
    operands = ", ".join(f"{name[1:]}.." if name.startswith("*") else name for name in declaration.operands)
    lines = [f"### `{declaration.opcode}({operands})`\n", f"{inspect.getdoc(declaration)}\n"]
    if declaration.operands:
        lines += [f"- `{name.lstrip('*')}`: {doc}" for name, doc in operand_docs(declaration).items()] + [""]
    if declaration.builder_name:
        lines.append(f"Builder: `XlaBuilder.{declaration.builder_name}`\n")
    if declaration.fields:
        lines += ["| attribute | in HLO text | in HloInstructionProto | kind | default |", "|---|---|---|---|---|"]
        lines += [_row(field) for field in declaration.fields]
        lines.append("")
    return "\n".join(lines)


def operand_docs(declaration: type[Operation]) -> dict[str, str]:
    """Returns what each operand is, by its declared name, with the kinds of elements that the first one may have."""
    docs = dict(declaration.operands)
    kinds = getattr(declaration, "kinds", None)
    if kinds:
        first = next(iter(docs))
        docs[first] += " of " + " or ".join(words for kind, words in _KINDS.items() if kind in kinds)
    return docs


def _row(field: Field) -> str:
    text = "in parentheses" if field.in_parentheses else f"`{field.text}`" if field.text else "-"
    proto = f"`{field.proto}`" if field.proto else "-"
    kind = field.kind.description.replace("|", "\\|")
    return f"| `{field.name}`: {field.doc} | {text} | {proto} | {kind} | {default_text(field)} |"


def default_text(field: Field) -> str:
    """Returns the default of an attribute, as code; "required" if it has none, "none" if it means that none is
    given."""
    if field.required:
        return "required"
    value = field.default
    is_none = value is None or value in ((), "") or dataclasses.is_dataclass(value)
    return "none" if is_none else f"`{getattr(value, 'name', value)}`"
