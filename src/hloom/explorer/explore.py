"""Shows the page in the browser, from a server on the loopback address, or writes it to a file."""

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
from hloom.stablehlo.importer.from_jax import traced

if TYPE_CHECKING:
    from hloom.builder import XlaComputation
    from hloom.ir import Module


def explore(
    module: Module | XlaComputation | str | Callable[..., Any],
    *arguments: Any,
    output: str | PathLike[str] | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> PageServer | None:
    """Shows a module, HLO text, or a function that JAX can trace, in the browser; with arguments, also a run.

    `progress` is told what is being done. With `output`, the page is written to that file, which needs no server, and
    None is returned. Otherwise a server runs until it is closed or the process ends. Raises HloomError if the module
    does not compile, the arguments do not match, or the file cannot be written.

    >>> module = "HloModule m  ENTRY e { x = f32[2] parameter(0)  ROOT y = f32[2] negate(x) }"
    >>> hl.explore(module, np.float32([1, 2]), output="page.html")
    """
    program, values = traced(module, arguments)
    content = page(collect(program, values or None, progress)).encode(errors="replace")
    if output is not None:
        write_file(output, content)
        return None
    server = PageServer(content)
    webbrowser.open(server.address)
    return server


IDLE_SECONDS = 10.0
"""Timeout in seconds of a client that sends no request or does not read the response."""
_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that have disconnected or sent an invalid request."""


class PageServer:
    """Serves a page on the loopback address, under a secret path."""

    def __init__(self, content: bytes) -> None:
        path = f"/{secrets.token_urlsafe(16)}/"

        class Handler(BaseHTTPRequestHandler):
            timeout = IDLE_SECONDS

            def do_GET(self) -> None:
                """Returns the page for the right path and host."""
                # DNS rebinding: the name of another site may resolve to this machine.
                is_host = self.headers.get_all("Host") == [host]
                is_page = secrets.compare_digest(self.path.encode(errors="replace"), path.encode())
                status = 403 if not is_host else 200 if is_page else 404
                body = content if status == 200 else b""
                self.send_response(status)
                for name, value in {**_HEADERS, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing, since the address is secret."""

        self._server = _Server(("127.0.0.1", 0), Handler)
        host = f"127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"http://{host}{path}"

    def __repr__(self) -> str:
        return f"PageServer({self.address})"

    def wait(self) -> None:
        """Blocks until the server is closed, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
