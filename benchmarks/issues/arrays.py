"""Single operations on large arrays: sorts, running sums, transforms, convolutions, reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.issues.issue import JAX, Issue, add

add(
    Issue(
        JAX,
        10434,
        "`argsort` is 5 to 20 times slower than NumPy's",
        "`argsort` of 100 x 10,000 numbers along the first dimension",
    ),
    lambda key: (jax.random.uniform(key, (100, 10_000)),),
    lambda x: jnp.argsort(x, axis=0),
    tolerance=0.0,
)
