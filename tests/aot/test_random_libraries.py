"""Random programs, built as libraries for this processor: results are those of the JIT, bit for bit.

Libraries have own loops where the JIT calls LAPACK: results of such programs are within the noise of roundings.
"""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.aot.interface import CFunction
from hloom.aot.link import shared_library
from hloom.aot.targets import target_of
from hloom.backends.cpu.runtime.buffers import empty
from hloom.faults.case import Case
from hloom.files.arrays import flat
from hloom.fuzz.grammar.generate import draw_case
from hloom.fuzz.reference import Reference
from hloom.numerics import Array
from hloom.ops.custom_call import CustomCall

CASES = min(2000, int(os.environ.get("HLOOM_CASES", "1000")) // 4)
BATCH = 25
"""Programs that are linked to one library."""
LAPACK = {"cholesky", "triangular-solve", "custom-call"}
"""Operations for which the JIT calls LAPACK."""
DECOMPOSITIONS = ("gesdd", "gesvd", "syevd", "heevd")
"""Routines whose vectors are not unique, and which leave other numbers in the matrix: test_spectra.py has their tests."""


def targets(module: hl.Module) -> list[str]:
    """The targets of custom calls."""
    return [i.op.target_name for i in module.instructions() if isinstance(i.op, CustomCall)]


def built(seed: int) -> tuple[Case, CFunction, dict[str, bytes]] | None:
    """The program of a seed, its function and its object files; None for one that needs Python, LAPACK or replicas, or
    whose results are not unique.
    """
    case = draw_case(seed)
    if any(name in call for call in targets(case.module) for name in DECOMPOSITIONS):
        return None
    if case.module.replica_count != 1 or case.module.num_partitions != 1:
        return None
    try:
        library = hl.build({f"f{seed}": case.module})
    except hl.ArgumentError:
        return None
    return case, library.functions[0], dict(library.binaries)


def results(library: ctypes.CDLL, function: CFunction, arguments: list[Array]) -> list[Array]:
    """The results of a function, which is called without a pool."""
    inputs = [np.ascontiguousarray(argument) for argument in arguments]
    sizes = [math.prod(array.sizes) * array.type.byte_width for array in function.outputs]
    outputs = [empty((size + 1,), np.uint8) for size in sizes]
    for output in outputs:
        output[-1] = 0xA5
    memory = [*inputs, *outputs, np.empty(function.scratch_bytes + 1, np.uint8)]
    assert getattr(library, function.name)(*(ctypes.c_void_p(array.ctypes.data) for array in memory), None) == 0
    assert all(out[-1] == 0xA5 for out in outputs)
    return [out[:-1] for out in outputs]


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, CASES, BATCH))
def test_random_programs_compute_what_the_jit_does(first: int, tmp_path: Path) -> None:
    made = [each for seed in range(first, first + BATCH) if (each := built(seed)) is not None]
    assert len(made) > BATCH // 4
    objects = {name: content for _, _, files in made for name, content in files.items()}
    path = tmp_path / "libf.so"
    path.write_bytes(shared_library(objects, target_of("native"), "f"))
    library = ctypes.CDLL(str(path))
    for case, function, _ in made:
        arguments: list[Any] = [leaf for argument in case.arguments for leaf in flat(argument)]
        got = results(library, function, arguments)
        want = flat(hl.compile(case.module)(*case.arguments))
        if any(i.opcode in LAPACK for i in case.module.instructions()):
            arrays = [a.view(b.dtype).reshape(b.shape) for a, b in zip(got, want, strict=True)]
            difference = Reference(case).difference(tuple(arrays))
            assert difference is None, f"seed {function.name[1:]}: {difference}"
            continue
        for mine, theirs in zip(got, want, strict=True):
            assert mine.tobytes() == np.ascontiguousarray(theirs).tobytes(), f"seed {function.name[1:]}"
