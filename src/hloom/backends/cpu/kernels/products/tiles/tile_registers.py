"""Products in tile registers: AMX of x86-64, whose instructions multiply matrices.

A tile register has up to 16 rows of 64 bytes. An instruction multiplies a tile of A, whose rows have 16 words of K, by
one of B, with a row of 16 columns for each word of K, and adds the product to a tile of sums. The kernel keeps up to
three tiles of sums (tile_choice.py), and K is padded with zeros to whole tiles.

Products of bf16 are added in f32: those of 16 words from zero, in two chains, before their sum is added to the tile.
Subnormal numbers are taken for zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.distances import Distances, addresses_of_rows
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.packing.packing import UNITS_OF_A, PackedMatrix, Packing
from hloom.backends.cpu.kernels.products.product import Product
from hloom.backends.cpu.kernels.products.tiles.tile import Tile, TileStore, tile_function
from hloom.backends.cpu.llvm.processor import TILE_REGISTERS, processor
from hloom.lir import I8, Function, Global, IndexValue, Type, Value, constant, type_of
from hloom.system.records import record
from hloom.target import Target
from hloom.types import PrimitiveType

S8, U8, BF16 = PrimitiveType.S8, PrimitiveType.U8, PrimitiveType.BF16
WORDS, WORD_BYTES = 16, 4  # of K, in a row of a tile of A
MIN_ROWS, MIN_COLUMNS, MIN_WORDS = 8, 16, 16  # of a product that pays


@record
class TileInstruction:
    """An instruction that multiplies tiles of words with `count` elements each."""

    count: int
    name: str


_INSTRUCTIONS = {
    (BF16, BF16): ("amx-bf16", TileInstruction(2, "tdpbf16ps")),
    (S8, S8): ("amx-int8", TileInstruction(4, "tdpbssd")),
    (S8, U8): ("amx-int8", TileInstruction(4, "tdpbsud")),
    (U8, S8): ("amx-int8", TileInstruction(4, "tdpbusd")),
    (U8, U8): ("amx-int8", TileInstruction(4, "tdpbuud")),
}
"""Features of processors and their instructions, by the element types of A and B."""


def has_tile_instruction(a: PrimitiveType, b: PrimitiveType) -> bool:
    """Whether the processor multiplies tiles of these element types of A and B."""
    feature, _ = _INSTRUCTIONS.get((a, b), ("", None))
    return processor().has(TILE_REGISTERS) and processor().has(feature)


def instruction_of_types(a: PrimitiveType, b: PrimitiveType) -> TileInstruction:
    """Returns the instruction for these element types of A and B, if the processor has it."""
    return _INSTRUCTIONS[a, b][1]


def tile_instruction(p: Product, sums: Type, target: Target) -> TileInstruction | None:
    """Returns the instruction for a product with vectors of sums; None if there is none, or it does not pay."""
    _, instruction = _INSTRUCTIONS.get((p.a.type, p.b.type), ("", None))
    if instruction is None or not has_tile_instruction(p.a.type, p.b.type) or (sums.width, sums.bits) != (WORDS, 32):
        return None
    if sums.is_float and target.batch_invariant:
        return None  # other sizes have none
    is_large = p.m >= MIN_ROWS and p.n >= MIN_COLUMNS and p.k >= MIN_WORDS * instruction.count
    has_vectors = 1 in (p.a.row, p.a.column) and 1 in (p.b.row, p.b.column)
    return instruction if is_large and has_vectors else None


@record
class TileRegisters:
    """The numbers of the registers that hold the sums of a tile, a part of a panel of A, and a row of one of B."""

    tile: Tile

    @property
    def parts(self) -> int:
        """Registers along the rows of the tile."""
        return -(-self.tile.rows // WORDS)

    @property
    def rows(self) -> int:
        """Rows of a register of sums, and of one of A."""
        return self.tile.rows // self.parts

    def sums(self, part: int, vector: int) -> Value:
        """Returns the register of sums of a part of the rows and a vector of columns."""
        return constant(I8, part * self.tile.vectors + vector)

    @property
    def a(self) -> Value:
        """The register of a part of A's rows."""
        return constant(I8, self.parts * self.tile.vectors)

    def b(self, vector: int) -> Value:
        """Returns the register of a vector of B's columns."""
        return constant(I8, self.parts * self.tile.vectors + 1 + vector)

    def configure(self, f: KernelFunction, name: str) -> None:
        """Sets the sizes of the registers."""
        rows = [self.rows] * (self.parts * self.tile.vectors + 1) + [WORDS] * self.tile.vectors
        configure(f, name, [(count, WORDS * WORD_BYTES) for count in rows])


