"""The changes that a pass makes, as small graphs: the connected parts of a difference, before and after."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hloom.explorer.graph import Json
from hloom.faults.graph_diff import ComputationDiff, attributes
from hloom.ir import Computation, Instruction

MAX_GROUPS = 120
"""Largest number of graphs of a pass; the page says how many more there are."""
MAX_NODES = 60
"""Largest number of instructions on one side of a graph: the changed ones first, then those around them."""
MAX_SHAPE = 60


def changes_of(diffs: Sequence[ComputationDiff], applied: Sequence[tuple[str, str]] = ()) -> Json:
    """Returns the graphs of a difference, and how many are left out.

    `applied` are the names of rules with the names of the instructions that they replaced.
    """
    rules = _by_name(applied)
    groups = [(each, group) for each in map(_without_users, diffs) for group in _groups(each)]
    return {
        "groups": [_graphs(each, group, rules) for each, group in groups[:MAX_GROUPS]],
        "omitted": max(0, len(groups) - MAX_GROUPS),
    }


def replacements(diffs: Sequence[ComputationDiff], applied: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Returns rows: a removed instruction, the one that replaced it, the rules, and the computation to which it moved.

    Each may be "". What changed or moved replaced itself. `applied` is that of `changes_of`.
    """
    rules, kept = _by_name(applied), {i.name: each.name for each in diffs for i in each.added}
    found: dict[str, list[str]] = {}
    for each in map(_without_users, diffs):
        successors: dict[str, str] = {}
        for old, new in _replacements(each):
            successors.setdefault(old.name, new.name)
        for name in (i.name for i in each.removed):
            now = name if name in kept else successors.get(name, "")
            moved = kept.get(name, each.name)
            names = ", ".join(dict.fromkeys(rules.get(name, ())))
            found.setdefault(name, [name, now, names, moved if moved != each.name else ""])
    return list(found.values())


def _by_name(applied: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    rules: dict[str, list[str]] = {}
    for rule, name in applied:
        rules.setdefault(name, []).append(rule)
    return rules


def _without_users(difference: ComputationDiff) -> ComputationDiff:
    """The difference without instructions of which only operands differ: users of what changed."""
    before, after = ({_same(i): i for i in side} for side in (difference.removed, difference.added))
    return replace(
        difference,
        removed=[i for key, i in before.items() if key not in after],
        added=[i for key, i in after.items() if key not in before],
    )


def _same(instruction: Instruction) -> tuple[Any, ...]:
    """Returns what this instruction shares with one of the same name if both differ in operands alone."""
    op = instruction.op
    return instruction.name, op.opcode, str(instruction.shape), attributes(instruction), len(instruction.operands)


@dataclass
class _Group:
    removed: list[Instruction]
    added: list[Instruction]


def _groups(difference: ComputationDiff) -> list[_Group]:
    """The removed and added instructions that belong together: one reads the other, or replaces it."""
    changed = [*difference.removed, *difference.added]
    parents = {i: i for i in changed}

    def find(instruction: Instruction) -> Instruction:
        while parents[instruction] is not instruction:
            parents[instruction] = parents[parents[instruction]]
            instruction = parents[instruction]
        return instruction

    for one, other in _pairs(difference):
        parents[find(other)] = find(one)
    groups: dict[Instruction, _Group] = {}
    for instruction in difference.removed:
        groups.setdefault(find(instruction), _Group([], [])).removed.append(instruction)
    for instruction in difference.added:
        groups.setdefault(find(instruction), _Group([], [])).added.append(instruction)
    return list(groups.values())


def _pairs(difference: ComputationDiff) -> Iterable[tuple[Instruction, Instruction]]:
    removed, added = set(difference.removed), set(difference.added)
    for side in (removed, added):
        yield from ((i, operand) for i in side for operand in i.operands if operand in side)
    by_name = {i.name: i for i in difference.removed}
    yield from ((by_name[i.name], i) for i in difference.added if i.name in by_name)
    yield from ((old, new) for old, new in _replacements(difference) if new in added)


def _replacements(difference: ComputationDiff) -> Iterable[tuple[Instruction, Instruction]]:
    """Pairs of instructions of which the second is now where the first was: operand of a user, or the result."""
    before, after, removed = difference.before, difference.after, set(difference.removed)
    if before is None or after is None:
        return
    if before.root in removed:
        yield before.root, after.root
    added = set(difference.added)
    now = {i.name: i for i in after.instructions if i not in added}
    for old in difference.removed:
        for user in old.users:
            counterpart = now.get(user.name) if user not in removed else None
            for was, operand in zip(user.operands, counterpart.operands if counterpart else (), strict=False):
                if was is old:
                    yield old, operand


def _graphs(difference: ComputationDiff, group: _Group, rules: dict[str, list[str]]) -> Json:
    names = [rule for i in group.removed for rule in rules.get(i.name, ())]
    return {
        "computation": difference.name,
        "rules": list(dict.fromkeys(names)),
        "before": _side(group.removed, _users_in(difference.before, group.added), "-"),
        "after": _side(group.added, _users_in(difference.after, group.removed), "+"),
    }


def _users_in(computation: Computation | None, changed: Sequence[Instruction]) -> list[Instruction]:
    """The users, by name, of instructions that this computation lacks, and what they read here instead."""
    users = {user.name: user for i in changed for user in i.users if user not in changed}
    here = [i for i in computation.instructions if i.name in users] if computation is not None and users else []
    pairs = (pair for user in here for pair in zip(users[user.name].operands, user.operands, strict=False))
    return [*here, *(operand for was, operand in pairs if was in changed)]


def _side(changed: Sequence[Instruction], users: Sequence[Instruction], sign: str) -> list[Json]:
    """The changed instructions in order, with those around them: what they are, and the indices of their operands."""
    inside = set(changed)
    around = {other for i in changed for other in (*i.operands, *i.users)}.union(users) - inside
    shown = [*changed[:MAX_NODES], *sorted(around, key=lambda i: i.name)[: max(0, MAX_NODES - len(changed))]]
    indices = {instruction: k for k, instruction in enumerate(shown)}
    return [
        {
            "name": i.name,
            "op": i.opcode,
            "shape": str(i.shape)[:MAX_SHAPE],
            "sign": sign if i in inside else "=",
            "operands": [indices[operand] for operand in i.operands if operand in indices],
        }
        for i in shown
    ]
