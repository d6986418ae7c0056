"""Codes of 4 bits times a few rows of bytes: codes are looked up as bytes where they are read.

Instructions multiply words of four bytes and add all products to a sum of 32 bits, modulo 2^32 as the sums themselves.
Where two codes are in a byte, the first ones of 64 bytes are in a vector, and the second ones in another: packed rows
have this order, too.

Vectors multiply unsigned bytes by signed ones. Codes that are less than zero are larger by an offset if rows are
signed, and that offset times the sums of the rows is subtracted from the result.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.byte_tables import LANES
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.dot_instructions import DotInstruction, byte_instruction
from hloom.lir import IndexValue, Value, type_of
from hloom.system.records import record
from hloom.target import align_up
from hloom.types import PrimitiveType

S8, U8 = PrimitiveType.S8, PrimitiveType.U8
BYTES_OF_WORD = 4
WORD = type_of("i32", LANES // BYTES_OF_WORD)


@record
class ByteCodes:
    """The values of all codes, the halves of a byte that are codes, in order, the elements of K, and the type of the
    rows.
    """

    values: tuple[int, ...]
    halves: tuple[int, ...]
    k: int
    rows: PrimitiveType

    @property
    def type(self) -> PrimitiveType:
        """The type that has the values."""
        return S8 if min(self.values) < 0 else U8

    @property
    def offset(self) -> int:
        """The addend of values that vectors multiply."""
        return max(0, -min(self.values)) if self.rows is S8 else 0

    @property
    def instruction(self) -> DotInstruction | None:
        """The instruction that multiplies vectors of words; None if there is none."""
        return byte_instruction(U8, S8) if self.rows is S8 else byte_instruction(S8, U8)

    @property
    def block(self) -> int:
        """Elements of K that are looked up together."""
        return LANES * len(self.halves)

    @property
    def padded_k(self) -> int:
        """The elements of all blocks."""
        return align_up(self.k, self.block)

    def left(self, f: KernelFunction, at: IndexValue) -> IndexValue | None:
        """Returns the elements of K from one on; None if all blocks are whole."""
        return None if self.k == self.padded_k else f.subtract(self.k, at)

    def words_of_row(self, f: KernelFunction, row: Value, at: IndexValue) -> list[Value]:
        """Returns the words of a block of a row from an element on, those past the end as zeros."""
        left, count = self.left(f, at), len(self.halves)
        mask = None if left is None else f.first_lanes(left, self.block)
        loaded = f.load_masked(f.at(row, at, "i8"), type_of("i8", self.block), 1, mask)
        return [f.bitcast(f.shuffle(loaded, None, range(half, self.block, count)), WORD) for half in range(count)]


def byte_codes(operand: ComputedOperand, rows: PrimitiveType, k: int) -> ByteCodes | None:
    """Returns an operand as codes along K, for rows of bytes; None for other operands, and without the instruction."""
    if operand.coded is None or operand.table is None or operand.contiguous is not operand.contracted:
        return None
    function, values = operand.coded.function, tuple(map(int, operand.table))
    halves = (0,) if function.half is None else (1, 0) if function.is_swapped else (0, 1)
    codes = ByteCodes(values, halves, k, rows)
    return None if codes.instruction is None or (rows is U8 and max(values) > 127) else codes
