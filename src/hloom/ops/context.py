"""What an operation sees of what is around it: the graph it stands in, and the machine that evaluates it.

An operation holds the computations that it calls, and these hold instructions that hold operations: that one recursion
of types is closed here. The machine is a protocol, which the interpreter implements.
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
    """Where a program meets its host: `hloom.runtime.device.Device`."""

    def take_infeed(self, shape: Shape) -> Value:
        """The next infeed item, which must have the shape and layout that the program declares."""
        ...

    def put_outfeed(self, value: Value) -> None: ...

    def take_from_host(self, channel_id: int, shape: Shape) -> Value:
        """What the host sent through a channel."""
        ...

    def put_to_host(self, channel_id: int, value: Value) -> None: ...


class Context(Protocol):
    """What an operation may ask of the machine that evaluates it (the interpreter implements this)."""

    instruction: Instruction
    shape: Shape
    """The result shape that the instruction declares (bounds, not actual sizes, for dynamic dimensions)."""
    operand_shapes: tuple[Shape, ...]
    """The declared shapes of the operands."""
    replica_id: int
    replica_count: int
    partition_id: int
    partition_count: int
    rng: np.random.Generator
    """The generator of this execution, for the operations that draw numbers without a state."""
    device: HostQueues
    """Where infeed, outfeed and host transfers go."""
    destination: Array | None
    """An array of the result's shape and type that `evaluate` may fill and return, if there is one; no operand."""
    threads: int
    """How many threads the operation may keep busy."""

    def call(self, computation: Computation, *arguments: Value) -> Value:
        """Runs a computation on values."""
        ...

    def map(self, computation: Computation, *arrays: Array) -> Value:
        """Applies a computation of scalars to each index of equally shaped arrays; vectorised where it can be.

        Returns an array, or a tuple of arrays where the computation returns a tuple.
        """
        ...

    def exchange(
        self, members: Sequence[int], value: Value, channel_id: int | None, combine: Callable[[list[Value]], Value]
    ) -> Value:
        """A rendezvous of all `members` (device ids, this one among them): `combine` of their values, in member order.

        It is computed once, for all.

        Raises RunError after a time-out, naming the operation and the members that did not come.
        """
        ...

    def send(self, channel_id: int, value: Value, target: int) -> None:
        """Hands a value to the device `target`, which receives it from this one."""
        ...

    def receive(self, channel_id: int, source: int) -> Value:
        """Waits for what the device `source` sends; errors as in `exchange`."""
        ...

    def update_rng_state(self, delta: int) -> int:
        """The 128-bit random state of this execution, to which `delta` is then added."""
        ...

    def custom_call(self, target: str, args: tuple[Value, ...]) -> Value:
        """Calls the function registered for a custom-call target; RuleError[CUSTOMCALL-5] where there is none."""
        ...
