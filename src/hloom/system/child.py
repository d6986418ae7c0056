"""Child processes that answer requests: for work that may abort, hang or run out of memory.

    child = Child("hloom.fuzz.runner", {"HLOOM_NUM_THREADS": "3"})
    reply = child.request(content, seconds=20)

The module of the child calls `serve(descriptor, handle)`. Requests and replies are bytes, such as those of a
`DataFormat`. A child that died or was stopped is started again by the next request.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from multiprocessing import connection as connections
from multiprocessing.connection import Connection, Pipe

from hloom.errors import RunError
from hloom.system.machine import inheriting


class ChildDied(RunError):
    """The process of a child ended in a request: by a signal, or with a status."""


class ChildTimedOut(RunError):
    """A child did not answer in time, and was stopped."""


class Child:
    """A process that runs a Python module, with additional environment variables."""

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        self.module, self.environment = module, {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115

    def request(self, content: bytes, seconds: float | None = None) -> bytes:
        """Sends a request and returns the reply.

        Raises ChildDied or ChildTimedOut, with the last line that the child wrote to its standard error.
        """
        connection = self._started()
        try:
            connection.send_bytes(content)
            if not connection.poll(seconds):
                self.close()
                raise ChildTimedOut(f"{self.module} took more than {seconds:g} s")
            return connection.recv_bytes()
        except (EOFError, OSError):
            raise ChildDied(self._ending()) from None
        except BaseException:
            self.close()  # A reply that nobody waits for would be taken for that of the next request.
            raise

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def _started(self) -> Connection:
        if self._process is None or self._connection is None or self._process.poll() is not None:
            self.close()
            self._connection, theirs = Pipe()
            command = [sys.executable, "-c", f"import {self.module} as m; m.main({theirs.fileno()})"]
            self._process = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                **inheriting(theirs.fileno()),
            )
            theirs.close()
        return self._connection

    def _ending(self) -> str:
        assert self._process is not None
        status = self._process.wait()
        reason = signal.Signals(-status).name if status < 0 else f"status {status}"
        self.close()
        return f"{self.module} ended with {reason}: {self._last_error()}"

    def _last_error(self) -> str:
        """The last line of the standard error, or the check that failed, which a stack trace follows."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - 20_000))
        lines = self._errors.read().decode(errors="replace").strip().split("\n")
        return next((line for line in lines if "Check failed" in line), lines[-1])[:300]


def serve(descriptor: int, handle: Callable[[bytes], bytes]) -> None:
    """Answers requests on a file descriptor, or a handle of Windows, with `handle(request)` until its end."""
    # Pipes of Windows have a class of their own.
    connection: Connection = getattr(connections, "PipeConnection", Connection)(descriptor)
    with contextlib.suppress(EOFError, KeyboardInterrupt):
        while True:
            connection.send_bytes(handle(connection.recv_bytes()))
