"""Checks of asynchronous instructions: each start is matched by one done, perhaps with updates between them."""

from __future__ import annotations

from typing import NoReturn

from hloom.errors import RuleError
from hloom.ir import Instruction, Module
from hloom.ops.communication import Transfer
from hloom.ops.control_flow import AsyncDone, AsyncStart, AsyncUpdate, Call, Conditional, While
from hloom.ops.custom_call import CONTROL_DEPENDENCY
from hloom.ops.structure import Domain, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.ops.traits import Asynchronous, Done, Start

_TAKERS = (Tuple, While, Call, Conditional, OptimizationBarrier, Domain)
"""Operations that a context may be passed to: tuples, in and out of computations."""
_CARRIERS = (*_TAKERS, GetTupleElement)
_SOURCES = (*_CARRIERS, Parameter)


def check_asynchronous_pairs(module: Module) -> None:
    """Checks that each start has one user, its done, and that dones take the context of a start with their channel
    (RECV-3).
    """
    if not any(isinstance(instruction.op, Asynchronous) for instruction in module.instructions()):
        return
    started = {i.op.calls for i in module.instructions() if isinstance(i.op, AsyncStart)}
    for computation in module.computations:
        for instruction in computation.instructions:
            op = instruction.op
            if isinstance(op, Start) and not (computation in started and instruction is computation.root):
                _check_start(instruction, op.done)
            elif isinstance(op, Done):
                _check_done(instruction, op.start)
            elif isinstance(op, AsyncDone):
                _check_chain(instruction)
            _check_contexts(instruction)


def _check_start(start: Instruction, done: type[Done]) -> None:
    """Checks that the only user of a start is its done, or passes the context on."""
    users = [user for user in start.users if getattr(user.op, "target_name", "") != CONTROL_DEPENDENCY]
    if len(users) != 1 or not isinstance(users[0].op, (done, *_TAKERS)):
        names = ", ".join(f"%{user.name}" for user in users) or "none"
        _reject(start, f"its context is for one {done.opcode} only; its users: {names}")


def _check_done(done: Instruction, wanted: type[Start]) -> None:
    start = done.operands[0]
    if not isinstance(start.op, (wanted, *_SOURCES)):
        _reject(done, f"takes the context of a {wanted.opcode}, got that of {start.opcode}")
    if isinstance(start.op, Transfer) and isinstance(done.op, Transfer):
        ours, theirs = done.op.channel_id, start.op.channel_id
        if ours != theirs and ours is not None:
            _reject(done, f"its channel is {ours}, that of its {wanted.opcode} is {theirs}")
        if done.op.is_host_transfer != start.op.is_host_transfer and ours is not None:
            _reject(done, f"is_host_transfer differs from that of its {wanted.opcode}")


def _check_contexts(instruction: Instruction) -> None:
    """Checks that contexts of async-start and async-update are used only by updates, dones and instructions that pass
    them.
    """
    for position, operand in enumerate(instruction.operands):
        if isinstance(operand.op, (AsyncStart, AsyncUpdate)):
            takes = isinstance(instruction.op, (AsyncUpdate, AsyncDone))
            if (takes and position) or (not takes and not isinstance(instruction.op, _CARRIERS)):
                _reject(instruction, f"the context %{operand.name} is for one async-done only")


def _check_chain(done: Instruction) -> None:
    """Checks that an async-done leads back to one async-start, through updates."""
    start = done.operands[0]
    while isinstance(start.op, AsyncUpdate):
        start = start.operands[0]
    if isinstance(start.op, _SOURCES):
        return
    if not isinstance(start.op, AsyncStart):
        _reject(done, f"takes the context of async-start, got that of {start.opcode}")
    if sum(1 for user in start.users if isinstance(user.op, (AsyncDone, AsyncUpdate))) > 1:
        _reject(done, f"%{start.name} has more than one async-done")


def _reject(instruction: Instruction, message: str) -> NoReturn:
    op = instruction.op
    clause = op.pairing_clause if isinstance(op, Asynchronous) else "GEN-2"
    raise RuleError(instruction.opcode, clause, message).at(repr(instruction))
