"""Collects the data of the page: compiles the module step by step, and runs it if there are arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.api import prepare
from hloom.backends.cpu.compiler import host_target
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.interpreter.debug import describe
from hloom.explorer.changes import changes_of, replacements
from hloom.explorer.graph import Json, graph_of, mark_only
from hloom.explorer.kernels import kernels_of
from hloom.faults.alignment import align, counterparts
from hloom.faults.case import interpret
from hloom.faults.graph_diff import ComputationDiff, diff, diff_lines
from hloom.files.arrays import flat
from hloom.ir import Instruction, Module
from hloom.passes import Pass, PassStatistics, clone_module, run_passes
from hloom.passes.fusion.fusion import FusionPass, reasons
from hloom.passes.optimize.memory_scheduler import memory_use
from hloom.passes.rewrite import Applications
from hloom.profiler import profile
from hloom.text import print_module
from hloom.types import BY_DTYPE
from hloom.values import Value

MAX_EDITED = 1 << 20
"""Largest length of a text that the editor of a served page begins with."""
MAX_DIFF_LINES = 4000
"""Largest number of lines of the difference that a pass makes; longer ones are truncated."""
ALIVE_SHOWN = 40
BINS = 24
THUMBNAIL = 32


def collect(
    source: Any,
    arguments: Sequence[Value] | None = None,
    progress: Callable[[str], None] = lambda _: None,
    other: Any = None,
) -> Json:
    """Returns the data of the page, with that of another module and their difference if it is given.

    Raises HloomError if a module does not compile or arguments do not match.
    """
    data, stages = _collect(source, arguments, progress)
    if other is not None:
        data["other"], other_stages = _collect(other, arguments, progress)
        sides = (data, stages), (data["other"], other_stages)
        data["difference"] = {which: _difference(*sides, which) for which in stages}
        data["aligned"] = {which: _aligned(stages[which], other_stages[which]) for which in stages}
    return data


def _difference(one: tuple[Json, _Stages], other: tuple[Json, _Stages], which: str) -> Json:
    """Graphs of the difference of two modules at one stage; marks the instructions that only one of them has."""
    (data, stages), (other_data, other_stages) = one, other
    found = diff(stages[which], other_stages[which])
    mark_only(data[which], [i for each in found for i in each.removed])
    mark_only(other_data[which], [i for each in found for i in each.added])
    return changes_of(found)


def _aligned(a: Module, b: Module) -> list[list[str]]:
    """Pairs of the names of counterparts, where they differ; "" stands for what the other module lacks."""
    found, pairs = align(a, b), [*counterparts(a, b)]
    taken = set(found.values())
    rows = [[i.name, found[i].name if i in found else ""] for one, _ in pairs for i in one.instructions]
    lacking = [["", i.name] for _, one in pairs for i in one.instructions if i not in taken]
    return [row for row in rows if row[0] != row[1]] + lacking


_Stages = dict[str, Module]
"""A module as given and optimised, by the names of its graphs."""


def _collect(source: Any, arguments: Sequence[Value] | None, progress: Callable[[str], None]) -> tuple[Json, _Stages]:
    module = prepare(source)
    optimized, passes, unfused = _run_passes(module, progress)
    progress("generating code")
    program = build_program(optimized, host_target())
    data: Json = {
        "name": module.name,
        "text": text if len(text := print_module(module)) <= MAX_EDITED else "",
        "given": graph_of(module),
        "optimized": graph_of(optimized),
        "passes": passes,
        "unfused": unfused,
        "kernels": kernels_of(program),
        "memory": _memory(optimized),
    }
    if arguments is None and not module.entry.parameters:
        arguments = ()
    if arguments is not None:
        progress("interpreting the module")
        data["values"] = {
            "given": values_of(module, arguments),
            "optimized": values_of(optimized, arguments),
        }
        progress("profiling its program")
        data["profile"] = _profile(module, arguments)
    return data, {"given": module, "optimized": optimized}


# Passes


def _run_passes(module: Module, progress: Callable[[str], None]) -> tuple[Module, list[Json], dict[str, str]]:
    """Runs the passes; returns the optimised module, the changes of each pass, and why instructions were not fused."""
    work = clone_module(module)
    diffs: dict[int, list[ComputationDiff]] = {}
    unfused: dict[str, str] = {}
    before = [clone_module(work)]

    def record(step: Pass, run: int) -> None:
        progress(f"running passes, {step.name} last")
        after = clone_module(work)
        if isinstance(step, FusionPass):
            unfused.update({i.name: reason for i, reason in reasons(step, before[0]).items()})
        diffs[run - 1] = diff(before[0], after)
        before[0] = after

    statistics = run_passes(work, cpu_pipeline(Topology.SINGLE), after=record)
    found = [_pass(statistics[run], each) for run, each in diffs.items()]
    return work, found, unfused


def _pass(run: PassStatistics, diffs: list[ComputationDiff]) -> Json:
    lines = diff_lines(diffs)
    omitted = len(lines) - MAX_DIFF_LINES
    applied = run.rules.replaced if isinstance(run.rules, Applications) else ()
    return {
        "name": run.name,
        "changes": run.changes,
        "milliseconds": 1e3 * run.seconds,
        "size": run.instructions,
        "rules": run.rules.most_common(),
        **changes_of(diffs, applied),
        "replaced": replacements(diffs, applied),
        "removed": sum(len(each.removed) for each in diffs),
        "added": sum(len(each.added) for each in diffs),
        "lines": [*lines[:MAX_DIFF_LINES], *([f".. {omitted} more lines"] if omitted > 0 else [])],
    }


# Memory


def _memory(module: Module) -> Json:
    """Bytes in use after each instruction of the entry, and the live values at the peak."""
    use = memory_use(module.entry)
    shown = [{"name": i.name, "shape": str(i.shape), "bytes": i.shape.byte_size} for i in use.live[:ALIVE_SHOWN]]
    return {
        "names": [i.name for i in module.entry.instructions],
        "bytes": use.bytes,
        "peak": use.peak,
        "alive": shown,
        "others": len(use.live) - len(shown),
        "parameters": sum(i.shape.byte_size for i in module.entry.parameters if i.shape.is_static),
    }


# A run


def values_of(module: Module, arguments: Sequence[Value]) -> Json:
    """Statistics of the first value of each instruction, and the first instruction that produced a NaN."""
    found: dict[str, Json] = {}
    first_nan: list[str] = []

    def observe(instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        if instruction.name in found:
            return
        found[instruction.name] = _statistics(value)
        if not first_nan and _has_nan(value) and not any(map(_has_nan, operands)):
            first_nan.append(instruction.name)

    interpret(module, arguments, observe)
    for parameter, value in zip(module.entry.parameters, arguments, strict=True):
        found.setdefault(parameter.name, _statistics(value))
    return {"statistics": found, "first_nan": first_nan[0] if first_nan else None}


def _has_nan(value: Value) -> bool:
    return any(bool(np.isnan(wide).any()) for wide in map(_wide, flat(value)) if wide is not None)


def _statistics(value: Value) -> Json:
    """A description of a value, and a histogram and a picture of its first array."""
    arrays = [wide for wide in map(_wide, flat(value)) if wide is not None]
    found: Json = {"text": describe(value)}
    if not all(np.isfinite(wide).all() for wide in arrays):
        found["nan"] = True
    if arrays and arrays[0].size > 1:
        wide = arrays[0]
        finite = wide[np.isfinite(wide)]
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
            found["histogram"] = np.bincount(_levels(finite, low, high, BINS).ravel(), minlength=BINS).tolist()
            found["range"] = [low, high]
            found["picture"] = _picture(wide, low, high)
    return found


def _levels(values: np.ndarray[Any, Any], low: float, high: float, count: int) -> np.ndarray[Any, Any]:
    """Bins of values in a range of `count` equal bins. Halved values avoid overflow of the range's length."""
    span = high / 2 - low / 2
    if span == 0:
        return np.zeros(values.shape, np.int64)
    with np.errstate(all="ignore"):
        shares = (values / 2 - low / 2) / span
    return np.clip(np.nan_to_num(shares) * count, 0, count - 1).astype(np.int64)


