"""The tasks of a product: a panel of the left factor, and a block of the result in tile registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function
from hloom.backends.cpu.kernels.products.split.factors import (
    LINES,
    PAIR,
    PARTS,
    ROW_BYTES,
    SCALE,
    SQUARE_BYTES,
    STEP,
    STEP_BYTES,
    VECTOR,
    WORD,
)
from hloom.backends.cpu.kernels.products.tiles.tile_registers import WORD_BYTES, WORDS, configure, move, release
from hloom.lir import I8, I64, PTR, VOID, Function, IndexValue, Type, Value, constant
from hloom.target import CACHE_LINE

PAIRS = (2, 0), (1, 0), (0, 0), (0, 1), (1, 1), (0, 2)  # of parts that are multiplied, the left one first
SUMS, OF_A, OF_B = (constant(I8, 0), constant(I8, 1)), constant(I8, 2), (constant(I8, 3), constant(I8, 4))
COLUMNS = PAIR * WORDS  # of a tile of the result
TASK = {"context": PTR, "chunk": I64}
DEPTH = 5  # steps of K whose products registers sum: the panels of the right factor stay in the first cache
LINES_AHEAD = 4  # of the next step of the left factor, read into the first cache beside each product of squares


class PanelContext(NamedTuple):
    """The context of tasks that pack panels of the left factor: addresses, and numbers from the bytes of a panel on."""

    source: Value
    panels: Value
    exponents: Value  # of the largest number that each task packs
    function: Value  # of `PartsPacking`
    panel_bytes: Value
    lines: Value
    elements: Value  # along K
    line: Value  # distances, as those of a `Factor`
    step: Value


class BlockContext(NamedTuple):
    """The context of tasks that compute blocks of the result: addresses, and numbers from the bytes of a panel on."""

    panels: Value  # of the left factor
    source: Value  # the right factor
    out: Value
    exponents: Value
    function: Value
    panel_bytes: Value
    rows: Value
    columns: Value
    elements: Value
    row_of_out: Value
    row_blocks: Value
    column_blocks: Value
    before: Value  # elements along K that are in the result already
    after: Value  # elements along K that follow
    line: Value
    step: Value


def packing_task() -> Function:
    """Returns the shared task `(context, chunk)` that packs a panel of the left factor."""
    return shared_function("split.pack", _write_packing, **TASK)


def block_task() -> Function:
    """Returns the shared task `(context, chunk)` that computes a block of the result."""
    return shared_function("split.product", _write_block, **TASK)


def _types(context: type[PanelContext | BlockContext]) -> list[Type]:
    addresses = context._fields.index("panel_bytes")
    return [PTR] * addresses + [I64] * (len(context._fields) - addresses)


def _write_packing(f: KernelFunction) -> None:
    context = PanelContext(*f.unpack(f["context"], *_types(PanelContext)))
    first = f.multiply(f["chunk"], LINES)
    panel = f.at(context.panels, f.multiply(f["chunk"], context.panel_bytes), "i8")
    source = f.at(context.source, f.multiply(first, context.line), "float")
    sizes = f.index(f.minimum(f.left(context.lines, first), LINES)), context.elements
    f.call_pointer(
        context.function, VOID, source, panel, _first_exponent(f, context), *sizes, context.line, context.step
    )


def _first_exponent(f: KernelFunction, context: PanelContext | BlockContext) -> Value:
    """Returns the address of the exponent of the task, which is set to zero."""
    exponent = f.at(context.exponents, f["chunk"], "i64")
    f.store(f.index(0), exponent, 8)
    return exponent


def _write_block(f: KernelFunction) -> None:
    """Writes a block of the result: a few steps of K after the other, of which two panels of columns meet all rows."""
    context = BlockContext(*f.unpack(f["context"], *_types(BlockContext)))
    row_block, column_block = f.digits(f["chunk"], (context.column_blocks,))
    row, rows = f.share(context.rows, LINES, context.row_blocks, row_block)
    column, columns = f.share(context.columns, COLUMNS, context.column_blocks, column_block)
    context = context._replace(
        panels=f.at(context.panels, f.multiply(f.divide(row, LINES), context.panel_bytes), "i8"),
        source=f.at(context.source, f.multiply(column, context.line), "float"),
        out=f.at(context.out, f.add(f.multiply(row, context.row_of_out), column), "float"),
        exponents=_first_exponent(f, context),
        rows=f.index(rows),
        columns=f.index(columns),
    )
    sums, panels = f.slot(VECTOR, PAIR * LINES), [f.slot(WORD, DEPTH * PARTS * LINES) for _ in range(PAIR)]
    with f.when(f.compare("ne", f.index(f.multiply(rows, columns)), f.index(0))):
        configure(f, "split.registers", [(LINES, ROW_BYTES)] * (len(SUMS) + 1 + len(OF_B)))
        with f.loop(context.elements, DEPTH * STEP) as k, f.loop(columns, COLUMNS) as column_of_tile:
            elements = f.minimum(f.subtract(context.elements, k.index), DEPTH * STEP)
            _pack_columns(f, context, panels, (column_of_tile.index, k.index), elements)
            _write_tiles(f, context, (*panels, sums), (column_of_tile.index, k.index), elements)
        release(f)


def _pack_columns(
    f: KernelFunction,
    context: BlockContext,
    panels: Sequence[Value],
    at: tuple[IndexValue, IndexValue],
    elements: IndexValue,
) -> None:
    """Packs the columns of a tile, from a column and an element of K on."""
    column, k = at
    for position, panel in enumerate(panels):
        first = f.add(column, position * LINES)
        offset = f.add(f.multiply(first, context.line), f.multiply(k, context.step))
        sizes = f.index(f.minimum(f.left(context.columns, first), LINES)), f.index(elements)
        pointers = f.at(context.source, offset, "float"), panel, context.exponents
        f.call_pointer(context.function, VOID, *pointers, *sizes, context.line, context.step)


def _write_tiles(
    f: KernelFunction,
    context: BlockContext,
    memory: Sequence[Value],
    at: tuple[IndexValue, IndexValue],
    elements: IndexValue,
) -> None:
    """Adds the products of all rows by packed columns to the tiles at a column, for some elements from one of K on."""
    (*panels, sums), (column, k) = memory, at
    is_first = f.compare("eq", f.index(f.add(context.before, k)), f.index(0))
    left = f.add(f.subtract(context.elements, f.add(k, elements)), context.after)
    is_last = f.compare("eq", f.index(left), f.index(0))
    of_left = f.at(context.panels, f.multiply(f.divide(k, STEP), STEP_BYTES), "i8")
    with f.loop(context.rows, LINES) as row:
        panel = f.at(of_left, f.multiply(f.divide(row.index, LINES), context.panel_bytes), "i8")
        _sum_products(f, (panel, *panels), f.ceil_divide(elements, STEP), sums)
        tile = f.at(context.out, f.add(f.multiply(row.index, context.row_of_out), column), "float")
        sizes = f.minimum(f.subtract(context.rows, row.index), LINES), f.subtract(context.columns, column)
        _add_to_result(f, sums, tile, context.row_of_out, sizes, is_first, is_last)


def _sum_products(f: KernelFunction, panels: Sequence[Value], steps: IndexValue, sums: Value) -> None:
    """Stores the sums of the products of a panel of A by two of B.

    Loads of the next step's cache lines between the products also keep the processor from running far ahead with loads
    of registers, which is slow while the core's second thread is busy.
    """
    for register in SUMS:
        f.call_void("llvm.x86.tilezero", register)
    with f.loop(steps) as step:
        squares = [f.at(panel, f.multiply(step.index, STEP_BYTES), "i8") for panel in panels]
        registers, ahead = (OF_A, *OF_B), _next_lines(f, squares[0])
        loaded: list[int | None] = [None] * len(registers)
        for i, j in PAIRS:
            for operand, part in enumerate((i, j, j)):
                if loaded[operand] != part:
                    square = f.at(squares[operand], part * SQUARE_BYTES, "i8")
                    move(f, "tileloadd64", registers[operand], square, WORDS)
                    loaded[operand] = part
            for register, of_b in zip(SUMS, OF_B, strict=True):
                f.call_void("llvm.x86.tdpbf16ps", register, OF_A, of_b)
                for address in itertools.islice(ahead, LINES_AHEAD):
                    f.prefetch(address)
    for k, register in enumerate(SUMS):
        move(f, "tilestored64", register, f.at(sums, k * WORDS, "float"), COLUMNS)


def _next_lines(f: KernelFunction, squares: Value) -> Iterator[Value]:
    """Yields the addresses of the cache lines of the next step."""
    for offset in range(STEP_BYTES, 2 * STEP_BYTES, CACHE_LINE):
        yield f.at(squares, offset, "i8")


def _add_to_result(
    f: KernelFunction,
    sums: Value,
    tile: Value,
    row_of_c: Value,
    sizes: tuple[IndexValue, IndexValue],
    is_first: Value,
    is_last: Value,
) -> None:
    """Adds the sums of some steps to those of the steps before, which are in the result; the last ones are divided by
    the scale of both factors.
    """
    rows, columns = sizes
    factor = f.select(is_last, constant(VECTOR.scalar, 2.0 ** (-2 * SCALE)), constant(VECTOR.scalar, 1.0))
    factors, none = f.splat(factor, WORDS), f.index(0)
    counts = [f.index(f.left(columns, k * WORDS)) for k in range(PAIR)]
    masks = [f.first_lanes(count, WORDS) for count in counts]
    masks_of_sums = [f.first_lanes(f.select(is_first, none, count), WORDS) for count in counts]
    with f.loop(rows) as row:
        for k, (mask, of_sums) in enumerate(zip(masks, masks_of_sums, strict=True)):
            address = f.at(tile, f.add(f.multiply(row.index, row_of_c), k * WORDS), "float")
            own = f.load(f.at(sums, f.add(f.multiply(row.index, COLUMNS), k * WORDS), "float"), VECTOR, 64)
            sum = f.binary("fadd", own, f.load_masked(address, VECTOR, WORD_BYTES, of_sums))
            f.store_masked(f.binary("fmul", sum, factors), address, WORD_BYTES, mask)