def configure(f: KernelFunction, name: str, sizes: Sequence[tuple[int, int]]) -> None:
    """Sets the sizes of the registers, rows and the bytes of a row, from a constant of a name."""
    content = bytearray(64)
    content[0] = 1
    content[16 : 16 + 2 * len(sizes)] = b"".join(size.to_bytes(2, "little") for _, size in sizes)
    content[48 : 48 + len(sizes)] = bytes(rows for rows, _ in sizes)
    f.call_void("llvm.x86.ldtilecfg", f.address_of(Global(name, bytes(content), align=64)))


def release(f: KernelFunction) -> None:
    """Clears the tile registers, so that the system need not save them."""
    f.call_void("llvm.x86.tilerelease")


@record
class TileKernel:
    """The shared function `(a, b, c, partial, steps, rows, columns, first, last, distances)`, as of a `MicroKernel`.

    It multiplies a panel of A, whose rows of words are `row_of_a` apart, by a packed panel of B, and stores the sums to
    the first `rows` and `columns` of `c`. With `has_partial_sums` it adds those in `partial`, and stores all there
    unless `last`. The registers are configured for the tile.
    """

    tile: Tile
    row_of_a: IndexValue
    c: Matrix
    instruction: TileInstruction
    has_partial_sums: bool
    has_ragged_rows: bool
    has_ragged_columns: bool
    distances_of_c: tuple[IndexValue, IndexValue] = (0, 0)

    def function(self) -> Function:
        """Returns the function."""
        return tile_function(self._name, self._write)

    @property
    def distances(self) -> Distances:
        """The distances of this product."""
        return Distances((self.row_of_a, self.c.row, self.c.column), (False, False, self.c.column == 1))

    @property
    def _name(self) -> str:
        flags = "has_partial_sums", "has_ragged_rows", "has_ragged_columns"
        words = [flag.removeprefix("has_") for flag in flags if getattr(self, flag)]
        tile = f"{self.tile.rows}x{self.tile.columns}"
        types = self.instruction.name, self.c.type.name.lower()
        return ".".join(["product", tile, *types, self.distances.kinds, *words])

    def _write(self, f: KernelFunction) -> None:
        row_of_a, row_of_c, column_of_c = self.distances.read(f, f["distances"])
        replace(self, row_of_a=row_of_a, distances_of_c=(row_of_c, column_of_c))._write_tile(f)

    def _write_tile(self, f: KernelFunction) -> None:
        self._set_sums(f)
        self._add_products(f)
        last = f["last"] if self.has_partial_sums else None
        ragged = self.has_ragged_rows, self.has_ragged_columns
        store = TileStore(self.tile, self.c, self.distances_of_c, *ragged, flushes=True)
        is_whole: Value | None = None
        if self.c.has_contiguous_rows and self.c.element == self.tile.type.element:
            is_whole = store.is_whole(f, last)
            with f.when(is_whole):
                self._move_sums(f, "tilestored64", f["c"], self.distances_of_c[0])
            if is_whole is None:
                return
        with f.when(is_whole, is_negated=True):
            sums = f["partial"] if self.has_partial_sums else f.slot(self.tile.type, self.tile.rows * self.tile.vectors)
            self._move_sums(f, "tilestored64", sums, self.tile.columns)
            with f.when(last):
                store.copy(f, sums)

    def _set_sums(self, f: KernelFunction) -> None:
        if self.has_partial_sums:
            self._move_sums(f, "tileloadd64", f["partial"], self.tile.columns)
            return
        registers = TileRegisters(self.tile)
        for part in range(registers.parts):
            for vector in range(self.tile.vectors):
                f.call_void("llvm.x86.tilezero", registers.sums(part, vector))

    def _move_sums(self, f: KernelFunction, instruction: str, memory: Value, distance: IndexValue) -> None:
        """Loads or stores all sums, whose rows are a distance apart."""
        registers, element = TileRegisters(self.tile), self.tile.type.element
        for part in range(registers.parts):
            line = f.at(memory, f.multiply(part * registers.rows, distance), element)
            for vector in range(self.tile.vectors):
                move(f, instruction, registers.sums(part, vector), f.at(line, vector * WORDS, element), distance)

    def _add_products(self, f: KernelFunction) -> None:
        """Writes the loop over steps of K, 16 words at a time."""
        tile, element, registers = self.tile, self.tile.type.element, TileRegisters(self.tile)
        with f.loop(f["steps"], WORDS) as loop:
            of_b = f.at(f["b"], f.multiply(loop.index, tile.columns), element)
            for vector in range(tile.vectors):
                move(f, "tileloadd64", registers.b(vector), f.at(of_b, vector * WORDS, element), tile.columns)
            for part in range(registers.parts):
                row = f.multiply(part * registers.rows, self.row_of_a)
                of_a = f.at(f["a"], f.add(row, loop.index), element)
                move(f, "tileloadd64", registers.a, of_a, self.row_of_a)
                for vector in range(tile.vectors):
                    factors = registers.a, registers.b(vector)
                    f.call_void(f"llvm.x86.{self.instruction.name}", registers.sums(part, vector), *factors)


