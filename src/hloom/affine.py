"""Index arithmetic: integer expressions, kept affine in loop variables wherever ranges allow it.

An `Index` is `constant + sum(coefficient * atom)`. An atom is a loop variable, an integer computed at run time, or a
quotient or remainder (from reshapes) that could not be simplified. Every atom has bounds, so that most divisions
vanish: with j in [0, 4), (8 i + j) // 8 is i and (8 i + j) mod 4 is j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hloom.types import PrimitiveType


class Expression:
    """A scalar of an element type that is computed at run time; the subclasses are in `loops/expressions.py`.

    `variables` are the loop variables that the value depends on, `children` the expressions it is computed from,
    including those inside indices.
    """

    __slots__ = ("children", "type", "variables")

    type: PrimitiveType
    variables: frozenset[Variable]
    children: tuple[Expression, ...]

    @property
    def indices(self) -> tuple[Index, ...]:
        """The indices that the expression itself uses."""
        return ()

    def text(self, name: Name) -> str:
        """Prints the expression, with the names of the expressions that it is computed from."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text(str)


Name = Callable[[Expression], str]
"""Returns what is printed for an expression inside another one."""


class Atom:
    """A term of an index without its coefficient, with values in [low, high].

    `variables` are the loop variables it depends on, `reads` the integers inside it that are computed at run time.
    Atoms of an `IndexSpace` are ordered by `ordinal`.
    """

    __slots__ = ("high", "low", "ordinal", "reads", "variables")

    ordinal: int
    low: int
    high: int
    variables: frozenset[Variable]
    reads: tuple[Expression, ...]

    def text(self, name: Name) -> str:
        """Prints the atom, with the names of the expressions inside."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.text(str)


class Variable(Atom):
    """The counter of a loop, in [0, extent)."""

    __slots__ = ("name",)

    def __init__(self, name: str, ordinal: int, extent: int) -> None:
        self.name = name
        self.ordinal = ordinal
        self.low, self.high = 0, extent - 1
        self.variables = frozenset((self,))
        self.reads = ()

    @property
    def extent(self) -> int:
        """The number of iterations of the loop."""
        return self.high + 1

    def text(self, name: Name) -> str:
        return self.name


class Quotient(Atom):
    """operand // divisor, rounded down."""

    __slots__ = ("divisor", "operand")

    def __init__(self, ordinal: int, operand: Index, divisor: int) -> None:
        self.ordinal = ordinal
        self.operand, self.divisor = operand, divisor
        self.low, self.high = operand.low // divisor, operand.high // divisor
        self.variables = operand.variables
        self.reads = operand.reads

    def text(self, name: Name) -> str:
        return f"({_operand(self.operand, name)} // {self.divisor})"


class Remainder(Atom):
    """operand mod divisor, in [0, divisor)."""

    __slots__ = ("divisor", "operand")

    def __init__(self, ordinal: int, operand: Index, divisor: int) -> None:
        self.ordinal = ordinal
        self.operand, self.divisor = operand, divisor
        self.low, self.high = 0, divisor - 1
        self.variables = operand.variables
        self.reads = operand.reads

    def text(self, name: Name) -> str:
        return f"({_operand(self.operand, name)} mod {self.divisor})"


class RuntimeIndex(Atom):
    """An integer expression computed at run time, clamped to [low, high]."""

    __slots__ = ("value",)

    def __init__(self, ordinal: int, value: Expression, low: int, high: int) -> None:
        self.ordinal = ordinal
        self.value = value
        self.low, self.high = low, max(low, high)
        self.variables = value.variables
        self.reads = (value,)

    def text(self, name: Name) -> str:
        return f"clamp({self.low}, {name(self.value)}, {self.high})"


class Index:
    """constant + sum of coefficient * atom, in the order of the atoms' ordinals, with values in [low, high]."""

    __slots__ = ("_hash", "constant", "high", "low", "reads", "terms", "variables")

    reads: tuple[Expression, ...]
    """The distinct integers inside the index that are computed at run time."""

    def __init__(self, terms: tuple[tuple[Atom, int], ...], constant: int = 0) -> None:
        self.terms = terms
        self.constant = constant
        low = high = constant
        for atom, coefficient in terms:
            if coefficient > 0:
                low += coefficient * atom.low
                high += coefficient * atom.high
            else:
                low += coefficient * atom.high
                high += coefficient * atom.low
        self.low, self.high = low, high
        if len(terms) == 1:
            self.variables, self.reads = terms[0][0].variables, terms[0][0].reads
        else:
            self.variables = frozenset().union(*[atom.variables for atom, _ in terms]) if terms else frozenset()
            self.reads = tuple(dict.fromkeys([read for atom, _ in terms for read in atom.reads]))
        self._hash = hash((terms, constant))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Index) and self.constant == other.constant and self.terms == other.terms
        )

    def __hash__(self) -> int:
        return self._hash

    def coefficient(self, atom: Atom) -> int:
        """The coefficient of an atom; 0 if the index has no such term."""
        for term, coefficient in self.terms:
            if term is atom:
                return coefficient
        return 0

    def is_atom(self, atom: Atom) -> bool:
        """Whether the index is that atom alone."""
        return self.terms == ((atom, 1),) and not self.constant

    def is_affine_in(self, variable: Variable) -> bool:
        """Whether the index has the variable as a term or not at all, but not inside a quotient or remainder."""
        for atom, _ in self.terms:  # noqa: SIM110 (half of the time of all(..))
            if atom is not variable and variable in atom.variables:
                return False
        return True

    def text(self, name: Name) -> str:
        """Prints the index, with the names of the expressions inside."""
        parts = [atom.text(name) if c == 1 else f"{c}*{atom.text(name)}" for atom, c in self.terms]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)

    def __repr__(self) -> str:
        return self.text(str)


