"""Programs whose arrays end at, or start after, pages that cannot be touched.

As a script, `guarded.py FAMILY FIRST COUNT ..`, it runs programs of families. It prints `at FAMILY NUMBER` before each,
`wrong: REASON` after one that failed, and `done` at the end. Touching what lies beside an array ends the process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

import hloom as hl
from backends.cpu.fused_programs import draw_loops, draw_program
from backends.cpu.kernel_programs import draw_kernel
from hloom.backends.cpu import compiler
from hloom.backends.cpu.executable import CpuExecutable
from hloom.backends.cpu.program import buffer_assignment
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.program import Buffer, Program, Routine, WhileStep
from hloom.backends.cpu.runtime import buffers
from hloom.backends.cpu.runtime.dispatch import HEADER_WORDS, TABLE_WORDS
from hloom.files.arrays import flat
from hloom.fuzz.grammar import draw_case
from test_corpus import SMALL_BYTES, STORED, load_case

PAGE, LINE = mmap.PAGESIZE, 64
ALIGNED_FROM = buffers.SMALLEST
"""Arrays of so many bytes lie at cache lines, smaller ones at a multiple of their element's size."""
NONE, BOTH = 0, 3  # PROT_NONE, PROT_READ | PROT_WRITE
_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

Inputs = list[np.ndarray]


