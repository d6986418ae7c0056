"""Patterns of instructions, written like HLO: `add(x, negate(y))`.

A name matches any instruction, and all occurrences of a name the same instruction; `$c` matches a splat, a constant
whose elements are all equal (a constant of one element, or the broadcast of one); `reduce(*)` matches any operands,
`concatenate(slice*)` any operands that include a slice; `elementwise(..)` matches any element-wise operation.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence

from hloom.errors import ArgumentError
from hloom.ir import Instruction
from hloom.ops.broadcast import Broadcast
from hloom.ops.operation import OPERATIONS
from hloom.ops.structure import Constant
from hloom.system.records import record


@record(slots=True)
class Pattern:
    """A pattern of instructions: an opcode with patterns of its operands; or a name, to which a match is bound.

    If `operands` is None, any operands match that include one with the opcode `required_opcode`, unless that is empty.
    """

    name: str = ""
    opcode: str = ""
    operands: tuple[Pattern, ...] | None = ()
    is_splat: bool = False
    required_opcode: str = ""

    def match(self, instruction: Instruction, bound: dict[str, Instruction]) -> bool:
        """Whether the instruction matches, given the names bound so far; adds the names that it binds."""
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
        """Yields the instructions below the operands of a match whose opcodes the pattern gives."""
        for pattern, operand in zip(self.operands or (), instruction.operands, strict=False):
            named = [
                each for each, inner in zip(operand.operands, pattern.operands or (), strict=False) if inner.opcode
            ]
            yield from named
            yield from pattern.inner_instructions(operand)

    @property
    def depth(self) -> int:
        """Number of nested operations."""
        return bool(self.opcode) + max((pattern.depth for pattern in self.operands or ()), default=0)

    def match_operands(self, instruction: Instruction, bound: dict[str, Instruction]) -> bool:
        """Whether the operands match; the opcode of the instruction is not compared."""
        patterns, operands = self.operands, instruction.operands
        if patterns is None:
            return not self.required_opcode or any(operand.op.opcode == self.required_opcode for operand in operands)
        if len(patterns) != len(operands):
            return False
        # The innermost loop of all passes: a for loop takes a third of the time of all(..).
        for pattern, operand in zip(patterns, operands):  # noqa: SIM110
            if not pattern.match(operand, bound):
                return False
        return True


_TOKEN = re.compile(r"\s*([$\w*-]+|[(),])")
_PATTERN = re.compile(r"\s*[\w-]+\(([$\w*-]|[(),\s])*\)\s*")


def parse_pattern(text: str) -> Pattern:
    """Parses a pattern such as `add(x, negate($c))`; raises ArgumentError for wrong syntax and unknown operations."""
    tokens = deque(_TOKEN.findall(text))
    if not _PATTERN.fullmatch(text) or text.count("(") != text.count(")"):
        raise ArgumentError(f"{text!r} is not a pattern, such as add(x, negate($c)) or reduce(*)")

    def read() -> Pattern:
        word = tokens.popleft()
        if not tokens or tokens[0] != "(":
            return Pattern(name=word.lstrip("$"), is_splat=word[0] == "$")
        if word not in OPERATIONS and word != "elementwise":
            raise ArgumentError(f"pattern {text!r} names {word!r}, which is not an operation")
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
    """Returns the constant of one element that every element of the instruction equals; None if it isn't a splat."""
    if isinstance(instruction.op, Broadcast):
        instruction = instruction.operands[0]
    if isinstance(instruction.op, Constant) and instruction.shape.is_effective_scalar:
        return instruction
    return None
