"""Lowering rules of functions that hloom computes to more digits than JAX's expansions: custom calls `hloom.NAME`."""

from __future__ import annotations

from typing import Any

from jax import lax
from jax._src import core
from jax._src.interpreters import mlir

from hloom.pjrt.special_functions import PREFIX

_NAMES = """
acos acosh asin asinh atanh cosh logistic sinh bessel_i0e bessel_i1e digamma erf_inv erfc exp2 lgamma polygamma zeta
"""
NAMES: dict[core.Primitive, str] = {getattr(lax, f"{name}_p"): name for name in _NAMES.split()}
"""The primitives, and the names of the custom calls."""


def lower(primitive: core.Primitive, ctx: Any, *operands: Any, **parameters: Any) -> Any:
    """Lowers a primitive to a custom call; exported programs use JAX's own rule, whose ops are stable."""
    (result,) = ctx.avals_out
    # Of the special functions only 2^z takes complex numbers.
    is_complex_power = result.dtype.kind == "c" and primitive is lax.exp2_p
    if ctx.module_context.lowering_parameters.for_export or is_complex_power:
        return _rule_of_jax(primitive)(ctx, *operands, **parameters)
    types = [mlir.aval_to_ir_type(ctx.module_context, result)]
    call = mlir.custom_call(PREFIX + NAMES[primitive], result_types=types, operands=operands)
    return call.results


def _rule_of_jax(primitive: core.Primitive) -> Any:
    rules = mlir._platform_specific_lowerings["cpu"]
    return (rules.get(primitive) or mlir._lowerings[primitive]).rule
