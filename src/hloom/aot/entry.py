"""A program as functions whose only exported one has a C interface: `int name(inputs.., outputs.., scratch, pool)`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.program.program import Buffer, HostStep, Program, Routine, WaitStep
from hloom.lir import (
    I32,
    I64,
    PTR,
    VOID,
    Declaration,
    Function,
    FunctionBuilder,
    Global,
    Parameter,
    Value,
    constant,
)
from hloom.ops.custom_call import CustomCall
from hloom.runtime.custom_calls.targets import signatures
from hloom.target import CACHE_LINE

MAX_TEXT = 4096
"""Bytes of a constant up to which it is text of the LLVM module; larger ones are written into the object file."""
NULL_POINTER = 1
"""Status of a call with a null pointer."""


class LibraryEmitter(ProgramEmitter):
    """Emits a program without a host: forks call the library's runtime, and loops do not poll."""

    def __init__(self, program: Program, assignment: Assignment, vector_bytes: int) -> None:
        super().__init__(program, assignment, vector_bytes)
        self.polls = False

    def functions_of(self, name: str) -> tuple[list[Function], list[LargeConstant]]:
        """Returns the functions, of which only the entry `name` is exported, and constants to write into the object."""
        functions = [function for module in self.all_modules() for function in module.functions]
        for function in functions:
            function.is_exported = False
        entry, constants = _entry(name, self.program, self.assignment.arena_bytes)
        return [*functions, entry], constants

    def _host(self, step: HostStep | WaitStep) -> None:
        """Emits a custom call, the call of a C function `void f(void *out, const void **in)` (CUSTOMCALL-2)."""
        step = step.start
        b, target = self.current.builder, extern_target(step)
        assert target is not None
        operands, results = ([self.pointer(buffer) for buffer in each] for each in (step.reads, step.writes))
        out = results[0] if isinstance(step.result, Buffer) else _array_of(b, results)
        b.call_void(target, out, _array_of(b, operands))

    def fork_function(self) -> Function:
        parameters = [Parameter(f"p{k}", type) for k, type in enumerate(PARALLEL_FOR.parameters)]
        b = FunctionBuilder(Function(PARALLEL_FOR.name, parameters))
        b.call_void("hloom_parallel_for", *parameters)
        return b.finish()

    def bind_fork(self, b: FunctionBuilder) -> None:
        pass


@dataclass(frozen=True, slots=True, eq=False)
class LargeConstant(Global):
    """A constant whose first bytes are a mark, at which its content is written into the object file."""

    @property
    def mark(self) -> bytes:
        """Bytes that occur once in the object file."""
        assert isinstance(self.content, bytes)
        return hashlib.sha256(self.name.encode() + self.content).digest()

    def text(self, pointer_bytes: int = 8) -> str:
        assert isinstance(self.content, bytes)
        rest = len(self.content) - len(self.mark)
        mark = f'[{len(self.mark)} x i8] c"\\{self.mark.hex(chr(92))}", [{rest} x i8] zeroinitializer'
        types = f"[{len(self.mark)} x i8], [{rest} x i8]"
        return f"@{self.name} = internal constant <{{ {types} }}> <{{ {mark} }}>, align {self.align}"

    def written_into(self, object_file: bytes) -> bytes:
        """Returns an object file with the content of the constant."""
        assert isinstance(self.content, bytes)
        before, after = object_file.split(self.mark)
        return before + self.content + after[len(self.content) - len(self.mark) :]


def extern_target(step: HostStep) -> str | None:
    """Returns the C function that a step calls; None for instructions that need Python."""
    op = step.instruction.op
    if not isinstance(op, CustomCall) or op.target_name in signatures() or any(step.slots):
        return None
    return op.target_name


def _array_of(b: FunctionBuilder, pointers: Sequence[Value]) -> Value:
    """Returns an array of pointers, as C has it, in the stack frame."""
    memory = b.stack_array(PTR, max(1, len(pointers)), 16)
    for k, pointer in enumerate(pointers):
        b.store(pointer, b.at(memory, k, "ptr"), 4)
    return memory


def scratch_bytes(arena_bytes: int) -> int:
    """Returns the size of the memory that callers give to a program, which may have any alignment."""
    return arena_bytes + CACHE_LINE - 1 if arena_bytes else 0


def routines_of(program: Program) -> list[str]:
    """Returns the names of the LAPACK routines that a program calls, in the order of its constants."""
    return [buffer.name for buffer in program.of_kind("constant") if isinstance(buffer, Routine)]


def _entry(name: str, program: Program, arena_bytes: int) -> tuple[Function, list[LargeConstant]]:
    arrays = [*program.of_kind("parameter"), *program.of_kind("output")]
    parameters = [Parameter(f"{buffer.kind}{buffer.index}", PTR) for buffer in arrays]
    scratch, pool = Parameter("scratch", PTR), Parameter("pool", PTR)
    b = FunctionBuilder(Function(name, [*parameters, scratch, pool], I32, is_exported=True))
    needed = [p for p, buffer in zip(parameters, arrays, strict=True) if buffer.byte_size]
    _refuse_null(b, [*needed, *([scratch] if arena_bytes else [])])
    constants = [_constant(buffer) for buffer in program.of_kind("constant")]
    pointers: dict[str, Value] = {
        "arena": _aligned(b, scratch),
        "pool": pool,
        "parallel_for": b.address_of(Declaration("hloom_parallel_for", PARALLEL_FOR.result, PARALLEL_FOR.parameters)),
        "run_calls": b.address_of(Declaration("hloom_run_calls", VOID, (PTR, PTR, PTR, I64))),
        "poll": b.address_of(Declaration("hloom_go_on", I32, (PTR, I64, I64))),
    }
    table = [pointers.get(entry, constant(PTR, 0)) for entry in TABLE]
    words = [*table, *parameters, *map(b.address_of, constants)]
    memory = b.pack(*words, context=b.stack_array(I64, len(words), 16))
    b.ret(b.call("hloom_main", I32, memory))
    return b.finish(), [each for each in constants if isinstance(each, LargeConstant)]


def _refuse_null(b: FunctionBuilder, pointers: Sequence[Value]) -> None:
    """Returns from the function with an error if one of the pointers is null."""
    for pointer in pointers:
        with b.when(b.compare("eq", pointer, constant(PTR, 0))):
            b.ret(constant(I32, NULL_POINTER))


def _aligned(b: FunctionBuilder, pointer: Value) -> Value:
    end = b.binary("add", b.convert("ptrtoint", pointer, "i64"), constant(I64, CACHE_LINE - 1))
    return b.convert("inttoptr", b.binary("and", end, constant(I64, -CACHE_LINE)), "ptr")


def _constant(buffer: Buffer) -> Global | Declaration:
    """Returns a constant as data, or the declaration of a Fortran routine."""
    if isinstance(buffer, Routine):
        return Declaration(f"{buffer.name}_", VOID, ())
    assert buffer.data is not None
    make = LargeConstant if buffer.byte_size > MAX_TEXT else Global
    return make(f"constant{buffer.index}", buffer.data.tobytes(), CACHE_LINE)
