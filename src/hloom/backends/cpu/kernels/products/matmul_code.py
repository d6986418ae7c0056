"""The frame of a product's code: its entry, parallel tasks, and the context of five words that they get."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.backends.cpu.kernels.products.matmul_plan import MatmulSpec, real_type
from hloom.backends.cpu.llvm.function import ELEMENTS, Function
from hloom.backends.cpu.llvm.text import I64, PTR, IndexValue, Value, constant, type_of


@dataclass(frozen=True)
class MatmulCode:
    """LLVM IR of `void @entry(ptr lhs, ptr rhs, ptr out, ptr scratch, ptr pool)`, with its declarations and workspace.

    `scratch` is aligned to 64 bytes. It may be null if `scratch_bytes` is 0, and `pool` if `threads` was 1.
    """

    text: str
    declarations: frozenset[str]
    scratch_bytes: int
    entry: str


def entry_of(name: str) -> Function:
    """Returns an empty entry."""
    return Function(name, lhs=PTR, rhs=PTR, out=PTR, scratch=PTR, pool=PTR).as_call_only()


def run_tasks(f: Function, task: str, context: Value, chunks: int, pool: Value | None) -> None:
    """Calls the task for each chunk, on all threads of the pool if there is one."""
    if pool is not None and chunks > 1:
        f.call_void("parallel_for", pool, Value(f"@{task}", PTR), context, f.index(chunks))
        return
    with f.loop(chunks) as chunk:
        f.invoke(task, context, f.index(chunk.index))


def fill_context(f: Function, context: Value, *fields: Value) -> None:
    """Stores the fields of a context, 8 bytes each."""
    for i, value in enumerate(fields):
        f.store(value, f.at(context, i, "i64"), 8)


def context_of(f: Function, context: Value) -> tuple[Value, Value, Value, Value, Value]:
    """Loads the fields of a context: A, B, C, the packed B, and the number of columns."""
    a, b, c, packed = (f.load(f.at(context, i, "i64"), PTR, 8) for i in range(4))
    return a, b, c, packed, f.load(f.at(context, 4, "i64"), I64, 8)


def code_of(name: str, functions: list[Function], scratch_bytes: int) -> MatmulCode:
    """Returns the code of a product from its functions."""
    text = "\n".join(function.text() for function in functions)
    declarations = frozenset(line for function in functions for line in function.declarations)
    return MatmulCode(text, declarations, scratch_bytes, name)


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
