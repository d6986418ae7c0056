"""Packed vectors as the columns of tile registers (see tile_sums.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hloom.backends.cpu.elements.small_values import Magnitudes, magnitudes_of
from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.computed_operand import MAX_INTEGER, ComputedOperand
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec.byte_codes import BYTES_OF_WORD, ByteCodes
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec
from hloom.backends.cpu.kernels.products.split.factors import PARTS, STEP, low_halves, parts_of
from hloom.backends.cpu.kernels.products.tiles.tile_registers import WORDS
from hloom.lir import IndexValue, Value, constant, type_of
from hloom.loops.expressions import Apply
from hloom.ops.elementwise_binary import Multiply
from hloom.ops.traits import Linear
from hloom.system.records import record
from hloom.types import PrimitiveType

MIN_NUMBER, MAX_NUMBER = 2.0**-100, 2.0**100  # magnitudes whose parts and their products are normal numbers
F32, WORD = type_of("float", WORDS), type_of("i32", WORDS)


@record
class TileColumns:
    """The columns of a product with `count` vectors: the parts of each. Elements of a step, or of several, have an
    order, that of `codes` if these are multiplied as bytes. If they `are_left`, parts are rows of the left factor.
    Elements of the matrix are at least `least`, or zero.
    """

    count: int
    parts: int
    order: Sequence[int] | None
    codes: ByteCodes | None = None
    are_left: bool = False
    least: float = 1

    @property
    def step(self) -> int:
        """Elements of K in the words of a register."""
        return STEP if self.codes is None else WORDS * BYTES_OF_WORD

    @property
    def block(self) -> int:
        """Elements of K that are packed together."""
        return len(self.order) if self.order else STEP

    @property
    def tiles(self) -> int:
        """Registers of a step."""
        return -(-self.count * self.parts // WORDS)

    @property
    def width(self) -> int:
        """Columns of a register."""
        return min(self.count * self.parts, WORDS)

    @property
    def step_words(self) -> int:
        """Packed words of a step."""
        return WORDS * self.count * self.parts if self.are_left else self.tiles * WORDS * self.width

    def size(self, k: int) -> int:
        """Returns the bytes of packed vectors."""
        return -(-k // self.step) * self.step_words * 4

    def pack(self, f: KernelFunction, p: Matvec, k: int, other: Value) -> int:
        """Writes the packed vectors of all products to the scratch memory; returns their bytes, of each."""
        size = self.size(k)
        with f.loop(p.batch) as batch:
            source = f.at(other, f.multiply(batch.index, p.batch_strides[1]), p.vectors.element)
            target = f.at(f["scratch"], f.multiply(batch.index, size), "i8")
            self._pack(_Packing(f, self, p.vectors, source, target), k)
        return size

    def _pack(self, packing: _Packing, k: int) -> None:
        f, whole = packing.f, k // self.block * self.block
        if self.codes is not None:
            packing.pack_bytes(self.codes)
            return
        if whole:
            with f.loop(whole, self.block) as start:
                packing.pack(start.index, self.block)
        if k > whole:
            packing.pack(whole, k - whole)


@record
class _Packing:
    """Packs the vectors of a product from a source."""

    f: KernelFunction
    columns: TileColumns
    vectors: Matrix
    source: Value
    target: Value

    def pack(self, start: IndexValue, count: int) -> None:
        """Packs `count` elements of each vector, of one block, from one on."""
        f, own = self.f, self.columns
        parts = [words for vector in range(own.count) for words in self._parts(start, vector, count)]
        for i, columns in enumerate(zip(*parts, strict=True)):
            self._store(f.add(f.divide(start, STEP), i), [*columns])

    def pack_bytes(self, codes: ByteCodes) -> None:
        """Packs all elements of each vector, which are bytes."""
        f, own = self.f, self.columns
        with f.loop(codes.padded_k, codes.block) as at:
            rows = [f.at(self.source, vector * self.vectors.column, "i8") for vector in range(own.count)]
            words = [codes.words_of_row(f, row, at.index) for row in rows]
            for i, columns in enumerate(zip(*words, strict=True)):
                self._store(f.add(f.divide(at.index, own.step), i), [*columns])

    def _store(self, step: IndexValue, columns: list[Value]) -> None:
        """Stores the words of a step."""
        f, own = self.f, self.columns
        base = f.multiply(step, own.step_words)
        if own.are_left:
            for i, words in enumerate(columns):
                f.store(words, f.at(self.target, f.add(base, i * WORDS), "i32"), 64)
            return
        columns = columns + [constant(WORD, 0)] * (-len(columns) % WORDS)
        mask = f.first_lanes(own.width, WORDS) if own.width < WORDS else None
        for first in range(0, len(columns), WORDS):
            for i, line in enumerate(transpose(f, columns[first : first + WORDS])):
                address = f.at(self.target, f.add(base, (first + i) * own.width), "i32")
                f.store_masked(line, address, 4, mask)

    def _parts(self, start: IndexValue, vector: int, count: int) -> list[list[Value]]:
        """Returns words of `count` elements of a vector, those of each step, or of the parts whose sum they are."""
        f, own = self.f, self.columns
        halves = (self._half(start, vector, first, count - first) for first in range(0, own.block, WORDS))
        parts = zip(*(parts_of(f, half, own.parts) for half in halves), strict=True)
        elements = (f.concatenated([f.convert("trunc", low_halves(f, half), "i16") for half in part]) for part in parts)
        return [self._steps(each) for each in elements]

    def _steps(self, elements: Value) -> list[Value]:
        """Returns the words of the steps of a block."""
        f, order = self.f, self.columns.order
        orders = [order[first : first + STEP] if order else range(STEP) for first in range(0, self.columns.block, STEP)]
        return [f.bitcast(f.shuffle(elements, None, each), WORD) for each in orders]

    def _half(self, start: IndexValue, vector: int, first: int, count: int) -> Value:
        """Returns half of the elements of a step; NaN instead of numbers whose parts are not exact."""
        f, own = self.f, self.vectors
        mask = f.first_lanes(max(count, 0), WORDS) if count < WORDS else None
        at = f.add(start, vector * own.column + first)
        value = f.load_as(f.at(self.source, at, own.element), own.type, F32, mask)
        if self.columns.parts == 1:
            return value
        magnitude, zero = f.intrinsic("fabs", value), constant(F32, 0)
        is_large = f.compare("oge", magnitude, constant(F32, MIN_NUMBER / self.columns.least))
        is_usual = f.binary("and", is_large, f.compare("ole", magnitude, constant(F32, MAX_NUMBER)))
        is_usual = f.binary("or", is_usual, f.compare("oeq", value, zero))
        return f.select(is_usual, value, constant(F32, float("nan")))


def packed_columns(
    count: int, operand: ComputedOperand, order: Sequence[int] | None = None, are_left: bool = False
) -> TileColumns | None:
    """Returns the columns of vectors that are multiplied by an operand: one part of bf16, and three of f32 if bf16 has
    the integers or narrow floats of the operand; else None.
    """
    if operand.value.type is PrimitiveType.BF16:
        return TileColumns(count, 1, order, are_left=are_left)
    magnitudes = _exact_magnitudes(operand)
    return magnitudes and TileColumns(count, PARTS, order, are_left=are_left, least=magnitudes.least)


def is_exact(operand: ComputedOperand) -> bool:
    """Whether bf16 has all elements of an operand of f32."""
    return _exact_magnitudes(operand) is not None


def _exact_magnitudes(operand: ComputedOperand) -> Magnitudes | None:
    found = magnitudes_of(operand.value)
    return None if found is None or (found.least == 1 and found.largest > MAX_INTEGER) else found


def exact_words(f: KernelFunction, low: Value, high: Value) -> Value:
    """Returns two vectors of f32 that bf16 has as words of an element of each."""
    return f.binary("or", f.binary("lshr", f.bitcast(low, WORD), constant(WORD, 16)), f.bitcast(high, WORD))


def words_of(f: KernelFunction, low: Value, high: Value) -> Value:
    """Returns two vectors of f32, rounded to bf16, as words of neighbours."""
    bf16 = type_of("bfloat", STEP)
    return f.bitcast(f.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", bf16, high, low), WORD)


def bf16_words(f: KernelFunction, low: Value, high: Value) -> Value:
    """Returns two vectors of f32, rounded to bf16, as words of an element of each."""
    halves = f.bitcast(words_of(f, low, high), type_of("i16", STEP))
    return f.bitcast(f.shuffle(halves, None, [WORDS * (lane % 2) + lane // 2 for lane in range(STEP)]), WORD)


def unrounded(operand: ComputedOperand) -> ComputedOperand:
    """Returns an operand of f32 which, rounded to bf16, is one of bf16: arithmetic of bf16 is that of f32, rounded."""
    value = operand.value
    if not isinstance(value, Apply) or not isinstance(value.op, (Linear, Multiply)):
        return operand
    return replace(operand, value=operand.space.apply(value.op, PrimitiveType.F32, *value.operands))
