"""Proposals for transfers: between replicas by a channel, and from and to the host by queues."""

from __future__ import annotations

from hloom.fuzz.grammar.body import Body
from hloom.fuzz.grammar.proposals import proposal
from hloom.ir import Instruction
from hloom.literal import Literal
from hloom.ops.communication import PAIRS_ATTRIBUTE, Infeed, Outfeed, Recv, RecvDone, Send, SendDone
from hloom.ops.rules import result_shape
from hloom.shape import TOKEN, Shape
from hloom.values import zeros


@proposal(Send)
def _send(body: Body, declaration: type[Send]) -> Instruction:
    """A send and its recv: each replica sends to another one, to itself, or not at all (SEND-3)."""
    draw, replicas, operand = body.draw, range(body.program.replicas), body.array("send")
    channel = body.program.new_channel()
    pairs = [*zip(draw.shuffled(replicas), draw.shuffled(replicas), strict=True)][: draw.between(0, len(replicas))]
    token = body.want(TOKEN)
    recv = body.add(Recv(channel_id=channel), token, shape=Recv.result_of(operand.shape))
    send = body.add(Send(channel_id=channel), operand, token)
    if len(replicas) > 1 or draw.chance(0.5):
        text = ",".join(f"{{{source},{target}}}" for source, target in pairs)
        recv.frontend_attributes[PAIRS_ATTRIBUTE] = send.frontend_attributes[PAIRS_ATTRIBUTE] = f"{{{text}}}"
    received = body.add(RecvDone(channel_id=channel), recv)
    body.add(SendDone(channel_id=channel), send)
    body.opened(received)
    return received


def _queue_token(body: Body, opcode: str) -> Instruction:
    """Returns the token after which the next item is read or written, since they are ordered (INFEED-2)."""
    if body.depth or body.program.alone:
        Infeed().reject("INFEED-2", f"{opcode} stands in the entry alone, where its items can be counted")
    return body.program.queue_token or body.want(TOKEN)


@proposal(Infeed)
def _infeed(body: Body, declaration: type[Infeed]) -> Instruction:
    """An item of the host: an array, or a tuple of arrays."""
    token, draw = _queue_token(body, "infeed"), body.draw
    item = [Shape.array(draw.element_type("infeed"), draw.sizes()) for _ in range(draw.between(1, 2))]
    data = result_shape(item)
    made = body.add(Infeed(), token, shape=Infeed.result_of(Literal.from_value(zeros(data)).shape))
    body.opened(made)
    body.program.queue_token = body.computation.instructions[-1]
    return made


@proposal(Outfeed)
def _outfeed(body: Body, declaration: type[Outfeed]) -> Instruction:
    token = _queue_token(body, "outfeed")
    body.program.queue_token = body.add(Outfeed(), body.array("outfeed"), token)
    return body.program.queue_token
