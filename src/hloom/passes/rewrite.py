"""Rewrite rules: a pattern, a condition and a replacement, and the engine that applies them.

A pattern is written like HLO: `add(x, negate(y))`. A name matches any instruction, and the same name the same
instruction each time; `$c` matches a splat, a constant whose elements are all equal (a constant of one element, or the
broadcast of one); `reduce(*)` matches whatever the operands are, `concatenate(slice*)` where one of them is a slice;
`elementwise(..)` matches any element-wise operation.

    Rule("subtract-negate", "subtract(x, negate(y))", lambda m: m.result(Add(), m.x, m.y), "x - (-y) = x + y")

A rule is a pass, which applies it alone; `@rewrite` makes one of a function.

The engine leaves dynamic shapes, mixed precision, control edges and layouts alone: each instruction that a rule sees,
the root, its operands and what the pattern goes through, takes and gives static shapes in one precision. Where what the
rule gives has another shape or layout than what it would replace, it does not apply.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Computation, Instruction, Module
from hloom.literal import Literal
from hloom.numerics import convert
from hloom.ops.broadcast import Broadcast
from hloom.ops.operation import OPERATIONS, Operation
from hloom.ops.structure import Constant
from hloom.passes.edit import Edit, has_control_edges, runs_effects
from hloom.shape import Shape
from hloom.types import PrimitiveType
from hloom.values import Array
from hloom.verifier.precision import is_mixed


def always(match: Match) -> bool:
    """The condition of rules that need none."""
    return True


@dataclass(frozen=True)
class Rule:
    """Where `pattern` matches and `when` holds, `replacement` takes the instruction's place; `why` says it is right."""

    name: str
    pattern: str
    replacement: Callable[[Match], Instruction]
    why: str
    when: Callable[[Match], bool] = always
    root: Pattern = field(init=False, repr=False, compare=False)
    goes_deep: bool = field(init=False, repr=False, compare=False)
    """Whether the pattern names operations behind those of the root's operands."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", parse_pattern(self.pattern))
        object.__setattr__(self, "goes_deep", self.root.depth > 2)

    def run(self, module: Module) -> int:
        """Applies the rule wherever it fits, until it does nowhere; gives how often."""
        return self.apply(module).total()

    def apply(self, module: Module) -> Counter[str]:
        """As `run`; the number stands under the rule's name."""
        return RuleSet([self]).apply(module)


def rewrite(
    pattern: str, why: str = "", *, when: Callable[[Match], bool] = always, name: str = ""
) -> Callable[[Callable[[Match], Instruction]], Rule]:
    """Makes a rule of a function that gives the replacement for a match.

        @hloom.rewrite("multiply(x, $c)", "x * 2 = x + x", when=lambda m: m.value("c") == 2)
        def double(m):
            return m.result(Add(), m.x, m.x)

    It is called like the function, with dashes, unless `name` says otherwise. ArgumentError for a pattern that cannot
    be read.
    """

    def build(replacement: Callable[[Match], Instruction]) -> Rule:
        return Rule(name or replacement.__name__.replace("_", "-"), pattern, replacement, why, when)

    return build


