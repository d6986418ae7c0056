"""Random numbers: those of the execution are unknown; ThreeFry and Philox are functions of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hloom.ir import Instruction
from hloom.ops import elementwise_binary as binary
from hloom.ops.attributes import RandomAlgorithm
from hloom.ops.rng import Rng, RngBitGenerator, RngGetAndUpdateState
from hloom.prove.meanings.evaluator import RULES, Evaluator, Symbol
from hloom.prove.terms.functions import apply, converted, is_less, joined, part
from hloom.prove.terms.term import Term, Unknown, Unsupported, array_of, constant, node
from hloom.types import PrimitiveType
from hloom.values import Array

U32, U64 = PrimitiveType.U32, PrimitiveType.U64


@RULES.rule(Rng)
def _rng(op: Rng, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Array:
    """The n-th draw of a program is a function of its parameters and its shape."""
    shape = instruction.shape
    name = f"{evaluator.next_source('rng')} {op.distribution.value} {shape.without_layout()}"
    arguments = [operand[()] for operand in operands]
    terms = [node(shape.element_type, Unknown(f"{name}[{k}]"), arguments) for k in range(shape.element_count)]
    return array_of(terms, shape.dimensions)


@RULES.rule(RngGetAndUpdateState)
def _state(
    op: RngGetAndUpdateState, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]
) -> Array:
    delta = evaluator.sources.get("rng state", 0)
    evaluator.sources["rng state"] = delta + op.delta
    return array_of([node(U64, Unknown(f"rng state + {delta}, {half}"), ()) for half in ("low", "high")], (2,))


@RULES.rule(RngBitGenerator)
def _bits(op: RngBitGenerator, evaluator: Evaluator, instruction: Instruction, operands: Sequence[Symbol]) -> Symbol:
    """Raises Unsupported for states of other targets."""
    (state,), data = operands, instruction.shape.elements[1]
    is_three_fry = op.algorithm is RandomAlgorithm.RNG_THREE_FRY
    if instruction.operand_shapes[0].element_type is not U64 or state.size not in ((2,) if is_three_fry else (2, 3)):
        raise Unsupported(f"{op.algorithm.value} with the state {instruction.operand_shapes[0]}")
    generate = _three_fry if is_three_fry else _philox
    end, words = generate(list(state), data.dimensions, data.element_type.bits == 64)
    return (array_of(end, state.shape), array_of([converted(w, data.element_type) for w in words], data.dimensions))


def _op(operation: binary.Binary, x: Term, y: Term) -> Term:
    return apply(operation, x.type, (x, y))


def _sum(x: Term, y: Term | int) -> Term:
    return _op(binary.Add(), x, y if isinstance(y, Term) else constant(x.type, y))


def _xor(*terms: Term) -> Term:
    result = terms[0]
    for term in terms[1:]:
        result = _op(binary.Xor(), result, term)
    return result


def _halves(x: Term) -> list[Term]:
    return [part(x, U32, 0), part(x, U32, 1)]


def _three_fry(state: list[Term], sizes: tuple[int, ...], wide: bool) -> tuple[list[Term], list[Term]]:
    """Returns the new state and the words of the data, in row-major order (RNGBITGENERATOR-4, -5)."""
    if wide:
        count = math.prod(sizes)
        blocks = [_three_fry_block(state[0], _sum(state[1], k)) for k in range(count)]
        words = [joined(block, U64) for block in blocks]
    elif not sizes:
        count, words = 1, _three_fry_block(state[0], state[1])[:1]
    else:
        count, words = _split_words(state, sizes)
    return [state[0], _sum(state[1], count)], words


def _split_words(state: list[Term], sizes: tuple[int, ...]) -> tuple[int, list[Term]]:
    """Returns the number of blocks and their words; the two words of a block are neighbours along one dimension."""
    even = [d for d, size in enumerate(sizes) if size % 2 == 0]
    split = even[0] if even else sizes.index(max(sizes))
    half = [-(-size // 2) if d == split else size for d, size in enumerate(sizes)]
    count = math.prod(half)
    blocks = [_three_fry_block(state[0], _sum(state[1], k)) for k in range(count)]
    pairs = np.stack([array_of([b[k] for b in blocks], tuple(half)) for k in range(2)], axis=split + 1)
    whole = pairs.reshape([2 * n if d == split else n for d, n in enumerate(half)])
    return count, list(whole[(slice(None),) * split + (slice(sizes[split]),)].reshape(-1))


def _three_fry_block(key: Term, counter: Term) -> list[Term]:
    keys = _halves(key)
    keys.append(_xor(*keys, constant(U32, 0x1BD11BDA)))
    x0, x1 = (_sum(word, k) for word, k in zip(_halves(counter), keys, strict=False))
    for i in range(5):
        for rotation in (13, 15, 26, 6) if i % 2 == 0 else (17, 29, 16, 24):
            x0 = _sum(x0, x1)
            left = _op(binary.ShiftLeft(), x1, constant(U32, rotation))
            x1 = _xor(_op(binary.Or(), left, _op(binary.ShiftRightLogical(), x1, constant(U32, 32 - rotation))), x0)
        x0 = _sum(x0, keys[(i + 1) % 3])
        x1 = _sum(_sum(x1, keys[(i + 2) % 3]), i + 1)
    return [x0, x1]


def _philox(state: list[Term], sizes: tuple[int, ...], wide: bool) -> tuple[list[Term], list[Term]]:
    """Returns the new state and the words of the data (RNGBITGENERATOR-6, -7)."""
    elements = math.prod(sizes)
    count = -(-elements // (2 if wide else 4))
    low, high = state[1], state[2] if len(state) == 3 else state[0]
    words: list[Term] = []
    for k in range(count):
        block = _philox_block(state[0], *_advanced(low, high, k))
        words += [joined(block[:2], U64), joined(block[2:], U64)] if wide else block
    end = [state[0], *_advanced(low, high, count)]
    return end[: len(state)], words[:elements]


def _advanced(low: Term, high: Term, steps: int) -> tuple[Term, Term]:
    """Adds to a counter of 128 bits."""
    if not steps:
        return low, high
    total = _sum(low, steps)
    return total, _sum(high, converted(is_less(total, constant(U64, steps)), U64))


def _philox_block(key: Term, low: Term, high: Term) -> list[Term]:
    c, keys = [*_halves(low), *_halves(high)], _halves(key)
    for _ in range(10):
        products = [_product(c[0], 0xD2511F53), _product(c[2], 0xCD9E8D57)]
        c = [_xor(products[1][1], c[1], keys[0]), products[1][0], _xor(products[0][1], c[3], keys[1]), products[0][0]]
        keys = [_sum(keys[0], 0x9E3779B9), _sum(keys[1], 0xBB67AE85)]
    return c


def _product(x: Term, factor: int) -> list[Term]:
    """Returns the low and the high half of a product of 64 bits."""
    return _halves(_op(binary.Multiply(), converted(x, U64), constant(U64, factor)))
