"""Checks of modules that are to run: the order of infeeds, sends and recvs, and groups of devices.

Modules that violate these rules can be loaded, printed and converted, as in XLA.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hloom.errors import RuleError
from hloom.ir import Computation, Instruction, Module, callees_first, dependencies, reachable
from hloom.ops.collectives import CollectivePermute
from hloom.ops.communication import Infeed, Recv, RecvDone, Send, Transfer, transfer_pairs
from hloom.ops.operation import Operation
from hloom.ops.replica_groups import Collective


def check_runnable(module: Module, replicas: int, partitions: int) -> None:
    """Checks that a module can run on some replicas and partitions. Raises RuleError naming the instruction that
    cannot.
    """
    operations = {type(instruction.op) for instruction in module.instructions()}
    if any(issubclass(operation, Infeed) for operation in operations):
        check_infeed_order(callees_first(module.entry))
    if any(issubclass(operation, Transfer) for operation in operations):
        check_channels(module)
    check_replicas(module, replicas, partitions)


def check_infeed_order(computations: Iterable[Computation]) -> None:
    """Checks that the infeeds of a computation are totally ordered, by data or by tokens (INFEED-2); callees come
    first.
    """
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
    """Whether an instruction is an infeed, or calls a computation in `readers`, which hold one."""
    op = instruction.op
    return isinstance(op, Infeed) or bool(op.calling_fields and any(id(c) in readers for c in op.computations))


def _depends(after: Instruction, before: Instruction) -> bool:
    """Whether `after` depends on `before`, by operands or control edges."""
    return before in reachable([after], dependencies)


def check_channels(module: Module) -> None:
    """Checks that sends and recvs pair up by channel (RECV-3, RECVDONE-2, SEND-6) without a cycle of waits (SEND-4)."""
    channels: dict[int, dict[type[Transfer], Instruction]] = {}
    others: dict[int, Instruction] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            op = instruction.op
            if isinstance(op, (Send, Recv)):
                if op.channel_id is None or op.is_host_transfer:
                    continue
                same = channels.setdefault(op.channel_id, {})
                if type(op) in same:
                    _reject(instruction, "SEND-6", f"channel {op.channel_id} has more than one {op.opcode}")
                same[type(op)] = instruction
            elif not isinstance(op, Transfer) and (channel := getattr(op, "channel_id", None)) is not None:
                others[channel] = instruction
        _check_cycles(computation)
    for channel, ends in channels.items():
        if channel in others:
            _reject(others[channel], "COLL-5", f"channel {channel} is also used by a {next(iter(ends)).opcode}")
        if len(ends) == 2:
            sent, received = ends[Send].operands[0].shape, ends[Recv].shape.elements[0]
            if not sent.compatible(received):
                _reject(ends[Recv], "SEND-6", f"channel {channel} sends {sent} and receives {received}")


def _check_cycles(computation: Computation) -> None:
    """Raises RuleError for a recv-done that waits for a send that in turn waits for it, on any devices (SEND-4)."""
    sends = [(i, i.op.channel_id) for i in computation.instructions if isinstance(i.op, Send)]
    dones = [(i, i.op.channel_id) for i in computation.instructions if isinstance(i.op, RecvDone)]
    if not sends or not dones:
        return
    # Node (channel, device) is the send of that device; its successors are the sends that wait for its arrival.
    waits: dict[tuple[Any, int], list[tuple[Any, int]]] = {}
    for done, channel in dones:
        pairs = transfer_pairs(done) or transfer_pairs(done.operands[0]) or [(0, 0)]
        for send, other in sends:
            if _depends(send, done):
                for source, target in pairs:
                    waits.setdefault((channel, source), []).append((other, target))
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


def devices_needed(module: Module) -> tuple[int, int]:
    """Returns the minimum numbers of replicas and partitions that the groups, pairs and shapes of a module need."""
    replicas, partitions = module.replica_count, module.num_partitions
    for instruction in module.instructions():
        op = instruction.op
        if isinstance(op, CollectivePermute):
            ids = [i for pair in op.source_target_pairs for i in pair]
            across = op.channel_id is not None
        elif isinstance(op, Collective):
            ids = [i for group in op.replica_groups.groups for i in group]
            members = None if ids else op.shard_count(instruction.shape, instruction.operand_shapes)
            ids = ids or list(range(members or 0))
            across = op.channel_id is not None and op.global_ids is None
        else:
            continue
        count = max(ids, default=0) + 1
        if across or (partitions > 1 and getattr(op, "global_ids", False)):
            partitions = max(partitions, count if across else -(-count // replicas))
        else:
            replicas = max(replicas, count)
    return replicas, partitions


def check_replicas(module: Module, replicas: int, partitions: int) -> None:
    """Checks replica groups and source-target pairs against the number of devices (COLL-3). Raises RuleError."""
    for instruction in module.instructions():
        if type(instruction.op).check_run is Operation.check_run:
            continue
        try:
            instruction.op.check_run(replicas, partitions, instruction.shape, instruction.operand_shapes)
        except RuleError as error:
            wanted = devices_needed(module)
            if wanted != (replicas, partitions):
                error.at(
                    f"a run on {replicas} replicas and {partitions} partitions: the module needs {wanted[0]} "
                    f"(replicas=..) and {wanted[1]} (num_partitions=.. in its header)"
                )
            raise error.at(repr(instruction)) from None


def _reject(instruction: Instruction, clause: str, message: str) -> None:
    raise RuleError(instruction.opcode, clause, message).at(repr(instruction))
