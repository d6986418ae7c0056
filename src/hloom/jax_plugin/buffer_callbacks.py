"""`jax.experimental.buffer_callback`: Python functions that write their results into memory that they are given.

They run as the other callbacks do. JAX's own `Buffer` and `ExecutionContext` belong to its runtime; those here have the
same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import tree_util
from jax._src import buffer_callback
from jax.errors import JaxRuntimeError

from hloom.jax_plugin.callbacks import TARGET, HostFunction, emit_call
from hloom.jax_plugin.dlpack import CPU_DEVICE, capsule
from hloom.values import Array


class HostBuffer:
    """An array of the program as a callback sees it; what is made of it shares its memory."""

    def __init__(self, array: Array, writeable: bool) -> None:
        self._array = array.view()
        self._array.flags.writeable = writeable

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape

    @property
    def ndim(self) -> int:
        return self._array.ndim

    @property
    def writeable(self) -> bool:
        return self._array.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **_: Any) -> object:
        return capsule(self._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE


class HostContext:
    """The circumstances of a call: there is no stream of a GPU."""

    stage = buffer_callback.ExecutionStage.EXECUTE

    @property
    def stream(self) -> int:
        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


def lowering_rule(
    ctx: Any,
    *operands: Any,
    callback: Callable[..., Any],
    in_tree: Any,
    out_tree: Any,
    has_side_effect: bool,
    input_output_aliases: Sequence[tuple[int, int]],
    **_: Any,
) -> Sequence[Any]:
    """A callback that returns the arrays that the function has filled."""
    shared = {output: operand for operand, output in input_output_aliases}

    def fill(*operands: Array) -> list[Array]:
        # Operands are read-only: one that is a result as well is written in a copy, which both sides see.
        arrays = [array.copy() if k in shared.values() else array for k, array in enumerate(operands)]
        results = [
            arrays[shared[k]] if k in shared else np.empty(aval.shape, aval.dtype)
            for k, aval in enumerate(ctx.avals_out)
        ]
        args, kwargs = tree_util.tree_unflatten(in_tree, [HostBuffer(array, False) for array in arrays])
        out = tree_util.tree_unflatten(out_tree, [HostBuffer(array, True) for array in results])
        if callback(HostContext(), out, *args, **kwargs) is not None:
            raise ValueError("buffer_callback callback must not return any values.")
        return results

    function = HostFunction(fill, ctx.avals_out)
    ctx.module_context.add_keepalive(function)
    values, _token = emit_call(ctx, TARGET, function, None, operands, has_side_effect, None)
    return values
