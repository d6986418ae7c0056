"""Measures the error of every function on hloom's compiled code, hloom's interpreter and XLA's CPU backend.

    python tools/measure_accuracy.py run       # an hour on one core; resumes where it was stopped
    python tools/measure_accuracy.py sums
    python tools/measure_accuracy.py report    # writes docs/accuracy.md, its pictures and tests/worst_arguments.json

Real operations of f32 and f64 are compared with long double on every exponent and around their thresholds, those of
narrow types on all values; operations on complex numbers and functions of JAX with mpmath.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np

import json_lines
from accuracy.exact import IN_DOUBLE
from accuracy.functions import COMPLEX, REAL, SPECIAL, Function

NARROW = (np.float16, *(getattr(ml_dtypes, name) for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")))
ONLY_WIDE = ("ndtr", "ndtri", "log_ndtr", "spence")
"""Functions of JAX that refuse narrow types."""
folder_option = click.option(
    "--results", "folder", type=click.Path(path_type=Path), default="accuracy-results", show_default=True
)


def tasks() -> Iterator[tuple[Function, Any, int]]:
    """The functions with their types and the number of random arguments of each kind."""
    for function in REAL:
        yield function, np.float32, 20000
        yield function, np.float64, 20000
        if len(function.arguments(np.float32, 1, 1)) == 1:
            yield from ((function, dtype, 0) for dtype in NARROW)
    for function in COMPLEX:
        yield function, np.complex64, 200
        yield function, np.complex128, 200
    for function in SPECIAL:
        yield function, np.float32, 100_000 if function.name in IN_DOUBLE else 300
        yield function, np.float64, 300
        if function.name not in ONLY_WIDE and len(function.arguments(np.float32, 1, 1)) == 1:
            yield from ((function, dtype, 0) for dtype in NARROW[:2])


@click.group(help=__doc__)
def main() -> None: ...


def _prepare_jax() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "hloom,cpu")
    import jax

    jax.config.update("jax_enable_x64", True)


@main.command()
@click.argument("only", nargs=-1)
@folder_option
def run(only: tuple[str, ...], folder: Path) -> None:
    """Measures all functions, or those named."""
    _prepare_jax()
    from accuracy.measure import Measured, key, measure
    from accuracy.sides import HLOOM

    path = folder / "functions.jsonl"
    done = json_lines.read(path, Measured, "key")
    for function, dtype, count in tasks():
        if function.name not in only if only else key(function, dtype, HLOOM) in done:
            continue
        for measured in measure(function, dtype, count):
            json_lines.append(path, measured)
            click.echo(f"{measured.key}: {measured.largest:.4g} at {' '.join(measured.worst)}, {measured.wrong} wrong")


@main.command()
@folder_option
def sums(folder: Path) -> None:
    """Measures sums, products, transforms, factorisations and layers."""
    _prepare_jax()
    from accuracy.sums import measure

    for measured in measure():
        json_lines.append(folder / "sums.jsonl", measured)
        click.echo(f"{measured.key}: {measured.errors}")


@main.command()
@folder_option
def report(folder: Path) -> None:
    """Writes the page and the data of the test."""
    from accuracy import page

    page.write(folder)


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()
