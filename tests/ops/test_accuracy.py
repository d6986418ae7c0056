"""UNARY-2: the interpreter's functions of f32 and f64 against long double."""

from __future__ import annotations

import numpy as np
import pytest

import hloom as hl
from backends.cpu.elements.test_vector_math import REFERENCE, errors, pairs, samples
from hloom.ops.operation import OPERATIONS

Long = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(Long).nmant < 63, reason="needs a long double wider than f64")

LOOSER = {"power": 4, "atan2": 4, "tan": 4, "log-plus-one": 4, "exponential-minus-one": 4}
"""The functions for which the clause allows more than 2 ulps."""
WORST = {
    "tanh": {"f32": [0.06034773960709572, 0.12106563150882721], "f64": [-0.2108368009698547, -0.12056708747710013]},
    "logistic": {"f32": [-3.461493730545044, -90.5], "f64": [-2.7396957967796016, -720.0, -744.5]},
    "erf": {"f32": [0.05304], "f64": [0.05304, 0.2234809175808201]},
}
"""Operands where the last digits are hard to get."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(REFERENCE.keys() & OPERATIONS.keys()))
def test_the_interpreter_keeps_the_bound(name: str, dtype: type) -> None:
    operands = pairs(name, dtype, 1000) if name in ("atan2", "power") else (samples(dtype, 3000, 0),)
    with np.errstate(all="ignore"):
        got = OPERATIONS[name]().evaluate(None, *operands)
        error = errors(np.asarray(got), REFERENCE[name](*(x.astype(Long) for x in operands)))
    worst = int(np.argmax(error))
    assert error[worst] <= LOOSER.get(name, 2), [x[worst] for x in operands]


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", WORST)
def test_both_backends_keep_the_bound_where_it_is_hard(name: str, backend: str) -> None:
    for kind, dtype in (("f32", np.float32), ("f64", np.float64)):
        x = np.array(WORST[name][kind], dtype)
        text = f"HloModule m\nENTRY e {{ x = {kind}[{len(x)}] parameter(0)\n ROOT r = {kind}[{len(x)}] {name}(x) }}"
        got = hl.compile(text, backend)(x)
        assert errors(got, REFERENCE[name](x.astype(Long))).max() <= 2


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sign", [1e-40 + 0j, -1e-40j, 0j, complex(0, np.inf)], [1, -1j, 0, complex(0, np.nan)]),
        ("exponential-minus-one", [1e30 + 0j, complex(-np.inf, 0)], [complex(np.inf, 0), -1]),
        ("logistic", [-80 + 0j, 80 + 0j], [np.exp(-80.0), 1]),
    ],
)
def test_complex_values_of_any_magnitude(name: str, x: list[complex], expected: list[complex], backend: str) -> None:
    """SIGN-1, EXPM1-1, LOGISTIC-1: x / |x|, and what functions give for real numbers, part by part."""
    text = f"HloModule m\nENTRY e {{ x = c64[{len(x)}] parameter(0)\n ROOT r = c64[{len(x)}] {name}(x) }}"
    got = np.asarray(hl.compile(text, backend)(np.array(x, np.complex64)))
    np.testing.assert_allclose(got.real, np.real(expected), rtol=1e-6)
    np.testing.assert_allclose(got.imag, np.imag(expected), rtol=1e-6)
