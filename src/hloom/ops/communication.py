"""Communication with the host or another device: infeed, outfeed, send, recv, copies (spec 88, 93, 94, 108, 109)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from hloom.ops.context import Context, Instruction
from hloom.ops.kinds import BOOL, INT, SHAPE, STRING
from hloom.ops.operation import Operation, attribute
from hloom.ops.traits import Done, NoWork, Start
from hloom.shape import TOKEN, Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import TOKEN_VALUE, Value, zeros

U32 = scalar(PrimitiveType.U32)
PAIRS_ATTRIBUTE = "_xla_send_recv_source_target_pairs"


class Receiving(Operation):
    """Base class of infeed and recv: a tuple of the data, whose shape is declared, and shapes that follow from it."""

    after_data: ClassVar[tuple[Shape, ...]]
    """The shapes after the data in the result."""

    @classmethod
    def result_of(cls, data: Shape) -> Shape:
        """Returns the shape of the result for that of the data."""
        return Shape.tuple_of([data, *cls.after_data])


class Infeed(Receiving, opcode="infeed"):
    """Reads an item from the infeed queue of the device; the result is (data, token) (INFEED-1).

    The item must have the declared shape and layout. An empty tuple reads nothing (INFEED-3).
    """

    see_also = ("outfeed", "send", "recv")
    mixes_precision = False
    has_side_effect = True
    operands = {"token": "what must happen before"}
    after_data = (TOKEN,)
    infeed_config: str = attribute(STRING, default="", doc="text for the runtime; no effect here")

    def check(self, result: Shape, token: Shape) -> None:
        if not token.is_token or not result.is_tuple or len(result.elements) != 2 or not result.elements[1].is_token:
            self.reject("INFEED-1", f"takes a token and gives (data, token), got {token} and {result}")
        data = result.elements[0]
        if any(element.is_tuple for element in data.elements):
            self.reject("INFEED-3", f"tuples in the infeed do not nest, got {data}")

    def evaluate(self, ctx: Context, token: Value) -> Value:
        data = ctx.shape.elements[0]
        if data.is_tuple and not data.elements:
            return ((), TOKEN_VALUE)
        return (ctx.device.take_infeed(data), TOKEN_VALUE)


class Outfeed(Operation, opcode="outfeed"):
    """Appends the operand to the outfeed queue of the device; the result is a token (INFEED-4)."""

    mixes_precision = False
    has_side_effect = True
    operands = {
        "operand": "value to append, an array or a tuple",
        "token": "what must happen before",
    }
    outfeed_shape: Shape | None = attribute(SHAPE, default=None, doc="shape of the data, the operand's if not given")
    outfeed_config: str = attribute(STRING, default="", doc="text for the runtime; no effect here")

    def canonical(self, operands: Sequence[Shape]) -> Operation:
        """Adds the shape of the operand if none is given."""
        return self.replace(outfeed_shape=operands[0]) if self.outfeed_shape is None and operands else self

    def infer(self, operand: Shape, token: Shape) -> Shape:
        if not token.is_token:
            self.reject("INFEED-4", f"the second operand is a token, got {token}")
        if self.outfeed_shape is not None and not self.outfeed_shape.compatible(operand):
            self.reject("INFEED-4", f"outfeed_shape must be that of the operand {operand}, got {self.outfeed_shape}")
        return TOKEN

    def evaluate(self, ctx: Context, operand: Value, token: Value) -> Value:
        ctx.device.put_outfeed(operand)
        return TOKEN_VALUE


class Transfer(Operation):
    """Base class of send, recv and their dones: a channel."""

    mixes_precision = False
    has_side_effect = True
    channel_id: int | None = attribute(INT, default=None, doc="pairs a send with a recv")
    is_host_transfer: bool = attribute(BOOL, default=False, doc="whether the other end is the host, not a device")


class Send(Start, Transfer, opcode="send"):
    """Starts to send the operand to the recv of the same channel; the result is (operand, request id, token) (SEND-2).

    The frontend attribute `_xla_send_recv_source_target_pairs={{0,1},..}` lists source and target devices; without it
    each device sends to itself. A host transfer goes to the host (`Device.receive_from_program`).
    """

    see_also = ("recv", "send-done", "collective-permute")
    pairing_clause = "SEND-2"
    operands = {
        "operand": "array to send",
        "token": "what must happen before",
    }

    def infer(self, operand: Shape, token: Shape) -> Shape:
        if not token.is_token:
            self.reject("SEND-2", f"the second operand is a token, got {token}")
        return Shape.tuple_of([operand, U32, TOKEN])

    def evaluate(self, ctx: Context, operand: Value, token: Value) -> Value:
        channel = self.channel_id or 0
        if self.is_host_transfer:
            ctx.device.put_to_host(channel, operand)
        else:
            me = _device_id(ctx)
            for source, target in transfer_pairs(ctx.instruction) or ((me, me),):
                if source == me:
                    ctx.send(channel, operand, target)
        return (operand, zeros(U32), TOKEN_VALUE)


class SendDone(Done, Transfer, opcode="send-done", start=Send):
    """Waits until a send is complete; the result is a token (SENDDONE-1)."""

    pairing_clause = "RECVDONE-2"
    operands = {"context": "result of the send"}

    def infer(self, context: Shape) -> Shape:
        _check_context(self, "RECVDONE-2", context)
        return TOKEN

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return TOKEN_VALUE


class Recv(Start, Transfer, Receiving, opcode="recv"):
    """Prepares to receive from the send of the same channel; the result is (data, request id, token) (RECV-2)."""

    see_also = ("recv-done",)
    pairing_clause = "RECV-3"
    operands = {"token": "what must happen before"}
    after_data = (U32, TOKEN)

    def check(self, result: Shape, token: Shape) -> None:
        if not token.is_token:
            self.reject("RECV-2", f"takes a token, got {token}")
        _check_context(self, "RECV-2", result)

    def evaluate(self, ctx: Context, token: Value) -> Value:
        return (zeros(ctx.shape.elements[0]), zeros(U32), TOKEN_VALUE)


class RecvDone(Done, Transfer, opcode="recv-done", start=Recv):
    """Waits for the data of a recv; the result is (data, token) (RECVDONE-1). Data are zeros if no device sends to this
    one.
    """

    pairing_clause = "RECVDONE-2"
    operands = {"context": "result of the recv"}

    def infer(self, context: Shape) -> Shape:
        _check_context(self, "RECVDONE-2", context)
        return Shape.tuple_of([context.elements[0], TOKEN])

    def evaluate(self, ctx: Context, context: Value) -> Value:
        channel = self.channel_id or 0
        if self.is_host_transfer:
            return (ctx.device.take_from_host(channel, ctx.shape.elements[0]), TOKEN_VALUE)
        me = _device_id(ctx)
        pairs = transfer_pairs(ctx.instruction) or transfer_pairs(ctx.instruction.operands[0])
        sources = [source for source, target in pairs if target == me] if pairs else [me]
        return (ctx.receive(channel, sources[0]) if sources else context[0], TOKEN_VALUE)


class CopyStart(Start, NoWork, Operation, opcode="copy-start"):
    """Starts an asynchronous copy; the result is (copy, operand, context) (a later addition to XLA).

    Compilers for accelerators move arrays between memories with it, while other instructions run: the layouts of copy
    and operand name the memories (`S(1)`). On CPUs there is one memory, and the copy is made at the start.
    """

    see_also = ("copy-done", "copy")
    mixes_precision = False
    operands = {"operand": "array to copy"}
    cross_program_prefetch_index: int | None = attribute(
        INT, default=None, doc="number of a copy that starts before its program does; no effect here"
    )

    def infer(self, operand: Shape) -> Shape:
        return Shape.tuple_of([operand, operand, U32])

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        return (operand, operand, zeros(U32))


class CopyDone(Done, NoWork, Operation, opcode="copy-done", start=CopyStart):
    """Waits for copy-start; the result is the copy (a later addition to XLA).

    The copy-start has no other user, and the copy is valid only after this instruction.
    """

    mixes_precision = False
    operands = {"context": "result of the start"}

    def infer(self, context: Shape) -> Shape:
        if not context.is_tuple or not context.elements:
            self.reject("GEN-2", f"takes the context of copy-start, got {context}")
        return context.elements[0]

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return context[0]


def _check_context(op: Operation, clause: str, context: Shape) -> None:
    if not context.is_tuple or len(context.elements) < 2 or not context.elements[1].compatible(U32):
        op.reject(clause, f"a context is a tuple (data, u32[], ..), got {context}")


def _device_id(ctx: Context) -> int:
    return ctx.replica_id * ctx.partition_count + ctx.partition_id


def transfer_pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """Returns the (source, target) pairs in the frontend attributes of a send, a recv or a done; [] if there are
    none.
    """
    text = instruction.frontend_attributes.get(PAIRS_ATTRIBUTE, "")
    return [(int(source), int(target)) for source, target in re.findall(r"\{\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\}", text)]
