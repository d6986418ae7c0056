"""Index arithmetic: simplified indices have the values of the same expressions of Python integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping

from hypothesis import given
from hypothesis import strategies as st

from hloom.affine import Atom, Index, IndexSpace, Quotient, Remainder, Variable, row_major_strides
from hloom.loops.expression_space import ExpressionSpace

Values = Mapping[Variable, int]
Reference = Callable[[Values], int]


def value(index: Index, of: Values) -> int:
    """Evaluates an index for values of the variables, from its atoms."""
    return index.constant + sum(coefficient * atom_value(atom, of) for atom, coefficient in index.terms)


def atom_value(atom: Atom, of: Values) -> int:
    if isinstance(atom, Variable):
        return of[atom]
    assert isinstance(atom, (Quotient, Remainder))
    operand = value(atom.operand, of)
    found = operand // atom.divisor if isinstance(atom, Quotient) else operand % atom.divisor
    assert atom.low <= found <= atom.high
    return found


def all_values(variables: list[Variable]) -> Iterator[Values]:
    ranges = [range(v.extent) for v in variables]
    return (dict(zip(variables, chosen, strict=True)) for chosen in itertools.product(*ranges))


class Drawn:
    """Random indices, each with the same expression of Python integers."""

    def __init__(self, data: st.DataObject) -> None:
        self.space = IndexSpace()
        self.draw = data.draw
        sizes = self.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
        self.variables = [self.space.variable(f"i{k}", size) for k, size in enumerate(sizes)]

    def index(self, depth: int = 4) -> tuple[Index, Reference]:
        space, draw = self.space, self.draw
        kind = draw(st.sampled_from(["variable", "constant", "add", "scale", "shift", "quotient", "remainder"]))
        if not depth or kind == "variable":
            variable = draw(st.sampled_from(self.variables))
            return space.of(variable), lambda of: of[variable]
        if kind == "constant":
            constant = draw(st.integers(-20, 20))
            return space.constant(constant), lambda of: constant
        a, in_python = self.index(depth - 1)
        if kind == "add":
            b, other = self.index(depth - 1)
            return space.add(a, b), lambda of: in_python(of) + other(of)
        if kind == "scale":
            factor = draw(st.integers(-4, 12))
            return space.scale(a, factor), lambda of: in_python(of) * factor
        if kind == "shift":
            offset = draw(st.integers(-10, 10))
            return space.shift(a, offset), lambda of: in_python(of) + offset
        divisor = draw(st.integers(1, 12))
        if kind == "quotient":
            return space.quotient(a, divisor), lambda of: in_python(of) // divisor
        return space.remainder(a, divisor), lambda of: in_python(of) % divisor


@given(st.data())
def test_indices_have_the_values_of_python_integers_within_bounds(data: st.DataObject) -> None:
    drawn = Drawn(data)
    index, in_python = drawn.index()
    for of in all_values(drawn.variables):
        assert value(index, of) == in_python(of)
        assert index.low <= in_python(of) <= index.high


@given(st.data())
def test_delinearized_indices_are_in_range_and_linearize_back(data: st.DataObject) -> None:
    drawn = Drawn(data)
    index, in_python = drawn.index(depth=2)
    inner = data.draw(st.lists(st.integers(1, 5), max_size=3))
    parts = drawn.space.delinearize(index, (1000, *inner))
    assert len(parts) == len(inner) + 1
    strides = row_major_strides((1000, *inner))
    for of in all_values(drawn.variables):
        values = [value(part, of) for part in parts]
        assert sum(v * stride for v, stride in zip(values, strides)) == in_python(of)
        assert values[0] == in_python(of) // math.prod(inner)
        assert all(0 <= v < size for v, size in zip(values[1:], inner))


@given(st.data())
def test_substitution_commutes_with_evaluation(data: st.DataObject) -> None:
    drawn = Drawn(data)
    index, in_python = drawn.index()
    variable = data.draw(st.sampled_from(drawn.variables))
    inner, inner_in_python = drawn.index(depth=2)
    # The replacement of a variable lies in its range.
    new = drawn.space.shift(drawn.space.remainder(inner, variable.extent), variable.low)
    space = ExpressionSpace([])
    space.indices = drawn.space
    found = space.substitute_index(index, {variable: new})
    for of in all_values(drawn.variables):
        assert value(found, of) == in_python({**of, variable: inner_in_python(of) % variable.extent + variable.low})


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_reshaping_back_gives_the_same_index(sizes: list[int], data: st.DataObject) -> None:
    """The index of [2,6] -> [12] -> [3,4] -> [12] -> [2,6] is the one it started from."""
    space = IndexSpace()
    start = [space.of(space.variable(f"i{k}", size)) for k, size in enumerate(sizes)]
    linear = space.linear(start, row_major_strides(sizes))
    count = math.prod(sizes)
    divisor = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
    between = space.delinearize(linear, (count // divisor, divisor))
    again = space.linear(between, (divisor, 1))
    assert again == linear
    assert space.delinearize(again, tuple(sizes)) == start


def test_ranges_simplify_divisions() -> None:
    space = IndexSpace()
    i, j = (space.of(space.variable(name, size)) for name, size in (("i", 5), ("j", 8)))
    linear = space.add(space.scale(i, 8), j)
    assert space.quotient(linear, 8) == i
    assert space.remainder(linear, 8) == j
    assert str(space.quotient(linear, 4)) == "2*i + (j // 4)"
    assert str(space.remainder(linear, 4)) == "(j mod 4)"
    assert str(space.quotient(space.shift(linear, 3), 8)) == "i + ((j + 3) // 8)"
    assert str(space.remainder(space.shift(space.scale(j, 2), 9), 2)) == "1"


def test_quotient_and_remainder_of_a_division_recombine() -> None:
    space = IndexSpace()
    i = space.of(space.variable("i", 100))
    parts = space.add(space.scale(space.quotient(i, 7), 21), space.scale(space.remainder(i, 7), 3))
    assert parts == space.scale(i, 3)


def test_variables_of_one_value_are_constants() -> None:
    space = IndexSpace()
    assert space.of(space.variable("i", 1)) == space.constant(0)


def test_affine_indices_have_coefficients() -> None:
    space = IndexSpace()
    i, j = space.variable("i", 20), space.variable("j", 3)
    index = space.add(space.scale(space.of(j), 5), space.quotient(space.of(i), 4), space.of(i))
    assert index.coefficient(j) == 5 and index.is_affine_in(j)
    assert index.coefficient(i) == 1 and not index.is_affine_in(i)
    assert index.variables == {i, j}
