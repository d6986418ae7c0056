"""Large constants of a library: one block of memory for all functions, in an object file or in a file of its own."""

from __future__ import annotations

import hashlib

from hloom.lir import Global
from hloom.system.records import record
from hloom.target import CACHE_LINE, align_up

MAX_TEXT = 4096
"""Bytes of a constant up to which it is text of its function's LLVM module, where LLVM can use its value."""


class ConstantBlock:
    """A checksum, then constants at multiples of 64 bytes; functions that have a constant in common share it."""

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self.size = CACHE_LINE

    def offset_of(self, constant: bytes) -> int:
        """Returns the offset in bytes of a constant, which is added if it is new."""
        if constant not in self._offsets:
            self._offsets[constant] = self.size
            self.size += align_up(len(constant), CACHE_LINE)
        return self._offsets[constant]

    def __bool__(self) -> bool:
        return bool(self._offsets)

    @property
    def content(self) -> bytes:
        """The bytes of the block."""
        rest = b"".join(each + bytes(-len(each) % CACHE_LINE) for each in self._offsets)
        checksum = hashlib.sha256(rest).digest()
        return checksum + bytes(CACHE_LINE - len(checksum)) + rest

    @property
    def checksum(self) -> bytes:
        """The first 32 bytes."""
        return self.content[:32]

    def definition(self, name: str) -> str:
        """Returns the block as text of an LLVM module, with zeros behind the checksum: text of megabytes takes
        seconds."""
        rest = self.size - 32
        content = f'[32 x i8] c"\\{self.checksum.hex(chr(92))}", [{rest} x i8] zeroinitializer'
        return f"@{name} = hidden constant <{{ [32 x i8], [{rest} x i8] }}> <{{ {content} }}>, align {CACHE_LINE}\n"

    def written_into(self, object_file: bytes) -> bytes:
        """Returns the object file of `definition` with the constants."""
        before, after = object_file.split(self.checksum)
        return before + self.content + after[self.size - 32 :]


@record(slots=True, eq=False)
class ExternalBlock(Global):
    """The block of constants as functions refer to it."""

    def text(self, pointer_bytes: int = 8) -> str:
        return f"@{self.name} = external hidden constant i8, align {self.align}"
