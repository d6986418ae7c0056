"""Control flow: call, while, conditional, fusion, async pairs (spec 11, 12, 18, 19, 116)."""

from __future__ import annotations

from hloom.ops.attributes import FusionKind, OutputOperandAlias
from hloom.ops.context import Computation, Context
from hloom.ops.kinds import ALIASING, BOOL, COMPUTATION, COMPUTATIONS, STRING, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_computation
from hloom.ops.traits import Asynchronous, CallLike, ControlFlow, NoWork
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import Array, Value, zeros

PRED = scalar(PrimitiveType.PRED)
S32 = scalar(PrimitiveType.S32)


class Call(ControlFlow, Operation, opcode="call"):
    """Calls a computation with the operands, of any shapes, and returns its result (CALL-1).

    With `is_composite` it is a composite: a named operation whose decomposition is the computation; name, attributes
    and version are frontend attributes with the prefix `composite.` (COMPOSITECALL-2).
    """

    operands = {"*args": "arguments of the computation"}
    computation: Computation = attribute(
        COMPUTATION, text="to_apply", proto="called_computation_ids", doc="computation to call"
    )
    is_composite: bool = attribute(BOOL, default=False, doc="whether the call stands for a named operation")

    def infer(self, args: tuple[Shape, ...]) -> Shape:
        check_computation(self, "CALL-2", self.computation, args, None)
        return self.computation.result_shape

    def evaluate(self, ctx: Context, args: tuple[Value, ...]) -> Value:
        return ctx.call(self.computation, *args)


class While(ControlFlow, Operation, opcode="while"):
    """Applies `body` to `init`, then to its own result, while `condition` holds; the result is the last value
    (WHILE-1).

    Both computations take a value of the shape of `init`; `condition` returns PRED, `body` that shape.
    """

    see_also = ("call", "conditional", "scan")
    operands = {"init": "first value of the loop, of any shape"}
    condition: Computation = attribute(
        COMPUTATION, proto="called_computation_ids.1", doc="computation from a value to PRED: whether the loop goes on"
    )
    body: Computation = attribute(
        COMPUTATION, proto="called_computation_ids.0", doc="computation from a value to the next one"
    )

    def infer(self, init: Shape) -> Shape:
        check_computation(self, "WHILE-2", self.condition, [init], PRED, "condition")
        check_computation(self, "WHILE-2", self.body, [init], init, "body")
        return init

    def evaluate(self, ctx: Context, init: Value) -> Value:
        value = init
        while ctx.call(self.condition, value):
            value = ctx.call(self.body, value)
        return value


class Conditional(ControlFlow, Operation, opcode="conditional"):
    """Calls one of several computations, each with its own operand, and returns its result (CONDITIONAL-1, -3).

    A PRED index chooses the first branch for true, the second for false; an S32 index below 0 or past the end chooses
    the last branch (CONDITIONAL-4). All branches return the same shape.
    """

    operands = {
        "branch_index": "scalar PRED or S32 that chooses the branch",
        "*branch_operands": "argument of each branch",
    }
    branch_computations: tuple[Computation, ...] = attribute(
        COMPUTATIONS, proto="called_computation_ids", doc="branches, each with one parameter"
    )

    def infer(self, branch_index: Shape, branch_operands: tuple[Shape, ...]) -> Shape:
        branches = self.branch_computations
        if not branches or len(branches) != len(branch_operands):
            self.reject(
                "CONDITIONAL-5",
                f"needs one operand for each of N >= 1 branches, got {len(branches)} and {len(branch_operands)}",
            )
        if branch_index.compatible(PRED):
            if len(branches) != 2:
                self.reject("CONDITIONAL-2", f"a pred chooses between two computations, got {len(branches)}")
        elif not branch_index.compatible(S32):
            self.reject("CONDITIONAL-5", f"the branch is chosen by pred[] or s32[], got {branch_index}")
        result = branches[0].result_shape
        for branch, operand in zip(branches, branch_operands, strict=True):
            check_computation(self, "CONDITIONAL-2", branch, [operand], result, "branch")
        return result

    def evaluate(self, ctx: Context, branch_index: Array, branch_operands: tuple[Value, ...]) -> Value:
        if branch_index.dtype == bool:
            chosen = 0 if branch_index else 1
        else:
            chosen = int(branch_index)
        if not 0 <= chosen < len(self.branch_computations):
            chosen = len(self.branch_computations) - 1
        return ctx.call(self.branch_computations[chosen], branch_operands[chosen])


