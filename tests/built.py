"""Programs of one expression, built with XlaBuilder and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hloom as hl


def built(make: Callable[..., Any], *arguments: Any) -> Any:
    """Builds the computation that `make(builder, *parameters)` adds, for parameters of the given arrays' or given
    shapes.
    """
    builder = hl.XlaBuilder("built")
    shapes = [a if isinstance(a, hl.Shape) else hl.Literal.from_value(a).shape for a in arguments]
    root = make(builder, *(builder.parameter(i, shape) for i, shape in enumerate(shapes)))
    return builder.build(root)


def evaluate(backend: str, make: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Evaluates `make(builder, *parameters)` on arrays."""
    return hl.compile(built(make, *arguments), backend=backend, **options)(*arguments)


def shape_of(make: Callable[..., Any], *arguments: Any) -> str:
    """Returns the text of the result's shape."""
    return str(built(make, *arguments).entry_computation.result_shape)
