"""Reader of HloModuleProto. For any bytes, the result is a verified module or an hloom error."""

from __future__ import annotations

import functools
from typing import Any

from hloom.errors import HloomError, ProtoError
from hloom.forms import write_declared_forms
from hloom.ir import BufferDonor, Computation, InputOutputAlias, Instruction, Module
from hloom.ops import kinds
from hloom.ops.kinds import ComputationKind
from hloom.ops.operation import REQUIRED, Field, Operation
from hloom.ops.plugins import operation_named
from hloom.ops.structure import Constant, ElidedConstant
from hloom.proto.annotations import read_metadata, read_sharding, read_stack_frames
from hloom.proto.attributes import frontend_attributes, read
from hloom.proto.schema import MODULE_HOLDERS, message_class
from hloom.proto.shapes import is_elided, read_shape
from hloom.shape import Shape
from hloom.verifier import verify_module


def module_from_bytes(content: bytes) -> Module:
    """Reads a serialised HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot as a verified module.

    Raises ProtoError for other bytes, and RuleError or VerifyError for a module that breaks a rule.
    """
    return module_from_proto(module_message(content)[0])


def module_message(content: bytes) -> tuple[Any, Any]:
    """Finds the HloModuleProto in bytes; returns it and the message around it (itself if there is none).

    Raises ProtoError for bytes without a module.
    """
    from google.protobuf.message import DecodeError

    for name, path in MODULE_HOLDERS.items():
        try:
            message = message_class(name).FromString(content)
        except DecodeError:
            continue
        module = functools.reduce(getattr, path, message)
        if module.computations:
            return module, message
    raise ProtoError(
        f"the bytes hold no HloModuleProto and no {', '.join(list(MODULE_HOLDERS)[1:])}: "
        "they are damaged, cut off, or something else"
    )


def module_from_proto(proto: Any) -> Module:
    """Reads an HloModuleProto message as a verified module.

    Raises ProtoError for an inconsistent message, and RuleError or VerifyError for a module that breaks a rule.
    """
    module = read_module(proto)
    verify_module(module)
    return module


def read_module(proto: Any) -> Module:
    """Reads an HloModuleProto message without verifying the module, which may break rules of operations.

    Raises ProtoError for an inconsistent message, RuleError for attributes or shapes that are invalid by themselves.
    """
    try:
        return _Reader(proto).read()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ProtoError(f"the proto is inconsistent: {type(error).__name__}: {error}") from None


