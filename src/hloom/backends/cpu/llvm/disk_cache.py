"""Cache of compiled programs on disk, shared by the processes of a user.

There are three kinds of files, each signed with the user's key. Object files are named by a digest of the LLVM IR, the
processor, and the versions of the packages involved; those of functions that programs share by a digest of their name
and of hloom's own code in place of the IR, so that a program that finds them need not write them. Programs, which save
the compilation from HLO to LLVM IR too, are named by a digest of the module and of hloom's own code: after a change of
a pass no program is found, but most object files are. Empty files say that there are programs with the same list of
opcodes, which is known before the digest.

Files are created atomically, and damaged files count as missing, so any number of processes may share the folder. The
folder is `$HLOOM_CACHE_DIR` (empty: no cache), by default hloom's folder among the user's caches. If it cannot be
written to, or if others may write to it (`system/own_files.py`), programs are compiled each time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hloom.errors import ArgumentError
from hloom.runtime.serialization import DataFormat
from hloom.system.machine import cache_folder_of_user
from hloom.system.own_files import is_own_folder, make_own_folder, read_own, user_key, write_own

LIMIT_BYTES = 1 << 30
"""Size of the folder in bytes above which the least recently used files are removed."""
_SIGNATURE_BYTES = 32


def cached(text: str, target: str, make: Callable[[], bytes]) -> bytes:
    """Returns the object file for LLVM IR and a target, calling `make` if it is not in the cache.

    The target is everything besides the text that the code depends on.
    """
    path = _object_path(text, target)
    if path is None:
        return make()
    content = _read(path)
    if content is None:
        content = make()
        _write(path, content)
    return content


def find_object(text: str, target: str) -> bytes | None:
    """Returns the object file for a text and a target; None if it is not in the cache."""
    path = _object_path(text, target)
    return _read(path) if path is not None else None


def _object_path(text: str, target: str) -> Path | None:
    folder = cache_folder()
    return folder / f"{_digest(text, target)}.o" if folder is not None else None


def find_program(key: str, form: DataFormat) -> Any:
    """Returns the program kept under a key by a process with the same hloom code; None if there is none."""
    path = _path_of(key)
    content = _read(path) if path is not None else None
    if content is None:
        return None
    try:
        return form.from_bytes(content)
    except ArgumentError:
        return None


def keep_program(key: str, program: Any, form: DataFormat) -> None:
    """Writes a program in a format to the cache."""
    path = _path_of(key)
    if path is not None:
        with contextlib.suppress(ArgumentError):  # nested too deeply
            _write(path, form.to_bytes(program))


def has_kind(kind: str) -> bool:
    """Whether a program of a kind may be in the cache. Keys take long to make, kinds do not."""
    path = _path_of(kind, "kind")
    return path is not None and path.exists()


def keep_kind(kind: str) -> None:
    """Notes that a program of a kind is in the cache."""
    path = _path_of(kind, "kind")
    if path is not None:
        _write(path, b"")


def _path_of(key: str, extension: str = "program") -> Path | None:
    folder, version = cache_folder(), code_version()
    return folder / f"{_digest(key, version)}.{extension}" if folder and version else None


@functools.cache
def code_version() -> str:
    """Returns a digest of hloom's code and the versions of packages involved; "" if it cannot be determined."""
    try:
        files = sorted(Path(__file__).parents[3].rglob("*.py"))
        stamps = [(str(path), status.st_mtime_ns, status.st_size) for path in files for status in [path.stat()]]
        scipy = _version_file("scipy").read_text()  # its LAPACK determines workspace sizes
    except OSError:
        return ""
    if not stamps:
        return ""
    return _digest(str(stamps), f"{sys.version} {np.__version__} {ml_dtypes.__version__} {scipy}")


def _version_file(package: str) -> Path:
    """Returns the file with a package's version, which takes less time to find than the metadata of distributions."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin if spec and spec.origin else package).with_name("version.py")


def cache_folder() -> Path | None:
    """Returns the folder of the cache; None if there is no cache."""
    chosen = os.environ.get("HLOOM_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    return cache_folder_of_user()


def _digest(text: str, target: str) -> str:
    return hashlib.sha256(f"{target}\n{text}".encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    content = read_own(path) if is_own_folder(path.parent) else None
    if content is None:
        return None
    body = content[_SIGNATURE_BYTES:]
    signature = _signature(path, body)
    return body if signature is not None and hmac.compare_digest(signature, content[:_SIGNATURE_BYTES]) else None


def _write(path: Path, body: bytes) -> None:
    with contextlib.suppress(OSError):
        signature = _signature(path, body) if make_own_folder(path.parent) else None
        if signature is not None:
            write_own(path, signature, body)
            _prune(path.parent)


def _signature(path: Path, body: bytes) -> bytes | None:
    """Returns the signature of a file's name and content by the user's key; None if there is no key."""
    key = user_key()
    if key is None:
        return None
    signature = hmac.new(key, path.name.encode(), "sha256")
    signature.update(body)
    return signature.digest()


def _prune(folder: Path) -> None:
    """Prunes the folder after one write in 64, chosen at random."""
    if os.urandom(1)[0] % 64:
        return
    remove_oldest(folder, LIMIT_BYTES)


def remove_oldest(folder: Path, limit: int) -> None:
    """Removes the least recently used files until the rest takes at most `limit` bytes."""
    files = []
    for path in (each for form in ("o", "program", "kind") for each in folder.glob(f"*.{form}")):
        with contextlib.suppress(OSError):
            status = path.stat()
            files.append((status.st_mtime, status.st_size, path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= limit:
            break
        path.unlink(missing_ok=True)
        total -= size
