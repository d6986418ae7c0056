"""XLA's CPU backend as an oracle, with the differences that are known: each a class with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hloom.bench.peer_process import XlaCrash, XlaError, XlaPeer
from hloom.errors import ArgumentError
from hloom.faults.case import Case
from hloom.fuzz.grammar.draw import Draw
from hloom.fuzz.noise import STEP_ULPS, Error, has_rounding, noise_of
from hloom.fuzz.oracles import Problem, judged
from hloom.fuzz.reference import Reference
from hloom.ops.operation import Operation
from hloom.ops.traits import CallLike, Identity, Movement, Structural
from hloom.proto import module_to_bytes
from hloom.shape import Shape
from hloom.system.child import ChildTimedOut

SECONDS = 120.0
PEER_ULPS = 4.0
"""The error of XLA's approximations, which no clause bounds, beyond that of hloom's."""


def noise_of_peer(op: Operation, shapes: Sequence[Shape]) -> Error | None:
    """Returns the error of an operation on XLA's CPU backend.

    It contracts products and sums to fused multiply-adds, keeps narrow floats wide between operations, and flushes
    subnormal numbers to zero (GEN-7 keeps them).
    """
    if not has_rounding(shapes) or isinstance(op, (Structural, Movement, Identity, CallLike)):
        return None
    known = noise_of(op, shapes)
    if known is None:
        return Error(STEP_ULPS, flushes=True)
    return replace(known, result=known.result + PEER_ULPS, operands=2 * known.operands, flushes=True)


@dataclass
class Xla:
    """XLA in a process of its own."""

    def __post_init__(self) -> None:
        self.peer = XlaPeer(SECONDS)

    def __call__(self, case: Case, reference: Reference, draw: Draw) -> Problem | None:
        """Compares XLA's results with a reference that allows what XLA does."""
        try:
            found = self.peer.run_proto(module_to_bytes(case.module), [*(case.arguments or ())])
        except XlaError as error:
            raise ArgumentError(str(error)) from None
        except XlaCrash as error:
            return Problem("crash", str(error))
        except ChildTimedOut as error:
            return Problem("hang", error.message)
        return judged(Reference(case, noise_of_peer), tuple(found))

    def close(self) -> None:
        """Ends the process."""
        self.peer.close()


@dataclass(frozen=True)
class Known:
    """A class of differences between XLA and the specification: a name, the reason with its clause, a predicate."""

    name: str
    reason: str
    applies: Callable[[Case, Problem], bool]


def class_of(case: Case, problem: Problem) -> Known | None:
    """Returns the class of a difference of XLA's, by its reduced case; None for a new one."""
    return next((known for known in KNOWN if known.applies(case, problem)), None)


KNOWN: tuple[Known, ...] = (
    Known("aborts", "XLA ends the process on a valid module", lambda case, problem: problem.kind == "crash"),
)
