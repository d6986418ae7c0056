"""`rng-bit-generator`: ThreeFry and Philox on vectors of counters, with the same bits as XLA's CPU backend."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.backends.cpu.elements.functions.lanes import Lanes
from hloom.backends.cpu.kernels.code import KernelCode, code_of, entry_function, has_native_arrays
from hloom.backends.cpu.kernels.kernel_function import KernelFunction, task_function
from hloom.ir import Instruction
from hloom.lir import I64, PTR, IndexValue, Value, constant, lane_indices, type_of
from hloom.ops.attributes import RandomAlgorithm
from hloom.ops.rng import RngBitGenerator
from hloom.shape import Shape
from hloom.target import Target
from hloom.types import BY_NAME

BLOCKS_PER_TASK = 1 << 13
"""Blocks of random bits that one task generates."""


def emit(op: RngBitGenerator, name: str, instruction: Instruction, target: Target) -> KernelCode | None:
    """Returns the code of an rng-bit-generator; None for integers narrower than a byte, and what cannot run."""
    data = instruction.shape.elements[1].element_type
    if not (has_native_arrays(instruction) and data.is_integer and data.bits >= 8):
        return None
    if not op.has_state(instruction.operands[0].shape):
        return None
    writer = _ThreeFry if op.algorithm is RandomAlgorithm.RNG_THREE_FRY else _Philox
    return writer(name, instruction, target).code()


class _Generator:
    """Writes the functions of a generator, whose `count` blocks each yield several words of random bits."""

    count: int

    def __init__(self, name: str, instruction: Instruction, target: Target) -> None:
        self.name, self.instruction, self.threads = name, instruction, target.threads
        self.lanes = target.vector_bytes // 8
        self.data: Shape = instruction.shape.elements[1]
        self.width = instruction.operands[0].shape.dimensions[0]
        self.element = f"i{self.data.element_type.bits}"
        self.is_wide = self.data.element_type.bits == 64

    def code(self) -> KernelCode:
        f = entry_function(self.name, self.instruction)
        state = [f.load(f.at(f["operand0"], k, "i64"), I64, 8) for k in range(self.width)]
        tasks = -(-self.count // BLOCKS_PER_TASK)
        f.run_chunks(f"{self.name}.blocks", f.pack(f["result1"], *state), tasks, f.threads_if(self.threads > 1))
        for k, word in enumerate(self.next_state(f, state)):
            f.store(word, f.at(f["result0"], k, "i64"), 8)
        return code_of(self.name, [self._blocks(), f])

    def _blocks(self) -> KernelFunction:
        f = task_function(f"{self.name}.blocks")
        data, *state = f.unpack(f["context"], PTR, *[I64] * self.width)
        first = f.multiply(f["chunk"], BLOCKS_PER_TASK)
        with f.each(first, f.minimum(f.add(first, BLOCKS_PER_TASK), self.count), self.lanes) as start:
            self.blocks(f, data, state, start, f.subtract(self.count, start))
        return f

    def blocks(self, f: KernelFunction, data: Value, state: list[Value], start: Value, left: IndexValue) -> None:
        """Writes the data of a vector of blocks from index `start` on, of which `left` exist."""
        raise NotImplementedError

    def next_state(self, f: KernelFunction, state: list[Value]) -> list[Value]:
        raise NotImplementedError

    def block_indices(self, f: KernelFunction, start: Value) -> Value:
        """Indices of a vector of blocks."""
        vector = type_of("i64", self.lanes)
        return f.binary("add", f.splat(start, self.lanes), lane_indices(vector))

    def store(self, f: KernelFunction, words: Value, address: Value, left: IndexValue) -> None:
        """Stores the first `left` of some 32-bit or 64-bit words, truncated to the element type, consecutively."""
        bits = f.convert("trunc", words, self.element) if words.type.bits > type_of(self.element).bits else words
        f.store_first(bits, address, BY_NAME[f"u{bits.type.bits}"], left)


class _ThreeFry(_Generator):
    """Blocks of two words: the halves of a 64-bit element, or two elements that are `inner` apart."""

    def __init__(self, name: str, instruction: Instruction, target: Target) -> None:
        super().__init__(name, instruction, target)
        self.lanes = target.vector_bytes // 4
        sizes = list(self.data.dimensions) or [1]
        even = [d for d, size in enumerate(sizes) if size % 2 == 0]
        split = even[0] if even else sizes.index(max(sizes))
        self.size, self.inner = sizes[split], math.prod(sizes[split + 1 :])
        self.blocks_per_outer = -(-self.size // 2) * self.inner
        self.outer = math.prod(sizes[:split])
        self.count = math.prod(sizes) if self.is_wide else self.outer * self.blocks_per_outer

    def next_state(self, f: KernelFunction, state: list[Value]) -> list[Value]:
        return [state[0], f.binary("add", state[1], constant(I64, self.count))]

    def blocks(self, f: KernelFunction, data: Value, state: list[Value], start: Value, left: IndexValue) -> None:
        counter = f.binary("add", self.block_indices(f, start), f.splat(state[1], self.lanes))
        words = _three_fry(f, state[0], counter)
        is_side_by_side = self.inner == 1 and (self.outer == 1 or self.size % 2 == 0)
        if self.is_wide:
            low, high = (Lanes(f, f.convert("zext", word, "i64")) for word in words)
            self.store(f, (low | high << 32).value, f.at(data, start, self.element), left)
        elif is_side_by_side:
            offset = f.multiply(start, 2)
            whole = f.subtract(self.data.element_count, offset)
            self.store(f, _interleaved(f, words), f.at(data, offset, self.element), whole)
        elif self.inner % self.lanes == 0:
            self._store_contiguous(f, data, words, start)
        else:
            self._scatter(f, data, words, self.block_indices(f, start), f.first_lanes(left, self.lanes))

    def _word_offset(self, block: Lanes) -> tuple[Value, Value]:
        """Returns the element offset of a block's first word, and whether its second word, `inner` elements later,
        exists.
        """
        outer = block / self.blocks_per_outer
        within = block - outer * self.blocks_per_outer
        step = within / self.inner
        offset = outer * (self.size * self.inner) + within + step * self.inner
        return offset.value, step.compare("ult", self.size // 2).value

    def _store_contiguous(self, f: KernelFunction, data: Value, words: tuple[Value, Value], start: Value) -> None:
        offset, has_second = self._word_offset(Lanes(f, start))
        self.store(f, words[0], f.at(data, offset, self.element), self.lanes)
        with f.when(has_second):
            self.store(f, words[1], f.at(data, f.add(offset, self.inner), self.element), self.lanes)

    def _scatter(
        self, f: KernelFunction, data: Value, words: tuple[Value, Value], block_indices: Value, inside: Value
    ) -> None:
        offset, has_second = self._word_offset(Lanes(f, block_indices))
        second = f.binary("add", offset, constant(offset.type, self.inner))
        masks = inside, f.binary("and", inside, has_second)
        for word, offsets, mask in zip(words, (offset, second), masks, strict=True):
            bits = f.convert("trunc", word, self.element) if self.element != "i32" else word
            f.scatter(bits, f.element_pointer(data, offsets, self.element), bits.type.bits // 8, mask)


class _Philox(_Generator):
    """Blocks of four 32-bit words: two 64-bit elements, or four consecutive elements."""

    def __init__(self, name: str, instruction: Instruction, target: Target) -> None:
        super().__init__(name, instruction, target)
        self.each = 2 if self.is_wide else 4
        self.count = -(-self.data.element_count // self.each)

    def _counter_high(self, state: list[Value]) -> Value:
        return state[2] if len(state) == 3 else state[0]

    def next_state(self, f: KernelFunction, state: list[Value]) -> list[Value]:
        low = f.binary("add", state[1], constant(I64, self.count))
        carry = f.convert("zext", f.compare("ult", low, state[1]), "i64")
        return [state[0], low, f.binary("add", self._counter_high(state), carry)][: self.width]

    def blocks(self, f: KernelFunction, data: Value, state: list[Value], start: Value, left: IndexValue) -> None:
        steps = Lanes(f, self.block_indices(f, start))
        low = steps + Lanes(f, f.splat(state[1], self.lanes))
        carry = Lanes(f, f.convert("zext", f.compare("ult", low.value, steps.value), "i64"))
        high = carry + Lanes(f, f.splat(self._counter_high(state), self.lanes))
        words = _philox(f, state[0], [low & 0xFFFFFFFF, low >> 32, high & 0xFFFFFFFF, high >> 32])
        if self.is_wide:
            parts = [(words[0] | words[1] << 32).value, (words[2] | words[3] << 32).value]
        else:
            parts = [f.convert("trunc", word.value, "i32") for word in words]
        offset = f.multiply(start, self.each)
        self.store(
            f, _interleaved(f, parts), f.at(data, offset, self.element), f.subtract(self.data.element_count, offset)
        )


def _three_fry(f: KernelFunction, key: Value, counter: Value) -> tuple[Value, Value]:
    """Threefry-2x32-20 on the halves of 64-bit counters."""
    word = counter.type.of("i32")
    low, high = f.convert("trunc", key, "i32"), f.convert("trunc", f.binary("lshr", key, constant(I64, 32)), "i32")
    parity = f.binary("xor", f.binary("xor", low, high), constant(low.type, 0x1BD11BDA))
    keys = [Lanes(f, f.splat(k, word.width)) for k in (low, high, parity)]
    counters = Lanes(f, counter)
    x0 = Lanes(f, f.convert("trunc", counter, "i32")) + keys[0]
    x1 = Lanes(f, f.convert("trunc", (counters >> 32).value, "i32")) + keys[1]
    for i in range(5):
        for rotation in (13, 15, 26, 6) if i % 2 == 0 else (17, 29, 16, 24):
            x0 = x0 + x1
            x1 = _rotated(x1, rotation) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + (i + 1)
    return x0.value, x1.value


def _rotated(x: Lanes, count: int) -> Lanes:
    return (x << count) | (x >> (32 - count))


def _philox(f: KernelFunction, key: Value, counters: list[Lanes]) -> list[Lanes]:
    """Philox-4x32-10, with 32-bit words in 64-bit lanes."""
    lanes = counters[0].type.width
    low, high = f.binary("and", key, constant(I64, 0xFFFFFFFF)), f.binary("lshr", key, constant(I64, 32))
    k0, k1 = Lanes(f, f.splat(low, lanes)), Lanes(f, f.splat(high, lanes))
    c = counters
    for _ in range(10):
        product0, product1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [
            (product1 >> 32) ^ c[1] ^ k0,
            product1 & 0xFFFFFFFF,
            (product0 >> 32) ^ c[3] ^ k1,
            product0 & 0xFFFFFFFF,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def _interleaved(f: KernelFunction, parts: Sequence[Value]) -> Value:
    """Lane 0 of all parts, then lane 1 of all parts, and so on, for 2 or 4 parts."""
    width = parts[0].type.width
    pairs = [f.shuffle(a, b, range(2 * width)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    if len(pairs) == 1:
        return f.shuffle(pairs[0], None, [k // 2 + k % 2 * width for k in range(2 * width)])
    return f.shuffle(pairs[0], pairs[1], [k // 4 + k % 4 * width for k in range(4 * width)])
