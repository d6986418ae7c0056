"""The documentation is up to date: the walkthrough runs, the reference matches the declarations."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

import clauses
import commands
import pictures
from conftest import ROOT, SPECIFICATION
from hloom.cli import main
from hloom.ops.operation import OPERATIONS
from hloom.scaling.cluster import load_cluster
from pages import run_page

PAGES = (
    "walkthrough.md",
    "concepts.md",
    "how_to.md",
    "index.md",
    "install.md",
    "quick_start.md",
    "tutorials/a_pass.md",
    "tutorials/an_operation.md",
    "tutorials/debug_a_nan.md",
    "tutorials/many_processes.md",
    "tutorials/proofs.md",
    "tutorials/run_hlo.md",
)
LONG_PAGES = ("tutorials/profile.md",)


@pytest.mark.parametrize("name", [*PAGES, *(pytest.param(name, marks=pytest.mark.long) for name in LONG_PAGES)])
def test_the_code_of_pages_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known = set(OPERATIONS)
    try:
        assert run_page(ROOT / "docs" / name) >= 1
    finally:
        for opcode in OPERATIONS.keys() - known:
            del OPERATIONS[opcode]


@pytest.mark.long
def test_the_code_of_the_page_on_jax_runs(tmp_path: Path) -> None:
    """Runs in a process of its own, since JAX reads its platforms once."""
    pytest.importorskip("jax")
    page = ROOT / "docs" / "tutorials" / "jax_platform.md"
    code = f"from pathlib import Path; from pages import run_page; assert run_page(Path({str(page)!r})) == 4"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=True)


def test_every_page_is_in_the_site() -> None:
    listed = (ROOT / "docs" / "index.md").read_text().split()
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "tutorials").glob("*.md")]
    names = [str(page.relative_to(ROOT / "docs").with_suffix("")) for page in pages]
    assert sorted(name for name in names if name not in listed) == ["index", "operations"]  # a page for each operation


def test_the_pictures_are_those_of_the_code() -> None:
    made = dict(pictures.concepts())
    assert {path.stem: path.read_text() for path in pictures.FOLDER.glob("*.svg")} == made, (
        "run: python tools/pictures.py"
    )
    page = (ROOT / "docs" / "concepts.md").read_text()
    assert set(re.findall(r"pictures/(\w+)\.svg", page)) == made.keys()


def test_the_reference_is_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "reference.py"))["reference"]()
    assert (ROOT / "docs" / "operations.md").read_text() == made, "run: python tools/reference.py"


def test_the_reference_of_commands_is_up_to_date() -> None:
    assert commands.TARGET.read_text() == commands.reference(), "run: python tools/reference.py"
    for name, command in commands.commands():
        assert f"\n.SH {name.upper()}\n" in commands.manual()
        assert command.help, name


COMMAND_LINE = re.compile(r"^(?:    |\$ )((?:[\w.=-]+ )*?hloom [a-z].*?)(?: +#.*)?$|`(hloom [a-z][^`]*)`", re.MULTILINE)
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]


def test_command_lines_of_pages_have_commands_and_options_that_exist() -> None:
    """Commands inside of sentences may lack their arguments."""
    lines = [found for page in WRITTEN for found in COMMAND_LINE.findall(page.read_text())]
    lines = [found for found in lines if "[OPTIONS]" not in found[0]]
    assert len(lines) > 100
    for shown, quoted in lines:
        line = shown or quoted
        words = re.sub(r"--load \S+ ", "", line.partition("hloom ")[2].partition(" && ")[0])
        name, *arguments = shlex.split(words)
        if ".." in arguments or not arguments:
            assert name in main.commands, line
            continue
        try:
            main.commands[name].make_context(name, arguments)
        except click.MissingParameter:
            assert quoted, line
        except (click.UsageError, KeyError) as error:
            raise AssertionError(line) from error


def test_the_cluster_of_the_page_is_one(tmp_path: Path) -> None:
    (description,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "how_to.md").read_text(), re.DOTALL)
    path = tmp_path / "cluster.toml"
    path.write_text(description)
    cluster = load_cluster(path)
    assert (cluster.device_count, cluster.flops, cluster.levels[1].latency) == (256, 120e9, 12e-6)


def test_each_clause_has_a_test_and_its_line_is_up_to_date() -> None:
    order, shown, tests = clauses.clauses(), clauses.examples(), clauses.citations(ROOT / "tests")
    assert len(order) == 418 and sum(shown.values()) == 476
    assert [clause for clause in order if not clauses.tested(clause, tests, shown)] == []
    assert clauses.TARGET.read_text() == clauses.page(), "run: python tools/clauses.py"


def test_clauses_have_no_editorial_marks() -> None:
    for page in SPECIFICATION.glob("*.md"):
        assert not re.search(r"\*\*\[|\[(?:reject|choice|seed|xla|addition)\]|\b[Ss]eeds\b", page.read_text()), (
            page.name
        )


def test_cited_clauses_exist() -> None:
    order = clauses.clauses()
    for folder in ("src/hloom", "tests"):
        assert set(clauses.citations(ROOT / folder)) <= set(order), folder


def test_every_opcode_of_xla_is_declared() -> None:
    lines = (SPECIFICATION / "opcodes.txt").read_text().splitlines()
    opcodes = {line for line in lines if not line.startswith("#")}
    assert len(opcodes) == 133 and opcodes == set(OPERATIONS)


def test_every_operation_cites_its_clauses() -> None:
    for opcode, declaration in OPERATIONS.items():
        assert re.search(r"[A-Z0-9]-\d|addition", declaration.__doc__ or ""), opcode


def test_each_promise_about_security_has_its_tests() -> None:
    promises = re.findall(r"^\| (?:modules|arrays|caches|pages) \|.*$", (ROOT / "SECURITY.md").read_text(), re.M)
    assert len(promises) >= 12
    for promise in promises:
        tests = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", promise)
        assert tests, promise
        for file, name in tests:
            text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
            assert re.search(rf"^def {name + '[(]' if name else 'test_'}", text, re.M), (
                f"SECURITY.md: {file}::{name} is not there"
            )


def test_mentioned_files_exist() -> None:
    """A path in backquotes is that of some file, a bare name in a docstring one beside it; tools name JAX's files too."""
    files = [
        path
        for folder in ("src", "tests", "tools", "benchmarks", "examples", "docs")
        for path in (ROOT / folder).rglob("*.*")
    ]
    paths = ["/" + path.relative_to(ROOT).as_posix() for path in (*files, *ROOT.glob("*.md"))]
    missing = []
    for page in [ROOT / "README.md", *(p for p in files if p.suffix in (".md", ".py") and "tools" not in p.parts)]:
        for name in re.findall(r"`((?:[\w.]+/)*\w+\.(?:py|md))`", page.read_text()):
            near = "/" in name or page.suffix == ".md" or (page.parent / name).is_file()
            if not near or not any(path.endswith("/" + name) for path in paths):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert not missing, "\n".join(missing)


