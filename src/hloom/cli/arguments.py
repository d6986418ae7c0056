"""Arguments of a module on the command line: from a file, random, or those of a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from hloom.api import load
from hloom.cli.progress import progress
from hloom.errors import ArgumentError, HloomError, counted
from hloom.files.arrays import read_arrays, take_value
from hloom.files.containers import read_module
from hloom.files.formats import Format, content_format, module_from_content

if TYPE_CHECKING:
    from hloom.comparison import Tolerance
    from hloom.faults.case import Case
    from hloom.files.snapshot import Snapshot
    from hloom.ir import Module
    from hloom.shape import Shape


def with_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the options --input and --random."""
    seed = click.option("--random", "seed", type=int, metavar="SEED", help="Use random inputs with this seed.")
    inputs = click.option("--input", "inputs", type=click.Path(), help="Read inputs p0, p1, .. from an .npz file.")
    return inputs(seed(command))


def with_tolerance(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator that adds the options --rtol and --atol, whose values `given_tolerance` takes."""
    rule = "by default both follow from the element types and the lengths of sums, and a run in double precision"
    relative = click.option("--rtol", type=click.FloatRange(0), help=f"Relative tolerance; {rule}.")
    absolute = click.option("--atol", type=click.FloatRange(0), help="Absolute tolerance, 0 with --rtol alone.")
    return relative(absolute(command))


def given_tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    """The tolerance that options give; None for the rule of `hloom.comparison`."""
    from hloom.comparison import Tolerance

    return None if rtol is None and atol is None else Tolerance(rtol or 0.0, atol or 0.0)


def load_case(path: str, inputs: str | None, seed: int | None, needed: bool = True) -> Case:
    """Loads a module and its arguments. Raises ArgumentError if there are none, but `needed`."""
    from hloom.faults.case import Case

    if inputs is not None and seed is not None:
        raise ArgumentError("give --input or --random, not both")
    module, snapshot = load_with_snapshot(path)
    if snapshot is not None and inputs is None and seed is None:
        return Case(module, tuple(snapshot.arguments))
    shapes = module.entry.parameter_shapes
    if inputs is not None:
        arrays, counter = read_arrays(inputs), iter(range(1 << 30))
        return Case(module, tuple(take_value(arrays, shape, counter, "p", "") for shape in shapes))
    if seed is not None:
        return Case.random(module, seed)
    if needed and shapes:
        raise ArgumentError(missing_arguments(shapes))
    return Case(module, () if not shapes else None)


def missing_arguments(shapes: Sequence[Shape]) -> str:
    """Says which arguments a module takes, and how to give them."""
    takes = f"the module takes {counted(len(shapes), 'argument')} ({', '.join(map(str, shapes))})"
    return f"{takes}: give --input FILE or --random SEED"


def load_with_snapshot(path: str) -> tuple[Module, Snapshot | None]:
    """Loads a module, and the snapshot if the file is one."""
    with progress(f"reading {path}"):
        content = read_module(path)
        try:
            if content_format(content) is Format.PROTO:
                from hloom.files.snapshot import snapshot_in

                if (snapshot := snapshot_in(content)) is not None:
                    return snapshot.module, snapshot
            return module_from_content(content), None
        except HloomError as error:
            raise error.at(path) from None


def load_module(path: str) -> Module:
    """Loads a module; shows progress."""
    with progress(f"reading {path}"):
        return load(path)


def save_case(case: Case, path: str) -> None:
    """Saves a module in the format of the path's extension; with arguments and .pb, as a snapshot."""
    from hloom.api import save
    from hloom.files.snapshot import Snapshot

    if case.arguments is not None and path.endswith(".pb"):
        Snapshot(case.module, list(case.arguments)).save(path)
    else:
        save(case.module, path)
