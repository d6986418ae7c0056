"""Worker processes that handle one request at a time; one that crashes or hangs loses only that request."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Handler = Callable[[Any], Any]


class Died(Exception):
    """The process ended during a request; the message says how, and ends with the last lines of its output."""


class TookTooLong(Exception):
    """The request was not handled in time, and its process was killed."""


class Process:
    """A process that calls a handler for each request; `make`, a module-level function, creates the handler in the
    process.
    """

    def __init__(self, make: Callable[[], Handler], memory: int | None = None) -> None:
        self.make = make
        self.memory = memory
        self.process: Any = None
        self.connection: Connection | None = None
        self.log: Any = None

    def call(self, request: Any, seconds: float) -> Any:
        """Sends a request and returns the reply. Raises Died, or TookTooLong after `seconds`."""
        self.send(request)
        assert self.connection is not None
        if not self.connection.poll(seconds):
            self.stop()
            raise TookTooLong(f"took more than {seconds:g} s")
        return self.receive()

    def send(self, request: Any) -> None:
        """Sends a request, starting the process if necessary; `connection` is ready when `receive` can return the
        reply.
        """
        if self.process is None or not self.process.is_alive():
            self.start()
        assert self.connection is not None
        self.connection.send(request)

    def receive(self) -> Any:
        assert self.connection is not None
        try:
            return self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            status, output = self.process.exitcode, self.output()
            self.stop()
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        raise Died(f"{how}: {output}")

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the process ends
        self.connection, other = context.Pipe()
        # The log is passed as a path: a spawned process inherits no other descriptors.
        log = f"/proc/{os.getpid()}/fd/{self.log.fileno()}"
        self.process = context.Process(target=_serve, args=(other, self.make, log, self.memory), daemon=True)
        self.process.start()
        other.close()

    def output(self, size: int = 600) -> str:
        """Returns the last `size` characters of the process's standard error, in one line."""
        self.log.seek(0)
        return " ".join(self.log.read().decode(errors="replace")[-size:].split())

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.log.close()
        self.process = None


def _serve(connection: Connection, make: Callable[[], Handler], log: str, memory: int | None) -> None:
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    handle = make()
    while True:
        try:
            request = connection.recv()
        except EOFError:
            return
        connection.send(handle(request))
