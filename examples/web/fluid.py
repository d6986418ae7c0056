"""A fluid in the browser: a step of a simulation, written in JAX, as WebAssembly.

python examples/web/fluid.py     # writes build/fluid/index.html: open it, and draw with the mouse

Semi-Lagrangian advection and a projection by Jacobi iterations: Stam, Stable Fluids (1999). Edges wrap around.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp

import hloom as hl
from hloom.aot import single_page

SIZE = 128
"""Cells of a side of the grid."""
ITERATIONS = 24
"""Jacobi iterations of the projection."""
HERE = Path(__file__).parent

Field = jax.Array  # f32[SIZE, SIZE]


def sample(field: Field, y: jax.Array, x: jax.Array) -> Field:
    """Interpolates a field linearly at points, in cells."""
    top, left = jnp.floor(y), jnp.floor(x)
    fy, fx = y - top, x - left
    rows = [(top.astype(int) + k) % SIZE for k in range(2)]
    columns = [(left.astype(int) + k) % SIZE for k in range(2)]
    upper, lower = (field[row, columns[0]] * (1 - fx) + field[row, columns[1]] * fx for row in rows)
    return upper * (1 - fy) + lower * fy


def project(u: Field, v: Field) -> tuple[Field, Field]:
    """Makes a velocity free of divergence."""
    divergence = (jnp.roll(u, -1, 1) - jnp.roll(u, 1, 1) + jnp.roll(v, -1, 0) - jnp.roll(v, 1, 0)) / 2

    def improve(_: int, pressure: Field) -> Field:
        around = sum(jnp.roll(pressure, shift, axis) for shift in (-1, 1) for axis in (0, 1))
        return (around - divergence) / 4

    pressure = jax.lax.fori_loop(0, ITERATIONS, improve, jnp.zeros_like(u))
    u = u - (jnp.roll(pressure, -1, 1) - jnp.roll(pressure, 1, 1)) / 2
    return u, v - (jnp.roll(pressure, -1, 0) - jnp.roll(pressure, 1, 0)) / 2


def step(u: Field, v: Field, ink: jax.Array, brush: jax.Array) -> tuple[Field, Field, jax.Array]:
    """Advances velocity u, v and ink f32[3,SIZE,SIZE]; the brush has x, y, force along x and y, and three colours."""
    y, x = jnp.mgrid[0:SIZE, 0:SIZE].astype(jnp.float32)
    spot = jnp.exp(-((x - brush[0]) ** 2 + (y - brush[1]) ** 2) / 12)
    u, v = project(u + spot * brush[2], v + spot * brush[3])
    ink = jnp.minimum(ink + spot * brush[4:, None, None], 1.5)
    from_y, from_x = y - v, x - u
    moved = jax.vmap(lambda field: sample(field, from_y, from_x))(jnp.concatenate([jnp.stack([u, v]), ink]))
    return moved[0] * 0.999, moved[1] * 0.999, moved[2:] * 0.995


def main() -> None:
    """Builds the page."""
    field = jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32)
    ink, brush = jax.ShapeDtypeStruct((3, SIZE, SIZE), jnp.float32), jax.ShapeDtypeStruct((7,), jnp.float32)
    library = hl.build({"step": hl.from_jax(step, field, field, ink, brush)}, name="fluid", target="wasm32")
    folder = Path("build/fluid")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index.html").write_text(single_page(library, (HERE / "fluid.html").read_text()))
    print(f"open {folder / 'index.html'}")


if __name__ == "__main__":
    main()
