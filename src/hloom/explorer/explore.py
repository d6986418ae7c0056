"""Shows the page: in the browser, from a server on the loopback address, or as a file."""

from __future__ import annotations

import secrets
import threading
import webbrowser
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os import PathLike
from typing import TYPE_CHECKING, Any

from hloom.explorer.collect import collect
from hloom.explorer.page import page
from hloom.files.formats import write_file
from hloom.interop_jax import traced

if TYPE_CHECKING:
    from hloom.builder import XlaComputation
    from hloom.ir import Module


def explore(
    module: Module | XlaComputation | str | Callable[..., Any],
    *arguments: Any,
    output: str | PathLike[str] | None = None,
) -> PageServer | None:
    """Shows a module, HLO text, or a function that JAX can trace, in the browser; with arguments, a run of it too.

    With `output` the page is written to that file, which opens without a server, and nothing is shown. Otherwise a
    server runs until the process ends or it is closed. Raises HloomError where the module does not compile, the
    arguments do not fit, or the file cannot be written.
    """
    program, values = traced(module, arguments)
    content = page(collect(program, values or None)).encode()
    if output is not None:
        write_file(output, content)
        return None
    server = PageServer(content)
    webbrowser.open(server.address)
    return server


class PageServer:
    """Serves one page to this machine alone, to whoever knows the address."""

    def __init__(self, content: bytes) -> None:
        path = f"/{secrets.token_urlsafe(16)}/"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_page = secrets.compare_digest(self.path, path)
                self.send_response(200 if is_page else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(content) if is_page else 0))
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.end_headers()
                if is_page:
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Says nothing: the address is a secret."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"http://127.0.0.1:{self._server.server_port}{path}"

    def wait(self) -> None:
        """Until the server is closed, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
