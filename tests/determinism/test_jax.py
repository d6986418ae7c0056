"""Results on the JAX platform are those of `hl.compile`, and its programs may be batch-invariant, too."""

from __future__ import annotations

import pytest

from jax_plugin.platform_process import run_in_shared_process

FUNCTIONS = """
    import hloom as hl
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(sizes).astype(np.float32) for sizes in ((33, 300), (300, 65)))
    dense = lambda x: jax.nn.softmax(jnp.tanh(x @ w))
    step = lambda x: x - 0.1 * jax.grad(lambda x: (dense(x) ** 2).sum())(x)
"""


@pytest.mark.long
def test_results_are_those_of_compile_donated_or_not() -> None:
    out = run_in_shared_process(f"""{FUNCTIONS}
    for function in (dense, step):
        expected = hl.compile(hl.from_jax(function, x))(x)
        for options in ({{}}, {{"donate_argnums": 0}}):
            print(np.asarray(jax.jit(function, **options)(jnp.asarray(x))).tobytes() == expected.tobytes())
    """)
    assert out.split() == ["True"] * 4


def test_programs_are_batch_invariant_if_the_environment_says_so() -> None:
    out = run_in_shared_process(f"""{FUNCTIONS}
    import os
    def row_of_batch(batch):
        return np.asarray(jax.jit(lambda x: dense(x))(x[:batch]))[0].tobytes()
    print(len({{row_of_batch(batch) for batch in (1, 33)}}))
    os.environ["HLOOM_BATCH_INVARIANT"] = "1"
    print(len({{row_of_batch(batch) for batch in (1, 2, 33)}}))
    del os.environ["HLOOM_BATCH_INVARIANT"]
    """)
    assert out.split() == ["2", "1"]
