"""Comparison of modules on both sides, one at a time, each side in a process of its own."""

from __future__ import annotations

import time
from typing import Any

from processes import Died, Process, TookTooLong
from xla_tests import mine, peer
from xla_tests.modules import HloText
from xla_tests.results import Record

MEMORY = 12 << 30
SEED = 0
SETTLED = 0.3
"""The time after which the peer's threads, which spin after a run, are idle, in seconds."""
BACKENDS = ("interpreter", "cpu")


class Pair:
    """A process of XLA and one of hloom. Steps that take longer than `seconds` fail."""

    def __init__(self, seconds: float, load_only: bool) -> None:
        self.peer, self.mine = Process(peer.make), Process(mine.make, MEMORY)
        self.seconds = seconds
        self.load_only = load_only

    def close(self) -> None:
        self.peer.stop()
        self.mine.stop()

    def compare(self, text: HloText) -> Record:
        record = Record(text.digest, text.file, text.line)
        parsed = self._call(self.peer, "parse", text.text)
        record.xla_error = parsed.get("error", "")
        loaded = self._call(self.mine, "load", text.text, parsed.get("text"))
        record.error, record.round_trip = loaded.get("error", ""), loaded.get("difference", "")
        record.random = loaded.get("random", False)
        for written in loaded.get("written", ()) if record.accepted else ():
            record.unread = record.unread or self._call(self.peer, "parse", written).get("error", "")
        if record.accepted and record.error:
            refused = self._call(self.peer, "compile", text.text).get("error", "")
            record.xla_error = refused and f"parses, and does not compile: {refused}"
        if record.accepted and not record.error and not self.load_only:
            self._run(record, text.text, *loaded["devices"])
        return record

    def _run(self, record: Record, text: str, replicas: int, partitions: int) -> None:
        if replicas * partitions > peer.DEVICES:
            record.xla_run_error = f"needs {replicas * partitions} devices"
            return
        drawn = self._call(self.mine, "draw", SEED, replicas, partitions)
        if "error" in drawn:
            record.xla_run_error = drawn["error"]
            return
        theirs = self._call(self.peer, "run", drawn["text"] or text, replicas, partitions, drawn["arguments"])
        record.ran, record.xla_run_error = "results" in theirs, theirs.get("error", "")
        expected = None
        if record.ran:
            record.seconds["xla"] = theirs["seconds"]
            expected = None if record.random else theirs["results"]
        for backend in BACKENDS:
            if self.mine.process is None:  # the previous backend took too long
                self._call(self.mine, "load", text)
                self._call(self.mine, "draw", SEED, replicas, partitions)
            self._run_mine(record, backend, replicas, expected)

    def _run_mine(self, record: Record, backend: str, replicas: int, expected: Any) -> None:
        if record.ran:
            time.sleep(SETTLED)
        ran = self._call(self.mine, "run", backend, replicas, expected, backend == "cpu")
        record.results[backend] = ran.get("difference", f"cannot: {ran.get('error')}")
        if "seconds" in ran:
            record.seconds[backend] = ran["seconds"]
        if backend == "cpu":
            record.compiling, record.host = ran.get("compiling", 0.0), ran.get("host", [])

    def _call(self, process: Process, *request: Any) -> dict[str, Any]:
        try:
            result: dict[str, Any] = process.call(request, self.seconds)
            return result
        except (Died, TookTooLong) as error:
            return {"error": str(error)}
