"""Products of f32 in tile registers, from bf16 parts of each factor.

Of the nine products of the parts of two numbers, the three smallest are left out, which together are below 2^-23 of the
product and mostly below 2^-26, less than sums of f32 round off (Henry, Tang and Heinecke 2019: Leveraging the bfloat16
artificial intelligence datatype for higher-precision computations; XLA's algorithm DOT_BF16_BF16_F32_X6, by which TPUs
multiply f32). The instruction multiplies 16 times as many numbers as multiply-adds of f32, and six are needed, so the
product is up to 2.7 times as fast.

The instruction takes subnormal numbers for zero. Since factors are multiplied by 2^24 before, and the sums divided by
2^48, what vanishes is far below the smallest number. Where sums could overflow, or a number is not finite, the plain
product runs instead: packing finds the largest numbers.

Lines and K are packed in chunks, which bounds the memory, by all threads. Then they compute blocks of the result. The
order of sums depends on K alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hloom.backends.cpu.kernels.code import KernelCode, align_up, call_code, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, StackVariable
from hloom.backends.cpu.kernels.products.matmul_plan import MatmulSpec, Product, normalised
from hloom.backends.cpu.kernels.products.split.blocks import block_task
from hloom.backends.cpu.kernels.products.split.factors import LINES, PAIR, SCALE, STEP, STEP_BYTES, VECTOR, Factor
from hloom.backends.cpu.kernels.products.tile_registers import has_tile_instruction
from hloom.lir import I1, I64, IndexValue, Value, constant
from hloom.target import CACHE_LINE, L2_BYTES, TASKS_PER_THREAD, Target
from hloom.types import PrimitiveType

BIAS = 127
LARGEST_EXPONENT = 100  # of a factor
LARGEST_SUM = 126 - 2 * SCALE  # exponent of K products
CHUNK = 1024  # lines and elements of K that are packed at once
BLOCK = 256  # rows and columns of the result in a task
MIN_K = 64
MIN_REUSE, MIN_REUSE_IN_CACHE = 200, 100
"""Multiply-adds for each packed element of a product that pays: more if the packed factors leave the second cache."""


@dataclass(frozen=True)
class Packed:
    """A factor, its array, and where its panels and the exponents of their largest numbers are."""

    factor: Factor
    array: Value
    panels: Value
    exponents: Value

    @property
    def chunk(self) -> int:
        """Lines of the largest chunk, of whole panels."""
        return min(self.factor.panels * LINES, CHUNK)


@dataclass(frozen=True)
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
        left, right, scratch_bytes = self._workspace(f)
        with f.loop(self.batch) as batch, f.loop(self.k, CHUNK) as k, f.loop(left.factor.panels * LINES, CHUNK) as row:
            of_left = self._pack(f, left, (batch.index, row.index, k.index))
            with f.loop(right.factor.panels * LINES, CHUNK) as column:
                of_right = self._pack(f, right, (batch.index, column.index, k.index))
                self._exclude(f, fits, of_left, of_right)
                with f.when(fits.get()):
                    self._multiply(f, left, right, (batch.index, row.index, column.index, k.index))
        with f.unless(fits.get()):
            call_code(f, plain)
        scratch_bytes = max(plain.scratch_bytes, scratch_bytes)
        return replace(plain, functions=(*plain.functions, f.finish()), entry=name, scratch_bytes=scratch_bytes)

    @property
    def _panel_bytes(self) -> int:
        return -(-min(self.k, CHUNK) // STEP) * STEP_BYTES

    def _workspace(self, f: KernelFunction) -> tuple[Packed, Packed, int]:
        """Returns both factors in the workspace, and its bytes."""
        arrays = (f["rhs"], f["lhs"]) if self.swapped else (f["lhs"], f["rhs"])
        packed, end = [], 0
        for factor, array in zip((self.left, self.right), arrays, strict=True):
            panels = min(factor.panels, CHUNK // LINES)
            exponents = end + panels * self._panel_bytes
            at = (f.at(f["scratch"], offset, "i8") for offset in (end, exponents))
            packed.append(Packed(factor, array, *at))
            end = exponents + align_up(panels * 8, CACHE_LINE)
        return packed[0], packed[1], end

    def _pack(self, f: KernelFunction, packed: Packed, at: tuple[IndexValue, IndexValue, IndexValue]) -> Value:
        """Packs the chunk at an index of the batch, a line and an element of K; returns the largest exponent."""
        factor, (batch, line, k) = packed.factor, at
        offset = f.add(f.multiply(line, factor.line), f.multiply(k, factor.step))
        source = f.at(packed.array, f.add(f.multiply(batch, factor.batch), offset), "float")
        other = factor.line if factor.step == 1 else factor.step
        words = self._panel_bytes, f.left(factor.lines, line), self._elements(f, k), factor.line, other
        context = f.pack(source, packed.panels, packed.exponents, *map(f.index, words))
        panels = f.minimum(f.subtract(factor.panels, f.divide(line, LINES)), CHUNK // LINES)
        f.run_chunks(factor.packing, context, panels, f.threads_if(self.threads > 1))
        with f.loop(panels, carried=[f.index(0)]) as panel:
            exponent = f.load(f.at(packed.exponents, panel.index, "i64"), I64, 8)
            panel.carried[0] = f.intrinsic("umax", panel.carried[0], exponent)
        return panel.carried[0]

    def _elements(self, f: KernelFunction, k: IndexValue) -> IndexValue:
        """Returns the elements of the chunk of K at `k`."""
        return f.minimum(f.subtract(self.k, k), CHUNK)

    def _exclude(self, f: KernelFunction, fits: StackVariable, left: Value, right: Value) -> None:
        """Sets `fits` to false if a sum may overflow. An exponent e stands for magnitudes below 2^(e + 1 - bias)."""
        limit = LARGEST_SUM + 2 * (BIAS - 1) - self.k.bit_length()
        are_small = f.compare("ule", f.binary("add", left, right), f.index(limit))
        is_finite = f.compare("ule", f.intrinsic("umax", left, right), f.index(LARGEST_EXPONENT + BIAS))
        fits.set(f.binary("and", fits.get(), f.binary("and", are_small, is_finite)))

    def _multiply(self, f: KernelFunction, left: Packed, right: Packed, at: tuple[IndexValue, ...]) -> None:
        """Multiplies the packed chunks at an index of the batch, a row, a column and an element of K."""
        batch, row, column, k = at
        offset = f.add(f.multiply(batch, self.batch_of_c), f.add(f.multiply(row, self.row_of_c), column))
        sizes = [f.minimum(f.left(x.factor.lines, start), CHUNK) for x, start in ((left, row), (right, column))]
        blocks = self._blocks(left.chunk, right.chunk), self._blocks(right.chunk, left.chunk)
        around = k, f.left(self.k, f.add(k, CHUNK))
        steps = f.ceil_divide(self._elements(f, k), STEP)
        words = self._panel_bytes, *sizes, steps, self.row_of_c, *blocks, *around
        context = f.pack(left.panels, right.panels, f.at(f["out"], offset, "float"), *map(f.index, words))
        f.run_chunks(block_task(), context, blocks[0] * blocks[1], f.threads_if(self.threads > 1))

    def _blocks(self, lines: int, others: int) -> int:
        """Returns into how many blocks of the result the lines of a chunk are divided, beside those of the others."""
        fitting = -(-lines // BLOCK)
        if self.threads == 1:
            return fitting
        wanted = -(-TASKS_PER_THREAD * self.threads // -(-others // BLOCK))
        return max(fitting, min(wanted, lines // (PAIR * LINES)))


def split_product(spec: MatmulSpec, target: Target) -> SplitProduct | None:
    """Returns the product of f32 as one of parts; None for others, and if it does not pay."""
    bf16, types = PrimitiveType.BF16, {spec.lhs_type, spec.rhs_type, spec.out_type}
    can_split = has_tile_instruction(bf16, bf16) and target.vector_bytes == VECTOR.byte_size
    if types != {PrimitiveType.F32} or not can_split or target.batch_invariant:
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
    return p.k >= MIN_K and p.m * p.n >= reuse * (p.m + p.n)
