"""tools/library_tests: the table of libraries, and the page of results; nothing is installed or downloaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import run_library_tests as tool
from jax_tests import results, shards
from jax_tests.results import Comparison, Result
from library_tests import environments
from library_tests.libraries import LIBRARIES, Library

ROOT = Path(__file__).parents[2]
TESTS = "def test_passes(): pass\ndef test_fails(): assert 1 == 2\n"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_each_library_is_pinned_and_has_tests(library: Library) -> None:
    assert "~=" in library.requirements[0], "the library itself has a version"
    files = library.tests(ROOT, Path("sources"))
    assert files
    assert all((root / file).exists() for file, root in files.items() if root == ROOT), "examples are there"


def test_names_of_libraries_are_folders() -> None:
    names = [library.name for library in LIBRARIES]
    assert len(set(names)) == len(names) and not any("/" in name for name in names)


def test_a_row_counts_only_tests_that_pass_on_the_peer() -> None:
    ends = {"a": results.PASSED, "b": results.PASSED, "c": results.FAILED, "d": results.PASSED}
    peer = {test: Result(test, end, 0.5) for test, end in ends.items()}
    mine = {test: Result(test, end, 0.5) for test, end in {**ends, "b": results.CRASHED}.items() if test != "d"}
    row = tool.row(Comparison("optax", peer, mine), "0.2.8")
    assert row == ("optax", "0.2.8", "3", "2", "1", "1")
    assert tool.markdown([row]).splitlines()[2] == "| optax | 0.2.8 | 3 | 2 | 1 | 1 |"


@pytest.mark.long
def test_an_interrupted_run_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose tests are in the sources runs on both platforms, and not again."""
    library = Library("mine", ("jax~=0.10",), ("mine_test.py",), repository="nowhere")
    source = tmp_path / "sources" / "mine"
    source.mkdir(parents=True)
    (source / "mine_test.py").write_text(TESTS)
    (source / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.setattr(tool, "LIBRARIES", (library,))
    monkeypatch.setattr(environments, "python", lambda *_: Path(sys.executable))
    said = [CliRunner().invoke(tool.main, ["run", "--results", str(tmp_path)]).output for _ in range(2)]
    assert said[0].count("2 of 2 tests ran, 1 failed") == 2
    assert said[1].count("0 of 0 tests ran, 0 failed") == 2
    for platform in ("cpu", "hloom"):
        kept = results.read(tmp_path / platform / "mine.jsonl")
        assert [result.outcome for result in kept.values()] == [results.PASSED, results.FAILED]


def test_one_device_leaves_the_flags_of_xla_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries that set the number of CPU devices with JAX's option cannot have it in XLA's flags too."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    setting = shards.Setting(tmp_path, "hloom", devices=1, variables={"KERAS_BACKEND": "jax"})
    environment = setting.environment()
    assert environment["XLA_FLAGS"] == ""
    assert environment["JAX_PLATFORMS"] == "hloom,cpu"
    assert environment["KERAS_BACKEND"] == "jax"


def test_libraries_that_cannot_be_installed_are_reported(tmp_path: Path) -> None:
    library = Library("absent", ("absent~=1.0",), ("a_test.py",), repository=str(tmp_path / "no-repository"))
    with pytest.raises(environments.Unavailable, match="clone"):
        environments.source(tmp_path, library, Path(sys.executable))
