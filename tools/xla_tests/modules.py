"""Extraction of modules from tests: raw strings of `*_test.cc`, `.hlo` files, and the functions of `.mlir` files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from xla_tests import functions

RAW_STRING = re.compile(r'R"([^()\\\s]{0,16})\((.*?)\)\1"', re.DOTALL)
SEPARATOR = re.compile(r"^[ \t]*// -----.*$", re.MULTILINE)
COMPUTATION = re.compile(r"[\w.%\-]+[^\n=]*\{\s*\n[^}]*=[^}]*\(")


@dataclass(frozen=True)
class HloText:
    """The text of a module, HLO or StableHLO, and its location: `file` within the checkout, 1-based line."""

    file: str
    line: int
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha1(self.text.encode()).hexdigest()


def files(checkout: Path) -> list[str]:
    """Returns the files of a checkout that can hold modules."""
    paths = [path for pattern in ("*_test.cc", "*.hlo", "*.mlir") for path in checkout.rglob(pattern)]
    return sorted(str(path.relative_to(checkout)) for path in paths)


def modules(checkout: Path, file: str) -> Iterator[HloText]:
    """Yields the modules in one file, each text once."""
    content = (checkout / file).read_text(errors="replace")
    seen: set[str] = set()
    for start, text in _texts(content) if file.endswith(".cc") else [(0, content)]:
        for at, part in _parts(text):
            found = functions.modules_of(part) if file.endswith(".mlir") else [(0, part)] if is_module(part) else []
            for inside, module in found:
                if module not in seen:
                    seen.add(module)
                    yield HloText(file, content.count("\n", 0, start + at + inside) + 1, module)


def _texts(content: str) -> Iterator[tuple[int, str]]:
    for found in RAW_STRING.finditer(content):
        yield found.start(2), found[2]


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """The parts of a text between the lines that separate modules, with their offsets."""
    start = 0
    for found in SEPARATOR.finditer(text):
        yield start, text[start : found.start()]
        start = found.end()
    yield start, text[start:]


def is_module(text: str) -> bool:
    """Whether a string looks like HLO: a header, an entry, or computations alone."""
    if "HloModule" in text or "ENTRY" in text:
        return True
    return ("ROOT" in text or "parameter(" in text) and COMPUTATION.search(text) is not None
