"""The functions that are measured: operations of HLO, and functions of JAX that its platforms expand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from accuracy import samples

Array = np.ndarray[Any, np.dtype[Any]]
Arguments = Callable[[Any, int, int], tuple[Array, ...]]
"""Arguments for a type, a number of random ones of each kind, and a seed."""

LOOSER = {"power", "atan2", "erf", "tan", "log-plus-one", "exponential-minus-one"}
"""The operations on real numbers for which UNARY-2 allows 4 units in the last place; the others have 2."""


@dataclass(frozen=True)
class Function:
    """A function, as an HLO opcode or as JAX computes it, with its stated bound in units in the last place."""

    name: str
    bound: float
    arguments: Arguments
    of_jax: Callable[..., Any] | None = None
    """The function of JAX; None for the operation `name`."""
    bound_of_f32: float | None = None
    """The bound for f32, where it is another one."""
    least_for_xla: float = 0.0
    """The size of arguments closer to 0, for which XLA's program does not end."""

    def bound_for(self, dtype: Any) -> float:
        """The bound for a type."""
        return self.bound if np.dtype(dtype) != np.float32 or self.bound_of_f32 is None else self.bound_of_f32


def _real_values(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    return (samples.real_values(dtype, count, seed),)


def _pairs(name: str) -> Arguments:
    return lambda dtype, count, seed: samples.pairs(name, dtype, count, seed)


_UNARY = """
acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one logistic rsqrt
sine sinh sqrt tan tanh
"""

REAL = [
    *(Function(name, 4 if name in LOOSER else 2, _real_values) for name in _UNARY.split()),
    *(Function(name, 4 if name in LOOSER else 0.5, _pairs(name)) for name in ("atan2", "divide", "power", "remainder")),
]
"""Operations on real numbers, with the bounds of UNARY-2 for f32 and f64."""


def _complex_values(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    return (samples.complex_values(dtype, count, seed),)


def _complex_pairs(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    return samples.complex_values(dtype, count, seed), samples.complex_values(dtype, count, seed + 1)


def _complex_factors(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    """Pairs whose products do not overflow: a part that is the difference of two infinities is NaN."""
    x, y = _complex_pairs(dtype, count, seed)
    with np.errstate(over="ignore"):
        fits = np.isfinite(4 * np.abs(x) * np.abs(y))
    return x[fits], y[fits]


def _complex_powers(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    """Bases and exponents of moderate size: the error of z^w = e^(w log z) grows with |w log z|."""
    random = np.random.default_rng(seed)
    return tuple((random.normal(size=count) + 1j * random.normal(size=count)).astype(dtype) * 3 for _ in range(2))


COMPLEX = [
    *(Function(name, 4, _complex_values) for name in ("abs", *_UNARY.split()) if name not in ("cbrt", "erf")),
    Function("divide", 4, _complex_pairs),
    Function("multiply", 2, _complex_factors),
    Function("power", 32, _complex_powers),
]
"""Operations on complex numbers; their bounds are in units of the modulus of the result."""


def _lax(name: str) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        from jax import lax

        return getattr(lax, name)(*operands)

    return call


def _scipy(name: str) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        from jax.scipy import special

        return getattr(special, name)(*operands)

    return call


def _special(low: float = -np.inf, high: float = np.inf) -> Arguments:
    """Arguments between two limits: every value of a narrow type; of wider ones, some of every exponent, evenly spread
    ones, and some close to 0.5, 1, 1.46, 2 and the limits.
    """

    def arguments(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
        found = samples.real_values(dtype, 200, seed)
        if np.dtype(dtype).itemsize >= 4:
            found = _spread(found, dtype, count, seed, [0.3725, 0.5, 1, 1.4616321449683622, 2, low, high])
        return (found[(found > low) & (found < high)],)

    return arguments


def _spread(every: Array, dtype: Any, count: int, seed: int, centres: list[float]) -> Array:
    """Numbers of a type: of every exponent, evenly spread, and close to some centres."""
    random = np.random.default_rng(seed)
    near = [
        x + random.choice([-1, 1], count) * np.exp2(random.uniform(-30, 0, count)) for x in centres if np.isfinite(x)
    ]
    spread = [random.uniform(-size, size, 2 * count) for size in (1, 4, 30)]
    of_exponents = samples.exponents(dtype, max(2, count // 100), seed)
    parts = [of_exponents if count >= 300 else random.choice(of_exponents, 4 * count)]
    parts += [random.choice(every, 2 * count), *near, *spread]
    return np.concatenate([np.asarray(part, dtype) for part in parts])


def _two(first: tuple[float, float], second: tuple[float, float], whole: bool = False) -> Arguments:
    """Pairs between limits given as powers of two; the first ones are integers if `whole`."""

    def arguments(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
        random = np.random.default_rng(seed)
        a, b = (np.exp2(random.uniform(*limits, 4 * count)) for limits in (first, second))
        return (np.floor(a) if whole else a).astype(dtype), b.astype(dtype)

    return arguments


def _beta_arguments(dtype: Any, count: int, seed: int) -> tuple[Array, ...]:
    """Two shapes of a beta distribution, and a number between 0 and 1, often close to one of them."""
    a, b = _two((-4, 6), (-4, 6))(dtype, count, seed)
    random = np.random.default_rng(seed + 1)
    small = np.exp2(random.uniform(-12, 0, a.size // 2)) / 2
    limit = np.concatenate([random.beta(a[::2], b[::2]), small, 1 - small])[: a.size].astype(dtype)
    return a, b, np.clip(limit, 1e-4, 1 - 2.0**-20).astype(dtype)


SPECIAL = [
    *(
        Function(name, 2, _special(), _lax(name))
        for name in ["asinh", "atan", "cosh", "erf", "logistic", "sinh", "tan"]
    ),
    *(Function(name, 2, _special(-1, 1), _lax(name)) for name in ("acos", "asin", "atanh")),
    Function("acosh", 2, _special(1), _lax("acosh")),
    Function("exp2", 2, _special(), _lax("exp2")),
    Function("erfc", 4, _special(), _lax("erfc")),
    Function("erf_inv", 4, _special(-1, 1), _lax("erf_inv")),
    Function("lgamma", 4, _special(0), _lax("lgamma")),
    Function("digamma", 4, _special(0), _lax("digamma")),
    Function("bessel_i0e", 5, _special(), _lax("bessel_i0e")),
    Function("bessel_i1e", 4, _special(), _lax("bessel_i1e")),
    Function("zeta", 6, lambda *a: (lambda x, q: (x + 1, q))(*_two((-20, 5), (-40, 40))(*a)), _lax("zeta")),
    Function("polygamma", 6, _two((0, 4), (-6, 8), whole=True), _lax("polygamma")),
    Function("igamma", 12, _two((-20, 6), (-20, 6)), _lax("igamma"), 1),
    Function("igammac", 12, _two((-20, 6), (-20, 6)), _lax("igammac"), 1),
    Function("igamma_grad_a", 16, _two((-4, 6), (-4, 6)), _lax("igamma_grad_a"), 1),
    Function("betainc", 256, _beta_arguments, _lax("betainc"), 1),
    Function("betaln", np.inf, _two((-4, 6), (-4, 6)), _scipy("betaln")),
    Function("expi", 4, _special(), _scipy("expi"), least_for_xla=2.0**-3),
    Function("exp1", 4, _special(0), _scipy("exp1"), least_for_xla=2.0**-3),
    Function("spence", 32, _special(0), _scipy("spence")),
    Function("entr", 2, _special(0), _scipy("entr")),
    Function("xlogy", 2, _two((-20, 20), (-20, 20)), _scipy("xlogy")),
    Function("xlog1py", 2, _two((-20, 20), (-20, 20)), _scipy("xlog1py")),
    Function("i0", 6, _special(-80, 80), _scipy("i0")),
    Function("i1", 6, _special(-80, 80), _scipy("i1")),
    Function("logit", 4, _special(0, 1), _scipy("logit")),
    Function("ndtr", 1536, _special(-38, 38), _scipy("ndtr"), 192),
    Function("ndtri", 6, _special(0, 1), _scipy("ndtri")),
    Function("log_ndtr", 6, _special(), _scipy("log_ndtr")),
]
"""Functions of JAX on real numbers."""