# Patterns


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of instructions: an opcode with patterns of its operands, or a name that an instruction is bound to.

    With `operands` None any operands match, if one of them has the opcode `required_opcode` or that is empty.
    """

    name: str = ""
    opcode: str = ""
    operands: tuple[Pattern, ...] | None = ()
    is_splat: bool = False
    required_opcode: str = ""

    def match(self, instruction: Instruction, bound: dict[str, Instruction]) -> bool:
        if self.opcode:
            if self.opcode != instruction.op.opcode:
                return False
            return self.match_operands(instruction, bound)
        if self.is_splat and splat_source(instruction) is None:
            return False
        return bound.setdefault(self.name, instruction) is instruction

    def allows(self, opcodes: Sequence[str]) -> bool:
        """Whether operands with these opcodes may match."""
        if self.operands is None:
            return not self.required_opcode or self.required_opcode in opcodes
        pairs = zip(self.operands, opcodes, strict=False)
        return len(self.operands) == len(opcodes) and all(pattern.may_be(opcode) for pattern, opcode in pairs)

    def may_be(self, opcode: str) -> bool:
        """Whether an instruction with this opcode may match."""
        return opcode == self.opcode if self.opcode else not self.is_splat or opcode in ("broadcast", "constant")

    def inner_instructions(self, instruction: Instruction) -> Iterable[Instruction]:
        """The instructions behind the operands of a matching one whose operations the pattern names."""
        for pattern, operand in zip(self.operands or (), instruction.operands, strict=False):
            named = [
                each for each, inner in zip(operand.operands, pattern.operands or (), strict=False) if inner.opcode
            ]
            yield from named
            yield from pattern.inner_instructions(operand)

    @property
    def depth(self) -> int:
        """How many operations are behind each other."""
        return bool(self.opcode) + max((pattern.depth for pattern in self.operands or ()), default=0)

    def match_operands(self, instruction: Instruction, bound: dict[str, Instruction]) -> bool:
        patterns, operands = self.operands, instruction.operands
        if patterns is None:
            return not self.required_opcode or any(operand.op.opcode == self.required_opcode for operand in operands)
        if len(patterns) != len(operands):
            return False
        # The innermost loop of all passes: a loop costs a third of all(..).
        for pattern, operand in zip(patterns, operands):  # noqa: SIM110
            if not pattern.match(operand, bound):
                return False
        return True


_TOKEN = re.compile(r"\s*([$\w*-]+|[(),])")
_PATTERN = re.compile(r"\s*[\w-]+\(([$\w*-]|[(),\s])*\)\s*")


def parse_pattern(text: str) -> Pattern:
    """Reads a pattern, `add(x, negate($c))`; ArgumentError where it is none."""
    tokens = deque(_TOKEN.findall(text))
    if not _PATTERN.fullmatch(text) or text.count("(") != text.count(")"):
        raise ArgumentError(f"{text!r} is no pattern, such as add(x, negate($c)) or reduce(*)")

    def read() -> Pattern:
        word = tokens.popleft()
        if not tokens or tokens[0] != "(":
            return Pattern(name=word.lstrip("$"), is_splat=word[0] == "$")
        if word not in OPERATIONS and word != "elementwise":
            raise ArgumentError(f"pattern {text!r} names {word!r}, which is no operation")
        tokens.popleft()
        required_opcode = ""
        if tokens[0].endswith("*"):
            required_opcode, operands = tokens.popleft().rstrip("*"), None
        else:
            operands = tuple(read_list())
        tokens.popleft()
        return Pattern(opcode=word, operands=operands, required_opcode=required_opcode)

    def read_list() -> Iterable[Pattern]:
        while tokens[0] != ")":
            yield read()
            if tokens[0] == ",":
                tokens.popleft()

    return read()


def splat_source(instruction: Instruction) -> Instruction | None:
    """The constant of one element that gives every element of the instruction; None where there is none."""
    if instruction.op.opcode == "broadcast":
        instruction = instruction.operands[0]
    if instruction.op.opcode == "constant" and instruction.shape.is_effective_scalar:
        return instruction
    return None


# Matches


class Match:
    """An instruction that a pattern matched: `root`, the instructions that names stand for (`m.x`), and an edit."""

    __slots__ = ("bound", "edit", "made", "root")

    def __init__(self, root: Instruction, bound: dict[str, Instruction], edit: Edit) -> None:
        self.root = root
        self.bound = bound
        self.edit = edit
        self.made: list[Instruction] = []

    def __getattr__(self, name: str) -> Instruction:
        return self.bound[name]

    @property
    def element_type(self) -> PrimitiveType:
        """That of the result."""
        return self.root.shape.element_type

    @property
    def op(self) -> Any:
        """The operation of the root."""
        return self.root.op

    @property
    def inner(self) -> Any:
        """The operation of the root's first operand, where the pattern goes through it."""
        return self.root.operands[0].op

    def value(self, name: str) -> Array:
        """The element of a splat, as a scalar array."""
        source = splat_source(self.bound[name])
        assert source is not None
        literal: Array = source.op.literal.value  # type: ignore[attr-defined]
        return literal.reshape(())

    # What replacements are made of

    def build(self, op: Operation, operands: Iterable[Instruction], shape: Shape) -> Instruction:
        """A new instruction with the metadata of the root."""
        instruction = self.edit.add(op, operands, shape, self.root)
        self.made.append(instruction)
        return instruction

    def result(self, op: Operation, *operands: Instruction) -> Instruction:
        """A new instruction with the root's shape."""
        return self.build(op, operands, self.root.shape)

    def scalar(self, value: Any, element_type: PrimitiveType | None = None) -> Instruction:
        """A constant of one element; by default of the root's element type."""
        element_type = element_type or self.element_type
        array = np.array(value) if isinstance(value, np.ndarray) else convert(np.asarray(value), element_type.dtype)
        literal = Literal.from_numpy(array)
        return self.build(Constant(literal=literal), (), literal.shape)

    def splat(self, value: Any) -> Instruction:
        """The root's shape filled with one value."""
        return self.spread(self.scalar(value), self.root.shape)

    def spread(self, scalar: Instruction, shape: Shape) -> Instruction:
        """A scalar repeated over the sizes of a shape, with elements of its own type."""
        if shape.is_scalar:
            return scalar
        shape = shape.with_element_type(scalar.shape.element_type)
        return self.build(Broadcast(broadcast_dimensions=()), [scalar], shape)


# The engine


