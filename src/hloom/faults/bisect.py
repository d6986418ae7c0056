"""Where two ways to run a module part: the first instruction that differs, or the pass that broke it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hloom.errors import HloomError, ResourceExhaustedError
from hloom.faults.case import Case, interpret
from hloom.faults.reduce import Progress, reduce
from hloom.files.arrays import difference, flat
from hloom.ir import Instruction, Module
from hloom.passes import Pass, Pipeline, clone_module, run_passes
from hloom.values import Value

Runner = Callable[[Module, Sequence[Value]], Value]
"""Gives the result of a module for arguments."""


@dataclass(frozen=True)
class Tolerance:
    """How far numbers may be apart: |a - b| <= absolute + relative * |b|."""

    relative: float = 1e-4
    absolute: float = 1e-5

    def difference(self, value: Value, expected: Value) -> str | None:
        """How the value differs; None where it does not."""
        pairs = list(zip(flat(value), flat(expected), strict=True))
        for index, (got, want) in enumerate(pairs):
            result = difference(got, want, self.relative, self.absolute)
            if result:
                return result if len(pairs) == 1 else f"element {index} {result}"
        return None


def run_on_cpu(module: Module, arguments: Sequence[Value]) -> Value:
    """The result by native code."""
    from hloom.api import compile

    return compile(module, "cpu", seed=0)(*arguments)


def run_on_xla(module: Module, arguments: Sequence[Value]) -> Value:
    """The result by XLA's CPU backend, through jaxlib."""
    from hloom.bench.peer import Peer

    peer = Peer()
    results = peer.compile(peer.translate(module)).arrays(peer.put([leaf for a in arguments for leaf in flat(a)]))
    return tuple(results) if module.entry.result_shape.is_tuple else results[0]


RUNNERS: dict[str, Runner] = {"cpu": run_on_cpu, "interpreter": interpret, "xla": run_on_xla}


def describe_difference(case: Case, left: Runner, right: Runner, tolerance: Tolerance) -> str | None:
    """In words, None where the results agree; only one of both may fail, with whatever error."""
    results: list[Any] = []
    for runner in (left, right):
        try:
            results.append(runner(case.module, case.arguments or ()))
        except ResourceExhaustedError:
            raise
        except Exception as error:
            results.append(error)
    failures = [result for result in results if isinstance(result, Exception)]
    if len(failures) == 2:
        return None
    if failures:
        return f"one of both fails: {failures[0]}"
    return tolerance.difference(results[0], results[1])


def first_difference(
    case: Case, left: Runner, right: Runner, tolerance: Tolerance = Tolerance(), progress: Progress | None = None
) -> tuple[Case, str] | None:
    """The smallest part of a case on which two ways to run it differ, and how; None where they agree.

    Its root is the instruction that differs; what it reads has the values of the interpreter in the run of the whole.
    """
    if describe_difference(case, left, right, tolerance) is None:
        return None
    result = reduce(case, lambda smaller: describe_difference(smaller, left, right, tolerance) is not None, progress)
    message = describe_difference(result, left, right, tolerance)
    assert message is not None
    return result, message


def first_difference_of_modules(
    case: Case, other: Module, tolerance: Tolerance = Tolerance()
) -> tuple[str, str] | None:
    """The first instruction of a case that has another value in another module, by its name; and how it differs.

    Both run on the interpreter; entries and what they call are looked at, each instruction when it first runs.
    """
    values: dict[str, Value] = {}

    def record(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        values.setdefault(instruction.name, value)

    interpret(other, case.arguments or (), record)
    result: list[tuple[str, str]] = []

    def compare(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        seen = values.pop(instruction.name, None)
        if result or seen is None or [a.shape for a in flat(seen)] != [a.shape for a in flat(value)]:
            return
        message = tolerance.difference(seen, value)
        if message:
            result.append((repr(instruction), message))

    interpret(case.module, case.arguments or (), compare)
    return result[0] if result else None


@dataclass(frozen=True)
class FaultyPass:
    """A pass after which a module gives something else."""

    name: str
    run: int
    """Which run of a pass of the pipeline it was, from 1 on."""
    message: str
    before: Case
    """The smallest part of the module before the pass on which it goes wrong."""
    after: Module


class _FaultyPassFound(Exception):
    """Ends the pipeline at the pass that is looked for."""


def first_faulty_pass(
    case: Case,
    pipeline: Pass | Pipeline,
    tolerance: Tolerance = Tolerance(),
    progress: Progress | None = None,
) -> FaultyPass | None:
    """The first pass of a pipeline after which the interpreter gives another result, or fails; None without one."""
    expected = interpret(case.module, case.arguments or ())
    module = clone_module(case.module)
    before = [clone_module(module)]
    faulty: list[tuple[Pass, int]] = []

    def check_after(step: Pass, run: int) -> None:
        if _failure(module, case.arguments or (), expected, tolerance):
            faulty.append((step, run))
            raise _FaultyPassFound
        before[0] = clone_module(module)

    try:
        run_passes(module, pipeline, after=check_after)
    except _FaultyPassFound:
        ((step, run),) = faulty
        broken = _reduced(Case(before[0], case.arguments), step, tolerance, progress)
        after = clone_module(broken.module)
        step.run(after)
        result = interpret(broken.module, broken.arguments or ())
        message = _failure(after, broken.arguments or (), result, tolerance)
        return FaultyPass(step.name, run, message or "", broken, after)
    return None


def _reduced(case: Case, step: Pass, tolerance: Tolerance, progress: Progress | None) -> Case:
    """The smallest part on which the pass alone goes wrong."""

    def goes_wrong(smaller: Case) -> bool:
        expected = interpret(smaller.module, smaller.arguments or ())
        module = clone_module(smaller.module)
        step.run(module)
        return _failure(module, smaller.arguments or (), expected, tolerance) is not None

    return reduce(case, goes_wrong, progress)


def _failure(module: Module, arguments: Sequence[Value], expected: Value, tolerance: Tolerance) -> str | None:
    """How the module differs from what is expected."""
    try:
        return tolerance.difference(interpret(module, arguments), expected)
    except HloomError as error:
        return str(error)
