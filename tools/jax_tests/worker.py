"""Worker process that runs chosen tests of one file with pytest, and reports each result through a pipe.

    python worker.py --jax_test_dut=cpu CHECKOUT FILE PIPE [CHOSEN]

FILE is relative to CHECKOUT. A line of JSON is written to the file descriptor PIPE when a test begins,
`{"begins": id}`, and one when it has ended, with the fields of `results.Result`. CHOSEN is a file with a JSON list of
test ids; without it the tests are only collected, and `{"collected": id}` is written for each. JAX reads its flag
`--jax_test_dut` from `sys.argv` by itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import jax._src.pallas
import pytest

SETTINGS = ("pytest.ini", "pyproject.toml", "setup.cfg")
MAX_ERROR = 400
MAX_DETAILS = 6000


class Reporter:
    """A pytest plugin: keeps the chosen tests, and reports on each as soon as it begins and ends."""

    def __init__(self, pipe: int, chosen: frozenset[str] | None) -> None:
        self.pipe = pipe
        self.chosen = chosen
        self.reports: list[pytest.TestReport] = []
        self.began = 0.0

    def say(self, **message: Any) -> None:
        os.write(self.pipe, json.dumps(message).encode() + b"\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.say(broken=str(report.longrepr)[-MAX_DETAILS:])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is None:
            for item in items:
                self.say(collected=item.nodeid)
            items.clear()
        else:
            items[:] = [item for item in items if item.nodeid in self.chosen]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.reports, self.began = [], time.monotonic()
        self.say(begins=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        outcome, error, details = verdict(self.reports)
        seconds = round(time.monotonic() - self.began, 3)
        self.say(test=nodeid, outcome=outcome, seconds=seconds, error=error, details=details)


def verdict(reports: list[pytest.TestReport]) -> tuple[str, str, str]:
    """Returns outcome, error and traceback of a test, from the reports on its setup, call, subtests and teardown."""
    for report in reports:
        if report.failed:
            return "failed", summary(report), str(report.longrepr)[-MAX_DETAILS:]
    for report in reports:
        # A skipped subtest does not skip its test; only those reports have a context.
        if report.skipped and not hasattr(report, "context"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            return "skipped", reason[:MAX_ERROR], ""
    return "passed", "", ""


def summary(report: pytest.TestReport) -> str:
    """Returns the exception and the first lines of its message in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    message = crash.message if crash else str(report.longrepr)
    return " ".join(message.split())[:MAX_ERROR]


def main() -> int:
    checkout, file, pipe, *chosen = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    for package in (jax._src, jax._src.pallas):  # helpers of tests are not in the installed package
        package.__path__.append(str(Path(checkout, *package.__name__.split("."))))
    reporter = Reporter(int(pipe), frozenset(json.loads(Path(chosen[0]).read_text())) if chosen else None)
    settings = next(path for name in SETTINGS if (path := Path(checkout, name)).exists())
    options = [f"--rootdir={checkout}", f"--config-file={settings}", "-q", "-p", "no:cacheprovider"]
    return int(pytest.main([*options, str(Path(checkout, file))], plugins=[reporter]))


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    # Skip exit handlers, such as joining a backend's threads: they are not tested.
    os._exit(status)
