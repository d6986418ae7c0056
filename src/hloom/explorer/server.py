"""The server of a page: on the loopback address, under a secret path, with an editor's requests if they are allowed."""

from __future__ import annotations

import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from hloom.errors import RunError
from hloom.system.child import Child

IDLE_SECONDS = 10.0
"""Timeout in seconds of a client that sends no request or does not read the response."""
MAX_BODY = 1 << 27
"""Largest size in bytes of a text or file that the editor sends."""
LIMITS = {"check": 20.0, "explore": 120.0}
"""The requests of the editor, and the seconds after which they are given up."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
HTML, JSON = "text/html; charset=utf-8", "application/json"


class PageServer:
    """Serves a page on the loopback address, under a secret path."""

    def __init__(self, content: bytes) -> None:
        self._server = _Server(content)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.address = f"http://{self._server.host}{self._server.path}"

    def __repr__(self) -> str:
        return f"PageServer({self.address})"

    def wait(self) -> None:
        """Blocks until the server is closed, or Ctrl-C."""
        self._thread.join()

    def close(self) -> None:
        """Stops the server."""
        self._server.shutdown()
        self._server.server_close()
        self._server.child.close()


class _Server(ThreadingHTTPServer):
    """The path of a page, its content, and the process that responds to the editor."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self.content = content
        self.child = Child("hloom.explorer.live")
        self._lock = threading.Lock()

    @property
    def host(self) -> str:
        """The address and the port."""
        return f"127.0.0.1:{self.server_port}"

    def respond(self, action: str, body: bytes) -> bytes:
        """Returns the response to a request of the editor."""
        with self._lock:
            try:
                return self.child.request(action.encode() + b"\n" + body, LIMITS[action])
            except RunError as error:
                return json.dumps({"error": f"the program was stopped: {error}"}).encode()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that have disconnected or sent an invalid request."""


class _Handler(BaseHTTPRequestHandler):
    timeout = IDLE_SECONDS
    server: _Server

    def do_GET(self) -> None:
        """Returns the page for the right path and host."""
        status = self._allowed() or (200 if self._is_at(self.server.path) else 404)
        self._respond(status, self.server.content, HTML)

    def do_POST(self) -> None:
        """Returns the response to a request of the editor on the page."""
        action = next((name for name in LIMITS if self._is_at(self.server.path + name)), None)
        size = self.headers.get("Content-Length", "")
        # Pages of other sites cannot forge the origin, and a browser always sends it with a POST.
        foreign = self.headers.get_all("Origin") != [f"http://{self.server.host}"]
        status = self._allowed() or (403 if foreign else 404 if action is None else 0)
        if not status and not (size.isascii() and size.isdigit() and int(size) <= MAX_BODY):
            status = 413
        if status or action is None:
            self._respond(status, b"", JSON)
            return
        self._respond(200, self.server.respond(action, self.rfile.read(int(size))), JSON)

    def _allowed(self) -> int:
        """0, or the status of a request that names another host: another site's name may resolve to this one."""
        return 0 if self.headers.get_all("Host") == [self.server.host] else 403

    def _is_at(self, wanted: str) -> bool:
        return secrets.compare_digest(self.path.encode(errors="replace"), wanted.encode())

    def _respond(self, status: int, content: bytes, kind: str) -> None:
        body = content if status == 200 else b""
        self.send_response(status)
        for name, value in {"Content-Type": kind, **_HEADERS, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing, since the address is secret."""
