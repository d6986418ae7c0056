"""The part of the plugin that is machine code: answers that are only copied, the list of the dead, the structure.

A handle that the framework holds is the address of a *record*: words that the functions marked `get` in the table
copy to their caller, so that most calls never enter Python. A function marked `destroy` pushes its record on a list;
Python takes the whole list at its next turn (`collect_dead`) and lets go of the objects behind it. So the framework
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
    EVENTS,
    QUEUE,
    Queue,
    await_event,
    bury_buffer,
    done_tasks,
    event_is_ready,
    event_on_ready,
    last_task,
    ready_event_of,
    reset_queue,
    wait_for,
)
from hloom.pjrt.c_api import VERSION, Function, arguments_structure, functions, structures
from hloom.pjrt.execute_code import execute
from hloom.pjrt.host_code import decrease_references, from_host, increase_references
from hloom.pjrt.native_memory import (
    ASKING,
    STATE,
    State,
    allocate,
    ask,
    bury,
    count_bytes,
    give_record,
    release,
    take_dead,
    word,
)
from hloom.pjrt.records import IMMORTAL, free_record, new_record, objects, offsets_of_record, stock_records
from hloom.runtime.float_state import ieee_floats
from hloom.runtime.python_api import c_address, immortal


def stock_buffers(results: int = 0) -> None:
    """Fills native code's list of free records, if it is short for a call with so many results."""
    if code().state.free_count <= results:
        for record in stock_records(max(_STOCK, 4 * results)):
            code().give_record(record)


_STOCK = 256


def collect_dead() -> None:
    """Lets go of the objects whose handles the framework has destroyed, when no task may use them any more."""
    with _dying:
        handle = code().take_dead()
        task, done = code().last_task(), code().done_tasks()
        while handle:
            _dead.append((task, handle))
            handle = ctypes.c_uint64.from_address(handle).value
        gone = [_dead.popleft()[1] for _ in range(len(_dead)) if _dead[0][0] <= done]
    for handle in gone:
        objects.pop(handle, None)
        free_record(handle)


_dead: collections.deque[tuple[int, int]] = collections.deque()
"""The number of the last task when a handle died, and the handle."""
_dying = threading.Lock()


def wait_for_tasks() -> None:
    """Returns when no program is under way."""
    code().wait_for(code().last_task())


class Code:
    """The compiled functions."""

    def __init__(self) -> None:
        self._code: MachineCode = native_code(*_functions())
        self.state = State(self._code.address(STATE.symbol))
        self.nothing = self._code.address("hloom_pjrt_nothing")
        self.answered = self._code.address("hloom_pjrt_answered")
        self.take_dead = ctypes.PYFUNCTYPE(ctypes.c_uint64)(self._code.address("hloom_pjrt_take_dead"))

        word, nothing = ctypes.c_uint64, None
        self.allocate = self._function("allocate", word, word)
        self.release = self._function("release", nothing, word, word)
        self.give_record = self._function("give_record", nothing, word)
        self.count_bytes = self._function("count_bytes", nothing, word, ctypes.c_bool)
        # A call that may run for long: other threads go on meanwhile.
        self.execute = ctypes.CFUNCTYPE(word, word)(self.address("LoadedExecutable_Execute"))
        pool = memory_pool()
        self.state.take = pool.take_address
        self.state.give = pool.give_address
        self.last_task = self._function("last_task", word)
        self.done_tasks = self._function("done_tasks", word)
        # Others go on while one waits.
        self.wait_for = ctypes.CFUNCTYPE(nothing, word)(self._code.address("hloom_pjrt_wait_for"))
        reset = self._function("reset_queue", nothing)
        reset()
        os.register_at_fork(after_in_child=reset)
        queue = Queue(self._code.address(QUEUE.symbol))
        for number in range(EVENTS):
            queue.events[number] = new_record("Event", None, never_dies=True)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.PYFUNCTYPE(result, *arguments)(self._code.address(f"hloom_pjrt_{name}"))

    def address(self, name: str) -> int:
        return self._code.address(f"PJRT_{name}")


