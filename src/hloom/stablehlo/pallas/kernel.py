"""The kernel of a `pallas_call` as a pure function of blocks, and which values its results depend on.

JAX's discharge of references replaces memory by values. A value that an iteration overwrites before it reads it is not
carried from one iteration to the next: scratch memory that `pl.when(k == 0)` initialises, for example. `needed` finds
such values by abstract interpretation of the first, any and the last iteration along some axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax._src import core, state
from jax._src.pallas import core as pallas_core
from jax._src.pallas import hlo_interpreter

from hloom.stablehlo.pallas.blocks import Indices
from hloom.stablehlo.pallas.positions import evaluate
from hloom.system.lazy import cached_property
from hloom.system.records import record


@record
class Kernel:
    """A function of the scalars, the blocks of inputs and outputs, and scratch memory: an iteration."""

    original: Any  # the jaxpr, with references
    mapping: Any  # pallas_core.GridMapping

    @cached_property
    def _pure(self) -> tuple[Any, Any, Any]:
        return hlo_interpreter.kernel_to_hlo_jaxpr(self.original, (), self.mapping)

    @property
    def jaxpr(self) -> Any:
        """The kernel without references."""
        return self._pure[0]

    @property
    def scratch(self) -> Sequence[Any]:
        """Shapes and element types of scratch memory; semaphores are integers."""
        return self._pure[2]  # type: ignore[no-any-return]

    @cached_property
    def written(self) -> set[int]:
        """The positions of inputs and outputs that the kernel writes."""
        first = self.mapping.num_index_operands
        effects = [e for e in self.original.effects if isinstance(e, (state.WriteEffect, state.AccumEffect))]
        variables = {effect.input for effect in effects}
        positions = enumerate(self.original.invars[first : first + len(self.mapping.block_mappings)])
        return {k for k, variable in positions if variable in variables}

    def __call__(
        self, position: Indices, grid: Indices, scalars: Sequence[Any], blocks: Sequence[Any], scratch: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Runs an iteration; returns the blocks and the scratch memory after it."""
        jaxpr, constants, _ = self._pure
        with pallas_core.grid_env(self._environment(position, grid)):
            values = evaluate(jaxpr, constants, *scalars, *blocks, *scratch)
        values = values[len(scalars) :]
        return values[: len(blocks)], values[len(blocks) :]

    def _environment(self, position: Indices, grid: Indices) -> Any:
        if self.mapping.local_grid_env is not None:
            return self.mapping.local_grid_env(tuple(position), tuple(grid))
        return [pallas_core.GridAxis(position[axis], grid[axis]) for axis in self._visible_axes()]

    def _visible_axes(self) -> list[int]:
        """The axes that the kernel can ask for: those that `vmap` added are hidden from it."""
        return [axis for axis in range(len(self.mapping.grid)) if axis not in self.mapping.vmapped_dims]

    def needed(self, inner: Mapping[int, Any]) -> set[int]:
        """The positions of blocks, and after them of scratch memory, whose values before some iterations may matter.

        The iterations are those along the `inner` axes, given with their sizes. Scratch memory matters if it reaches a
        written block in these iterations or in later ones; blocks that are not written always matter. So does
        everything where there may be no iteration.
        """
        blocks = len(self.mapping.block_mappings)
        if not all(isinstance(n, int) and n > 0 for n in inner.values()):
            return {*range(blocks + len(self.scratch))}
        before = self._before_all(inner)
        carried = set[int]()
        while True:
            live = before(self.written | carried)
            scratch = {k for k in live if k >= blocks}
            if scratch <= carried:
                return live | (set(range(blocks)) - self.written)
            carried |= scratch

    def _before_all(self, inner: Mapping[int, Any]) -> Callable[[set[int]], set[int]]:
        """The function from what matters after all iterations along the `inner` axes to what matters before them."""
        first = self._before(dict.fromkeys(inner, 0))
        if all(n == 1 for n in inner.values()):
            return first
        middle, last = self._before({}), self._before({k: n - 1 for k, n in inner.items()})

        def before(after: set[int]) -> set[int]:
            live = last(after)
            while not (more := middle(live)) <= live:
                live |= more
            return first(live)

        return before

    def _before(self, position: Mapping[int, int]) -> Callable[[set[int]], set[int]]:
        """The function from what matters after an iteration to what matters before; some of its indices are known."""
        jaxpr, constants, _ = self._pure
        start = self.mapping.num_index_operands
        visible = self._visible_axes() if self.mapping.local_grid_env is None else []
        known = {k: position[axis] for k, axis in enumerate(visible) if axis in position}
        values = [Value(frozenset([k - start]) if k >= start else frozenset()) for k in range(len(jaxpr.invars))]
        interpreter = Dependences(known)
        results = interpreter.run(jaxpr, [Value(frozenset())] * len(constants), values)[start:]
        return lambda after: {*interpreter.effects.union(*(results[k].sources for k in after))}


@record
class Value:
    """The positions of the inputs that a value depends on, and the scalar constant that it is, if known."""

    sources: frozenset[int]
    constant: Any = None


_OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert, "add": np.add, "sub": np.subtract, "mul": np.multiply,
}  # fmt: skip
"""Operations on scalars that conditions of kernels consist of."""


class Dependences:
    """Interprets a jaxpr on sets of inputs: a result depends on all operands, but on the branch that is taken only."""

    def __init__(self, position: Mapping[int, int]) -> None:
        self.position = position
        self.effects: frozenset[int] = frozenset()
        """Inputs that effects depend on."""

    def run(self, jaxpr: Any, constants: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
        """Returns the results of a jaxpr."""
        environment = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))

        def value_of(atom: Any) -> Value:
            return Value(frozenset(), atom.val) if isinstance(atom, core.Literal) else environment[atom]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [*map(value_of, equation.invars)])
            environment |= zip(equation.outvars, results, strict=True)
        return [*map(value_of, jaxpr.outvars)]

    def _equation(self, equation: Any, operands: list[Value]) -> list[Value]:
        name, parameters = equation.primitive.name, equation.params
        if name == "cond":
            return self._conditional(operands[0], parameters["branches"], operands[1:])
        if name in {"jit", "pjit", "closed_call"}:
            return self._call(parameters.get("jaxpr") or parameters["call_jaxpr"], operands)
        sources = _join(operands)
        if equation.effects:
            self.effects |= sources
        return [Value(sources, self._constant(equation, operands))] * len(equation.outvars)

    def _conditional(self, index: Value, branches: Sequence[Any], operands: Sequence[Value]) -> list[Value]:
        if index.constant is not None:
            return self._call(branches[min(max(int(index.constant), 0), len(branches) - 1)], operands)
        results = zip(*(self._call(branch, operands) for branch in branches), strict=True)
        return [Value(_join([index, *alternatives])) for alternatives in results]

    def _call(self, closed: Any, operands: Sequence[Value]) -> list[Value]:
        return self.run(closed.jaxpr, [Value(frozenset())] * len(closed.consts), operands)

    def _constant(self, equation: Any, operands: Sequence[Value]) -> Any:
        """The value of a scalar; None if it is not known."""
        name, known = equation.primitive.name, [value.constant for value in operands]
        if name == "program_id":
            return self.position.get(equation.params["axis"])
        if any(value is None or np.shape(value) for value in known):
            return None
        if name == "convert_element_type":
            return np.asarray(known[0]).astype(equation.params["new_dtype"])
        return _OPERATIONS[name](*known) if name in _OPERATIONS else None


def _join(values: Iterable[Value]) -> frozenset[int]:
    return frozenset().union(*(value.sources for value in values))
