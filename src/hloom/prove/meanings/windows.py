"""Windows: reduce-window, select-and-scatter, convolution (WIN-1 to WIN-6)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.ops.attributes import Window
from hloom.ops.convolution import Convolution
from hloom.ops.reduce_window import ReduceWindow, SelectAndScatter
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.meanings.products import accumulating_type, sum_of_products
from hloom.prove.meanings.reductions import combined, results_of
from hloom.prove.terms.functions import AND, TRUE, apply, choose, converted, negation
from hloom.prove.terms.term import Term, array_of, constant
from hloom.types import PrimitiveType
from hloom.values import Array

Position = tuple[int, ...]


def window_positions(window: Window, at: Position, sizes: Position) -> Iterator[tuple[Position, Position | None]]:
    """Yields, for each element of a window that meets no hole, its position in the window and in the array.

    The position in the array is None in the padding.
    """
    for offsets in itertools.product(*(range(d.size) for d in window)):
        positions = [
            i * d.stride + k * d.window_dilation - d.padding_low for i, k, d in zip(at, offsets, window, strict=True)
        ]
        if any(position % d.base_dilation for position, d in zip(positions, window, strict=True)):
            continue
        index = tuple(position // d.base_dilation for position, d in zip(positions, window, strict=True))
        yield offsets, index if all(0 <= i < size for i, size in zip(index, sizes, strict=True)) else None


def _counts(window: Window, sizes: Position) -> Position:
    return tuple(d.count(size) for d, size in zip(window, sizes, strict=True))


@RULES.rule(ReduceWindow)
def _reduce_window(
    op: ReduceWindow, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    """Padding and holes are skipped (REDUCEWINDOW-2)."""
    half, sizes = len(operands) // 2, operands[0].shape
    initial = [operand[()] for operand in operands[half:]]
    counts = _counts(op.window, sizes)
    found = []
    for at in np.ndindex(*counts):
        inside = [index for _, index in window_positions(op.window, at, sizes) if index is not None]
        rows = [[operand[index] for operand in operands[:half]] for index in inside]
        found.append(combined(evaluator, op.computation, initial, rows))
    return results_of(found, half, counts)


@RULES.rule(SelectAndScatter)
def _select_and_scatter(
    op: SelectAndScatter, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Array:
    """Adds an update to each element of its window, where that is the selected one."""
    operand, source, initial = operands
    result = array_of([initial[()]] * operand.size, operand.shape)
    for at in np.ndindex(*source.shape):
        for index, is_selected in _selected(op, evaluator, operand, at):
            (new,) = evaluator.scalars(op.scatter, [result[index], source[at]])
            result[index] = choose(is_selected, new, result[index])
    return result


def _selected(op: SelectAndScatter, evaluator: Evaluator, operand: Array, at: Position) -> list[tuple[Position, Term]]:
    """Returns the elements of a window, each with whether it is the selected one."""
    found: list[tuple[Position, Term]] = []
    best: Term | None = None
    for _, index in window_positions(op.window, at, operand.shape):
        if index is None:
            continue
        value: Term = operand[index]
        if best is None:
            best, found = value, [(index, TRUE)]
            continue
        (keeps,) = evaluator.scalars(op.select, [best, value])
        found = [(i, apply(AND, PrimitiveType.PRED, (condition, keeps))) for i, condition in found]
        found.append((index, negation(keeps)))
        best = choose(keeps, best, value)
    return found


@RULES.rule(Convolution)
def _convolution(op: Convolution, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """Sums products with each element of the kernel; padding is zeros, holes have no product (CONVGENERAL-1 to -10)."""
    n = op.dimension_numbers
    lhs, rhs = operands
    type = instruction.shape.element_type
    wide = accumulating_type(instruction)
    base = lhs.transpose(n.input_batch_dimension, n.input_feature_dimension, *n.input_spatial_dimensions)
    kernel = rhs.transpose(
        n.kernel_output_feature_dimension, n.kernel_input_feature_dimension, *n.kernel_spatial_dimensions
    )
    batch, counts = base.shape[0] // op.batch_group_count, _counts(op.window, base.shape[2:])
    found = np.empty((batch, kernel.shape[0], *counts), object)
    zero = constant(wide, 0)
    for b, o, *at in np.ndindex(*found.shape):
        evaluator.deadline.check("the evaluation of the convolution")
        rows, first = _group(op, b, o, batch, kernel.shape)
        factors = []
        for offsets, index in window_positions(op.window, tuple(at), base.shape[2:]):
            tap = tuple(d.size - 1 - k if d.window_reversal else k for k, d in zip(offsets, op.window, strict=True))
            for i in range(kernel.shape[1]):
                x = zero if index is None else converted(base[(rows, first + i, *index)], wide)
                factors.append((x, converted(kernel[(o, i, *tap)], wide)))
        found[(b, o, *at)] = converted(sum_of_products(wide, factors), type)
    order = np.argsort([n.output_batch_dimension, n.output_feature_dimension, *n.output_spatial_dimensions])
    return found.transpose(order)


def _group(op: Convolution, b: int, o: int, batch: int, kernel: Position) -> tuple[int, int]:
    """Returns the row of the batch and the first input feature that an output reads (CONVGENERAL-7, -9)."""
    outputs = max(1, kernel[0] // (op.feature_group_count * op.batch_group_count))
    group = o // outputs
    return (group * batch + b, 0) if op.batch_group_count > 1 else (b, group * kernel[1])
