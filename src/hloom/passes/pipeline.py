"""Passes and pipelines: what a pass is, how several of them run, and what can be seen of it.

The law of passes:

- A pass is a frozen data class whose fields are its options. Its docstring says what it needs, before -> after, and
  what it leaves alone. It takes a valid module and leaves a valid one, and says how many changes it made.
- What it does depends on the module and its options alone. So where it changed nothing, it is not run again, in a group
  that is repeated or further on in a pipeline, until another pass has changed something.
- A pass that `settles` has nothing to do right after itself: its own changes don't make it run again either.
- A pass that is `optional` only makes programs faster; where it fails, they are compiled without it (`optional.py`).
- It takes time in proportion to the module's text: at most a few microseconds an instruction.

A `Pipeline` is a sequence of passes, or a group that is repeated until nothing changes; it is a pass itself, so
pipelines nest. `run_passes` runs one and gives the statistics. Two environment variables look inside:

    HLOOM_VERIFY=1   verifies the module before the first pass and after each one, and names the pass that broke it
    HLOOM_DUMP=dir   writes dir/MODULE/000.start.hlo, and after each pass that changed something NNN.PASS.hlo; the
                     compiler adds what it makes of the module: program.txt (kernels, buffers) and program.ll, and
                     statistics.txt, where its time went
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from hloom.errors import HloomError
from hloom.ir import Computation, Module, clone_computation
from hloom.passes.optional import is_left_out, optional
from hloom.shield import checkpoint
from hloom.verifier import verify_module

FIXPOINT_LIMIT = 30
"""How often a group is repeated at most: more rounds than that mean passes that undo each other."""


class Pass(Protocol):
    """One transformation of a module. The docstring says what it needs, before -> after, and what it does not do.

    A pass that is made of rewrite rules has `apply(module) -> Counter[str]` too, which gives the changes of each rule.
    """

    @property
    def name(self) -> str:
        """As XLA has it, and as `--passes` and dumps show it."""
        ...

    def run(self, module: Module) -> int:
        """Changes the module in place; returns the number of changes, 0 where it left the module as it was."""
        ...


def settles(step: Pass) -> bool:
    """Whether the pass goes on until it has nothing to do: it says so by `settles: ClassVar[bool] = True`."""
    return getattr(step, "settles", False)


def is_optional(step: Pass) -> bool:
    """Whether programs compile without the pass, slower: it says so by `optional: ClassVar[bool] = True`."""
    return getattr(step, "optional", False)


@dataclass(frozen=True)
class Pipeline:
    """Passes in order; with `fixpoint` they are repeated until all of them, one after the other, changed nothing."""

    name: str
    passes: tuple[Pass | Pipeline, ...]
    fixpoint: bool = False

    def run(self, module: Module) -> int:
        """Runs the passes on the module, in place; gives the number of changes."""
        return sum(statistics.changes for statistics in run_passes(module, self))


@dataclass(frozen=True)
class PassStatistics:
    """Runs of a pass: the changes that it made, how long it took, the instructions that it went over."""

    name: str
    changes: int
    seconds: float
    instructions: int
    runs: int = 1
    rules: Counter[str] = field(default_factory=Counter)
    """How often each rule was applied, of a pass that is made of rules."""

    def __add__(self, other: PassStatistics) -> PassStatistics:
        return PassStatistics(
            self.name,
            self.changes + other.changes,
            self.seconds + other.seconds,
            self.instructions + other.instructions,
            self.runs + other.runs,
            self.rules + other.rules,
        )


def run_passes(
    module: Module,
    pipeline: Pass | Pipeline,
    *,
    verify: bool | None = None,
    dump: str | None = None,
    before: Callable[[Pass], None] | None = None,
    after: Callable[[Pass, int], None] | None = None,
) -> list[PassStatistics]:
    """Runs a pass or pipeline on the module, in place; `verify` and `dump` override the environment.

    `before(step)` is called before each run of a pass, `after(step, run)` after each one that changed something, the
    `run`-th one from 1 on.
    """
    if verify is None:
        verify = os.environ.get("HLOOM_VERIFY", "") not in ("", "0")
    if dump is None:
        dump = os.environ.get("HLOOM_DUMP", "")
    run = _Run(module, verify, _dump_folder(dump, module) if dump else None, before, after)
    run.observe("start")
    run.run(pipeline)
    return run.statistics


def dump(module: Module, name: str, text: Callable[[], str]) -> None:
    """Writes a file into the module's folder of dumps, where HLOOM_DUMP asks for them."""
    folder = os.environ.get("HLOOM_DUMP", "")
    if folder:
        (_dump_folder(folder, module) / name).write_text(text())


def is_watched() -> bool:
    """Whether the environment asks to see or verify what passes do."""
    return any(os.environ.get(name, "") not in ("", "0") for name in ("HLOOM_VERIFY", "HLOOM_DUMP"))


