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

from hloom.backends.cpu.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.program import Signature
from hloom.backends.cpu.program_emitter import TABLE

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
    constants = [b.data.ctypes.data if b.data is not None else 0 for b in signature.of_kind("constant")]
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
    loads = []
    for position, name in enumerate(HEADER):
        loads.append(f"  %h.{name}.p = getelementptr i64, ptr %template, i64 {position}")
        loads.append(f"  %h.{name} = load {'ptr' if name == 'main' else 'i64'}, ptr %h.{name}.p, align 8")
    return _TEXT.format(
        loads="\n".join(loads),
        header=len(HEADER),
        first_input=len(TABLE),
        type=_TYPE,
        tuple_size=_TUPLE_SIZE,
        items=_TUPLE_ITEMS,
        data=_DATA,
        rank=_RANK,
        dimensions=_SIZES,
        descriptor=_DESCRIPTOR,
        flags=_FLAGS,
        fitting=_FITTING_FLAGS,
    )


_TEXT = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @hloom_call(ptr %arguments, ptr %results, ptr %template) nounwind {{
entry:
{loads}
  %table = alloca ptr, i64 %h.words, align 16
  %given = getelementptr ptr, ptr %template, i64 {header}
  %bytes = shl i64 %h.words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %table, ptr align 8 %given, i64 %bytes, i1 false)
  %expected = getelementptr ptr, ptr %given, i64 %h.words
  %ends = getelementptr i64, ptr %template, i64 %h.sizes
  %past.ends = getelementptr i64, ptr %ends, i64 %h.inputs
  %sizes.of.all = getelementptr i64, ptr %past.ends, i64 1
  %first.output = add i64 %h.inputs, {first_input}
  %ndarray = load ptr, ptr %expected, align 8
  %count.p = getelementptr i8, ptr %arguments, i64 {tuple_size}
  %count = load i64, ptr %count.p, align 8
  %right.count = icmp eq i64 %count, %h.inputs
  br i1 %right.count, label %next, label %unfit
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %fits ]
  %more = icmp ult i64 %k, %h.inputs
  br i1 %more, label %check, label %outputs
check:
  %items = getelementptr i8, ptr %arguments, i64 {items}
  %item.p = getelementptr ptr, ptr %items, i64 %k
  %item = load ptr, ptr %item.p, align 8
  %type.p = getelementptr i8, ptr %item, i64 {type}
  %type = load ptr, ptr %type.p, align 8
  %is.array = icmp eq ptr %type, %ndarray
  br i1 %is.array, label %array, label %unfit
array:
  %k.next = add nuw i64 %k, 1
  %wanted.p = getelementptr ptr, ptr %expected, i64 %k.next
  %wanted = load ptr, ptr %wanted.p, align 8
  %descriptor.p = getelementptr i8, ptr %item, i64 {descriptor}
  %descriptor = load ptr, ptr %descriptor.p, align 8
  %same.type = icmp eq ptr %descriptor, %wanted
  %flags.p = getelementptr i8, ptr %item, i64 {flags}
  %flags = load i32, ptr %flags.p, align 4
  %good.flags = and i32 %flags, {fitting}
  %dense = icmp eq i32 %good.flags, {fitting}
  %start.p = getelementptr i64, ptr %ends, i64 %k
  %start = load i64, ptr %start.p, align 8
  %end.p = getelementptr i64, ptr %ends, i64 %k.next
  %end = load i64, ptr %end.p, align 8
  %wanted.rank = sub i64 %end, %start
  %rank.p = getelementptr i8, ptr %item, i64 {rank}
  %rank.32 = load i32, ptr %rank.p, align 4
  %rank = sext i32 %rank.32 to i64
  %same.rank = icmp eq i64 %rank, %wanted.rank
  %good.1 = and i1 %same.type, %dense
  %good = and i1 %good.1, %same.rank
  br i1 %good, label %ranked, label %unfit
ranked:
  %sizes.p = getelementptr i8, ptr %item, i64 {dimensions}
  %sizes = load ptr, ptr %sizes.p, align 8
  br label %dimension
dimension:
  %d = phi i64 [ 0, %ranked ], [ %d.next, %compare ]
  %inside = icmp ult i64 %d, %rank
  br i1 %inside, label %compare, label %fits
compare:
  %size.p = getelementptr i64, ptr %sizes, i64 %d
  %size = load i64, ptr %size.p, align 8
  %place = add i64 %start, %d
  %wanted.size.p = getelementptr i64, ptr %sizes.of.all, i64 %place
  %wanted.size = load i64, ptr %wanted.size.p, align 8
  %same.size = icmp eq i64 %size, %wanted.size
  %d.next = add nuw i64 %d, 1
  br i1 %same.size, label %dimension, label %unfit
fits:
  %data.p = getelementptr i8, ptr %item, i64 {data}
  %data = load ptr, ptr %data.p, align 8
  %slot = add i64 %k, {first_input}
  %slot.p = getelementptr ptr, ptr %table, i64 %slot
  store ptr %data, ptr %slot.p, align 8
  br label %next
outputs:
  %j = phi i64 [ 0, %next ], [ %j.next, %output ]
  %left = icmp ult i64 %j, %h.outputs
  br i1 %left, label %output, label %run
output:
  %made = getelementptr i8, ptr %results, i64 {items}
  %result.p = getelementptr ptr, ptr %made, i64 %j
  %result = load ptr, ptr %result.p, align 8
  %to.p = getelementptr i8, ptr %result, i64 {data}
  %to = load ptr, ptr %to.p, align 8
  %out = add i64 %j, %first.output
  %out.p = getelementptr ptr, ptr %table, i64 %out
  store ptr %to, ptr %out.p, align 8
  %j.next = add nuw i64 %j, 1
  br label %outputs
run:
  %status = call i32 %h.main(ptr %table)
  ret i32 %status
unfit:
  ret i32 2
}}
"""
