"""The memory pool in machine code: what Python's arrays and programs that run without Python take large memory from.

`i64 hloom_take(i64 size)` gives memory of any content, aligned to a page, from 4 MiB on to a huge page and with the
system asked for such pages; 0 where there is none. `hloom_give(i64 address, i64 size)` gives it back. Sizes are rounded
up to a few classes, four to each power of two; free memory of a class is a list linked through its first words. Once
more than the limit would be free, all of it goes back to the system. Any thread may call at any time.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import sys

from hloom.backends.cpu.llvm.machine_code import compile_text, load_object
from hloom.runtime.machine import memory_size
from hloom.runtime.python_api import immortal

SMALLEST = 64 << 10
"""The size of the smallest class."""
HUGE_PAGE = 2 << 20
SMALLEST_HUGE = 4 << 20  # from here memory is aligned for huge pages


class MemoryPool:
    """The pool of this process; at most `limit` bytes of free memory are kept."""

    def __init__(self, limit: int) -> None:
        self._code = load_object(compile_text(_text()))
        # Memory is given back to the very end of the process.
        immortal(self._code)
        self.take_address = self._code.address("hloom_take")
        self.give_address = self._code.address("hloom_give")
        # Both take no longer than waiting for Python's lock would.
        self.take = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(self.take_address)
        self.give = ctypes.PYFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(self.give_address)
        self.release_cached = ctypes.PYFUNCTYPE(None)(self._code.address("hloom_release_cached"))
        self.limit = limit
        os.register_at_fork(after_in_child=self._after_fork)

    @property
    def limit(self) -> int:
        return self._global("hloom_pool_limit").value

    @limit.setter
    def limit(self, limit: int) -> None:
        self._global("hloom_pool_limit").value = limit

    @property
    def cached_bytes(self) -> int:
        """The bytes of free memory that the pool keeps."""
        return self._global("hloom_pool_cached").value

    def _global(self, name: str) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self._code.address(name))

    def _after_fork(self) -> None:
        """In a forked child: another thread of the parent may have held the lock."""
        self._global("hloom_pool_lock").value = 0


def _text() -> str:
    advice = getattr(mmap, "MADV_HUGEPAGE", None) if sys.platform == "linux" else None
    advise = "" if advice is None else f"  %advised = call i32 @madvise(ptr %start, i64 %size, i32 {advice})"
    return _TEXT.format(
        smallest=SMALLEST,
        huge_page=HUGE_PAGE,
        smallest_huge=SMALLEST_HUGE,
        protection=mmap.PROT_READ | mmap.PROT_WRITE,
        flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS,
        advise=advise,
    )


@functools.cache
def memory_pool() -> MemoryPool:
    """The pool of this process, made at the first call; it keeps at most an eighth of the memory."""
    return MemoryPool(memory_size() // _CACHED_SHARE)


_CACHED_SHARE = 8

_TEXT = """
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)

@hloom_pool_limit = global i64 0
@hloom_pool_cached = global i64 0
@hloom_pool_lock = global i64 0
@free_lists = internal global [256 x ptr] zeroinitializer

define internal void @lock() {{
entry:
  br label %try
try:
  %was = atomicrmw xchg ptr @hloom_pool_lock, i64 1 acquire
  %held = icmp ne i64 %was, 0
  br i1 %held, label %try, label %done
done:
  ret void
}}

define internal void @unlock() {{
  store atomic i64 0, ptr @hloom_pool_lock release, align 8
  ret void
}}

; The list of a class: 4 e + q - 4 for sizes q 2^e, where q is from 4 to 8.
define internal {{ i64, i64 }} @class(i64 %asked) {{
  %size = call i64 @llvm.umax.i64(i64 %asked, i64 {smallest})
  %last = sub i64 %size, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %last, i1 true)
  %exponent = sub i64 61, %zeros
  %unit = shl i64 1, %exponent
  %most = add i64 %last, %unit
  %quarters = lshr i64 %most, %exponent
  %rounded = shl i64 %quarters, %exponent
  %four = shl i64 %exponent, 2
  %place = add i64 %four, %quarters
  %list = sub i64 %place, 4
  %1 = insertvalue {{ i64, i64 }} poison, i64 %rounded, 0
  %2 = insertvalue {{ i64, i64 }} %1, i64 %list, 1
  ret {{ i64, i64 }} %2
}}

define internal ptr @map_plain(i64 %size) {{
  %start = call ptr @mmap(ptr null, i64 %size, i32 {protection}, i32 {flags}, i32 -1, i64 0)
  %address = ptrtoint ptr %start to i64
  %failed = icmp eq i64 %address, -1
  %found = select i1 %failed, ptr null, ptr %start
  ret ptr %found
}}

