"""The code of a kernel: functions in LLVM IR, with the workspace, routines and constants that they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import numpy as np

from hloom.backends.cpu.elements.types import is_native
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.ir import Instruction, flatten
from hloom.lir import PTR, VOID, Declaration, Function, Value
from hloom.shape import Shape
from hloom.system.records import record
from hloom.target import CACHE_LINE, align_up


@record(slots=True)
class KernelCode:
    """The functions of one kernel, all `internal`, with names that start with the kernel's name.

    The entry is `void @entry(ptr operand0, .., ptr result0, .., ptr scratch, ptr pool, ptr parallel_for)`: one pointer
    for each row-major array among the operands and results of the instruction; a workspace of `scratch_bytes`, aligned
    to 64 bytes; and the thread pool with the function that runs chunks on it: `void parallel_for(ptr pool, ptr
    function, ptr context, i64 chunks)` calls `void function(ptr context, i64 chunk)` for each chunk. The addresses of
    the Fortran `routines` that the kernel calls come after the operands, then its `table` of constants.
    """

    functions: tuple[Function, ...]
    scratch_bytes: int
    entry: str
    routines: tuple[str, ...] = ()
    table: np.ndarray[Any, Any] | None = field(default=None, compare=False)
    packed: Callable[[], PackedCode | None] | None = field(default=None, compare=False)
    """Returns the kernel in two steps, packing and product; None if it packs no operand as a whole."""


@record(slots=True)
class PackedCode:
    """A kernel in two steps, for loops whose iterations share the operand of index `operand`.

    `packing` reads this operand and writes `size` bytes; `product` takes these bytes instead of the operand.
    """

    operand: int
    size: int
    packing: KernelCode
    product: KernelCode


def operand_shapes(instruction: Instruction) -> list[Shape]:
    """Shapes of the arrays in the operands, with tuples flattened."""
    return flatten(instruction.operand_shapes)


def result_shapes(instruction: Instruction) -> list[Shape]:
    """Shapes of the arrays in the result, with tuples flattened."""
    return list(instruction.shape.leaves())


def has_native_arrays(instruction: Instruction) -> bool:
    """Whether all operands and results are arrays of static shape and of element types with native arithmetic."""
    shapes = [*operand_shapes(instruction), *result_shapes(instruction)]
    return all(s.is_array and not s.is_dynamic and is_native(s.element_type) for s in shapes)


def entry_function(name: str, instruction: Instruction, routines: int = 0, has_table: bool = False) -> KernelFunction:
    """Returns an empty entry, whose parameters are operand0, .., routine0, .., table, result0, .., and those of all."""
    arrays = [f"operand{k}" for k in range(len(operand_shapes(instruction)))]
    arrays += [f"routine{k}" for k in range(routines)]
    arrays += ["table"] if has_table else []
    return entry_of(name, *arrays, *(f"result{k}" for k in range(len(result_shapes(instruction)))))


def entry_of(name: str, *arrays: str) -> KernelFunction:
    """Returns an empty entry, whose parameters are the arrays, scratch, pool and parallel_for."""
    return KernelFunction(name, **dict.fromkeys((*arrays, "scratch", "pool", "parallel_for"), PTR)).as_call_only()


def code_of(
    entry: str,
    functions: Iterable[KernelFunction],
    scratch_bytes: int = 0,
    routines: tuple[str, ...] = (),
    table: np.ndarray[Any, Any] | None = None,
) -> KernelCode:
    """Returns the code of a kernel from its functions, one of which has the name `entry`."""
    return KernelCode(tuple(f.finish() for f in functions), aligned(scratch_bytes), entry, routines, table)


def entry_address(f: KernelFunction, code: KernelCode) -> Value:
    """Returns the address of the entry of another kernel, with the parameters of the entry `f`."""
    return f.address_of(Declaration(code.entry, VOID, (PTR,) * len(f.parameters)))


def call_code(f: KernelFunction, code: KernelCode) -> None:
    """Calls the code of another kernel with the parameters of the entry `f`."""
    f.call_pointer(entry_address(f, code), VOID, *f.parameters)


def aligned(size: int) -> int:
    """Returns a size in bytes rounded up to whole cache lines."""
    return align_up(size, CACHE_LINE)