class IndexSpace:
    """A factory of indices; equal quotients and remainders are one atom, so that equal indices compare equal."""

    def __init__(self) -> None:
        self._atoms: dict[Any, Atom] = {}
        self._count = 0

    def next_ordinal(self) -> int:
        """Returns a new ordinal, greater than all before."""
        self._count += 1
        return self._count

    def variable(self, name: str, extent: int) -> Variable:
        """Makes a loop variable in [0, extent)."""
        return Variable(name, self.next_ordinal(), extent)

    def constant(self, value: int) -> Index:
        """A constant index."""
        return Index((), value)

    def of(self, atom: Atom) -> Index:
        """The index of a single atom; a constant if the atom has one value."""
        if atom.low == atom.high:
            return Index((), atom.low)
        return Index(((atom, 1),))

    def runtime(self, value: Expression, low: int, high: int) -> Index:
        """An integer expression, clamped to [low, high], as an index."""
        key = (id(value), low, high)
        atom = self._atoms.get(key)
        if atom is None:
            atom = self._atoms[key] = RuntimeIndex(self.next_ordinal(), value, low, high)
        return self.of(atom)

    def add(self, *indices: Index) -> Index:
        """The sum of indices."""
        return self.linear(indices, (1,) * len(indices))

    def scale(self, index: Index, factor: int) -> Index:
        """index * factor."""
        if factor == 1:
            return index
        if factor == 0:
            return Index((), 0)
        return Index(tuple((atom, c * factor) for atom, c in index.terms), index.constant * factor)

    def shift(self, index: Index, offset: int) -> Index:
        """index + offset."""
        return Index(index.terms, index.constant + offset) if offset else index

    def linear(self, indices: Iterable[Index], strides: Iterable[int]) -> Index:
        """The sum of index * stride."""
        terms: dict[Atom, int] = {}
        constant = 0
        for index, stride in zip(indices, strides, strict=True):
            constant += stride * index.constant
            for atom, coefficient in index.terms:
                terms[atom] = terms.get(atom, 0) + stride * coefficient
        return self._sum(terms, constant)

    def quotient(self, index: Index, divisor: int) -> Index:
        """index // divisor, rounded down, for a positive divisor."""
        if divisor == 1:
            return index
        whole, rest = self._split(index, divisor)
        if rest.low // divisor == rest.high // divisor:
            return self.shift(whole, rest.low // divisor)
        return self.add(whole, self.of(self._atom(Quotient, rest, divisor)))

    def remainder(self, index: Index, divisor: int) -> Index:
        """index mod divisor, in [0, divisor), for a positive divisor."""
        if divisor == 1:
            return Index((), 0)
        _, rest = self._split(index, divisor)
        if rest.low // divisor == rest.high // divisor:
            return self.shift(rest, -(rest.low // divisor) * divisor)
        return self.of(self._atom(Remainder, rest, divisor))

    def delinearize(self, linear: Index, sizes: tuple[int, ...]) -> list[Index]:
        """The indices, one per dimension, of the element at a linear row-major position in an array of these sizes."""
        result: list[Index] = []
        for size in reversed(sizes[1:]):
            result.append(self.remainder(linear, size) if size else Index((), 0))
            linear = self.quotient(linear, size) if size else linear
        return [linear, *reversed(result)] if sizes else []

    def _split(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Splits index = divisor * whole + rest, with all multiples of the divisor in `whole`."""
        whole = tuple((atom, c // divisor) for atom, c in index.terms if c % divisor == 0)
        rest = tuple((atom, c) for atom, c in index.terms if c % divisor)
        quotient, remainder = divmod(index.constant, divisor)
        return Index(whole, quotient), Index(rest, remainder)

    def _atom(self, kind: type[Quotient] | type[Remainder], operand: Index, divisor: int) -> Atom:
        key = (kind, operand, divisor)
        atom = self._atoms.get(key)
        if atom is None:
            atom = self._atoms[key] = kind(self.next_ordinal(), operand, divisor)
        return atom

    def _sum(self, terms: dict[Atom, int], constant: int) -> Index:
        for atom in list(terms):
            # q * (x // d) * d + q * (x mod d) = q * x
            if isinstance(atom, Quotient) and terms.get(atom):
                remainder = self._atoms.get((Remainder, atom.operand, atom.divisor))
                if remainder is not None and terms.get(remainder) and terms[atom] == terms[remainder] * atom.divisor:
                    factor = terms.pop(remainder)
                    del terms[atom]
                    rest = Index(tuple(sorted(terms.items(), key=_by_ordinal)), constant)
                    return self.add(rest, self.scale(atom.operand, factor))
        return Index(tuple(sorted([(a, c) for a, c in terms.items() if c], key=_by_ordinal)), constant)


def row_major_strides(sizes: Sequence[int]) -> list[int]:
    """The strides, in elements, of the dimensions of a dense row-major array."""
    strides, step = [0] * len(sizes), 1
    for d in range(len(sizes) - 1, -1, -1):
        strides[d] = step
        step *= sizes[d]
    return strides


def _operand(index: Index, name: Name) -> str:
    """The text of an index as an operand, with parentheses around sums."""
    text = index.text(name)
    return f"({text})" if len(index.terms) + (index.constant != 0) > 1 else text


def _by_ordinal(term: tuple[Atom, int]) -> int:
    return term[0].ordinal
