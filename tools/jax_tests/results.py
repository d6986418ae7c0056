"""Test results: records as lines of JSON, comparison of two platforms, and failures grouped by cause."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import json_lines

PEER, MINE = "cpu", "hloom"
PASSED, FAILED, SKIPPED, CRASHED, HUNG = "passed", "failed", "skipped", "crashed", "hung"


@dataclass(frozen=True)
class Result:
    """The result of a test: `outcome` is one of the five above, `error` one line, `details` the traceback."""

    test: str
    outcome: str
    seconds: float
    error: str = ""
    details: str = ""

    @property
    def bad(self) -> bool:
        return self.outcome not in (PASSED, SKIPPED)


Results = Mapping[str, Result]


def read(path: Path) -> dict[str, Result]:
    """Reads the results in a file, by test id; of several results of a test the last one counts."""
    return json_lines.read(path, Result, "test")


@dataclass(frozen=True)
class Comparison:
    """The tests of one file that ran on both platforms: the peer is JAX's CPU backend."""

    file: str
    peer: Results
    mine: Results

    @property
    def both(self) -> list[str]:
        return [test for test in self.peer if test in self.mine]

    @property
    def expected(self) -> list[str]:
        """The tests that passed on the peer."""
        return [test for test in self.both if self.peer[test].outcome == PASSED]

    @property
    def lost(self) -> list[Result]:
        """The results of tests that passed on the peer but not here: failures, and tests that are skipped here only."""
        return [self.mine[test] for test in self.expected if self.mine[test].outcome != PASSED]

    @property
    def rate(self) -> float:
        return 1 - len(self.lost) / len(self.expected) if self.expected else 1.0

    def skipped(self) -> tuple[int, int]:
        """Returns the numbers of tests that were skipped on the peer and here."""
        peer, mine = ([of[test].outcome for test in self.both].count(SKIPPED) for of in (self.peer, self.mine))
        return peer, mine

    def seconds(self) -> tuple[float, float]:
        peer, mine = (sum(of[test].seconds for test in self.both) for of in (self.peer, self.mine))
        return peer, mine


def total(comparisons: Iterable[Comparison]) -> Comparison:
    """Merges the comparisons of all files."""
    comparisons = list(comparisons)
    peer = {test: result for comparison in comparisons for test, result in comparison.peer.items()}
    mine = {test: result for comparison in comparisons for test, result in comparison.mine.items()}
    return Comparison("total", peer, mine)


@dataclass(frozen=True)
class Cause:
    """Failures with the same message up to numbers, shapes and addresses."""

    message: str
    results: list[Result]

    @property
    def functions(self) -> Counter[str]:
        """The test functions concerned: generated cases of a function differ in the number at the end of the name."""
        return Counter(function(result.test) for result in self.results)


def causes(results: Iterable[Result]) -> Iterator[Cause]:
    """Yields the failures grouped by cause, the most frequent first."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(normalised(result), []).append(result)
    for message in sorted(groups, key=lambda message: -len(groups[message])):
        yield Cause(message, groups[message])


def function(test: str) -> str:
    """Returns file and function of a test id: `tests/nn_test.py::NNTest::testRelu3` is of `nn_test::testRelu`."""
    file, *_, name = test.split("::")
    return f"{Path(file).stem}::{name.rstrip('0123456789')}"


VARYING = [
    (re.compile(r"0x[0-9a-fA-F]+"), "0x.."),
    (re.compile(r"tensor<[^>]*>"), "tensor<..>"),
    (re.compile(r"\b(pred|token|bf16|[cfsu]\d+(?:e\dm\d\w*)?)\[[^\]]*\](\{[^}]*\})?"), r"\1[..]"),
    (re.compile(r"[%@][\w.\-]+"), "%.."),
    (re.compile(r"\([\d, ]*\)|\[[\d, ]*\]"), "(..)"),
    (re.compile(r"(?<![a-zA-Z_])(?<![A-Z]-)-?\d+(\.\d+)?(e[+-]?\d+)?"), "#"),
]
MAX_CAUSE = 160


def normalised(result: Result) -> str:
    """Returns the message of a failure without the parts that vary between tests that fail for one reason."""
    message = result.error
    for pattern, replacement in VARYING:
        message = pattern.sub(replacement, message)
    if result.outcome != FAILED:
        message = f"{result.outcome}: {message}"
    return message[:MAX_CAUSE]
