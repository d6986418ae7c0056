"""JAX's rules for its CPU platform, applied to hloom: lowering rules, donation, and branches by platform name.

JAX looks lowering rules up by platform. Those for "cpu" emit operations that hloom supports (LAPACK targets, FFT,
top-k). So hloom's table is a view of them: rules that are registered for "cpu", now or later, apply to hloom too,
unless it has its own.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from jax._src import buffer_callback, core, custom_derivatives, debugging
from jax._src.export import _export as export
from jax._src.interpreters import mlir
from jax._src.lax.control_flow import conditionals

from hloom.jax_plugin import buffer_callbacks, callbacks, dlpack, partitioning, special_functions
from hloom.jax_plugin.callbacks import PLATFORM

CPU = "cpu"
"""Platform whose rules hloom shares."""


@functools.cache
def register_lowerings() -> None:
    """Makes JAX lower programs for hloom; has to be called before the first program. Further calls have no effect."""
    callbacks.install()
    dlpack.install()
    partitioning.install()
    rules = mlir._platform_specific_lowerings
    own = _OwnRules(rules.pop(PLATFORM, {}))
    rules[PLATFORM] = collections.ChainMap(own, rules[CPU])  # type: ignore[assignment]
    # mlir.register_lowering would require that the platform is registered already.
    own[conditionals.platform_index_p] = _entry(_platform_index)
    own[conditionals.cond_p] = _entry(_conditional)
    own[debugging.inspect_sharding_p] = _entry(partitioning.inspect_sharding_rule)
    own[export.call_exported_p] = _entry(_call_exported)
    for primitive in special_functions.NAMES:
        own[primitive] = _entry(functools.partial(special_functions.lower, primitive))
    for primitive in special_functions.IN_DOUBLE:
        own[primitive] = _entry(functools.partial(special_functions.lower_in_double, primitive))
    own[custom_derivatives.custom_jvp_call_p] = _entry(special_functions.lower_with_derivative)
    own[buffer_callback.buffer_callback_p] = _entry(buffer_callbacks.lowering_rule)
    if PLATFORM not in mlir._platforms_with_donation:
        mlir._platforms_with_donation.append(PLATFORM)


class _OwnRules(dict[core.Primitive, mlir.LoweringRuleEntry]):
    """The rules of hloom's own; Pallas is imported when a program has a primitive of its."""

    def __contains__(self, primitive: object) -> bool:
        return super().__contains__(primitive) or getattr(primitive, "name", "") == "pallas_call"

    def __missing__(self, primitive: core.Primitive) -> mlir.LoweringRuleEntry:
        if primitive not in self:
            raise KeyError(primitive)
        from hloom.stablehlo.pallas.lowering import lower

        return _entry(lower)


def _entry(rule: Callable[..., Any]) -> mlir.LoweringRuleEntry:
    return mlir.LoweringRuleEntry(rule, inline=True)


def like_cpu(branches: tuple[tuple[str, ...] | None, ...]) -> tuple[tuple[str, ...] | None, ...]:
    """The platforms of each branch of `lax.platform_dependent`: adds hloom beside "cpu" unless a branch names it."""
    if any(platforms and PLATFORM in platforms for platforms in branches):
        return branches
    return tuple((*platforms, PLATFORM) if platforms and CPU in platforms else platforms for platforms in branches)


def _platform_index(ctx: Any, *, platforms: Any) -> Any:
    return conditionals._platform_index_lowering(ctx, platforms=like_cpu(platforms))


def _conditional(ctx: Any, index: Any, *operands: Any, branches: Any, **parameters: Any) -> Any:
    if (platforms := parameters.get("branches_platforms")) is not None:
        parameters["branches_platforms"] = like_cpu(platforms)
    lower: Callable[..., Any] = conditionals._cond_lowering
    return lower(ctx, index, *operands, branches=branches, **parameters)


def _call_exported(ctx: Any, *operands: Any, exported: export.Exported) -> Any:
    """Lowers a call of an exported program: hloom runs those exported for "cpu"."""
    if PLATFORM not in exported.platforms:
        platforms = tuple(PLATFORM if platform == CPU else platform for platform in exported.platforms)
        exported = dataclasses.replace(exported, platforms=platforms)
    return export._call_exported_lowering(ctx, *operands, exported=exported)
