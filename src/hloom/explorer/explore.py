"""Shows the page in the browser, from a server on the loopback address, or writes it to a file."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

from hloom.explorer.collect import collect
from hloom.explorer.columns import check_names, columns_of
from hloom.explorer.page import page
from hloom.explorer.server import PageServer
from hloom.files.formats import write_file
from hloom.stablehlo.importer.from_jax import traced

if TYPE_CHECKING:
    from hloom.builder import XlaComputation
    from hloom.ir import Module


def explore(
    module: Module | XlaComputation | str | Callable[..., Any],
    *arguments: Any,
    other: Module | XlaComputation | str | None = None,
    data: Mapping[str, Any] | str | PathLike[str] | None = None,
    output: str | PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> PageServer | None:
    """Shows a module, HLO text, or a function that JAX can trace, in the browser; with arguments, also a run.

    `other` is a module to compare with, which is run on the same arguments: the page shows both side by side.
    `data` are values by which the page colours boxes: numbers or texts by the names of instructions, as given or
    optimised, or such mappings by titles; or the path of a file of JSON with them.
    `progress` is told what is being done. With `output`, the page is written to that file, which needs no server, and
    None is returned. Otherwise a server runs until it is closed or the process ends, and the page has an editor, which
    checks and runs programs as they are typed. Raises HloomError if a module does not compile, arguments do not fit,
    names in `data` are unknown, or the file cannot be written.

    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }"
    >>> hl.explore(module, np.float32([1, 2]), output="page.html")
    """
    program, values = traced(module, arguments)
    columns = {} if data is None else columns_of(data)
    found = collect(program, values or None, progress, other)
    check_names(columns, found)
    content = page(found | {"columns": columns}, is_served=output is None).encode(errors="replace")
    if output is not None:
        write_file(output, content)
        return None
    server = PageServer(content)
    webbrowser.open(server.address)
    return server
