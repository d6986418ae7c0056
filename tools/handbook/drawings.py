"""Pictures of operations: the elements that a result consists of, or is computed from; exchanges; iterations of loops.

Parameters hold consecutive integers from 1. A result cell has the colour of the operand cell whose number it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import hloom as hl
from handbook.programs import EXCHANGES, LOOP, MOVEMENTS, READS
from hloom.display import CELL, GAP, HEAD, PADDING, cell, hue, label, picture

ACCENT = "hsl(38 92% 70%)"
"""The colour of the elements of which a picture speaks."""
INDEX = "hsl(215 25% 92%)"
"""The colour of indices and conditions."""
READ_INDEX = {
    "convolution": (1, 1),
    "dot": (1, 2),
    "ragged-dot": (3, 1),
    "reduce": (1,),
    "reduce-window": (1, 1),
    "scaled-dot": (1, 1),
    "scan": (3,),
}
"""The index of the result element whose sources are shown."""

Color = Callable[[Any], str]
Grid = tuple[str, Any, Color]
"""A title, an array, and the colours of its elements."""


def pictures() -> Iterator[tuple[str, str]]:
    """Yields opcodes and the SVGs of their pictures."""
    for opcode, text in MOVEMENTS.items():
        yield opcode, movement(text)
    for opcode, text in READS.items():
        yield opcode, reads(text, READ_INDEX[opcode])
    for opcode, text in EXCHANGES.items():
        yield opcode, exchange(text)
    yield "while", iterations(LOOP)


def parse(text: str) -> hl.Module:
    """Returns the module of a program."""
    return hl.parse(f"HloModule picture\n{text}")


def arguments(module: hl.Module, first: int = 1) -> list[Any]:
    """Returns arguments filled with consecutive integers."""
    filled = []
    for shape in module.entry.parameter_shapes:
        stop = first + shape.element_count
        filled.append(np.arange(first, stop).astype(shape.element_type.dtype).reshape(shape.dimensions))
        first = stop
    return filled


def run(text: str) -> tuple[list[Any], Any]:
    """Runs a program; returns its arguments and its result."""
    module = parse(text)
    operands = arguments(module)
    return operands, hl.compile(module, backend="interpreter")(*operands)


def movement(text: str) -> str:
    """Draws the operands of the root, with parameters in colours, and the result; other elements are grey."""
    module = parse(text)
    filled = arguments(module)
    result = _first(hl.compile(module, "interpreter")(*filled))
    count = sum(array.size for array in filled) or int(np.max(result))

    def colored(value: Any) -> str:
        return hue(int(value) - 1, count) if 0 < value <= count else PADDING

    grids: list[Grid] = []
    for operand in module.entry.root.operands:
        if operand.opcode == "parameter":
            grids.append((operand.name, filled[operand.parameter_number], colored))
        elif operand.opcode == "constant":
            grids.append((operand.name, operand.op.literal.value, lambda value: INDEX))
    return _row([*grids, ("result", result, colored)])


def reads(text: str, index: tuple[int, ...]) -> str:
    """Draws operands and result of the root; coloured are one element of the result and those that it depends on."""
    module = parse(text)
    executable = hl.compile(module, "interpreter")
    filled = arguments(module)
    result = _first(executable(*filled))
    element = result.reshape([n for n in result.shape if n > 1])[index]
    grids: list[Grid] = []
    for number, array in enumerate(filled):
        marks = np.zeros(array.shape, bool)
        for position in np.ndindex(array.shape):
            changed = [each.copy() for each in filled]
            changed[number][position] += 1000
            other = _first(executable(*changed))
            marks[position] = other.reshape([n for n in other.shape if n > 1])[index] != element
        grids.append((module.entry.parameters[number].name, array, _marked(marks)))
    marks = np.zeros([n for n in result.shape if n > 1], bool)
    marks[index] = True
    return _row([*grids, ("result", result, _marked(marks))])


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, tuple) else value


def _marked(marks: Any) -> Color:
    """Colours of consecutive calls, in row-major order."""
    following = iter(np.ravel(marks))
    return lambda value: ACCENT if next(following) else INDEX


def exchange(text: str) -> str:
    """Draws the arrays of all replicas before and after a program, a row for each replica."""
    module = parse(text)
    count = text.partition("{{")[2].partition("}}")[0].count(",") + 1
    if "source_target_pairs" in text:
        count = 3
    size = module.entry.parameter_shapes[0].element_count
    before = np.stack([arguments(module, 1 + replica * size)[0] for replica in range(count)])
    executable = hl.compile(module, "interpreter", replicas=count)

    def run_all(rows: Any) -> Any:
        return np.stack(executable.run_replicas([[row] for row in rows]))

    after = run_all(before)
    names = [f"replica {k}" for k in range(count)]
    if "to_apply" in text:
        marks = _sources(run_all, before)
        return _row([("before", before, _marked(marks)), ("after", after, _marked(_only(after.shape)))], names)

    def colored(value: Any) -> str:
        return hue(int(value) - 1, before.size) if value else PADDING

    return _row([("before", before, colored), ("after", after, colored)], names)


def _only(sizes: Sequence[int]) -> Any:
    """Marks of one element, the first of the second row."""
    marks = np.zeros(sizes, bool)
    marks[1, 0] = True
    return marks


def _sources(run: Callable[[Any], Any], before: Any) -> Any:
    """Marks of the elements on which the first one of the second row of the result depends."""
    element, marks = run(before)[1][0], np.zeros(before.shape, bool)
    for position in np.ndindex(before.shape):
        changed = before.copy()
        changed[position] += 1000
        marks[position] = run(changed)[1][0] != element
    return marks


def iterations(text: str) -> str:
    """Draws the values of a loop: the initial one, and what each call of the body returns."""
    module = parse(text)
    loop = module.entry.root
    body = loop.op.computations
    roots = [computation.root for computation in body]
    states: list[Any] = [loop.operands[0].op.literal.value]  # type: ignore[attr-defined]
    hl.compile(module, "interpreter", observer=lambda i, operands, value: i is roots[1] and states.append(value))()
    parts, x = [label(GAP, HEAD + CELL + 12, roots[0].name, 12)], 2 * GAP
    for number, state in enumerate(states):
        is_last = number == len(states) - 1
        parts.append(label(x + CELL / 2, HEAD - 8, "init" if not number else "result" if is_last else "body", 12))
        parts.append(cell(x, HEAD, str(state), ACCENT if is_last else INDEX))
        parts.append(label(x + CELL / 2, HEAD + CELL + 12, "false" if is_last else "true", 12))
        if not is_last:
            parts.append(label(x + CELL + GAP / 2 - 1, HEAD + CELL / 2 + 5, "→", 18))
        x += CELL + GAP
    return picture(parts, x, HEAD + CELL + 22)


def _row(grids: Sequence[Grid], rows: Sequence[str] = ()) -> str:
    """Draws grids side by side, with an arrow before the last one; dimensions of size 1 are left out."""
    left = 60 if rows else GAP // 2
    parts, x, height = [], left, 0
    for k, name in enumerate(rows):
        parts.append(label(left / 2, HEAD + k * CELL + CELL / 2 + 4, name, 12))
    for number, (title, array, color) in enumerate(grids):
        plane = _plane(np.asarray(array))
        if number and number == len(grids) - 1:
            parts.append(label(x - GAP / 2, HEAD + CELL / 2 + 6, "→", 18))
        width = max(plane.shape[1] * CELL, 7 * len(title))
        parts.append(label(x + width / 2, HEAD - 8, title, 12))
        inset = x + (width - plane.shape[1] * CELL) / 2
        for (i, j), value in np.ndenumerate(plane):
            parts.append(
                cell(
                    inset + j * CELL,
                    HEAD + i * CELL,
                    f"{value:g}" if plane.dtype != bool else f"{value:d}",
                    color(value),
                )
            )
        x += width + GAP
        height = max(height, HEAD + plane.shape[0] * CELL)
    return picture(parts, x - GAP / 2, height + 8)


def _plane(array: Any) -> Any:
    """The array as a matrix, without dimensions of size 1; a vector is a row."""
    sizes = [n for n in array.shape if n > 1]
    return array.reshape(-1, sizes[-1]) if sizes else array.reshape(1, 1)
