"""`dot` with an operand that is computed inside, as quantised weights are: a fusion whose root is the dot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, entry_function
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.computed.computed_operand import (
    ComputedOperand,
    Roles,
    computed_operand,
    with_factor,
    with_integers,
    with_rounded_products,
)
from hloom.backends.cpu.kernels.products.dot import matmul_spec
from hloom.backends.cpu.kernels.products.dot_instructions import are_multiplied_as_words
from hloom.backends.cpu.kernels.products.matmul import computed_matmul_code, sum_vector
from hloom.backends.cpu.kernels.products.matrix import Matrix
from hloom.backends.cpu.kernels.products.matvec.byte_codes import BYTES_OF_WORD, WORD, ByteCodes, byte_codes
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers, matvec_code
from hloom.backends.cpu.kernels.products.matvec.tile_panels import panel_columns, tile_panels_code
from hloom.backends.cpu.kernels.products.matvec.tile_sums import tile_columns, tile_sums_code
from hloom.backends.cpu.kernels.products.product import MatmulSpec, Product
from hloom.backends.cpu.kernels.products.repeated_product import Sample, can_be_repeated, repeated_if_infinite
from hloom.backends.cpu.kernels.products.sums import accumulator, can_multiply
from hloom.ir import Instruction
from hloom.ops.control_flow import Fusion
from hloom.ops.dot import Dot
from hloom.ops.structure import Parameter
from hloom.system.records import record
from hloom.target import Target
from hloom.types import PrimitiveType

F32, S32 = PrimitiveType.F32, PrimitiveType.S32
BYTES = {PrimitiveType.S8, PrimitiveType.U8}
Entry = Callable[[str], tuple[KernelFunction, Pointers]]
"""Returns an empty entry of a name, and its pointers."""
MIN_COLUMNS = 16
"""Columns of the computed operand."""
MAX_VECTORS = 16
"""Rows of the other operand with which the computed one is multiplied where it is read."""
MAX_EXACT = 1 << 24
"""Up to which f32 has all integers."""


def emit(op: Fusion, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of a fusion whose root is a dot; None for other fusions."""
    dot = op.calls.root
    if not isinstance(dot.op, Dot):
        return None
    computed, other = dot.operands if isinstance(dot.operands[1].op, Parameter) else reversed(dot.operands)
    assert isinstance(other.op, Parameter)
    number = other.op.number
    sources = [p for p in op.calls.parameters if p is not other or [*p.users] != [dot]]  # both sides may read one array
    found = _product(dot, computed, sources)
    assert found is not None
    spec, weights = found

    def entry(name: str) -> tuple[KernelFunction, Pointers]:
        f = entry_function(name, instruction)
        arrays = [f[f"operand{p.op.number}"] for p in sources if isinstance(p.op, Parameter)]
        return f, Pointers(f[f"operand{number}"], f["result0"], arrays)

    return _code(name, spec, weights, target, entry)


def _code(name: str, spec: MatmulSpec, weights: ComputedOperand, target: Target, entry: Entry) -> KernelCode:
    """Returns the code of a product with computed weights."""
    if spec.m > MAX_VECTORS:
        weights = with_rounded_products(weights)
        f, pointers = entry(name)
        return computed_matmul_code(name, f, _matmul(spec, weights), weights, target, pointers)
    few = _Few(spec, target, entry)
    if (codes := _codes(spec, weights)) is not None:
        return few.in_bytes(name, weights, codes)
    if spec.rhs_type is not F32 or few.is_exact:
        return few.in_tiles(name, weights) or few.plain(name, with_rounded_products(weights))
    integers = with_integers(weights)
    fast = few.without_factor(f"{name}.fast", weights, integers) if can_be_repeated(spec, target) else None
    if fast is None:
        return few.plain(name, weights)
    f, pointers = entry(name)
    exact = few.plain(f"{name}.exact", weights, is_short=True)
    return repeated_if_infinite(f, fast, exact, pointers.out, spec, _sample(integers, pointers))


def _sample(weights: ComputedOperand, pointers: Pointers) -> Sample | None:
    """Returns the zero points that tile registers need to be integers; None if there are none."""
    zero_points = weights.integers
    if zero_points is None:
        return None
    array, buffer = pointers.arrays[zero_points.buffer], weights.buffers[zero_points.buffer]
    return Sample(array, buffer.size, zero_points.op)


