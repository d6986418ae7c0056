"""HLO text of small modules, and their results on both backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hloom as hl
from hloom.files.arrays import flat
from hloom.types import BY_DTYPE

COMBINERS = """
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b)
}
second {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT
}
"""


def dot_module(lhs: str, rhs: str, out: str, dimensions: str) -> hl.Module:
    """A module that multiplies two parameters."""
    return hl.parse(
        f"HloModule m\nENTRY e {{ x = {lhs} parameter(0)\n y = {rhs} parameter(1)\n"
        f" ROOT d = {out} dot(x, y), {dimensions} }}"
    )


def convolution_module(line: str) -> hl.Module:
    """A module that convolves two parameters: `f32[2,5,4,3] f32[1,1,3,7] size=1x1 stride=2x2 b01f_01io->b01f`."""
    image, kernel, *words = line.split()
    window = " ".join(word for word in words if "=" in word and "group" not in word)
    (labels,) = (word for word in words if "->" in word)
    groups = "".join(f", {word}" for word in words if "group" in word)
    attributes = f"{f'window={{{window}}}, ' if window else ''}dim_labels={labels}{groups}"
    return hl.parse(
        f"HloModule m\nENTRY e {{ x = {image} parameter(0)\n k = {kernel} parameter(1)\n"
        f" ROOT c = convolution(x, k), {attributes} }}"
    )


SOFTMAX = """
x = f32[ROWS,COLUMNS] parameter(0)
zero = f32[] constant(0)
least = f32[] constant(-inf)
m = f32[ROWS] reduce(x, least), dimensions={1}, to_apply=largest
mb = f32[ROWS,COLUMNS] broadcast(m), dimensions={0}
d = f32[ROWS,COLUMNS] subtract(x, mb)
e = f32[ROWS,COLUMNS] exponential(d)
s = f32[ROWS] reduce(e, zero), dimensions={1}, to_apply=sum
sb = f32[ROWS,COLUMNS] broadcast(s), dimensions={0}
ROOT r = f32[ROWS,COLUMNS] divide(e, sb)
"""


def module_text(entry: str, computations: str = "") -> str:
    """A module: combiners of f32 scalars, other computations, and the entry's lines."""
    return f"HloModule m\n{COMBINERS}{computations}\nENTRY e {{\n{entry}\n}}\n"


def softmax(rows: int, columns: int) -> str:
    """The softmax of each row."""
    return module_text(SOFTMAX.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)))


def loop(state: str, body: str) -> str:
    """The computations `condition` and `body` of a loop.

    `state` are the shapes of x0, x1, ..; the body computes y0, y1, .. The state ends with a counter `i` and the number
    of iterations, which the compiler does not know.
    """
    shapes = state.split(" ")
    whole = f"({', '.join([*shapes, 's32[]', 's32[]'])})"
    elements = "\n".join(f"x{k} = {s} get-tuple-element(t), index={k}" for k, s in enumerate(shapes))
    results = ", ".join(f"y{k}" for k in range(len(shapes)))
    counter = f"""t = {whole} parameter(0)
  i = s32[] get-tuple-element(t), index={len(shapes)}
  iterations = s32[] get-tuple-element(t), index={len(shapes) + 1}"""
    return f"""
condition {{
  {counter}
  ROOT less = pred[] compare(i, iterations), direction=LT
}}
body {{
  {counter}
  {elements}
  one = s32[] constant(1)
  next = s32[] add(i, one)
  {body}
  ROOT r = {whole} tuple({results}, next, iterations)
}}
"""


def run_loop(state: str, iterations: int = 5) -> str:
    """Lines of an entry: runs the loop on parameters; y0, y1 .. are the state afterwards, `count` is the counter."""
    shapes = state.split(" ")
    count = len(shapes)
    whole = f"({', '.join([*shapes, 's32[]', 's32[]'])})"
    lines = [f"p{k} = {s} parameter({k})" for k, s in enumerate(shapes)]
    lines += [
        "start = s32[] constant(0)",
        f"known = s32[] constant({iterations})",
        "iterations = s32[] opt-barrier(known)",
    ]
    lines.append(f"t = {whole} tuple({', '.join(f'p{k}' for k in range(count))}, start, iterations)")
    lines.append(f"w = {whole} while(t), condition=condition, body=body")
    lines += [f"y{k} = {s} get-tuple-element(w), index={k}" for k, s in enumerate(shapes)]
    return "\n".join([*lines, f"count = s32[] get-tuple-element(w), index={count}"])


def arrays_for(module: hl.Module | str, seed: int = 0) -> list[np.ndarray]:
    """Arguments: small random numbers."""
    module = hl.parse(module) if isinstance(module, str) else module
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(-8, 9, s.dimensions) / (1 if s.element_type.is_integer else 4)).astype(s.element_type.dtype)
        for s in module.entry.parameter_shapes
    ]


def interpreted(module: hl.Module | str, *arrays: Any) -> list[np.ndarray]:
    """The results of the interpreter."""
    return flat(hl.compile(module, backend="interpreter")(*arrays))


def compiled(module: hl.Module | str, *arrays: Any) -> list[np.ndarray]:
    """The results of compiled code."""
    return flat(hl.compile(module, backend="cpu")(*arrays))


def sort_text(arrays: Sequence[np.ndarray], comparator: str, dimension: int, more: str = "") -> str:
    """Sorts the arrays together; the comparator has parameters a0, b0, a1, b1, .."""
    types = [str(BY_DTYPE[array.dtype]) for array in arrays]
    sizes = ",".join(map(str, arrays[0].shape))
    pairs = [f"  {side}{k} = {t}[] parameter({2 * k + s})" for k, t in enumerate(types) for s, side in enumerate("ab")]
    operands = [f"  x{k} = {t}[{sizes}] parameter({k})" for k, t in enumerate(types)]
    shapes = [f"{t}[{sizes}]" for t in types]
    result = shapes[0] if len(shapes) == 1 else "(" + ", ".join(shapes) + ")"
    names = ", ".join(f"x{k}" for k in range(len(arrays)))
    root = f"  ROOT r = {result} sort({names}), dimensions={{{dimension}}}{more}, to_apply=less"
    return "\n".join(["HloModule m", "less {", *pairs, "  " + comparator, "}", "ENTRY e {", *operands, root, "}"])
