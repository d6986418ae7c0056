"""Triangular systems by blocks, without BLAS: every side, triangle and transposition, against SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import hloom as hl
from backends.cpu.kernels.run_kernel import Kernel
from hloom.backends.cpu.kernels.code import KernelCode
from hloom.backends.cpu.kernels.linear_algebra import solve
from hloom.ir import Instruction
from hloom.ops.custom_call import CustomCall
from hloom.runtime.custom_calls.targets import routine_call
from hloom.target import Target

FLAGS = "side", "uplo", "trans_x", "diag"


def emit(op: CustomCall, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    call = routine_call(instruction)
    assert call is not None
    return solve.emit(name, instruction, call, target)


def solved(type: str, a: Any, b: Any, threads: int, **config: str) -> Any:
    operands = [f"{type}[{','.join(map(str, array.shape))}]" for array in (a, b)]
    values = ", ".join(f"{key} = {ord(value)} : ui8" for key, value in config.items())
    name = f"lapack_{'s' if type == 'f32' else 'd'}trsm_ffi"
    call = f'custom-call(a, b), custom_call_target="{name}", api_version=API_VERSION_TYPED_FFI'
    lines = f"a = {operands[0]} parameter(0)\nb = {operands[1]} parameter(1)\nROOT x = {operands[1]} {call}"
    return Kernel(emit, f"HloModule m\nENTRY e {{\n{lines}, backend_config={{{values}}}\n}}", threads)(a, b)[0]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "LU")
@pytest.mark.parametrize("trans_x", "NT")
def test_solutions_are_those_of_scipy(side: str, uplo: str, trans_x: str) -> None:
    """Only one triangle is read; the sizes are not multiples of blocks."""
    rng = np.random.default_rng(0)
    order, count = 70, 45
    for type, dtype, tolerance in (("f32", np.float32, 1e-4), ("f64", np.float64, 1e-12)):
        triangle = (np.tril if uplo == "L" else np.triu)(rng.standard_normal((2, order, order)) / order)
        triangle += 2 * np.eye(order)
        other = (np.triu if uplo == "L" else np.tril)(np.full((order, order), np.nan), 1 if uplo == "L" else -1)
        b = rng.standard_normal((2, order, count) if side == "L" else (2, count, order)).astype(dtype)
        for diag in "NU":
            config = {"side": side, "uplo": uplo, "trans_x": trans_x, "diag": diag}
            found = solved(type, (triangle + other).astype(dtype), b, 2, **config)
            for a, given, x in zip(triangle, b, found, strict=True):
                # x a = b is a^T x^T = b^T.
                trans = (trans_x == "T") == (side == "L")
                options: Any = {"lower": uplo == "L", "trans": int(trans), "unit_diagonal": diag == "U"}
                right = given if side == "L" else given.T
                want = scipy.linalg.solve_triangular(a, right.astype(np.float64), **options)
                np.testing.assert_allclose(x if side == "L" else x.T, want, atol=tolerance)


def test_singular_systems_have_infinities_and_nan() -> None:
    a, b = np.eye(64), np.ones((64, 64))
    a[5, 5] = 0
    x = solved("f64", a[None], b[None], 1, side="L", uplo="L", trans_x="N", diag="N")[0]
    assert np.isinf(x[5]).all() and (x[:5] == 1).all()


@pytest.mark.parametrize("vector_bytes, sides", [(64, 70), (32, 41), (16, 33)])
def test_rows_of_a_slab_follow_each_other(vector_bytes: int, sides: int) -> None:
    """Two vectors, or a line, of 70 unknowns, padded to 128, in each of as many slabs as the right-hand sides need."""
    lines = "a = f32[70,70] parameter(0)\nb = f32[70,{0}] parameter(1)\nROOT x = f32[70,{0}] custom-call(a, b)"
    flags = ", ".join(f"{key} = {ord(value)} : ui8" for key, value in zip(FLAGS, "LLNN", strict=True))
    target = 'custom_call_target="lapack_strsm_ffi", api_version=API_VERSION_TYPED_FFI'
    module = hl.parse(f"HloModule m\nENTRY e {{\n{lines.format(sides)}, {target}, backend_config={{{flags}}}\n}}")
    instruction = module.entry.root
    assert isinstance(instruction.op, CustomCall)
    code = emit(instruction.op, "solve", instruction, Target(vector_bytes, 2))
    slab = vector_bytes // 2
    triangle, slabs, scales = 128 * 128 * 4, -(-sides // slab) * max(slab, 16) * 128 * 4, 128 * 4
    assert code is not None and code.scratch_bytes == triangle + slabs + scales
