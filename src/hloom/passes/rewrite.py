"""Rewrite rules: a pattern (`pattern.py`), a condition and a replacement, and the engine that applies them.

    Rule("subtract-negate", "subtract(x, negate(y))", lambda m: m.result(Add(), m.x, m.y), "x - (-y) = x + y")

A rule is also a pass that applies it alone; the decorator `@rewrite` makes a rule of a function.

The engine leaves dynamic shapes, mixed precision, control edges and layouts alone. The instructions that a rule matches
(the root, its operands, and inner instructions of the pattern) have static operands and results in one precision. A
rule does not apply if its replacement has another shape or layout than the root.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from hloom.ir import Computation, Instruction, Module, tick
from hloom.literal import Literal
from hloom.numerics import convert
from hloom.ops.broadcast import Broadcast
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.structure import Constant
from hloom.passes.edit import Edit, constant_value, has_control_edges, runs_effects
from hloom.passes.pattern import Pattern, parse_pattern, splat_source
from hloom.shape import Shape
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.values import Array
from hloom.verifier.precision import is_mixed


def always(match: Match) -> bool:
    """The condition of rules that have none: true."""
    return True


@record
class Rule:
    """A rewrite: an instruction that matches `pattern` and satisfies `when` is replaced by `replacement(match)`.

    `why` is one line that justifies the rule.

    >>> from hloom.ops.elementwise_unary import Negate
    >>> rule = hl.rewrite("negate(negate(x))", "-(-x) = x", name="twice")(lambda match: match.x)
    >>> rule.name, rule.why
    ('twice', '-(-x) = x')
    """

    name: str
    pattern: str
    replacement: Callable[[Match], Instruction]
    why: str
    when: Callable[[Match], bool] = always
    root: Pattern = field(init=False, repr=False, compare=False)
    goes_deep: bool = field(init=False, repr=False, compare=False)
    """Whether the pattern has operations below the operands of the root."""
    binds_deep: bool = field(init=False, repr=False, compare=False)
    """Whether the pattern names other instructions than operands of the root."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", parse_pattern(self.pattern))
        object.__setattr__(self, "goes_deep", self.root.depth > 2)
        object.__setattr__(self, "binds_deep", self.root.depth > 1)

    def run(self, module: Module) -> int:
        """Applies the rule until it matches nowhere; returns the number of applications."""
        return self.apply(module).total()

    def apply(self, module: Module, settled: Settled | None = None) -> Counter[str]:
        """Applies the rule until it matches nowhere; returns the number of applications by the rule's name."""
        return _alone(self).apply(module, settled)


@functools.cache
def _alone(rule: Rule) -> RuleSet:
    return RuleSet([rule])


def rewrite(
    pattern: str, why: str = "", *, when: Callable[[Match], bool] = always, name: str = ""
) -> Callable[[Callable[[Match], Instruction]], Rule]:
    """Returns a decorator that makes a rule of a function that builds the replacement of a match.

    `pattern` names the instructions that a match binds, `why` is one line that justifies the rule, and `when` says
    which matches are replaced. The default `name` is that of the function, with dashes for underscores. Raises
    ArgumentError for a pattern that cannot be parsed.

    >>> from hloom.ops.elementwise_binary import Add
    >>> @hl.rewrite("multiply(x, $c)", "x * 2 = x + x", when=lambda m: m.value("c") == 2)
    ... def double(m):
    ...     return m.result(Add(), m.x, m.x)
    ...
    >>> module = hl.parse(
    ...     "HloModule m  ENTRY e { x = f32[] parameter(0)  c = f32[] constant(2)  ROOT y = f32[] multiply(x, c) }"
    ... )
    >>> double.apply(module)
    Applications({'double': 1})
    """

    def build(replacement: Callable[[Match], Instruction]) -> Rule:
        return Rule(name or replacement.__name__.replace("_", "-"), pattern, replacement, why, when)

    return build


# Matches


