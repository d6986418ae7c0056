"""`hloom warm`: machine code made ahead of its first use."""

from __future__ import annotations

from pathlib import Path

import click

from hloom.api import compile, parse
from hloom.cli.examples import examples
from hloom.cli.progress import progress
from hloom.errors import ArgumentError


@click.command(epilog=examples("hloom warm &             # once, after installation", "hloom warm model.hlo"))
@click.argument("modules", nargs=-1, type=click.Path())
def warm(modules: tuple[str, ...]) -> None:
    """Compile MODULES, or else kernels that many programs share, for later processes.

    Transforms, sorts, products and convolutions of all programs share functions. Their machine code, which the first
    program that needs it otherwise makes, is kept with that of programs, in the folder that HLOOM_CACHE_DIR names.
    """
    from hloom.backends.cpu.compiler import compile_shared
    from hloom.backends.cpu.kernels.usual import WHOLE, usual_programs
    from hloom.backends.cpu.llvm.disk_cache import cache_folder

    folder = cache_folder()
    if folder is None:
        raise ArgumentError("there is no folder to keep machine code in: set HLOOM_CACHE_DIR")
    before = _content(folder)
    with progress("compiling") as activity:
        for program in modules:
            activity(f"compiling {program}")
            compile(program)
        if not modules:
            activity("compiling kernels")
            compile(WHOLE)
            for program in usual_programs():
                compile_shared(parse(program))
    new = [size for name, size in _content(folder).items() if name not in before]
    click.echo(f"{len(new)} new files with {sum(new) / 1e6:.1f} MB in {folder}")


def _content(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.glob("*") if path.is_file()}
