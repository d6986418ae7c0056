"""Builds libraries: modules through the compiler, for a target, to object files with headers and examples."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from hloom.aot.bounded_function import BoundedFunction
from hloom.aot.bounds import padded
from hloom.aot.constants import ConstantBlock
from hloom.aot.entry import Constants, LibraryEmitter, extern_target, refuses_sizes, routines_of, scratch_bytes
from hloom.aot.example import c_example, makefile, python_example
from hloom.aot.header import header, runtime_header
from hloom.aot.interface import CFunction, c_function, unique_names
from hloom.aot.link import shared_library, static_library, web_assembly
from hloom.aot.runtime import runtime_module
from hloom.aot.sizes import SizedFunction, Sizes, names_of_sizes, variants
from hloom.aot.targets import BuildTarget, target_of
from hloom.aot.web import filled, web_files
from hloom.api import prepare
from hloom.backends.cpu.llvm.cross import Form, compiled
from hloom.backends.cpu.llvm.processor import generating_for
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.backends.cpu.program.buffer_assignment import assign_buffers
from hloom.backends.cpu.program.build_program import build_program
from hloom.backends.cpu.program.program import Program
from hloom.errors import ArgumentError, counted
from hloom.ir import Module
from hloom.lir import LirModule
from hloom.passes import clone_module, run_passes
from hloom.system.float_state import ieee_floats
from hloom.system.machine import thread_count
from hloom.system.records import record
from hloom.system.shield import shielded
from hloom.target import Target

if TYPE_CHECKING:
    from hloom.builder import XlaComputation

RUNTIME = "hloom_runtime"


class Emit(enum.StrEnum):
    """Forms of a library: objects, assembly or LLVM IR; a static or a shared library; WebAssembly with a page."""

    OBJECTS = "objects"
    STATIC = "static"
    SHARED = "shared"
    WEB = "web"
    ASSEMBLY = "asm"
    LLVM = "llvm"

    @property
    def form(self) -> Form:
        """The form of code that LLVM makes."""
        return {Emit.ASSEMBLY: Form.ASSEMBLY, Emit.LLVM: Form.LLVM}.get(self, Form.OBJECT)


@record
class Library:
    """A built library: its functions, and the contents of its files by name."""

    name: str
    target: BuildTarget
    functions: Sequence[CFunction]
    sized: Sequence[SizedFunction | BoundedFunction]
    """Functions that take sizes, and call one of `functions`."""
    binaries: Mapping[str, bytes]
    """Object files, assembly or LLVM IR, or the one file of a static or shared library."""
    constants: ConstantBlock | None
    """Constants in a file of their own."""
    threads: int = 1
    """Threads for which work is divided."""

    def __repr__(self) -> str:
        return f"Library({self.name} for {self.target.name}: {counted(len(self.functions), 'function')})"

    @property
    def files(self) -> dict[str, bytes]:
        """The content of all files by name: binaries with headers and examples, or with an ES module and a page."""
        if (wasm := self.binaries.get(f"{self.name}.wasm")) is not None:
            return web_files(self.name, self.functions, wasm, self.threads)
        declarations = [*(each.declaration() for each in self.functions), *(each.declaration() for each in self.sized)]
        texts = {
            f"{self.name}.h": header(self.name, declarations, self.target, self.constants),
            "hloom.h": runtime_header(self.target),
            "example.c": c_example(self.name, self.functions, self.target),
            "Makefile": makefile(self.name, [*self.binaries], self.target),
        }
        if f"lib{self.name}.so" in self.binaries:
            texts["example.py"] = python_example(self.name, self.functions)
        constants = {f"{self.name}.constants": self.constants.content} if self.constants is not None else {}
        return {**self.binaries, **constants, **{name: text.encode() for name, text in texts.items()}}

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
    return filled(page, library.name, library.functions, wasm, library.threads)


@ieee_floats()
def build(
    modules: Mapping[str, Module | XlaComputation | str],
    folder: str | PathLike[str] | None = None,
    *,
    name: str | None = None,
    target: str = "native",
    emit: str | None = None,
    threads: int | None = None,
    lapack: bool = False,
    sizes: Sequence[Sizes] = (),
    bounds: Sizes | None = None,
    constants_file: bool = False,
    static_memory: bool = False,
) -> Library:
    """Builds modules as a library with a C function for each, and writes it into a folder.

    Arguments:
        modules: modules, as `hloom.compile` takes them, by the names of their functions, which are identifiers of C.
        folder: the folder for the library, headers and an example; by default nothing is written.
        name: the name of the library and its header; by default that of the first module.
        target: the machine, one of `hloom.aot.targets.TARGETS`; "native" is this processor.
        emit: what is built, one of `Emit`: by default "web" for wasm32, else "objects".
        threads: the threads for which work is divided; by default those of this machine, and one for wasm32, where
            several are workers of a page. Callers choose the pool.
        lapack: whether functions may call LAPACK, which the program that uses the library links.
        sizes: the sizes that modules with unbounded ones, `f32[?,3]`, are built for: numbers, or tuples with a size for
            each `?` of the parameters. `f` with `sizes=[1, 8]` becomes `f_1`, `f_8`, and `f`, which takes the size.
        bounds: the greatest size instead: `f` with `bounds=128` becomes `f_128`, on arrays padded to 128, and `f`,
            which takes any size up to it. Arrays `f32[<=128,3]` have a bound.
        constants_file: whether constants above 4 KB are in a file that the program maps or reads, and passes.
        static_memory: whether the library is without threads and heap, and all memory is the caller's.

    Raises ArgumentError for names that are not identifiers, unknown targets, and modules with instructions that need
    Python, such as host callbacks; the message names the instruction.

    >>> square = "HloModule m  ENTRY e { x = f32[4] parameter(0)  ROOT y = f32[4] multiply(x, x) }"
    >>> sorted(hl.build({"square": square}).files)
    ['Makefile', 'example.c', 'hloom.h', 'hloom_runtime.o', 'square.h', 'square.o']
    """
    machine = target_of(target)
    machine = replace(machine, has_threads=False) if static_memory else machine
    _check_names(modules, name)
    own = name or next(iter(modules))
    chosen = _emit(emit, machine)
    if chosen is Emit.WEB and (threads or 1) > 1 and not static_memory:
        machine = machine.with_workers()
    if constants_file and chosen is Emit.WEB:
        raise ArgumentError("a page has all constants in its WebAssembly file: leave out constants_file")
    constants = Constants(ConstantBlock(), f"{own}_constants", constants_file)
    count = 1 if not machine.has_threads else thread_count() if threads is None else threads
    made = _LibraryFiles(machine, count, lapack, constants, chosen.form)
    for function, module in modules.items():
        made.add(function, prepare(module), sizes, bounds)
    contents = made.finished()
    functions = [each for each in made.functions if isinstance(each, CFunction)]
    sized = [each for each in made.functions if not isinstance(each, CFunction)]
    binaries = _linked(own, contents, machine, chosen, [each.name for each in functions])
    library = Library(own, machine, functions, sized, binaries, constants.block if constants_file else None, count)
    if folder is not None:
        library.write(folder)
    return library


def _emit(emit: str | None, target: BuildTarget) -> Emit:
    if emit is None:
        return Emit.WEB if target.is_wasm else Emit.OBJECTS
    if emit not in [*Emit]:
        raise ArgumentError(f"emit is one of {', '.join(Emit)}, got {emit!r}")
    return Emit(emit)


def _check_names(modules: Mapping[str, object], name: str | None) -> None:
    if not isinstance(modules, Mapping):
        raise ArgumentError(f"build takes a dictionary of names and modules, got {type(modules).__name__}")
    if not modules:
        raise ArgumentError("build takes at least one module")
    for word in (*modules, *([name] if name is not None else [])):
        (free,) = unique_names([word])
        if word != free:
            raise ArgumentError(f"a function or library cannot be called {word!r} in C, but {free!r}")


def _linked(
    name: str, files: dict[str, bytes], target: BuildTarget, emit: Emit, functions: Sequence[str]
) -> dict[str, bytes]:
    match emit:
        case Emit.WEB:
            return {f"{name}.wasm": web_assembly(files, target, functions)}
        case Emit.STATIC:
            return {f"lib{name}.a": static_library(files, target)}
        case Emit.SHARED:
            return {target.shared_name(name): shared_library(files, target, name)}
        case _:
            return files


class _LibraryFiles:
    """Makes the functions of a library and the files of their code; all functions share constants."""

    def __init__(self, machine: BuildTarget, threads: int, lapack: bool, constants: Constants, form: Form) -> None:
        self.machine, self.threads, self.lapack, self.constants, self.form = machine, threads, lapack, constants, form
        self.functions: list[CFunction | SizedFunction | BoundedFunction] = []
        self.files: dict[str, bytes] = {}

    def add(self, name: str, module: Module, sizes: Sequence[Sizes], bounds: Sizes | None) -> None:
        """Adds a module: a function; for dynamic sizes one for each, or for the bounds, and one that takes sizes."""
        parameters = [parameter.name for parameter in module.entry.parameters]
        shapes = module.entry.parameter_shapes
        if not any(shape.is_dynamic for shape in shapes):
            self.functions.append(self._function(name, parameters, module))
        elif sizes and any(shape.is_unbounded for shape in shapes):
            modules = variants(name, module, sizes).items()
            built = [self._function(word, parameters, prepare(each)) for word, each in modules]
            self._add_sized(built, SizedFunction(name, sizes, built))
        else:
            self._add_bounded(name, parameters, module, bounds)

    def _add_bounded(self, name: str, parameters: Sequence[str], module: Module, bounds: Sizes | None) -> None:
        with generating_for(self.machine.processor):
            made = padded(name, module, bounds)
        names = [*parameters, *names_of_sizes(len(made.bounds), parameters)]
        function = self._function(f"{name}_{'x'.join(map(str, made.bounds))}", names, made.module)
        self._add_sized([function], BoundedFunction.around(name, made, function))

    def _add_sized(self, built: Sequence[CFunction], sized: SizedFunction | BoundedFunction) -> None:
        self._write(sized.name, sized.emitted().text(self.machine.processor.pointer_bytes))
        self.functions += [*built, sized]

    def finished(self) -> dict[str, bytes]:
        """Returns all files, with the constants and the runtime."""
        block = self.constants.block
        if block and not self.constants.is_argument:
            file = self._compiled(block.definition(self.constants.symbol), Form.OBJECT)
            self.files[f"{self.constants.symbol}.o"] = block.written_into(file)
        self._write(RUNTIME, runtime_module(self.machine).text(self.machine.processor.pointer_bytes))
        return self.files

    @shielded
    def _function(self, name: str, parameters: Sequence[str], module: Module) -> CFunction:
        processor = self.machine.processor
        with generating_for(processor):
            optimized = clone_module(module)
            run_passes(optimized, cpu_pipeline(Topology.SINGLE))
            program = build_program(
                optimized, Target(processor.vector_bytes, self.threads, has_lapack=self.lapack, has_heap=False)
            )
            _refuse_host(program)
            if not self.lapack and (routines := routines_of(program)):
                raise ArgumentError(f"{name} calls {', '.join(routines)} of LAPACK: allow it, and link LAPACK")
            assignment = assign_buffers(program)
            emitter = LibraryEmitter(program, assignment, processor.vector_bytes)
            emitted = emitter.functions_of(name, self.constants)
            self._write(name, LirModule(emitted).text(processor.pointer_bytes))
        scratch = scratch_bytes(assignment.arena_bytes)
        return c_function(name, parameters, program, scratch, self.constants.is_argument)

    def _write(self, name: str, text: str) -> None:
        self.files[f"{name}.{self.form}"] = self._compiled(text, self.form)

    def _compiled(self, text: str, form: Form) -> bytes:
        with generating_for(self.machine.processor):
            return compiled(text, self.machine.triple, form)


def _refuse_host(program: Program) -> None:
    for step in program.host_steps:
        if refuses_sizes(step.start):
            continue
        target = extern_target(step.start)
        if target is None:
            message = "a library cannot run Python, which this instruction needs"
            raise ArgumentError(message).at(repr(step.start.instruction))
        if unique_names([target]) != [target]:
            message = f"a custom call becomes a C function, but {target!r} cannot be the name of one"
            raise ArgumentError(message).at(repr(step.start.instruction))
    if program.slot_count:
        raise ArgumentError("a library cannot have arrays of dynamic sizes as results or arguments")
