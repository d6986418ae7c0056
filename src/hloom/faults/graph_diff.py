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
    removed: list[Instruction]
    added: list[Instruction]
    unchanged: int

    @property
    def is_same(self) -> bool:
        return not self.removed and not self.added


def diff(a: Module, b: Module) -> list[ComputationDiff]:
    """Computation by computation: the instructions of `a` that `b` lacks, and the other way round.

    Two instructions are the same if their operation, shape and operands are, or if they are written in the same way
    from the same names; parameters are told apart by number. The entries are counterparts, other computations by their
    names; what has the same instructions needs no name in common.
    """
    ids: dict[Any, int] = {}
    keys_a, keys_b = (_keys(module, ids) for module in (a, b))
    found = [_compare("ENTRY " + b.entry.name, a.entry, b.entry, keys_a, keys_b)]
    rest_a = {c.name: c for c in a.computations if c is not a.entry}
    rest_b = {c.name: c for c in b.computations if c is not b.entry}
    roots_a = Counter(keys_a[c.root] for c in rest_a.values())
    roots_b = Counter(keys_b[c.root] for c in rest_b.values())
    for name in dict.fromkeys([*rest_a, *rest_b]):
        of_a, of_b = rest_a.get(name), rest_b.get(name)
        if of_a and of_b:
            found.append(_compare(name, of_a, of_b, keys_a, keys_b))
        elif of_a and not roots_b[keys_a[of_a.root]]:
            found.append(ComputationDiff(name, [*of_a.instructions], [], 0))
        elif of_b and not roots_a[keys_b[of_b.root]]:
            found.append(ComputationDiff(name, [], [*of_b.instructions], 0))
    return found


def _compare(
    name: str, a: Computation, b: Computation, keys_a: dict[Instruction, int], keys_b: dict[Instruction, int]
) -> ComputationDiff:
    of_a, of_b = (Counter(keys[i] for i in c.instructions) for c, keys in ((a, keys_a), (b, keys_b)))
    removed, added = _take(a, keys_a, of_a - of_b), _take(b, keys_b, of_b - of_a)
    # What reads something else under an old name, and is written as before, is not worth a word.
    written = {_line(i) for i in removed} & {_line(i) for i in added}
    unchanged = len(b.instructions) - len(added) + len(written)
    return ComputationDiff(
        name, [i for i in removed if _line(i) not in written], [i for i in added if _line(i) not in written], unchanged
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


def _keys(module: Module, ids: dict[Any, int]) -> dict[Instruction, int]:
    """A number for each instruction; equal ones compute the same from the same parameters."""
    found: dict[Instruction, int] = {}
    for computation in callees_first_of(module):
        for instruction in computation.instructions:
            op = instruction.op
            called = tuple(found[c.root] for c in op.computations)
            operands = tuple(found[operand] for operand in instruction.operands)
            key = op.opcode, _attributes(instruction), called, str(instruction.shape), operands
            found[instruction] = ids.setdefault(key, len(ids))
    return found


def diff_lines(diffs: list[ComputationDiff]) -> list[str]:
    """As text: `- ` what is gone, `+ ` what is new."""
    lines = []
    for each in diffs:
        if each.is_same:
            continue
        lines.append(f"{each.name}: {each.unchanged} unchanged, {len(each.removed)} removed, {len(each.added)} added")
        lines += [f"- {instruction!r}" for instruction in each.removed]
        lines += [f"+ {instruction!r}" for instruction in each.added]
    return lines
