"""The passes of the CPU backend before code generation, in order."""

from __future__ import annotations

import enum

from hloom.backends.cpu.codegen.outline import ScalarComputationOutliner
from hloom.backends.cpu.elements.ops import can_apply
from hloom.backends.cpu.kernels.products.dot import can_multiply
from hloom.backends.cpu.llvm.processor import processor
from hloom.loops.lower import can_lower
from hloom.passes import PASSES, Pass, Pipeline, simplification_pipeline
from hloom.passes.blocking.product_blocking import ProductBlocking
from hloom.passes.control_flow.call_inliner import CallInliner
from hloom.passes.control_flow.loop_unroller import WhileLoopUnroller
from hloom.passes.control_flow.while_loops import WhileLoopInvariantCodeMotion
from hloom.passes.expand.arg_max import ArgMax
from hloom.passes.expand.asynchronous import AsyncToSync
from hloom.passes.expand.batch_norm import BatchNormExpander
from hloom.passes.expand.bits import BitsExpander
from hloom.passes.expand.collective_dimensions import CollectiveDimensions
from hloom.passes.expand.convolution_operands import ConvolutionOperandSwapper
from hloom.passes.expand.declared import DeclaredExpander
from hloom.passes.expand.dot_strength_reduction import DotStrengthReduction
from hloom.passes.expand.dynamic.padder import DynamicPadder
from hloom.passes.expand.fft_lengths import FftLengths
from hloom.passes.expand.linear_algebra import LinearAlgebraToLapack
from hloom.passes.expand.map_inline import MapInliner
from hloom.passes.expand.markers import MarkerRemover
from hloom.passes.expand.product_types import ProductTypes
from hloom.passes.expand.scan import ScanExpander
from hloom.passes.expand.single_device import SingleDeviceCollectives
from hloom.passes.expand.sort_keys import SortKeys
from hloom.passes.expand.top_k import TopKCalls
from hloom.passes.expand.winograd.convolution import WinogradConvolution
from hloom.passes.fusion.dot_operands import DotOperands
from hloom.passes.fusion.fusion import FusionPass
from hloom.passes.memory_scheduler import MemoryScheduler
from hloom.passes.update_scheduler import UpdateScheduler
from hloom.runtime.targets import markers


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


def cpu_pipeline(topology: Topology = Topology.THREADS) -> Pipeline:
    """Returns the passes before code generation."""
    return Pipeline(
        "cpu",
        (
            AsyncToSync(),
            *([SingleDeviceCollectives()] if topology is Topology.SINGLE else []),
            *([CollectiveDimensions()] if topology is Topology.RANKS else []),
            MarkerRemover(markers()),
            TopKCalls(),
            DeclaredExpander(),
            DynamicPadder(),
            CallInliner(fusions=True),
            BitsExpander(),
            ProductTypes(can_multiply),
            ConvolutionOperandSwapper(),
            BatchNormExpander(),
            LinearAlgebraToLapack(),
            FftLengths(),
            ScanExpander(),
            SortKeys(),
            MapInliner(),
            simplification_pipeline(),
            WhileLoopUnroller(),
            WhileLoopInvariantCodeMotion(),
            ArgMax(),
            DotStrengthReduction(),
            ProductBlocking(),
            simplification_pipeline(),
            WinogradConvolution(),
            DotOperands(),
            ScalarComputationOutliner(processor().vector_bytes),
            FusionPass(can_fuse=lambda instruction: can_lower(instruction, can_apply)),
            MemoryScheduler(),
            UpdateScheduler(),
        ),
    )


def targeted_passes() -> dict[str, Pass]:
    """Returns the passes of the pipelines that depend on the processor or the kernels, by name."""
    steps = [step for topology in Topology for step in cpu_pipeline(topology).leaves()]
    return {step.name: step for step in steps if step.name not in PASSES}
