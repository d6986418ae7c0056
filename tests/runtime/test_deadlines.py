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


PARALLEL_LOOP = """HloomModule
condition {
  t = (s32[], f32[64,64], f32[1000000]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(1000000)
  ROOT r = pred[] compare(i, n), direction=LT
}
body {
  t = (s32[], f32[64,64], f32[1000000]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  x = f32[64,64] get-tuple-element(t), index=1
  y = f32[1000000] get-tuple-element(t), index=2
  f = f32[] convert(i)
  g = f32[64,64] broadcast(f), dimensions={}
  a = f32[64,64] multiply(x, g)
  p = f32[64,64] dot(a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  q = f32[64,64] WITHIN
  s = f32[1,1] slice(q), slice={[3:4], [5:6]}
  v = f32[1] reshape(s)
  z = f32[1000000] dynamic-update-slice(y, v, i)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[64,64], f32[1000000]) tuple(j, x, z)
}
ENTRY e {
  x = f32[8] parameter(0)
  first = f32[1] slice(x), slice={[0:1]}
  scalar = f32[] reshape(first)
  whole = f32[64,64] broadcast(scalar), dimensions={}
  i = s32[] constant(0)
  zero = f32[] constant(0)
  zeros = f32[1000000] broadcast(zero), dimensions={}
  t = (s32[], f32[64,64], f32[1000000]) tuple(i, whole, zeros)
  w = (s32[], f32[64,64], f32[1000000]) while(t), condition=condition, body=body
  y = f32[1000000] get-tuple-element(w), index=2
  ROOT r = f32[8] slice(y), slice={[0:8]}
}
""".replace("HloomModule", "HloModule m")
WITHIN = """c = s32[] constant(0)
  t2 = (s32[], f32[64,64]) tuple(c, p)
  w2 = (s32[], f32[64,64]) while(t2), condition=goes_on, body=goes
  q = f32[64,64] get-tuple-element(w2), index=1"""


def parallel_loop(endless: bool) -> hl.Module:
    """A parallel loop of a million iterations of some 20 us each, or each with a loop that does not end."""
    if not endless:
        return hl.parse(PARALLEL_LOOP.replace("WITHIN", "negate(p)"))
    inner = ENDLESS.replace("SIZE", "64,64").replace("STOP", "-1").replace("KIND", "add(x, x)")
    text = PARALLEL_LOOP.replace("q = f32[64,64] WITHIN", WITHIN)
    return hl.parse(text.replace("condition {", f"{inner}\ncondition {{", 1))


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
    with pytest.raises(hl.RunError, match=r"(?s)longer than 0.1 s.*%w") as error:
        executable.run(x, timeout=0.1)
    assert time.perf_counter() - start < 5
    assert "loop" in str(error.value) or "while" in str(error.value)


@pytest.mark.parametrize("endless", [False, True], ids=["many iterations", "endless iterations"])
def test_parallel_iterations_end(endless: bool) -> None:
    executable, x = hl.compile(parallel_loop(endless)), np.ones(8, np.float32)
    start = time.perf_counter()
    for _ in range(2):
        with pytest.raises(hl.RunError, match=r"longer than 0.1 s"):
            executable.run(x, timeout=0.1)
    assert time.perf_counter() - start < 5
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable(x)
    timer.join()


def test_a_run_within_its_deadline_is_as_any_other(backend: str) -> None:
    executable, x = hl.compile(loop(stop=8), backend=backend), np.ones(8, np.float32)
    np.testing.assert_array_equal(executable.run(x, timeout=60), np.full(8, 16))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("body", ["loop", "host"])
def test_ctrl_c_before_the_first_line_of_a_callback_is_not_lost(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
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

        timer = threading.Timer(0.1, press)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            endless(x)
        assert time.perf_counter() - sent[0] < 5
        timer.join()
        np.testing.assert_array_equal(other(x), np.full(size, 16))


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
@pytest.mark.parametrize("of", LOOPS)
def test_errors_of_a_signal_handler_leave_a_compiled_loop(of: str) -> None:
    class OutOfTime(Exception):
        pass

    def handler(*_: object) -> None:
        raise OutOfTime("after 0.1 s")

    size, kind = LOOPS[of]
    endless = hl.compile(loop(size, kind=kind))
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(OutOfTime, match="after 0.1 s"):
                endless(np.ones(size, np.float32))
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_deadline_ends_all_devices() -> None:
    executable = hl.compile(loop(), replicas=3)
    with pytest.raises(hl.RunError, match="longer than 0.1 s"):
        executable.run_replicas([[np.ones(8, np.float32)]] * 3, timeout=0.1)


def test_the_command_has_a_deadline(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(loop().to_text())
    result = CliRunner().invoke(main, ["run", str(tmp_path / "m.hlo"), "--random", "0", "--timeout", "0.1"])
    assert result.exit_code == 2 and "longer than 0.1 s" in result.output + result.stderr
