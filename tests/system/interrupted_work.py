"""A program that does the same work again and again, and is interrupted each time at another moment.

    python interrupted_work.py TIMES SEED WORK ..

It ends with status 0 where each interrupt was a KeyboardInterrupt, all work after it gave the right results, and at the
end all is as it was. An interrupt that gets lost, or a lock that stays held, ends it with a traceback of all threads.
"""

from __future__ import annotations

import contextvars
import faulthandler
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.testing  # now: a child forked while another thread imports it would wait for that thread

import hloom as hl

HANG_SECONDS = 60
X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
WHOLE = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
LARGE = np.arange(1 << 17, dtype=np.float32)


def program(constant: int) -> str:
    return f"""HloModule m
ENTRY e {{
  a = f32[64,64] parameter(0)
  c = f32[] constant({constant})
  b = f32[64,64] broadcast(c), dimensions={{}}
  s = f32[64,64] negate(a)
  d = f32[64,64] dot(s, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = f32[64,64] add(d, d)
}}
"""


def expected(constant: int) -> np.ndarray:
    return np.broadcast_to(-2 * constant * X.sum(1, keepdims=True, dtype=np.float64), (64, 64))


def check(executable: hl.Executable, constant: int) -> None:
    result, tolerance = executable(X), 1e-3 * constant
    # NumPy's comparison leaves its error settings in effect where an interrupt comes: those of a copy.
    contextvars.copy_context().run(np.testing.assert_allclose, result, expected(constant), rtol=1e-3, atol=tolerance)


def parsing() -> Callable[[], None]:
    lines = [f"  s{k + 1} = f32[8] add(s{k}, s{k})" for k in range(300)]
    text = "\n".join(
        ["HloModule m", "ENTRY e {", "  s0 = f32[8] parameter(0)", *lines, "  ROOT r = f32[8] copy(s300)", "}"]
    )
    count = len(hl.parse(text).entry.instructions)

    def work() -> None:
        assert len(hl.parse(text).entry.instructions) == count == 302

    return work


def compiling() -> Callable[[], None]:
    values = iter(range(1, 1 << 30))

    def work() -> None:
        constant = next(values)
        check(hl.compile(program(constant)), constant)

    return work


def loading() -> Callable[[], None]:
    os.environ["HLOOM_CACHE_DIR"] = folder
    values = random.Random(1)

    def work() -> None:
        constant = values.randrange(1, 9)
        check(hl.compile(program(constant)), constant)

    return work


def running() -> Callable[[], None]:
    once = hl.compile(
        f"HloModule m\nENTRY e {{\n a = f32[{LARGE.size}] parameter(0)\n ROOT r = f32[{LARGE.size}] add(a, a)\n}}"
    )
    looped = hl.compile(LOOP)

    def work() -> None:
        np.testing.assert_array_equal(once(LARGE), 2 * LARGE)
        np.testing.assert_array_equal(looped(WHOLE), WHOLE + 20_000)

    return work


def interpreting() -> Callable[[], None]:
    looped = hl.compile(LOOP.replace("20000", "20"), backend="interpreter")

    def work() -> None:
        np.testing.assert_array_equal(looped(WHOLE), WHOLE + 20)

    return work


def replicating() -> Callable[[], None]:
    text = """HloModule m, replica_count=2
add { x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[64,64] parameter(0)
  ROOT r = f32[64,64] all-reduce(a), to_apply=add
}
"""
    executables = [hl.compile(text, backend=backend) for backend in ("cpu", "interpreter")]

    def work() -> None:
        for executable in executables:
            for result in executable.run_replicas([[X], [X + 1]]):
                np.testing.assert_array_equal(result, X + (X + 1))

    return work


LOOP = """HloModule m
body {
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64,64] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  step = f32[] constant(1)
  steps = f32[64,64] broadcast(step), dimensions={}
  sum = f32[64,64] add(x, steps)
  ROOT t = (s32[], f32[64,64]) tuple(next, sum)
}
condition {
  p = (s32[], f32[64,64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20000)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64,64] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[64,64]) tuple(zero, x)
  end = (s32[], f32[64,64]) while(start), condition=condition, body=body
  ROOT r = f32[64,64] get-tuple-element(end), index=1
}
"""
WORKS = {f.__name__: f for f in (parsing, compiling, loading, running, interpreting, replicating)}


def seconds_of(work: Callable[[], None]) -> float:
    work()
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def interrupt(work: Callable[[], None], seconds: float) -> None:
    """Does the work until an interrupt comes after so many seconds."""
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            work()
    except KeyboardInterrupt:
        pass


def state() -> object:
    return gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), np.geterr(), sys.getswitchinterval()


def on_another_thread(work: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert not errors, errors


def repeat(name: str, times: int, seed: int) -> None:
    rng, work = random.Random(seed), WORKS[name]()
    before, span = state(), 1.5 * seconds_of(work)
    for _ in range(times):
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        interrupt(work, 1e-6 + rng.random() * span)
        work()
    on_another_thread(work)
    deadline = time.monotonic() + HANG_SECONDS
    while state() != before and time.monotonic() < deadline:
        time.sleep(0.01)  # what was abandoned ends by and by
    assert state() == before, (state(), before)
    assert not [path.name for path in Path(folder).iterdir() if path.suffix == ".part"]
    os.environ["HLOOM_CACHE_DIR"] = ""


if __name__ == "__main__":
    faulthandler.enable()
    os.environ["HLOOM_CACHE_DIR"] = ""
    with tempfile.TemporaryDirectory() as folder:
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        for name in sys.argv[3:]:
            repeat(name, int(sys.argv[1]), int(sys.argv[2]))
