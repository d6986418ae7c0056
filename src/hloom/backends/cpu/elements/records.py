"""Vectors of records of 3 or 4 words: the first words of some records, their second words, and so on.

Shuffles stay within blocks of 16 bytes, which takes one instruction each on AVX and SSE. LLVM would take long to find
shuffles for the whole vector of records, and finds more.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import I64, Builder, Type, Value, constant, type_of
from hloom.target import MASK_REGISTERS_BYTES

BLOCK = 4
"""The number of words of 16 bytes."""


def has_blocks(b: Builder, type: Type, stride: int) -> bool:
    """Whether vectors of a type, of whole registers, are those of records of `stride` words and taken apart by blocks.

    AVX-512 permutes the words of two registers at once, and AArch64 has loads and stores of records.
    """
    has_shuffles = processor().architecture == "x86_64" and b.register_bytes < MASK_REGISTERS_BYTES
    return has_shuffles and type.bits == 32 and stride in (3, 4) and type.byte_size % b.register_bytes == 0


def load_records(b: Builder, pointer: Value, type: Type, stride: int) -> list[Value]:
    """Loads as many records of `stride` elements as a type has lanes; returns a vector for each position in them."""
    block = type_of(type.element, BLOCK)
    blocks = [
        b.load(b.element_pointer(pointer, constant(I64, first), type.element), block, type.bits // 8)
        for first in range(0, type.width * stride, BLOCK)
    ]
    rows = [b.concatenated(blocks[k::stride]) for k in range(stride)]
    return transpose_squares(b, rows) if stride == BLOCK else _thirds(b, rows)


def _thirds(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Takes apart blocks x0 y0 z0 x1, y1 z1 x2 y2, z2 x3 y3 z3."""
    xyzx, yzxy, zxyz = rows
    xy, yz = _in_blocks(b, yzxy, zxyz, (2, 3, 5, 6)), _in_blocks(b, xyzx, yzxy, (1, 2, 4, 5))
    x, y = _in_blocks(b, xyzx, xy, (0, 3, 4, 6)), _in_blocks(b, yz, xy, (0, 2, 5, 7))
    return [x, y, _in_blocks(b, yz, zxyz, (1, 3, 4, 7))]


def store_records(b: Builder, pointer: Value, values: Sequence[Value]) -> None:
    """Stores records whose elements are the lanes of 3 or 4 vectors."""
    type, stride = values[0].type, len(values)
    rows = transpose_squares(b, values) if stride == BLOCK else _of_thirds(b, values)
    blocks = [(rows[k % stride], k // stride * BLOCK) for k in range(type.width * stride // BLOCK)]
    step = b.register_bytes // 16
    for first in range(0, len(blocks), step):
        parts = [b.shuffle(row, None, range(lane, lane + BLOCK)) for row, lane in blocks[first : first + step]]
        address = b.element_pointer(pointer, constant(I64, first * BLOCK), type.element)
        b.store(b.concatenated(parts), address, type.bits // 8)


def _of_thirds(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Puts together blocks x0 y0 z0 x1, y1 z1 x2 y2, z2 x3 y3 z3."""
    x, y, z = values
    xy, yz, zx = (
        _in_blocks(b, x, y, (0, 2, 4, 6)), _in_blocks(b, y, z, (1, 3, 5, 7)), _in_blocks(b, z, x, (0, 2, 5, 7))
    )  # fmt: skip
    first, second = _in_blocks(b, xy, zx, (0, 2, 4, 6)), _in_blocks(b, yz, xy, (0, 2, 5, 7))
    return [first, second, _in_blocks(b, zx, yz, (1, 3, 5, 7))]


def _in_blocks(b: Builder, low: Value, high: Value, lanes: Sequence[int]) -> Value:
    """Shuffles each block of two vectors: lanes from 4 on are those of the second one."""
    width = low.type.width
    order = [lane % BLOCK + lane // BLOCK * width for lane in lanes]
    return b.shuffle(low, high, [first + lane for first in range(0, width, BLOCK) for lane in order])
