"""Helpers for tests of passes: small modules from shorthand text, running and comparing them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

import hloom as hl
from hlo_text import arrays_for, compiled, interpreted, module_text
from hloom.files.arrays import flat
from hloom.passes import clone_module, run_passes
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.text import fingerprint
from hloom.verifier import verify_module

PARAMETERS = {
    "x": "f32[4]", "y": "f32[4]", "z": "f32[4]", "d": "f64[4]", "h": "bf16[4]", "c": "c64[4]", "s": "f32[]",
    "i": "s32[4]", "j": "s32[4]", "u": "u32[4]", "p": "pred[4]", "q": "pred[4]",
    "m": "f32[2,3]", "n": "f32[2,3]", "o": "f32[1,4]", "e": "f32[0]", "t": "f32[2,1,3]", "k": "s32[]", "v": "f32[1]",
    "m3": "f32[3,2]", "n3": "f32[3,2]", "e2": "f32[2,0]", "e3": "f32[0,3]",
}  # fmt: skip

SPLATS = {
    "i0": ("s32", "0"), "i1": ("s32", "1"), "i2": ("s32", "2"), "i_1": ("s32", "-1"), "i5": ("s32", "5"),
    "imin": ("s32", "-2147483648"), "imax": ("s32", "2147483647"), "u0": ("u32", "0"), "u8": ("u32", "8"),
    "f0": ("f32", "0"), "f_0": ("f32", "-0"), "f1": ("f32", "1"), "f_1": ("f32", "-1"), "f2": ("f32", "2"),
    "f3": ("f32", "3"), "f8": ("f32", "8"), "f_inf": ("f32", "-inf"), "finf": ("f32", "inf"), "fhalf": ("f32", "0.5"),
    "d2": ("f64", "2"), "t1": ("pred", "true"), "t0": ("pred", "false"),
}  # fmt: skip


def module(body: str, like: str = "") -> hl.Module:
    """A module of one computation, written as `add(x, i0)` or as lines `a = f32[4] negate(x); ROOT r = ...`.

    Names of PARAMETERS in `body` or `like` become parameters, names of SPLATS constants of four equal elements.
    """
    words = re.findall(r"\b[a-z]\w*\b(?!\s*=)", f"{body} {like}")
    parameters = [name for name in PARAMETERS if name in words]
    lines = [f"{name} = {PARAMETERS[name]} parameter({k})" for k, name in enumerate(parameters)]
    for name, (kind, value) in SPLATS.items():
        if name in words:
            lines.append(f"{name}s = {kind}[] constant({value})")
            lines.append(f"{name} = {kind}[4] broadcast({name}s), dimensions={{}}")
    if re.fullmatch(r"\w+", body.strip()):
        lines = [f"ROOT {line}" if line.startswith(f"{body.strip()} = ") else line for line in lines]
    else:
        lines += body.split(";")
    return hl.parse(module_text("\n".join(lines)))


def same_graph(a: hl.Module, b: hl.Module) -> bool:
    """Whether two modules differ at most in names, order and dead code."""
    for each in (a, b):
        DeadCodeElimination().run(each)
    return fingerprint(a) == fingerprint(b)


def inputs(of: hl.Module, seed: int = 0) -> list[np.ndarray]:
    """Arrays with zeros of both signs, infinities, NaN and the extremes of integers among them."""
    rng = np.random.default_rng(seed)
    return [_values(rng, shape) for shape in of.entry.parameter_shapes]


def _values(rng: np.random.Generator, shape: hl.Shape) -> np.ndarray:
    element_type = shape.element_type
    sizes = shape.dimensions
    if element_type.is_pred:
        return rng.random(sizes) < 0.5
    if element_type.is_integer:
        limits = ml_dtypes.iinfo(element_type.dtype)
        special = np.array([0, 1, 2, 5, 7, int(limits.max), int(limits.min), int(limits.max) - 1])
        special = special.astype(element_type.dtype)
    else:
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.5, 3.7, 1e-40, 1e30]).astype(element_type.dtype)
    return special[rng.integers(len(special), size=sizes)]


def run(of: hl.Module, arrays: list[Any]) -> list[np.ndarray]:
    return flat(hl.compile(of, seed=0, backend="interpreter")(*arrays))


def difference(a: list[np.ndarray], b: list[np.ndarray]) -> str | None:
    """Describes the first bitwise difference of results, where all NaNs are equal; None if there is none."""
    assert len(a) == len(b)
    for k, (left, right) in enumerate(zip(a, b, strict=True)):
        left, right = np.asarray(left), np.asarray(right)
        if left.shape != right.shape or left.dtype != right.dtype:
            return f"result {k}: {left.dtype}{left.shape} and {right.dtype}{right.shape}"
        parts = [(left.real, right.real), (left.imag, right.imag)] if left.dtype.kind == "c" else [(left, right)]
        for one, other in parts:
            one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
            equal = one.view(f"V{one.itemsize}") == other.view(f"V{other.itemsize}")
            if one.dtype.kind not in "iub":
                equal = equal | (np.isnan(one) & np.isnan(other))
            if not equal.all():
                return f"result {k}: {left} and {right}"
    return None


def check_same_results(before: hl.Module, transform: Any, arrays: list[Any]) -> hl.Module:
    """Transforms a copy of the module, checks that it is valid and has the same results, and returns it."""
    after = clone_module(before)
    transform(after)
    verify_module(after)
    found = difference(run(before, arrays), run(after, arrays))
    assert found is None, f"{found}\n{before.to_text()}\n{after.to_text()}"
    return after


def check_natively(module: hl.Module, step: Pass) -> hl.Module:
    """Runs a pass on a copy of the module, checks the results of both and of native code, and returns the copy."""
    after = clone_module(module)
    assert run_passes(after, step, verify=True)[0].changes >= 1
    arrays = arrays_for(module)
    for want, got, native in zip(
        interpreted(module, *arrays), interpreted(after, *arrays), compiled(module, *arrays), strict=True
    ):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(native, want)
    return after
