"""Files of modules: detection of formats by content, reading and writing.

| format | extension | content |
|---|---|---|
| hlo | .hlo .txt | HLO text |
| mlir | .mlir | StableHLO text |
| mlirbc | .mlirbc .bc | StableHLO bytecode: a portable artifact; needs jaxlib |
| pb | .pb .binpb | a serialised HloModuleProto; also read: HloProto, HloSnapshot and similar messages |
| pbtxt | .pbtxt .textproto | the same in protobuf's text format |
"""

from __future__ import annotations

import enum
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hloom.errors import ArgumentError, ProtoError
from hloom.system.garbage import older_objects_frozen
from hloom.system.shield import shielded

if TYPE_CHECKING:
    from hloom.ir import Module


class Format(enum.Enum):
    """Format of a file of a module."""

    HLO = "hlo"
    MLIR = "mlir"
    MLIR_BYTECODE = "mlirbc"
    PROTO = "pb"
    TEXT_PROTO = "pbtxt"


EXTENSIONS = {
    ".hlo": Format.HLO,
    ".txt": Format.HLO,
    ".mlir": Format.MLIR,
    ".mlirbc": Format.MLIR_BYTECODE,
    ".bc": Format.MLIR_BYTECODE,
    ".pb": Format.PROTO,
    ".binpb": Format.PROTO,
    ".pbtxt": Format.TEXT_PROTO,
    ".textproto": Format.TEXT_PROTO,
}

BYTECODE_MAGIC = b"ML\xefR"
# Comments of both languages. A line that starts with # is not a comment: in MLIR it defines an alias.
_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.S)
# An operation of a dialect that defines a symbol, or in generic form; a name of HLO has no symbol after it.
_MLIR = re.compile(
    r"""(?:builtin\.)?module\b|func\.func\b|[a-z_]\w*\.\w+\s[\w\s]*@|"\w+\.[\w.]+"\s*\(|[#!][\w.]+\s*=|\{-#"""
)
_TEXT_PROTO = re.compile(r"(?:hlo|hlo_module)\s*\{|(?:name|entry_computation_name|id)\s*:")


def text_format(text: str) -> Format:
    """Detects the format of a text by its beginning; HLO by default."""
    if not isinstance(text, str):
        return Format.HLO
    blank = _BLANK.match(text)
    start = blank.end() if blank else 0
    if _MLIR.match(text, start):
        return Format.MLIR
    return Format.TEXT_PROTO if _TEXT_PROTO.match(text, start) else Format.HLO


def content_format(content: bytes) -> Format:
    """Detects the format of a file's content; a proto if it is neither text nor bytecode."""
    if content.startswith(BYTECODE_MAGIC):
        return Format.MLIR_BYTECODE
    return text_format(content.decode()) if is_text(content) else Format.PROTO


def path_format(path: str | os.PathLike[str]) -> Format:
    """The format of a path's extension. Raises ArgumentError for an unknown one."""
    suffix = _checked(path).suffix.lower()
    if suffix not in EXTENSIONS:
        raise ArgumentError(
            f"the extension of {os.fspath(path)!r} is not a format of modules; these are: {', '.join(EXTENSIONS)}"
        )
    return EXTENSIONS[suffix]


def is_text(content: bytes) -> bool:
    """Whether bytes can be text: UTF-8 without the control characters of serialised protos."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    return not any(ord(character) < 9 or 13 < ord(character) < 32 for character in text[:4096])


# Reading


def module_from_text(text: str) -> Module:
    """Parses and verifies a module in HLO text, StableHLO text or the text format of protos."""
    # For short texts garbage collection is irrelevant, and another thread would cost a third of the time.
    is_long = isinstance(text, str) and len(text) > _SHORT
    return _from_long_text(text) if is_long else _from_text(text)


_SHORT = 10_000


def _from_text(text: str) -> Module:
    if isinstance(text, str):
        text = text.removeprefix("\ufeff")  # the byte order mark of editors on Windows
    kind = text_format(text)
    if kind is Format.MLIR:
        from hloom.stablehlo.importer.module import parse_stablehlo

        return parse_stablehlo(text)
    if kind is Format.TEXT_PROTO:
        return _from_text_proto(text)
    from hloom.text import parse_module

    return parse_module(text)


_from_long_text = shielded(older_objects_frozen()(_from_text))


@shielded
@older_objects_frozen()
def module_from_content(content: bytes) -> Module:
    """Reads and verifies a module from the content of a file of any format."""
    kind = content_format(content)
    if kind is Format.MLIR_BYTECODE:
        from hloom.stablehlo.mlir.bytecode import text_of

        return module_from_text(text_of(content))
    if kind is not Format.PROTO:
        return module_from_text(content.decode())
    from hloom.proto import module_from_bytes

    return module_from_bytes(content)


def _from_text_proto(text: str) -> Module:
    from google.protobuf import text_format as protobuf

    from hloom.proto import module_from_proto
    from hloom.proto.schema import MODULE_HOLDERS, message_class

    reason = ""
    for name, path in MODULE_HOLDERS.items():
        message = message_class(name)()
        try:
            protobuf.Parse(text, message, allow_unknown_field=name != "HloModuleProto")
        except (protobuf.ParseError, UnicodeError, ValueError, RecursionError) as error:
            reason = reason or str(error)
            continue
        for field in path:
            message = getattr(message, field)
        if message.computations:
            return module_from_proto(message)
    raise ProtoError(f"the text holds no {' or '.join(MODULE_HOLDERS)} in protobuf's text format: {reason}")


# Writing


def content_of(module: Module, format: Format, *, metadata: bool = True) -> bytes:
    """The content of a file of a module; `metadata=False` omits metadata from texts."""
    if format is Format.HLO:
        return module.to_text(metadata=metadata).encode()
    if format is Format.PROTO:
        from hloom.proto import module_to_bytes

        return module_to_bytes(module)
    if format is Format.TEXT_PROTO:
        from google.protobuf import text_format as protobuf

        from hloom.proto import module_to_proto

        return str(protobuf.MessageToString(module_to_proto(module))).encode()
    from hloom.stablehlo.exporter.module import print_stablehlo

    text = print_stablehlo(module, locations=metadata)
    if format is Format.MLIR:
        return text.encode()
    from hloom.stablehlo.mlir.bytecode import bytecode_of

    return bytecode_of(text)


def write_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Writes a file atomically: an existing file is unchanged if writing fails. Raises ArgumentError."""
    try:
        file = Path(os.path.realpath(_checked(path)))
        if file.exists() and not file.is_file():
            file.write_bytes(content)  # a device or a pipe cannot be replaced
            return
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        try:
            temporary.write_bytes(content)
            if file.exists():
                shutil.copymode(file, temporary)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot write {os.fspath(path)}: {getattr(error, 'strerror', None) or error}") from None


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Reads a file. Raises ArgumentError."""
    try:
        return _checked(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ArgumentError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _checked(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError:
        raise ArgumentError(f"a path is a string or path object, got {path!r}") from None
