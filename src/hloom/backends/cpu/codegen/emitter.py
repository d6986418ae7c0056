"""Emits a program as LLVM IR: a function for each nest, and `hloom_main`, which runs the steps.

A long program is partitioned into several LLVM modules, which are compiled in parallel: kernels and nests that
`hloom_main` only calls are in modules of their own. Addresses of buffers are loaded from the table or are offsets from
such pointers; the text depends on the program alone, because it is the key of the cache on disk.

`i32 hloom_main(ptr table)` takes a table of pointers: first those of `TABLE`, then those of parameters, outputs and
constants. It returns 0, or 1 if a host step failed. Loops and branches are native control flow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hloom.backends.cpu.codegen.call_tables import COPY, copy_call, kernel_call
from hloom.backends.cpu.codegen.loop_tasks import return_if
from hloom.backends.cpu.codegen.merge_functions import merge_functions
from hloom.backends.cpu.codegen.modules import (
    Merging,
    Unit,
    inlines,
    module_of_units,
    partition_units,
    split_call_only,
    split_call_only_if_long,
)
from hloom.backends.cpu.codegen.step_emitter import StepEmitter
from hloom.backends.cpu.codegen.step_timer import TIMED_FORK, StepTimer, with_timed_fork
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.llvm.float_state import in_ieee_state
from hloom.backends.cpu.llvm.function import CALL_ONLY_ATTRIBUTE, call_only_attribute
from hloom.backends.cpu.llvm.text import I32, I64, PTR, Builder, Value, constant
from hloom.backends.cpu.program.buffer_assignment import Assignment
from hloom.backends.cpu.program.interface import (
    TABLE,
    table_starts,
)
from hloom.backends.cpu.program.program import Buffer, CodeStep, Program, Step, Subroutine, codes_of

MERGED_NESTS = Merging(max_constants=4, divisors=False)
"""Limits on merging nests: constant loop bounds save registers, so few constants may become variables."""
MERGED_KERNELS = Merging(max_constants=24, divisors=True, excluded_suffixes=("tile", "kernel", "call"))
"""Limits on merging kernels: innermost loops of products and convolutions and mere calls stay as they are."""
ALONE = ("ptr null", "ptr null")
"""Arguments in place of the thread pool for kernels that run on one thread."""
_PARALLEL_FOR_DECLARATION = "declare void @parallel_for(ptr, ptr, ptr, i64)"
# Kernels that fork in inner functions call this. Tasks of loops pass no pool, and run nested chunks serially.
# The address of the pool's function is the same for every call in the process.
_PARALLEL_FOR = f"""@parallel_for.address = internal global ptr null
define void @parallel_for(ptr %pool, ptr %function, ptr %context, i64 %chunks) {CALL_ONLY_ATTRIBUTE} {{
  %alone = icmp eq ptr %pool, null
  br i1 %alone, label %next, label %fork
fork:
  %address = load ptr, ptr @parallel_for.address, align 8
  call void %address(ptr %pool, ptr %function, ptr %context, i64 %chunks)
  ret void
next:
  %chunk = phi i64 [ 0, %0 ], [ %after, %run ]
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %run, label %done
run:
  call void %function(ptr %context, i64 %chunk)
  %after = add i64 %chunk, 1
  br label %next
done:
  ret void
}}"""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of a program: modules, units too short for a module, and call-only functions of all kernels."""

    entries: frozenset[str] = frozenset()
    groups: Sequence[Sequence[Unit]] = ()
    rest: Sequence[Unit] = ()
    call_only: Sequence[Unit] = ()

    def texts(self) -> list[str]:
        """Returns the texts of the modules."""
        return [module_of_units(piece) for piece in self.groups]


def with_kernels(known: Kernels, codes: Mapping[str, KernelCode]) -> Kernels:
    """Returns the known kernels and new ones, merging new kernels that are similar; `codes` are keyed by entry."""
    new = [_kernel_unit(code) for entry, code in codes.items() if entry not in known.entries]
    call_only, rest = split_call_only(merge_functions(new))
    units = [*known.rest, *rest]
    groups, rest = partition_units(units)
    return Kernels(known.entries | codes.keys(), [*known.groups, *groups], rest, [*known.call_only, *call_only])


