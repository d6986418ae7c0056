"""GEN-7: what the interpreter and compiled programs give for special values, bit for bit, NaN's sign included."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from hloom.numerics import bits_of, widen
from hloom.types import BY_NAME

OFTEN = ["f64", "f32", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f4e2m1fn"]
SELDOM = ["f16", "f8e5m2", "f8e4m3", "f8e3m4", "f8e5m2fnuz", "f8e4m3b11fnuz"]
FLOATS = [*OFTEN, *(pytest.param(kind, marks=pytest.mark.long) for kind in SELDOM)]
EXACT_UNARY = ["abs", "ceil", "floor", "negate", "round-nearest-afz", "round-nearest-even", "sign", "sqrt"]
UNARY = [
    "acos", "acosh", "asin", "asinh", "atanh", "cbrt", "cosh", "cosine", "erf", "exponential",
    "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sine", "sinh", "tan", "tanh",
]  # fmt: skip
EXACT_BINARY = ["add", "divide", "maximum", "minimum", "multiply", "remainder", "subtract"]
BINARY = ["atan2", "power"]
WORDS = {64: "u64", 32: "u32", 16: "u16", 8: "u8", 4: "u4"}


def special(kind: str) -> np.ndarray:
    """NaN and infinity of both signs, zeros, subnormal, largest and ordinary numbers, as far as the type has them."""
    dtype = BY_NAME[kind].dtype
    if dtype.itemsize == 1:
        return np.arange(1 << BY_NAME[kind].bits, dtype=np.uint8).view(dtype)[:: 1 if kind == "f4e2m1fn" else 3]
    values = [
        np.nan,
        np.inf,
        0.0,
        1e-310 if kind == "f64" else 1e-40,
        1e-7,
        0.5,
        1.0,
        1.5,
        2.0,
        3.0,
        60000.0,
        1e30,
        1e300,
    ]
    with np.errstate(all="ignore"):
        x = np.array(values).astype(dtype)
    return np.concatenate([x, -x])


def results(body: list[str], kind: str, arrays: list[np.ndarray], to: list[str] | None = None) -> list[np.ndarray]:
    """The values of expressions over x, y and z from both backends, as a bitcast-convert sees them in the program."""
    size = arrays[0].size
    types = to or [kind] * len(body)
    lines = [f"{name} = {kind}[{size}] parameter({k})" for k, name in enumerate("xyz"[: len(arrays)])]
    words = [f"{WORDS[BY_NAME[type].bits]}[{size}]" for type in types]
    for k, (expression, type, word) in enumerate(zip(body, types, words, strict=True)):
        lines += [f"r{k} = {type}[{size}] {expression}", f"b{k} = {word} bitcast-convert(r{k})"]
    lines.append(f"ROOT t = ({', '.join(words)}) tuple({', '.join(f'b{k}' for k in range(len(body)))})")
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}"
    both = [hl.compile(text, backend)(*arrays) for backend in ("interpreter", "cpu")]
    return [np.stack([np.asarray(e[k]).view(BY_NAME[type].dtype) for e in both]) for k, type in enumerate(types)]


def compare(body: list[str], found: list[np.ndarray], exact: bool, arrays: list[np.ndarray]) -> list[str]:
    wrong = []
    for expression, (one, other) in zip(body, found, strict=True):
        differs = bits_of(one) != bits_of(other)
        if not exact:
            differs &= np.isnan(widen(one)) | np.isnan(widen(other)) | np.isinf(widen(one)) | (widen(one) == 0)
        for k in np.flatnonzero(differs)[:3]:
            wrong.append(f"{expression} of {[str(a[k]) for a in arrays]}: {one[k]!r} and {other[k]!r}")
    return wrong


def crossed(x: np.ndarray) -> list[np.ndarray]:
    a, b = np.meshgrid(np.arange(x.size), np.arange(x.size))
    return [x[a.ravel()], x[b.ravel()]]


@pytest.mark.parametrize("kind", FLOATS)
def test_one_operand(kind: str) -> None:
    x = [special(kind)]
    for names, exact in ((EXACT_UNARY, True), (UNARY, False)):
        body = [f"{name}(x)" for name in names]
        assert compare(body, results(body, kind, x), exact, x) == []


@pytest.mark.parametrize("kind", FLOATS)
def test_two_operands(kind: str) -> None:
    arrays = crossed(special(kind)[::2] if BY_NAME[kind].bits == 8 else special(kind))
    for names, exact in ((EXACT_BINARY, True), (BINARY, False)):
        body = [f"{name}(x, y)" for name in names]
        assert compare(body, results(body, kind, arrays), exact, arrays) == []


@pytest.mark.parametrize("kind", FLOATS)
def test_what_rules_and_llvm_rewrite(kind: str) -> None:
    """Rules may by their law change which NaN comes out; what is seen of it stays the same."""
    arrays = crossed(special(kind)[::3] if BY_NAME[kind].bits == 8 else special(kind))
    type = f"{kind}[{arrays[0].size}]"
    x, y = f"{type} negate(x)", f"{type} negate(y)"
    body = [f"add(x, {y})", f"add({x}, y)", f"subtract(x, {y})", f"multiply({x}, {y})"]
    body += [f"negate({type} {name}(x, y))" for name in ("add", "subtract", "multiply", "divide")]
    body += [f"{name}({type} divide(x, y), {type} sqrt(x))" for name in ("maximum", "subtract")]
    body += [f"negate({type} sqrt(x))", f"abs({type} subtract(x, {y}))"]
    assert compare(body, results(body, kind, arrays), True, arrays) == []
    if kind != "f4e2m1fn":
        body = [f"convert({type} {each})" for each in body[:8]]
        assert compare(body, results(body, kind, arrays, ["f4e2m1fn"] * 8), True, arrays) == []


@pytest.mark.parametrize("kind", ["f64", "f32", "f16", "bf16"])
def test_reductions_and_products(kind: str) -> None:
    """Sums, extrema and products of NaN and infinities of both signs."""
    x = np.resize(special(kind)[:4], (7, 6))
    word = WORDS[BY_NAME[kind].bits]
    combiners = "\n".join(
        f"{op} {{\n  a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n  ROOT r = {kind}[] {op}(a, b)\n}}"
        for op in ("add", "maximum", "multiply")
    )
    lines, names = [f"x = {kind}[7,6] parameter(0)", f"zero = {kind}[] constant(0)"], []
    for op in ("add", "maximum", "multiply"):
        lines.append(f"{op}.r = {kind}[7] reduce(x, zero), dimensions={{1}}, to_apply={op}")
        lines.append(f"{op}.w = {kind}[7] reduce-window({op}.r, zero), window={{size=3 pad=1_1}}, to_apply={op}")
        names += [f"{op}.r", f"{op}.w"]
    lines.append(f"d = {kind}[7,7] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}")
    lines.append(f"d.r = {kind}[7] reduce(d, zero), dimensions={{1}}, to_apply=add")
    names.append("d.r")
    lines += [f"{name}.b = {word}[7] bitcast-convert({name})" for name in names]
    shapes = ", ".join([f"{word}[7]"] * len(names))
    lines.append(f"ROOT t = ({shapes}) tuple({', '.join(f'{name}.b' for name in names)})")
    text = f"HloModule m\n{combiners}\nENTRY e {{\n" + "\n".join(lines) + "\n}"
    one, other = (hl.compile(text, backend)(x) for backend in ("interpreter", "cpu"))
    for name, a, b in zip(names, one, other, strict=True):
        assert np.array_equal(a, b), name


@pytest.mark.parametrize("kind", FLOATS)
def test_three_operands(kind: str) -> None:
    x, y = crossed(special(kind)[::3])
    arrays = [x, y, y[::-1].copy()]
    body = ["clamp(x, y, z)"]
    assert compare(body, results(body, kind, arrays), True, arrays) == []


@pytest.mark.parametrize("kind", FLOATS)
def test_conversions(kind: str) -> None:
    """The sign of a NaN that was computed shows where the other type has none, too."""
    x = [special(kind)]
    to = [other for other in (*OFTEN, *SELDOM) if other != kind]
    assert compare(to, results(["convert(x)"] * len(to), kind, x, to), True, x) == []
    computed = f"convert({kind}[{x[0].size}] log(x))"
    assert compare(to, results([computed] * len(to), kind, x, to), False, x) == []
