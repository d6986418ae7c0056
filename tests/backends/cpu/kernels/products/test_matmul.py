"""Matrix products of the CPU backend against NumPy: every layout, element type, vector width and number of threads.

Operands end where a page that cannot be read begins, and what lies between the elements of the result must survive.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import mmap
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.cpu.kernels.run_kernel import caller
from hloom.backends.cpu.kernels.products.blocked.matmul_plan import MatmulPlan
from hloom.backends.cpu.kernels.products.blocked.planning import BLOCK_BYTES, make_plan
from hloom.backends.cpu.kernels.products.matmul import emit_matmul
from hloom.backends.cpu.kernels.products.product import MatmulSpec, normalised
from hloom.backends.cpu.llvm.machine_code import MachineCode, compile_text, load_object
from hloom.backends.cpu.llvm.processor import TILE_REGISTERS, Processor, generating_for, host_processor
from hloom.backends.cpu.runtime.thread_pool import ThreadPool
from hloom.lir import LirModule, type_of
from hloom.target import TASKS_PER_THREAD, Target
from hloom.types import BY_NAME

FLOATS = ("f32", "f64", "bf16", "f16")
INTEGERS = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
PROT_NONE = 0
COMPLEX = ("c64", "c128")
needs_tile_registers = pytest.mark.skipif(
    not host_processor().has(TILE_REGISTERS), reason="there are no tile registers"
)
EPSILON = {"f32": 2.0**-23, "c64": 2.0**-23, "f64": 2.0**-52, "c128": 2.0**-52, "bf16": 2.0**-8, "f16": 2.0**-11}


# Running a product


def in_vectors() -> AbstractContextManager[object]:
    """Generates code without tile registers, which multiply large matrices of f32 otherwise."""
    return generating_for(host_processor().without_tile_registers())


@functools.cache
def pool(threads: int) -> ThreadPool:
    return ThreadPool(threads)


def compiled(spec: MatmulSpec, threads: int, vector_bytes: int) -> tuple[MachineCode, int]:
    """Returns code with the function `run`, and the size of the workspace in bytes."""
    code = emit_matmul("product", spec, Target(vector_bytes, threads))
    text = LirModule([*code.functions, caller(code.entry, 6)]).text()
    return load_object(compile_text(text)), code.scratch_bytes


def guarded(count: int, type: str) -> np.ndarray:
    """Returns memory for `count` elements that ends at an inaccessible page."""
    dtype = BY_NAME[type].dtype
    size = count * dtype.itemsize
    pages = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, pages + mmap.PAGESIZE)
    base = np.frombuffer(memory, np.uint8)
    guard = ctypes.c_void_p(base.ctypes.data + pages)
    assert ctypes.CDLL(None).mprotect(guard, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    return base[pages - size : pages].view(dtype)


@dataclass
class Operand:
    memory: np.ndarray
    view: np.ndarray


def operand(shape: tuple[int, ...], strides: tuple[int, ...], type: str, seed: int) -> Operand:
    count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides)) if min(shape) else 0
    memory = guarded(count, type)
    random = np.random.default_rng(seed)
    if type in INTEGERS:
        memory[:] = random.integers(0, 256, count * memory.itemsize, np.uint8).view(memory.dtype)
    else:
        imaginary = 1j * random.standard_normal(count) if type in COMPLEX else 0
        memory[:] = (random.standard_normal(count) + imaginary).astype(memory.dtype)
    view = np.lib.stride_tricks.as_strided(memory, shape, [stride * memory.itemsize for stride in strides])
    return Operand(memory, view)


def product(spec: MatmulSpec, threads: int = 1, vector_bytes: int = 64) -> tuple[Operand, Operand, Operand]:
    """Returns the operands and the result."""
    lhs = operand((spec.batch, spec.m, spec.k), spec.lhs_strides, str(spec.lhs_type), 1)
    rhs = operand((spec.batch, spec.k, spec.n), spec.rhs_strides, str(spec.rhs_type), 2)
    out = operand((spec.batch, spec.m, spec.n), spec.out_strides, str(spec.out_type), 3)
    run(spec, lhs.memory, rhs.memory, out.memory, threads, vector_bytes)
    return lhs, rhs, out


def run(spec: MatmulSpec, lhs: np.ndarray, rhs: np.ndarray, out: np.ndarray, threads: int, vector_bytes: int) -> None:
    code, scratch_bytes = compiled(spec, threads, vector_bytes)
    scratch = guarded(-(-scratch_bytes // 64) * 64, "u8")
    scratch[:] = 255  # NaN in each element type
    pointers = [array.ctypes.data for array in (lhs, rhs, out, scratch)]
    threads_of_run = pool(threads).address, pool(threads).parallel_for_address
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 6)(code.address("run"))(*pointers, *threads_of_run)


def check(spec: MatmulSpec, threads: int = 1, vector_bytes: int = 64) -> None:
    lhs, rhs, out = product(spec, threads, vector_bytes)
    before = operand((spec.batch, spec.m, spec.n), spec.out_strides, str(spec.out_type), 3)
    before.view[...] = out.view
    assert before.memory.tobytes() == out.memory.tobytes(), "wrote between the elements of the result"
    out_type = str(spec.out_type)
    if out_type in INTEGERS:
        dtype = out.view.dtype
        np.testing.assert_array_equal(out.view, lhs.view.astype(dtype) @ rhs.view.astype(dtype))
        return
    wide = np.complex128 if out_type in COMPLEX else np.float64
    a, b = lhs.view.astype(wide), rhs.view.astype(wide)
    exact, size = a @ b, np.abs(a) @ np.abs(b)
    sums = EPSILON["f32"] if out_type in ("f16", "bf16") else EPSILON[out_type]
    bound = (spec.k + 2) * sums * size + EPSILON[out_type] * np.abs(exact) + (out_type == "f16") * 2.0**-25
    assert (np.abs(out.view.astype(wide) - exact) <= bound).all()


def contiguous(shape: tuple[int, int, int], order: str = "bij", gap: int = 0) -> tuple[int, int, int]:
    """Returns the strides of a shape whose axes b, i and j are laid out in the given order, outermost first."""
    strides = dict.fromkeys("bij", 0)
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step = step * shape["bij".index(axis)] + gap
    return strides["b"], strides["i"], strides["j"]


def spec_of(batch: int, m: int, n: int, k: int, types: str = "f32 f32 f32", orders: str = "bij bij bij") -> MatmulSpec:
    lhs, rhs, out = orders.split()
    return MatmulSpec(
        batch, m, n, k, *map(BY_NAME.__getitem__, types.split()),
        contiguous((batch, m, k), lhs), contiguous((batch, k, n), rhs), contiguous((batch, m, n), out),
    )  # fmt: skip


# Against NumPy


SIZES = [0, 1, 2, 3, 5, 8, 13, 14, 16, 17, 31, 32, 33, 48, 65, 100]
TYPES = [
    *(f"{type} {type} {type}" for type in (*FLOATS, *INTEGERS, *COMPLEX)),
    "bf16 bf16 f32", "f16 f32 f32", "bf16 f16 f32", "f32 f64 f64", "f32 f32 f64", "f32 bf16 bf16",
    "s8 s8 s32", "u8 s8 s32", "s32 s32 s8", "u16 u16 s64", "s8 u8 u64", "c64 c64 c128",
]  # fmt: skip

WORDS = ("u8 s8 s32", "s8 u8 s16", "u8 u8 s32", "s16 s8 s32")


@st.composite
def strides_of(draw: st.DrawFn, shape: tuple[int, int, int], broadcast: bool) -> tuple[int, int, int]:
    order = draw(st.permutations("bij"))
    strides = contiguous(shape, "".join(order), draw(st.sampled_from([0, 0, 0, 1, 3])))
    stretch = draw(st.sampled_from([1, 1, 1, 2]))
    strides = tuple(stretch * stride for stride in strides)
    if broadcast and draw(st.integers(0, 3)) == 0:
        axis = draw(st.integers(0, 2))
        strides = tuple(0 if i == axis else stride for i, stride in enumerate(strides))
    return strides


@st.composite
def specs(draw: st.DrawFn) -> MatmulSpec:
    m, n, k = (draw(st.sampled_from(SIZES)) for _ in range(3))
    batch = draw(st.sampled_from([1, 1, 1, 2, 5]))
    lhs, rhs = draw(strides_of((batch, m, k), True)), draw(strides_of((batch, k, n), True))
    out = draw(strides_of((batch, m, n), False))
    return MatmulSpec(batch, m, n, k, *map(BY_NAME.__getitem__, draw(st.sampled_from(TYPES)).split()), lhs, rhs, out)


any_product = given(specs(), st.sampled_from([16, 32, 64]), st.sampled_from([1, 2]))


@settings(max_examples=50, deadline=None)
@any_product
def test_products_of_any_layout_are_numpys(spec: MatmulSpec, vector_bytes: int, threads: int) -> None:
    check(spec, threads, vector_bytes)


@pytest.mark.long
@settings(max_examples=500, deadline=None)
@any_product
def test_many_products_of_any_layout_are_numpys(spec: MatmulSpec, vector_bytes: int, threads: int) -> None:
    check(spec, threads, vector_bytes)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("types", TYPES)
@pytest.mark.parametrize("orders", ["bij bij bij", "bji bij bij", "bij bji bij", "ijb jbi ijb"])
def test_every_type_in_the_usual_layouts(types: str, orders: str) -> None:
    check(spec_of(2, 37, 43, 29, types, orders), vector_bytes=32)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("orders", ["bij bij bij", "bji bji bij", "bij bij bji"])
@pytest.mark.parametrize("sizes", [(1, 300, 300, 1100), (1, 30, 2600, 700), (3, 129, 200, 520), (1, 500, 33, 40)])
def test_products_larger_than_a_block(sizes: tuple[int, int, int, int], orders: str) -> None:
    """Several blocks of K, of rows and of columns, shared by two threads."""
    check(spec_of(*sizes, orders=orders), threads=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [(2, 2, 1400, 700), (9, 2, 256, 255)])
@pytest.mark.parametrize("types", ["c64 c64 c128", "u16 u16 u16"])
def test_few_rows_of_a_packed_operand(types: str, sizes: tuple[int, int, int, int]) -> None:
    """Columns are split at whole tiles of any width, and a small product is one task."""
    check(spec_of(*sizes, types), threads=3)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("types", ["bf16 bf16 bf16", "s8 s8 s32", "c64 c64 c64", "f64 f64 f64"])
def test_several_blocks_of_k_are_rounded_once(types: str) -> None:
    """Words of bytes have 4 elements."""
    check(spec_of(1, 70, 300, 6001 if types.startswith("s8") else 3001, types), threads=2)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("orders", ["bij bij bij", "bji bij bij", "bij bji bij"])
@pytest.mark.parametrize(
    "sizes", [(1, 1000, 1, 900), (1, 1, 1000, 900), (6, 77, 1, 300), (2, 1, 3000, 7), (1, 3, 1, 40), (2, 3, 1, 2000)]
)
@pytest.mark.parametrize("types", ["f32 f32 f32", "bf16 bf16 bf16", "s8 s8 s32"])
def test_matrix_times_vector(types: str, sizes: tuple[int, int, int, int], orders: str) -> None:
    check(spec_of(*sizes, types, orders), threads=2)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("orders", ["bij bij bij", "bij bji jbi", "bji bij bji"])
@pytest.mark.parametrize("sizes", [(1, 2, 1100, 520), (2, 700, 4, 1031)])
@pytest.mark.parametrize("types", ["f32 f32 f32", "bf16 bf16 bf16", "f64 f64 f64"])
def test_few_vectors_of_floats_and_a_large_matrix(types: str, sizes: tuple[int, int, int, int], orders: str) -> None:
    check(spec_of(*sizes, types, orders), vector_bytes=32)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("orders", ["bij bij bij", "bij bji jbi", "bji bij bji"])
@pytest.mark.parametrize("sizes", [(1, 1, 1100, 333), (3, 130, 7, 64)])
@pytest.mark.parametrize("types", ["s8 s8 s32", *(pytest.param(t, marks=pytest.mark.long) for t in WORDS)])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_few_vectors_of_words(vector_bytes: int, types: str, sizes: tuple[int, int, int, int], orders: str) -> None:
    check(spec_of(*sizes, types, orders), threads=2, vector_bytes=vector_bytes)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ["ibj", "jbi"])
@pytest.mark.parametrize("sizes", [(6, 77, 1, 300), (5, 70, 2, 2061)])
@pytest.mark.parametrize("types", ["f32 f32 f32", "s8 s8 s32"])
def test_vectors_and_a_batch_of_matrices_whose_lines_alternate(
    types: str, sizes: tuple[int, int, int, int], order: str
) -> None:
    check(spec_of(*sizes, types, f"{order} bij bij"), threads=2)


@pytest.mark.parametrize("shared", ["lhs", "rhs"])
@pytest.mark.parametrize("m, n", [(1, 40), (40, 1), (20, 30)])
def test_a_batch_that_shares_an_operand(shared: str, m: int, n: int) -> None:
    spec = spec_of(9, m, n, 50)
    strides = {"lhs": (0, 50, 1), "rhs": (0, n, 1)}[shared]
    check(MatmulSpec(**{**vars(spec), f"{shared}_strides": strides}))


# Promises


@pytest.mark.parametrize("sizes", [(1, 200, 300, 700), (1, 3000, 1, 700), (1, 1, 900, 2000), (8, 64, 64, 64)])
def test_the_number_of_threads_does_not_change_a_bit(sizes: tuple[int, int, int, int]) -> None:
    results = [product(spec_of(*sizes), threads)[2].memory.tobytes() for threads in (1, 2, 3, 2)]
    assert len(set(results)) == 1


@pytest.mark.parametrize("sizes", list(itertools.product([0, 3], repeat=4)))
@pytest.mark.parametrize("type", ["f32", "c64", "s8"])
def test_empty_products_are_zeros_or_nothing(sizes: tuple[int, int, int, int], type: str) -> None:
    spec = spec_of(*sizes, f"{type} {type} {type}")
    _, _, out = product(spec)
    if spec.k == 0:
        assert not out.view.any()


@pytest.mark.parametrize("type", ["bf16", "f16"])
def test_narrow_floats_are_rounded_to_nearest_even(type: str) -> None:
    """Products by 1 give the other factor rounded; among them NaN, infinity, subnormal numbers."""
    words = np.concatenate([np.arange(0, 2**32, 2**16 - 1), np.arange(0x3F800000, 0x3F800000 + 2**17, 251)])
    values = np.concatenate([words.astype(np.uint32).view(np.float32), [np.nan, -np.nan, np.inf, -np.inf, 65520, 0]])
    values = values.astype(np.float32)
    out = np.zeros(len(values), BY_NAME[type].dtype)
    run(spec_of(1, len(values), 1, 1, f"f32 f32 {type}"), values, np.ones(1, np.float32), out, 1, 64)
    wanted = (values + np.float32(0)).astype(out.dtype)  # sums start at +0
    np.testing.assert_array_equal(np.isnan(out), np.isnan(wanted))
    same = ~np.isnan(wanted)
    np.testing.assert_array_equal(out.view(np.uint16)[same], wanted.view(np.uint16)[same])


def test_integers_wrap_around() -> None:
    lhs, rhs = np.full((3, 700), 127, np.int8), np.full((700, 20), 127, np.int8)
    out = np.zeros((3, 20), np.int16)
    run(spec_of(1, 3, 20, 700, "s8 s8 s16"), lhs, rhs, out, 1, 64)
    assert (out == np.int64(700 * 127 * 127).astype(np.int16)).all()


@pytest.mark.parametrize("types", ["f32 s32 f32", "pred pred s32", "f32 f32 c64", "f64 f64 f16", "f8e5m2 f32 f32"])
def test_types_without_code_are_refused(types: str) -> None:
    with pytest.raises(ValueError, match=r"^(no matrix product of|a product of f64 would be rounded twice)"):
        emit_matmul("product", spec_of(1, 2, 2, 2, types), Target(64, 1))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("vector_bytes", [16, 32, pytest.param(64, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "types",
    [
        "s8 s8 s32",
        "u8 s8 s32",
        "s8 u8 s32",
        "s16 s16 s32",
        "s16 u8 u32",
        "u8 u8 s16",
        "bf16 bf16 f32",
        "bf16 bf16 bf16",
    ],
)
@pytest.mark.parametrize("orders", ["bij bij bij", "bji bij bij", "bij bji bij", "bji bji bji"])
@pytest.mark.parametrize("sizes", [(1, 16, 24, 64), (2, 5, 7, 33), (1, 70, 9, 1031)])
def test_products_by_words(sizes: tuple[int, int, int, int], orders: str, types: str, vector_bytes: int) -> None:
    check(spec_of(*sizes, types, orders), threads=2, vector_bytes=vector_bytes)


def test_words_of_columns_that_are_packed_in_several_passes() -> None:
    """The last pass has fewer panels than there are tasks."""
    check(spec_of(1, 8, 1030, 16384, "s8 s8 s32"), threads=2)


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_products_of_the_lowest_integers_wrap_around(vector_bytes: int) -> None:
    """The sum of a pair of 16-bit products is 2^31."""
    for type, bits in (("s16", 16), ("s8", 8)):
        lowest = np.full(8 * 31, -(2 ** (bits - 1)), BY_NAME[type].dtype)
        out = np.zeros(64, np.int32)
        run(spec_of(1, 8, 8, 31, f"{type} {type} s32"), lowest, lowest, out, 1, vector_bytes)
        assert set(out.tolist()) == {(31 * 4 ** (bits - 1) + 2**31) % 2**32 - 2**31}


# In tile registers: sizes that are not multiples of a tile, several blocks of K, all layouts


TILES = ("bf16 bf16 f32", "bf16 bf16 bf16", "s8 s8 s32", "s8 u8 s32", "u8 s8 u32", "u8 u8 s16")


@pytest.mark.sampled(8)
@needs_tile_registers
@pytest.mark.parametrize("types", TILES)
@pytest.mark.parametrize(
    "orders", ["bij bij bij", "bji bij bij", "bij bji bij", "bji bji bij", "bij bij bji", "bij bij ijb"]
)
@pytest.mark.parametrize("sizes", [(1, 64, 64, 128), (2, 45, 83, 205), (1, 9, 16, 64), (3, 70, 300, 77)])
def test_products_in_tile_registers(sizes: tuple[int, int, int, int], orders: str, types: str) -> None:
    check(spec_of(*sizes, types, orders), threads=2)


@pytest.mark.sampled(6)
@needs_tile_registers
@pytest.mark.parametrize("types", ["bf16 bf16 f32", "bf16 bf16 bf16", "s8 u8 s32"])
@pytest.mark.parametrize("sizes", [(1, 40, 70, 9003), (1, 300, 1100, 2200), (1, 33, 40, 40000)])
def test_blocks_and_groups_of_k_in_tile_registers(sizes: tuple[int, int, int, int], types: str) -> None:
    check(spec_of(*sizes, types), threads=2)


def squared_errors(spec: MatmulSpec) -> tuple[float, float]:
    """Returns the sums of the squares of the errors with tile registers and without."""
    errors = []
    for each in (host_processor(), host_processor().without_tile_registers()):
        with generating_for(each):
            lhs, rhs, out = product(spec)
        exact = lhs.view.astype(np.float64) @ rhs.view.astype(np.float64)
        errors.append(float(np.square(out.view - exact).sum()))
    return errors[0], errors[1]


@needs_tile_registers
def test_errors_in_tile_registers_are_about_those_in_vectors() -> None:
    """Sums of squares of the errors differ by less than a factor of two."""
    tiles, vectors = squared_errors(spec_of(1, 64, 64, 4096, "bf16 bf16 f32"))
    assert 0 < tiles < 2 * vectors


@needs_tile_registers
@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_special_values_in_tile_registers_stay_in_their_row(special: float) -> None:
    """Neither the padding of K nor repeated rows and columns spread them."""
    lhs, rhs = np.ones((19, 37), BY_NAME["bf16"].dtype), np.ones((37, 33), BY_NAME["bf16"].dtype)
    lhs[18, 36] = special
    out = np.zeros((19, 33), np.float32)
    run(spec_of(1, 19, 33, 37, "bf16 bf16 f32"), lhs, rhs, out, 1, 64)
    wanted = np.full((19, 33), 37, np.float32)
    wanted[18] = special
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    ("architecture", "features", "vector_bytes", "wanted"),
    [
        ("x86_64", "+avx512bf16,+avx512vnni", 64,
         {"bf16 bf16 f32": "dpbf16ps.512", "s8 s8 s32": "vpdpbusd.512", "u8 u8 s32": "vpdpwssd.512"}),
        ("x86_64", "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8", 64,
         {"bf16 bf16 f32": "x86.tdpbf16ps", "s8 s8 s32": "x86.tdpbssd", "s8 u8 s32": "x86.tdpbsud",
          "u8 s8 s32": "x86.tdpbusd", "u8 u8 s32": "x86.tdpbuud", "s16 s8 s32": "vpdpwssd.512"}),
        ("aarch64", "+dotprod,+i8mm", 16,
         {"s8 s8 s32": "neon.sdot", "u8 u8 s32": "neon.udot", "s8 u8 s32": "neon.usdot", "u8 s8 s32": "neon.usdot"}),
        ("aarch64", "", 16, {"s8 s8 s32": "mul <4 x i32>"}),
    ],
)  # fmt: skip
def test_code_for_processors_with_dot_instructions(
    architecture: str, features: str, vector_bytes: int, wanted: dict[str, str]
) -> None:
    """The code is for another processor than this machine's, and is not run."""
    with generating_for(Processor(architecture, "other", features, vector_bytes, converts_f16=True)):
        for types, instruction in wanted.items():
            code = emit_matmul("product", spec_of(1, 64, 64, 64, types), Target(vector_bytes, 1))
            assert instruction in LirModule(code.functions).text()


