"""The rendezvous of the devices of one run: collectives exchange values, and sends pass values to receives.

Devices are threads of one process. A device that waits for one that has failed, has ended its program or does not
arrive in time gets a RunError, which names the operation, the group and the missing members (COLL-6); it never hangs.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from hloom.errors import RunError
from hloom.ir import Instruction
from hloom.values import Array, Value


class Rendezvous:
    """The rendezvous of one run: device d is replica d // P and partition d % P.

    `timeout` is the longest time in seconds that a device waits for others, `limit` that of the whole run. Loops call
    `check`, which raises an error after that time or after `stop`.
    """

    def __init__(self, replica_count: int, partition_count: int, timeout: float, limit: float | None = None) -> None:
        self.replica_count = replica_count
        self.partition_count = partition_count
        self.timeout = timeout
        self.limit = limit
        self._deadline = math.inf if limit is None else time.monotonic() + limit
        self._is_stopped = False
        self._lock = threading.Lock()
        self._waiters: dict[Any, list[threading.Lock]] = {}
        """Held locks of waiting threads, by the key of the awaited event, which releases them."""
        self._arrived: dict[Any, dict[int, Value]] = {}
        self._combined: dict[Any, Value] = {}
        self._take_counts: Counter[Any] = Counter()
        self._use_counts: Counter[Any] = Counter()
        self._messages: dict[tuple[int, int, int], deque[Value]] = {}
        self._ended: dict[int, str] = {}

    def stop(self) -> None:
        """Ends the run: all threads in loops or waits get an error."""
        self._is_stopped = True
        with self._lock:
            self._wake(*self._waiters)

    def fail(self, error: BaseException) -> None:
        """Notifies other processes that the run has failed in this one; without MPI there are none."""

    def check(self, location: str) -> None:
        """Raises RunError, located at `location`, if the run has exceeded its time limit or was stopped."""
        if self._is_stopped:
            raise RunError("the run was stopped").at(location)
        if time.monotonic() > self._deadline:
            raise RunError(f"the run took longer than {self.limit:g} s").at(location)

    def exchange(
        self,
        instruction: Instruction,
        members: Sequence[int],
        device: int,
        value: Value,
        channel_id: int | None,
        combine: Callable[[list[Value]], Value],
        into: Array | None = None,
    ) -> Value:
        """Contributes this device's value, and returns `combine` of all members' values in their order.

        The last member to arrive calls `combine`, once for all. Operations meet if they have the same opcode and
        channel, or without a channel if they are the same instruction; the n-th execution on one device meets the n-th
        on the others. `into` is memory of this device that the result may use.
        """
        site: object = channel_id
        if channel_id is None:
            site = (instruction.parent.name if instruction.parent else "", instruction.name)
        group = (instruction.opcode, site, tuple(members))
        local_members = self.local_members(members)
        with self._lock:
            use_index = self._use_counts[group, device]
            self._use_counts[group, device] += 1
            key = (group, use_index)
            arrived = self._arrived.setdefault(key, {})
            arrived[device] = value
            is_last = len(arrived) == len(local_members)
        if is_last:
            result = self.combine_values(
                instruction, members, [arrived[member] for member in local_members], combine, into
            )
            with self._lock:
                self._combined[key] = result
                self._wake(key)

        def take() -> Value:
            result = self._combined[key]
            self._take_counts[key] += 1
            if self._take_counts[key] == len(local_members):
                del self._arrived[key], self._combined[key], self._take_counts[key]
            return result

        return self._wait_and_take(
            key,
            lambda: [] if key in self._combined else _missing_members(local_members, arrived),
            take,
            lambda: f"{instruction!r}: device {device} waits for the group {list(members)}",
        )

    def local_members(self, members: Sequence[int]) -> Sequence[int]:
        """The members of a group that are threads of this process, in their order."""
        return members

    def combine_values(
        self,
        instruction: Instruction,
        members: Sequence[int],
        values: list[Value],
        combine: Callable[[list[Value]], Value],
        into: Array | None,
    ) -> Value:
        """Returns `combine` of all members' values; `values` are those of the local members."""
        return combine(values)

    def send(self, channel_id: int, source: int, target: int, value: Value) -> None:
        """Passes a value to the receive of the same channel and devices."""
        key = (channel_id, source, target)
        with self._lock:
            self._messages.setdefault(key, deque()).append(value)
            self._wake(key)

    def receive(self, instruction: Instruction, channel_id: int, source: int, target: int) -> Value:
        """Waits for the value that `source` sends through a channel; RunError if none comes (COLL-6)."""
        key = (channel_id, source, target)
        with self._lock:
            queue = self._messages.setdefault(key, deque())
        return self._wait_and_take(
            key,
            lambda: [] if queue else [source],
            queue.popleft,
            lambda: f"{instruction!r}: device {target} waits for the send of channel {channel_id}",
        )

    def end(self, device: int, reason: str) -> None:
        """Records that a device takes no more part, because its program has ended or failed."""
        with self._lock:
            self._ended[device] = reason
            self._wake(*self._waiters)

    def _wake(self, *keys: Any) -> None:
        """Wakes the threads that wait for any of the keys; the lock must be held."""
        for key in keys:
            for waiter in self._waiters.pop(key, ()):
                waiter.release()

    def _wait_and_take(
        self, key: Any, missing: Callable[[], list[int]], take: Callable[[], Value], what: Callable[[], str]
    ) -> Value:
        """Waits until no device is missing, and returns the value of `take`.

        `missing` and `take` are called with the lock held; `what` describes the wait in the error message.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            with self._lock:
                absent = missing()
                if not absent:
                    return take()
                ended = [f"device {member} {self._ended[member]}" for member in absent if member in self._ended]
                if ended:
                    _fail(f"COLL-6: {what()}, but {'; '.join(ended)}")
                if time.monotonic() >= deadline:
                    _fail(f"COLL-6: {what()}; after {self.timeout:g} s devices {absent} have not arrived")
                waiter = threading.Lock()
                waiter.acquire()
                self._waiters.setdefault(key, []).append(waiter)
            waiter.acquire(timeout=max(0.0, min(1.0, deadline - time.monotonic())))


def _missing_members(members: Sequence[int], arrived: dict[int, Value]) -> list[int]:
    """The members that have not arrived; if all have, the last one, which is still combining."""
    return [member for member in members if member not in arrived] or list(arrived)[-1:]


def _fail(message: str) -> NoReturn:
    raise RunError(message)
