"""Lowering rules of functions that hloom computes to more digits than JAX's expansions.

They are custom calls `hloom.NAME`, or expansions of our own in f64.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import lax
from jax._src import core, custom_derivatives
from jax._src.interpreters import mlir
from jaxlib.mlir.dialects import stablehlo

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
    return _call(ctx, NAMES[primitive], operands)


def _call(ctx: Any, name: str, operands: Any) -> Any:
    (result,) = ctx.avals_out
    # An operand may be a scalar: the order of the polygamma function that differentiates digamma.
    operands = tuple(mlir.multi_broadcast_in_dim(ctx, operands, ctx.avals_in, result.shape, result.sharding))
    types = [mlir.aval_to_ir_type(ctx.module_context, result)]
    return mlir.custom_call(PREFIX + name, result_types=types, operands=operands).results


_COMPOSED = ("expi", "log_ndtr", "logit")
"""Functions of `jax.scipy.special` that JAX composes of others and gives derivatives of their own."""
_SOURCE = str(Path(jax.__file__).parent / "_src" / "scipy" / "special.py")


def lower_with_derivative(ctx: Any, *operands: Any, call_jaxpr: core.ClosedJaxpr, **parameters: Any) -> Any:
    """Lowers a function with a derivative of its own: one of `_COMPOSED` to a custom call, others by JAX's rule.

    JAX 0.12 lowers expn once for all orders: there a program selects exp1 where the order is 1, and simplification
    leaves only that once the order is known.
    """
    name = _composed(call_jaxpr.jaxpr)
    rule = _rule_of_jax(custom_derivatives.custom_jvp_call_p)
    if not name or not _is_own(ctx):
        return rule(ctx, *operands, call_jaxpr=call_jaxpr, **parameters)
    if name != "_expn":
        return _call(ctx, name, operands)
    (of_any_order,) = rule(ctx, *operands, call_jaxpr=call_jaxpr, **parameters)
    (result,) = ctx.avals_out
    (order,) = mlir.multi_broadcast_in_dim(ctx, operands[:1], ctx.avals_in[:1], result.shape, result.sharding)
    is_one = mlir.compare_hlo(order, mlir.full_like_aval(ctx, 1, result), "EQ", "FLOAT")
    (of_order_one,) = _call(ctx.replace(avals_in=ctx.avals_in[1:]), "exp1", operands[1:])
    return [stablehlo.select(is_one, of_order_one, of_any_order)]


def _composed(jaxpr: core.Jaxpr) -> str:
    """The name of a function of `_COMPOSED`, or exp1 for the call of expn with the order 1; empty for others."""
    name, _, position = jaxpr.debug_info.func_src_info.partition(" at ")
    if position.rpartition(":")[0] != _SOURCE:
        return ""
    if name == "expn" and len(jaxpr.eqns) == 1:
        order = jaxpr.eqns[0].invars[0]
        return "exp1" if isinstance(order, core.Literal) and order.val == 1 else ""
    return name if name in (*_COMPOSED, "_expn") else ""


def _is_own(ctx: Any) -> bool:
    """Whether a function of real numbers of one type is lowered, to be run here."""
    (result,) = ctx.avals_out
    is_real = result.dtype.kind != "c" and all(operand.dtype == result.dtype for operand in ctx.avals_in)
    return is_real and not ctx.module_context.lowering_parameters.for_export


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
