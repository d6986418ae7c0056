"""Difference of two modules as graphs: it ignores names and order."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hloom.ir import Computation, Instruction, Module
from hloom.passes.edit import callees_first_of
from hloom.system.records import record


@record
class ComputationDiff:
    """Difference of a computation and its counterpart in the other module, either of which may be missing.

    `unchanged` is the number of equal instructions; `before` and `after` are the computations.
    """

    name: str
    removed: list[Instruction]
    added: list[Instruction]
    unchanged: int
    before: Computation | None
    after: Computation | None

    @property
    def is_same(self) -> bool:
        """Whether the computations are equal."""
        return not self.removed and not self.added


def diff(a: Module, b: Module) -> list[ComputationDiff]:
    """Returns, for each computation, the instructions of `a` that `b` lacks, and vice versa.

    Two instructions are equal if their operations, shapes and operands are equal, or if they have the same text and
    operand names. Parameters are equal if their parameter numbers are. The two entries are counterparts, and so are
    computations of the same name. A computation whose root has an equal in the other module needs no counterpart.

    >>> from hloom import faults
    >>> one = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] add(x, x) }")
    >>> other = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] multiply(x, x) }")
    >>> faults.diff(one, other)[0].removed
    [%y = f32[2] add(%x, %x)]
    """
    ids: dict[Any, int] = {}
    keys_a, keys_b = (value_ids(module, ids) for module in (a, b))
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
            found.append(ComputationDiff(name, [*of_a.instructions], [], 0, of_a, None))
        elif of_b and not roots_a[keys_b[of_b.root]]:
            found.append(ComputationDiff(name, [], [*of_b.instructions], 0, None, of_b))
    return found


def _compare(
    name: str, a: Computation, b: Computation, keys_a: dict[Instruction, int], keys_b: dict[Instruction, int]
) -> ComputationDiff:
    of_a, of_b = (Counter(keys[i] for i in c.instructions) for c, keys in ((a, keys_a), (b, keys_b)))
    removed, added = _take(a, keys_a, of_a - of_b), _take(b, keys_b, of_b - of_a)
    # Instructions with unchanged text whose operands differ are not reported.
    written = {_line(i) for i in removed} & {_line(i) for i in added}
    unchanged = len(b.instructions) - len(added) + len(written)
    rest_a, rest_b = ([i for i in side if _line(i) not in written] for side in (removed, added))
    return ComputationDiff(name, rest_a, rest_b, unchanged, a, b)


def _line(instruction: Instruction) -> tuple[str, Any]:
    """Text of an instruction, its attributes and the names of the computations that it calls."""
    called = tuple(computation.name for computation in instruction.op.computations)
    return repr(instruction), (attributes(instruction), called)


def attributes(instruction: Instruction) -> tuple[tuple[str, Any], ...]:
    """Attributes of the operation, except the computations that it calls."""
    op = instruction.op
    calling = {f.name for f in op.calling_fields}
    return tuple((f.name, op.__dict__[f.name]) for f in op.fields if f.name not in calling)


def _take(computation: Computation, keys: dict[Instruction, int], wanted: Counter[int]) -> list[Instruction]:
    """The last `wanted[key]` instructions of each key, in order: of equal ones, passes add or merge the last."""
    rest, found = Counter(wanted), []
    for instruction in reversed(computation.instructions):
        if rest[keys[instruction]]:
            rest[keys[instruction]] -= 1
            found.append(instruction)
    return found[::-1]


def value_ids(module: Module, ids: dict[Any, int]) -> dict[Instruction, int]:
    """Value numbering: instructions with equal numbers compute the same function of the parameters.

    `ids` has the numbers that are given already, as of another module.
    """
    found: dict[Instruction, int] = {}
    for computation in callees_first_of(module):
        for instruction in computation.instructions:
            op = instruction.op
            called = tuple(found[c.root] for c in op.computations)
            operands = tuple(found[operand] for operand in instruction.operands)
            key = op.opcode, attributes(instruction), called, str(instruction.shape), operands
            found[instruction] = ids.setdefault(key, len(ids))
    return found


def diff_lines(diffs: list[ComputationDiff]) -> list[str]:
    """Formats a difference as text, with `- ` before removed and `+ ` before added instructions."""
    lines = []
    for each in diffs:
        if each.is_same:
            continue
        lines.append(f"{each.name}: {each.unchanged} unchanged, {len(each.removed)} removed, {len(each.added)} added")
        lines += [f"- {instruction!r}" for instruction in each.removed]
        lines += [f"+ {instruction!r}" for instruction in each.added]
    return lines
