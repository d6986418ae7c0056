"""The code of a product, and its entry."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.backends.cpu.kernels.kernel_function import ELEMENTS, PARALLEL_FOR, KernelFunction
from hloom.backends.cpu.kernels.products.matmul_plan import MatmulSpec, real_type
from hloom.lir import PTR, Function, IndexValue, Value, constant, type_of


@dataclass(frozen=True)
class MatmulCode:
    """The functions of `void @entry(ptr lhs, ptr rhs, ptr out, ptr scratch, ptr pool)`, and its workspace.

    `scratch` is aligned to 64 bytes. It may be null if `scratch_bytes` is 0, and `pool` if `threads` was 1.
    """

    functions: tuple[Function, ...]
    scratch_bytes: int
    entry: str


def entry_of(name: str) -> KernelFunction:
    """Returns an empty entry."""
    return KernelFunction(name, lhs=PTR, rhs=PTR, out=PTR, scratch=PTR, pool=PTR).as_call_only()


def threads_of(f: KernelFunction, pool: Value, is_parallel: bool) -> tuple[Value, Value] | None:
    """Returns the pool and the function that runs tasks on it; None if they run serially."""
    return (pool, f.address_of(PARALLEL_FOR)) if is_parallel else None


def code_of(name: str, functions: list[KernelFunction], scratch_bytes: int) -> MatmulCode:
    """Returns the code of a product from its functions."""
    return MatmulCode(tuple(function.finish() for function in functions), scratch_bytes, name)


def zeros_code(name: str, spec: MatmulSpec) -> MatmulCode:
    """Returns the code of an empty product or, if only K is empty, of zeros."""
    f = entry_of(name)
    out = f.parameters[2]
    parts = 2 if spec.out_type.startswith("c") else 1
    type = type_of(ELEMENTS[real_type(spec.out_type)])
    if spec.batch * spec.m * spec.n > 0:
        with f.loop(spec.batch) as b, f.loop(spec.m) as i, f.loop(spec.n) as j, f.loop(parts) as part:
            indices = zip((b.index, i.index, j.index), spec.out_strides, strict=True)
            offset: IndexValue = 0
            for index, stride in indices:
                offset = f.add(offset, f.multiply(index, stride * parts))
            f.store(constant(type, 0), f.at(out, f.add(offset, part.index), type.element), 1)
    return code_of(name, [f], 0)
