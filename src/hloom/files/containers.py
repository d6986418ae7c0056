"""Modules in other files: compressed ones, archives, XLA's dump folders, profiles, and functions that JAX exported.

| file | module |
|---|---|
| gzip | its content |
| zip archive, folder | the only module in it; of one that XLA dumped, before its optimisation |
| profile, `*.xplane.pb` | the only module that ran |
| `jax.export.Exported`, serialised | its StableHLO |

Where there are several, a path names one: `dump/module_0001.jit_f.before_optimizations.txt`, `dump.zip/module_0001..`,
`host.xplane.pb/jit_f(3)`.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hloom.errors import ArgumentError, ProtoError
from hloom.files.formats import BYTECODE_MAGIC, EXTENSIONS, read_file
from hloom.proto.wire import BYTES, fields_of

MAX_UNPACKED = 1 << 31
"""Largest size in bytes of an unpacked file."""
MAX_LISTED = 12
HEAD = 200
"""Bytes by which files of HLO text are told from others."""
_Members = dict[str, tuple[int, Callable[[], bytes]]]
"""The modules in a file: their sizes, and functions that read them, by their names."""
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_FIRST = ".before_optimizations."
"""Part of the name of a file in which XLA dumped a module as it was given."""


def read_module(path: str | os.PathLike[str]) -> bytes:
    """Reads the content of the module that a path names: of a file, or of a module in one of those above.

    Raises ArgumentError, with the paths of all modules if there are several.
    """
    try:
        at = Path(path)
        holder = next((p for p in at.parents if p.is_file()), None) if not at.exists() else None
        is_folder = at.is_dir()
    except (TypeError, ValueError, OSError):
        return read_file(path)
    if is_folder:
        return _only(_folder(at), at)
    if holder is not None:
        wanted, members = at.relative_to(holder).as_posix(), _members(_inflated(read_file(holder)))
        return _read(members, wanted) if wanted in members else _none(holder, members, wanted)
    return unpacked(read_file(at), at)


def unpacked(content: bytes, at: Path = Path("the file")) -> bytes:
    """The content of a module's file without what is around it. Raises the errors of `read_module`."""
    content = _inflated(content)
    if members := _members(content):
        return _only(members, at)
    return _exported(content) or content


def _only(members: _Members, at: Path) -> bytes:
    """The only module among members, as it was given if XLA dumped its stages."""
    first = [name for name in members if _FIRST in name] or list(members)
    return _read(members, first[0]) if len(first) == 1 else _none(at, members, "")


def _read(members: _Members, name: str) -> bytes:
    content = _inflated(members[name][1]())
    return _exported(content) or content


def _none(at: Path, members: _Members, wanted: str) -> bytes:
    if not members:
        raise ArgumentError(f"there is no module in {at}")
    largest = sorted(members, key=lambda name: (_FIRST not in name, -members[name][0]))
    listed = [str(at / name) for name in largest]
    more = f"\n  and {len(listed) - MAX_LISTED} others" if len(listed) > MAX_LISTED else ""
    begin = f"there is no {wanted} in it" if wanted else "give one of them"
    raise ArgumentError(f"{at} holds {len(listed)} modules: {begin}\n  " + "\n  ".join(listed[:MAX_LISTED]) + more)


# Kinds of files


def _folder(at: Path) -> _Members:
    """The modules in a folder, by their names; XLA's dumps have other files beside them."""
    files = [each for each in at.iterdir() if each.is_file() and _is_module(each.name, _head(each))]
    return {each.name: (each.stat().st_size, partial(read_file, each)) for each in sorted(files)}


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _is_module(name: str, head: bytes) -> bool:
    suffix = Path(name.removesuffix(".gz")).suffix
    return suffix in EXTENSIONS and (suffix != ".txt" or name.endswith(".gz") or head.lstrip().startswith(b"HloModule"))


def _members(content: bytes) -> _Members:
    """The modules in an archive or a profile; none for other content."""
    if content.startswith(_ZIP):
        return _archive(content)
    return {name: (len(found), partial(bytes, found)) for name, found in _ran(content)}


_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    NotImplementedError,
    RuntimeError,
    EOFError,
    ValueError,
    OSError,
)
"""The exceptions of `zipfile` for archives that are damaged, encrypted, or compressed in other ways."""


def _archive(content: bytes) -> _Members:
    found: _Members = {}
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        for each in archive.infolist():
            if not each.is_dir() and _is_module(each.filename, archive.open(each).read(HEAD)):
                found[each.filename] = each.file_size, partial(_read_member, archive, each)
    except _DAMAGED as error:
        raise ArgumentError(f"the archive is damaged: {error}") from None
    return found


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.file_size > MAX_UNPACKED:
        raise ArgumentError(f"{member.filename} has more than {MAX_UNPACKED} bytes")
    try:
        return archive.read(member)
    except _DAMAGED as error:
        raise ArgumentError(f"{member.filename} is damaged in the archive: {error}") from None


def _inflated(content: bytes) -> bytes:
    """The content of a gzip file; others as they are."""
    if not content.startswith(_GZIP):
        return content
    try:
        stream = zlib.decompressobj(wbits=31)
        found = stream.decompress(content, MAX_UNPACKED)
    except zlib.error as error:
        raise ArgumentError(f"the gzip file is damaged: {error}") from None
    if not stream.eof:
        raise ArgumentError(f"the gzip file is cut off, or has more than {MAX_UNPACKED} bytes")
    return found


def _exported(content: bytes) -> bytes | None:
    """The StableHLO of a serialised `jax.export.Exported`, a table of FlatBuffers; None for other content.

    The first word is the address of the table, which begins with the distance to the addresses of its fields. The field
    of the module is the one at byte 30; its value is the distance to a length and bytes.
    """
    if BYTECODE_MAGIC not in content or content.startswith(BYTECODE_MAGIC):
        return None
    try:
        (table,) = struct.unpack_from("<I", content)
        (distance,) = struct.unpack_from("<i", content, table)
        (field,) = struct.unpack_from("<H", content, table - distance + 30)
        (offset,) = struct.unpack_from("<I", content, table + field)
        (length,) = struct.unpack_from("<I", content, table + field + offset)
    except struct.error:
        return None
    start = table + field + offset + 4
    found = content[start : start + length]
    return found if found.startswith(BYTECODE_MAGIC) else None


# Profiles: XSpace.planes.event_metadata has an entry for each module, whose `stats` hold an HloProto.

_PLANES, _EVENT_METADATA, _VALUE, _NAME, _STATS, _BYTES = 1, 4, 2, 2, 5, 6


def _ran(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the modules in a profile of XLA."""
    if b"/host:metadata" not in content:
        return
    for plane in _fields(content, _PLANES):
        for entry in _fields(plane, _EVENT_METADATA):
            for metadata in _fields(entry, _VALUE):
                name = b"".join(_fields(metadata, _NAME)).decode(errors="replace")
                yield from ((name, found) for stat in _fields(metadata, _STATS) for found in _fields(stat, _BYTES))


def _fields(message: bytes, wanted: int) -> Iterator[bytes]:
    """The values of a field of bytes, text or messages in a serialised message; ends where that is damaged."""
    with contextlib.suppress(ProtoError):
        yield from (content for number, kind, content in fields_of(message) if (number, kind) == (wanted, BYTES))