def test_batch_invariant_sums_of_floats_use_no_tile_registers() -> None:
    """Products of any number of rows have the same sums; those of integers are exact."""
    features = "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8"
    with generating_for(Processor("x86_64", "other", features, 64, converts_f16=True)):
        for types, wanted in (("bf16 bf16 f32", False), ("s8 s8 s32", True)):
            code = emit_matmul("product", spec_of(1, 64, 64, 64, types), Target(64, 1, batch_invariant=True))
            assert ("x86.tdp" in LirModule(code.functions).text()) == wanted


@pytest.mark.parametrize("m, n, types", [(1024, 1024, "bf16 bf16 f32"), (512, 16, "s8 s8 s32"), (16, 512, "u8 s8 s32")])
def test_products_use_few_tile_registers(m: int, n: int, types: str) -> None:
    """A busy second thread of the core halves the rate of products that use all eight."""
    features = "+avx512bf16,+avx512vnni,+amx-tile,+amx-bf16,+amx-int8"
    with generating_for(Processor("x86_64", "other", features, 64, converts_f16=True)):
        code = emit_matmul("product", spec_of(1, m, n, 512, types), Target(64, 1))
        used = re.findall(r"llvm\.x86\.t\w+\(i8 (\d)", LirModule(code.functions).text())
    assert set(map(int, used)) in ({0, 1, 2, 3}, {0, 1, 2, 3, 4})


