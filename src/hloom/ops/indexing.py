"""Indexing maps: the operand elements from which an element of the result is computed.

An operation declares its map once, as `Operation.indexing`, in index arithmetic over the index of the result element:

    transpose       (d0, d1) -> operand0(d1, d0)
    pad             (d0) -> operand0(d0 + -1) if 0 <= d0 + -1 < 4; operand1()
    gather          (d0, d1) -> operand0(clamp(0, operand1(d0, 0), 6), d1)
    reduce          (d0)[r0] -> operand0(d0, r0); operand1()

Loops evaluate the map at the index of a loop nest; partitioning, tiling and fusion look at the map of a whole array,
which `indexing_map` returns. Prior art: the indexing maps of XLA, with dimension, reduction (range) and run-time
variables; `linalg.generic` in MLIR.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from hloom.affine import Atom, Expression, Index, IndexSpace, Name, Quotient, Remainder, Variable
from hloom.shape import Shape
from hloom.system.lazy import cached_property

Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The condition low <= index < high."""

    index: Index
    low: int
    high: int

    @property
    def holds(self) -> bool | None:
        """Whether the condition holds wherever the variables of the index are; None if it depends on them."""
        if self.low <= self.index.low and self.index.high < self.high:
            return True
        return False if self.index.high < self.low or self.index.low >= self.high else None

    def __repr__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


@dataclass(frozen=True, slots=True)
class Read:
    """An element of an operand that a result element is computed from, where all conditions hold.

    A result element of a movement is the first read whose conditions hold; other operations combine all reads.
    """

    operand: int
    index: Indices
    conditions: tuple[Range, ...] = ()


class Indexing:
    """Context of a map: the shapes of an instruction, the index arithmetic, and reduction and run-time variables.

    `result` is the shape of the result, or of one of several results with the same dimensions.
    """

    def __init__(self, space: IndexSpace, result: Shape, operands: Sequence[Shape]) -> None:
        self.space, self.result, self.operands = space, result, operands

    def reduction(self, size: int, position: int) -> Index:
        """Returns the variable of a reduction over `size` elements, the one at a position among those of the map."""
        raise NotImplementedError

    def runtime(self, operand: int, index: Indices, low: int, high: int) -> Index:
        """Returns an element of an integer operand, clamped to [low, high], as an index."""
        raise NotImplementedError

    def dilated(self, position: Index, size: int, step: int) -> tuple[Index, tuple[Range, ...]]:
        """Returns the index of the element at a position of a dimension dilated by `step`, and where there is one."""
        inside = Range(position, 0, (size - 1) * step + 1 if size else 0)
        if step == 1 or inside.holds is False:
            return position, (inside,)
        return self.space.quotient(position, step), (inside, Range(self.space.remainder(position, step), 0, 1))


class RuntimeValue(Expression):
    """An element of an integer operand, on which an index depends."""

    __slots__ = ("index", "operand")

    def __init__(self, operand: int, index: Indices, shape: Shape) -> None:
        self.operand, self.index, self.type = operand, index, shape.element_type
        self.variables = frozenset().union(*(i.variables for i in index))
        self.children = ()

    def text(self, name: Name) -> str:
        return f"operand{self.operand}({', '.join(i.text(name) for i in self.index)})"


