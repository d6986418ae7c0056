"""Packing of the right operand of a matrix product into panels (see micro_kernel.py).

Each packs `count` steps of K, or panels, from `first` on; the panels have `depth` rows. A complex operand becomes twice
as many real steps and columns: the step of a real part has (re, im) pairs, that of an imaginary part (-im, re), so that
the kernel's real sums are those of the complex product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.distances import addresses_of_rows
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, shared_function, size_of
from hloom.backends.cpu.kernels.products.dot_instructions import correction
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.packing.packing import UNITS_OF_B, PackedMatrix, Packing, Write
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.lir import I64, PTR, Function, IndexValue, Value, constant, type_of


def pack_rows_of_b(source: Matrix, tile: Tile, depth: int, steps: int, ragged: bool, is_complex: bool) -> Packing:
    """Returns the packing of contiguous rows, which copies vectors. It counts steps of the source, complex ones if it
    is.
    """

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        depth, all_elements = sizes
        type = tile.type
        with f.loop(f["count"]) as counter:
            step = f.add(counter.index, f["first"])
            line = f.at(f["source"], f.multiply(step, matrix.row), source.element)
            elements = f.subtract(all_elements, f.multiply(step, source.per_step))
            with f.loop(f.ceil_divide(f["columns"], tile.columns)) as panel:
                start = f.multiply(panel.index, tile.columns)
                target_step = f.multiply(step, 2 if is_complex else 1)
                offset = f.multiply(f.add(f.multiply(panel.index, depth), target_step), tile.columns)
                target = f.at(f["target"], offset, type.element)
                for j in range(tile.vectors):
                    at = f.add(start, j * type.width)
                    mask = f.first_lanes(f.left(f["columns"], at), type.width) if ragged else None
                    value = matrix.load_step(f, f.at(line, at, source.element), type, elements, mask)
                    f.store(value, f.at(target, j * type.width, type.element), size_of(type.element))
                    if is_complex:
                        rotated = f.at(target, tile.columns + j * type.width, type.element)
                        f.store(_times_i(f, value), rotated, size_of(type.element))

    sizes = depth, source.elements(steps)
    return _packing("rows_of_b", source, tile, sizes, write, ragged=ragged, complex=is_complex)


def _packing(kind: str, source: Matrix, tile: Tile, sizes: tuple[int, ...], write: Write, **traits: bool) -> Packing:
    words = [kind, f"{tile.columns}.{tile.type.suffix}", *(trait for trait, has in traits.items() if has)]
    return Packing(words, source, UNITS_OF_B, sizes, write)


def _times_i(f: KernelFunction, pairs: Value) -> Value:
    """Multiplies (re, im) pairs by the imaginary unit: (-im, re)."""
    width = pairs.type.width
    swapped = f.shuffle(pairs, None, [lane ^ 1 for lane in range(width)])
    negated = f.fneg(swapped)
    return f.shuffle(swapped, negated, [lane + (0 if lane % 2 else width) for lane in range(width)])


def pack_columns_of_b(source: Matrix, tile: Tile, depth: int, steps: int, ragged: bool, one_panel: bool) -> Packing:
    """Returns the packing of contiguous columns, which counts panels; for `one_panel`, steps of K from the first on.

    An iteration packs a few steps (at most 16 bytes) of a vector's width of columns: parts of columns are joined to
    vectors, which are transposed within each 16 bytes. The last iteration may write zeros past the last step, up to
    `depth`.
    """
    part = type_of(tile.type.element, min(128 // tile.type.bits, tile.type.width))
    is_whole = source.elements(steps) % (source.per_step * part.width) == 0

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        depth, steps, all_elements = sizes
        type, width = tile.type, tile.type.width
        panels, steps_of_panel = (1, f["count"]) if one_panel else (f["count"], f.index(steps))
        elements = f.multiply(steps_of_panel, source.per_step) if one_panel and not source.words else all_elements
        with f.loop(f.multiply(panels, tile.vectors)) as counter:
            vector_index = f.add(counter.index, f.multiply(f["first"], tile.vectors))
            column, lane = f.multiply(vector_index, width), f.multiply(f.remainder(vector_index, tile.vectors), width)
            base = f.multiply(f.multiply(f.divide(vector_index, tile.vectors), depth), tile.columns)
            target = f.at(f["target"], f.add(base, lane), type.element)
            lines = _columns(f, matrix, column, width, ragged)
            with f.loop(steps_of_panel, part.width) as step:
                along = f.multiply(step.index, source.per_step)
                left = None if is_whole else f.subtract(elements, along)
                parts = [source.load_steps(f, address, part, left) for address in lines(along)]
                rows = [f.concatenated(parts[i :: part.width]) for i in range(part.width)]
                for i, row in enumerate(transpose_squares(f, rows)):
                    offset = f.multiply(f.add(step.index, i), tile.columns)
                    f.store(row, f.at(target, offset, type.element), size_of(type.element))

    sizes = depth, steps, source.elements(steps)
    return _packing("columns_of_b", source, tile, sizes, write, ragged=ragged, one_panel=one_panel, whole=is_whole)


def _columns(
    f: KernelFunction, matrix: PackedMatrix, column: IndexValue, width: int, ragged: bool
) -> Callable[[IndexValue], list[Value]]:
    """Returns a function that returns the addresses of elements of columns, at an offset along them; columns past the
    last one repeat it.
    """
    element = matrix.matrix.element
    if not ragged:
        first = f.at(f["source"], f.multiply(column, matrix.column), element)
        return addresses_of_rows(f, first, matrix.column, width, element)
    last = f.subtract(f["columns"], 1)
    starts = [f.multiply(f.minimum(f.add(column, i), last), matrix.column) for i in range(width)]
    lines = [f.at(f["source"], start, element) for start in starts]
    return lambda along: [f.at(line, along, element) for line in lines]


def pack_any_b(source: Matrix, tile: Tile, depth: int, steps: int, is_complex: bool) -> Packing:
    """Returns the packing for any distances, which packs one element at a time and counts panels."""

    def write(f: KernelFunction, matrix: PackedMatrix, sizes: Sequence[IndexValue]) -> None:
        depth, steps, elements = sizes
        type, last = tile.type.scalar, f.subtract(f["columns"], 1)
        with f.loop(f["count"]) as counter:
            panel = f.add(counter.index, f["first"])
            base = f.at(f["target"], f.multiply(f.multiply(panel, depth), tile.columns), type.element)
            with f.loop(steps) as step, f.loop(tile.columns) as lane:
                column = f.minimum(f.add(f.multiply(panel, tile.columns), lane.index), last)
                if is_complex:
                    value = _complex_element(f, matrix, tile, step.index, column)
                else:
                    pointer = f.at(f["source"], matrix.offset(f, step.index, column), source.element)
                    left = f.subtract(elements, f.multiply(step.index, source.per_step))
                    value = matrix.load_step(f, pointer, type, left)
                offset = f.add(f.multiply(step.index, tile.columns), lane.index)
                f.store(value, f.at(base, offset, type.element), size_of(type.element))

    return _packing("any_b", source, tile, (depth, steps, source.elements(steps)), write, complex=is_complex)


def _complex_element(
    f: KernelFunction, matrix: PackedMatrix, tile: Tile, step: IndexValue, column: IndexValue
) -> Value:
    """Loads the real number at (step, column) of a complex matrix viewed as real: see the top of this file."""
    swap, part, source = f.index(f.remainder(step, 2)), f.index(f.remainder(column, 2)), matrix.matrix
    pair = f.subtract(column, part)
    offset = matrix.offset(f, f.divide(step, 2), f.add(pair, f.binary("xor", swap, part)))
    value = f.load_as(f.at(f["source"], offset, source.element), source.type, tile.type.scalar)
    negative = f.compare("ugt", swap, part)
    return f.select(negative, f.fneg(value), value)


def sum_columns_of_b(tile: Tile) -> Function:
    """Returns the shared function `(packed, first, count, depth, steps)`, which adds a last row to panels: minus the
    contribution of flipped sign bits.
    """

    def write(f: KernelFunction) -> None:
        packed, first, count, depth, steps = f.parameters
        type = tile.type
        with f.loop(count) as counter:
            of_panel = f.multiply(f.multiply(f.add(counter.index, first), depth), tile.columns)
            panel = f.at(packed, of_panel, type.element)
            with f.loop(steps, carried=[constant(type, 0)] * tile.vectors) as step:
                row = f.at(panel, f.multiply(step.index, tile.columns), type.element)
                for j in range(tile.vectors):
                    words = f.load(f.at(row, j * type.width, type.element), type, size_of(type.element))
                    step.carried[j] = correction(f, words, step.carried[j])
            row = f.at(panel, f.multiply(steps, tile.columns), type.element)
            for j, value in enumerate(step.carried):
                address = f.at(row, j * type.width, type.element)
                f.store(f.binary("sub", constant(type, 0), value), address, size_of(type.element))

    parameters = {"packed": PTR, **dict.fromkeys(("first", "count", "depth", "steps"), I64)}
    return shared_function(f"pack.sums_of_b.{tile.columns}.{tile.type.suffix}", write, **parameters)
