"""Calls a program on NumPy arrays in native code: a call costs little more than one of a function of Python's own.

`hloom_call` is the code of a built-in function of Python, bound to a program's template: `call(arguments, results)`
takes two tuples of NumPy arrays. It checks the type, element type, sizes and contiguity of each argument, writes the
addresses of all data to the table, runs `hloom_main`, and returns its status. If an argument does not fit it returns 2,
and nothing has run. The code is the same for all programs; the program's template holds everything specific.

The memory layout of tuples and arrays is that of Python's and NumPy's C interface.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from hloom.backends.cpu.llvm.native.code import native_code
from hloom.backends.cpu.llvm.native.types import Address, Array, Structure, boolean, field, i32, i64, u64
from hloom.backends.cpu.llvm.native.vocabulary import address_of, copy_memory, elements, native, stack, static, to
from hloom.backends.cpu.program.interface import TABLE
from hloom.backends.cpu.program.program import Signature
from hloom.system.python_api import c_address, immortal, python_function

DOES_NOT_FIT = 2
"""Status of a call whose arguments do not fit."""
FITTING = 0x0101
"""Flags of arrays that are C-contiguous and aligned."""
_HEAD = object.__basicsize__


class Tuple(Structure):
    """Python tuple."""

    size: u64 = field(at=_HEAD)
    items: Array[u64] = field(at=tuple.__basicsize__, inline=(u64, 1))


class NumpyArray(Structure):
    """NumPy array."""

    type: Address = field(at=_HEAD - 8)
    data: Address = field(at=_HEAD)
    rank: i32 = field(at=_HEAD + 8)
    sizes: Array[u64] = field(at=_HEAD + 16)
    descriptor: Address = field(at=_HEAD + 40)
    flags: i32 = field(at=_HEAD + 48)


class Template(Structure):
    """Header of a program's template; the table of `words` words follows, then the layout of arguments."""

    main: Callable[[Address], i32]
    keeps_lock: u64
    """Whether the program runs with Python's lock."""
    words: u64
    inputs: u64
    outputs: u64
    sizes: u64
    """Index of the word of the template from which the ends of the arguments' sizes are listed."""


class Python(Structure):
    """Functions of Python's C interface."""

    save_thread: Callable[[], Address]
    restore_thread: Callable[[Address], None]
    new_integer: Callable[[i64], Address]


PYTHON = static(Python, "hloom_python")
_PYTHON = {
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
    "new_integer": "PyLong_FromLongLong",
}


@native(name="hloom_call")
def call(bound: NumpyArray, given: Array[u64], count: u64) -> Address:
    """Checks and runs a program; `given` are the `count` objects that Python passes, two tuples."""
    if count != 2:
        return PYTHON.new_integer(DOES_NOT_FIT)
    status = checked_run(to(Tuple, given[0]), to(Tuple, given[1]), to(Template, bound.data))
    return PYTHON.new_integer(i64(status))


@native()
def checked_run(arguments: Tuple, results: Tuple, template: Template) -> i32:
    """Copies the table of the template to the stack, adds the addresses of arguments and results, and runs
    the program."""
    inputs, words = template.inputs, template.words
    table_words = elements(u64, address_of(template)).at(HEADER_WORDS)
    types = table_words.at(words)
    ends = elements(u64, address_of(template)).at(template.sizes)
    sizes = ends.at(inputs + 1)
    if arguments.size != inputs:
        return DOES_NOT_FIT
    table = stack(words)
    copy_memory(address_of(table), address_of(table_words), words << 3)
    for k in range(inputs):
        item = to(NumpyArray, arguments.items[k])
        # The type is checked first: other objects have no fields of an array.
        if item.type != types[0] or item.descriptor != types[k + 1] or not fits(item, sizes, ends[k], ends[k + 1]):
            return DOES_NOT_FIT
        table[k + TABLE_WORDS] = item.data
    for j in range(template.outputs):
        table[inputs + TABLE_WORDS + j] = to(NumpyArray, results.items[j]).data
    if template.keeps_lock != 0:
        return template.main(address_of(table))
    thread = PYTHON.save_thread()
    status = template.main(address_of(table))
    PYTHON.restore_thread(thread)
    return status


@native(inline=True)
def fits(array: NumpyArray, sizes: Array[u64], first: u64, end: u64) -> boolean:
    """Whether an array is dense and has the sizes of the parameter."""
    if array.flags & FITTING != FITTING or u64(array.rank) != end - first:
        return False
    same = True
    for d in range(end - first):
        same = same and array.sizes[d] == sizes[first + d]
    return same


HEADER_WORDS, TABLE_WORDS = Template.byte_size // 8, len(TABLE)


@functools.cache
def layout_is_known() -> bool:
    """Whether arrays and tuples have the memory layout that this module expects."""
    if sys.implementation.name != "cpython":
        return False
    array = np.zeros((2, 3), np.float32)
    pair, transposed = (array, array), array.T

    items, header = to(Tuple, id(pair)), to(NumpyArray, at := id(array))
    return (
        items.size == 2
        and items.items[1] == at
        and header.type == id(np.ndarray)
        and header.data == array.ctypes.data
        and header.rank == 2
        and header.sizes[1] == 3
        and header.descriptor == id(array.dtype)
        and header.flags & FITTING == FITTING
        and not to(NumpyArray, id(transposed)).flags & 1
    )


def template(
    signature: Signature, main: int, addresses: dict[str, int], keeps_lock: bool
) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Returns the template of a program as 64-bit words.

    It consists of the header, the table with `addresses` and constants, the expected types of arguments, the end of
    each argument's sizes, and all sizes.
    """
    constants = [buffer.address for buffer in signature.of_kind("constant")]
    inputs, outputs = signature.of_kind("parameter"), signature.of_kind("output")
    table = [addresses.get(name, 0) for name in TABLE] + [0] * (len(inputs) + len(outputs)) + constants
    types = [id(np.ndarray), *(id(buffer.type.dtype) for buffer in inputs)]
    ends = list(itertools.accumulate((len(buffer.dimensions) for buffer in inputs), initial=0))
    sizes = [size for buffer in inputs for size in buffer.dimensions]
    header = [main, int(keeps_lock), len(table), len(inputs), len(outputs), HEADER_WORDS + len(table) + len(types)]
    return np.array([*header, *table, *types, *ends, *sizes], np.uint64)


class _Method(ctypes.Structure):
    """PyMethodDef of Python's C interface."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    ]


_FAST_CALL = 0x80  # METH_FASTCALL: arguments are an array of objects
_bind = python_function("PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


@functools.cache
def method() -> int:
    """Returns the address of the definition of `hloom_call` as a method."""
    code = native_code(call)
    state = Python(code.address(PYTHON.symbol))
    for name, function in _PYTHON.items():
        setattr(state, name, c_address(getattr(ctypes.pythonapi, function)))
    return ctypes.addressof(immortal(_Method(b"hloom_call", code.address("hloom_call"), _FAST_CALL, None)))


def bound_call(template: np.ndarray[Any, np.dtype[np.uint64]]) -> Callable[[object, object], int]:
    """Returns the function that runs the program of a template, which it keeps."""
    return cast(Callable[[object, object], int], _bind(method(), template, None))
