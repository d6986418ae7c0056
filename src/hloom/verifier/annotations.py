"""Checks of annotations: shardings, aliases, composites, host transfers, buffers of custom calls."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NoReturn

from hloom.errors import RuleError
from hloom.ir import Instruction, Module
from hloom.ops.communication import Recv, Send
from hloom.ops.control_flow import Call, Conditional, While
from hloom.ops.custom_call import CustomCall
from hloom.ops.traits import CallLike
from hloom.shape import Shape
from hloom.sharding import Sharding, ShardingType
from hloom.types import PrimitiveType


def check_annotations(module: Module) -> None:
    """Checks the annotations of a module that XLA's verifier checks. Raises RuleError."""
    for instruction in module.instructions():
        if instruction.sharding is not None:
            _check_sharding(instruction, instruction.sharding, instruction.shape, module.num_partitions)
        op = instruction.op
        if isinstance(op, (CallLike, CustomCall)):
            _check_aliases(instruction)
        if isinstance(op, Call) and op.is_composite:
            _check_composite(instruction)
        elif isinstance(op, CustomCall):
            _check_custom_call(instruction, op)
    _check_host_transfers(module)
    _check_entry_buffers(module)


# Shardings


def _check_sharding(instruction: Instruction, sharding: Sharding, shape: Shape, partitions: int) -> None:
    """Checks that a tiling has a size for each dimension, and that its devices are distinct partitions of the
    module.
    """
    if sharding.type is ShardingType.TUPLE:
        if shape.is_tuple and len(sharding.tuple_shardings) == len(shape.elements):
            for part, element in zip(sharding.tuple_shardings, shape.elements, strict=True):
                _check_sharding(instruction, part, element, partitions)
        return
    devices = sharding.tile_assignment_devices
    if any(device < 0 for device in devices):
        _reject(instruction, f"its sharding names device {min(devices)}: devices are >= 0")
    if partitions > 1 and any(device >= partitions for device in devices):
        _reject(instruction, f"its sharding names device {max(devices)}, and there are {partitions} partitions")
    if sharding.type is not ShardingType.OTHER or sharding.named:
        return
    sizes = sharding.tile_assignment_dimensions
    rank = len(sizes) - sharding.replicate_on_last_tile_dim - len(sharding.last_tile_dims)
    if shape.is_array and rank != shape.rank:
        _reject(instruction, f"its sharding tiles {rank} dimensions, and {shape} has {shape.rank}")
    iota = sharding.iota_reshape_dims
    if iota and (math.prod(iota) != math.prod(sizes) or min(iota) < 1):
        _reject(
            instruction,
            f"its sharding {list(sizes)} has {math.prod(sizes)} devices, its iota {list(iota)} {math.prod(iota)}",
        )
    if iota and sharding.iota_transpose_perm and sorted(sharding.iota_transpose_perm) != list(range(len(iota))):
        _reject(instruction, f"its sharding transposes the iota {list(iota)} by {list(sharding.iota_transpose_perm)}")
    if devices and (len(devices) != math.prod(sizes) or len(set(devices)) != len(devices)):
        _reject(instruction, f"its sharding {list(sizes)} names each of {math.prod(sizes)} devices once")


def check_loop_shardings(module: Module) -> None:
    """Checks that a loop, its body's parameter and root, and its condition's parameter share one sharding; branches
    likewise.

    SPMD partitioning requires it; XLA runs other modules on one device.
    """
    for instruction in module.instructions():
        if isinstance(instruction.op, (While, Conditional)):
            _check_one_sharding(instruction)


def _check_one_sharding(instruction: Instruction) -> None:
    shared = [instruction]
    for computation in instruction.op.computations:
        if isinstance(instruction.op, While):
            shared += computation.parameters
        if isinstance(instruction.op, Conditional) or computation.result_shape.compatible(instruction.shape):
            shared.append(computation.root)
    given = [one for one in shared if one.sharding is not None]
    for one in given[1:]:
        if one.sharding != given[0].sharding:
            _reject(instruction, f"%{given[0].name} and %{one.name} must have one sharding")


# Aliases


def _check_aliases(instruction: Instruction) -> None:
    """Checks that aliases name existing outputs and operands, of one shape."""
    if isinstance(instruction.op, Call) and "output_to_operand_aliasing" in instruction.extra_attributes:
        _reject(instruction, "a call has no output_to_operand_aliasing")
    for alias in getattr(instruction.op, "output_to_operand_aliasing", ()):
        if not 0 <= alias.operand_number < len(instruction.operands):
            _reject(instruction, f"an alias names operand {alias.operand_number} of {len(instruction.operands)}")
        operand = instruction.operands[alias.operand_number].shape
        output, source = _at(instruction.shape, alias.output_index), _at(operand, alias.operand_index)
        if output is None or source is None:
            _reject(
                instruction,
                f"an alias names {list(alias.output_index)} and {list(alias.operand_index)}, which do not exist",
            )
        if not _contents(output).compatible(_contents(source)):
            _reject(instruction, f"aliases have one shape, got {output} and {source}")


def _at(shape: Shape, index: Iterable[int]) -> Shape | None:
    for i in index:
        if not shape.is_tuple or not 0 <= i < len(shape.elements):
            return None
        shape = shape.elements[i]
    return shape


def _contents(shape: Shape) -> Shape:
    return shape.elements[0] if shape.element_type is PrimitiveType.BUFFER else shape


# Specific instructions


def _check_composite(instruction: Instruction) -> None:
    attributes = instruction.frontend_attributes
    version = attributes.get("composite.version", "0")
    if not attributes.get("composite.name") or attributes.get("composite.attributes") == "":
        _reject(instruction, "a composite has the frontend attributes composite.name and composite.attributes")
    if not version.isdecimal():
        _reject(instruction, f"composite.version is an integer >= 0, got {version!r}")


def _check_custom_call(instruction: Instruction, op: CustomCall) -> None:
    target, aliases = op.target_name, op.output_to_operand_aliasing
    if target == "GetRngSeed" and (instruction.operands or not instruction.shape.compatible(_SEED)):
        _reject(instruction, f"GetRngSeed takes nothing and gives {_SEED}, got {instruction.shape}")
    if target in ("Pin", "Unpin") and len(aliases) != 1:
        _reject(instruction, f"{target} has one output_to_operand_aliasing, got {len(aliases)}")


_SEED = Shape.array(PrimitiveType.U64)


def _check_host_transfers(module: Module) -> None:
    """Checks that host transfers over one channel are equal up to operands."""
    first: dict[int, Instruction] = {}
    for instruction in module.instructions():
        op = instruction.op
        if not isinstance(op, (Send, Recv)) or not op.is_host_transfer:
            continue
        other = first.setdefault(op.channel_id or 0, instruction)
        alike = other.op == op and other.frontend_attributes == instruction.frontend_attributes
        if not alike or not other.shape.compatible(instruction.shape):
            _reject(instruction, f"%{other.name} uses channel {op.channel_id} differently")


def _check_entry_buffers(module: Module) -> None:
    for instruction in (*module.entry.parameters, module.entry.root):
        if PrimitiveType.BUFFER in instruction.shape.leaf_types:
            _reject(instruction, "parameters and results of the entry must not be buffers")


def _reject(instruction: Instruction, message: str) -> NoReturn:
    raise RuleError(instruction.opcode, "GEN-2", message).at(repr(instruction))
