"""What was compiled, on disk, so that a program is compiled once and not once for each process.

There are two kinds of files, each with a checksum. Object files are named by the digest of the LLVM IR, the processor,
and the versions that take part. Programs, which spare the way from HLO to LLVM IR too, are named by the digest of the
module and of hloom's own code: whoever changes a pass finds no program, and most object files.

Files appear whole or not at all, and what is damaged counts as missing, so any number of processes may share the
folder. It is `$HLOOM_CACHE_DIR` (empty: nothing is kept), else hloom's folder among the user's caches. Where it cannot
be written to, programs are compiled each time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.runtime.machine import cache_home

LIMIT_BYTES = 1 << 30
"""The least recently used files go when all together take more."""
_CHECKSUM_BYTES = 32


def cached(text: str, target: str, make: Callable[[], bytes]) -> bytes:
    """The object file for LLVM IR and a target (everything else that the code depends on); made if it is not there."""
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / f"{_digest(text, target)}.o"
    found = _read(path)
    if found is None:
        found = make()
        _write(path, found)
    return found


def find_program(key: str) -> Any:
    """What `keep_program` kept under a key in a process that ran the same code of hloom; None if there is nothing."""
    path = _program_path(key)
    found = _read(path) if path is not None else None
    return None if found is None else pickle.loads(found)


def keep_program(key: str, program: Any) -> None:
    path = _program_path(key)
    if path is not None:
        _write(path, pickle.dumps(program, pickle.HIGHEST_PROTOCOL))


def _program_path(key: str) -> Path | None:
    folder, version = cache_folder(), code_version()
    return folder / f"{_digest(key, version)}.program" if folder and version else None


@functools.cache
def code_version() -> str:
    """Changes with every change of hloom's code, and with the packages that take part; "" where that cannot be told."""
    try:
        files = sorted(Path(__file__).parents[3].rglob("*.py"))
        stamps = [(str(path), status.st_mtime_ns, status.st_size) for path in files for status in [path.stat()]]
    except OSError:
        return ""
    if not stamps:
        return ""
    scipy = importlib.metadata.version("scipy")  # its LAPACK says how much workspace it needs
    return _digest(str(stamps), f"{sys.version} {np.__version__} {ml_dtypes.__version__} {scipy}")


def cache_folder() -> Path | None:
    """Where files are kept; None for nowhere."""
    chosen = os.environ.get("HLOOM_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    return _user_folder()


@functools.cache
def _user_folder() -> Path | None:
    home = cache_home()
    return home / "hloom" if home is not None else None


def _digest(text: str, target: str) -> str:
    return hashlib.sha256(f"{target}\n{text}".encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        content = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    body = content[_CHECKSUM_BYTES:]
    return body if hashlib.sha256(body).digest() == content[:_CHECKSUM_BYTES] else None


def _write(path: Path, body: bytes) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
        _prune(path.parent)


def _prune(folder: Path) -> None:
    """Looks at the whole folder now and then only: at one file in 64."""
    if os.urandom(1)[0] % 64:
        return
    remove_oldest(folder, LIMIT_BYTES)


def remove_oldest(folder: Path, limit: int) -> None:
    """Removes the least recently used files until the rest takes at most `limit` bytes."""
    files = []
    for path in (*folder.glob("*.o"), *folder.glob("*.program")):
        with contextlib.suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
