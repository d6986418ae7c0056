"""The page of all worked examples, to which clauses link."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import hloom as hl
from handbook import specification
from handbook.markdown import code, escaped
from handbook.python_code import program
from handbook.specification import Example

_INTRODUCTION = """# Worked examples

Each example of the clauses: the operands, the attributes, and the result or the error. They are entries of
`docs/specification/examples.json`, and run as tests on the interpreter and compiled.
[The handbook](../operations/index.md) shows many of them as Python.
"""


def examples_page() -> str:
    """Returns the Markdown of the page."""
    parts = [_INTRODUCTION]
    for op, group in groupby(sorted(specification.examples(), key=lambda e: e["op"]), key=lambda e: e["op"]):
        parts.append(f"## {op}\n")
        parts += map(_example, group)
    return "\n".join(parts)


def _example(example: Example) -> str:
    note = f": {escaped(example['note'])}" if example["note"] else ""
    head = f'<span id="{example["id"]}"></span>**{example["id"]}**, {example["clause"]}{note}\n'
    return f"{head}\n{code('text', chr(10).join(_lines(example)))}"


def _lines(example: Example) -> Iterator[str]:
    for number, literal in enumerate(example["inputs"]):
        yield f"operand {number} = {literal_text(literal)}"
    for name, value in example["attributes"].items():
        yield f"{name} = {value if isinstance(value, str) else json.dumps(value)}"
    yield _error(example) if example.get("expected_error") else f"result = {literal_text(example['expected'])}"


def _error(example: Example) -> str:
    made = program(example)
    try:
        if made:
            made.computation()
    except hl.HloomError as error:
        return str(error).splitlines()[0]
    return "error"


def literal_text(literal: Any) -> str:
    """Returns a literal, or a list or tuple of them, as its shape and its values."""
    if isinstance(literal, list):
        return "[" + ", ".join(map(literal_text, literal)) + "]"
    if isinstance(literal, dict) and "tuple" in literal:
        return "(" + ", ".join(map(literal_text, literal["tuple"])) + ")"
    if isinstance(literal, dict) and "shape" in literal:
        sizes = ",".join(map(str, literal["shape"]))
        return f"{literal['type']}[{sizes}] {json.dumps(literal.get('value'))}"
    return json.dumps(literal)
