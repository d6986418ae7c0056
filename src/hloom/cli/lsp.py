"""`hloom lsp`: a language server for HLO text."""

from __future__ import annotations

import click

from hloom.errors import ArgumentError


@click.command()
def lsp() -> None:
    """Serve the Language Server Protocol: errors with fixes, hover, references, renaming, formatting, completion.

    Needs hloom[lsp]; `editors/vscode` has an extension for VS Code that starts it.
    """
    try:
        from hloom.editor.server import make_server
    except ImportError:
        raise ArgumentError("the language server needs pygls: pip install 'hloom[lsp]'") from None
    make_server().start_io()
