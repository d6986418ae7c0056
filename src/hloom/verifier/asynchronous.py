"""Checks of asynchronous instructions: each start is matched by one done, perhaps with updates between them."""

from __future__ import annotations

from typing import NoReturn

from hloom.errors import RuleError
from hloom.ir import Instruction, Module
from hloom.ops.communication import Transfer
from hloom.ops.custom_call import CONTROL_DEPENDENCY

_PAIRS = {
    "all-reduce-start": "all-reduce-done",
    "all-gather-start": "all-gather-done",
    "copy-start": "copy-done",
    "collective-permute-start": "collective-permute-done",
    "send": "send-done",
    "recv": "recv-done",
}
_STARTS = {done: start for start, done in _PAIRS.items()}
# Contexts may pass through tuples and in and out of computations.
_TAKERS = {"tuple", "while", "call", "conditional", "opt-barrier", "domain"}
_CARRIERS = _TAKERS | {"get-tuple-element"}
_ASYNC = {"async-start", "async-update"}
_CLAUSES = {"send": "SEND-2", "recv": "RECV-3", "send-done": "RECVDONE-2", "recv-done": "RECVDONE-2"}


def check_asynchronous_pairs(module: Module) -> None:
    """Checks that each start has one user, its done, and that dones take the context of a start with their channel
    (RECV-3).
    """
    started = {i.op.calls for i in module.instructions() if i.opcode == "async-start"}  # type: ignore[attr-defined]
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode in _PAIRS and not (computation in started and instruction is computation.root):
                _check_start(instruction)
            elif instruction.opcode in _STARTS:
                _check_done(instruction)
            elif instruction.opcode == "async-done":
                _check_chain(instruction)
            _check_contexts(instruction)


def _check_start(start: Instruction) -> None:
    """Checks that the only user of a start is its done, or passes the context on."""
    done = _PAIRS[start.opcode]
    users = [user for user in start.users if getattr(user.op, "target_name", "") != CONTROL_DEPENDENCY]
    if len(users) != 1 or (users[0].opcode != done and users[0].opcode not in _TAKERS):
        names = ", ".join(f"%{user.name}" for user in users) or "none"
        _reject(start, f"its context is for one {done} only; its users: {names}")


def _check_done(done: Instruction) -> None:
    start, wanted = done.operands[0], _STARTS[done.opcode]
    if start.opcode != wanted and start.opcode not in _CARRIERS and start.opcode != "parameter":
        _reject(done, f"takes the context of a {wanted}, got that of {start.opcode}")
    if isinstance(start.op, Transfer) and isinstance(done.op, Transfer):
        ours, theirs = done.op.channel_id, start.op.channel_id
        if ours != theirs and ours is not None:
            _reject(done, f"its channel is {ours}, that of its {wanted} is {theirs}")
        if done.op.is_host_transfer != start.op.is_host_transfer and ours is not None:
            _reject(done, f"is_host_transfer differs from that of its {wanted}")


def _check_contexts(instruction: Instruction) -> None:
    """Checks that contexts of async-start and async-update are used only by updates, dones and instructions that pass
    them.
    """
    for position, operand in enumerate(instruction.operands):
        if operand.opcode in _ASYNC:
            takes = instruction.opcode in ("async-update", "async-done")
            if (takes and position) or (not takes and instruction.opcode not in _CARRIERS):
                _reject(instruction, f"the context %{operand.name} is for one async-done only")


def _check_chain(done: Instruction) -> None:
    """Checks that an async-done leads back to one async-start, through updates."""
    start = done.operands[0]
    while start.opcode == "async-update":
        start = start.operands[0]
    if start.opcode in _CARRIERS or start.opcode == "parameter":
        return
    if start.opcode != "async-start":
        _reject(done, f"takes the context of async-start, got that of {start.opcode}")
    if sum(1 for user in start.users if user.opcode in ("async-done", "async-update")) > 1:
        _reject(done, f"%{start.name} has more than one async-done")


def _reject(instruction: Instruction, message: str) -> NoReturn:
    raise RuleError(instruction.opcode, _CLAUSES.get(instruction.opcode, "GEN-2"), message).at(repr(instruction))
