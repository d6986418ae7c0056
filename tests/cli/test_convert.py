"""Conversion of modules between file formats: `hloom convert`, `hloom.save`, `hloom.load`, and snapshots in `run`."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hloom.cli import main
from hloom.text import fingerprint

TEXT = """HloModule m
ENTRY e { x = f32[2] parameter(0)
  z = f32[2] constant({1, 2})
  ROOT q = f32[2] divide(x, z), metadata={op_name="jit(f)/div"} }
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return path


def hloom(*arguments: object, stdin: bytes | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(map(str, arguments)), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def same(path: Path) -> bool:
    return fingerprint(hl.load(path)) == fingerprint(hl.parse(TEXT))


@pytest.mark.parametrize("extension", ["hlo", "txt", "pb", "pbtxt", "mlir"])
def test_every_format_is_read_back(module: Path, extension: str) -> None:
    target = module.with_name(f"n.{extension}")
    assert hloom("convert", module, target) == (0, "")
    assert same(target)
    # The content counts, not the name.
    other = target.rename(module.with_name("other.what"))
    assert same(other)
    hl.save(hl.load(other), target)
    assert same(target)


def test_bytecode_goes_through_jaxlib(module: Path) -> None:
    pytest.importorskip("jaxlib", reason="bytecode is jaxlib's")
    target = module.with_name("m.mlirbc")
    assert hloom("convert", module, target) == (0, "")
    content = target.read_bytes()
    assert content.startswith(b"ML\xefR") and same(target)
    damaged = bytearray(content)
    damaged[40:60] = b"\xff" * 20
    target.write_bytes(damaged)
    with pytest.raises(hl.HloomError, match="no StableHLO bytecode that jaxlib reads"):
        hl.load(target)


def test_without_jaxlib_bytecode_is_an_error_that_names_the_command(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, output = hloom("convert", module, module.with_name("m.mlirbc"))
    assert status == 2 and "pip install jaxlib" in output


def test_standard_input_and_output(module: Path) -> None:
    status, output = hloom("convert", "-", "-", "--to", "mlir", stdin=TEXT.encode())
    assert status == 0 and "stablehlo.divide %arg0, %cst : tensor<2xf32> loc(#loc1)" in output
    status, text = hloom("convert", "-", "-", stdin=output.encode())
    assert status == 0 and text.startswith("HloModule m")
    assert "loc(" not in hloom("convert", module, "-", "--to", "mlir", "--no-metadata")[1]


def test_a_failure_leaves_the_target_as_it_was(module: Path) -> None:
    target = module.with_name("target.mlir")
    target.write_text("what was there")
    module.write_text(TEXT.replace("divide", "divde"))
    status, output = hloom("convert", module, target)
    assert status == 2 and "there is no opcode 'divde'" in output and str(module) in output
    module.write_text("HloModule m\nENTRY e { ROOT r = u64[2] rng-get-and-update-state(), delta=1 }")
    status, output = hloom("convert", module, target)
    assert status == 2 and "rng-get-and-update-state has no meaning in StableHLO" in output
    assert target.read_text() == "what was there"
    assert sorted(os.listdir(module.parent)) == ["m.hlo", "target.mlir"]


def test_errors_name_formats_and_files(module: Path) -> None:
    status, output = hloom("convert", module, module.with_name("m.exe"))
    assert status == 2 and "these are: .hlo, .txt, .mlir, .mlirbc" in output
    status, output = hloom("convert", module, module.parent / "none" / "m.pb")
    assert status == 2 and "cannot write" in output
    status, output = hloom("convert", "-", "-", stdin=b"\x00\x01\x02")
    assert status == 2 and "at standard input" in output
    with pytest.raises(hl.ArgumentError, match="save takes a Module or an XlaComputation, got int"):
        hl.save(3, module)  # type: ignore[arg-type]


def test_parse_takes_both_languages(module: Path) -> None:
    stablehlo = hloom("convert", module, "-", "--to", "mlir")[1]
    assert fingerprint(hl.parse("// a comment\n" + stablehlo)) == fingerprint(hl.parse(TEXT))
    with pytest.raises(hl.ParseError, match="HLO text starts with 'HloModule name'"):
        hl.parse("something else")
    x = np.array([2, 6], np.float32)
    assert hl.compile(stablehlo)(x).tolist() == [2, 3]


def test_a_run_saves_a_snapshot_that_runs_again(module: Path) -> None:
    path = module.with_name("s.hlo_snapshot.pb")
    status, _ = hloom("run", module, "--random", 0, "--save-snapshot", path)
    assert status == 0
    status, output = hloom("run", path)
    assert status == 0 and "r0 is as expected" in output
    snapshot = hl.Snapshot.load(path)
    hl.Snapshot(snapshot.module, snapshot.arguments, snapshot.result + 1).save(path)
    status, output = hloom("run", path)
    assert status == 1 and "r0 differs in 2 of 2 elements" in output
    status, output = hloom("run", path, "--random", 3)
    assert status == 0 and "differs" not in output
