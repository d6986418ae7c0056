"""Programs of products of matrices, convolutions, factors and solvers, at sizes where loops have odd ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import hloom as hl
from backends.cpu.random_programs import COMPLEX, FLOATS, INTEGERS, Generator
from hloom.ops.convolution import ConvolutionDimensionNumbers
from hloom.types import PrimitiveType

SIZES = [1, 2, 3, 5, 7, 8, 9, 11, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 97, 127, 128, 129, 191, 257, 509, 1021]
NARROW = [t for t in PrimitiveType if t.is_array and t.bits < 8 and not t.is_pred]
SHORT_FLOATS = [t for t in PrimitiveType if t.is_float and t.bits == 8]
REAL_TYPES = [*FLOATS, *INTEGERS]
TYPES = [*REAL_TYPES, *COMPLEX, hl.pred]
EVERY = [*TYPES, *NARROW, *SHORT_FLOATS]
REAL = [hl.f32, hl.f64]
SQUARE = ("syevd", "sytrd", "geev")
ROUTINES = {
    "getrf": ("Tmn", "Tmn ik i"),
    "geqrf": ("Tmn", "Tmn Tk"),
    "geqp3": ("Tmn in", "Tmn in Tk"),
    "orgqr": ("Tmn Tk", "Tmn"),
    "ormqr": ("Tmk Tk Tmn", "Tmn"),
    "gesdd": ("Tmn", "Tmn Rk Tmm Tnn i"),
    "gesvd": ("Tmn", "Tmn Rk Tmm Tnn i"),
    "syevd": ("Tnn", "Tnn Rn i"),
    "sytrd": ("Tnn", "Tnn Rn Rl Tl i"),
    "geev": ("Tnn", "Tn Tnn Tnn i"),
    "gtsv": ("Tn Tn Tn Tnm", "Tn Tn Tn Tnm i"),
}
"""Of LAPACK: operands and results, by element type and sizes; k is the smaller one of m and n, l is n - 1."""
LAPACK = {hl.f32: "s", hl.f64: "d", hl.c64: "c", hl.c128: "z"}


class ProductGenerator(Generator):
    """Draws programs of one family, and operands for those of any."""

    def size(self, most: int, empty: float = 0.03) -> int:
        """A size of at most `most`; 0 now and then."""
        return 0 if self.rng.random() < empty else int(self.pick([n for n in SIZES if n <= most]))

    def values(self, element_type: PrimitiveType, sizes: Sequence[int]) -> hl.XlaOp:
        sizes = list(sizes)
        if element_type.bits >= 8 or element_type.is_pred:
            return self.parameter(element_type, sizes)
        return self.parameter(element_type, sizes, array=self.rng.integers(0, 2, sizes).astype(element_type.dtype))

    def zero(self, element_type: PrimitiveType) -> np.ndarray:
        return np.zeros((), element_type.dtype)

    def some(self, options: Sequence[str]) -> str:
        return str(self.pick(list(options)))

    # Products

    def make_product(self) -> hl.XlaOp:
        """All layouts of operands, with and without a batch; large ones are packed."""
        element_type = self.pick([*TYPES[:-1], hl.s8, hl.bf16])
        most = self.pick([17, 65, 129, 257])
        batch = [self.size(5)] if most < 100 and self.rng.random() < 0.4 else []
        m, n, k = (self.size(most) for _ in range(3))
        lhs, rhs = self.order(m, k), self.order(k, n)
        dimension_numbers = {
            "lhs_contracting_dimensions": [len(batch) + (lhs == [m, k])],
            "rhs_contracting_dimensions": [len(batch) + (rhs != [k, n])],
            "lhs_batch_dimensions": list(range(len(batch))),
            "rhs_batch_dimensions": list(range(len(batch))),
        }
        if m == k:
            dimension_numbers["lhs_contracting_dimensions"] = [len(batch) + int(self.rng.integers(2))]
        if n == k:
            dimension_numbers["rhs_contracting_dimensions"] = [len(batch) + int(self.rng.integers(2))]
        x, y = self.values(element_type, [*batch, *lhs]), self.values(element_type, [*batch, *rhs])
        wide = {hl.s8: hl.s32, hl.bf16: hl.f32, hl.f16: hl.f32}.get(element_type)
        return self.builder.dot_general(
            x, y, dimension_numbers, preferred_element_type=wide if self.rng.random() < 0.7 else None
        )

    def order(self, a: int, b: int) -> list[int]:
        return [a, b] if self.rng.random() < 0.5 else [b, a]

    def make_vector_product(self) -> hl.XlaOp:
        """Matrix times vector, vector times matrix, rows of one, and vector times vector."""
        element_type, m, n = self.pick([*TYPES[:-1]]), self.size(509), self.size(509)
        kind = self.some(["matrix vector", "vector matrix", "row matrix", "matrix column", "vectors", "outer"])
        lhs, rhs = {
            "matrix vector": ([m, n], [n]), "vector matrix": ([n], [n, m]), "row matrix": ([1, n], [n, m]),
            "matrix column": ([m, n], [n, 1]), "vectors": ([n], [n]), "outer": ([m, 1], [1, n]),
        }[kind]  # fmt: skip
        return self.builder.dot(self.values(element_type, lhs), self.values(element_type, rhs))

    def make_fused_product(self) -> hl.XlaOp:
        """The arithmetic on operands and results, as in a layer."""
        b, t = self.builder, self.pick([hl.f32, hl.bf16, hl.f64])
        m, n, k = (self.size(129, 0) for _ in range(3))
        x, w, bias = self.values(t, [m, k]), self.values(t, [k, n]), self.values(t, [n])
        y = b.dot(b.max(x, self.zero(t)), w) + b.broadcast_in_dim(bias, [m, n], [1])
        return b.dot(b.tanh(y), self.values(t, [n, self.size(33, 0)]))

    # Convolutions

    def convolve(self, x: Sequence[int], k: Sequence[int], element_type: PrimitiveType, **more: object) -> hl.XlaOp:
        spatial = len(x) - 2
        last = self.rng.random() < 0.6
        order = [0, *range(2, spatial + 2), 1] if last else range(spatial + 2)
        dimension_numbers = ConvolutionDimensionNumbers.default(spatial)
        if last:
            inner = tuple(range(1, spatial + 1))
            dimension_numbers = ConvolutionDimensionNumbers(
                0, spatial + 1, inner, spatial + 1, spatial, tuple(range(spatial)), 0, spatial + 1, inner
            )
        image = self.values(element_type, [x[d] for d in order])
        window = self.values(element_type, [*k[2:], k[1], k[0]] if last else k)
        strides, padding = more.pop("strides", [1] * spatial), more.pop("padding", "SAME")
        return self.builder.conv_with_general_padding(
            image, window, strides, padding, dimension_numbers=dimension_numbers, **more
        )

    def make_convolution(self) -> hl.XlaOp:
        spatial = int(self.pick([1, 2, 2, 2, 3]))
        image = [self.size({1: 129, 2: 33, 3: 9}[spatial], 0.01) for _ in range(spatial)]
        window = [int(self.rng.integers(1, 5)) for _ in range(spatial)]
        strides = [int(self.rng.integers(1, 4)) for _ in range(spatial)]
        x, k = [self.size(3, 0.01), self.size(17, 0), *image], [self.size(33, 0), 0, *window]
        k[1] = x[1]
        padding = [(int(self.rng.integers(0, w)), int(self.rng.integers(0, w))) for w in window]
        fits = all(n + low + high >= w for n, w, (low, high) in zip(image, window, padding, strict=True))
        element_type = self.pick([hl.f32, *REAL_TYPES, *COMPLEX])
        return self.convolve(x, k, element_type, strides=strides, padding=padding if fits else "SAME")

    def make_grouped_convolution(self) -> hl.XlaOp:
        groups, each, out = self.size(9, 0), int(self.pick([1, 1, 2, 3])), int(self.pick([1, 2, 5]))
        x = [2, groups * each, self.size(17, 0), self.size(17, 0)]
        return self.convolve(x, [groups * out, each, 3, 3], self.pick(FLOATS), feature_group_count=groups)

    def make_depthwise_convolution(self) -> hl.XlaOp:
        channels, spatial = self.size(65, 0), int(self.rng.integers(1, 3))
        x = [1, channels, *(self.size(33, 0) for _ in range(spatial))]
        window = [int(self.pick([1, 3, 5])) for _ in range(spatial)]
        return self.convolve(x, [channels, 1, *window], self.pick(FLOATS), feature_group_count=channels)

    def make_dilated_convolution(self) -> hl.XlaOp:
        """Holes in the window, or in the image as in gradients of strided convolutions."""
        channels, n = self.size(17, 0), self.size(17, 0)
        dilation = [int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4))]
        which = self.some(["lhs_dilation", "rhs_dilation"])
        padding = [(6, 6), (6, 6)]
        return self.convolve(
            [1, channels, n, n],
            [self.size(9, 0), channels, 3, 2],
            self.pick(FLOATS),
            padding=padding,
            **{which: dilation},
        )

    def make_window_gradient(self) -> hl.XlaOp:
        """The window is as large as the image: images and features have changed sides."""
        n, channels, features, images = self.size(17, 0), self.size(17, 0), self.size(33, 0), self.size(5, 0)
        padding = [(1, 1), (1, 1)]
        return self.convolve(
            [channels, images, n, n], [features, images, n, n], self.pick([hl.f32, hl.f64, hl.bf16]), padding=padding
        )

    def make_winograd_convolution(self) -> hl.XlaOp:
        """3 x 3 windows with many features, forward or as a gradient of the window."""
        channels, features, n = (
            int(self.pick([31, 64, 65])),
            int(self.pick([47, 64, 97])),
            int(self.pick([7, 9, 11, 15, 16, 17])),
        )
        t, padding = self.pick(REAL), [(1, 1), (1, 1)]
        if self.rng.random() < 0.5:
            return self.convolve([1, channels, n, n + 1], [features, channels, 3, 3], t, padding=padding)
        return self.convolve([channels, 9, n, n], [features, 9, n, n], t, padding=padding)

    def make_batch_grouped_convolution(self) -> hl.XlaOp:
        groups, n = int(self.rng.integers(1, 4)), self.size(9, 0)
        x = [groups * 2, self.size(5, 0), n, n]
        return self.convolve(x, [groups * self.size(3, 0), x[1], 2, 2], self.pick(REAL), batch_group_count=groups)

    # Matrices

    def matrix(self, t: PrimitiveType, batch: Sequence[int], n: int, definite: bool = True) -> hl.XlaOp:
        a = self.rng.standard_normal([*batch, n, n])
        a = a @ np.swapaxes(a, -1, -2) + n * np.eye(n) if definite else a + n * np.eye(n)
        return self.parameter(t, [], array=a.astype(t.dtype))

    def make_cholesky(self) -> hl.XlaOp:
        batch = self.pick([[], [self.size(9)], [3, 2], [65]])
        return self.builder.cholesky(
            self.matrix(self.pick([*REAL, *COMPLEX]), batch, self.size(33)), bool(self.rng.random() < 0.5)
        )

    def make_triangular_solve(self) -> hl.XlaOp:
        t, n, k, batch = (
            self.pick([*REAL, *COMPLEX]),
            self.size(33),
            self.size(17),
            self.pick([[], [self.size(9)], [33]]),
        )
        left, lower, unit = (bool(self.rng.random() < 0.5) for _ in range(3))
        a, x = self.matrix(t, batch, n), self.values(t, [*batch, n, k] if left else [*batch, k, n])
        return self.builder.triangular_solve(
            a, x, left, lower, unit, self.some(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
        )

    def make_factors(self) -> hl.XlaOp:
        """Routines of LAPACK, with as many matrices as threads share, or few."""
        t, name = self.pick(list(LAPACK)), self.some(ROUTINES)
        m, n, batch = self.size(33, 0), self.size(33, 0), int(self.pick([1, 3, 17]))
        if name in SQUARE:
            n = m
        sizes = {
            "m": max(m, n) if name == "orgqr" else m,
            "n": min(m, n) if name == "orgqr" else n,
            "k": min(m, n),
            "l": n - 1,
        }
        operands, results = (
            [hl.Shape.array(*self.array_of(word, t, batch, sizes)) for word in words.split()]
            for words in ROUTINES[name]
        )
        if name == "geev" and not t.is_complex:
            results = [
                t[batch, n],
                t[batch, n],
                *(hl.Shape.array(t.complex, [batch, n, n]) for _ in range(2)),
                hl.s32[batch],
            ]
        unitary = {"orgqr": "ungqr", "ormqr": "unmqr", "syevd": "heevd", "sytrd": "hetrd"} if t.is_complex else {}
        values = (
            [self.matrix(t, [batch], m)]
            if name in SQUARE
            else [self.values(s.element_type, s.dimensions) for s in operands]
        )
        target = f"lapack_{LAPACK[t]}{unitary.get(name, name)}_ffi"
        return self.builder.custom_call(
            target, values, hl.Shape.tuple_of(results) if len(results) > 1 else results[0], opaque="{}"
        )

    def array_of(
        self, word: str, t: PrimitiveType, batch: int, sizes: dict[str, int]
    ) -> tuple[PrimitiveType, list[int]]:
        """The element type and sizes that a word of ROUTINES says: `T` of the matrices, `R` of their real parts, `i`."""
        return {"T": t, "R": t.real, "i": hl.s32}[word[0]], [batch, *(sizes[letter] for letter in word[1:])]
