"""Elements as terms: constants, unknown elements, and functions of other terms.

Equal terms are one object: a term is built once, however often it is asked for, so that `is` compares formulas.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hloom.errors import HloomError
from hloom.ops.elementwise_binary import Monoid
from hloom.ops.operation import Operation
from hloom.system.records import record
from hloom.types import PrimitiveType
from hloom.values import Array


class Unsupported(HloomError):
    """Raised for what has no symbolic meaning; the message names it."""


@record
class Unknown:
    """A function of which nothing is known but its name: equal arguments give equal results."""

    name: str


@record
class Part:
    """The bits of an element from number `index` times the width of the result on, as an element of the result."""

    index: int


@record
class Join:
    """The bits of all operands, the first in the lowest bits, as one element."""


@record
class Combination:
    """The operands, combined by a monoid that may work in any order (GEN-13): here as a balanced tree.

    Where `from_zero`, the first operand is a zero from which the sum need not start.
    """

    op: Monoid
    from_zero: bool = False


@record
class Polynomial:
    """The sum of products of integer operands, modulo 2^bits.

    A product is its coefficient with the positions of its factors among the operands.
    """

    products: tuple[tuple[int, tuple[int, ...]], ...]


Function = Operation | Unknown | Part | Join | Combination | Polynomial
"""The function of a term: an element-wise operation, or one of those above."""


class Term:
    """An element: a constant (`known` are its bits), an unknown element (`name`), or `op` applied to `operands`.

    `ordinal` counts the terms of a process in the order in which they were made.
    """

    __slots__ = ("__weakref__", "forms", "known", "name", "op", "operands", "ordinal", "type")

    def __init__(
        self, type: PrimitiveType, op: Function | None, operands: tuple[Term, ...], known: int | None, name: str
    ) -> None:
        self.type, self.op, self.operands, self.known, self.name = type, op, operands, known, name
        self.ordinal = next(_ORDINALS)
        self.forms: dict[Any, Term] = {}
        """The normal forms of the term, once they are known (`normal.py`)."""

    @property
    def is_variable(self) -> bool:
        """Whether the element is unknown, and no function of others."""
        return self.op is None and self.known is None

    def __repr__(self) -> str:
        if self.op is None:
            return self.name or f"{self.type}:{self.known:#x}"
        name = self.op.opcode if isinstance(self.op, Operation) else str(self.op)
        return f"{name}({', '.join(map(repr, self.operands))})"


_ORDINALS = itertools.count()
_TERMS: WeakValueDictionary[tuple[Any, ...], Term] = WeakValueDictionary()


def _made(type: PrimitiveType, op: Function | None, operands: tuple[Term, ...], known: int | None, name: str) -> Term:
    key = (type, op, *map(id, operands)) if op is not None else (type, known, name)
    term = _TERMS.get(key)
    if term is None:
        term = _TERMS[key] = Term(type, op, operands, known, name)
    return term


def variable(type: PrimitiveType, name: str) -> Term:
    """Returns an unknown element."""
    return _made(type, None, (), None, name)


def from_code(type: PrimitiveType, code: int) -> Term:
    """Returns the constant with the bits `code`, an unsigned integer; 0 or 1 for PRED."""
    return _made(type, None, (), code, "")


def constant(type: PrimitiveType, value: Any) -> Term:
    """Returns an element of known value, given as a NumPy or Python scalar."""
    array = np.asarray(value, type.dtype)
    if type.is_pred:
        return from_code(type, int(bool(array)))
    return from_code(type, int.from_bytes(array.tobytes(), "little") & ((1 << type.bits) - 1))


def node(type: PrimitiveType, op: Function, operands: Sequence[Term]) -> Term:
    """Returns the term of a function as it is, without simplification."""
    return _made(type, op, tuple(operands), None, "")


def in_order(roots: Sequence[Term]) -> Iterator[Term]:
    """Yields every term that the roots consist of once, operands before their users."""
    seen: set[Term] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        term, is_done = stack.pop()
        if is_done:
            yield term
        elif term not in seen:
            seen.add(term)
            stack.append((term, True))
            stack += [(operand, False) for operand in reversed(term.operands) if operand not in seen]


def variables_of(roots: Sequence[Term]) -> list[Term]:
    """Returns the unknown elements in terms, in the order of their occurrence."""
    return [term for term in in_order(roots) if term.is_variable]


def array_of(terms: Sequence[Term], sizes: tuple[int, ...]) -> Array:
    """Returns an array of terms, given in row-major order."""
    array = np.empty(len(terms), object)
    array[:] = terms
    return array.reshape(sizes)
