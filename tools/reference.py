"""Writes docs/operations.md, the reference of all operations, from their declarations: `python tools/reference.py`."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import hloom.ops  # noqa: F401  registers the operations
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.reference import section

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


if __name__ == "__main__":
    TARGET.write_text(reference())