def pages(size: int) -> int:
    """The bytes of the pages that `size` bytes need."""
    return -(-size // PAGE) * PAGE


def start_in_pages(size: int, right: bool) -> int:
    """The offset in its pages of an array that ends with them, or starts with them."""
    left_over = pages(size) - size if right else 0
    return left_over - left_over % LINE if size >= ALIGNED_FROM else left_over


class Memory:
    """Pages that cannot be touched, but for those of `pieces`, each an offset and a size in bytes.

    All that can be touched holds `mark` at first. No two pieces have a page in common.
    """

    def __init__(self, size: int, pieces: Iterable[tuple[int, int]], mark: int) -> None:
        self.pieces, self.mark = list(pieces), mark
        self.bytes = np.frombuffer(mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)
        self.address, self.byte_size = self.bytes.ctypes.data, size
        assert _protect(self.address, size, NONE) == 0
        for first, last in map(self._pages, self.pieces):
            if last > first:
                assert _protect(self.address + first, last - first, BOTH) == 0
                self.bytes[first:last] = mark

    def _pages(self, piece: tuple[int, int]) -> tuple[int, int]:
        offset, size = piece
        return offset // PAGE * PAGE, pages(offset + size) if size else offset // PAGE * PAGE

    def overwritten(self) -> bool:
        """Whether something was written beside the pieces."""
        for piece in self.pieces:
            first, last = self._pages(piece)
            before, after = self.bytes[first : piece[0]], self.bytes[sum(piece) : max(last, sum(piece))]
            if (before != self.mark).any() or (piece[1] and (after != self.mark).any()):
                return True
        return False


class Side:
    """A side of pages that cannot be touched, at whose right or left end arrays lie; all memory in use."""

    def __init__(self, right: bool) -> None:
        self.right, self.mark = right, 0xA5 if right else 0x5A
        self.used: list[Memory] = []
        self.arena: list[tuple[int, int]] = []

    def empty(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """An array on pages of its own."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        offset = PAGE + start_in_pages(size, self.right)
        self.used.append(Memory(pages(size) + 2 * PAGE, [(offset, size)], self.mark))
        return self.used[-1].bytes[offset : offset + size].view(dtype).reshape(shape)

    def copy(self, array: Any) -> np.ndarray:
        array = np.asarray(array)
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        return copied

    def allocate(self, byte_size: int) -> Memory:
        """Memory for all temporary arrays, with what can be touched as it was assigned last."""
        self.used.append(Memory(byte_size, self.arena, self.mark))
        return self.used[-1]

    def fit(self, intervals: Iterable[tuple[int, int, int, Any]]) -> tuple[dict[Any, int], int]:
        """Offsets as `best_fit` gives them, but each on pages of its own."""
        offsets, end = {}, PAGE
        for _, _, size, key in intervals:
            offsets[key] = end + start_in_pages(size, self.right)
            end += pages(size) + PAGE
        return offsets, end if offsets else 0

    def assign(self, program: Program, donate: bool = False) -> Assignment:
        """Does what `assign_buffers` does, with no memory shared over time."""
        assignment = _assign_buffers(program, donate)
        scratches = {s: assignment.subroutines[r] for r in program.subroutines for s in r.scratches}
        self.arena = list(_pieces(assignment, scratches, 0))
        return assignment


_assign_buffers = buffer_assignment.assign_buffers


def _pieces(assignment: Assignment, scratches: dict[Buffer, Assignment], start: int) -> Iterator[tuple[int, int]]:
    """Yields offset and size of every array in an arena, including those of subroutines and parallel loops."""
    yield from _arena_arrays(assignment.offsets, scratches, start)
    for step, memory in assignment.parallel_loops.items():
        assert isinstance(step, WhileStep) and step.parallel is not None
        for k in range(step.parallel.tasks):
            yield from _arena_arrays(memory.offsets, scratches, start + memory.offset + k * memory.slot_bytes)


def _arena_arrays(
    offsets: dict[Buffer, int], scratches: dict[Buffer, Assignment], start: int
) -> Iterator[tuple[int, int]]:
    for buffer, offset in offsets.items():
        if buffer in scratches:
            yield from _pieces(scratches[buffer], scratches, start + offset)
        else:
            yield start + offset, buffer.byte_size


def compile_on(side: Side, module: hl.Module) -> CpuExecutable:
    """The program with temporary arrays, constants and results on a side; none is small enough for the stack."""
    os.environ["HLOOM_CACHE_DIR"] = ""  # there the same program lies with other offsets
    compiler.assign_buffers = side.assign
    buffer_assignment.best_fit, buffer_assignment.STACK_REGISTERS = side.fit, 0
    executable = hl.compile(module, backend="cpu", seed=1)
    signature = executable.signature
    first = HEADER_WORDS + TABLE_WORDS + len(signature.of_kind("parameter")) + len(signature.of_kind("output"))
    for constant in signature.of_kind("constant"):
        if not isinstance(constant, Routine):
            executable._template[first + constant.index] = side.copy(constant.data).ctypes.data
    executable._allocators = [functools.partial(side.empty, *output) for output in executable._outputs]
    return executable


def run_on(side: Side, module: hl.Module, inputs: Inputs) -> list[np.ndarray]:
    """The results, with all arrays on a side; an error where something beside them or an argument was written."""
    executable = compile_on(side, module)
    arguments = [side.copy(x) for x in inputs]
    allocate, empty = buffers.allocate, buffers.empty
    buffers.allocate, buffers.empty = side.allocate, side.empty
    try:
        results = [np.array(x) for x in flat(executable(*arguments))]
    finally:
        buffers.allocate, buffers.empty = allocate, empty
    for number, (argument, given) in enumerate(zip(arguments, inputs, strict=True)):
        assert argument.tobytes() == np.asarray(given).tobytes(), f"argument {number} was changed"
    for memory in side.used:
        assert not memory.overwritten(), f"wrote beside {memory.pieces[:3]}"
    return results


def check(module: hl.Module, inputs: Inputs) -> None:
    """Runs a program on both sides; the results are the same, bit for bit."""
    first, second = (run_on(Side(right), module, inputs) for right in (True, False))
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        assert a.tobytes() == b.tobytes(), f"result {number} depends on what lies beside arrays"


# Programs


def case_program(seed: int) -> tuple[hl.Module, Inputs]:
    case = draw_case(seed, alone=True)
    return case.module, [*(case.arguments or ())]


def smooth_program(seed: int) -> tuple[hl.Module, Inputs]:
    return draw_program(seed, smooth=True)


def corpus_program(number: int) -> tuple[hl.Module, Inputs]:
    _, module, inputs = load_case(CORPUS_CASES[number])
    return module, inputs[0]


CORPUS_CASES = [
    case
    for case in sorted(STORED, key=lambda case: (case / "module.hlo").stat().st_size)
    if (case / "module.hlo").stat().st_size < 2 * SMALL_BYTES and not case.name.startswith("replicas")
]
FAMILIES: dict[str, Callable[[int], tuple[hl.Module, Inputs]]] = {
    "kernel": draw_kernel, "case": case_program, "fused": draw_program, "smooth": smooth_program, "loops": draw_loops,
    "corpus": corpus_program,
}  # fmt: skip


def main(blocks: Sequence[str]) -> None:
    faulthandler.enable()
    for family, first, count in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        for number in range(int(first), int(first) + int(count)):
            print("at", family, number, flush=True)
            try:
                check(*FAMILIES[family](number))
            except AssertionError as error:
                print("wrong:", error, flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
