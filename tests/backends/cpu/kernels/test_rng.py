"""Random bits against the interpreter, bit for bit: algorithms, types, shapes, carries of the counter, threads."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.kernels.run_kernel import check
from hloom.backends.cpu.kernels import rng
from hloom.lir import LirModule
from hloom.target import Target

SHAPES = [
    (),
    (1,),
    (2,),
    (3,),
    (7,),
    (16,),
    (33,),
    (1000,),
    (3, 5),
    (4, 3),
    (3, 4),
    (5, 3, 7),
    (2, 5, 6),
    (0,),
    (3, 0),
    (70001,),
    (5, 6001),
]


each_algorithm = pytest.mark.parametrize(
    ("algorithm", "width"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 3)]
)


def text(algorithm: str, state: int, type: str, sizes: tuple[int, ...]) -> str:
    dims = ",".join(map(str, sizes))
    return (
        f"HloModule m\nENTRY e {{\n  s = u64[{state}] parameter(0)\n"
        f"  ROOT r = (u64[{state}], {type}[{dims}]) rng-bit-generator(s), algorithm={algorithm}\n}}"
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("sizes", SHAPES)
@pytest.mark.parametrize(
    "type", ["u8", "u64", *(pytest.param(type, marks=pytest.mark.long) for type in ("u16", "u32"))]
)
@each_algorithm
def test_bits(algorithm: str, width: int, type: str, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(0).integers(0, 2**64, width, np.uint64, endpoint=False)
    check(rng.emit, text(algorithm, width, type, sizes), random, threads=(1, 2))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("type", ["u8", "u32", "u64"])
@each_algorithm
def test_signed_integers_have_the_code_of_unsigned_ones(algorithm: str, width: int, type: str) -> None:
    for sizes in SHAPES:
        for threads in (1, 2):
            plain, signed = (
                emitted(text(algorithm, width, each, sizes), threads) for each in (type, type.replace("u", "s"))
            )
            assert plain == signed


def emitted(text: str, threads: int) -> tuple[str, int]:
    """Returns the functions of a kernel in LLVM's syntax, and the size of its workspace."""
    root = hl.parse(text).entry.root
    code = rng.emit(root.op, "kernel", root, Target(32, threads))
    assert code is not None
    return LirModule([*code.functions]).text(), code.scratch_bytes


@pytest.mark.parametrize(("algorithm", "width"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3)])
def test_the_counter_carries(algorithm: str, width: int) -> None:
    state = np.array([5, 2**64 - 10, 2**64 - 1][:width], np.uint64)
    check(rng.emit, text(algorithm, width, "u32", (100,)), state)


@pytest.mark.parametrize("state", ["u64[]", "u64[1]", "u64[4]", "u64[2,1]", "u32[4]", "f32[]"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_states_of_other_shapes(algorithm: str, state: str) -> None:
    line = text(algorithm, 2, "u32", (4,)).replace("u64[2]", state)
    root = hl.parse(line).entry.root
    assert rng.emit(root.op, "kernel", root, Target(32, 1)) is None
    with pytest.raises(hl.RuleError, match="RNGBITGENERATOR-2"):
        hl.compile(line)