class Fusion(CallLike, Operation, opcode="fusion"):
    """Calls a computation that a compiler compiles to one kernel (a later addition to XLA).

    The result is that of the computation: a fusion changes how fast a program runs, not what it computes. Values inside
    never reach memory, so that element-wise chains cost one pass over their operands. hloom chooses its own fusions
    (`passes/fusion/`); those of a module that XLA has compiled are kept.
    """

    see_also = ("call",)
    operands = {"*operands": "arguments of the computation"}
    kind: FusionKind = attribute(
        EnumKind(FusionKind), proto="fusion_kind", doc="kind of kernel, as the compiler that made the fusion named it"
    )
    output_to_operand_aliasing: tuple[OutputOperandAlias, ...] = attribute(
        ALIASING, default=(), proto="output_operand_aliasing", doc="results that share the memory of operands"
    )
    calls: Computation = attribute(
        COMPUTATION, proto="called_computation_ids", doc="the instructions that are one kernel"
    )

    def infer(self, operands: tuple[Shape, ...]) -> Shape:
        check_computation(self, "CALL-2", self.calls, operands, None, "calls")
        return self.calls.result_shape

    def evaluate(self, ctx: Context, operands: tuple[Value, ...]) -> Value:
        return ctx.call(self.calls, *operands)


def _bound(named: Shape, result: Shape) -> bool:
    """Whether a context's result matches; an empty tuple stands for a result that async-done declares."""
    return named.compatible(result) or (named.is_tuple and not named.elements)


class AsyncStart(Asynchronous, CallLike, Operation, opcode="async-start"):
    """Starts a computation asynchronously; the result is ((operands), result, context..) (a later addition to XLA).

    Any operation can be started like that: its computation is the instruction alone, and HLO text may write `add-start`
    for it. The result of the computation is available from async-done. An async-start, its updates and its done are a
    chain: each is used by the next one only. The interpreter computes the result here; contexts are zeros.
    """

    see_also = ("async-update", "async-done", "call")
    operands = {"*operands": "arguments of the computation"}
    async_execution_thread: str = attribute(STRING, default="main", doc="name of the thread on which it runs")
    calls: Computation = attribute(COMPUTATION, proto="called_computation_ids", doc="computation to start")
    output_to_operand_aliasing: tuple[OutputOperandAlias, ...] = attribute(
        ALIASING, default=(), proto="output_operand_aliasing", doc="results that share the memory of operands"
    )

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        check_computation(self, "CALL-2", self.calls, operands, None, "calls")
        if not result.is_tuple or len(result.elements) < 2:
            self.reject("GEN-2", f"the result is ((operands), result, contexts..), got {result}")
        if not result.elements[0].compatible(Shape.tuple_of(operands)):
            self.reject("GEN-2", f"element 0 must be the tuple of the operands, got {result.elements[0]}")
        if not _bound(result.elements[1], self.calls.result_shape):
            self.reject("GEN-2", f"element 1 must be {self.calls.result_shape}, got {result.elements[1]}")

    def evaluate(self, ctx: Context, operands: tuple[Value, ...]) -> Value:
        return (operands, ctx.call(self.calls, *operands), *map(zeros, ctx.shape.elements[2:]))


class AsyncUpdate(Asynchronous, NoWork, Operation, opcode="async-update"):
    """Marks a point between async-start and async-done; the result is the context (a later addition to XLA).

    A scheduler says with it that a part of the computation should be complete; it computes nothing.
    """

    see_also = ("async-done",)
    mixes_precision = False
    operands = {"context": "result of the start, or of another update"}
    calls: Computation | None = attribute(
        COMPUTATION, default=None, text="", proto="called_computation_ids", doc="the started computation"
    )

    def infer(self, context: Shape) -> Shape:
        if not context.is_tuple or len(context.elements) < 2:
            self.reject("GEN-2", f"takes the context of async-start, got {context}")
        return context

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return context


class AsyncDone(Asynchronous, NoWork, Operation, opcode="async-done"):
    """Waits for the computation that async-start started; the result is its result (a later addition to XLA).

    Every async-start has exactly one, perhaps behind updates.
    """

    mixes_precision = False
    operands = {"context": "result of the start, or of an update"}
    calls: Computation | None = attribute(
        COMPUTATION, default=None, text="", proto="called_computation_ids", doc="the started computation"
    )

    def infer(self, context: Shape) -> Shape:
        if not context.is_tuple or len(context.elements) < 2:
            self.reject("GEN-2", f"takes the context of async-start, got {context}")
        return context.elements[1]

    def check(self, result: Shape, context: Shape) -> None:
        if not _bound(self.infer(context), result):
            self.reject("GEN-2", f"the result is declared as {result}, but the context has {context.elements[1]}")

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return context[1]
