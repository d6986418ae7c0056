"""Random numbers: rng, rng-bit-generator, rng-get-and-update-state (spec 102, 103, 104)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.numerics import convert, widen
from hloom.ops.attributes import RandomAlgorithm, RandomDistribution
from hloom.ops.context import Context
from hloom.ops.kinds import INT, EnumKind
from hloom.ops.operation import Operation, attribute
from hloom.ops.rules import check_array, check_same_type
from hloom.shape import Shape
from hloom.types import BY_DTYPE, PrimitiveType
from hloom.values import Array

LOW_WORD = np.uint64(0xFFFFFFFF)
WORD_BITS = np.uint64(32)


class Rng(Operation, opcode="rng"):
    """Draws random values from the generator of the execution: uniform over [a, b), or normal of mean a and deviation
    b.

    If b <= a, the uniform value is a (RNGUNIFORM-1 to -3, RNGNORMAL-1). The seed of the execution determines the values
    (RNGNORMAL-3).
    """

    see_also = ("rng-bit-generator", "rng-get-and-update-state")
    has_side_effect = True
    operands = {
        "a": "scalar of the result's type: lower bound, or mean",
        "b": "scalar of the result's type: upper bound, or standard deviation",
    }
    distribution: RandomDistribution = attribute(EnumKind(RandomDistribution), doc="uniform or normal")

    def check(self, result: Shape, a: Shape, b: Shape) -> None:
        normal = self.distribution is RandomDistribution.RNG_NORMAL
        clause = "RNGNORMAL-2" if normal else "RNGUNIFORM-2"
        check_array(self, clause, a, b, result)
        check_same_type(self, clause, a, b, result)
        if not a.is_scalar or not b.is_scalar:
            self.reject(clause, f"parameters are scalars, got {a} and {b}")
        if (normal and not result.element_type.is_float) or result.element_type.is_complex:
            self.reject(clause, f"{self.distribution.value} does not give {result.element_type}")

    def evaluate(self, ctx: Context, a: Array, b: Array) -> Array:
        sizes, element_type = ctx.shape.dimensions, ctx.shape.element_type
        if self.distribution is RandomDistribution.RNG_NORMAL:
            mu, sigma = float(widen(a)), float(widen(b))
            return convert(ctx.rng.standard_normal(sizes) * sigma + mu, element_type.dtype)
        if element_type.is_float:
            return _uniform_floats(ctx.rng, a, b, sizes)
        low, high = int(widen(a)), int(widen(b))
        if high <= low:
            return np.full(sizes, a)
        drawn = ctx.rng.integers(0, high - low - 1, sizes, np.uint64, endpoint=True)
        # Offsets wrap modulo 2^64, so the sum is correct for signed types too.
        shifted = drawn + np.uint64(low % 2**64)
        return shifted.astype(np.bool_ if element_type.is_pred else element_type.dtype)


def _uniform_floats(rng: np.random.Generator, a: Array, b: Array, sizes: tuple[int, ...]) -> Array:
    low, high = float(widen(a)), float(widen(b))
    if not high > low:
        return np.full(sizes, a)
    drawn = convert(low + rng.random(sizes) * (high - low), a.dtype)
    # Rounding to the narrower type may give b, which is excluded.
    return np.where(widen(drawn) >= high, a, drawn)


class RngBitGenerator(Operation, opcode="rng-bit-generator"):
    """Computes uniform random bits and a new state, a pure function of the state; (state, data) (RNGBITGENERATOR-1).

    The algorithms are ThreeFry-2x32 (state u64[2]) and Philox-4x32 (state u64[2] or u64[3]), bit for bit as XLA on CPUs
    (RNGBITGENERATOR-3 to -7); `rng_default` is Philox.
    """

    operands = {"initial_state": "state: u64[2], for Philox also u64[3]"}
    algorithm: RandomAlgorithm = attribute(
        EnumKind(RandomAlgorithm),
        proto="rng_algorithm",
        doc="generator: ThreeFry, Philox, or the default, which is Philox",
    )

    def check(self, result: Shape, initial_state: Shape) -> None:
        if not initial_state.is_array:
            self.reject("RNGBITGENERATOR-2", f"the state is an array, got {initial_state}")
        if not result.is_tuple or len(result.elements) != 2 or not result.elements[0].compatible(initial_state):
            self.reject("RNGBITGENERATOR-1", f"the result is ({initial_state}, data), got {result}")

    def check_run(self, replicas: int, partitions: int, result: Shape, operands: Sequence[Shape]) -> None:
        """Checks the state of the algorithm; XLA's verifier accepts any, because other targets have others."""
        if not result.elements[1].element_type.is_integer:
            self.reject("RNGBITGENERATOR-8", f"data are integers, got {result.elements[1]}")
        (state,) = operands
        if not self.has_state(state):
            valid = " or ".join(f"u64[{size}]" for size in self._state_sizes)
            self.reject("RNGBITGENERATOR-2", f"{self.algorithm.value} has the state {valid}, got {state}")

    def has_state(self, shape: Shape) -> bool:
        """Whether arrays of a shape are states of the algorithm."""
        return shape.element_type is PrimitiveType.U64 and shape.rank == 1 and shape.dimensions[0] in self._state_sizes

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (2,) if self.algorithm is RandomAlgorithm.RNG_THREE_FRY else (2, 3)

    def evaluate(self, ctx: Context, initial_state: Array) -> tuple[Array, Array]:
        data = ctx.shape.elements[1]
        generate = three_fry if self.algorithm is RandomAlgorithm.RNG_THREE_FRY else philox
        return generate(initial_state, data)


