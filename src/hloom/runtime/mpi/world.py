"""The ranks of MPI that run a program together.

While a rank waits it looks for word of one that failed, so that an error on one rank ends the run on all, and names the
rank.
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
"""Tags of what ranks tell each other outside of programs."""
_GRACE = 2.0
"""Seconds that a rank which ends after a failure leaves to others to say so, and that words of one that ended take."""
_POLLS_BEFORE_YIELD = 200
"""How often a request is asked before others get the processor."""
_VALUE_FORMAT = DataFormat()
"""How ranks tell each other values: nothing that they say is executed."""

_Key = tuple[tuple[int, ...], tuple[int, ...]]
"""A group of devices, and the ranks that have them."""


@functools.cache
def world() -> World:
    """All ranks of this run of MPI; ArgumentError where mpi4py is missing, or MPI does not take calls of threads."""
    return World(_comm_world())


@functools.cache
def world_of_nodes(node: int, nodes: int) -> World:
    """As `world`, with ranks as a framework numbers its processes; ArgumentError where it has others than MPI."""
    comm = _comm_world()
    if comm.size != nodes:
        raise ArgumentError(
            f"the framework has {nodes} processes, this run of MPI {comm.size}: start them all by `mpiexec -n {nodes}`"
        )
    ranks_by_node = all_gather_values(comm, node)
    if sorted(ranks_by_node) != list(range(nodes)):
        raise ArgumentError(f"the processes are numbered {ranks_by_node}, not each from 0 to {nodes - 1}")
    return world() if ranks_by_node == list(range(nodes)) else World(comm.Split(0, node))


def _comm_world() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ArgumentError(f"several processes meet through mpi4py: pip install 'hloom[mpi]' ({error})") from None
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise ArgumentError("devices are threads: this MPI was started without MPI_THREAD_MULTIPLE")
    return MPI.COMM_WORLD


def all_gather_values(comm: Any, value: Value) -> list[Value]:
    """The values of all ranks of a communicator, by rank; they all ask at once."""
    sent, sizes = np.frombuffer(_VALUE_FORMAT.to_bytes(value), np.uint8), np.empty(comm.size, np.int64)
    comm.Allgather(np.array([sent.size]), sizes)
    received = np.empty(int(sizes.sum()), np.uint8)
    comm.Allgatherv(sent, [received, sizes.tolist()])
    return _by_rank(received, sizes)


def _by_rank(received: Array, sizes: Array) -> list[Value]:
    """The values that lie one behind the other in bytes."""
    return [_VALUE_FORMAT.from_bytes(part.tobytes()) for part in np.split(received, np.cumsum(sizes)[:-1])]


def mpi_version() -> str:
    """What the MPI library calls itself."""
    from mpi4py import MPI

    return str(MPI.Get_library_version())


class World:
    """The ranks that run a program together; `rank` is this process."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.comm, self._control, self._messages = comm.Dup(), comm.Dup(), comm.Dup()
        self._groups: dict[_Key, Any] = {}
        """The communicators of groups of devices on ranks; of no devices in particular those of ranks as such."""
        self._ready: set[tuple[int, _Key]] = set()
        """Which ranks are about to make which communicators."""
        self._kept_alive: list[Any] = []
        """Requests and buffers that MPI may still use."""
        self._ended: dict[int, float] = {}
        """The ranks that have ended, and when that was heard."""
        self.broken = ""
        self.broken_flag = np.zeros(1, np.uint64)
        """As native code reads it: not 0 where a run has failed."""
        atexit.register(self._leave)

    def ranks(self, count: int) -> list[int]:
        """The rank of each of `count` devices; ArgumentError where ranks cannot share them evenly."""
        if count % self.size:
            raise ArgumentError(
                f"{count} devices cannot be shared evenly by {self.size} processes: "
                "choose replicas and partitions whose product is a multiple"
            )
        return [device * self.size // count for device in range(count)]

    def check_agreement(self, facts: dict[str, str], ranks: Sequence[int], timeout: float) -> None:
        """RunError where ranks differ in something that they must have alike; it names the ranks and the fact."""
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
                raise RunError(f"the {name} of ranks {others} is another than that of ranks {same}")

    def all_equal(self, value: int) -> bool:
        """Whether a number is the same on all ranks; they all ask at once."""
        return len({*all_gather_values(self.comm, value)}) == 1

    def gather(self, values: list[Value], ranks: Sequence[int], timeout: float) -> list[Value]:
        """The values of some ranks, in their order, on all of these."""
        return self.gather_objects(self._communicator((), ranks, timeout), values, "to gather the results", timeout)

    def create_communicators(self, groups: Iterable[tuple[int, ...]], ranks: Sequence[int], timeout: float) -> None:
        """Makes the communicators of groups of devices, device d on `ranks[d]`; all ranks call it with the same."""
        for members in groups:
            present = ranks_of(members, ranks)
            if self.rank in present and len(present) > 1:
                self._communicator(members, present, timeout)

    def communicator(self, members: Sequence[int], ranks: Sequence[int]) -> Any:
        """The communicator of a group of devices that has met, on these ranks."""
        return self._groups[tuple(members), tuple(ranks)]

    def _communicator(self, members: tuple[int, ...], ranks: Sequence[int], timeout: float) -> Any:
        key = (members, tuple(ranks))
        if key not in self._groups:
            self._wait_until_ready(key, ranks, timeout)
            self._groups[key] = self.comm.Create_group(self.comm.Get_group().Incl(ranks))
        return self._groups[key]

    def _wait_until_ready(self, key: _Key, ranks: Sequence[int], timeout: float) -> None:
        """Waits until the others are about to make the same communicator: MPI itself would wait forever."""
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
        """The arrays of all members of a group, by rank; all members have the same shapes, `counts` of them a rank."""
        sent = np.concatenate([as_bytes(each) for each in own])
        size = sent.size // len(own)
        received = np.empty(size * sum(counts), np.uint8)
        sizes = [size * count for count in counts]
        request = comm.Iallgatherv(sent, [received, sizes])
        self.wait(request, purpose, timeout, (sent, received))
        return [as_arrays(received[k * size : (k + 1) * size], own[0]) for k in range(sum(counts))]

    def gather_objects(self, comm: Any, values: list[Value], purpose: str, timeout: float) -> list[Value]:
        """As `gather_arrays`, of any values."""
        sent, sizes = np.frombuffer(_VALUE_FORMAT.to_bytes(values), np.uint8), np.empty(comm.size, np.int64)
        self.wait(comm.Iallgather(np.array([sent.size]), sizes), purpose, timeout, sizes)
        received = np.empty(int(sizes.sum()), np.uint8)
        self.wait(comm.Iallgatherv(sent, [received, sizes.tolist()]), purpose, timeout, (sent, received))
        return [value for part in _by_rank(received, sizes) for value in part]

    def keep_alive(self, *memory: Any) -> None:
        """Keeps memory that requests may still use, which nobody waits for any more."""
        self._kept_alive.append(memory)

    # Messages between devices

    def send(self, target: int, key: tuple[int, int, int], value: Value) -> None:
        """Sends a value to a rank, for whoever waits for the key there."""
        self._send(self._messages, (key, value), target)

    def received(self) -> tuple[tuple[int, int, int], Value] | None:
        """A message that has come, with its key; None where there is none."""
        message: tuple[tuple[int, int, int], Value] | None = _received(self._messages)
        return message

    def _send(self, comm: Any, value: Value, target: int, tag: int = 0) -> None:
        content = _VALUE_FORMAT.to_bytes(value)
        self._kept_alive.append((comm.Isend(content, target, tag), content))

    # Waiting and failing

    def wait(self, request: Any, purpose: str, timeout: float, buffers: Any = None) -> None:
        """Waits for a request; RunError where a rank has failed, or it takes longer than `timeout` seconds."""
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
        """RunError where a rank has failed, or the time is over."""
        failed = self._receive_notice(_FAILED)
        if failed is not None:
            self._break_run("rank {} failed: {}".format(*failed))
        self._receive_end_notices()
        for rank, since in self._ended.items():
            # What it had sent may still be on its way.
            if time.monotonic() > since + _GRACE:
                self._break_run(f"rank {rank} has ended, and does not come")
        if time.monotonic() >= deadline:
            self._break_run(
                f"rank {self.rank} waited {timeout:g} s for other ranks, {purpose}{self._waiting_reports(purpose)}"
            )

    def _waiting_reports(self, purpose: str) -> str:
        """What the other ranks wait for, when this one gives up: those that run into their own limit say so."""
        self._notify_others(_WAITS, (self.rank, purpose))
        waits: dict[int, str] = {}
        end = time.monotonic() + _GRACE
        while len(waits) + 1 < self.size and time.monotonic() < end:
            waiting = self._receive_notice(_WAITS)
            waits.update([waiting] if waiting else [])
            time.sleep(1e-3)
        lines = [f"\n  rank {rank} waits, {waits[rank]}" for rank in sorted(waits)]
        silent = [rank for rank in range(self.size) if rank not in waits and rank != self.rank]
        return "".join(lines) + (f"\n  ranks {silent} wait for nobody: they compute, or hang" if silent else "")

    def _break_run(self, message: str) -> NoReturn:
        self._mark_broken(message)
        raise RunError(message)

    def _mark_broken(self, message: str) -> None:
        self.broken = message
        self.broken_flag[0] = 1

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks that this one has failed, unless another one was the first."""
        if not self.broken:
            lines = str(error).splitlines() or [repr(error)]
            self._mark_broken(f"rank {self.rank} failed: {lines[0]}")
            self._notify_others(_FAILED, (self.rank, lines[0]))

    def _notify_others(self, tag: int, value: Any) -> None:
        others = (rank for rank in range(self.size) if rank != self.rank)
        for rank in others:
            self._send(self._control, value, rank, tag)

    def _receive_notice(self, tag: int) -> Any:
        """What a rank has told with a tag; None where nobody has."""
        return _received(self._control, tag)

    def _receive_end_notices(self) -> None:
        while (rank := self._receive_notice(_ENDED)) is not None:
            self._ended.setdefault(rank, time.monotonic())

    def check(self) -> None:
        """RunError where an earlier run failed: what ranks still wait for then, nobody knows."""
        if self.broken:
            raise RunError(f"an earlier run failed ({self.broken}): start the processes anew")

    def _leave(self) -> None:
        """Says that this rank ends. After a failure MPI cannot end in order, since requests are open: it is aborted."""
        self._notify_others(_ENDED, self.rank)
        if self.broken:
            end = time.monotonic() + _GRACE
            while len(self._ended) + 1 < self.size and time.monotonic() < end:
                self._receive_end_notices()
                time.sleep(1e-3)
            self.comm.Abort(1)


def _received(comm: Any, tag: int = 0) -> Any:
    """The value of a message that has come; None where there is none."""
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
    """Gives the processor to others: for as long as nobody else wants it, no time passes at first."""
    if polls < 50 * _POLLS_BEFORE_YIELD and hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(1e-4)


def as_bytes(arrays: tuple[Array, ...]) -> Array:
    """What arrays hold, one behind the other."""
    return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays])


def as_arrays(data: Array, like: tuple[Array, ...]) -> tuple[Array, ...]:
    """The arrays that lie one behind the other in bytes, with the types and sizes of others."""
    arrays, begin = [], 0
    for array in like:
        arrays.append(data[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape))
        begin += array.nbytes
    return tuple(arrays)


def ranks_of(members: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """The ranks of a group of devices, in the order of the group, device d being on `ranks[d]`."""
    return list(dict.fromkeys(ranks[member] for member in members))
