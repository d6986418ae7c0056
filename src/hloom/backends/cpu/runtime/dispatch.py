"""From Python's arrays to the program and back, in native code: a call costs little more than one foreign call.

`i32 hloom_call(ptr arguments, ptr results, ptr template)` takes two tuples of NumPy arrays as the Python objects that
they are. It compares the type, element type, sizes and contiguity of each argument with what the program takes, puts
the addresses of all data into the table, and runs `hloom_main`. Where an argument does not fit it returns 2, and
nothing has run. It is the same code for all programs: what it knows of one is in the program's template.

The layout of tuples and arrays in memory is that of Python's and NumPy's C interface.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from typing import Any

import numpy as np

from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.llvm.text import I32, I64, PTR, Builder, Type, Value, constant
from hloom.backends.cpu.program.emitter import TABLE
from hloom.backends.cpu.program.program import Signature

DOES_NOT_FIT = 2

_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_TUPLE_SIZE = _HEAD
_TUPLE_ITEMS = tuple.__basicsize__
_DATA, _RANK, _SIZES, _DESCRIPTOR, _FLAGS = (_HEAD + offset for offset in (0, 8, 16, 40, 48))
_FITTING_FLAGS = 0x0101
"""C-contiguous and aligned."""


@functools.cache
def layout_is_known() -> bool:
    """Whether arrays and tuples lie in memory as this module expects."""
    if sys.implementation.name != "cpython":
        return False
    array = np.zeros((2, 3), np.float32)
    pair = (array, array)

    def word(address: int) -> int:
        return int(ctypes.c_uint64.from_address(address).value)

    at = id(array)
    return (
        word(id(pair) + _TUPLE_SIZE) == 2
        and word(id(pair) + _TUPLE_ITEMS + 8) == at
        and word(at + _TYPE) == id(np.ndarray)
        and word(at + _DATA) == array.ctypes.data
        and ctypes.c_int32.from_address(at + _RANK).value == 2
        and word(word(at + _SIZES) + 8) == 3
        and word(at + _DESCRIPTOR) == id(array.dtype)
        and ctypes.c_int32.from_address(at + _FLAGS).value & _FITTING_FLAGS == _FITTING_FLAGS
        and not ctypes.c_int32.from_address(id(array.T) + _FLAGS).value & 1
    )


HEADER = ("main", "words", "inputs", "outputs", "sizes")
"""The words of a template before the table: `words` is its length, `sizes` where those of arguments start."""


def template(signature: Signature, main: int, addresses: dict[str, int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """What `hloom_call` needs of a program: the header, the table with `addresses` and constants, and what arguments
    are compared with: the types, and for each argument where its sizes end, and then all sizes.
    """
    constants = [buffer.address for buffer in signature.of_kind("constant")]
    inputs, outputs = signature.of_kind("parameter"), signature.of_kind("output")
    table = [addresses.get(name, 0) for name in TABLE] + [0] * (len(inputs) + len(outputs)) + constants
    types = [id(np.ndarray), *(id(buffer.type.dtype) for buffer in inputs)]
    ends = list(itertools.accumulate((len(buffer.dimensions) for buffer in inputs), initial=0))
    sizes = [size for buffer in inputs for size in buffer.dimensions]
    header = [main, len(table), len(inputs), len(outputs), len(HEADER) + len(table) + len(types)]
    return np.array([*header, *table, *types, *ends, *sizes], np.uint64)


@functools.cache
def _code() -> MachineCode:
    return load_object(compile_text(_text()))


def call_address() -> int:
    """The address of `hloom_call`."""
    return _code().address("hloom_call")


def _text() -> str:
    b = _body()
    head = "define i32 @hloom_call(ptr %arguments, ptr %results, ptr %template) nounwind {"
    return "\n".join([*b.declarations, head, "entry:", *b.lines, "}\n"])


def _body() -> Builder:
    """Fills a table on the stack from the template, the arguments and the results, and runs the program on it."""
    b = Builder()
    arguments, results, template = (Value(f"%{name}", PTR) for name in ("arguments", "results", "template"))
    main = b.load(template, PTR, 8)
    words, inputs, outputs, first_size = (b.load(_at(b, template, b.index(k)), I64, 8) for k in range(1, len(HEADER)))
    table = b.emit(f"alloca i64, {words}, align 16", PTR)
    given = _at(b, template, b.index(len(HEADER)))
    b.copy(table, given, b.binary("shl", words, b.index(3)))
    types = _at(b, given, words)
    ndarray = b.load(types, PTR, 8)
    descriptors = _at(b, types, b.index(1))
    ends = _at(b, template, first_size)
    sizes = _at(b, ends, b.binary("add", inputs, b.index(1)))
    _require(b, b.compare("eq", _field(b, arguments, _TUPLE_SIZE, I64), inputs))
    with b.each(0, inputs) as k:
        item = _item(b, arguments, k)
        _require(b, b.compare("eq", _field(b, item, _TYPE, PTR), ndarray))
        start, end = (b.load(_at(b, ends, place), I64, 8) for place in (k, b.binary("add", k, b.index(1))))
        rank = b.binary("sub", end, start)
        _require_array(b, item, b.load(_at(b, descriptors, k), PTR, 8), rank, _at(b, sizes, start))
        place = _at(b, table, b.binary("add", k, b.index(len(TABLE))))
        b.store(_field(b, item, _DATA, PTR), place, 8)
    first_output = b.binary("add", inputs, b.index(len(TABLE)))
    with b.each(0, outputs) as j:
        b.store(_field(b, _item(b, results, j), _DATA, PTR), _at(b, table, b.binary("add", j, first_output)), 8)
    status = b.emit(f"call i32 {main.text}({table})", I32)
    b.line(f"ret {status}")
    b.start(_UNFIT)
    b.line(f"ret i32 {DOES_NOT_FIT}")
    return b


def _require_array(b: Builder, item: Value, descriptor: Value, rank: Value, sizes: Value) -> None:
    """An array fits that is dense and has the element type and the sizes of the parameter."""
    same_type = b.compare("eq", _field(b, item, _DESCRIPTOR, PTR), descriptor)
    fitting = constant(I32, _FITTING_FLAGS)
    dense = b.compare("eq", b.binary("and", _field(b, item, _FLAGS, I32), fitting), fitting)
    same_rank = b.compare("eq", b.convert("sext", _field(b, item, _RANK, I32), "i64"), rank)
    _require(b, b.binary("and", b.binary("and", same_type, dense), same_rank))
    own = _field(b, item, _SIZES, PTR)
    with b.each(0, rank) as d:
        _require(b, b.compare("eq", *(b.load(_at(b, array, d), I64, 8) for array in (own, sizes))))


_UNFIT = "unfit"


def _require(b: Builder, condition: Value) -> None:
    """Goes on where the condition holds; elsewhere the call does not fit."""
    fits = b.label("fits")
    b.branch_if(condition, fits, _UNFIT)
    b.start(fits)


def _at(b: Builder, words: Value, number: Value) -> Value:
    """The place of one of several words."""
    return b.element_pointer(words, number, "i64")


def _field(b: Builder, record: Value, offset: int, type: Type) -> Value:
    return b.load(b.element_pointer(record, b.index(offset), "i8"), type, type.bits // 8)


def _item(b: Builder, items: Value, number: Value) -> Value:
    """An element of a tuple of Python."""
    return b.load(_at(b, b.element_pointer(items, b.index(_TUPLE_ITEMS), "i8"), number), PTR, 8)
