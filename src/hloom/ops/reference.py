"""The reference section of an operation, generated from its declaration."""

from __future__ import annotations

import inspect

from hloom.ops.operation import Field, Operation


def section(declaration: type[Operation]) -> str:
    """Returns the section about an operation in Markdown: operands, documentation, attributes."""
    operands = ", ".join(f"{name[1:]}.." if name.startswith("*") else name for name in declaration.operands)
    lines = [f"### `{declaration.opcode}({operands})`\n", f"{inspect.getdoc(declaration)}\n"]
    if declaration.builder_name:
        lines.append(f"Builder: `XlaBuilder.{declaration.builder_name}`\n")
    if declaration.fields:
        lines += ["| attribute | in HLO text | in HloInstructionProto | kind | default |", "|---|---|---|---|---|"]
        lines += [_row(field) for field in declaration.fields]
        lines.append("")
    return "\n".join(lines)


def _row(field: Field) -> str:
    text = "in parentheses" if field.in_parentheses else f"`{field.text}`" if field.text else "-"
    proto = f"`{field.proto}`" if field.proto else "-"
    default = "required" if field.required else f"`{_default_text(field)}`"
    kind = field.kind.description.replace("|", "\\|")
    doc = f": {field.doc}" if field.doc else ""
    return f"| `{field.name}`{doc} | {text} | {proto} | {kind} | {default} |"


def _default_text(field: Field) -> str:
    value = field.default
    return str(getattr(value, "name", value))
