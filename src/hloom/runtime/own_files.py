"""Files that nobody but this user can have written: the folders they lie in, reading them, and the user's key.

A file or folder is one's own if it belongs to the user that the process runs as and nobody else may write to it. All
others are left alone, with one warning for each folder.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import secrets
import stat
import tempfile
import warnings
from pathlib import Path

from hloom.runtime.machine import cache_folder_of_user

KEY_BYTES = 32
_READING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Neither through a link, nor for as long as somebody writes to a pipe."""


def is_own_folder(folder: Path) -> bool:
    """Whether a folder is there and one's own."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if not stat.S_ISDIR(status.st_mode):
        return False
    if not _is_own(status):
        _warn(folder, f"it is of user {status.st_uid} and has mode {stat.filemode(status.st_mode)}")
    return _is_own(status)


def make_own_folder(folder: Path) -> bool:
    """Makes a folder that only this user may look into, unless one is there; whether it is one's own."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return is_own_folder(folder)


def read_own(path: Path) -> bytes | None:
    """What a file of one's own holds, which counts as used now; None where there is none."""
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, _READING)) as file:
            status = os.fstat(file.fileno())
            if _is_own(status) and stat.S_ISREG(status.st_mode):
                os.utime(file.fileno())
                return file.read()
    except OSError as error:
        if error.errno == errno.ELOOP:
            _warn(path.parent, f"{path.name} is a link")
        return None
    _warn(path.parent, f"{path.name} is of user {status.st_uid} and has mode {stat.filemode(status.st_mode)}")
    return None


def write_own(path: Path, *parts: bytes) -> None:
    """Writes a file, which appears whole or not at all, into a folder of one's own; OSError where that fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def user_key() -> bytes | None:
    """A secret of the user, made when first asked for; None where there is no folder for it.

    It lies in the user's own folder of caches, wherever else things are kept: what is brought from elsewhere is signed
    by another one.
    """
    folder = cache_folder_of_user()
    return _key_in(folder) if folder is not None else None


@functools.cache
def _key_in(folder: Path) -> bytes | None:
    path = folder / "key"
    if not make_own_folder(folder):
        return None
    with contextlib.suppress(OSError):
        if not _holds_key(path):
            path.unlink(missing_ok=True)
            _make_key(path)
    return read_own(path) if _holds_key(path) else None


def _holds_key(path: Path) -> bool:
    """Whether a file has the length of a key, and nobody else may read it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    is_secret = not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISREG(status.st_mode) and _is_own(status) and is_secret and status.st_size == KEY_BYTES


def _make_key(path: Path) -> None:
    """Of several processes that do so at once, the first one's key stays."""
    new = path.with_name(f".{secrets.token_hex(8)}.part")
    write_own(new, secrets.token_bytes(KEY_BYTES))
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


_warned: set[Path] = set()


def _warn(folder: Path, reason: str) -> None:
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"hloom reads nothing in {folder} that others may have written: {reason}; "
            "what is kept there has to belong to you alone (chmod go-w, chown)",
            stacklevel=2,
        )
