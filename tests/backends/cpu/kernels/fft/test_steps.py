"""The plan of a transform: its steps and stages, followed in NumPy, give the transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.backends.cpu.kernels.fft.steps import BUFFER, Stage, Step, steps_of

Array = np.ndarray[Any, np.dtype[np.complex128]]


def run_stage(stage: Stage, factors: Array, source: Array, target: Array) -> None:
    r = stage.radix
    for row in range(stage.rows):
        for column in range(stage.columns):
            first, after = (d[0] * row + d[1] * column for d in (stage.source, stage.target))
            values = np.fft.fft(source[first : first + (r - 1) * stage.source[2] + 1 : stage.source[2]])
            if stage.factors == "of rows":
                values[1:] *= factors.reshape(-1, r - 1)[row]
            elif stage.factors == "of all":
                values *= factors.reshape(-1, r)[row * stage.columns + column]
            target[after : after + (r - 1) * stage.target[2] + 1 : stage.target[2]] = values


def run_step(step: Step, source: Array, target: Array) -> None:
    held = np.zeros((2, step.n * step.count), np.complex128)
    for batch in range(step.batches):
        first, last = (d[1] * batch * step.count for d in (step.source, step.target))
        before = source[first:]
        for k, (stage, factors) in enumerate(zip(step.stages(), step.factors, strict=True)):
            own = factors.reshape(step.batches, -1)[batch] if stage.factors == "of all" else factors
            after = target[last:] if k == len(step.radices) - 1 else held[k % 2]
            run_stage(stage, own, before, after)
            before = after


@pytest.mark.parametrize("n", [1, 2, 8, 9, 27, 31, 60, 64, 72, 81, 125, 243, 729, 961, 1024, 2048, 4096])
def test_plans_give_the_transform(n: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal(n) + 1j * random.standard_normal(n)
    want, result = np.fft.fft(x), np.zeros_like(x)
    *first, last = steps_of(n)
    for step in first:
        run_step(step, x, x)
    run_step(last, x, result)
    np.testing.assert_allclose(result, want, atol=1e-12 * np.abs(want).max())


@pytest.mark.parametrize("n", [2**k for k in range(13)])
def test_what_is_between_stages_fits_the_buffer(n: int) -> None:
    """Long sequences are read and written twice, whatever the number of stages."""
    steps = steps_of(n)
    assert len(steps) == (1 if n <= BUFFER else 2)
    assert all(step.n * step.count <= BUFFER for step in steps if step.buffers)


def test_the_next_row_or_column_is_prefetched() -> None:
    """Rows of a later batch would displace each other: powers of two apart, they share sets of a cache."""
    assert [next(step.stages()).source[3] for step in steps_of(1024)] == [16, 1]
    assert [next(step.stages()).source[3] for step in steps_of(256)] == [1, 1]


def test_powers_of_two_and_three_have_few_stages() -> None:
    stages = {n: sorted(radix for step in steps_of(n) for radix in step.radices) for n in (576, 1152, 2187)}
    assert stages == {576: [8, 8, 9], 1152: [4, 4, 8, 9], 2187: [3, 9, 9, 9]}
