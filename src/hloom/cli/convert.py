"""`hloom convert`: converts a module between file formats."""

from __future__ import annotations

import sys

import click

from hloom.cli.examples import examples
from hloom.cli.progress import progress
from hloom.errors import HloomError
from hloom.files.containers import read_module
from hloom.files.formats import Format, content_of, module_from_content, path_format, write_file


@click.command(
    epilog=examples(
        "hloom convert module.hlo module.mlir",
        "hloom convert module.pb - --to hlo",
    )
)
@click.argument("source", type=click.Path(allow_dash=True))
@click.argument("target", type=click.Path(allow_dash=True))
@click.option(
    "--to",
    "format",
    type=click.Choice([format.value for format in Format]),
    help="Format of TARGET; by default that of its extension (hlo for -).",
)
@click.option("--no-metadata", is_flag=True, help="Omit metadata from texts.")
def convert(source: str, target: str, format: str | None, no_metadata: bool) -> None:
    """Write the module in SOURCE to TARGET as HLO text, StableHLO text or bytecode, or a proto; - is standard input or
    output.

    The format of SOURCE is detected by its content, that of TARGET by its extension: .hlo, .mlir, .mlirbc, .pb or
    .pbtxt. TARGET is written atomically.
    """
    kind = Format(format) if format else Format.HLO if target == "-" else path_format(target)
    content = sys.stdin.buffer.read() if source == "-" else read_module(source)
    with progress("reading") as activity:
        try:
            module = module_from_content(content)
        except HloomError as error:
            raise error.at("standard input" if source == "-" else source) from None
        activity(f"writing {kind.value}")
        converted = content_of(module, kind, metadata=not no_metadata)
    if target == "-":
        click.echo(converted, nl=False)
    else:
        write_file(target, converted)