@functools.cache
def code() -> Code:
    return Code()


def make_api(answers: dict[str, Callable[[Any], None]], make_error: Callable[[BaseException], int]) -> int:
    """The address of a PJRT_Api structure.

    Arguments:
        answers: the Python functions by name; each takes the structure of its arguments.
        make_error: the handle of an error for the exception that such a function raised.
    """
    missing = {f.name for f in functions().values() if f.answerer == "python"} ^ answers.keys()
    if missing:
        raise ArgumentError(f"functions of the interface without an answer, or the other way round: {sorted(missing)}")
    native = code()

    def lasting_error(error: BaseException) -> int:
        handle = make_error(error)
        ctypes.c_uint64.from_address(handle + 8).value = IMMORTAL
        return handle

    native.state.interrupted = lasting_error(KeyboardInterrupt())
    for number, name in enumerate(ASKING):
        native.state.python[number] = _callback(name, answers[name], make_error)
    for index, function in enumerate(functions().values()):
        if not function.answerer:
            error = NotImplementedError(f"PJRT_{function.name} is not implemented by hloom")
            native.state.unimplemented[index] = lasting_error(error)
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
    for index in range(len(ASKING)):
        native.state.python[index] = native.answered


def _callback(name: str, answer: Callable[[Any], None], make_error: Callable[[BaseException], int]) -> int:
    structure = arguments_structure(name)
    from_address = structure.from_address

    def call(address: int, place: int, number: int) -> int:
        try:
            with ieee_floats():
                answer(from_address(address))
        except BaseException as error:
            ctypes.c_uint64.from_address(place).value = make_error(error)
        return number

    return c_address(immortal(_ANSWER(call)))


_ANSWER = ctypes.CFUNCTYPE(*[ctypes.c_uint64] * 4)


def _functions() -> list[Native]:
    """The native functions of the interface, and those that Python calls."""
    theirs: list[Any] = [execute, from_host, increase_references, decrease_references]
    theirs += [ready_event_of, event_is_ready, await_event, event_on_ready]
    own = {function.name: function for function in theirs}
    made: list[Any] = [take_dead, allocate, release, give_record, count_bytes, nothing, answered, *own.values()]
    made += [reset_queue, last_task, done_tasks, wait_for]
    for index, function in enumerate(functions().values()):
        if f"PJRT_{function.name}" not in own:
            made.append(_function(function, index))
    return made


def _function(function: Function, index: int) -> Native:
    name = f"PJRT_{function.name}"
    if function.answerer == "get":
        made = _getter(name, function)
    elif function.answerer == "destroy":
        made = _destroyer(name, bury_buffer if function.kind == "Buffer" else bury)
    elif not function.answerer:
        made = _unimplemented(name, index)
    elif function.answerer == "python":
        made = _asker(name, ASKING.index(function.name))
    else:
        made = _nothing(name)
    return typing.cast(Native, made)


@native(name="hloom_pjrt_nothing")
def nothing(arguments: Address) -> Address:
    return null


@native(name="hloom_pjrt_answered")
def answered(arguments: Address, error: Address, number: u64) -> u64:
    return number


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


def _destroyer(name: str, bury: Any) -> Any:
    @native(name=name)
    def destroy(arguments: Address) -> Address:
        bury(word(arguments, HANDLE))
        return null

    return destroy


def _unimplemented(name: str, index: int) -> Any:
    @native(name=name)
    def fail(arguments: Address) -> Address:
        return STATE.unimplemented[index]

    return fail


def _asker(name: str, number: int) -> Any:
    @native(name=name)
    def ask_python(arguments: Address) -> Address:
        return ask(number, arguments)

    return ask_python


def _nothing(name: str) -> Any:
    @native(name=name)
    def answer(arguments: Address) -> Address:
        return null

    return answer
