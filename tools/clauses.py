"""Writes docs/specification/clauses.md, the declarations and tests of each clause: `python tools/clauses.py`.

A clause is cited by its number, `PAD-2`; `PAD-2, -3` cites two and `SL-10 to SL-12` three. In the sources a citation
belongs to the class or function around it, in tests to the test function, or to the whole file if it is outside of all.
The worked examples name the clause that they show, and run on the interpreter and compiled.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SPECIFICATION = ROOT / "docs" / "specification"
TARGET = SPECIFICATION / "clauses.md"
PAGES = ("shapes-and-layout.md", "broadcasting.md", "operation-semantics.md")

INTRODUCTION = """# The clauses, what declares them, and what tests them

Made by `python tools/clauses.py` from the citations in `src/hloom` and `tests`. Examples are those of `examples.json`;
each runs through the builder on the interpreter and compiled (`tests/test_spec_examples.py`,
`tests/backends/cpu/test_compiled.py`). A declaration in brackets does not cite the clause itself: it is where most of
the clause's family is.
"""

Citations = dict[str, dict[str, set[str]]]
"""clause -> file -> names of the classes or functions in it ("" for the file itself)."""


def clauses() -> dict[str, str]:
    """Returns the clauses in the order of the specification, with their pages."""
    found: dict[str, str] = {}
    for page in PAGES:
        for clause in re.findall(r"^- ([A-Z]+[A-Z0-9]*-\d+) ", (SPECIFICATION / page).read_text(), re.MULTILINE):
            found[clause] = page
    return found


def examples() -> Counter[str]:
    """Counts the worked examples of each clause."""
    return Counter(example["clause"] for example in json.loads((SPECIFICATION / "examples.json").read_text()))


def cited(text: str, families: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yields the clauses that a text cites, with their offsets."""
    for match in re.finditer(r"\b([A-Z]+)-(\d+)((?:(?:,| and| to) -\d+| to [A-Z]+-\d+)*)", text):
        family, last = match[1], int(match[2])
        if family not in families:
            continue
        yield f"{family}-{last}", match.start()
        for word, number in re.findall(r"(,| and| to) (?:[A-Z]+)?-(\d+)", match[3]):
            for k in range(last + 1 if word == " to" else int(number), int(number) + 1):
                yield f"{family}-{k}", match.start()
            last = int(number)


@functools.cache
def citations(folder: Path) -> Citations:
    """Returns the citations in the Python files of a folder."""
    families = frozenset(clause.partition("-")[0] for clause in clauses())
    found: Citations = defaultdict(lambda: defaultdict(set))
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text()
        if not (cites := [*cited(text, families)]):
            continue
        spans = [
            (node.lineno, node.end_lineno or node.lineno, node.name)
            for node in ast.parse(text).body
            if isinstance(node, (ast.ClassDef, ast.FunctionDef))
        ]
        for clause, position in cites:
            line = text.count("\n", 0, position) + 1
            name = next((name for first, last, name in spans if first <= line <= last), "")
            found[clause][path.relative_to(folder).as_posix()].add(name)
    return found


def tested(clause: str, tests: Citations, shown: Counter[str]) -> bool:
    return bool(tests.get(clause)) or shown[clause] > 0


def page() -> str:
    """Returns the text of the page."""
    order, shown = clauses(), examples()
    declared, tests = citations(ROOT / "src" / "hloom"), citations(ROOT / "tests")
    files_by_family: dict[str, Counter[str]] = defaultdict(Counter)
    for clause, files in declared.items():
        files_by_family[clause.partition("-")[0]].update(
            {file: len(names) + 9 * file.startswith("ops/") for file, names in files.items()}
        )
    count = sum(tested(clause, tests, shown) for clause in order)
    lines = [INTRODUCTION, f"{count} of {len(order)} clauses have a test.\n"]
    lines += ['<div class="wrapping">', "", "| clause | declaration | tests | examples |", "|---|---|---|---|"]
    for clause, source in order.items():
        declaring_file = files_by_family[clause.partition("-")[0]].most_common(1)
        declaration = format_names(declared.get(clause, {})) or (
            f"[`{declaring_file[0][0]}`]" if declaring_file else ""
        )
        examples_shown = shown[clause] or ""
        lines.append(
            f"| [{clause}]({source}) | {declaration} | {format_names(tests.get(clause, {}))} | {examples_shown} |"
        )
    return "\n".join([*lines, "", "</div>", ""])


def format_names(files: dict[str, set[str]]) -> str:
    """Formats files and names: `pad.py`: Pad; `shape.py`."""
    return "; ".join(
        f"`{file}`" + (f": {', '.join(sorted(filter(None, names)))}" if any(names) else "")
        for file, names in files.items()
    )


if __name__ == "__main__":
    TARGET.write_text(page())
    print(TARGET)
