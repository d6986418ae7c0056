"""Instructions that multiply words of several elements and add all products to a 32-bit sum.

K is then counted in words: of 2 elements of bf16, or of integers of up to 16 bits, or of 4 bytes. Sums of integers wrap
around modulo 2^32. Products of bf16 are added in f32; x86's instruction treats subnormal numbers as zero.

x86's instruction for bytes multiplies unsigned bytes by signed ones. If both are signed, 128 is added to those of A
(their sign bits are flipped), and 128 times the sums of B's columns are subtracted from the result. AArch64 has an
instruction for each pair of types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hloom.backends.cpu.kernels.kernel_function import KernelFunction
from hloom.backends.cpu.kernels.products.matrix import Matrix, Words
from hloom.backends.cpu.kernels.products.product import Product
from hloom.backends.cpu.llvm.processor import processor
from hloom.lir import Type, Value, constant, type_of
from hloom.system.records import record
from hloom.types import PrimitiveType

Types = tuple[PrimitiveType, PrimitiveType]
"""Element types of A and B."""
MultiplyAdd = Callable[[KernelFunction, Value, Value, Value], Value]

S8, U8, S16, BF16 = PrimitiveType.S8, PrimitiveType.U8, PrimitiveType.S16, PrimitiveType.BF16
MIN_STEPS = 16  # elements of K
MIN_SIDE = 4  # rows and columns


@record
class DotInstruction:
    """`multiply_add(f, a, b, sums)` on vectors of words, with `count` elements each. `flipped`: A's sign bits are
    flipped. `types` are the element types of A and B, which determine it on a processor.
    """

    count: int
    multiply_add: MultiplyAdd
    flipped: bool = False
    types: str = ""


def dot_instruction(p: Product, sums: Type, any_side: bool = False) -> DotInstruction | None:
    """Returns the best instruction for a product with vectors of sums; None if there is none, or it does not pay,
    which depends on rows and columns unless `any_side`.
    """
    vector_bytes = sums.width * sums.bits // 8
    is_small = p.k < MIN_STEPS or (min(p.m, p.n) < MIN_SIDE and not any_side)
    if is_small or sums.bits != 32 or p.is_complex:
        return None
    if vector_bytes > processor().vector_bytes:
        return None
    types = (p.a.type, p.b.type)
    found = None
    if processor().architecture == "aarch64":
        found = None if sums.is_float else _instruction_of_neon(types)
    elif processor().architecture == "x86_64":
        found = _instruction_of_x86(types, sums, vector_bytes)
    return found and replace(found, types="".join(type.name.lower() for type in types))


def are_multiplied_as_words(lhs: PrimitiveType, rhs: PrimitiveType) -> bool:
    """Whether the processor has an instruction for words of floats of these types."""
    return (lhs, rhs) == (BF16, BF16) and processor().architecture == "x86_64" and processor().has("avx512bf16")


def _instruction_of_x86(types: Types, sums: Type, vector_bytes: int) -> DotInstruction | None:
    if types == (BF16, BF16):
        return DotInstruction(2, _add_bf16) if are_multiplied_as_words(*types) else None
    if sums.is_float or not {*types} <= {S8, U8, S16}:
        return None
    has_vnni = processor().has("avx512vnni" if vector_bytes == 64 else "avxvnni")
    if has_vnni and S8 in types and S16 not in types:
        return DotInstruction(4, _add_bytes if types[1] is S8 else _add_swapped_bytes, flipped=types == (S8, S8))
    return DotInstruction(2, _add_halves if has_vnni else _add_products_of_halves)


def _instruction_of_neon(types: Types) -> DotInstruction | None:
    if types in ((S8, S8), (U8, U8)) and processor().has("dotprod"):
        return DotInstruction(4, _neon("sdot" if types[0] is S8 else "udot"))
    if types in ((U8, S8), (S8, U8)) and processor().has("i8mm"):
        return DotInstruction(4, _neon("usdot") if types[0] is U8 else _with_swapped_operands(_neon("usdot")))
    return None


def byte_instruction(a: PrimitiveType, b: PrimitiveType) -> DotInstruction | None:
    """Returns the instruction for words of unsigned and signed bytes in vectors of 64 bytes; None if there is none."""
    if processor().architecture != "x86_64" or not processor().has("avx512vnni"):
        return None
    return _instruction_of_x86((a, b), type_of("i32", 16), 64)


def in_words(p: Product, count: int, flipped: bool = False) -> Product:
    """Returns the product with K counted in words. A matrix that has such words in memory becomes a matrix of words."""
    batch_a, batch_b, batch_c = p.batch_strides
    a = replace(p.a, column=p.a.column * count, words=Words(count, p.k, p.a.column, flipped))
    b = replace(p.b, row=p.b.row * count, words=Words(count, p.k, p.b.row))
    if _has_words_in_memory(a, (a.row, batch_a)):
        a, batch_a = Matrix(_word_type(a.type), a.row // count, 1), batch_a // count
    if _has_words_in_memory(b, (b.column, batch_b)):
        b, batch_b = Matrix(_word_type(b.type), 1, b.column // count), batch_b // count
    return replace(p, k=-(-p.k // count), a=a, b=b, batch_strides=(batch_a, batch_b, batch_c))


def _word_type(type: PrimitiveType) -> PrimitiveType:
    """Returns the type of a matrix of words with elements of a type."""
    return PrimitiveType.F32 if type is BF16 else PrimitiveType.S32


def _has_words_in_memory(matrix: Matrix, strides: tuple[int, int]) -> bool:
    """Whether words of a matrix are contiguous in memory; `strides` are those along the other axis and of the batch."""
    words = matrix.words
    assert words is not None
    is_dense = words.distance == 1 and not words.is_ragged and all(stride % words.count == 0 for stride in strides)
    return is_dense and not words.flipped and matrix.type.bits == words.bits


def correction(f: KernelFunction, words: Value, sums: Value) -> Value:
    """Returns the sums with 128 times the sum of each word's bytes added: the contribution of flipped sign bits."""
    return plus_sum_of_bytes(f, words, 0x80, sums)


