"""Updates of arrays in place, and the computations that must not be fused with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.pad import Concatenate
from hloom.ops.slice import DynamicSlice, DynamicUpdateSlice
from hloom.ops.traits import Update
from hloom.passes.optimize.update_scheduler import origin, writes_most

ROOT_ONLY = (Concatenate, Update)
"""Operations that store their operands one after the other, and so are roots of fusions, except where a user knows
which operand it reads."""

MIN_COPIED_BYTES = 4096
"""Size of an array that takes longer to copy than a kernel takes to start, roughly."""

Versions = Mapping[Instruction, tuple[Instruction, int]]
"""The values of an array that is updated in place: the first one and the number of updates since, for each."""


def array_versions(instructions: Iterable[Instruction]) -> Versions:
    """Returns the versions of the large arrays that updates change; `instructions` have operands before users.

    A kernel that reads two versions of an array needs a copy of the older one.
    """
    found: dict[Instruction, tuple[Instruction, int]] = {}
    for update in instructions:
        if isinstance(update.op, Update) and update.shape.is_array and update.shape.byte_size >= MIN_COPIED_BYTES:
            before = origin(update.operands[0])
            first, count = found.setdefault(before, (before, 0))
            found[update] = first, count + 1
    return found


def versions_read(instruction: Instruction, versions: Versions) -> dict[Instruction, int]:
    """Returns the versions that an instruction reads, by the first version."""
    return (
        dict([versions[array] for array in map(origin, instruction.operands) if array in versions]) if versions else {}
    )


def is_padding(instruction: Instruction) -> bool:
    """Whether an update of a broadcast pads its operand: each element is one of the operand's or the fill value."""
    return isinstance(instruction.op, DynamicUpdateSlice) and isinstance(instruction.operands[0].op, Broadcast)


def written_part(root: Instruction) -> Instruction:
    """Returns the instruction whose elements a fusion with this root stores: of an update, the part that it writes."""
    return root.operands[1] if isinstance(root.op, DynamicUpdateSlice) else root


def conflicting_updates(fusible: Set[Instruction], max_instructions: int) -> set[Instruction]:
    """Returns the updates that must not be fused with the computation of the values that they write.

    These depend on other elements of the updated array, or on another updated array, within `max_instructions`
    instructions. A kernel that reads other elements of the array that it writes cannot update it in place. Two kernels
    that each read the array that the other one updates cannot be ordered so that both updates are in place.
    """
    updates = [i for i in fusible if isinstance(i.op, DynamicUpdateSlice)]
    updated = {origin(update.operands[0]) for update in updates}
    return {
        update
        for update in updates
        if not writes_most(update) and _has_conflict(update, updated, fusible, max_instructions)
    }


def _has_conflict(
    update: Instruction, updated: set[Instruction], fusible: Set[Instruction], max_instructions: int
) -> bool:
    array, part, starts = origin(update.operands[0]), update.operands[1], update.operands[2:]
    seen, stack = {part}, [part]
    while stack and len(seen) < max_instructions:
        instruction = stack.pop()
        if instruction not in fusible or isinstance(instruction.op, ROOT_ONLY):
            continue
        is_same_part = isinstance(instruction.op, DynamicSlice) and instruction.operands[1:] == starts
        is_same_part = is_same_part and instruction.shape.dimensions == part.shape.dimensions
        changing = updated.intersection(map(origin, instruction.operands))
        if changing - ({array} if is_same_part else set()):
            return True
        stack += [operand for operand in instruction.operands if operand not in seen]
        seen.update(instruction.operands)
    return False
