"""WebAssembly in Node, and in a browser that a server on this machine serves."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hloom.aot import Library
from hloom.numerics import Array
from targets.c_program import arrays_of, bytes_of

RUN = Path(__file__).with_name("run.mjs")
IN_BROWSER = """
const [folder, seconds, done] = arguments;
(async () => {
  const { run } = await import(`/${folder}/run.mjs`);
  const data = new Uint8Array(await (await fetch(`/${folder}/in`)).arrayBuffer());
  const { content, best } = await run(`/${folder}/f.mjs`, data, seconds);
  await fetch(`/${folder}/out`, { method: "PUT", body: content });
  done(best);
})().catch((error) => done(String(error)));
"""


def _write(library: Library, arguments: Sequence[Array], folder: Path) -> None:
    library.write(folder)
    shutil.copy(RUN, folder)
    (folder / "in").write_bytes(bytes_of(arguments))


def results_in_node(
    library: Library, arguments: Sequence[Array], folder: Path, seconds: float = 0, options: Sequence[str] = ()
) -> tuple[list[Array], float]:
    """Runs the function `f` of a library in Node; returns the results, and the best time in some seconds."""
    _write(library, arguments, folder)
    command = ["node", *options, "run.mjs", "f.mjs", "in", "out", str(seconds)]
    done = subprocess.run(command, cwd=folder, check=True, timeout=300, capture_output=True, text=True)
    return arrays_of((folder / "out").read_bytes(), library.functions[0]), float(done.stdout)


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves files as a page needs that shares memory with workers, and takes results."""

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        Path(self.translate_path(self.path)).write_bytes(content)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *words: Any) -> None:
        pass


class Browser:
    """A page in headless Chromium, and the folder that its server serves."""

    def __init__(self, driver: Any, folder: Path, address: str) -> None:
        self.driver, self.folder, self.address = driver, folder, address

    def results(
        self, library: Library, arguments: Sequence[Array], folder: Path, seconds: float = 0
    ) -> tuple[list[Array], float]:
        """Runs the function `f` of a library; returns the results, and the best time in some seconds."""
        _write(library, arguments, folder)
        (self.folder / "index.html").write_text("<!doctype html>")
        self.driver.get(self.address)
        best = self.driver.execute_async_script(IN_BROWSER, str(folder.relative_to(self.folder)), seconds)
        if isinstance(best, str):
            raise RuntimeError(best)
        return arrays_of((folder / "out").read_bytes(), library.functions[0]), float(best or 0)


@contextmanager
def opened(folder: Path) -> Iterator[Browser]:
    """Opens headless Chromium, with selenium and chromedriver, and serves a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    server = http.server.ThreadingHTTPServer(("localhost", 0), functools.partial(_Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with webdriver.Chrome(options=options) as driver:
            driver.set_script_timeout(300)
            yield Browser(driver, folder, f"http://localhost:{server.server_port}/")
    finally:
        server.shutdown()
