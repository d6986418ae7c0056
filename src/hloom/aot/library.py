"""Builds libraries: modules through the compiler, for a target, to object files with headers and examples."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hloom.aot.entry import LibraryEmitter, extern_target, routines_of, scratch_bytes
from hloom.aot.example import c_example, makefile, python_example
from hloom.aot.interface import RUNTIME_HEADER, CFunction, c_function, header, unique_names
from hloom.aot.link import shared_library, static_library, web_assembly
from hloom.aot.runtime import runtime_module
from hloom.aot.targets import BuildTarget, target_of
from hloom.aot.web import filled, web_files
from hloom.api import prepare
from hloom.backends.cpu.llvm.cross import object_file
from hloom.backends.cpu.llvm.processor import generating_for
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import Program
from hloom.errors import ArgumentError
from hloom.ir import Instruction, Module
from hloom.lir import LirModule
from hloom.passes import clone_module, run_passes
from hloom.system.machine import thread_count
from hloom.system.shield import shielded
from hloom.target import Target
from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from hloom.builder import XlaComputation

RUNTIME = "hloom_runtime.o"


class Emit(enum.StrEnum):
    """Kinds of libraries: object files, a static or a shared library, WebAssembly with an ES module and a page."""

    OBJECTS = "objects"
    STATIC = "static"
    SHARED = "shared"
    WEB = "web"


@dataclass(frozen=True)
class Library:
    """A built library: its functions, and the contents of its files by name."""

    name: str
    target: BuildTarget
    functions: Sequence[CFunction]
    binaries: Mapping[str, bytes]
    """Object files, or the one file of a static or shared library."""

    @property
    def files(self) -> dict[str, bytes]:
        """The content of all files by name: binaries with headers and examples, or with an ES module and a page."""
        if (wasm := self.binaries.get(f"{self.name}.wasm")) is not None:
            return web_files(self.name, self.functions, wasm)
        texts = {
            f"{self.name}.h": header(self.name, self.functions, self.target),
            "hloom.h": RUNTIME_HEADER,
            "example.c": c_example(self.name, self.functions),
            "Makefile": makefile(self.name, [*self.binaries]),
        }
        if f"lib{self.name}.so" in self.binaries:
            texts["example.py"] = python_example(self.name, self.functions)
        return {**self.binaries, **{name: text.encode() for name, text in texts.items()}}

    def write(self, folder: str | PathLike[str]) -> None:
        """Writes all files into a folder, which is made if there is none. Raises ArgumentError if that fails."""
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name, content in self.files.items():
                (Path(folder) / name).write_bytes(content)
        except OSError as error:
            raise ArgumentError(f"cannot write the library: {error}") from None


def single_page(library: Library, page: str) -> str:
    """Returns an HTML page that runs a library for WebAssembly, and needs no other file and no server.

    In `page`, `{{module}}` becomes the text of the ES module, which defines `load`, and `{{wasm}}` the argument of
    `load`. Raises ArgumentError for other libraries.
    """
    wasm = library.binaries.get(f"{library.name}.wasm")
    if wasm is None:
        raise ArgumentError(f"a page runs WebAssembly, but {library.name} is built for {library.target.name}")
    return filled(page, library.name, library.functions, wasm)


def build(
    modules: Mapping[str, Module | XlaComputation | str],
    folder: str | PathLike[str] | None = None,
    *,
    name: str | None = None,
    target: str = "native",
    emit: Emit | None = None,
    threads: int | None = None,
    lapack: bool = False,
) -> Library:
    """Builds modules as a library with a C function for each, and writes it into a folder.

    Arguments:
        modules: modules, as `hloom.compile` takes them, by the names of their functions, which are identifiers of C.
        folder: the folder for the library, headers and an example; by default nothing is written.
        name: the name of the library and its header; by default that of the first function.
        target: the machine, one of `hloom.aot.targets.TARGETS`; "native" is this processor.
        emit: object files, a static or a shared library, or "web": by default "web" for wasm32, else object files.
        threads: the threads for which work is divided; by default those of this machine. Callers choose the pool.
        lapack: whether functions may call LAPACK, which the program that uses the library links.

    Raises ArgumentError for names that are not identifiers, unknown targets, and modules with instructions that need
    Python, such as host callbacks; the message names the instruction.
    """
    machine = target_of(target)
    _check_names(modules, name)
    count = 1 if not machine.has_threads else thread_count() if threads is None else threads
    functions, objects = [], {}
    for function, module in modules.items():
        declared, content = _built(function, prepare(module), machine, count, lapack)
        functions.append(declared)
        objects[f"{function}.o"] = content
    with generating_for(machine.processor):
        objects[RUNTIME] = object_file(runtime_module(machine), machine.triple)
    own = name or functions[0].name
    library = Library(own, machine, functions, _linked(own, objects, machine, emit, [*modules]))
    if folder is not None:
        library.write(folder)
    return library


def _check_names(modules: Mapping[str, object], name: str | None) -> None:
    if not modules:
        raise ArgumentError("build takes at least one module")
    for word in (*modules, *([name] if name is not None else [])):
        (free,) = unique_names([word])
        if word != free:
            raise ArgumentError(f"a function or library cannot be called {word!r} in C, but {free!r}")


def _linked(
    name: str, objects: dict[str, bytes], target: BuildTarget, emit: Emit | None, functions: Sequence[str]
) -> dict[str, bytes]:
    match emit or (Emit.WEB if target.is_wasm else Emit.OBJECTS):
        case Emit.WEB:
            return {f"{name}.wasm": web_assembly(objects, target, functions)}
        case Emit.OBJECTS:
            return objects
        case Emit.STATIC:
            return {f"lib{name}.a": static_library(objects, target)}
        case Emit.SHARED:
            return {f"lib{name}.so": shared_library(objects, target)}


@shielded
def _built(name: str, module: Module, machine: BuildTarget, threads: int, lapack: bool) -> tuple[CFunction, bytes]:
    """Returns a module as a C function, and its object file."""
    if machine.is_wasm and (halves := [i for i in module.instructions() if _has_f16(i)]):
        raise ArgumentError("LLVM does not end on f16 for WebAssembly: use f32 or bf16").at(repr(halves[0]))
    with generating_for(machine.processor):
        optimized = clone_module(module)
        run_passes(optimized, cpu_pipeline(Topology.SINGLE))
        program = build_program(optimized, Target(machine.processor.vector_bytes, threads))
        _refuse_host(program)
        if not lapack and (routines := routines_of(program)):
            raise ArgumentError(f"{name} calls {', '.join(routines)} of LAPACK: allow it, and link LAPACK")
        assignment = assign_buffers(program)
        emitter = LibraryEmitter(program, assignment, machine.processor.vector_bytes)
        emitted, constants = emitter.functions_of(name)
        content = object_file(LirModule(emitted), machine.triple)
    for large in constants:
        content = large.written_into(content)
    return c_function(name, program, scratch_bytes(assignment.arena_bytes)), content


def _has_f16(instruction: Instruction) -> bool:
    return any(leaf.element_type is PrimitiveType.F16 for leaf in instruction.shape.leaves() if leaf.is_array)


def _refuse_host(program: Program) -> None:
    for step in program.host_steps:
        target = extern_target(step.start)
        if target is None:
            message = "a library cannot run Python, which this instruction needs"
            raise ArgumentError(message).at(repr(step.start.instruction))
        if unique_names([target]) != [target]:
            message = f"a custom call becomes a C function, but {target!r} cannot be the name of one"
            raise ArgumentError(message).at(repr(step.start.instruction))
    if program.slot_count:
        raise ArgumentError("a library cannot have arrays of dynamic sizes as results or arguments")
