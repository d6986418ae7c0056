"""Basic blocks of a function: their edges, and which block dominates which."""

from __future__ import annotations

from dataclasses import dataclass, field

from hloom.lir.control import Do, End, EndLoop, If, Label, Loop, Terminator, While
from hloom.lir.function import Function
from hloom.lir.instructions import Instruction


@dataclass
class Blocks:
    """The control flow of a function, whose brackets stand for several blocks.

    Problems are labels that are missing or occur twice, and blocks that do not end with a terminator.
    """

    function: Function
    blocks: list[str] = field(default_factory=lambda: ["entry"])
    edges: set[tuple[str, str]] = field(default_factory=set)
    of: list[str] = field(default_factory=list)
    """Block of each instruction of the prologue and the body; that of a bracket is the one before it."""
    problems: list[str] = field(default_factory=list)
    dominators: dict[str, set[str]] = field(default_factory=dict)
    """Blocks that every path to a block passes; unreachable blocks have none."""

    def __post_init__(self) -> None:
        block, is_open = "entry", True
        for instruction in self.function.instructions:
            if not is_open and not isinstance(instruction, (Label, End)):
                self.problems.append(f"{instruction.line().strip()} follows a terminator")
            self.of.append(block)
            is_open = not isinstance(instruction, Terminator)
            block = self._after(block, instruction)
        if is_open:
            self.problems.append(f"block {block} has no terminator")
        for source, target in sorted(self.edges):
            if target not in self.blocks:
                self.problems.append(f"block {source} branches to {target}, which is missing")
        self._find_dominators()

    def _after(self, block: str, instruction: Instruction) -> str:
        """Returns the block after an instruction, and adds the edges between it and the one before."""
        match instruction:
            case Label():
                return self._start(instruction.label)
            case Terminator():
                return self._branch(block, block, *instruction.targets)
            case Loop():
                return self._start(self._branch(block, instruction.label, instruction.label))
            case EndLoop():
                loop = instruction.loop
                return self._start(self._branch(block, loop.after, loop.label, loop.after))
            case If():
                return self._start(self._branch(block, instruction.then, instruction.then, instruction.after))
            case While():
                return self._start(self._branch(block, instruction.head, instruction.head))
            case Do():
                loop_ = instruction.loop
                return self._start(self._branch(block, loop_.body, loop_.body, loop_.after))
            case End():
                targets = (instruction.target,) if instruction.is_reached else ()
                return self._start(self._branch(block, instruction.label, *targets))
        return block

    def _branch(self, block: str, following: str, *targets: str) -> str:
        self.edges.update((block, target) for target in targets)
        return following

    def _start(self, label: str) -> str:
        if label in self.blocks:
            self.problems.append(f"there are two blocks {label}")
        self.blocks.append(label)
        return label

    def predecessors(self, block: str) -> set[str]:
        """Returns the blocks that branch to a block."""
        return {source for source, target in self.edges if target == block}

    def _find_dominators(self) -> None:
        before = {block: self.predecessors(block) for block in self.blocks}
        self.dominators = {"entry": {"entry"}}
        changed = True
        while changed:
            changed = False
            for block in self.blocks[1:]:
                known = [self.dominators[p] for p in before[block] if p in self.dominators]
                if known:
                    dominators = {block}.union(set.intersection(*known))
                    changed |= self.dominators.get(block) != dominators
                    self.dominators[block] = dominators