def move(f: KernelFunction, instruction: str, register: Value, memory: Value, distance: IndexValue) -> None:
    """Loads or stores a register, by the distance of rows in words."""
    f.call_void(f"llvm.x86.{instruction}", register, memory, f.index(f.multiply(distance, WORD_BYTES)))


def pack_columns_of_a(source: Matrix, pitch: IndexValue, steps: int) -> Packing:
    """Returns the packing of an A whose columns are contiguous (`source.row == 1`) in rows `pitch` words apart.

    Squares of 16 rows and 16 words are transposed in registers. Rows past the last one, and words past the last step of
    all `steps`, are zeros.
    """
    type, is_ragged = type_of("i32", WORDS), steps % WORDS != 0

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        (pitch,), rows, elements = sizes, f["rows"], f["elements"]
        count = f.ceil_divide(elements, source.per_step)
        with f.loop(rows, WORDS) as row, f.loop(count, WORDS) as step:
            left = f.subtract(rows, row.index)
            lines = []
            for word in range(WORDS):
                index = f.add(step.index, word)
                exists = f.compare("ult", f.index(index), f.index(count)) if is_ragged else None
                inside = f.index(left) if exists is None else f.select(exists, f.index(left), f.index(0))
                index = index if exists is None else f.minimum(index, f.subtract(count, 1))
                address = f.at(f["source"], f.add(row.index, f.multiply(index, matrix.column)), source.element)
                of_step = f.subtract(elements, f.multiply(index, source.per_step))
                lines.append(matrix.load_step(f, address, type, of_step, f.first_lanes(inside, WORDS)))
            corner = f.at(f["target"], f.add(f.multiply(row.index, pitch), step.index), type.element)
            at = addresses_of_rows(f, corner, pitch, WORDS, type.element)
            for address, line in zip(at(0), transpose(f, lines), strict=True):
                f.store(line, address, WORD_BYTES)

    return Packing(["columns_of_a", *["ragged"] * is_ragged], source, UNITS_OF_A, (pitch,), write)
