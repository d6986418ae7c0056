"""`hloom build`: builds modules as a library with a C interface."""

from __future__ import annotations

from pathlib import Path

import click

from hloom.aot import Emit
from hloom.aot import build as build_library
from hloom.aot.interface import unique_names
from hloom.aot.sizes import Sizes
from hloom.aot.targets import TARGETS
from hloom.api import load
from hloom.cli.examples import examples
from hloom.cli.jax_function import jax_function, names_function
from hloom.cli.progress import progress
from hloom.errors import ArgumentError
from hloom.ir import Module


@click.command(
    epilog=examples(
        "hloom build predict.hlo train=step.mlir -o out",
        "hloom build predict.hlo -o page --target wasm32",
        "hloom build 'model.py:predict(f32[4,3], f32[3,2])' -o out",
    )
)
@click.argument("modules", nargs=-1, required=True, metavar="[NAME=]MODULE...")
@click.option("-o", "--output", type=click.Path(file_okay=False), required=True, help="Folder for the files.")
@click.option("--name", help="Name of the library; by default that of the first function.")
@click.option("--target", type=click.Choice(TARGETS), default="native", show_default=True, help="Machine.")
@click.option(
    "--emit", type=click.Choice([*map(str, Emit)]), help="What to build; by default web for wasm32, else objects."
)
@click.option(
    "--threads", type=click.IntRange(1), help="Threads that share the work; by default those of this machine."
)
@click.option("--lapack", is_flag=True, help="Allow calls of LAPACK, which the program that uses the library links.")
@click.option("--sizes", help="Sizes for which modules with unbounded ones are built: 1,8,64 or 1x128,8x128.")
@click.option(
    "--bounds", help="Greatest sizes, 128 or 8x128, for which such modules are built once, for all up to them."
)
@click.option("--constants-file", is_flag=True, help="Put large constants into a file, which the program maps.")
@click.option("--static-memory", is_flag=True, help="Leave out threads and heap: all memory is the caller's.")
def build(
    modules: tuple[str, ...],
    output: str,
    name: str | None,
    target: str,
    emit: str | None,
    threads: int | None,
    lapack: bool,
    sizes: str | None,
    bounds: str | None,
    constants_file: bool,
    static_memory: bool,
) -> None:
    """Build a library that needs no Python: a C function for each MODULE, called NAME or like the file.

    A MODULE is a file, or FILE.py:FUNCTION(SHAPES) for a JAX function and the shapes of its arguments.

    Writes objects or a library, headers, and an example in C with a Makefile; for wasm32 an ES module and a page that
    runs it. Libraries are linked by cc or, for other machines, by zig (hloom[build]).
    """
    with progress("compiling"):
        named = [_named(given) for given in modules]
        loaded = dict(zip(unique_names(name for name, _ in named), (module for _, module in named), strict=True))
        library = build_library(
            loaded,
            output,
            name=name,
            target=target,
            emit=emit,
            threads=threads,
            lapack=lapack,
            sizes=[_sizes(each) for each in sizes.split(",")] if sizes else (),
            bounds=_sizes(bounds) if bounds else None,
            constants_file=constants_file,
            static_memory=static_memory,
        )
    for file, content in library.files.items():
        click.echo(f"{len(content):>9,} {Path(output) / file}")


def _named(given: str) -> tuple[str, Module]:
    """Returns the name and the module of an argument."""
    name, _, source = given.rpartition("=")
    own, module = jax_function(source) if names_function(source) else (Path(source).stem, load(source))
    return name or own, module


def _sizes(text: str) -> Sizes:
    """Returns a number, or the numbers of a text such as 8x128."""
    words = text.strip().split("x")
    if not all(word.isdecimal() for word in words):
        raise ArgumentError(f"sizes are numbers such as 1,8,64 or 1x128,8x128, got {text!r}")
    return int(words[0]) if len(words) == 1 else [int(word) for word in words]
