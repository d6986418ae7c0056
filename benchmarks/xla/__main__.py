"""`python -m benchmarks.xla CHECKOUT`: measures the modules of XLA's list that the results file lacks."""

from __future__ import annotations

import functools
import json
import shutil
import tempfile
from pathlib import Path

import click

import hloom
from benchmarks.kept_kernels import caches_in, kept_kernels
from benchmarks.measure import Result, measure
from benchmarks.process import Process
from benchmarks.report import draw, show
from benchmarks.results import collect, matching, with_selection
from benchmarks.xla.modules import Listed, listed, parameters
from benchmarks.xla.page import RATIOS, page
from benchmarks.xla.worker import FILLED, PARAMETERS, SEED, TEXT
from hloom.files.elided import fill_elided
from hloom.ir import Module
from hloom.proto import module_to_bytes
from hloom.system.machine import memory_size

LARGE_BYTES = 1 << 30
"""Size of the arguments from which the sides are measured one after the other."""
MEMORY_FACTOR = 1.8
"""Memory that a side needs in relation to its arguments, if these are large."""

SECONDS = 0.2
"""Time for which the steps of a module are repeated, five times."""

TOLERANCE, HALF_TOLERANCE = 2e-3, 2e-2
"""Largest difference relative to the largest element of a result, for modules without and with 16-bit floats."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False))
@with_selection("modules", "build/xla_benchmarks.jsonl")
@click.option("--page", "target", type=click.Path(path_type=Path), help="Write the page, and the plot beside it.")
def main(checkout: Path, pattern: str, path: Path, target: Path | None) -> None:
    """The modules that XLA's developers measure their CPU backend with, on hloom and on XLA in turns.

    CHECKOUT is a checkout of XLA. An interrupted run can be resumed.
    """
    modules = {module.name: module for module in listed(checkout)}
    names = matching(modules, pattern)
    present = [name for name in names if modules[name].path.exists()]
    results = collect(present, path, lambda name: measured(modules[name]))
    show(results, RATIOS)
    if target is not None:
        target.write_text(page([modules[name] for name in names], results, kept_kernels()))
        draw(results, target.with_suffix(".svg"), RATIOS)


def measured(module: Listed) -> Result:
    """Measures a module. Raises HloomError if hloom refuses it, and RuntimeError if a worker ends."""
    with tempfile.TemporaryDirectory() as made:
        inputs = Path(made)
        shutil.copy(module.path, inputs / TEXT)
        filled = fill_elided(hloom.load(module.path), SEED)
        filled.input_output_alias, filled.buffer_donors = [], []  # XLA would overwrite the arguments of the next step
        (inputs / FILLED).write_bytes(module_to_bytes(filled))
        (inputs / PARAMETERS).write_text(json.dumps(parameters(filled)))
        size = sum(shape.byte_size for shape in filled.entry.parameter_shapes)
        if MEMORY_FACTOR * size > memory_size():
            raise RuntimeError(f"not measured: {size / 1e9:.0f} GB of arguments need more memory than there is")
        tolerance = HALF_TOLERANCE if _has_halves(filled) else TOLERANCE
        with tempfile.TemporaryDirectory() as folder, _start(inputs, 0, "hloom", Path(folder)) as worker:
            worker.request("compile")
            recipe = worker.request("recipe")
        if recipe is None:
            raise RuntimeError("no arguments give finite results")
        start = functools.partial(_start, inputs, recipe)
        return measure(module.name, start, tolerance, SECONDS, together=size < LARGE_BYTES)


def _has_halves(module: Module) -> bool:
    return any(i.shape.is_array and i.shape.element_type.bits == 16 for i in module.instructions())


def _start(inputs: Path, recipe: int, side: str, folder: Path) -> Process:
    return Process(
        "benchmarks.xla.worker",
        side,
        str(inputs),
        str(folder / f"{side}.npz"),
        str(recipe),
        JAX_PLATFORMS="cpu",
        **caches_in(folder),
    )


main()
