"""The registry of passes and pipelines by name, and the parser of their command-line syntax."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hloom.errors import ArgumentError, close_names
from hloom.passes import plugins
from hloom.passes.blocking.product_blocking import ProductBlocking
from hloom.passes.canonicalize.map_inline import MapInliner
from hloom.passes.canonicalize.markers import MarkerRemover
from hloom.passes.canonicalize.pivot_loops import PivotLoops
from hloom.passes.canonicalize.single_device import SingleDeviceCollectives
from hloom.passes.canonicalize.top_k_calls import TopKCalls
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.control_flow.conditional import ConditionalSimplifier
from hloom.passes.control_flow.loop_unroller import WhileLoopUnroller
from hloom.passes.control_flow.product_sums import ProductSums
from hloom.passes.control_flow.while_loops import WhileLoopInvariantCodeMotion, WhileLoopSimplifier
from hloom.passes.fusion.dot_operands import DotOperands
from hloom.passes.fusion.joined_slices import JoinedSlices
from hloom.passes.legalize.asynchronous import AsyncToSync
from hloom.passes.legalize.batch_norm import BatchNormExpander
from hloom.passes.legalize.bits import BitsExpander
from hloom.passes.legalize.collective_dimensions import CollectiveDimensions
from hloom.passes.legalize.declared import DeclaredExpander
from hloom.passes.legalize.dynamic.padder import DynamicPadder
from hloom.passes.legalize.fft_lengths import FftLengths
from hloom.passes.legalize.linear_algebra import LinearAlgebraToLapack
from hloom.passes.legalize.mixed_precision import MixedPrecisionExpander
from hloom.passes.legalize.nan_signs import NanSigns
from hloom.passes.legalize.scan import ScanExpander
from hloom.passes.legalize.top_k import TopKDecomposer
from hloom.passes.optimize.arg_max import ArgMax
from hloom.passes.optimize.convolution_operands import ConvolutionOperandSwapper
from hloom.passes.optimize.convolution_patches import ConvolutionPatches
from hloom.passes.optimize.convolution_products import ConvolutionProducts
from hloom.passes.optimize.dot_strength_reduction import DotStrengthReduction
from hloom.passes.optimize.double_buffering import DoubleBuffering
from hloom.passes.optimize.gathered_products import GatheredProducts
from hloom.passes.optimize.memory_scheduler import MemoryScheduler
from hloom.passes.optimize.part_sums import PartSums
from hloom.passes.optimize.small_systems import SmallSystems
from hloom.passes.optimize.sort_keys import SortKeys
from hloom.passes.optimize.split_contractions import SplitContractions
from hloom.passes.optimize.update_scheduler import UpdateScheduler
from hloom.passes.optimize.winograd.convolution import WinogradConvolution
from hloom.passes.pipeline import Pass, Pipeline
from hloom.passes.rewrite import Rule
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.common_subexpressions import CommonSubexpressionElimination
from hloom.passes.simplify.constant_folding import ConstantFolding
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.simplify.tuple_simplifier import TupleSimplifier
from hloom.passes.spmd.spmd_pass import SpmdPartitioner

PASSES: dict[str, type[Any]] = {
    cls.name: cls
    for cls in (
        CallInliner,
        DeadCodeElimination,
        TupleSimplifier,
        CommonSubexpressionElimination,
        AlgebraicSimplifier,
        ConstantFolding,
        ConditionalSimplifier,
        WhileLoopSimplifier,
        WhileLoopInvariantCodeMotion,
        WhileLoopUnroller,
        MemoryScheduler,
        UpdateScheduler,
        WinogradConvolution,
        AsyncToSync,
        BatchNormExpander,
        BitsExpander,
        CollectiveDimensions,
        ConvolutionOperandSwapper,
        ConvolutionPatches,
        ConvolutionProducts,
        DeclaredExpander,
        ArgMax,
        MarkerRemover,
        DotOperands,
        DotStrengthReduction,
        DoubleBuffering,
        DynamicPadder,
        FftLengths,
        GatheredProducts,
        JoinedSlices,
        LinearAlgebraToLapack,
        MapInliner,
        MixedPrecisionExpander,
        NanSigns,
        PartSums,
        PivotLoops,
        ProductBlocking,
        ProductSums,
        ScanExpander,
        SingleDeviceCollectives,
        SmallSystems,
        SortKeys,
        SplitContractions,
        SpmdPartitioner,
        TopKCalls,
        TopKDecomposer,
    )
}


def simplification_pipeline() -> Pipeline:
    """Returns the pipeline that compilations start with: inlining, and simplifications up to a fixed point.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = s32[2] parameter(0)  y = s32[2] not(x)  ROOT z = s32[2] not(y) }")
    >>> passes.run_passes(module, passes.simplification_pipeline())
    [...]
    >>> module.entry.instructions
    [%x = s32[2] parameter(0)]
    """
    group = (
        DeadCodeElimination(),
        TupleSimplifier(),
        CommonSubexpressionElimination(),
        AlgebraicSimplifier(),
        ConstantFolding(),
        ConditionalSimplifier(),
        WhileLoopSimplifier(),
    )
    return Pipeline("simplification", (CallInliner(), Pipeline("simplify", group, fixpoint=True)))


PIPELINES = {"simplification": simplification_pipeline}

_ITEM = re.compile(r"\s*([\w-]+)\s*(?:\{([^{}]*)\})?\s*")


def parse_passes(text: str, targeted: Mapping[str, Pass] = MappingProxyType({})) -> Pipeline:
    """Parses `name{field=value,..},name,..`: names of passes and pipelines, with values of the passes' fields.

    A value is an integer, `true` or `false`, a word, or words joined by `+`, depending on the type of the field.
    `targeted` has, by name, passes for a target: fields that the text leaves out have the values of these. Raises
    ArgumentError for wrong syntax and unknown names.

    >>> from hloom import passes
    >>> [each.name for each in passes.parse_passes("dce,cse").passes]
    ['dce', 'cse']
    """
    steps: list[Pass | Pipeline] = []
    position = 0
    while text[position:].strip():
        match = _ITEM.match(text, position)
        if match is None or text[match.end() : match.end() + 1] not in ("", ","):
            raise ArgumentError(
                f"passes are written name{{field=value,..}},name,.. but {text!r} has {text[position:]!r}"
            )
        steps.append(_make(match[1], match[2] or "", targeted))
        position = match.end() + 1
    return Pipeline("passes", tuple(steps))


def _make(name: str, options: str, targeted: Mapping[str, Pass]) -> Pass | Pipeline:
    if name in PIPELINES:
        if options.strip():
            raise ArgumentError(f"the pipeline {name} has no fields, got {{{options}}}")
        return PIPELINES[name]()
    cls: Any = targeted[name] if name in targeted else find_pass(name)
    if isinstance(cls, Rule):
        if options.strip():
            raise ArgumentError(f"the rule {name} has no fields, got {{{options}}}")
        return cls
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for option in filter(None, map(str.strip, options.split(","))):
        key, _, value = map(str.strip, option.partition("="))
        if key not in fields:
            raise ArgumentError(f"pass {name} has no field {key!r}; its fields are: {', '.join(fields) or 'none'}")
        values[key] = _value(name, fields[key], value)
    step: Pass = dataclasses.replace(cls, **values) if name in targeted else cls(**values)
    return step


def find_pass(name: str) -> Any:
    """Returns the class of a pass, or a rule, by its name; those of plugins included.

    Raises ArgumentError if there is none.
    """
    for known in (PASSES, plugins.FOUND):
        if name in known:
            return known[name]
    if name in plugins.installed():
        return plugins.FOUND[name]
    known_names = [*PASSES, *PIPELINES, *plugins.FOUND]
    hint = close_names(name, known_names) or f"; the passes are: {', '.join(known_names)}"
    raise ArgumentError(f"there is no pass {name!r}{hint}")


def _value(name: str, field: dataclasses.Field[Any], text: str) -> Any:
    """Parses the text of an option as a value of the field's type, which is that of its default value."""
    kind = type(field.default)
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind is int and re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    if kind is tuple:
        return tuple(filter(None, text.split("+")))
    if kind is str:
        return text
    wanted = {bool: "true or false", int: "an integer"}[kind]
    raise ArgumentError(f"field {field.name} of pass {name} takes {wanted}, got {text!r}")
