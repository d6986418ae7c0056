"""Oracles: ways of running a case whose results must be those of the reference.

An oracle is called with a case, its reference and a source of choices, and returns a `Problem`, or None if the results
are allowed. Raising HloomError means that the oracle does not apply to the case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

from hloom.errors import ArgumentError, HloomError
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.noise import STEP_ULPS, SUM_ULPS, Error, has_rounding, noise_of, order_is_free
from hloom.fuzz.reference import Reference
from hloom.fuzz.runner import Failure, Runner, exception_text, run
from hloom.fuzz.shardings import annotate
from hloom.fuzz.twins import twin
from hloom.ir import Module
from hloom.ops.operation import Operation
from hloom.ops.scatter import Scatter
from hloom.ops.traits import Communication, DeviceIndex
from hloom.passes import PASSES, Pass, clone_module, run_passes
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.shape import Shape
from hloom.stablehlo.exporter.module import print_stablehlo
from hloom.system.records import record
from hloom.text import fingerprint, parse_module
from hloom.values import Value
from hloom.verifier import verify_module

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
MOST_THREADS = 5
MOST_PARTITIONS = 4
UNTESTED_PASSES = ("spmd",)
"""Passes that change the parameters: the program of one partition takes blocks."""
SINGLE_DEVICE_PASSES = ("single-device",)
"""Passes that programs of several replicas do not take."""
TRIED_PASSES = 8
"""Passes of which the first one is taken that changes a module."""


@record
class Problem:
    """A violation: its kind (difference, crash, hang, exception, error, invalid), and a description."""

    kind: str
    message: str


Oracle = Callable[[Case, Reference, Draw], Problem | None]


def judged(reference: Reference, outcome: Value | Failure) -> Problem | None:
    """Compares the outcome of a run with the reference."""
    if isinstance(outcome, Failure):
        return Problem(outcome.kind, outcome.message)
    difference = reference.difference(outcome)
    return None if difference is None else Problem("difference", difference)


@dataclass
class Compiled:
    """The compiled program, in a process of its own, with some environment variables, and thresholds if `low`."""

    environment: dict[str, str] = field(default_factory=dict)
    low: bool = False

    def __post_init__(self) -> None:
        self.runner = Runner(self.environment, self.low)

    def __call__(self, case: Case, reference: Reference, draw: Draw) -> Problem | None:
        return judged(reference, self.runner(case))

    def close(self) -> None:
        """Ends the process."""
        self.runner.close()


@dataclass
class Twin:
    """A program with the same results by rewrites, compiled."""

    compiled: Compiled

    def __call__(self, case: Case, reference: Reference, draw: Draw) -> Problem | None:
        other = twin(case, draw)
        try:
            verify_module(other.module)
        except HloomError as error:
            return Problem("invalid", str(error))
        return self.compiled(other, reference, draw)


def noise_of_partitions(op: Operation, shapes: Sequence[Shape]) -> Error | None:
    """Returns the error of an operation on several partitions, which also add up the updates of a scatter (GEN-13)."""
    known = noise_of(op, shapes)
    is_sum = isinstance(op, Scatter) and has_rounding(shapes) and not order_is_free(op.update_computation)
    return Error(STEP_ULPS, SUM_ULPS) if is_sum else known


def partitioned(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Partitions the program by random shardings for 2 to 4 devices, and interprets the program of each."""
    if any(i.op.has_side_effect or isinstance(i.op, (DeviceIndex, Communication)) for i in case.module.instructions()):
        raise ArgumentError("what partitions are and send is up to the partitioner")
    module, count = clone_module(case.module), draw.between(2, MOST_PARTITIONS)
    annotate(module, draw.rng, count)
    outcome = run(Case(module, case.arguments), "interpreter", partitions=count)
    if isinstance(outcome, Failure) and outcome.is_refusal and "must have one sharding" in outcome.message:
        raise ArgumentError(outcome.message)  # shardings that contradict each other were drawn
    has_scatter = any(isinstance(i.op, Scatter) for i in case.module.instructions())
    return judged(Reference(case, noise_of_partitions) if has_scatter else reference, outcome)


