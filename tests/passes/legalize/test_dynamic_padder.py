"""Compiled arrays of dynamic sizes, against the interpreter, whose arrays have the dynamic sizes."""

from __future__ import annotations

import os

import numpy as np
import pytest

import hloom as hl
from hlo_text import module_text
from hloom.ir import Computation, Instruction
from hloom.ops.attributes import PaddingDimension, SliceDimension, WindowDimension
from hloom.ops.broadcast import Broadcast
from hloom.ops.dot import Dot
from hloom.ops.dynamic_size import SetDimensionSize
from hloom.ops.elementwise_binary import Add, Remainder
from hloom.ops.elementwise_unary import Sine
from hloom.ops.operation import Operation
from hloom.ops.pad import Concatenate, Pad
from hloom.ops.reduce import Reduce
from hloom.ops.reduce_window import ReduceWindow
from hloom.ops.reshape import Reshape
from hloom.ops.slice import Slice
from hloom.ops.sort import Sort
from hloom.ops.transpose import Reverse, Transpose
from hloom.passes.op_builder import OpBuilder
from hloom.shape import Shape, scalar
from hloom.types import PrimitiveType
from hloom.values import Value

CASES = int(os.environ.get("HLOOM_CASES", "1000"))
F32, S32 = PrimitiveType.F32, scalar(PrimitiveType.S32)

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }\n"
LESS = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LT }\n"
COMPUTATIONS = (
    ADD
    + LESS
    + "maxi { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }\n"
    + "odd { a = f32[] parameter(0) b = f32[] parameter(1) c = f32[] constant(0.5) d = f32[] multiply(a, c) "
    "ROOT r = f32[] subtract(d, b) }\n"
    + "larger { a = f32[] parameter(0) b = f32[] parameter(1) g = pred[] compare(a, b), direction=GT "
    "ROOT r = f32[] select(g, a, b) }\n"
    + "best { v = f32[] parameter(0) i = s32[] parameter(1) w = f32[] parameter(2) j = s32[] parameter(3) "
    "g = pred[] compare(v, w), direction=GE ROOT r = (f32[], s32[]) tuple(f32[] select(g, v, w), s32[] select(g, i, j)) }\n"
    + "by_key { a = f32[] parameter(0) b = f32[] parameter(1) c = s32[] parameter(2) d = s32[] parameter(3) "
    "ROOT r = pred[] compare(a, b), direction=GT }\n"
    + "twice { p = f32[<=8,4] parameter(0) ROOT r = f32[<=8,4] add(p, p) }\n"
    + "halved { p = f32[<=8,4] parameter(0) h = f32[] constant(0.5) b = f32[8,4] broadcast(h), dimensions={} "
    "c = s32[] get-dimension-size(p), dimensions={0} d = f32[<=8,4] set-dimension-size(b, c), dimensions={0} "
    "ROOT r = f32[<=8,4] multiply(p, d) }\n"
    + "shorter { s = (s32[], f32[<=8,4]) parameter(0) i = s32[] get-tuple-element(s), index=0 "
    "x = f32[<=8,4] get-tuple-element(s), index=1 one = s32[] constant(1) n = s32[] get-dimension-size(x), dimensions={0} "
    "m = s32[] subtract(n, one) y = f32[<=8,4] set-dimension-size(f32[<=8,4] sine(x), m), dimensions={0} "
    "ROOT r = (s32[], f32[<=8,4]) tuple(s32[] add(i, one), y) }\n"
    + "is_long { s = (s32[], f32[<=8,4]) parameter(0) x = f32[<=8,4] get-tuple-element(s), index=1 "
    "n = s32[] get-dimension-size(x), dimensions={0} two = s32[] constant(2) ROOT r = pred[] compare(n, two), direction=GT }\n"
)