# Plans


def plan_of(m: int, n: int, k: int, orders: str = "bij bij bij", threads: int = 2) -> MatmulPlan:
    spec = spec_of(1, m, n, k, orders=orders)
    return make_plan(normalised(spec), type_of("float", 16), Target(64, threads))


@pytest.mark.parametrize("m, n, k", [(512, 768, 768), (512, 2304, 768), (256, 1024, 512), (1024, 1024, 1024)])
def test_a_large_right_matrix_is_read_by_few_blocks_of_rows(m: int, n: int, k: int) -> None:
    plan = plan_of(m, n, k)
    assert plan.row_blocks * BLOCK_BYTES <= 2 * max(m * k * 4, BLOCK_BYTES)
    assert plan.tasks >= TASKS_PER_THREAD * 2


@pytest.mark.parametrize("m, n, k, threads", [(128, 768, 3072, 2), (1024, 1024, 1024, 2), (2048, 1024, 512, 8)])
def test_tasks_with_many_rows_pack_the_panels_that_they_multiply(m: int, n: int, k: int, threads: int) -> None:
    spec = spec_of(1, m, n, k)
    assert plan_of(m, n, k, threads=threads).b_storage == "panels"
    with in_vectors():
        assert emit_matmul("product", spec, Target(64, threads)).scratch_bytes == 0


