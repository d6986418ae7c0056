"""Native Python: translates functions in a small subset of Python, by their syntax trees, to the low-level
IR.

    @native()
    def take_chunks(pool: Pool) -> None:
        while True:
            chunk = pool.next.add(1, MONOTONIC)
            if chunk >= pool.chunks:
                return
            pool.function(pool.context, chunk)

The subset: parameters and results with types of `types.py`, locals, which have the type of their first value, `while`,
`for .. in range(..)`, `if`, `break`, `continue`, `return`, integer arithmetic, comparisons, `and`, `or`, `not`, fields,
elements, atomics, and calls. Values from outside a function are known when it is translated: integers, other native
functions, static structures, and tuples, over which a `for` is unrolled.

Both operands of an operation have the same type; a literal takes the type of the other operand. Addresses are 64-bit
words (`u64`), on every machine, and become pointers where memory is accessed and where functions are called. Locals
are stack slots, which LLVM promotes to registers.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable
from typing import Any

from hloom.backends.cpu.llvm.native.statements import FunctionTranslator
from hloom.backends.cpu.llvm.native.vocabulary import Native
from hloom.backends.cpu.llvm.native.writer import NativeError, Required
from hloom.lir import Function, LirModule
from hloom.system.machine import architecture


def native_module(exported: Iterable[Any], machine: str = "", internal: Iterable[Any] = ()) -> LirModule:
    """Returns functions and all that they call in the low-level IR, for an architecture ("": this one).

    Functions in `internal` define external functions of their names, for this module alone.
    """
    required = Required(machine or architecture())
    names = {function.name for function in exported}
    for function in (*exported, *internal):
        required.add(function)
    done: dict[str, Function] = {}
    while missing := [name for name in required.functions if name not in done]:
        for name in missing:
            function = required.functions[name]
            done[name] = FunctionTranslator(required, function, *_syntax_of(function)).translated()
            done[name].is_exported = name in names
    return LirModule([*done.values()])


def _syntax_of(function: Native) -> tuple[list[str], ast.FunctionDef]:
    """Returns the lines of the file that defines a function, and its syntax tree."""
    code = function.function.__code__
    lines, functions = _functions_in(code.co_filename)
    tree = functions.get((code.co_name, code.co_firstlineno))
    if tree is None:
        raise NativeError(f"{function.name}: the source of {code.co_filename} cannot be read, or has changed")
    return lines, tree


@functools.cache
def _functions_in(file: str) -> tuple[list[str], dict[tuple[str, int], ast.FunctionDef]]:
    """Returns the lines of a file, and its functions by name and first line, decorators included."""
    lines = linecache.getlines(file)
    functions = {}
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            functions[node.name, first] = node
    return lines, functions
