"""A job: draws cases one after another, applies oracles to each, and reduces and records what they find."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from hloom.bench.peer import has_peer
from hloom.errors import HloomError
from hloom.faults.case import Case
from hloom.faults.reduce import reduce
from hloom.fuzz.damage import damaged
from hloom.fuzz.defined import conditions
from hloom.fuzz.grammar import draw_case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.grammar.generate import pairs
from hloom.fuzz.lines import Lines
from hloom.fuzz.oracles import (
    Compiled,
    Oracle,
    Problem,
    Twin,
    after_pass,
    partitioned,
    proto_round_trip,
    random_target,
    stablehlo_round_trip,
    text_round_trip,
)
from hloom.fuzz.peer import Xla, abort_of, class_of
from hloom.fuzz.reference import Reference
from hloom.fuzz.runner import exception_text
from hloom.fuzz.state import Counts, Finding, State, operations_of, save_case
from hloom.ops.communication import Infeed
from hloom.verifier import verify_module

SEEDS_PER_JOB = 1 << 40
MODULE_SECONDS = 60
"""CPU time that an oracle in this process may take; a case that needs more counts as a hang."""
REDUCE_SECONDS = 120.0
"""Time after which a reduction ends with what it has."""
TRACED_EVERY = 8
"""Number of modules of which one is traced for the coverage of lines."""
SAVE_SECONDS = 30.0
MODULES_PER_START = 200
"""Number of modules after which oracles get new processes, one of them for another processor and number of threads."""
SHARES = {"compiled": 0.3, "target": 0.6, "twin": 0.4, "xla": 0.25, "stablehlo": 0.5, "proto": 0.5}
"""The shares of the modules to which oracles are applied that take long, or seldom find faults; others see all."""


class TimedOut(Exception):
    """An oracle in this process took too long."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimedOut in this thread, which must be the main one, when the process has used some CPU time."""

    def stop(*_: Any) -> None:
        raise TimedOut

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@dataclass
class Job:
    """A job of a run, which goes on where it stopped."""

    state: State
    number: int
    counts: Counts = field(init=False)
    lines: Lines = field(init=False, default_factory=Lines)
    oracles: dict[str, Oracle] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = self.state.load(self.number)
        self.lines.merge(self.counts.lines)
        self.cpu_before = self.counts.cpu_seconds - _cpu_seconds()
        self.start(Draw(self.number))

    def start(self, draw: Draw) -> None:
        """Makes the oracles, whose processes start when they are needed; a processor is drawn for one of them."""
        self.compiled, self.target = Compiled(), Compiled(random_target(draw), low=draw.chance(0.5))
        self.oracles = {
            "compiled": self.compiled,
            "target": self.target,
            "twin": Twin(self.compiled),
            "pass": after_pass,
            "partitioned": partitioned,
            "text": text_round_trip,
            "proto": proto_round_trip,
            "stablehlo": stablehlo_round_trip,
            "damaged": damaged,
        }
        if has_peer():
            self.oracles["xla"] = Xla()

    def stop(self) -> None:
        """Ends the processes of the oracles, and writes the counts."""
        for oracle in self.oracles.values():
            if isinstance(oracle, (Compiled, Xla)):
                oracle.close()
        self.save()

    def run(self, seconds: float) -> None:
        """Works for some seconds, or until the process that started this one ends."""
        started = saved = time.monotonic()
        parent = os.getppid()
        while (now := time.monotonic()) - started < seconds and os.getppid() == parent:
            self.step(self.number * SEEDS_PER_JOB + self.counts.seed)
            self.counts.seed += 1
            if self.counts.seed % MODULES_PER_START == 0:
                self.stop()
                self.start(Draw(self.counts.seed))
            if now - saved > SAVE_SECONDS:
                self.save()
                saved = now
        self.stop()

    def save(self) -> None:
        """Writes the counts; the time of a process counts when it has ended."""
        self.counts.lines = self.lines.as_lists()
        self.counts.cpu_seconds = self.cpu_before + _cpu_seconds()
        self.state.save(self.number, self.counts)

    def step(self, seed: int) -> None:
        """Draws a case and applies the oracles."""
        draw = Draw(seed)
        traced = self.counts.seed % TRACED_EVERY == 0
        for oracle in (self.compiled, self.target):
            oracle.runner.lines = self.lines if traced else None
        with self.lines.traced() if traced else nullcontext():
            case = draw_case(seed, self.counts.reached())
            save_case(case, self.state.current(self.number))
            self.counts.modules += 1
            self.counts.instructions += case.size
            self.counts.add_pairs(pairs(case.module))
            self.check_all(case, draw, seed)

    def check_all(self, case: Case, draw: Draw, seed: int) -> None:
        """Applies each oracle to a case; what breaks the reference is a finding of its own."""
        reference = self.check("reference", _reference_problem, case, None, draw, seed)
        if reference is not None:
            return
        try:
            known = Reference(case)
        except HloomError as error:
            self.counts.count(self.counts.refused, f"reference: {error.message[:60]}")
            return
        for name, oracle in self.oracles.items():
            if draw.chance(SHARES.get(name, 1.0)):
                self.check(name, oracle, case, known, draw, seed)

    def check(self, name: str, oracle: Oracle, case: Case, reference: Any, draw: Draw, seed: int) -> Problem | None:
        """Applies an oracle, and records what it finds."""
        choices = draw.between(0, 1 << 30)
        problem = apply(oracle, case, reference, choices)
        if isinstance(problem, HloomError):
            self.counts.count(self.counts.refused, name)
            return None
        self.counts.count(self.counts.comparisons, name)
        if problem is not None:
            self.record(name, oracle, case, problem, choices, seed)
        return problem

    def record(self, name: str, oracle: Oracle, case: Case, problem: Problem, choices: int, seed: int) -> None:
        """Reduces a case with a problem and adds it to the findings, or counts a known difference of XLA's."""
        known = class_of(case, problem) if name == "xla" else None
        if known is not None:
            self.counts.count(self.counts.known, abort_of(problem) or known.name)
            return
        small = reduced(oracle, case, problem, choices)
        again = problem_of(oracle, small, choices) or problem
        known = class_of(small, again) if name == "xla" else None
        if known is not None:
            self.counts.count(self.counts.known, known.name)
            return
        finding = Finding(name, again.kind, again.message[:600], operations_of(small), seed)
        self.state.add(finding, small)


