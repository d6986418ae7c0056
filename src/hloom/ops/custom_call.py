"""custom-call: a call of a function registered by name (spec 24)."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.literal import Literal
from hloom.ops.attributes import (
    ConvolutionDimensionNumbers,
    CustomCallApiVersion,
    CustomCallSchedule,
    OutputOperandAlias,
    PaddingType,
    Window,
)
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import ALIASING, BOOL, COMPUTATIONS, DIM_LABELS, INT, LITERAL, SHAPES, STRING, WINDOW, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.shape import Shape
from hloom.values import Value

PAD_TO_STATIC = "PadToStatic"
SLICE_TO_DYNAMIC = "SliceToDynamic"
"""XLA's targets that convert a dynamic array to a static one and the sizes of its dimensions, and back."""

REFUSE_SIZES = "RefuseSizes"
"""The target of a call that raises RunError for an invalid size, with the message in its backend config."""

CONTROL_DEPENDENCY = "control_dep"
"""The target of a call that orders its first operand before the computation of the second."""

TOP_K_TARGETS = frozenset({"TopK", "mhlo.topk"})

MARKERS = (
    "Sharding",
    "xla.sdy.FuncResultSharding",
    "annotate_device_placement",
    "LayoutConstraint",
    "MoveToHost",
    "MoveToDevice",
    "ShardBarrierFrom",
    "ShardBarrierTo",
)
"""Targets that annotate their operand for a compiler, and return it."""

SHARD_MARKERS = ("SPMDFullToShardShape", "SPMDShardToFullShape")
"""Markers whose result is another part of an array than their operand, once a program is partitioned."""


def slice_size_rule(dimension: int, bound: int, is_dynamic: bool) -> str:
    """Returns the error message for an invalid size of SliceToDynamic."""
    valid = f"from 0 to {bound}" if is_dynamic else str(bound)
    return f"custom-call[CUSTOMCALL-7]: {SLICE_TO_DYNAMIC!r} has sizes of its operand, dimension {dimension} {valid}"


class CustomCall(Operation, opcode="custom-call"):
    """Calls the function registered as `target_name`; the result has the declared shape (CUSTOMCALL-1).

    Functions are registered with `hloom.register_custom_call`: Python callables, or C functions
    `void f(void* out, void** in)` (CUSTOMCALL-2). Without `custom_call_has_side_effect` a call may be duplicated or
    removed (CUSTOMCALL-4).
    """

    see_also = ("call",)
    mixes_precision = False
    operands = {"*args": "arguments of the function"}
    window: Window | None = attribute(WINDOW, default=None, doc="window, for targets that convolve")
    dimension_numbers: ConvolutionDimensionNumbers | None = attribute(
        DIM_LABELS,
        default=None,
        text="dim_labels",
        proto="convolution_dimension_numbers",
        doc="meaning of dimensions, for targets that convolve",
    )
    feature_group_count: int = attribute(INT, default=1, doc="groups of features, for targets that convolve")
    batch_group_count: int = attribute(INT, default=1, doc="groups of the batch, for targets that convolve")
    target_name: str = attribute(
        STRING, text="custom_call_target", proto="custom_call_target", doc="name under which the function is registered"
    )
    operand_layout_constraints: tuple[Shape, ...] | None = attribute(
        SHAPES, default=None, proto="operand_shapes_with_layout", doc="layouts in which the function takes its operands"
    )
    has_effect: bool = attribute(
        BOOL,
        default=False,
        text="custom_call_has_side_effect",
        proto="custom_call_has_side_effect",
        doc="whether the call must be neither removed nor duplicated",
    )
    literal: Literal | None = attribute(LITERAL, default=None, doc="constant that belongs to the call")
    called_computations: tuple[Computation, ...] = attribute(
        COMPUTATIONS, default=(), proto="called_computation_ids", doc="computations that the function may call"
    )
    output_to_operand_aliasing: tuple[OutputOperandAlias, ...] = attribute(
        ALIASING, default=(), proto="output_operand_aliasing", doc="results that share the memory of operands"
    )
    padding_type: PaddingType = attribute(
        EnumKind(PaddingType), default=PaddingType.PADDING_INVALID, doc="kind of padding, for targets that convolve"
    )
    schedule: CustomCallSchedule = attribute(
        EnumKind(CustomCallSchedule),
        default=CustomCallSchedule.SCHEDULE_NONE,
        proto="custom_call_schedule",
        doc="when compilers that order instructions start the call",
    )
    api_version: CustomCallApiVersion = attribute(
        EnumKind(CustomCallApiVersion),
        default=CustomCallApiVersion.API_VERSION_ORIGINAL,
        proto="custom_call_api_version",
        doc="signature of the function in C",
    )

    @property
    def has_side_effect(self) -> bool:  # type: ignore[override]
        # Calls that only constrain the order of others may be removed.
        return self.has_effect and self.target_name != CONTROL_DEPENDENCY

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        """Replaces an unspecified version by the first one, as HLO text does."""
        unsaid = self.api_version is CustomCallApiVersion.API_VERSION_UNSPECIFIED
        return self.replace(api_version=CustomCallApiVersion.API_VERSION_ORIGINAL) if unsaid else self

    def check(self, result: Shape, args: tuple[Shape, ...]) -> None:
        if not self.target_name:
            self.reject("CUSTOMCALL-1", "custom_call_target must not be empty")
        layouts = self.operand_layout_constraints
        if layouts is not None and (
            len(layouts) != len(args) or not all(a.compatible(b) for a, b in zip(layouts, args, strict=True))
        ):
            wanted, got = ", ".join(map(str, args)), ", ".join(map(str, layouts))
            self.reject("CUSTOMCALL-2", f"operand_layout_constraints has the operands' shapes ({wanted}), got ({got})")

    def evaluate(self, ctx: Context, args: tuple[Value, ...]) -> Value:
        return ctx.custom_call(self.target_name, args)

    def on_blocks(self, whole: Sequence[Shape], blocks: Sequence[Shape], result: Shape) -> CustomCall:
        if self.operand_layout_constraints is None:
            return self
        pairs = zip(blocks, self.operand_layout_constraints, strict=True)
        layouts = tuple(new.with_layout(old.layout) if old.is_array else old for new, old in pairs)
        return self.replace(operand_layout_constraints=layouts)
