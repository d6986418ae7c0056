"""Transposition of squares of elements in vector registers, by shuffles of two registers."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.lir import Builder, Value


def transpose(b: Builder, rows: Sequence[Value], span: int = 1, nearest_first: bool = False) -> list[Value]:
    """Transposes each square of as many vectors as it has items of `span` lanes, a power of two.

    Each step exchanges one bit of the index of the row with that of the item: the highest one first, or with
    `nearest_first` the lowest one, which stays within 16 bytes.
    """
    count, width, rows = len(rows), rows[0].type.width, list(rows)
    squares = range(0, width, count * span)
    bits = [1 << k for k in range(count.bit_length() - 1)]
    for step, bit in enumerate(bits if nearest_first else reversed(bits)):
        rows = _fenced(b, rows, step)
        low = [item * span if not item & bit else width + (item ^ bit) * span for item in range(count)]
        high = [(item | bit) * span if not item & bit else width + item * span for item in range(count)]
        masks = [
            [square + item + k for square in squares for item in items for k in range(span)] for items in (low, high)
        ]
        for k in range(count):
            if not k & bit:
                rows[k], rows[k | bit] = (b.shuffle(rows[k], rows[k | bit], mask) for mask in masks)
    return rows


def transpose_squares(b: Builder, rows: Sequence[Value]) -> list[Value]:
    """Transposes each square of len(rows) lanes: rows i and i + half are interleaved, log2(len(rows)) times.

    Squares of 16 bytes take one instruction for each shuffle.
    """
    size, half, width = len(rows), len(rows) // 2, rows[0].type.width
    squares = range(0, width, size)
    low = [square + lane // 2 + lane % 2 * width for square in squares for lane in range(size)]
    high = [lane + half for lane in low]
    rows = list(rows)
    for step in range(half.bit_length()):
        rows = _fenced(b, rows, step)
        pairs = [(rows[i], rows[i + half]) for i in range(half)]
        rows = [b.shuffle(a, c, lanes) for a, c in pairs for lanes in (low, high)]
    return rows


def _fenced(b: Builder, rows: list[Value], step: int) -> list[Value]:
    """Ends the chains of shuffles in the rows after every second step.

    LLVM looks for ways to combine shuffles of shuffles, which takes it longer than all its other work, and finds none
    beyond two steps.
    """
    return [b.fence(row) for row in rows] if step and step % 2 == 0 else rows
