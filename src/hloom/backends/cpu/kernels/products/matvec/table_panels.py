"""A matrix of scaled halves of bytes, whose rows are adjacent in memory, times a few vectors, in tile registers.

Each row has a table of the bf16 of its 16 codes in a group of K. Whole cache lines of 8 elements of K are read, and
their codes transposed, before they are multiplied, as lines of more elements may share one set of the first cache. Then
a register has the codes of four rows, with an element of K in each lane, and each row is looked up at once, in the same
time whatever its table is computed from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hloom.affine import Expression
from hloom.backends.cpu.elements.byte_tables import CODES
from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import Resume
from hloom.backends.cpu.kernels.products.matvec.panels import (
    BLOCK,
    PANEL,
    SQUARES,
    WIDE_PANEL,
    Ahead,
    Panels,
    block_of,
)
from hloom.backends.cpu.kernels.products.matvec.tile_columns import F32, words_of
from hloom.backends.cpu.kernels.products.split.factors import STEP
from hloom.backends.cpu.kernels.products.tiles.tile_registers import BF16, WORDS
from hloom.lir import IndexValue, Value, type_of, zero
from hloom.system.lazy import cached_property

MIN_BLOCK = 64  # elements of K of a table that pays
UNIT = 2 * WORDS  # rows that are looked up together
LINE = 128  # rows with codes in a cache line
GROUP = 8  # elements of K whose codes are transposed together
UNIT_CODES = GROUP  # words of 16 bits between the codes of units
GROUP_CODES = GROUP * WIDE_PANEL // 4  # words of 16 bits of a group
TABLE, HALVES = type_of("i16", CODES), type_of("i16", STEP)


def has_tables(operand: ComputedOperand) -> bool:
    """Whether rows of an operand of bf16 are looked up in tables of their own."""
    is_scaled = operand.value.type is BF16 and operand.of_rows is not None and operand.table is None
    return is_scaled and block_of(operand) >= MIN_BLOCK and operand.free.extent >= WIDE_PANEL


class TablePanels(Panels):
    """Products whose left factor is the matrix."""

    @cached_property
    def _tables(self) -> Value:
        """The address of the tables of a panel."""
        return self.f.slot(TABLE, PANEL)

    @cached_property
    def _codes(self) -> Value:
        """The address of the transposed codes of a block of K."""
        return self.f.slot(HALVES, BLOCK * WIDE_PANEL // 4 // STEP)

    def read(self, row: IndexValue, start: IndexValue, count: int) -> None:
        f, whole, lines = self.f, count // GROUP * GROUP, dict[int, Resume]()
        for line in range(0, WIDE_PANEL, LINE):
            with self.bound(row, line, start):
                lines[line] = self.emitter.held()
        if whole:
            with f.loop(whole, GROUP) as group:
                self._transpose(lines, start, group.index, GROUP)
        if count > whole:
            self._transpose(lines, start, whole, count - whole)

    def _transpose(self, lines: Mapping[int, Resume], start: IndexValue, first: IndexValue, count: int) -> None:
        """Writes the transposed codes of a group of K."""
        f = self.f
        group = f.at(self._codes, f.multiply(first, GROUP_CODES // GROUP), "i16")
        for line, resume in lines.items():
            with resume():
                codes = self.emitter.transposed_codes(f.add(start, first), count)
            for i, each in enumerate(codes):
                f.store(each, f.at(group, line * GROUP // 4 + i * STEP, "i16"), 64)

    def contexts(self, row: IndexValue, panel: IndexValue, start: IndexValue) -> Sequence[Resume]:
        f = self.f
        line, half = f.divide(panel, 2), f.remainder(panel, 2)
        self._block = start, f.add(f.multiply(line, LINE * GROUP // 4), f.multiply(half, 2 * UNIT_CODES))
        first = f.add(row, f.multiply(panel, PANEL))
        self._share(first, start)
        with self.bound(first, 0, start), f.loop(PANEL, 2) as pair:
            tables = [self.emitter.table_of(self._shared_by(f.add(pair.index, i))) for i in range(2)]
            f.store(words_of(f, *tables), f.at(self._tables, f.multiply(pair.index, CODES), "i16"), 64)
        return ()

    @cached_property
    def _shared(self) -> dict[Expression, Value]:
        """The addresses of what elements of each row of a panel share."""
        return {part: self.f.slot(F32, SQUARES) for part in self.emitter.coded.shared}

    def _share(self, row: IndexValue, start: IndexValue) -> None:
        """Writes what elements of each row of a panel share in the group of an element of K."""
        f, e = self.f, self.emitter
        along_rows = e.lanes_along(self.plan.operand.free, None, WORDS)
        with f.loop(PANEL, WORDS) as rows, along_rows, self.bound(row, rows.index, start):
            for part, address in self._shared.items():
                value = e.value(part)
                assert isinstance(value, Value)
                f.store(f.splat(value, WORDS), f.at(address, rows.index, "float"), 64)

    def _shared_by(self, row: IndexValue) -> dict[Expression, Value]:
        """Returns what elements of a row of a panel share."""
        f, addresses = self.f, self._shared
        return {part: f.load(f.at(at, row, "float"), F32.scalar, 4) for part, at in addresses.items()}

    def compute(self, contexts: Sequence[Resume], start: IndexValue, words: Value, part: int, ahead: Ahead) -> None:
        f, pairs = self.f, STEP // 2 // SQUARES
        for pair in range(part * pairs, (part + 1) * pairs):
            self.prefetch(ahead.after(f, 2 * pair))
        if part % 2 == 0:
            self._look_up(start, words, part // 2, STEP)

    def compute_rest(
        self, contexts: Sequence[Resume], start: IndexValue, words: Value, count: int, ahead: Ahead
    ) -> None:
        for unit in range(PANEL // UNIT):
            self._look_up(start, words, unit, count)

    def _look_up(self, start: IndexValue, words: Value, unit: int, count: int) -> None:
        """Writes the words of `count` elements of K of the rows of a unit, the last ones with zeros."""
        f, e = self.f, self.emitter
        codes = self._codes_of(start, unit)
        for i, table in enumerate(self._tables_of(unit)):
            found = e.look_up_row(codes[i // 4], i % 4, table)
            found = found if count == STEP else f.select(f.first_lanes(count, STEP), found, zero(HALVES))
            f.store(found, f.at(words, (unit * UNIT + i) * WORDS, "i32"), 64)

    def _codes_of(self, start: IndexValue, unit: int) -> list[Value]:
        """Returns the codes of the rows of a unit, four in each vector, with an element of K in each lane."""
        f, (first, of_panel) = self.f, self._block
        step = f.multiply(f.subtract(start, first), GROUP_CODES // GROUP)
        base = f.at(self._codes, f.add(f.add(step, of_panel), unit * UNIT_CODES), "i16")
        found = list[Value]()
        for i in range(UNIT // 4):
            groups = [f.at(base, i * STEP + group * GROUP_CODES, "i16") for group in range(STEP // GROUP)]
            found.append(f.concatenated([f.load(each, type_of("i16", GROUP), 16) for each in groups]))
        return found

    def _tables_of(self, unit: int) -> list[Value]:
        f, found = self.f, list[Value]()
        for row in range(unit * UNIT, (unit + 1) * UNIT):
            table = f.load(f.at(self._tables, row * CODES, "i16"), TABLE, 32)
            found.append(f.shuffle(table, None, [*range(CODES)] * 2))
        return found

    def store(self, out: Value) -> None:
        f, p, count = self.f, self.plan.p, self.plan.columns.count
        mask = f.first_lanes(count, WORDS) if count < WORDS else None
        with f.loop(self.reads[1]) as read:
            row, totals = self.rows(read.index)
            for square in range(self.plan.rows // WORDS):
                base = self.sums_of(totals, square)
                lines = [f.load_masked(f.at(base, i * count, "float"), F32, 4, mask) for i in range(WORDS)]
                for vector, sums in enumerate(transpose(f, lines)[:count]):
                    at = f.add(f.add(row, square * WORDS), f.multiply(vector, p.out.column))
                    f.store_as(sums, f.at(out, at, p.out.element), p.out.type)
