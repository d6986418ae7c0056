"""Functions of a byte or of half a byte, to floats, looked up in registers. The instructions are those of AVX512-VBMI.

Of floats with at most 8 significant bits, two bytes matter, each from a table of its own: 64 bytes at a time take less
than two instructions for a vector of 16, where decoding by arithmetic takes ten and more. A half of a byte selects one
of 16 floats, which may be computed at run time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant, type_of, vector_constant, zero

LANES = 64
"""Bytes that are looked up together."""
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
    """Returns the floats of 64 codes (i8); of a table of 16, the low bits of codes count."""
    codes = b.shuffle(
        codes, None, [16 * part + 4 * lane + i for lane in range(4) for part in range(4) for i in range(4)]
    )
    is_odd = len(table) > LANES and bool((table[128:] == table[:128] ^ (1 << 31)).all())
    low, high = (_bytes_of(b, codes, (table >> shift).astype(np.uint8), is_odd) for shift in (16, 24))
    if is_odd:
        high = b.binary("or", high, b.binary("and", codes, constant(_BYTES, 0x80)))
    words = [b.shuffle(low, high, _interleaved(part, 1)) for part in range(2)]
    nothing = zero(_WORDS)
    quarters = []
    for half in words:
        half = b.bitcast(half, _WORDS)
        quarters += [
            b.bitcast(b.shuffle(nothing, half, _interleaved(part, 2)), type_of("float", 16)) for part in range(2)
        ]
    return b.joined(b.joined(quarters[0], quarters[1]), b.joined(quarters[2], quarters[3]))


def _interleaved(part: int, size: int) -> list[int]:
    """Returns the lanes of the instructions that interleave the low or high halves of each 16 bytes."""
    count, lanes = LANES // size, 16 // size
    return [base + part * lanes // 2 + k // 2 + k % 2 * count for base in range(0, count, lanes) for k in range(lanes)]


def _bytes_of(b: Builder, codes: Value, table: Table, without_sign: bool) -> Value:
    """Returns an entry of a table of bytes for each code, of which the highest bit may not count."""
    if len(table) <= LANES:
        whole = vector_constant("i8", np.resize(table, LANES).tolist())
        return b.call("llvm.x86.avx512.permvar.qi.512", _BYTES, whole, codes)
    halves = []
    for half in (table[:128],) if without_sign else (table[:128], table[128:]):
        first, second = (vector_constant("i8", part.tolist()) for part in (half[:LANES], half[LANES:]))
        halves.append(b.call("llvm.x86.avx512.vpermi2var.qi.512", _BYTES, first, codes, second))
    return halves[0] if without_sign else b.select(b.compare("slt", codes, constant(_BYTES, 0)), halves[1], halves[0])


def table_of_halves(b: Builder, table: Table) -> Value:
    """Returns the floats of a table of 16 as a vector."""
    return b.bitcast(vector_constant("i32", table.tolist()), type_of("float", len(table)))


def look_up_halves(b: Builder, packed: Value, table: Value, is_swapped: bool) -> Value:
    """Returns the floats of the 16 halves of bytes in a word (i64), of each byte the low half first, unless swapped.

    The lowest bits of each lane count, those of a half: `vpermps` ignores the others.
    """
    starts = vector_constant("i8", [4 * (lane // 4 ^ is_swapped) % 64 for lane in range(LANES)])
    words = b.bitcast(b.splat(packed, 8), _BYTES)
    halves = b.call("llvm.x86.avx512.pmultishift.qb.512", _BYTES, starts, words)
    return b.call("llvm.x86.avx512.permvar.sf.512", table.type, table, b.bitcast(halves, type_of("i32", 16)))
