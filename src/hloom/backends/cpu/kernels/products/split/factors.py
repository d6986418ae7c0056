"""Factors of f32 as three parts of bf16, packed for tile registers.

A number of f32, which has 24 significant bits, is the sum of three of bf16, with 8 each: the number rounded, what is
left rounded, and what is left then. A packed factor has panels of 16 lines, which are rows of the left matrix or
columns of the right one. A panel has a square of 16 x 16 words for each part of each step of K, one of 32 elements;
a word has elements that are 16 apart.

Numbers are multiplied by 2^24 first: no part of even the smallest is subnormal then.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function
from hloom.backends.cpu.kernels.products.tiles.tile_registers import WORD_BYTES, WORDS
from hloom.lir import I64, PTR, Function, IndexValue, Value, constant, type_of
from hloom.system.records import record
from hloom.target import align_up

PARTS = 3
LINES = 16  # of a panel
STEP = 2 * WORDS  # elements of K
ROW_BYTES = WORDS * WORD_BYTES
SQUARE_BYTES = LINES * ROW_BYTES
STEP_BYTES = PARTS * SQUARE_BYTES
PAIR = 2  # panels of the right matrix that are multiplied together
SCALE = 24  # the power of two
MANTISSA = 23
VECTOR, WORD = type_of("float", LINES), type_of("i32", LINES)


@record
class Factor:
    """A factor of a product: its lines, and the distances in elements of lines, of elements along K, and of the batch.

    One of the first two is 1.
    """

    lines: int
    line: int
    step: int
    batch: int
    is_right: bool

    @property
    def panels(self) -> int:
        """Panels of all lines."""
        return align_up(-(-self.lines // LINES), PAIR if self.is_right else 1)

    @property
    def packing(self) -> Function:
        """The shared function of `PartsPacking`."""
        return PartsPacking(self.step == 1, self.is_right).function()


@record
class PartsPacking:
    """The shared function `(source, panel, exponent, lines, elements, line, step)`, which packs some elements along K
    of a panel with up to 16 lines.

    Elements are beside each other along K, or across lines; `line` and `step` are the distances of a `Factor`. The
    exponent in the bits of the largest number replaces that in memory if it is larger.
    """

    is_along: bool
    is_right: bool

    def function(self) -> Function:
        """Returns the function."""
        name = f"split.pack.{'along' if self.is_along else 'across'}.{'right' if self.is_right else 'left'}"
        pointers, sizes = ("source", "panel", "exponent"), ("lines", "elements", "line", "step")
        return shared_function(name, self._write, **dict.fromkeys(pointers, PTR), **dict.fromkeys(sizes, I64))

    def _write(self, f: KernelFunction) -> None:
        source, panel, exponent, lines, elements, line, step = f.parameters
        distance = line if self.is_along else step
        with f.loop(elements, STEP, carried=[constant(WORD, 0)]) as k:
            squares = f.at(panel, f.multiply(f.divide(k.index, STEP), STEP_BYTES), "i8")
            with f.loop(LINES, carried=list(k.carried)) as row:
                halves = [(row.index, k.index, half) for half in range(2)]
                pair = [self._load(f, source, at, (lines, elements), distance) for at in halves]
                row.carried[0] = _largest(f, row.carried[0], pair)
                for part, words in enumerate(self._parts(f, pair)):
                    f.store(
                        words, f.at(squares, f.add(part * SQUARE_BYTES, f.multiply(row.index, ROW_BYTES)), "i8"), 64
                    )
            k.carried[0] = row.carried[0]
            if self.is_along == self.is_right:
                _transpose(f, squares)
        found = f.call(f"llvm.vector.reduce.umax.{WORD.suffix}", WORD.scalar, k.carried[0])
        largest = f.convert("zext", f.binary("lshr", found, constant(WORD.scalar, MANTISSA)), "i64")
        f.store(f.intrinsic("umax", f.load(exponent, I64, 8), largest), exponent, 8)

    def _load(
        self,
        f: KernelFunction,
        source: Value,
        at: tuple[IndexValue, IndexValue, int],
        sizes: tuple[Value, Value],
        distance: Value,
    ) -> Value:
        """Loads half of the elements of a row of words, zeros past the ends: of a line, or one of each line."""
        (row, k, half), (lines, elements) = at, sizes
        element = f.add(k, half * WORDS)
        if self.is_along:
            exists, count = f.compare("ult", f.index(row), lines), f.left(elements, element)
            offset = f.add(f.multiply(row, distance), element)
        else:
            element = f.add(element, row)
            exists, count = f.compare("ult", f.index(element), elements), lines
            offset = f.multiply(element, distance)
        mask = f.first_lanes(f.select(exists, f.index(count), f.index(0)), WORDS)
        address = f.at(source, offset, "float")
        if not self.is_along:  # rows are in other pages, so that the processor does not read ahead
            f.prefetch(f.at(address, f.multiply(distance, STEP), "float"))
        return f.load_masked(address, VECTOR, WORD_BYTES, mask)

    def _parts(self, f: KernelFunction, pair: Sequence[Value]) -> list[Value]:
        """Returns the words of each part of two vectors."""
        scaled = (f.binary("fmul", value, constant(VECTOR, 2.0**SCALE)) for value in pair)
        parts = zip(*(parts_of(f, value) for value in scaled), strict=True)
        return [f.binary("or", low_halves(f, low), high) for low, high in parts]


def parts_of(f: KernelFunction, value: Value, count: int = PARTS) -> list[Value]:
    """Returns the numbers of bf16 whose sum a vector of f32 is, as the high halves of words.

    They are rounded in the bits, which takes fewer instructions than conversions; the last one is exact.
    """
    parts = []
    for _ in range(count - 1):
        rounded = f.binary("add", f.bitcast(value, WORD), constant(WORD, 1 << 15))
        parts.append(f.binary("and", rounded, constant(WORD, -1 << 16)))
        value = f.binary("fsub", value, f.bitcast(parts[-1], VECTOR))
    return [*parts, f.bitcast(value, WORD)]


def low_halves(f: KernelFunction, parts: Value) -> Value:
    """Returns the numbers of bf16 in the high halves of words in their low halves."""
    return f.binary("lshr", parts, constant(WORD, 16))


def _largest(f: KernelFunction, largest: Value, values: Sequence[Value]) -> Value:
    """Returns the bits of the largest magnitudes."""
    for value in values:
        magnitude = f.binary("and", f.bitcast(value, WORD), constant(WORD, 0x7FFFFFFF))
        largest = f.intrinsic("umax", largest, magnitude)
    return largest


def _transpose(f: KernelFunction, squares: Value) -> None:
    """Transposes the square of each part."""
    with f.loop(PARTS) as part:
        square = f.at(squares, f.multiply(part.index, SQUARE_BYTES), "i8")
        addresses = [f.at(square, i * WORDS, "i32") for i in range(LINES)]
        rows = transpose(f, [f.load(address, WORD, 64) for address in addresses])
        for row, address in zip(rows, addresses, strict=True):
            f.store(row, address, 64)
