"""Python called from compiled programs: `jax.pure_callback`, `io_callback`, `jax.debug.callback` and `jax.debug.print`.

JAX's own rules handle shardings, tokens and effects, and all of them call `emit_python_callback`. That function
supports a fixed list of platforms; `install` wraps it to add hloom. A callback becomes a custom call of `TARGET`, whose
attribute `index` identifies the function. The function lives as long as the executable that JAX made of the program,
which holds it among its `keepalives`; `_FUNCTIONS` has only weak references.

A callback runs on the thread that runs the program and holds the GIL, so it may call JAX again.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax._src import callback as jax_callback
from jax._src import core, dtypes, ffi
from jax._src import xla_bridge as xb
from jax._src.interpreters import mlir as jax_mlir
from jax.interpreters import mlir

from hloom.errors import RunError
from hloom.passes.spmd.planning.custom import register_local
from hloom.runtime.custom_calls.registry import CustomCallSite, register_custom_call
from hloom.values import TOKEN_VALUE, Array

PLATFORM = "hloom"
TARGET = "hloom_python_callback"
PARTITIONED_TARGET = "hloom_partitioned_python_callback"
"""Target of callbacks that every partition of a program calls with its own shards."""


class HostFunction:
    """A Python function of flat arrays, and the shapes and types of its results."""

    __slots__ = ("__weakref__", "function", "results")

    def __init__(self, function: Callable[..., Sequence[Any]], results: Sequence[Any]) -> None:
        self.function = function
        self.results = tuple(results)

    def __call__(self, *operands: Array) -> tuple[Array, ...]:
        values = self.function(*operands)
        if len(values) != len(self.results):
            raise RuntimeError(
                f"Mismatched number of outputs from callback. Expected: {len(self.results)}, Actual: {len(values)}"
            )
        return tuple(_checked(k, value, want) for k, (value, want) in enumerate(zip(values, self.results, strict=True)))


_FUNCTIONS: weakref.WeakValueDictionary[int, HostFunction] = weakref.WeakValueDictionary()
_INDICES = itertools.count()


@functools.cache
def install() -> None:
    """Patches JAX so that callbacks work on hloom; further calls have no effect."""
    for target in (TARGET, PARTITIONED_TARGET):
        register_custom_call(target, _call_host_function, wants_site=True)
    register_local(PARTITIONED_TARGET)
    emit = _emitter(jax_callback.emit_python_callback)
    jax_callback.emit_python_callback = emit
    mlir.emit_python_callback = emit  # an alias of the same function
    xb.local_devices = _local_devices(xb.local_devices)


def _checked(position: int, value: Any, want: Any) -> Array:
    """Converts a returned value to an array and checks shape and type, with the messages of JAX's other platforms."""
    array = np.asarray(dtypes.canonicalize_value(np.asarray(value)))
    if array.shape != want.shape:
        raise RuntimeError(
            f"Incorrect output shape for return value #{position}: Expected: {want.shape}, Actual: {array.shape}"
        )
    if array.dtype != want.dtype:
        raise RuntimeError(
            f"Incorrect output dtype for return value #{position}: Expected: {want.dtype}, Actual: {array.dtype}"
        )
    return array


def _call_host_function(site: CustomCallSite, *operands: Any) -> Any:
    """Custom-call target of callbacks. Tokens only order the calls, so the function does not receive them."""
    host_function = _FUNCTIONS.get(site.attributes["index"])
    if host_function is None:
        raise RunError(
            "the Python callback of this program was freed: it lives as long as the executable that JAX made"
        )
    shapes = zip(operands, site.operand_shapes, strict=True)
    try:
        results = iter(host_function(*(value for value, shape in shapes if shape.is_array)))
    except Exception as error:
        text = "".join(traceback.format_exception(error)).rstrip()
        raise RunError(f"a Python callback raised {type(error).__name__}: {error}\n{text}") from error
    if not site.shape.is_tuple:
        return next(results) if site.shape.is_array else TOKEN_VALUE
    return tuple(next(results) if shape.is_array else TOKEN_VALUE for shape in site.shape.elements)


def _emitter(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps JAX's `emit_python_callback` to support hloom."""

    @functools.wraps(original)
    def emit_python_callback(
        ctx: Any,
        callback: Callable[..., Any],
        token: Any,
        operands: Sequence[Any],
        operand_avals: Sequence[Any],
        result_avals: Sequence[Any],
        *,
        has_side_effect: bool,
        returns_token: bool = True,
        partitioned: bool = False,
        sharding: Any = None,
    ) -> tuple[Sequence[Any], Any, Any]:
        if ctx.module_context.platforms[0] != PLATFORM:
            return original(
                ctx, callback, token, operands, operand_avals, result_avals, has_side_effect=has_side_effect,
                returns_token=returns_token, partitioned=partitioned, sharding=sharding,
            )  # fmt: skip
        if len(ctx.module_context.platforms) > 1:
            raise NotImplementedError("a program with Python callbacks is lowered for one platform at a time")
        if partitioned and result_avals:
            raise ValueError("Partitioned callback not supported with return values.")
        function = HostFunction(callback, result_avals)
        ctx.module_context.add_keepalive(function)
        target = PARTITIONED_TARGET if partitioned else TARGET
        results, new_token = emit_call(ctx, target, function, token, operands, has_side_effect, sharding)
        return results, new_token, function

    return emit_python_callback


def emit_call(
    ctx: Any,
    target: str,
    function: HostFunction,
    token: Any,
    operands: Sequence[Any],
    has_side_effect: bool,
    sharding: Any,
) -> tuple[Sequence[Any], Any]:
    """Emits the custom call; returns its results, and the new token if a token was given."""
    index = next(_INDICES)
    _FUNCTIONS[index] = function
    if token:
        operands, sharding = [token, *operands], _with_token(sharding, ctx.avals_out)
        ctx = dataclasses.replace(
            ctx, avals_in=[core.abstract_token, *ctx.avals_in], avals_out=[core.abstract_token, *ctx.avals_out]
        )
    lower = ffi.build_ffi_lowering_function(target, has_side_effect=has_side_effect)
    operation = lower(ctx, *operands, index=np.uint64(index))
    if sharding is not None:
        jax_mlir.set_sharding(ctx.module_context, operation, sharding)
    results = list(operation.results)
    return (results[1:], results[0]) if token else (results, None)


def _with_token(sharding: Any, avals_out: Sequence[Any]) -> Any:
    """Adds a sharding for the token, since Shardy requires one for each result; not if the token is the only result."""
    shardings = getattr(sharding, "shardings", None)
    if not shardings or not avals_out:
        return sharding
    devices = shardings[0].logical_device_ids
    for_token = dataclasses.replace(shardings[0], mesh_shape=(), dim_shardings=(), logical_device_ids=devices)
    return dataclasses.replace(sharding, shardings=(for_token, *shardings))


def _local_devices(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `local_devices`: without JAX's CPU platform, callbacks get hloom's devices when they look for the CPU's."""

    @functools.wraps(original)
    def local_devices(process_index: int | None = None, backend: Any = None, host_id: int | None = None) -> Any:
        if backend == "cpu" and "cpu" not in xb.backends() and PLATFORM in xb.backends():
            backend = PLATFORM
        return original(process_index, backend, host_id)

    return local_devices
