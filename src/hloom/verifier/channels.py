"""What the verifier checks over whole computations and modules: infeeds, sends and recvs, and groups of devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from hloom.errors import RuleError
from hloom.ir import Computation, Instruction, Module
from hloom.ops.communication import Transfer, transfer_pairs


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
        transfers = [i for i in computation.instructions if isinstance(i.op, Transfer)]
        for instruction in transfers:
            _check_done(instruction)
            op = cast(Transfer, instruction.op)
            if op.channel_id is None or op.is_host_transfer or instruction.opcode not in ("send", "recv"):
                continue
            same = channels.setdefault(op.channel_id, {})
            if instruction.opcode in same:
                _reject(instruction, "SEND-6", f"channel {op.channel_id} has more than one {instruction.opcode}")
            same[instruction.opcode] = instruction
        for instruction in computation.instructions:
            channel = getattr(instruction.op, "channel_id", None)
            if channel is not None and not isinstance(instruction.op, Transfer):
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
    ours, theirs = cast(Transfer, instruction.op).channel_id, cast(Transfer, start.op).channel_id
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
        channel = cast(Transfer, done.operands[0].op).channel_id
        pairs = transfer_pairs(done.operands[0]) or [(0, 0)]
        for send in sends:
            if _depends(send, done):
                for source, target in pairs:
                    node = (cast(Transfer, send.op).channel_id, target)
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
