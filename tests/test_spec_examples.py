"""Every worked example of the specification, through the builder (or text) and the interpreter."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Any

import numpy as np
import pytest

import hloom as hl
from conftest import SPECIFICATION
from hloom.index import linear_index, multi_index
from hloom.text import parse_shape
from hloom.types import BY_NAME

BACKEND = "interpreter"
"""The backend of the examples; test_compiled.py runs them again on the compiled one."""

EXAMPLES = json.loads((SPECIFICATION / "examples.json").read_text())
NAMES = {"And": "and_", "Or": "or_", "Not": "not_", "While": "while_", "Conv": "conv", "TopK": "top_k"}


def snake(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def to_array(literal: dict[str, Any]) -> Any:
    """The array, or tuple of arrays, of a literal as examples.json writes it."""
    if "tuple" in literal:
        return tuple(map(to_array, literal["tuple"]))
    element_type = BY_NAME[literal["type"]]

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(v) for v in value]
        if isinstance(value, str):
            if element_type.is_complex:
                return complex(value)
            return -math.nan if value == "-nan" else float(value)
        return value

    values = number(literal["value"])
    if element_type.is_float:
        array = np.array(values, np.float64)
        negative_nan = np.array(
            [v == "-nan" for v in np.ravel(np.array(literal["value"], dtype=object))], bool
        ).reshape(array.shape)
        array = np.where(negative_nan, np.copysign(np.nan, -1.0), array)
        array = np.where(np.isnan(array) & ~negative_nan, np.nan, array)
        return array.astype(element_type.dtype).reshape(literal["shape"])
    if element_type.bits < 8:
        return np.array(values, np.int64).astype(element_type.dtype).reshape(literal["shape"])
    return np.array(values, element_type.dtype).reshape(literal["shape"])


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
            return functools.partial(self.call, snake(name))
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


GROUPED = {"ConcatInDim", "Sort", "Map"}
PAIRED = {"Reduce", "ReduceWindow"}


def arguments_of(example: dict[str, Any], operands: list[Any], names: Names) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of the builder method."""
    op = example["op"]
    attributes = {k: v for k, v in example["attributes"].items() if k not in ("replicas", "function", "infeed")}
    for key, value in attributes.items():
        if isinstance(value, str) and value.startswith("lambda"):
            attributes[key] = names.evaluate(value)
        elif key == "branch_computations":
            attributes[key] = [names.evaluate(v) for v in value]
        elif key == "shape":
            attributes[key] = parse_shape(value)
    if op in GROUPED:
        return [operands], attributes
    if op in PAIRED:
        half = len(operands) // 2
        return [operands[:half], operands[half:]], attributes
    if op == "Scatter":
        count = (len(operands) - 1) // 2
        return [operands[:count], operands[count], operands[count + 1 :]], attributes
    if op == "DynamicSlice":
        return [operands[0], operands[1:]], attributes
    if op == "DynamicUpdateSlice":
        return [operands[0], operands[1], operands[2:]], attributes
    if op == "DotGeneral":
        return [*operands, attributes], {}
    if op == "Conditional":
        if "true_computation" in attributes:
            true, false = attributes["true_computation"], attributes["false_computation"]
            return [operands[0], operands[1], true, operands[2], false], {}
        return [operands[0], attributes["branch_computations"], operands[1:]], {}
    if op in ("Call", "CompositeCall"):
        return [attributes.pop("computation"), *operands], attributes
    if op == "While":
        return [attributes["condition"], attributes["body"], *operands], {}
    if op == "SelectAndScatter":
        a = attributes
        windows = [a["window_dimensions"], a["window_strides"], a["padding"]]
        return [operands[0], a["select"], *windows, operands[1], operands[2], a["scatter"]], {}
    if op == "CustomCall":
        return [attributes["target_name"], operands, attributes["shape"]], {}
    if op == "RngBitGenerator":
        return [attributes["algorithm"], operands[0], attributes["shape"]], {}
    return operands, attributes


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
        args, kwargs = arguments_of(example, operands, names)
        root = getattr(builder, snake(example["op"]))(*args, **kwargs)
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
