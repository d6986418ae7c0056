"""Emits a program as LLVM IR: a function for each nest, and `hloom_main`, which runs the steps.

A long program is partitioned into several LLVM modules, which are compiled in parallel: kernels and nests that
`hloom_main` only calls are in modules of their own. Addresses of buffers are loaded from the table or are offsets from
such pointers; the text depends on the program alone, because it is the key of the cache on disk.

`i32 hloom_main(ptr table)` takes a table of pointers: first those of `TABLE`, then those of parameters, outputs and
constants. It returns 0, or 1 if a host step failed. Loops and branches are native control flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hloom.backends.cpu.codegen.call_tables import COPY, copy_call, kernel_call
from hloom.backends.cpu.codegen.loop_tasks import return_if
from hloom.backends.cpu.codegen.merge_functions import merge_functions
from hloom.backends.cpu.codegen.modules import (
    Merging,
    Unit,
    balanced,
    module_of_units,
    module_text,
    partition_units,
    shared_units,
    split_call_only,
)
from hloom.backends.cpu.codegen.step_emitter import StepEmitter
from hloom.backends.cpu.codegen.timer_functions import FORK, TIMED_FORK
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.kernel_function import PARALLEL_FOR
from hloom.backends.cpu.llvm.float_state import ensure_ieee_state
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import TABLE, table_starts
from hloom.backends.cpu.program.program import Buffer, CodeStep, Program, Step, Subroutine, codes_of
from hloom.lir import (
    I32,
    I64,
    PTR,
    VOID,
    Attribute,
    CallAttribute,
    Function,
    FunctionBuilder,
    Global,
    LirModule,
    Parameter,
    Zeros,
    constant,
)
from hloom.lir.function import needs_of
from hloom.system.records import record

MERGED_NESTS = Merging(max_constants=4, divisors=False)
"""Limits on merging nests: constant loop bounds save registers, so few constants may become variables."""
MERGED_KERNELS = Merging(max_constants=24, divisors=True, excluded_suffixes=("tile", "kernel", "call"))
"""Limits on merging kernels: innermost loops of products and convolutions and mere calls stay as they are."""
_FORK_ADDRESS = Global("parallel_for.address", Zeros(1), is_constant=False)
"""The address of the pool's function, which is the same for every call in the process."""


def parallel_for() -> Function:
    """Returns the function that kernels call to fork. Tasks of loops pass no pool: nested chunks run serially."""
    parameters = [
        Parameter(name, type)
        for name, type in zip(("pool", "task", "context", "chunks"), PARALLEL_FOR.parameters, strict=True)
    ]
    attributes = frozenset({Attribute.NO_UNWIND, Attribute.CALL_ONLY})
    b = FunctionBuilder(Function(PARALLEL_FOR.name, parameters, attributes=attributes, is_exported=True))
    pool, task, context, chunks = parameters
    with b.unless(b.compare("eq", pool, constant(PTR, 0))):
        b.call_pointer(b.load(b.address_of(_FORK_ADDRESS), PTR, 8), VOID, *parameters)
        b.ret()
    with b.each(0, chunks) as chunk:
        b.call_pointer(task, VOID, context, chunk)
    return b.finish()


@record(slots=True)
class Kernels:
    """Kernels of a program: modules, units too short for a module, and call-only functions of all kernels."""

    names: frozenset[str] = frozenset()
    """Names of entries and of shared functions."""
    groups: Sequence[Sequence[Unit]] = ()
    rest: Sequence[Unit] = ()
    call_only: Sequence[Unit] = ()

    def modules(self) -> list[LirModule]:
        """Returns the modules."""
        return [module_of_units(group) for group in self.groups]


def with_kernels(known: Kernels, codes: Mapping[str, KernelCode]) -> Kernels:
    """Returns the known kernels and new ones, merging new kernels that are similar; `codes` are keyed by entry."""
    new = [_kernel_unit(code) for entry, code in codes.items() if entry not in known.names]
    shared = new_shared(new, known)
    call_only, rest = split_call_only(merge_functions(new))
    units = [*known.rest, *rest]
    groups, rest = partition_units(units)
    names = known.names | codes.keys() | shared.keys()
    made = [*known.groups, *groups, *([unit] for unit in shared.values())]
    return Kernels(names, made, rest, [*known.call_only, *call_only])


