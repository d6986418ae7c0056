"""Symbolic evaluation of a program on several devices at once, instruction by instruction.

A value is a list with the symbol of each device. Collectives are evaluated by their own semantics on the arrays of
terms of all devices; other operations on each device by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from hloom.ir import Computation, Instruction, callees_first
from hloom.ops.collectives import CollectivePermute
from hloom.ops.context import Context
from hloom.ops.control_flow import Call, Conditional, While
from hloom.ops.device_index import PartitionId, ReplicaId
from hloom.ops.ragged_all_to_all import RaggedAllToAll
from hloom.ops.replica_groups import Collective
from hloom.ops.structure import Parameter
from hloom.ops.traits import Communication, DeviceIndex
from hloom.prove.meanings.control_flow import MAX_ITERATIONS, branch_result
from hloom.prove.meanings.evaluator import Evaluator, Symbol
from hloom.prove.meanings.reductions import combined
from hloom.prove.terms.normal import normal
from hloom.prove.terms.term import Term, Unsupported, array_of, constant
from hloom.shape import Shape
from hloom.system.records import record
from hloom.values import Array, Value

Symbols = list[Symbol]
"""The symbol of each device."""


@record
class Devices:
    """Evaluates computations on `replicas` times `partitions` devices, in lock-step."""

    evaluator: Evaluator
    replicas: int
    partitions: int

    @property
    def count(self) -> int:
        """The number of devices: device d is replica d // partitions and partition d % partitions."""
        return self.replicas * self.partitions

    def run(self, computation: Computation, arguments: Sequence[Symbols]) -> Symbols:
        """Returns the value of a computation for those of its parameters. Raises Unsupported, with the instruction."""
        values: dict[Instruction, Symbols] = {}
        for instruction in computation.instructions:
            if isinstance(op := instruction.op, Parameter):
                values[instruction] = arguments[op.number]
                continue
            try:
                values[instruction] = self._values(instruction, [values[operand] for operand in instruction.operands])
            except Unsupported as error:
                raise error.at(f"%{instruction.name} = {instruction.shape} {instruction.opcode}") from None
        return values[computation.root]

    def _values(self, instruction: Instruction, operands: Sequence[Symbols]) -> Symbols:
        op = instruction.op
        if isinstance(op, Call):
            return self.run(op.computation, operands)
        if isinstance(op, While):
            return self._loop(op, operands[0])
        if isinstance(op, Conditional) and any(map(_has_devices, op.branch_computations)):
            return self._conditional(op, *operands)
        if isinstance(op, DeviceIndex):
            return [self._index(op, instruction, device) for device in range(self.count)]
        if isinstance(op, Communication):
            return self._exchange(instruction, operands)
        return [self.evaluator.value(instruction, mine) for mine in self._by_device(operands)]

    def _by_device(self, operands: Sequence[Symbols]) -> list[list[Symbol]]:
        return [[operand[device] for operand in operands] for device in range(self.count)]

    def _index(self, op: DeviceIndex, instruction: Instruction, device: int) -> Array:
        ids = {PartitionId: device % self.partitions, ReplicaId: device // self.partitions}
        return array_of([constant(instruction.shape.element_type, ids[cast(Any, type(op))])], ())

    def _loop(self, op: While, value: Symbols) -> Symbols:
        for _ in range(MAX_ITERATIONS + 1):
            runs = {normal(condition[()]).known for condition in self.run(op.condition, [value])}
            if len(runs) > 1 or None in runs:
                raise Unsupported("a loop whose number of iterations depends on the arguments or the device")
            if runs == {0}:
                return value
            value = self.run(op.body, [value])
        raise Unsupported(f"a loop of more than {MAX_ITERATIONS} iterations")

    def _conditional(self, op: Conditional, index: Symbols, *operands: Symbols) -> Symbols:
        """Runs all branches on all devices; devices that communicate in a branch must have one index."""
        if any(normal(i[()]) is not normal(index[0][()]) for i in index):
            raise Unsupported("a conditional with collectives, of which devices may take different branches")
        results = [self.run(b, [o]) for b, o in zip(op.branch_computations, operands, strict=True)]
        return [
            branch_result(i[()], of_branches) for i, of_branches in zip(index, self._by_device(results), strict=True)
        ]

    def _exchange(self, instruction: Instruction, operands: Sequence[Symbols]) -> Symbols:
        """Evaluates a collective on each device; zeros of devices that receive nothing become terms."""
        op = instruction.op
        if not isinstance(op, (Collective, CollectivePermute)) or isinstance(op, RaggedAllToAll):
            raise Unsupported(f"{op.opcode} has no symbolic meaning")
        members = [tuple(mine) for mine in self._by_device(operands)]
        found = []
        for device, mine in enumerate(members):
            value = op.evaluate(cast(Context, _Device(self, instruction, device, members)), *op.bind(mine))
            found.append(_with_terms(value, instruction.shape))
        return found


@record
class _Device:
    """A device that evaluates a collective: the part of `Context` that collectives use."""

    devices: Devices
    instruction: Instruction
    device: int
    operands: Sequence[tuple[Symbol, ...]]
    """The operands on each device."""

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        return tuple(self.instruction.operand_shapes)

    @property
    def replica_id(self) -> int:
        return self.device // self.devices.partitions

    @property
    def partition_id(self) -> int:
        return self.device % self.devices.partitions

    @property
    def replica_count(self) -> int:
        return self.devices.replicas

    @property
    def partition_count(self) -> int:
        return self.devices.partitions

    def exchange(
        self, members: Sequence[int], value: Value, channel_id: int | None, combine: Callable[[list[Value]], Value]
    ) -> Value:
        return combine([value if device == self.device else self.operands[device] for device in members])

    def map(self, computation: Computation, *arrays: Array) -> Array:
        pairs = zip(*(array.reshape(-1) for array in arrays), strict=True)
        terms = [combined(self.devices.evaluator, computation, [a], [[b]])[0] for a, b in pairs]
        return array_of(terms, arrays[0].shape)


def _has_devices(computation: Computation) -> bool:
    """Whether a computation, or one that it calls, communicates or asks for the index of its device."""
    ops = (i.op for called in callees_first(computation) for i in called.instructions)
    return any(isinstance(op, (Communication, DeviceIndex)) for op in ops)


def _with_terms(value: Any, shape: Shape) -> Symbol:
    if shape.is_tuple:
        return tuple(_with_terms(v, element) for v, element in zip(value, shape.elements, strict=True))
    zero = constant(shape.element_type, 0)
    return array_of([x if isinstance(x, Term) else zero for x in value.reshape(-1)], shape.dimensions)
