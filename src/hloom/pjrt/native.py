"""The part of the plugin that is machine code: answers that are only copied, the list of the dead, the structure.

A handle that the framework holds is the address of a *record*: words that the functions marked `get` in the table
copy to their caller, so that most calls never enter Python. A function marked `destroy` pushes its record on a list;
Python takes the whole list at its next turn (`free_retired`) and lets go of the objects behind it. So the framework
may destroy handles at any time, from any thread, and when Python has ended.
"""

from __future__ import annotations

import atexit
import collections
import ctypes
import functools
import os
import threading
import typing
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.machine_code import MachineCode
from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, i8, i32, u64
from hloom.backends.cpu.llvm.native.vocabulary import Native, load, native, null, store
from hloom.backends.cpu.runtime.memory_pool import memory_pool
from hloom.errors import ArgumentError
from hloom.pjrt.async_dispatch import (
    EVENT_COUNT,
    QUEUE,
    Queue,
    await_event,
    completed_tasks,
    event_is_ready,
    event_on_ready,
    last_task,
    ready_event_of,
    reset_queue,
    retire_buffer,
    wait_for,
)
from hloom.pjrt.c_api import VERSION, Function, arguments_structure, functions, structures
from hloom.pjrt.execute_code import execute
from hloom.pjrt.host_code import decrease_references, from_host, increase_references
from hloom.pjrt.native_memory import (
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
    word,
)
from hloom.pjrt.records import IMMORTAL, new_record, objects, offsets_of_record, recycle_record, reserve_records
from hloom.runtime.float_state import ieee_floats
from hloom.runtime.python_api import c_address, immortal


def refill_records(results: int = 0) -> None:
    """Fills native code's list of free records, if it is short for a call with so many results."""
    if code().state.free_count <= results:
        for record in reserve_records(max(_MIN_FREE_RECORDS, 4 * results)):
            code().return_record(record)


_MIN_FREE_RECORDS = 256


def free_retired() -> None:
    """Lets go of the objects whose handles the framework has destroyed, when no task may use them any more."""
    with _retired_lock:
        handle = code().take_retired()
        task, done = code().last_task(), code().completed_tasks()
        while handle:
            _retired.append((task, handle))
            handle = ctypes.c_uint64.from_address(handle).value
        unused = [_retired.popleft()[1] for _ in range(len(_retired)) if _retired[0][0] <= done]
    for handle in unused:
        objects.pop(handle, None)
        recycle_record(handle)


_retired: collections.deque[tuple[int, int]] = collections.deque()
"""The number of the last task when a handle died, and the handle."""
_retired_lock = threading.Lock()


def wait_for_tasks() -> None:
    """Returns when no program is under way."""
    code().wait_for(code().last_task())


class Code:
    """The compiled functions."""

    def __init__(self) -> None:
        self._code: MachineCode = native_code(*_functions())
        self.state = State(self._code.address(STATE.symbol))
        self.noop = self._code.address("hloom_pjrt_noop")
        self.noop_handler = self._code.address("hloom_pjrt_noop_handler")
        self.take_retired = ctypes.PYFUNCTYPE(ctypes.c_uint64)(self._code.address("hloom_pjrt_take_retired"))

        word, void = ctypes.c_uint64, None
        self.allocate = self._function("allocate", word, word)
        self.release = self._function("release", void, word, word)
        self.return_record = self._function("return_record", void, word)
        self.count_bytes = self._function("count_bytes", void, word, ctypes.c_bool)
        # A call that may run for long: other threads go on meanwhile.
        self.execute = ctypes.CFUNCTYPE(word, word)(self.address("LoadedExecutable_Execute"))
        pool = memory_pool()
        self.state.take = pool.take_address
        self.state.give = pool.give_address
        self.last_task = self._function("last_task", word)
        self.completed_tasks = self._function("completed_tasks", word)
        # Others go on while one waits.
        self.wait_for = ctypes.CFUNCTYPE(void, word)(self._code.address("hloom_pjrt_wait_for"))
        reset = self._function("reset_queue", void)
        reset()
        os.register_at_fork(after_in_child=reset)
        queue = Queue(self._code.address(QUEUE.symbol))
        for index in range(EVENT_COUNT):
            queue.events[index] = new_record("Event", None, is_immortal=True)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.PYFUNCTYPE(result, *arguments)(self._code.address(f"hloom_pjrt_{name}"))

    def address(self, name: str) -> int:
        return self._code.address(f"PJRT_{name}")


@functools.cache
def code() -> Code:
    return Code()


