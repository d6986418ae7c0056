"""Expanders: expansions have the same results, or for batch normalisation the same up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.analysis.counted_loop import trip_count
from hloom.passes import clone_module, run_passes
from hloom.passes.control_flow.while_loops import loops_of
from hloom.passes.legalize.batch_norm import BatchNormExpander
from hloom.passes.legalize.scan import ScanExpander
from hloom.passes.legalize.top_k import TopKDecomposer
from passes.modules import check_same_results, difference, module, run

BATCH_NORM = {
    "training": "ROOT r = ({t}[2,3,4], {t}[3], {t}[3]) batch-norm-training(x, a, b), epsilon=0.001, feature_index=1",
    "inference": "ROOT r = {t}[2,3,4] batch-norm-inference(x, a, b, m, v), epsilon=0.001, feature_index=1",
    "grad": "ROOT r = ({t}[2,3,4], {t}[3], {t}[3]) batch-norm-grad(x, a, m, v, g), epsilon=0.001, feature_index=1",
}


@pytest.mark.parametrize("kind", BATCH_NORM)
@pytest.mark.parametrize(("element_type", "tolerance"), [("f64", 1e-12), ("f32", 1e-5), ("bf16", 2e-2)])
def test_batch_norm(kind: str, element_type: str, tolerance: float) -> None:
    names = {"training": "xab", "inference": "xabmv", "grad": "xamvg"}[kind]
    lines = [
        f"{name} = {element_type}[{'2,3,4' if name in 'xg' else '3'}] parameter({k})" for k, name in enumerate(names)
    ]
    text = "HloModule m\nENTRY e {\n" + "\n".join([*lines, BATCH_NORM[kind].format(t=element_type)]) + "\n}\n"
    before = hl.parse(text)
    after = clone_module(before)
    assert run_passes(after, BatchNormExpander(), verify=True)[0].changes == 1
    assert "batch-norm" not in after.to_text()
    rng = np.random.default_rng(0)
    arrays = [
        np.abs(rng.standard_normal(s.dimensions)).astype(s.element_type.dtype) for s in before.entry.parameter_shapes
    ]
    for want, got in zip(run(before, arrays), run(after, arrays), strict=True):
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), tolerance, tolerance)


def test_batch_norms_of_a_type_share_a_combiner() -> None:
    result = "(f32[2,3], f32[2], f32[2])"
    before = module(
        "a = f32[2] constant({1, 2});"
        f"b1 = {result} batch-norm-training(m, a, a), epsilon=0, feature_index=0;"
        f"b2 = {result} batch-norm-training(n, a, a), epsilon=0, feature_index=0;"
        f"ROOT r = ({result}, {result}) tuple(b1, b2)"
    )
    run_passes(before, BatchNormExpander(), verify=True)
    assert sum(computation.name.startswith("add") for computation in before.computations) == 1


@pytest.mark.parametrize("largest", ["true", "false"])
@pytest.mark.parametrize("element_type", ["f32", "s32", "u8", "bf16"])
def test_top_k(element_type: str, largest: str) -> None:
    before = hl.parse(
        f"HloModule m\nENTRY e {{\n x = {element_type}[3,6] parameter(0)\n"
        f" ROOT r = ({element_type}[3,2], s32[3,2]) topk(x), k=2, largest={largest}\n}}\n"
    )
    x = np.array([[1, 5, 5, 0, 2, 5], [3, 3, 3, 3, 3, 3], [9, 8, 7, 6, 5, 4]], np.float32)
    if element_type == "f32":
        x[0, :4] = [np.nan, -np.nan, 0.0, -0.0]
    check_same_results(before, TopKDecomposer().run, [x.astype(hl.parse_shape(f"{element_type}[]").element_type.dtype)])


SCAN = """HloModule m
f {
  x = f32[2] parameter(0)
  c = f32[2] parameter(1)
  two = f32[] constant(2)
  twos = f32[2] broadcast(two), dimensions={}
  a = f32[2] multiply(c, twos)
  s = f32[2] add(a, x)
  ROOT r = (f32[2], f32[2]) tuple(c, s)
}
sum {
  x = f32[2] parameter(0)
  c = f32[2] parameter(1)
  ROOT s = f32[2] add(x, c)
}
ENTRY e {
  x = f32[2,5] parameter(0)
  c = f32[2] parameter(1)
  ROOT r = RESULT scan(x, c), dimensions={1}, num_carries=1, to_apply=F, is_reverse=REVERSE
}
"""


@pytest.mark.parametrize("reverse", ["true", "false"])
@pytest.mark.parametrize(("computation", "result"), [("f", "(f32[2,5], f32[2])"), ("sum", "f32[2]")])
def test_scan(computation: str, result: str, reverse: str) -> None:
    text = SCAN.replace("=F", f"={computation}").replace("RESULT", result).replace("REVERSE", reverse)
    arrays: list[Any] = [np.arange(10, dtype=np.float32).reshape(2, 5), np.float32([1, -1])]
    after = check_same_results(hl.parse(text), ScanExpander().run, arrays)
    assert [trip_count(loop) for loop in loops_of(after)] == [5]
    again = hl.parse(after.to_text())
    assert difference(run(after, arrays), run(again, arrays)) is None
