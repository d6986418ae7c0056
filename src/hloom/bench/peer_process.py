"""XLA's CPU backend in a process of its own, since XLA aborts the process on some programs."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.bench.peer import Peer
from hloom.runtime.serialization import DataFormat
from hloom.system.child import Child, ChildDied, serve
from hloom.values import Array

FORMAT = DataFormat()
"""Format of requests and replies."""


class XlaCrash(Exception):
    """The peer's process died on a program."""


class XlaError(Exception):
    """The peer refused a program."""


class XlaPeer:
    """A running peer; `run` gives the flattened results of a program.

    Its methods raise XlaError, XlaCrash, and ChildTimedOut after `seconds`.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self.seconds = seconds
        self.child = Child("hloom.bench.peer_process", {"JAX_PLATFORMS": "cpu"})

    def _call(self, kind: str, content: Any, arrays: list[Array] | tuple[()] = ()) -> Any:
        try:
            request = FORMAT.to_bytes((kind, content, [np.asarray(array) for array in arrays]))
            succeeded, reply = FORMAT.from_bytes(self.child.request(request, self.seconds))
        except ChildDied as error:
            raise XlaCrash(error.message) from None
        if not succeeded:
            raise XlaError(reply)
        return reply

    def run(self, text: str, arrays: list[Array]) -> list[Array]:
        """The results of a program in HLO text on arrays, one array for each leaf."""
        return self._call("run", text, arrays)

    def run_proto(self, content: bytes, arrays: list[Array]) -> list[Array]:
        """The results of a serialised module on arrays, one array for each leaf."""
        return self._call("run proto", content, arrays)

    def run_stablehlo(self, text: str, arrays: list[Array]) -> list[Array]:
        """The results of a program in StableHLO on arrays, one array for each leaf."""
        return self._call("run stablehlo", text, arrays)

    def from_stablehlo(self, text: str) -> bytes:
        """The serialised module to which the peer converts StableHLO text."""
        return self._call("from stablehlo", text)

    def parse(self, text: str) -> str:
        """The program as the peer prints it."""
        return self._call("parse", text)

    def read_proto(self, content: bytes) -> str:
        """The program in a serialised module as the peer prints it."""
        return self._call("proto", content)

    def close(self) -> None:
        """Ends the process."""
        self.child.close()


def _handle(peer: Peer, kind: str, content: Any, arrays: Any) -> Any:
    if kind == "run":
        return peer.compile(peer.translate_text(content)).arrays(peer.put(arrays))
    if kind == "run proto":
        return peer.compile(peer.translate_bytes(content)).arrays(peer.put(arrays))
    if kind == "run stablehlo":
        return peer.compile(content).arrays(peer.put(arrays))
    if kind == "from stablehlo":
        return peer.module_of_stablehlo(content)
    return peer.print_text(content) if kind == "parse" else peer.print_bytes(content)


def main(descriptor: int) -> None:
    """Answers requests: a kind, a program and arrays."""
    peer = Peer()

    def handle(request: bytes) -> bytes:
        try:
            return FORMAT.to_bytes((True, _handle(peer, *FORMAT.from_bytes(request))))
        except Exception as error:
            return FORMAT.to_bytes((False, str(error)))

    serve(descriptor, handle)
