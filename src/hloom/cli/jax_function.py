"""JAX functions as arguments of commands: `model.py:predict(f32[4,3], f32[3,2])`."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.shape import Shape
from hloom.stablehlo.importer.from_jax import from_jax
from hloom.text.shapes import parse_shape

_FUNCTION = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)\((?P<shapes>.*)\)")


def names_function(text: str) -> bool:
    """Whether a text names a function of a Python file, with the shapes of its arguments."""
    return _FUNCTION.fullmatch(text) is not None


def jax_function(text: str) -> tuple[str, Module]:
    """Runs the Python file; returns the name of the function and its module.

    Raises ArgumentError if there is no such function, if sizes are unbounded, and if JAX cannot trace it.
    """
    match = _FUNCTION.fullmatch(text)
    assert match is not None
    name = match["name"]
    function = runpy.run_path(match["file"]).get(name) if Path(match["file"]).is_file() else None
    if function is None:
        raise ArgumentError(f"there is no function {name} in {match['file']}")
    return name, from_jax(function, *map(_argument, parse_shape(f"({match['shapes']})").elements))


def _argument(shape: Shape) -> Any:
    import jax

    if shape.is_tuple:
        return tuple(map(_argument, shape.elements))
    if not shape.is_array or shape.is_unbounded:
        raise ArgumentError(f"a JAX function is traced for arrays of known sizes, got {shape}")
    return jax.ShapeDtypeStruct(shape.dimensions, shape.element_type.dtype)
