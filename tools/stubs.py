"""Writes `src/hloom/builder/__init__.pyi`: the builder's methods with their arguments, for editors and type checkers.

    python tools/stubs.py

Methods that declarations determine have no source that such tools could read; here they are written out.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hloom.builder import XlaBuilder
from hloom.builder.core import BuilderCore
from hloom.ops.operation import OPERATIONS

TARGET = Path(__file__).resolve().parents[1] / "src" / "hloom" / "builder" / "__init__.pyi"

_HEAD = '''"""Made by `tools/stubs.py` from the declarations and the builder's methods."""

from collections.abc import Sequence
from typing import Any

from hloom.builder.core import BuilderCore
from hloom.builder.xla_op import Computationlike, XlaComputation, XlaOp
from hloom.shape import Shape
from hloom.types import PrimitiveType

__all__ = ["XlaBuilder", "XlaComputation", "XlaOp"]

class XlaBuilder(BuilderCore):
    """Builds one computation: methods add instructions, `build` gives the computation."""

'''
_KNOWN = {"int", "bool", "float", "str", "None", "Any", "Sequence", "XlaOp", "XlaComputation", "Computationlike"}
_KNOWN |= {"Shape", "PrimitiveType", "tuple", "list"}


def stubs() -> str:
    """The text of the stub file."""
    declared = {op.builder_name: op for op in OPERATIONS.values() if op.builder_name}
    names = sorted(name for name in dir(XlaBuilder) if not name.startswith("_") and not hasattr(BuilderCore, name))
    text = _HEAD + "".join(_member(name, declared.get(name)) for name in names)
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(TARGET), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _member(name: str, declaration: Any) -> str:
    member = inspect.getattr_static(XlaBuilder, name)
    doc = _doc(inspect.getdoc(member) or "")
    if isinstance(member, property):
        kind = _annotation(member.fget.__annotations__.get("return", "Any"))  # type: ignore[union-attr]
        return f"    @property\n    def {name}(self) -> {kind}:{doc}\n"
    signature = inspect.signature(member)
    annotations = {} if declaration is None else _attributes(declaration)
    parameters = ["self", *_parameters(list(signature.parameters.values())[1:], annotations)]
    result = _annotation(signature.return_annotation, "XlaOp")
    return f"    def {name}({', '.join(parameters)}) -> {result}:{doc}\n"


def _attributes(declaration: Any) -> dict[str, str]:
    """The types of the attributes as the declaration writes them."""
    found: dict[str, str] = {}
    for cls in reversed(declaration.__mro__):
        found |= {name: str(kind) for name, kind in inspect.get_annotations(cls).items()}
    return found


def _parameters(parameters: list[inspect.Parameter], annotations: dict[str, str]) -> list[str]:
    found, is_open = [], True
    for parameter in parameters:
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        if parameter.kind is parameter.KEYWORD_ONLY and is_open and not any(p.startswith("*") for p in found):
            found.append("*")
            is_open = False
        kind = _annotation(annotations.get(parameter.name, parameter.annotation))
        default = "" if parameter.default is parameter.empty else " = ..."
        found.append(f"{star}{parameter.name}: {kind}{default}")
    return found


def _annotation(annotation: Any, otherwise: str = "Any") -> str:
    """A type that the stub's imports know; what is declared as a tuple is taken as any sequence."""
    text = otherwise if annotation is inspect.Parameter.empty else str(annotation)
    text = re.sub(r"tuple\[(\w+), \.\.\.\]", r"Sequence[\1]", text)
    return text if set(re.findall(r"[A-Za-z_]\w*", text)) <= _KNOWN else otherwise


def _doc(text: str) -> str:
    if not text:
        return " ..."
    lines = text.replace("\\", "\\\\").split("\n")
    if len(lines) == 1:
        return f'\n        """{lines[0]}"""'
    body = "\n".join(f"        {line}".rstrip() for line in lines[1:])
    return f'\n        """{lines[0]}\n{body}\n        """'


if __name__ == "__main__":
    TARGET.write_text(stubs())
