"""The wire format of protocol buffers: fields of a serialised message, without its schema."""

from __future__ import annotations

from collections.abc import Iterator

from hloom.errors import ProtoError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types: variable-length integers, 8 bytes, bytes with their number before them, 4 bytes."""
_SIZES = {FIXED64: 8, FIXED32: 4}


def fields_of(message: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yields the number, the wire type and the content of each field; integers of variable length are left out.

    Raises ProtoError where the message is damaged.
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == VARINT:
            _, position = _varint(message, position)
            continue
        if kind == BYTES:
            size, position = _varint(message, position)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ProtoError(f"a message has a field of wire type {kind}")
        yield tag >> 3, kind, message[position : position + size]
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for shift, byte in zip(range(0, 64, 7), message[position : position + 10], strict=False):
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position + shift // 7 + 1
    raise ProtoError("an integer in a message is cut off, or too long")
