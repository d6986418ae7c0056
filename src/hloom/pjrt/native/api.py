"""Builds the PJRT_Api structure and compiles its native functions: getters, destructors and calls into Python.

A handle that the framework holds is the address of a *record*. Functions marked `get` in `pjrt/c_api.py` copy words of
the record to their caller, so most calls never enter Python. Functions marked `destroy` push the record on the
retire list, which the next call that enters Python empties (`free_retired`), releasing the objects behind the records.
So the framework may destroy handles at any time, from any thread, and even after Python has been finalised.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import sys
import threading
import time
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, i8, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import MONOTONIC, Native, load, native, null, store
from hloom.backends.cpu.runtime.memory_pool import memory_pool
from hloom.errors import ArgumentError
from hloom.pjrt.c_api import VERSION, Function, arguments_structure, functions, structures
from hloom.pjrt.handlers import FAILED_PRECONDITION, StatusError
from hloom.pjrt.native.async_dispatch import (
    EVENT_COUNT,
    QUEUE,
    Queue,
    completed_tasks,
    last_task,
    reset_queue,
    retire_buffer,
    wait_for,
)
from hloom.pjrt.native.events import await_event, event_error, event_is_ready, event_on_ready, ready_event_of
from hloom.pjrt.native.execute import execute
from hloom.pjrt.native.memory import (
    PYTHON_FUNCTIONS,
    STATE,
    State,
    allocate,
    call_python,
    count_bytes,
    release,
    retire,
    return_record,
    take_retired,
)
from hloom.pjrt.native.transfers import decrease_references, from_host, increase_references
from hloom.pjrt.records import IMMORTAL, new_record, objects, offsets_of_record, recycle_record, reserve_records
from hloom.system.float_state import ieee_floats
from hloom.system.forks import at_fork, new_lock
from hloom.system.python_api import c_address, immortal, python_function


def refill_records(results: int = 0) -> None:
    """Refills the free list of records of native code if a call with `results` results could exhaust it."""
    if code().state.free_count <= results:
        for record in reserve_records(max(_MIN_FREE_RECORDS, 4 * results)):
            code().return_record(record)


_MIN_FREE_RECORDS = 256
"""Records that a refill adds at least."""


def free_retired() -> None:
    """Releases the objects whose handles the framework has destroyed, once no queued task can use them any more."""
    with _retired_lock:
        handle = code().take_retired()
        if not handle and not _retired:
            return
        task, done = code().last_task(), code().completed_tasks()
        while handle:
            _retired.append((task, handle))
            handle = ctypes.c_uint64.from_address(handle).value
        unused = [_retired.popleft()[1] for _ in range(len(_retired)) if _retired[0][0] <= done]
    for handle in unused:
        objects.pop(handle, None)
        recycle_record(handle)


_retired: collections.deque[tuple[int, int]] = collections.deque()
"""Retired handles, each with the id of the last task that was submitted before it was retired."""
_retired_lock = new_lock()


def wait_for_tasks() -> None:
    """Blocks until all queued programs have completed."""
    code().wait_for(code().last_task())


class Code:
    """The compiled native functions of the plugin, and their state."""

    def __init__(self) -> None:
        self._code: MachineCode = native_code(*_functions())
        self.state = State(self._code.address(STATE.symbol))
        self.noop = self._code.address("hloom_pjrt_noop")
        self.noop_handler = self._code.address("hloom_pjrt_noop_handler")
        self.failing_handler = self._code.address("hloom_pjrt_failing_handler")
        self.take_retired = ctypes.PYFUNCTYPE(ctypes.c_uint64)(self._code.address("hloom_pjrt_take_retired"))

        word, void = ctypes.c_uint64, None
        self.allocate = self._function("allocate", word, word)
        self.release = self._function("release", void, word, word)
        self.return_record = self._function("return_record", void, word)
        self.count_bytes = self._function("count_bytes", void, word, ctypes.c_bool)
        # CFUNCTYPE releases the GIL: a call may run for long.
        self.execute = ctypes.CFUNCTYPE(word, word)(self.address("LoadedExecutable_Execute"))
        pool = memory_pool()
        self.state.take = pool.take_address
        self.state.give = pool.give_address
        self.state.thread_state = c_address(_thread_state)
        self.state.is_finalizing = c_address(_is_finalizing)
        self.last_task = self._function("last_task", word)
        self.completed_tasks = self._function("completed_tasks", word)
        self.wait_for = ctypes.CFUNCTYPE(void, word)(self._code.address("hloom_pjrt_wait_for"))
        reset = self._function("reset_queue", void)
        reset()
        at_fork(after_in_child=reset)
        queue = Queue(self._code.address(QUEUE.symbol))
        for index in range(EVENT_COUNT):
            queue.events[index] = new_record("Event", None, is_immortal=True)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.PYFUNCTYPE(result, *arguments)(self._code.address(f"hloom_pjrt_{name}"))

    def address(self, name: str) -> int:
        """Address of the native function `PJRT_<name>`."""
        return self._code.address(f"PJRT_{name}")


@functools.cache
def code() -> Code:
    """The native code of the plugin, compiled at the first call."""
    return Code()


def make_api(handlers: dict[str, Callable[[Any], None]], make_error: Callable[[BaseException], int]) -> int:
    """Builds a PJRT_Api structure and returns its address.

    Arguments:
        handlers: the Python functions by name; each takes its argument structure.
        make_error: converts an exception that a handler raised to the handle of a PJRT_Error.
    """
    missing = {f.name for f in functions().values() if f.implementation == "python"} ^ handlers.keys()
    if missing:
        raise ArgumentError(
            f"functions of the interface without a handler, or handlers without a function: {sorted(missing)}"
        )
    native = code()

    def immortal_error(error: BaseException) -> int:
        handle = make_error(error)
        ctypes.c_uint64.from_address(handle + 8).value = IMMORTAL
        return handle

    native.state.no_handler = immortal_error(KeyboardInterrupt())
    for index, name in enumerate(PYTHON_FUNCTIONS):
        native.state.python[index] = _callback(name, handlers[name], make_error)
    for index, function in enumerate(functions().values()):
        if not function.implementation:
            error = NotImplementedError(f"PJRT_{function.name} is not implemented by hloom")
            native.state.unimplemented[index] = immortal_error(error)
    slots = [native.address(function.name) for function in functions().values()]
    built: list[Any] = []
    next_extension, end = 0, len(slots)
    for position, (kind, count) in reversed([*enumerate(structures())]):
        head = [kind, next_extension] if position else [next_extension, 24, 0, VERSION[0] | VERSION[1] << 32]
        built.append(_structure(8 * (1 + len(head) + count), *head, *slots[end - count : end]))
        next_extension, end = ctypes.addressof(built[-1]), end - count
    atexit.register(
        _close, native, immortal_error(StatusError("Python has ended in this process", FAILED_PRECONDITION))
    )
    return next_extension


def _structure(*words: int) -> Any:
    """A structure of 64-bit words that is never freed.

    Null pointers follow it, because frameworks test functions of newer versions before they check the size.
    """
    return immortal((ctypes.c_uint64 * (len(words) + 64))(*words))


def _close(native: Code, ended: int) -> None:
    """Runs before Python is finalised: waits for queued programs, and replaces all Python handlers.

    Calls without results then do nothing, so that a framework can destroy what it has; others return the error `ended`.
    """
    _pause_daemons(native.state)
    native.wait_for(native.last_task())
    native.state.no_handler = ended
    for index, name in enumerate(PYTHON_FUNCTIONS):
        native.state.python[index] = native.failing_handler if functions()[name].outputs else native.noop_handler


def _pause_daemons(state: State) -> None:
    """Makes other threads of Python wait at the end of calls; those that wait for the GIL now can begin another one."""
    state.ending = _thread_state()
    daemons = [thread for thread in threading.enumerate() if thread is not threading.current_thread()]
    before = paused = unchanged = 0
    deadline = time.monotonic() + MAX_SETTLING_SECONDS
    while paused < len(daemons) and unchanged < MAX_UNCHANGED and time.monotonic() < deadline:
        time.sleep(SETTLING_SECONDS)
        before, paused = paused, state.paused.load(MONOTONIC)
        is_calling = state.returned_upcalls.load(MONOTONIC) != state.upcalls.load(MONOTONIC)
        unchanged = unchanged + 1 if paused == before and not is_calling else 0


def _callback(name: str, handler: Callable[[Any], None], make_error: Callable[[BaseException], int]) -> int:
    structure = arguments_structure(name)
    from_address = structure.from_address

    def call(address: int, error_address: int, sequence: int) -> int:
        try:
            free_retired()
            with ieee_floats():
                handler(from_address(address))
        except BaseException as error:
            ctypes.c_uint64.from_address(error_address).value = make_error(error)
        return sequence

    return c_address(immortal(_HANDLER(call)))


_HANDLER = ctypes.CFUNCTYPE(*[ctypes.c_uint64] * 4)
_thread_state = python_function("PyGILState_GetThisThreadState", ctypes.c_uint64)
_is_finalizing = python_function("Py_IsFinalizing" if sys.version_info >= (3, 13) else "_Py_IsFinalizing", ctypes.c_int)
SETTLING_SECONDS, MAX_UNCHANGED, MAX_SETTLING_SECONDS = 0.005, 6, 2.0
"""Limits at the end of Python: the time between two counts of the threads that wait for it, the number of equal counts
after which no further thread is expected, and the time after which threads in calls of Python are left alone.
"""


def _functions() -> list[Native]:
    """The native functions of the interface, and the internal ones that Python calls."""
    interface: list[Any] = [execute, from_host, increase_references, decrease_references]
    interface += [ready_event_of, event_is_ready, event_error, await_event, event_on_ready]
    own = {function.name: function for function in interface}
    natives: list[Any] = [take_retired, allocate, release, return_record, count_bytes, noop]
    natives += [noop_handler, failing_handler, *own.values(), reset_queue, last_task, completed_tasks, wait_for]
    for index, function in enumerate(functions().values()):
        if f"PJRT_{function.name}" not in own:
            natives.append(_function(function, index))
    return natives


def _function(function: Function, index: int) -> Native:
    name = f"PJRT_{function.name}"
    if function.implementation == "get":
        native_function = _getter(name, function)
    elif function.implementation == "destroy":
        native_function = _destroyer(name, retire_buffer if function.kind == "Buffer" else retire)
    elif not function.implementation:
        native_function = _unimplemented(name, index)
    elif function.implementation == "python":
        native_function = _upcall(name, PYTHON_FUNCTIONS.index(function.name))
    else:
        native_function = _noop(name)
    return typing.cast(Native, native_function)


@native(name="hloom_pjrt_noop")
def noop(arguments: Address) -> Address:
    """Deleter of objects that need no deletion."""
    return null


@native(name="hloom_pjrt_noop_handler")
def noop_handler(arguments: Address, error: Address, sequence: u64) -> u64:
    """Replaces the Python handlers once Python is finalised: succeeds without any effect."""
    return sequence


@native(name="hloom_pjrt_failing_handler")
def failing_handler(arguments: Address, error: Address, sequence: u64) -> u64:
    """Replaces those that have results: the call fails with `State.no_handler`."""
    return sequence + 1


HANDLE = 16
"""Byte offset of the handle in an argument structure: the first field after size and extensions."""
_MEMORY = {"word": u64, "i32": i32, "bool": i8}


def _getter(name: str, function: Function) -> Any:
    """A native function that copies words of the record to the outputs; the loop over them is unrolled."""
    words = offsets_of_record(function.kind)
    copies = [(_MEMORY[field.type], getattr(words, field.word), field.offset) for field in function.outputs]

    @native(name=name)
    def get(arguments: Address) -> Address:
        record = load(u64, arguments + HANDLE)
        for type, source, target in copies:
            store(type, arguments + target, load(type, record + source))
        return null

    return get


def _destroyer(name: str, retire: Any) -> Any:
    @native(name=name)
    def destroy(arguments: Address) -> Address:
        retire(load(u64, arguments + HANDLE))
        return null

    return destroy


def _unimplemented(name: str, index: int) -> Any:
    @native(name=name)
    def fail(arguments: Address) -> Address:
        return STATE.unimplemented[index]

    return fail


def _upcall(name: str, index: int) -> Any:
    @native(name=name)
    def upcall(arguments: Address) -> Address:
        return call_python(index, arguments)

    return upcall


def _noop(name: str) -> Any:
    @native(name=name)
    def handler(arguments: Address) -> Address:
        return null

    return handler
