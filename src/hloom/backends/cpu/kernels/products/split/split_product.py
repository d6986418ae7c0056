"""Products of f32 in tile registers, from bf16 parts of each factor.

Of the nine products of the parts of two numbers, the three smallest are left out, which together are below 2^-23 of the
product and mostly below 2^-26, less than sums of f32 round off (Henry, Tang and Heinecke 2019: Leveraging the bfloat16
artificial intelligence datatype for higher-precision computations; XLA's algorithm DOT_BF16_BF16_F32_X6, by which TPUs
multiply f32). The instruction multiplies 16 times as many numbers as multiply-adds of f32, and six are needed, so the
product is up to 2.7 times as fast.

The instruction takes subnormal numbers for zero. Since factors are multiplied by 2^24 before, and the sums divided by
2^48, what vanishes is far below the smallest number. Where sums could overflow, or a number is not finite, the plain
product runs instead: packing finds the largest numbers.

All threads pack a chunk of the left factor, which bounds the memory. Then they compute blocks of the result, for which
they pack the columns of the right factor just before they multiply them. The order of sums depends on K alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

from hloom.backends.cpu.kernels.code import KernelCode, call_code, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.product import MatmulSpec, Product, normalised
from hloom.backends.cpu.kernels.products.split.blocks import BlockContext, PanelContext, block_task, packing_task
from hloom.backends.cpu.kernels.products.split.factors import LINES, PAIR, SCALE, STEP, STEP_BYTES, VECTOR, Factor
from hloom.lir import I1, I64, IndexValue, Value, constant
from hloom.system.records import record
from hloom.target import L2_BYTES, TASKS_PER_THREAD, Target

BIAS = 127
LARGEST_EXPONENT = 100  # of a factor
LARGEST_SUM = 126 - 2 * SCALE  # exponent of K products
CHUNK = 1024  # rows and elements of K that are packed at once
BLOCK = 512  # rows of the result in a task, each of which packs columns anew
MIN_K, MAX_K = 64, 1 << 13
"""Terms of a sum. Sums of few steps follow each other in the result, in one chain: with more of them it errs more than
the sums of blocks in vectors (sums.py)."""
MIN_REUSE, MIN_REUSE_IN_CACHE = 150, 100
"""Multiply-adds for each packed element of a product that pays: more if the packed factors leave the second cache."""


@record
class SplitProduct:
    """A batch of products of `k` elements, and the distances of rows and of the batch in the result.

    If they are `swapped`, the left factor is the right operand.
    """

    left: Factor
    right: Factor
    k: int
    batch: int
    row_of_c: int
    batch_of_c: int
    swapped: bool
    threads: int

    def code(self, name: str, plain: KernelCode) -> KernelCode:
        """Returns the code of the product from that of the plain one."""
        f = entry_of(name, "lhs", "rhs", "out")
        fits = f.variable(constant(I1, True))
        with f.loop(self.batch) as batch, f.loop(self.k, CHUNK) as k, f.loop(self.left.lines, CHUNK) as row:
            at = batch.index, row.index, k.index
            with f.when(fits.get()):
                fits.set(self._fits(f, self._pack(f, at), self._multiply(f, at)))
        with f.unless(fits.get()):
            call_code(f, plain)
        scratch_bytes = max(plain.scratch_bytes, self._panels * (self._panel_bytes + 8) + self._tasks * 8)
        return replace(plain, functions=(*plain.functions, f.finish()), entry=name, scratch_bytes=scratch_bytes)

    @property
    def _panels(self) -> int:
        """Panels of the left factor that are packed at once."""
        return min(self.left.panels, CHUNK // LINES)

    @property
    def _panel_bytes(self) -> int:
        return -(-min(self.k, CHUNK) // STEP) * STEP_BYTES

    @property
    def _blocks(self) -> tuple[int, int]:
        """Blocks of rows and of columns of the result, for a chunk of rows."""
        rows = -(-min(self.left.lines, CHUNK) // BLOCK)
        wanted = TASKS_PER_THREAD * self.threads if self.threads > 1 else 1
        return rows, min(-(-wanted // rows), self.right.panels // PAIR)

    @property
    def _tasks(self) -> int:
        return math.prod(self._blocks)

    def _pack(self, f: KernelFunction, at: tuple[IndexValue, ...]) -> Value:
        """Packs the chunk of the left factor at an index of the batch, a row and an element of K; returns the largest
        exponent.
        """
        _, row, k = at
        factor, lines = self.left, f.subtract(self.left.lines, row)
        context = PanelContext(
            source=self._element(f, factor, f["rhs"] if self.swapped else f["lhs"], at),
            panels=f["scratch"],
            exponents=self._exponents(f),
            function=f.address_of(factor.packing),
            panel_bytes=f.index(self._panel_bytes),
            lines=f.index(lines),
            elements=f.index(self._elements(f, k)),
            line=f.index(factor.line),
            step=f.index(factor.step),
        )
        panels = f.minimum(f.ceil_divide(lines, LINES), CHUNK // LINES)
        f.run_chunks(packing_task(), f.pack(*context), panels, f.threads_if(self.threads > 1))
        return self._largest(f, panels)

    def _multiply(self, f: KernelFunction, at: tuple[IndexValue, ...]) -> Value:
        """Multiplies the packed rows by all columns; returns the largest exponent of the right factor."""
        batch, row, k = at
        factor, (row_blocks, column_blocks) = self.right, self._blocks
        offset = f.add(f.multiply(batch, self.batch_of_c), f.multiply(row, self.row_of_c))
        context = BlockContext(
            panels=f["scratch"],
            source=self._element(f, factor, f["lhs"] if self.swapped else f["rhs"], (batch, 0, k)),
            out=f.at(f["out"], offset, "float"),
            exponents=self._exponents(f),
            function=f.address_of(factor.packing),
            panel_bytes=f.index(self._panel_bytes),
            rows=f.index(f.minimum(f.subtract(self.left.lines, row), CHUNK)),
            columns=f.index(factor.lines),
            elements=f.index(self._elements(f, k)),
            row_of_out=f.index(self.row_of_c),
            row_blocks=f.index(row_blocks),
            column_blocks=f.index(column_blocks),
            before=f.index(k),
            after=f.index(f.left(self.k, f.add(k, CHUNK))),
            line=f.index(factor.line),
            step=f.index(factor.step),
        )
        f.run_chunks(block_task(), f.pack(*context), self._tasks, f.threads_if(self.threads > 1))
        return self._largest(f, self._tasks)

    def _element(self, f: KernelFunction, factor: Factor, array: Value, at: tuple[IndexValue, ...]) -> Value:
        """Returns the address of the element at an index of the batch, a line and an element of K."""
        distances = factor.batch, factor.line, factor.step
        offset: IndexValue = 0
        for index, distance in zip(at, distances, strict=True):
            offset = f.add(offset, f.multiply(index, distance))
        return f.at(array, offset, "float")

    def _elements(self, f: KernelFunction, k: IndexValue) -> IndexValue:
        """Returns the elements of the chunk of K at `k`."""
        return f.minimum(f.subtract(self.k, k), CHUNK)

    def _exponents(self, f: KernelFunction) -> Value:
        """Returns the address of the largest exponent of each task."""
        return f.at(f["scratch"], self._panels * self._panel_bytes, "i8")

    def _largest(self, f: KernelFunction, tasks: IndexValue) -> Value:
        """Returns the largest exponent of all tasks."""
        exponents = self._exponents(f)
        with f.loop(tasks, carried=[f.index(0)]) as task:
            exponent = f.load(f.at(exponents, task.index, "i64"), I64, 8)
            task.carried[0] = f.intrinsic("umax", task.carried[0], exponent)
        return task.carried[0]

    def _fits(self, f: KernelFunction, left: Value, right: Value) -> Value:
        """Whether no sum can overflow. An exponent e stands for magnitudes below 2^(e + 1 - bias)."""
        limit = LARGEST_SUM + 2 * (BIAS - 1) - self.k.bit_length()
        are_small = f.compare("ule", f.binary("add", left, right), f.index(limit))
        is_finite = f.compare("ule", f.intrinsic("umax", left, right), f.index(LARGEST_EXPONENT + BIAS))
        return f.binary("and", are_small, is_finite)


def split_product(spec: MatmulSpec, target: Target) -> SplitProduct | None:
    """Returns the product of f32 as one of parts; None if it does not pay, or for other vectors."""
    if target.vector_bytes != VECTOR.byte_size:
        return None
    p = normalised(spec)
    of_a, of_b, of_c = p.batch_strides
    left = Factor(p.m, p.a.row, p.a.column, of_a, is_right=False)
    right = Factor(p.n, p.b.column, p.b.row, of_b, is_right=True)
    is_dense = 1 in (left.line, left.step) and 1 in (right.line, right.step) and p.c.column == 1
    if not is_dense or not _pays(p):
        return None
    return SplitProduct(left, right, p.k, p.batch, p.c.row, of_c, p.swapped, target.threads)


def _pays(p: Product) -> bool:
    packed_bytes = (p.m + p.n) * p.k * STEP_BYTES // (LINES * STEP)
    reuse = MIN_REUSE_IN_CACHE if packed_bytes <= L2_BYTES else MIN_REUSE
    return MIN_K <= p.k <= MAX_K and p.m * p.n >= reuse * (p.m + p.n)
