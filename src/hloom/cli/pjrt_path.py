"""`hloom pjrt-path`: prints the path of the PJRT plugin."""

from __future__ import annotations

import click

from hloom.cli.examples import examples
from hloom.cli.progress import progress
from hloom.pjrt.plugin import library_path


@click.command(
    "pjrt-path",
    epilog=examples(
        "export PLUGIN=$(hloom pjrt-path)",
    ),
)
def pjrt_path() -> None:
    """Print the path of libpjrt_hloom.so, the PJRT plugin for programs in C, Go, Rust or Julia, and for PyTorch/XLA.

    The library is compiled at first use, by cc or zig (hloom[build]), and starts Python where none runs.
    """
    with progress("compiling the plugin"):
        path = library_path()
    click.echo(path)