BEGIN = (
    "x = f32[8,4] parameter(0)\nn = s32[] parameter(1)\ny = f32[8,4] parameter(2)\nm = s32[] parameter(3)\n"
    "z = f32[] constant(0)\none = f32[] constant(1.5)\nk = s32[] constant(1)\nzero = s32[] constant(0)\n"
    "d = f32[<=8,4] set-dimension-size(x, n), dimensions={0}\ne = f32[<=8,4] set-dimension-size(y, m), dimensions={0}\n"
    "w = f32[8,<=4] set-dimension-size(x, m), dimensions={1}\nb = f32[<=8,<=4] set-dimension-size(d, m), dimensions={1}\n"
    "l = s32[8] iota(), iota_dimension=0\nq = s32[<=8] set-dimension-size(l, n), dimensions={0}\n"
    "c = s32[<=8,4] broadcast(q), dimensions={0}\n"
)

BODIES = {
    "element-wise": "ROOT r = f32[<=8,4] multiply(f32[<=8,4] exponential(d), d)",
    "several dynamic dimensions": "ROOT r = f32[<=8,<=4] add(b, b)",
    "clamp, select, compare": "p = pred[<=8,4] compare(d, d), direction=EQ\nROOT r = f32[<=8,4] select(p, f32[<=8,4] clamp(z, d, one), d)",
    "convert": "ROOT r = bf16[<=8,4] convert(d)",
    "bitcast-convert": "ROOT r = s32[<=8,4] bitcast-convert(d)",
    "get-dimension-size": "ROOT r = s32[] get-dimension-size(d), dimensions={0}",
    "of a static dimension": "ROOT r = s32[] get-dimension-size(d), dimensions={1}",
    "growing again": "a = s32[] minimum(s32[] add(n, k), s32[] constant(8))\nROOT r = f32[<=8,4] set-dimension-size(d, a), dimensions={0}",
    "broadcast": "ROOT r = f32[3,<=8,4] broadcast(d), dimensions={1,2}",
    "transpose": "ROOT r = f32[4,<=8] transpose(d), dimensions={1,0}",
    "reverse": "ROOT r = f32[<=8,<=4] reverse(b), dimensions={0,1}",
    "reverse of another dimension": "ROOT r = f32[<=8,4] reverse(d), dimensions={1}",
    "reduce across": "ROOT r = f32[4] reduce(d, one), dimensions={0}, to_apply=add",
    "reduce along": "ROOT r = f32[<=8] reduce(d, one), dimensions={1}, to_apply=add",
    "reduce both": "ROOT r = f32[] reduce(b, one), dimensions={0,1}, to_apply=maxi",
    "reduce by something else": "ROOT r = f32[4] reduce(d, one), dimensions={0}, to_apply=larger",
    "reduce of several": "f = f32[] constant(-inf)\nROOT r = (f32[4], s32[4]) reduce(d, c, f, zero), dimensions={0}, to_apply=best",
    "reduce-window": "ROOT r = f32[<=4,4] reduce-window(d, one), window={size=2x1 stride=2x1}, to_apply=add",
    "reduce-window with padding": "ROOT r = f32[<=8,4] reduce-window(d, z), window={size=3x2 pad=1_1x1_0}, to_apply=maxi",
    "reduce-window of something else": "ROOT r = f32[<=6,4] reduce-window(d, one), window={size=3x1}, to_apply=larger",
    "pad": "ROOT r = f32[<=20,5] pad(d, one), padding=2_3_1x0_1",
    "pad with negative edges": "ROOT r = f32[<=6,4] pad(d, one), padding=-1_-1x0_0",
    "concatenate across": "ROOT r = f32[<=16,4] concatenate(d, e), dimensions={0}",
    "concatenate with what is static": "ROOT r = f32[<=24,4] concatenate(d, y, e), dimensions={0}",
    "concatenate along": "ROOT r = f32[<=8,8] concatenate(d, d), dimensions={1}",
    "slice across": "ROOT r = f32[2,4] slice(d), slice={[1:3], [0:4]}",
    "slice along": "ROOT r = f32[<=8,2] slice(d), slice={[0:8], [1:3]}",
    "dynamic-slice across": "ROOT r = f32[3,4] dynamic-slice(d, m, zero), dynamic_slice_sizes={3,4}",
    "dynamic-slice along": "ROOT r = f32[<=8,2] dynamic-slice(d, m, k), dynamic_slice_sizes={8,2}",
    "dynamic-update-slice": "u = f32[1,4] slice(y), slice={[0:1], [0:4]}\nROOT r = f32[<=8,4] dynamic-update-slice(d, u, m, zero)",
    "reshape that keeps the dimension": "ROOT r = f32[<=8,2,2] reshape(d)",
    "reshape that flattens": "ROOT r = f32[<=32] reshape(d)",
    "reshape that flattens inner sizes": "ROOT r = f32[<=32] reshape(w)",
    "reshape that flattens both": "ROOT r = f32[<=32] reshape(b)",
    "dynamic-reshape without elements":
        "none = f32[8,0,4] broadcast(one), dimensions={}\nempty = f32[<=8,0,4] set-dimension-size(none, n), dimensions={0}\n"
        "ROOT r = f32[0,<=32] dynamic-reshape(empty, s32[] constant(0), n)",
    "dynamic-reshape": "four = s32[] constant(4)\nr1 = f32[<=32] reshape(d)\nROOT r = f32[4,<=8] dynamic-reshape(r1, four, n)",
    "dot along": "ROOT r = f32[<=8,8] dot(d, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "dot across": "ROOT r = f32[4,4] dot(d, d), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "dot across a known size":
        "five = s32[] constant(5)\nf = f32[<=8,4] set-dimension-size(x, five), dimensions={0}\n"
        "ROOT r = f32[4,4] dot(f, f), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    "dot of batches": "ROOT r = f32[<=8] dot(d, d), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, "
    "rhs_contracting_dims={1}",
    "sort across": "ROOT r = f32[<=8,4] sort(d), dimensions={0}, to_apply=less",
    "sort along": "ROOT r = f32[<=8,4] sort(d), dimensions={1}, to_apply=less",
    "sort of several": "ROOT r = (f32[<=8,4], s32[<=8,4]) sort(d, c), dimensions={0}, is_stable=true, to_apply=by_key",
    "gather rows": "i = s32[3] constant({0, 7, 2})\nROOT r = f32[3,4] gather(d, i), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    "gather at dynamic indices": "ROOT r = f32[<=8,4] gather(y, q), offset_dims={1}, "
    "collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
    "gather of whole dimensions": "i = s32[2] constant({3, 1})\nROOT r = f32[<=8,2] gather(d, i), offset_dims={0}, "
    "collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, slice_sizes={8,1}",
    "gather by vectors": "i = s32[2,2] constant({{7, 3}, {1, 9}})\nROOT r = f32[2] gather(b, i), offset_dims={}, "
    "collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=1, slice_sizes={1,1}",
    "scatter of dynamic updates": "ROOT r = f32[8,4] scatter(y, q, d), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "scatter into dynamic rows": "i = s32[2] constant({0, 7})\nu = f32[2,4] slice(y), slice={[0:2], [0:4]}\n"
    "ROOT r = f32[<=8,4] scatter(d, i, u), update_window_dims={1}, inserted_window_dims={0}, "
    "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    "map": "ROOT r = f32[<=8,4] map(d, d), dimensions={0,1}, to_apply=odd",
    "topk": "ROOT r = (f32[<=8,2], s32[<=8,2]) topk(d), k=2, largest=true",
    "call": "ROOT r = f32[<=8,4] call(d), to_apply=twice",
    "conditional": "p = pred[] compare(n, m), direction=GT\n"
    "ROOT r = f32[<=8,4] conditional(p, d, e), true_computation=twice, false_computation=halved",
    "while": "s = (s32[], f32[<=8,4]) tuple(zero, d)\nROOT r = (s32[], f32[<=8,4]) while(s), condition=is_long, body=shorter",
    "tuples in tuples": "t = ((f32[<=8,4], f32[8,4]), s32[<=8]) tuple((f32[<=8,4], f32[8,4]) tuple(d, y), q)\n"
    "g = (f32[<=8,4], f32[8,4]) get-tuple-element(t), index=0\nh = f32[<=8,4] get-tuple-element(g), index=0\n"
    "i = s32[<=8] get-tuple-element(t), index=1\nROOT r = (f32[<=8,4], s32[<=8]) tuple(h, i)",
    "XLA's own conversions": 's = (f32[8,4], s32[], s32[]) custom-call(d), custom_call_target="PadToStatic"\n'
    "a = f32[8,4] get-tuple-element(s), index=0\ng = s32[] get-tuple-element(s), index=1\nfour = s32[] constant(4)\n"
    'ROOT r = f32[<=8,4] custom-call(a, g, four), custom_call_target="SliceToDynamic"',
}  # fmt: skip
SIZES = [(5, 3), (8, 4), (1, 2), (3, 4), (4, 1)]


