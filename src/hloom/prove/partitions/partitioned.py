"""Proofs of SPMD partitioning: the blocks of the partitions, put together, are the results of the whole program.

Every partition starts from its blocks of the whole arguments; elements beyond the end of an array are unknown.
Arguments in partial sums are the sums of unknown parts. Copies of a block of a result must be equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from hloom.api import compile
from hloom.comparison import Tolerance
from hloom.errors import HloomError
from hloom.faults.case import Case, interpret
from hloom.files.arrays import flat
from hloom.ir import Module
from hloom.ops.elementwise_binary import Add
from hloom.passes.spmd.partitioner import Partitioned, partition
from hloom.prove.equivalence import (
    MAX_ELEMENTS,
    RANDOM_CASES,
    Proved,
    Refuted,
    Undecided,
    Verdict,
    difference,
    parts_of,
    sums_floats,
    values_in,
    variables,
)
from hloom.prove.meanings.evaluator import Evaluator, Symbol, arrays_of
from hloom.prove.partitions.devices import Devices
from hloom.prove.solver.decide import Deadline, Pair, decide
from hloom.prove.terms.functions import apply
from hloom.prove.terms.term import Term, Unsupported, array_of, variable
from hloom.runtime.blocks import block_slices, join, partial_sum_indices, shard
from hloom.shape import Shape
from hloom.sharding import Sharding
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.values import Array, Value


def prove_partitioned(module: Module, partitions: int, seconds: float = 60.0) -> Verdict:
    """Decides whether a module, partitioned as its shardings say, has the results of the whole one for all arguments.

    `after` of a counterexample is made of the blocks of the partitions. Raises ArgumentError for shardings that do not
    fit, as `partition` does.
    """
    split = _Split(partition(module, 1).module, partition(module, partitions), partitions)
    if sum(leaf.element_count for shape in split.shapes for leaf in shape.leaves() if leaf.is_array) > MAX_ELEMENTS:
        return Undecided(f"the parameters have more than {MAX_ELEMENTS} elements: prove it for smaller sizes")
    deadline = Deadline(seconds)
    try:
        arguments, blocks = split.arguments()
        pairs = split.pairs(arguments, blocks, deadline)
        outcome = decide(pairs, deadline)
    except Unsupported as error:
        return Undecided(str(error))
    found = outcome.found
    if found is None:
        return Undecided(outcome.reason) if outcome.reason else Proved(tuple(sorted(outcome.clauses)))
    values = [values_in(a, shape, found) for a, shape in zip(arguments, split.shapes, strict=True)]
    shapes = split.made.module.entry.parameter_shapes
    parts = [[values_in(b, shape, found) for b, shape in zip(mine, shapes, strict=True)] for mine in blocks]
    return split.confirmed(values, parts)


@record
class _Split:
    """A whole module, and the program of its partitions."""

    whole: Module
    made: Partitioned
    count: int

    @property
    def shapes(self) -> Sequence[Shape]:
        return self.whole.entry.parameter_shapes

    def arguments(self) -> tuple[list[Symbol], list[list[Symbol]]]:
        """Returns the arguments of the whole module, and those of each partition."""
        wholes, blocks = [], []
        of_leaves = [leaf for shape in self.shapes for leaf in shape.leaves()]
        for k, (shape, sharding) in enumerate(zip(of_leaves, self.made.parameters, strict=True)):
            last = max(partial_sum_indices(sharding, self.count))
            sums = [variables(shape, f"p{k}.{part}" if last else f"p{k}") for part in range(last + 1)]
            wholes.append(_sum(shape.element_type, sums))
            blocks.append(_blocks(sums, shape.element_type, sharding, self.count, f"p{k}.beyond"))
        rest = iter(wholes)
        of_devices = [iter([block[device] for block in blocks]) for device in range(self.count)]
        shapes = self.made.module.entry.parameter_shapes
        return [_rebuilt(s, rest) for s in self.shapes], [[_rebuilt(s, mine) for s in shapes] for mine in of_devices]

    def pairs(self, arguments: Sequence[Symbol], blocks: Sequence[Sequence[Symbol]], deadline: Deadline) -> list[Pair]:
        """Returns the elements of the blocks of the results, with those of the whole results."""
        evaluator = Evaluator(deadline)
        wanted = arrays_of(evaluator.run(self.whole.entry, arguments))
        devices = Devices(evaluator, 1, self.count)
        by_parameter = [[mine[k] for mine in blocks] for k in range(len(arguments))]
        results = [[*arrays_of(value)] for value in devices.run(self.made.module.entry, by_parameter)]
        found: list[Pair] = []
        for k, (whole, sharding) in enumerate(zip(wanted, self.made.results, strict=True)):
            found += _block_pairs(whole, [mine[k] for mine in results], sharding)
        return found

    def confirmed(self, arguments: Sequence[Value], parts: Sequence[Sequence[Value]]) -> Verdict:
        """Runs both sides on a counterexample of the solver; where floats are summed, on random arguments, too."""
        try:
            refuted, is_rounding = self._run(arguments, parts)
            seeds = iter(range(RANDOM_CASES if refuted and is_rounding else 0))
            while is_rounding and (seed := next(seeds, None)) is not None:
                arguments = Case.random(self.whole, seed).arguments or ()
                refuted, is_rounding = self._run(arguments, self._sharded(arguments))
        except HloomError as error:
            return Undecided(f"the solver's counterexample does not run: {error}")
        if is_rounding:
            return Undecided("the results differ by no more than the rounding of sums, whose order is open")
        return refuted or Undecided(
            "the solver's counterexample is none: it assumes values of functions that they do not have"
        )

    def _sharded(self, arguments: Sequence[Value]) -> list[list[Value]]:
        """Returns the arguments of each partition."""
        arrays = (array for argument in arguments for array in flat(argument))
        blocks = [shard(a, sharding, self.count) for a, sharding in zip(arrays, self.made.parameters, strict=True)]
        rest = [iter([block[device] for block in blocks]) for device in range(self.count)]
        shapes = self.made.module.entry.parameter_shapes
        return [[_rebuilt(shape, mine) for shape in shapes] for mine in rest]

    def _run(self, arguments: Sequence[Value], parts: Sequence[Sequence[Value]]) -> tuple[Refuted | None, bool]:
        """Returns how the results differ, and whether they do by no more than the rounding of sums."""
        before = interpret(self.whole, arguments)
        results = [flat(v) for v in compile(self.made.module, "interpreter", seed=0).run_replicas(parts)]
        wholes = flat(before)
        found = [[mine[k] for mine in results] for k in range(len(wholes))]
        differences = (_differences(*each) for each in zip(wholes, found, self.made.results, strict=True))
        text = next(itertools.chain.from_iterable(differences), "")
        if not text:
            return None, False
        joined = [join(b, s, whole.shape) for b, s, whole in zip(found, self.made.results, wholes, strict=True)]
        is_large = any(Tolerance().difference(a, b) is not None for a, b in zip(joined, wholes, strict=True))
        after: Value = joined[0] if isinstance(before, np.ndarray) else tuple(joined)
        return Refuted(tuple(arguments), before, after, text), sums_floats(self.whole) and not is_large


def _rebuilt(shape: Shape, rest: Iterator[Any]) -> Any:
    return tuple(_rebuilt(element, rest) for element in shape.elements) if shape.is_tuple else next(rest)


def _sum(type: PrimitiveType, parts: Sequence[Array]) -> Array:
    """Returns the sum of arrays of integers, element by element; a single array may have any type."""
    if len(parts) > 1 and not type.is_integer:
        raise Unsupported(f"partial sums of {type}")
    total = parts[0]
    for part in parts[1:]:
        terms = [apply(Add(), type, pair) for pair in zip(total.flat, part.flat, strict=True)]
        total = array_of(terms, total.shape)
    return total


def _blocks(sums: Sequence[Array], type: PrimitiveType, sharding: Sharding, count: int, name: str) -> list[Array]:
    """Returns the block of each partition; elements beyond the end of the array are unknown."""
    held = partial_sum_indices(sharding, count)
    slices = block_slices(sharding, sums[0].shape, count)
    return [_block(sums[k], s, type, f"{name}{d}") for d, (s, k) in enumerate(zip(slices, held, strict=True))]


def _block(whole: Array, where: tuple[slice, ...], type: PrimitiveType, name: str) -> Array:
    sizes = tuple(s.stop - s.start for s in where)
    block = array_of([variable(type, f"{name}[{k}]") for k in range(int(np.prod(sizes)))], sizes)
    part = np.asarray(whole[where], object)
    inside: tuple[Any, ...] = (*(slice(0, n) for n in part.shape), ...)
    block[inside] = part
    return block


def _block_pairs(whole: Array, blocks: Sequence[Array], sharding: Sharding) -> list[Pair]:
    """Returns pairs of elements: the sum of each element's partial sums and that of the whole; copies, too."""
    count = len(blocks)
    held = partial_sum_indices(sharding, count)
    parts = [np.full(whole.shape, None) for _ in range(max(held) + 1)]
    pairs: list[Pair] = []
    for block, where, k in zip(blocks, block_slices(sharding, whole.shape, count), held, strict=True):
        for index in np.ndindex(*block.shape):
            at = tuple(s.start + i for s, i in zip(where, index, strict=True))
            if all(i < n for i, n in zip(at, whole.shape, strict=True)):
                if parts[k][at] is not None:
                    pairs += parts_of(parts[k][at], cast(Term, block[index]))
                parts[k][at] = block[index]
    for at in np.ndindex(*whole.shape):
        total = parts[0][at]
        for part in parts[1:]:
            total = apply(Add(), total.type, [total, part[at]])
        pairs += parts_of(whole[at], total)
    return pairs


def _differences(whole: Array, blocks: Sequence[Array], sharding: Sharding) -> Iterator[str]:
    """Describes the differences of blocks from a whole array."""
    count = len(blocks)
    if any(partial_sum_indices(sharding, count)):
        text = difference(whole, join(blocks, sharding, whole.shape))
        yield from [text] if text else []
        return
    for device, (block, where) in enumerate(zip(blocks, block_slices(sharding, whole.shape, count), strict=True)):
        part = np.asarray(whole[where])
        text = difference(part, np.asarray(block[tuple(slice(0, n) for n in part.shape)]))
        if text:
            yield f"on partition {device} {text}"
