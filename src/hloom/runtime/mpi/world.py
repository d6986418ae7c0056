"""The MPI ranks that run a program together.

A rank that waits also polls for failure notices of other ranks. Therefore an error on one rank ends the run on all of
them, with a message that names the rank.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from hloom.errors import ArgumentError, HloomError, RunError
from hloom.runtime.serialization import DataFormat
from hloom.values import Array, Value

_FAILED, _ENDED, _WAITS, _READY = 1, 2, 3, 4
"""Tags of the notices that ranks send each other outside of programs."""
_GRACE = 2.0
"""Grace period in seconds: how long a failing rank waits for reports of others, and a report may be in flight."""
_POLLS_BEFORE_YIELD = 200
"""The number of times that a request is tested before the processor is yielded."""
_VALUE_FORMAT = DataFormat()
"""The encoding of values that ranks exchange; decoding never executes code."""

_Key = tuple[tuple[int, ...], tuple[int, ...]]
"""The devices of a group, and the ranks that run them."""


@functools.cache
def world() -> World:
    """All ranks of this MPI job; ArgumentError without mpi4py, or if MPI does not support calls from several
    threads.
    """
    return World(_comm_world())


@functools.cache
def world_of_nodes(node: int, nodes: int) -> World:
    """All ranks, ordered by the ids that a framework gives its processes.

    ArgumentError if the framework has another number of processes than MPI, or their ids are not 0 .. nodes - 1.
    """
    comm = _comm_world()
    if comm.size != nodes:
        raise ArgumentError(
            f"the framework has {nodes} processes, this run of MPI {comm.size}: start them all by `mpiexec -n {nodes}`"
        )
    ranks_by_node = all_gather_values(comm, node)
    if sorted(ranks_by_node) != list(range(nodes)):
        raise ArgumentError(f"the ids of the processes must be 0 to {nodes - 1}, each once, got {ranks_by_node}")
    return world() if ranks_by_node == list(range(nodes)) else World(comm.Split(0, node))


def _comm_world() -> Any:
    """MPI's communicator of all ranks; ArgumentError as for `world`."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, and no library of MPI
        why = str(error).splitlines()[0]
        raise ArgumentError(
            f"several processes meet through MPI: pip install 'hloom[mpi]', which brings mpiexec, or mpi4py beside an "
            f"MPI of the system ({why})"
        ) from None
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise ArgumentError("devices are threads: this MPI was started without MPI_THREAD_MULTIPLE")
    return MPI.COMM_WORLD


def all_gather_values(comm: Any, value: Value) -> list[Value]:
    """Exchanges one value per rank of a communicator, and returns them by rank; a collective call."""
    sent, sizes = np.frombuffer(_VALUE_FORMAT.to_bytes(value), np.uint8), np.empty(comm.size, np.int64)
    comm.Allgather(np.array([sent.size]), sizes)
    received = np.empty(int(sizes.sum()), np.uint8)
    comm.Allgatherv(sent, [received, sizes.tolist()])
    return _by_rank(received, sizes)


def _by_rank(received: Array, sizes: Array) -> list[Value]:
    """Decodes values from concatenated bytes, given the size of each."""
    return [_VALUE_FORMAT.from_bytes(part.tobytes()) for part in np.split(received, np.cumsum(sizes)[:-1])]


def mpi_version() -> str:
    """The version string of the MPI library."""
    from mpi4py import MPI

    return str(MPI.Get_library_version())


