"""The rewrite rules and passes of docs/proofs.md: what their instances look like, and what is tested elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import verdict_texts as texts
from hloom.backends.cpu.pipeline import Topology, cpu_pipeline
from hloom.passes.canonicalize.map_inline import MapInliner
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.control_flow.conditional import ConditionalSimplifier
from hloom.passes.control_flow.loop_unroller import WhileLoopUnroller
from hloom.passes.control_flow.while_loops import WhileLoopInvariantCodeMotion, WhileLoopSimplifier
from hloom.passes.fusion.dot_operands import DotOperands
from hloom.passes.fusion.joined_slices import JoinedSlices
from hloom.passes.legalize.batch_norm import BatchNormExpander
from hloom.passes.legalize.bits import BitsExpander
from hloom.passes.legalize.mixed_precision import MixedPrecisionExpander
from hloom.passes.legalize.nan_signs import NanSigns
from hloom.passes.legalize.scan import ScanExpander
from hloom.passes.legalize.top_k import TopKDecomposer
from hloom.passes.optimize import dot_strength_reduction, sort_keys, split_contractions
from hloom.passes.optimize.arg_max import ArgMax
from hloom.passes.optimize.convolution_operands import ConvolutionOperandSwapper
from hloom.passes.optimize.convolution_patches import ConvolutionPatches
from hloom.passes.optimize.convolution_products import ConvolutionProducts
from hloom.passes.optimize.update_scheduler import UpdateScheduler
from hloom.passes.pipeline import Pass
from hloom.passes.rewrite import Rule
from hloom.passes.simplify import algebraic_simplifier, tuple_simplifier
from hloom.passes.simplify.common_subexpressions import CommonSubexpressionElimination
from hloom.passes.simplify.constant_folding import ConstantFolding

RULES: tuple[Rule, ...] = (*algebraic_simplifier.RULES, *tuple_simplifier.RULES)

LIKE = {
    "concatenate-slices": ("concatenate(slice(x), slice(x))", "concatenate(slice*)"),
    "concatenate-splats": ("concatenate($c, $c)", "concatenate(*)"),
    "select-update": (
        "select(p, dynamic-update-slice(x, u, i), x)",
        "select(p, x, dynamic-update-slice(x, u, i, j))",
        "select(p, dynamic-update-slice(x, u, i), dynamic-update-slice(x, v, j))",
        "select(p, scatter(x, i, u), x)",
        "select(p, x, scatter(x, i, u))",
        "select(p, scatter(x, i, u), dynamic-update-slice(x, v, j))",
    ),
    "tuple-of-elements": ("tuple(get-tuple-element(x), get-tuple-element(x))", "tuple(get-tuple-element(x))"),
}
"""Patterns of instances of rules whose own pattern leaves more open than their condition."""


@dataclass(frozen=True)
class PassCase:
    """A pass; patterns, or texts, of modules that it changes; and limits of sizes that are lowered for these."""

    step: Pass
    patterns: tuple[str, ...]
    limits: dict[str, Any] = field(default_factory=dict)


_OF_CPU: dict[str, Any] = {step.name: step for step in cpu_pipeline(Topology.SINGLE).leaves()}

PASSES = (
    PassCase(algebraic_simplifier.AlgebraicSimplifier(), tuple(dict.fromkeys(rule.pattern for rule in RULES))),
    PassCase(
        CommonSubexpressionElimination(),
        (
            "add(negate(x), negate(x))", "select(compare(x, y), add(x, y), add(x, y))",
            "tuple(reduce(x, c), reduce(x, c))",
        ),
    ),
    PassCase(
        ConstantFolding(),
        (
            "elementwise(constant*)", "add(constant(*), constant(*))", "divide(constant(*), constant(*))",
            "reshape(constant(*))", "transpose(constant(*))", "slice(constant(*))", "pad(constant(*), $c)",
            "concatenate(constant*)", "gather(constant*)", "reduce(constant*)", "dot(constant(*), constant(*))",
            "dynamic-slice(constant*)", "dynamic-update-slice(constant*)", "reverse(constant(*))",
            "bitcast-convert(constant(*))",
        ),
    ),
    PassCase(CallInliner(), (texts.INLINE,)),
    PassCase(ConditionalSimplifier(), (texts.KNOWN_BRANCH, texts.EQUAL_BRANCHES)),
    PassCase(WhileLoopSimplifier(), texts.LOOPS),
    PassCase(WhileLoopUnroller(), texts.LOOPS),
    PassCase(WhileLoopInvariantCodeMotion(), texts.LOOPS),
    PassCase(MapInliner(), ("map(*)",)),
    PassCase(ConvolutionOperandSwapper(), ("convolution(x, y)",)),
    PassCase(ConvolutionProducts(), ("convolution(x, y)",)),
    PassCase(ConvolutionPatches(min_kernel=1), ("convolution(x, y)",)),
    PassCase(
        dot_strength_reduction.DotStrengthReduction(), ("dot(x, y)",),
        {"hloom.passes.optimize.dot_strength_reduction.MIN_BATCHES": 2},
    ),
    PassCase(DotOperands(), ("dot(x, y)",)),
    PassCase(
        split_contractions.SplitContractions(1, 0), ("dot(x, y)",),
        {"hloom.passes.optimize.split_contractions.TERMS": range(2, 4),
         "hloom.passes.optimize.split_contractions.MIN_SIDE": 1},
    ),
    PassCase(sort_keys.SortKeys(), ("sort(*)",), {"hloom.passes.optimize.sort_keys.MIN_KEY_COST": 1}),
    PassCase(ArgMax(), (texts.ARG_MAX,), {"hloom.passes.optimize.arg_max.MIN_LENGTH": 1}),
    PassCase(TopKDecomposer(), ("topk(x)",)),
    PassCase(BitsExpander(), ("bitcast-convert(x)", "bitcast-convert(bitcast-convert(x))", "stochastic-convert(x, y)")),
    PassCase(BatchNormExpander(), texts.BATCH_NORMS),
    PassCase(ScanExpander(), texts.SCANS),
    PassCase(MixedPrecisionExpander(), texts.MIXED_PRECISION),
    PassCase(_OF_CPU["product-types"], ("dot(x, y)", "convolution(x, y)")),
    PassCase(NanSigns(), ("bitcast-convert(add(x, y))", "compare(multiply(x, y), z)", "sort(add*)")),
    PassCase(
        UpdateScheduler(),
        ("tuple(dynamic-update-slice(x, u, i), negate(x))", "tuple(scatter(x, i, u), add(x, y))"),
    ),
    PassCase(
        JoinedSlices(),
        (
            "add(concatenate(slice(x), slice(y)), z)",
            "negate(concatenate(slice(x), slice(x), slice(y)))",
            "negate(slice(pad(x, c)))",
        ),
    ),
    PassCase(_OF_CPU["fusion"], ("elementwise(negate*)", "reduce(negate*)", "transpose(add(x, slice(y)))")),
)  # fmt: skip

ELSEWHERE = {
    "tuple-simplifier": "its rules are among those above",
    "dce, memory-scheduler": "instructions stay as they are, but for their order and those without users",
    "winograd-convolution":
        "rounds values differently, as the precision permits (`tests/passes/optimize/test_winograd.py`)",
    "part-sums": "needs an invariant of a loop (`tests/passes/optimize/test_part_sums.py`)",
    "double-buffering": "runs long loops of large arrays (`tests/passes/optimize/test_double_buffering.py`)",
    "gathered-products":
        "adds products in another order (`tests/passes/optimize/test_gathered_products.py`)",
    "product-sums": "adds products in another order (`tests/passes/control_flow/test_product_sums.py`)",
    "product-blocking": "works on large arrays (`tests/passes/blocking`)",
    "product-operands": "works on large arrays (`tests/backends/cpu/kernels/products/test_fused_dot.py`)",
    "product-slices": "works on large arrays (`tests/backends/cpu/kernels/products/test_sliced_dot.py`)",
    "scatter-updates": "works on large arrays (`tests/backends/cpu/kernels/scatter/test_fused_scatter.py`)",
    "dynamic-padder": "works on dynamic sizes (`tests/passes/legalize/test_dynamic_padder.py`)",
    "spmd": "is for several devices (`tests/passes/spmd`)",
    "async-to-sync, single-device, collective-dimensions": "communication (`tests/passes/legalize`)",
    "linear-algebra-to-lapack, topk-calls, markers, declared-expansions":
        "custom calls, which are functions of the platform (`tests/passes/legalize`)",
    "cholesky-calls, pivot-loops, small-systems":
        "work on calls of LAPACK (`tests/passes/canonicalize`, `tests/passes/optimize/test_small_systems.py`)",
    "fft-lengths": "rounds values differently (`tests/passes/legalize`)",
    "scalar-computation-outlining": "marks computations, which stay as they are",
}  # fmt: skip
"""Passes that are not proved on instances, and why; where they are tested."""

ALLOWED = {
    "convolution-operands": "CONVGENERAL-3: operands may be swapped, and the padding is then that of the kernel",
    "constant_folding": "GEN-13: a sum of complex products may be scaled by 1, which makes NaN of an infinite part",
}
"""Clauses that allow the results of instances that are not proved."""
