"""The verifier finds every kind of broken function; the compiler's own functions are verified whenever a test compiles."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hloom.lir import (
    F32,
    I1,
    I32,
    I64,
    PTR,
    Declaration,
    Function,
    FunctionBuilder,
    LirModule,
    Parameter,
    constant,
    type_of,
)
from hloom.lir.control import Phi
from hloom.lir.verify import verify, verify_module

Write = Callable[[FunctionBuilder], object]
EIGHT = type_of("float", 8)


def function(write: Write, name: str = "f") -> Function:
    b = FunctionBuilder(Function(name, [Parameter("p", PTR), Parameter("n", I64), Parameter("x", F32)]))
    write(b)
    return b.finish()


def test_control_flow_of_all_kinds_is_valid() -> None:
    def write(b: FunctionBuilder) -> None:
        p, n, x = b.function.parameters
        with b.loop(n, 2, carried=[x]) as loop:
            with b.when(b.compare("ult", b.index(loop.index), n)):
                b.store(loop.carried[0], p, 4)
            with b.unless(b.compare("eq", n, constant(I64, 3))), b.each(0, n) as index:
                b.store(index, p, 8)
            loop.carried = [b.binary("fadd", loop.carried[0], x)]
        variable = b.slot(I64, 1)
        with b.repeat(lambda: b.compare("ult", b.load(variable, I64, 8), n)):
            b.store(n, variable, 8)
        done, left, right = (b.label(hint) for hint in ("done", "left", "right"))
        b.branch_if(b.compare("ult", n, constant(I64, 9)), left, right)
        for label in (left, right):
            b.start(label)
            b.branch(done)
        b.start(done)
        b.store(b.phi(F32, (x, left), (loop.carried[0], right)), p, 4)

    assert verify(function(write)) == []


def _use_in_other_branch(b: FunctionBuilder) -> None:
    p, n, _ = b.function.parameters
    with b.when(b.compare("ult", n, constant(I64, 9))):
        value = b.load(p, I64, 8)
    b.store(value, p, 8)


def _use_before_definition(b: FunctionBuilder) -> None:
    p, n, _ = b.function.parameters
    value = b.binary("add", n, n)
    b.body.reverse()
    b.store(b.binary("add", value, value), p, 8)
    b.body.insert(0, b.body.pop(1))


def _store_after_return(b: FunctionBuilder) -> None:
    b.ret()
    b.store(b.function.parameters[1], b.function.parameters[0], 8)


def _wrong_phi(b: FunctionBuilder) -> None:
    b.branch("next")
    b.start("next")
    b.append(Phi(b.name(), I64, [b.function.parameters[1]], ["elsewhere"]))


def _wrong_call(b: FunctionBuilder) -> None:
    b.call_void("g", b.function.parameters[0])
    b.call_void("g", b.function.parameters[1])


def _carried_of_other_type(b: FunctionBuilder) -> None:
    with b.loop(b.function.parameters[1], carried=[constant(F32, 0)]) as loop:
        loop.carried = [constant(I64, 0)]


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda b: b.binary("add", b.function.parameters[1], constant(I32, 1)), "the types of the operands differ"),
        (lambda b: b.binary("add", b.function.parameters[2], constant(F32, 1)), "add is not for float"),
        (lambda b: b.compare("slt", b.function.parameters[2], constant(F32, 1)), "slt is not for floats"),
        (lambda b: b.select(b.function.parameters[1], constant(F32, 0), constant(F32, 1)), "the condition is no i1"),
        (lambda b: b.convert("trunc", constant(I32, 0), "i64"), "trunc does not convert i32 to i64"),
        (lambda b: b.bitcast(b.function.parameters[2], I64), "bitcast does not convert float to i64"),
        (lambda b: b.shuffle(constant(EIGHT, 0), None, [16]), "there are not as many lanes"),
        (lambda b: b.load(b.function.parameters[1], I64, 8), "the address is no pointer"),
        (lambda b: b.store(constant(I1, True), b.function.parameters[1], 8), "the address is no pointer"),
        (lambda b: b.ret(constant(I64, 0)), "the function returns void"),
        (lambda b: b.branch("nowhere"), "branches to nowhere, which is missing"),
        (_store_after_return, "follows a terminator"),
        (_use_in_other_branch, "is not computed on every path"),
        (_use_before_definition, "is not computed on every path"),
        (_wrong_phi, "the blocks before are ['entry']"),
        (_wrong_call, "called with other types than in declare void @g(ptr)"),
        (_carried_of_other_type, "the types of loop-carried values differ"),
    ],
)
def test_each_kind_of_problem_is_found(write: Write, problem: str) -> None:
    broken = function(write)
    assert any(problem in found for found in verify(broken)), verify(broken)


def test_functions_of_a_module_agree_on_types() -> None:
    one = function(lambda b: b.call_void("g", b.function.parameters[0]), "one")
    other = function(lambda b: b.call_void("g", b.function.parameters[1]), "other")
    (problem,) = verify_module(LirModule([one, other]))
    assert problem == "other: declare void @g(i64), but elsewhere declare void @g(ptr)"
    unknown = function(lambda b: b.store(Declaration("g", F32, ()).symbol, b.function.parameters[0], 8))
    assert verify(unknown) == ["store ptr @g, ptr %p, align 8: @g is unknown"]
