"""Devices: a replica runs on each, with queues for infeed, outfeed and host transfers."""

from __future__ import annotations

import queue
from typing import Any

from hloom.errors import RunError
from hloom.literal import Literal
from hloom.shape import Shape
from hloom.values import Value

MAX_DEVICES = 65_536
"""The maximum number of devices of one module: each is a thread that runs the program."""


class Device:
    """A device that runs programs, with an infeed and an outfeed queue (INFEED-1, INFEED-4).

    `timeout` is the time in seconds that a program waits for data from the host; None waits forever.

    >>> device = hl.Device()
    >>> device.transfer_to_infeed(np.float32([1, 2]))
    >>> builder = hl.XlaBuilder("read")
    >>> hl.compile(builder.build(builder.infeed(hl.f32[2])), devices=[device])()
    array([1., 2.], dtype=float32)
    """

    def __init__(self, id: int = 0, timeout: float | None = 30.0) -> None:
        self.id = id
        self.timeout = timeout
        self._infeed: queue.SimpleQueue[Literal] = queue.SimpleQueue()
        self._outfeed: queue.SimpleQueue[Literal] = queue.SimpleQueue()
        self._to_program: dict[int, queue.SimpleQueue[Literal]] = {}
        self._from_program: dict[int, queue.SimpleQueue[Literal]] = {}

    def __repr__(self) -> str:
        return f"Device({self.id})"

    # The host's side

    def transfer_to_infeed(self, value: Any) -> None:
        """Appends an item, an array or a tuple of arrays, to the infeed queue."""
        self._infeed.put(Literal.from_value(value))

    def transfer_from_outfeed(self, timeout: float | None = 30.0) -> Value:
        """Takes the next item from the outfeed queue; RunError if none arrives within `timeout` seconds."""
        return _take(self._outfeed, timeout, f"through the outfeed of device {self.id}").value

    def send_to_program(self, channel_id: int, value: Any) -> None:
        """Passes a value to the recv of a host transfer (SEND-6)."""
        self._to_program.setdefault(channel_id, queue.SimpleQueue()).put(Literal.from_value(value))

    def receive_from_program(self, channel_id: int, timeout: float | None = 30.0) -> Value:
        """Waits for the send of a host transfer (SEND-6)."""
        channel = self._from_program.setdefault(channel_id, queue.SimpleQueue())
        return _take(channel, timeout, f"from the program by host channel {channel_id}").value

    # The program's side

    def take_infeed(self, shape: Shape) -> Value:
        """Takes the next infeed item, which must have the shape and layout that the program declares."""
        item = _take(self._infeed, self.timeout, f"of shape {shape} through the infeed of device {self.id}")
        if item.shape != shape:
            raise RunError(f"INFEED-1: the program reads {shape} from the infeed, the next item is {item.shape}")
        return item.value

    def put_outfeed(self, value: Value) -> None:
        """Appends a value to the queue that the host reads with `transfer_from_outfeed` (OUTFEED-1)."""
        self._outfeed.put(Literal.from_value(value))

    def take_from_host(self, channel_id: int, shape: Shape) -> Value:
        """Takes the next value that the host sent through a channel; it must have the declared shape."""
        channel = self._to_program.setdefault(channel_id, queue.SimpleQueue())
        item = _take(channel, self.timeout, f"of shape {shape} from the host by channel {channel_id}")
        if not item.shape.compatible(shape):
            raise RunError(f"SEND-6: the program receives {shape} by channel {channel_id}, the host sent {item.shape}")
        return item.value

    def put_to_host(self, channel_id: int, value: Value) -> None:
        """Appends a value to the queue of a channel to the host."""
        self._from_program.setdefault(channel_id, queue.SimpleQueue()).put(Literal.from_value(value))


def _take(source: queue.SimpleQueue[Literal], timeout: float | None, what: str) -> Literal:
    try:
        return source.get(timeout=timeout)
    except queue.Empty:
        raise RunError(f"INFEED-4: no item {what} within {timeout:g} s") from None
