"""Long chains of element-wise instructions are one kernel, whose code is emitted without recursion along them."""

import inspect
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import hloom as hl

LENGTH, FRAMES = 360, 150
OPERATIONS = ("multiply", "add", "xor")


@pytest.fixture
def few_frames() -> Iterator[None]:
    """Leaves fewer frames than a chain has instructions."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + FRAMES)
    yield
    sys.setrecursionlimit(limit)


def test_long_chains_are_emitted_without_recursion(few_frames: None) -> None:
    lines, last = ["x = u32[1000] parameter(0)", "y = u32[1000] parameter(1)"], "x"
    for k in range(LENGTH):
        lines.append(f"v{k} = u32[1000] {OPERATIONS[k % 3]}({last}, y)")
        last = f"v{k}"
    body = "\n".join(lines)
    run = hl.compile(f"HloModule m\nENTRY e {{\n{body}\nROOT r = u32[1000] add({last}, x)\n}}")
    x, y = (np.random.default_rng(seed).integers(0, 1 << 32, 1000, np.uint32) for seed in (1, 2))
    want = x
    for k in range(LENGTH):
        want = (np.multiply, np.add, np.bitwise_xor)[k % 3](want, y)
    np.testing.assert_array_equal(run(x, y), want + x)
