"""Writes docs/operations.md, the reference of all operations, from their declarations: `python tools/reference.py`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import hloom.ops  # noqa: F401  registers the operations
from hloom.ops.operation import OPERATIONS, Field, Operation

TARGET = Path(__file__).parents[1] / "docs" / "operations.md"

INTRODUCTION = """# Operations

Every HLO operation that hloom knows, made from the declarations in `src/hloom/ops/` by `python tools/reference.py`.
Clause numbers (`PAD-2`) are those of the operation's specification, which error messages cite too. An attribute that is
not required is left out of HLO text where it has its default.
"""


def reference() -> str:
    """The text of the page."""
    families: dict[str, list[type[Operation]]] = {}
    for opcode in sorted(OPERATIONS):
        families.setdefault(OPERATIONS[opcode].__module__, []).append(OPERATIONS[opcode])
    parts = [INTRODUCTION]
    for module in sorted(families):
        title = (inspect.getdoc(sys.modules[module]) or module).split("\n")[0]
        path = "src/" + module.replace(".", "/") + ".py"
        parts.append(f"## {title}\n\nDeclared in `{path}`.\n")
        parts += [section(declaration) for declaration in families[module]]
    return "\n".join(parts)


def section(declaration: type[Operation]) -> str:
    operands = ", ".join(f"{name[1:]}.." if name.startswith("*") else name for name in declaration.operands)
    lines = [f"### `{declaration.opcode}({operands})`\n", f"{inspect.getdoc(declaration)}\n"]
    if declaration.builder_name:
        lines.append(f"Builder: `XlaBuilder.{declaration.builder_name}`\n")
    if declaration.fields:
        lines += ["| attribute | in HLO text | in HloInstructionProto | kind | default |", "|---|---|---|---|---|"]
        lines += [row(field) for field in declaration.fields]
        lines.append("")
    return "\n".join(lines)


def row(field: Field) -> str:
    text = "in parentheses" if field.in_parentheses else f"`{field.text}`" if field.text else "-"
    proto = f"`{field.proto}`" if field.proto else "-"
    default = "required" if field.required else f"`{default_text(field)}`"
    kind = field.kind.description.replace("|", "\\|")
    doc = f": {field.doc}" if field.doc else ""
    return f"| `{field.name}`{doc} | {text} | {proto} | {kind} | {default} |"


def default_text(field: Field) -> str:
    value = field.default
    return str(getattr(value, "name", value))


if __name__ == "__main__":
    TARGET.write_text(reference())
