"""The interpreter as an Executable: evaluates a module instruction by instruction, with debug options."""

from __future__ import annotations

import math

from hloom.backends.interpreter.interpreter import Execution, Observer
from hloom.backends.interpreter.plan import Plans
from hloom.ir import Module
from hloom.runtime.executable import DeviceExecutable, RunOptions, check_dimensions, own_arrays
from hloom.runtime.rendezvous import Rendezvous
from hloom.values import Value


class InterpreterExecutable(DeviceExecutable):
    """Runs a module by the semantics in `hloom.ops`.

    `seed` makes rng reproducible (None: different values in each run). `observer` is called after each instruction with
    the instruction, its operands' values and its value. `step_limit` is the maximum number of instructions that run.
    During a run, `executions` holds an Execution for each device, whose `steps` and `current` show the progress.
    """

    def __init__(
        self,
        module: Module,
        options: RunOptions,
        step_limit: float = math.inf,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(module, options)
        check_dimensions(module.instructions())
        self.step_limit = step_limit
        self.observer = observer
        self.executions: dict[int, Execution] = {}
        self.plans = Plans(module.entry).complete()

    def _run(self, device: int, arguments: list[Value], rendezvous: Rendezvous) -> Value:
        replica, partition = divmod(device, self.module.num_partitions)
        execution = Execution(
            self.plans,
            self.devices[device],
            rendezvous,
            replica,
            partition,
            self.seed,
            self.step_limit,
            self.observer,
        )
        self.executions[device] = execution
        return own_arrays(execution.run(self.module.entry, arguments), arguments)
