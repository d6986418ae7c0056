"""Symbolic meanings of operations, one file for each family; importing this package registers them."""

from hloom.prove.meanings import (
    control_flow,
    devices,
    movement,
    opaque,
    products,
    random,
    reductions,
    scatter,
    sort,
    structure,
    windows,
)

FAMILIES = (control_flow, devices, movement, opaque, products, random, reductions, scatter, sort, structure, windows)
"""The modules with rules."""