class Match:
    """A match of a pattern: the `root`, the instructions bound to names (`m.x`), and methods to build replacements.

    >>> @hl.rewrite("multiply(x, $c)", "x * 0 = 0", when=lambda match: match.value("c") == 0)
    ... def zero(match):
    ...     return match.c
    """

    __slots__ = ("bound", "edit", "made", "root")

    def __init__(self, root: Instruction, bound: dict[str, Instruction], edit: Edit) -> None:
        self.root = root
        self.bound = bound
        self.edit = edit
        self.made: list[Instruction] = []

    def __getattr__(self, name: str) -> Instruction:
        try:
            return self.bound[name]
        except KeyError:
            raise AttributeError(
                f"the pattern binds no {name}; it binds {', '.join(self.bound) or 'nothing'}"
            ) from None

    @property
    def element_type(self) -> PrimitiveType:
        """The element type of the root."""
        return self.root.shape.element_type

    @property
    def op(self) -> Any:
        """The operation of the root."""
        return self.root.op

    @property
    def inner(self) -> Any:
        """The operation of the root's first operand."""
        return self.root.operands[0].op

    def value(self, name: str) -> Array:
        """Returns the value of a splat's elements, as an array of rank 0."""
        source = splat_source(self.bound[name])
        assert source is not None
        value: Array = constant_value(source)
        return value.reshape(())

    # Building replacements

    def build(self, op: Operation, operands: Iterable[Instruction], shape: Shape) -> Instruction:
        """Creates an instruction with the metadata of the root."""
        instruction = self.edit.add(op, operands, shape, self.root)
        self.made.append(instruction)
        return instruction

    def result(self, op: Operation, *operands: Instruction) -> Instruction:
        """Creates an instruction with the shape and metadata of the root."""
        return self.build(op, operands, self.root.shape)

    def scalar(self, value: Any, element_type: PrimitiveType | None = None) -> Instruction:
        """Creates a scalar constant, by default of the root's element type."""
        element_type = element_type or self.element_type
        array = np.array(value) if isinstance(value, np.ndarray) else convert(np.asarray(value), element_type.dtype)
        literal = Literal.from_numpy(array)
        return self.build(Constant(literal=literal), (), literal.shape)

    def splat(self, value: Any) -> Instruction:
        """Creates an array of the root's shape that is filled with one value."""
        return self.spread(self.scalar(value), self.root.shape)

    def spread(self, scalar: Instruction, shape: Shape) -> Instruction:
        """Broadcasts a scalar, in its own element type, to the dimensions of a shape."""
        if shape.is_scalar:
            return scalar
        shape = shape.with_element_type(scalar.shape.element_type)
        return self.build(Broadcast(broadcast_dimensions=()), [scalar], shape)


# The engine


PATTERN_LEVELS = 3
"""The largest number of levels of operations in a pattern."""
MAX_KEPT, MAX_KEPT_OPERANDS = 1024, 3
"""The largest number of lists of opcodes whose rules are kept, and of operands in them: long ones hardly recur."""


class Applications(Counter[str]):
    """The number of applications of each rule; `replaced` are names of rules, and of the instructions they replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[tuple[str, str]] = []


Settled = dict[tuple["RuleSet", Computation], int]
"""The time at which no rule of a set applied to a computation any more, on the clock of `Instruction.changed`."""


class RuleSet:
    """Rules indexed by the opcode of their root, and tried in the order given."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_opcode: dict[str, list[Rule]] = {}
        for rule in rules:
            for opcode in _root_opcodes(rule.root):
                self.by_opcode.setdefault(opcode, []).append(rule)
        self._by_opcodes: dict[tuple[str, ...], list[Rule]] = {}

    def _rules(self, root: Instruction) -> list[Rule]:
        """Returns the rules that the opcodes of the instruction and its operands allow: none for most instructions."""
        opcodes = (root.op.opcode, *[operand.op.opcode for operand in root.operands])
        found = self._by_opcodes.get(opcodes)
        if found is None:
            rules = self.by_opcode[opcodes[0]]
            found = [rule for rule in rules if rule.root.allows(opcodes[1:])]
            if len(opcodes) <= 1 + MAX_KEPT_OPERANDS and len(self._by_opcodes) < MAX_KEPT:
                self._by_opcodes[opcodes] = found
        return found

    def apply(self, module: Module, settled: Settled | None = None) -> Counter[str]:
        """Rewrites every computation until no rule applies; returns the number of applications of each rule.

        Only what changed since the last time that `settled` knows, and what is near to it, is looked at.
        """
        applied = Applications()
        for computation in module.computations:
            since = settled.get((self, computation), 0) if settled is not None else 0
            self._rewrite(computation, _near_changes(computation, since), applied)
            if settled is not None:
                settled[self, computation] = tick()
        return applied

    def _rewrite(self, computation: Computation, near: Iterable[Instruction], applied: Applications) -> None:
        worklist = deque([i for i in near if i.op.opcode in self.by_opcode])
        if not worklist:
            return
        edit = Edit(computation)
        rewritable = _Rewritable()
        queued = set(worklist)
        limit = len(applied.replaced) + 1000 + 100 * len(worklist)
        while worklist:
            assert len(applied.replaced) < limit, f"rules that undo each other, in {computation.name}: {applied}"
            instruction = worklist.popleft()
            queued.discard(instruction)
            if instruction in edit.removed:
                continue
            rules = self._rules(instruction)
            if not rules or has_control_edges(instruction) or runs_effects(instruction.op):
                continue
            for again in _apply_first(rules, instruction, edit, rewritable, applied):
                if again not in queued and again.op.opcode in self.by_opcode:
                    queued.add(again)
                    worklist.append(again)
        edit.finish()


