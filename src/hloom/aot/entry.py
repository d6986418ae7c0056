"""A program as functions whose only exported one has a C interface: `int name(inputs.., outputs.., scratch, pool)`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.aot.constants import MAX_TEXT, ConstantBlock, ExternalBlock
from hloom.aot.runtime import FORK, GO_ON, RUN_CALLS
from hloom.backends.cpu.codegen.emitter import ProgramEmitter
from hloom.backends.cpu.codegen.loop_tasks import return_if
from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.program.program import Buffer, HostStep, Program, Routine, WaitStep
from hloom.backends.cpu.runtime.memory_pool import SMALLEST
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
from hloom.ops.custom_call import REFUSE_SIZES, CustomCall
from hloom.runtime.custom_calls.targets import signatures
from hloom.system.records import record
from hloom.target import CACHE_LINE

NO_SIZE = 2
"""Status of a call with sizes that the library is not built for."""
BAD_POINTER = 1
"""Status of a call with a pointer that is null or not aligned, and must not be."""


@record
class Constants:
    """Large constants of a library: their block, its symbol, and whether functions get its address as an argument."""

    block: ConstantBlock
    symbol: str
    is_argument: bool

    def address(self, b: FunctionBuilder, buffer: Buffer, argument: Value | None) -> Value:
        """Returns the address of a constant, or of a Fortran routine."""
        if isinstance(buffer, Routine):
            return b.address_of(Declaration(f"{buffer.name}_", VOID, ()))
        assert buffer.data is not None
        content = buffer.data.tobytes()
        if buffer.byte_size <= MAX_TEXT:
            return b.address_of(Global(f"constant{buffer.index}", content, CACHE_LINE))
        start = b.address_of(ExternalBlock(self.symbol, b"", CACHE_LINE)) if argument is None else argument
        return b.at(start, self.block.offset_of(content), "i8")


class LibraryEmitter(ProgramEmitter):
    """Emits a program without a host: forks call the library's runtime, and loops do not poll."""

    def __init__(self, program: Program, assignment: Assignment, vector_bytes: int) -> None:
        super().__init__(program, assignment, vector_bytes)
        self.polls = False

    def functions_of(self, name: str, constants: Constants) -> list[Function]:
        """Returns the functions, of which only the entry `name` is exported."""
        modules = self.all_modules()
        functions = [replace(function, is_exported=False) for module in modules for function in module.functions]
        return [*functions, _entry(name, self.program, self.assignment.arena_bytes, constants)]

    def _host(self, step: HostStep | WaitStep) -> None:
        """Emits a custom call, the call of a C function `void f(void *out, const void **in)` (CUSTOMCALL-2)."""
        step = step.start
        if refuses_sizes(step):
            return_if(self.current.builder, constant(I32, NO_SIZE))
            return
        b, target = self.current.builder, extern_target(step)
        assert target is not None
        operands, results = ([self.pointer(buffer) for buffer in each] for each in (step.reads, step.writes))
        out = results[0] if isinstance(step.result, Buffer) else _array_of(b, results)
        b.call_void(target, out, _array_of(b, operands))

    def fork_function(self) -> Function:
        parameters = [Parameter(f"p{k}", type) for k, type in enumerate(PARALLEL_FOR.parameters)]
        b = FunctionBuilder(Function(PARALLEL_FOR.name, parameters))
        b.call_void(FORK.name, *parameters)
        return b.finish()

    def bind_fork(self, b: FunctionBuilder) -> None:
        pass


def refuses_sizes(step: HostStep) -> bool:
    """Whether a step ends the program because sizes contradict each other."""
    op = step.instruction.op
    return isinstance(op, CustomCall) and op.target_name == REFUSE_SIZES


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


def _entry(name: str, program: Program, arena_bytes: int, constants: Constants) -> Function:
    arrays = [*program.of_kind("parameter"), *program.of_kind("output")]
    parameters = [Parameter(f"{buffer.kind}{buffer.index}", PTR) for buffer in arrays]
    more = [Parameter(word, PTR) for word in (*(["constants"] if constants.is_argument else []), "scratch", "pool")]
    b = FunctionBuilder(Function(name, [*parameters, *more], I32, is_exported=True))
    *given, scratch, pool = more
    needed = [p for p, buffer in zip(parameters, arrays, strict=True) if buffer.byte_size]
    large = [p for p, buffer in zip(parameters, arrays, strict=True) if is_aligned_result(buffer)]
    refuse_pointers(b, [*needed, *given, *([scratch] if arena_bytes else [])], [*large, *given])
    block = given[0] if given else None
    pointers: dict[str, Value] = {
        "arena": aligned_pointer(b, scratch),
        "pool": pool,
        "parallel_for": b.address_of(FORK),
        "run_calls": b.address_of(RUN_CALLS),
        "poll": b.address_of(GO_ON),
    }
    table = [pointers.get(entry, constant(PTR, 0)) for entry in TABLE]
    words = [*table, *parameters, *(constants.address(b, buffer, block) for buffer in program.of_kind("constant"))]
    memory = b.pack(*words, context=b.stack_array(I64, len(words), 16))
    failed = b.compare("ne", b.call("hloom_main", I32, memory), constant(I32, 0))
    b.ret(b.select(failed, constant(I32, NO_SIZE), constant(I32, 0)))
    return b.finish()


def is_aligned_result(buffer: Buffer) -> bool:
    """Whether a buffer is a result that programs require to be aligned to a cache line, for non-temporal stores."""
    return buffer.kind == "output" and buffer.byte_size >= SMALLEST


def refuse_pointers(b: FunctionBuilder, needed: Sequence[Value], aligned: Sequence[Value]) -> None:
    """Returns from the function with an error if a pointer is null or not aligned that must not be."""
    refused = [b.compare("eq", pointer, constant(PTR, 0)) for pointer in needed]
    for pointer in aligned:
        low = b.binary("and", b.convert("ptrtoint", pointer, "i64"), constant(I64, CACHE_LINE - 1))
        refused.append(b.compare("ne", low, constant(I64, 0)))
    for condition in refused:
        with b.when(condition):
            b.ret(constant(I32, BAD_POINTER))


def aligned_pointer(b: FunctionBuilder, pointer: Value) -> Value:
    """Returns the first cache line from a pointer on."""
    end = b.binary("add", b.convert("ptrtoint", pointer, "i64"), constant(I64, CACHE_LINE - 1))
    return b.convert("inttoptr", b.binary("and", end, constant(I64, -CACHE_LINE)), "ptr")