def make_api(handlers: dict[str, Callable[[Any], None]], make_error: Callable[[BaseException], int]) -> int:
    """The address of a PJRT_Api structure.

    Arguments:
        answers: the Python functions by name; each takes the structure of its arguments.
        make_error: the handle of an error for the exception that such a function raised.
    """
    missing = {f.name for f in functions().values() if f.implementation == "python"} ^ handlers.keys()
    if missing:
        raise ArgumentError(f"functions of the interface without an answer, or the other way round: {sorted(missing)}")
    native = code()

    def immortal_error(error: BaseException) -> int:
        handle = make_error(error)
        ctypes.c_uint64.from_address(handle + 8).value = IMMORTAL
        return handle

    native.state.interrupted = immortal_error(KeyboardInterrupt())
    for index, name in enumerate(PYTHON_FUNCTIONS):
        native.state.python[index] = _callback(name, handlers[name], make_error)
    for index, function in enumerate(functions().values()):
        if not function.implementation:
            error = NotImplementedError(f"PJRT_{function.name} is not implemented by hloom")
            native.state.unimplemented[index] = immortal_error(error)
    slots = [native.address(function.name) for function in functions().values()]
    made: list[Any] = []
    next_extension, end = 0, len(slots)
    for position, (kind, count) in reversed([*enumerate(structures())]):
        head = [kind, next_extension] if position else [next_extension, 24, 0, VERSION[0] | VERSION[1] << 32]
        made.append(_structure(8 * (1 + len(head) + count), *head, *slots[end - count : end]))
        next_extension, end = ctypes.addressof(made[-1]), end - count
    atexit.register(_close, native)
    return next_extension


def _structure(*words: int) -> Any:
    """A structure of words that never goes away.

    Null pointers follow: frameworks look at functions of newer versions before they ask for the size.
    """
    return immortal((ctypes.c_uint64 * (len(words) + 64))(*words))


def _close(native: Code) -> None:
    """Before Python ends: what it answered does nothing from now on, and nothing is under way."""
    native.wait_for(native.last_task())
    for index in range(len(PYTHON_FUNCTIONS)):
        native.state.python[index] = native.noop_handler


def _callback(name: str, handler: Callable[[Any], None], make_error: Callable[[BaseException], int]) -> int:
    structure = arguments_structure(name)
    from_address = structure.from_address

    def call(address: int, error_address: int, sequence: int) -> int:
        try:
            with ieee_floats():
                handler(from_address(address))
        except BaseException as error:
            ctypes.c_uint64.from_address(error_address).value = make_error(error)
        return sequence

    return c_address(immortal(_HANDLER(call)))


_HANDLER = ctypes.CFUNCTYPE(*[ctypes.c_uint64] * 4)


def _functions() -> list[Native]:
    """The native functions of the interface, and those that Python calls."""
    theirs: list[Any] = [execute, from_host, increase_references, decrease_references]
    theirs += [ready_event_of, event_is_ready, await_event, event_on_ready]
    own = {function.name: function for function in theirs}
    made: list[Any] = [take_retired, allocate, release, return_record, count_bytes, noop, noop_handler, *own.values()]
    made += [reset_queue, last_task, completed_tasks, wait_for]
    for index, function in enumerate(functions().values()):
        if f"PJRT_{function.name}" not in own:
            made.append(_function(function, index))
    return made


def _function(function: Function, index: int) -> Native:
    name = f"PJRT_{function.name}"
    if function.implementation == "get":
        made = _getter(name, function)
    elif function.implementation == "destroy":
        made = _destroyer(name, retire_buffer if function.kind == "Buffer" else retire)
    elif not function.implementation:
        made = _unimplemented(name, index)
    elif function.implementation == "python":
        made = _upcall(name, PYTHON_FUNCTIONS.index(function.name))
    else:
        made = _noop(name)
    return typing.cast(Native, made)


@native(name="hloom_pjrt_noop")
def noop(arguments: Address) -> Address:
    return null


@native(name="hloom_pjrt_noop_handler")
def noop_handler(arguments: Address, error: Address, sequence: u64) -> u64:
    return sequence


HANDLE = 16
"""Where the handle of an argument structure lies: before all others."""
_MEMORY = {"word": u64, "i32": i32, "bool": i8}


def _getter(name: str, function: Function) -> Any:
    """Copies words of the record; the loop over them is written out."""
    words = offsets_of_record(function.kind)
    copies = [(_MEMORY[field.type], getattr(words, field.word), field.offset) for field in function.outputs]

    @native(name=name)
    def get(arguments: Address) -> Address:
        record = word(arguments, HANDLE)
        for type, source, target in copies:
            store(type, arguments + target, load(type, record + source))
        return null

    return get


def _destroyer(name: str, retire: Any) -> Any:
    @native(name=name)
    def destroy(arguments: Address) -> Address:
        retire(word(arguments, HANDLE))
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
