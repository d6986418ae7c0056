"""The page of errors, `docs/accuracy.md`, its picture, and the data of the test: worst arguments with exact values."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

import json_lines
from accuracy import exact
from accuracy.functions import COMPLEX, REAL, SPECIAL, Function
from accuracy.measure import Measured, key
from accuracy.sides import HLOOM, SIDES, XLA
from accuracy.sums import Sum, table_of_sums

ROOT = Path(__file__).resolve().parents[2]
PAGE, PICTURE = ROOT / "docs" / "accuracy.md", ROOT / "docs" / "accuracy.svg"
WORST = ROOT / "tests" / "worst_arguments.json"
DRAWN = ("exponential", "log-plus-one", "tanh", "erf", "sinh", "erfc", "lgamma", "digamma", "exp2")
"""The functions in the picture."""

Results = dict[str, Measured]

INTRODUCTION = """# Accuracy of every function

The error of a function is the distance of its result from the exact value in units in the last place (ulp) of the type;
0.5 is correctly rounded. UNARY-2 states a bound of 2 ulp for f32 and f64, and 4 for a few functions;
`tests/test_accuracy.py` holds each function at its bound, on the worst arguments below and on random ones. Functions of
narrower types are computed in f32 and rounded once. On AVX-512 `tanh` and `erf` of f32 have formulas of their own, with
1.01 and 1.54 ulp at most.

    python tools/measure_accuracy.py run       # an hour on one core; resumes where it was stopped
    python tools/measure_accuracy.py sums
    python tools/measure_accuracy.py report

Arguments have every exponent of the type, and are close to zeros, poles, changes of formulas, limits of overflow and
underflow, and multiples of pi / 2 up to the largest; they have both signs. Exact values are those of long double (for
special functions of f32 of SciPy in f64), confirmed by mpmath at the worst argument, or of mpmath. *Interpreter* is
hloom's reference, *XLA* the CPU backend of jaxlib 0.10.2, which takes subnormals for 0: errors there, and special
values that differ from those of C's functions, count apart. Errors of 1000 ulp and more mean that digits are lost: with
10^6 ulp a result of f32 has one correct digit.

![errors of nine functions of f32 by the exponent of the argument](accuracy.svg)
"""

SPECIAL_FUNCTIONS = """\
On JAX's platform hloom has its own sinh, lgamma and others, where XLA replaces them by formulas that lose digits. JAX
itself composes further functions of others. Those with a derivative of their own (expi, exp1, log_ndtr, logit) hloom
recognises in jitted programs and computes itself; of the others it sees only the parts, and digits are lost before:
ndtr multiplies an argument by sqrt 1/2, and e^(-x^2) multiplies the rounding error by 2 x^2; betaln is a difference of
logarithms, without a bound where it is close to 0. The powers in igamma and betainc have exponents with the digits of
two f64 numbers. `next_after` is exact.

