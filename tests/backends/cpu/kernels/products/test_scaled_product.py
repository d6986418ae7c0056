"""Products with subnormal numbers, against long doubles: values, exponents that would overflow, and which are scaled."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.cpu.kernels.products.test_matmul import spec_of
from backends.cpu.kernels.run_kernel import Kernel
from hloom.backends.cpu.kernels.products import dot
from hloom.backends.cpu.kernels.products.product import MatmulSpec
from hloom.backends.cpu.kernels.products.scaled_product import FAST_SUBNORMALS, scaled_product
from hloom.backends.cpu.llvm.processor import Processor, generating_for, host_processor, processor
from hloom.lir import type_of
from hloom.target import Target
from hloom.types import BY_NAME

Array = np.ndarray[Any, Any]
DTYPES = {"f32": np.float32, "f64": np.float64}
needs_x86 = pytest.mark.skipif(processor().architecture != "x86_64", reason="only products on x86 are scaled")


@pytest.fixture(autouse=True)
def slow_subnormals() -> Iterator[None]:
    """Generates code as for a processor whose multiply-adds of subnormal numbers are slow, whichever this is."""
    with generating_for(
        replace(host_processor(), features=host_processor().features.replace(f"+{FAST_SUBNORMALS}", ""))
    ):
        yield


@functools.cache
def product(type: str, m: int, k: int, n: int, threads: int = 1, width: int | None = None) -> Kernel:
    text = f"""
        HloModule product
        ENTRY e {{
          a = {type}[{m},{k}] parameter(0)
          b = {type}[{k},{n}] parameter(1)
          ROOT c = {type}[{m},{n}] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
        }}"""
    return Kernel(dot.emit, text, threads, width)


def subnormals(random: np.random.Generator, type: str, shape: tuple[int, ...]) -> Array:
    limits = np.finfo(DTYPES[type])
    return (random.integers(-(2**20), 2**20, shape) * limits.smallest_subnormal).astype(DTYPES[type])


def operand(kind: str, type: str, shape: tuple[int, ...], seed: int) -> Array:
    """Returns normal numbers, of which a third are subnormal unless `kind` is plain, with special ones by its name."""
    random, limits = np.random.default_rng(seed), np.finfo(DTYPES[type])
    array = random.standard_normal(shape).astype(DTYPES[type])
    if kind == "tiny":
        return array * limits.tiny ** array.dtype.type(0.5)
    if kind != "plain":
        array = np.where(random.random(shape) < 1 / 3, subnormals(random, type, shape), array)
    special = {"huge": limits.max / 4, "infinity": np.inf, "nan": np.nan}
    array.flat[1] = special.get(kind, array.flat[1])
    return subnormals(random, type, shape) if kind == "all" else np.zeros_like(array) if kind == "zeros" else array


def check(found: Array, a: Array, b: Array, underflows_once: bool) -> None:
    """Checks sums by their terms' size. Scaled ones underflow once, others with each term."""
    wide, limits = np.longdouble, np.finfo(found.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        exact, size = a.astype(wide) @ b.astype(wide), np.abs(a).astype(wide) @ np.abs(b).astype(wide)
        error = np.abs(found - exact)
    is_finite = np.isfinite(size)
    underflow = limits.smallest_subnormal * wide(0.501 if underflows_once else a.shape[1] / 2)
    assert (error <= size * limits.eps * 8 + underflow)[is_finite].all()
    np.testing.assert_array_equal(found[~is_finite], exact[~is_finite].astype(found.dtype))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(131, 128, 130), (1, 1500, 1500), (2049, 1025, 1)])
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize(
    ("lhs", "rhs"),
    [("plain", "some"), ("some", "plain"), ("some", "some"), ("all", "plain"), ("zeros", "all"), ("tiny", "tiny"),
     ("tiny", "some"), ("all", "all"), ("plain", "zeros")],
)  # fmt: skip
def test_sums_underflow_once(lhs: str, rhs: str, type: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = operand(lhs, type, (m, k), 1), operand(rhs, type, (k, n), 2)
    (found,) = product(type, m, k, n)(a, b)
    check(found, a, b, underflows_once=processor().architecture == "x86_64")


@needs_x86
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("is_operand_subnormal", [False, True])
def test_sums_of_terms_below_the_smallest_number_are_exact(type: str, is_operand_subnormal: bool) -> None:
    """Terms of a quarter of the smallest number, each of which underflows to zero in a product that is not scaled."""
    smallest, k = float(np.finfo(DTYPES[type]).smallest_subnormal), 128
    factor = smallest if is_operand_subnormal else 2.0 ** np.ceil(np.log2(smallest) / 2)
    a, b = np.full((128, k), factor, DTYPES[type]), np.full((k, 130), smallest / factor / 4, DTYPES[type])
    (found,) = product(type, 128, k, 130)(a, b)
    np.testing.assert_array_equal(found, k / 4 * smallest)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("type", ["f32", "f64"])
@pytest.mark.parametrize("special", ["huge", "infinity", "nan"])
def test_operands_that_would_overflow_stay(special: str, type: str) -> None:
    for kinds in ((special, "some"), ("some", special), (special, special)):
        a, b = (operand(kind, type, (128, 128), seed) for seed, kind in enumerate(kinds))
        if kinds == ("huge", "huge"):
            b[0] = 0  # which the huge number of the left operand would overflow with
        (found,) = product(type, 128, 128, 128)(a, b)
        check(found, a, b, underflows_once=False)


@needs_x86
@pytest.mark.parametrize("width", [16, 32])
def test_results_do_not_depend_on_threads(width: int) -> None:
    a, b = operand("some", "f32", (300, 200), 1), operand("all", "f32", (200, 100), 2)
    (found,) = product("f32", 300, 200, 100, 1, width)(a, b)
    check(found, a, b, underflows_once=True)
    for threads in (2, 3):
        (other,) = product("f32", 300, 200, 100, threads, width)(a, b)
        np.testing.assert_array_equal(found.view(np.uint32), other.view(np.uint32))


def is_scaled(spec: MatmulSpec, **options: bool) -> bool:
    return scaled_product(spec, type_of("float", 16), Target(64, 2, **options)) is not None


@needs_x86
def test_large_products_of_contiguous_floats_are_scaled() -> None:
    large = 1, 200, 200, 200
    assert is_scaled(spec_of(*large))
    assert is_scaled(spec_of(*large, "c64 c64 c64"))
    assert is_scaled(spec_of(8, 200, 200, 20, orders="bji ibj bij"))
    assert not is_scaled(spec_of(1, 50, 50, 50))
    assert not is_scaled(spec_of(*large, "f32 f32 bf16"))
    assert not is_scaled(spec_of(*large, "s32 s32 s32"))
    assert not is_scaled(MatmulSpec(*large, *[BY_NAME["f32"]] * 3, (0, 400, 1), (0, 200, 1), (0, 200, 1)))


@needs_x86
def test_some_targets_have_no_scaled_products() -> None:
    """Rows of a batch-invariant product do not depend on others; libraries do not allocate; others are fast."""
    spec = spec_of(1, 200, 200, 200)
    assert not is_scaled(spec, batch_invariant=True)
    assert not is_scaled(spec, has_heap=False)
    arm, amd = Processor("aarch64", "generic", "", 16, True), Processor("x86_64", "znver3", "+clzero", 32, True)
    for other in (arm, amd):
        with generating_for(other):
            assert not is_scaled(spec)
