"""Arguments of the builder's methods, from the operands and attributes of a worked example."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from handbook.specification import Example

GROUPED = {"ConcatInDim", "Sort", "Map"}
PAIRED = {"Reduce", "ReduceWindow"}
_OF_RUNS = {"replicas", "function", "infeed", "operand_minor_to_major"}
"""Attributes of an example that say how it runs."""


def arguments_of(
    example: Example,
    operands: list[Any],
    computation: Callable[[str], Any],
    shape: Callable[[str], Any],
) -> tuple[list[Any], dict[str, Any]]:
    """Returns positional and keyword arguments of the builder's method.

    `computation` makes the value of a lambda expression, `shape` that of a shape in text.
    """
    op = example["op"]
    attributes = {key: _value(key, value, computation, shape) for key, value in example["attributes"].items()}
    attributes = {key: value for key, value in attributes.items() if key not in _OF_RUNS}
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
    if op in ("Conditional", "Call", "CompositeCall", "While"):
        return _of_control_flow(op, operands, attributes)
    if op == "SelectAndScatter":
        a = attributes
        windows = [a["window_dimensions"], a["window_strides"], a["padding"]]
        return [operands[0], a["select"], *windows, operands[1], operands[2], a["scatter"]], {}
    if op == "CustomCall":
        return [attributes["target_name"], operands, attributes["shape"]], {}
    if op == "RngBitGenerator":
        return [attributes["algorithm"], operands[0], attributes["shape"]], {}
    return operands, attributes


def _of_control_flow(op: str, operands: list[Any], attributes: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    if op == "While":
        return [attributes["condition"], attributes["body"], *operands], {}
    if op != "Conditional":
        return [attributes.pop("computation"), *operands], attributes
    if "true_computation" in attributes:
        true, false = attributes["true_computation"], attributes["false_computation"]
        return [operands[0], operands[1], true, operands[2], false], {}
    return [operands[0], attributes["branch_computations"], operands[1:]], {}


def _value(key: str, value: Any, computation: Callable[[str], Any], shape: Callable[[str], Any]) -> Any:
    if isinstance(value, str) and value.startswith("lambda") and key != "function":
        return computation(value)
    if key == "branch_computations":
        return [computation(each) for each in value]
    return shape(value) if key == "shape" else value
