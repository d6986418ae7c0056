"""Operations that talk to a host or another device: infeed, outfeed, send, recv, copies (spec 88, 93, 94, 108, 109)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from hloom.errors import RuleError
from hloom.ops.attributes import BOOL, INT, SHAPE, STRING
from hloom.ops.operation import TOKEN_VALUE, Context, Operation, Value, attribute, zeros
from hloom.shape import TOKEN, Shape, scalar
from hloom.types import PrimitiveType

if TYPE_CHECKING:
    from hloom.ir import Computation, Instruction, Module

U32 = scalar(PrimitiveType.U32)
PAIRS_ATTRIBUTE = "_xla_send_recv_source_target_pairs"


class Infeed(Operation, opcode="infeed"):
    """Reads one item from the infeed queue of the device: (data, token) (INFEED-1).

    The item must have the shape and layout declared. An empty tuple reads nothing (INFEED-3).
    """

    has_side_effect = True
    operands = ("token",)
    infeed_config: str = attribute(STRING, default="")

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
    """Puts its operand into the outfeed queue of the device (INFEED-4)."""

    has_side_effect = True
    operands = ("operand", "token")
    outfeed_shape: Shape | None = attribute(SHAPE, default=None)
    outfeed_config: str = attribute(STRING, default="")

    def infer(self, operand: Shape, token: Shape) -> Shape:
        if not token.is_token:
            self.reject("INFEED-4", f"the second operand is a token, got {token}")
        if self.outfeed_shape is not None and not self.outfeed_shape.compatible(operand):
            self.reject("INFEED-4", f"outfeed_shape must be that of the operand {operand}, got {self.outfeed_shape}")
        return TOKEN

    def evaluate(self, ctx: Context, operand: Value, token: Value) -> Value:
        ctx.device.put_outfeed(operand)
        return TOKEN_VALUE


class _Transfer(Operation):
    """What the four channel instructions have in common."""

    has_side_effect = True
    channel_id: int | None = attribute(INT, default=None, doc="pairs a send with a recv")
    is_host_transfer: bool = attribute(BOOL, default=False)


class Send(_Transfer, opcode="send"):
    """Starts sending its operand to the recv of its channel; gives the context (operand, request id, token) (SEND-2).

    The frontend attribute `_xla_send_recv_source_target_pairs={{0,1},..}` says who sends to whom; without it every
    device sends to itself. A host transfer goes to the host (`Device.receive_from_program`).
    """

    operands = ("operand", "token")

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
            for source, target in _pairs(ctx.instruction) or ((me, me),):
                if source == me:
                    ctx.send(channel, operand, target)
        return (operand, zeros(U32), TOKEN_VALUE)


class SendDone(_Transfer, opcode="send-done"):
    """Waits until the send is complete (SENDDONE-1)."""

    operands = ("context",)

    def infer(self, context: Shape) -> Shape:
        _check_context(self, "RECVDONE-2", context)
        return TOKEN

    def evaluate(self, ctx: Context, context: Value) -> Value:
        return TOKEN_VALUE


class Recv(_Transfer, opcode="recv"):
    """Prepares to receive from the send of its channel; gives the context (data, request id, token) (RECV-2)."""

    operands = ("token",)

    def check(self, result: Shape, token: Shape) -> None:
        if not token.is_token:
            self.reject("RECV-2", f"takes a token, got {token}")
        _check_context(self, "RECV-2", result)

    def evaluate(self, ctx: Context, token: Value) -> Value:
        return (zeros(ctx.shape.elements[0]), zeros(U32), TOKEN_VALUE)


class RecvDone(_Transfer, opcode="recv-done"):
    """Waits for the data of its recv and gives (data, token) (RECVDONE-1); zeros where nobody sends to this device."""

    operands = ("context",)

    def infer(self, context: Shape) -> Shape:
        _check_context(self, "RECVDONE-2", context)
        return Shape.tuple_of([context.elements[0], TOKEN])

    def evaluate(self, ctx: Context, context: Value) -> Value:
        channel = self.channel_id or 0
        if self.is_host_transfer:
            return (ctx.device.take_from_host(channel, ctx.shape.elements[0]), TOKEN_VALUE)
        me = _device_id(ctx)
        pairs = _pairs(ctx.instruction.operands[0])
        sources = [source for source, target in pairs if target == me] if pairs else [me]
        return (ctx.receive(channel, sources[0]) if sources else context[0], TOKEN_VALUE)


class CopyStart(Operation, opcode="copy-start"):
    """Starts a copy: (copy, operand, context) (an addition)."""

    operands = ("operand",)
    cross_program_prefetch_index: int | None = attribute(INT, default=None)

    def infer(self, operand: Shape) -> Shape:
        return Shape.tuple_of([operand, operand, U32])

    def evaluate(self, ctx: Context, operand: Value) -> Value:
        return (operand, operand, zeros(U32))


class CopyDone(Operation, opcode="copy-done"):
    """Waits for copy-start and gives the copy (an addition)."""

    operands = ("context",)

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


def _pairs(instruction: Instruction) -> list[tuple[int, int]]:
    """The (source, target) pairs of a send or recv; none where its frontend attributes have none."""
    text = instruction.frontend_attributes.get(PAIRS_ATTRIBUTE, "")
    return [(int(source), int(target)) for source, target in re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", text)]


# What the verifier checks over whole computations and modules


def check_infeed_order(computations: Iterable[Computation]) -> None:
    """Infeeds of one computation must be totally ordered, by data or by tokens (INFEED-2); callees come first."""
    readers: set[int] = set()
    for computation in computations:
        reading = [i for i in computation.instructions if _reads_infeed(i, readers)]
        if reading:
            readers.add(id(computation))
            _check_order(reading)


def _check_order(reading: list[Instruction]) -> None:
    for before, after in zip(reading, reading[1:], strict=False):
        if not _depends(after, before):
            raise RuleError(
                "infeed", "INFEED-2", f"%{before.name} and %{after.name} must be ordered by data or by tokens"
            ).at(repr(after))


def _reads_infeed(instruction: Instruction, readers: set[int]) -> bool:
    """True for an infeed, and for calls of the computations that hold one."""
    return instruction.opcode == "infeed" or any(id(c) in readers for c in instruction.op.computations)


def _depends(after: Instruction, before: Instruction) -> bool:
    """True where `after` must come after `before`."""
    stack, seen = [after], {after}
    while stack:
        instruction = stack.pop()
        if instruction is before:
            return True
        for previous in (*instruction.operands, *instruction.control_predecessors):
            if previous not in seen:
                seen.add(previous)
                stack.append(previous)
    return False


def check_channels(module: Module) -> None:
    """Sends and recvs pair up by channel (RECV-3, RECVDONE-2, SEND-6), and no cycle of waits arises (SEND-4)."""
    channels: dict[int, dict[str, Instruction]] = {}
    others: dict[int, Instruction] = {}
    for computation in module.computations:
        transfers = [i for i in computation.instructions if isinstance(i.op, _Transfer)]
        for instruction in transfers:
            _check_done(instruction)
            op = cast(_Transfer, instruction.op)
            if op.channel_id is None or op.is_host_transfer or instruction.opcode not in ("send", "recv"):
                continue
            same = channels.setdefault(op.channel_id, {})
            if instruction.opcode in same:
                _reject(instruction, "SEND-6", f"channel {op.channel_id} has more than one {instruction.opcode}")
            same[instruction.opcode] = instruction
        for instruction in computation.instructions:
            channel = getattr(instruction.op, "channel_id", None)
            if channel is not None and not isinstance(instruction.op, _Transfer):
                others[channel] = instruction
        _check_cycles(computation, [i for i in transfers if i.opcode in ("send", "recv-done")])
    for channel, ends in channels.items():
        if channel in others:
            _reject(others[channel], "COLL-5", f"channel {channel} is also used by a {next(iter(ends))}")
        if len(ends) == 2:
            sent, received = ends["send"].operands[0].shape, ends["recv"].shape.elements[0]
            if not sent.compatible(received):
                _reject(ends["recv"], "SEND-6", f"channel {channel} sends {sent} and receives {received}")


def _check_done(instruction: Instruction) -> None:
    """A context goes to one done, of the same channel; a done takes a context of its kind."""
    if instruction.opcode in ("send", "recv"):
        clause = "RECV-3" if instruction.opcode == "recv" else "SEND-2"
        wrong = [user for user in instruction.users if user.opcode != f"{instruction.opcode}-done"]
        if wrong or len(instruction.users) > 1:
            users = ", ".join(f"%{user.name}" for user in instruction.users)
            _reject(instruction, clause, f"its context is for one {instruction.opcode}-done only; its users: {users}")
        return
    start = instruction.operands[0]
    kind = instruction.opcode.removesuffix("-done")
    if start.opcode != kind:
        _reject(instruction, "RECVDONE-2", f"takes the context of a {kind}, got that of {start.opcode}")
    ours, theirs = cast(_Transfer, instruction.op).channel_id, cast(_Transfer, start.op).channel_id
    if ours is not None and ours != theirs:
        _reject(instruction, "RECVDONE-2", f"its channel is {ours}, that of its {kind} is {theirs}")


def _check_cycles(computation: Computation, transfers: list[Instruction]) -> None:
    """Finds a recv-done that waits for a send that in turn waits for it, over all devices (SEND-4)."""
    sends = [i for i in transfers if i.opcode == "send"]
    dones = [i for i in transfers if i.opcode == "recv-done"]
    if not sends or not dones:
        return
    # Node (channel, device) is the send of that device; it leads to the sends that wait for its arrival.
    waits: dict[tuple[Any, int], list[tuple[Any, int]]] = {}
    for done in dones:
        channel = cast(_Transfer, done.operands[0].op).channel_id
        pairs = _pairs(done.operands[0]) or [(0, 0)]
        for send in sends:
            if _depends(send, done):
                for source, target in pairs:
                    node = (cast(_Transfer, send.op).channel_id, target)
                    waits.setdefault((channel, source), []).append(node)
    for start in waits:
        stack, seen = list(waits[start]), set()
        while stack:
            node = stack.pop()
            if node == start:
                channel, device = start
                raise RuleError(
                    "send", "SEND-4", f"the send of channel {channel} on device {device} waits for its own arrival"
                ).at(f"computation {computation.name}")
            if node not in seen:
                seen.add(node)
                stack.extend(waits.get(node, ()))


def check_replicas(module: Module, replicas: int, partitions: int) -> None:
    """Checks what depends on the number of devices: replica groups and source-target pairs (COLL-3)."""
    for instruction in module.instructions():
        try:
            instruction.op.check_groups(replicas, partitions, instruction.shape, instruction.operand_shapes)
        except RuleError as error:
            raise error.at(repr(instruction)) from None


def _reject(instruction: Instruction, clause: str, message: str) -> None:
    raise RuleError(instruction.opcode, clause, message).at(repr(instruction))