def _kernel_unit(code: KernelCode) -> Unit:
    text = f"{code.text}\n{kernel_call(code)}"
    return Unit(text, dict(code.declarations), [f"declare void @{code.entry}.call(ptr, i64)"], MERGED_KERNELS)


def emit_program(
    program: Program, assignment: Assignment, vector_bytes: int, timer: StepTimer | None = None
) -> list[str]:
    """Returns the texts of the modules; `hloom_main` is in the first. With a `timer` steps are timed."""
    return ProgramEmitter(program, assignment, vector_bytes, timer).all_texts()


class ProgramEmitter(StepEmitter):
    """Emits a program's functions and partitions them into modules; `functions` then holds those of nests."""

    def all_texts(self) -> list[str]:
        """Returns the texts of all modules, kernels included."""
        kernels = with_kernels(Kernels(), codes_of(self.program))
        return [*self.texts(kernels), *kernels.texts()]

    def texts(self, kernels: Kernels) -> list[str]:
        """Returns the texts of all modules except those of kernels."""
        self.builder.declarations["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        parts = self.program.parts()
        whole = [text for subroutine in self.program.subroutines for text in self._subroutine(subroutine)]
        whole += [self._part(f"hloom_main.part{k}", steps) for k, steps in enumerate(parts)]
        groups, rest = partition_units([*kernels.rest, *merge_functions(list(self._nests()))])
        inlined = [f for f in self.functions.written.values() if self.inlined.get(f.name)]
        units = [*rest, *kernels.call_only, *(unit for piece in [*kernels.groups, *groups] for unit in piece)]
        needed = [self.builder.declarations, *(f.declarations for f in inlined)]
        forks = any(_PARALLEL_FOR_DECLARATION in d for d in [*needed, *(u.declarations for u in units)])
        forks |= bool(self.tasks)
        texts = ["\n".join([*function.lines, *function.task]) for function in inlined]
        texts += ["\n".join(lines) for lines in self.tasks.values()]
        state, declared = in_ieee_state("hloom_main")
        self.builder.declarations |= dict.fromkeys(declared)
        texts += [*([_PARALLEL_FOR] if forks else []), *whole, self._main("hloom_main", len(parts), forks, state)]
        texts += [self.timer.text()] if self.timer is not None else []
        texts += [*self.tables, *([copy_call()] if any(f"@{COPY} " in table for table in self.tables) else [])]
        declarations = {line: None for lines in needed for line in lines}
        declarations |= {entry: None for unit in units for entry in unit.entries}
        main = Unit("\n".join(texts), declarations, [_PARALLEL_FOR_DECLARATION] if forks else [])
        call_only, others = split_call_only_if_long([main, *kernels.call_only, *rest])
        return [module_of_units(module) for module in (call_only, others, *groups) if module]

    def _nests(self) -> Iterator[Unit]:
        """Yields the nests that the program calls and does not inline."""
        for function in self.functions.written.values():
            if not self.inlined.get(function.name):
                entries, lines = [], [*function.lines, *function.task]
                if function.name in self.called:
                    lines[0] = lines[0].replace(" internal", "", 1)
                    parameters = ["ptr"] * len(function.buffers) + ["i64", "i64"]
                    entries.append(f"declare void @{function.name}({', '.join(parameters)})")
                if function.task:
                    entries.append(f"declare void @{function.name}.task(ptr, i64)")
                yield Unit("\n".join(lines), dict(function.declarations), entries, MERGED_NESTS)

    def _part(self, name: str, steps: list[Step]) -> str:
        """Returns `i32 @name(ptr table)`, a part of the program."""
        with self.function() as b:
            self.callee_words = 0
            self.write_steps(steps, depth=0)
            b.line("ret i32 0")
            mark = call_only_attribute(not inlines("\n".join(b.lines)))
            return "\n".join(
                [
                    f"define internal i32 @{name}(ptr %table) nounwind #0{mark} {{",
                    "entry:",
                    *self._table_loads(),
                    *(_callee_head(self.callee_words) if self.callee_words else []),
                    *self.function_head(),
                    *b.lines,
                    "}",
                ]
            )

    def _subroutine(self, subroutine: Subroutine) -> list[str]:
        """Returns `internal i32 @name(ptr table)` and its parts, which take a table of their own."""
        outside = self.program, self.assignment, self.table_starts
        self.program, self.assignment = subroutine.program, outside[1].subroutines[subroutine]
        self.table_starts = table_starts(self.program)
        parts = self.program.parts()
        texts = [self._part(f"{subroutine.name}.part{k}", steps) for k, steps in enumerate(parts)]
        self.program, self.assignment, self.table_starts = outside
        whole = self._main(subroutine.name, len(parts), forks=False)
        return [
            *texts,
            whole.replace("define i32", "define internal i32", 1).replace("nounwind", "noinline nounwind", 1),
        ]

    def _main(self, name: str, parts: int, forks: bool, head: Sequence[str] = ()) -> str:
        """Returns the function that runs parts until one fails, starting with the lines of `head`."""
        b = Builder()
        b.lines += head
        if forks:
            address = b.element_pointer(Value("%table", PTR), constant(I64, TABLE.index("parallel_for")), "ptr")
            fork = b.load(address, PTR, 8) if self.timer is None else Value(TIMED_FORK, PTR)
            b.store(fork, Value("@parallel_for.address", PTR), 8)
        for k in range(parts):
            failed = b.emit(f"call i32 @{name}.part{k}(ptr %table){' #1' if parts == 1 else ''}", I32)
            return_if(b, failed)
        b.line("ret i32 0")
        return "\n".join(
            [f"define i32 @{name}(ptr %table) nounwind #0 {CALL_ONLY_ATTRIBUTE} {{", "entry:", *b.lines, "}"]
        )

    # Memory

    def _table_loads(self) -> list[str]:
        lines = []
        for position, name in enumerate(TABLE):
            lines.append(f"  %{name}.p = getelementptr ptr, ptr %table, i64 {position}")
            lines.append(f"  %{name} = load ptr, ptr %{name}.p, align 8")
        return lines if self.timer is None else with_timed_fork(lines)


class FunctionEmitter(ProgramEmitter):
    """Emits a program as a single-threaded function `void (ptr parameter0, .., ptr output0, ..)`."""

    def _code(self, step: CodeStep) -> None:
        pointers = [str(self.pointer(buffer)) for buffer in step.buffers]
        scratch = [] if step.code.scratch_bytes else ["ptr null"]
        self.builder.line(f"call void @{step.code.entry}({', '.join([*pointers, *scratch, *ALONE])})")

    def definitions(self, name: str, constants: dict[Buffer, str]) -> list[str]:
        """Returns declarations, nests, kernels and the function, each as a text. Constants are globals."""
        outside = [*self.program.of_kind("parameter"), *self.program.of_kind("output")]
        self.builder.declarations["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        self.pointers = {buffer: f"%{buffer.kind}{buffer.index}" for buffer in outside} | constants
        self.polls = False
        self.write_steps(self.program.steps, depth=1)
        declarations = dict(self.builder.declarations)
        texts = []
        for function in self.functions.written.values():
            texts.append("\n".join(function.lines))
            declarations |= function.declarations
        for code in codes_of(self.program).values():
            texts.append(code.text)
            declarations |= code.declarations
        declarations.pop(_PARALLEL_FOR_DECLARATION, None)
        parameters = ", ".join(f"ptr {self.pointers[buffer]}" for buffer in outside)
        head = [f"define internal void @{name}({parameters}) nounwind #0 {{", "entry:", *self.head]
        return [*declarations, *texts, "\n".join([*head, *self.builder.lines, "  ret void", "}"])]


def _callee_head(words: int) -> list[str]:
    """Returns lines that allocate a table for subroutines and fill the entries common to all calls."""
    lines = [f"  %callee = alloca [{words} x ptr], align 16"]
    for position, name in enumerate(TABLE[1:], 1):
        lines.append(f"  %callee.{name} = getelementptr ptr, ptr %callee, i64 {position}")
        lines.append(f"  store ptr %{name}, ptr %callee.{name}, align 8")
    return lines
