"""Interfaces between operations, the graph that contains them, and the machine that evaluates them.

Operations hold the computations that they call, and these hold instructions that hold operations: this module breaks
that import cycle. The machine is a protocol, which the interpreter implements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from hloom.shape import Shape
from hloom.values import Array, Value

if TYPE_CHECKING:
    from hloom.ir import Computation as Computation
    from hloom.ir import Instruction as Instruction
else:
    Computation = Instruction = Any


class HostQueues(Protocol):
    """The queues between a program and its host; implemented by `hloom.runtime.device.Device`."""

    def take_infeed(self, shape: Shape) -> Value:
        """Returns the next infeed item. Raises HloomError if it does not have the shape and layout of `shape`."""
        ...

    def put_outfeed(self, value: Value) -> None:
        """Appends a value to the outfeed queue."""
        ...

    def take_from_host(self, channel_id: int, shape: Shape) -> Value:
        """Returns the value that the host sent through a channel."""
        ...

    def put_to_host(self, channel_id: int, value: Value) -> None:
        """Sends a value to the host through a channel."""
        ...


class Context(Protocol):
    """The machine that evaluates an operation, as `Operation.evaluate` sees it; the interpreter implements it."""

    instruction: Instruction
    destination: Array | None
    """An array of the result's shape and type that `evaluate` may fill and return; no operand aliases it. None if
    absent.
    """
    threads: int
    """The number of threads that the operation may use."""

    @property
    def shape(self) -> Shape:
        """The declared result shape (bounds, not actual sizes, of dynamic dimensions)."""
        ...

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        """The declared shapes of the operands."""
        ...

    @property
    def replica_id(self) -> int:
        """The replica of this device, from 0."""
        ...

    @property
    def replica_count(self) -> int:
        """The number of replicas."""
        ...

    @property
    def partition_id(self) -> int:
        """The partition of this device, from 0."""
        ...

    @property
    def partition_count(self) -> int:
        """The number of partitions."""
        ...

    @property
    def rng(self) -> np.random.Generator:
        """The random generator of this execution, for operations without a random state of their own."""
        ...

    @property
    def device(self) -> HostQueues:
        """The queues for infeed, outfeed and host transfers."""
        ...

    def call(self, computation: Computation, *arguments: Value) -> Value:
        """Calls a computation with argument values."""
        ...

    def map(self, computation: Computation, *arrays: Array) -> Value:
        """Applies a computation of scalars to each index of arrays of equal shape; vectorised if possible.

        Returns an array, or a tuple of arrays if the computation returns a tuple.
        """
        ...

    def exchange(
        self, members: Sequence[int], value: Value, channel_id: int | None, combine: Callable[[list[Value]], Value]
    ) -> Value:
        """Returns `combine` of the values of all `members` (device ids, this one included), in member order, computed
        once.

        Blocks until all members have called it. Raises RunError after a time-out, naming the operation and the missing
        members.
        """
        ...

    def send(self, channel_id: int, value: Value, target: int) -> None:
        """Sends a value to the device `target`, which receives it with `receive`."""
        ...

    def receive(self, channel_id: int, source: int) -> Value:
        """Waits for the value that the device `source` sends to this one. Raises RunError as `exchange` does."""
        ...

    def update_rng_state(self, delta: int) -> int:
        """Returns the 128-bit random state of this execution, and adds `delta` to it."""
        ...

    def custom_call(self, target: str, args: tuple[Value, ...]) -> Value:
        """Calls the function registered for a custom-call target. Raises RuleError[CUSTOMCALL-5] if there is none."""
        ...
