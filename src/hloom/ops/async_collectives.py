"""Asynchronous collectives: starts and their dones (COLL-7)."""

from __future__ import annotations

from hloom.ops.collectives import AllGather, AllReduce, CollectivePermute
from hloom.ops.context import Context
from hloom.ops.operation import Operation
from hloom.ops.traits import Done, Start
from hloom.shape import Shape
from hloom.values import Array, Value, zeros


class AllGatherStart(Start, AllGather, opcode="all-gather-start"):
    """Starts an all-gather; the result is (operands, gathered), the context for all-gather-done (COLL-7).

    Instructions between the start and its done run while data are on their way, where a device can do both. A context
    has one done, and no other user.
    """

    see_also = ("all-gather-done", "async-start")

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        if not result.is_tuple or len(result.elements) < 2:
            self.reject("COLL-7", f"the result is (operands, gathered), got {result}")
        super().check(result.elements[1], operands)

    def _gathered(self, result: Shape) -> Shape:
        return result.elements[1]

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        gathered = self._gather(ctx, operands)
        return (operands, gathered) if len(operands) > 1 else (operands[0], gathered[0])


class _ResultDone(Done, Operation):
    """Base class of dones whose context is (operands, results, ..)."""

    operands = {"context": "result of the start"}

    def infer(self, context: Shape) -> Shape:
        if not context.is_tuple or len(context.elements) < 2:
            self.reject("COLL-7", f"takes the context of {self.start.opcode}, got {context}")
        return context.elements[1]

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return context[1]


class AllGatherDone(_ResultDone, opcode="all-gather-done", start=AllGatherStart):
    """Waits for all-gather-start; the result is the gathered arrays (COLL-7)."""


class AllReduceStart(Start, AllReduce, opcode="all-reduce-start"):
    """Starts an all-reduce, which all-reduce-done completes (COLL-7).

    The context has the shape of the result. Instructions between the start and its done run while data are on their
    way, where a device can do both.
    """

    see_also = ("all-reduce-done",)


class AllReduceDone(Done, Operation, opcode="all-reduce-done", start=AllReduceStart):
    """Waits for all-reduce-start; the result is the reduced arrays (COLL-7)."""

    operands = {"context": "result of the start"}

    def infer(self, context: Shape) -> Shape:
        return context

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return context


class CollectivePermuteStart(Start, CollectivePermute, opcode="collective-permute-start"):
    """Starts a collective-permute; the result is (operand, received, contexts..) (COLL-7).

    Instructions between the start and its done run while data are on their way, where a device can do both. Pipelines
    send the activations of one stage to the next while they compute on those of another batch.
    """

    see_also = ("collective-permute-done",)

    def check(self, result: Shape, operands: tuple[Shape, ...]) -> None:
        received = self.infer(operands)
        if not result.is_tuple or len(result.elements) < 2 or not result.elements[1].compatible(received):
            self.reject("COLL-7", f"the result is (operand, {received}, contexts..), got {result}")

    def evaluate(self, ctx: Context, operands: tuple[Array, ...]) -> Value:
        received = self._permute(ctx, operands)
        contexts = tuple(map(zeros, ctx.shape.elements[2:]))
        if len(operands) > 1:
            return (operands, received, *contexts)
        return (operands[0], received[0], *contexts)


class CollectivePermuteDone(_ResultDone, opcode="collective-permute-done", start=CollectivePermuteStart):
    """Waits for collective-permute-start; the result is what was received (COLL-7)."""
