"""The work of a soak test: threads that compile and run random programs, interrupts, forks, evictions."""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import itertools
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import hloom as hl
from hloom.backends.cpu.llvm.disk_cache import remove_oldest
from hloom.errors import ResourceExhaustedError
from hloom.files.arrays import flat
from hloom.fuzz.grammar import draw_case
from hloom.system.shield import FORK_TIMEOUT_SECONDS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from backends.cpu.fused_programs import draw_loops, draw_program
from backends.cpu.replica_programs import draw_replicas

SEEDS = 100
"""Programs of each generator that are drawn many times, and have the same results each time."""
RECURRING = 0.5
"""The share of compiled programs that are among these; the others are new ones."""
KEPT = 24
"""Executables of a thread that are kept for further runs."""
FORK_SECONDS = 180.0
"""The time after which a forked child counts as hanging."""
WRONG, LATE = 3, 4
"""Statuses of a child: its result is wrong; a thread of its parent took too long to reach a checkpoint."""
HUGE = (
    "HloModule huge\nENTRY e { x = f32[1099511627776] iota(), iota_dimension=0\n ROOT r = f32[1099511627776] sine(x) }"
)
ENDLESS = """HloModule endless
c { s = s32[] parameter(0)
  z = s32[] constant(0)
  ROOT r = pred[] compare(s, z), direction=GE }
b { s = s32[] parameter(0)
  z = s32[] constant(0)
  ROOT r = s32[] maximum(s, z) }
ENTRY e { s = s32[] parameter(0)
  ROOT w = s32[] while(s), condition=c, body=b }"""

Drawn = tuple[hl.Module, list[list[Any]]]


def _case(seed: int) -> Drawn:
    case = draw_case(seed, alone=True)
    return case.module, [[*(case.arguments or ())]]


def _one(draw: Callable[[int], tuple[hl.Module, list[Any]]]) -> Callable[[int], Drawn]:
    def drawn(seed: int) -> Drawn:
        module, inputs = draw(seed)
        return module, [inputs]

    return drawn


GENERATORS: list[Callable[[int], Drawn]] = [_case, _one(draw_program), _one(draw_loops), draw_replicas]


@dataclass
class Counts:
    """Counts of events so far, and the failures."""

    programs: int = 0
    interrupts: int = 0
    forks: int = 0
    evictions: int = 0
    refusals: int = 0
    failures: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, int]:
        return {name: value for name, value in vars(self).items() if name != "failures"}


