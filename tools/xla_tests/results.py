"""Results of the comparison: records as lines of JSON, and verdicts over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import json_lines

SLOWER = 10.0
SHORTEST = 1e-3  # seconds below which a run is not slow: the cost of a call is measured elsewhere


@dataclass
class Record:
    """The results of a module on both sides. Errors are "" if there were none; `ran` is whether XLA's CPU backend ran
    it.
    """

    digest: str
    file: str
    line: int
    xla_error: str = ""  # of the parser, or how the process ended
    error: str = ""  # of hloom, on loading
    round_trip: str = ""
    unread: str = ""  # of XLA's parser, for the text that hloom writes
    ran: bool = False
    xla_run_error: str = ""
    random: bool = False  # results may not be compared
    results: dict[str, str] = field(default_factory=dict)  # backend -> error or difference, "" if there is none
    seconds: dict[str, float] = field(default_factory=dict)  # "xla" and backends
    compiling: float = 0.0
    host: list[str] = field(default_factory=list)  # the parts of the compiled program that the interpreter runs

    @property
    def accepted(self) -> bool:
        return not self.xla_error

    @property
    def slow(self) -> bool:
        """Whether the compiled program takes 10 times as long as XLA's."""
        mine, theirs = self.seconds.get("cpu", 0.0), self.seconds.get("xla", 0.0)
        return self.ran and mine > max(SLOWER * theirs, SHORTEST)

    @property
    def verdict(self) -> str:
        """The first problem, "" if there is none."""
        if self.error.startswith(("bare", "killed", "exit status", "took")):
            return f"no hloom error: {self.error}"
        if not self.accepted:
            return "" if self.error else f"accepted here alone; XLA: {self.xla_error}"
        if self.error:
            return f"refused: {self.error}"
        if self.round_trip:
            return f"does not come back: {self.round_trip}"
        if self.unread:
            return f"XLA does not read it: {self.unread}"
        for backend, message in self.results.items():
            if message and (self.ran or not message.startswith("cannot")):
                return f"{backend}: {message}"
        if self.slow:
            return f"slow: {self.seconds['cpu']:.4g} s, XLA {self.seconds['xla']:.4g} s"
        if self.host and self.ran:
            return f"calls back: {self.host[0]}"
        return ""


def read(path: Path) -> dict[str, Record]:
    """Reads the records in a file, by digest; of several the last one counts."""
    return json_lines.read(path, Record, "digest")


@dataclass(frozen=True)
class Summary:
    """The counts in a row of the table."""

    modules: int
    accepted: int
    loaded: int
    came_back: int
    ran: int
    same: int
    slow: int
    host: int

    @staticmethod
    def of(records: Iterable[Record]) -> Summary:
        every = list(records)
        accepted = [record for record in every if record.accepted]
        ran = [record for record in accepted if record.ran and not record.error]
        return Summary(
            modules=len(every),
            accepted=len(accepted),
            loaded=sum(not record.error for record in accepted),
            came_back=sum(not record.error and not record.round_trip and not record.unread for record in accepted),
            ran=len(ran),
            same=sum(not any(record.results.values()) for record in ran),
            slow=sum(record.slow for record in ran),
            host=sum(bool(record.host) for record in ran),
        )
