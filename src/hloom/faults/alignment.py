"""Alignment of two modules: for instructions of one, those that correspond to them in the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hloom.faults.graph_diff import value_ids
from hloom.ir import Computation, Instruction, Module

_Pair = tuple[Instruction, Instruction]


def align(a: Module, b: Module) -> dict[Instruction, Instruction]:
    """Returns counterparts in `b` of instructions of `a`, in the entries and in computations of the same name.

    Counterparts compute the same; or they have the same operation and read, or are read by, counterparts at the same
    position; or they have the same name, which comes first if most of the names seem to mean the same.

    >>> from hloom.faults.alignment import align
    >>> one = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> other = hl.parse("HloModule m  ENTRY e { a = f32[2] parameter(0) b = f32[2] abs(a) ROOT c = f32[2] negate(b) }")
    >>> align(one, other)[one.entry.root]
    %c = f32[2] negate(%b)
    """
    found = _Alignment()
    ids: dict[object, int] = {}
    keys_a, keys_b = (value_ids(module, ids) for module in (a, b))
    for of_a, of_b in counterparts(a, b):
        found.pair_equal(of_a, of_b, keys_a, keys_b)
        if _agree_in_names(of_a, of_b):
            found.pair_named(of_a, of_b)
        found.pair(of_a.root, of_b.root)
        found.spread()
        found.pair_named(of_a, of_b)
    return found.pairs


def counterparts(a: Module, b: Module) -> Iterator[tuple[Computation, Computation]]:
    """The pairs of computations that are compared: the entries, and those of the same name."""
    yield a.entry, b.entry
    named = {computation.name: computation for computation in b.computations if computation is not b.entry}
    yield from ((each, named[each.name]) for each in a.computations if each is not a.entry and each.name in named)


def _agree_in_names(a: Computation, b: Computation) -> bool:
    """Whether most instructions of the same name have the same operation and operands, by their names."""
    named = {each.name: each for each in b.instructions}
    pairs = [(each, named[each.name]) for each in a.instructions if each.operands and each.name in named]
    return 2 * sum(_line(one) == _line(other) for one, other in pairs) > len(pairs)


def _line(instruction: Instruction) -> tuple[str, list[str]]:
    return instruction.opcode, [operand.name for operand in instruction.operands]


class _Alignment:
    def __init__(self) -> None:
        self.pairs: dict[Instruction, Instruction] = {}
        self.taken: set[Instruction] = set()
        self.fresh: deque[_Pair] = deque()

    def pair(self, a: Instruction, b: Instruction) -> None:
        """Makes two instructions counterparts, if they have no others."""
        if a not in self.pairs and b not in self.taken:
            self.pairs[a] = b
            self.taken.add(b)
            self.fresh.append((a, b))

    def pair_equal(
        self, a: Computation, b: Computation, keys_a: dict[Instruction, int], keys_b: dict[Instruction, int]
    ) -> None:
        """Pairs instructions that compute the same, in order."""
        free: dict[int, deque[Instruction]] = {}
        for each in b.instructions:
            free.setdefault(keys_b[each], deque()).append(each)
        for each in a.instructions:
            if equal := free.get(keys_a[each]):
                self.pair(each, equal.popleft())

    def pair_named(self, a: Computation, b: Computation) -> None:
        """Pairs what is left by name."""
        named = {each.name: each for each in b.instructions}
        for each in a.instructions:
            if each.name in named:
                self.pair(each, named[each.name])

    def spread(self) -> None:
        """Pairs the operands and users of counterparts."""
        while self.fresh:
            a, b = self.fresh.popleft()
            for operand, other in zip(a.operands, b.operands, strict=False):
                if type(operand.op) is type(other.op):
                    self.pair(operand, other)
            for user in a.users:
                index = user.operands.index(a)
                for other in b.users:
                    is_there = index < len(other.operands) and other.operands[index] is b
                    if is_there and type(other.op) is type(user.op):
                        self.pair(user, other)