def test_each_panel_is_a_task_unless_it_is_small() -> None:
    """Threads whose processors are not equally fast end together."""
    large, small, serial = plan_of(512, 3072, 768), plan_of(256, 4096, 4), plan_of(512, 3072, 768, threads=1)
    assert {large.b_storage, small.b_storage, serial.b_storage} == {"panels"}
    assert large.tasks == -(-3072 // large.tile.columns)
    assert TASKS_PER_THREAD * 2 <= small.tasks < 4096 / small.tile.columns
    assert serial.tasks == 1


@pytest.mark.parametrize("m, n, k, groups", [(1024, 1024, 256, 2), (768, 2048, 512, 4), (1024, 640, 256, 1)])
def test_the_second_cache_holds_a_group_of_columns_of_a_shared_matrix(m: int, n: int, k: int, groups: int) -> None:
    plan = plan_of(m, n, k, "bji bij bij")
    assert (plan.b_storage, plan.column_groups) == ("shared", groups)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("types", ["f32 f32 f32", "f64 f64 f64", "bf16 f32 f32"])
@pytest.mark.parametrize("sizes", [(1, 130, 1030, 260), (2, 70, 1200, 515)])
def test_groups_of_columns_of_a_shared_matrix(sizes: tuple[int, int, int, int], types: str) -> None:
    check(spec_of(*sizes, types, orders="bji bij bij"), threads=2)


@pytest.mark.parametrize("k, adds", [(1024, False), (2048, True), (8192, True), (16384, False)])
def test_many_rows_of_a_packed_matrix_share_a_panel_of_a_long_sum(k: int, adds: bool) -> None:
    """A gradient of weights: blocks of K are short enough for many rows, and the result holds the sums between them."""
    plan = plan_of(768, 768, k, "bji bij bij")
    assert plan.adds_to_result == adds
    assert plan.has_partial_sums == plan.has_groups == (k > 8192)
    assert not adds or plan.row_tiles * plan.tile.rows >= 64


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "types", ["f32 f32 f32", "f64 f64 f64", "f32 f32 bf16", "bf16 f32 f32", "u8 s8 s32", "s64 s64 s64"]
)
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("sizes", [(1, 130, 67, 2060), (2, 61, 300, 1500), (1, 200, 48, 9300)])
def test_sums_of_blocks_of_k_in_the_result(sizes: tuple[int, int, int, int], vector_bytes: int, types: str) -> None:
    with in_vectors():
        check(spec_of(*sizes, types, orders="bji bij bij"), 2, vector_bytes)


