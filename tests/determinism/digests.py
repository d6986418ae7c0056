"""Digests of results and of machine code of many programs, each run in several ways. As a script, of those that its
arguments name.

Programs are cases of the corpus by name, and random programs by generator and seed, such as `case:17`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

import hloom as hl
from backends.cpu.fused_programs import draw_loops, draw_program
from conftest import CORPUS
from hloom.api import prepare
from hloom.backends.cpu.compiler import compile_module
from hloom.bench.workloads import INPUTS, Workload
from hloom.files.arrays import flat, read_arrays, take_value
from hloom.fuzz.grammar import draw_case
from hloom.ir import BufferDonor
from hloom.passes import clone_module

CASES = [path.name for path in sorted(CORPUS.iterdir()) if (path / "meta.json").exists()]
MAX_OFFSET = 64
"""Bytes from the start of a cache line: arguments may begin at any multiple of their element size."""

Arguments = list[Any]


def program(name: str) -> tuple[hl.Module, list[Arguments]]:
    """The module of a name, and the arguments of each replica."""
    if ":" not in name:
        return _case(name)
    generator, seed = name.split(":")
    if generator == "case":
        case = draw_case(int(seed), alone=True)
        return case.module, [[*(case.arguments or ())]]
    module, inputs = draw_loops(int(seed)) if generator == "loops" else draw_program(int(seed), generator == "smooth")
    return module, [inputs]


def _case(name: str) -> tuple[hl.Module, list[Arguments]]:
    work = Workload.at(CORPUS / name)
    module = hl.load(work.module)
    replicas = work.description.get("replicas")
    if not replicas:
        return module, [work.arguments(module)]
    arrays = read_arrays(str(CORPUS / name / INPUTS))
    return module, [_stored(arrays, module, f"_rep{r}") for r in range(replicas)]


def _stored(arrays: dict[str, Any], module: hl.Module, suffix: str) -> Arguments:
    counter = itertools.count()
    return [take_value(arrays, shape, counter, "p", suffix) for shape in module.entry.parameter_shapes]


def digest(arrays: Iterable[Any]) -> str:
    """The digest of the bytes of arrays, NaNs included."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def shifted(value: Any, rng: np.random.Generator) -> Any:
    """The value in memory that begins somewhere within a cache line."""
    if isinstance(value, tuple):
        return tuple(shifted(element, rng) for element in value)
    if not isinstance(value, np.ndarray):
        return value
    memory = np.empty(value.nbytes + 2 * MAX_OFFSET, np.uint8)
    aligned = -memory.ctypes.data % MAX_OFFSET
    start = aligned + int(rng.integers(0, MAX_OFFSET // value.itemsize or 1)) * value.itemsize
    moved = memory[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    moved[...] = value
    return moved


def digests_of_runs(module: hl.Module, arguments: list[Arguments], seed: int = 0) -> dict[str, str]:
    """The digests of the results of a program that runs in several ways, and of its machine code."""
    rng = np.random.default_rng(seed)
    replicas = len(arguments) if len(arguments) > 1 else None
    run = hl.compile(module, replicas=replicas, seed=0)
    found = {"plain": _digest(run, arguments), "again": _digest(run, arguments)}
    found["code"] = _code(module)
    for k in range(3):
        found[f"shifted {k}"] = _digest(run, [[shifted(a, rng) for a in each] for each in arguments])
    donors = clone_module(module)
    donors.buffer_donors = [BufferDonor(i, ()) for i, p in enumerate(module.entry.parameters) if p.shape.is_array]
    donors.input_output_alias = []
    donated = hl.compile(donors, replicas=replicas, seed=0, donate=True)
    found["donated"] = _digest(donated, [[shifted(a, rng) for a in each] for each in arguments])
    return found


def _digest(run: Any, arguments: list[Arguments]) -> str:
    return digest(a for value in run.run_replicas(arguments) for a in flat(value))


def _code(module: hl.Module) -> str:
    """The digest of the machine code, from the cache on disk if the module is compiled."""
    return digest(np.frombuffer(part, np.uint8) for part in compile_module(prepare(module)).object_files)


def main(names: list[str]) -> None:
    """Prints a line of JSON for each program: its name and its digests."""
    for name in names:
        try:
            module, arguments = program(name)
            print(json.dumps([name, digests_of_runs(module, arguments)]), flush=True)
        except hl.HloomError as error:
            print(json.dumps([name, {"error": str(error)[:300]}]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or sys.stdin.read().split())
