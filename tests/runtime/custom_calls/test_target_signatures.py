"""Signatures of custom-call targets: calls that break them are errors before native code runs (CUSTOMCALL-7)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.passes.canonicalize.top_k_calls import TopKCalls
from hloom.runtime.custom_calls.fortran import ArrayArgument, RoutineCall, Status
from hloom.runtime.custom_calls.lapack.targets import Batch
from hloom.runtime.custom_calls.registry import ROUTINES, declare_routine
from hloom.runtime.custom_calls.signature import Attribute, Binding, Signature
from hloom.runtime.custom_calls.targets import signatures
from hloom.shape import Shape
from hloom.text import parse_shape
from hloom.types import PrimitiveType

CASES = int(os.environ.get("HLOOM_CASES", "4000"))
BLOCK = 500
both = pytest.mark.parametrize("backend", ["cpu", "interpreter"])


def call(target: str, operands: list[np.ndarray], shape: str, config: str = "", backend: str = "cpu") -> Any:
    b = hl.XlaBuilder()
    arguments = [b.parameter(i, hl.Literal.from_numpy(a).shape) for i, a in enumerate(operands)]
    program = b.build(b.custom_call(target, arguments, parse_shape(shape), opaque=config))
    return hl.compile(program, backend=backend)(*operands)


# The language of signatures


def shapes(text: str) -> list[Shape]:
    return [parse_shape(part) for part in re.findall(r"\w+\[[^\]]*\]", text)]


def bind(signature: Signature, operands: str, results: str, config: str = "") -> Binding:
    found = shapes(results)
    return signature.bind("t", shapes(operands), found[0] if len(found) == 1 else Shape.tuple_of(found), config)


PRODUCT = Signature(
    "a: T[*, m, n], b: T[*, n, k] -> c: T[*, m, k]", (PrimitiveType.F32, PrimitiveType.F64), relations=("k <= m",)
)


def test_names_take_sizes_and_a_star_all_other_dimensions() -> None:
    binding = bind(PRODUCT, "f32[7,8,2,3] f32[7,8,3,1]", "f32[7,8,2,1]")
    assert binding.sizes == {"m": 2, "n": 3, "k": 1} and binding.batch == (7, 8)


@pytest.mark.parametrize(
    ("operands", "results", "message"),
    [
        ("f32[2,3]", "f32[2,1]", "2 operands, got 1"),
        ("f32[2,3] f32[3,1]", "f32[2,1] f32[2]", "1 results, got 2"),
        ("f32[2,3] f32[4,1]", "f32[2,1]", "operand 1 is b: T[*, n, k] = f32[3,1], got f32[4,1]"),
        ("f32[2,3] f32[3,1]", "f32[1,2]", "result 0 is c: T[*, m, k] = f32[2,1], got f32[1,2]"),
        ("f32[5,2,3] f32[6,3,1]", "f32[5,2,1]", "operand 1 is b: T[*, n, k] = f32[5,3,1], got f32[6,3,1]"),
        ("f32[2,3] f32[3]", "f32[2,1]", "operand 1 is b: T[*, n, k], got f32[3]"),
        ("f32[2,3] f64[3,1]", "f32[2,1]", "operand 1 is b: T[*, n, k] = f32[3,1], got f64[3,1]"),
        ("s32[2,3] s32[3,1]", "s32[2,1]", "operand 0 is a: T[*, m, n], got s32[2,3]"),
        ("f32[2,3] f32[3,4]", "f32[2,4]", "k <= m must hold, got m = 2, k = 4"),
        ("f32[<=2,3] f32[3,1]", "f32[2,1]", "operand 0 is a: T[*, m, n] of static sizes, got f32[<=2,3]"),
    ],
)
def test_mismatches_are_named(operands: str, results: str, message: str) -> None:
    """CUSTOMCALL-7."""
    with pytest.raises(hl.RuleError, match=r"CUSTOMCALL-7\]: 't': " + re.escape(message) + "; it is declared as"):
        bind(PRODUCT, operands, results)


KINDS = {"uplo": Attribute("LU"), "flag": Attribute(True), "low": Attribute(range(1, 5))}


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ("{low = 2 : i32}", ["L", True, 2]),
        ('{uplo = 85 : ui8, flag = false, low = 4 : i32, more = "x"}', ["U", False, 4]),
        ('{uplo = "U", flag = 0, low = 1}', ["U", False, 1]),
    ],
)
def test_attributes_have_values_of_their_kinds(config: str, values: list[Any]) -> None:
    binding = bind(Signature("a: T[n] -> b: T[n]", (PrimitiveType.F32,), attributes=KINDS), "f32[2]", "f32[2]", config)
    assert [*binding.attributes.values()] == values


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{uplo = 78 : ui8, low = 1}", "attribute uplo is 'L' (76) or 'U' (85), got 78"),
        ("{flag = 3, low = 1}", "attribute flag is true or false, got 3"),
        ("{low = 5}", "attribute low is an integer from 1 to 4, got 5"),
        ("", "attribute low is an integer from 1 to 4, got None"),
        ("{low = 1", "its backend_config is a dictionary"),
    ],
)
def test_other_attributes_are_refused(config: str, message: str) -> None:
    """CUSTOMCALL-7."""
    with pytest.raises(hl.RuleError, match=re.escape(message)):
        bind(Signature("a: T[n] -> b: T[n]", (PrimitiveType.F32,), attributes=KINDS), "f32[2]", "f32[2]", config)


# Calls of targets


REFUSED = [
    ("TopK", "f32[4]", "(f32[10], s32[10])", "k <= n must hold"),
    ("TopK", "f32[]", "(f32[], s32[])", "operand 0 is x: T[*, n], got f32[]"),
    ("TopK", "f32[4]", "(f32[2], s64[2])", "result 1 is indices: s32[*, k] = s32[2]"),
    ("mhlo.topk", "f32[4]", "f32[2]", "2 results, got 1"),
    ("ProductOfElementaryHouseholderReflectors", "f32[3,5] f32[3]", "f32[3,5]", "k <= n <= m must hold"),
    ("ProductOfElementaryHouseholderReflectors", "f32[5,3] f32[4]", "f32[5,3]", "k <= n <= m must hold"),
    ("LuDecomposition", "f32[4,4]", "(f32[4,4], s32[99], s32[4])", "result 1 is pivots"),
    ("Qr", "s32[4,4]", "(s32[4,4], s32[4])", "operand 0 is a: T[*, m, n], got s32[4,4]"),
    ("Eigh", "f32[3,4]", "(f32[3,4], f32[3])", "operand 0 is a: T[*, n, n] = f32[3,3]"),
    ("Sharding", "f32[4]", "f32[40000]", "result 0 (x) is f32[4], got f32[40000]"),
    ("SliceToDynamic", "f32[4] s32[]", "f32[<=9]", "result 0 is sliced"),
    ("PadToStatic", "f32[4]", "(f32[2], s32[])", "result 0 is padded"),
    ("lapack_sormqr_ffi", "f32[4,4] f32[5] f32[4,2]", "f32[4,2]", "k <= p must hold"),
    ("lapack_slaswp_ffi", "f32[4] s32[5]", "f32[4]", "k <= m must hold"),
]


@both
@pytest.mark.parametrize(("target", "operands", "result", "message"), REFUSED)
def test_calls_that_break_a_signature_are_errors(
    target: str, operands: str, result: str, message: str, backend: str
) -> None:
    """CUSTOMCALL-7: the error names target and array, when the program is compiled."""
    given = shapes(operands)
    parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(given))
    names = ", ".join(f"p{k}" for k in range(len(given)))
    config = ', backend_config="1,1,100,1e-6"' if target == "Eigh" else ""
    text = f'HloModule m\nENTRY e {{\n{parameters}  ROOT r = {result} custom-call({names}), custom_call_target="{target}"{config}\n}}'
    with pytest.raises(hl.RuleError, match=f"CUSTOMCALL-7.*'{target}': .*{re.escape(message)}"):
        hl.compile(text, backend=backend)


def test_passes_refuse_them_too() -> None:
    """CUSTOMCALL-7."""
    text = (
        'HloModule m\nENTRY e { x = f32[4] parameter(0)\n ROOT r = f32[2] custom-call(x), custom_call_target="TopK" }'
    )
    module = hl.parse(text)
    with pytest.raises(hl.RuleError, match="CUSTOMCALL-7.*2 results, got 1"):
        TopKCalls().run(module)


@both
def test_sparse_rows_look_at_their_indices(backend: str) -> None:
    """CUSTOMCALL-7: indices are checked when the program runs."""
    data, dense = np.ones(4, np.float32), np.ones((3, 2), np.float32)

    def times(starts: list[int], columns: list[int]) -> Any:
        indices = np.array(starts, np.int32), np.array(columns, np.int32)
        return call("cpu_csr_sparse_dense_ffi", [data, *indices, dense], "f32[3,2]", backend=backend)

    assert times([1, 2, 2, 3], [9, 0, 2, -9]).tolist() == [[1, 1], [0, 0], [1, 1]]
    for starts in ([0, 10**8, -5, 4], [-1, 1, 2, 4], [0, 1, 2, 5]):
        with pytest.raises(hl.RunError, match="CUSTOMCALL-7.*starts ascend from 0 to at most 4"):
            times(starts, [0, 1, 1, 0])
    for column in (3, -1, 10**9):
        with pytest.raises(hl.RunError, match="CUSTOMCALL-7.*columns are from 0 to 2"):
            times([0, 1, 2, 4], [0, 1, column, 0])


@both
def test_pivots_out_of_bounds_swap_with_the_nearest_row(backend: str) -> None:
    """CUSTOMCALL-7: LAPACK trusts them."""
    a = np.arange(5, dtype=np.float32)
    pivots = np.array([10**9, -(10**9), 3], np.int32)
    got = call("lapack_slaswp_ffi", [a, pivots], "f32[5]", backend=backend)
    assert got.tolist() == [1, 4, 2, 3, 0]


@both
@pytest.mark.parametrize("size", [-9, 5, 2**31 - 1])
def test_sizes_lie_within_the_array(size: int, backend: str) -> None:
    """CUSTOMCALL-7."""
    text = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  n = s32[] parameter(1)
  d = f32[<=4] custom-call(x, n), custom_call_target="SliceToDynamic"
  ROOT s = s32[] get-dimension-size(d), dimensions={0}
}"""
    run = hl.compile(text, backend=backend)
    assert run(np.ones(4, np.float32), np.int32(3)) == 3
    with pytest.raises(hl.RunError, match=rf"CUSTOMCALL-7.*dimension 0 from 0 to 4, got {size}"):
        run(np.ones(4, np.float32), np.int32(size))


