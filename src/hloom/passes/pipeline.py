"""Passes and pipelines: the contract of passes, running several of them, and observing what they do.

The law of passes:

- A pass is a frozen data class whose fields are its options. Its docstring says what it needs, before -> after, and
  what it leaves alone. It transforms a valid module into a valid one, and returns the number of changes.
- A pass is deterministic: its changes depend on the module and its options only. A pass that changed nothing is not run
  again, in a repeated group or later in a pipeline, before another pass has changed something.
- A pass that `settles` has nothing left to do after itself, so its own changes don't make it run again either.
- A pass that names `operations`, or traits of them, has nothing to do in a module without any, and is not run there.
- A pass that is `optional` only makes programs faster; if it fails, they are compiled without it (`optional.py`).
- The time of a pass is linear in the size of the module: at most a few microseconds per instruction.

A `Pipeline` is a sequence of passes, or a group that is repeated up to a fixed point; it is a pass itself, so pipelines
nest. `run_passes` runs a pipeline and returns statistics. Two environment variables help debugging:

    HLOOM_VERIFY=1   verifies the module before the first pass and after each one, and names the pass that broke it;
                     the compiler verifies the functions that it emits (`lir/verify.py`)
    HLOOM_DUMP=dir   writes dir/MODULE/000.start.hlo, and NNN.PASS.hlo after each pass that changed something; the
                     compiler adds program.txt (kernels, buffers), program.ll (LLVM IR), and statistics.txt (the time
                     of each pass and stage)
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from hloom.errors import HloomError
from hloom.ir import Module, clone_graph
from hloom.passes.optional import is_left_out, optional
from hloom.system.records import record
from hloom.system.shield import checkpoint
from hloom.verifier import verify_module

FIXPOINT_LIMIT = 30
"""Maximum number of iterations of a group; needing more of them means that passes undo each other's changes."""


class Pass(Protocol):
    """A transformation of a module.

    A pass made of rewrite rules also has `apply(module, settled) -> Counter[str]`, which returns the number of changes
    by rule; `settled` knows from earlier runs in the pipeline where none applies.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> dce = passes.parse_passes("dce").passes[0]
    >>> dce.name, dce.run(module)
    ('dce', 1)
    """

    @property
    def name(self) -> str:
        """The name in `--passes` and dumps: XLA's name of the pass if it has one."""
        ...

    def run(self, module: Module) -> int:
        """Changes the module in place; returns the number of changes, 0 if the module is unchanged."""
        ...


def settles(step: Pass) -> bool:
    """Whether the pass has nothing left to do after itself, declared by `settles: ClassVar[bool] = True`."""
    return getattr(step, "settles", False)


def operations_of(step: Pass) -> tuple[type, ...]:
    """Returns the classes of operations, of which the pass needs one to have anything to do, declared by
    `operations: ClassVar[tuple[type, ...]]`; `object` by default.
    """
    return getattr(step, "operations", (object,))


def is_optional(step: Pass) -> bool:
    """Whether the pass only makes programs faster, declared by `optional: ClassVar[bool] = True`."""
    return getattr(step, "optional", False)


@record
class Pipeline:
    """A sequence of passes; with `fixpoint` it is repeated until no pass changes the module.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> passes.parse_passes("dce,cse").run(module)
    1
    """

    name: str
    passes: tuple[Pass | Pipeline, ...]
    fixpoint: bool = False

    def leaves(self) -> Iterator[Pass]:
        """Iterates over the passes, those of inner pipelines included."""
        for step in self.passes:
            if isinstance(step, Pipeline):
                yield from step.leaves()
            else:
                yield step

    def run(self, module: Module) -> int:
        """Runs the passes on the module, in place; returns the total number of changes."""
        return sum(statistics.changes for statistics in run_passes(module, self))


