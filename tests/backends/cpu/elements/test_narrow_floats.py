"""The 8- and 4-bit floats compiled: codes, rounding, and operations on all values, against ml_dtypes and the interpreter."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom as hl
from backends.cpu.elements.compile_elementwise import Array, compile_elementwise
from hloom.backends.cpu.elements import narrow_floats
from hloom.files.arrays import flat
from hloom.lir import Builder, Value
from hloom.literal import Literal
from hloom.numerics import total_order_key
from hloom.types import BY_DTYPE, BY_NAME, PrimitiveType

TYPES = [type for type in PrimitiveType if narrow_floats.is_narrow(type)]
WIDER = [BY_NAME[name] for name in ("f16", "bf16", "f32", "f64", "c64", "pred", "s4", "u4", "s8", "u32", "s64")]
each_type = pytest.mark.parametrize("type", TYPES, ids=str)
WIDTHS = [0, 16]


def every_code(type: PrimitiveType) -> Array:
    return np.arange(1 << type.bits, dtype=np.uint8).view(type.dtype)


def codes_of(x: Array, type: PrimitiveType) -> Array:
    """The codes, without the unused bits of their bytes."""
    return x.view(np.uint8) & ((1 << type.bits) - 1)


def samples(type: PrimitiveType, step: int) -> Array:
    """All values and midpoints between neighbours, each with its neighbours as f32; all f32 whose low bits are zero.

    Of the latter, and of random ones, one in `step`.
    """
    values = every_code(type).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    limit = 2 * float(ml_dtypes.finfo(type.dtype).max)
    ends = [limit, limit / 2 * 1.0625, limit / 2 * 1.25, float(ml_dtypes.finfo(type.dtype).smallest_subnormal) / 2]
    exact = np.concatenate([values, (values[1:] + values[:-1]) / 2, ends]).astype(np.float32)
    below, above = np.nextafter(exact, np.float32(-np.inf)), np.nextafter(exact, np.float32(np.inf))
    coarse = (np.arange(1 << 18, dtype=np.uint32) << 14).view(np.float32)
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    parts = [exact, below, above, -exact, -below, -above, coarse[::step], random[::step]]
    found = np.concatenate(parts)
    return np.concatenate([found, np.zeros(-len(found) % 64, np.float32)])


@each_type
@pytest.mark.parametrize("width", WIDTHS)
def test_every_code_is_decoded_and_encoded(type: PrimitiveType, width: int) -> None:
    """Codes are passed in the lowest bytes of f32. A NaN keeps its payload; without it, it is that of ml_dtypes."""

    def emit(b: Builder, x: Value) -> tuple[Value, Value, Value]:
        code = b.convert("trunc", b.bitcast(x, x.type.integer), "i8")
        value = narrow_floats.decode(b, code, type)
        again = b.convert("zext", narrow_floats.encode(b, value, type), "i32")
        return value, narrow_floats.plain_nan(b, value, type), b.bitcast(again, x.type)

    codes = np.arange(256, dtype=np.uint32)
    run = compile_elementwise(emit, np.float32, width, 1, 3)
    value, plain, again = run(codes.view(np.float32))
    inside = codes & ((1 << type.bits) - 1)
    want = inside.astype(np.uint8).view(type.dtype).astype(np.float32)
    assert np.array_equal(value, want, equal_nan=True)
    assert np.array_equal(plain.view(np.uint32), want.view(np.uint32))
    assert np.array_equal(again.view(np.uint32), inside)


@pytest.mark.sampled(9)
@each_type
@pytest.mark.parametrize("width", WIDTHS)
def test_rounding_is_that_of_ml_dtypes(type: PrimitiveType, width: int) -> None:
    def emit(b: Builder, x: Value) -> tuple[Value, Value]:
        value = narrow_floats.rounded(b, x, type, is_data=True)
        return value, b.bitcast(b.convert("zext", narrow_floats.encode(b, value, type), "i32"), x.type)

    x = samples(type, step=1)
    got, codes = compile_elementwise(emit, np.float32, width, 1, 2)(x)
    want = x.astype(type.dtype)
    assert np.array_equal(codes.view(np.uint32), codes_of(want, type))
    assert np.array_equal(got, want.astype(np.float32), equal_nan=True)
    zero = got == 0
    assert np.array_equal(np.signbit(got[zero]), np.signbit(want.astype(np.float32)[zero]))


def check(text: str, *inputs: Array, steps: int = 0, exact: bool = False) -> None:
    """Checks that all results are compiled, and at most `steps` representable values off those of the interpreter.

    All NaNs are equal, unless `exact` compares bits.
    """
    compiled = hl.compile(text, backend="cpu")
    assert not compiled.report()
    results = zip(flat(compiled(*inputs)), flat(hl.compile(text, backend="interpreter")(*inputs)), strict=True)
    for position, (got, want) in enumerate(results):
        type = BY_DTYPE[got.dtype]
        if type.is_float and not exact:
            is_nan = np.isnan(want.astype(np.float64))
            assert np.array_equal(np.isnan(got.astype(np.float64)), is_nan), position
            distance = total_order_key(got)[~is_nan].astype(np.int64) - total_order_key(want)[~is_nan]
            assert np.abs(distance).max(initial=0) <= steps, position
        else:
            assert Literal.from_numpy(got) == Literal.from_numpy(want), position


def module(parameters: list[str], lines: list[str], computations: str = "") -> str:
    """The text of a module that returns the values of all lines, each `shape opcode(operands)`."""
    shapes = [line[: line.index(" ")] for line in lines]
    body = [f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(parameters)]
    body += [f"  r{k} = {line}" for k, line in enumerate(lines)]
    names = ", ".join(f"r{k}" for k in range(len(lines)))
    root = f"  ROOT r = ({', '.join(shapes)}) tuple({names})"
    return "\n".join(["HloModule m", computations, "ENTRY e {", *body, root, "}"])


UNARY = ["abs", "ceil", "floor", "negate", "round-nearest-afz", "round-nearest-even", "sign", "copy"]
FUNCTIONS = ["cbrt", "cosine", "exponential", "exponential-minus-one", "erf", "log", "log-plus-one", "logistic", "rsqrt",
             "sine", "sqrt", "tan", "tanh"]  # fmt: skip
BINARY = ["add", "divide", "maximum", "minimum", "multiply", "remainder", "subtract"]
DIRECTIONS = ["EQ", "NE", "GE", "GT", "LE", "LT"]


@pytest.mark.sampled(5)
@each_type
def test_operations_on_one_value(type: PrimitiveType) -> None:
    shape = f"{type}[{1 << type.bits}]"
    lines = [f"{shape} {opcode}(p0)" for opcode in UNARY]
    lines += [
        f"{shape} reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}"
        for e in (1, 2, 4, 8)
        for m in (0, 1, 3, 9)
    ]
    lines += [f"pred[{1 << type.bits}] is-finite(p0)"]
    lines += [f"{same}[{1 << type.bits}] bitcast-convert(p0)" for same in (f"s{type.bits}", f"u{type.bits}")]
    check(module([shape], lines), every_code(type))
    check(module([shape], [f"{shape} {opcode}(p0)" for opcode in FUNCTIONS]), every_code(type), steps=1)


@pytest.mark.sampled(5)
@each_type
def test_operations_on_two_values(type: PrimitiveType) -> None:
    codes = every_code(type)
    x, y = (a.reshape(-1) for a in np.meshgrid(codes, codes))
    shape, flags = f"{type}[{x.size}]", f"pred[{x.size}]"
    lines = [f"{shape} {opcode}(p0, p1)" for opcode in BINARY]
    for order in ("", ", type=TOTALORDER"):
        lines += [f"{flags} compare(p0, p1), direction={direction}{order}" for direction in DIRECTIONS]
    lines += [f"{shape} select(r{len(lines) - 1}, p0, p1)", f"{shape} clamp(p0, p1, p0)"]
    check(module([shape, shape], lines), x, y)
    check(module([shape, shape], [f"{shape} {opcode}(p0, p1)" for opcode in ("atan2", "power")]), x, y, steps=1)


@pytest.mark.sampled(5)
@each_type
def test_conversions_from_the_type(type: PrimitiveType) -> None:
    size = 1 << type.bits
    check(
        module([f"{type}[{size}]"], [f"{to}[{size}] convert(p0)" for to in TYPES + WIDER]), every_code(type), exact=True
    )


@pytest.mark.sampled(4)
@each_type
@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.long)])
def test_conversions_to_the_type(type: PrimitiveType, step: int) -> None:
    """Values of f64 are rounded once, integers by way of f32."""
    x = samples(type, step).astype(np.float64)
    x = np.concatenate([x, np.nextafter(x, -np.inf), np.nextafter(x, np.inf), [1e300, -1e300, 1e-300, -1e-300, np.inf]])
    integers = np.random.default_rng(0).integers(-(1 << 63), 1 << 63, x.size) >> np.arange(x.size) % 60
    inputs, parameters = [], []
    with np.errstate(all="ignore"):
        for other in WIDER:
            source = integers if other.is_integer or other.is_pred else x
            inputs.append(source.astype(other.dtype))
            parameters.append(f"{other}[{x.size}]")
    check(module(parameters, [f"{type}[{x.size}] convert(p{k})" for k in range(len(parameters))]), *inputs)


@pytest.mark.sampled(5)
@each_type
def test_movements(type: PrimitiveType) -> None:
    """Codes are moved as they are, NaN payloads too."""
    x = np.resize(every_code(type), (5, 64))
    at = np.array([[3], [0], [9], [-1]], np.int32)
    lines = [
        f"{type}[64,5] transpose(p0), dimensions={{1,0}}",
        f"{type}[5,64,3] broadcast(p0), dimensions={{0,1}}",
        f"{type}[320] reshape(p0)",
        f"{type}[5,64] reverse(p0), dimensions={{1}}",
        f"{type}[3,20] slice(p0), slice={{[1:4], [2:62:3]}}",
        f"{type}[9,129] pad(p0, p1), padding=1_3x2_0_1",
        f"{type}[10,64] concatenate(p0, r3), dimensions={{0}}",
        f"{type}[4,64] gather(p0, p2), offset_dims={{1}}, collapsed_slice_dims={{0}}, start_index_map={{0}}, "
        "index_vector_dim=1, slice_sizes={1,64}",
        f"{type}[2,30] dynamic-slice(p0, p3, p3), dynamic_slice_sizes={{2,30}}",
        f"{type}[5,64] dynamic-update-slice(p0, r8, p3, p3)",
        f"{type}[40] iota(), iota_dimension=0",
    ]
    shapes = [f"{type}[5,64]", f"{type}[]", "s32[4,1]", "s32[]"]
    inputs = x, x[1, 7], at, np.array(2, np.int32)
    check(module(shapes, lines), *inputs, exact=True)


@pytest.mark.sampled(4)
@each_type
@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum", "minimum"])
def test_reductions(type: PrimitiveType, opcode: str) -> None:
    """All partial results are representable, or beyond what the type holds."""
    x = np.random.default_rng(0).choice([1.0, 2.0] if opcode == "multiply" else [0.5, 1.0, 2.0], (6, 40))
    x[:, 4:] = 1 if opcode == "multiply" else 0.5
    x = x.astype(type.dtype)
    computation = f"c {{\n a = {type}[] parameter(0)\n b = {type}[] parameter(1)\n ROOT r = {type}[] {opcode}(a, b)\n}}"
    lines = [
        f"{type}[6] reduce(p0, p1), dimensions={{1}}, to_apply=c",
        f"{type}[40] reduce(p0, p1), dimensions={{0}}, to_apply=c",
        f"{type}[] reduce(p0, p1), dimensions={{0,1}}, to_apply=c",
        f"{type}[6,40] reduce-window(p0, p1), window={{size=1x3 pad=0_0x1_1}}, to_apply=c",
        f"{type}[6,40] reduce-window(p0, p1), window={{size=1x40 pad=0_0x39_0}}, to_apply=c",
    ]
    steps = 1 if opcode == "add" else 0
    check(module([f"{type}[6,40]", f"{type}[]"], lines, computation), x, np.asarray(1, type.dtype), steps=steps)


@pytest.mark.sampled(3)
@each_type
@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("size", [1 << 8, 1 << 16])
def test_sorting(type: PrimitiveType, direction: str, size: int) -> None:
    """NaN, in total order, too; f8e8m0fnu by its codes."""
    x = np.random.default_rng(0).permutation(np.resize(every_code(type), size))
    shape = f"{type}[{size}]"
    computation = (
        f"c {{\n a = {type}[] parameter(0)\n b = {type}[] parameter(1)\n"
        f" ROOT r = pred[] compare(a, b), direction={direction}, type=TOTALORDER\n}}"
    )
    lines = [f"{shape} sort(p0), dimensions={{0}}, is_stable=true, to_apply=c"]
    check(module([shape], lines, computation), x, exact=True)


@pytest.mark.sampled(5)
@each_type
def test_top_k_and_scatter(type: PrimitiveType) -> None:
    x = np.random.default_rng(0).permutation(np.resize(every_code(type), 512)).reshape(4, 128)
    computation = f"c {{\n a = {type}[] parameter(0)\n b = {type}[] parameter(1)\n ROOT r = {type}[] add(a, b)\n}}"
    at = np.array([[1], [3], [1]], np.int32)
    lines = [
        f"{type}[4,128] scatter(p0, p1, p2), update_window_dims={{1}}, inserted_window_dims={{0}}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=c"
    ]
    check(module([f"{type}[4,128]", "s32[3,1]", f"{type}[3,128]"], lines, computation), x, at, x[:3])
    for largest in ("true", "false"):
        text = f"HloModule m\nENTRY e {{\n p = {type}[4,128] parameter(0)\n"
        check(text + f" ROOT r = ({type}[4,5], s32[4,5]) topk(p), k=5, largest={largest}\n}}", x)
