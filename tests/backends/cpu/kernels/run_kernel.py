"""Compiles the kernel of a module's root instruction, runs it on arrays, and compares it with the interpreter."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hloom as hl
from hloom.backends.cpu.kernels.code import KernelCode, operand_shapes, result_shapes
from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.runtime.thread_pool import ThreadPool
from hloom.ir import Instruction
from hloom.lir import PTR, Builder, Function, LirModule, Parameter
from hloom.lir.verify import check_module
from hloom.target import Target
from hloom.verifier import verify_module

Array = np.ndarray[Any, Any]
MARK = 77
Emit = Callable[[Any, str, Instruction, Target], KernelCode | None]


def caller(entry: str, count: int) -> Function:
    """Returns `void @run(ptr ..)`, which calls an entry."""
    b = Builder(Function("run", [Parameter(f"p{k}", PTR) for k in range(count)], is_exported=True))
    b.call_void(entry, *b.function.parameters)
    return b.finish()


@functools.cache
def pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


class Kernel:
    """A compiled kernel, ready to run."""

    def __init__(self, emit: Emit, text: str, threads: int = 1, width: int | None = None) -> None:
        module = hl.parse(text)
        verify_module(module)
        self.instruction = module.entry.root
        code = emit(self.instruction.op, "kernel", self.instruction, Target(width or processor().vector_bytes, threads))
        assert code is not None, "the kernel does not handle this instruction"
        self.tables = [code.table] if code.table is not None else []
        arrays = len(operand_shapes(self.instruction)) + len(result_shapes(self.instruction)) + len(self.tables) + 3
        lir = LirModule([*code.functions, caller(code.entry, arrays)])
        check_module(lir)
        self.text = lir.text()
        self.code: MachineCode = load_object(compile_text(self.text))
        self.native = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arrays)(self.code.address("run"))
        self.scratch, self.guard = guarded(code.scratch_bytes)
        self.pool = pool(threads)

    def __call__(self, *operands: Array, into: Sequence[Array] | None = None) -> list[Array]:
        inputs = [np.ascontiguousarray(a) for a in operands]
        memory = [guarded(s.byte_size) for s in result_shapes(self.instruction)]
        results = [
            bytes.view(s.element_type.dtype).reshape(s.dimensions)
            for (bytes, _), s in zip(memory, result_shapes(self.instruction))
        ]
        results = results if into is None else list(into)
        pointers = [a.ctypes.data for a in [*inputs, *self.tables, *results, self.scratch]]
        self.native(*pointers, self.pool.address, self.pool.parallel_for_address)
        for guard in [self.guard, *(guard for _, guard in memory)]:
            assert (guard == MARK).all(), "wrote past the end"
        return results


def guarded(size: int) -> tuple[Array, Array]:
    """Returns memory aligned to 64 bytes, and the guard bytes after it."""
    memory = np.full(size + 128, MARK, np.uint8)
    start = -memory.ctypes.data % 64
    memory[start : start + size] = 0xCD
    return memory[start : start + size], memory[start + size :]


def interpreted(text: str, *operands: Array) -> list[Array]:
    """Returns the results of the interpreter."""
    value = hl.compile(text, backend="interpreter")(*operands)
    return list(value) if isinstance(value, (tuple, list)) else [value]


def assert_same(found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Asserts that arrays are equal bit for bit."""
    assert len(found) == len(expected)
    for f, e in zip(found, expected):
        e = np.asarray(e)
        assert f.dtype == e.dtype and f.shape == e.shape
        same = (
            f.reshape(-1).view(np.uint8).reshape(f.size, -1)
            == np.ascontiguousarray(e).reshape(-1).view(np.uint8).reshape(e.size, -1)
            if f.size
            else np.ones(0)
        )
        assert same.all(), f"{np.flatnonzero(~same.all(-1))[:5]} of {f.size}: {f.reshape(-1)[:20]} {e.reshape(-1)[:20]}"


def check(
    emit: Emit,
    text: str,
    *operands: Array,
    expected: Sequence[Array] | None = None,
    threads: Sequence[int] = (1, 2, 3),
) -> None:
    """Asserts that the kernel gives the expected results bit for bit, for several threads and vector widths.

    Without `expected` they are those of the interpreter.
    """
    expected = interpreted(text, *operands) if expected is None else expected
    for count, width in zip(threads, (processor().vector_bytes, 32, 16)):
        assert_same(Kernel(emit, text, count, width)(*operands), expected)
