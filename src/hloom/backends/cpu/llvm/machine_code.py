"""Compiles LLVM IR text to machine code in memory.

All calls of LLVM are shielded from signals: an exception raised in a signal handler would leave llvmlite's lock held.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import llvmlite.binding as llvm

from hloom.backends.cpu.llvm.calls import LlvmCalls, llvm_calls
from hloom.backends.cpu.llvm.disk_cache import cached, code_version, find_object
from hloom.backends.cpu.llvm.processor import processor
from hloom.system.forks import at_fork
from hloom.system.machine import operating_system
from hloom.system.shield import checkpoint, fork_allowed, shielded

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")

_lock = threading.Lock()

_PIPELINE = "5"
"""Version of `make_object`; part of the key of the cache on disk."""
CALL_ONLY = "; call-only\n"
"""Mark of a module of call-only functions, which is compiled without optimisation: its first line, or its second one if
the first is `shared_mark`.
"""
COMBINED = "; combined\n"
"""Mark of a module in which instruction combining finds nothing to do, on the same line."""
_SHARED = "; shared "
"""Beginning of the first line of the module of a shared function, before its name."""
Source = str | bytes
"""The text of a module, or the object file that was made of it before."""
_OPTIONS = (
    "-disable-lsr",
    "-disable-post-ra",
    "-disable-constant-hoisting",
    "-disable-mergeicmps",
    "-disable-partial-libcall-inlining",
    "-disable-replace-with-vec-lib",
    "-disable-select-optimize",
    "-disable-early-taildup",
    "-disable-tail-duplicate",
    "-disable-postra-machine-licm",
    "-disable-cfi-fixup",
)
"""Disables passes of the code generator that do not speed up our loops.

The first two take a sixth of its time: addresses are affine in the emitted code already (loop strength reduction), and
processors reorder instructions themselves (post-register-allocation scheduling). The others find nothing to do in
emitted code, and each costs every function the pass manager's work. Instruction combining and scheduling before
register allocation pay: without them compiling is a tenth faster, but some loops over scalars take 10 to 35 % longer.
"""


class MachineCode:
    """Loaded machine code. It must outlive all uses of addresses taken from it."""

    def __init__(self, engine: Any) -> None:
        # The last reference may be dropped in the main thread, which must not call LLVM.
        self._engine = _engines[weakref.ref(self, _unused.put)] = engine

    @shielded
    def address(self, function: str) -> int:
        """Returns the address of a function."""
        return int(self._engine.get_function_address(function))

    @shielded
    def data_address(self, name: str) -> int:
        """Returns the address of a global variable."""
        return int(self._engine.get_global_value_address(name))


_engines: dict[weakref.ref[MachineCode], Any] = {}
_unused: SimpleQueue[weakref.ref[MachineCode]] = SimpleQueue()
"""References to collected code, whose engines are disposed of when the next code is loaded."""


def _dispose_of_unused() -> None:
    while not _unused.empty():
        del _engines[_unused.get()]


@functools.cache
def set_options() -> None:
    """Sets the options of LLVM's code generator, for all code of this process."""
    for option in _OPTIONS:
        llvm.set_option("", option)


def _triple() -> str:
    """Returns the triple of this machine. On Windows objects are ELF, whose sections LLVM may load anywhere."""
    return llvm.get_default_triple() + ("-elf" if operating_system() == "windows" else "")


@functools.cache
def _native_target() -> Any:
    set_options()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_triple(_triple())


@functools.cache
@shielded
def target() -> str:
    """Returns everything besides the text that machine code depends on."""
    version = ".".join(map(str, llvm.llvm_version_info))
    cpu = processor()
    return f"{_triple()} {cpu.name} {cpu.features} LLVM {version} {_PIPELINE}"


def add_passes(passes: Any, is_call_only: bool = False, is_combined: bool = False) -> None:
    """Adds LLVM's passes for emitted code, which is vectorised already, so that few of them pay."""
    passes.add_always_inliner_pass()
    # Functions that are inlined everywhere need no code of their own.
    passes.add_global_dead_code_eliminate_pass()
    if not is_call_only:
        passes.add_sroa_pass()
        if not is_combined:
            passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()


class _Compiler:
    """LLVM's passes and code generator; used by one thread at a time."""

    def __init__(self, is_call_only: bool) -> None:
        cpu = processor()
        self._machine = _native_target().create_target_machine(
            cpu=cpu.name, features=cpu.features, opt=0 if is_call_only else 2, jit=True, codemodel="jitdefault"
        )
        self._builder = llvm.create_pass_builder(self._machine, llvm.create_pipeline_tuning_options(speed_level=2))
        self._passes, self._passes_if_combined = (llvm.create_new_module_pass_manager() for _ in range(2))
        add_passes(self._passes, is_call_only)
        add_passes(self._passes_if_combined, is_call_only, is_combined=True)

    def _passes_of(self, text: str) -> Any:
        return self._passes_if_combined if _has_mark(text, COMBINED) else self._passes

    def assembly(self, text: str) -> str:
        """Returns the assembly of a module."""
        with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
            self._passes_of(text).run(module, self._builder)
            return str(self._machine.emit_assembly(module))

    def compile(self, text: str) -> bytes:
        """Returns the object file of a module."""
        return _calls().object_file(text, self._passes_of(text), self._builder, self._machine)


