"""Functions of codes of 4 or 8 bits, to floats, looked up in tables of 16 bytes: by `pshufb`, in each 16 of a vector.

Processors without AVX512-VBMI have it. A code of 8 bits is looked up by its halves, or is the upper byte of an f16. As
with AVX512-VBMI, two bytes of floats with at most 8 significant bits matter.
"""

from __future__ import annotations

import numpy as np

from hloom.backends.cpu.elements.byte_tables import (
    CODES,
    Table,
    can_look_up,
    floats_of_bytes,
    has_byte_tables,
    order_of_lanes,
)
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant, type_of, vector_constant

_LOOK_UPS = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b"}
"""The instructions, by the bytes of a vector."""
_NOTHING = 0x80
"""The index of zero in any table."""


def codes_of_vector(table: Table) -> int:
    """Returns how many codes are looked up in a table, or decoded as f16, together: those in the bytes of a vector; 0
    if the processor has no instruction, or a better one.
    """
    bytes = processor().vector_bytes
    if processor().architecture != "x86_64" or bytes not in _LOOK_UPS or has_byte_tables() or not can_look_up(table):
        return 0
    return bytes if len(table) == CODES or processor().converts_f16 else 0


def look_up_bytes_in_lanes(b: Builder, codes: Value, table: Table) -> Value:
    """Returns the floats of the codes in the low halves of bytes."""
    low_halves = b.binary("and", codes, constant(codes.type, 0xF))
    return _floats_of(b, b.shuffle(low_halves, None, order_of_lanes(codes.type.width)), table)


def look_up_halves_in_lanes(b: Builder, packed: Value, table: Table, is_swapped: bool) -> Value:
    """Returns the floats of the codes in the halves of bytes, of which the low half is the first one unless swapped."""
    bytes, codes = packed.type.width, 2 * packed.type.width
    everywhere = b.shuffle(packed, None, [lane % bytes for lane in range(codes)])
    sources = [each for code in order_of_lanes(codes)[::2] for each in (code // 2, _NOTHING)]
    words = b.bitcast(_looked_up(b, everywhere, vector_constant("i8", sources)), type_of("i16", bytes))
    shifts = [("lshr", 4), ("shl", 8)] if is_swapped else [("shl", 4), ("lshr", 0)]
    first, second = (b.binary(opcode, words, constant(words.type, by)) if by else words for opcode, by in shifts)
    halves = b.binary("and", b.binary("or", first, second), constant(words.type, 0x0F0F))
    return _floats_of(b, b.bitcast(halves, everywhere.type), table)


def look_up_eight_bits(b: Builder, codes: Value, table: Table) -> Value | None:
    """Returns the floats of codes of 8 bits, of which NaN may have other codes; None if that is not fast."""
    if _are_equal(table, (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)):
        words = b.convert("zext", codes, "i16")
        words = b.binary("shl", words, constant(words.type, 8))
        return b.convert("fpext", b.bitcast(words, words.type.of("half")), "float")
    return _look_up_by_halves(b, codes, table) if _has_tables_of_halves(table) else None


def _are_equal(table: Table, floats: Table) -> bool:
    """Whether a table has floats, with any NaN for NaN."""
    own = table.view(np.float32)
    return np.array_equal(own, floats, equal_nan=True) and bool((np.signbit(own) == np.signbit(floats)).all())


def _has_tables_of_halves(table: Table) -> bool:
    """Whether the floats of a table of 256 are found by the halves of their codes: `_look_up_by_halves`."""
    codes = np.arange(256)
    upper, small, lower = (part.astype(np.uint32) for part in _tables_of_halves(table))
    is_small = codes & 0x70 == 0
    high = upper[codes >> 4] | np.where(is_small, small[codes & 15], 0) | np.where(codes & 0x7F == 0x7F, 0x7F, 0)
    low = (codes << 4 & 0xF0) ^ np.where(is_small, lower[codes & 15], 0)
    return _are_equal(table, (high << 24 | low << 16).astype(np.uint32).view(np.float32))


def _look_up_by_halves(b: Builder, codes: Value, table: Table) -> Value:
    """Returns the floats of codes of 8 bits whose high half has the sign and all of the exponent but its last bit.

    That bit and the mantissa are as in the float, but for the smallest codes, some of which are those of subnormal
    numbers; the largest code is NaN.
    """
    codes = b.shuffle(codes, None, order_of_lanes(codes.type.width))
    bytes, words = codes.type, type_of("i16", codes.type.width // 2)

    def shifted(opcode: str, mask: int) -> Value:
        moved = b.binary(opcode, b.bitcast(codes, words), constant(words, 4))
        return b.binary("and", b.bitcast(moved, bytes), constant(bytes, mask))

    upper, small, lower = (vector_constant("i8", t.tolist() * (bytes.width // 16)) for t in _tables_of_halves(table))
    magnitude = b.binary("and", codes, constant(bytes, 0x7F))
    if_small = b.binary("add", magnitude, constant(bytes, 0x70))  # for others, an index of zero
    is_nan = b.convert("sext", b.compare("eq", magnitude, constant(bytes, 0x7F)), "i8")
    high = b.binary("or", _looked_up(b, upper, shifted("lshr", 0xF)), _looked_up(b, small, if_small))
    high = b.binary("or", high, b.binary("and", is_nan, constant(bytes, 0x7F)))
    return floats_of_bytes(b, b.binary("xor", shifted("shl", 0xF0), _looked_up(b, lower, if_small)), high)


def _tables_of_halves(table: Table) -> tuple[Table, Table, Table]:
    """Returns the upper bytes by the high half of a code, and of the smallest ones by the low half; and how the lower
    bytes of these differ from their codes.
    """
    halves = np.arange(16)
    upper = np.where(halves & 7, table[16 * halves + 1] >> 24, halves << 4 & 0x80)
    return upper, table[:16] >> 24, (table[:16] >> 16 & 0xFF) ^ halves << 4


def _floats_of(b: Builder, codes: Value, table: Table) -> Value:
    tables = ((table >> shift).astype(np.uint8).tolist() * (codes.type.width // 16) for shift in (16, 24))
    low, high = (_looked_up(b, vector_constant("i8", each), codes) for each in tables)
    return floats_of_bytes(b, low, high)


def _looked_up(b: Builder, table: Value, indices: Value) -> Value:
    """Returns the bytes at some indices in each 16 bytes of a table."""
    return b.call(_LOOK_UPS[table.type.width], table.type, table, indices)