def random_target(draw: Draw) -> dict[str, str]:
    """Returns the environment variables of a drawn processor and number of threads, with verification."""
    threads = str(draw.between(1, MOST_THREADS))
    return {"HLOOM_TARGET_CPU": draw.pick(LEVELS), "HLOOM_NUM_THREADS": threads, "HLOOM_VERIFY": "1"}


def after_pass(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Applies a single pass, with drawn options, and interprets the module: one of several that changes it, if any."""
    left_out = UNTESTED_PASSES + (SINGLE_DEVICE_PASSES if case.module.replica_count > 1 else ())
    names = draw.shuffled([name for name in PASSES if name not in left_out])[:TRIED_PASSES]
    steps = [with_options(PASSES[name](), draw) for name in names]
    step = next((step for step in steps if _changes(step, case.module)), steps[0])
    return rewritten(case, reference, lambda module: run_passes(module, step, verify=False), repr(step))


def _changes(step: Pass, module: Module) -> bool:
    """Whether a pass changes a module, or fails on it."""
    try:
        return any(each.changes for each in run_passes(clone_module(module), step, verify=False))
    except Exception:
        return True


def with_options(step: Pass, draw: Draw) -> Pass:
    """Draws limits and switches of a pass, most of which small arrays would never reach."""
    options: dict[str, int] = {}
    for option in fields(step) if draw.chance(0.5) else ():  # type: ignore[arg-type]
        if isinstance(option.default, bool):
            options[option.name] = draw.chance(0.5)
        elif isinstance(option.default, int):
            options[option.name] = draw.pick((1, 2, 8, 64))
    return replace(step, **options)  # type: ignore[type-var]


def rewritten(case: Case, reference: Reference, rewrite: Callable[[Module], object], name: str) -> Problem | None:
    """Rewrites a copy of the module, which must stay valid, and interprets it."""
    module = clone_module(case.module)
    try:
        rewrite(module)
    except Exception as error:
        return Problem("exception", f"{name}: {exception_text(error)}")
    try:
        verify_module(module)
    except HloomError as error:
        return Problem("invalid", f"{name}: {error}")
    problem = judged(reference, run(Case(module, case.arguments), "interpreter"))
    return problem and Problem(problem.kind, f"{name}: {problem.message}")


def text_round_trip(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Prints and parses the module: the same module must come back."""
    return _round_trip(case, "text", lambda module: parse_module(module.to_text()))


def proto_round_trip(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Serialises and reads the module: the same module must come back, but for the replicas, which protos lack."""

    def again(module: Module) -> Module:
        read = module_from_bytes(module_to_bytes(module))
        read.replica_count = module.replica_count
        return read

    return _round_trip(case, "proto", again)


def _round_trip(case: Case, name: str, convert: Callable[[Module], Module]) -> Problem | None:
    try:
        again = convert(case.module)
    except HloomError as error:
        return Problem("invalid", f"{name}: {error}")
    except Exception as error:
        return Problem("exception", f"{name}: {exception_text(error)}")
    same = fingerprint(_canonical(again)) == fingerprint(_canonical(case.module))
    return None if same else Problem("difference", f"{name}: the module that was read is another one")


def _canonical(module: Module) -> Module:
    """Returns a copy with one form of the attributes that formats may leave out."""
    copy = clone_module(module)
    for instruction in copy.instructions():
        instruction.op = instruction.op.canonical(instruction.operand_shapes)
    return copy


def stablehlo_round_trip(case: Case, reference: Reference, draw: Draw) -> Problem | None:
    """Exports the module to StableHLO, which may refuse it, imports that, and interprets it."""
    from hloom.api import parse

    try:
        text = print_stablehlo(case.module)
    except HloomError:
        raise
    except Exception as error:
        return Problem("exception", f"stablehlo: {exception_text(error)}")
    try:
        again = parse(text)
    except HloomError as error:
        return Problem("invalid", f"stablehlo: {error}")
    except Exception as error:
        return Problem("exception", f"stablehlo: {exception_text(error)}")
    problem = judged(reference, run(Case(again, case.arguments), "interpreter"))
    return problem and Problem(problem.kind, f"stablehlo: {problem.message}")
