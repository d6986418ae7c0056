"""The part of the plugin that is machine code: answers that are only copied, the list of the dead, the structure.

A handle that the framework holds is the address of a *record*: words that the functions marked `get` in the table
copy to their caller, so that most calls never enter Python. A function marked `destroy` pushes its record on a list;
Python takes the whole list at its next turn (`collect_dead`) and lets go of the objects behind it. So the framework
may destroy handles at any time, from any thread, and when Python has ended.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
from collections.abc import Callable
from typing import Any

from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.runtime.memory_pool import memory_pool
from hloom.errors import ArgumentError
from hloom.pjrt.c_api import LAYOUTS_EXTENSION, VERSION, Function, arguments_structure, extension_functions, functions
from hloom.pjrt.execute_code import execute_text
from hloom.pjrt.host_code import host_text
from hloom.pjrt.records import IMMORTAL, free_record, objects, record_words, stock_records
from hloom.runtime.python_api import immortal

_INTEGER = {"word": "i64", "i32": "i32", "bool": "i8"}


def stock_buffers(results: int = 0) -> None:
    """Fills native code's list of free records, if it is short for a call with so many results."""
    if code().free_records.value <= results:
        for record in stock_records(max(_STOCK, 4 * results)):
            code().give_record(record)


_STOCK = 256


def collect_dead() -> None:
    """Lets go of the objects whose handles the framework has destroyed."""
    handle = code().take_dead()
    while handle:
        following = ctypes.c_uint64.from_address(handle).value
        objects.pop(handle, None)
        free_record(handle)
        handle = following


class Code:
    """The compiled functions."""

    def __init__(self) -> None:
        self._code: MachineCode = immortal(load_object(compile_text(_text())))
        self.nothing = self._code.address("hloom_pjrt_nothing")
        self.take_dead = ctypes.PYFUNCTYPE(ctypes.c_uint64)(self._code.address("hloom_pjrt_take_dead"))

        word, nothing = ctypes.c_uint64, None
        self.allocate = self._function("allocate", word, word)
        self.release = self._function("release", nothing, word, word)
        self.give_record = self._function("give_record", nothing, word)
        self.free_records = ctypes.c_int64.from_address(self._code.address("hloom_pjrt_free_records"))
        self.count_bytes = self._function("count_bytes", nothing, word, ctypes.c_bool)
        # A call that may run for long: other threads go on meanwhile.
        self.execute = ctypes.CFUNCTYPE(word, word)(self.address("LoadedExecutable_Execute"))
        pool = memory_pool()
        self.set_global("hloom_pjrt_take", 0, pool.take_address)
        self.set_global("hloom_pjrt_give", 0, pool.give_address)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.PYFUNCTYPE(result, *arguments)(self._code.address(f"hloom_pjrt_{name}"))

    def address(self, name: str) -> int:
        return self._code.address(f"PJRT_{name}")

    def set_global(self, name: str, index: int, value: int) -> None:
        ctypes.c_uint64.from_address(self._code.address(name) + 8 * index).value = value


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
    slots: list[int] = []
    python_slots: list[int] = []
    for index, function in enumerate(functions().values()):
        address = native.address(function.name)
        if function.answerer == "python":
            callback = _callback(function, answers[function.name], make_error)
            if function.name in _ASKING:
                native.set_global("hloom_pjrt_python", _ASKING.index(function.name), callback)
            else:
                python_slots.append(len(slots))
                address = callback
        elif not function.answerer:
            error = make_error(NotImplementedError(f"PJRT_{function.name} is not implemented by hloom"))
            ctypes.c_uint64.from_address(error + 8).value = IMMORTAL
            native.set_global("hloom_pjrt_unimplemented", index, error)
        slots.append(address)
    own = len(slots) - extension_functions()
    extension = _structure(8 * (3 + extension_functions()), LAYOUTS_EXTENSION, 0, *slots[own:])
    size = 8 * (5 + own)
    api = _structure(size, ctypes.addressof(extension), 24, 0, VERSION[0] | VERSION[1] << 32, *slots[:own])
    places = [(api, 5 + slot) if slot < own else (extension, 3 + slot - own) for slot in python_slots]
    atexit.register(_close, places, native)
    return ctypes.addressof(api)


def _structure(*words: int) -> Any:
    """A structure of words that never goes away.

    Null pointers follow: frameworks look at functions of newer versions before they ask for the size.
    """
    return immortal((ctypes.c_uint64 * (len(words) + 64))(*words))


def _close(python_slots: list[tuple[Any, int]], native: Code) -> None:
    """Before Python ends: what it answered does nothing from now on."""
    for structure, slot in python_slots:
        structure[slot] = native.nothing
    for index in range(len(_ASKING)):
        native.set_global("hloom_pjrt_python", index, native.nothing)


