"""Shared by all tests: paths, the cache of compiled programs, and XLA as a peer."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import hloom.bench.machine
import hloom.passes.optional
import hloom.system.garbage
from hloom.bench.limits import Bandwidth, Limits
from hloom.bench.peer_process import XlaPeer

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "corpus"
SPECIFICATION = ROOT / "docs" / "specification"

settings.register_profile("default", max_examples=50, deadline=None)
settings.load_profile("default")

# What tests compile stays out of the user's cache, and is compiled by what is tested.
_cache = tempfile.TemporaryDirectory(prefix="hloom-tests-")
os.environ["HLOOM_CACHE_DIR"] = _cache.name

# Some containers keep Python from writing bytecode: each process of a test would compile all of hloom again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Shells start what runs in the background with Ctrl-C ignored: tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Garbage of compilations is looked for less often than elsewhere: each time all objects of the session are visited.
hloom.system.garbage._NEW_OBJECTS = 5_000_000

# A defect of a pass that programs compile without is an error here.
hloom.passes.optional.strict = True

# Devices of the JAX platform: before any test makes JAX start its platforms.
os.environ["HLOOM_NUM_DEVICES"] = "4"


@pytest.fixture(scope="session")
def peer() -> Iterator[XlaPeer]:
    """XLA's CPU backend; tests that need it are skipped without jaxlib."""
    pytest.importorskip("jaxlib", reason="needs jaxlib, XLA's CPU backend")
    peer = XlaPeer()
    yield peer
    peer.close()


@pytest.fixture(scope="session", autouse=True)
def limits() -> Iterator[None]:
    """Profiles of tests are of a machine whose limits no kernel reaches: to measure them takes all cores for seconds."""
    with pytest.MonkeyPatch.context() as patch:
        known = Limits(2, 1e15, (Bandwidth(1 << 14, 1e14, 1e14, 1e14),))
        patch.setattr(hloom.bench.machine, "measure_limits", lambda *_: known)
        yield


@pytest.fixture(params=["interpreter", "cpu"])
def backend(request: pytest.FixtureRequest) -> str:
    """Parametrises a test with each backend."""
    return str(request.param)


@pytest.fixture
def older_objects_frozen() -> Iterator[None]:
    """Garbage collections of the test visit what it allocates, rather than the whole session, which takes a second."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def precision_of_jax() -> Iterator[None]:
    """Takes back 64-bit precision of JAX, which peers and some tests enable, so that tests run in any order."""
    yield
    if (jax := sys.modules.get("jax")) is not None and jax.config.jax_enable_x64:
        jax.config.update("jax_enable_x64", False)


# What a change breaks most often, and says so fastest: where things go, and pages that are made from the code.
FIRST = ("test_layers.py", "test_docs.py", "test_machine.py", "test_native.py", "test_report.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in FIRST)
    for cases in _sampled(items):
        for item in cases:
            item.add_marker("long")


def _sampled(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Yields for each test that is marked as sampled the cases that only the long run has.

    A hash of their names chooses them: cases at equal distances may have one value of an inner parameter all.
    """
    tests: defaultdict[tuple[Path, str], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("sampled"):
            tests[item.path, item.name.partition("[")[0]].append(item)
    for cases in tests.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        yield sorted(cases, key=lambda item: zlib.crc32(item.name.encode()))[marker.args[0] :]
