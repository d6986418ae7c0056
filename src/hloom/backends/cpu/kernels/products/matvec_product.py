"""Products of a matrix and a few vectors, of which either may be the left operand."""

from __future__ import annotations

from hloom.backends.cpu.kernels.code import KernelCode, PackedCode, entry_of
from hloom.backends.cpu.kernels.kernel_function import size_of
from hloom.backends.cpu.kernels.products.blocked.blocked_product import ARRAYS, factors
from hloom.backends.cpu.kernels.products.dot_instructions import dot_instruction, in_words
from hloom.backends.cpu.kernels.products.matvec.matvec import Matvec, Pointers, matvec_code, transposed, transposition
from hloom.backends.cpu.kernels.products.product import Product
from hloom.lir import Type
from hloom.system.records import record
from hloom.target import Target


@record
class MatvecProduct:
    """A matrix times a few vectors, with sums in vectors of a type; the vectors may be the left operand, `swapped`."""

    matvec: Matvec
    swapped: bool
    vector: Type
    target: Target

    def code(self, name: str) -> KernelCode:
        """Returns the code of the product."""
        f = entry_of(name, *ARRAYS)
        matrix, vectors = factors(f, self.swapped)
        return matvec_code(name, f, self.matvec, self.vector, self.target, Pointers(vectors, f["out"], [matrix]))

    def packed(self, name: str) -> PackedCode | None:
        """Returns the product in two steps, the first of which transposes a narrow matrix; None for another matrix."""
        p, after = self.matvec, transposed(self.matvec)
        if after is None:
            return None
        packing, size = transposition(f"{name}.packing", p), p.m * p.k * size_of(p.matrix.element)
        product = MatvecProduct(after, self.swapped, self.vector, self.target).code(f"{name}.packed")
        return PackedCode(int(self.swapped), size, packing, product)


def matvec_product(p: Product, vector: Type, target: Target) -> MatvecProduct | None:
    """Returns the product of a matrix and a few vectors, of integers if an instruction multiplies words of these; None
    if there is no code for the distances.
    """
    p = p.transposed() if p.m < p.n else p
    instruction = None if vector.is_float else dot_instruction(p, vector, any_side=True)
    if p.n > 1 and instruction is None and not vector.is_float:
        return None
    p = p if instruction is None else in_words(p, instruction.count, instruction.flipped)
    matvec = Matvec(p.batch, p.m, p.k, p.n, p.a, p.b, p.c, p.batch_strides, instruction=instruction)
    return MatvecProduct(matvec, p.swapped, vector, target) if matvec.is_streamed else None
