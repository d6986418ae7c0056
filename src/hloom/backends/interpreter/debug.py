"""Observers for debugging with the interpreter: stop at the first NaN or infinity, or print chosen values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hloom.backends.interpreter.interpreter import Observer
from hloom.errors import RunError
from hloom.ir import Instruction
from hloom.ops.traits import CallLike
from hloom.types import BY_DTYPE
from hloom.values import Value, leaves


def combine(observers: Sequence[Observer]) -> Observer | None:
    """Returns an observer that calls all of them; None if there are none."""
    if not observers:
        return None

    def observe(instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        for observer in observers:
            observer(instruction, operands, value)

    return observe


class StoppedError(RunError):
    """A NaN or an infinity, which `stop_at` found."""


def stop_at(kind: str) -> Observer:
    """Returns an observer that raises StoppedError at the first NaN ("nan"), infinity ("inf") or either ("any").

    An instruction is reported if its result contains one and none of its operands does. The error shows statistics of
    the operands.
    """
    tests: dict[str, Callable[[Any], bool]] = {
        "nan": lambda x: bool(np.isnan(x).any()),
        "inf": lambda x: bool(np.isinf(x).any()),
        "any": lambda x: not bool(np.isfinite(x).all()),
    }
    test = tests[kind]

    def has(value: Value) -> bool:
        return any(test(array) for array in _float_arrays(value))

    def observe(instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        # Control flow computes nothing itself: the instructions inside are observed.
        if isinstance(instruction.op, CallLike):
            return
        if has(value) and not any(has(operand) for operand in operands):
            what = {"nan": "a NaN", "inf": "an infinity", "any": "a NaN or an infinity"}[kind]
            lines = [f"{what} first arises in {instruction!r}", f"result: {describe(value)}"]
            for operand, operand_value in zip(instruction.operands, operands, strict=True):
                lines.append(f"operand %{operand.name}: {describe(operand_value)}")
            raise StoppedError("\n  ".join(lines))

    return observe


def print_values(patterns: Sequence[str], write: Callable[[str], None]) -> Observer:
    """Returns an observer that writes values of instructions whose names match a pattern (`add*`), at each run."""

    def observe(instruction: Instruction, operands: Sequence[Value], value: Value) -> None:
        if any(instruction.matches(pattern) for pattern in patterns):
            write(f"{instruction!r}\n  {describe(value)}\n{summary(value)}")

    return observe


def _float_arrays(value: Value) -> list[Any]:
    arrays = [(leaf, BY_DTYPE[leaf.dtype]) for leaf in leaves(value) if isinstance(leaf, np.ndarray) and leaf.size]
    return [
        array if type.is_complex else array.astype(np.float64)
        for array, type in arrays
        if type.is_complex or type.is_float
    ]


def describe(value: Value) -> str:
    """Returns shape and statistics of a value in one line."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(describe, value)) + ")"
    if not isinstance(value, np.ndarray):
        return "token"
    element_type = BY_DTYPE[value.dtype]
    text = f"{element_type}[{','.join(map(str, value.shape))}]"
    if not value.size or element_type.is_complex:
        return text
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    parts = [f"min {finite.min():.6g}", f"max {finite.max():.6g}", f"mean {finite.mean():.6g}"] if finite.size else []
    nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    parts += [f"{nans} NaN"] * (nans > 0) + [f"{infinities} inf"] * (infinities > 0)
    return f"{text} {', '.join(parts)}"


def summary(value: Value) -> str:
    """Returns the text of an array, with long dimensions abbreviated; tuples element by element."""
    return "\n".join(
        np.array2string(leaf, threshold=60, edgeitems=3, max_line_width=100)
        if isinstance(leaf, np.ndarray)
        else "token"
        for leaf in leaves(value)
    )