class RuleSet:
    """Rules by the opcode of their root, in the order in which they are tried."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.by_opcode: dict[str, list[Rule]] = {}
        for rule in rules:
            for opcode in _root_opcodes(rule.root):
                self.by_opcode.setdefault(opcode, []).append(rule)
        self._by_opcodes: dict[tuple[str, ...], list[Rule]] = {}

    def _rules(self, root: Instruction) -> list[Rule]:
        """Those that the opcodes of the instruction and its operands allow: hardly any, for most instructions."""
        opcodes = (root.op.opcode, *[operand.op.opcode for operand in root.operands])
        found = self._by_opcodes.get(opcodes)
        if found is None:
            rules = self.by_opcode[opcodes[0]]
            found = self._by_opcodes[opcodes] = [rule for rule in rules if rule.root.allows(opcodes[1:])]
        return found

    def apply(self, module: Module) -> Counter[str]:
        """Rewrites every computation until no rule applies; gives how often each rule did."""
        applied: Counter[str] = Counter()
        for computation in module.computations:
            self._rewrite(computation, applied)
        return applied

    def _rewrite(self, computation: Computation, applied: Counter[str]) -> None:
        worklist = deque(i for i in computation.instructions if i.op.opcode in self.by_opcode)
        if not worklist:
            return
        edit = Edit(computation)
        rewritable = _Rewritable()
        queued = set(worklist)
        limit = applied.total() + 1000 + 100 * len(worklist)
        while worklist:
            assert applied.total() < limit, f"rules that undo each other, in {computation.name}: {applied}"
            instruction = worklist.popleft()
            queued.discard(instruction)
            if instruction in edit.removed:
                continue
            for again in self._rewrite_instruction(instruction, edit, rewritable, applied):
                if again not in queued and again.op.opcode in self.by_opcode:
                    queued.add(again)
                    worklist.append(again)
        edit.finish()

    def _rewrite_instruction(
        self, root: Instruction, edit: Edit, rewritable: _Rewritable, applied: Counter[str]
    ) -> Iterable[Instruction]:
        """Applies the first rule that fits; gives the instructions to look at then."""
        rules = self._rules(root)
        if not rules or has_control_edges(root) or runs_effects(root.op):
            return ()
        for rule in rules:
            bound: dict[str, Instruction] = {}
            if not rule.root.match_operands(root, bound):
                continue
            if not rewritable.all(root, *root.operands):
                return ()
            match = Match(root, bound, edit)
            if rule.goes_deep and not rewritable.all(*rule.root.inner_instructions(root)):
                continue
            if not rewritable.all(*bound.values()) or not rule.when(match):
                continue
            new = rule.replacement(match)
            if not _may_replace(root, new):
                continue
            applied[rule.name] += 1
            if root.sharding is not None and new in match.made:
                new.sharding = root.sharding
            users, operands = [*root.users], root.operands
            edit.replace(root, new)
            return [*match.made, *_affected(users, operands)]
        return ()


def _affected(users: Sequence[Instruction], operands: Sequence[Instruction]) -> Iterable[Instruction]:
    """What rules may see otherwise after a replacement, by the users and the operands of what is gone.

    Patterns go through three instructions, and ask whether an operand has another user.
    """
    for user in users:
        yield user
        for following in user.users:
            yield following
            yield from following.users
    for operand in operands:
        yield operand
        if len(operand.users) == 1:
            yield from operand.users


def _root_opcodes(pattern: Pattern) -> list[str]:
    if pattern.opcode == "elementwise":
        return [opcode for opcode, op in OPERATIONS.items() if op.elementwise]
    return [pattern.opcode]


class _Static(dict[Instruction, bool]):
    """Which instructions have static shapes."""

    def __missing__(self, instruction: Instruction) -> bool:
        self[instruction] = is_static = not instruction.shape.is_dynamic
        return is_static


class _Rewritable(dict[Instruction, bool]):
    """Which instructions make static arrays of static arrays, in one precision, of numbers with a sign and a zero."""

    def __init__(self) -> None:
        super().__init__()
        self.static = _Static()

    def __missing__(self, instruction: Instruction) -> bool:
        kind, static = instruction.shape.element_type, self.static
        is_rewritable = static[instruction] and kind is not PrimitiveType.F8E8M0FNU
        # What is alike needs no closer look, and most is; a loop costs half of all(..).
        is_uniform = not instruction.op.calling_fields
        for operand in instruction.operands:
            is_rewritable = is_rewritable and static[operand]
            is_uniform = is_uniform and operand.shape.element_type is kind
        self[instruction] = is_rewritable = is_rewritable and (is_uniform or not is_mixed(instruction))
        return is_rewritable

    def all(self, *instructions: Instruction) -> bool:
        return all(map(self.__getitem__, instructions))


def _may_replace(old: Instruction, new: Instruction) -> bool:
    """The same shape with the same layout, and no sharding lost."""
    return old.shape == new.shape and (old.sharding is None or new.sharding in (None, old.sharding))
