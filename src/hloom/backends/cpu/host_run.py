"""Runs of a program that need the host: steps without native code, which the interpreter evaluates."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

from hloom.backends.cpu.host_part import HostPart
from hloom.backends.cpu.program.program import TOKEN_SLOT, HostStep, Slot
from hloom.backends.cpu.runtime import buffers
from hloom.backends.cpu.runtime.arrays import array_at
from hloom.backends.cpu.runtime.thread_pool import shared_pool
from hloom.backends.interpreter.interpreter import Execution, Site
from hloom.errors import HloomError
from hloom.runtime.executable import DeviceExecutable, located
from hloom.runtime.rendezvous import Rendezvous
from hloom.shape import Shape
from hloom.values import TOKEN_VALUE, Array, Value, leaves


class ThreadRuns(threading.local):
    """State of the runs of an executable on one thread."""

    current: HostRun | None = None
    """The run that needs the host."""
    error: BaseException | None = None
    """The error that stopped a run that does not need the host."""
    waits: int | None = None
    """Request id of the exchange that is waited for, with the number of its polls and the time of the first one."""
    polls: int = 0
    since: float = 0.0


class HostRun:
    """State of a call that needs the host: the values of slots, and the error that stopped it."""

    def __init__(self, executable: DeviceExecutable, host: HostPart, device: int, rendezvous: Rendezvous) -> None:
        self.executable = executable
        self.host = host
        self.device = device
        self.rendezvous = rendezvous
        self.slots: list[Any] = [None] * host.slot_count
        self.error: BaseException | None = None
        self._execution: Execution | None = None

    @property
    def execution(self) -> Execution:
        """Interpreter's state of this run, created when first needed."""
        if self._execution is None:
            executable = self.executable
            replica, partition = divmod(self.device, executable.module.num_partitions)
            self._execution = Execution(
                self.host.plans,
                executable.devices[self.device],
                self.rendezvous,
                replica,
                partition,
                executable.seed,
            )
        return self._execution

    def evaluate(self, step: HostStep, frame: int) -> None:
        """Evaluates an instruction on the arrays that a frame points to."""
        frame_buffers = step.buffers
        addresses = (ctypes.c_void_p * len(frame_buffers)).from_address(frame)
        arrays = iter([array_at(a or 0, buffer) for a, buffer in zip(addresses, frame_buffers, strict=True)])
        instruction = step.instruction
        # Values that outlive the step, here or on another device, must not lie in reused memory.
        keep = self.executable.list_count > 1 or any(isinstance(leaf, Slot) for leaf in leaves(step.result))
        operands = [
            self._value(tree, shape, arrays, keep)
            for tree, shape in zip(step.operands, instruction.operand_shapes, strict=True)
        ]
        results = list(arrays)
        site = Site(self.execution, instruction, on_arrays=False)
        site.threads, site.empty, site.shares_results = shared_pool().threads, buffers.empty, False
        if instruction.shape.is_array and results and results[0].shape == instruction.shape.dimensions:
            (site.destination,) = results
        self.execution.current = instruction
        try:
            value = instruction.op.evaluate(site, *instruction.op.bind(operands))
        except (HloomError, MemoryError, OverflowError, ValueError) as error:
            where = f" ({instruction.location})" if instruction.location else ""
            raise located(error, instruction.shape, f"{instruction!r}{where}") from None
        self._put(step.result, value, iter(results))

    def _value(self, tree: Any, shape: Shape, arrays: Iterator[Array], keep: bool) -> Value:
        if isinstance(tree, tuple):
            return tuple(self._value(p, s, arrays, keep) for p, s in zip(tree, shape.elements, strict=True))
        if tree == TOKEN_SLOT:
            return TOKEN_VALUE
        if isinstance(tree, Slot):
            return self.slots[tree.index]
        array = next(arrays).reshape(shape.dimensions)
        return array.copy() if keep else array

    def _put(self, tree: Any, value: Value, arrays: Iterator[Array]) -> None:
        if isinstance(tree, tuple):
            for element, part in zip(tree, value, strict=True):
                self._put(element, part, arrays)
        elif tree == TOKEN_SLOT:
            return
        elif isinstance(tree, Slot):
            self.slots[tree.index] = value
        elif (target := next(arrays)) is not value:
            target[...] = value