def _cpu_seconds() -> float:
    """The CPU time of this process and of those it started that have ended."""
    return sum(os.times()[:4])


def apply(oracle: Oracle, case: Case, reference: Reference | None, choices: int) -> Problem | HloomError | None:
    """Applies an oracle within the time limit; an HloomError says that it does not apply."""
    try:
        with time_limit(MODULE_SECONDS):
            return oracle(case, reference, Draw(choices))  # type: ignore[arg-type]
    except TimedOut:
        return Problem("hang", f"takes more than {MODULE_SECONDS} s of CPU time")
    except HloomError as error:
        return error
    except Exception as error:
        return Problem("exception", exception_text(error))


def _reference_problem(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Verifies the module and runs the interpreter: errors of hloom's are refusals, others problems."""
    try:
        verify_module(case.module)
    except HloomError as error:
        return Problem("invalid", str(error))
    Reference(case)
    return None


def problem_of(oracle: Oracle, case: Case, choices: int) -> Problem | None:
    """Applies an oracle to another case, with a reference of its own."""
    found = apply(_reference_problem, case, None, choices)
    if oracle is _reference_problem or found is not None:
        return found if oracle is _reference_problem and isinstance(found, Problem) else None
    found = apply(oracle, case, Reference(case), choices)
    return found if isinstance(found, Problem) else None


def reduced(oracle: Oracle, case: Case, problem: Problem, choices: int) -> Case:
    """Returns the smallest case found with a problem of the same kind; exceptions must be raised at the same line."""
    if case.module.replica_count > 1 or any(isinstance(i.op, Infeed) for i in case.module.instructions()):
        return case  # values of instructions, which become arguments, are those of one replica and no infeed
    deadline, needed = time.monotonic() + REDUCE_SECONDS, conditions(case)

    def shows(smaller: Case) -> bool:
        if time.monotonic() > deadline or not conditions(smaller) <= needed:
            return False
        found = problem_of(oracle, smaller, choices)
        return found is not None and essence(found) == essence(problem)

    return reduce(case, shows)


def essence(problem: Problem) -> tuple[str, str]:
    """Returns the kind of a problem, and the beginning of its message unless results differ."""
    return problem.kind, "" if problem.kind == "difference" else problem.message.partition(":")[0]
