"""Packing of a computed operand into panels (see micro_kernel.py).

Each function is `name(source, target, columns, first, count)`, as those in pack_b.py. The source is a context: the
index of the product in the batch, the first column, and the arrays from which the operand is computed.
"""

from __future__ import annotations

from hloom.backends.cpu.elements.transpose import transpose
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, size_of
from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
from hloom.backends.cpu.kernels.products.computed.operand_emitter import OperandEmitter
from hloom.backends.cpu.kernels.products.matvec.streamed_matrix import ComputedMatrix
from hloom.backends.cpu.kernels.products.tiles.tile import Tile
from hloom.lir import I64, PTR, IndexValue


def pack_computed_rows(name: str, operand: ComputedOperand, tile: Tile, depth: int, ragged: bool) -> KernelFunction:
    """Returns the function for weights that are contiguous along columns; it counts steps of K."""
    f, matrix, first_column = _function(name, operand, tile)
    _, target_address, columns, first, count = f.parameters
    type = tile.type
    with f.loop(count) as counter:
        step = f.add(counter.index, first)
        load = matrix.columns(step, 1)
        with f.loop(f.ceil_divide(columns, tile.columns)) as panel:
            start = f.multiply(panel.index, tile.columns)
            offset = f.add(f.multiply(panel.index, depth * tile.columns), f.multiply(step, tile.columns))
            for j in range(tile.vectors):
                at = f.add(start, j * type.width)
                mask = f.first_lanes(f.left(columns, at), type.width) if ragged else None
                ((value,),) = load(f.add(first_column, at), mask)
                address = f.at(target_address, f.add(offset, j * type.width), type.element)
                f.store(value, address, size_of(type.element))
    return f


def pack_computed_columns(name: str, operand: ComputedOperand, tile: Tile, depth: int, steps: int) -> KernelFunction:
    """Returns the function for weights that are contiguous along K; it counts panels.

    Squares of a vector's width are computed along K, and transposed in registers. Columns past the last one repeat it;
    the last square may write zeros past the last step, up to `depth`.
    """
    f, matrix, first_column = _function(name, operand, tile)
    _, target_address, columns, first, count = f.parameters
    type, width = tile.type, tile.type.width
    last = f.subtract(columns, 1)
    with f.loop(f.multiply(count, tile.vectors)) as counter:
        index = f.add(counter.index, f.multiply(first, tile.vectors))
        lane = f.multiply(f.remainder(index, tile.vectors), width)
        panel = f.at(target_address, f.multiply(f.divide(index, tile.vectors), depth * tile.columns), type.element)
        indices = [f.minimum(f.add(f.multiply(index, width), i), last) for i in range(width)]
        rows = [matrix.row(f.add(first_column, column)) for column in indices]
        with f.loop(steps, width) as step:
            mask = f.first_lanes(f.subtract(steps, step.index), width) if steps % width else None
            values = transpose(f, [row.load(step.index, mask)[0] for row in rows])
            for i, value in zip(matrix.order or range(width), values, strict=True):
                offset = f.add(f.multiply(f.add(step.index, i), tile.columns), lane)
                f.store(value, f.at(panel, offset, type.element), size_of(type.element))
    return f


def _function(name: str, operand: ComputedOperand, tile: Tile) -> tuple[KernelFunction, ComputedMatrix, IndexValue]:
    """Returns a function, the matrix whose rows are columns of the operand, and the first column to pack."""
    f = KernelFunction(name, source=PTR, target=PTR, columns=I64, first=I64, count=I64)
    batch, column, *arrays = f.unpack(f["source"], I64, I64, *[PTR] * len(operand.buffers))
    return f, ComputedMatrix(OperandEmitter(f, operand, arrays, tile.type), batch), column
