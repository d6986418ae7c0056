"""Hoists the packing of loop-invariant operands of products out of loops."""

from __future__ import annotations

from collections.abc import Callable

from hloom.backends.cpu.kernels.code import PackedCode
from hloom.backends.cpu.program.program import Buffer, CodeStep, Step, all_steps


def hoist_packing(condition: list[Step], body: list[Step], new_buffer: Callable[[int], Buffer]) -> list[Step]:
    """Removes packing steps of loop-invariant operands from a loop body, and returns them to run before the loop.

    Each invariant operand is packed once, including packing steps hoisted out of inner loops. `new_buffer` allocates a
    buffer of a number of bytes.
    """
    if not any(isinstance(step, CodeStep) for step in body):
        return []
    written = {buffer for step in all_steps([*condition, *body]) for buffer in step.writes}
    before: list[Step] = []
    packed_buffers: dict[tuple[str, Buffer], Buffer] = {}
    kept: list[Step] = []
    for step in body:
        if not isinstance(step, CodeStep):
            kept.append(step)
        elif step.is_packing and step.buffers[0] not in written:
            before.append(step)
        elif (packed := _packed(step, written)) is not None:
            operand, code = step.buffers[packed.operand], packed.packing
            if (code.entry, operand) not in packed_buffers:
                packed_buffer = packed_buffers[code.entry, operand] = new_buffer(packed.size)
                before.append(CodeStep(code, f"{step.name}.packing", [operand, packed_buffer], 1, is_packing=True))
            buffers = step.buffers[: step.operand_count + 1]
            buffers[packed.operand] = packed_buffers[code.entry, operand]
            kept.append(CodeStep(packed.product, step.name, buffers, step.operand_count))
        else:
            kept.append(step)
    body[:] = kept
    return before


def _packed(step: CodeStep, written: set[Buffer]) -> PackedCode | None:
    """Returns a step's two-step code (packing and product) if it packs a loop-invariant operand, else None."""
    if step.code.packed is None or written.issuperset(step.reads):
        return None
    packed = step.code.packed()
    return packed if packed is not None and step.buffers[packed.operand] not in written else None