@record
class _Few:
    """Products of a few rows with computed weights, which are computed where they are read."""

    spec: MatmulSpec
    target: Target
    entry: Entry

    @property
    def is_exact(self) -> bool:
        """Whether the product is one of integers in f32, which has all sums."""
        return self.spec.rhs_type is F32 and self.spec.out_type.is_integer

    def plain(self, name: str, weights: ComputedOperand, is_short: bool = False) -> KernelCode:
        """Returns the code with vectors; short rather than fast code if it rarely runs."""
        spec = self.spec
        types = (F32, F32, F32) if self.is_exact else (spec.lhs_type, spec.rhs_type, spec.out_type)
        f, pointers = self.entry(name)
        matvec = replace(_matvec(spec, weights), is_short=is_short)
        return matvec_code(name, f, matvec, sum_vector(accumulator(*types), self.target), self.target, pointers)

    def in_bytes(self, name: str, weights: ComputedOperand, codes: ByteCodes) -> KernelCode:
        """Returns the code with words of bytes, in tile registers or vectors."""
        words = codes.padded_k // BYTES_OF_WORD
        matvec = replace(_matvec(self.spec, weights), codes=codes, k=words, instruction=codes.instruction)
        if (tiles := self._in_tiles(name, matvec)) is not None:
            return tiles
        f, pointers = self.entry(name)
        return matvec_code(name, f, matvec, WORD, self.target, pointers)

    def in_tiles(self, name: str, weights: ComputedOperand) -> KernelCode | None:
        """Returns the code in tile registers; None for other products."""
        return self._in_tiles(name, _matvec(self.spec, weights))

    def _in_tiles(self, name: str, matvec: Matvec) -> KernelCode | None:
        for choice, code in ((tile_columns, tile_sums_code), (panel_columns, tile_panels_code)):
            if (columns := choice(matvec, self.target)) is not None:
                f, pointers = self.entry(name)
                return code(name, f, matvec, columns, self.target, pointers)
        return None

    def without_factor(self, name: str, weights: ComputedOperand, integers: ComputedOperand) -> KernelCode | None:
        """Returns the code that adds products without the factor of the weights, which tile registers need as integers;
        None if that is not faster.
        """
        factored, tiles = with_factor(weights), self.in_tiles(name, with_factor(integers, in_tiles=True) or weights)
        is_in_table = weights.coded is not None  # a table of codes has products with the factor
        return tiles if tiles is not None or factored is None or is_in_table else self.plain(name, factored)


def can_compute(dot: Instruction, operand: Instruction, sources: Iterable[Instruction]) -> bool:
    """Whether there is code for a dot that computes an operand from these arrays."""
    return _product(dot, operand, sources) is not None


def _product(
    dot: Instruction, operand: Instruction, sources: Iterable[Instruction]
) -> tuple[MatmulSpec, ComputedOperand] | None:
    """Returns the product with the computed operand as its rhs, and that operand; None if there is no code for it.

    The operand is f32 where f32 has all sums of a product of integers.
    """
    op = dot.op
    assert isinstance(op, Dot)
    spec, is_lhs = matmul_spec(op, dot), dot.operands[0] is operand
    if spec is None or spec.batch * spec.m * spec.n * spec.k == 0 or spec.is_complex:
        return None
    spec = spec.transposed() if is_lhs else spec
    if spec.n < MIN_COLUMNS or not can_multiply(spec.lhs_type, spec.rhs_type, spec.out_type):
        return None
    if spec.m > MAX_VECTORS and are_multiplied_as_words(spec.lhs_type, spec.rhs_type):
        return None  # products of stored words are faster
    roles, indices = _roles(op, operand, is_lhs), {source: k for k, source in enumerate(sources)}
    if _is_narrow(spec):
        floats = computed_operand(operand, roles, indices, F32)
        is_few = spec.m <= MAX_VECTORS and (_codes(spec, floats) is not None or _is_exact(spec, floats))
        return (replace(spec, rhs_type=F32), floats) if is_few else None  # products of stored bytes are faster
    computed = computed_operand(operand, roles, indices)
    return None if computed.contiguous is None else (spec, computed)


def _is_narrow(spec: MatmulSpec) -> bool:
    """Whether a product is one of bytes."""
    return {spec.lhs_type, spec.rhs_type} <= BYTES and spec.out_type is S32


def _codes(spec: MatmulSpec, weights: ComputedOperand) -> ByteCodes | None:
    """Returns weights as codes that are multiplied as bytes; None for others, and if rows are not contiguous."""
    if spec.lhs_type not in BYTES or spec.out_type is not S32 or spec.lhs_strides[2] != 1:
        return None
    return byte_codes(weights, spec.lhs_type, spec.k)


def _is_exact(spec: MatmulSpec, weights: ComputedOperand) -> bool:
    """Whether weights are codes of 4 bits, which are looked up, and so small that f32 has all sums of products."""
    if weights.table is None:
        return False
    low, high = spec.lhs_type.limits
    largest = np.abs(weights.table).max() * max(-low, high)
    return bool(spec.k * largest <= MAX_EXACT)


def _roles(op: Dot, operand: Instruction, is_lhs: bool) -> Roles:
    rank = operand.shape.rank
    if is_lhs:
        return op.lhs_batch_dims, op.lhs_free_dims(rank), op.lhs_contracting_dims
    return op.rhs_batch_dims, op.rhs_free_dims(rank), op.rhs_contracting_dims


def _matvec(spec: MatmulSpec, computed: ComputedOperand) -> Matvec:
    """Returns the product as the computed matrix times a few vectors."""
    (a0, a1, a2), (c0, c1, c2) = spec.lhs_strides, spec.out_strides
    matrix = Matrix(spec.rhs_type, *((0, 1) if computed.contiguous is computed.contracted else (1, 0)))
    vectors, out = Matrix(spec.lhs_type, a2, a1), Matrix(spec.out_type, c2, c1)
    return Matvec(spec.batch, spec.n, spec.k, spec.m, matrix, vectors, out, (0, a0, c0), computed)


def _matmul(spec: MatmulSpec, computed: ComputedOperand) -> Product:
    """Returns the product with the computed operand as B."""
    (a0, a1, a2), (c0, c1, c2) = spec.lhs_strides, spec.out_strides
    strides = (1, 0) if computed.contiguous is computed.contracted else (0, 1)
    a, b = Matrix(spec.lhs_type, a1, a2 if spec.k > 1 else 1), Matrix(spec.rhs_type, *strides, computed=True)
    c, batch_strides = Matrix(spec.out_type, c1, c2), (a0, 0, c0)
    return Product(spec.batch, spec.m, spec.n, spec.k, a, b, c, batch_strides, is_complex=False, swapped=False)