class _Reader:
    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.computations: dict[int, Computation] = {}
        self.shapes: dict[bytes, Shape] = {}
        self.elided_count = 0  # constants so far whose elements the proto omits

    def read(self) -> Module:
        proto = self.proto
        module = Module(proto.name)
        for computation in proto.computations:
            if computation.id in self.computations:
                raise ProtoError(f"two computations have the id {computation.id}")
            self.computations[computation.id] = Computation(computation.name)
        for computation in proto.computations:
            module.add(self._computation(computation))
        entry = self.computations.get(proto.entry_computation_id)
        if entry is None:
            raise ProtoError(f"entry_computation_id {proto.entry_computation_id} names no computation")
        module.entry_computation = entry
        self._header(module)
        write_declared_forms(module)
        return module

    def _header(self, module: Module) -> None:
        proto = self.proto
        if proto.HasField("host_program_shape"):
            module.entry_parameter_layouts = [read_shape(shape) for shape in proto.host_program_shape.parameters]
            module.entry_result_layout = read_shape(proto.host_program_shape.result)
        module.is_scheduled = proto.HasField("schedule")
        must_alias = 2
        for alias in proto.input_output_alias.entries:
            module.input_output_alias.append(
                InputOutputAlias(
                    tuple(alias.output_shape_index),
                    alias.parameter_number,
                    tuple(alias.parameter_shape_index),
                    alias.kind == must_alias,
                )
            )
        for donor in proto.buffer_donor.entries:
            module.buffer_donors.append(BufferDonor(donor.parameter_number, tuple(donor.parameter_shape_index)))
        module.frontend_attributes = dict(proto.frontend_attributes.map)
        module.stack_frames = dict(read_stack_frames(proto.stack_frame_index))
        if module.is_scheduled:
            self._order(module)

    def _order(self, module: Module) -> None:
        """Orders the instructions of each computation by the schedule."""
        protos = {computation.id: computation for computation in self.proto.computations}
        for message_id, sequence in self.proto.schedule.sequences.items():
            if message_id not in protos:
                raise ProtoError(f"the schedule names computation {message_id}, which does not exist")
            computation = self.computations[message_id]
            by_id = dict(zip((i.id for i in protos[message_id].instructions), computation.instructions, strict=True))
            if sorted(sequence.instruction_ids) != sorted(by_id):
                raise ProtoError(f"the schedule of {computation.name} does not list its instructions once each")
            root = computation.root
            computation.instructions = [by_id[i] for i in sequence.instruction_ids]
            computation.root = root

    def _computation(self, proto: Any) -> Computation:
        computation = self.computations[proto.id]
        computation.execution_thread = proto.execution_thread or "main"
        by_id: dict[int, Instruction] = {}
        for instruction_proto in proto.instructions:
            try:
                instruction = self._instruction(instruction_proto, by_id)
            except HloomError as error:
                raise error.at(f"instruction {instruction_proto.name!r} of {proto.name!r}") from None
            if instruction_proto.id in by_id:
                raise ProtoError(f"two instructions of {proto.name!r} have the id {instruction_proto.id}")
            by_id[instruction_proto.id] = computation.add(instruction)
        for instruction_proto in proto.instructions:
            for message_id in instruction_proto.control_predecessor_ids:
                before = _find(by_id, message_id, "control predecessor")
                before.add_control_dependency(by_id[instruction_proto.id])
        if proto.root_id not in by_id:
            raise ProtoError(f"root_id {proto.root_id} names no instruction of {proto.name!r}")
        computation.root = by_id[proto.root_id]
        return computation

    def _instruction(self, proto: Any, by_id: dict[int, Instruction]) -> Instruction:
        declaration = operation_named(proto.opcode)
        if declaration is None:
            raise ProtoError(f"there is no opcode {proto.opcode!r}")
        shape = self._shape(proto.shape)
        operands = [_find(by_id, message_id, "operand") for message_id in proto.operand_ids]
        op = self._operation(declaration, proto).canonical([operand.shape for operand in operands])
        instruction = Instruction(proto.name, shape, op, operands)
        instruction.metadata = read_metadata(proto.metadata)
        if proto.HasField("sharding"):
            instruction.sharding = read_sharding(proto.sharding)
        instruction.frontend_attributes = frontend_attributes(proto, declaration)
        instruction.backend_config = proto.backend_config.decode("utf-8", "surrogateescape")
        return instruction

    def _shape(self, proto: Any) -> Shape:
        """Reads a shape; instructions have few different shapes, which are cached by their bytes."""
        key = proto.SerializeToString()
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = read_shape(proto)
        return shape

    def _operation(self, declaration: type[Operation], proto: Any) -> Operation:
        if declaration is Constant and (not proto.HasField("literal") or is_elided(proto.literal)):
            self.elided_count += 1
            return ElidedConstant(number=self.elided_count)
        values: dict[str, Any] = {}
        for field in declaration.fields:
            if not field.proto:
                continue
            value = self._called(field, proto) if isinstance(field.kind, ComputationKind) else read(proto, field)
            if value is not None:
                values[field.name] = value
            elif field.default is REQUIRED:
                raise ProtoError(f"{declaration.opcode} needs {field.proto}")
        return declaration(**values)

    def _called(self, field: Field, proto: Any) -> Any:
        """The computations of `called_computation_ids`, or the one at the index that ends the field's path."""
        computations = [
            _find(self.computations, message_id, "computation") for message_id in proto.called_computation_ids
        ]
        _, _, position = (field.proto or "").partition(".")
        if field.kind is kinds.COMPUTATIONS:
            return tuple(computations) or None
        index = int(position or 0)
        return computations[index] if index < len(computations) else None


def _find(by_id: dict[int, Any], message_id: int, what: str) -> Any:
    if message_id not in by_id:
        raise ProtoError(f"{what} {message_id} does not exist (before its user)")
    return by_id[message_id]
