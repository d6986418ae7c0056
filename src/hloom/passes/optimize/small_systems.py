"""small-systems: LU factorisations that solve one set of linear systems, as calls that do both.

    lu, pivots = getrf(a), p = laswp(iota, pivots), x = trsm(lu, trsm(lu, gather(b, p), unit lower), upper)
->  x = gesv(a, b)

Neither the factors nor the permutation are arrays then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from hloom.ir import Instruction, Module
from hloom.ops.attributes import ComparisonDirection
from hloom.ops.broadcast import Broadcast
from hloom.ops.compare import Compare
from hloom.ops.convert import BitcastConvert
from hloom.ops.custom_call import CustomCall
from hloom.ops.gather import Gather
from hloom.ops.reshape import Reshape
from hloom.ops.select import Select
from hloom.ops.structure import GetTupleElement
from hloom.ops.transpose import Transpose
from hloom.passes.edit import counts_along_last, is_filled, keeps_order
from hloom.passes.op_builder import OpBuilder, expand_each
from hloom.runtime.custom_calls.lapack.factorisations import MAX_SOLVED
from hloom.runtime.custom_calls.signature import parse_attributes
from hloom.runtime.custom_calls.targets import is_lapack_call
from hloom.shape import Shape
from hloom.system.records import record

UPPER = {"side": "L", "uplo": "U", "trans_x": "N", "diag": "N"}
UNIT_LOWER = {"side": "L", "uplo": "L", "trans_x": "N", "diag": "U"}


@record
class SmallSystems:
    """Before: a batch of at least `min_count` LU factorisations, with which one set of right-hand sides is solved for,
    and nothing else is done. After: a call of `lapack_sgesv` or `lapack_dgesv`.

    Systems have at most `MAX_SOLVED` unknowns and right-hand sides. Factors that are NaN where LAPACK refuses its
    arguments are those that it returns.
    """

    name: ClassVar[str] = "small-systems"
    optional: ClassVar[bool] = True
    operations: ClassVar[tuple[type, ...]] = (CustomCall,)
    min_count: int = 4

    def run(self, module: Module) -> int:
        """Replaces the solutions; returns their number."""
        return expand_each(module, CustomCall, self._solved)

    def _solved(self, op: CustomCall, build: OpBuilder, old: Instruction, module: Module) -> Instruction | None:
        letter = op.target_name.removeprefix("lapack_")[:1]
        if letter not in "sd" or not is_lapack_call(old, "trsm", letter) or not self._is_small(old.shape.dimensions):
            return None
        solution = _Solution(letter)
        if not solution.has_matched(old):
            return None
        a, b = solution.operands(build)
        return build(CustomCall(target_name=f"lapack_{letter}gesv"), a, b, shape=old.shape.without_layout())

    def _is_small(self, sizes: Sequence[int]) -> bool:
        *batch, n, k = sizes
        return 1 < n <= MAX_SOLVED and 1 <= k <= MAX_SOLVED and math.prod(batch) >= self.min_count


@dataclass
class _Solution:
    """The instructions of a factorisation and the solution with it, which have no other users."""

    letter: str
    members: dict[Instruction, None] = field(default_factory=dict)
    lu: Instruction | None = None
    moves: list[Instruction] = field(default_factory=list)
    """The reshapes and transpositions of the right-hand sides after their rows were permuted."""

    def has_matched(self, root: Instruction) -> bool:
        """Whether an instruction solves systems whose matrices are factorised for it alone."""
        lower = self._viewed(root.operands[1])
        if not is_lapack_call(lower, "trsm", self.letter) or lower.operands[0] is not root.operands[0]:
            return False
        if (_characters(root), _characters(lower)) != (UPPER, UNIT_LOWER):
            return False
        self._add(root, lower)
        return self._are_factors(root.operands[0]) and self._are_permuted(lower.operands[1]) and self._are_private(root)

    def operands(self, build: OpBuilder) -> tuple[Instruction, Instruction]:
        """Returns the matrices and the right-hand sides."""
        assert self.lu is not None
        gather, *moves = reversed(self.moves)
        b = gather.operands[0]
        for move in moves:
            b = build(move.op, b, shape=move.shape.without_layout())
        return self.lu.operands[0], b

    def _viewed(self, instruction: Instruction) -> Instruction:
        """Returns the array of which an instruction is a reshape, or a broadcast to more dimensions."""
        while keeps_order(instruction):
            self._add(instruction)
            (instruction,) = instruction.operands
        return instruction

    def _add(self, *members: Instruction) -> None:
        self.members.update(dict.fromkeys(members))

    def _are_private(self, root: Instruction) -> bool:
        """Whether nothing else reads the members."""
        readers = (user for member in self.members if member is not root for user in member.users)
        return all(reader in self.members for reader in readers)

    def _are_factors(self, factors: Instruction) -> bool:
        """Whether an array has the factors, or where LAPACK refuses its arguments, which it does not, another value."""
        if isinstance(factors.op, Select):
            condition, packed, _ = factors.operands
            if not self._is_accepted(condition):
                return False
            self._add(factors)
            return self._are_factors(packed)
        return self._is_result(factors, 0)

    def _is_result(self, instruction: Instruction, position: int) -> bool:
        """Whether an instruction is a result of the factorisation."""
        op = instruction.op
        if not isinstance(op, GetTupleElement) or op.index != position:
            return False
        (call,) = instruction.operands
        if not is_lapack_call(call, "getrf", self.letter) or call is not (self.lu or call):
            return False
        self.lu = call
        self._add(call, instruction)
        return True

    def _is_accepted(self, condition: Instruction) -> bool:
        """Whether a condition is that the status is not negative."""
        while isinstance(condition.op, (Broadcast, Reshape)):
            self._add(condition)
            (condition,) = condition.operands
        self._add(condition)
        is_order = isinstance(condition.op, Compare) and condition.op.direction is ComparisonDirection.GE
        return is_order and is_filled(condition.operands[1], 0) and self._is_result(condition.operands[0], 2)

    def _are_permuted(self, sides: Instruction) -> bool:
        """Whether rows of right-hand sides are permuted as the factorisation says."""
        while isinstance(sides.op, (Reshape, Transpose)):
            self.moves.append(sides)
            (sides,) = sides.operands
        self.moves.append(sides)
        self._add(*self.moves)
        if not isinstance(sides.op, Gather) or not _permutes_rows(sides.op, sides):
            return False
        batch, (row,) = len(sides.op.operand_batching_dims), sides.op.start_index_map
        return _are_rows(self.moves, batch, row) and self._is_permutation(sides.operands[1])

    def _is_permutation(self, rows: Instruction) -> bool:
        """Whether numbers of rows are those that the pivots permute; they are not negative."""
        rows = self._viewed(rows)
        if isinstance(rows.op, Select):
            condition, other, kept = rows.operands
            self._add(rows, condition, other)
            return _is_negative(condition, kept) and self._is_permutation(kept)
        self._add(rows)
        return isinstance(rows.op, BitcastConvert) and self._are_swapped(rows.operands[0])

    def _are_swapped(self, swapped: Instruction) -> bool:
        """Whether a call swaps the numbers of the rows, as floats."""
        if not is_lapack_call(swapped, "laswp", "s"):
            return False
        indices, pivots = swapped.operands
        self._add(swapped)
        is_iota = isinstance(indices.op, BitcastConvert) and counts_along_last(indices.operands[0])
        return is_iota and self._is_result(pivots, 1)


def _characters(call: Instruction) -> dict[str, str]:
    """Returns the attributes of a call, which are characters, by name."""
    return {key: chr(value) for key, value in parse_attributes(call.backend_config).items()}


def _is_negative(condition: Instruction, value: Instruction) -> bool:
    """Whether a condition is that a value is negative."""
    is_order = isinstance(condition.op, Compare) and condition.op.direction is ComparisonDirection.LT
    return is_order and condition.operands[0] is value and is_filled(condition.operands[1], 0)


def _permutes_rows(op: Gather, gather: Instruction) -> bool:
    """Whether a gather of matrices with permuted rows keeps all dimensions where they are."""
    operand, indices = gather.operand_shapes
    if len(op.start_index_map) != 1 or op.collapsed_slice_dims != op.start_index_map:
        return False
    (row,), batch = op.start_index_map, tuple(range(len(op.operand_batching_dims)))
    moved = tuple(d for d in range(operand.rank) if d not in (*batch, row))
    sizes = tuple(size if d in moved else 1 for d, size in enumerate(operand.dimensions))
    is_batched = batch == op.operand_batching_dims == op.start_indices_batching_dims and row >= len(batch)
    is_last = op.index_vector_dim >= len(batch) + 1 and indices.rank - len(batch) <= 2
    are_kept = op.offset_dims == moved and op.slice_sizes == sizes and gather.shape.dimensions == operand.dimensions
    return is_batched and is_last and are_kept


def _are_rows(moves: Sequence[Instruction], batch: int, row: int) -> bool:
    """Whether moves bring matrices to the last two dimensions, the one before the last being that of the rows.

    The last of `moves` is moved by the others; the first `batch` of its dimensions stay first. Reshapes only add and
    remove dimensions of size 1, so that the others can be followed.
    """
    *others, first = moves
    labels = _large(first.shape)
    for move in reversed(others):
        before = move.operands[0].shape
        if isinstance(move.op, Transpose):
            labels = [labels[_large(before).index(d)] for d in move.op.permutation if before.dimensions[d] > 1]
        elif [before.dimensions[d] for d in _large(before)] != [move.shape.dimensions[d] for d in _large(move.shape)]:
            return False
    count = len([size for size in moves[0].shape.dimensions[:-2] if size > 1])
    return labels[: count + 1] == [*(d for d in _large(first.shape) if d < batch), row]


def _large(shape: Shape) -> list[int]:
    """Returns the dimensions of more than one element."""
    return [d for d, size in enumerate(shape.dimensions) if size > 1]
