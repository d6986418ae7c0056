"""Sums of windows that roll along an axis: each line of the input is read once, and added to the sums it is part of.

Iteration t of the loop over lines of the result reads the lines of the input that its window has more than the one
before, and ends the sum that was begun `delay` iterations ago. The sums in between are in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function
from hloom.backends.cpu.kernels.convolution.form import Axis, Form, Tap
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.backends.cpu.kernels.products.product import MULTIPLY_ADD_COST
from hloom.ir import Instruction
from hloom.lir import IndexValue, Type, Value, constant
from hloom.target import Target

MOVE_COST = 0.5
"""Time to move a sum to the register of the next older one, in multiply-adds."""


def delay_of(axis: Axis, taps: int, lines: int, most: int) -> int:
    """Returns the delay for bands of `lines` lines and windows of `taps` taps; 0 if it pays to read all lines of a
    window in one iteration, or if more than `most` vectors would be in registers.
    """
    delay = (max(axis.positions) - axis.min_position) // axis.step
    cost = (taps + taps // len(axis.positions) + MOVE_COST * delay) * (lines + delay)  # multiply-adds, loads, moves
    return delay if delay + 2 <= most and cost < 2 * taps * lines else 0


def reads_of(axis: Axis, delay: int) -> dict[int, list[tuple[Tap, int]]]:
    """Returns the lines that an iteration reads, by distance from the first one: taps, and iterations since the sum of
    each tap began.
    """
    found: dict[int, list[tuple[Tap, int]]] = {}
    for tap in axis.classes[0]:
        distance = tap.position - axis.min_position
        age, distance = divmod(distance, axis.step) if delay else (0, distance)
        found.setdefault(distance, []).append((tap, age))
    return dict(sorted(found.items()))


def rolling_sums(
    f: KernelFunction,
    vectors: Sequence[Type],
    delay: int,
    band: tuple[IndexValue, IndexValue],
    add: Callable[[IndexValue, list[Value]], None],
    store: Callable[[IndexValue, Sequence[Value]], None],
) -> None:
    """Writes the loop over the lines of a band, from the first to the one after the last.

    `add(t, sums)` adds what iteration t reads to the sums in registers, of `vectors` each, the oldest first;
    `store(line, sums)` stores those of a line.
    """
    first, stop = band
    zeros = [constant(vector, 0) for vector in vectors]
    with f.loop(f.add(stop, delay), 1, zeros * delay, first) as loop:
        sums = [*loop.carried, *zeros]
        add(loop.index, sums)
        done, loop.carried = sums[: len(zeros)], sums[len(zeros) :]
        # Sums of lines before the band are stored to its first one, which is overwritten: a branch would cost more.
        begun = f.intrinsic("umax", f.index(loop.index), f.index(f.add(first, delay)))
        store(f.subtract(begun, delay), done)


def tiles_code(
    name: str,
    instruction: Instruction,
    form: Form,
    tiles: int,
    zeros: int,
    target: Target,
    writer_of: Callable[[KernelFunction], Callable[[Value], None]],
) -> KernelCode:
    """Returns the code of a convolution whose tasks have a share of the tiles, each of which `writer_of(task)` writes.

    A task captures the addresses of the image, the kernel, the result, and of as many zeros of the image's type.
    """
    tasks, f = target.tasks(tiles, form.work * MULTIPLY_ADD_COST), task_function(f"{name}.task")
    entry = entry_function(name, instruction, has_table=True)
    context = entry.pack(entry["operand0"], entry["operand1"], entry["result0"], entry["table"])
    entry.run_chunks(f"{name}.task", context, tasks, entry.threads)
    write = writer_of(f)
    first, count = f.share(tiles, 1, tasks, f["chunk"])
    with f.each(first, f.add(first, count)) as tile:
        write(tile)
    return code_of(name, [f, entry], table=np.zeros(-(-zeros * form.types[0].byte_width // 8), np.int64))
