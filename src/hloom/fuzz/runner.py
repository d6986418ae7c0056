"""A process that compiles and runs cases, for one processor and number of threads."""

from __future__ import annotations

import functools
import importlib
import os
import pkgutil
import resource
import sys
import traceback
from contextlib import nullcontext
from typing import Any, cast

import hloom.backends.cpu
import hloom.loops
import hloom.passes.optional
from hloom.api import compile
from hloom.errors import HloomError, RunError
from hloom.faults.case import Case
from hloom.fuzz.lines import Lines
from hloom.fuzz.noise import on_replicas
from hloom.proto import module_from_bytes, module_to_bytes
from hloom.runtime.serialization import DataFormat
from hloom.system.child import Child, ChildDied, ChildTimedOut, serve
from hloom.system.records import record
from hloom.values import Value

CPU_SECONDS = 60
"""CPU time after which a program counts as one that does not end."""
SECONDS = 900.0
"""Time after which it counts so if it waits."""
LOW_THRESHOLDS = {
    "MIN_PARALLEL_WORK": 1024,
    "MIN_TASK_WORK": 256,
    "MIN_TASK_BYTES": 256,
    "MIN_PRODUCT_WORK": 1024,
    "MIN_PART_ITERATIONS": 4,
}
"""Values of heuristics with which small arrays take the paths of large ones: threads, parts of sums, fused operands."""


@record
class Failure:
    """A run without a result: an error of hloom's, another exception, a crash, or a time-out."""

    kind: str
    message: str

    @property
    def is_refusal(self) -> bool:
        """Whether hloom raised an error of its own, which a case may deserve."""
        return self.kind == "error"


FORMAT = DataFormat(Failure)
"""Format of requests and replies."""


class Runner:
    """Runs cases in a child process with environment variables; while `lines` is given, it adds those that run.

    With `low`, the child has `LOW_THRESHOLDS`.
    """

    def __init__(self, environment: dict[str, str], low: bool = False) -> None:
        self.lines: Lines | None = None
        self.low = low
        self.child = Child("hloom.fuzz.runner", {"HLOOM_CACHE_DIR": "", **environment})

    def __call__(self, case: Case) -> Value | Failure:
        """Returns the result of the case, or how it failed."""
        try:
            module = module_to_bytes(case.module), case.module.replica_count
            request = FORMAT.to_bytes((*module, case.arguments or (), self.lines is not None, self.low))
            value, lines = FORMAT.from_bytes(self.child.request(request, SECONDS))
        except ChildTimedOut as error:
            return Failure("hang", error.message)
        except ChildDied as error:
            return Failure("hang" if "SIGXCPU" in error.message else "crash", error.message)
        if self.lines is not None:
            self.lines.merge(lines)
        return cast(Value | Failure, value)

    def close(self) -> None:
        """Ends the process."""
        self.child.close()


def run(case: Case, backend: str = "cpu", **options: Any) -> Value | Failure:
    """Compiles and runs a case in this process; returns the result or the failure."""
    try:
        return on_replicas(compile(case.module, backend, seed=0, **options), case)
    except RunError as error:
        return Failure("error", f"RunError: {error.message}")
    except HloomError as error:
        return Failure("error", f"{type(error).__name__}: {error.message}")
    except Exception as error:
        return Failure("exception", exception_text(error))


def exception_text(error: Exception) -> str:
    """Describes an exception with the line that raised it."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    location = f"{frame.filename.rpartition('hloom/')[2]}:{frame.lineno}"
    return f"{type(error).__name__} at {location}: {str(error)[:300]}"


def limit_cpu_time(seconds: int) -> None:
    """Makes the system end this process when it has used some more seconds of CPU time, by SIGXCPU."""
    used = int(sum(os.times()[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))


@functools.cache
def lower_thresholds() -> None:
    """Sets the thresholds in all modules that have them, for the rest of the process."""
    for package in (hloom.backends.cpu, hloom.loops, hloom.passes):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    for module in [module for name, module in sys.modules.items() if name.startswith("hloom.")]:
        for name in LOW_THRESHOLDS.keys() & vars(module).keys():
            setattr(module, name, LOW_THRESHOLDS[name])


def main(descriptor: int) -> None:
    """Answers requests: a serialised module, its number of replicas, arguments, and whether to trace lines, and to
    lower thresholds.
    """
    hloom.passes.optional.strict = True

    def handle(request: bytes) -> bytes:
        content, replicas, arguments, traced, low = FORMAT.from_bytes(request)
        if low:
            lower_thresholds()
        module = module_from_bytes(content)
        module.replica_count = replicas
        lines = Lines()
        limit_cpu_time(CPU_SECONDS)
        with lines.traced() if traced else nullcontext():
            value = run(Case(module, arguments))
        return FORMAT.to_bytes((value, lines.as_lists()))

    serve(descriptor, handle)