def _dump_folder(dump: str, module: Module) -> Path:
    folder = Path(dump) / (re.sub(r"[^\w.-]+", "_", module.name) or "module")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class _Run:
    """A pipeline under way on one module."""

    module: Module
    verify: bool
    folder: Path | None
    before: Callable[[Pass], None] | None
    after: Callable[[Pass, int], None] | None
    statistics: list[PassStatistics] = field(default_factory=list)
    done: list[Pass] = field(default_factory=list)
    """The passes that have nothing to do as the module is now."""

    def run(self, step: Pass | Pipeline) -> int:
        if not isinstance(step, Pipeline):
            return self.run_pass(step)
        if step.fixpoint:
            return self.run_to_fixpoint(step.passes)
        return sum(self.run(part) for part in step.passes)

    def run_to_fixpoint(self, steps: tuple[Pass | Pipeline, ...]) -> int:
        """Stops as soon as every step in a row left the module alone."""
        total = unchanged = 0
        for _ in range(FIXPOINT_LIMIT):
            for step in steps:
                changes = self.run(step)
                total += changes
                unchanged = 0 if changes else unchanged + 1
                if unchanged == len(steps):
                    return total
        return total

    def run_pass(self, step: Pass) -> int:
        if step in self.done:
            return 0
        checkpoint()
        if not is_optional(step):
            return self.run_once(step)
        if is_left_out(step.name):
            return 0
        with optional(step.name):
            return self.run_once(step)

    def run_once(self, step: Pass) -> int:
        if self.before is not None:
            self.before(step)
        size = sum(len(computation.instructions) for computation in self.module.computations)
        started = time.perf_counter()
        apply: Callable[[Module], Counter[str]] | None = getattr(step, "apply", None)
        rules = Counter[str]() if apply is None else apply(self.module)
        changes = step.run(self.module) if apply is None else rules.total()
        seconds = time.perf_counter() - started
        self.statistics.append(PassStatistics(step.name, changes, seconds, size, rules=rules))
        if changes:
            self.done.clear()
            self.observe(step.name)
            if self.after is not None:
                self.after(step, len(self.statistics))
        if not changes or settles(step):
            self.done.append(step)
        return changes

    def observe(self, name: str) -> None:
        """What debugging asks for, after the pass of that name."""
        if self.folder is not None:
            path = self.folder / f"{len(self.statistics):03d}.{name}.hlo"
            path.write_text(self.module.to_text())
        if self.verify:
            try:
                verify_module(self.module)
            except HloomError as error:
                raise error.at(f"the module {self.module.name} after pass {name}") from None


def totals(statistics: Iterable[PassStatistics]) -> list[PassStatistics]:
    """The runs of each pass added up, in the order in which the passes first ran."""
    sums: dict[str, PassStatistics] = {}
    for run in statistics:
        sums[run.name] = sums[run.name] + run if run.name in sums else run
    return list(sums.values())


def statistics_text(statistics: Sequence[PassStatistics]) -> str:
    """A table: what each pass did and took, the slowest first, and what all took for each instruction at first."""
    lines = [f"{'pass':34}{'runs':>5}{'changes':>9}{'ms':>10}{'us an instruction':>20}"]
    for run in sorted(totals(statistics), key=lambda run: -run.seconds):
        each = 1e6 * run.seconds / max(1, run.instructions)
        lines.append(f"{run.name:34}{run.runs:5}{run.changes:9}{1e3 * run.seconds:10.2f}{each:20.2f}")
        lines += [f"  {rule:37}{count:9}" for rule, count in run.rules.most_common()]
    seconds, size = sum(run.seconds for run in statistics), statistics[0].instructions if statistics else 0
    return "\n".join([*lines, f"{'all':34}{'':14}{1e3 * seconds:10.2f}{1e6 * seconds / max(1, size):20.2f}", ""])


def clone_module(module: Module) -> Module:
    """A copy that shares no computation, instruction or list with the original: a compiler works on one."""
    copies: dict[int, Computation] = {}

    def copy(computation: Computation) -> Computation:
        if id(computation) not in copies:
            copies[id(computation)] = clone_computation(computation, copy)
        return copies[id(computation)]

    clone = replace(
        module,
        computations=[],
        entry_computation=None,
        entry_parameter_layouts=None if module.entry_parameter_layouts is None else [*module.entry_parameter_layouts],
        input_output_alias=[replace(alias) for alias in module.input_output_alias],
        buffer_donors=[replace(donor) for donor in module.buffer_donors],
        frontend_attributes=dict(module.frontend_attributes),
        stack_frames={table: [*rows] for table, rows in module.stack_frames.items()},
        extra_attributes=dict(module.extra_attributes),
    )
    for computation in module.computations:
        clone.add(copy(computation), entry=computation is module.entry_computation)
    return clone
