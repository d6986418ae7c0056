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

_FAILED, _GONE, _WAITS, _READY = 1, 2, 3, 4
"""Tags of what ranks tell each other outside of programs."""
_GRACE = 2.0
"""Seconds that a rank which ends after a failure leaves to others to say so, and that words of one that ended take."""
_PATIENT = 200
"""How often a request is asked before others get the processor."""
_VALUES = DataFormat()
"""How ranks tell each other values: nothing that they say is executed."""

_Key = tuple[tuple[int, ...], tuple[int, ...]]
"""A group of devices, and the ranks that have them."""


@functools.cache
def world() -> World:
    """All ranks of this run of MPI; ArgumentError where mpi4py is missing, or MPI does not take calls of threads."""
    return World(_everybody())


@functools.cache
def world_of_nodes(node: int, nodes: int) -> World:
    """As `world`, with ranks as a framework numbers its processes; ArgumentError where it has others than MPI."""
    comm = _everybody()
    if comm.size != nodes:
        raise ArgumentError(
            f"the framework has {nodes} processes, this run of MPI {comm.size}: start them all by `mpiexec -n {nodes}`"
        )
    numbers = share(comm, node)
    if sorted(numbers) != list(range(nodes)):
        raise ArgumentError(f"the processes are numbered {numbers}, not each from 0 to {nodes - 1}")
    return world() if numbers == list(range(nodes)) else World(comm.Split(0, node))


def _everybody() -> Any:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise ArgumentError(f"several processes meet through mpi4py: pip install 'hloom[mpi]' ({error})") from None
    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise ArgumentError("devices are threads: this MPI was started without MPI_THREAD_MULTIPLE")
    return MPI.COMM_WORLD


def share(comm: Any, value: Value) -> list[Value]:
    """The values of all ranks of a communicator, by rank; they all ask at once."""
    sent, sizes = np.frombuffer(_VALUES.to_bytes(value), np.uint8), np.empty(comm.size, np.int64)
    comm.Allgather(np.array([sent.size]), sizes)
    received = np.empty(int(sizes.sum()), np.uint8)
    comm.Allgatherv(sent, [received, sizes.tolist()])
    return _by_rank(received, sizes)


def _by_rank(received: Array, sizes: Array) -> list[Value]:
    """The values that lie one behind the other in bytes."""
    return [_VALUES.from_bytes(part.tobytes()) for part in np.split(received, np.cumsum(sizes)[:-1])]


def mpi_version() -> str:
    """What the MPI library calls itself."""
    from mpi4py import MPI

    return str(MPI.Get_library_version())


