"""The hloom command, as a user types it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hloom.cli import main

TEXT = """HloModule m
ENTRY e { x = f32[2] parameter(0)
  z = f32[2] constant({0, 1})
  ROOT q = f32[2] divide(x, z) }
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    np.savez(tmp_path / "x.npz", p0=np.array([0, 3], np.float32))
    return path


def hloom(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output + result.stderr


def test_a_run_shows_the_result_writes_it_and_compares_it(module: Path) -> None:
    x, out = module.with_name("x.npz"), module.with_name("y.npz")
    status, output = hloom("run", module, "--input", x, "--output", out)
    assert status == 0 and "r0 f32[2]" in output and "1 NaN" in output
    assert np.load(out)["r0"][1] == 3
    assert hloom("run", module, "--input", x, "--expect", out)[0] == 0
    np.savez(out, r0=np.array([np.nan, 4], np.float32))
    status, output = hloom("run", module, "--input", x, "--expect", out)
    assert status == 1 and "r0 differs in 1 of 2 elements, first at [1]: 3.0, expected 4.0" in output


def test_stop_at_nan_shows_the_operands_statistics(module: Path) -> None:
    status, output = hloom("run", module, "--input", module.with_name("x.npz"), "--stop-at", "nan")
    assert status == 1
    assert "a NaN first arises in %q = f32[2] divide(%x, %z)" in output
    assert "operand %z: f32[2] min 0, max 1" in output


def test_values_of_chosen_instructions_are_printed(module: Path) -> None:
    status, output = hloom("run", module, "--random", 0, "--print", "z")
    assert (status == 0 and "%z" not in output.split("r0")[0]) or "[0. 1.]" in output


def test_errors_go_to_the_exit_status_and_name_what_is_wrong(module: Path) -> None:
    status, output = hloom("run", module)
    assert status == 2 and "the module takes 1 argument (f32[2]): give --input FILE or --random SEED" in output
    status, output = hloom("run", module.with_name("none.hlo"))
    assert status == 2 and "cannot read" in output
    module.write_text(TEXT.replace("divide", "divde"))
    status, output = hloom("run", module, "--random", "0")
    assert status == 2 and "4:19: there is no opcode 'divde'; close are divide" in output
    module.write_bytes(b"\x00\x01\x02")
    status, output = hloom("run", module, "--random", "0")
    assert status == 2 and "hold no HloModuleProto" in output
    (module.with_name("bad.npz")).write_bytes(b"PK nonsense")
    module.write_text(TEXT)
    status, output = hloom("run", module, "--input", module.with_name("bad.npz"))
    assert status == 2 and "cannot read arrays" in output


def test_replicas(tmp_path: Path) -> None:
    path = tmp_path / "r.hlo"
    path.write_text(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
        "ENTRY e { p = f32[] parameter(0)\n ROOT r = f32[] all-reduce(p), replica_groups={}, to_apply=add }"
    )
    np.savez(tmp_path / "x.npz", p0_rep0=np.float32(1), p0_rep1=np.float32(2))
    status, output = hloom("run", path, "--input", tmp_path / "x.npz", "--replicas", 2)
    assert status == 0 and "r0_rep0" in output and "r0_rep1" in output and output.count("3.") >= 2


def test_show(module: Path) -> None:
    status, output = hloom("show", module, "--short")
    assert status == 0 and "ROOT q = f32[2] divide(x, z)" in output
    assert "i2 = f32[2]{0} divide(i0, i1)" in hloom("show", module, "--canonical")[1]
    first = hloom("show", module, "--fingerprint")[1]
    module.write_text(TEXT.replace(" x", " renamed").replace("(x", "(renamed"))
    assert hloom("show", module, "--fingerprint")[1] == first