class World:
    """The ranks that run a program together; `rank` is that of this process."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.comm, self._control, self._messages = comm.Dup(), comm.Dup(), comm.Dup()
        self._groups: dict[_Key, Any] = {}
        """Communicators by devices and ranks; those of ranks alone have no devices."""
        self._ready: set[tuple[int, _Key]] = set()
        """The ranks that have announced that they are about to create a communicator."""
        self._kept_alive: list[Any] = []
        """Requests and buffers that MPI may still use."""
        self._ended: dict[int, float] = {}
        """The time at which each ended rank's notice was received."""
        self.broken = ""
        self.broken_flag = np.zeros(1, np.uint64)
        """A word that native code polls: not 0 once a run has failed."""
        atexit.register(self._leave)

    def ranks(self, count: int) -> list[int]:
        """The rank of each of `count` devices; ArgumentError if the ranks cannot share them evenly."""
        if count % self.size:
            raise ArgumentError(
                f"{count} devices cannot be shared evenly by {self.size} processes: "
                "choose replicas and partitions whose product is a multiple"
            )
        return [device * self.size // count for device in range(count)]

    def check_agreement(self, facts: dict[str, str], ranks: Sequence[int], timeout: float) -> None:
        """Checks that facts about a program are the same on all ranks.

        RunError names the fact that differs, and the ranks.
        """
        comm = self._communicator((), ranks, timeout)
        own = np.frombuffer(b"".join(hashlib.sha256(fact.encode()).digest() for fact in facts.values()), np.uint8)
        all_digests = np.empty((comm.size, own.size), np.uint8)
        purpose = "to agree on the program"
        self.wait(comm.Iallgather(own.copy(), all_digests), purpose, timeout, (own, all_digests))
        for k, name in enumerate(facts):
            digests = [row[32 * k : 32 * (k + 1)].tobytes() for row in all_digests]
            others = [rank for rank, digest in zip(ranks, digests, strict=True) if digest != digests[0]]
            if others:
                same = [rank for rank in ranks if rank not in others]
                raise RunError(f"the {name} of ranks {others} differs from that of ranks {same}")

    def all_equal(self, value: int) -> bool:
        """Whether a value is the same on all ranks; a collective call."""
        return len({*all_gather_values(self.comm, value)}) == 1

    def gather(self, values: list[Value], ranks: Sequence[int], timeout: float) -> list[Value]:
        """Returns the values of all `ranks`, in their order; a collective call of these ranks."""
        return self.gather_objects(self._communicator((), ranks, timeout), values, "to gather the results", timeout)

    def create_communicators(self, groups: Iterable[tuple[int, ...]], ranks: Sequence[int], timeout: float) -> None:
        """Creates the communicators of groups of devices, device d being on `ranks[d]`.

        A collective call of the ranks, all of which pass the same groups.
        """
        for members in groups:
            present = ranks_of(members, ranks)
            if self.rank in present and len(present) > 1:
                self._communicator(members, present, timeout)

    def communicator(self, members: Sequence[int], ranks: Sequence[int]) -> Any:
        """The communicator that was created for a group of devices on these ranks."""
        return self._groups[tuple(members), tuple(ranks)]

    def _communicator(self, members: tuple[int, ...], ranks: Sequence[int], timeout: float) -> Any:
        """Returns the communicator of a group, creating it if necessary."""
        key = (members, tuple(ranks))
        if key not in self._groups:
            self._wait_until_ready(key, ranks, timeout)
            self._groups[key] = self.comm.Create_group(self.comm.Get_group().Incl(ranks))
        return self._groups[key]

    def _wait_until_ready(self, key: _Key, ranks: Sequence[int], timeout: float) -> None:
        """Waits until all other ranks are about to create the same communicator; MPI itself would wait forever."""
        others = {rank for rank in ranks if rank != self.rank}
        for rank in others:
            self._send(self._control, (self.rank, key), rank, _READY)
        deadline, polls = time.monotonic() + timeout, 0
        while not all((rank, key) in self._ready for rank in others):
            ready = self._receive_notice(_READY)
            if ready is not None:
                self._ready.add(ready)
                continue
            self.check_peers("to meet before a first run", deadline, timeout)
            polls += 1
            _yield_processor(polls)

    def gather_arrays(
        self, comm: Any, own: list[tuple[Array, ...]], counts: Sequence[int], purpose: str, timeout: float
    ) -> list[tuple[Array, ...]]:
        """Exchanges the arrays of all members of a group, and returns them by rank.

        All members have arrays of the same shapes; `counts` are the numbers of members on each rank.
        """
        sent = np.concatenate([as_bytes(each) for each in own])
        size = sent.size // len(own)
        received = np.empty(size * sum(counts), np.uint8)
        sizes = [size * count for count in counts]
        request = comm.Iallgatherv(sent, [received, sizes])
        self.wait(request, purpose, timeout, (sent, received))
        return [as_arrays(received[k * size : (k + 1) * size], own[0]) for k in range(sum(counts))]

    def gather_objects(self, comm: Any, values: list[Value], purpose: str, timeout: float) -> list[Value]:
        """Exchanges arbitrary values of all members of a group, and returns them by rank."""
        sent, sizes = np.frombuffer(_VALUE_FORMAT.to_bytes(values), np.uint8), np.empty(comm.size, np.int64)
        self.wait(comm.Iallgather(np.array([sent.size]), sizes), purpose, timeout, sizes)
        received = np.empty(int(sizes.sum()), np.uint8)
        self.wait(comm.Iallgatherv(sent, [received, sizes.tolist()]), purpose, timeout, (sent, received))
        return [value for part in _by_rank(received, sizes) for value in part]

    def keep_alive(self, *memory: Any) -> None:
        """Keeps memory that abandoned requests may still use."""
        self._kept_alive.append(memory)

    # Messages between devices

    def send(self, target: int, key: tuple[int, int, int], value: Value) -> None:
        """Sends a value to a rank, without waiting; `key` identifies the receive there."""
        self._send(self._messages, (key, value), target)

    def received(self) -> tuple[tuple[int, int, int], Value] | None:
        """Takes a message that has arrived, with its key; None if there is none."""
        message: tuple[tuple[int, int, int], Value] | None = _received(self._messages)
        return message

    def _send(self, comm: Any, value: Value, target: int, tag: int = 0) -> None:
        content = _VALUE_FORMAT.to_bytes(value)
        self._kept_alive.append((comm.Isend(content, target, tag), content))

    # Waiting and failures

    def wait(self, request: Any, purpose: str, timeout: float, buffers: Any = None) -> None:
        """Waits for a request; RunError if a rank has failed, or the wait takes longer than `timeout` seconds.

        On an error `buffers` are kept alive for MPI.
        """
        deadline, polls = time.monotonic() + timeout, 0
        while not request.Test():
            polls += 1
            if polls > _POLLS_BEFORE_YIELD:
                try:
                    self.check_peers(purpose, deadline, timeout)
                except HloomError:
                    self._kept_alive.append((request, buffers))
                    raise
                _yield_processor(polls)

    def check_peers(self, purpose: str, deadline: float, timeout: float) -> None:
        """Raises RunError if another rank has failed or ended, or if the deadline has passed.

        `purpose` completes the message "rank r waited s seconds for other ranks, ..".
        """
        failed = self._receive_notice(_FAILED)
        if failed is not None:
            self._break_run("rank {} failed: {}".format(*failed))
        self._receive_end_notices()
        for rank, since in self._ended.items():
            # Messages that it has sent may still be in flight.
            if time.monotonic() > since + _GRACE:
                self._break_run(f"rank {rank} has ended, and takes no more part")
        if time.monotonic() >= deadline:
            self._break_run(
                f"rank {self.rank} waited {timeout:g} s for other ranks, {purpose}{self._waiting_reports(purpose)}"
            )

    def _waiting_reports(self, purpose: str) -> str:
        """Collects reports of the waits of other ranks, when this one has reached its time limit.

        Other waiting ranks reach their own limits at about the same time, and report as well.
        """
        self._notify_others(_WAITS, (self.rank, purpose))
        waits: dict[int, str] = {}
        end = time.monotonic() + _GRACE
        while len(waits) + 1 < self.size and time.monotonic() < end:
            waiting = self._receive_notice(_WAITS)
            waits.update([waiting] if waiting else [])
            time.sleep(1e-3)
        lines = [f"\n  rank {rank} waits, {waits[rank]}" for rank in sorted(waits)]
        silent = [rank for rank in range(self.size) if rank not in waits and rank != self.rank]
        return "".join(lines) + (f"\n  ranks {silent} do not wait for others: they compute, or hang" if silent else "")

    def _break_run(self, message: str) -> NoReturn:
        """Marks the run as failed, and raises RunError."""
        self._mark_broken(message)
        raise RunError(message)

    def _mark_broken(self, message: str) -> None:
        """Records the failure for this rank's threads and native code."""
        self.broken = message
        self.broken_flag[0] = 1

    def fail(self, error: BaseException) -> None:
        """Notifies the other ranks that this one has failed, unless another rank failed first."""
        if not self.broken:
            lines = str(error).splitlines() or [repr(error)]
            self._mark_broken(f"rank {self.rank} failed: {lines[0]}")
            self._notify_others(_FAILED, (self.rank, lines[0]))

    def _notify_others(self, tag: int, value: Any) -> None:
        """Sends a notice to all other ranks."""
        others = (rank for rank in range(self.size) if rank != self.rank)
        for rank in others:
            self._send(self._control, value, rank, tag)

    def _receive_notice(self, tag: int) -> Any:
        """Takes a notice with this tag that has arrived; None if there is none."""
        return _received(self._control, tag)

    def _receive_end_notices(self) -> None:
        """Records the ranks whose end notices have arrived."""
        while (rank := self._receive_notice(_ENDED)) is not None:
            self._ended.setdefault(rank, time.monotonic())

    def check(self) -> None:
        """Raises RunError if an earlier run failed: requests of that run may still be pending on some ranks."""
        if self.broken:
            raise RunError(f"an earlier run failed ({self.broken}): restart the processes")

    def _leave(self) -> None:
        """Notifies the other ranks that this one ends, at exit.

        After a failure MPI cannot finalize, since requests are pending: the job is aborted, after the grace period.
        """
        self._notify_others(_ENDED, self.rank)
        if self.broken:
            end = time.monotonic() + _GRACE
            while len(self._ended) + 1 < self.size and time.monotonic() < end:
                self._receive_end_notices()
                time.sleep(1e-3)
            self.comm.Abort(1)


def _received(comm: Any, tag: int = 0) -> Any:
    """Takes and decodes a message that has arrived; None if there is none."""
    if not comm.Iprobe(tag=tag):
        return None
    from mpi4py import MPI

    status = MPI.Status()
    message = comm.Improbe(tag=tag, status=status)
    if message is None:  # another thread has it
        return None
    content = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    message.Recv(content)
    return _VALUE_FORMAT.from_bytes(content.tobytes())


def _yield_processor(polls: int) -> None:
    """Yields the processor to other threads and processes; after many polls, sleeps for 0.1 ms."""
    if polls < 50 * _POLLS_BEFORE_YIELD and hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(1e-4)


def as_bytes(arrays: tuple[Array, ...]) -> Array:
    """The concatenated bytes of some arrays."""
    return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays])


def as_arrays(data: Array, like: tuple[Array, ...]) -> tuple[Array, ...]:
    """Splits bytes into arrays of the types and shapes of others; the inverse of `as_bytes`."""
    arrays, begin = [], 0
    for array in like:
        arrays.append(data[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape))
        begin += array.nbytes
    return tuple(arrays)


def ranks_of(members: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """The ranks of a group of devices, in the order of the group, each once; device d is on `ranks[d]`."""
    return list(dict.fromkeys(ranks[member] for member in members))