define internal ptr @map_huge(i64 %size) {{
entry:
  %length = add i64 %size, {huge_page}
  %begin = call ptr @map_plain(i64 %length)
  %none = icmp eq ptr %begin, null
  br i1 %none, label %failed, label %cut
failed:
  ret ptr null
cut:
  %address = ptrtoint ptr %begin to i64
  %negative = sub i64 0, %address
  %last = sub i64 {huge_page}, 1
  %head = and i64 %negative, %last
  %start = getelementptr i8, ptr %begin, i64 %head
  %end = getelementptr i8, ptr %start, i64 %size
  %tail = sub i64 {huge_page}, %head
  %has.head = icmp ne i64 %head, 0
  br i1 %has.head, label %drop.head, label %drop.tail
drop.head:
  %dropped = call i32 @munmap(ptr %begin, i64 %head)
  br label %drop.tail
drop.tail:
  %cut.tail = call i32 @munmap(ptr %end, i64 %tail)
{advise}
  ret ptr %start
}}

define internal ptr @map(i64 %size) {{
  %huge = icmp uge i64 %size, {smallest_huge}
  br i1 %huge, label %aligned, label %plain
aligned:
  %a = call ptr @map_huge(i64 %size)
  ret ptr %a
plain:
  %b = call ptr @map_plain(i64 %size)
  ret ptr %b
}}

define i64 @hloom_take(i64 %asked) {{
entry:
  ; Sizes that no address space has would overflow on the way to their class.
  %absurd = icmp ugt i64 %asked, 1152921504606846976
  br i1 %absurd, label %fail, label %look
fail:
  ret i64 0
look:
  %class = call {{ i64, i64 }} @class(i64 %asked)
  %size = extractvalue {{ i64, i64 }} %class, 0
  %list = extractvalue {{ i64, i64 }} %class, 1
  %place = getelementptr [256 x ptr], ptr @free_lists, i64 0, i64 %list
  call void @lock()
  %head = load ptr, ptr %place, align 8
  %none = icmp eq ptr %head, null
  br i1 %none, label %fresh, label %pop
pop:
  %next = load ptr, ptr %head, align 8
  store ptr %next, ptr %place, align 8
  %cached = load i64, ptr @hloom_pool_cached, align 8
  %left = sub i64 %cached, %size
  store i64 %left, ptr @hloom_pool_cached, align 8
  call void @unlock()
  %found = ptrtoint ptr %head to i64
  ret i64 %found
fresh:
  call void @unlock()
  %mapped = call ptr @map(i64 %size)
  %failed = icmp eq ptr %mapped, null
  br i1 %failed, label %again, label %done
again:
  call void @hloom_release_cached()
  %second = call ptr @map(i64 %size)
  br label %done
done:
  %result = phi ptr [ %mapped, %fresh ], [ %second, %again ]
  %made = ptrtoint ptr %result to i64
  ret i64 %made
}}

define void @hloom_give(i64 %address, i64 %asked) {{
entry:
  %memory = inttoptr i64 %address to ptr
  %class = call {{ i64, i64 }} @class(i64 %asked)
  %size = extractvalue {{ i64, i64 }} %class, 0
  %list = extractvalue {{ i64, i64 }} %class, 1
  %limit = load i64, ptr @hloom_pool_limit, align 8
  %too.large = icmp ugt i64 %size, %limit
  br i1 %too.large, label %unmap, label %keep
unmap:
  %unmapped = call i32 @munmap(ptr %memory, i64 %size)
  ret void
keep:
  call void @lock()
  %cached = load i64, ptr @hloom_pool_cached, align 8
  %sum = add i64 %cached, %size
  %over = icmp ugt i64 %sum, %limit
  br i1 %over, label %make.room, label %push
make.room:
  call void @drop_all()
  br label %push
push:
  %place = getelementptr [256 x ptr], ptr @free_lists, i64 0, i64 %list
  %head = load ptr, ptr %place, align 8
  store ptr %head, ptr %memory, align 8
  store ptr %memory, ptr %place, align 8
  %now = load i64, ptr @hloom_pool_cached, align 8
  %more = add i64 %now, %size
  store i64 %more, ptr @hloom_pool_cached, align 8
  call void @unlock()
  ret void
}}

define void @hloom_release_cached() {{
  call void @lock()
  call void @drop_all()
  call void @unlock()
  ret void
}}

define internal void @drop_all() {{
entry:
  br label %list
list:
  %k = phi i64 [ 0, %entry ], [ %k.next, %empty ]
  %place = getelementptr [256 x ptr], ptr @free_lists, i64 0, i64 %k
  %first = load ptr, ptr %place, align 8
  store ptr null, ptr %place, align 8
  %rest = and i64 %k, 3
  %quarters = add i64 %rest, 4
  %exponent = lshr i64 %k, 2
  %size = shl i64 %quarters, %exponent
  br label %next
next:
  %memory = phi ptr [ %first, %list ], [ %following, %drop ]
  %none = icmp eq ptr %memory, null
  br i1 %none, label %empty, label %drop
drop:
  %following = load ptr, ptr %memory, align 8
  %unmapped = call i32 @munmap(ptr %memory, i64 %size)
  br label %next
empty:
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, 256
  br i1 %more, label %list, label %done
done:
  store i64 0, ptr @hloom_pool_cached, align 8
  ret void
}}
"""