@record
class PassStatistics:
    """Statistics of one or several runs of a pass.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> [(each.name, each.changes) for each in passes.run_passes(module, passes.parse_passes("dce"))]
    [('dce', 1)]
    """

    name: str
    changes: int
    seconds: float
    instructions: int
    """Number of instructions of the module before each run, summed over the runs."""
    runs: int = 1
    rules: Counter[str] = field(default_factory=Counter)
    """Number of applications of each rule, for a pass that is made of rules."""

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
    """Runs a pass or pipeline on the module, in place; returns the statistics of each run of a pass.

    `verify` and `dump` override the environment variables HLOOM_VERIFY and HLOOM_DUMP. `before(step)` is called before
    each run of a pass, and `after(step, k)` after the k-th run, counted from 1, if it changed the module.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> passes.run_passes(module, passes.simplification_pipeline())[0].name
    'inline'
    >>> module.entry.instructions
    [%x = f32[] parameter(0)]
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
    """Writes `text()` to the file `name` in the module's folder of dumps, if HLOOM_DUMP is set.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> passes.dump(module, "mine.txt", lambda: "written only if HLOOM_DUMP is set")
    """
    folder = os.environ.get("HLOOM_DUMP", "")
    if folder:
        (_dump_folder(folder, module) / name).write_text(text(), "utf-8")


def is_watched() -> bool:
    """Whether HLOOM_VERIFY or HLOOM_DUMP is set.

    >>> from hloom import passes
    >>> passes.is_watched()
    False
    """
    return any(os.environ.get(name, "") not in ("", "0") for name in ("HLOOM_VERIFY", "HLOOM_DUMP"))


def _dump_folder(dump: str, module: Module) -> Path:
    folder = Path(dump) / (re.sub(r"[^\w.-]+", "_", module.name) or "module")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass
class _Run:
    """The state of running a pipeline on one module."""

    module: Module
    verify: bool
    folder: Path | None
    before: Callable[[Pass], None] | None
    after: Callable[[Pass, int], None] | None
    statistics: list[PassStatistics] = field(default_factory=list)
    done: dict[str, Pass] = field(default_factory=dict)
    """Passes, by name, that are known to have nothing to do on the current module."""
    settled: dict[Any, Any] = field(default_factory=dict)
    """Instructions to which rules are known not to apply (`rewrite.Settled`)."""
    operations: set[type] = field(default_factory=set)
    """The classes of the operations of the current module, with their bases; empty if they are not known."""

    def run(self, step: Pass | Pipeline) -> int:
        """Runs a pass or pipeline; returns the number of changes."""
        if not isinstance(step, Pipeline):
            return self.run_pass(step)
        if step.fixpoint:
            return self.run_to_fixpoint(step.passes)
        return sum(self.run(part) for part in step.passes)

    def run_to_fixpoint(self, steps: tuple[Pass | Pipeline, ...]) -> int:
        """Repeats the steps until all of them in a row have changed nothing; returns the number of changes."""
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
        """Runs a pass unless it has nothing to do or failed before; returns the number of changes."""
        if step == self.done.get(step.name) or not self.has_any(operations_of(step)):
            return 0
        checkpoint()
        if not is_optional(step):
            return self.run_once(step)
        if is_left_out(step.name):
            return 0
        with optional(step.name):
            return self.run_once(step)

    def has_any(self, operations: tuple[type, ...]) -> bool:
        """Whether the module has an operation of one of the classes."""
        if not self.operations:
            classes = {type(instruction.op) for instruction in self.module.instructions()}
            self.operations = {base for each in classes for base in each.__mro__}
        return not self.operations.isdisjoint(operations)

    def run_once(self, step: Pass) -> int:
        """Runs a pass and records its statistics; returns the number of changes."""
        if self.before is not None:
            self.before(step)
        size = sum(len(computation.instructions) for computation in self.module.computations)
        started = time.perf_counter()
        apply: Callable[[Module, object], Counter[str]] | None = getattr(step, "apply", None)
        rules = Counter[str]() if apply is None else apply(self.module, self.settled)
        changes = step.run(self.module) if apply is None else rules.total()
        seconds = time.perf_counter() - started
        self.statistics.append(PassStatistics(step.name, changes, seconds, size, rules=rules))
        if changes:
            self.done.clear()
            self.operations = set()
            self.observe(step.name)
            if self.after is not None:
                self.after(step, len(self.statistics))
        if not changes or settles(step):
            self.done[step.name] = step
        return changes

    def observe(self, name: str) -> None:
        """Dumps and verifies the module after the pass of that name, as far as requested."""
        if self.folder is not None:
            path = self.folder / f"{len(self.statistics):03d}.{name}.hlo"
            path.write_text(self.module.to_text(), "utf-8")
        if self.verify:
            try:
                verify_module(self.module)
            except HloomError as error:
                raise error.at(f"the module {self.module.name} after pass {name}") from None


def totals(statistics: Iterable[PassStatistics]) -> list[PassStatistics]:
    """Sums the statistics of the runs of each pass, in the order in which the passes first ran.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> [each.runs for each in passes.totals(passes.run_passes(module, passes.parse_passes("dce,dce")))]
    [2]
    """
    sums: dict[str, PassStatistics] = {}
    for run in statistics:
        sums[run.name] = sums[run.name] + run if run.name in sums else run
    return list(sums.values())


def statistics_text(statistics: Sequence[PassStatistics]) -> str:
    """Formats `statistics` as a table of runs, changes and time of each pass, the slowest first, and the total time.

    The total time per instruction refers to the number of instructions before the first pass.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> print(passes.statistics_text(passes.run_passes(module, passes.parse_passes("dce"))))
    pass                               runs  changes        ms  us per instruction
    dce                                   1        1 ...
    """
    lines = [f"{'pass':34}{'runs':>5}{'changes':>9}{'ms':>10}{'us per instruction':>20}"]
    for run in sorted(totals(statistics), key=lambda run: -run.seconds):
        each = 1e6 * run.seconds / max(1, run.instructions)
        lines.append(f"{run.name:34}{run.runs:5}{run.changes:9}{1e3 * run.seconds:10.2f}{each:20.2f}")
        lines += [f"  {rule:37}{count:9}" for rule, count in run.rules.most_common()]
    seconds, size = sum(run.seconds for run in statistics), statistics[0].instructions if statistics else 0
    return "\n".join([*lines, f"{'all':34}{'':14}{1e3 * seconds:10.2f}{1e6 * seconds / max(1, size):20.2f}", ""])


def clone_module(module: Module) -> Module:
    """Returns a copy of the module that shares no computation, instruction or list with the original.

    >>> from hloom import passes
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] copy(x) }")
    >>> passes.clone_module(module) is module
    False
    """
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
    copies = clone_graph(*module.computations)
    for computation in module.computations:
        clone.add(copies[computation], entry=computation is module.entry_computation)
    return clone
