"""Exceptions in optional passes: the program is compiled without the pass, and a warning reports it."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import hloom as hl
import hloom.backends.cpu.program.build_program as build_program
from hlo_text import loop, module_text, run_loop
from hloom.backends.cpu.pipeline import cpu_pipeline
from hloom.passes import optional
from hloom.passes.pipeline import is_optional

BODY = """zero = s32[] constant(0)
c = f32[] constant(0)
d = f32[64,64] dot(x0, x0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
s = f32[64] reduce(d, c), dimensions={1}, to_apply=sum
b = f32[64,64] broadcast(s), dimensions={0}
h = f32[64,64] tanh(b)
row = f32[1,64] slice(h), slice={[0:1], [0:64]}
y0 = f32[64,64] dynamic-update-slice(x0, row, i, zero)"""
PROGRAM = module_text(run_loop("f32[64,64]") + "\nROOT r = f32[64,64] copy(y0)", loop("f32[64,64]", BODY))


OPTIONAL = {step.name: type(step) for step in cpu_pipeline().leaves() if is_optional(step)}


class Broken(KeyError):
    """The exception of a planted defect."""


def fail(*arguments: object) -> int:
    raise Broken("a defect")


def plant_defect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a pass fail, on any module."""
    cls = OPTIONAL[name]
    monkeypatch.setattr(cls, "apply" if hasattr(cls, "apply") else "run", fail)
    monkeypatch.setattr(cls, "operations", (object,), raising=False)


@pytest.fixture(autouse=True)
def without_strictness(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(optional, "strict", False)
    monkeypatch.setattr(optional, "_reported", set())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("HLOOM_CACHE_DIR", "")


def check(x: np.ndarray) -> list[str]:
    """Compiles and runs the program, checks the result, and returns the warnings."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        got = hl.compile(PROGRAM)(x)
    np.testing.assert_allclose(got, hl.compile(PROGRAM, backend="interpreter")(x), rtol=1e-5)
    return [str(warning.message) for warning in found]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", OPTIONAL)
def test_programs_compile_without_a_pass_that_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant_defect(name, monkeypatch)
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    (warning,) = check(x)
    assert f"{name} fails on the module m (Broken: 'a defect')" in warning
    reproducer = Path(warning.split("report it with ")[1].split(";")[0])
    assert hl.load(reproducer).to_text() == hl.parse(PROGRAM).to_text()


def test_the_warning_comes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_defect("fusion", monkeypatch)
    x = np.eye(64, dtype=np.float32)
    assert len(check(x)) == 1 and check(x) == []


def test_all_optional_parts_may_fail_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTIONAL:
        plant_defect(name, monkeypatch)
    monkeypatch.setattr(build_program, "independent_iterations", fail)
    assert len(check(np.eye(64, dtype=np.float32))) >= len(OPTIONAL)


def test_tests_and_verification_get_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPTIONAL["fusion"], "run", fail)
    monkeypatch.setenv("HLOOM_VERIFY", "1")
    with pytest.raises(Broken):
        hl.compile(PROGRAM)
    monkeypatch.delenv("HLOOM_VERIFY")
    monkeypatch.setattr(optional, "strict", True)
    with pytest.raises(Broken):
        hl.compile(PROGRAM)
