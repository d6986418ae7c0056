"""Writes docs/operations.md, the reference of all operations, from their declarations, and docs/commands.md, that of
the `hloom` command: `python tools/reference.py`.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from pathlib import Path

import commands
import hloom.ops  # noqa: F401  registers the operations
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.reference import section
from hloom.runtime.custom_calls.signature import Signature
from hloom.runtime.custom_calls.targets import signatures

TARGET = Path(__file__).parents[1] / "docs" / "operations.md"

INTRODUCTION = """# Operations

Every HLO operation of hloom, generated from the declarations in `src/hloom/ops/` by `python tools/reference.py`.
Clause numbers (`PAD-2`) are those of the operation's specification, which error messages cite too. HLO text
omits attributes that have their default.
"""

TARGETS = """## Custom-call targets

Calls of hloom's own targets are checked against these signatures before a program runs (CUSTOMCALL-7);
`src/hloom/runtime/custom_calls/signature.py` has their syntax. Functions that users register under these names replace
them.

| targets | signature | T | attributes |
|---|---|---|---|"""


def reference() -> str:
    """Returns the text of the page."""
    families: dict[str, list[type[Operation]]] = {}
    for opcode in sorted(OPERATIONS):
        families.setdefault(OPERATIONS[opcode].__module__, []).append(OPERATIONS[opcode])
    parts = [INTRODUCTION]
    for module in sorted(families):
        title = (inspect.getdoc(sys.modules[module]) or module).split("\n")[0]
        path = "src/" + module.replace(".", "/") + ".py"
        parts.append(f"## {title}\n\nDeclared in `{path}`.\n")
        parts += [section(declaration) for declaration in families[module]]
    return "\n".join([*parts, targets()])


def targets() -> str:
    """Returns the section on hloom's own custom-call targets."""
    groups: dict[str, list[tuple[str, Signature]]] = {}
    for name, signature in sorted(signatures().items()):
        groups.setdefault(str(dataclasses.replace(signature, types=())), []).append((name, signature))
    rows = []
    for text, members in groups.items():
        types = tuple(dict.fromkeys(kind for _, signature in members for kind in signature.types))
        attributes = [f"{name}: {kind}" for name, kind in members[0][1].attributes.items()]
        kinds = dataclasses.replace(members[0][1], types=types).types_text if types else ""
        cells = (", ".join(f"`{name}`" for name, _ in members), f"`{text}`", kinds, "; ".join(attributes))
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([TARGETS, *rows, ""])


if __name__ == "__main__":
    TARGET.write_text(reference())
    commands.TARGET.write_text(commands.reference())
