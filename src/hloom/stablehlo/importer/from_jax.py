"""Conversion of JAX functions to HLO modules: `from_jax` traces and lowers a function with JAX."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.errors import ArgumentError
from hloom.ir import Module
from hloom.runtime.executable import Executable
from hloom.runtime.traced import Traced


def from_jax(
    function: Callable[..., Any], *args: Any, static_argnums: int | Sequence[int] = (), **kwargs: Any
) -> Module:
    """Converts a JAX function to a module, for the shapes and types of some arguments.

    Arguments:
        function: a function of JAX arrays, plain or made by `jax.jit`.
        args: positional arguments: arrays, numbers, `jax.ShapeDtypeStruct`, and any pytrees of these.
        static_argnums: the positional arguments that are constants of the program. A jitted function has its own.
        kwargs: keyword arguments, as `args`.

    The entry takes the leaves of all arguments that are not static, in the order in which `jax.tree.leaves` lists them,
    used or not; a parameter's metadata has its name in the signature, such as `params['w']`. The result is the tuple of
    the result's leaves, or the one leaf. Sizes of symbolic shapes (`jax.export.symbolic_shape`) are
    unbounded. Raises ArgumentError if JAX is not installed or cannot trace the function.

    >>> import jax.numpy as jnp
    >>> module = hl.from_jax(lambda x: 2 * jnp.sin(x), np.float32([0, 1]))
    >>> module.entry.root
    %multiply = f32[2] multiply(%broadcast, %sine)
    """
    if not callable(function):
        raise ArgumentError(f"from_jax takes a function, got {type(function).__name__}")
    if importlib.util.find_spec("jax") is None:
        raise ArgumentError("from_jax traces functions with JAX, which is missing: pip install jax")
    import jax

    try:
        # Lower for the host, whatever device JAX would choose.
        jitted = _jitted(jax, function, static_argnums)
        traced = jitted.trace(*args, **kwargs)
        lowered = traced.lower(lowering_platforms=("cpu",), _private_parameters=_lowering_parameters())
        text = lowered.as_text(dialect="stablehlo", debug_info=True)
        exported = _exported(jitted, args, kwargs) if "jax.global_constant" in text else None
    except Exception as error:
        # The cause keeps the exception that the user's function raised.
        raise ArgumentError(f"JAX cannot lower {_name(function)}: {type(error).__name__}: {error}") from error
    from hloom.stablehlo.importer.module import parse_stablehlo

    module = parse_stablehlo(text)
    return module if exported is None else _with_parameter_names(parse_stablehlo(exported), module)


def _lowering_parameters() -> Any:
    """Replaces JAX's rule for Pallas kernels, which it only interprets on the CPU, if the program may have any."""
    from jax._src.interpreters import mlir

    if "jax._src.pallas.pallas_call" not in sys.modules:
        return None
    from hloom.stablehlo.pallas.lowering import RULES

    return mlir.LoweringParameters(override_lowering_rules=RULES)


def _exported(jitted: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Returns a program with symbolic sizes, which it computes from its arguments: lowered, it takes them as others."""
    from jax import export

    return str(export.export(jitted, platforms=["cpu"])(*args, **kwargs).mlir_module())


def _with_parameter_names(module: Module, lowered: Module) -> Module:
    """Gives the parameters the names that they have in the lowered program, in which sizes precede them."""
    parameters = module.entry.parameters
    for parameter, named in zip(parameters, lowered.entry.parameters[-len(parameters) :], strict=True):
        parameter.name = named.name
    return module


def traced(program: Any, arguments: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
    """Converts a JAX function and its arguments to a module and the arguments' leaves; other programs are returned
    unchanged.

    Raises ArgumentError if JAX is not installed or cannot trace the function.
    """
    if not callable(program) or hasattr(program, "module"):
        return program, tuple(arguments)
    module = from_jax(program, *arguments)
    from jax import tree

    return module, tuple(np.asarray(leaf) for leaf in tree.leaves(arguments))


def call_of(
    function: Callable[..., Any], compile_module: Callable[[Module], Executable]
) -> Callable[[Sequence[Any]], Traced]:
    """Returns what `TracedExecutable` needs: the calls of a function, traced when their program is compiled."""

    def call(arguments: Sequence[Any]) -> Traced:
        if importlib.util.find_spec("jax") is None:
            return (), [], lambda: compile_module(from_jax(function))  # raises the error that says so
        from jax import tree

        found = [np.asarray(leaf) for leaf in tree.leaves(tuple(arguments))]
        key = (str(tree.structure(tuple(arguments))), *((leaf.shape, leaf.dtype) for leaf in found))
        return key, [*found], lambda: compile_module(from_jax(function, *arguments))

    return call


def _jitted(jax: Any, function: Any, static_argnums: int | Sequence[int]) -> Any:
    """Wraps a function in a `jax.jit` that keeps unused arguments."""
    static = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    # A jitted function drops unused arguments, so the wrapped function is jitted again with its static and donated
    # ones.
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
