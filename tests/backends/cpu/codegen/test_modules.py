"""Partition of programs into LLVM modules: the functions of one long kernel make two modules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

import hloom as hl
from hloom.backends.cpu.codegen.modules import (
    MIN_MODULE_COST,
    MIN_SPLIT_COST,
    Unit,
    module_of_units,
    module_text,
    partition_units,
    split_call_only,
)
from hloom.backends.cpu.llvm import machine_code
from hloom.backends.cpu.llvm.machine_code import load_object, make_object
from hloom.lir import (
    I64,
    Attribute,
    Builder,
    CallAttribute,
    Function,
    Global,
    Parameter,
    Value,
    Zeros,
    constant,
)

NO_UNWIND = frozenset({Attribute.NO_UNWIND})
CALLS = NO_UNWIND | {Attribute.CALL_ONLY}


def function(
    name: str,
    write: Callable[[Builder, Value], Value],
    cost: int = 0,
    exported: bool = False,
    attributes: frozenset[Attribute] = NO_UNWIND,
) -> Function:
    """Returns `i64 @name(i64 x)`, which is at least as long as `cost`."""
    b = Builder(Function(name, [Parameter("x", I64)], I64, attributes, exported))
    for k in range(cost // 20):
        b.binary("add", b.function.parameters[0], constant(I64, k))
    b.ret(write(b, b.function.parameters[0]))
    return b.function


def square(cost: int = 0, name: str = "square", table: Global | None = None) -> Function:
    def write(b: Builder, x: Value) -> Value:
        factor = x if table is None else b.load(b.address_of(table), I64, 8)
        return b.binary("mul", x, factor)

    return function(name, write, cost)


def twice() -> Function:
    return function("twice", lambda b, x: b.binary("add", x, x))


def entry(cost: int = 0) -> Function:
    def write(b: Builder, x: Value) -> Value:
        return b.call("twice", I64, b.call("square", I64, x), attribute=CallAttribute.ALWAYS_INLINE)

    return function("kernel.call", write, cost, exported=True)


def _defined(units: list[Unit]) -> set[str]:
    return {each.name for unit in units for each in unit.functions}


def test_functions_that_are_only_called_have_a_module_of_their_own() -> None:
    unit = Unit([square(MIN_SPLIT_COST), twice(), entry(MIN_SPLIT_COST)])
    groups, rest = partition_units([unit])
    assert not rest
    assert sorted(map(_defined, groups), key=len) == [{"square"}, {"twice", "kernel.call"}]
    code = load_object(*(make_object(module_text(module_of_units(group))) for group in groups))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("kernel.call"))(5) == 50


def test_short_kernels_and_those_with_variables_stay_whole() -> None:
    short = Unit([square(), twice(), entry()])
    assert partition_units([short]) == ([], [short])
    variable = Global("variable", Zeros(1), is_constant=False)
    shared = Unit([square(MIN_SPLIT_COST, table=variable), twice(), entry(MIN_SPLIT_COST)])
    assert partition_units([shared]) == ([[shared]], [])


def test_each_half_has_a_copy_of_a_constant() -> None:
    table = Global("table", [constant(I64, 3)])
    unit = Unit([square(MIN_SPLIT_COST, table=table), square(MIN_SPLIT_COST, "other", table)])
    groups, _ = partition_units([unit])
    texts = [module_text(module_of_units(group)) for group in groups]
    assert ["@table = internal constant [1 x i64] [i64 3]" in text for text in texts] == [True, True]


def test_a_product_of_two_modules() -> None:
    module = hl.parse(
        "ENTRY e { a = s8[300,200] parameter(0) b = s8[200,300] parameter(1)"
        " ROOT d = s32[300,300] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    )
    a, b = (np.random.default_rng(0).integers(-128, 128, size, np.int8) for size in ((300, 200), (200, 300)))
    np.testing.assert_array_equal(hl.compile(module)(a, b), a.astype(np.int32) @ b.astype(np.int32))


TIMES = Global("times", [constant(I64, 3)])


def call_only() -> list[Function]:
    """An entry that calls `square` and multiplies by a constant, and one that calls the entry."""

    def write(b: Builder, x: Value) -> Value:
        return b.binary("mul", b.call("square", I64, x), b.load(b.address_of(TIMES), I64, 8))

    def outer(b: Builder, x: Value) -> Value:
        return b.call("entry", I64, x, attribute=CallAttribute.ALWAYS_INLINE)

    return [
        function("entry", write, attributes=CALLS),
        function("kernel.call", outer, exported=True, attributes=CALLS),
    ]


def test_call_only_functions_have_a_module_of_their_own_with_the_constants_that_they_alone_name() -> None:
    calls, rest = split_call_only([Unit([square(), *call_only()])])
    assert (_defined(calls), _defined(rest)) == ({"entry", "kernel.call"}, {"square"})
    texts = [module_text(module_of_units(units)) for units in (calls, rest)]
    assert ["@times =" in text for text in texts] == [True, False]
    assert [text.startswith(machine_code.CALL_ONLY) for text in texts] == [True, False]
    code = load_object(*map(make_object, texts))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("kernel.call"))(5) == 75


def test_a_variable_that_both_sides_name_keeps_them_together() -> None:
    variable = Global("variable", Zeros(1), is_constant=False)

    def write(b: Builder, x: Value) -> Value:
        return b.call("square", I64, b.load(b.address_of(variable), I64, 8))

    unit = Unit([square(table=variable), function("entry", write, attributes=CALLS)])
    assert split_call_only([unit]) == ([], [unit])


def test_a_long_kernel_among_others_is_two_groups() -> None:
    long = Unit([square(MIN_MODULE_COST), square(MIN_MODULE_COST, "other")])
    groups, rest = partition_units([Unit([twice()]), long])
    assert [_defined(group) for group in groups] == [{"square"}, {"other"}] and _defined(rest) == {"twice"}
