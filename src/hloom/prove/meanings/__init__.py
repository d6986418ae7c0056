"""Symbolic meanings of operations, one file for each family; importing this package registers them."""

from hloom.prove.meanings import (
    batch_norm,
    control_flow,
    devices,
    movement,
    opaque,
    products,
    random,
    reductions,
    scatter,
    sizes,
    sort,
    structure,
    windows,
)

FAMILIES = (
    batch_norm, control_flow, devices, movement, opaque, products, random, reductions, scatter, sizes, sort, structure,
    windows,
)  # fmt: skip
"""The modules with rules."""
