"""Matrix products as LLVM IR: sizes, strides and types of the operands are constants of the code.

A product is a matrix times a few vectors (matvec), or of f32 from bf16 parts (split), or by blocks and tiles (blocked).
The first two are imported by the first such product.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.backends.cpu.elements.types import memory_element
from hloom.backends.cpu.kernels.code import KernelCode, PackedCode, code_of, entry_of
from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.blocked.blocked_product import ARRAYS, BlockedProduct, Instruction
from hloom.backends.cpu.kernels.products.blocked.matmul_plan import MatmulPlan
from hloom.backends.cpu.kernels.products.blocked.planning import make_plan
from hloom.backends.cpu.kernels.products.dot_instructions import dot_instruction, in_words
from hloom.backends.cpu.kernels.products.product import MatmulSpec, Product, normalised
from hloom.backends.cpu.kernels.products.scaled_product import scaled_product
from hloom.backends.cpu.kernels.products.sums import accumulator
from hloom.backends.cpu.kernels.products.tiles.tile_registers import has_tile_instruction, tile_instruction
from hloom.lir import IndexValue, Type, constant, type_of
from hloom.target import L2_BYTES, Target
from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from hloom.backends.cpu.kernels.products.computed.computed_operand import ComputedOperand
    from hloom.backends.cpu.kernels.products.matvec.matvec import Pointers
    from hloom.backends.cpu.kernels.products.matvec_product import MatvecProduct
    from hloom.backends.cpu.kernels.products.split.split_product import SplitProduct

MAX_VECTORS, AVX2_BITS = 4, 256
"""Vectors of floats by which a large matrix is multiplied where it is read, on processors with registers of AVX2."""
MIN_LARGE_SIDE = 256
"""Rows and columns of a large matrix that is not narrow."""
MAX_VECTORS_OF_WORDS = 8
"""Vectors of words by which a matrix is multiplied where it is read."""


def emit_matmul(name: str, spec: MatmulSpec, target: Target) -> KernelCode:
    """Returns the code of a product. Raises ValueError for element types without code."""
    vector = _sum_vector(spec, target)
    if spec.batch * spec.m * spec.n * spec.k == 0:
        return _zeros_code(name, spec)
    if (scaled := scaled_product(spec, vector, target)) is not None:
        return scaled.code(name, _unscaled_code(f"{name}.plain", spec, vector, target))
    return _unscaled_code(name, spec, vector, target)


def _unscaled_code(name: str, spec: MatmulSpec, vector: Type, target: Target) -> KernelCode:
    if (split := as_split(spec, target)) is not None:
        return split.code(name, _plain_code(f"{name}.whole", spec, vector, target))
    return _plain_code(name, spec, vector, target)


def as_split(spec: MatmulSpec, target: Target) -> SplitProduct | None:
    """Returns the product of f32 as one of bf16 parts; None for others, and if it does not pay."""
    bf16, types = PrimitiveType.BF16, {spec.lhs_type, spec.rhs_type, spec.out_type}
    if types != {PrimitiveType.F32} or target.batch_invariant or not has_tile_instruction(bf16, bf16):
        return None
    from hloom.backends.cpu.kernels.products.split.split_product import split_product

    return split_product(spec, target)


def _plain_code(name: str, spec: MatmulSpec, vector: Type, target: Target) -> KernelCode:
    p = normalised(spec, target.batch_invariant)
    if (matvec := _as_matvec(p, vector, target)) is not None:
        return matvec.code(name)
    return BlockedProduct(name, *_planned(p, vector, target)).code()


def computed_matmul_code(
    name: str, f: KernelFunction, p: Product, computed: ComputedOperand, target: Target, at: Pointers
) -> KernelCode:
    """Completes the entry `f` of a product whose B is computed while it is packed; returns its code."""
    types = p.a.type, p.b.type, p.c.type
    plan = make_plan(p, sum_vector(accumulator(*types), target), target)
    return BlockedProduct(name, plan, computed=computed).completed(f, at.other, at.arrays, at.out)


def _planned(p: Product, vector: Type, target: Target, shares_b: bool = False) -> tuple[MatmulPlan, Instruction | None]:
    if (tiles := tile_instruction(p, vector, target)) is not None:
        return make_plan(in_words(p, tiles.count), vector, target, in_tile_registers=True), tiles
    instruction = dot_instruction(p, vector, any_side=target.batch_invariant)
    if instruction is not None:
        p = in_words(p, instruction.count, instruction.flipped)
    return make_plan(p, vector, target, shares_b=shares_b), instruction


def emit_packed_matmul(name: str, spec: MatmulSpec, target: Target) -> PackedCode | None:
    """Returns the product in two steps, for loops whose iterations share an operand; None if none is packed whole."""
    if spec.batch * spec.m * spec.n * spec.k == 0:
        return None
    p = normalised(spec, target.batch_invariant)
    vector = _sum_vector(spec, target)
    if (matvec := _as_matvec(p, vector, target)) is not None:
        return matvec.packed(name)
    planned, instruction = _planned(p, vector, target, shares_b=True)
    if planned.b_storage != "shared" or p.batch > 1 or planned.columns < p.n:
        return None
    packing, product = (BlockedProduct(f"{name}.{part}", planned, instruction) for part in ("packing", "packed"))
    return PackedCode(0 if p.swapped else 1, packing.packed_b.bytes, packing.packing_code(), product.packed_code())


def sum_vector(sums: Type, target: Target) -> Type:
    """Returns the type of a vector of sums."""
    return type_of(sums.element, target.vector_bytes * 8 // sums.bits)


def _sum_vector(spec: MatmulSpec, target: Target) -> Type:
    return sum_vector(accumulator(spec.lhs_type, spec.rhs_type, spec.out_type), target)


def _as_matvec(p: Product, vector: Type, target: Target) -> MatvecProduct | None:
    """Returns the product as a matrix times a few vectors; None for other products.

    Sums of floats are not those of other products, so there are none where they have to be the same for all sizes.
    """
    few = _most_vectors(p, vector)
    if p.is_complex or (vector.is_float and target.batch_invariant) or min(p.m, p.n) > few:
        return None
    from hloom.backends.cpu.kernels.products.matvec_product import matvec_product

    return matvec_product(p, vector, target)


def _most_vectors(p: Product, vector: Type) -> int:
    """Returns the number of vectors by which a matrix is multiplied where it is read.

    Packing a matrix beyond the second cache takes longer than reading it does, and few multiply-adds of its elements.
    """
    if not vector.is_float:
        return MAX_VECTORS_OF_WORDS
    matrix, lines = (p.a, p.m) if p.m >= p.n else (p.b, p.n)
    is_large = lines * p.k * matrix.type.byte_width > L2_BYTES and min(lines, p.k) >= MIN_LARGE_SIDE
    return MAX_VECTORS if is_large and vector.width * vector.bits == AVX2_BITS else 1


def _zeros_code(name: str, spec: MatmulSpec) -> KernelCode:
    """Returns the code of an empty product or, if only K is empty, of zeros."""
    f = entry_of(name, *ARRAYS)
    out = f["out"]
    parts = 2 if spec.is_complex else 1
    type = type_of(memory_element(spec.out_type.real))
    if spec.batch * spec.m * spec.n > 0:
        with f.loop(spec.batch) as b, f.loop(spec.m) as i, f.loop(spec.n) as j, f.loop(parts) as part:
            indices = zip((b.index, i.index, j.index), spec.out_strides, strict=True)
            offset: IndexValue = 0
            for index, stride in indices:
                offset = f.add(offset, f.multiply(index, stride * parts))
            f.store(constant(type, 0), f.at(out, f.add(offset, part.index), type.element), 1)
    return code_of(name, [f])
