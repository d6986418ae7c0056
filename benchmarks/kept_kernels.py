"""The machine code that `hloom warm` keeps, made once for a run of measurements."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.process import ROOT


@dataclass(frozen=True)
class KeptKernels:
    """A folder for which `hloom warm` ran as its user's first command, the seconds that took, and its content."""

    folder: Path
    seconds: float
    files: int
    bytes: int

    def text(self) -> str:
        """Returns the sentence on what it costs."""
        return f"`hloom warm` took {self.seconds:.0f} s and keeps {self.files} files with {self.bytes / 1e6:.1f} MB."


def caches_in(folder: Path) -> dict[str, str]:
    """Returns the environment variables of a process whose caches are in a folder."""
    return {"XDG_CACHE_HOME": str(folder / "cache")}


@functools.cache
def kept_kernels() -> KeptKernels:
    """Runs `hloom warm` in a folder that lasts as long as this process."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    started = time.perf_counter()
    command = [sys.executable, "-m", "hloom", "warm"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **caches_in(folder)}, stdout=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - started
    sizes = [path.stat().st_size for path in folder.rglob("*.o")]
    return KeptKernels(folder, seconds, len(sizes), sum(sizes))


@contextmanager
def folder_with_kept_kernels() -> Iterator[Path]:
    """Makes a folder for a process whose caches have what `hloom warm` keeps, and no code of any program."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(shutil.copytree(kept_kernels().folder, made, dirs_exist_ok=True))