lgamma and digamma are measured for positive arguments: near their zeros between negative integers no bound of this kind
holds; ndtr, i0 and i1 up to 38 and 80, beyond which they are constant or overflow. Several arguments are spread over
powers of two: from 2^-20 to 2^6 for igamma and igammac, 2^-4 to 2^6 for the gradient of igamma, betaln and the shapes
of betainc, 2^-40 to 2^40 for the second one of zeta, 2^-6 to 2^8 for that of polygamma, of orders below 16. XLA's
programs for expi and exp1 do not end for arguments close to 0: those below 1/8 are left out.
"""


def write(folder: Path) -> None:
    """Writes the page, the picture and the data of the test from the results in a folder."""
    results = json_lines.read(folder / "functions.jsonl", Measured, "key")
    sums = json_lines.read(folder / "sums.jsonl", Sum, "key")
    PAGE.write_text("\n".join(_page(results, sums)))
    _picture(results)
    WORST.write_text(_worst_arguments(results))


def _page(results: Results, sums: dict[str, Sum]) -> Iterable[str]:
    yield INTRODUCTION
    for dtype in ("float32", "float64"):
        yield f"## Operations on {_type(dtype)}\n"
        yield from _table(results, REAL, dtype)
    yield "## Operations on narrower types\n"
    yield "The largest error over all values of the type, on hloom / its interpreter / XLA.\n"
    yield from _narrow(results, REAL, ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
    for dtype in ("complex64", "complex128"):
        yield f"## Operations on {_type(dtype)}\n"
        yield "In units of the modulus of the result; *part* is the largest error of a part in its own units.\n"
        yield from _table(results, COMPLEX, dtype, parts=True)
    yield "## Special functions of JAX and CHLO\n"
    yield SPECIAL_FUNCTIONS
    for dtype in ("float32", "float64"):
        yield f"### {_type(dtype)}\n"
        yield from _table(results, SPECIAL, dtype)
    yield "### f16 and bf16\n"
    yield "The largest error over all values of the type, on hloom / its interpreter / XLA.\n"
    yield from _narrow(results, SPECIAL, ["float16", "bfloat16"])
    yield from table_of_sums(sums)


def _type(dtype: str) -> str:
    return {"complex64": "c64", "complex128": "c128", "bfloat16": "bf16"}.get(
        dtype, dtype.replace("float8_", "f8").replace("float", "f").replace("_", "")
    )


def _table(results: Results, functions: list[Function], dtype: str, parts: bool = False) -> Iterable[str]:
    head = ["", "bound", "hloom", *(["part"] if parts else []), "at", "mean", "interpreter", "XLA"]
    head += ["XLA, subnormal", "XLA, special values"]
    yield _row(head)
    yield "|---" * len(head) + "|"
    for function in functions:
        ours, reference, theirs = (results.get(key(function, dtype, side)) for side in SIDES)
        if ours is None:
            continue
        bound = function.bound_for(dtype)
        row = [function.name, "" if math.isinf(bound) else f"{bound:g}", _error(ours.largest)]
        row += [_error(ours.of_parts)] if parts else []
        row += [
            ", ".join(map(_argument, ours.worst)),
            _error(ours.mean),
            _error(reference.largest if reference else None),
        ]
        if theirs is None:
            row += ["not implemented", "", ""]
        else:
            row += [_error(theirs.largest), _error(theirs.of_subnormals), str(theirs.wrong or "")]
        yield _row(row)
    yield ""


def _narrow(results: Results, functions: list[Function], types: list[str]) -> Iterable[str]:
    yield _row(["", *map(_type, types)])
    yield "|---" * (len(types) + 1) + "|"
    for function in functions:
        cells = []
        for dtype in types:
            sides = [results.get(key(function, dtype, side)) for side in SIDES]
            cells.append(" / ".join(_error(each.largest if each else None) for each in sides))
        if any(cell != " /  / " for cell in cells):
            yield _row([function.name, *cells])
    yield ""


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _error(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 1000 else f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def _argument(text: str) -> str:
    """A literal with seven digits."""
    value = complex(text.strip("()"))
    return f"{value.real:.7g}" if "j" not in text else f"{value.real:.4g}{value.imag:+.4g}i"


def _picture(results: Results) -> None:
    """Draws the largest error by exponent: hloom's and XLA's, a panel for each function."""
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    functions = [function for function in (*SPECIAL, *REAL) if function.name in DRAWN]
    for panel, name in zip(figure.subplots(3, 3).flat, DRAWN, strict=True):
        function = next(each for each in functions if each.name == name)
        for side, colour in ((XLA, "tab:orange"), (HLOOM, "tab:blue")):
            measured = results.get(key(function, np.float32, side))
            if measured is not None:
                exponents, errors = zip(*measured.by_exponent, strict=True)
                panel.plot(exponents, np.maximum(errors, 0.01), color=colour, linewidth=0.8, label=side)
        panel.axhline(function.bound, color="grey", linewidth=0.7)
        panel.set(
            title=name, yscale="log", xlim=(-45, 45), ylim=(0.01, 3e8), xlabel="exponent of the argument", ylabel="ulp"
        )
    figure.axes[0].legend()
    with matplotlib.rc_context({"svg.hashsalt": PICTURE.stem}):  # identifiers in the file are random otherwise
        figure.savefig(PICTURE, metadata={"Date": None})
    lines = PICTURE.read_text().splitlines()
    PICTURE.write_text("\n".join(line.rstrip() for line in lines) + "\n")


def _worst_arguments(results: Results) -> str:
    """Worst arguments of each side, with exact values of 25 digits, a function a line."""
    lines = []
    for function in (*REAL, *COMPLEX, *SPECIAL):
        for dtype in ("float32", "float64", "complex64", "complex128"):
            found = [results.get(key(function, dtype, side)) for side in SIDES]
            points = sorted({tuple(each.worst) for each in found if each is not None})
            cases = [case for point in points if (case := _case(function, point))]
            if cases and math.isfinite(function.bound):
                record = {"function": function.name, "jax": bool(function.of_jax), "type": dtype, "points": cases}
                lines.append(json.dumps(record))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _case(function: Function, point: tuple[str, ...]) -> dict[str, Any] | None:
    operands = [np.asarray(eval(text, {"nan": math.nan, "inf": math.inf})) for text in point]
    value = exact.by_mpmath(function.name, *operands)
    if value is None:
        return None
    parts = [value.real, value.imag] if isinstance(value, mpmath.mpc) else [value]
    return {"at": list(point), "value": [mpmath.nstr(part, 25) for part in parts]}
