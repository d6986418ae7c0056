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
from hloom.errors import HloomError, RuleError
from hloom.runtime.custom_calls.signature import Attribute, Pattern, Signature
from hloom.runtime.custom_calls.targets import signatures
from hloom.shape import Shape
from hloom.types import BY_NAME, PrimitiveType

ODD_TYPES = [BY_NAME[name] for name in ("pred", "s8", "s32", "u64", "bf16", "f16", "f32", "f64", "c64", "c128", "s4")]
ODD_VALUES = ("-1", "0", "1", "99 : ui8", "1.5", '"x"', "true", "1099511627776", "78 : ui8", '"UV"', "nan", "{")


@dataclasses.dataclass(frozen=True)
class Call:
    target: str
    operands: tuple[Shape, ...]
    result: Shape
    config: str

    def text(self) -> str:
        parameters = "".join(f"  p{k} = {shape} parameter({k})\n" for k, shape in enumerate(self.operands))
        names = ", ".join(f"p{k}" for k in range(len(self.operands)))
        config = self.config.replace("\\", "\\\\").replace('"', '\\"')
        return (
            f"HloModule m\nENTRY e {{\n{parameters}  ROOT r = {self.result} custom-call({names}), "
            f'custom_call_target="{self.target}", backend_config="{config}"\n}}'
        )


def draw(target: str, signature: Signature, rng: np.random.Generator) -> Call:
    """A call that fits the signature."""
    for _ in range(1000):
        attributes = {name: _draw_value(each, rng) for name, each in signature.attributes.items()}
        names = sorted(set(re.findall(r"\b[a-z]\b", signature.text)) - set(signature.where))
        sizes: dict[str, Any] = {name: int(rng.integers(0, 6)) for name in names}
        if rng.random() < 0.5:
            sizes = dict.fromkeys(sizes, int(rng.integers(0, 6)))
        for name, expression in signature.where.items():
            sizes[name] = eval(expression, {}, {**sizes, **attributes})
        batch = tuple(int(n) for n in rng.integers(0, 4, rng.integers(0, 3)))
        kind = signature.types[rng.integers(len(signature.types))] if signature.types else PrimitiveType.F32
        whole = Shape.array(kind, batch)
        operands = [_shape(p, sizes, batch, kind, whole) for p in signature.operands for _ in _repeats(p, batch, rng)]
        results = [_shape(p, sizes, batch, kind, whole) for p in signature.results for _ in _repeats(p, batch, rng)]
        result = results[0] if len(results) == 1 else Shape.tuple_of(results)
        call = Call(target, tuple(operands), result, _config(signature, attributes))
        try:
            signature.bind(target, call.operands, call.result, call.config)
        except RuleError:
            continue
        return call
    raise AssertionError(f"no call of {target} fits {signature}")


def _draw_value(attribute: Attribute, rng: np.random.Generator) -> Any:
    options = attribute.options
    if isinstance(options, bool):
        return bool(rng.integers(2))
    if isinstance(options, str):
        return options[rng.integers(len(options))]
    return int(rng.integers(0, 6)) if isinstance(options, range) else 1e-6


def _config(signature: Signature, attributes: dict[str, Any]) -> str:
    if signature.positional:
        return ",".join(str(int(value) if isinstance(value, bool) else value) for value in attributes.values())
    entries = [f"{name} = {_written(value)}" for name, value in attributes.items()]
    return "{" + ", ".join(entries) + "}" if entries else ""


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{ord(value)} : ui8" if isinstance(value, str) else f"{value} : i32"


def _repeats(pattern: Pattern, batch: tuple[int, ...], rng: np.random.Generator) -> range:
    return range({None: 1, "rank": len(batch), "any": int(rng.integers(3))}[pattern.repeat])


def _shape(pattern: Pattern, sizes: dict[str, Any], batch: tuple[int, ...], kind: PrimitiveType, whole: Shape) -> Shape:
    if pattern.sizes is None:
        return whole
    parts = {PrimitiveType.C64: "f32", PrimitiveType.C128: "f64"}
    wholes = {PrimitiveType.F32: "c64", PrimitiveType.F64: "c128"}
    element = {
        "T": kind,
        "real(T)": BY_NAME[parts.get(kind, kind.text)],
        "complex(T)": BY_NAME[wholes.get(kind, kind.text)],
    }.get(pattern.type) or BY_NAME[pattern.type]
    dimensions: list[int] = []
    for size in pattern.sizes:
        dimensions += batch if size == "*" else [max(0, eval(size, {}, dict(sizes)))]
    return Shape.array(element, dimensions)


def damaged(call: Call, rng: np.random.Generator) -> Call:
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


def outcome(call: Call, rng: np.random.Generator, is_odd: bool) -> str:
    """ "refused", or "ran" where both backends give the same shapes, and of tame values the same values."""
    arguments = [array(shape, rng, is_odd) for shape in call.operands]
    results: list[Any] = []
    for backend in ("interpreter", "cpu"):
        try:
            results.append(hl.compile(call.text(), backend=backend)(*arguments))
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
        call = draw(*declared[seed % len(declared)], rng)
        if (seed // len(declared) + seed) % 4:
            call = damaged(call, rng)
        print(outcome(call, rng, is_odd=bool(seed % 3 == 0)))


if __name__ == "__main__":
    run(int(sys.argv[1]), int(sys.argv[2]))
