"""Expanders that avoid host calls: collectives of one device, asynchronous calls, markers, types of products."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted, module_text
from hloom.passes import clone_module, run_passes
from hloom.passes.expand.asynchronous import AsyncToSync
from hloom.passes.expand.convolution_operands import ConvolutionOperandSwapper
from hloom.passes.expand.mixed_precision import MixedPrecisionExpander
from hloom.passes.expand.product_types import ProductTypes
from hloom.passes.expand.single_device import SingleDeviceCollectives
from hloom.passes.pipeline import Pass
from hloom.types import PrimitiveType

ALONE = {
    "all-reduce": "ROOT r = f32[4] all-reduce(p), replica_groups={}, to_apply=sum",
    "all-reduce of two": "ROOT r = (f32[4], f32[4]) all-reduce(p, q), replica_groups={{0}}, to_apply=sum",
    "all-reduce-start": "s = f32[4] all-reduce-start(p), replica_groups={}, to_apply=sum\nROOT r = f32[4] all-reduce-done(s)",
    "all-gather": "ROOT r = f32[4] all-gather(p), dimensions={0}",
    "all-gather-start": "s = (f32[4], f32[4]) all-gather-start(p), dimensions={0}\nROOT r = f32[4] all-gather-done(s)",
    "reduce-scatter": "ROOT r = f32[4] reduce-scatter(p), dimensions={0}, to_apply=sum",
    "all-to-all": "ROOT r = f32[4] all-to-all(p), dimensions={0}",
    "all-to-all of a tuple": "ROOT r = (f32[4]) all-to-all(p), replica_groups={{0}}",
    "collective-broadcast": "ROOT r = f32[4] collective-broadcast(p), replica_groups={{0}}",
    "collective-permute to itself": "ROOT r = f32[4] collective-permute(p), source_target_pairs={{0,0}}",
    "collective-permute of nothing": "ROOT r = f32[4] collective-permute(p), source_target_pairs={}",
    "collective-permute-start": "s = (f32[4], f32[4], u32[], u32[]) collective-permute-start(p), "
    "source_target_pairs={{0,0}}\nROOT r = f32[4] collective-permute-done(s)",
    "collective-permute-start of nothing": "s = (f32[4], f32[4]) collective-permute-start(p), source_target_pairs={}\n"
    "ROOT r = f32[4] collective-permute-done(s)",
    "ids": "a = u32[] replica-id()\nb = u32[] partition-id()\nROOT r = u32[] add(a, b)",
}


@pytest.mark.parametrize("case", ALONE)
def test_collectives_of_one_device_return_their_operands(case: str) -> None:
    parameters = "p = f32[4] parameter(0)\nq = f32[4] parameter(1)\n"
    module = hl.parse(module_text(parameters + ALONE[case]))
    _check(module, SingleDeviceCollectives() if "start" not in case else AsyncToSync())
    assert hl.compile(module, backend="cpu").report() == []


ASYNCHRONOUS = {
    "a call": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\nROOT r = f32[4] async-done(s)",
    "with updates": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\n"
    "u = ((f32[4]), f32[4], s32[]) async-update(s)\nROOT r = f32[4] async-done(u)",
    "in short": "s = ((f32[4]), f32[4], s32[]) exponential-start(p)\nROOT r = f32[4] exponential-done(s)",
    "a copy": "s = (f32[4], f32[4], u32[]) copy-start(p)\nROOT r = f32[4] copy-done(s)",
    "two at a time": "s = ((f32[4]), f32[4], s32[]) async-start(p), calls=twice\n"
    "t = ((f32[4]), f32[4], s32[]) async-start(q), calls=twice\na = f32[4] async-done(t)\nb = f32[4] async-done(s)\n"
    "ROOT r = f32[4] divide(a, b)",
}


@pytest.mark.parametrize("case", ASYNCHRONOUS)
def test_asynchronous_operations_become_synchronous(case: str) -> None:
    twice = "twice {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] add(x, x)\n}\n"
    parameters = "p = f32[4] parameter(0)\nq = f32[4] parameter(1)\n"
    module = hl.parse(module_text(parameters + ASYNCHRONOUS[case], twice))
    after = _check(module, AsyncToSync())
    assert not any("-start" in i.opcode or "-done" in i.opcode for i in after.entry.instructions)
    assert hl.compile(module, backend="cpu").report() == []


def test_markers_and_tokens_need_no_host_call() -> None:
    module = hl.parse(
        module_text(
            'p = f32[4] parameter(0)\nm = f32[4] custom-call(p), custom_call_target="MoveToHost"\n'
            "t = token[] after-all(p)\nu = token[] after-all(t, t)\nROOT r = (f32[4], token[]) tuple(m, u)"
        )
    )
    assert hl.compile(module, backend="cpu").report() == []
    np.testing.assert_array_equal(compiled(module, np.arange(4, dtype=np.float32))[0], np.arange(4))


PRODUCTS = [("f8e4m3fn", "f8e4m3fn", "f8e4m3fn"), ("f8e5m2", "f8e4m3fn", "f32"), ("pred", "pred", "pred"),
            ("s8", "s8", "s8"), ("s4", "s4", "s32"), ("u8", "s8", "s32"), ("bf16", "f32", "f32")]  # fmt: skip


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


CONVOLUTIONS = [
    "f32[2,3,6,5] f32[4,3,9,8] window={size=9x8 pad=8_8x7_7} dim_labels=bf01_oi01->bf01",
    "f32[2,3,3,4] f32[4,3,9,8] window={size=9x8 pad=5_9x7_6} dim_labels=bf01_oi01->bf01",
    "f32[1,2,3,2] f32[7,6,2,3] window={size=7x6 pad=4_8x5_3 rhs_reversal=1x1} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 pad=6_6x6_6 rhs_dilate=2x1} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 pad=6_6x6_6 lhs_dilate=2x3} dim_labels=b01f_01io->b01f",
    "f32[1,3,3,2] f32[7,7,2,2] window={size=7x7 stride=2x1 pad=6_6x6_6} dim_labels=b01f_01io->b01f",
    "f32[2,3,3,4] f32[7,7,2,6] window={size=7x7 pad=6_6x6_6} dim_labels=b01f_01io->b01f, feature_group_count=2",
    "f32[4,3,3,2] f32[7,7,2,6] window={size=7x7 pad=6_6x6_6} dim_labels=b01f_01io->b01f, batch_group_count=2",
    "f32[1,3,3,2] f32[9,9,2,2] window={size=9x9 pad=-1_9x8_-1} dim_labels=b01f_01io->b01f",
]


@pytest.mark.parametrize("line", CONVOLUTIONS)
def test_convolutions_with_large_windows_have_the_same_results(line: str) -> None:
    data, window, attributes = line.split(" ", 2)
    module = hl.parse(
        "HloModule m\nENTRY e {\n"
        f"  x = {data} parameter(0)\n  w = {window} parameter(1)\n  ROOT r = convolution(x, w), {_with_commas(attributes)}\n}}"
    )
    after = clone_module(module)
    changes = run_passes(after, ConvolutionOperandSwapper(), verify=True)[0].changes
    x, w = arrays_for(module)
    (want,), (got,) = interpreted(module, x, w), interpreted(after, x, w)
    np.testing.assert_array_equal(got, want)  # small multiples of 1/4: sums are exact
    stays = any(word in line for word in ("group", "stride", "dilate"))
    assert changes == (0 if stays else 1)


def _with_commas(attributes: str) -> str:
    return attributes.replace("} dim_labels", "}, dim_labels")


def _check(module: hl.Module, step: Pass) -> hl.Module:
    after = clone_module(module)
    assert run_passes(after, step, verify=True)[0].changes >= 1
    arrays = arrays_for(module)
    for want, got, native in zip(
        interpreted(module, *arrays), interpreted(after, *arrays), compiled(module, *arrays), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(native, want)
    return after
