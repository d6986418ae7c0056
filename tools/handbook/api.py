"""The reference of public names: a page for each class and function, made from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import hloom as hl
from handbook.docstrings import entries
from handbook.markdown import code, escaped, table
from handbook.page import methods_of, sections_of, summary
from handbook.public_names import PUBLIC, members
from handbook.signatures import signature
from handbook.specification import ROOT
from hloom.ops.operation import OPERATIONS
from hloom.types import PrimitiveType

GROUPS = {
    "Programs": ("parse", "load", "save", "from_jax", "Module", "Computation", "Instruction", "Snapshot"),
    "Building": ("XlaBuilder", "XlaOp", "XlaComputation"),
    "Running": ("compile", "Executable", "Device", "register_custom_call", "build"),
    "Inspecting": ("explore", "profile"),
    "Shapes and values": ("Shape", "parse_shape", "PrimitiveType", "Layout", "Tile", "PaddingValue", "Literal"),
    "Rewriting": ("rewrite",),
    "Errors": (
        "HloomError", "ParseError", "RuleError", "VerifyError", "ArgumentError", "RunError", "ProtoError",
    ),
}  # fmt: skip
"""The names of `hloom` in the order of the index; those of its packages follow."""


def pages() -> dict[str, str]:
    """Returns the Markdown of each page by its name, and of the index."""
    documented = {name: value for name, value in PUBLIC.items() if _has_page(value)}
    found = {name: page(name, value) for name, value in documented.items()}
    return {**found, "index": index(documented)}


def _has_page(value: Any) -> bool:
    return not isinstance(value, PrimitiveType | dict | str)


def index(documented: dict[str, Any]) -> str:
    """Returns the index: names by group, and the element types."""
    groups = {title: [f"hloom.{name}" for name in names] for title, names in GROUPS.items()}
    for name in documented:
        package = name.rpartition(".")[0]
        if package != "hloom":
            groups.setdefault(f"`{package}`", []).append(name)
    parts = ["# Public names\n", "Classes and functions for users. `import hloom as hl` in the examples.\n"]
    parts.append("\n".join(["```{toctree}", ":hidden:", "", *sorted(documented), "```", ""]))
    for title, names in groups.items():
        rows = [(f"[`{name.removeprefix('hloom.')}`]({name}.md)", _first_sentence(documented[name])) for name in names]
        parts += [f"## {title}\n", table(("name", "meaning"), rows)]
    return "\n".join([*parts, "## Element types\n", _element_types()])


def _first_sentence(value: Any) -> str:
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return escaped(re.split(r"(?<=\w\.) ", text)[0])


def _element_types() -> str:
    types = {name.removeprefix("hloom."): value for name, value in PUBLIC.items() if isinstance(value, PrimitiveType)}
    rows = [(f"`hl.{name}`", str(value.bits), f"`{value.dtype}`", value.kind.value) for name, value in types.items()]
    return table(("name", "bits", "NumPy type", "kind"), rows)


def page(name: str, value: Any) -> str:
    """Returns the page of a class or function."""
    body = [_docstring(value)]
    if inspect.isclass(value):
        body += [_member(full, member) for full, member in _own_members(name, value)]
    if value is hl.XlaBuilder:
        body.append(_builder_methods())
    kind = "class" if inspect.isclass(value) else "function"
    call = "" if _is_opaque(value) else signature(inspect.unwrap(value))
    call = call.removesuffix(" -> None") if inspect.isclass(value) else call
    source = _source(value)
    return "\n".join([f"# {name}\n", f":::::{{py:{kind}}} {name}{call}\n", *body, f":::::\n\n{source}"])


def _is_opaque(value: Any) -> bool:
    """Whether users do not call the constructor of a class."""
    return value in (PrimitiveType, hl.PaddingValue, hl.Executable) or getattr(value, "_is_protocol", False)


def _own_members(name: str, cls: type[Any]) -> list[tuple[str, Any]]:
    """The members of a class; methods of the builder that make operations are on the pages of these."""
    found = dict(sorted(members(name, cls), key=lambda item: item[0]))
    if cls is hl.XlaBuilder:
        return [(full, member) for full, member in found.items() if full.endswith((".build", ".cross_replica_sum"))]
    return [*found.items()]


def _builder_methods() -> str:
    """A table of the builder's methods that make operations."""
    rows = {
        method: (f"[`{method}`](../operations/{opcode}.md)", escaped(summary(declaration)))
        for opcode, declaration in OPERATIONS.items()
        for method in methods_of(declaration, sections_of(declaration))
    }
    return table(("method", "result"), [rows[method] for method in sorted(rows)])


def _member(full: str, member: Any) -> str:
    short = full.rpartition(".")[2]
    if isinstance(member, property):
        result = inspect.signature(member.fget).return_annotation if member.fget else ""
        return f"::::{{py:property}} {short}\n:type: {result}\n\n{_docstring(member)}\n::::\n"
    return f"::::{{py:method}} {short}{signature(member, skip_first=True)}\n\n{_docstring(member)}\n::::\n"


def _source(value: Any) -> str:
    value = value if inspect.isclass(value) else inspect.unwrap(value)
    path = Path(inspect.getsourcefile(value) or "").resolve()
    line = inspect.getsourcelines(value)[1]
    return f"Source: `{path.relative_to(ROOT).as_posix()}:{line}`\n"


def _docstring(value: Any) -> str:
    """A docstring as Markdown: arguments are a list, examples are code."""
    parts: list[str] = []
    for block in (inspect.getdoc(value) or "").split("\n\n"):
        if block.startswith("Arguments:"):
            parts.append(_arguments(block))
        elif block.startswith(">>> "):
            parts.append(code("pycon", block))
        elif block.startswith("    "):
            parts.append(code("python", inspect.cleandoc(block)))
        else:
            parts.append(escaped(block) + "\n")
    return "\n".join(parts)


def _arguments(block: str) -> str:
    return "".join(f"- **{name}**: {escaped(text)}\n" for name, text in entries(block).items())
