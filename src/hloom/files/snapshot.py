"""Snapshots: a module with the arguments and the result of an execution, in XLA's HloSnapshot format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

from hloom.api import compile
from hloom.errors import ArgumentError, HloomError, ProtoError
from hloom.files.formats import read_file, write_file
from hloom.ir import Module
from hloom.literal import Literal
from hloom.proto.reader import module_from_proto, module_message
from hloom.proto.schema import message_class
from hloom.proto.shapes import read_literal, write_literal
from hloom.proto.writer import module_to_proto
from hloom.runtime.arguments import check_argument
from hloom.values import Value


@dataclass(eq=False)
class Snapshot:
    """A module, an argument for each parameter of its entry, and the result, or None if unknown.

    Arguments and result are arrays and tuples of them, as for `Executable`. `platform` names the platform that computed
    the result. XLA's files are called `*.hlo_snapshot.pb`.

    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> hl.Snapshot(module, [np.float32([1, 2])]).replay()
    array([-1., -2.], dtype=float32)
    """

    module: Module
    arguments: list[Value] = field(default_factory=list)
    result: Value | None = None
    platform: str = "hloom"

    @staticmethod
    def load(path: str | PathLike[str]) -> Snapshot:
        """Loads an HloSnapshot, or an HloUnoptimizedSnapshot with the arguments of its first partition.

        Raises ProtoError if the file is not a snapshot, or its arguments do not match the module.
        """
        try:
            return Snapshot.from_bytes(read_file(path))
        except HloomError as error:
            raise error.at(str(path)) from None

    @staticmethod
    def from_bytes(content: bytes) -> Snapshot:
        """Parses a serialised snapshot; raises the errors of `load`."""
        found = snapshot_in(content)
        if found is None:
            raise ProtoError("the file is not a snapshot: it has a module without arguments")
        return found

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the snapshot as an HloSnapshot, atomically."""
        write_file(path, self.to_bytes())

    def to_bytes(self) -> bytes:
        """Serialises to an HloSnapshot. Raises ArgumentError for values that do not match the module."""
        message = message_class("HloSnapshot")(execution_platform=self.platform)
        message.hlo.hlo_module.CopyFrom(module_to_proto(self.module))
        for value in _fitting(self.module, self.arguments):
            message.arguments.append(write_literal(Literal.from_value(value)))
        if self.result is not None:
            result = check_argument(self.result, self.module.entry.result_shape, "the result")
            message.result.CopyFrom(write_literal(Literal.from_value(result)))
        content: bytes = message.SerializeToString(deterministic=True)
        return content

    def replay(self, backend: str = "cpu", **options: Any) -> Value:
        """Runs the module on the arguments and returns the result; `options` are those of `hloom.compile`."""
        return compile(self.module, backend, **options)(*self.arguments)


def snapshot_in(content: bytes) -> Snapshot | None:
    """Parses a serialised message; None if it is a module without arguments. Raises the errors of `Snapshot.load`."""
    message, whole = module_message(content)
    if whole.DESCRIPTOR.name == "HloProto":
        # An HloUnoptimizedSnapshot also parses as HloProto: the first field of both is the module.
        whole = _unoptimized(content) or whole
    if whole.DESCRIPTOR.name not in ("HloSnapshot", "HloUnoptimizedSnapshot"):
        return None
    module = module_from_proto(message)
    inputs, result = _values(whole)
    if len(inputs) == 1 and len(module.entry.parameters) != 1 and inputs[0].shape.is_tuple:
        # XLA may store all arguments in a tuple.
        inputs = list(inputs[0].elements)
    try:
        arguments = _fitting(module, [literal.value for literal in inputs])
        value = None if result is None else check_argument(result.value, module.entry.result_shape, "the result")
    except ArgumentError as error:
        raise ProtoError(f"the snapshot does not match its module: {error.message}") from None
    return Snapshot(module, arguments, value, getattr(whole, "execution_platform", ""))


def _unoptimized(content: bytes) -> Any:
    """Parses an HloUnoptimizedSnapshot whose inputs are literals; None for other content."""
    from google.protobuf.message import DecodeError

    try:
        message = message_class("HloUnoptimizedSnapshot").FromString(content)
    except DecodeError:
        return None
    literals = [literal for partition in message.partitions for literal in partition.arguments]
    return message if literals and all(literal.HasField("shape") for literal in literals) else None


def _values(message: Any) -> tuple[list[Literal], Literal | None]:
    try:
        if message.DESCRIPTOR.name == "HloUnoptimizedSnapshot":
            partitions = message.partitions
            return [read_literal(literal) for literal in (partitions[0].arguments if partitions else ())], None
        result = read_literal(message.result) if message.HasField("result") else None
        return [read_literal(literal) for literal in message.arguments], result
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ProtoError(f"a literal of the snapshot is inconsistent: {type(error).__name__}: {error}") from None


def _fitting(module: Module, arguments: Sequence[Value]) -> list[Value]:
    """Converts the arguments to those that the module takes. Raises ArgumentError if they do not match."""
    parameters = module.entry.parameters
    if len(arguments) != len(parameters):
        wanted = ", ".join(f"%{p.name}: {p.shape}" for p in parameters) or "none"
        raise ArgumentError(f"{module.name} takes {len(parameters)} arguments ({wanted}), got {len(arguments)}")
    return [
        check_argument(value, parameter.shape, f"argument {i} (%{parameter.name})")
        for i, (value, parameter) in enumerate(zip(arguments, parameters, strict=True))
    ]