def three_fry(state: Array, shape: Shape) -> tuple[Array, Array]:
    """Returns the new state and the data of ThreeFry (RNGBITGENERATOR-4, -5)."""
    dtype, sizes = shape.element_type.dtype, shape.dimensions
    if shape.element_type.bits == 64:
        count = shape.element_count
        x0, x1 = _three_fry_block(state[0], state[1] + np.arange(count, dtype=np.uint64))
        data = (x0 | x1 << WORD_BITS).reshape(sizes)
    elif not sizes:
        count = 1
        data = _three_fry_block(state[0], state[1:2])[0][0]
    else:
        even = [d for d, size in enumerate(sizes) if size % 2 == 0]
        split = even[0] if even else sizes.index(max(sizes))
        half = [-(-size // 2) if d == split else size for d, size in enumerate(sizes)]
        count = math.prod(half)
        words = _three_fry_block(state[0], state[1] + np.arange(count, dtype=np.uint64))
        pairs = np.stack([word.reshape(half) for word in words], axis=split + 1)
        data = pairs.reshape([2 * n if d == split else n for d, n in enumerate(half)])
        data = data[(slice(None),) * split + (slice(sizes[split]),)]
    return np.array([state[0], state[1] + np.uint64(count)], np.uint64), _low_bits(data, dtype)


def _three_fry_block(key: Array, counter: Array) -> tuple[Array, Array]:
    """The two words of each block, as uint64 arrays of 32-bit values."""
    keys = [np.uint32(key & LOW_WORD), np.uint32(key >> WORD_BITS)]
    keys.append(keys[0] ^ keys[1] ^ np.uint32(0x1BD11BDA))
    x0 = (counter & LOW_WORD).astype(np.uint32) + keys[0]
    x1 = (counter >> WORD_BITS).astype(np.uint32) + keys[1]
    for i in range(5):
        for rotation in (13, 15, 26, 6) if i % 2 == 0 else (17, 29, 16, 24):
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation) | x1 >> np.uint32(32 - rotation)) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0.astype(np.uint64), x1.astype(np.uint64)


def philox(state: Array, shape: Shape) -> tuple[Array, Array]:
    """Returns the new state and the data of Philox (RNGBITGENERATOR-6, -7)."""
    wide = shape.element_type.bits == 64
    each = 2 if wide else 4
    count = -(-shape.element_count // each)
    high = int(state[2]) if len(state) == 3 else int(state[0])
    start = int(state[1]) + (high << 64)
    words = _philox_blocks(int(state[0]), start, count)
    if wide:
        data = np.stack([words[0] | words[1] << WORD_BITS, words[2] | words[3] << WORD_BITS], axis=1)
    else:
        data = np.stack(words, axis=1)
    data = data.reshape(-1)[: shape.element_count].reshape(shape.dimensions)
    end = (start + count) % 2**128
    new = [int(state[0]), end % 2**64, end >> 64][: len(state)]
    return np.array(new, np.uint64), _low_bits(data, shape.element_type.dtype)


def _philox_blocks(key: int, start: int, count: int) -> list[Array]:
    steps = np.arange(count, dtype=np.uint64)
    low = np.uint64(start % 2**64) + steps
    high = np.uint64(start >> 64) + (low < steps).astype(np.uint64)
    c = [low & LOW_WORD, low >> WORD_BITS, high & LOW_WORD, high >> WORD_BITS]
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        product0, product1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            product1 >> WORD_BITS ^ c[1] ^ np.uint64(k0),
            product1 & LOW_WORD,
            product0 >> WORD_BITS ^ c[3] ^ np.uint64(k1),
            product0 & LOW_WORD,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def _low_bits(words: Array, dtype: np.dtype[Any]) -> Array:
    """Truncates 64-bit words to an integer type; types narrower than a byte wrap."""
    if BY_DTYPE[dtype].bits < 8:
        return np.asarray(words).astype(np.uint8).astype(np.int8).astype(dtype)
    return np.asarray(words).astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)


class RngGetAndUpdateState(Operation, opcode="rng-get-and-update-state"):
    """Returns the random state of the execution, u64[2], and then adds `delta` to it (a later addition to XLA).

    The state is a counter of 128 bits, low word first; compilers expand rng into it and rng-bit-generator's algorithm,
    with the number of values as `delta`.
    """

    has_side_effect = True
    delta: int = attribute(INT, doc="what is added to the state")

    def infer(self) -> Shape:
        return Shape.array(PrimitiveType.U64, [2])

    def evaluate(self, ctx: Context) -> Array:
        state = ctx.update_rng_state(self.delta)
        return np.array([state % 2**64, state >> 64], np.uint64)
