"""Symbolic evaluation: a computation on arrays of terms.

Operations with an indexing map are evaluated by it: every element of the result is a read, a reduction or a function of
the reads (`reads.py`). Other operations have a rule; those without one raise `Unsupported`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import z3

from hloom.affine import Atom, Variable
from hloom.ir import Computation, Instruction
from hloom.numerics import convert
from hloom.ops.broadcast import Iota
from hloom.ops.control_flow import Call, Conditional, Fusion, While
from hloom.ops.convert import Convert
from hloom.ops.dot import Dot
from hloom.ops.dynamic_size import GetDimensionSize
from hloom.ops.elementwise_binary import Add, Multiply
from hloom.ops.reduce import Map, Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.registry import Registry
from hloom.ops.scatter import Scatter
from hloom.ops.sort import Sort
from hloom.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.ops.traits import Identity, Movement
from hloom.prove.functions import Apply
from hloom.prove.reads import Environment, element_read, holds, moved
from hloom.prove.terms import Term, Unsupported, array_of, choose, constant
from hloom.types import PrimitiveType
from hloom.values import Array

MAX_ITERATIONS = 64
"""Iterations of a loop that are unrolled."""

Symbol = Any
"""An array of terms, or a tuple of symbols."""

RULES = Registry[["Evaluator", Instruction, Sequence[Symbol]], Symbol]()
"""Rules of operations: the value of an instruction, given those of its operands."""


@dataclass(frozen=True)
class Evaluator:
    """Evaluates computations on symbols; `apply` is the meaning of element-wise operations."""

    apply: Apply

    def run(self, computation: Computation, arguments: Sequence[Symbol]) -> Symbol:
        """Returns the value of a computation. Raises Unsupported, with the instruction."""
        values: dict[Instruction, Symbol] = {}
        for instruction in computation.instructions:
            if isinstance(op := instruction.op, Parameter):
                values[instruction] = arguments[op.number]
                continue
            try:
                values[instruction] = self.value(instruction, [values[operand] for operand in instruction.operands])
            except Unsupported as error:
                raise error.at(f"%{instruction.name} = {instruction.shape} {instruction.opcode}") from None
        return values[computation.root]

    def scalars(self, computation: Computation, terms: Sequence[Term]) -> list[Term]:
        """Applies a computation of scalars; returns its results."""
        value = self.run(computation, [array_of([term], ()) for term in terms])
        return [part[()] for part in (value if isinstance(value, tuple) else (value,))]

    def value(self, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
        """Returns the value of an instruction, given those of its operands. Raises Unsupported."""
        op = instruction.op
        if instruction.shape.is_array and not instruction.shape.is_static:
            raise Unsupported("arrays of dynamic sizes")
        rule = RULES.get(op)
        if rule is not None:
            return rule(op, self, instruction, operands)
        if isinstance(op, Identity):
            return operands[0]
        mapped = instruction.indexing_map()
        if mapped is None:
            raise Unsupported(f"{op.opcode} has no symbolic meaning")
        if isinstance(op, Movement):
            return _from_elements(
                instruction, lambda index: moved(mapped, operands, dict(zip(mapped.dimensions, index, strict=True)))
            )
        return self._elementwise(instruction, operands)

    def _elementwise(self, instruction: Instruction, operands: Sequence[Array]) -> Array:
        type, sizes = instruction.shape.element_type, instruction.shape.dimensions
        wide = [np.broadcast_to(operand, sizes).reshape(-1) for operand in operands]
        return array_of([self.apply(instruction.op, type, terms) for terms in zip(*wide, strict=True)], sizes)


def _from_elements(instruction: Instruction, element: Callable[[tuple[int, ...]], Term]) -> Array:
    sizes = instruction.shape.dimensions
    return array_of([element(index) for index in np.ndindex(*sizes)], sizes)


# Structure and control flow


@RULES.rule(Constant)
def _constant(op: Constant, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    array = np.asarray(op.literal.value)
    return array_of([constant(instruction.shape.element_type, value) for value in array.reshape(-1)], array.shape)


@RULES.rule(Iota)
def _iota(op: Iota, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    type = instruction.shape.element_type
    counted = convert(np.arange(max(1, instruction.shape.dimensions[op.iota_dimension])), type.dtype)
    return _from_elements(instruction, lambda index: constant(type, counted[index[op.iota_dimension]]))


@RULES.rule(GetDimensionSize)
def _get_dimension_size(
    op: GetDimensionSize, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Array:
    size = operands[0].shape[op.dimension]
    return array_of([constant(instruction.shape.element_type, size)], ())


@RULES.rule(Tuple)
def _tuple(op: Tuple, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return tuple(operands)


@RULES.rule(GetTupleElement)
def _get_tuple_element(
    op: GetTupleElement, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Symbol:
    return operands[0][op.index]


@RULES.rule(Call)
def _call(op: Call, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return evaluator.run(op.computation, operands)


@RULES.rule(Fusion)
def _fusion(op: Fusion, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    return evaluator.run(op.calls, operands)


@RULES.rule(Conditional)
def _conditional(op: Conditional, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    results = [evaluator.run(b, [o]) for b, o in zip(op.branch_computations, operands[1:], strict=True)]
    return branch_result(operands[0][()], results)


def branch_result(index: Term, results: Sequence[Symbol]) -> Symbol:
    """Returns the result of the branch that a conditional takes for an index."""
    if index.type.is_pred:
        return _chosen(index.bits, results[0], results[1])
    value = results[-1]
    for k, result in enumerate(results[:-1]):
        value = _chosen(index.bits == k, result, value)
    return value


def _chosen(condition: Any, then: Symbol, otherwise: Symbol) -> Symbol:
    if isinstance(then, tuple):
        return tuple(_chosen(condition, a, b) for a, b in zip(then, otherwise, strict=True))
    pairs = zip(then.reshape(-1), otherwise.reshape(-1), strict=True)
    return array_of([choose(condition, a, b) for a, b in pairs], then.shape)


@RULES.rule(While)
def _while(op: While, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    (value,) = operands
    for _ in range(MAX_ITERATIONS + 1):
        runs = evaluator.run(op.condition, [value])[()].known
        if runs is None:
            raise Unsupported("a loop whose number of iterations depends on the arguments")
        if not runs:
            return value
        value = evaluator.run(op.body, [value])
    raise Unsupported(f"a loop of more than {MAX_ITERATIONS} iterations")


# Computations that are applied to elements


@RULES.rule(Map)
def _map(op: Map, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Array]) -> Array:
    return _from_elements(instruction, lambda index: evaluator.scalars(op.computation, [o[index] for o in operands])[0])


def _reduce(
    op: Reduce | ReduceWindow, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Array]
) -> Symbol:
    """Combines as the interpreter does: the initial value with a balanced tree of the elements, in order."""
    mapped = instruction.indexing_map()
    assert mapped is not None
    half, sizes = len(operands) // 2, next(instruction.shape.leaves()).dimensions
    initial: list[Any] = [operand[()] for operand in operands[half:]]
    reads = mapped.reads[:half]
    found = []
    for index in np.ndindex(*sizes):
        environment: dict[Atom, int] = dict(zip(mapped.dimensions, index, strict=True))
        rows = [
            [element_read(read, operands, inner) for read in reads]
            for inner in _inner(mapped.reductions, environment)
            if holds(reads[0].conditions, inner)
        ]
        found.append(_combined(evaluator, op.computation, initial, rows))
    arrays = tuple(array_of([row[k] for row in found], sizes) for k in range(half))
    return arrays if len(arrays) > 1 else arrays[0]


RULES.add(Reduce, _reduce)
RULES.add(ReduceWindow, _reduce)


def _inner(variables: Sequence[Variable], environment: Environment) -> Iterator[Environment]:
    for values in itertools.product(*(range(variable.extent) for variable in variables)):
        yield {**environment, **dict(zip(variables, values, strict=True))}


def _combined(evaluator: Evaluator, combiner: Computation, initial: list[Term], rows: list[list[Term]]) -> list[Term]:
    while len(rows) > 1:
        pairs = [evaluator.scalars(combiner, [*rows[k], *rows[k + 1]]) for k in range(0, len(rows) - 1, 2)]
        rows = [*pairs, *rows[len(rows) & ~1 :]]
    return evaluator.scalars(combiner, [*initial, *rows[0]]) if rows else initial


@RULES.rule(Dot)
def _dot(op: Dot, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Array]) -> Array:
    mapped = instruction.indexing_map()
    assert mapped is not None
    types = (instruction.shape.element_type, *(shape.element_type for shape in instruction.operand_shapes))
    wide = max((type.computation_type for type in types), key=lambda type: type.bits)

    def element(index: tuple[int, ...]) -> Term:
        environment: dict[Atom, int] = dict(zip(mapped.dimensions, index, strict=True))
        terms = []
        for inner in _inner(mapped.reductions, environment):
            factors = [_converted(evaluator, element_read(read, operands, inner), wide) for read in mapped.reads]
            terms.append(evaluator.apply(Multiply(), wide, factors))
        while len(terms) > 1:
            pairs = [evaluator.apply(Add(), wide, terms[k : k + 2]) for k in range(0, len(terms) - 1, 2)]
            terms = [*pairs, *terms[len(terms) & ~1 :]]
        return _converted(evaluator, terms[0] if terms else constant(wide, 0), types[0])

    return _from_elements(instruction, element)


def _converted(evaluator: Evaluator, term: Term, type: PrimitiveType) -> Term:
    return term if term.type is type else evaluator.apply(Convert(), type, [term])


@RULES.rule(Sort)
def _sort(op: Sort, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Array]) -> Symbol:
    """Exchanges neighbours as bubble sort does, which is stable."""
    rows = [np.moveaxis(operand, op.dimension, -1).copy() for operand in operands]
    size = rows[0].shape[-1]
    for lead in np.ndindex(*rows[0].shape[:-1]):
        for last in range(size - 1, 0, -1):
            for k in range(last):
                pairs = [(row[(*lead, k)], row[(*lead, k + 1)]) for row in rows]
                (later,) = evaluator.scalars(op.comparator, [term for a, b in pairs for term in (b, a)])
                for row, (a, b) in zip(rows, pairs, strict=True):
                    row[(*lead, k)], row[(*lead, k + 1)] = choose(later.bits, b, a), choose(later.bits, a, b)
    sorted_arrays = tuple(np.moveaxis(row, -1, op.dimension) for row in rows)
    return sorted_arrays if len(sorted_arrays) > 1 else sorted_arrays[0]


@RULES.rule(Scatter)
def _scatter(op: Scatter, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Array]) -> Symbol:
    """Applies the updates one by one, in the order of the index vectors (SCATTER-7)."""
    half = len(operands) // 2
    results, indices, updates = [o.copy() for o in operands[:half]], operands[half], operands[half + 1 :]
    batch = [u for u in range(updates[0].ndim) if u not in op.update_window_dims]
    order = [*batch, *op.update_window_dims]
    sizes = _along_window(op, updates[0].shape, results[0].ndim, 1)
    for position in np.ndindex(*(updates[0].shape[u] for u in order)):
        update = tuple(position[order.index(u)] for u in range(len(order)))
        starts = _scatter_starts(op, indices, [update[u] for u in batch])
        window = _window_offsets(op, update, [update[u] for u in batch], results[0].ndim)
        for target in np.ndindex(*results[0].shape):
            here = _is_target(target, starts, window, sizes, results[0].shape)
            if here is None:
                continue
            new = evaluator.scalars(op.update_computation, [r[target] for r in results] + [u[update] for u in updates])
            for result, term in zip(results, new, strict=True):
                result[target] = choose(here, term, cast(Term, result[target]))
    return tuple(results) if half > 1 else results[0]


def _scatter_starts(op: Scatter, indices: Array, batch: Sequence[int]) -> dict[int, Term]:
    """Returns the start index of each operand dimension that has one."""
    starts = {}
    for component, d in enumerate(op.scatter_dims_to_operand_dims):
        vector = list(batch)
        if op.index_vector_dim < indices.ndim:
            vector.insert(op.index_vector_dim, component)
        starts[d] = indices[tuple(vector)]
    return starts


def _along_window(op: Scatter, values: Sequence[int], rank: int, otherwise: int) -> list[int]:
    """Returns a value for each operand dimension: that of its dimension of the updates, where the window has one."""
    found = [otherwise] * rank
    collapsed = {*op.inserted_window_dims, *op.input_batching_dims}
    for d, u in zip((d for d in range(rank) if d not in collapsed), op.update_window_dims, strict=True):
        found[d] = values[u]
    return found


def _window_offsets(op: Scatter, update: Sequence[int], batch: Sequence[int], rank: int) -> list[int]:
    """Returns the offset of an update in each operand dimension, before the start index is added."""
    offsets = _along_window(op, update, rank, 0)
    for d, source in zip(op.input_batching_dims, op.scatter_indices_batching_dims, strict=True):
        offsets[d] = batch[source - (source > op.index_vector_dim)]
    return offsets


def _is_target(
    target: Sequence[int],
    starts: Mapping[int, Term],
    offsets: Sequence[int],
    sizes: Sequence[int],
    shape: Sequence[int],
) -> Any:
    """Returns whether an update goes to `target` and its whole window is inside, as a z3 boolean; None if never."""
    conditions = []
    for d, position in enumerate(target):
        start = position - offsets[d]
        if d not in starts:
            if start:
                return None
            continue
        term = starts[d]
        limit = 1 << (term.type.bits - term.type.is_signed)
        if not 0 <= start <= shape[d] - sizes[d] or start >= limit:
            return None
        conditions.append(term.bits == start)
    return z3.And(*conditions)
