"""Calls of hloom's own custom-call targets, drawn from their signatures, and damaged: `python target_calls.py FIRST COUNT`.

Each case prints its number before it runs, so that the one that ends the process is known.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any

import numpy as np

import hloom as hl
from hloom.errors import HloomError
from hloom.fuzz.grammar.calls import DrawnCall, draw_call
from hloom.fuzz.grammar.draw import Draw
from hloom.runtime.custom_calls.targets import signatures
from hloom.shape import Shape
from hloom.types import BY_NAME

ODD_TYPES = [BY_NAME[name] for name in ("pred", "s8", "s32", "u64", "bf16", "f16", "f32", "f64", "c64", "c128", "s4")]
ODD_VALUES = ("-1", "0", "1", "99 : ui8", "1.5", '"x"', "true", "1099511627776", "78 : ui8", '"UV"', "nan", "{")


def text_of(call: DrawnCall) -> str:
    parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(call.operands))
    names = ", ".join(f"p{k}" for k in range(len(call.operands)))
    config = call.config.replace("\\", "\\\\").replace('"', '\\"')
    return (
        f"HloModule m\nENTRY e {{\n{parameters}  ROOT r = {call.result} custom-call({names}), "
        f'custom_call_target="{call.target}", backend_config="{config}"\n}}'
    )


def damaged(call: DrawnCall, rng: np.random.Generator) -> DrawnCall:
    """The call with one thing changed: a shape, their number or order, or the attributes."""
    shapes = [*call.operands, *(call.result.elements if call.result.is_tuple else [call.result])]
    count = len(call.operands)
    kind = rng.integers(8)
    if kind == 0:
        return dataclasses.replace(call, config=_odd_config(call.config, rng))
    if kind == 1 and count > 1:
        order = rng.permutation(count)
        return dataclasses.replace(call, operands=tuple(call.operands[k] for k in order))
    k = int(rng.integers(len(shapes))) if shapes else 0
    if kind == 2 and shapes:
        del shapes[k]
        count -= k < count
    elif kind == 3 or not shapes:
        shapes.insert(k, Shape.array(ODD_TYPES[rng.integers(len(ODD_TYPES))], (int(rng.integers(4)),)))
        count += k < count
    elif kind == 4:
        shapes[k] = shapes[k].with_element_type(ODD_TYPES[rng.integers(len(ODD_TYPES))])
    else:
        shapes[k] = _resized(shapes[k], rng)
    results = shapes[count:]
    as_tuple = call.result.is_tuple != (rng.random() < 0.1)
    result = Shape.tuple_of(results) if as_tuple or len(results) != 1 else results[0]
    return dataclasses.replace(call, operands=tuple(shapes[:count]), result=result)


def _odd_config(config: str, rng: np.random.Generator) -> str:
    value = ODD_VALUES[rng.integers(len(ODD_VALUES))]
    entries = [match.span(1) for match in re.finditer(r"(?:=|,|^)\s*([^,={}]+)", config)]
    if not entries or rng.random() < 0.2:
        return value
    start, end = entries[rng.integers(len(entries))]
    return config[:start] + value + config[end:]


def _resized(shape: Shape, rng: np.random.Generator) -> Shape:
    sizes = [*shape.dimensions]
    if not sizes or rng.random() < 0.2:
        sizes.insert(int(rng.integers(len(sizes) + 1)), int(rng.integers(4)))
    elif rng.random() < 0.2:
        del sizes[rng.integers(len(sizes))]
    else:
        k = rng.integers(len(sizes))
        sizes[k] = max(0, sizes[k] + int(rng.choice([-1, 1, 2, 50])))
    return Shape.array(shape.element_type, sizes)


def array(shape: Shape, rng: np.random.Generator, is_odd: bool) -> np.ndarray:
    """Values of any size; of matrices with a large diagonal where they should be tame."""
    dtype = shape.element_type.dtype
    if dtype.kind in "iub" or shape.element_type.is_integer:
        values = rng.integers(-(2**31), 2**31, shape.dimensions) if is_odd else rng.integers(0, 4, shape.dimensions)
        return np.asarray(values).astype(dtype)
    values = rng.standard_normal(shape.dimensions)
    if shape.rank >= 2:
        values = values + 4 * np.eye(*shape.dimensions[-2:])
    if is_odd and values.size:
        values.reshape(-1)[rng.integers(values.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e300])
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(dtype)


def outcome(call: DrawnCall, rng: np.random.Generator, is_odd: bool) -> str:
    """ "refused", or "ran" where both backends give the same shapes, and of tame values the same values."""
    arguments = [array(shape, rng, is_odd) for shape in call.operands]
    results: list[Any] = []
    for backend in ("interpreter", "cpu"):
        try:
            results.append(hl.compile(text_of(call), backend=backend)(*arguments))
        except HloomError as error:
            results.append(error)
    if any(isinstance(result, HloomError) for result in results):
        assert all(isinstance(result, HloomError) for result in results), results
        return "refused"
    got, want = (result if isinstance(result, tuple) else (result,) for result in results)
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        if not is_odd and a.size and call.target != "AllocateBuffer":
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            a, b = a.astype(wide), b.astype(wide)
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * (1 + np.nanmax(np.abs(b), initial=0)))
    return "ran"


def run(first: int, count: int) -> None:
    declared = sorted(signatures().items())
    for seed in range(first, first + count):
        print(seed, end=" ", flush=True)
        rng = np.random.default_rng(seed)
        call = draw_call(Draw(seed), *declared[seed % len(declared)])
        if (seed // len(declared) + seed) % 4:
            call = damaged(call, rng)
        print(outcome(call, rng, is_odd=bool(seed % 3 == 0)))


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
