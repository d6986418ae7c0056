"""Checks of convolutions of each feature with a window of its own, against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

import hloom as hl
from backends.cpu.kernels.convolution.test_convolution import Case, check, operands
from backends.cpu.kernels.run_kernel import Kernel, interpreted
from hloom.backends.cpu.kernels.convolution import convolution
from hloom.backends.cpu.kernels.convolution.form import Form, normal_form
from hloom.lir import Type, type_of
from hloom.ops.convolution import Convolution
from hloom.target import Target
from hloom.values import Array

Plan = TypeVar("Plan")
TYPES = ["f32 f32 f32", "f64 f64 f64", "bf16 bf16 bf16", "f16 f32 f32", "s8 s8 s32", "u8 u8 u8"]


def planned(choose: Callable[[Form, Type, Target], Plan], case: Case) -> Plan:
    """Returns what `choose` plans for a convolution, with two threads."""
    root = hl.parse(case.text()).entry.root
    assert isinstance(root.op, Convolution)
    return choose(normal_form(root.op, root), type_of("float", 16), Target(64, 2))


def check_on_targets(case: Case, types: str) -> None:
    """Results are the interpreter's, with vectors and threads of several targets."""
    for vector_bytes, threads in ((16, 1), (32, 2), (64, 3)):
        check(replace(case, types=types), threads, vector_bytes)


def check_not_finite(case: Case, change: Callable[[Array, Array], None]) -> None:
    """Results are the interpreter's where `change` writes infinity and NaN to the image and the kernel."""
    text = case.text()
    image, kernel = operands(text)
    change(image, kernel)
    with np.errstate(all="ignore"):
        (found,), expected = Kernel(convolution.emit, text, 2)(image, kernel), interpreted(text, image, kernel)
    np.testing.assert_array_equal(found, expected[0] if isinstance(expected, (list, tuple)) else expected)


def check_threads(case: Case) -> None:
    """The number of threads does not change a bit."""
    text = case.text()
    arrays = [a + np.float32(0.1) for a in operands(text)]
    assert len({Kernel(convolution.emit, text, threads)(*arrays)[0].tobytes() for threads in (1, 2, 3)}) == 1
