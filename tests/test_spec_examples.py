"""Every worked example of the specification, through the builder (or text) and the interpreter."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import numpy as np
import pytest

import hloom as hl
from handbook.arguments import arguments_of
from handbook.literals import to_array
from handbook.specification import examples, method_name
from hloom.index import linear_index, multi_index
from hloom.text import parse_shape
from hloom.types import BY_NAME

BACKEND = "interpreter"
"""The backend of the examples; test_compiled.py runs them again on the compiled one."""

EXAMPLES = examples()


def assert_equal(got: Any, expected: dict[str, Any], rtol: float, atol: float) -> None:
    if "tuple" in expected:
        assert isinstance(got, tuple) and len(got) == len(expected["tuple"])
        for g, e in zip(got, expected["tuple"], strict=True):
            assert_equal(g, e, rtol, atol)
        return
    want = to_array(expected)
    assert got.dtype == want.dtype and got.shape == want.shape
    if BY_NAME[expected["type"]].is_float or BY_NAME[expected["type"]].is_complex:
        wide = np.complex128 if BY_NAME[expected["type"]].is_complex else np.float64
        g, w = got.astype(wide), want.astype(wide)
        np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, equal_nan=True)
        if wide is np.float64:
            assert np.array_equal(np.signbit(g[g == 0]), np.signbit(w[g == 0]))
            if any(value == "-nan" for value in np.ravel(np.array(expected["value"], dtype=object))):
                assert np.array_equal(np.signbit(g), np.signbit(w))
    else:
        np.testing.assert_array_equal(got, want)


class Names:
    """The builder functions under the specification's names, for the expressions in the examples."""

    def __init__(self, builder: hl.XlaBuilder | None = None) -> None:
        self.stack = [builder] if builder else []

    def __getitem__(self, name: str) -> Any:
        if name == "Constant":
            return self.constant
        if name == "Infeed":
            return lambda shape: self.current.infeed(parse_shape(shape))
        if re.fullmatch(r"[A-Z]\w*", name):
            return functools.partial(self.call, method_name(name))
        raise KeyError(name)

    @property
    def current(self) -> hl.XlaBuilder:
        return self.stack[-1]

    def constant(self, type_name: str, value: Any) -> hl.XlaOp:
        return self.current.constant(np.array(value, BY_NAME[type_name].dtype))

    def call(self, method: str, *args: Any) -> Any:
        return getattr(self.current, method)(*map(self.wrap, args))

    def wrap(self, argument: Any) -> Any:
        """Functions are traced by another builder: the names then mean that builder's functions."""
        if not callable(argument) or isinstance(argument, hl.XlaOp):
            return argument

        @functools.wraps(argument)
        def traced(*ops: hl.XlaOp) -> Any:
            self.stack.append(ops[0].builder)
            try:
                return argument(*ops)
            finally:
                self.stack.pop()

        return traced

    def evaluate(self, source: str, **values: Any) -> Any:
        globals_ = {name: self[name] for name in re.findall(r"\b[A-Z]\w*\b", source) if name not in BY_NAME}
        return self.wrap(eval(source, globals_, values))


def parameter_shape(value: Any, layout: list[int] | None) -> hl.Shape:
    shape = hl.Literal.from_value(value).shape
    return shape.with_layout(layout) if layout else shape


def run_example(example: dict[str, Any]) -> Any:
    attributes = example["attributes"]
    replicas = attributes.get("replicas")
    inputs = [[to_array(x) for x in row] for row in (example["inputs"] if replicas else [example["inputs"]])]
    if "hlo" in attributes:
        executable = hl.compile(attributes["hlo"], timeout=2.0, backend=BACKEND)
        results = executable.run_replicas(inputs)
        return results if replicas else results[0]
    if "function" in attributes:
        hl.register_custom_call(attributes["target_name"], eval(attributes["function"]))
    builder = hl.XlaBuilder(example["id"].replace("-", "_"))
    names = Names(builder)
    layout = attributes.pop("operand_minor_to_major", None) if "operand_minor_to_major" in attributes else None
    shapes = [parameter_shape(value, layout) for value in inputs[0]]
    operands = [builder.parameter(i, shape) for i, shape in enumerate(shapes)]
    if "program" in attributes:
        root = names.evaluate(attributes["program"], **{f"x{i}": op for i, op in enumerate(operands)})
    else:
        args, kwargs = arguments_of(example, operands, names.evaluate, parse_shape)
        root = getattr(builder, method_name(example["op"]))(*args, **kwargs)
    devices = [hl.Device(i) for i in range(replicas or 1)]
    for item in attributes.get("infeed", ()):
        devices[0].transfer_to_infeed(to_array(item))
    executable = hl.compile(
        builder.build(root), replicas=replicas or 1, devices=devices, timeout=5.0, seed=1, backend=BACKEND
    )
    results = executable.run_replicas(inputs)
    return results if replicas else results[0]


def run_shape_example(example: dict[str, Any]) -> Any:
    """The operations of shapes-and-layout.md."""
    attributes, op = example["attributes"], example["op"]
    value = to_array(example["inputs"][0])
    sizes = parse_shape(attributes["shape"]) if "shape" in attributes else hl.Literal.from_value(value).shape
    padding = attributes.get("padding_value")
    layout = hl.Layout(
        tuple(attributes.get("minor_to_major", range(sizes.rank - 1, -1, -1))),
        tuple(attributes.get("padded_dimensions", ())),
        hl.PaddingValue[padding] if padding else None,
        tuple(hl.Tile(tuple(t)) for t in attributes.get("tiles", ())),
    )
    shape = sizes.with_layout(layout)
    if op == "LinearMemory":
        return np.frombuffer(hl.Literal(shape, value).to_linear_memory(), value.dtype)
    if op == "LinearIndex":
        return np.asarray(linear_index(shape, value.tolist()))
    if op == "MultiIndex":
        return np.asarray(multi_index(shape, int(value)))
    if op == "TrueRank":
        return np.asarray(shape.true_rank)
    if op == "DimensionSize":
        return np.asarray(shape.dimension_size(attributes["dimension"]))
    return np.asarray(shape.dimensions)


SHAPE_OPS = {"LinearMemory", "LinearIndex", "MultiIndex", "TrueRank", "DimensionSize", "DimensionSizes"}


@pytest.mark.parametrize("example", EXAMPLES, ids=[e["id"] for e in EXAMPLES])
def test_example(example: dict[str, Any]) -> None:
    example = json.loads(json.dumps(example))
    run = run_shape_example if example["op"] in SHAPE_OPS else run_example
    if example.get("expected_error"):
        with pytest.raises(hl.HloomError):
            run(example)
        return
    got, expected = run(example), example["expected"]
    rtol, atol = example.get("rtol", 1e-6), example.get("atol", 0.0)
    if example["attributes"].get("replicas"):
        for g, e in zip(got, expected, strict=True):
            assert_equal(g, e, rtol, atol)
    else:
        assert_equal(got, expected, rtol, atol)