def new_shared(units: Sequence[Unit], known: Kernels) -> dict[str, Unit]:
    """Returns the shared functions that units need and kernels do not have, by name."""
    return {unit.functions[0].name: unit for unit in shared_units(units) if unit.functions[0].name not in known.names}


def _kernel_unit(code: KernelCode) -> Unit:
    return Unit([*code.functions, kernel_call(code)], MERGED_KERNELS)


def emit_program(program: Program, assignment: Assignment, vector_bytes: int) -> list[str]:
    """Returns the texts of the modules; `hloom_main` is in the first."""
    return [*map(module_text, ProgramEmitter(program, assignment, vector_bytes).all_modules())]


class ProgramEmitter(StepEmitter):
    """Emits a program's functions and partitions them into modules; `functions` then holds those of nests."""

    def all_modules(self) -> list[LirModule]:
        """Returns all modules, kernels included."""
        kernels = with_kernels(Kernels(), codes_of(self.program))
        return [*self.modules(kernels), *kernels.modules()]

    def modules(self, kernels: Kernels) -> list[LirModule]:
        """Returns all modules except those of kernels."""
        parts = self.program.parts()
        main = [function for subroutine in self.program.subroutines for function in self._subroutine(subroutine)]
        main += [self._part(f"hloom_main.part{k}", steps, self.timer is not None) for k, steps in enumerate(parts)]
        call_only_nests, nests = split_call_only(merge_functions(list(self._nests())))
        groups, rest = partition_units([*kernels.rest, *nests])
        main = [*self._inlined_functions(), *self.tasks.values(), *main]
        main += self.timer.functions() if self.timer is not None else []
        main += [copy_call()] if COPY in needs_of(main) else []
        known = [*kernels.call_only, *call_only_nests]
        units = [*rest, *known, *(unit for group in [*kernels.groups, *groups] for unit in group)]
        needs = needs_of([*main, *(function for unit in units for function in unit.functions)])
        forks = PARALLEL_FOR.name in needs
        main += [*([self.fork_function()] if forks else []), self._main(len(parts), forks)]
        shared = new_shared([Unit(main), *units], kernels)
        call_only, others = split_call_only([Unit(main), *known, *rest])
        if len(groups) == 1 and not kernels.groups and not shared:
            others += groups.pop()
        groups += [[unit] for unit in shared.values()]
        _keep_inside(call_only_nests, [*others, *(unit for group in groups for unit in group)])
        return [module_of_units(units) for units in (call_only, *balanced(others), *groups) if units]

    def _inlined_functions(self) -> list[Function]:
        nests = [nest for nest in self.functions.written.values() if nest.function.name in self.inlined]
        return [function for nest in nests for function in nest.unit(MERGED_NESTS).functions]

    def _nests(self) -> Iterator[Unit]:
        """Yields the nests that the program calls and does not inline."""
        for nest in self.functions.written.values():
            if nest.function.name not in self.inlined:
                nest.function.is_exported = nest.function.name in self.called
                yield nest.unit(MERGED_NESTS)

    def _part(self, name: str, steps: list[Step], times_forks: bool = False) -> Function:
        """Returns `i32 @name(ptr table)`, a part of the program; the tables of subroutines have timed forks if the
        program's parts do.
        """
        table = Parameter("table", PTR)
        with self.function(FunctionBuilder(Function(name, [table], I32))) as b:
            self.current.values["table"] = table
            if times_forks:
                self._time_forks()
            self.write_steps(steps, depth=0)
            b.ret(constant(I32, 0))
            if not b.function.inlined:
                b.function.attributes |= {Attribute.CALL_ONLY}
            return b.function

    def _time_forks(self) -> None:
        """Replaces the current function's `parallel_for` by the timed variant."""
        fork = self.current.value("parallel_for")
        with self.current.builder.prologue() as b:
            b.store(fork, b.address_of(FORK), 8)
            self.current.values["parallel_for"] = b.address_of(TIMED_FORK)

    def _subroutine(self, subroutine: Subroutine) -> list[Function]:
        """Returns `internal i32 @name(ptr table)` and its parts, which take a table of their own."""
        outside = self.program, self.assignment, self.table_starts
        self.program, self.assignment = subroutine.program, outside[1].subroutines[subroutine]
        self.table_starts = table_starts(self.program)
        parts = self.program.parts()
        functions = [self._part(f"{subroutine.name}.part{k}", steps) for k, steps in enumerate(parts)]
        self.program, self.assignment, self.table_starts = outside
        whole = _runner(subroutine.name)
        whole.function.attributes |= {Attribute.NO_INLINE}
        _run_parts(whole, len(parts))
        return [*functions, whole.function]

    def _main(self, parts: int, forks: bool) -> Function:
        """Returns the entry of the program, which runs in the IEEE floating-point state."""
        b = _runner("hloom_main")
        b.function.is_exported = True
        ensure_ieee_state(b)
        if forks:
            self.bind_fork(b)
        _run_parts(b, parts)
        return b.function

    def fork_function(self) -> Function:
        """Returns the function that kernels call to fork."""
        return parallel_for()

    def bind_fork(self, b: FunctionBuilder) -> None:
        """Emits the start of the entry, which tells `fork_function` the pool's function."""
        entry = b.element_pointer(b.function.parameters[0], constant(I64, TABLE.index("parallel_for")), "i64")
        fork = b.load(entry, PTR, 8) if self.timer is None else b.address_of(TIMED_FORK)
        b.store(fork, b.address_of(_FORK_ADDRESS), 8)