def _wide(array: Any) -> np.ndarray[Any, Any] | None:
    """An array as f64; None if it is complex."""
    return None if BY_DTYPE[array.dtype].is_complex else array.astype(np.float64)


def _picture(wide: np.ndarray[Any, Any], low: float, high: float) -> list[list[int]]:
    """The last two dimensions at index 0 of the others, as levels from 0 to 99; -1 for NaNs and infinities."""
    plane = wide.reshape(-1, wide.shape[-1])[: wide.shape[-2] if wide.ndim > 1 else 1]
    plane = plane[:: -(-plane.shape[0] // THUMBNAIL), :: -(-plane.shape[1] // THUMBNAIL)]
    return np.where(np.isfinite(plane), _levels(plane, low, high, 100), -1).tolist()


def _profile(module: Module, arguments: Sequence[Value]) -> Json:
    found = profile(module, *arguments)
    return {
        "seconds": found.seconds,
        "accounted": found.accounted,
        "calls": found.calls,
        "bytes_per_second": found.limits.memory.best,
        "flops_per_second": found.limits.flops_per_second,
        "kernels": [
            {
                "name": k.name,
                "kind": k.kind,
                "seconds": k.seconds,
                "spread": k.spread,
                "runs": k.runs,
                "bytes": k.bytes,
                "flops": k.flops,
                "share": k.share_of_limit(found.limits),
                "roof": found.limits.bytes_per_second(k.bytes),
            }
            for k in found.kernels
        ],
    }
