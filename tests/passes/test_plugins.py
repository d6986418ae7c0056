"""Plugins: rules made by the decorator, and rules and passes loaded from files and entry points."""

from __future__ import annotations

import importlib.metadata
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.errors import ArgumentError
from hloom.passes import parse_passes, plugins, run_passes
from hloom.passes.rewrite import Rule

FILE = '''
from dataclasses import dataclass
from typing import ClassVar

import hloom as hl
from hloom.ops.elementwise_binary import Add
from hloom.passes.simplify.dead_code import DeadCodeElimination


@hl.rewrite("multiply(x, $c)", "x * 2 = x + x", when=lambda m: m.value("c") == 2)
def double_it(m):
    return m.result(Add(), m.x, m.x)


@dataclass(frozen=True)
class Renamer:
    """Names every root."""

    name: ClassVar[str] = "renamer"
    root: str = "root"

    def run(self, module):
        module.entry.root.name = self.root
        return 1
'''
PROGRAM = """HloModule m
ENTRY main { x = f32[4] parameter(0)
  two = f32[] constant(2)
  twos = f32[4] broadcast(two), dimensions={}
  ROOT y = f32[4] multiply(x, twos) }
"""


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "FOUND", {})
    plugins.installed.cache_clear()


def test_a_file_registers_what_it_defines(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    assert sorted(plugins.load_extensions(str(file))) == ["double-it", "renamer"]
    module = hl.parse(PROGRAM)
    statistics = run_passes(module, parse_passes("double-it,renamer{root=last}"))
    assert [i.name for i in module.entry.instructions] == ["x", "last"]
    assert statistics[0].rules == {"double-it": 1}


def test_a_command_loads_a_file(tmp_path: Path) -> None:
    file, module = tmp_path / "mine.py", tmp_path / "m.hlo"
    file.write_text(FILE)
    module.write_text(PROGRAM)
    options = ["--load", str(file), "opt", str(module), "--passes", "double-it", "--statistics"]
    result = CliRunner().invoke(main, options)
    assert result.exit_code == 0, result.output
    assert "add(x, x)" in result.output
    listed = CliRunner().invoke(main, ["--load", str(file), "opt", "--list"]).output
    assert "double-it\n    x * 2 = x + x" in listed and "renamer\n    Names every root." in listed


def test_entry_points_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = Rule("of-a-package", "negate(negate(x))", lambda m: m.x, "")
    module = types.ModuleType("of_a_package")
    module.__dict__["rule"] = rule
    point = types.SimpleNamespace(name="package", load=lambda: module)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == plugins.GROUP else [])
    assert parse_passes("of-a-package").passes == (rule,)
    with pytest.raises(ArgumentError, match="no pass 'missing'; the passes are: .*of-a-package"):
        parse_passes("missing")
    with pytest.raises(ArgumentError, match="has no fields"):
        parse_passes("of-a-package{a=1}")


def test_plugins_that_do_not_load_are_errors_that_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    with pytest.raises(ArgumentError, match="cannot read"):
        plugins.load_extensions(str(file))
    file.write_text("1 / 0")
    with pytest.raises(ArgumentError, match="ZeroDivisionError"):
        plugins.load_extensions(str(file))
    file.write_text("import hloom")
    with pytest.raises(ArgumentError, match="defines no pass"):
        plugins.load_extensions(str(file))
    bad = types.SimpleNamespace(name="bad", load=lambda: 1 / 0)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [bad])
    with pytest.raises(ArgumentError, match="entry point bad"):
        parse_passes("anything")


@pytest.mark.parametrize("pattern", ["", "x", "add(x", "add(x))", "nothing(x)", "add x"])
def test_a_pattern_that_cannot_be_read_is_an_error(pattern: str) -> None:
    with pytest.raises(ArgumentError):
        hl.rewrite(pattern)(lambda m: m.x)


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("concatenate(slice*)", "ROOT r = f32[8] concatenate(x, s), dimensions={0}", True),
        ("concatenate(reverse*)", "ROOT r = f32[8] concatenate(x, s), dimensions={0}", False),
        ("concatenate(*)", "ROOT r = f32[8] concatenate(x, s), dimensions={0}", True),
        ("add(x, slice(y))", "ROOT r = f32[4] add(x, s)", True),
        ("add(slice(y), x)", "ROOT r = f32[4] add(x, s)", False),
        ("elementwise(slice*)", "ROOT r = f32[4] add(x, s)", True),
        ("elementwise($c, slice(y))", "ROOT r = f32[4] add(x, s)", False),
    ],
)
def test_patterns_match_operands(pattern: str, text: str, fits: bool) -> None:
    program = f"x = f32[4] parameter(0)\n w = f32[6] parameter(1)\n s = f32[4] slice(w), slice={{[1:5]}}\n {text}"
    module = hl.parse(f"HloModule m\nENTRY m {{ {program} }}")
    seen = []
    rule = hl.rewrite(pattern, when=lambda m: bool(seen.append(m.root.name)))(lambda m: m.root)
    assert rule.run(module) == 0
    assert seen == (["r"] if fits else [])


@pytest.mark.parametrize(
    ("stage", "wanted"), [("loops", "vector i0"), ("llvm", "define i32 @hloom_main"), ("asm", "hloom_main:")]
)
def test_stages_of_a_compilation_are_printed(stage: str, wanted: str, tmp_path: Path) -> None:
    module = tmp_path / "m.hlo"
    module.write_text(PROGRAM)
    result = CliRunner().invoke(main, ["opt", str(module), "--stage", stage])
    assert result.exit_code == 0 and wanted in result.output
