"""What a kernel writer hands over: functions in LLVM IR, and what they need."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.backends.cpu.elements.types import is_native
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.llvm.text import PTR, Type
from hloom.ir import Instruction, flatten
from hloom.shape import Shape


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The functions of one kernel, all `internal`, their names prefixed with the kernel's.

    The entry is `void @entry(ptr operand0, .., ptr result0, .., ptr scratch, ptr pool, ptr parallel_for)`: one pointer
    for each array among the instruction's operands and results, row-major; a workspace of `scratch_bytes`, aligned to
    64 bytes; and how to run chunks on the threads: `void parallel_for(ptr pool, ptr function, ptr context, i64 chunks)`
    calls `void function(ptr context, i64 chunk)` for each chunk. The addresses of the Fortran `routines` that it calls
    come after the operands, then its `table` of constants.
    """

    text: str
    declarations: dict[str, None]
    scratch_bytes: int
    entry: str
    routines: tuple[str, ...] = ()
    table: np.ndarray[Any, Any] | None = field(default=None, compare=False)
    packed: Callable[[], PackedCode | None] | None = field(default=None, compare=False)
    """How to do it in two steps."""


@dataclass(frozen=True, slots=True)
class PackedCode:
    """A kernel in two steps, for loops whose rounds have operand number `operand` in common.

    `packing` has this operand, and as its result `size` bytes; `product` takes those in the operand's place.
    """

    operand: int
    size: int
    packing: KernelCode
    product: KernelCode


def operand_shapes(instruction: Instruction) -> list[Shape]:
    """The arrays that the operands hold."""
    return flatten(instruction.operand_shapes)


def result_shapes(instruction: Instruction) -> list[Shape]:
    """The arrays that the result holds."""
    return list(instruction.shape.leaves())


def has_native_arrays(instruction: Instruction) -> bool:
    """Whether all operands and results are arrays of fixed size, of element types that can be computed with."""
    shapes = [*operand_shapes(instruction), *result_shapes(instruction)]
    return all(s.is_array and not s.is_dynamic and is_native(s.element_type) for s in shapes)


def entry_function(name: str, instruction: Instruction, routines: int = 0, has_table: bool = False) -> KernelFunction:
    """The entry, whose parameters are operand0, .., routine0, .., table, result0, .., scratch, pool, parallel_for."""
    parameters: dict[str, Type] = {f"operand{k}": PTR for k in range(len(operand_shapes(instruction)))}
    parameters |= {f"routine{k}": PTR for k in range(routines)}
    parameters |= {"table": PTR} if has_table else {}
    parameters |= {f"result{k}": PTR for k in range(len(result_shapes(instruction)))}
    return KernelFunction(name, **parameters, scratch=PTR, pool=PTR, parallel_for=PTR).as_call_only()


def code_of(
    entry: str,
    functions: Iterable[KernelFunction],
    scratch_bytes: int = 0,
    routines: tuple[str, ...] = (),
    table: np.ndarray[Any, Any] | None = None,
) -> KernelCode:
    """The code of functions, one of which is the entry."""
    declarations: dict[str, None] = {}
    texts = []
    for function in functions:
        texts.append(function.text())
        declarations.update(function.declarations)
    return KernelCode("\n".join(texts), declarations, aligned(scratch_bytes), entry, routines, table)


def aligned(size: int) -> int:
    """The size in whole cache lines."""
    return -(-size // 64) * 64
