"""Spots that grow and divide: the reaction and diffusion of Gray and Scott, five thousand steps.

A shift of a periodic array is two slices and a concatenation. None of them moves data here: the whole step becomes one
kernel, which reads the neighbours of each point where they are.
"""

import matplotlib.pyplot as plt
import numpy as np

import hloom as hl

SIZE, STEPS = 240, 5000
FEED, KILL = 0.0367, 0.0649


def shifted(x, by, dimension):
    """Rotates a dimension by one element, forwards or backwards."""
    middle, size = -by % SIZE, [SIZE, SIZE]
    front, back = [0, 0], [SIZE, SIZE]
    front[dimension] = back[dimension] = middle
    parts = [x.builder.slice(x, front, size), x.builder.slice(x, [0, 0], back)]
    return x.builder.concat_in_dim(parts, dimension)


def spread(x):
    """The mean of the four neighbours, minus the point."""
    neighbours = [shifted(x, by, dimension) for by in (1, -1) for dimension in (0, 1)]
    return sum(neighbours[1:], neighbours[0]) * 0.25 - x


def step(state):
    k, u, v = (state[i] for i in range(3))
    reaction = u * v * v
    u = u + 0.8 * spread(u) - reaction + FEED * (1.0 - u)
    v = v + 0.4 * spread(v) + reaction - (FEED + KILL) * v
    return state.builder.tuple(k + 1, u, v)


b = hl.XlaBuilder("gray_scott")
u, v = (b.parameter(k, hl.f32[SIZE, SIZE], name) for k, name in enumerate("uv"))
start = b.tuple(b.constant(np.int32(0)), u, v)
run = hl.compile(b.build(b.while_(lambda state: state[0] < STEPS, step, start)[2]))

rng = np.random.default_rng(5)
dish = np.zeros((SIZE, SIZE), np.float32)
for row, column in rng.integers(10, SIZE - 10, (12, 2)):
    dish[row - 6 : row + 6, column - 6 : column + 6] = 0.5
plt.imsave("gray_scott.png", run(1 - dish, dish).repeat(2, 0).repeat(2, 1), cmap="GnBu_r")
