"""Pgx: games played to their ends by random moves, many at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "othello"])
def test_games_end_and_what_one_wins_the_other_loses(game: str) -> None:
    environment = pgx.make(game)

    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        def move(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
            state, key, sum = carry
            key, draw = jax.random.split(key)
            action = jax.random.categorical(draw, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            state = environment.step(state, action)
            return state, key, sum + state.rewards

        start = environment.init(key)
        state, _, sum = jax.lax.while_loop(lambda carry: ~carry[0].terminated, move, (start, key, start.rewards))
        return sum, state.legal_action_mask.all()

    rewards, over = jax.jit(jax.vmap(play))(jax.random.split(jax.random.PRNGKey(0), 32))
    np.testing.assert_array_equal(rewards.sum(1), np.zeros(32))
    assert set(np.unique(rewards)) <= {-1.0, 0.0, 1.0}
    assert bool(over.all())
    assert bool((rewards != 0).any())
