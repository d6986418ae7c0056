"""Functions of codes of 4 bits, to floats, looked up in tables of 16 bytes: by `pshufb`, in each 16 bytes of a vector.

Processors without AVX512-VBMI have it. As there, two bytes of floats with at most 8 significant bits matter.
"""

from __future__ import annotations

import numpy as np

from hloom.backends.cpu.elements.byte_tables import Table, can_look_up, floats_of_bytes, has_byte_tables, order_of_lanes
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Builder, Value, constant, type_of, vector_constant

_LOOK_UPS = {16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b"}
"""The instructions, by the bytes of a vector."""
_NOTHING = 0x80
"""The index of zero in any table."""


def codes_of_vector(table: Table) -> int:
    """Returns how many codes are looked up in a table together, those in the bytes of a vector; 0 if the processor has
    no instruction, or a better one.
    """
    bytes = processor().vector_bytes
    has_instruction = processor().architecture == "x86_64" and bytes in _LOOK_UPS and not has_byte_tables()
    return bytes if has_instruction and len(table) == 16 and can_look_up(table) else 0


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


def _floats_of(b: Builder, codes: Value, table: Table) -> Value:
    tables = ((table >> shift).astype(np.uint8).tolist() * (codes.type.width // 16) for shift in (16, 24))
    low, high = (_looked_up(b, vector_constant("i8", each), codes) for each in tables)
    return floats_of_bytes(b, low, high)


def _looked_up(b: Builder, table: Value, indices: Value) -> Value:
    """Returns the bytes at some indices in each 16 bytes of a table."""
    return b.call(_LOOK_UPS[table.type.width], table.type, table, indices)
