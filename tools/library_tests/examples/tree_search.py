"""Mctx: a tree search that finds the best of some moves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mctx
import numpy as np

REWARDS = np.float32([[0.1, 0.5, 0.2, 0.0], [0.9, 0.3, 0.1, 0.2], [0.0, 0.1, 0.2, 0.7]])


def test_search_finds_the_best_move() -> None:
    def step(_: None, key: jax.Array, action: jax.Array, depth: jax.Array) -> tuple[mctx.RecurrentFnOutput, jax.Array]:
        reward = jnp.where(depth == 0, jnp.take_along_axis(jnp.asarray(REWARDS), action[:, None], 1)[:, 0], 0)
        zeros = jnp.zeros(len(REWARDS))
        logits = jnp.zeros(REWARDS.shape)
        return mctx.RecurrentFnOutput(reward=reward, discount=zeros + 0.9, prior_logits=logits, value=zeros), depth + 1

    depth = jnp.zeros(len(REWARDS), jnp.int32)
    root = mctx.RootFnOutput(prior_logits=jnp.zeros(REWARDS.shape), value=jnp.zeros(len(REWARDS)), embedding=depth)
    search = jax.jit(lambda key: mctx.gumbel_muzero_policy(None, key, root, step, num_simulations=32, gumbel_scale=0.0))
    np.testing.assert_array_equal(search(jax.random.PRNGKey(3)).action, REWARDS.argmax(1))
