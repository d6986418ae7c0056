"""Pass rates as data: counts for each part of a suite, and the tests that hloom alone fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from jax_tests.results import MINE, PASSED, PEER, SKIPPED, Comparison, Results
from jax_tests.results import read as read_results
from xla_tests.results import Record
from xla_tests.results import read as read_records


@dataclass(frozen=True)
class Part:
    """The counts of a part of a suite, such as a file.

    Of `tests` in all, `ran` ran on both sides, `expected` of them passed on the peer, and `passed` of these on hloom.
    """

    name: str
    tests: int
    ran: int
    expected: int
    passed: int


@dataclass(frozen=True)
class Suite:
    """The results of a suite; `lost` are tests that pass on the peer and fail on hloom, with the error."""

    version: str
    parts: tuple[Part, ...]
    lost: Mapping[str, str]

    @property
    def total(self) -> Part:
        counts = [(part.tests, part.ran, part.expected, part.passed) for part in self.parts]
        return Part("total", *map(sum, zip(*counts)))

    @staticmethod
    def of(version: str, comparisons: Iterable[tuple[Comparison, int]]) -> Suite:
        """Returns the suite of compared files, each with the number of its tests."""
        parts: list[Part] = []
        lost: dict[str, str] = {}
        for files, tests in comparisons:
            expected, failed = len(files.expected), files.lost
            parts.append(Part(files.file, tests, len(files.both), expected, expected - len(failed)))
            lost |= {result.test: f"{result.outcome}: {result.error}" for result in failed}
        return Suite(version, tuple(parts), lost)


def jax(folder: Path, version: str) -> Suite:
    """Reads results of `tools/run_jax_tests.py`, one part for each file."""
    return Suite.of(version, _compared(folder, sorted((folder / MINE).rglob("*.jsonl")), folder / "collected"))


def array_api(folder: Path, version: str) -> Suite:
    """Reads results of `tools/run_library_tests.py` for the tests of the array API."""
    name = "array-api-tests"
    return Suite.of(version, _compared(folder, [folder / MINE / f"{name}.jsonl"], folder / "collected" / name))


def _compared(folder: Path, files: Iterable[Path], collected: Path) -> Iterator[tuple[Comparison, int]]:
    """The comparison of each test file in files of results, and the number of its tests."""
    for path in files:
        mine, peer = read_results(path), read_results(folder / PEER / path.relative_to(folder / MINE))
        for file in dict.fromkeys(test.partition("::")[0] for test in mine):
            known = sorted(collected.rglob(f"{Path(file).stem}*.json"))
            tests = len(json.loads(known[0].read_text())) if known else len(mine)
            yield Comparison(Path(file).stem, _of(file, peer), _of(file, mine)), tests


def _of(file: str, results: Results) -> Results:
    return {test: result for test, result in results.items() if test.startswith(f"{file}::")}


def stablehlo(folder: Path, version: str) -> Suite:
    """Reads results of `tools/run_stablehlo_tests.py`: files with checks, for each folder and backend.

    Each file states its results: all are expected to pass.
    """
    parts: list[Part] = []
    lost: dict[str, str] = {}
    for path in sorted(folder.rglob("*.jsonl")):
        results = read_results(path)
        checked = {test: result for test, result in results.items() if result.outcome != SKIPPED}
        failed = {test: result for test, result in checked.items() if result.outcome != PASSED}
        name = f"{path.relative_to(folder).with_suffix('').as_posix()}"
        backend, _, where = name.partition("/")
        parts.append(Part(f"{where}, {backend}", len(results), *[len(checked)] * 2, len(checked) - len(failed)))
        lost |= {f"{test}, {backend}": result.error for test, result in failed.items()}
    return Suite(version, tuple(parts), lost)


def xla(folder: Path, version: str) -> Suite:
    """Reads results of `tools/run_xla_tests.py`: of the modules that XLA accepts those that hloom loads and prints, and
    of those that XLA runs those with its results, on the interpreter and compiled.
    """
    records = [record for path in sorted(folder.rglob("*.jsonl")) for record in read_records(path).values()]
    accepted = [record for record in records if record.accepted]
    ran = [record for record in accepted if record.ran]
    read = _part("loaded, printed and read by XLA", records, accepted, _comes_back)
    same = _part("run with XLA's results", records, ran, _same)
    bad = [r for r in accepted if not _comes_back(r) or (r.ran and not _same(r))]
    return Suite(version, (read, same), {f"{r.file}:{r.line}": r.verdict for r in bad})


def _part(name: str, records: list[Record], expected: list[Record], passes: Callable[[Record], bool]) -> Part:
    return Part(name, len(records), len(expected), len(expected), sum(map(passes, expected)))


def _comes_back(record: Record) -> bool:
    return not (record.error or record.round_trip or record.unread)


def _same(record: Record) -> bool:
    return not record.error and not any(record.results.values())


READERS = {"jax": jax, "stablehlo": stablehlo, "xla": xla, "array_api": array_api}
"""Readers of the folders of results, by the name of the suite."""


def read(path: Path) -> dict[str, Suite]:
    """Reads the recorded results of all suites."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {
        name: Suite(each["version"], tuple(Part(**part) for part in each["parts"]), each["lost"])
        for name, each in found.items()
    }


def write(path: Path, suites: Mapping[str, Suite]) -> None:
    """Writes the results of all suites."""
    kept = {name: asdict(suites[name]) for name in READERS if name in suites}
    path.write_text(json.dumps(kept, indent=1) + "\n")