def arguments(n: int, m: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((8, 4)).astype(np.float32) for _ in range(2))
    return [x, np.int32(n), y, np.int32(m)]  # type: ignore[list-item]


def text_of(body: str) -> str:
    return "HloModule m\n" + COMPUTATIONS + "ENTRY main {\n" + BEGIN + body + "\n}\n"


def assert_close(got: Value, want: Value) -> None:
    if isinstance(want, tuple):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want):
            assert_close(g, w)
        return
    assert isinstance(got, np.ndarray) and got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=2e-6, atol=1e-6)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", BODIES)
def test_compiled_programs_give_what_the_interpreter_gives(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOOM_VERIFY", "1")
    text = text_of(BODIES[case])
    compiled, interpreted = hl.compile(text, backend="cpu"), hl.compile(text, backend="interpreter")
    assert compiled.report() == []
    for n, m in SIZES:
        given = arguments(n, m)
        assert_close(compiled(*given), interpreted(*given))


def test_arguments_of_dynamic_sizes() -> None:
    text = module_text(
        "x = (f32[<=6], f32[2,<=3]) parameter(0)\na = f32[<=6] get-tuple-element(x), index=0\n"
        "b = f32[2,<=3] get-tuple-element(x), index=1\nc = s32[] get-dimension-size(b), dimensions={1}\n"
        "ROOT r = (f32[<=6], f32[2,<=3], s32[]) tuple(f32[<=6] negate(a), f32[2,<=3] exponential(b), c)"
    )
    compiled, interpreted = hl.compile(text, backend="cpu"), hl.compile(text, backend="interpreter")
    assert compiled.report() == []
    for n, m in ((4, 1), (6, 3), (0, 2)):
        given = (np.arange(n, dtype=np.float32), np.ones((2, m), np.float32))
        assert_close(compiled(given), interpreted(given))


def test_operations_without_a_rule_use_dynamic_arrays() -> None:
    text = module_text(
        "x = f32[4,4] parameter(0)\nn = s32[] parameter(1)\na = f32[4,4] add(x, x)\n"
        "d = f32[<=4,4] set-dimension-size(a, n), dimensions={0}\nf = c64[<=4,3] fft(d), fft_type=RFFT, fft_length={4}\n"
        "ROOT r = c64[<=4,3] negate(f)"
    )
    compiled, interpreted = hl.compile(text, backend="cpu"), hl.compile(text, backend="interpreter")
    assert ["fft(" in line for line in compiled.report()] == [True]
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    got, want = compiled(x, np.int32(3)), interpreted(x, np.int32(3))
    assert isinstance(got, np.ndarray) and isinstance(want, np.ndarray) and got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


BAD = {
    "a size beyond the bound": ("ROOT r = f32[<=8,4] negate(d)", (9, 1), "SETDIMENSIONSIZE-5"),
    "a negative size": ("ROOT r = f32[<=8,4] negate(d)", (-1, 1), "SETDIMENSIONSIZE-5"),
    "sizes that differ": ("ROOT r = f32[<=8,4] add(d, e)", (3, 4), "SETDIMENSIONSIZE-3"),
    "a size that differs from a static one": ("ROOT r = f32[<=8,4] add(d, y)", (3, 4), "SETDIMENSIONSIZE-3"),
    "a gather from no rows": (
        "i = s32[3] constant({0, 7, 2})\nROOT r = f32[3,4] gather(d, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}", (0, 1), "SETDIMENSIONSIZE-3",
    ),
    "a gather of slices that do not fit": (
        "i = s32[3,1] constant({{0}, {7}, {2}})\nROOT r = f32[3,3,4] gather(d, i), offset_dims={1,2}, "
        "collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={3,4}", (2, 1), "SETDIMENSIONSIZE-3",
    ),
    "a reshape that is not filled": (
        "ROOT r = f32[<=8,4] dynamic-reshape(f32[<=32] reshape(d), m, s32[] constant(4))", (3, 4), "RESHAPE-2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_sizes_that_do_not_fit_are_errors(case: str, backend: str) -> None:
    body, (n, m), clause = BAD[case]
    executable = hl.compile(text_of(body), backend=backend)
    with pytest.raises(hl.RunError, match=clause):
        executable(*arguments(n, m))
    executable(*arguments(4, 4) if "static" not in case else arguments(8, 4))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    "use", ["ROOT r = s32[] get-dimension-size(s), dimensions={0}", "ROOT r = s32[3] subtract(s, s)"]
)
def test_a_size_that_a_static_type_does_not_have_is_an_error(use: str, backend: str) -> None:
    """SETDIMENSIONSIZE-5, though the values of the elements do not matter: XLA takes such a dimension for dynamic."""
    begin = "x = s32[3] parameter(0)\nn = s32[] parameter(1)\ns = s32[3] set-dimension-size(x, n), dimensions={0}\n"
    executable, x = hl.compile(module_text(begin + use), backend=backend), np.arange(3, dtype=np.int32)
    with pytest.raises(hl.RunError, match="SETDIMENSIONSIZE-5"):
        executable(x, np.int32(2))
    executable(x, np.int32(3))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_sizes_of_dead_code_are_not_looked_at(backend: str) -> None:
    executable, arrays = hl.compile(text_of("ROOT r = f32[8,4] negate(x)"), backend=backend), arguments(9, -1)
    np.testing.assert_array_equal(executable(*arrays), np.negative(arrays[0]))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_known_sizes_that_differ_are_an_error(backend: str) -> None:
    body = (
        "three = s32[] constant(3)\nfive = s32[] constant(5)\nf = f32[<=8,4] set-dimension-size(x, three), dimensions={0}\n"
        "g = f32[<=8,4] set-dimension-size(y, five), dimensions={0}\nROOT r = f32[<=8,4] add(f, g)"
    )
    with pytest.raises(hl.RunError, match="SETDIMENSIONSIZE-3"):
        hl.compile(text_of(body), backend=backend)(*arguments(4, 4))


class Chain:
    """A random program on one array whose sizes are set at run time, step after step."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.module = hl.parse(
            "HloModule m\n" + COMPUTATIONS + "ENTRY main { z = f32[] constant(0) ROOT r = f32[] negate(z) }"
        )
        self.named = {c.name: c for c in self.module.computations}
        entry = Computation("chain")
        self.build = OpBuilder.of(entry)
        sizes = [int(n) for n in rng.integers(1, 7, rng.integers(1, 4))]
        self.value = self.build.parameter(0, Shape.array(F32, sizes))
        self.sizes = self.build.parameter(1, Shape.array(PrimitiveType.S32, (12,)))
        self.taken = 0
        for _ in range(rng.integers(2, 7)):
            getattr(self, str(rng.choice(STEPS)))()
        entry.root = self.value
        self.module.add(entry, entry=True)
        self.module.set_default_entry_layouts()

    def dimension(self) -> int:
        return int(self.rng.integers(self.value.shape.rank)) if self.value.shape.rank else 0

    def apply(self, op: Operation, *more: Instruction) -> None:
        self.value = self.build(op, self.value, *more)

    def set_size(self) -> None:
        if not self.value.shape.rank or self.taken == 12:
            return
        d, shape = self.dimension(), self.value.shape
        part = self.build(Slice(slice=(SliceDimension(self.taken, self.taken + 1),)), self.sizes)
        drawn = self.build(Reshape(), part, shape=S32)
        self.taken += 1
        size = self.build(Remainder(), drawn, self.build.constant(shape.dimensions[d] + 1, PrimitiveType.S32))
        dynamic = [flag or k == d for k, flag in enumerate(shape.dynamic_dimensions)]
        self.value = self.build(
            SetDimensionSize(dimension=d), self.value, size, shape=Shape.array(F32, shape.dimensions, dynamic)
        )

    def element_wise(self) -> None:
        self.apply(Sine())

    def doubled(self) -> None:
        self.apply(Add(), self.value)

    def transposed(self) -> None:
        self.apply(Transpose(permutation=tuple(int(d) for d in self.rng.permutation(self.value.shape.rank))))

    def reversed(self) -> None:
        if self.value.shape.rank:
            self.apply(Reverse(dimensions=(self.dimension(),)))

    def reduced(self) -> None:
        if self.value.shape.rank:
            combiner = self.named[str(self.rng.choice(["add", "maxi", "larger"]))]
            self.apply(Reduce(dimensions=(self.dimension(),), computation=combiner), self.build.constant(0.5, F32))

    def windowed(self) -> None:
        shape = self.value.shape
        if shape.rank:
            d = self.dimension()
            window = [WindowDimension() for _ in range(shape.rank)]
            low, high, stride = (int(n) for n in self.rng.integers(0, 3, 3))
            window[d] = WindowDimension(min(2, shape.dimensions[d] + low + high) or 1, stride + 1, low, high)
            self.apply(
                ReduceWindow(window=tuple(window), computation=self.named["maxi"]), self.build.constant(0.5, F32)
            )

    def padded(self) -> None:
        low, high, between = (int(n) for n in self.rng.integers([-1, -1, 0], [3, 3, 2]))
        if all(n >= 2 for n in self.value.shape.dimensions) and self.value.shape.element_count < 2000:
            padding = PaddingDimension(low, high, between)
            self.apply(Pad(padding_config=(padding,) * self.value.shape.rank), self.build.constant(0.5, F32))

    def joined(self) -> None:
        if self.value.shape.rank and self.value.shape.element_count < 2000:
            self.apply(Concatenate(dimension=self.dimension()), self.value)

    def sorted(self) -> None:
        if self.value.shape.rank:
            self.apply(Sort(dimension=self.dimension(), comparator=self.named["less"]))

    def flattened(self) -> None:
        shape = self.value.shape
        flat = Shape.array(F32, (shape.element_count,), (shape.is_dynamic,))
        self.value = self.build(Reshape(), self.value, shape=flat)

    def repeated(self) -> None:
        shape = self.value.shape
        if shape.element_count < 1000:
            wide = Shape.array(F32, (2, *shape.dimensions), (False, *shape.dynamic_dimensions))
            self.value = self.build(
                Broadcast(broadcast_dimensions=tuple(range(1, shape.rank + 1))), self.value, shape=wide
            )

    def multiplied(self) -> None:
        shape = self.value.shape
        if shape.rank >= 2 and shape.element_count < 1000:
            d = shape.rank - 1
            self.apply(Dot(lhs_contracting_dims=(d,), rhs_contracting_dims=(d,)), self.value)


STEPS = [name for name in vars(Chain) if not name.startswith("_") and name not in ("dimension", "apply")]
STEPS += ["set_size"] * 8


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    "seed", [*range(25), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(25, CASES))]
)
def test_random_chains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = Chain(rng).module
    compiled, interpreted = hl.compile(module, backend="cpu"), hl.compile(module, backend="interpreter")
    assert compiled.report() == []
    (shape, _) = module.entry.parameter_shapes
    for _ in range(3):
        given = (rng.standard_normal(shape.dimensions).astype(np.float32), rng.integers(0, 1000, 12, np.int32))
        try:
            want = interpreted(*given)
        except hl.RunError as error:
            assert "RESHAPE-2" in str(error), "only where a dimension of bound 1 and size 0 went in a reshape"
            with pytest.raises(hl.RunError, match="RESHAPE-2"):
                compiled(*given)
        else:
            assert_close(compiled(*given), want)
