"""`hloom lsp`: a language server for HLO text."""

from __future__ import annotations

import sys

import click


@click.command()
def lsp() -> None:
    """Serve the Language Server Protocol over standard input and output: errors, hover, definitions, completion.

    It needs hloom[lsp]. `editors/vscode` has an extension for VS Code that starts it.
    """
    try:
        from hloom.editor.server import make_server
    except ImportError:
        click.secho("error: the language server needs pygls: pip install 'hloom[lsp]'", err=True, fg="red")
        sys.exit(1)
    make_server().start_io()
