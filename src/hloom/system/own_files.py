"""Files that only this user can have written: checks of folders and files, and the user's secret key.

A file or folder is the user's own if it belongs to the user that the process runs as, and nobody else may write to it.
All others are ignored, with one warning for each folder.
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

from hloom.system.machine import cache_folder_of_user, user_id

KEY_BYTES = 32
_READING = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Further flags for reading: do not follow links, and do not block until a pipe has a writer."""


def is_own_folder(folder: Path) -> bool:
    """Whether a folder exists and is the user's own."""
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
    """Creates a folder that only this user may read, unless it exists; returns whether it is the user's own."""
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return is_own_folder(folder)


def read_own(path: Path) -> bytes | None:
    """Reads a file of the user's own and updates its access time; None if there is none."""
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _READING)) as file:
            status = os.fstat(file.fileno())
            if _is_own(status) and stat.S_ISREG(status.st_mode):
                os.utime(file.fileno() if os.utime in os.supports_fd else path)
                return file.read()
    except OSError as error:
        if error.errno == errno.ELOOP:
            _warn(path.parent, f"{path.name} is a link")
        return None
    _warn(path.parent, f"{path.name} is of user {status.st_uid} and has mode {stat.filemode(status.st_mode)}")
    return None


def write_own(path: Path, *parts: bytes) -> None:
    """Writes a file into a folder of the user's own, atomically; OSError if that fails."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(parts)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def user_key() -> bytes | None:
    """A secret of the user, created on first use; None if there is no folder for it.

    It is always in the user's own cache folder, wherever other files are kept: files from elsewhere have another
    signature.
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
    is_secret = _is_own(status, stat.S_IRWXG | stat.S_IRWXO)
    return stat.S_ISREG(status.st_mode) and is_secret and status.st_size == KEY_BYTES


def _make_key(path: Path) -> None:
    """Creates the key; if several processes do at once, the first one's key stays."""
    new = path.with_name(f".{secrets.token_hex(8)}.part")
    write_own(new, secrets.token_bytes(KEY_BYTES))
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()


def _is_own(status: os.stat_result, rights: int = stat.S_IWGRP | stat.S_IWOTH) -> bool:
    """Whether a file or folder belongs to this user, and nobody else has one of these rights to it."""
    user = user_id()
    return user is None or (status.st_uid == user and not status.st_mode & rights)


_warned: set[Path] = set()


def _warn(folder: Path, reason: str) -> None:
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"hloom reads nothing in {folder} that others may have written: {reason}; "
            "what is kept there has to belong to you alone (chmod go-w, chown)",
            stacklevel=2,
        )
