"""Native Python: compiled functions compute what Python computes on the same memory; errors name the line."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import pytest

from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.llvm.native.translator import native_module
from hloom.backends.cpu.llvm.native.types import (
    LINE,
    Address,
    Array,
    Atomic,
    Structure,
    boolean,
    field,
    i8,
    i32,
    i64,
    u8,
    u32,
    u64,
)
from hloom.backends.cpu.llvm.native.vocabulary import (
    ACQ_REL,
    MONOTONIC,
    SEQ_CST,
    Table,
    address_of,
    copy_memory,
    elements,
    external,
    leading_zeros,
    load,
    native,
    null,
    python_stack,
    stack,
    static,
    store,
    to,
)
from hloom.backends.cpu.llvm.native.writer import NativeError
from hloom.backends.cpu.runtime import memory_pool, thread_pool
from hloom.lir.verify import check_module


def compiled(function: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A native function as machine code; its code lives as long as it does."""
    module = native_module([function])
    check_module(module)
    code = load_object(compile_text(module.text()))
    made = ctypes.CFUNCTYPE(result, *arguments)(code.address(function.name))
    KEPT.append(code)
    return made


KEPT: list[MachineCode] = []
WORD, SIGNED = ctypes.c_uint64, ctypes.c_int64
PRIMES = (2, 3, 5, 7)


@native()
def arithmetic(a: u64, b: u64) -> u64:
    c = (a + 3 * b) ^ (a >> 7) | (b << 3) & 0xFF00
    c -= a // (b % 1000 + 1)
    return c + leading_zeros(a | 1) + max(a, b) - min(a, 77)


@native()
def signs(a: i64, b: i64) -> i64:
    if a < 0 and not b < 0:
        return -a if a > -1000 else (a >> 3)
    return ~b if a >= b or a == 5 else i64(i8(a)) + i64(u8(b)) + i64(i32(a)) + i64(u32(b))


@native()
def loops(n: u64) -> u64:
    total: u64 = 0
    for i in range(n):
        if i == 3:
            continue
        if total > 1000:
            break
        for j in range(i, n):
            total += i * j
    while total % 7 != 0:
        total += 1
    for prime in PRIMES:
        total = total * prime + prime
    return total


def test_integers_behave_as_in_python() -> None:
    """Python's integers and the machine's agree where nothing is larger than a word."""
    pairs: list[tuple[Any, Any, Any, list[tuple[int, ...]]]] = []
    random.seed(0)
    words = [(random.getrandbits(40) + 2**41, random.getrandbits(30)) for _ in range(50)]
    pairs.append((arithmetic, WORD, (WORD, WORD), words))
    pairs.append((loops, WORD, (WORD,), [(n,) for n in range(9)]))
    pairs.append((first_multiple, WORD, (WORD, WORD), [(1, 6), (12, 6), (13, 10), (7, 14)]))
    signed = [(random.randrange(-3000, 3000), random.randrange(-3000, 3000)) for _ in range(200)]
    pairs.append((signs, SIGNED, (SIGNED, SIGNED), [*signed, (5, 9), (-1000, 0), (-999, 0), (2**31, 2**32 + 1)]))
    for function, result, arguments, cases in pairs:
        run = compiled(function, result, *arguments)
        for case in cases:
            assert run(*case) == function(*case), (function.name, case)


class Point(Structure):
    x: i32
    flag: boolean
    y: u64
    next: Address
    name: Array[u8] = field(inline=(u8, 5))
    count: Atomic[u64] = field(line=True)
    visit: Callable[[Address, i64], None]
    late: i32 = field(at=2 * LINE)


def test_fields_lie_where_c_puts_them() -> None:
    offsets = {name: offset for name, (offset, _) in Point.layout.items()}
    assert offsets == {"x": 0, "flag": 4, "y": 8, "next": 16, "name": 24, "count": 128, "visit": 136, "late": 256}
    assert Point.byte_size == 264


