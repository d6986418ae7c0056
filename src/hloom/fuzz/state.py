"""The state of a fuzzing run, in a folder: counts of each job, and findings with minimal modules.

job-0.json                  counts of job 0, from which it goes on
current-0.pb                the case that job 0 is working on, as a snapshot
findings/NAME/finding.json  a finding: oracle, kind, message, operations, how often
findings/NAME/case.hlo      its reduced module
findings/NAME/case.pb       the same with arguments, a snapshot: `hloom run case.pb`
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hloom.errors import ArgumentError
from hloom.faults.case import Case
from hloom.files.formats import read_file, write_file
from hloom.files.snapshot import Snapshot
from hloom.ops.structure import Parameter, Tuple


@dataclass
class Counts:
    """Figures of a job so far; counts of pairs (opcode, element type) are keyed by `opcode type`."""

    seed: int = 0
    cpu_seconds: float = 0.0
    modules: int = 0
    instructions: int = 0
    comparisons: dict[str, int] = field(default_factory=dict)
    """Comparisons of results, by oracle."""
    refused: dict[str, int] = field(default_factory=dict)
    """Cases that an oracle does not apply to, by oracle."""
    known: dict[str, int] = field(default_factory=dict)
    """Differences of known classes, by class."""
    pairs: dict[str, int] = field(default_factory=dict)
    lines: dict[str, list[int]] = field(default_factory=dict)
    """Lines of hloom that ran, by file."""

    def count(self, what: dict[str, int], key: str) -> None:
        """Adds one to a count."""
        what[key] = what.get(key, 0) + 1

    def reached(self) -> Counter[tuple[str, str]]:
        """The counts of opcodes and of pairs, as the grammar takes them."""
        return Counter({(key.partition(" ")[0], key.partition(" ")[2]): n for key, n in self.pairs.items()})

    def add_pairs(self, found: Mapping[tuple[str, str], int]) -> None:
        """Adds the pairs of a module."""
        for (opcode, element_type), count in found.items():
            key = f"{opcode} {element_type}"
            self.pairs[key] = self.pairs.get(key, 0) + count


@dataclass
class Finding:
    """A violation with a reduced case."""

    oracle: str
    kind: str
    message: str
    operations: list[str]
    seed: int
    count: int = 1
    later: str = ""
    """A note that a person adds: the cause, or the change that mended it."""

    @property
    def signature(self) -> str:
        """A name for findings that are probably the same: oracle, kind, operations, and the line of an exception."""
        location = re.sub(r"[^\w]+", "-", self.message.partition(":")[0])[:50] if self.kind != "difference" else ""
        parts = [self.oracle, self.kind, *self.operations[:6], *([location] if location else [])]
        return re.sub(r"[^\w.+-]+", "_", "+".join(parts))[:150]


class State:
    """The folder of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            (folder / "findings").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArgumentError(f"{folder} is not a folder for findings: {error.strerror}") from None

    def load(self, job: int) -> Counts:
        """Returns the counts of a job, zeros for a new one."""
        path = self.folder / f"job-{job}.json"
        return Counts(**json.loads(read_file(path))) if path.exists() else Counts()

    def save(self, job: int, counts: Counts) -> None:
        """Writes the counts of a job, atomically."""
        write_file(self.folder / f"job-{job}.json", json.dumps(asdict(counts)).encode())

    def jobs(self) -> list[Counts]:
        """Returns the counts of all jobs."""
        return [Counts(**json.loads(read_file(path))) for path in sorted(self.folder.glob("job-*.json"))]

    def current(self, job: int) -> Path:
        """Returns the path of the case that a job is working on."""
        return self.folder / f"current-{job}.pb"

    def findings(self) -> list[tuple[Finding, Path]]:
        """Returns the findings with their folders, the most frequent first."""
        paths = sorted((self.folder / "findings").glob("*/finding.json"))
        found = [(Finding(**json.loads(read_file(path))), path.parent) for path in paths]
        return sorted(found, key=lambda pair: -pair[0].count)

    def add(self, finding: Finding, case: Case) -> bool:
        """Adds a finding, or counts it if there is one with its signature; returns whether it is new."""
        folder = self.folder / "findings" / finding.signature
        path = folder / "finding.json"
        if path.exists():
            known = Finding(**json.loads(read_file(path)))
            known.count += 1
            write_file(path, json.dumps(asdict(known), indent=1).encode())
            return False
        folder.mkdir(parents=True, exist_ok=True)
        save_case(case, folder / "case.pb")
        write_file(folder / "case.hlo", case.module.to_text().encode())
        write_file(path, json.dumps(asdict(finding), indent=1).encode())
        return True


def save_case(case: Case, path: Path) -> None:
    """Writes a case as a snapshot."""
    Snapshot(case.module, list(case.arguments or ())).save(path)


def operations_of(case: Case) -> list[str]:
    """Returns the opcodes of a case, sorted, without parameters and tuples."""
    return sorted({i.opcode for i in case.module.instructions() if not isinstance(i.op, Parameter | Tuple)})
