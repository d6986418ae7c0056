"""Conway's Game of Life: a convolution counts the neighbours.

The picture shows how long ago each cell was last alive, after four hundred generations.
"""

import matplotlib.pyplot as plt
import numpy as np

import hloom as hl

SIZE, GENERATIONS = 240, 400


def step(state):
    b = state.builder
    k, cells, age, kernel = (state[i] for i in range(4))
    counts = b.conv(cells, kernel, window_strides=[1, 1], padding="SAME")
    is_alive = b.or_(b.eq(counts, 3.0), b.eq(counts + cells, 3.0))
    alive = b.convert_element_type(is_alive, "f32")
    return b.tuple(k + 1, alive, b.select(is_alive, age * 0.0, age + 1.0), kernel)


b = hl.XlaBuilder("life")
cells = b.parameter(0, hl.f32[1, 1, SIZE, SIZE], "cells")
ring = b.constant(np.float32([[[[1, 1, 1], [1, 0, 1], [1, 1, 1]]]]))
start = b.tuple(b.constant(np.int32(0)), cells, cells * 0.0 + 99.0, ring)
run = hl.compile(b.build(b.while_(lambda state: state[0] < GENERATIONS, step, start)[2]))

rng = np.random.default_rng(1)
soup = (rng.random((1, 1, SIZE, SIZE)) < 0.3).astype(np.float32)
age = run(soup)[0, 0].repeat(2, 0).repeat(2, 1)
plt.imsave("life.png", np.log1p(age), cmap="viridis_r")
