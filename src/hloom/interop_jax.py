"""JAX functions as HLO modules: `from_jax` traces and lowers a function with JAX and gives the module."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Module


def from_jax(
    function: Callable[..., Any], *args: Any, static_argnums: int | Sequence[int] = (), **kwargs: Any
) -> Module:
    """The module of a JAX function for the shapes and types of some arguments.

    Arguments:
        function: a function of JAX arrays, plain or made by `jax.jit`.
        args: positional arguments: arrays, numbers, `jax.ShapeDtypeStruct`, and any pytrees of these.
        static_argnums: which positional arguments are constants of the program. A jitted function has its own.
        kwargs: keyword arguments, as `args`.

    The entry takes the leaves of all arguments that are not static, in the order in which `jax.tree.leaves` lists them,
    used or not; a parameter's metadata has its name in the signature, such as `params['w']`. The result is the tuple
    of the result's leaves, or the one leaf. Raises ArgumentError where JAX is not installed or cannot trace.
    """
    if not callable(function):
        raise ArgumentError(f"from_jax takes a function, got {type(function).__name__}")
    if importlib.util.find_spec("jax") is None:
        raise ArgumentError("from_jax traces functions with JAX, which is missing: pip install jax")
    import jax

    try:
        # Lowered for the host, whatever device JAX would run it on.
        lowered = _jitted(jax, function, static_argnums).trace(*args, **kwargs).lower(lowering_platforms=("cpu",))
        text = lowered.as_text(dialect="stablehlo", debug_info=True)
    except Exception as error:
        # What the user's function raises is the user's: it stays in sight as the cause.
        raise ArgumentError(f"JAX cannot lower {_name(function)}: {type(error).__name__}: {error}") from error
    from hloom.stablehlo.importer.module import parse_stablehlo

    return parse_stablehlo(text)


def traced(program: Any, arguments: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """A program and its arguments, where it is a function of JAX's as a module and the arguments' leaves.

    Anything else comes back as it is. Raises ArgumentError where JAX is not installed or cannot trace.
    """
    if not callable(program) or hasattr(program, "module"):
        return program, tuple(arguments)
    module = from_jax(program, *arguments)
    from jax import tree

    return module, tuple(np.asarray(leaf) for leaf in tree.leaves(arguments))


def _jitted(jax: Any, function: Any, static_argnums: int | Sequence[int]) -> Any:
    """The function under a jit that keeps arguments that nothing reads."""
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    # A jitted function would drop them: what it wraps is jitted anew, with the same static and donated arguments.
    info = getattr(function, "_jit_info", None)
    if info is None:
        return jax.jit(function, static_argnums=static, keep_unused=True)
    return jax.jit(
        function.__wrapped__,
        static_argnums=static or info.static_argnums,
        static_argnames=None if static else info.static_argnames,
        donate_argnums=info.donate_argnums,
        keep_unused=True,
    )


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
