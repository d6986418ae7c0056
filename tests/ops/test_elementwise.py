"""Element-wise operations: corner cases of each type, and rejected operands (spec 29 to 82, CLAMP, SELECT)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hloom as hl
from hloom.bench.peer_process import XlaPeer
from hloom.ops.attributes import ComparisonDirection, ComparisonOrder
from hloom.ops.compare import Compare
from hloom.ops.operation import OPERATIONS
from hloom.proto import module_from_bytes, module_to_bytes, schema
from hloom.stablehlo.exporter.module import print_stablehlo
from hloom.types import BY_NAME, Kind

INF, NAN = math.inf, math.nan


def program(opcode: str, types: list[str], count: int, attributes: str = "", result: str = "") -> str:
    """Text of one instruction on vectors of `count` elements."""
    names = [f"p{i}" for i in range(len(types))]
    lines = [f"  {name} = {t}[{count}] parameter({i})" for i, (name, t) in enumerate(zip(names, types))]
    root = f"  ROOT r = {result or types[0]}[{count}] {opcode}({', '.join(names)}){attributes}"
    return "\n".join(["HloModule m", "ENTRY e {", *lines, root, "}"])


def apply(opcode: str, element_type: str, *columns: Any, attributes: str = "", result: str = "") -> np.ndarray:
    arrays = [of(element_type, column) for column in columns]
    text = program(opcode, [element_type] * len(arrays), len(arrays[0]), attributes, result)
    return hl.compile(text, backend="interpreter")(*arrays)


def of(element_type: str, values: Any) -> np.ndarray:
    if isinstance(values, np.ndarray):
        return values
    if BY_NAME[element_type].is_integer and BY_NAME[element_type].bits >= 8:
        return np.array(values, BY_NAME[element_type].dtype)
    return np.array(values).astype(BY_NAME[element_type].dtype)


def same(got: np.ndarray, want: Any) -> bool:
    """Equal values, zeros with their sign, NaN where NaN."""
    if got.dtype.kind in "iub":
        return got.tolist() == list(want)
    wide = got.astype(np.complex128 if got.dtype.kind == "c" else np.float64)
    expected = np.array(want, wide.dtype)
    parts = [(wide.real, expected.real), (wide.imag, expected.imag)]
    return all(np.array_equal(a, b, equal_nan=True) for a, b in parts) and all(
        np.array_equal(np.signbit(a)[a == 0], np.signbit(b)[a == 0]) for a, b in parts
    )


BINARY: list[tuple[str, str, str, list[Any], list[Any], list[Any]]] = [
    ("GEN-6", "add", "s32", [2**31 - 1, -(2**31)], [1, -1], [-(2**31), 2**31 - 1]),
    ("GEN-6", "multiply", "s8", [100, -128], [3, -1], [44, -128]),
    ("GEN-6", "subtract", "u8", [0, 5], [1, 7], [255, 254]),
    ("GEN-6", "add", "s4", [7, -8], [1, -1], [-8, 7]),
    ("ADD-1", "add", "pred", [0, 0, 1, 1], [0, 1, 0, 1], [False, True, True, True]),
    ("MUL-1", "multiply", "pred", [0, 0, 1, 1], [0, 1, 0, 1], [False, False, False, True]),
    ("GEN-7", "add", "f32", [0.1, 1e38, INF], [0.2, 3e38, -INF], [float(np.float32(0.1) + np.float32(0.2)), INF, NAN]),
    ("GEN-7", "add", "bf16", [1.0, 1.0], [2.0**-8, 3 * 2.0**-8], [1.0, 1 + 2.0**-6]),
    ("SUB-1", "subtract", "f32", [0.0, -0.0, 0.0], [0.0, 0.0, -0.0], [0.0, -0.0, 0.0]),
    ("DIV-1", "divide", "s32", [7, -7, 7, -7], [2, 2, -2, -2], [3, -3, -3, 3]),
    ("DIV-1", "divide", "f32", [1, -1, 0, 1], [0, 0, 0, -0.0], [INF, -INF, NAN, -INF]),
    ("DIV-2", "divide", "s32", [5, 0, -(2**31)], [0, 0, -1], [-1, -1, -(2**31)]),
    ("DIV-2", "divide", "u16", [5, 0], [0, 0], [65535, 65535]),
    ("DIV-2", "divide", "s64", [9, -(2**63)], [0, -1], [-1, -(2**63)]),
    ("REM-1", "remainder", "s32", [7, -7, 7, -7], [-2, 2, 2, -2], [1, -1, 1, -1]),
    ("REM-1", "remainder", "f32", [5.5, -5.5, 3, 1, -4], [-2, 2, INF, 0, 2], [1.5, -1.5, 3, NAN, -0.0]),
    ("REM-2", "remainder", "s32", [5, -5, -(2**31)], [0, 0, -1], [5, -5, 0]),
    ("POW-1", "power", "f32", [NAN, -2, 0, -0.0, 1, -8], [0, 0.5, -1, -1, NAN, 3], [1, NAN, INF, -INF, 1, -512]),
    ("POW-2", "power", "s32", [2, -1, -1, 1, 0, 0], [-1, -3, -2, -9, -1, 0], [0, -1, 1, 1, 0, 1]),
    ("POW-2", "power", "s8", [3, 2, -2], [5, 100, 7], [-13, 0, -128]),
    ("POW-2", "power", "u32", [3], [21], [3**21 % 2**32]),
    ("MAX-1", "maximum", "f32", [-0.0, 0.0, NAN, 1, -0.0], [0.0, -0.0, 1, NAN, -0.0], [0.0, 0.0, NAN, NAN, -0.0]),
    ("MIN-1", "minimum", "f32", [-0.0, 0.0, NAN, 1, 0.0], [0.0, -0.0, 1, NAN, 0.0], [-0.0, -0.0, NAN, NAN, 0.0]),
    ("MAX-1", "maximum", "u8", [200, 1], [100, 2], [200, 2]),
    ("MIN-1", "minimum", "s8", [-56, 1], [100, 2], [-56, 1]),
    ("MAX-1", "maximum", "pred", [0, 0, 1], [0, 1, 1], [False, True, True]),
    ("MIN-1", "minimum", "pred", [0, 0, 1], [0, 1, 1], [False, False, True]),
    ("AND-1", "and", "u8", [0b1100], [0b1010], [0b1000]),
    ("OR-1", "or", "s8", [-128], [3], [-125]),
    ("XOR-1", "xor", "pred", [0, 0, 1, 1], [0, 1, 0, 1], [False, True, True, False]),
    ("SHIFTLEFT-1", "shift-left", "s32", [1, -1, 3, 3, 3], [31, 1, 32, -1, 0], [-(2**31), -2, 0, 0, 3]),
    ("SHIFTLEFT-1", "shift-left", "u4", [15, 3, 1], [1, 2, 4], [14, 12, 0]),
    ("SHIFTRIGHTARITHMETIC-1", "shift-right-arithmetic", "s8", [-128, 127, -1, 5], [3, 3, 8, -1], [-16, 15, -1, 0]),
    ("SHIFTRIGHTARITHMETIC-1", "shift-right-arithmetic", "u8", [255, 127], [1, 9], [255, 0]),
    ("SHIFTRIGHTLOGICAL-1", "shift-right-logical", "s8", [-1, -1, -1, 64], [1, 7, 8, -1], [127, 1, 0, 0]),
    ("SHIFTRIGHTLOGICAL-1", "shift-right-logical", "s4", [-1, -8], [1, 3], [7, 1]),
    ("ATAN2-1", "atan2", "f64", [0.0, -0.0, INF, 0.0], [-1, -1, -INF, -0.0],
     [math.pi, -math.pi, 3 * math.pi / 4, math.pi]),
]  # fmt: skip


@pytest.mark.parametrize(("clause", "opcode", "element_type", "lhs", "rhs", "want"), BINARY)
def test_binary(clause: str, opcode: str, element_type: str, lhs: Any, rhs: Any, want: Any) -> None:
    assert same(apply(opcode, element_type, lhs, rhs), want), clause


UNARY: list[tuple[str, str, str, list[Any], list[Any]]] = [
    ("ABS-1", "abs", "s8", [-128, -5, 5], [-128, 5, 5]),
    ("ABS-1", "abs", "f32", [-0.0, -INF, NAN], [0.0, INF, NAN]),
    ("CBRT-1", "cbrt", "f32", [-8, 27, -0.0, INF], [-2, 3, -0.0, INF]),
    ("CEIL-1", "ceil", "f32", [-0.5, 0.5, -1.5, 2, INF], [-0.0, 1, -1, 2, INF]),
    ("FLOOR-1", "floor", "f16", [-0.5, 0.5, -0.0, 2], [-1, 0.0, -0.0, 2]),
    ("CLZ-1", "count-leading-zeros", "s32", [0, -1, 1, 2**30], [32, 0, 31, 1]),
    ("CLZ-1", "count-leading-zeros", "u8", [0, 255, 1], [8, 0, 7]),
    ("CLZ-1", "count-leading-zeros", "s4", [1, -1, 0], [3, 0, 4]),
    ("CLZ-1", "count-leading-zeros", "u64", [0, 2**63, 1], [64, 0, 63]),
    ("POPULATIONCOUNT-1", "popcnt", "s32", [-1, 0, 5], [32, 0, 2]),
    ("POPULATIONCOUNT-1", "popcnt", "u64", [2**64 - 1, 2**63], [64, 1]),
    ("NEG-1", "negate", "f32", [0.0, -1, NAN], [-0.0, 1, NAN]),
    ("NEG-1", "negate", "u8", [0, 1, 255], [0, 255, 1]),
    ("NEG-1", "negate", "s16", [-(2**15), 1], [-(2**15), -1]),
    ("NOT-1", "not", "pred", [0, 1], [True, False]),
    ("NOT-1", "not", "u8", [0, 5], [255, 250]),
    ("NOT-1", "not", "s4", [1, -1, -8], [-2, 0, 7]),
    (
        "ROUND-1",
        "round-nearest-afz",
        "f32",
        [2.5, -0.5, 0.49999997, -2.5, 8388609, INF],
        [3, -1, 0.0, -3, 8388609, INF],
    ),
    ("ROUND-1", "round-nearest-afz", "f64", [0.49999999999999994, 4503599627370497], [0.0, 4503599627370497]),
    ("ROUNDNEARESTEVEN-1", "round-nearest-even", "f32", [2.5, 1.5, -0.5, 0.5], [2, 2, -0.0, 0.0]),
    ("SIGN-1", "sign", "f32", [-3, -0.0, NAN, 0.0, 4, INF], [-1, -0.0, NAN, 0.0, 1, 1]),
    ("SIGN-1", "sign", "s8", [-128, 0, 127], [-1, 0, 1]),
    ("SIGN-1", "sign", "c128", [2, 0, -2j], [1, 0, -1j]),
    ("SQRT-1", "sqrt", "f32", [4, -1, -0.0, INF], [2, NAN, -0.0, INF]),
    ("RSQRT-1", "rsqrt", "f32", [4, 0.0, -0.0, -1, INF], [0.5, INF, -INF, NAN, 0.0]),
    ("LOG-1", "log", "f32", [1, 0, -0.0, -1, INF], [0.0, -INF, -INF, NAN, INF]),
    ("LOG1P-1", "log-plus-one", "f64", [-1, 0.0, 1e-20], [-INF, 0.0, 1e-20]),
    ("EXPM1-1", "exponential-minus-one", "f64", [1e-20, -INF, -0.0], [1e-20, -1, -0.0]),
    ("EXP-1", "exponential", "f32", [0, -INF, INF, 1000], [1, 0.0, INF, INF]),
    ("LOGISTIC-1", "logistic", "f32", [0, INF, -INF, 1000, -1000], [0.5, 1, 0.0, 1, 0.0]),
    ("TANH-1", "tanh", "f32", [0.0, INF, -INF, -0.0], [0.0, 1, -1, -0.0]),
    ("ERF-1", "erf", "f32", [0.0, INF, -INF, -0.0], [0.0, 1, -1, -0.0]),
    ("SIN-1", "sine", "f32", [-0.0, INF], [-0.0, NAN]),
    ("COS-1", "cosine", "f32", [0, INF], [1, NAN]),
    ("REAL-1", "real", "f32", [1.5, -0.0], [1.5, -0.0]),
    ("IMAG-1", "imag", "f32", [1.5, NAN], [0.0, 0.0]),
]


@pytest.mark.parametrize(("clause", "opcode", "element_type", "x", "want"), UNARY)
def test_unary(clause: str, opcode: str, element_type: str, x: Any, want: Any) -> None:
    assert same(apply(opcode, element_type, x), want), clause


def test_real_and_imaginary_parts() -> None:
    """REAL-1, IMAG-1, ABS-1, COMPLEX-1."""
    z = np.array([3 - 4j, complex(-0.0, INF)], np.complex64)
    assert same(apply("real", "c64", z, result="f32"), [3, -0.0])
    assert same(apply("imag", "c64", z, result="f32"), [-4, INF])
    assert same(apply("abs", "c64", z, result="f32"), [5, INF])
    assert same(apply("complex", "f64", [1, -0.0], [2, INF], result="c128"), [1 + 2j, complex(-0.0, INF)])


def test_is_finite() -> None:
    """ISFINITE-1."""
    assert apply("is-finite", "f32", [0, INF, -INF, NAN, 3e38], result="pred").tolist() == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert apply("is-finite", "f8e4m3fn", [448, NAN], result="pred").tolist() == [True, False]


DIRECTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": operator.eq, "NE": operator.ne, "GE": operator.ge, "GT": operator.gt, "LE": operator.le, "LT": operator.lt,
}  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_comparisons_of_floats(direction: str) -> None:
    """COMPARE-2: -0 = +0, and with NaN only NE is true: as Python's own floats do."""
    values = [-INF, -1.0, -0.0, 0.0, 1.0, INF, NAN]
    x, y = [a for a in values for _ in values], [b for _ in values for b in values]
    got = apply("compare", "f32", x, y, attributes=f", direction={direction}", result="pred")
    assert got.tolist() == [DIRECTIONS[direction](a, b) for a, b in zip(x, y)]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_total_order_of_floats(direction: str) -> None:
    """TOTALORDER-1: -NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN."""
    chain = np.array([0xFFC00000, 0xFF800000, 0xBF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000], np.uint32)
    indices = range(len(chain))
    i, j = np.array([i for i in indices for _ in indices]), np.array([j for _ in indices for j in indices])
    x, y = chain[i].view(np.float32), chain[j].view(np.float32)
    got = apply("compare", "f32", x, y, attributes=f", direction={direction}, type=TOTALORDER", result="pred")
    assert got.tolist() == DIRECTIONS[direction](i, j).tolist()


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("element_type", ["f32", "f8e5m2fnuz"])
def test_the_order_of_a_comparison_is_another_name_of_its_type(element_type: str, backend: str) -> None:
    """TOTALORDER-1: NaN equals itself, also where a module that Python built has `order` and no `type`."""
    module = hl.parse(program("compare", [element_type] * 2, 2, ", direction=EQ, type=TOTALORDER", "pred"))
    module.entry.root.op = Compare(direction=ComparisonDirection.EQ, order=ComparisonOrder.TOTAL)
    x = np.array([NAN, 1], BY_NAME[element_type].dtype)
    for again in (module, hl.parse(print_stablehlo(module))):
        assert np.asarray(hl.compile(again, backend=backend)(x, x)).tolist() == [True, True]