@pytest.mark.parametrize("m, n, k, threads", [(128, 512, 2048, 8), (300, 384, 4096, 16)])
def test_blocks_of_few_rows_share_a_packed_matrix(m: int, n: int, k: int, threads: int) -> None:
    assert plan_of(m, n, k, threads=threads).b_storage == "shared"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("types", ["f32 f32 f32", "f64 f64 f64", "f32 bf16 f32"])
@pytest.mark.parametrize("order", ["bij", "bji"])
@pytest.mark.parametrize("sizes", [(1, 800, 200, 1100), (3, 260, 200, 703), (1, 803, 130, 2101)])
def test_panels_that_tasks_pack(sizes: tuple[int, int, int, int], order: str, types: str) -> None:
    spec = spec_of(*sizes, types, orders=f"bij {order} bij")
    with in_vectors():
        assert emit_matmul("product", spec, Target(64, 2)).scratch_bytes == 0
        check(spec, threads=2)


@pytest.mark.parametrize(
    "m, n, k, storage", [(128, 384, 128, "panels"), (64, 384, 128, "direct"), (512, 64, 64, "private")]
)
def test_a_small_matrix_is_packed_for_many_rows(m: int, n: int, k: int, storage: str) -> None:
    """Vectors of an array that is not aligned to them cross cache lines."""
    assert plan_of(m, n, k, threads=1).b_storage == storage


def test_rows_make_the_tasks_where_columns_do_not_suffice() -> None:
    assert plan_of(2048, 64, 4096).row_blocks >= TASKS_PER_THREAD * 2


def test_a_left_matrix_that_is_packed_is_so_by_each_group_of_columns() -> None:
    plan = plan_of(512, 2304, 768, orders="bji bij bij")
    assert not plan.a_is_direct
    assert plan.row_blocks >= TASKS_PER_THREAD * 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (131, 67, 1100), (300, 128, 400), (300, 515, 700), (512, 768, 768)])
def test_the_number_of_threads_does_not_change_a_sum(m: int, n: int, k: int) -> None:
    spec = spec_of(1, m, n, k)
    results = [product(spec, threads)[2].memory.tobytes() for threads in (1, 2, 3, 8)]
    assert len(set(results)) == 1
