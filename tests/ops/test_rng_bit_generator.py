"""Random bits: the algorithms as the specification writes them, on Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from built import built
from hloom.bench.peer_process import XlaPeer

MASK = 2**32 - 1


def rotated(x: int, by: int) -> int:
    return (x << by | x >> (32 - by)) & MASK


def three_fry(key: int, counter: int) -> list[int]:
    keys = [key & MASK, key >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    x = [((counter & MASK) + keys[0]) & MASK, ((counter >> 32) + keys[1]) & MASK]
    for i in range(5):
        for by in (17, 29, 16, 24) if i % 2 else (13, 15, 26, 6):
            x[0] = (x[0] + x[1]) & MASK
            x[1] = rotated(x[1], by) ^ x[0]
        x = [(x[0] + keys[(i + 1) % 3]) & MASK, (x[1] + keys[(i + 2) % 3] + i + 1) & MASK]
    return x


def philox(key: int, counter: int) -> list[int]:
    k0, k1 = key & MASK, key >> 32
    c = [counter >> 32 * i & MASK for i in range(4)]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k0, b & MASK, a >> 32 ^ c[3] ^ k1, a & MASK]
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c


def bits(backend: str, algorithm: str, state: list[int], size: int) -> tuple[np.ndarray, np.ndarray]:
    initial = np.array(state, np.uint64)
    program = built(lambda b, s: b.rng_bit_generator(algorithm, s, hl.u32[size]), initial)
    return hl.compile(program, backend=backend)(initial)


@pytest.mark.parametrize("size", [2, 8, 64])
def test_three_fry_is_the_block_of_the_specification(backend: str, size: int) -> None:
    """RNGBITGENERATOR-4: the first halves of the blocks come first, then the second halves."""
    state = [0x0123456789ABCDEF, 0xFEDCBA9876543210]
    _, data = bits(backend, "rng_three_fry", state, size)
    blocks = [three_fry(state[0], state[1] + i) for i in range(size // 2)]
    assert sorted(data.tolist()) == sorted(word for block in blocks for word in block)
    assert data[0] == blocks[0][0]


@pytest.mark.parametrize("size", [4, 64])
def test_philox_is_the_block_of_the_specification(backend: str, size: int) -> None:
    """RNGBITGENERATOR-6."""
    state = [0x0123456789ABCDEF, 5, 2**63 + 1]
    _, data = bits(backend, "rng_philox", state, size)
    blocks = [philox(state[0], state[1] + (state[2] << 64) + i) for i in range(size // 4)]
    assert data.tolist() == [word for block in blocks for word in block]


@pytest.mark.parametrize(("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 3)])
def test_equal_states_give_equal_bits_and_the_next_state_others(backend: str, algorithm: str, words: int) -> None:
    """RNGBITGENERATOR-1."""
    state = [1, 2, 3][:words]
    following, data = bits(backend, algorithm, state, 1000)
    again, same = bits(backend, algorithm, state, 1000)
    assert following.tolist() == again.tolist() != state and np.array_equal(data, same)
    _, other = bits(backend, algorithm, following.tolist(), 1000)
    assert len(np.intersect1d(data, other)) < 3


@pytest.mark.parametrize(("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 2)])
def test_bits_are_those_of_xla(algorithm: str, words: int, peer: XlaPeer) -> None:
    """RNGBITGENERATOR-3."""
    state = np.array([77, 2**40 + 3, 9][:words], np.uint64)
    for shape in ("u32[7]", "u64[5]", "u8[13]", "u16[3,3]"):
        text = f"""HloModule m
ENTRY e {{ s = u64[{words}] parameter(0)
  ROOT r = (u64[{words}], {shape}) rng-bit-generator(s), algorithm={algorithm} }}"""
        wanted = peer.run(text, [state])
        for backend in ("interpreter", "cpu"):
            for got, want in zip(hl.compile(text, backend=backend)(state), wanted, strict=True):
                assert np.array_equal(got, want), (backend, shape)
