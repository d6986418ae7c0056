"""The lowering rule of `pallas_call`."""

from __future__ import annotations

from typing import Any
from unittest import mock

from jax._src.interpreters import mlir
from jax._src.pallas import pallas_call
from jax._src.state import discharge

from hloom.stablehlo.pallas import masked_access
from hloom.stablehlo.pallas.grid import run_grid


def lower(ctx: Any, *operands: Any, interpret: Any, **parameters: Any) -> Any:
    """Lowers a `pallas_call` to loops; one that asks for a simulation of a TPU or GPU stays a simulation.

    `interpret=True` means the same loops, since their results are those of JAX's interpreter.
    """
    if not isinstance(interpret, bool):
        return pallas_call._pallas_call_lowering(ctx, *operands, interpret=interpret, **parameters)
    with mock.patch.dict(discharge._discharge_rules, masked_access.RULES):
        return mlir.lower_fun(run_grid, multiple_results=True)(ctx, *operands, **parameters)


RULES = ((pallas_call.pallas_call_p, lower),)
"""The rule with its primitive, as JAX takes rules that replace its own."""
