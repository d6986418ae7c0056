"""The pipeline of the compiled backend: passes, program, buffer assignment, LLVM IR, machine code."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hloom.backends.cpu.codegen.emitter import Kernels, ProgramEmitter, with_kernels
from hloom.backends.cpu.codegen.modules import module_of_units, module_source, module_text, shared_name
from hloom.backends.cpu.codegen.step_timer import StepTimer, TimedStep
from hloom.backends.cpu.host_part import HostPart, StoredInstructions, names_of
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.llvm.disk_cache import cache_folder, find_program, has_kind, keep_kind, keep_program
from hloom.backends.cpu.llvm.machine_code import Compilation, compile_text, target
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.kernel_codes import KernelCodes, codes_before_fusion
from hloom.backends.cpu.program.overlap import overlap_collectives
from hloom.backends.cpu.program.program import (
    Buffer,
    CopyStep,
    HostStep,
    KernelStep,
    LoopInfo,
    Program,
    Routine,
    Signature,
    Slot,
    WaitStep,
    are_met,
    codes_of,
)
from hloom.backends.cpu.program.program_text import program_text
from hloom.backends.cpu.runtime.thread_pool import shared_pool
from hloom.ir import Module
from hloom.passes import (
    Pass,
    PassStatistics,
    clone_module,
    dump,
    is_watched,
    run_passes,
    statistics_text,
)
from hloom.passes.fusion.fusion import FusionPass
from hloom.passes.optional import without_defects
from hloom.runtime.custom_calls.targets import replaces_targets
from hloom.runtime.serialization import DataFormat
from hloom.system.garbage import older_objects_frozen
from hloom.system.machine import wants_batch_invariance
from hloom.system.shield import checkpoint, shielded
from hloom.system.switching import prompt_switching
from hloom.target import Target
from hloom.text import fingerprint
from hloom.types import PrimitiveType

BRIEF_COST = 20_000
"""Maximum work of a brief program in element additions."""
MAX_SHOWN = 4
"""Number of buffers listed in messages about memory."""


@dataclass(slots=True)
class CompiledModule:
    """Machine code of a module, with everything needed to call it."""

    signature: Signature
    arena_bytes: int
    donated: dict[int, int]
    """Parameter whose memory each output takes, by index."""
    is_brief: bool
    """Whether every run takes a few microseconds at most."""
    object_files: list[bytes]
    host: HostPart
    loops: list[LoopInfo]
    largest_buffers: list[str]
    """Largest buffers with the instructions that write them, for error messages."""
    optimized: Module | None
    """Module after the passes; None if the program was found on disk."""
    key: str = ""
    """Key of the program on disk; empty if it is not kept."""
    timed: list[TimedStep] = field(default_factory=list)
    """Timed steps, in the order of their counters."""


PROGRAM = DataFormat(
    CompiledModule,
    HostPart,
    StoredInstructions,
    HostStep,
    WaitStep,
    Signature,
    Buffer,
    Routine,
    Slot,
    LoopInfo,
    PrimitiveType,
)
"""Format of programs on disk."""


@shielded
def compile_module(
    module: Module, donate: bool = False, topology: Topology = Topology.THREADS, batch_invariant: bool = False
) -> CompiledModule:
    """Compiles a module for this processor; with `donate` its results may take the memory of arguments.

    A program that was compiled before is taken from the cache on disk.
    """
    machine = host_target(batch_invariant)
    if not may_keep_programs() or any(i.op.expand is not None for i in module.instructions()):
        return _compile(module, machine, donate, topology)
    options = f"{donate} {topology} {machine} {target()}"
    key = functools.cache(lambda: f"{fingerprint(module)} {options}")
    kind = f"{_outline(module)} {options}"
    cached = find_compiled(key(), module) if has_kind(kind) else None
    if cached is not None:
        return cached
    compiled = _compile(module, machine, donate, topology, meanwhile=key)
    # An abandoned compilation may have cloned a module that its caller was modifying: stop before it is kept.
    checkpoint()
    compiled.key = key()
    keep_program(key(), replace(compiled, optimized=None, host=compiled.host.on_disk(module)), PROGRAM)
    keep_kind(kind)
    return compiled


def find_compiled(key: str, module: Module | None = None) -> CompiledModule | None:
    """Returns the program kept under a key; None if there is none, or if its errors would show other names than those
    of a module.
    """
    found: CompiledModule | None = find_program(key, PROGRAM)
    if found is None:
        return None
    stored = found.host.stored
    if stored is not None and module is not None and stored.names != names_of(module):
        return None
    return replace(found, host=found.host.from_disk())


def _outline(module: Module) -> str:
    """Returns text that is equal for equal modules, and is made in less time than their fingerprint."""
    return " ".join([instruction.op.opcode for instruction in module.instructions()])


def may_keep_programs() -> bool:
    """Whether programs are kept on disk: not if passes are observed or custom-call targets are replaced."""
    return not (cache_folder() is None or is_watched() or replaces_targets())


@shielded
def compile_shared(module: Module) -> None:
    """Compiles the functions that kernels of a module share with those of other programs, which then have them."""
    module, machine = clone_module(module), host_target()
    run_passes(module, cpu_pipeline(Topology.THREADS, machine.batch_invariant))
    program = build_program(module, machine, codes=KernelCodes(machine))
    emitter = ProgramEmitter(program, assign_buffers(program, donate=False), machine.vector_bytes)
    for part in emitter.all_modules():
        if shared_name(part) is not None and isinstance(source := module_source(part), str):
            compile_text(source)


@shielded
def compile_timed(module: Module) -> CompiledModule:
    """Compiles a module for a single device, with a clock around each step."""
    return _compile(module, host_target(), donate=False, topology=Topology.SINGLE, timer=StepTimer())


@older_objects_frozen()
def _compile(
    module: Module,
    machine: Target,
    donate: bool,
    topology: Topology,
    timer: StepTimer | None = None,
    meanwhile: Callable[[], object] = lambda: None,
) -> CompiledModule:
    """Compiles a module; this thread calls `meanwhile` while others run LLVM."""
    options = machine, donate, topology, timer, meanwhile
    return without_defects(module, lambda: _compile_once(clone_module(module), *options))


def _compile_once(
    module: Module,
    machine: Target,
    donate: bool,
    topology: Topology,
    timer: StepTimer | None,
    meanwhile: Callable[[], object],
) -> CompiledModule:
    with prompt_switching(), Compilation(machine.threads) as compilation:
        early = _EarlyKernels(module, compilation, machine)
        passes = run_passes(module, cpu_pipeline(topology, machine.batch_invariant), before=early.begin)
        stages = _Stages(passes, sum(1 for _ in module.instructions()))
        stages.add("write kernels", early.seconds)
        with stages.timed("build program"):
            program = build_program(module, machine, codes=early.codes)
            if topology is Topology.RANKS:
                overlap_collectives(program)
            early.begin_rest(program)
        with stages.timed("assign buffers"):
            assignment = assign_buffers(program, donate)
        with stages.timed("write LLVM IR"):
            emitter = ProgramEmitter(program, assignment, machine.vector_bytes, timer)
            modules = emitter.modules(early.kernels)
            sources = [*map(module_source, modules)]
        with stages.timed("make machine code"):
            object_files = compilation.finish(sources, meanwhile)
    dump(module, "program.txt", lambda: program_text(program, assignment))
    dump(module, "program.ll", lambda: "\n".join(map(module_text, [*modules, *early.kernels.modules()])))
    dump(module, "statistics.txt", lambda: statistics_text(stages.statistics))
    host = HostPart(program.host_steps, program.slot_count, are_met(program))
    if host.is_needed:
        host.plans = program.plans.complete()
    return CompiledModule(
        program.signature(),
        assignment.arena_bytes,
        assignment.donated,
        _is_brief(program),
        object_files,
        host,
        program.loops,
        _largest_buffers(program),
        module,
        timed=timer.steps if timer is not None else [],
    )


def host_target(batch_invariant: bool = False) -> Target:
    """Returns the target of programs that run in this process."""
    return Target(processor().vector_bytes, shared_pool().threads, batch_invariant or wants_batch_invariance())


class _EarlyKernels:
    """Compiles kernels that fusion leaves alone in the background while the rest of the program is built."""

    def __init__(self, module: Module, compilation: Compilation, machine: Target) -> None:
        self.module, self.compilation = module, compilation
        self.codes = KernelCodes(machine)
        self.kernels = Kernels()
        self.seconds = 0.0

    def begin(self, step: Pass) -> None:
        """Starts compiling kernels before the fusion pass; called before each pass."""
        if isinstance(step, FusionPass):
            started = time.perf_counter()
            self._begin(codes_before_fusion(self.module, self.codes))
            self.seconds = time.perf_counter() - started

    def begin_rest(self, program: Program) -> None:
        """Starts compiling the remaining kernels of the complete program."""
        self._begin(codes_of(program))

    def _begin(self, codes: Mapping[str, KernelCode]) -> None:
        begun = len(self.kernels.groups)
        self.kernels = with_kernels(self.kernels, codes)
        groups = self.kernels.groups[begun:]
        self.compilation.begin(module_source(module_of_units(group)) for group in groups)


@dataclass
class _Stages:
    """Durations of the passes and of the later stages of the compiler."""

    statistics: list[PassStatistics]
    instructions: int

    def add(self, name: str, seconds: float) -> None:
        self.statistics.append(PassStatistics(name, 0, seconds, self.instructions))

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        checkpoint()
        started = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - started)


def _largest_buffers(program: Program) -> list[str]:
    known = (buffer for buffer in program.origins if isinstance(buffer, Buffer))
    largest = sorted(known, key=lambda buffer: -buffer.byte_size)[:MAX_SHOWN]
    return [f"{buffer.byte_size:,} bytes: {program.origins[buffer]!r}" for buffer in largest]


def _is_brief(program: Program) -> bool:
    if not all(isinstance(step, (KernelStep, CopyStep)) for step in program.steps):
        return False
    return sum(step.nest_work for step in program.steps) <= BRIEF_COST
