"""Operations declared by other packages: found by entry points, kept in protos, compiled by their expansion."""

from __future__ import annotations

import importlib.metadata
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.errors import ArgumentError
from hloom.ops import plugins
from hloom.ops.elementwise_binary import Add
from hloom.ops.kinds import INTS
from hloom.ops.operation import OPERATIONS, Operation, attribute
from hloom.proto import module_from_bytes, module_to_bytes

FILE = '''
from hloom.ops.kinds import FLOAT
from hloom.ops.elementwise_binary import Multiply
from hloom.ops.operation import Operation, attribute


class Scale(Operation, opcode="scale-by", builder="scale_by"):
    """Multiplies by a constant."""

    operands = {"operand": "array"}
    elementwise = True
    factor: float = attribute(FLOAT, doc="the constant")

    def infer(self, operand):
        return operand.without_layout()

    def evaluate(self, ctx, operand):
        return operand * operand.dtype.type(self.factor)

    def expand(self, make, module, operand):
        factor = make.constant(self.factor, operand.shape.element_type)
        return make(Multiply(), operand, make.broadcast(factor, operand.shape))
'''
PROGRAM = "HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT y = f32[4] scale-by(x), factor=2.5 }"
X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    known = set(OPERATIONS)
    plugins.load_installed.cache_clear()
    yield
    for opcode in OPERATIONS.keys() - known:
        del OPERATIONS[opcode]
    plugins.load_installed.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, load: Any) -> None:
    """Installs an entry point that loads `load`."""
    point = types.SimpleNamespace(name="package", module="package", load=load)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == plugins.GROUP else [])


def declare() -> None:
    exec(FILE, {"__name__": "others"})


def test_an_opcode_is_looked_for_in_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, declare)
    module = hl.parse(PROGRAM)
    compiled = hl.compile(module)
    assert compiled.report() == []
    assert compiled(X).tolist() == hl.compile(module, "interpreter")(X).tolist() == [0, 2.5, 5, 7.5]


def test_the_builder_gets_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, declare)
    b = hl.XlaBuilder("m")
    module = b.build(b.scale_by(b.parameter(0, hl.f32[4]), factor=3)).module
    assert hl.compile(module)(X).tolist() == [0, 3, 6, 9]
    with pytest.raises(AttributeError, match="XlaBuilder has no method nothing"):
        _ = b.nothing


def test_a_package_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, lambda: 1 / 0)
    with pytest.raises(ArgumentError, match="entry point package of hloom.operations does not load"):
        hl.parse(PROGRAM)
    shown = CliRunner().invoke(main, ["operations"])
    assert shown.exit_code == 2 and "entry point package of hloom.operations does not load" in shown.output


def test_protos_keep_attributes_that_xla_has_no_field_for() -> None:
    class Chosen(Operation, opcode="chosen"):
        operands = {"operand": "array"}
        positions: tuple[int, ...] = attribute(INTS)

        def infer(self, operand: hl.Shape) -> hl.Shape:
            return operand.without_layout()

    module = hl.parse(
        "HloModule m\nENTRY e { x = f32[4] parameter(0)\n"
        ' ROOT y = f32[4] chosen(x), positions={3,1}, frontend_attributes={mine="1"} }'
    )
    again = module_from_bytes(module_to_bytes(module))
    assert again.entry.root.op == Chosen(positions=(3, 1))
    assert again.entry.root.frontend_attributes == {"mine": "1"}
    assert again.to_text() == module.to_text()


def test_an_opcode_that_is_taken_is_refused() -> None:
    with pytest.raises(ArgumentError, match="operation add is already declared"):
        type("Other", (Operation,), {}, opcode="add")
    assert OPERATIONS["add"] is Add


def test_an_expansion_of_another_shape_is_an_error() -> None:
    class Wrong(Operation, opcode="wrong-shape"):
        operands = {"operand": "array"}

        def infer(self, operand: hl.Shape) -> hl.Shape:
            return operand.without_layout()

        def expand(self, make: Any, module: hl.Module, operand: Any) -> Any:
            return make.constant(0, operand.shape.element_type)

    module = hl.parse("HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT y = f32[4] wrong-shape(x) }")
    with pytest.raises(ArgumentError, match=r"expansion of wrong-shape has the shape f32\[\], it has f32\[4\]"):
        hl.compile(module)


def test_expansions_are_not_read_from_the_disk_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_CACHE_DIR", str(tmp_path))
    for factor in (2.0, 3.0):
        exec(FILE.replace("make.constant(self.factor", f"make.constant({factor}"), {"__name__": "others"})
        assert hl.compile(hl.parse(PROGRAM))(X).tolist() == (factor * X).tolist()


def test_commands_load_a_file(tmp_path: Path) -> None:
    file, module = tmp_path / "mine.py", tmp_path / "m.hlo"
    file.write_text(FILE)
    module.write_text(PROGRAM)
    run = CliRunner().invoke(
        main, ["--load", str(file), "run", str(module), "--random", "0", "--compare", "interpreter"]
    )
    assert run.exit_code == 0, run.output
    shown = CliRunner().invoke(main, ["operations", "scale-by", "add"]).output
    assert "### `scale-by(operand)`" in shown and "| `factor` |" in shown and "### `add(lhs, rhs)`" in shown
    assert "scale-by                     Multiplies by a constant." in CliRunner().invoke(main, ["operations"]).output
    missing = CliRunner().invoke(main, ["operations", "scale-bi"])
    assert missing.exit_code == 2 and "close are scale-by" in missing.output
    absent = CliRunner().invoke(main, ["--load", str(tmp_path / "none.py"), "operations"])
    assert absent.exit_code == 2 and "cannot read" in absent.output