@native()
def change(point: Point, words: Array[u64]) -> u64:
    point.x = -5 - point.x
    point.flag = not point.flag
    point.y += words[1]
    point.name[4] = point.name[0] + 1
    words[2] = point.count.add(10, SEQ_CST)
    words[3] = point.count.exchange(3, ACQ_REL)
    words[4] = point.count.compare_exchange(3, 99, ACQ_REL, MONOTONIC)
    words[5] = point.count.compare_exchange(3, 77, ACQ_REL, MONOTONIC)
    words[6] = point.count.subtract(1, MONOTONIC)
    point.late = point.x
    other = to(Point, point.next)
    if point.next != null and address_of(other) != address_of(point):
        other.x = 1
    local = stack(2)
    local[1] = load(u64, address_of(words))
    copy_memory(address_of(words.at(7)), address_of(local.at(1)), 8)
    store(u32, address_of(words.at(8)), 0xFFFFFFFF)
    return elements(u64, point.next).at(1)[0]


def memory_after(run: Callable[[int, int], int]) -> tuple[int, bytes, bytes]:
    memory = ctypes.create_string_buffer(2 * Point.byte_size)
    words = (ctypes.c_uint64 * 9)(*range(100, 109))
    start = ctypes.addressof(memory)
    point = Point(start)
    point.x, point.y, point.next = 7, 2**63, start + Point.byte_size
    point.count.store(1, SEQ_CST)
    point.name[0] = 255
    result = run(start, ctypes.addressof(words))
    point.next = 0  # an address, which differs
    return result, memory.raw, bytes(words)


def test_memory_is_changed_as_under_python() -> None:
    def under_python(start: int, words: int) -> int:
        with python_stack():
            return change(Point(start), elements(u64, words))

    result, memory, words = memory_after(under_python)
    assert (result, memory, words) == memory_after(compiled(change, WORD, WORD, WORD))
    point = ctypes.create_string_buffer(memory)
    assert Point(ctypes.addressof(point)).count.load(SEQ_CST) == 98 and Point(ctypes.addressof(point)).x == -12


class Held(Structure):
    sum: u64


HELD = static(Held, "native_test_held")
SQUARES = Table("native_test_squares", (n * n for n in range(10)))
absolute = external("labs", i64, i64)


@native()
def calls(point: Point, n: i64) -> u64:
    HELD.sum += SQUARES[3] + SQUARES.at(4)[1]
    for i in range(n):
        point.visit(point.next, i)
    return u64(absolute(-n)) + HELD.sum + helper(2)


@native(inline=True)
def helper(n: u64) -> u64:
    return n * 1000


def test_calls_of_pointers_of_c_and_of_what_native_code_holds() -> None:
    visited: list[tuple[int, int]] = []
    visit = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int64)(lambda *given: visited.append(given))
    memory = ctypes.create_string_buffer(Point.byte_size)
    point = Point(ctypes.addressof(memory))
    point.next = 17
    ctypes.c_uint64.from_address(point.address + Point.layout["visit"][0]).value = (
        ctypes.cast(visit, ctypes.c_void_p).value or 0
    )
    run = compiled(calls, WORD, WORD, SIGNED)
    assert [run(point.address, 3), run(point.address, 3)] == [3 + 34 + 2000, 3 + 68 + 2000]
    assert calls(point, 3) == 3 + 34 + 2000  # Python has memory of its own
    assert visited == [(17, 0), (17, 1), (17, 2)] * 3
    assert "alwaysinline" in native_module([calls]).text()


@native()
def mixes(a: u64, b: i64) -> u64:
    c = a + 1
    return c + b


@native()
def number_as_condition(a: u64) -> u64:
    if a:
        return 1
    return 0


@native()
def no_such_field(point: Point) -> u64:
    return point.z


@native()
def no_result(a: u64) -> u64:
    if a == 1:
        return 2


@native()
def signed_division(a: i64) -> i64:
    return a // 2


@native()
def unknown_name(a: u64) -> u64:
    return a + nowhere  # noqa: F821


@native()
def other_syntax(a: u64) -> u64:
    with open("x"):
        return a


@native()
def broken_off(a: u64) -> u64:
    for prime in PRIMES:
        if a == prime:
            break
    return a


@native()
def first_multiple(a: u64, b: u64) -> u64:
    while True:
        if a % b == 0:
            return a
        while True:
            a += 1
            if a % 2 == 0:
                break


@native()
def stranger(a: u64) -> u64:
    return len(str(a))