_idle_compilers: dict[bool, list[_Compiler]] = {False: [], True: []}
"""Idle compilers, by whether they are for call-only modules."""
_compiler_counts = {False: 0, True: 0}
"""Number of compilers, by whether they are for call-only modules."""
MAX_IDLE = 4
"""The number of idle compilers, of 0.7 MiB each, that are kept beyond those that the threads of one program need."""
_needed = {False: 1, True: 1}
"""The number of compilers that one program uses at a time, by whether they are for call-only modules."""
_WARM_UP = """
declare float @llvm.vector.reduce.fadd.v16f32(float, <16 x float>)
declare <16 x float> @llvm.fmuladd.v16f32(<16 x float>, <16 x float>, <16 x float>)
declare void @llvm.masked.store.v16f32.p0(<16 x float>, ptr, i32, <16 x i1>)

define void @warm_up(ptr %a, ptr %b, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi <16 x float> [ zeroinitializer, %entry ], [ %new, %loop ]
  %from = getelementptr i16, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %half = load <16 x i16>, ptr %from, align 2
  %word = zext <16 x i16> %half to <16 x i32>
  %high = shl <16 x i32> %word, splat (i32 16)
  %x = bitcast <16 x i32> %high to <16 x float>
  %y = call <16 x float> @llvm.fmuladd.v16f32(<16 x float> %x, <16 x float> %x, <16 x float> %sum)
  %less = fcmp olt <16 x float> %x, %y
  %new = select <16 x i1> %less, <16 x float> %x, <16 x float> %y
  call void @llvm.masked.store.v16f32.p0(<16 x float> %new, ptr %to, i32 4, <16 x i1> %less)
  %next = add nuw nsw i64 %i, 16
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %after
after:
  %total = call reassoc float @llvm.vector.reduce.fadd.v16f32(float 0.0, <16 x float> %new)
  store float %total, ptr %b, align 4
  ret void
}
"""
"""A function that uses much of LLVM's code: its first use takes milliseconds."""


@functools.cache
def _calls() -> LlvmCalls:
    return llvm_calls()


class Compilation:
    """Compiles the modules of one program on several threads, from when they are added; a context manager.

    The caller is one of the threads: it writes modules while others compile, and in the end compiles, too. The others
    have nothing to do after the block, and wait for the next program: to start them takes as long as a small pass.
    """

    def __init__(self, threads: int) -> None:
        self._pending: list[tuple[str, Future[bytes] | None]] = []
        """Modules and their futures; without threads the futures are None."""
        self._kept: list[bytes] = []
        self._futures: list[Future[Any]] = []
        threads = threads if _calls().are_parallel else 1
        self._executor = _idle_executor(threads - 1) if threads > 1 else None
        if self._executor is not None:
            with fork_allowed():  # `submit` takes a lock that forks take, too
                _make_compilers(self._executor, threads)

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        with fork_allowed():
            wait([future for future in self._futures if not future.cancel()])
        if self._executor is not None and not _idle_executors:
            _idle_executors.append(self._executor)
        elif self._executor is not None:
            self._executor.shutdown(wait=False)

    def begin(self, sources: Iterable[Source]) -> None:
        """Starts compiling modules in the background, each when it is written; without threads `finish` does."""
        for text in self._texts(sources):
            with fork_allowed():
                self._pending.append((text, self._submitted(compile_text, text)))

    def finish(self, sources: Sequence[Source], meanwhile: Callable[[], object] = lambda: None) -> list[bytes]:
        """Compiles the last modules and those still waiting for a thread. Returns all object files.

        Their order does not depend on which thread was ready first. `meanwhile` is called, too, on another thread:
        this one compiles the longest of the last modules, and starts with it at once.
        """
        own, *others = sorted(self._texts(sources), key=len, reverse=True)
        self.begin(others)
        with fork_allowed():
            called = self._submitted(self._call_after_begun, meanwhile)
        first = compile_text(own)
        pending = list(enumerate(self._pending))
        here = {k: compile_text(text) for k, (text, future) in pending if future is None or future.cancel()}
        if called is None or called.cancel():
            meanwhile()
        with fork_allowed():
            rest = [here[k] if future is None or k in here else future.result() for k, (_, future) in pending]
            if called is not None and not called.cancelled():
                called.result()
        return [first, *rest, *self._kept]

    def _texts(self, sources: Iterable[Source]) -> Iterator[str]:
        """Yields the sources that are texts, and keeps the object files."""
        for source in sources:
            if isinstance(source, str):
                yield source
            else:
                self._kept.append(source)

    def _submitted(self, function: Callable[..., T], *arguments: Any) -> Future[T] | None:
        """Calls a function on another thread; None if there is none."""
        future = _submitted(self._executor, function, *arguments)
        if future is None:
            self._executor = None
        else:
            self._futures.append(future)
        return future

    def _call_after_begun(self, function: Callable[[], object]) -> None:
        """Calls a function of Python once LLVM has compiled the last module: before, it would only take the lock."""
        wait([future for _, future in self._pending[-1:] if future is not None])
        shielded(function)()


