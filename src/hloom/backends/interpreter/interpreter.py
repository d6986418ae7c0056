"""Evaluates computations step by step on NumPy arrays.

An `Execution` is a run of a module on one device. `run` evaluates a computation on values. `map` applies a computation
of scalars to whole arrays: in one pass if all its instructions are element-wise, else index by index.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from hloom.backends.interpreter.on_arrays import ON_ARRAYS
from hloom.backends.interpreter.plan import Plan, Step
from hloom.errors import HloomError, RunError
from hloom.ir import Computation, Instruction
from hloom.ops.context import Context
from hloom.ops.rules import result_shapes
from hloom.runtime.custom_calls.registry import HostFunctionCaller, read_only_copy
from hloom.runtime.custom_calls.targets import lookup
from hloom.runtime.device import Device
from hloom.runtime.executable import located
from hloom.runtime.rendezvous import Rendezvous
from hloom.shape import Shape
from hloom.system.lazy import cached_property
from hloom.values import Array, Value, map_leaves

# Called after each instruction with the instruction, its operands' values and its value.
Observer = Callable[[Instruction, Sequence[Value], Value], None]


class Execution:
    """Run of a module on one device: the device's ids, its random state, and its steps so far."""

    def __init__(
        self,
        plans: dict[int, Plan],
        device: Device,
        rendezvous: Rendezvous,
        replica_id: int,
        partition_id: int,
        seed: int | None,
        step_limit: float = math.inf,
        observer: Observer | None = None,
    ) -> None:
        self.plans = plans
        self.device = device
        self.rendezvous = rendezvous
        self.replica_id = replica_id
        self.partition_id = partition_id
        self.index = replica_id * rendezvous.partition_count + partition_id
        self.seed = seed
        self.step_limit = step_limit
        self.observer = observer
        self.steps = 0
        self.current: Instruction | None = None
        self.rng_state = 0x7012395  # XLA's initial state

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random state, made on first use: NumPy's generators take milliseconds to import."""
        return np.random.default_rng(None if self.seed is None else [self.seed, self.index])

    def run(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        """Returns the value of a computation on argument values."""
        return self._evaluate(self.plans[id(computation)], arguments, on_arrays=False)

    def map(self, computation: Computation, arrays: Sequence[Array]) -> Value:
        """Applies a computation of scalars to each index of arrays of equal shape."""
        sizes = arrays[0].shape if arrays else ()
        plan = self.plans[id(computation)]
        if not sizes or plan.applies_to_arrays:
            value = self._evaluate(plan, arrays, on_arrays=bool(sizes))
            return _spread(value, sizes)
        return self._map_by_index(plan, arrays, sizes)

    def _map_by_index(self, plan: Plan, arrays: Sequence[Array], sizes: tuple[int, ...]) -> Value:
        shape = plan.computation.result_shape
        leaves = result_shapes(shape)
        results = [np.empty(sizes, leaf.element_type.dtype) for leaf in leaves]
        for index in np.ndindex(sizes):
            value = self._evaluate(plan, [np.asarray(array[index]) for array in arrays], on_arrays=False)
            for result, element in zip(results, value if shape.is_tuple else (value,), strict=True):
                result[index] = element
        return tuple(results) if shape.is_tuple else results[0]

    def _evaluate(self, plan: Plan, arguments: Sequence[Value], on_arrays: bool) -> Value:
        values = plan.template.copy()
        values[: plan.parameter_count] = arguments
        for step in plan.steps:
            self.steps += 1
            operands = [values[slot] for slot in step.operand_slots]
            if on_arrays and step.is_identity_on_scalars:
                value = operands[0]
            else:
                value = self._evaluate_step(step, operands, on_arrays)
            values[step.slot] = value
            if self.observer is not None:
                self.observer(step.instruction, operands, value)
            for slot in step.ends:
                values[slot] = None
        return values[plan.root_slot]

    def _evaluate_step(self, step: Step, operands: list[Value], on_arrays: bool) -> Value:
        self.current = step.instruction
        if self.rendezvous.limit is not None:
            self.rendezvous.check(_location(step))
        if self.steps > self.step_limit:
            raise RunError(f"the step limit of {self.step_limit} instructions is reached").at(_location(step))
        try:
            if on_arrays and (rule := ON_ARRAYS.get(step.op)) is not None:
                return rule(step.op, self._on_arrays, operands)
            value = step.op.evaluate(Site(self, step.instruction, on_arrays), *step.op.bind(operands))
        except (ValueError, IndexError) as error:
            if not any(shape.is_dynamic for shape in step.instruction.operand_shapes):
                raise located(error, step.instruction.shape, _location(step)) from None
            sizes = ", ".join(str(list(np.shape(operand))) for operand in operands)
            reason = f"SETDIMENSIONSIZE-3: {step.op.opcode} does not fit the actual sizes {sizes} ({error})"
            raise RunError(reason).at(_location(step)) from None
        except (HloomError, MemoryError, OverflowError) as error:
            raise located(error, step.instruction.shape, _location(step)) from None
        if step.dtype is None:
            return value
        value = np.asarray(value)
        if value.dtype != step.dtype or (step.sizes is not None and value.shape != step.sizes and not on_arrays):
            raise AssertionError(f"{step.instruction!r} gave {value.dtype}{list(value.shape)}: a defect in hloom")
        return value

    def _on_arrays(self, computation: Computation, arguments: Sequence[Value]) -> Value:
        return self._evaluate(self.plans[id(computation)], arguments, on_arrays=True)


class Site(Context):
    """Context of one instruction's evaluation (see `hloom.ops.operation.Context`)."""

    __slots__ = ("destination", "empty", "execution", "instruction", "on_arrays", "shares_results", "threads")

    def __init__(self, execution: Execution, instruction: Instruction, on_arrays: bool) -> None:
        self.execution = execution
        self.instruction = instruction
        self.on_arrays = on_arrays
        self.destination: Array | None = None
        self.threads = 1
        self.empty: Callable[..., Array] = np.empty
        """Allocates the arrays that are passed to functions of custom calls."""
        self.shares_results = True
        """Whether results may alias arrays that custom calls return; compiled programs copy them to their buffers."""

    @property
    def shape(self) -> Shape:
        return self.instruction.shape

    @property
    def operand_shapes(self) -> tuple[Shape, ...]:
        return tuple(self.instruction.operand_shapes)

    @property
    def replica_id(self) -> int:
        return self.execution.replica_id

    @property
    def partition_id(self) -> int:
        return self.execution.partition_id

    @property
    def replica_count(self) -> int:
        return self.execution.rendezvous.replica_count

    @property
    def partition_count(self) -> int:
        return self.execution.rendezvous.partition_count

    @property
    def rng(self) -> np.random.Generator:
        return self.execution.rng

    @property
    def device(self) -> Device:
        return self.execution.device

    def call(self, computation: Computation, *arguments: Value) -> Value:
        if self.on_arrays:
            # Inside a map every scalar is an array, so called computations are applied to arrays too.
            return self.execution._on_arrays(computation, arguments)
        return self.execution.run(computation, arguments)

    def map(self, computation: Computation, *arrays: Array) -> Value:
        return self.execution.map(computation, arrays)

    def exchange(
        self, members: Sequence[int], value: Value, channel_id: int | None, combine: Callable[[list[Value]], Value]
    ) -> Value:
        execution, instruction = self.execution, self.instruction
        return execution.rendezvous.exchange(
            instruction,
            members,
            execution.index,
            value,
            channel_id,
            lambda values: _shared(combine(values)),
            self.destination,
        )

    def send(self, channel_id: int, value: Value, target: int) -> None:
        self.execution.rendezvous.send(channel_id, self.execution.index, target, value)

    def receive(self, channel_id: int, source: int) -> Value:
        return self.execution.rendezvous.receive(self.instruction, channel_id, source, self.execution.index)

    def custom_call(self, target: str, args: tuple[Value, ...]) -> Value:
        caller = lookup(target)
        if not isinstance(caller, HostFunctionCaller):
            return caller(self.instruction, args)
        value = caller(self.instruction, tuple(read_only_copy(arg, self.empty) for arg in args))
        return read_only_copy(value) if self.shares_results else value

    def update_rng_state(self, delta: int) -> int:
        """Returns the 128-bit state before `delta` is added to it (rng-get-and-update-state)."""
        state = self.execution.rng_state
        self.execution.rng_state = (state + delta) % 2**128
        return state


def _shared(value: Value) -> Value:
    """Returns views, so that a result shared by several devices is copied before it is returned."""
    return map_leaves(lambda leaf: np.asarray(leaf).view(), value)


def _spread(value: Value, sizes: tuple[int, ...]) -> Value:
    """Broadcasts results that do not depend on the arguments to all indices."""
    return map_leaves(lambda leaf: leaf if leaf.shape == sizes else np.broadcast_to(leaf, sizes), value)


def _location(step: Step) -> str:
    instruction = step.instruction
    where = f" ({instruction.location})" if instruction.location else ""
    return f"{instruction!r}{where}"
