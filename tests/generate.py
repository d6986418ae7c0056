"""Random modules: valid programs over element types, shapes (sizes of 0 and ranks 0 to 6 among them) and attributes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import hloom as hl
from hloom.numerics import convert
from hloom.types import PrimitiveType

FLOATS = [hl.f32, hl.f32, hl.f64, hl.f16, hl.bf16]
INTEGERS = [hl.s8, hl.s16, hl.s32, hl.s64, hl.u8, hl.u16, hl.u32, hl.u64]
COMPLEX = [hl.c64, hl.c128]


@dataclass
class Case:
    """A program with its inputs; `name` describes its operations, `rtol` is the relative tolerance of results."""

    name: str
    computation: hl.XlaComputation
    inputs: list[np.ndarray]
    rtol: float
    atol: float


class Generator:
    """Draws cases; the same seed gives the same case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.builder = hl.XlaBuilder("generated")
        self.inputs: list[np.ndarray] = []
        self.atol = 0.0

    def case(self) -> Case:
        families = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("draw_")]
        family: Callable[[], hl.XlaOp] = families[self.rng.integers(len(families))]
        self.rtol = 0.0
        root = family()
        rtol = max([self.rtol, *(_tolerance(leaf.element_type) for leaf in root.shape.leaves())])
        return Case(family.__name__, self.builder.build(root), self.inputs, rtol, max(self.atol, rtol * 0.1))

    # Pieces

    def pick(self, options: Any) -> Any:
        return options[self.rng.integers(len(options))]

    def sizes(self, low: int = 0, high: int = 6, empty: bool = True) -> list[int]:
        rank = int(self.rng.integers(low, high + 1))
        bound = {0: 1, 1: 40, 2: 12, 3: 7, 4: 5, 5: 4, 6: 3}[rank]
        sizes = [int(self.rng.integers(1, bound + 1)) for _ in range(rank)]
        if empty and rank and self.rng.random() < 0.06:
            sizes[self.rng.integers(rank)] = 0
        return sizes

    def array(self, element_type: PrimitiveType, sizes: list[int], special: bool = False) -> np.ndarray:
        if element_type.is_pred:
            return np.asarray(self.rng.random(sizes) < 0.5)
        if element_type.is_integer:
            limits = np.iinfo(element_type.dtype)
            wide = self.rng.random() < 0.4
            low, high = (limits.min, limits.max) if wide else (max(limits.min, -20), min(limits.max, 20))
            return np.asarray(self.rng.integers(low, high, sizes, element_type.dtype, endpoint=True))
        values = self.rng.standard_normal(sizes) * self.pick([0.5, 1.0, 3.0])
        if element_type.is_complex:
            return np.asarray(values + 1j * self.rng.standard_normal(sizes)).astype(element_type.dtype)
        if special and self.rng.random() < 0.5:
            chosen = self.rng.random(sizes) < 0.3
            specials = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.5, -1.5, 1e30, 100.0])
            values = np.where(chosen, specials[self.rng.integers(len(specials), size=sizes)], values)
        return convert(np.asarray(values, np.float64), element_type.dtype)

    def parameter(
        self, element_type: PrimitiveType, sizes: list[int], special: bool = False, array: np.ndarray | None = None
    ) -> hl.XlaOp:
        value = self.array(element_type, sizes, special) if array is None else array
        self.inputs.append(value)
        return self.builder.parameter(len(self.inputs) - 1, hl.Literal.from_numpy(value).shape)

    def any_type(self) -> PrimitiveType:
        return self.pick([*FLOATS, *INTEGERS, *COMPLEX, hl.pred])

    # Families

    def draw_unary(self) -> hl.XlaOp:
        names = "abs cbrt ceil cos erf exp expm1 floor is_finite log log1p logistic neg round round_nearest_even"
        names += " rsqrt sign sin sqrt tan tanh real imag"
        kind = self.pick(["float", "integer", "complex"])
        if kind == "float":
            method, element_type = self.pick(names.split()), self.pick(FLOATS)
        elif kind == "integer":
            method, element_type = (
                self.pick(["clz", "population_count", "not_", "neg", "abs", "sign"]),
                self.pick(INTEGERS),
            )
            if method in ("abs", "sign") and not element_type.is_signed:
                element_type = hl.s32
        else:
            method, element_type = (
                self.pick(["exp", "log", "sin", "cos", "tanh", "sqrt", "neg", "abs", "sign"]),
                self.pick(COMPLEX),
            )
            self.rtol = 1e-4
        x = self.parameter(element_type, self.sizes(), special=kind == "float")
        if method in ("sin", "cos", "tan"):
            # XLA's range reduction of huge arguments is not accurate.
            self.inputs[0] = np.where(np.abs(self.inputs[0]) > 1000, 1, self.inputs[0]).astype(element_type.dtype)
        return getattr(self.builder, method)(x)

    def draw_binary(self) -> hl.XlaOp:
        kind = self.pick(["float", "integer", "complex", "pred"])
        if kind == "float":
            method, element_type = (
                self.pick(["add", "sub", "mul", "div", "max", "min", "rem", "pow", "atan2"]),
                self.pick(FLOATS),
            )
        elif kind == "integer":
            names = "add sub mul div max min rem pow and_ or_ xor shift_left shift_right_arithmetic shift_right_logical"
            method, element_type = self.pick(names.split()), self.pick(INTEGERS)
        elif kind == "complex":
            method, element_type = self.pick(["add", "sub", "mul", "div"]), self.pick(COMPLEX)
            self.rtol, self.atol = 1e-4, 1e-4
        else:
            method, element_type = self.pick(["add", "mul", "max", "min", "and_", "or_", "xor"]), hl.pred
        sizes = self.sizes()
        special = kind == "float"
        x = self.parameter(element_type, sizes, special)
        y = self.parameter(element_type, sizes if self.rng.random() < 0.7 else [], special)
        return getattr(self.builder, method)(x, y)

    def draw_compare(self) -> hl.XlaOp:
        method = self.pick(["eq", "ne", "ge", "gt", "le", "lt"])
        element_type = self.any_type()
        if element_type.is_complex:
            method = self.pick(["eq", "ne"])
        elif element_type.is_float and self.rng.random() < 0.5:
            method += "_total_order"
        sizes = self.sizes()
        x, y = (self.parameter(element_type, sizes, special=True) for _ in range(2))
        return getattr(self.builder, method)(x, y)

    def draw_broadcasting(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4)
        rank = int(self.rng.integers(0, len(sizes) + 1))
        dims = sorted(self.rng.choice(len(sizes), rank, replace=False).tolist())
        lower = [1 if self.rng.random() < 0.3 else sizes[d] for d in dims]
        element_type = self.pick([hl.f32, hl.s32])
        x, y = self.parameter(element_type, sizes), self.parameter(element_type, lower)
        if rank == len(sizes):
            return self.builder.add(x, y)
        return self.builder.sub(y, x, dims) if rank else self.builder.sub(x, y)

    def draw_convert(self) -> hl.XlaOp:
        source, target = self.any_type(), self.any_type()
        if source.is_complex and target.is_pred:
            target = hl.f32  # XLA aborts on complex to pred
        x = self.parameter(source, self.sizes(), special=True)
        if source.is_float and target.is_integer:
            limit = 100 if target.bits == 8 else 30000 if target.bits == 16 else 1e9
            low = 0 if not target.is_signed else -limit
            clean = np.nan_to_num(self.inputs[0].astype(np.float64), posinf=limit, neginf=low)
            self.inputs[0] = np.clip(clean, low, limit).astype(source.dtype)
        return self.builder.convert_element_type(x, target)

    def draw_select(self) -> hl.XlaOp:
        sizes, element_type = self.sizes(), self.any_type()
        pred = self.parameter(hl.pred, sizes if self.rng.random() < 0.7 else [])
        x, y = (self.parameter(element_type, sizes) for _ in range(2))
        return self.builder.select(pred, x, y)

    def draw_clamp(self) -> hl.XlaOp:
        sizes, element_type = self.sizes(), self.pick([*FLOATS, *INTEGERS])
        low, high = (self.parameter(element_type, sizes if self.rng.random() < 0.5 else []) for _ in range(2))
        return self.builder.clamp(low, self.parameter(element_type, sizes, special=True), high)

    def draw_transpose(self) -> hl.XlaOp:
        sizes = self.sizes()
        x = self.parameter(self.any_type(), sizes)
        return self.builder.transpose(x, self.rng.permutation(len(sizes)).tolist())

    def draw_reshape(self) -> hl.XlaOp:
        sizes = self.sizes()
        x = self.parameter(self.any_type(), sizes)
        merged = [int(np.prod(sizes[: len(sizes) // 2], dtype=int)), 1, *sizes[len(sizes) // 2 :]]
        return self.builder.reshape(x, merged)

    def draw_reverse(self) -> hl.XlaOp:
        sizes = self.sizes()
        dims = [d for d in range(len(sizes)) if self.rng.random() < 0.5]
        return self.builder.rev(self.parameter(self.any_type(), sizes), dims)

    def draw_slice(self) -> hl.XlaOp:
        sizes = self.sizes()
        starts = [int(self.rng.integers(0, n + 1)) for n in sizes]
        limits = [int(self.rng.integers(s, n + 1)) for s, n in zip(starts, sizes)]
        strides = [int(self.rng.integers(1, 4)) for _ in sizes]
        return self.builder.slice(self.parameter(self.any_type(), sizes), starts, limits, strides)

    def draw_dynamic_slice(self) -> hl.XlaOp:
        sizes = self.sizes(low=1)
        parts = [int(self.rng.integers(0, n + 1)) for n in sizes]
        index_type = self.pick([hl.s32, hl.s64, hl.u32, hl.s8])
        x = self.parameter(self.any_type(), sizes)
        starts = [self.parameter(index_type, [], array=self._start(index_type, n)) for n in sizes]
        if self.rng.random() < 0.5:
            return self.builder.dynamic_slice(x, starts, parts)
        update = self.parameter(x.shape.element_type, parts)
        return self.builder.dynamic_update_slice(x, update, starts)

    def _start(self, index_type: PrimitiveType, size: int) -> np.ndarray:
        low = -3 if index_type.is_signed else 0
        return np.asarray(self.rng.integers(low, size + 3), index_type.dtype)

    def draw_pad(self) -> hl.XlaOp:
        sizes = self.sizes(low=1)  # XLA's parser does not read the empty padding of a scalar
        config = []
        for n in sizes:
            interior = int(self.rng.integers(0, 3))
            width = (n - 1) * (interior + 1) + 1 if n else 0
            low = int(self.rng.integers(-min(2, width), 4))
            high = int(self.rng.integers(-min(2, max(0, width + low)), 4))
            config.append((low, high, interior))
        element_type = self.any_type()
        x, value = self.parameter(element_type, sizes), self.parameter(element_type, [])
        return self.builder.pad(x, value, config)

    def draw_concatenate(self) -> hl.XlaOp:
        sizes = self.sizes(low=1)
        d = int(self.rng.integers(len(sizes)))
        element_type = self.any_type()
        parts = []
        for _ in range(int(self.rng.integers(1, 4))):
            own = list(sizes)
            own[d] = int(self.rng.integers(0, 5))
            parts.append(self.parameter(element_type, own))
        return self.builder.concat_in_dim(parts, d)

    def draw_iota(self) -> hl.XlaOp:
        sizes = self.sizes(low=1)
        element_type = self.pick([*FLOATS, *INTEGERS, *COMPLEX])
        return self.builder.iota(hl.Shape.array(element_type, sizes), int(self.rng.integers(len(sizes))))

    def draw_reduce(self) -> hl.XlaOp:
        sizes = self.sizes()
        dims = [d for d in range(len(sizes)) if self.rng.random() < 0.5]
        element_type = self.pick([hl.f32, hl.f64, *INTEGERS])
        names = ["add", "max", "min", "mul"] if element_type.is_integer else ["add", "max", "min"]
        method = self.pick(names)
        self.rtol = self.atol = 1e-4 if element_type.is_float else 0.0
        x = self.parameter(element_type, sizes)
        # How often the initial value enters is free (REDUCE-3), so it has to be the identity.
        limits = np.finfo(element_type.dtype) if element_type.is_float else np.iinfo(element_type.dtype)
        identity = {"add": 0, "mul": 1, "max": limits.min, "min": limits.max}[method]
        init = self.parameter(element_type, [], array=np.asarray(identity, element_type.dtype))
        return self.builder.reduce(x, init, lambda a, b: getattr(a.builder, method)(a, b), dims)

    def draw_variadic_reduce(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, empty=False)
        d = int(self.rng.integers(len(sizes)))
        x = self.parameter(hl.f32, sizes)
        index = self.builder.iota(hl.Shape.array(hl.s32, sizes), d)

        def best(m: hl.XlaOp, i: hl.XlaOp, v: hl.XlaOp, j: hl.XlaOp) -> hl.XlaOp:
            b = m.builder
            keep = b.or_(m > v, b.and_(b.eq(m, v), i < j))
            return b.tuple(b.select(keep, m, v), b.select(keep, i, j))

        return self.builder.reduce([x, index], [-np.inf, 2**31 - 1], best, [d])

    def _window(self, sizes: list[int], dilate: bool = True) -> dict[str, Any]:
        window, padding = [], []
        for n in sizes:
            w = int(self.rng.integers(1, 4))
            window.append(w)
            padding.append((int(self.rng.integers(0, w)), int(self.rng.integers(0, w))))
            del n
        drawn: dict[str, Any] = {
            "window_dimensions": window,
            "window_strides": [int(self.rng.integers(1, 3)) for _ in sizes],
            "padding": self.pick([padding, "SAME", "VALID"]),
        }
        if dilate and not isinstance(drawn["padding"], str):
            drawn["base_dilations"] = [int(self.rng.integers(1, 3)) for _ in sizes]
            drawn["window_dilations"] = [int(self.rng.integers(1, 3)) for _ in sizes]
        return drawn

    def draw_reduce_window(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4, empty=False)
        element_type = self.pick([hl.f32, hl.s32])
        method, init = self.pick([("add", 0), ("max", -100), ("min", 100)])
        self.rtol = self.atol = 1e-4 if element_type.is_float else 0.0
        x = self.parameter(element_type, sizes)
        init = np.asarray(init, element_type.dtype)
        return self.builder.reduce_window(x, init, lambda a, b: getattr(a.builder, method)(a, b), **self._window(sizes))

    def draw_select_and_scatter(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=3, empty=False)
        window = self._window(sizes, dilate=False)
        x = self.parameter(hl.f32, sizes)
        probe = hl.XlaBuilder("probe")
        counted = probe.reduce_window(
            probe.parameter(0, x.shape), np.float32(0), lambda a, b: a + b, **window
        ).shape.dimensions
        source = self.parameter(hl.f32, list(counted))
        self.atol = 1e-5
        b = self.builder
        return b.select_and_scatter(x, lambda p, q: p >= q, *window.values(), source, np.float32(0), lambda p, q: p + q)

    def draw_dot(self) -> hl.XlaOp:
        element_type = self.pick([hl.f32, hl.f64, hl.s32, hl.s8, hl.bf16, hl.f16, hl.c64])
        letters = "bmnk"
        size = {c: int(self.rng.integers(0 if self.rng.random() < 0.05 else 1, 8)) for c in letters}
        batched = self.rng.random() < 0.5
        lhs, rhs = list("bmk" if batched else "mk"), list("bkn" if batched else "kn")
        self.rng.shuffle(lhs)
        self.rng.shuffle(rhs)
        self.rtol, self.atol = (2e-2, 5e-2) if element_type.bits == 16 else (1e-4, 1e-4)
        x = self.parameter(element_type, [size[c] for c in lhs])
        y = self.parameter(element_type, [size[c] for c in rhs])
        dimension_numbers = {
            "lhs_contracting_dimensions": [lhs.index("k")],
            "rhs_contracting_dimensions": [rhs.index("k")],
            "lhs_batch_dimensions": [lhs.index("b")] if batched else [],
            "rhs_batch_dimensions": [rhs.index("b")] if batched else [],
        }
        return self.builder.dot_general(x, y, dimension_numbers)

    def draw_convolution(self) -> hl.XlaOp:
        spatial = int(self.rng.integers(0, 4))
        groups, batch_groups = self.pick([(1, 1), (2, 1), (3, 1), (1, 2)])
        per_group, outputs = int(self.rng.integers(1, 3)), int(self.rng.integers(1, 3)) * groups * batch_groups
        batch = int(self.rng.integers(1, 3)) * batch_groups
        element_type = self.pick([hl.f32, hl.f64])
        x = self.parameter(element_type, [batch, per_group * groups, *self.rng.integers(3, 7, spatial).tolist()])
        k = self.parameter(element_type, [outputs, per_group, *self.rng.integers(1, 4, spatial).tolist()])
        self.rtol = self.atol = 1e-4
        drawn = self.rng.integers
        return self.builder.conv_with_general_padding(
            x,
            k,
            drawn(1, 3, spatial).tolist(),
            [(int(drawn(-1, 3)), int(drawn(-1, 3))) for _ in range(spatial)],
            drawn(1, 3, spatial).tolist(),
            drawn(1, 3, spatial).tolist(),
            groups,
            batch_groups,
        )

    def draw_gather(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4, empty=False)
        rank = len(sizes)
        mapped = sorted(self.rng.choice(rank, self.rng.integers(1, rank + 1), replace=False).tolist())
        slices = [int(self.rng.integers(1, n + 1)) for n in sizes]
        collapsed = [d for d in mapped if self.rng.random() < 0.5]
        for d in collapsed:
            slices[d] = 1
        batch = self.rng.integers(1, 4, self.rng.integers(0, 3)).tolist()
        at = int(self.rng.integers(0, len(batch) + 1))
        index_sizes = [*batch[:at], len(mapped), *batch[at:]]
        indices = self.rng.integers(-2, max(sizes) + 2, index_sizes).astype(np.int32)
        offsets = rank - len(collapsed)
        result_rank = len(batch) + offsets
        offset_dims = sorted(self.rng.choice(result_rank, offsets, replace=False).tolist()) if offsets else []
        start_map = self.rng.permutation(mapped).tolist()
        x = self.parameter(self.pick([hl.f32, hl.s32]), sizes)
        return self.builder.gather(
            x, self.parameter(hl.s32, index_sizes, array=indices), at, offset_dims, slices, collapsed, start_map
        )

    def draw_scatter(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4, empty=False)
        rank = len(sizes)
        mapped = sorted(self.rng.choice(rank, self.rng.integers(1, rank + 1), replace=False).tolist())
        windows = [int(self.rng.integers(1, n + 1)) for n in sizes]
        inserted = [d for d in mapped if self.rng.random() < 0.5]
        batch = self.rng.integers(1, 4, self.rng.integers(0, 3)).tolist()
        index_sizes = [*batch, len(mapped)]
        indices = self.rng.integers(-1, max(sizes) + 1, index_sizes).astype(np.int32)
        kept = [windows[d] for d in range(rank) if d not in inserted]
        total = len(batch) + len(kept)
        window_dims = sorted(self.rng.choice(total, len(kept), replace=False).tolist()) if kept else []
        batch_left, kept_left = list(batch), list(kept)
        update_sizes = [kept_left.pop(0) if d in window_dims else batch_left.pop(0) for d in range(total)]
        element_type = self.pick([hl.s32, hl.f32])
        method = self.pick(["add", "max", "min"])
        self.atol = 1e-4 if element_type.is_float else 0.0
        x = self.parameter(element_type, sizes)
        i = self.parameter(hl.s32, index_sizes, array=indices)
        u = self.parameter(element_type, update_sizes)
        return self.builder.scatter(
            x, i, u, lambda a, b: getattr(a.builder, method)(a, b), len(batch), window_dims, inserted, mapped
        )

    def draw_sort(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4)
        d = int(self.rng.integers(-len(sizes), len(sizes)))
        x = self.parameter(self.pick([hl.f32, hl.s32, hl.s8, hl.u16, hl.f64]), sizes)
        y = self.parameter(hl.s32, sizes)
        method = self.pick(["lt", "gt"])
        return self.builder.sort([x, y], lambda a, b, c, e: getattr(a.builder, method)(a, b), d, is_stable=True)

    def draw_top_k(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=3, empty=False)
        k = int(self.rng.integers(1, sizes[-1] + 1))
        return self.builder.top_k(self.parameter(hl.f32, sizes), k)

    def draw_reduce_precision(self) -> hl.XlaOp:
        x = self.parameter(self.pick([hl.f32, hl.f64, hl.f16]), self.sizes(), special=True)
        exponent, mantissa = int(self.rng.integers(2, 9)), int(self.rng.integers(1, 24))
        return self.builder.reduce_precision(x, exponent, mantissa)

    def draw_fft(self) -> hl.XlaOp:
        sizes = self.sizes(low=1, high=4, empty=False)
        count = int(self.rng.integers(1, min(3, len(sizes)) + 1))
        kind = self.pick(["FFT", "IFFT", "RFFT"])
        self.rtol = self.atol = 1e-3
        x = self.parameter(hl.f32 if kind == "RFFT" else hl.c64, sizes)
        return self.builder.fft(x, kind, sizes[-count:])

    def draw_bitcast(self) -> hl.XlaOp:
        source, target = self.pick(
            [(hl.f32, hl.s32), (hl.s32, hl.u8), (hl.f64, hl.u32), (hl.u16, hl.bf16), (hl.f32, hl.s16)]
        )
        sizes = self.sizes(high=4)
        x = self.parameter(source, sizes)
        if target is hl.bf16:
            self.inputs[0] = (np.abs(self.array(hl.f32, sizes)) + 1).astype(hl.bf16.dtype).view(np.uint16)
        return self.builder.bitcast_convert_type(x, target)

    def draw_triangular_solve(self) -> hl.XlaOp:
        n, k, batch = int(self.rng.integers(1, 6)), int(self.rng.integers(1, 4)), self.sizes(high=2, empty=False)
        left = bool(self.rng.random() < 0.5)
        a = self.rng.standard_normal([*batch, n, n]) + 4 * np.eye(n)
        x = self.parameter(hl.f64, [], array=a)
        b = self.parameter(hl.f64, [*batch, n, k] if left else [*batch, k, n])
        lower, unit = (bool(self.rng.random() < 0.5) for _ in range(2))
        self.rtol = self.atol = 1e-7
        return self.builder.triangular_solve(x, b, left, lower, unit, self.pick(["NO_TRANSPOSE", "TRANSPOSE"]))

    def draw_while(self) -> hl.XlaOp:
        b = self.builder
        n, sizes = int(self.rng.integers(0, 6)), self.sizes(high=3)
        x = self.parameter(hl.f32, sizes)
        init = b.tuple(b.constant(0), x)
        self.rtol = self.atol = 1e-4
        return b.while_(lambda t: t[0] < n, lambda t: t.builder.tuple(t[0] + 1, t.builder.sin(t[1]) + 0.5), init)

    def draw_conditional(self) -> hl.XlaOp:
        b = self.builder
        x = self.parameter(hl.f32, self.sizes(high=3))
        index = self.parameter(hl.s32, [], array=np.asarray(self.rng.integers(-1, 4), np.int32))
        branches = [lambda v: v + v, lambda v: -v, lambda v: v * 3.0]
        return b.conditional(index, branches, [x, x, x])

    def draw_rng_bits(self) -> hl.XlaOp:
        state = self.rng.integers(0, 2**63, 2, np.uint64)
        algorithm = self.pick(["rng_three_fry", "rng_philox"])
        if algorithm == "rng_philox":
            state = np.append(state, self.rng.integers(0, 2**63, dtype=np.uint64))
        shape = hl.Shape.array(self.pick([hl.u32, hl.u64, hl.u8, hl.u16]), self.sizes(empty=False))
        return self.builder.rng_bit_generator(algorithm, self.parameter(hl.u64, [], array=state), shape)

    def draw_chain(self) -> hl.XlaOp:
        """Several operations after one another, on f32."""
        b, sizes = self.builder, self.sizes(low=1, high=3, empty=False)
        x = self.parameter(hl.f32, sizes)
        self.rtol = self.atol = 1e-3
        for _ in range(int(self.rng.integers(2, 7))):
            step = self.rng.integers(7)
            if step == 0:
                x = b.tanh(x) * 2.0
            elif step == 1:
                x = x + x * 0.5
            elif step == 2:
                x = b.transpose(x, self.rng.permutation(x.shape.rank).tolist())
            elif step == 3:
                x = b.broadcast(b.reduce(x, np.float32(0), lambda p, q: p + q, [0]), [2])
            elif step == 4:
                x = b.rev(x, [0])
            elif step == 5:
                x = b.max(x, 0.0) - b.exp(-b.abs(x))
            else:
                x = b.concat_in_dim([x, x], 0) if x.shape.element_count < 2000 else b.sqrt(b.abs(x))
        return x


def _tolerance(element_type: PrimitiveType) -> float:
    return {"f16": 4e-3, "bf16": 2e-2, "f32": 2e-5, "f64": 1e-10, "c64": 1e-4, "c128": 1e-9}.get(element_type.text, 0.0)


def draw_case(seed: int) -> Case:
    """The case of a seed."""
    return Generator(seed).case()