@native()
def assigned(point: Point) -> None:
    point.count = 3


@pytest.mark.parametrize(
    ("function", "message", "line"),
    [
        (mixes, "expected u64, got i64: convert it, as in u64", "return c + b"),
        (number_as_condition, "a condition is a comparison, this is u64", "if a:"),
        (no_such_field, "Point has no field z; it has: x, flag, y, next", "return point.z"),
        (no_result, "the function ends without a result", ""),
        (signed_division, "// and % are for unsigned integers", "return a // 2"),
        (unknown_name, "there is no nowhere here", "return a + nowhere"),
        (other_syntax, "native Python has no With", 'with open("x"):'),
        (broken_off, "an unrolled loop has no break", "break"),
        (stranger, "'str' is no native function", "return len(str(a))"),
        (assigned, "an atomic is changed by its methods", "point.count = 3"),
    ],
)
def test_errors_stand_at_the_users_line(function: Any, message: str, line: str) -> None:
    with pytest.raises(NativeError) as error:
        native_module([function]).text()
    assert message in str(error.value) and function.name in str(error.value)
    assert line in str(error.value) and "test_native.py:" in str(error.value)


# Native functions of hloom, run in the Python interpreter


def test_sizes_of_the_memory_pool_are_rounded_up_by_less_than_a_fifth() -> None:
    for size in [1, 2**16, 2**16 + 1, *(random.Random(0).getrandbits(k) for k in range(17, 50) for _ in range(20))]:
        rounded = memory_pool.rounded(size)
        assert rounded >= max(size, memory_pool.SMALLEST)
        assert size < memory_pool.SMALLEST or rounded - size <= size / 4
        number = memory_pool.list_of(size)
        assert memory_pool.size_of_list(number) == rounded and number < memory_pool.CLASSES
        assert memory_pool.rounded(rounded) == rounded and memory_pool.list_of(rounded) == number


def pool_without_workers() -> tuple[thread_pool.Pool, Any]:
    """A pool in memory, which must live as long."""
    memory = ctypes.create_string_buffer(thread_pool.SHARES + thread_pool.LINE)
    pool = thread_pool.Pool(ctypes.addressof(memory))
    pool.threads, pool.shares = 1, pool.address + thread_pool.SHARES
    return pool, memory


class Noting:
    """A task that Python calls and whose address memory can hold: it notes the chunks that it runs."""

    def __init__(self) -> None:
        self.chunks: list[int] = []
        self.native = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int64)(self)
        self.address = ctypes.cast(self.native, ctypes.c_void_p).value

    def __call__(self, context: int, chunk: int) -> None:
        self.chunks.append(chunk)


def test_a_loop_of_the_thread_pool_without_workers_runs_each_chunk_once() -> None:
    (pool, _memory), task = pool_without_workers(), Noting()
    for _ in range(3):
        thread_pool.parallel_for(pool, task, 0, 5)
    assert task.chunks == [0, 1, 2, 3, 4] * 3
    state = pool.state.load(SEQ_CST)
    assert state >> 32 == 3 and state & (thread_pool.OPEN | thread_pool.ACTIVE) == 0
    assert pool.busy.exchange(1, SEQ_CST) == 0  # which makes the next caller run alone
    thread_pool.parallel_for(pool, task, 0, 2)
    assert task.chunks[15:] == [0, 1] and pool.state.load(SEQ_CST) == state


def test_a_late_worker_does_not_enter_a_closed_loop() -> None:
    (pool, _memory), task = pool_without_workers(), Noting()
    pool.function, pool.chunks = task, 2
    pool.state.add(thread_pool.FORK, SEQ_CST)
    seen = pool.state.load(SEQ_CST)
    pool.state.subtract(thread_pool.OPEN, SEQ_CST)
    thread_pool.enter(pool, 0, seen)
    assert pool.state.load(SEQ_CST) == 1 << 32 and not task.chunks
    # A worker that arrives in the next generation with the previous state enters that generation, and leaves it.
    pool.state.add(thread_pool.FORK, SEQ_CST)
    thread_pool.enter(pool, 0, seen)
    assert pool.state.load(SEQ_CST) == (2 << 32) + thread_pool.OPEN and task.chunks == [0, 1]
