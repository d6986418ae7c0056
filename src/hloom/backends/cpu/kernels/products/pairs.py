"""Products of 8- and 16-bit integers: two steps of K in one word, for the processor's sums of two products.

x86's `pmaddwd` multiplies pairs of 16-bit integers and adds the two products, in 32 bits; sums wrap around as those of
32-bit integers do. So a product of such types is one of half as many steps, whose elements are pairs, on copies of the
operands in which each word holds steps 2s (its low half) and 2s + 1 (zero, past the last).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hloom.backends.cpu.kernels.products.matmul_plan import MatmulSpec, accumulator
from hloom.backends.cpu.llvm.function import ELEMENTS, Function
from hloom.backends.cpu.llvm.processor import processor
from hloom.backends.cpu.llvm.text import I64, PTR, Index, Type, Value, constant, type_of
from hloom.runtime.machine import architecture

TYPES = ("s8", "u8", "s16")
LEAST_STEPS = 16
LEAST_SIDE = 4  # rows and columns that make up for the copies
LINES = 8  # of a task
WORD = type_of("i32")


def has_pairs(spec: MatmulSpec, vector_bytes: int) -> bool:
    """Whether a product is computed by pairs, with vectors of a width that the processor has."""
    fits = spec.lhs_type in TYPES and spec.rhs_type in TYPES and accumulator(spec).element == "i32"
    is_large = spec.k >= LEAST_STEPS and min(spec.m, spec.n) >= LEAST_SIDE and spec.batch > 0
    return fits and is_large and architecture() == "x86_64" and vector_bytes <= processor().vector_bytes


@dataclass(frozen=True)
class PairedOperand:
    """A copy of an operand by pairs: for each of `batch` matrices, `outer` rows (or columns) of `steps` elements.

    Strides of the source are in its elements. The copy's lines run along K, unless the source is contiguous the other
    way.
    """

    type: str
    batch: int
    outer: int
    steps: int
    strides: tuple[int, int, int]
    """Of the batch, the rows or columns, and the steps."""

    @property
    def pairs(self) -> int:
        return (self.steps + 1) // 2

    @property
    def runs_along_steps(self) -> bool:
        return self.strides[1] != 1 or self.strides[2] == 1

    @property
    def size(self) -> int:
        """Words of the copy."""
        return self.batch * self.outer * self.pairs

    @property
    def pair_strides(self) -> tuple[int, int, int]:
        """Those of the copy, in words: of the batch, the rows or columns, and the pairs."""
        batch = self.outer * self.pairs if self.strides[0] else 0
        return (batch, self.pairs, 1) if self.runs_along_steps else (batch, 1, self.outer)

    @property
    def lines(self) -> int:
        return self.batch * (self.outer if self.runs_along_steps else self.pairs)

    @property
    def chunks(self) -> int:
        return -(-self.lines // LINES)

    def task(self, name: str, width: int) -> Function:
        """`name(context, chunk)`: some lines; the context holds the source and the copy."""
        f = Function(name, context=PTR, chunk=I64)
        context, chunk = f.parameters
        source, target = (f.load(f.at(context, i, "i64"), PTR, 8) for i in range(2))
        first = f.multiply(chunk, LINES)
        count = f.minimum(LINES, f.subtract(self.lines, first))
        with f.loop(count) as loop:
            line = f.index(f.add(first, loop.index))
            (self._along if self.runs_along_steps else self._across)(f, source, target, line, width)
        return f

    def _along(self, f: Function, source: Value, target: Value, line: Value, width: int) -> None:
        """A row or column: neighbours are the two halves of a word already."""
        batch, outer, step = self.strides
        place = f.add(f.multiply(f.divide(line, self.outer), batch), f.multiply(f.remainder(line, self.outer), outer))
        row, words = f.at(source, place, self._element), f.at(target, f.multiply(line, self.pairs), "i32")
        vectors = self.steps // (2 * width) if step == 1 else 0
        halves = type_of("i16", 2 * width)
        with f.each(0, vectors) as index:
            value = f.load_as(f.at(row, f.multiply(index, 2 * width), self._element), self.type, halves)
            f.store(value, f.at(words, f.multiply(index, width), "i32"), 4)
        start = vectors * width
        with f.each(0, self.steps // 2 - start) as index:
            number = f.add(index, start)
            low = f.at(row, f.multiply(number, 2 * step), self._element)
            high = f.at(low, step, self._element)
            f.store(_word(f, self._load(f, low, WORD), self._load(f, high, WORD)), f.at(words, number, "i32"), 4)
        if self.steps % 2:
            low = self._load(f, f.at(row, (self.steps - 1) * step, self._element), WORD)
            f.store(_word(f, low, constant(WORD, 0)), f.at(words, self.pairs - 1, "i32"), 4)

    def _across(self, f: Function, source: Value, target: Value, line: Value, width: int) -> None:
        """A pair of steps: two rows of the source, whose elements at one place become a word."""
        batch, _, step = self.strides
        pair = f.remainder(line, self.pairs)
        low = f.add(f.multiply(f.divide(line, self.pairs), batch), f.multiply(pair, 2 * step))
        has_both = f.compare("ult", f.index(f.add(f.multiply(pair, 2), 1)), f.index(self.steps))
        rows = f.at(source, low, self._element)
        other = f.select(has_both, f.at(rows, step, self._element), rows)
        kept = f.select(has_both, constant(WORD, -1), constant(WORD, 0))
        words = f.at(target, f.multiply(line, self.outer), "i32")
        vectors = self.outer // width
        with f.each(0, vectors) as index:
            self._store_words(f, (rows, other, words), f.multiply(index, width), type_of("i32", width), kept)
        with f.each(0, self.outer - vectors * width) as index:
            self._store_words(f, (rows, other, words), f.add(index, vectors * width), WORD, kept)

    def _store_words(
        self, f: Function, pointers: tuple[Value, Value, Value], place: Index, type: Type, kept: Value
    ) -> None:
        low, high, words = pointers
        mask = f.splat(kept, type.width) if type.width else kept
        parts = [self._load(f, f.at(each, place, self._element), type) for each in (low, high)]
        f.store(_word(f, parts[0], f.binary("and", parts[1], mask)), f.at(words, place, "i32"), 4)

    @property
    def _element(self) -> str:
        return ELEMENTS[self.type]

    def _load(self, f: Function, pointer: Value, type: Type) -> Value:
        return f.load_as(pointer, self.type, type)


def _word(f: Function, low: Value, high: Value) -> Value:
    """The halves of words."""
    bits = constant(low.type, 0xFFFF)
    return f.binary("or", f.binary("and", low, bits), f.binary("shl", high, constant(low.type, 16)))


def paired(spec: MatmulSpec) -> tuple[MatmulSpec, PairedOperand, PairedOperand]:
    """The product of pairs, and the copies that it works on."""
    (a0, a1, a2), (b0, b1, b2) = spec.lhs_strides, spec.rhs_strides
    lhs = PairedOperand(spec.lhs_type, spec.batch if a0 else 1, spec.m, spec.k, (a0, a1, a2))
    rhs = PairedOperand(spec.rhs_type, spec.batch if b0 else 1, spec.n, spec.k, (b0, b2, b1))
    c0, c1, c2 = rhs.pair_strides
    made = replace(spec, k=lhs.pairs, lhs_type="s32", rhs_type="s32")
    return replace(made, lhs_strides=lhs.pair_strides, rhs_strides=(c0, c2, c1)), lhs, rhs


def multiply_add_pairs(f: Function, a: Value, b: Value, c: Value) -> Value:
    """c + a.low * b.low + a.high * b.high, for vectors of words."""
    width = c.type.width
    halves = type_of("i16", 2 * width)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[width]
    products = f.call(f"llvm.x86.{name}", c.type, f.bitcast(a, halves), f.bitcast(b, halves))
    return f.binary("add", products, c)