def test_comparisons_of_other_types() -> None:
    """COMPARE-2: integers by signedness, false < true; COMPARE-3: complex numbers are equal or not."""
    less, equal = ", direction=LT", ", direction=EQ"
    assert apply("compare", "s8", [-1, 1], [1, -1], attributes=less, result="pred").tolist() == [True, False]
    assert apply("compare", "u8", [255, 1], [1, 255], attributes=less, result="pred").tolist() == [False, True]
    assert apply("compare", "s4", [-8, 7], [7, -8], attributes=less, result="pred").tolist() == [True, False]
    assert apply("compare", "pred", [0, 1, 0], [1, 0, 0], attributes=less, result="pred").tolist() == [
        True,
        False,
        False,
    ]
    assert apply("compare", "c64", [1 + 2j, 0], [1 + 2j, 1j], attributes=equal, result="pred").tolist() == [True, False]
    big = np.array([2**63], np.uint64)
    assert apply("compare", "u64", big, big - 1, attributes=", direction=GT", result="pred").tolist() == [True]


def test_total_order_of_exponents() -> None:
    """TOTALORDER-1: f8e8m0fnu has no sign bit: 1 < 2 and 1/2 < 1."""
    a, b = (np.array(codes, np.uint8).view(ml_dtypes.float8_e8m0fnu) for codes in ([127, 126], [128, 127]))
    got = apply("compare", "f8e8m0fnu", a, b, attributes=", direction=LT, type=TOTALORDER", result="pred")
    assert got.tolist() == [True, True]


