"""Programs of every family of kernels: each over the element types that it takes, at sizes where loops have odd ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import hloom as hl
from backends.cpu.product_programs import EVERY, REAL_TYPES, SHORT_FLOATS, TYPES, ProductGenerator
from backends.cpu.random_programs import COMPLEX, FLOATS


class KernelGenerator(ProductGenerator):
    """Draws programs of one family; the same seed gives the same program."""

    # Order

    def make_sort(self) -> hl.XlaOp:
        """Keys of every type, with values beside them, along any dimension."""
        t = self.pick([*REAL_TYPES, *SHORT_FLOATS, hl.pred, hl.s4])
        sizes = self.pick([[self.size(1021)], [self.size(9), self.size(257)], [self.size(65), self.size(7)], [4099]])
        d = int(self.rng.integers(len(sizes)))
        keys = [self.values(t, sizes)]
        arrays = keys + [self.values(self.pick(TYPES), sizes) for _ in range(int(self.pick([0, 1, 1, 2])))]
        stable = bool(self.rng.random() < 0.5) or len(arrays) > 1
        return self.builder.sort(arrays, lambda a, b, *rest: a.builder.lt(a, b), d, is_stable=stable)

    def make_argsort(self) -> hl.XlaOp:
        b, sizes = self.builder, [self.size(9), self.size(1021)]
        x = self.values(self.pick(REAL_TYPES), sizes)
        order = b.iota(hl.Shape.array(hl.s32, sizes), 1)
        return b.sort([x, order], lambda a, c, *rest: a.builder.gt(a, c), 1, is_stable=True)

    def make_top_k(self) -> hl.XlaOp:
        n = self.size(1021, 0)
        x = self.values(self.pick([*FLOATS, hl.s32, hl.s8, hl.u16]), [self.size(9), n])
        return self.builder.top_k(x, int(self.rng.integers(0, min(n, 40) + 1)))

    def make_arg_max(self) -> hl.XlaOp:
        b, t, sizes, d = (
            self.builder,
            self.pick([hl.f32, hl.s32, hl.f64]),
            [self.size(65), self.size(129)],
            int(self.rng.integers(2)),
        )

        def better(m: hl.XlaOp, i: hl.XlaOp, v: hl.XlaOp, j: hl.XlaOp) -> hl.XlaOp:
            c = m.builder
            keep = c.or_(m > v, c.and_(c.eq(m, v), i < j))
            return c.tuple(c.select(keep, m, v), c.select(keep, i, j))

        least = np.asarray(-np.inf if t.is_float else np.iinfo(t.dtype).min, t.dtype)
        return b.reduce(
            [self.values(t, sizes), b.iota(hl.Shape.array(hl.s32, sizes), d)], [least, np.int32(2**31 - 1)], better, [d]
        )

    # Moving elements

    def indices(self, count: Sequence[int], limit: int) -> hl.XlaOp:
        """Indices, some of them out of bounds."""
        t = self.pick([hl.s32, hl.s64, hl.u32, hl.s16])
        low = -2 if t.is_signed else 0
        return self.parameter(t, [], array=self.rng.integers(low, limit + 3, list(count)).astype(t.dtype))

    def make_gather(self) -> hl.XlaOp:
        """Rows, columns, elements and windows."""
        rows, columns, count = self.size(129, 0), self.size(65, 0), self.size(129)
        x = self.values(self.pick(EVERY), [rows, columns])
        kind = self.some(["rows", "columns", "elements", "windows"])
        if kind == "elements":
            return self.builder.gather(x, self.indices([count, 2], min(rows, columns)), 1, [], [1, 1], [0, 1], [0, 1])
        d = int(kind == "columns")
        slices = [rows, columns]
        slices[d] = 1 if kind != "windows" else int(self.rng.integers(1, slices[d] + 1))
        collapsed = [d] if kind != "windows" else []
        offsets = [1] if collapsed else [1, 2]
        return self.builder.gather(x, self.indices([count, 1], [rows, columns][d]), 1, offsets, slices, collapsed, [d])

    def make_scatter(self) -> hl.XlaOp:
        """Rows or elements, added, multiplied, compared or put; in order, or some twice."""
        t, rows, columns, count = self.pick(TYPES), self.size(129, 0), self.size(65, 0), self.size(129)
        names = ["put", "add", "mul"] + ([] if t.is_complex else ["max", "min"])
        method = self.some(names)

        def combine(a: hl.XlaOp, c: hl.XlaOp) -> hl.XlaOp:
            return c if method == "put" else getattr(a.builder, method)(a, c)

        x = self.values(t, [rows, columns])
        if self.rng.random() < 0.3:
            at = self.indices([count, 2], min(rows, columns))
            return self.builder.scatter(x, at, self.values(t, [count]), combine, 1, [], [0, 1], [0, 1])
        at = self.indices([count, 1], rows)
        return self.builder.scatter(x, at, self.values(t, [count, columns]), combine, 1, [1], [0], [0])

    def make_select_and_scatter(self) -> hl.XlaOp:
        t, n, m = self.pick([hl.f32, hl.f64, hl.s32, hl.bf16]), self.size(33, 0), self.size(33, 0)
        window, strides = (
            [int(self.rng.integers(1, min(n, 3) + 1)), int(self.rng.integers(1, min(m, 3) + 1))],
            [int(s) for s in self.rng.integers(1, 3, 2)],
        )
        counts = [(size - w) // s + 1 for size, w, s in zip([n, m], window, strides, strict=True)]
        x, source = self.values(t, [2, n, m]), self.values(t, [2, *counts])
        return self.builder.select_and_scatter(
            x, lambda a, c: a >= c, [1, *window], [1, *strides], "VALID", source, self.zero(t), lambda a, c: a + c
        )

    def make_transpose(self) -> hl.XlaOp:
        sizes = self.pick(
            [
                [self.size(129), self.size(129)],
                [self.size(17), self.size(17), self.size(17)],
                [3, self.size(9), 5, self.size(9)],
            ]
        )
        return self.builder.transpose(self.values(self.pick(EVERY), sizes), self.rng.permutation(len(sizes)).tolist())

    def make_movement(self) -> hl.XlaOp:
        """Slices with strides, reversals, pads, concatenations, tiles, at all widths of elements."""
        b, t, m, n = self.builder, self.pick(EVERY), self.size(33, 0), self.size(129, 0)
        x = self.values(t, [m, n])
        kind = self.some(["slice", "rev", "pad", "concat", "tile", "dynamic", "copies"])
        if kind == "slice":
            first, step = int(self.rng.integers(n)), int(self.rng.integers(1, 5))
            return b.slice(x, [m // 2, first], [m, n], [1, step])
        if kind == "rev":
            return b.rev(x, [int(self.rng.integers(2))])
        if kind == "pad":
            return b.pad(x, self.zero(t), [(1, 0, 0), (int(self.rng.integers(-1, 4)), 2, int(self.rng.integers(3)))])
        if kind == "concat":
            return b.concat_in_dim([x, self.values(t, [m, self.size(33)]), x], 1)
        if kind == "tile":
            return b.reshape(b.broadcast_in_dim(x, [m, 3, n, 2], [0, 2]), [3 * m, 2 * n])
        if kind == "dynamic":
            at = self.indices([4], n)
            starts = [b.reshape(at[k], []) for k in range(4)]
            part = b.dynamic_slice(x, starts[:2], [(m + 1) // 2, (n + 1) // 2])
            return b.dynamic_update_slice(x, part, starts[2:])
        return b.tuple(
            x, x, b.reshape(x, [n, m]), b.constant(self.array(hl.f32, [n])), b.tuple(), b.transpose(x, [0, 1])
        )

    # Sums

    def make_reduce(self) -> hl.XlaOp:
        """Rows, columns, both, and the middle of three dimensions."""
        t = self.pick(EVERY)
        sizes = self.pick(
            [[self.size(129), self.size(509)], [self.size(1021)], [self.size(17), self.size(17), self.size(33)]]
        )
        over = [d for d in range(len(sizes)) if self.rng.random() < 0.5] or [int(self.rng.integers(len(sizes)))]
        method = self.some(["or_", "and_"] if t.is_pred else ["add", "mul"] if t.is_complex else ["add", "max", "min"])
        x = self.values(t, sizes)
        return self.builder.reduce(x, self.zero(t), lambda a, c: getattr(a.builder, method)(a, c), over)

    def make_reduce_window(self) -> hl.XlaOp:
        t, n, m = self.pick(REAL_TYPES), self.size(33, 0), self.size(65, 0)
        window = [int(self.rng.integers(1, min(n, 5) + 1)), int(self.rng.integers(1, min(m, 9) + 1))]
        method = self.some(["add", "max", "min", "mul"])
        padding = self.pick(["SAME", "VALID", [(window[0] - 1, 0), (0, window[1] - 1)]])
        strides = [int(s) for s in self.rng.integers(1, 4, 2)]
        x = self.values(t, [n, m])
        return self.builder.reduce_window(
            x, self.zero(t), lambda a, c: getattr(a.builder, method)(a, c), window, strides, padding=padding
        )

    def make_scan(self) -> hl.XlaOp:
        """Running sums, products and largest ones, along and across rows, from either end."""
        t, sizes, d = self.pick(REAL_TYPES), [self.size(65, 0), self.size(257, 0)], int(self.rng.integers(2))
        window, n = [1, 1], sizes[d]
        window[d] = n
        padding = [(0, 0), (0, 0)]
        padding[d] = (n - 1, 0) if self.rng.random() < 0.6 else (0, n - 1)
        method = self.some(["add", "mul", "max"])
        x = self.values(t, sizes)
        return self.builder.reduce_window(
            x, self.zero(t), lambda a, c: getattr(a.builder, method)(a, c), window, padding=padding
        )

    def make_softmax(self) -> hl.XlaOp:
        """Rows of a few elements, and long ones."""
        b, t, m, n = self.builder, self.pick(FLOATS), self.size(129, 0), self.pick([1, 2, 3, 5, 7, 10, 17, 31, 100])
        x = self.values(t, [m, n])
        top = b.reduce(x, np.asarray(-np.inf, t.dtype), lambda a, c: a.builder.max(a, c), [1])
        e = b.exp(x - b.broadcast_in_dim(top, [m, n], [0]))
        total = b.reduce(e, self.zero(t), lambda a, c: a + c, [1])
        return e / b.broadcast_in_dim(total, [m, n], [0])

    # Elements

    def make_elements(self) -> hl.XlaOp:
        """Conversions between all types, and what fuses with them."""
        b, sizes = self.builder, self.pick([[self.size(1021)], [self.size(33), self.size(33)], [4099]])
        source, target = self.pick(EVERY), self.pick(EVERY)
        x, y = self.values(source, sizes), self.values(source, sizes)
        chosen = b.select(self.values(hl.pred, sizes), x, y)
        if source.is_complex and not target.is_complex:
            chosen = b.real(chosen)
        return b.tuple(b.convert_element_type(chosen, target), b.eq(x, y))

    def make_functions(self) -> hl.XlaOp:
        t = self.pick([*FLOATS, *COMPLEX])
        names = ["exp", "log", "sin", "cos", "tanh", "sqrt", "rsqrt", "expm1", "log1p", "logistic"]
        names += [] if t.is_complex else ["erf", "cbrt", "tan", "floor"]
        return getattr(self.builder, self.some(names))(self.values(t, [self.size(33), self.size(65)]))

    def make_bits(self) -> hl.XlaOp:
        """Bits as elements of another width."""
        source, target = self.pick(
            [(hl.f32, hl.u8), (hl.f64, hl.u16), (hl.u8, hl.u32), (hl.s16, hl.f32), (hl.u64, hl.s32)]
        )
        sizes = [self.size(33), self.size(33)]
        if target.bits > source.bits:
            sizes.append(target.bits // source.bits)
        return self.builder.bitcast_convert_type(self.values(source, sizes), target)

    def make_random_bits(self) -> hl.XlaOp:
        algorithm = self.some(["rng_three_fry", "rng_philox", "rng_default"])
        state = self.rng.integers(0, 2**63, 3 if algorithm == "rng_philox" else 2, np.uint64)
        t = self.pick([hl.u8, hl.u16, hl.u32, hl.u64, hl.s32, hl.s8])
        shape = hl.Shape.array(t, [self.size(65), self.size(33)])
        return self.builder.rng_bit_generator(algorithm, self.parameter(hl.u64, [], array=state), shape)

    def make_random_values(self) -> hl.XlaOp:
        t = self.pick([hl.f32, hl.f64, hl.f16, hl.bf16])
        shape, low, high = hl.Shape.array(t, [self.size(509)]), self.zero(t), np.ones((), t.dtype)
        return (self.builder.rng_uniform if self.rng.random() < 0.5 else self.builder.rng_normal)(low, high, shape)

    # Large arrays

    def make_long_rows(self) -> hl.XlaOp:
        """Enough for several threads, in parts that are not equal."""
        b, t, n = self.builder, self.pick([hl.f32, hl.s32, hl.f64, hl.bf16]), int(self.pick([65537, 70001, 100003]))
        x = self.values(t, [n])
        kind = self.some(["elements", "sum", "sort", "scan", "rows"])
        if kind == "elements":
            return b.max(x * x, self.zero(t)) + b.rev(x, [0])
        if kind == "sum":
            return b.reduce(x, self.zero(t), lambda a, c: a + c, [0])
        if kind == "sort":
            return b.sort([x, b.iota(hl.Shape.array(hl.s32, [n]), 0)], lambda a, c, *rest: a < c, 0, is_stable=True)
        if kind == "scan":
            return b.reduce_window(x, self.zero(t), lambda a, c: a + c, [n], padding=[(n - 1, 0)])
        y = self.values(t, [331, 307])
        return b.tuple(b.transpose(y, [1, 0]), b.reduce(y, self.zero(t), lambda a, c: a + c, [0]))

    def make_past_caches(self) -> hl.XlaOp:
        """Results written by non-temporal stores of whole cache lines, with a remainder."""
        n = 3_500_000 + self.size(31, 0)
        x, y = (self.parameter(hl.f32, [], array=np.full(n, k, np.float32)) for k in (1, 2))
        return self.builder.optimization_barrier(x + y) * x

    # Fourier transforms

    def make_fft(self) -> hl.XlaOp:
        """A transform of one to three dimensions of any length, primes among them."""
        kind, wide = self.some(["FFT", "IFFT", "RFFT", "IRFFT"]), bool(self.rng.random() < 0.4)
        n = int(self.pick([*range(1, 40), 47, 60, 64, 97, 100, 128, 243, 251, 256, 509, 512, 1000, 1021, 1024]))
        sizes = [self.size(9, 0.01), n] if n > 64 or self.rng.random() < 0.5 else [self.size(5, 0), self.size(17, 0), n]
        count = int(self.rng.integers(1, len(sizes)))
        lengths = list(sizes[-count:])
        if kind == "IRFFT":
            sizes[-1] = n // 2 + 1
        t = (hl.f64 if wide else hl.f32) if kind == "RFFT" else hl.c128 if wide else hl.c64
        return self.builder.fft(self.values(t, sizes), kind, lengths)

    def make_large_fft(self) -> hl.XlaOp:
        """Primes that are made of other lengths, and lengths that are made of two."""
        n = int(self.pick([2053, 4099, 4096, 8192, 5000, 6561, 16384]))
        return self.builder.fft(self.values(self.pick(COMPLEX), [n]), self.some(["FFT", "IFFT"]), [n])

    # Dynamic sizes and control flow

    def make_dynamic_sizes(self) -> hl.XlaOp:
        """A part of a dimension is there; a sum, a sort, a product or a concatenation of it."""
        b, n, m = self.builder, self.size(129, 0), self.size(17, 0)
        count = self.parameter(hl.s32, [], array=np.asarray(self.rng.integers(0, n + 1), np.int32))
        t = self.pick([hl.f32, hl.s32, hl.f64])
        x = b.set_dimension_size(self.values(t, [n, m]), count, 0)
        kind = self.some(["sum", "sort", "product", "concatenate", "elements"])
        if kind == "sum":
            return b.reduce(x, self.zero(t), lambda a, c: a + c, [0])
        if kind == "sort":
            return b.reduce(b.sort([x], lambda a, c: a < c, 0), self.zero(t), lambda a, c: a.builder.max(a, c), [0, 1])
        if kind == "product":
            return b.dot_general(x, x, {"lhs_contracting_dimensions": [0], "rhs_contracting_dimensions": [0]})
        joined = b.concat_in_dim([x, self.values(t, [3, m])], 0) if kind == "concatenate" else x * x
        return b.reduce(joined, self.zero(t), lambda a, c: a + c, [1])

    def make_loop_in_place(self) -> hl.XlaOp:
        """A row of the state changes in each iteration, in every second one otherwise."""
        masked = bool(self.rng.random() < 0.5)
        b, t, n, m = self.builder, self.pick(REAL_TYPES), self.size(33, 0), self.size(65, 0)
        state = b.tuple(b.constant(np.int32(0)), self.values(t, [n, m]), self.values(t, [m]))

        def body(s: hl.XlaOp) -> hl.XlaOp:
            c, i = s.builder, s[0]
            row = c.dynamic_slice(s[1], [i, np.int32(0)], [1, m]) + c.reshape(s[2], [1, m])
            row = c.select(c.broadcast(c.eq(i & np.int32(1), np.int32(0)), [1, m]), row, row + row) if masked else row
            total = c.reduce(s[1], self.zero(t), lambda p, q: p + q, [0])
            return c.tuple(i + np.int32(1), c.dynamic_update_slice(s[1], row, [i, np.int32(0)]), total)

        return b.while_(lambda s: s[0] < np.int32(n), body, state)

    def make_loop_of_products(self) -> hl.XlaOp:
        """The right operand of the product stays as it is, so it may be packed once."""
        b, t, n = self.builder, self.pick([hl.f32, hl.f64, hl.bf16]), int(self.pick([5, 33, 129, 289]))
        state = b.tuple(b.constant(np.int32(0)), self.values(t, [n, n]), self.values(t, [n, n]))

        def body(s: hl.XlaOp) -> hl.XlaOp:
            c = s.builder
            return c.tuple(s[0] + np.int32(1), c.tanh(c.dot(s[1], s[2])), s[2])

        return b.while_(lambda s: s[0] < np.int32(20), body, state)

    def make_independent_iterations(self) -> hl.XlaOp:
        """Each iteration writes a part of its own: several run at once."""
        b, trips, k, n = (
            self.builder,
            int(self.pick([5, 8, 13])),
            int(self.pick([1, 3, 4])),
            int(self.pick([31, 32, 33])),
        )
        state = b.tuple(
            b.constant(np.int32(0)), self.values(hl.f32, [trips * k, n, n]), self.values(hl.f32, [trips * k, n, n])
        )
        dimension_numbers = {
            "lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0], "lhs_contracting_dimensions": [2],
            "rhs_contracting_dimensions": [1],
        }  # fmt: skip

        def body(s: hl.XlaOp) -> hl.XlaOp:
            c, zero = s.builder, np.int32(0)
            at = [s[0] * np.int32(k), zero, zero]
            part = c.dynamic_slice(s[1], at, [k, n, n])
            value = c.sin(c.dot_general(part, part, dimension_numbers))
            return c.tuple(s[0] + np.int32(1), s[1], c.dynamic_update_slice(s[2], value, at))

        return b.while_(lambda s: s[0] < np.int32(trips), body, state)[2]

    def make_subroutine(self) -> hl.XlaOp:
        """A function that is called, with memory of its caller's for its temporary arrays."""
        b, n = self.builder, self.size(33, 0)
        x, y = self.values(hl.f32, [n]), self.values(hl.f32, [n])

        def step(p: hl.XlaOp, q: hl.XlaOp) -> hl.XlaOp:
            c = p.builder
            total = c.reduce(c.sort([c.sin(p)], lambda a, d: a < d, 0), np.float32(0), lambda a, d: a + d, [0])
            return c.tuple(c.tanh(c.rev(q, [0]) + c.broadcast(total, [n])), c.sin(p))

        built = hl.XlaBuilder("step")
        called = built.build(step(built.parameter(0, x.shape), built.parameter(1, y.shape)))
        for _ in range(4):
            pair = b.call(called, x, y)
            pair.instruction.frontend_attributes["inlineable"] = "false"
            x, y = pair[0], pair[1]
        return b.tuple(x, y)


KERNELS = sorted(name for name in dir(KernelGenerator) if name.startswith("make_"))


def draw_kernel(seed: int) -> tuple[hl.Module, list[np.ndarray]]:
    """The program of a seed with its inputs; seeds cycle through the families."""
    generator = KernelGenerator(seed)
    family: Callable[[], hl.XlaOp] = getattr(generator, KERNELS[seed % len(KERNELS)])
    return generator.builder.build(family()).module, generator.inputs