def _keep_inside(units: Sequence[Unit], others: Sequence[Unit]) -> None:
    """Makes the functions of units that no other unit needs private to their module, whose callers inline them."""
    needs = needs_of(function for unit in others for function in unit.functions)
    for function in (function for unit in units for function in unit.functions):
        function.is_exported = function.name in needs


def _runner(name: str) -> FunctionBuilder:
    """Returns the builder of an empty function `i32 @name(ptr table)` that calls its parts."""
    attributes = frozenset({Attribute.NO_UNWIND, Attribute.CALL_ONLY})
    return FunctionBuilder(Function(name, [Parameter("table", PTR)], I32, attributes))


def _run_parts(b: FunctionBuilder, parts: int) -> None:
    """Emits calls of the parts of a function until one fails, and returns the status."""
    function = b.function
    inline = CallAttribute.ALWAYS_INLINE if parts == 1 else None
    for k in range(parts):
        return_if(b, b.call(f"{function.name}.part{k}", I32, *function.parameters, attribute=inline))
    b.ret(constant(I32, 0))


class FunctionEmitter(ProgramEmitter):
    """Emits a program as a single-threaded function `void (ptr parameter0, .., ptr output0, ..)`."""

    def _code(self, step: CodeStep) -> None:
        pointers = [self.pointer(buffer) for buffer in step.buffers]
        missing = 2 if step.code.scratch_bytes else 3
        self.current.builder.call_void(step.code.entry, *pointers, *[constant(PTR, 0)] * missing)

    def definitions(self, name: str, constants: Mapping[Buffer, Global]) -> list[Function]:
        """Returns the function, and those of nests and kernels that it calls."""
        outside = [*self.program.of_kind("parameter"), *self.program.of_kind("output")]
        parameters = [Parameter(f"{buffer.kind}{buffer.index}", PTR) for buffer in outside]
        with self.function(FunctionBuilder(Function(name, parameters))) as b:
            self.current.pointers |= dict(zip(outside, parameters, strict=True))
            self.current.pointers |= {buffer: b.address_of(content) for buffer, content in constants.items()}
            self.polls = False
            self.write_steps(self.program.steps, depth=1)
            functions = [nest.function for nest in self.functions.written.values()]
            functions += [function for code in codes_of(self.program).values() for function in code.functions]
            return [b.finish(), *functions]
