"""Random programs of many operations: what fusion, scheduling, buffer sharing and native control flow work on.

All values are exact: integers wrap, and floats go only through operations that are rounded correctly, or are made small
integers before they are summed up. So the compiled results have to be the interpreter's, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hloom as hl
from backends.cpu.random_programs import Generator
from hloom.types import PrimitiveType

SIGNED = [hl.s8, hl.s16, hl.s32, hl.s64]
UNSIGNED = [hl.u8, hl.u16, hl.u32, hl.u64]
NARROW = [hl.s4, hl.u4, hl.s2, hl.u2]
FLOATS = [hl.f32, hl.f64, hl.f16, hl.bf16]
COMPLEX = [hl.c64, hl.c128]
EDGES = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 23, 31, 32, 33, 40, 63, 64, 65, 100, 127, 128, 129, 200, 257]


class ProgramGenerator(Generator):
    """Draws programs; the same seed gives the same program. `smooth`: with inexact functions of bounded values."""

    def __init__(self, seed: int, smooth: bool = False) -> None:
        super().__init__(seed)
        self.smooth = smooth
        self.limit = int(self.pick([60, 300, 300, 2000, 2000, 2000, 10_000, 60_000, 300_000]))
        kinds = self.pick(
            [
                [hl.f32], [hl.f32], [hl.f32, hl.s32, hl.pred], [hl.f32, hl.f16, hl.bf16, hl.f64], [hl.s32], [hl.s8, hl.u8],
                [*FLOATS, hl.s32, hl.pred], [*SIGNED, *UNSIGNED], [*FLOATS, *SIGNED, *UNSIGNED, *NARROW, hl.pred, *COMPLEX],
                [hl.bf16], [hl.f16, hl.f32], [hl.c64, hl.f32], [hl.f64, hl.s64], [hl.s4, hl.s32], [hl.pred, hl.u8],
            ]
        )  # fmt: skip
        self.types = [self.pick([hl.f32, hl.f32, hl.f64])] if smooth else kinds
        self.pool: list[hl.XlaOp] = []
        self.is_entry = True
        self.depth = 0

    def program(self) -> hl.Module:
        for _ in range(int(self.rng.integers(1, 4))):
            self.pool.append(self.leaf(self.draw_sizes()))
        for _ in range(int(self.rng.integers(1, 26 if self.limit < 100_000 else 8))):
            self.step()
        return self.builder.build(self.result()).module

    def result(self) -> hl.XlaOp:
        """Results: one or several values, late ones rather than early ones; some twice, some in tuples of tuples."""
        recent = self.pool[-8:]
        count = int(self.pick([1, 1, 2, 2, 3, 5]))
        chosen = [self.pick(recent) if self.rng.random() < 0.8 else self.pick(self.pool) for _ in range(count)]
        chosen[0] = self.pool[-1]
        b = self.builder
        if count == 1 and self.rng.random() < 0.8:
            return chosen[0]
        if self.rng.random() < 0.2:
            chosen.append(b.constant(self.array(self.a_type(), [int(self.rng.integers(0, 4))])))
        if self.rng.random() < 0.2:
            chosen.append(chosen[0])
        if self.rng.random() < 0.15:
            return b.tuple(chosen[0], b.tuple(*chosen[1:]), b.tuple())
        return b.tuple(*chosen)

    # Values

    def a_type(self) -> PrimitiveType:
        return self.pick(self.types)

    def draw_sizes(self) -> list[int]:
        rank = int(self.pick([0, 1, 1, 2, 2, 2, 3, 3, 4]))
        sizes: list[int] = []
        for _ in range(rank):
            room = max(1, self.limit // int(np.prod(sizes, dtype=int) or 1))
            options = [n for n in EDGES if n <= room]
            if room > 1000 and self.rng.random() < 0.3:
                options = [int(self.rng.integers(500, room)), 512, 1000]
            sizes.append(int(self.pick(options)))
        if sizes and self.rng.random() < 0.03:
            sizes[self.rng.integers(rank)] = 0
        self.rng.shuffle(sizes)
        return sizes

    def values(self, element_type: PrimitiveType, sizes: list[int]) -> np.ndarray:
        if self.smooth and element_type.is_float:
            return (self.rng.standard_normal(sizes) * 0.7).astype(element_type.dtype)
        if element_type.bits < 8 and not element_type.is_pred:
            low = -(1 << (element_type.bits - 1)) if element_type.is_signed else 0
            high = (1 << (element_type.bits - element_type.is_signed)) - 1
            return self.rng.integers(low, high, sizes, endpoint=True).astype(element_type.dtype)
        return self.array(element_type, sizes, special=self.rng.random() < 0.3)

    def array(self, element_type: PrimitiveType, sizes: list[int], special: bool = False) -> np.ndarray:
        if element_type.bits < 8 and not element_type.is_pred:
            return self.values(element_type, sizes)
        return super().array(element_type, sizes, special)

    def leaf(self, sizes: list[int], element_type: PrimitiveType | None = None) -> hl.XlaOp:
        """A parameter, constant, iota or broadcast."""
        b, element_type = self.builder, element_type or self.a_type()
        kind = self.rng.random()
        small = int(np.prod(sizes, dtype=int)) <= 64
        if self.is_entry and kind < 0.6:
            return self.parameter(element_type, sizes, array=self.values(element_type, sizes))
        if kind < 0.7 and small:
            return b.constant(self.values(element_type, sizes))
        if kind < 0.8 and sizes and not element_type.is_pred and not self.smooth:
            return b.iota(hl.Shape.array(element_type, sizes), int(self.rng.integers(len(sizes))))
        return b.broadcast(b.constant(self.values(element_type, [])), sizes)

    def any(self, test: Callable[[hl.XlaOp], bool] = lambda x: True) -> hl.XlaOp:
        """A value, recent ones more often."""
        found = [x for x in self.pool if test(x)]
        if not found:
            return self.leaf(self.draw_sizes())
        if self.rng.random() < 0.6:
            found = found[-3:]
        return self.bounded(self.pick(found))

    def bounded(self, x: hl.XlaOp) -> hl.XlaOp:
        """The operand; in smooth programs, a float between -1 and 1 instead."""
        if not self.smooth or x.shape.element_type.is_float:
            return x
        return self.builder.tanh(self.cast(x, self.types[0]))

    def like(self, x: hl.XlaOp, element_type: PrimitiveType | None = None) -> hl.XlaOp:
        """Another value of the same sizes, of the same type or the one given."""
        b, sizes = self.builder, list(x.shape.dimensions)
        wanted = element_type or x.shape.element_type
        same = [y for y in self.pool if list(y.shape.dimensions) == sizes]
        kind = self.rng.random()
        if same and kind < 0.5:
            return self.cast(self.bounded(self.pick(same)), wanted)
        if kind < 0.7 and sizes:
            lower = [y for y in self.pool if y.shape.rank < len(sizes) and self.fits(y, sizes)]
            if lower:
                y = self.pick(lower)
                return self.cast(b.broadcast_in_dim(y, sizes, self.fits(y, sizes)), wanted)
        if kind < 0.8:
            dims = [d for d in range(len(sizes)) if self.rng.random() < 0.6]
            y = self.leaf([sizes[d] for d in dims], wanted)
            return b.broadcast_in_dim(y, sizes, dims) if dims else b.broadcast(y, sizes)
        return self.leaf(sizes, wanted)

    def fits(self, y: hl.XlaOp, sizes: list[int]) -> list[int]:
        """Dimensions of `sizes` that y's are, in order; empty if there are none."""
        found, at = [], 0
        for n in y.shape.dimensions:
            while at < len(sizes) and sizes[at] != n:
                at += 1
            if at == len(sizes):
                return []
            found.append(at)
            at += 1
        return found

    def cast(self, x: hl.XlaOp, element_type: PrimitiveType) -> hl.XlaOp:
        source = x.shape.element_type
        if source is element_type:
            return x
        if source.is_complex and not element_type.is_complex:
            x = self.builder.real(x)
        return self.builder.convert_element_type(x, element_type)

    # Steps

    def step(self) -> None:
        names = [name for name in sorted(dir(self)) if name.startswith("do_")]
        if self.smooth:
            names = [name for name in names if name not in self.DISCONTINUOUS]
        weights = np.array([self.WEIGHTS.get(name, 0.2 if type(self) is LoopGenerator else 1.0) for name in names])
        name = names[self.rng.choice(len(names), p=weights / weights.sum())]
        made = getattr(self, name)()
        for x in made if isinstance(made, list) else [made]:
            if x is not None and x.shape.element_count <= 4 * self.limit:
                self.pool.append(x)

    WEIGHTS = {
        "do_unary": 3, "do_binary": 6, "do_select": 2, "do_convert": 1.5, "do_reduce": 3, "do_normalize": 1.5, "do_while": 0.5,
        "do_conditional": 0.4, "do_sort": 0.1, "do_scatter": 0.1, "do_dot": 0.2, "do_call": 0.3, "do_map": 0.3, "do_dynamic": 0.1,
        "do_leaf": 0.5, "do_barrier": 0.2, "do_dimension_size": 0.1, "do_cumulative": 0.2, "do_bitcast_convert": 0.5,
    }  # fmt: skip

    DEEPEST_LOOP = 1
    DISCONTINUOUS = {"do_variadic_reduce", "do_sort", "do_dot", "do_bitcast_convert"}

    def do_leaf(self) -> hl.XlaOp:
        return self.leaf(self.draw_sizes())

    def do_unary(self) -> hl.XlaOp:
        x, b = self.any(), self.builder
        return self.unary(b, x)

    def unary(self, b: Any, x: hl.XlaOp) -> hl.XlaOp:
        t = x.shape.element_type
        if self.smooth:
            name = self.pick(
                [
                    "tanh",
                    "logistic",
                    "sin",
                    "cos",
                    "erf",
                    "neg",
                    "abs",
                    "gauss",
                    "expm1",
                    "log1p",
                    "rsqrt",
                    "sqrt",
                    "cbrt",
                    "atan2",
                ]
            )
            if name == "gauss":
                return b.exp(-(x * x))
            if name in ("log1p", "sqrt"):
                return getattr(b, name)(b.abs(x) + np.asarray(0.5, t.dtype))
            if name == "rsqrt":
                return b.rsqrt(b.abs(x) + np.asarray(1.0, t.dtype))
            if name == "cbrt":
                return b.cbrt(b.abs(x) + np.asarray(1.0, t.dtype))
            if name == "expm1":
                return b.expm1(b.min(x, np.asarray(1.0, t.dtype)))
            if name == "atan2":
                return b.atan2(x, b.abs(x) + np.asarray(1.0, t.dtype))
            return getattr(b, name)(x)
        if t.is_pred:
            return b.not_(x)
        if t.is_complex:
            name = self.pick(["neg", "real", "imag", "conj"])
            return getattr(b, name)(x) if name != "conj" else b.complex(b.real(x), -b.imag(x))
        if t.is_integer:
            names = ["not_", "neg", "clz", "population_count"] + (["abs", "sign"] if t.is_signed else [])
            return getattr(b, self.pick(names))(x)
        name = self.pick(
            [
                "neg",
                "abs",
                "sign",
                "floor",
                "ceil",
                "round",
                "round_nearest_even",
                "sqrt",
                "is_finite",
                "reduce_precision",
            ]
        )
        if name == "sqrt":
            return b.sqrt(b.abs(x))
        if name == "reduce_precision":
            return b.reduce_precision(x, int(self.rng.integers(3, 9)), int(self.rng.integers(1, 11)))
        return getattr(b, name)(x)

    def do_binary(self) -> hl.XlaOp:
        x = self.any()
        y = self.like(x)
        if self.rng.random() < 0.5:
            x, y = y, x
        return self.binary(self.builder, x, y)

    def binary(self, b: Any, x: hl.XlaOp, y: hl.XlaOp) -> hl.XlaOp:
        t = x.shape.element_type
        if self.smooth:
            name = self.pick(["add", "sub", "mul", "max", "min", "div"])
            if name == "div":
                return x / (b.abs(y) + np.asarray(1.0, t.dtype))
            return b.tanh(getattr(b, name)(x, y))
        if t.is_pred:
            return getattr(b, self.pick(["and_", "or_", "xor", "eq", "ne", "add", "mul", "max", "min", "lt", "ge"]))(
                x, y
            )
        if t.is_complex:
            return getattr(b, self.pick(["add", "sub", "eq", "ne"]))(x, y)
        comparisons = ["eq", "ne", "ge", "gt", "le", "lt"]
        names = ["add", "sub", "mul", "max", "min", "add", "sub", "mul", self.pick(comparisons)]
        if t.is_integer:
            names += ["div", "rem", "and_", "or_", "xor", "shift_left", "shift_right_arithmetic", "shift_right_logical"]
            names += ["pow"] if t.bits >= 8 else []
        else:
            names += ["div", "rem", "complex"] if t in (hl.f32, hl.f64) else ["div"]
        name = self.pick(names)
        if name == "complex" and not any(u.is_complex for u in self.types):
            name = "add"
        return getattr(b, name)(x, y)

    def do_select(self) -> hl.XlaOp:
        x, b = self.any(), self.builder
        t = x.shape.element_type
        if self.rng.random() < 0.3 and not t.is_complex and not t.is_pred:
            low, high = self.like(x), self.like(x)
            if self.rng.random() < 0.5:
                low, high = (b.constant(self.values(t, [])) for _ in range(2))
            return b.clamp(low, x, high)
        condition = self.leaf(list(x.shape.dimensions), hl.pred) if self.smooth else self.like(x, hl.pred)
        return b.select(condition, x, self.like(x))

    def do_convert(self) -> hl.XlaOp:
        return self.cast(self.any(), self.pick([self.a_type(), *([] if self.smooth else [self.any_type()])]))

    def do_bitcast_convert(self) -> hl.XlaOp | None:
        b, x = self.builder, self.any()
        t = x.shape.element_type
        if t.is_pred or t.is_complex or t.bits < 8 or self.smooth:
            return None
        if t.is_float:
            # Which NaN an operation gives is left open.
            return b.bitcast_convert_type(self.without_nan(x), {16: hl.s16, 32: hl.u32, 64: hl.s64}[t.bits])
        targets = [u for u in self.types if not u.is_pred and not u.is_complex and u.bits >= 8]
        target = self.pick(targets or [t])
        if target.bits > t.bits:
            k = target.bits // t.bits
            if not x.shape.rank or x.shape.dimensions[-1] != k:
                return None
        if x.shape.rank >= 5:
            return None
        return self.without_nan(b.bitcast_convert_type(x, target))

    def without_nan(self, x: hl.XlaOp) -> hl.XlaOp:
        b, t = self.builder, x.shape.element_type
        if not t.is_float:
            return x
        return b.select(b.eq(x, x), x, b.broadcast(b.constant(np.zeros((), t.dtype)), x.shape.dimensions))

    # Moving elements

    def do_transpose(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 1)
        return self.builder.transpose(x, self.rng.permutation(x.shape.rank).tolist())

    def do_reshape(self) -> hl.XlaOp:
        x = self.any()
        sizes = [n for n in x.shape.dimensions if n != 1 or self.rng.random() < 0.5]
        for _ in range(int(self.rng.integers(1, 4))):
            kind = self.rng.random()
            if kind < 0.4 and len(sizes) > 1:
                at = int(self.rng.integers(len(sizes) - 1))
                sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
            elif kind < 0.8 and sizes and len(sizes) < 5:
                at = int(self.rng.integers(len(sizes)))
                n = sizes[at]
                k = self.pick([k for k in range(1, min(n, 65) + 1) if n % k == 0]) if n else 1
                sizes[at : at + 1] = [k, n // k]
            elif len(sizes) < 5:
                sizes.insert(int(self.rng.integers(len(sizes) + 1)), 1)
        return self.builder.reshape(x, sizes)

    def do_broadcast(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank < 4 and x.shape.element_count < self.limit)
        sizes = list(x.shape.dimensions)
        dims = list(range(len(sizes)))
        for _ in range(int(self.rng.integers(1, 3))):
            at = int(self.rng.integers(len(sizes) + 1))
            room = self.limit // max(1, int(np.prod(sizes, dtype=int)))
            sizes.insert(at, int(self.pick([n for n in EDGES if n <= max(room, 1)])))
            dims = [d + (d >= at) for d in dims]
        return self.builder.broadcast_in_dim(x, sizes, dims)

    def do_reverse(self) -> hl.XlaOp:
        x = self.any()
        return self.builder.rev(x, [d for d in range(x.shape.rank) if self.rng.random() < 0.5])

    def do_slice(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 0)
        starts, limits, strides = [], [], []
        for n in x.shape.dimensions:
            whole = self.rng.random() < 0.4
            start = 0 if whole else int(self.rng.integers(0, n + 1))
            starts.append(start)
            limits.append(n if whole else int(self.rng.integers(start, n + 1)))
            strides.append(int(self.pick([1, 1, 1, 2, 3, 5])))
        if 0 in [b - a for a, b in zip(starts, limits)] and self.rng.random() < 0.9:
            starts, limits = [0 for _ in starts], list(x.shape.dimensions)
        return self.builder.slice(x, starts, limits, strides)

    def index(self, size: int) -> hl.XlaOp:
        """A scalar integer: a start that may lie outside."""
        b = self.builder
        scalars = [
            x
            for x in self.pool
            if x.shape.is_scalar and x.shape.element_type.is_integer and x.shape.element_type.bits >= 8
        ]
        if scalars and self.rng.random() < 0.4:
            return self.cast(self.pick(scalars), hl.s32)
        value = np.asarray(self.rng.integers(-2, size + 2), np.int32)
        return self.parameter(hl.s32, [], array=value) if self.is_entry else b.constant(value)

    def do_dynamic_slice(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 0)
        sizes = x.shape.dimensions
        parts = [n if self.rng.random() < 0.4 else int(self.rng.integers(min(n, 1), n + 1)) for n in sizes]
        return self.builder.dynamic_slice(x, [self.index(n) for n in sizes], parts)

    def do_dynamic_update_slice(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 0)
        sizes = x.shape.dimensions
        parts = [n if self.rng.random() < 0.4 else int(self.rng.integers(min(n, 1), n + 1)) for n in sizes]
        fitting = [
            y
            for y in self.pool
            if y.shape.rank == len(sizes) and all(m <= n for m, n in zip(y.shape.dimensions, sizes)) and y is not x
        ]
        if fitting and self.rng.random() < 0.5:
            update = self.cast(self.pick(fitting), x.shape.element_type)
        elif self.rng.random() < 0.4:
            update = self.builder.slice(x, [0] * len(sizes), parts)
            update = self.binary(self.builder, update, self.like(update))
            update = self.cast(update, x.shape.element_type)
        else:
            update = self.leaf(parts, x.shape.element_type)
        return self.builder.dynamic_update_slice(x, update, [self.index(n) for n in sizes])

    def do_pad(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank > 0 and x.shape.element_count <= self.limit // 2)
        if not x.shape.rank:
            return None
        config = []
        for n in x.shape.dimensions:
            interior = int(self.pick([0, 0, 0, 1, 2]))
            width = (n - 1) * (interior + 1) + 1 if n else 0
            low = int(self.rng.integers(-min(2, width), 4))
            high = int(self.rng.integers(-min(2, max(0, width + low)), 4))
            config.append((low, high, interior) if self.rng.random() < 0.7 else (0, 0, 0))
        return self.builder.pad(x, self.scalar(x.shape.element_type), config)

    def scalar(self, element_type: PrimitiveType) -> hl.XlaOp:
        found = [x for x in self.pool if x.shape.is_scalar]
        if found and self.rng.random() < 0.4:
            return self.cast(self.pick(found), element_type)
        return self.leaf([], element_type)

    def do_concatenate(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 0)
        if not x.shape.rank:
            x = self.builder.reshape(x, [1])
        d = int(self.rng.integers(x.shape.rank))
        parts = [x]
        for _ in range(int(self.rng.integers(0, 4))):
            sizes = list(x.shape.dimensions)
            same = [
                y for y in self.pool
                if y.shape.rank == len(sizes) and all(m == n or k == d for k, (m, n) in enumerate(zip(y.shape.dimensions, sizes)))
            ]  # fmt: skip
            if same and self.rng.random() < 0.6:
                parts.append(self.cast(self.pick(same), x.shape.element_type))
            else:
                sizes[d] = int(self.rng.integers(0, 5))
                parts.append(self.leaf(sizes, x.shape.element_type))
        self.rng.shuffle(parts)  # type: ignore[arg-type]
        return self.builder.concat_in_dim(parts, d)

    def do_gather(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank > 0 and x.shape.element_count > 0)
        sizes, b = list(x.shape.dimensions), self.builder
        rank = len(sizes)
        if not rank or 0 in sizes:
            return None
        mapped = sorted(self.rng.choice(rank, self.rng.integers(1, min(rank, 2) + 1), replace=False).tolist())
        slices = [
            n if d not in mapped else int(self.pick([1, 1, self.rng.integers(1, n + 1)])) for d, n in enumerate(sizes)
        ]
        collapsed = [d for d in mapped if slices[d] == 1 and self.rng.random() < 0.8]
        batch = self.rng.choice([1, 2, 3, 5, 17, 40], self.rng.integers(0, 3)).tolist()
        if int(np.prod(batch + slices, dtype=int)) > self.limit:
            return None
        at = int(self.rng.integers(0, len(batch) + 1))
        index_sizes = [*batch[:at], len(mapped), *batch[at:]]
        offsets = rank - len(collapsed)
        total = len(batch) + offsets
        offset_dims = sorted(self.rng.choice(total, offsets, replace=False).tolist()) if offsets else []
        kind = self.pick([hl.s32, hl.s64, hl.u32, hl.u8, hl.s8])
        values = self.rng.integers(-2 if kind.is_signed else 0, min(max(sizes) + 2, 100), index_sizes).astype(
            kind.dtype
        )
        indices = self.parameter(kind, index_sizes, array=values) if self.is_entry else b.constant(values)
        if self.rng.random() < 0.3:
            indices = b.max(indices, b.constant(np.asarray(1, kind.dtype)))
        return b.gather(x, indices, at, offset_dims, slices, collapsed, self.rng.permutation(mapped).tolist())

    # Reductions

    def tame(self, x: hl.XlaOp) -> hl.XlaOp:
        """Small integers, whose sums are exact in any order."""
        b, t = self.builder, x.shape.element_type
        if self.smooth or not (t.is_float or t.is_complex):
            return x
        if t.is_complex:
            return b.complex(self.tame(b.real(x)), self.tame(b.imag(x)))
        return b.clamp(np.asarray(-1, t.dtype), b.round_nearest_even(x), np.asarray(1, t.dtype))

    def reducer(self, x: hl.XlaOp, count: int) -> tuple[hl.XlaOp, Any, Callable[[Any, Any], Any]]:
        """The value, the initial value and the combiner of a reduction."""
        t = x.shape.element_type
        names = ["add", "add", "max", "min"]
        if t.is_pred:
            names = ["and_", "or_", "xor", "max", "min"]
        elif t.is_complex:
            names = ["add"]
        elif t.is_integer:
            names += ["mul", "and_", "or_", "xor"]
        name = self.pick(names)
        if name == "add" and t.is_float and t.bits == 16 and count > 120:
            name = "max"
        if name == "add":
            x = self.tame(x)
        if t.is_pred:
            init: Any = np.asarray(name in ("and_", "min"))
        elif name in ("add", "or_", "xor"):
            init = np.zeros((), t.dtype)
        elif name == "mul":
            init = np.ones((), t.dtype)
        elif name == "and_":
            init = np.asarray(-1, np.int64).astype(t.dtype)
        elif t.is_float:
            init = np.asarray(-np.inf if name == "max" else np.inf, t.dtype)
        else:
            from hloom.literal import extreme

            init = np.asarray(extreme(t, highest=name == "min"))
        if self.rng.random() < 0.2 and name in ("max", "min"):
            init = self.values(t, [])
        return x, self.builder.constant(init), lambda p, q: getattr(p.builder, name)(p, q)

    def dims_of(self, x: hl.XlaOp) -> list[int]:
        rank = x.shape.rank
        kind = self.rng.random()
        if kind < 0.3 and rank:
            return [rank - 1]
        if kind < 0.4 and rank:
            return [0]
        if kind < 0.5:
            return list(range(rank))
        return [d for d in range(rank) if self.rng.random() < 0.5]

    def do_reduce(self) -> hl.XlaOp:
        x = self.any(lambda x: x.shape.rank > 0)
        dims = self.dims_of(x)
        count = int(np.prod([x.shape.dimensions[d] for d in dims], dtype=int))
        operand, init, combine = self.reducer(x, count)
        made = self.builder.reduce(operand, init, combine, dims)
        if self.smooth:
            made = self.builder.tanh(made)
        return made

    def do_normalize(self) -> hl.XlaOp:
        """A reduction broadcast back over what was reduced, as in softmax and layer norm."""
        x = self.any(lambda x: x.shape.rank > 0)
        dims = self.dims_of(x)
        count = int(np.prod([x.shape.dimensions[d] for d in dims], dtype=int))
        operand, init, combine = self.reducer(x, count)
        reduced = self.builder.reduce(operand, init, combine, dims)
        if self.smooth:
            reduced = self.builder.tanh(reduced)
        if self.rng.random() < 0.4:
            reduced = self.cast(self.unary(self.builder, reduced), x.shape.element_type)
        kept = [d for d in range(x.shape.rank) if d not in dims]
        sizes = x.shape.dimensions
        wide = self.builder.broadcast_in_dim(reduced, sizes, kept) if kept else self.builder.broadcast(reduced, sizes)
        return self.binary(self.builder, x, wide)

    def do_variadic_reduce(self) -> list[hl.XlaOp] | None:
        x = self.any(lambda x: x.shape.rank > 0 and not x.shape.element_type.is_complex)
        t, b, sizes = x.shape.element_type, self.builder, list(x.shape.dimensions)
        if not sizes or t.is_complex or t.is_pred:
            return None
        x = self.without_nan(x)
        d = int(self.rng.integers(len(sizes)))
        index = b.iota(hl.Shape.array(hl.s32, sizes), d)

        def best(m: hl.XlaOp, i: hl.XlaOp, v: hl.XlaOp, j: hl.XlaOp) -> hl.XlaOp:
            c = m.builder
            keep = c.or_(c.gt(m, v), c.and_(c.eq(m, v), c.lt(i, j)))
            return c.tuple(c.select(keep, m, v), c.select(keep, i, j))

        from hloom.literal import extreme

        low = np.asarray(-np.inf if t.is_float else extreme(t, highest=False)).astype(t.dtype)
        made = b.reduce([x, index], [b.constant(low), b.constant(np.int32(2**31 - 1))], best, [d])
        return [b.get_tuple_element(made, 0), b.get_tuple_element(made, 1)]

    def do_reduce_window(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank > 0)
        sizes = list(x.shape.dimensions)
        if not sizes:
            return None
        window = [int(self.pick([1, 1, 2, 3, 4])) for _ in sizes]
        operand, init, combine = self.reducer(x, int(np.prod(window, dtype=int)))
        padding: Any = [(int(self.rng.integers(0, w + 1)), int(self.rng.integers(0, w + 1))) for w in window]
        dilations: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            dilations["base_dilations"] = [int(self.rng.integers(1, 3)) for _ in sizes]
            dilations["window_dilations"] = [int(self.rng.integers(1, 3)) for _ in sizes]
        elif self.rng.random() < 0.5:
            padding = "SAME"
        else:
            padding = [(0, 0) if n >= w else p for n, w, p in zip(sizes, window, padding)]
        strides = [int(self.rng.integers(1, 4)) for _ in sizes]
        made = self.builder.reduce_window(operand, init, combine, window, strides, padding=padding, **dilations)
        if self.smooth:
            made = self.builder.tanh(made)
        return made

    def do_cumulative(self) -> hl.XlaOp | None:
        """A cumulative sum as a window over a whole axis."""
        x = self.any(lambda x: x.shape.rank > 0)
        sizes = list(x.shape.dimensions)
        if not sizes or 0 in sizes:
            return None
        d = int(self.rng.integers(len(sizes)))
        operand, init, combine = self.reducer(x, sizes[d])
        window = [n if k == d else 1 for k, n in enumerate(sizes)]
        padding = [(n - 1, 0) if k == d else (0, 0) for k, n in enumerate(sizes)]
        made = self.builder.reduce_window(operand, init, combine, window, padding=padding)
        return self.builder.tanh(made) if self.smooth else made

    # What may go to the host

    def do_sort(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank > 0 and not x.shape.element_type.is_complex)
        if not x.shape.rank or x.shape.element_type.is_complex or x.shape.element_type.is_pred:
            return None
        x = self.without_nan(x)
        return self.builder.sort(
            [x], lambda p, q: p.builder.lt(p, q), int(self.rng.integers(x.shape.rank)), is_stable=True
        )

    def do_dot(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank == 2)
        if x.shape.rank != 2 or x.shape.element_type.is_pred or self.smooth:
            return None
        x = self.tame(x)
        n = int(self.rng.integers(1, 20))
        k = x.shape.dimensions[1]
        if x.shape.element_type.is_complex or (x.shape.element_type.bits == 16 and k > 120) or k * n > self.limit:
            return None
        return self.builder.dot(x, self.tame(self.leaf([k, n], x.shape.element_type)))

    def do_scatter(self) -> hl.XlaOp | None:
        x, b = self.any(lambda x: x.shape.rank == 1), self.builder
        t = x.shape.element_type
        if x.shape.rank != 1 or not t.is_integer:
            return None
        n = x.shape.dimensions[0]
        indices = b.constant(self.rng.integers(-1, n + 1, [5, 1]).astype(np.int32))
        return b.scatter(x, indices, self.leaf([5], t), lambda p, q: p.builder.add(p, q), 1, [], [0], [0])

    def do_dynamic(self) -> hl.XlaOp | None:
        """A dynamic dimension that is reduced, or made static again."""
        x, b = self.any(lambda x: x.shape.rank > 0), self.builder
        if not x.shape.rank or not self.is_entry:
            return None
        d = int(self.rng.integers(x.shape.rank))
        n = x.shape.dimensions[d]
        size = self.parameter(hl.s32, [], array=np.asarray(self.rng.integers(0, n + 1), np.int32))
        y = b.set_dimension_size(x, size, d)
        y = b.neg(self.bounded(y)) if self.smooth else self.unary(b, y)
        operand, init, combine = self.reducer(y, n)
        return b.reduce(y, init, combine, [d]) if operand is y else None

    def do_barrier(self) -> hl.XlaOp:
        return self.builder.optimization_barrier(self.any())

    def do_dimension_size(self) -> hl.XlaOp | None:
        x = self.any(lambda x: x.shape.rank > 0)
        return self.builder.get_dimension_size(x, 0) if x.shape.rank else None

    # Computations

    def scope(self, builder: Any, pool: list[hl.XlaOp]) -> ProgramGenerator:
        """A generator for a computation inside: it draws from the same numbers."""
        inner = object.__new__(type(self))
        inner.__dict__.update(self.__dict__)
        inner.builder, inner.pool, inner.is_entry, inner.depth = builder, pool, False, self.depth + 1
        return inner

    def in_scope(self, builder: Any, values: list[hl.XlaOp], wanted: list[hl.Shape], steps: int) -> hl.XlaOp:
        """Values of the shapes wanted, computed from `values`."""
        inner = self.scope(builder, list(values))
        for _ in range(steps):
            inner.step()
        results = []
        for shape in wanted:
            same = [x for x in inner.pool if x.shape.dimensions == shape.dimensions]
            x = (
                inner.pick(same)
                if same and inner.rng.random() < 0.85
                else inner.leaf(list(shape.dimensions), shape.element_type)
            )
            results.append(inner.cast(x, shape.element_type))
        return builder.tuple(*results)

    def do_call(self) -> list[hl.XlaOp] | None:
        if self.depth > 2:
            return None
        chosen = [self.any() for _ in range(int(self.rng.integers(1, 4)))]
        wanted = [self.any().shape for _ in range(int(self.rng.integers(1, 3)))]

        def body(*values: hl.XlaOp) -> hl.XlaOp:
            return self.in_scope(values[0].builder, list(values), wanted, 3)

        made = self.builder.call(body, *chosen)
        return [self.builder.get_tuple_element(made, k) for k in range(len(wanted))]

    def do_map(self) -> hl.XlaOp:
        x = self.any()
        y = self.like(x)

        def mapped(p: hl.XlaOp, q: hl.XlaOp) -> hl.XlaOp:
            return self.cast_in(
                p.builder, self.binary(p.builder, p, self.cast_in(p.builder, self.unary(p.builder, q), p)), p
            )

        return self.builder.map([x, y], mapped, list(range(x.shape.rank)))

    def cast_in(self, builder: Any, x: hl.XlaOp, like: hl.XlaOp) -> hl.XlaOp:
        source, target = x.shape.element_type, like.shape.element_type
        if source.is_complex and not target.is_complex:
            x = builder.real(x)
        return x if x.shape.element_type is target else builder.convert_element_type(x, target)

    def do_conditional(self) -> list[hl.XlaOp] | None:
        if self.depth > 2:
            return None
        b = self.builder
        chosen = [self.any() for _ in range(int(self.rng.integers(1, 4)))]
        wanted = [self.any().shape for _ in range(int(self.rng.integers(1, 3)))]
        operand = b.tuple(*chosen)

        def branch(state: hl.XlaOp) -> hl.XlaOp:
            values = [state[k] for k in range(len(chosen))]
            return self.in_scope(state.builder, values, wanted, int(self.rng.integers(0, 4)))

        if self.rng.random() < 0.5:
            made = b.conditional(self.cast(self.scalar(hl.pred), hl.pred), operand, branch, operand, branch)
        else:
            count = int(self.rng.integers(1, 4))
            made = b.conditional(self.index(count), [branch] * count, [operand] * count)
        return [b.get_tuple_element(made, k) for k in range(len(wanted))]

    def do_while(self) -> list[hl.XlaOp] | None:
        """A loop over a counter and several arrays: kept, exchanged, computed anew, changed in place."""
        if self.depth > self.DEEPEST_LOOP:
            return None
        b = self.builder
        state = [self.any() for _ in range(int(self.rng.integers(1, 5)))]
        if self.rng.random() < 0.5:
            state.append(self.like(state[0]))
        if self.rng.random() < 0.3:
            state.append(state[0])
        state = [x for x in state if x.shape.element_count <= 5000] or [self.leaf([3])]
        limit, bound_in_state = int(self.pick([0, 1, 2, 3, 5])), self.rng.random() < 0.3
        init = b.tuple(b.constant(np.int32(0)), b.constant(np.int32(limit)), *state)
        shapes = [x.shape for x in state]

        def condition(t: hl.XlaOp) -> hl.XlaOp:
            return t[0] < (t[1] if bound_in_state else limit)

        def body(t: hl.XlaOp) -> hl.XlaOp:
            c = t.builder
            counter, values = t[0], [t[k + 2] for k in range(len(shapes))]
            inner = self.scope(c, [*values, counter])
            for _ in range(int(self.rng.integers(0, 6))):
                inner.step()
            results = []
            for k, shape in enumerate(shapes):
                kind = inner.rng.random()
                same = [x for x in inner.pool if x.shape.dimensions == shape.dimensions]
                swaps = [x for x, s in zip(values, shapes) if s.compatible(shape)]
                if kind < 0.15:
                    x = values[k]
                elif kind < 0.4:
                    x = inner.pick(swaps)
                elif kind < 0.6 and shape.rank and shape.element_count:
                    parts = [1 if d == 0 else n for d, n in enumerate(shape.dimensions)]
                    source = inner.pick(swaps) if inner.rng.random() < 0.5 else inner.pick(same)
                    source = inner.cast(source, shape.element_type)
                    row = c.dynamic_slice(
                        source, [inner.index(n) if inner.rng.random() < 0.5 else counter for n in parts], parts
                    )
                    row = inner.cast(inner.binary(c, row, inner.like(row)), shape.element_type)
                    x = c.dynamic_update_slice(values[k], row, [counter, *[c.constant(np.int32(0))] * (shape.rank - 1)])
                else:
                    x = inner.pick(same)
                results.append(inner.cast(x, shape.element_type))
            return c.tuple(counter + np.int32(1), t[1], *results)

        made = b.while_(condition, body, init)
        return [b.get_tuple_element(made, k + 2) for k in range(len(state))]


class LoopGenerator(ProgramGenerator):
    """Programs of loops, branches and updates in place on small arrays: what buffer sharing works on."""

    WEIGHTS = {
        "do_while": 5, "do_conditional": 3, "do_dynamic_update_slice": 4, "do_dynamic_slice": 3, "do_binary": 5, "do_call": 1,
        "do_reverse": 2, "do_transpose": 2, "do_concatenate": 1, "do_slice": 1, "do_reduce": 2, "do_sort": 0.5, "do_select": 1,
        "do_unary": 1, "do_normalize": 1, "do_dot": 0.5, "do_dynamic": 0.0,
    }  # fmt: skip
    DEEPEST_LOOP = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.limit = int(self.pick([12, 40, 100, 1000]))
        self.types = self.pick([[hl.s32], [hl.f32], [hl.f32, hl.s32], [hl.s8, hl.s32], [hl.s64]])

    def draw_sizes(self) -> list[int]:
        return self.pick([[3], [4], [5], [2, 3], [3, 3], [4, 4], [2, 2, 2], [17], [40], [], [8, 5]])


def draw_loops(seed: int) -> tuple[hl.Module, list[np.ndarray]]:
    """A program of loops with its inputs."""
    generator = LoopGenerator(seed)
    return generator.program(), generator.inputs


def draw_program(seed: int, smooth: bool = False) -> tuple[hl.Module, list[np.ndarray]]:
    """The program of a seed with its inputs."""
    generator = ProgramGenerator(seed, smooth)
    return generator.program(), generator.inputs
