"""Endless loops end: Ctrl-C and deadlines reach a program that runs, and leave everything usable."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import hloom as hl
from hlo_text import module_text
from hloom.backends.cpu.executable import CpuExecutable
from hloom.cli import main

ENDLESS = """
goes_on {
  t = (s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  stop = s32[] constant(STOP)
  ROOT r = pred[] compare(i, stop), direction=NE
}
goes {
  t = (s32[], f32[SIZE]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[SIZE] get-tuple-element(t), index=1
  two = s32[] constant(2)
  j = s32[] add(i, two)
  y = f32[SIZE] KIND
  ROOT r = (s32[], f32[SIZE]) tuple(j, y)
}
"""

ENTRY = """x = f32[SIZE] parameter(0)
i = s32[] constant(0)
t = (s32[], f32[SIZE]) tuple(i, x)
w = (s32[], f32[SIZE]) while(t), condition=goes_on, body=goes
ROOT r = f32[SIZE] get-tuple-element(w), index=1
"""


def loop(size: int = 8, stop: int = -1, kind: str = "add(x, x)") -> hl.Module:
    """A loop that counts by two from 0 up to `stop`; an odd `stop` never comes."""
    text = module_text(ENTRY, ENDLESS).replace("SIZE", str(size)).replace("STOP", str(stop))
    return hl.parse(text.replace("KIND", kind))


LOOPS = {
    "small": (8, "add(x, x)"),
    "in parallel": (1_000_000, "add(x, x)"),
    "blocked": (50_000, "sort(x), dimensions={0}, to_apply=less"),
}


@pytest.mark.parametrize("of", LOOPS)
def test_a_deadline_names_the_loop(of: str, backend: str) -> None:
    size, kind = LOOPS[of]
    executable, x = hl.compile(loop(size, kind=kind), backend=backend), np.ones(size, np.float32)
    start = time.perf_counter()
    with pytest.raises(hl.RunError, match=r"(?s)longer than 0.2 s.*%w") as error:
        executable.run(x, timeout=0.2)
    assert time.perf_counter() - start < 5
    assert "loop" in str(error.value) or "while" in str(error.value)


def test_a_run_within_its_deadline_is_as_any_other(backend: str) -> None:
    executable, x = hl.compile(loop(stop=8), backend=backend), np.ones(8, np.float32)
    np.testing.assert_array_equal(executable.run(x, timeout=60), np.full(8, 16))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("body", ["loop", "host"])
def test_ctrl_c_before_the_first_line_of_what_is_called_back_is_not_lost(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(CpuExecutable, "_call_host", interrupted)
    called = module_text('x = f32[8] parameter(0)\nROOT r = f32[8] custom-call(x), custom_call_target="nobody_knows"')
    executable = hl.compile(loop() if body == "loop" else called)
    with pytest.raises(KeyboardInterrupt):
        executable(np.ones(8, np.float32))


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
@pytest.mark.parametrize("of", LOOPS)
def test_ctrl_c_ends_a_compiled_loop_and_leaves_all_usable(of: str) -> None:
    size, kind = LOOPS[of]
    x = np.ones(size, np.float32)
    endless, other = hl.compile(loop(size, kind=kind)), hl.compile(loop(size, 8))
    for _ in range(2):
        sent: list[float] = []

        def press(sent: list[float] = sent) -> None:
            sent.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.2, press)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            endless(x)
        assert time.perf_counter() - sent[0] < 5
        timer.join()
        np.testing.assert_array_equal(other(x), np.full(size, 16))


def test_a_deadline_ends_all_devices() -> None:
    executable = hl.compile(loop(), replicas=3)
    with pytest.raises(hl.RunError, match="longer than 0.2 s"):
        executable.run_replicas([[np.ones(8, np.float32)]] * 3, timeout=0.2)


def test_the_command_has_a_deadline(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(loop().to_text())
    result = CliRunner().invoke(main, ["run", str(tmp_path / "m.hlo"), "--random", "0", "--timeout", "0.2"])
    assert result.exit_code == 1 and "longer than 0.2 s" in result.output + result.stderr
