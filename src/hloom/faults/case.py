"""Cases: modules with arguments, and parts of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field

import numpy as np

from hloom.api import compile
from hloom.files.arrays import random_value
from hloom.ir import Instruction, Module
from hloom.ops.structure import Constant, Parameter
from hloom.passes.extract import extract
from hloom.system.records import record
from hloom.values import Value


@record
class Case:
    """A module with an argument for each parameter of its entry, or without arguments (None).

    >>> from hloom import faults
    >>> module = hl.parse("HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }")
    >>> faults.Case.random(module, seed=0).arguments
    (array([ 0.12573022, -0.13210486], dtype=float32),)
    """

    module: Module
    arguments: tuple[Value, ...] | None = None
    _values: dict[str, Value] = field(default_factory=dict, compare=False, repr=False)
    """Cached values of instructions of the entry, by name."""

    @staticmethod
    def random(module: Module, seed: int) -> Case:
        """A case with random arguments."""
        rng = np.random.default_rng(seed)
        return Case(module, tuple(random_value(rng, shape) for shape in module.entry.parameter_shapes))

    @property
    def size(self) -> int:
        """Number of instructions in all computations, without parameters."""
        return sum(1 for instruction in self.module.instructions() if not isinstance(instruction.op, Parameter))

    def values(self, instructions: Sequence[Instruction]) -> list[Value]:
        """Values of instructions of the entry for the arguments, computed by the interpreter."""
        assert self.arguments is not None
        arguments = {p.name: value for p, value in zip(self.module.entry.parameters, self.arguments, strict=True)}
        values = self._values | arguments
        missing = {i for i in instructions if i.name not in values}
        if missing:
            found = observed(self, missing)
            self._values.update({i.name: value for i, value in found.items()})
            if unused := [i for i in missing if i not in found]:
                self._values.update(self._computed(unused))
            values = self._values | arguments
        return [values[i.name] for i in instructions]

    def _computed(self, unused: list[Instruction]) -> dict[str, Value]:
        """Values of instructions that the result does not need, which a run leaves out."""
        part = self.extract(unused)
        result = interpret(part.module, part.arguments or ())
        return dict(zip((i.name for i in unused), result if len(unused) > 1 else [result], strict=True))

    def extract(self, roots: Sequence[Instruction], inputs: Collection[Instruction] = ()) -> Case:
        """The case whose result are the values of `roots` of the entry, and whose parameters replace `inputs`.

        It has only the instructions that the roots need. They keep their names, so that cached values remain valid.
        """
        module, outside = extract(self.module.name, roots, inputs)
        arguments = None if self.arguments is None else tuple(self.values(outside))
        return Case(module, arguments, self._values)


def observed(case: Case, instructions: Collection[Instruction]) -> dict[Instruction, Value]:
    """Runs the interpreter and returns the values of instructions of the entry."""
    found: dict[Instruction, Value] = {}

    def observe(instruction: Instruction, _: Sequence[Value], value: Value) -> None:
        if instruction in instructions:
            found[instruction] = value

    interpret(case.module, case.arguments or (), observe)
    # The interpreter does not execute constants.
    found.update({i: i.op.literal.value for i in instructions if isinstance(i.op, Constant)})
    return found


def interpret(module: Module, arguments: Sequence[Value], observer: Callable[..., None] | None = None) -> Value:
    """Runs a module on the interpreter, with a fixed seed of random numbers."""
    return compile(module, "interpreter", seed=0, observer=observer)(*arguments)
