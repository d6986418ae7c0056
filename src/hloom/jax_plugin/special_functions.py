"""Lowering rules of functions that hloom computes to more digits than JAX's expansions.

They are custom calls `hloom.NAME`, or expansions of our own in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core
from jax._src.interpreters import mlir

from hloom.jax_plugin import incomplete_beta, incomplete_gamma
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
    # An operand may be a scalar: the order of the polygamma function that differentiates digamma.
    operands = tuple(mlir.multi_broadcast_in_dim(ctx, operands, ctx.avals_in, result.shape, result.sharding))
    types = [mlir.aval_to_ir_type(ctx.module_context, result)]
    call = mlir.custom_call(PREFIX + NAMES[primitive], result_types=types, operands=operands)
    return call.results


IN_DOUBLE: dict[core.Primitive, Callable[..., Any]] = {
    lax.igamma_p: incomplete_gamma.igamma,
    lax.igammac_p: incomplete_gamma.igammac,
    lax.igamma_grad_a_p: incomplete_gamma.igamma_grad_a,
    lax.regularized_incomplete_beta_p: incomplete_beta.betainc,
}
"""Primitives with an expansion in f64, which is rounded to narrower types once."""


def lower_in_double(primitive: core.Primitive, ctx: Any, *operands: Any, **parameters: Any) -> Any:
    """Lowers a primitive to its expansion; exported programs use JAX's own."""
    (result,) = ctx.avals_out
    if ctx.module_context.lowering_parameters.for_export:
        return _rule_of_jax(primitive)(ctx, *operands, **parameters)

    def rounded(*values: Any) -> Any:
        wide = [lax.convert_element_type(value, np.float64) for value in values]
        return lax.convert_element_type(IN_DOUBLE[primitive](*wide), result.dtype)

    with jax.enable_x64(True):
        return mlir.lower_fun(rounded, multiple_results=False)(ctx, *operands)


def _rule_of_jax(primitive: core.Primitive) -> Any:
    rules = mlir._platform_specific_lowerings["cpu"]
    return (rules.get(primitive) or mlir._lowerings[primitive]).rule
