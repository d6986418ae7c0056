"""MuJoCo's MJX: a batch of bodies that fall and swing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

BODIES = """<mujoco><option timestep="0.005" iterations="4" ls_iterations="8"/><worldbody>
<geom type="plane" size="5 5 .1"/>
<body pos="0 0 1"><freejoint/><geom type="capsule" size=".1 .3"/>
  <body pos=".3 0 0"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".06" fromto="0 0 0 .4 0 0"/></body>
  <body pos="-.3 0 0"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".06" fromto="0 0 0 -.4 0 0"/></body>
</body></worldbody></mujoco>"""


def positions(velocities: np.ndarray, steps: int) -> np.ndarray:
    described = mujoco.MjModel.from_xml_string(BODIES)
    model, data = mjx.put_model(described, impl="jax"), mjx.make_data(described, impl="jax")
    batch = jax.vmap(lambda v: data.replace(qvel=data.qvel + v))(jnp.asarray(velocities))
    step = jax.jit(jax.vmap(mjx.step, (None, 0)))
    for _ in range(steps):
        batch = step(model, batch)
    return np.asarray(batch.qpos)


def test_a_batch_moves_as_in_mujoco_itself() -> None:
    """Each body of the batch moves as MuJoCo, in C and double precision, moves it."""
    velocities = np.linspace(0, 0.1, 8, dtype=np.float32)
    moved = positions(velocities, 10)
    model = mujoco.MjModel.from_xml_string(BODIES)
    for velocity, position in zip(velocities, moved, strict=True):
        data = mujoco.MjData(model)
        data.qvel += velocity
        for _ in range(10):
            mujoco.mj_step(model, data)
        np.testing.assert_allclose(position, data.qpos, atol=1e-4)
