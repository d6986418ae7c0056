"""From Python's arrays to the program and back, in native code: a call costs little more than one foreign call.

`i32 hloom_call(ptr arguments, ptr results, ptr arena)` takes two tuples of NumPy arrays as the Python objects that
they are. It compares the type, element type, sizes and contiguity of each argument with what the program takes, puts
the addresses of all data into the table, and runs `hloom_main`. Where an argument does not fit it returns 2, and
nothing has run.

The layout of tuples and arrays in memory is that of Python's and NumPy's C interface.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

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


def template(signature: Signature, addresses: dict[str, int]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The table as `hloom_call` starts from: `addresses`, constants, and then what arguments are compared with."""
    constants = [b.data.ctypes.data if b.data is not None else 0 for b in signature.of_kind("constant")]
    inputs, outputs = signature.of_kind("parameter"), signature.of_kind("output")
    words = [addresses.get(name, 0) for name in TABLE]
    words += [0] * (len(inputs) + len(outputs)) + constants
    words += [id(np.ndarray), *(id(buffer.type.dtype) for buffer in inputs)]
    return np.array(words, np.uint64)


def emit_dispatch(signature: Signature) -> str:
    """The text of `hloom_call` and of `hloom_template`, the place of the template's address."""
    inputs, outputs = signature.of_kind("parameter"), len(signature.of_kind("output"))
    size = len(TABLE) + len(inputs) + outputs + len(signature.of_kind("constant"))
    starts, sizes = [0], list[int]()
    for buffer in inputs:
        sizes += buffer.dimensions
        starts.append(len(sizes))
    return _TEXT.format(
        size=size,
        bytes=8 * size,
        inputs=len(inputs),
        outputs=outputs,
        first_input=len(TABLE),
        first_output=len(TABLE) + len(inputs),
        starts=_array("i64", starts),
        sizes=_array("i64", sizes or [0]),
        starts_count=len(starts),
        sizes_count=max(1, len(sizes)),
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


def _array(element: str, values: list[int]) -> str:
    return "[" + ", ".join(f"{element} {value}" for value in values) + "]"


_TEXT = """
@hloom_template = global ptr null
@hloom_starts = internal constant [{starts_count} x i64] {starts}
@hloom_sizes = internal constant [{sizes_count} x i64] {sizes}
define i32 @hloom_call(ptr %arguments, ptr %results, ptr %arena) nounwind {{
entry:
  %table = alloca [{size} x ptr], align 16
  %template = load ptr, ptr @hloom_template, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %table, ptr %template, i64 {bytes}, i1 false)
  store ptr %arena, ptr %table, align 8
  %expected = getelementptr ptr, ptr %template, i64 {size}
  %ndarray = load ptr, ptr %expected, align 8
  %count.p = getelementptr i8, ptr %arguments, i64 {tuple_size}
  %count = load i64, ptr %count.p, align 8
  %right.count = icmp eq i64 %count, {inputs}
  br i1 %right.count, label %next, label %unfit
next:
  %k = phi i64 [ 0, %entry ], [ %k.next, %fits ]
  %more = icmp ult i64 %k, {inputs}
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
  %start.p = getelementptr i64, ptr @hloom_starts, i64 %k
  %start = load i64, ptr %start.p, align 8
  %end.p = getelementptr i64, ptr @hloom_starts, i64 %k.next
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
  %wanted.size.p = getelementptr i64, ptr @hloom_sizes, i64 %place
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
  %left = icmp ult i64 %j, {outputs}
  br i1 %left, label %output, label %run
output:
  %made = getelementptr i8, ptr %results, i64 {items}
  %result.p = getelementptr ptr, ptr %made, i64 %j
  %result = load ptr, ptr %result.p, align 8
  %to.p = getelementptr i8, ptr %result, i64 {data}
  %to = load ptr, ptr %to.p, align 8
  %out = add i64 %j, {first_output}
  %out.p = getelementptr ptr, ptr %table, i64 %out
  store ptr %to, ptr %out.p, align 8
  %j.next = add nuw i64 %j, 1
  br label %outputs
run:
  %status = call i32 @hloom_main(ptr %table)
  ret i32 %status
unfit:
  ret i32 2
}}
"""
