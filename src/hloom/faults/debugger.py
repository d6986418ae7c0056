"""An interactive step debugger on the interpreter."""

from __future__ import annotations

import cmd
import fnmatch
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import IO, Any

import numpy as np

from hloom.backends.interpreter.debug import describe, summary
from hloom.errors import HloomError, counted
from hloom.faults.case import Case, interpret
from hloom.ir import Computation, Instruction
from hloom.system.records import record
from hloom.values import Value

AROUND = 4
"""Number of instructions that `list` shows before and after the current one."""


class Quit(HloomError):
    """Raised when the user ends the run."""


@record
class Breakpoint:
    """A glob pattern of names or opcodes, and a Python condition on the value (empty: always true)."""

    pattern: str
    condition: str = ""

    @staticmethod
    def of(text: str) -> Breakpoint:
        """Reads `PATTERN [if CONDITION]`."""
        pattern, _, condition = text.partition(" if ")
        return Breakpoint(pattern.strip(), condition.strip())

    def concerns(self, instruction: Instruction) -> bool:
        """Whether the pattern matches an instruction, whatever its value."""
        return instruction.matches(self.pattern) or fnmatch.fnmatchcase(instruction.opcode, self.pattern)

    def holds(self, instruction: Instruction, operands: Sequence[Value], value: Value) -> bool:
        """Whether to stop after an instruction. Raises whatever the condition raises."""
        if not self.concerns(instruction):
            return False
        if not self.condition:
            return True
        names = {"value": value, "operands": operands, "np": np}
        return bool(eval(self.condition, names))

    def __str__(self) -> str:
        return f"{self.pattern} if {self.condition}" if self.condition else self.pattern


