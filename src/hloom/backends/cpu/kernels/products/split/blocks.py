"""The tasks of a product: a panel of the left factor, and a block of the result in tile registers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

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
from hloom.backends.cpu.kernels.products.tile_registers import WORD_BYTES, WORDS, configure, move, release
from hloom.lir import I8, I64, PTR, VOID, Function, IndexValue, Value, constant
from hloom.target import CACHE_LINE

PAIRS = (2, 0), (1, 0), (0, 0), (0, 1), (1, 1), (0, 2)  # of parts that are multiplied, the left one first
SUMS, OF_A, OF_B = (constant(I8, 0), constant(I8, 1)), constant(I8, 2), (constant(I8, 3), constant(I8, 4))
COLUMNS = PAIR * WORDS  # of a tile of the result
TASK = {"context": PTR, "chunk": I64}
DEPTH = 5  # steps of K whose products registers sum: the panels of the right factor stay in the first cache
LINES_AHEAD = 4  # of the next step of the left factor, read into the first cache beside each product of squares


def packing_task() -> Function:
    """Returns the shared task `(context, chunk)` that packs a panel of the left factor.

    The context has the factor, the panels, the exponents of their largest numbers, the function that packs, the bytes
    of a panel, the lines, the elements along K, and the distances of lines and of what is not beside each other.
    """
    return shared_function("split.pack", _write_packing, **TASK)


def _write_packing(f: KernelFunction) -> None:
    source, panels, exponents, pack, *words = f.unpack(f["context"], PTR, PTR, PTR, PTR, *[I64] * 5)
    size, lines, elements, line, other = words
    first = f.multiply(f["chunk"], LINES)
    exponent = f.at(exponents, f["chunk"], "i64")
    f.store(f.index(0), exponent, 8)
    panel, source = f.at(panels, f.multiply(f["chunk"], size), "i8"), f.at(source, f.multiply(first, line), "float")
    f.call_pointer(
        pack, VOID, source, panel, exponent, f.index(f.minimum(f.left(lines, first), LINES)), elements, other
    )


def block_task() -> Function:
    """Returns the shared task `(context, chunk)` that computes a block of the result.

    The context has the panels of the left factor, the right factor, the result, the exponents of the largest numbers
    that each task packs, and the function that packs; then the bytes of a panel, the rows, the columns, the elements
    along K, the distance of rows of the result, the number of blocks of rows and of columns, the elements along K
    before and after these, and the distances of the right factor: of lines, along K, and of what is not beside each
    other.
    """
    return shared_function("split.product", _write_block, **TASK)


def _write_block(f: KernelFunction) -> None:
    a, b, c, exponents, pack, *words = f.unpack(f["context"], *[PTR] * 5, *[I64] * 12)
    size, of_all_rows, of_all_columns, elements, row_of_c, row_blocks, column_blocks, before, after, *of_b = words
    line, along, other = of_b
    row_block, column_block = f.digits(f["chunk"], (column_blocks,))
    row, rows = f.share(of_all_rows, LINES, row_blocks, row_block)
    column, columns = f.share(of_all_columns, COLUMNS, column_blocks, column_block)
    a = f.at(a, f.multiply(f.divide(row, LINES), size), "i8")
    b = f.at(b, f.multiply(column, line), "float")
    c = f.at(c, f.add(f.multiply(row, row_of_c), column), "float")
    exponent, sums = f.at(exponents, f["chunk"], "i64"), f.slot(VECTOR, PAIR * LINES)
    panels = [f.slot(WORD, DEPTH * PARTS * LINES) for _ in range(PAIR)]
    f.store(f.index(0), exponent, 8)
    with f.when(f.compare("ne", f.index(f.multiply(rows, columns)), f.index(0))):
        configure(f, "split.registers", [(LINES, ROW_BYTES)] * (len(SUMS) + 1 + len(OF_B)))
        with f.loop(elements, DEPTH * STEP) as k:
            end = f.add(k.index, DEPTH * STEP)
            is_first = f.compare("eq", f.index(f.add(before, k.index)), f.index(0))
            is_last = f.compare("eq", f.index(f.add(f.left(elements, end), after)), f.index(0))
            count = f.minimum(f.subtract(elements, k.index), DEPTH * STEP)
            steps, of_a = f.ceil_divide(count, STEP), f.at(a, f.multiply(f.divide(k.index, STEP), STEP_BYTES), "i8")
            with f.loop(columns, COLUMNS) as j:
                for number, panel in enumerate(panels):
                    first = f.add(j.index, number * LINES)
                    source = f.at(b, f.add(f.multiply(first, line), f.multiply(k.index, along)), "float")
                    lines = f.index(f.minimum(f.left(columns, first), LINES))
                    f.call_pointer(pack, VOID, source, panel, exponent, lines, f.index(count), other)
                with f.loop(rows, LINES) as i:
                    panel_of_a = f.at(of_a, f.multiply(f.divide(i.index, LINES), size), "i8")
                    _sum_products(f, (panel_of_a, *panels), steps, sums)
                    tile = f.at(c, f.add(f.multiply(i.index, row_of_c), j.index), "float")
                    sizes = f.minimum(f.subtract(rows, i.index), LINES), f.subtract(columns, j.index)
                    _add_to_result(f, sums, tile, row_of_c, sizes, is_first, is_last)
        release(f)


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