_idle_executors: list[ThreadPoolExecutor] = []
"""The executor of the last program that was compiled, if any."""
at_fork(after_in_child=_idle_executors.clear)  # a child lacks their threads


def _idle_executor(threads: int) -> ThreadPoolExecutor | None:
    """Returns an idle executor or a new one; None if the main thread has ended, after which Python imports none."""
    try:
        return _idle_executors.pop()
    except IndexError:  # another thread may have taken the last one
        pass
    try:
        from concurrent.futures import ThreadPoolExecutor
    except RuntimeError:
        return None
    return ThreadPoolExecutor(threads)


def _submitted(executor: ThreadPoolExecutor | None, function: Callable[..., T], *arguments: Any) -> Future[T] | None:
    """Calls a function on a thread of an executor; None if there are no threads.

    Python starts none once the main thread has ended, though others still run, nor while functions of `atexit` run.
    """
    try:
        return executor.submit(function, *arguments) if executor else None
    except RuntimeError:
        assert executor is not None
        executor.shutdown(wait=False, cancel_futures=True)
        return None


def _make_compilers(executor: ThreadPoolExecutor, threads: int) -> None:
    """Makes the compilers that threads will need, in the background."""
    for is_call_only, count in ((False, threads), (True, 1)):
        _needed[is_call_only] = count
        for _ in range(count - _compiler_counts[is_call_only]):
            _submitted(executor, _make_compiler, is_call_only, count)


@shielded
def _make_compiler(is_call_only: bool, count: int) -> None:
    with _lock:
        if _compiler_counts[is_call_only] >= count:
            return
        compiler = _Compiler(is_call_only)
        _compiler_counts[is_call_only] += 1
    compiler.compile(_WARM_UP)
    _idle_compilers[is_call_only].append(compiler)


@shielded
def compile_text(text: str) -> bytes:
    """Returns the object file of a module, from the cache on disk if it was compiled before."""
    checkpoint()
    return cached(_cache_key(text), target(), lambda: make_object(text))


def shared_mark(name: str) -> str:
    """Returns the first line of the module of a shared function; its name says all that the rest depends on."""
    return f"{_SHARED}{name}\n"


def kept_object(name: str) -> bytes | None:
    """Returns the object file of a shared function; None if it is not in the cache on disk."""
    return find_object(_cache_key(shared_mark(name)), target())


def _has_mark(text: str, mark: str) -> bool:
    return mark.strip() in text.split("\n", 2)[:2]


def _cache_key(text: str) -> str:
    """Returns what the machine code of a module depends on: its text, or hloom's code and the name that says all."""
    mark, newline, _ = text.partition("\n")
    version = code_version() if mark.startswith(_SHARED) else ""
    return f"{mark}{newline}{version}" if version else text


@shielded
def assembly(text: str) -> str:
    """Returns the assembly text of a module."""
    with _lock:
        return _Compiler(_has_mark(text, CALL_ONLY)).assembly(text)


@shielded
def make_object(text: str) -> bytes:
    """Compiles a module and returns the object file."""
    is_call_only = _has_mark(text, CALL_ONLY)
    idle = _idle_compilers[is_call_only]
    try:
        compiler = idle.pop()
    except IndexError:
        # Another thread may have taken the last one meanwhile.
        with _lock:
            compiler = _Compiler(is_call_only)
            _compiler_counts[is_call_only] += 1
    try:
        return compiler.compile(text)
    finally:
        if len(idle) < _needed[is_call_only] + MAX_IDLE:
            idle.append(compiler)
        else:  # many programs were compiled at once
            with _lock:
                _compiler_counts[is_call_only] -= 1


@shielded
def load_object(*object_files: bytes) -> MachineCode:
    """Loads the object files of one program."""
    with _lock:
        # The engine compiles nothing, so its target machine needs only the code model.
        machine = _native_target().create_target_machine(jit=True, codemodel="jitdefault")
        empty = llvm.parse_assembly("")
        engine = llvm.create_mcjit_compiler(empty, machine)
        engine.remove_module(empty)  # which the engine would compile: three quarters of the time to load a program
        for file in object_files:
            engine.add_object_file(llvm.ObjectFileRef.from_data(file))
        engine.finalize_object()
        _dispose_of_unused()
        return MachineCode(engine)
