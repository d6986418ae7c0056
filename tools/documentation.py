"""Builds the documentation site into build/site: `python tools/documentation.py`.

The pages in docs/ are copied; the operations handbook, the worked examples and the reference of public names are
generated. Warnings of Sphinx, such as dead links, are errors.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import hloom.ops  # noqa: F401  registers the operations
from handbook import api, drawings, gallery
from handbook.examples_page import examples_page
from handbook.markdown import escaped, table
from handbook.page import families, operation_page, summary
from hloom.ops.operation import OPERATIONS

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
STARTED = time.perf_counter()
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "SECURITY.md": "security.md"}
"""Pages at the root of the repository, and their names in the site."""


def build(source: Path, target: Path) -> None:
    """Writes the pages to `source` and builds the site in `target`; warnings are errors."""
    shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("operations.md"))
    for name, page in PAGES.items():
        (source / page).write_text(_linked((ROOT / name).read_text()))
    say("operations and their pictures")
    write_handbook(source / "operations")
    say("public names and worked examples")
    (source / "reference").mkdir()
    for name, text in api.pages().items():
        (source / "reference" / f"{name}.md").write_text(text)
    (source / "specification" / "examples.md").write_text(examples_page())
    say("programs of the gallery")
    write_gallery(source / "gallery")
    say(f"{sum(1 for _ in source.rglob('*.md'))} pages as HTML")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "auto", str(source), str(target)]
    tools = os.pathsep.join([str(ROOT / "tools"), *filter(None, [os.environ.get("PYTHONPATH")])])
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": tools})


def say(what: str) -> None:
    """Prints what is done, with the seconds since the start."""
    print(f"{time.perf_counter() - STARTED:5.0f} s  {what}", flush=True)


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
    """Writes a page for each operation, its picture, and the index."""
    folder.mkdir()
    for opcode, declaration in OPERATIONS.items():
        (folder / f"{opcode}.md").write_text(operation_page(declaration))
    for name, drawing in drawings.pictures():
        (folder / f"{name}.svg").write_text(drawing)
    (folder / "index.md").write_text(handbook_index())


def write_gallery(folder: Path) -> None:
    """Writes the gallery, whose programs run."""
    folder.mkdir()
    programs = sorted(gallery.PROGRAMS.glob("*.py"))
    gallery.run(programs, folder)
    (folder / "index.md").write_text(gallery.gallery(programs))


def handbook_index() -> str:
    """Returns the index of the handbook: the operations by family."""
    contents = "\n".join(["```{toctree}", ":hidden:", "", *sorted(OPERATIONS), "```", ""])
    parts = ["# Operations\n", "The operations of HLO, each with its rules, examples and texts.\n", contents]
    for title, declarations in families().items():
        rows = [(f"[`{each.opcode}`]({each.opcode}.md)", escaped(summary(each))) for each in declarations]
        parts += [f"## {title[0].upper()}{title[1:]}\n", table(("opcode", "result"), rows)]
    return "\n".join(parts)


if __name__ == "__main__":
    build(BUILD / "site-source", BUILD / "site")
    print(f"{BUILD / 'site' / 'index.html'}")
