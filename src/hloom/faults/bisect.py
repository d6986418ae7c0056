"""Locates the difference between two runs of a module: the first instruction that differs, or the faulty pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hloom.comparison import Comparison, Tolerance, tolerance_of
from hloom.errors import HloomError, ResourceExhaustedError
from hloom.faults.case import Case, interpret
from hloom.faults.reduce import Progress, reduce
from hloom.files.arrays import flat
from hloom.ir import Instruction, Module
from hloom.passes import Pass, Pipeline, clone_module, run_passes
from hloom.system.records import record
from hloom.values import Value

Runner = Callable[[Module, Sequence[Value]], Value]
"""A backend: returns the result of a module for given arguments."""


def run_on_cpu(module: Module, arguments: Sequence[Value]) -> Value:
    """Runs a module as native code."""
    from hloom.api import compile

    return compile(module, "cpu", seed=0)(*arguments)


def run_on_xla(module: Module, arguments: Sequence[Value]) -> Value:
    """Runs a module on XLA's CPU backend, through jaxlib."""
    from hloom.bench.peer import Peer

    peer = Peer()
    results = peer.compile(peer.translate(module)).arrays(peer.put([leaf for a in arguments for leaf in flat(a)]))
    return tuple(results) if module.entry.result_shape.is_tuple else results[0]


RUNNERS: dict[str, Runner] = {"cpu": run_on_cpu, "interpreter": interpret, "xla": run_on_xla}


def describe_difference(case: Case, left: Runner, right: Runner, tolerance: Tolerance | None) -> str | None:
    """Describes how the results of two runners differ, by a tolerance or the rule of `hloom.comparison`; None if they
    agree or both fail.

    Raises ResourceExhaustedError; any other error of a single runner is a difference.
    """
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
        return f"one of the two fails: {failures[0]}"
    return _compared(case, tolerance).difference(results[0], results[1])


def _compared(case: Case, tolerance: Tolerance | None) -> Comparison:
    return Comparison(case.module, [case.arguments or ()], tolerance)


def first_difference(
    case: Case, left: Runner, right: Runner, tolerance: Tolerance | None = None, progress: Progress | None = None
) -> tuple[Case, str] | None:
    """Returns the smallest part of a case on which two runners differ, and a description; None if they agree.

    Arguments:
        case: the module, with arguments.
        left: the runner whose results are judged.
        right: the runner whose results are taken as correct.
        tolerance: differences up to it are none.
        progress: a function that is called as that of `reduce`.

    The root of the part is the instruction that differs. Its arguments are the values that the interpreter computes in
    a run of the whole case.

    >>> from hloom import faults
    >>> from hloom.faults.bisect import RUNNERS
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> case = faults.Case.random(module, seed=0)
    >>> faults.first_difference(case, RUNNERS["cpu"], RUNNERS["interpreter"]) is None
    True
    """
    if describe_difference(case, left, right, tolerance) is None:
        return None
    result = reduce(case, lambda smaller: describe_difference(smaller, left, right, tolerance) is not None, progress)
    message = describe_difference(result, left, right, tolerance)
    assert message is not None
    return result, message


def first_difference_of_modules(case: Case, other: Module, tolerance: Tolerance | None) -> tuple[str, str] | None:
    """Returns the first instruction whose value differs from that of the same name in another module, and how it
    differs.

    Both modules run on the interpreter. Instructions of all computations are compared, each by its first execution.
    Returns None if the results of the modules are the same, or no instruction differs.
    """
    values: dict[str, Value] = {}

    def record(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        values.setdefault(instruction.name, value)

    theirs = interpret(other, case.arguments or (), record)
    limits = tolerance or tolerance_of(case.module)
    found: list[tuple[Instruction, Value, str]] = []

    def compare(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        seen = values.pop(instruction.name, None)
        if seen is None or [a.shape for a in flat(seen)] != [a.shape for a in flat(value)]:
            return
        message = limits.difference(seen, value)
        if message:
            found.append((instruction, seen, message))

    ours = interpret(case.module, case.arguments or (), compare)
    if _compared(case, tolerance).difference(theirs, ours) is None:
        return None
    for instruction, seen, message in found:
        if tolerance is not None or instruction.parent is not case.module.entry:
            return repr(instruction), message
        part = case.extract([instruction])
        (value,) = case.values([instruction])
        if (message_of_part := _compared(part, None).difference(seen, value)) is not None:
            return repr(instruction), message_of_part
    return None


@record
class FaultyPass:
    """A pass that changed the result of a module.

    >>> from hloom import faults, passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> faults.first_faulty_pass(faults.Case.random(module, seed=0), passes.parse_passes("dce")) is None
    True
    """

    name: str
    run: int
    """Index of the run among all runs of passes of the pipeline, from 1."""
    message: str
    before: Case
    """The smallest part of the module on which the pass is faulty."""
    after: Module
    """`before` after the pass has run."""


class _FaultyPassFound(Exception):
    """Ends the pipeline after the faulty pass."""


def first_faulty_pass(
    case: Case,
    pipeline: Pass | Pipeline,
    tolerance: Tolerance | None = None,
    progress: Progress | None = None,
) -> FaultyPass | None:
    """Finds the first pass of a pipeline after which the interpreter returns another result, or fails; None without
    one.

    The results of `case` are compared with a `tolerance`; `progress` is called as that of `reduce`.

    >>> from hloom import faults, passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> faults.first_faulty_pass(faults.Case.random(module, seed=0), passes.simplification_pipeline()) is None
    True
    """
    expected = interpret(case.module, case.arguments or ())
    module = clone_module(case.module)
    before = [clone_module(module)]
    faulty: list[tuple[Pass, int]] = []

    def check_after(step: Pass, run: int) -> None:
        if _failure(module, case, expected, tolerance):
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
        message = _failure(after, broken, result, tolerance)
        return FaultyPass(step.name, run, message or "", broken, after)
    return None


def _reduced(case: Case, step: Pass, tolerance: Tolerance | None, progress: Progress | None) -> Case:
    """The smallest part of a case on which the pass alone is faulty."""

    def is_faulty(smaller: Case) -> bool:
        expected = interpret(smaller.module, smaller.arguments or ())
        module = clone_module(smaller.module)
        step.run(module)
        return _failure(module, smaller, expected, tolerance) is not None

    return reduce(case, is_faulty, progress)


def _failure(module: Module, case: Case, expected: Value, tolerance: Tolerance | None) -> str | None:
    """Describes how the result of a module differs from that of a case, the expected one; None if it does not."""
    try:
        return _compared(case, tolerance).difference(interpret(module, case.arguments or ()), expected)
    except HloomError as error:
        return str(error)
