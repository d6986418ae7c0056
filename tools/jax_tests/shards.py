"""Runs tests in worker processes: a test that crashes or hangs ends its process, but affects no other test."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jax_tests.results import CRASHED, HUNG, PEER, Result

WORKER = Path(__file__).with_name("worker.py")
COLLECTING_SECONDS = 300.0
DEVICES = 8


@dataclass(frozen=True)
class Setting:
    """The setting of a test run: a checkout, an interpreter, and a platform, which JAX's tests take for the CPU."""

    checkout: Path
    platform: str
    x64: bool = False
    seconds: float = 120.0  # for each test
    devices: int = DEVICES
    python: str = sys.executable
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        """Returns the environment variables of workers: as in JAX's own CI, with the setting's variables last."""
        flags = os.environ.get("XLA_FLAGS", "")
        if self.devices > 1:
            flags += f" --xla_force_host_platform_device_count={self.devices}"
        return {
            **os.environ,
            # Some tests want the CPU beside the default platform.
            "JAX_PLATFORMS": ",".join(dict.fromkeys([self.platform, "cpu"])),
            "JAX_ENABLE_X64": str(int(self.x64)),
            "JAX_SKIP_SLOW_TESTS": "true",
            "XLA_FLAGS": flags.strip(),
            "HLOOM_NUM_DEVICES": str(self.devices),
            "PYTHONFAULTHANDLER": "1",
            **self.variables,
        }


class Broken(Exception):
    """A test file that cannot be imported, or a worker that ended before its first test."""


@dataclass
class Worker:
    """A worker process and the messages that it sends."""

    setting: Setting
    file: str
    chosen: Path | None = None
    log: Any = field(default_factory=tempfile.TemporaryFile)

    def __enter__(self) -> Worker:
        self.pipe, theirs = os.pipe()
        command = [self.setting.python, "-P", WORKER, "--jax_test_dut=cpu", self.setting.checkout, self.file, theirs]
        self.process = subprocess.Popen(
            [str(part) for part in command] + ([str(self.chosen)] if self.chosen else []),
            env=self.setting.environment(),
            pass_fds=[theirs],
            cwd=tempfile.gettempdir(),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(theirs)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.pipe)
        self.log.close()

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yields the messages of the worker until it ends. Raises TimeoutError if it is silent for too long."""
        rest, patience = b"", max(COLLECTING_SECONDS, self.setting.seconds)
        while True:
            ready, _, _ = select.select([self.pipe], [], [], patience)
            if not ready:
                raise TimeoutError
            if not (received := os.read(self.pipe, 1 << 16)):
                return
            *lines, rest = (rest + received).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "broken" in message:
                    raise Broken(message["broken"])
                patience = self.setting.seconds if "begins" in message else COLLECTING_SECONDS
                yield message

    def output(self, size: int = 6000) -> str:
        """Returns the end of the process's output."""
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-size:]

    def death(self) -> str:
        """Waits for the process, and describes how it ended."""
        status = self.process.wait()
        return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def collect(setting: Setting, file: str) -> list[str]:
    """Returns the ids of all tests of a file, whose path is relative to the checkout; Broken without any."""
    with Worker(setting, file) as worker:
        found = [message["collected"] for message in worker.messages()]
        if not found:
            raise Broken(f"{file}: no test was found\n{worker.output()}")
        return found


def collected(setting: Setting, file: str, path: Path) -> list[str]:
    """Returns the tests of a file, cached at `path`; collected on the peer's platform, so that both run the same
    tests.
    """
    if not path.exists():
        tests = collect(replace(setting, platform=PEER), file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tests, indent=0))
    kept: list[str] = json.loads(path.read_text())
    return kept


def sampled(tests: list[str], count: int) -> list[str]:
    """Returns the `count` tests whose names have the smallest hashes, in the order of the file."""
    chosen = set(sorted(tests, key=lambda test: hashlib.sha256(test.encode()).digest())[:count])
    return [test for test in tests if test in chosen]


def run(setting: Setting, file: str, tests: list[str]) -> Iterator[Result]:
    """Runs tests of a file, in a new process after each crash, and yields their results."""
    left = dict.fromkeys(tests)
    while left:
        before = len(left)
        for result in _run_until_crash(setting, file, list(left)):
            del left[result.test]
            yield result
        if len(left) == before:
            raise Broken(f"{file}: none of {before} tests were found, such as {next(iter(left))}")


def _run_until_crash(setting: Setting, file: str, tests: list[str]) -> Iterator[Result]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as chosen:
        json.dump(tests, chosen)
        chosen.flush()
        with Worker(setting, file, Path(chosen.name)) as worker:
            running, began = "", time.monotonic()
            try:
                for message in worker.messages():
                    running, began = message.get("begins", ""), time.monotonic()
                    if "test" in message:
                        yield Result(**message)
                ending, error = CRASHED, worker.death()
            except TimeoutError:
                ending, error = HUNG, f"longer than {setting.seconds:g} s"
            if running:
                yield Result(running, ending, round(time.monotonic() - began, 3), error, worker.output())
            elif ending == HUNG:
                raise Broken(f"{file}: nothing happens: {worker.output()}")
