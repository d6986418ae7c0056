"""Packing of the right operand of a matrix product into panels (see micro_kernel.py).

Each function is `name(source, target, columns, first, count)`: it packs `count` steps of K, or panels, from `first` on.
A complex operand becomes twice as many real steps and columns: the step of a real part has (re, im) pairs, that of an
imaginary part (-im, re), so that the kernel's real sums are those of the complex product.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.transpose import transpose_squares
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.dot_instructions import correction
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.tile import Tile
from hloom.lir import I64, PTR, IndexValue, Value, constant, type_of


def _function(name: str) -> KernelFunction:
    return KernelFunction(name, source=PTR, target=PTR, columns=I64, first=I64, count=I64)


def pack_rows_of_b(
    name: str, source: Matrix, tile: Tile, depth: int, steps: int, ragged: bool, is_complex: bool
) -> KernelFunction:
    """Returns the function for contiguous rows, which copies vectors. It counts steps of the source, complex ones if it
    is.
    """
    f = _function(name)
    source_address, target_address, columns, first, count = f.parameters
    type = tile.type
    panels = f.ceil_divide(columns, tile.columns)
    with f.loop(count) as counter:
        step = f.add(counter.index, first)
        line = f.at(source_address, f.multiply(step, source.row), source.element)
        elements = source.elements_left(f, steps, step)
        with f.loop(panels) as panel:
            start = f.multiply(panel.index, tile.columns)
            target_step = f.multiply(step, 2 if is_complex else 1)
            offset = f.add(f.multiply(panel.index, depth * tile.columns), f.multiply(target_step, tile.columns))
            target = f.at(target_address, offset, type.element)
            for j in range(tile.vectors):
                at = f.add(start, j * type.width)
                left = f.left(columns, at) if ragged else None
                mask = f.first_lanes(left, type.width) if left else None
                value = source.load_step(f, f.at(line, at, source.element), type, elements, mask)
                f.store(value, f.at(target, j * type.width, type.element), size_of(type.element))
                if is_complex:
                    rotated = _times_i(f, value)
                    f.store(rotated, f.at(target, tile.columns + j * type.width, type.element), size_of(type.element))
    return f


def _times_i(f: KernelFunction, pairs: Value) -> Value:
    """Multiplies (re, im) pairs by the imaginary unit: (-im, re)."""
    width = pairs.type.width
    swapped = f.shuffle(pairs, None, [lane ^ 1 for lane in range(width)])
    negated = f.fneg(swapped)
    return f.shuffle(swapped, negated, [lane + (0 if lane % 2 else width) for lane in range(width)])


def pack_columns_of_b(
    name: str, source: Matrix, tile: Tile, depth: int, steps: int, ragged: bool, one_panel: bool
) -> KernelFunction:
    """Returns the function for contiguous columns, which counts panels; for `one_panel`, steps of K from the first on.

    An iteration packs a few steps (at most 16 bytes) of a vector's width of columns: parts of columns are joined to
    vectors, which are transposed within each 16 bytes. The last iteration may write zeros past the last step, up to
    `depth`.
    """
    f = _function(name)
    source_address, target_address, columns, first, count = f.parameters
    type, width = tile.type, tile.type.width
    part = type_of(type.element, min(128 // type.bits, width))
    last = f.subtract(columns, 1)  # columns past the last one repeat it
    is_whole = source.elements(steps) % (source.per_step * part.width) == 0
    panels, steps_of_panel = (1, count) if one_panel else (count, f.index(steps))
    with f.loop(f.multiply(panels, tile.vectors)) as counter:
        vector_index = f.add(counter.index, f.multiply(first, tile.vectors))
        column, lane = f.multiply(vector_index, width), f.multiply(f.remainder(vector_index, tile.vectors), width)
        base = f.multiply(f.divide(vector_index, tile.vectors), depth * tile.columns)
        target = f.at(target_address, f.add(base, lane), type.element)
        if ragged:
            starts = [f.multiply(f.minimum(f.add(column, i), last), source.column) for i in range(width)]
        else:
            starts = [f.add(f.multiply(column, source.column), i * source.column) for i in range(width)]
        lines = [f.at(source_address, start, source.element) for start in starts]
        with f.loop(steps_of_panel, part.width) as step:
            left = source.elements_left(f, steps_of_panel, step.index)
            along = f.multiply(step.index, source.per_step)
            addresses = [f.at(line, along, source.element) for line in lines]
            parts = [source.load_steps(f, address, part, None if is_whole else left) for address in addresses]
            rows = [f.concatenated(parts[i :: part.width]) for i in range(part.width)]
            for i, row in enumerate(transpose_squares(f, rows)):
                offset = f.multiply(f.add(step.index, i), tile.columns)
                f.store(row, f.at(target, offset, type.element), size_of(type.element))
    return f


def pack_any_b(name: str, source: Matrix, tile: Tile, depth: int, steps: int, is_complex: bool) -> KernelFunction:
    """Returns the function for any distances, which packs one element at a time and counts panels."""
    f = _function(name)
    source_address, target_address, columns, first, count = f.parameters
    type = tile.type.scalar
    last = f.subtract(columns, 1)
    with f.loop(count) as counter:
        panel = f.add(counter.index, first)
        base = f.at(target_address, f.multiply(panel, depth * tile.columns), type.element)
        with f.loop(steps) as step, f.loop(tile.columns) as lane:
            column = f.minimum(f.add(f.multiply(panel, tile.columns), lane.index), last)
            if is_complex:
                value = _complex_element(f, source_address, source, tile, step.index, column)
            else:
                pointer = f.at(source_address, source.offset(f, step.index, column), source.element)
                value = source.load_step(f, pointer, type, source.elements_left(f, steps, step.index))
            offset = f.add(f.multiply(step.index, tile.columns), lane.index)
            f.store(value, f.at(base, offset, type.element), size_of(type.element))
    return f


def _complex_element(
    f: KernelFunction, base: Value, source: Matrix, tile: Tile, step: IndexValue, column: IndexValue
) -> Value:
    """Loads the real number at (step, column) of a complex matrix viewed as real: see the top of this file."""
    swap, part = f.index(f.remainder(step, 2)), f.index(f.remainder(column, 2))
    pair = f.subtract(column, part)
    offset = source.offset(f, f.divide(step, 2), f.add(pair, f.binary("xor", swap, part)))
    value = f.load_as(f.at(base, offset, source.element), source.type, tile.type.scalar)
    negative = f.compare("ugt", swap, part)
    return f.select(negative, f.fneg(value), value)


def sum_columns_of_b(name: str, tile: Tile, depth: int, steps: int) -> KernelFunction:
    """Returns `name(packed, first, count)`, which adds a last row to panels: minus the contribution of flipped sign
    bits.
    """
    f = KernelFunction(name, packed=PTR, first=I64, count=I64)
    packed, first, count = f.parameters
    type = tile.type
    with f.loop(count) as counter:
        panel = f.at(packed, f.multiply(f.add(counter.index, first), depth * tile.columns), type.element)
        with f.loop(steps, carried=[constant(type, 0)] * tile.vectors) as step:
            row = f.at(panel, f.multiply(step.index, tile.columns), type.element)
            for j in range(tile.vectors):
                words = f.load(f.at(row, j * type.width, type.element), type, size_of(type.element))
                step.carried[j] = correction(f, words, step.carried[j])
        for j, value in enumerate(step.carried):
            address = f.at(panel, steps * tile.columns + j * type.width, type.element)
            f.store(f.binary("sub", constant(type, 0), value), address, size_of(type.element))
    return f
