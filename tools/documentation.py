"""Builds the documentation site into build/site: `python tools/documentation.py`.

The pages in docs/ are copied; the operations handbook, a page for each operation, is generated from the declarations,
the clauses of the specification with their worked examples, and pictures that run the operation.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hloom.ops  # noqa: F401  registers the operations
import pictures
import reference
from hloom.ops.operation import OPERATIONS, Operation

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
SPECIFICATION = ROOT / "docs" / "specification"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changes.md",
    "SECURITY.md": "security.md",
}
MAX_EXAMPLES = 4

_CONFIGURATION = """project = "hloom"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "hloom"
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]
"""
_CONTENTS = """
```{toctree}
:hidden:
:caption: Using it

concepts
tutorials/a_pass
tutorials/an_operation
tutorials/proofs
how_to
commands
deploy
operations/index
security
changes
```

```{toctree}
:hidden:
:caption: How it is built

walkthrough
glossary
design
proofs
accuracy
determinism
figures
users_issues
libraries
xla_bugs
contributing
```

```{toctree}
:hidden:
:caption: The specification

specification/README
specification/shapes-and-layout
specification/broadcasting
specification/operation-semantics
specification/clauses
```
"""


def build(source: Path, target: Path) -> None:
    """Writes the pages to `source` and builds the site in `target`; warnings are errors."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("operations.md"))
    for name, page in PAGES.items():
        (source / page).write_text(_linked((ROOT / name).read_text()))
    write_handbook(source / "operations")
    (source / "conf.py").write_text(_CONFIGURATION)
    with (source / "index.md").open("a") as index:
        index.write(_CONTENTS)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "auto", str(source), str(target)]
    subprocess.run(command, check=True)


def _linked(text: str) -> str:
    """Changes links between pages of the root, and from them to docs, to those of the site."""
    for name, page in PAGES.items():
        text = text.replace(f"]({name})", f"]({page})")
    return (
        text.replace("](docs/operations.md)", "](operations/index.md)")
        .replace("](docs/", "](")
        .replace("](specification)", "](specification/README.md)")
    )


def write_handbook(folder: Path) -> None:
    """Writes a page for each operation, and their index."""
    folder.mkdir()
    clauses, examples = _clauses(), json.loads((SPECIFICATION / "examples.json").read_text())
    lines = ["# Operations\n", "Each operation's page is made from its declaration in `src/hloom/ops/`.\n"]
    lines += ["```{toctree}\n:hidden:\n", *sorted(OPERATIONS), "```\n"]
    lines += ["| opcode | operands | what it gives |", "|---|---|---|"]
    for opcode, declaration in sorted(OPERATIONS.items()):
        (folder / f"{opcode}.md").write_text(operation_page(declaration, clauses, examples))
        operands = ", ".join(name.replace("*", "") for name in declaration.operands)
        lines.append(f"| [`{opcode}`]({opcode}.md) | {operands} | {_escaped(_first_sentence(declaration))} |")
    (folder / "index.md").write_text("\n".join([*lines, ""]))
    for name, drawing in pictures.pictures():
        (folder / f"{name}.svg").write_text(drawing)


def operation_page(declaration: type[Operation], clauses: dict[str, str], examples: list[dict[str, Any]]) -> str:
    """Returns the page of an operation: documentation, attributes, a picture for index operations, clauses,
    examples.
    """
    opcode = declaration.opcode
    section = reference.section(declaration).split("\n", 1)
    parts = [f"# {opcode}\n", section[0].removeprefix("### ") + "\n"]
    if opcode in pictures.PROGRAMS:
        text = pictures.PROGRAMS[opcode].strip()
        parts += [f"![where the elements of {opcode} come from]({opcode}.svg)\n", f"```\n{text}\n```\n"]
    parts.append(_escaped(section[1]))
    parts.append(f"Declared in `src/{declaration.__module__.replace('.', '/')}.py`.\n")
    cited = dict.fromkeys(re.findall(r"\b([A-Z][A-Z0-9]+)-\d", declaration.__doc__ or ""))
    own = [clause for prefix in cited for clause in clauses if clause.rpartition("-")[0] == prefix]
    if own:
        parts.append("## Clauses\n")
        parts += [f"- **{clause}** {_escaped(clauses[clause])}" for clause in own]
        parts.append("")
    shown = [e for e in examples if e["clause"].split(",")[0] in own and not e.get("expected_error")]
    if shown:
        parts.append("## Worked examples\n\nEach runs as a test, on the interpreter and compiled.\n")
        parts += [_example(example) for example in shown[:MAX_EXAMPLES]]
    return "\n".join(parts)


def _clauses() -> dict[str, str]:
    """The text of each clause; continuation lines are joined."""
    found: dict[str, str] = {}
    for page in sorted(SPECIFICATION.glob("*.md")):
        for match in re.finditer(r"^- ([A-Z0-9]+-\d+) (.*(?:\n  .*)*)", page.read_text(), re.M):
            found.setdefault(match[1], " ".join(match[2].split()))
    return found


def _example(example: dict[str, Any]) -> str:
    lines = [f"**{example['id']}** ({example['clause']})\n", "```"]
    lines += [f"{name} = {value}" for name, value in _shown(example)]
    note = f"{_escaped(example['note'])}\n" if example.get("note") else ""
    return "\n".join([*lines, "```", note])


def _shown(example: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for number, literal in enumerate(example["inputs"]):
        yield f"operand {number}", _literal(literal)
    for name, value in example["attributes"].items():
        yield name, json.dumps(value)
    yield "result", _literal(example.get("expected"))


def _literal(literal: Any) -> str:
    if isinstance(literal, list):
        return "[" + ", ".join(map(_literal, literal)) + "]"
    if isinstance(literal, dict) and "tuple" in literal:
        return "(" + ", ".join(map(_literal, literal["tuple"])) + ")"
    if isinstance(literal, dict) and "shape" in literal:
        sizes = ",".join(map(str, literal["shape"]))
        return f"{literal['type']}[{sizes}] {json.dumps(literal.get('value'))}"
    return json.dumps(literal)


def _first_sentence(declaration: type[Operation]) -> str:
    return " ".join((declaration.__doc__ or "").split("\n\n")[0].split())


def _escaped(text: str) -> str:
    """Escapes `[`, `*` and `<` outside code and tables."""
    parts = re.split(r"(`[^`]*`|\n\|.*)", text)
    return "".join(part if k % 2 else re.sub(r"([\[\]*<])", r"\\\1", part) for k, part in enumerate(parts))


if __name__ == "__main__":
    build(BUILD / "site-source", BUILD / "site")
    print(f"{BUILD / 'site' / 'index.html'}")
