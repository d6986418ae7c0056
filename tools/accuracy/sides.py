"""The sides of the comparison: hloom's compiled code, hloom's interpreter and XLA's CPU backend."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

import hloom as hl
from accuracy.functions import Function
from hloom.bench.peer import Peer
from hloom.pjrt.programs import read_stablehlo
from hloom.types import BY_DTYPE

Array = np.ndarray[Any, np.dtype[Any]]

HLOOM, INTERPRETER, XLA = "hloom", "interpreter", "XLA"
SIDES = (HLOOM, INTERPRETER, XLA)


def module_text(function: Function, operands: tuple[Array, ...]) -> str:
    """The HLO text of an operation on arrays."""
    shapes = [f"{BY_DTYPE[x.dtype].text}[{x.size}]" for x in operands]
    result = BY_DTYPE[operands[0].dtype]
    kind = result.real.text if function.name == "abs" else result.text
    lines = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(shapes)]
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    lines.append(f"ROOT r = {kind}[{operands[0].size}] {function.name}({names})")
    return "HloModule accuracy\nENTRY e {\n " + "\n ".join(lines) + "\n}"


@functools.cache
def _peer() -> Peer:
    return Peer()


def values(function: Function, side: str, operands: tuple[Array, ...]) -> Array:
    """The function's values as a side computes them; raises what the side raises if it does not have the function."""
    if function.of_jax is None:
        return _of_module(hl.parse(module_text(function, operands)), side, operands)
    import jax

    if side == INTERPRETER:
        lowered = jax.jit(function.of_jax).trace(*operands).lower(lowering_platforms=("hloom",))
        (result,) = hl.compile(read_stablehlo(lowered.as_text().encode()), "interpreter")(*operands)
        return np.asarray(result)
    device = jax.devices("hloom" if side == HLOOM else "cpu")[0]
    return np.asarray(jax.jit(function.of_jax)(*(jax.device_put(x, device) for x in operands)))


def _of_module(module: Any, side: str, operands: tuple[Array, ...]) -> Array:
    if side != XLA:
        return np.asarray(hl.compile(module, "cpu" if side == HLOOM else "interpreter")(*operands))
    peer = _peer()
    (result,) = peer.compile(peer.translate(module)).arrays(peer.put(list(operands)))
    return result