def _apply_first(
    rules: Sequence[Rule], root: Instruction, edit: Edit, rewritable: _Rewritable, applied: Applications
) -> Iterable[Instruction]:
    """Applies the first rule that matches; returns the instructions that rules may match now."""
    is_rewritable = False
    for rule in rules:
        bound: dict[str, Instruction] = {}
        if not rule.root.match_operands(root, bound):
            continue
        if not is_rewritable:
            is_rewritable = rewritable.all(root, *root.operands)
            if not is_rewritable:
                return ()
        if rule.goes_deep and not rewritable.all(*rule.root.inner_instructions(root)):
            continue
        match = Match(root, bound, edit)
        if (rule.binds_deep and not rewritable.all(*bound.values())) or not rule.when(match):
            continue
        new = rule.replacement(match)
        if not _may_replace(root, new):
            continue
        applied[rule.name] += 1
        applied.replaced.append((rule.name, root.name))
        if root.sharding is not None and new in match.made:
            new.sharding = root.sharding
        users = [*root.users]
        removed = edit.replace(root, new)
        return [*match.made, *_affected(users, removed)]
    return ()


def _near_changes(computation: Computation, since: int) -> list[Instruction]:
    """Returns the instructions that rules may match because of a change since a time, in order.

    Instructions that call computations count as changed: these may have.
    """
    if not since:
        return computation.instructions
    changed = [i for i in computation.instructions if i.changed > since or i.op.calling_fields]
    near = set(changed)
    for _ in range(PATTERN_LEVELS):
        changed = [user for each in changed for user in each.users if user not in near]
        near.update(changed)
    return [i for i in computation.instructions if i in near]


def _affected(users: Sequence[Instruction], removed: Sequence[Instruction]) -> Iterable[Instruction]:
    """Yields the instructions that rules may match after the replacement of one with these users, and removals.

    Patterns have up to three levels of operations, and conditions depend on whether an operand has other users.
    """
    for user in users:
        yield user
        for following in user.users:
            yield following
            yield from following.users
    for operand in (operand for each in removed for operand in each.operands):
        yield operand
        if len(operand.users) == 1:
            yield from operand.users


def _root_opcodes(pattern: Pattern) -> list[str]:
    if pattern.opcode == "elementwise":
        return [opcode for opcode, op in OPERATIONS.items() if op.elementwise]
    return [pattern.opcode]


class _Rewritable(dict[Instruction, bool]):
    """A cache: whether rules may match an instruction.

    Its operands and result must be static, in one precision, and of a type that has signs and zero.
    """

    def __missing__(self, instruction: Instruction) -> bool:
        shape = instruction.shape
        is_dynamic = shape.is_dynamic or True in [operand.shape.is_dynamic for operand in instruction.operands]
        has_zero = shape.element_type is not PrimitiveType.F8E8M0FNU
        self[instruction] = is_rewritable = not is_dynamic and has_zero and not is_mixed(instruction)
        return is_rewritable

    def all(self, *instructions: Instruction) -> bool:
        return all(map(self.__getitem__, instructions))


def _may_replace(old: Instruction, new: Instruction) -> bool:
    """Whether shape and layout are equal and the sharding of the old instruction is not lost."""
    return old.shape == new.shape and (old.sharding is None or new.sharding in (None, old.sharding))