class Soak:
    """Random work on several threads, which goes on until `stop` is set and pauses while `paused` is."""

    def __init__(self, seed: int, cache: Path) -> None:
        self.seed, self.cache, self.counts = seed, cache, Counts()
        self.results: dict[tuple[int, int], str] = {}
        """Digests of the results of each recurring program, by generator and seed."""
        self.stop, self.paused = threading.Event(), threading.Event()
        self.idle: set[int] = set()
        """Workers that have noticed the pause."""
        self.progress: dict[int, float] = {}
        """Time at which each worker last finished something."""
        self.new_seeds = itertools.count(SEEDS)
        self.current: dict[int, tuple[int, int]] = {}
        """The program that each thread compiled last."""
        self.armed = False
        signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, *_: object) -> None:
        """Raises KeyboardInterrupt on the main thread, once for each program that it compiles or runs."""
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt

    # Programs

    def program(self, rng: random.Random, kept: list[tuple[tuple[int, int], hl.Executable, Any]]) -> None:
        """Compiles a random program, or takes one that is kept, and runs it; its results are those of earlier runs."""
        if kept and rng.random() < 0.3:
            key, run, arguments = rng.choice(kept)
        else:
            seed = rng.randrange(SEEDS) if rng.random() < RECURRING else next(self.new_seeds)
            key = rng.randrange(len(GENERATORS)), seed
            self.current[threading.get_ident()] = key
            module, arguments = GENERATORS[key[0]](key[1])
            replicas = len(arguments) if len(arguments) > 1 else None
            run = hl.compile(module, replicas=replicas, seed=key[1], timeout=300.0)
            if rng.random() < 0.5:
                kept.append((key, run, arguments))
        found = {_digest(run.run_replicas(arguments)) for _ in range(rng.randrange(1, 4))}
        if key[1] < SEEDS:
            found.add(self.results.setdefault(key, min(found)))
        if len(found) > 1:
            self.fail(f"program {key} has other results than before")
        while len(kept) > KEPT:
            kept.pop(rng.randrange(len(kept)))
        self.counts.programs += 1

    def refused(self, rng: random.Random) -> None:
        """Runs a program that needs more memory than there is, or more time than it is given."""
        try:
            if rng.random() < 0.5:
                hl.compile(HUGE)()
            else:
                hl.compile(ENDLESS).run(np.int32(1), timeout=0.05)
        except hl.HloomError:
            self.counts.refusals += 1
        else:
            self.fail("a program ended that cannot")

    def evict(self, rng: random.Random) -> None:
        """Removes or damages files of the cache."""
        files = list(self.cache.iterdir())
        if rng.random() < 0.3 and files:
            with contextlib.suppress(OSError):  # another thread has removed it
                os.truncate(rng.choice(files), rng.randrange(1 << 10))
        else:
            remove_oldest(self.cache, rng.randrange(1 << 24))
        self.counts.evictions += 1

    def fail(self, reason: str) -> None:
        self.counts.failures.append(reason)

    # Threads

    def work(self, number: int) -> None:
        """The work of a thread other than the main one."""
        rng = random.Random(self.seed * 1000 + number)
        kept: list[tuple[tuple[int, int], hl.Executable, Any]] = []
        while not self.stop.is_set():
            if self.paused.is_set():
                kept.clear()
                self.idle.add(number)
                time.sleep(0.05)
                continue
            self.idle.discard(number)
            self._guarded(self._choice(rng, kept))
            self.progress[number] = time.monotonic()
        self.progress.pop(number, None)

    def _choice(self, rng: random.Random, kept: list[Any]) -> Callable[[], None]:
        chance = rng.random()
        if chance < 0.01:
            return lambda: self.refused(rng)
        if chance < 0.02:
            return lambda: self.evict(rng)
        return lambda: self.program(rng, kept)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Runs some work; an error is a failure, unless memory is short."""
        try:
            work()
        except ResourceExhaustedError:
            self.counts.refusals += 1
        except Exception as error:
            self.fail(f"program {self.current.get(threading.get_ident())}: {type(error).__name__}: {error}")

    def step(self, rng: random.Random, kept: list[Any]) -> None:
        """Work of the main thread, which Ctrl-C may interrupt."""
        try:
            self.armed = True
            self._guarded(lambda: self.program(rng, kept))
            self.armed = False
        except KeyboardInterrupt:
            self.counts.interrupts += 1
        self.armed = False

    def interrupt(self, mean_seconds: float) -> None:
        """Sends Ctrl-C to the main thread now and then."""
        rng, main = random.Random(self.seed), threading.main_thread().ident
        assert main is not None
        while not self.stop.wait(rng.expovariate(1 / mean_seconds)):
            if self.armed:
                signal.pthread_kill(main, signal.SIGINT)

    def fork(self, rng: random.Random) -> None:
        """Forks while other threads compile; the child compiles and runs programs of its own."""
        key = rng.randrange(len(GENERATORS)), rng.randrange(SEEDS)
        faulthandler.dump_traceback_later(FORK_TIMEOUT_SECONDS * 0.9)  # who keeps the fork waiting
        child = os.fork()
        if not child:
            _child(key, self.results.get(key))
        faulthandler.cancel_dump_traceback_later()
        deadline = time.monotonic() + FORK_SECONDS
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.monotonic() > deadline:
                self.fail(f"a forked child hangs on program {key}")
                os.kill(child, signal.SIGABRT)
                os.waitpid(child, 0)
                return
            time.sleep(0.02)
        self.counts.forks += 1
        status = os.waitstatus_to_exitcode(ended[1])
        if status == LATE:
            self.counts.refusals += 1
        elif status:
            self.fail(f"a forked child ended with {status} on program {key}")


def _child(key: tuple[int, int], want: str | None) -> None:
    """Runs a program in a forked child, and ends it: with 0 if the result is right."""
    status = WRONG
    try:
        module, arguments = GENERATORS[key[0]](key[1])
        run = hl.compile(module, replicas=len(arguments) if len(arguments) > 1 else None, seed=key[1])
        found = _digest(run.run_replicas(arguments))
        status = 0 if want in (None, found) else WRONG
    except BaseException as error:
        status = LATE if "forked while another thread compiled" in str(error) else WRONG
        print(f"in a forked child: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def _digest(values: list[Any]) -> str:
    found = hashlib.blake2b(digest_size=12)
    for value in values:
        for array in flat(value):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
