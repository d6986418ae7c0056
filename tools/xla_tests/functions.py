"""Extraction of the functions in MLIR files as modules, with the functions, meshes and aliases that each needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|[ \t]*//[^\n]*')
_SYMBOL = r'@(?:"[^"]*"|[\w$.\-]+)'
_FUNCTION = re.compile(rf"(?<![\w.\"])func\.func\s+(?:(?:public|private|nested)\s+)?({_SYMBOL})\s*\(")
_ALIAS = re.compile(r"^[#!][\w$.\-]+\s*=[^\n]*$", re.MULTILINE)
_MESH = re.compile(rf"^[ \t]*+sdy\.mesh\s+{_SYMBOL}[^\n]*$", re.MULTILINE)
_HEADER = re.compile(rf"(?<![\w.])module\s*(?:{_SYMBOL}\s*)?(?:attributes\s*(\{{))?")
_MARKS = re.compile(r'"(?:[^"\\\n]|\\.)*"|->|[(){}\[\]<>]|\battributes\b')
_CLOSING = {"(": ")", "{": "}", "[": "]", "<": ">"}


@dataclass(frozen=True)
class Function:
    """A function: its offset, its name, and its text after the name."""

    start: int
    name: str
    rest: str


def modules_of(text: str) -> Iterator[tuple[int, str]]:
    """Yields each function with a body as the main function of a module, with its offset."""
    plain = _COMMENT.sub(lambda found: found[1] or " " * len(found[0]), text)
    functions = {function.name: function for function in _functions(plain)}
    aliases, meshes = ("\n".join(found[0] for found in pattern.finditer(plain)) for pattern in (_ALIAS, _MESH))
    for function in functions.values():
        others = "\n".join(f"func.func private {f.name}{f.rest}" for f in _needed(function, functions))
        main = f"func.func public @main{function.rest}"
        yield function.start, f"{aliases}\nmodule {_attributes(plain)}{{\n{meshes}\n{main}\n{others}\n}}\n"


def _functions(text: str) -> Iterator[Function]:
    for found in _FUNCTION.finditer(text):
        end = _body_end(text, found.end(1))
        if end is not None:
            yield Function(found.start(), found[1], text[found.end(1) : end])


def _body_end(text: str, start: int) -> int | None:
    """The offset after the body's last brace; None for a function without a body."""
    position, before = start, ""
    while found := _MARKS.search(text, position):
        if text.find("func.func", position, found.start()) >= 0:
            return None
        position = found.end()
        if found[0] in _CLOSING:
            end = _closed(text, found.start())
            if end is None or (found[0] == "{" and before != "attributes"):
                return end
            position = end
        elif found[0] in _CLOSING.values():
            return None
        before = found[0]
    return None


def _closed(text: str, start: int) -> int | None:
    """The offset after the bracket that closes the one at `start`; None if there is none."""
    open_brackets: list[str] = []
    for found in _MARKS.finditer(text, start):
        mark = found[0]
        if mark in _CLOSING:
            open_brackets.append(_CLOSING[mark])
        elif mark in _CLOSING.values():
            if open_brackets.pop() != mark:
                return None
            if not open_brackets:
                return found.end()
    return None


def _needed(main: Function, functions: dict[str, Function]) -> list[Function]:
    """The functions that a function refers to, directly or not."""
    found: dict[str, Function] = {}
    waiting = [main]
    while waiting:
        for name in re.findall(_SYMBOL, waiting.pop().rest):
            if name in functions and name not in found and functions[name] is not main and name != "@main":
                found[name] = functions[name]
                waiting.append(functions[name])
    return list(found.values())


def _attributes(text: str) -> str:
    """The attributes of the outermost module."""
    found = _HEADER.search(text)
    end = _closed(text, found.start(1)) if found and found[1] else None
    return f"attributes {text[found.start(1) : end]} " if found and end else ""
