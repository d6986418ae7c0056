"""Control flow: basic blocks, and brackets for counted loops, conditions and `while` loops.

Blocks begin at labels and end with terminators. Brackets are pairs of instructions in the body of a function (`Loop` ..
`EndLoop`), which may contain each other and blocks; the text of a bracket is its branches, labels and phis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.lir.instructions import Instruction
from hloom.lir.types import I64, Type
from hloom.lir.values import Value

# Blocks


class Label(Instruction):
    """Start of a basic block."""

    __slots__ = ("label",)

    def __init__(self, label: str) -> None:
        super().__init__()
        self.label = label

    def line(self) -> str:
        return f"{self.label}:"


class Phi(Instruction):
    """The operand that belongs to the block from which control came."""

    __slots__ = ("labels",)

    def __init__(self, text: str, type: Type, values: Sequence[Value], labels: Sequence[str]) -> None:
        self.text, self.type, self.operands = text, type, tuple(values)
        self.labels = tuple(labels)

    def line(self) -> str:
        return phi_line(self, *zip(self.operands, self.labels, strict=True))


def phi_line(result: Value, *incoming: tuple[Value, str]) -> str:
    """Returns the text of a phi of (value, predecessor block) pairs."""
    pairs = ", ".join([f"[ {value.text}, %{block} ]" for value, block in incoming])
    return f"  {result.text} = phi {result.type.text} {pairs}"


class Terminator(Instruction):
    """End of a basic block; `targets` are the labels that may follow."""

    __slots__ = ("targets",)

    def __init__(self, *operands: Value, targets: Sequence[str] = ()) -> None:
        super().__init__(*operands)
        self.targets = tuple(targets)


class Branch(Terminator):
    """Branch to a label."""

    __slots__ = ()

    def line(self) -> str:
        return f"  br label %{self.targets[0]}"


class BranchIf(Terminator):
    """Branch to the first label if the operand holds, else to the second."""

    __slots__ = ()

    def line(self) -> str:
        return _branch_if(self.operands[0], *self.targets)


def _branch_if(condition: Value, then: str, otherwise: str) -> str:
    return f"  br i1 {condition.text}, label %{then}, label %{otherwise}"


class Switch(Terminator):
    """Branch to the label of an index, or to the last one."""

    __slots__ = ()

    def line(self) -> str:
        (index,) = self.operands
        cases = " ".join(f"{index.type} {k}, label %{label}" for k, label in enumerate(self.targets))
        return f"  switch {index}, label %{self.targets[-1]} [ {cases} ]"


class Return(Terminator):
    """Return from the function, with a value unless it is void."""

    __slots__ = ()

    def line(self) -> str:
        return f"  ret {self.operands[0]}" if self.operands else "  ret void"


# Brackets


class Loop(Instruction):
    """Start of a loop over i64s from the first operand on, with at least one iteration.

    The other operands are the initial values of the loop-carried values `carried`.
    """

    __slots__ = ("after", "before", "carried", "end", "index", "label")
    end: EndLoop

    def __init__(self, index: Value, carried: Sequence[Value], starts: Sequence[Value], labels: Sequence[str]) -> None:
        super().__init__(*starts)
        self.index, self.carried = index, tuple(carried)
        self.before, self.label, self.after = labels

    def immediates(self) -> tuple[Any, ...]:
        """Names and types: those of the counter and of the loop-carried values belong to the loop."""
        own = [self.index.text, *(text for value in self.carried for text in (value.text, value.type.text))]
        return (Loop, self.before, self.label, self.after, *own)

    def line(self) -> str:
        end = self.end
        lines = [f"  br label %{self.label}", f"{self.label}:"]
        following = (Value(end.following, I64), *end.operands[2:])
        for value, start, next_ in zip((self.index, *self.carried), self.operands, following, strict=True):
            lines.append(phi_line(value, (start, self.before), (next_, end.block)))
        return "\n".join(lines)


class EndLoop(Instruction):
    """End of a loop with its step and stop, both i64, and the next values of the loop-carried ones, as operands."""

    __slots__ = ("block", "following", "loop", "more")

    def __init__(self, loop: Loop, operands: Sequence[Value], names: Sequence[str], block: str) -> None:
        super().__init__(*operands)
        self.loop, self.block = loop, block
        self.following, self.more = names

    def immediates(self) -> tuple[Any, ...]:
        """Names; the loop itself is compared at its start."""
        return (EndLoop, self.block, self.following, self.more)

    def line(self) -> str:
        loop, (step, stop) = self.loop, self.operands[:2]
        return (
            f"  {self.following} = add nuw nsw i64 {loop.index.text}, {step.text}\n"
            f"  {self.more} = icmp ult i64 {self.following}, {stop.text}\n"
            f"  br i1 {self.more}, label %{loop.label}, label %{loop.after}\n{loop.after}:"
        )


class If(Instruction):
    """Start of code that runs if the operand holds; if it does not, for a negated one."""

    __slots__ = ("after", "is_negated", "then")

    def __init__(self, condition: Value, then: str, after: str, is_negated: bool) -> None:
        super().__init__(condition)
        self.then, self.after, self.is_negated = then, after, is_negated

    def line(self) -> str:
        labels = (self.after, self.then) if self.is_negated else (self.then, self.after)
        return f"{_branch_if(self.operands[0], *labels)}\n{self.then}:"


class While(Instruction):
    """Start of a loop's condition, whose code ends with `Do`."""

    __slots__ = ("after", "body", "head")

    def __init__(self, head: str, body: str, after: str) -> None:
        super().__init__()
        self.head, self.body, self.after = head, body, after

    def line(self) -> str:
        return f"  br label %{self.head}\n{self.head}:"


class Do(Instruction):
    """Start of the body of a `While`, which runs as long as the operand holds."""

    __slots__ = ("loop",)

    def __init__(self, loop: While, condition: Value) -> None:
        super().__init__(condition)
        self.loop = loop

    def immediates(self) -> tuple[Any, ...]:
        """Nothing of its own; the loop itself is compared at its start."""
        return (Do,)

    def line(self) -> str:
        return f"{_branch_if(self.operands[0], self.loop.body, self.loop.after)}\n{self.loop.body}:"


class End(Instruction):
    """End of an `If` or a `While`, which goes on at a label; the code before may end with a terminator."""

    __slots__ = ("is_reached", "label", "target")

    def __init__(self, target: str, label: str, is_reached: bool = True) -> None:
        super().__init__()
        self.target, self.label, self.is_reached = target, label, is_reached

    def line(self) -> str:
        branch = f"  br label %{self.target}\n" if self.is_reached else ""
        return f"{branch}{self.label}:"
