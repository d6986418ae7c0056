"""What is different between two modules, as graphs: names and order do not count, what is computed from what does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hloom.ir import Computation, Instruction, Module
from hloom.passes.edit import callees_first_of


@dataclass(frozen=True)
class ComputationDiff:
    """A computation of the second module beside its counterpart in the first; either may be missing."""

    name: str
    gone: list[Instruction]
    new: list[Instruction]
    same: int

    @property
    def is_same(self) -> bool:
        return not self.gone and not self.new


def diff(a: Module, b: Module) -> list[ComputationDiff]:
    """Computation by computation: the instructions of `a` that `b` lacks, and the other way round.

    Two instructions are the same if their operation, shape and operands are, or if they are written in the same way
    from the same names; parameters are told apart by number. The entries are counterparts, other computations by their
    names; what has the same instructions needs no name in common.
    """
    numbers: dict[Any, int] = {}
    keys_a, keys_b = (_keys(module, numbers) for module in (a, b))
    found = [_compare("ENTRY " + b.entry.name, a.entry, b.entry, keys_a, keys_b)]
    rest_a = {c.name: c for c in a.computations if c is not a.entry}
    rest_b = {c.name: c for c in b.computations if c is not b.entry}
    roots_a = Counter(keys_a[c.root] for c in rest_a.values())
    roots_b = Counter(keys_b[c.root] for c in rest_b.values())
    for name in dict.fromkeys([*rest_a, *rest_b]):
        left, right = rest_a.get(name), rest_b.get(name)
        if left and right:
            found.append(_compare(name, left, right, keys_a, keys_b))
        elif left and not roots_b[keys_a[left.root]]:
            found.append(ComputationDiff(name, [*left.instructions], [], 0))
        elif right and not roots_a[keys_b[right.root]]:
            found.append(ComputationDiff(name, [], [*right.instructions], 0))
    return found


def _compare(
    name: str, a: Computation, b: Computation, keys_a: dict[Instruction, int], keys_b: dict[Instruction, int]
) -> ComputationDiff:
    left, right = (Counter(keys[i] for i in c.instructions) for c, keys in ((a, keys_a), (b, keys_b)))
    gone, new = _take(a, keys_a, left - right), _take(b, keys_b, right - left)
    # What reads something else under an old name, and is written as before, is not worth a word.
    written = {_line(i) for i in gone} & {_line(i) for i in new}
    same = len(b.instructions) - len(new) + len(written)
    return ComputationDiff(
        name, [i for i in gone if _line(i) not in written], [i for i in new if _line(i) not in written], same
    )


def _line(instruction: Instruction) -> tuple[str, Any]:
    """The instruction as it is written: its name, what it is, and the names that it reads."""
    called = tuple(computation.name for computation in instruction.op.computations)
    return repr(instruction), (_attributes(instruction), called)


def _attributes(instruction: Instruction) -> tuple[tuple[str, Any], ...]:
    """What the operation says of itself beside the computations that it calls."""
    op = instruction.op
    calling = {f.name for f in op.calling_fields}
    return tuple((f.name, op.__dict__[f.name]) for f in op.fields if f.name not in calling)


def _take(computation: Computation, keys: dict[Instruction, int], wanted: Counter[int]) -> list[Instruction]:
    """The last so many instructions of each key, in order: of equal ones it is those that a pass added or merged."""
    rest, found = Counter(wanted), []
    for instruction in reversed(computation.instructions):
        if rest[keys[instruction]]:
            rest[keys[instruction]] -= 1
            found.append(instruction)
    return found[::-1]


def _keys(module: Module, numbers: dict[Any, int]) -> dict[Instruction, int]:
    """A number for each instruction; equal ones compute the same from the same parameters."""
    found: dict[Instruction, int] = {}
    for computation in callees_first_of(module):
        for instruction in computation.instructions:
            op = instruction.op
            called = tuple(found[c.root] for c in op.computations)
            operands = tuple(found[operand] for operand in instruction.operands)
            key = op.opcode, _attributes(instruction), called, str(instruction.shape), operands
            found[instruction] = numbers.setdefault(key, len(numbers))
    return found


def diff_lines(diffs: list[ComputationDiff]) -> list[str]:
    """As text: `- ` what is gone, `+ ` what is new."""
    lines = []
    for each in diffs:
        if each.is_same:
            continue
        lines.append(f"{each.name}: {each.same} the same, {len(each.gone)} gone, {len(each.new)} new")
        lines += [f"- {instruction!r}" for instruction in each.gone]
        lines += [f"+ {instruction!r}" for instruction in each.new]
    return lines
