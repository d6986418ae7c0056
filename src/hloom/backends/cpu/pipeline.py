"""The passes of the CPU backend before code generation, in order."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from hloom.backends.cpu.codegen.outline import ScalarComputationOutliner
from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.kernels.linear_algebra.sizes import MIN_COUNT, can_factorise
from hloom.backends.cpu.llvm.processor import processor
from hloom.ir import Instruction
from hloom.loops.lower import can_lower
from hloom.passes import PASSES, Pass, Pipeline, simplification_pipeline
from hloom.passes.blocking.product_blocking import ProductBlocking
from hloom.passes.canonicalize.cholesky_calls import CholeskyCalls
from hloom.passes.canonicalize.map_inline import MapInliner
from hloom.passes.canonicalize.markers import MarkerRemover
from hloom.passes.canonicalize.pivot_loops import PivotLoops
from hloom.passes.canonicalize.single_device import SingleDeviceCollectives
from hloom.passes.canonicalize.top_k_calls import TopKCalls
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.control_flow.loop_unroller import WhileLoopUnroller
from hloom.passes.control_flow.product_sums import ProductSums
from hloom.passes.control_flow.while_loops import WhileLoopInvariantCodeMotion
from hloom.passes.fusion.dot_operands import DotOperands
from hloom.passes.fusion.fusion import FusionPass
from hloom.passes.fusion.joined_slices import JoinedSlices
from hloom.passes.fusion.product_operands import ProductOperands
from hloom.passes.fusion.product_slices import ProductSlices
from hloom.passes.fusion.scatter_updates import ScatterUpdates
from hloom.passes.legalize.asynchronous import AsyncToSync
from hloom.passes.legalize.batch_norm import BatchNormExpander
from hloom.passes.legalize.bits import BitsExpander
from hloom.passes.legalize.collective_dimensions import CollectiveDimensions
from hloom.passes.legalize.declared import DeclaredExpander
from hloom.passes.legalize.dynamic.padder import DynamicPadder
from hloom.passes.legalize.fft_lengths import FftLengths
from hloom.passes.legalize.linear_algebra import LinearAlgebraToLapack
from hloom.passes.legalize.product_types import ProductTypes
from hloom.passes.legalize.scan import ScanExpander
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
from hloom.system.machine import wants_batch_invariance
from hloom.types import PrimitiveType


class Topology(enum.Enum):
    """Devices that run a program together, which determine how its collectives communicate."""

    SINGLE = "one device"
    THREADS = "devices of one process, each on threads of its own"
    RANKS = "devices of several processes: MPI ranks"

    @classmethod
    def of(cls, devices: int, distributed: object) -> Topology:
        """Returns the topology of a program that runs on `devices` of this process, or on all ranks' if
        `distributed`."""
        return cls.RANKS if distributed else cls.SINGLE if devices == 1 else cls.THREADS


def cpu_pipeline(topology: Topology = Topology.THREADS, batch_invariant: bool = False) -> Pipeline:
    """Returns the passes before code generation; with `batch_invariant` none adds up sums in another order because of
    the size of a batch.
    """
    batch_invariant = batch_invariant or wants_batch_invariance()
    is_free = not batch_invariant
    return Pipeline(
        "cpu",
        (
            AsyncToSync(),
            *_if(topology is Topology.SINGLE, SingleDeviceCollectives()),
            *_if(topology is Topology.RANKS, CollectiveDimensions()),
            MarkerRemover(),
            TopKCalls(),
            DeclaredExpander(),
            DynamicPadder(),
            CallInliner(fusions=True),
            BitsExpander(),
            ProductTypes(_can_multiply),
            *_if(is_free, ConvolutionOperandSwapper(), ConvolutionProducts()),
            BatchNormExpander(),
            LinearAlgebraToLapack(),
            FftLengths(batch_invariant),
            ScanExpander(),
            SortKeys(),
            MapInliner(),
            simplification_pipeline(),
            PartSums(),
            PivotLoops(),
            *_if(is_free, ProductSums()),
            WhileLoopUnroller(),
            WhileLoopInvariantCodeMotion(),
            DoubleBuffering(),
            ArgMax(),
            *_if(is_free, GatheredProducts(), DotStrengthReduction()),
            ProductBlocking(in_parts=is_free),
            simplification_pipeline(),
            CholeskyCalls(lambda order, count: can_factorise(order, count, batch_invariant)),
            SmallSystems(min_count=1 if batch_invariant else MIN_COUNT),
            WinogradConvolution(per_image=batch_invariant),
            *_if(is_free, ConvolutionPatches()),
            DotOperands(),
            *_if(is_free, SplitContractions()),
            JoinedSlices(),
            *_if(is_free, ProductOperands(_can_lower, _can_multiply_computed)),
            ProductSlices(_can_multiply_slices),
            ScatterUpdates(_can_lower, _can_scatter_computed),
            ScalarComputationOutliner(processor().vector_bytes),
            FusionPass(_can_lower),
            MemoryScheduler(),
            UpdateScheduler(),
        ),
    )


def _if(condition: bool, *passes: Pass) -> tuple[Pass, ...]:
    return passes if condition else ()


def _can_lower(instruction: Instruction) -> bool:
    """Whether a loop nest can compute an instruction."""
    return can_lower(instruction, can_apply)


# Kernels are imported by the first module with their operations.


def _can_multiply(lhs: PrimitiveType, rhs: PrimitiveType, out: PrimitiveType) -> bool:
    """Whether there is a product of some element types."""
    from hloom.backends.cpu.kernels.products.sums import can_multiply

    return can_multiply(lhs, rhs, out)


def _can_multiply_computed(dot: Instruction, operand: Instruction, sources: Sequence[Instruction]) -> bool:
    """Whether a product can compute an operand from its sources."""
    from hloom.backends.cpu.kernels.products.fused_dot import can_compute

    return can_compute(dot, operand, sources)


def _can_multiply_slices(dot: Instruction) -> bool:
    """Whether a product can read slices of its operands."""
    from hloom.backends.cpu.kernels.products.sliced_dot import can_multiply

    return can_multiply(dot)


def _can_scatter_computed(scatter: Instruction, sources: Sequence[Instruction]) -> bool:
    """Whether a scatter can compute its updates from their sources."""
    from hloom.backends.cpu.kernels.scatter.fused_scatter import can_compute

    return can_compute(scatter, sources)


def targeted_passes() -> dict[str, Pass]:
    """Returns the passes of the pipelines that depend on the processor or the kernels, by name."""
    steps = [step for topology in Topology for step in cpu_pipeline(topology).leaves()]
    return {step.name: step for step in steps if step.name not in PASSES}