@pytest.mark.parametrize(("order", "type"), [("TOTAL", ", type=TOTALORDER"), ("PARTIAL", "")])
def test_newer_text_and_protos_say_an_order_instead_of_a_type(order: str, type: str) -> None:
    """TOTALORDER-1: both spellings are read as one operation, which is written with a type, as every XLA reads it."""
    line = "HloModule m\nENTRY e {{ x = {t}[3] parameter(0)\n ROOT r = pred[3] compare(x, x), direction=LE{how} }}"
    newer, older = (hl.parse(line.format(t="f32", how=how)) for how in (f", order={order}", type))
    assert newer.to_text() == older.to_text()
    assert newer.entry.root.op == older.entry.root.op
    for element_type in ("s32", "u8", "pred", "c64"):
        direction = line.replace("LE", "EQ")
        assert hl.parse(direction.format(t=element_type, how=f", order={order}")).entry.root.op.type is None
    proto = schema.message_class("HloModuleProto").FromString(module_to_bytes(newer))
    (compare,) = (i for c in proto.computations for i in c.instructions if i.opcode == "compare")
    compare.ClearField("comparison_type")
    compare.comparison_order = order
    assert module_from_bytes(proto.SerializeToString()).entry.root.op == older.entry.root.op
    built = Compare(direction="LE", order=order)
    nan = np.array([np.nan], np.float32)
    assert bool(built.evaluate(None, nan, nan)[0]) is (order == "TOTAL")