@dataclass(frozen=True)
class IndexingMap:
    """The reads of each element of an array, over `dimensions`, the index of the element, and `reductions`."""

    dimensions: tuple[Variable, ...]
    reductions: tuple[Variable, ...]
    reads: tuple[Read, ...]
    operands: tuple[Shape, ...]

    @cached_property
    def independent(self) -> frozenset[Variable]:
        """The variables along which the operation consists of independent parts.

        Such a variable occurs only as the whole index of dimensions as long as itself, one of an operand at most, in
        every read of that operand: part k of the result needs part k of these dimensions, and all of the others.
        """
        mixed: set[Variable] = set()
        uses: dict[tuple[int, int], list[Index]] = {}
        for read in self.all_reads():
            mixed.update(*(_static_variables(c.index) for c in read.conditions if not c.holds))
            for d, index in enumerate(read.index):
                uses.setdefault((read.operand, d), []).append(index)
        seen: set[tuple[int, Variable]] = set()
        for (operand, d), indices in uses.items():
            variable = variable_of(indices[0])
            is_whole = variable is not None and variable.extent == self.operands[operand].dimensions[d]
            if not is_whole or (operand, variable) in seen or any(variable_of(i) is not variable for i in indices):
                mixed.update(*map(_static_variables, indices))
            elif variable is not None:
                seen.add((operand, variable))
        return frozenset(self.dimensions + self.reductions) - mixed

    @cached_property
    def dimension_variables(self) -> list[tuple[Variable | None, ...]]:
        """The independent variable of each dimension of each operand; None for dimensions without one."""
        found: list[tuple[Variable | None, ...]] = [(None,) * shape.rank for shape in self.operands]
        for read in self.all_reads():
            variables = map(variable_of, read.index)
            found[read.operand] = tuple(v if v in self.independent else None for v in variables)
        return found

    def all_reads(self) -> Iterator[Read]:
        """Yields the reads, and those of run-time values inside their indices."""
        pending = list(self.reads)
        while pending:
            read = pending.pop(0)
            yield read
            for index in (*read.index, *(condition.index for condition in read.conditions)):
                values = (value for value in index.reads if isinstance(value, RuntimeValue))
                pending += [Read(value.operand, value.index) for value in values]

    def __str__(self) -> str:
        dimensions, reductions = (", ".join(map(str, v)) for v in (self.dimensions, self.reductions))
        return f"({dimensions}){f'[{reductions}]' if reductions else ''} -> " + "; ".join(map(_text, self.reads))


def _text(read: Read) -> str:
    where = " and ".join(str(condition) for condition in read.conditions if condition.holds is None)
    return f"operand{read.operand}({', '.join(map(str, read.index))})" + (f" if {where}" if where else "")


def variable_of(index: Index) -> Variable | None:
    """Returns the variable that an index is; None for any other index."""
    if index.constant or len(index.terms) != 1:
        return None
    ((atom, coefficient),) = index.terms
    return atom if coefficient == 1 and isinstance(atom, Variable) else None


def _static_variables(index: Index) -> set[Variable]:
    """Returns the variables of an index, except those on which only run-time values depend."""
    return {variable for atom, _ in index.terms for variable in _variables(atom)}


def _variables(atom: Atom) -> set[Variable]:
    match atom:
        case Variable():
            return {atom}
        case Quotient() | Remainder():
            return _static_variables(atom.operand)
    return set()


class _MapIndexing(Indexing):
    """Context that makes the variables of a map."""

    def __init__(self, result: Shape, operands: Sequence[Shape]) -> None:
        super().__init__(IndexSpace(), result, operands)
        self.reductions: list[Variable] = []

    def reduction(self, size: int, position: int) -> Index:
        if size == 1:
            return self.space.constant(0)
        variable = self.space.variable(f"r{len(self.reductions)}", size)
        self.reductions.append(variable)
        return Index(((variable, 1),))

    def runtime(self, operand: int, index: Indices, low: int, high: int) -> Index:
        return self.space.runtime(RuntimeValue(operand, index, self.operands[operand]), low, high)


class HasIndexing(Protocol):
    """An operation, as far as maps are concerned."""

    def indexing(self, at: Indexing, index: Indices) -> list[Read] | None:
        """Returns the reads of the result element at an index (`Operation.indexing`)."""


def indexing_map(op: HasIndexing, result: Shape, operands: Sequence[Shape]) -> IndexingMap | None:
    """Returns the indexing map of an operation for shapes of its result and operands.

    None if the operation has none, for example because an element of the result depends on all elements of an operand.
    """
    if not result.is_array or not all(shape.is_array for shape in operands):
        return None
    at = _MapIndexing(result, operands)
    dimensions = tuple(at.space.variable(f"d{d}", size) for d, size in enumerate(result.dimensions))
    reads = op.indexing(at, tuple(Index(((variable, 1),)) for variable in dimensions))
    return None if reads is None else IndexingMap(dimensions, tuple(at.reductions), tuple(reads), tuple(operands))
