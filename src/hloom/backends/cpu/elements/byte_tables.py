"""Functions of a byte or of half a byte, to floats, looked up in registers. The instructions are those of AVX512-VBMI.

Of floats with at most 8 significant bits, two bytes matter, each from a table of its own: 64 bytes at a time take less
than two instructions for a vector of 16, where decoding by arithmetic takes ten and more. Codes of 4 bits, in bytes or
in halves of bytes, select one of 16 floats, which may be computed at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant, type_of, vector_constant, zero

LANES = 64
"""Bytes that are looked up together."""
CODES = 16
"""Codes of 4 bits, which are looked up together."""
ORDER_OF_HALVES = tuple(8 * (lane % 2) + lane // 2 for lane in range(CODES))
"""The half of a byte in each lane: those of the first four bytes are in even lanes, those of the next in odd ones."""
_BYTES = type_of("i8", LANES)
_WORDS = type_of("i16", LANES // 2)

Table = np.ndarray[Any, Any]
"""Bits of f32 by code: u32 of 16 or 256."""


def has_byte_tables() -> bool:
    """Whether the processor has the instructions."""
    return processor().architecture == "x86_64" and processor().has("avx512vbmi")


def can_look_up(table: Table) -> bool:
    """Whether only two bytes of the floats matter."""
    return not (table & 0xFFFF).any()


def look_up(b: Builder, codes: Value, table: Table) -> Value:
    """Returns the floats of 64 codes (i8) in a table of 256."""
    codes = b.shuffle(codes, None, order_of_lanes(LANES))
    is_odd = bool((table[128:] == table[:128] ^ (1 << 31)).all())
    low, high = (_bytes_of(b, codes, (table >> shift).astype(np.uint8), is_odd) for shift in (16, 24))
    if is_odd:
        high = b.binary("or", high, b.binary("and", codes, constant(_BYTES, 0x80)))
    return floats_of_bytes(b, low, high)


def order_of_lanes(bytes: int) -> list[int]:
    """Returns which of the bytes to put into each 16, so that `floats_of_bytes` has the floats in order."""
    parts, lanes = range(4), range(bytes // 16)
    return [4 * (len(lanes) * part + lane) + i for lane in lanes for part in parts for i in range(4)]


def floats_of_bytes(b: Builder, low: Value, high: Value) -> Value:
    """Returns the floats whose upper two bytes are given, in `order_of_lanes`."""
    bytes = low.type.width
    words, nothing = type_of("i16", bytes // 2), zero(type_of("i16", bytes // 2))
    halves = [b.shuffle(low, high, _interleaved(bytes, half, 1)) for half in range(2)]
    quarters = []
    for half in halves:
        half = b.bitcast(half, words)
        quarters += [b.shuffle(nothing, half, _interleaved(bytes, part, 2)) for part in range(2)]
    return b.concatenated([b.bitcast(quarter, type_of("float", bytes // 4)) for quarter in quarters])


def _interleaved(bytes: int, part: int, size: int) -> list[int]:
    """Returns the lanes of the instructions that interleave the low or high halves of each 16 bytes."""
    count, lanes = bytes // size, 16 // size
    return [base + part * lanes // 2 + k // 2 + k % 2 * count for base in range(0, count, lanes) for k in range(lanes)]


def _bytes_of(b: Builder, codes: Value, table: Table, without_sign: bool) -> Value:
    """Returns an entry of a table of bytes for each code, of which the highest bit may not count."""
    halves = []
    for half in (table[:128],) if without_sign else (table[:128], table[128:]):
        first, second = (vector_constant("i8", part.tolist()) for part in (half[:LANES], half[LANES:]))
        halves.append(b.call("llvm.x86.avx512.vpermi2var.qi.512", _BYTES, first, codes, second))
    return halves[0] if without_sign else b.select(b.compare("slt", codes, constant(_BYTES, 0)), halves[1], halves[0])


def table_of_codes(b: Builder, table: Table) -> Value:
    """Returns the floats of a table of 16 as a vector."""
    return b.bitcast(vector_constant("i32", table.tolist()), type_of("float", CODES))


def words_of_codes(table: Table) -> Value:
    """Returns the bf16 (i16) of a table of 16 as a vector, twice."""
    return vector_constant("i16", [*(table >> 16).tolist()] * 2)


def halves_of_bytes(b: Builder, packed: Value, is_swapped: bool) -> Value:
    """Returns the 16 halves of bytes in a word (i64) as the lowest bits of 16 lanes, in `ORDER_OF_HALVES`.

    Of each byte the low half is the first one, unless swapped.
    """
    words = b.bitcast(b.splat(packed, CODES // 2), type_of("i32", CODES))
    return b.binary("lshr", words, vector_constant("i32", [4 * (half % 8 ^ is_swapped) for half in ORDER_OF_HALVES]))


def order_of_halves(bytes: int) -> list[int]:
    """Returns the halves of 16, 32 or 64 bytes in the lanes of 32 words each: of the four in 16 bits, the first of all,
    then the second, and so on.
    """
    words = bytes // 2
    return [4 * (lane % words) + lane // words for lane in range(2 * bytes)]


def look_up_halves(b: Builder, packed: Value, table: Value, is_swapped: bool) -> list[Value]:
    """Returns the bf16 (i16) of the halves of 16, 32 or 64 bytes (i8) in a table of 16, twice, in vectors of
    `order_of_halves`: `vpermw` ignores all but 5 bits.

    Of each byte the low half is the first one, unless swapped.
    """
    bytes, lanes = packed.type.width, LANES // 2
    halves = [half % 4 ^ is_swapped for half in order_of_halves(bytes)]
    words = b.bitcast(packed, type_of("i16", bytes // 2))
    words = words if bytes == LANES else b.shuffle(words, None, [lane % (bytes // 2) for lane in range(lanes)])
    codes = [
        b.binary("lshr", words, vector_constant("i16", [4 * half for half in halves[first : first + lanes]]))
        for first in range(0, len(halves), lanes)
    ]
    return [b.call("llvm.x86.avx512.permvar.hi.512", _WORDS, table, each) for each in codes]


def look_up_pairs(b: Builder, first: Value, second: Value, table: Value, is_swapped: bool) -> list[Value]:
    """Returns the bf16 of the halves of two vectors of 32 bytes (i8) in a table of 16, twice, as words (i32) of both.
    Half 16 k + 4 i + j has lane 4 i + k of vector j, so that squares of lanes are transposed.

    Of each byte the low half is the first one, unless swapped.
    """
    halves = [4 * (lane // 2 % 4) + lane // 8 + lane % 2 * CODES for lane in range(2 * CODES)]
    pairs = b.shuffle(b.bitcast(b.joined(first, second), _WORDS), None, halves)
    found = []
    for half in range(4):
        codes = b.binary("lshr", pairs, constant(_WORDS, 4 * (half ^ is_swapped)))
        words = b.call("llvm.x86.avx512.permvar.hi.512", _WORDS, table, codes)
        found.append(b.bitcast(words, type_of("i32", CODES)))
    return found


def codes_of_pairs(b: Builder, first: Value, second: Value, is_swapped: bool) -> list[Value]:
    """Returns the halves of two vectors of 32 bytes (i8) as the lowest bits of words (i32): in two vectors, one after
    the other, those of both that `look_up_pairs` has in the words of one.

    Of each byte the low half is the first one, unless swapped.
    """
    codes = b.bitcast(b.joined(first, second), _WORDS)
    orders = [[_quad(start + lane // 2) + lane % 2 * CODES for lane in range(CODES)] for start in (0, CODES // 2)]
    words = [b.shuffle(codes, None, [each for lane in order for each in (lane, lane)]) for order in orders]
    words = [b.bitcast(each, type_of("i32", CODES)) for each in words]
    shifts = [constant(words[0].type, 4 * (half ^ is_swapped)) for half in range(4)]
    return [b.binary("lshr", each, shift) for shift in shifts for each in words]


def lanes_of_pairs(number: int) -> list[int]:
    """Returns of which of 64 halves a vector of `codes_of_pairs` has the codes."""
    first = number % 2 * CODES // 2
    return [4 * _quad(first + lane // 2) + number // 2 for lane in range(CODES)]


def _quad(lane: int) -> int:
    """Returns which of the words of 16 bits has the codes of a lane of `look_up_pairs`."""
    return lane % 4 * 4 + lane // 4


def look_up_bytes(b: Builder, packed: Value, table: Value, halves: Sequence[int]) -> list[Value]:
    """Returns the bytes of the codes in 64 bytes (i8) in a table of 64, which has the same 16 four times: of the low
    (0) or high (1) halves of bytes. `vpermb` ignores all but 6 bits.
    """
    found = []
    for half in halves:
        codes = b.binary("lshr", b.bitcast(packed, _WORDS), constant(_WORDS, 4)) if half else packed
        found.append(b.call("llvm.x86.avx512.permvar.qi.512", _BYTES, table, b.bitcast(codes, _BYTES)))
    return found


def look_up_codes(b: Builder, codes: Value, table: Value) -> Value:
    """Returns the floats of 16 codes (i32), of which the lowest 4 bits count: `vpermps` ignores the others."""
    return b.call("llvm.x86.avx512.permvar.sf.512", table.type, table, codes)