class Debugger(cmd.Cmd):
    """Runs a case step by step. `help` lists the commands, and an empty line repeats the last one."""

    prompt = "(hloom) "

    def __init__(self, case: Case, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.case = case
        self.breakpoints: list[Breakpoint] = []
        self.watched: list[str] = []
        self.values: dict[Instruction, Value] = {}
        self.current: Instruction | None = None
        self.count = 0
        self.stops_at: Callable[[Instruction], bool] = lambda _: True

    def run(self) -> Value | None:
        """Runs the case; returns its result, or None if the user quits.

        Errors of the program are raised after a last prompt.
        """
        parameters = self.case.module.entry.parameters
        self.values.update(zip(parameters, self.case.arguments or (), strict=True))
        try:
            result = interpret(self.case.module, self.case.arguments or (), self._observe)
        except Quit:
            return None
        except HloomError as error:
            self._say(f"the program fails: {error}")
            self.cmdloop()
            raise
        self._say(f"the result, after {counted(self.count, 'instruction')}: {describe(result)}")
        return result

    def _observe(self, instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        self.count += 1
        self.current = instruction
        self.values[instruction] = value
        self.values.update(zip(instruction.operands, operands, strict=True))
        if any(instruction.matches(pattern) for pattern in self.watched):
            self._say(f"%{instruction.name} = {describe(value)}")
        hit = next((b for b in self.breakpoints if self._holds(b, instruction, operands, value)), None)
        if hit is not None or self.stops_at(instruction):
            self._say(f"{f'breakpoint {hit}: ' if hit else ''}{instruction!r}\n  = {describe(value)}")
            self.cmdloop()

    def _holds(self, breakpoint: Breakpoint, instruction: Instruction, operands: Any, value: Value) -> bool:
        try:
            return breakpoint.holds(instruction, operands, value)
        except Exception as error:
            self._say(f"the condition of {breakpoint} fails: {type(error).__name__}: {error}")
            return True

    def _say(self, text: str) -> None:
        print(text, file=self.stdout)

    # Commands that continue the run

    def do_step(self, argument: str) -> bool:
        """step [N]: run one instruction or N of them, stepping into called computations."""
        last = self.count + (int(argument) if argument.isdecimal() else 1)
        self.stops_at = lambda _: self.count >= last
        return True

    def do_next(self, _: str) -> bool:
        """next: run to the next instruction of the same computation, stepping over calls."""
        computation = self.current.parent if self.current is not None else None
        left = self.current is not None and computation is not None and self.current is computation.root
        self.stops_at = lambda instruction: left or instruction.parent is computation
        return True

    def do_continue(self, _: str) -> bool:
        """continue: run to the next breakpoint, or to the end."""
        self.stops_at = lambda _: False
        return True

    def do_quit(self, _: str) -> bool:
        """quit: end the run."""
        raise Quit("ended")

    def do_EOF(self, _: str) -> bool:
        """Ctrl-D: the same as quit."""
        return self.do_quit("")

    # Commands that inspect

    def do_break(self, argument: str) -> None:
        """break PATTERN [if CONDITION]: stop after instructions with a matching name or opcode.

        The condition is a Python expression on `value`, `operands` and `np`: break add* if np.isnan(value).any()
        Without a pattern, the breakpoints are listed.
        """
        breakpoint = Breakpoint.of(argument)
        if breakpoint.pattern and self._exists(breakpoint.concerns, breakpoint.pattern):
            self.breakpoints.append(breakpoint)
        for index, each in enumerate(self.breakpoints, 1):
            self._say(f"{index}. {each}")

    def _exists(self, concerns: Callable[[Instruction], bool], pattern: str) -> bool:
        """Whether some instruction is meant, else the user is told so."""
        found = any(map(concerns, self.case.module.instructions()))
        if not found:
            self._say(f"{self.case.module.name} has no instruction {pattern}")
        return found

    def do_clear(self, argument: str) -> None:
        """clear [N]: remove a breakpoint, or all of them."""
        if argument.isdecimal() and 1 <= int(argument) <= len(self.breakpoints):
            del self.breakpoints[int(argument) - 1]
        elif not argument:
            self.breakpoints.clear()
        else:
            self._say(f"there is no breakpoint {argument}")

    def do_watch(self, argument: str) -> None:
        """watch PATTERN: show the values of matching instructions each time they run."""
        for word in argument.split():
            if self._exists(methodcaller("matches", word), word):
                self.watched.append(word)
        self._say(f"watching {', '.join(self.watched) or 'nothing'}")

    def do_print(self, argument: str) -> None:
        """print [NAME]: show the last value of an instruction; without a name, of the current one."""
        found = self.current if not argument else self._find(argument.strip().lstrip("%"))
        if found is None or found not in self.values:
            self._say(f"%{argument} has no value yet" if argument else "nothing has run yet")
        else:
            self._say(f"{found!r}\n  {describe(self.values[found])}\n{summary(self.values[found])}")

    def _find(self, name: str) -> Instruction | None:
        """Finds an instruction by name, preferably in the current computation."""
        computation: Computation | None = self.current.parent if self.current is not None else None
        computations = [*([computation] if computation is not None else []), *self.case.module.computations]
        return next((i for c in computations for i in c.instructions if i.name == name), None)

    def do_list(self, _: str) -> None:
        """list: show the instructions around the current one."""
        computation = (
            self.current.parent
            if self.current is not None and self.current.parent is not None
            else self.case.module.entry
        )
        position = computation.instructions.index(self.current) if self.current in computation.instructions else 0
        self._say(
            f"{computation.name}, {counted(len(computation.instructions), 'instruction')}, {self.count} have run:"
        )
        for k in range(max(0, position - AROUND), min(len(computation.instructions), position + AROUND + 1)):
            self._say(f"{'->' if k == position else '  '} {computation.instructions[k]!r}")

    do_s, do_n, do_c, do_q, do_b, do_p, do_l, do_w = (
        do_step,
        do_next,
        do_continue,
        do_quit,
        do_break,
        do_print,
        do_list,
        do_watch,
    )