@pytest.mark.parametrize(
    ("opcode", "types", "attributes", "clause"),
    [
        ("exponential", ["s32"], "", "UNARY-1"), ("negate", ["pred"], "", "UNARY-1"), ("abs", ["u8"], "", "UNARY-1"),
        ("floor", ["c64"], "", "UNARY-1"), ("not", ["f32"], "", "UNARY-1"), ("popcnt", ["pred"], "", "UNARY-1"),
        ("cbrt", ["c64"], "", "UNARY-1"), ("sign", ["u8"], "", "UNARY-1"), ("erf", ["s32"], "", "UNARY-1"),
        ("add", ["f32", "s32"], "", "GEN-5"), ("subtract", ["pred", "pred"], "", "BINARY-3"),
        ("maximum", ["c64", "c64"], "", "BINARY-3"), ("remainder", ["c64", "c64"], "", "BINARY-3"),
        ("and", ["f32", "f32"], "", "BINARY-3"), ("shift-left", ["f32", "f32"], "", "BINARY-3"),
        ("shift-left", ["s32", "u32"], "", "GEN-5"), ("atan2", ["s32", "s32"], "", "BINARY-3"),
        ("power", ["pred", "pred"], "", "BINARY-3"), ("complex", ["f16", "f16"], "", "COMPLEX-1"),
        ("compare", ["c64", "c64"], ", direction=LT", "COMPARE-3"), ("compare", ["f32", "s32"], ", direction=EQ", "GEN-5"),
        ("compare", ["s32", "s32"], ", direction=EQ, type=TOTALORDER", "TOTALORDER-2"),
    ],
)  # fmt: skip
def test_element_types_that_are_refused(opcode: str, types: list[str], attributes: str, clause: str) -> None:
    """UNARY-1, BINARY-3: the tables of the specification. The message shows the operand."""
    result = "pred" if opcode == "compare" else types[0]
    with pytest.raises(hl.RuleError) as error:
        hl.parse(program(opcode, types, 3, attributes, result))
    assert error.value.clause == clause and f"{types[0]}[3]" in str(error.value)