OTHERS = {"ElementalIrEmitter", "compute_inline", "IRBuilder", "LoopIR", "scf", "xla_dump_to"}
"""Names of XLA, LLVM, MLIR, Halide and Exo on pages."""


def test_mentioned_names_exist() -> None:
    """Names in backquotes are those of code; the glossary has names of others in its columns."""
    folders = ("src", "tests", "tools", "benchmarks", "examples")
    code = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    code += [ROOT / "Makefile", ROOT / "pyproject.toml"]
    known = OTHERS.union(*(re.findall(r"\w+", f"{path.relative_to(ROOT)} {path.read_text()}") for path in code))
    docs = ROOT / "docs"
    known |= {path.stem for path in docs.rglob("*")} | {path.name for path in (ROOT / "tests" / "corpus").iterdir()}
    pages = [
        path
        for path in docs.rglob("*.md")
        if path.name not in ("commands.md", "glossary.md", "operations.md", "libraries.md", "pass_rates.md")
    ]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in [*ROOT.glob("*.md"), *pages]
        if docs / "specification" not in page.parents and page.name != "CHANGELOG.md"
        for quoted in re.findall(r"`([^`\n]+)`", page.read_text())
        for name in re.findall(r"[A-Za-z_]\w+", quoted)
        if name not in known
    ]
    assert not missing, "\n".join(missing)