class World:
    """The ranks that run a program together; `rank` is this process."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.rank, comm.size
        self.everybody, self._control, self._messages = comm.Dup(), comm.Dup(), comm.Dup()
        self._groups: dict[_Key, Any] = {}
        """The communicators of groups of devices on ranks; of no devices in particular those of ranks as such."""
        self._ready: set[tuple[int, _Key]] = set()
        """Which ranks are about to make which communicators."""
        self._kept: list[Any] = []
        """Requests and buffers that MPI may still use."""
        self._gone: dict[int, float] = {}
        """The ranks that have ended, and when that was heard."""
        self.broken = ""
        self.broken_word = np.zeros(1, np.uint64)
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

    def agree(self, facts: dict[str, str], ranks: Sequence[int], timeout: float) -> None:
        """RunError where ranks differ in something that they must have alike; it names the ranks and the fact."""
        comm = self._communicator((), ranks, timeout)
        mine = np.frombuffer(b"".join(hashlib.sha256(fact.encode()).digest() for fact in facts.values()), np.uint8)
        all_of = np.empty((comm.size, mine.size), np.uint8)
        what = "to agree on the program"
        self.finish(comm.Iallgather(mine.copy(), all_of), what, timeout, (mine, all_of))
        for k, name in enumerate(facts):
            digests = [row[32 * k : 32 * (k + 1)].tobytes() for row in all_of]
            others = [rank for rank, digest in zip(ranks, digests, strict=True) if digest != digests[0]]
            if others:
                same = [rank for rank in ranks if rank not in others]
                raise RunError(f"the {name} of ranks {others} is another than that of ranks {same}")

    def all_equal(self, value: int) -> bool:
        """Whether a number is the same on all ranks; they all ask at once."""
        return len({*share(self.everybody, value)}) == 1

    def gather(self, values: list[Value], ranks: Sequence[int], timeout: float) -> list[Value]:
        """The values of some ranks, in their order, on all of these."""
        return self.gather_objects(self._communicator((), ranks, timeout), values, "to gather the results", timeout)

    def meet(self, groups: Iterable[tuple[int, ...]], ranks: Sequence[int], timeout: float) -> None:
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
            self._wait_for(key, ranks, timeout)
            self._groups[key] = self.everybody.Create_group(self.everybody.Get_group().Incl(ranks))
        return self._groups[key]

    def _wait_for(self, key: _Key, ranks: Sequence[int], timeout: float) -> None:
        """Waits until the others are about to make the same communicator: MPI itself would wait forever."""
        others = {rank for rank in ranks if rank != self.rank}
        for rank in others:
            self._send(self._control, (self.rank, key), rank, _READY)
        deadline, asked = time.monotonic() + timeout, 0
        while not all((rank, key) in self._ready for rank in others):
            ready = self._heard(_READY)
            if ready is not None:
                self._ready.add(ready)
                continue
            self.look("to meet before a first run", deadline, timeout)
            asked += 1
            _rest(asked)

    def gather_arrays(
        self, comm: Any, mine: list[tuple[Array, ...]], counts: Sequence[int], what: str, timeout: float
    ) -> list[tuple[Array, ...]]:
        """The arrays of all members of a group, by rank; all members have the same shapes, `counts` of them a rank."""
        sent = np.concatenate([as_bytes(each) for each in mine])
        size = sent.size // len(mine)
        received = np.empty(size * sum(counts), np.uint8)
        sizes = [size * count for count in counts]
        request = comm.Iallgatherv(sent, [received, sizes])
        self.finish(request, what, timeout, (sent, received))
        return [as_arrays(received[k * size : (k + 1) * size], mine[0]) for k in range(sum(counts))]

    def gather_objects(self, comm: Any, values: list[Value], what: str, timeout: float) -> list[Value]:
        """As `gather_arrays`, of any values."""
        sent, sizes = np.frombuffer(_VALUES.to_bytes(values), np.uint8), np.empty(comm.size, np.int64)
        self.finish(comm.Iallgather(np.array([sent.size]), sizes), what, timeout, sizes)
        received = np.empty(int(sizes.sum()), np.uint8)
        self.finish(comm.Iallgatherv(sent, [received, sizes.tolist()]), what, timeout, (sent, received))
        return [value for part in _by_rank(received, sizes) for value in part]

    def keep(self, *memory: Any) -> None:
        """Keeps memory that requests may still use, which nobody waits for any more."""
        self._kept.append(memory)

    # Messages between devices

    def send(self, target: int, key: tuple[int, int, int], value: Value) -> None:
        """Sends a value to a rank, for whoever waits for the key there."""
        self._send(self._messages, (key, value), target)

    def received(self) -> tuple[tuple[int, int, int], Value] | None:
        """A message that has come, with its key; None where there is none."""
        found: tuple[tuple[int, int, int], Value] | None = _received(self._messages)
        return found

    def _send(self, comm: Any, value: Value, target: int, tag: int = 0) -> None:
        content = _VALUES.to_bytes(value)
        self._kept.append((comm.Isend(content, target, tag), content))

    # Waiting and failing

    def finish(self, request: Any, what: str, timeout: float, buffers: Any = None) -> None:
        """Waits for a request; RunError where a rank has failed, or it takes longer than `timeout` seconds."""
        deadline, asked = time.monotonic() + timeout, 0
        while not request.Test():
            asked += 1
            if asked > _PATIENT:
                try:
                    self.look(what, deadline, timeout)
                except HloomError:
                    self._kept.append((request, buffers))
                    raise
                _rest(asked)

    def look(self, what: str, deadline: float, timeout: float) -> None:
        """RunError where a rank has failed, or the time is over."""
        failed = self._heard(_FAILED)
        if failed is not None:
            self._break("rank {} failed: {}".format(*failed))
        self._hear_who_is_gone()
        for rank, since in self._gone.items():
            # What it had sent may still be on its way.
            if time.monotonic() > since + _GRACE:
                self._break(f"rank {rank} has ended, and does not come")
        if time.monotonic() >= deadline:
            self._break(f"rank {self.rank} waited {timeout:g} s for other ranks, {what}{self._others(what)}")

    def _others(self, what: str) -> str:
        """What the other ranks wait for, when this one gives up: those that run into their own limit say so."""
        self._tell(_WAITS, (self.rank, what))
        heard: dict[int, str] = {}
        end = time.monotonic() + _GRACE
        while len(heard) + 1 < self.size and time.monotonic() < end:
            waiting = self._heard(_WAITS)
            heard.update([waiting] if waiting else [])
            time.sleep(1e-3)
        lines = [f"\n  rank {rank} waits, {heard[rank]}" for rank in sorted(heard)]
        silent = [rank for rank in range(self.size) if rank not in heard and rank != self.rank]
        return "".join(lines) + (f"\n  ranks {silent} wait for nobody: they compute, or hang" if silent else "")

    def _break(self, message: str) -> NoReturn:
        self._note(message)
        raise RunError(message)

    def _note(self, message: str) -> None:
        self.broken = message
        self.broken_word[0] = 1

    def fail(self, error: BaseException) -> None:
        """Tells the other ranks that this one has failed, unless another one was the first."""
        if not self.broken:
            lines = str(error).splitlines() or [repr(error)]
            self._note(f"rank {self.rank} failed: {lines[0]}")
            self._tell(_FAILED, (self.rank, lines[0]))

    def _tell(self, tag: int, what: Any) -> None:
        others = (rank for rank in range(self.size) if rank != self.rank)
        for rank in others:
            self._send(self._control, what, rank, tag)

    def _heard(self, tag: int) -> Any:
        """What a rank has told with a tag; None where nobody has."""
        return _received(self._control, tag)

    def _hear_who_is_gone(self) -> None:
        while (rank := self._heard(_GONE)) is not None:
            self._gone.setdefault(rank, time.monotonic())

    def check(self) -> None:
        """RunError where an earlier run failed: what ranks still wait for then, nobody knows."""
        if self.broken:
            raise RunError(f"an earlier run failed ({self.broken}): start the processes anew")

    def _leave(self) -> None:
        """Says that this rank ends. After a failure MPI cannot end in order, since requests are open: it is aborted."""
        self._tell(_GONE, self.rank)
        if self.broken:
            end = time.monotonic() + _GRACE
            while len(self._gone) + 1 < self.size and time.monotonic() < end:
                self._hear_who_is_gone()
                time.sleep(1e-3)
            self.everybody.Abort(1)


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
    return _VALUES.from_bytes(content.tobytes())


def _rest(asked: int) -> None:
    """Gives the processor to others: for as long as nobody else wants it, no time passes at first."""
    if asked < 50 * _PATIENT and hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(1e-4)


def as_bytes(arrays: tuple[Array, ...]) -> Array:
    """What arrays hold, one behind the other."""
    return np.concatenate([np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays])


def as_arrays(data: Array, like: tuple[Array, ...]) -> tuple[Array, ...]:
    """The arrays that lie one behind the other in bytes, with the types and sizes of others."""
    found, begin = [], 0
    for array in like:
        found.append(data[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape))
        begin += array.nbytes
    return tuple(found)


def ranks_of(members: Sequence[int], ranks: Sequence[int]) -> list[int]:
    """The ranks of a group of devices, in the order of the group, device d being on `ranks[d]`."""
    return list(dict.fromkeys(ranks[member] for member in members))