def test_operands_of_other_sizes_are_refused() -> None:
    """BINARY-1, BC-20: text has no implicit broadcast."""
    text = program("add", ["f32", "f32"], 3).replace("p1 = f32[3]", "p1 = f32[1]")
    with pytest.raises(hl.RuleError, match=r"add\[BINARY-1\].*f32\[3\].*f32\[1\]"):
        hl.parse(text)


@pytest.mark.parametrize("minimum", ["s32[]", "s32[3]"])
def test_clamp(minimum: str) -> None:
    """CLAMP-1, CLAMP-2: -1, 5, 9 between 0 and 6; where min > max the result is max."""
    text = (
        f"HloModule m\nENTRY e {{ a = {minimum} parameter(0)\n x = s32[3] parameter(1)\n b = s32[] parameter(2)\n"
        " ROOT r = s32[3] clamp(a, x, b) }"
    )
    run = hl.compile(text, backend="interpreter")
    low = np.zeros((3,) if "3" in minimum[3:] else (), np.int32)
    assert run(low, np.array([-1, 5, 9], np.int32), np.int32(6)).tolist() == [0, 5, 6]
    assert run(low + 8, np.array([-1, 5, 9], np.int32), np.int32(6)).tolist() == [6, 6, 6]


def test_clamp_of_nan() -> None:
    """CLAMP-3: NaN in any of the three gives NaN."""
    got = apply("clamp", "f32", [NAN, 0, 0, 0], [1, NAN, 1, 0.5], [2, 1, NAN, 1])
    assert same(got, [NAN, NAN, NAN, 0.5])