@both
def test_a_scalar_is_padded_to_itself(backend: str) -> None:
    """CUSTOMCALL-5: without dimensions there are no sizes, and the result is not a tuple."""
    assert call("PadToStatic", [np.float32(2)], "f32[]", backend=backend) == 2


def unhandled_potrf(binding: Binding) -> RoutineCall:
    batch = Batch(binding)
    arguments = ("U", np.int32(3), ArrayArgument(0, 0), np.int32(3), Status())
    return RoutineCall("spotrf", arguments, batch.operands, batch.results, batch.count)


@both
def test_failures_without_a_status_result_are_nan(backend: str) -> None:
    """CUSTOMCALL-7: LAPACK's status is checked where the target does not return it."""
    declare_routine("test_potrf", Signature("a: T[*, n, n] -> l: T[*, n, n]", (PrimitiveType.F32,)), unhandled_potrf)
    try:
        a = np.stack([np.eye(3, dtype=np.float32) * k for k in (4, -1, 9)])
        got = call("test_potrf", [a], "f32[3,3,3]", backend=backend)
    finally:
        del ROUTINES["test_potrf"]
    np.testing.assert_array_equal(got[0], 2 * np.eye(3))
    np.testing.assert_array_equal(got[2], 3 * np.eye(3))
    assert np.isnan(got[1]).all()


# Drawn calls


def sweep(first: int, count: int) -> list[str]:
    """Runs drawn calls in a process of their own; one line for each."""
    program = Path(__file__).with_name("target_calls.py")
    done = subprocess.run(
        [sys.executable, str(program), str(first), str(count)], capture_output=True, text=True, timeout=600, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"case {lines[-1] if lines else first} ended the process:\n{done.stderr[-2000:]}"
    assert not done.stderr, done.stderr  # LAPACK complains of what it should never have been given
    return lines


def test_each_target_runs_or_refuses() -> None:
    """CUSTOMCALL-7: a call of each target, of which a quarter fits its signature, and all others are damaged."""
    outcomes = [line.split()[1] for line in sweep(0, len(signatures()))]
    assert outcomes.count("ran") > 20 < outcomes.count("refused")


@pytest.mark.long
@pytest.mark.parametrize("block", range(-(-CASES // BLOCK)))
def test_damaged_calls_run_or_are_refused(block: int) -> None:
    """CUSTOMCALL-7."""
    sweep(block * BLOCK, min(BLOCK, CASES - block * BLOCK))
