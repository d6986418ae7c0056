"""Writer of HloModuleProto, which XLA reads."""

from __future__ import annotations

from typing import Any

from hloom.errors import ProtoError
from hloom.ir import Computation, Instruction, Module, callees_first
from hloom.ops.control_flow import Fusion
from hloom.ops.kinds import ComputationKind
from hloom.ops.operation import Operation
from hloom.proto.annotations import utf8, utf8_entries, write_metadata, write_sharding, write_stack_frames
from hloom.proto.attributes import write
from hloom.proto.schema import message_class
from hloom.proto.shapes import write_shape


def module_to_bytes(module: Module) -> bytes:
    """Serialises a module as HloModuleProto; equal modules give equal bytes. Raises ProtoError as `module_to_proto`."""
    content: bytes = module_to_proto(module).SerializeToString(deterministic=True)
    return content


def module_to_proto(module: Module) -> Any:
    """Writes a module as an HloModuleProto message.

    The message has no fields for `replica_count`, `num_partitions`, and attributes that hloom keeps as raw text: these
    are dropped. Raises ProtoError for values that do not fit the message.
    """
    try:
        return _Writer(module).write()
    except (ValueError, TypeError) as error:
        raise ProtoError(f"{module.name} does not fit XLA's proto: {error}") from None


class _Writer:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.proto = message_class("HloModuleProto")(name=module.name)
        # Computations and instructions share one sequence of ids.
        self.ids: dict[int, int] = {}
        self.names: set[str] = set()
        # XLA reads computations in order, so callees come first.
        reachable = callees_first(module.entry)
        others = [c for c in module.computations if not any(c is r for r in reachable)]
        self.order = module.computations if _is_callees_first(module.computations) else [*others, *reachable]

    def write(self) -> Any:
        proto, module = self.proto, self.module
        for computation in self.order:
            self._id(computation)
            for instruction in computation.instructions:
                self._id(instruction)
        fused = {id(i.op.calls) for i in module.instructions() if isinstance(i.op, Fusion)}
        for computation in self.order:
            self._computation(computation, id(computation) in fused)
        proto.entry_computation_name = module.entry.name
        proto.entry_computation_id = self._id(module.entry)
        self._program_shape(
            proto.host_program_shape, module.entry, module.entry_parameter_layouts, module.entry_result_layout
        )
        self._schedule_and_aliases()
        proto.frontend_attributes.map.update(utf8_entries(module.frontend_attributes))
        if module.stack_frames:
            write_stack_frames(module.stack_frames, proto.stack_frame_index)
        return proto

    def _schedule_and_aliases(self) -> None:
        proto, module = self.proto, self.module
        if module.is_scheduled:
            for computation in self.order:
                sequence = proto.schedule.sequences[self._id(computation)]
                sequence.instruction_ids.extend(self._id(i) for i in computation.instructions)
        for alias in module.input_output_alias:
            proto.input_output_alias.entries.add(
                output_shape_index=alias.output_index,
                parameter_number=alias.parameter_number,
                parameter_shape_index=alias.parameter_index,
                kind=2 if alias.must_alias else 1,
            )
        for donor in module.buffer_donors:
            proto.buffer_donor.entries.add(
                parameter_number=donor.parameter_number, parameter_shape_index=donor.parameter_index
            )

    def _unique(self, name: str) -> str:
        """A name that is unique in the module, as XLA requires; HLO text requires that in a computation only."""
        unique, count = name, 1
        while unique in self.names:
            unique, count = f"{name}.{count}", count + 1
        self.names.add(unique)
        return unique

    def _id(self, thing: Computation | Instruction) -> int:
        return self.ids.setdefault(id(thing), len(self.ids) + 1)

    def _program_shape(
        self, proto: Any, computation: Computation, parameters: list[Any] | None = None, result: Any = None
    ) -> None:
        own_parameters = computation.parameters
        shapes = parameters if parameters is not None else [parameter.shape for parameter in own_parameters]
        proto.parameters.extend(map(write_shape, shapes))
        proto.parameter_names.extend(parameter.name for parameter in own_parameters)
        proto.result.CopyFrom(write_shape(result or computation.result_shape))

    def _computation(self, computation: Computation, is_fusion: bool) -> None:
        proto = self.proto.computations.add(
            name=computation.name,
            id=self._id(computation),
            root_id=self._id(computation.root),
            is_fusion_computation=is_fusion,
            execution_thread=utf8(computation.execution_thread),
        )
        self._program_shape(proto.program_shape, computation)
        for instruction in computation.instructions:
            self._instruction(instruction, proto.instructions.add())

    def _instruction(self, instruction: Instruction, proto: Any) -> None:
        proto.name = self._unique(instruction.name)
        proto.opcode = instruction.op.text_opcode or instruction.opcode
        proto.id = self._id(instruction)
        proto.shape.CopyFrom(write_shape(instruction.shape))
        proto.operand_ids.extend(map(self._id, instruction.operands))
        proto.control_predecessor_ids.extend(map(self._id, instruction.control_predecessors))
        proto.metadata.CopyFrom(write_metadata(instruction.metadata))
        proto.frontend_attributes.map.update(utf8_entries(instruction.frontend_attributes))
        if instruction.sharding is not None:
            proto.sharding.CopyFrom(write_sharding(instruction.sharding))
        proto.backend_config = instruction.backend_config.encode("utf-8", "surrogateescape")
        self._attributes(instruction.op, proto)

    def _attributes(self, op: Operation, proto: Any) -> None:
        called: dict[int, list[int]] = {}
        for field in op.fields:
            value = op.__dict__[field.name]
            if value is None or not field.proto:
                continue
            if isinstance(field.kind, ComputationKind):
                many = value if isinstance(value, tuple) else (value,)
                position = int(field.proto.partition(".")[2] or 0)
                called[position] = [self._id(computation) for computation in many]
            else:
                write(proto, field, value)
        for position in sorted(called):
            proto.called_computation_ids.extend(called[position])


def _is_callees_first(computations: list[Computation]) -> bool:
    seen: set[int] = set()
    for computation in computations:
        if any(id(callee) not in seen for callee in computation.called_computations()):
            return False
        seen.add(id(computation))
    return True