def plus_sum_of_bytes(f: KernelFunction, words: Value, factor: int, sums: Value) -> Value:
    """Returns the sums with the sum of each word's signed bytes added, times a factor of a byte."""
    return _add_bytes(f, constant(words.type, factor * 0x01010101), words, sums)


def _instruction(name: str, element: str) -> MultiplyAdd:
    """Returns an instruction of x86 that adds the products of the elements of two words to a sum."""

    def multiply_add(f: KernelFunction, a: Value, b: Value, sums: Value) -> Value:
        elements = type_of(element, sums.type.width * 32 // type_of(element).bits)
        intrinsic = f"llvm.x86.{name}.{32 * sums.type.width}"
        return f.call(intrinsic, sums.type, sums, f.bitcast(a, elements), f.bitcast(b, elements))

    return multiply_add


_add_bf16 = _instruction("avx512bf16.dpbf16ps", "bfloat")
_add_halves = _instruction("avx512.vpdpwssd", "i16")
_add_bytes = _instruction("avx512.vpdpbusd", "i8")


def _with_swapped_operands(multiply_add: MultiplyAdd) -> MultiplyAdd:
    """Returns the instruction with its operands swapped, for a signed A and an unsigned B."""
    return lambda f, a, b, sums: multiply_add(f, b, a, sums)


_add_swapped_bytes = _with_swapped_operands(_add_bytes)


def _neon(name: str) -> MultiplyAdd:
    """Returns an instruction of AArch64 that adds the products of the bytes of two words to a sum."""

    def multiply_add(f: KernelFunction, a: Value, b: Value, sums: Value) -> Value:
        lanes = sums.type.width
        bytes_of_words = type_of("i8", 4 * lanes)
        intrinsic = f"llvm.aarch64.neon.{name}.v{lanes}i32.v{4 * lanes}i8"
        return f.call(intrinsic, sums.type, sums, f.bitcast(a, bytes_of_words), f.bitcast(b, bytes_of_words))

    return multiply_add


def _add_products_of_halves(f: KernelFunction, a: Value, b: Value, sums: Value) -> Value:
    width = sums.type.width
    halves = type_of("i16", 2 * width)
    name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[width]
    return f.binary("add", f.call(f"llvm.x86.{name}", sums.type, f.bitcast(a, halves), f.bitcast(b, halves)), sums)
