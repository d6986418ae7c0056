"""Partition of programs into LLVM modules: the functions of one long kernel make two modules."""

from __future__ import annotations

import ctypes
import re

import numpy as np

import hloom as hl
from hloom.backends.cpu.codegen.modules import (
    MIN_MODULE_COST,
    MIN_SPLIT_COST,
    Unit,
    module_of_units,
    partition_units,
    split_call_only,
    split_call_only_if_long,
)
from hloom.backends.cpu.llvm import machine_code
from hloom.backends.cpu.llvm.function import CALL_ONLY_ATTRIBUTE
from hloom.backends.cpu.llvm.machine_code import load_object, make_object

CALLEE = "define internal i64 @square(i64 %x) {\n  %y = mul i64 %x, %x\n  ret i64 %y\n}"
INLINED = "define internal i64 @twice(i64 %x) {\n  %y = add i64 %x, %x\n  ret i64 %y\n}"
ENTRY = """define i64 @kernel.call(i64 %x) {
  %y = call i64 @square(i64 %x)
  %z = call i64 @twice(i64 %y) #1
  ret i64 %z
}"""


def _padded(function: str) -> str:
    """The function with a comment that makes it long enough."""
    return function.replace("{\n", "{\n  ; " + "x" * MIN_SPLIT_COST + "\n", 1)


def test_functions_that_are_only_called_have_a_module_of_their_own() -> None:
    unit = Unit("\n".join([_padded(CALLEE), INLINED, _padded(ENTRY)]), {}, ["declare i64 @kernel.call(i64)"])
    groups, rest = partition_units([unit])
    texts = [module_of_units(group) for group in groups]
    defined = [set(re.findall(r"define [^@]*@([\w.]+)", text)) for text in texts]
    assert not rest
    assert sorted(defined, key=len) == [{"square"}, {"twice", "kernel.call"}]
    code = load_object(*map(make_object, texts))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("kernel.call"))(5) == 50


def test_short_kernels_and_those_with_variables_stay_whole() -> None:
    short = Unit("\n".join([CALLEE, INLINED, ENTRY]), {}, [])
    assert partition_units([short]) == ([], [short])
    shared = Unit("\n".join(["@table = internal constant i64 1", _padded(CALLEE), _padded(ENTRY)]), {}, [])
    assert partition_units([shared]) == ([[shared]], [])


def test_a_product_of_two_modules() -> None:
    module = hl.parse(
        "ENTRY e { a = s8[300,200] parameter(0) b = s8[200,300] parameter(1)"
        " ROOT d = s32[300,300] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"
    )
    a, b = (np.random.default_rng(0).integers(-128, 128, size, np.int8) for size in ((300, 200), (200, 300)))
    np.testing.assert_array_equal(hl.compile(module)(a, b), a.astype(np.int32) @ b.astype(np.int32))


CALL_ONLY = f"""@times = internal constant i64 3
@square.table = internal constant ptr @times
define internal i64 @entry(i64 %x) {CALL_ONLY_ATTRIBUTE} {{
  %times = load i64, ptr @times
  %y = call i64 @square(i64 %x)
  %z = mul i64 %y, %times
  ret i64 %z
}}
define i64 @kernel.call(i64 %x) {CALL_ONLY_ATTRIBUTE} {{
  %y = call i64 @entry(i64 %x) #1
  ret i64 %y
}}"""


def _defined(units: list[Unit]) -> set[str]:
    return {name for unit in units for name in re.findall(r"^define [^@]*@([\w.]+)", unit.text, re.MULTILINE)}


def test_call_only_functions_have_a_module_of_their_own_with_the_variables_that_they_alone_name() -> None:
    call_only, rest = split_call_only([Unit(f"{CALLEE}\n{CALL_ONLY}", {}, ["declare i64 @kernel.call(i64)"])])
    assert (_defined(call_only), _defined(rest)) == ({"entry", "kernel.call"}, {"square"})
    assert "@times =" in call_only[0].text and "@times" not in rest[0].text
    texts = [module_of_units(units) for units in (call_only, rest)]
    assert [text.startswith(machine_code.CALL_ONLY) for text in texts] == [True, False]
    code = load_object(*map(make_object, texts))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("kernel.call"))(5) == 75


def test_a_variable_that_both_sides_name_keeps_them_together() -> None:
    both = CALLEE.replace("{\n", "{\n  %t = load i64, ptr @times\n", 1)
    unit = Unit(f"{both}\n{CALL_ONLY}", {}, [])
    assert split_call_only([unit]) == ([], [unit])


def test_short_programs_are_one_module() -> None:
    units = [Unit(f"{CALLEE}\n{CALL_ONLY}", {}, [])]
    assert split_call_only_if_long(units) == ([], units)
    assert split_call_only_if_long([Unit(f"{_padded(CALLEE)}\n{CALL_ONLY}", {}, [])])[0]


def test_a_long_kernel_among_others_is_two_groups() -> None:
    callee = CALLEE.replace("{\n", "{\n  ; " + "x" * MIN_MODULE_COST + "\n", 1)
    long = Unit(f"{callee}\n{callee.replace('square', 'other')}", {}, [])
    groups, rest = partition_units([Unit(INLINED, {}, []), long])
    assert [_defined(group) for group in groups] == [{"square"}, {"other"}] and _defined(rest) == {"twice"}
