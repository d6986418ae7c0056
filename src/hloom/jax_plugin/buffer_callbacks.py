"""`jax.experimental.buffer_callback`: Python functions that write their results into given memory.

They run like other callbacks. JAX's own `Buffer` and `ExecutionContext` depend on its runtime; the classes here have
the same interface.
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
    """An array of the program as a callback sees it. Arrays that are made from it share its memory."""

    def __init__(self, array: Array, *, writeable: bool) -> None:
        self._array = array.view()
        self._array.flags.writeable = writeable

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self._array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimension sizes."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._array.ndim

    @property
    def writeable(self) -> bool:
        """Whether the callback may write to the array: true for results."""
        return self._array.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **_: Any) -> object:
        return capsule(self._array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU_DEVICE


class HostContext:
    """Execution context of a call."""

    stage = buffer_callback.ExecutionStage.EXECUTE

    @property
    def stream(self) -> int:
        """Raises JaxRuntimeError: there is no GPU."""
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
    """Lowers a buffer callback to a host function that returns the arrays that the callback has filled."""
    shared = {output: operand for operand, output in input_output_aliases}

    def fill(*operands: Array) -> list[Array]:
        # Operands are read-only: one that aliases a result is replaced by a copy, which is operand and result.
        arrays = [array.copy() if k in shared.values() else array for k, array in enumerate(operands)]
        results = [
            arrays[shared[k]] if k in shared else np.empty(aval.shape, aval.dtype)
            for k, aval in enumerate(ctx.avals_out)
        ]
        args, kwargs = tree_util.tree_unflatten(in_tree, [HostBuffer(array, writeable=False) for array in arrays])
        out = tree_util.tree_unflatten(out_tree, [HostBuffer(array, writeable=True) for array in results])
        if callback(HostContext(), out, *args, **kwargs) is not None:
            raise ValueError("buffer_callback callback must not return any values.")
        return results

    function = HostFunction(fill, ctx.avals_out)
    ctx.module_context.add_keepalive(function)
    values, _token = emit_call(ctx, TARGET, function, None, operands, has_side_effect, None)
    return values
