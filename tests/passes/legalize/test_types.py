"""product-types and mixed-precision: conversions to types that have native code."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted, module_text
from hloom.passes import clone_module, run_passes
from hloom.passes.legalize.mixed_precision import MixedPrecisionExpander
from hloom.passes.legalize.product_types import ProductTypes
from hloom.types import PrimitiveType

PRODUCTS = [("f8e4m3fn", "f8e4m3fn", "f8e4m3fn"), ("f8e5m2", "f8e4m3fn", "f32"), ("pred", "pred", "pred"),
            ("s8", "s8", "s8"), ("s4", "s4", "s32"), ("u8", "s8", "s32"), ("bf16", "f32", "f32")]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("left", "right", "result"), PRODUCTS, ids=["-".join(types) for types in PRODUCTS])
@pytest.mark.parametrize("operation", ["dot", "convolution"])
def test_products_of_every_type_are_native(left: str, right: str, result: str, operation: str) -> None:
    if operation == "dot":
        line = "dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        shapes = ("[3,5]", "[5,4]", "[3,4]")
    else:
        line = "convolution(p, q), window={size=2}, dim_labels=b0f_0io->b0f"
        shapes = ("[1,6,2]", "[2,2,3]", "[1,5,3]")
    module = hl.parse(
        module_text(
            f"p = {left}{shapes[0]} parameter(0)\nq = {right}{shapes[1]} parameter(1)\nROOT r = {result}{shapes[2]} {line}"
        )
    )
    arrays = [np.asarray(a).astype(a.dtype) for a in arrays_for(module)]
    (want,), (got,) = interpreted(module, *arrays), compiled(module, *arrays)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    assert hl.compile(module, backend="cpu").report() == []


def test_supported_types_are_left_alone() -> None:
    line = "p = f32[2,2] parameter(0)\nROOT r = f32[2,2] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    module = hl.parse(module_text(line))
    assert ProductTypes(lambda a, b, c: a is PrimitiveType.F32).run(module) == 0
    assert ProductTypes(lambda a, b, c: a is PrimitiveType.F64).run(module) == 0, "F32 products are made of F32 ones"


MIXED = {
    "operands": "ROOT r = f32[4] multiply(p, b)",
    "result": "ROOT r = bf16[4] negate(p)",
    "combiner": "z = bf16[] constant(1)\nROOT r = bf16[] reduce(b, z), dimensions={0}, to_apply=sum",
    "window": "z = bf16[] constant(-inf)\nROOT r = bf16[3] reduce-window(b, z), window={size=2}, to_apply=largest",
    "select": "c = pred[4] compare(p, b), direction=LT\nROOT r = f32[4] select(c, p, b)",
    "concatenate": "ROOT r = f32[8] concatenate(p, b), dimensions={0}",
    "all-reduce": "ROOT r = bf16[4] all-reduce(b), replica_groups={}, to_apply=sum",
}


@pytest.mark.parametrize("case", MIXED)
def test_mixed_precision_computes_in_the_widest_type(case: str, backend: str) -> None:
    module = hl.parse(module_text("p = f32[4] parameter(0)\nb = bf16[4] parameter(1)\n" + MIXED[case]))
    explicit = clone_module(module)
    assert run_passes(explicit, MixedPrecisionExpander(), verify=True)[0].changes >= 1
    assert run_passes(explicit, MixedPrecisionExpander())[0].changes == 0
    p, b = arrays_for(module)
    run = interpreted if backend == "interpreter" else compiled
    (got,) = run(module, p, b)
    wide = b.astype(np.float32)
    want = {
        "operands": p * wide, "result": -p, "combiner": 1 + wide.sum(), "window": np.maximum(wide[1:], wide[:-1]),
        "select": np.where(p < wide, p, wide), "concatenate": np.concatenate([p, wide]),
        "all-reduce": wide,
    }[case]  # fmt: skip
    np.testing.assert_array_equal(got.astype(np.float32), np.asarray(want).astype(got.dtype).astype(np.float32))
