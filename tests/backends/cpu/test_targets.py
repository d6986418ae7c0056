"""Tests of compiled programs for other processors: levels of x86-64 on one host, AArch64 emulated."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hloom as hl
from conftest import ROOT
from foreign_python import CANNOT_RUN
from hlo_text import softmax
from hloom.aot.targets import target_of
from hloom.backends.cpu.llvm import processor as llvm_processor
from hloom.backends.cpu.llvm.processor import host_processor
from hloom.errors import ArgumentError

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


@pytest.fixture
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A level of x86-64 that this processor has."""
    host_processor.cache_clear()
    monkeypatch.setenv("HLOOM_TARGET_CPU", request.param)
    try:
        host_processor()
    except ArgumentError as error:
        pytest.skip(str(error))
    finally:
        host_processor.cache_clear()
    return str(request.param)


CHECK = """
import numpy as np
import hloom as hl
from hloom.backends.cpu.llvm.processor import processor
text = open({path!r}).read()
x = np.linspace(-3, 3, 7 * 50, dtype=np.float32).reshape(7, 50)
found, wanted = (np.asarray(hl.compile(text, backend=backend)(x)) for backend in ("cpu", "interpreter"))
np.testing.assert_allclose(found, wanted, rtol=1e-6)
print(processor().name, processor().vector_bytes)
"""


@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_a_program_for_each_level(level: str, tmp_path) -> None:
    path = tmp_path / "softmax.hlo"
    path.write_text(softmax(7, 50))
    done = subprocess.run([sys.executable, "-c", CHECK.format(path=str(path))], capture_output=True, text=True)
    assert done.stdout.split() == [level, str(16 << LEVELS.index(level))], done.stderr


@pytest.mark.parametrize("name", ["x86-64-v5", "skylake", ""])
def test_other_names_are_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_TARGET_CPU", name)
    host_processor.cache_clear()
    try:
        with pytest.raises(ArgumentError, match="native or one of x86-64-v2, x86-64-v3, x86-64-v4"):
            hl.compile("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")
    finally:
        host_processor.cache_clear()


def test_tile_registers_are_used_if_the_system_grants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llvm_processor, "grants_tile_registers", lambda: False)
    host_processor.cache_clear()
    try:
        assert not host_processor().has(llvm_processor.TILE_REGISTERS)
    finally:
        host_processor.cache_clear()


def test_libraries_have_no_tile_registers() -> None:
    assert not target_of("native").processor.has(llvm_processor.TILE_REGISTERS)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_the_compiled_suite_for_each_level(level: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not long", "-p", "no:cacheprovider", "tests/backends/cpu"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]


# Where cases are bounded, as each takes long: native Python and code generation, threads, memory, calls.
EMULATED = ["tests/backends/cpu/llvm", "tests/backends/cpu/runtime"]


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_compiled_suite_on_aarch64() -> None:
    chosen = EMULATED if os.environ.get("HLOOM_CASES") else ["tests/backends/cpu"]
    command = [sys.executable, "tools/run_on_aarch64.py", "-q", "-m", "not long", "--timeout=900", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode == CANNOT_RUN:
        pytest.skip(done.stderr[-500:])
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