def test_select() -> None:
    """SELECT-1, SELECT-2."""
    text = (
        "HloModule m\nENTRY e { p = pred[4] parameter(0)\n x = s32[4] parameter(1)\n y = s32[4] parameter(2)\n"
        " ROOT r = s32[4] select(p, x, y) }"
    )
    x, y = np.array([1, 2, 3, 4], np.int32), np.array([100, 200, 300, 400], np.int32)
    assert hl.compile(text, backend="interpreter")(np.array([True, False, False, True]), x, y).tolist() == [
        1,
        200,
        300,
        4,
    ]
    scalar = hl.compile(text.replace("pred[4]", "pred[]"), backend="interpreter")
    assert scalar(True, x, y).tolist() == x.tolist() and scalar(False, x, y).tolist() == y.tolist()


INTEGER_MODEL: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "maximum": max, "minimum": min,
    "divide": lambda x, y: -1 if y == 0 else int(Fraction(x, y)),
    "remainder": lambda x, y: x if y == 0 else x - y * int(Fraction(x, y)),
}  # fmt: skip


@given(st.sampled_from(sorted(INTEGER_MODEL)), st.sampled_from([t for t in BY_NAME if t[0] in "su"]), st.data())
def test_integer_arithmetic_is_modulo_two_to_the_width(opcode: str, element_type: str, data: st.DataObject) -> None:
    """GEN-6, DIV-1, DIV-2, REM-1, REM-2: by Python's integers and exact fractions."""
    bits, signed = int(element_type[1:]), element_type[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 0, high // 2]))
    pairs = data.draw(st.lists(st.tuples(number, number), min_size=1, max_size=6))
    x, y = [a for a, _ in pairs], [b for _, b in pairs]
    dtype = BY_NAME[element_type].dtype
    arrays = [np.array(c, dtype) if bits >= 8 else np.array(c, np.int8).astype(dtype) for c in (x, y)]
    got = [int(v) for v in apply(opcode, element_type, *arrays)]
    want = [(INTEGER_MODEL[opcode](a, b) - low) % (1 << bits) + low for a, b in pairs]
    assert got == want


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_atan2_of_a_complex_constant_in_a_scalar_computation(backend: str) -> None:
    """ATAN2-1: the interpreter applies it to the constant and a whole array."""
    text = """HloModule m
f { p = c64[] parameter(0)
  c = c64[] constant((1,2))
  ROOT r = c64[] atan2(c, p) }
ENTRY e { x = c64[2] parameter(0)
  ROOT m = c64[2] map(x), dimensions={0}, to_apply=f }"""
    x = np.array([1 + 1j, 3 - 1j], np.complex64)
    np.testing.assert_allclose(hl.compile(text, backend=backend)(x), np.arctan((1 + 2j) / x), rtol=1e-5)


def test_complex_log_plus_one_near_zero() -> None:
    """LOG1P-1, UNARY-2: log1p(iy) = log(1 + y^2)/2 + i atan(y), so the real part is 5e-17."""
    (got,) = apply("log-plus-one", "c64", [1e-8j])
    assert got.real == pytest.approx(5e-17, rel=1e-6)


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    ("opcode", "element_type"),
    [(op, t) for op in ("add", "multiply", "divide", "maximum", "atan2", "power") for t in ("f32", "f16", "bf16")],
)
def test_corners_agree_with_xla(peer: XlaPeer, opcode: str, element_type: str) -> None:
    """GEN-7, POW-1, ATAN2-1, MAX-1: zeros of both signs, infinities and NaN in every combination."""
    values = [0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, INF, -INF, NAN]
    dtype = BY_NAME[element_type].dtype
    x = np.array([a for a in values for _ in values]).astype(dtype)
    y = np.array([b for _ in values for b in values]).astype(dtype)
    text = program(opcode, [element_type] * 2, len(x))
    (theirs,) = peer.run(text, [x, y])
    ours, theirs = hl.compile(text, backend="interpreter")(x, y).astype(np.float64), theirs.astype(np.float64)
    assert np.allclose(ours, theirs, rtol=1e-6 if element_type == "f32" else 0.01, atol=0, equal_nan=True)
    assert np.array_equal(np.signbit(ours)[ours == 0], np.signbit(theirs)[ours == 0])


UNARY_COMPLEX = sorted(o for o, op in OPERATIONS.items() if op.elementwise and [*op.operands] == ["operand"])


@pytest.mark.parametrize("opcode", [o for o in UNARY_COMPLEX if Kind.COMPLEX in getattr(OPERATIONS[o], "kinds", ())])
def test_functions_of_complex_scalars_are_those_of_arrays(opcode: str) -> None:
    """UNARY-1: NumPy's functions return scalars, which are not writable, for arrays without dimensions."""
    values = np.array([0.36 + 0.29j, -2.5 + 0.5j], np.complex64)
    op = OPERATIONS[opcode]()
    result = op.infer(hl.Shape.array(hl.c64, ())).to_text(layouts=False)
    scalar = hl.compile(f"ENTRY e {{ x = c64[] parameter(0)\n ROOT r = {result} {opcode}(x) }}", "interpreter")
    array = hl.compile(
        f"ENTRY e {{ x = c64[2] parameter(0)\n ROOT r = {result.replace('[]', '[2]')} {opcode}(x) }}", "interpreter"
    )
    assert np.array_equal([scalar(value) for value in values], array(values))