def _callback(function: Function, answer: Callable[[Any], None], make_error: Callable[[BaseException], int]) -> int:
    structure = arguments_structure(function.name)
    from_address = structure.from_address

    def call(address: int) -> int:
        try:
            answer(from_address(address))
            return 0
        except BaseException as error:
            return make_error(error)

    # The result is an integer, since ctypes cannot hand pointers back.
    made = immortal(ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)(call))
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def _text() -> str:
    prelude = _PRELUDE.format(unimplemented=len(functions()), python=len(_ASKING))
    slots = [python_slot(name) for name in ("Client_BufferFromHostBuffer", "Buffer_IncreaseExternalReferenceCount")]
    parts = [prelude, execute_text(python_slot("LoadedExecutable_Execute")), host_text(*slots)]
    for index, function in enumerate(functions().values()):
        if function.answerer == "get":
            parts.append(_getter(function))
        elif function.answerer == "destroy":
            bury = "bury_buffer" if function.kind == "Buffer" else "bury"
            parts.append(_define(function.name, f"  call void @{bury}(ptr %record)\n  ret ptr null"))
        elif not function.answerer:
            slot = f"getelementptr (ptr, ptr @hloom_pjrt_unimplemented, i64 {index})"
            parts.append(f"define ptr @PJRT_{function.name}(ptr %arguments) {{\n"
                         f"  %error = load ptr, ptr {slot}, align 8\n  ret ptr %error\n}}\n")  # fmt: skip
        elif function.name in _EVENT_ANSWERS:
            parts.append(_event_function(function.name))
        elif function.answerer == "python" and function.name not in _ASKING:
            parts.append(_define(function.name, "  ret ptr null"))
    return "\n".join(parts)


def _define(name: str, body: str) -> str:
    return f"""define ptr @PJRT_{name}(ptr %arguments) {{
entry:
  %handle = getelementptr i8, ptr %arguments, i64 16
  %record = load ptr, ptr %handle, align 8
{body}
}}
"""


def _getter(function: Function) -> str:
    words = record_words(function.kind)
    lines = []
    for i, field in enumerate(function.outputs):
        lines.append(f"""  %from{i} = getelementptr i64, ptr %record, i64 {2 + words.index(field.word)}
  %value{i} = load {_INTEGER[field.type]}, ptr %from{i}, align 8
  %to{i} = getelementptr i8, ptr %arguments, i64 {field.offset}
  store {_INTEGER[field.type]} %value{i}, ptr %to{i}, align 1""")
    return _define(function.name, "\n".join(lines) + "\n  ret ptr null")


_EVENT_ANSWERS = {
    "Event_Error": "",
    "Event_Await": "",
    "Event_OnReady": """  %callback.p = getelementptr i8, ptr %arguments, i64 24
  %callback = load ptr, ptr %callback.p, align 8
  %user.p = getelementptr i8, ptr %arguments, i64 32
  %user = load ptr, ptr %user.p, align 8
  call void %callback(ptr null, ptr %user)
""",
}
"""What native code does for the event that is always ready, before it returns no error; Python answers for others."""


def _event_function(name: str) -> str:
    return _define(
        name,
        f"""  %immortal = call i1 @is_immortal(ptr %record)
  br i1 %immortal, label %ready, label %ask
ready:
{_EVENT_ANSWERS[name]}  ret ptr null
ask:
  %error = call ptr @ask(ptr {python_slot(name)}, ptr %arguments)
  ret ptr %error""",
    )


_ASKING = [
    *_EVENT_ANSWERS,
    "LoadedExecutable_Execute",
    "Client_BufferFromHostBuffer",
    "Buffer_IncreaseExternalReferenceCount",
]
"""The functions whose native code asks Python in some cases."""


def python_slot(name: str) -> str:
    """Where native code finds Python's answer to a function."""
    return f"getelementptr (ptr, ptr @hloom_pjrt_python, i64 {_ASKING.index(name)})"


_PRELUDE = """
@dead = internal global ptr null
@hloom_pjrt_unimplemented = global [{unimplemented} x ptr] zeroinitializer
@hloom_pjrt_python = global [{python} x ptr] zeroinitializer

; Python's answer, from its slot.
define internal ptr @ask(ptr %slot, ptr %arguments) alwaysinline {{
  %python = load ptr, ptr %slot, align 8
  %error = call ptr %python(ptr %arguments)
  ret ptr %error
}}

define internal i1 @is_immortal(ptr %record) {{
  %flag.p = getelementptr i64, ptr %record, i64 1
  %flag = load i64, ptr %flag.p, align 8
  %immortal = icmp ne i64 %flag, 0
  ret i1 %immortal
}}

define internal void @bury(ptr %record) {{
entry:
  %null = icmp eq ptr %record, null
  br i1 %null, label %done, label %some
some:
  %immortal = call i1 @is_immortal(ptr %record)
  br i1 %immortal, label %done, label %push
push:
  %head = load atomic ptr, ptr @dead acquire, align 8
  store ptr %head, ptr %record, align 8
  %pair = cmpxchg ptr @dead, ptr %head, ptr %record acq_rel acquire
  %pushed = extractvalue {{ ptr, i1 }} %pair, 1
  br i1 %pushed, label %done, label %push
done:
  ret void
}}

define i64 @hloom_pjrt_take_dead() {{
  %list = atomicrmw xchg ptr @dead, ptr null acq_rel
  %address = ptrtoint ptr %list to i64
  ret i64 %address
}}

define ptr @hloom_pjrt_nothing(ptr %arguments) {{
  ret ptr null
}}
"""
