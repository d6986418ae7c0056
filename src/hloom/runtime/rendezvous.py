"""Where the devices of one run meet: collectives exchange values, sends hand values to receives.

Devices are threads of one process. Whoever waits for a device that has failed, has ended its program or does not
come in time gets a RunError that names the operation, the group and the missing members (COLL-6): never a hang.
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
    """The meeting point of one run: device d is replica d // P and partition d % P; `timeout` is in seconds.

    The run as a whole must end after `limit` seconds, and ends when somebody calls `stop`: loops ask `check`.
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
        """Those who wait, by what for: a held lock each, which whoever brings it releases."""
        self._arrived: dict[Any, dict[int, Value]] = {}
        self._combined: dict[Any, Value] = {}
        self._take_counts: Counter[Any] = Counter()
        self._use_counts: Counter[Any] = Counter()
        self._messages: dict[tuple[int, int, int], deque[Value]] = {}
        self._ended: dict[int, str] = {}

    def stop(self) -> None:
        """Ends the run: whoever loops or waits gets an error."""
        self._is_stopped = True
        with self._lock:
            self._wake(*self._waiters)

    def fail(self, error: BaseException) -> None:
        """Tells those who are not threads of this process that the run has failed here."""

    def check(self, location: str) -> None:
        """RunError where the run is over its time, or was stopped; `location` is where it is."""
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
        """Hands in this device's value and gives `combine` of everybody's, in the order of `members`.

        `into` is memory of this device in which a result may lie.

        Who comes last combines, once for all. Operations meet that have the same opcode and channel, or without a
        channel are the same instruction; the n-th time on one device meets the n-th time on the others.
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
        """`combine` of all members' values, from those of the members present."""
        return combine(values)

    def send(self, channel_id: int, source: int, target: int, value: Value) -> None:
        key = (channel_id, source, target)
        with self._lock:
            self._messages.setdefault(key, deque()).append(value)
            self._wake(key)

    def receive(self, instruction: Instruction, channel_id: int, source: int, target: int) -> Value:
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
        """Notes that a device comes no more: its program has ended or failed."""
        with self._lock:
            self._ended[device] = reason
            self._wake(*self._waiters)

    def _wake(self, *keys: Any) -> None:
        """Those who wait for something look again; the lock is held."""
        for key in keys:
            for waiter in self._waiters.pop(key, ()):
                waiter.release()

    def _wait_and_take(
        self, key: Any, missing: Callable[[], list[int]], take: Callable[[], Value], what: Callable[[], str]
    ) -> Value:
        """Waits until nobody is missing, and takes what came; `missing` and `take` are called with the lock held."""
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
                    _fail(f"COLL-6: {what()}; after {self.timeout:g} s devices {absent} have not come")
                waiter = threading.Lock()
                waiter.acquire()
                self._waiters.setdefault(key, []).append(waiter)
            waiter.acquire(timeout=max(0.0, min(1.0, deadline - time.monotonic())))


def _missing_members(members: Sequence[int], arrived: dict[int, Value]) -> list[int]:
    """Who has not come; where all have, the last one, who combines."""
    return [member for member in members if member not in arrived] or list(arrived)[-1:]


def _fail(message: str) -> NoReturn:
    raise RunError(message)
