"""Compiles one operation, alone and between element-wise ones, and compares it with a formula in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hlo_text import compiled
from hloom.types import BY_DTYPE, BY_NAME

Array = np.ndarray[Any, Any]
TYPES = ["f32", "s8", "u64", "bf16", "f8e4m3fn", "c64", "pred", "s4"]
"""An element type of each kind and width: wide, narrow, complex, packed."""


def values(sizes: Sequence[int], type: str = "f32", start: int = 0) -> Array:
    """Returns elements that differ from their neighbours, and are exact in each element type."""
    counted = (np.arange(np.prod(sizes, dtype=int)) * 5 + start) % 13
    dtype = BY_NAME[type].dtype
    if type == "pred":
        result: Array = counted % 3 == 0
    elif type in ("s4", "u4"):
        result = counted % 8
    elif BY_NAME[type].is_complex:
        result = counted + 1j * counted[::-1]
    else:
        result = counted
    return result.astype(dtype).reshape(tuple(sizes))


def shape_of(array: Array) -> str:
    """The shape in HLO text, `f32[2,3]`."""
    return f"{BY_DTYPE[array.dtype]}[{','.join(map(str, array.shape))}]"


def twice(array: Array) -> Array:
    """The instruction that `check` puts before and after the operation: x + x, or `not` of predicates."""
    return ~array if array.dtype == bool else (array + array).astype(array.dtype)


def same(found: Array, expected: Array) -> None:
    """Asserts that two arrays have one type and shape and are equal, NaN to NaN."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    narrow = expected.dtype in (ml_dtypes.int4, ml_dtypes.uint4)
    wide = np.dtype(np.int8) if narrow else expected.dtype
    np.testing.assert_array_equal(found.astype(wide), expected.astype(wide))


def check(operation: str, formula: Callable[..., Array], *arrays: Array, computations: str = "") -> None:
    """Compares `operation`, whose operands are x0, x1, .., with `formula(*arrays)`; then both between `twice`."""
    expected = formula(*arrays)
    parameters = "\n".join(f"  x{k} = {shape_of(array)} parameter({k})" for k, array in enumerate(arrays))
    result = shape_of(expected)
    head = f"HloModule m\n{computations}\nENTRY e {{\n{parameters}\n"
    (alone,) = compiled(f"{head}  ROOT r = {result} {operation}\n}}", *arrays)
    same(alone, expected)
    first = shape_of(arrays[0])
    is_predicate = arrays[0].dtype == bool
    before, after = ("not(x0)", "not(r)") if is_predicate else ("add(x0, x0)", "add(r, r)")
    between = re.sub(r"\bx0\b", "y0", operation)
    (fused,) = compiled(
        f"{head}  y0 = {first} {before}\n  r = {result} {between}\n  ROOT z = {result} {after}\n}}", *arrays
    )
    same(fused, twice(formula(twice(arrays[0]), *arrays[1:])))
