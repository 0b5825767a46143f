"""Drives a headless chromium by chromedriver's protocol: open pages, run scripts, click, type, take screenshots."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

DRIVER, CHROMIUM = shutil.which("chromedriver"), shutil.which("chromium")
requires_browser = pytest.mark.skipif(DRIVER is None or CHROMIUM is None, reason="chromium and chromedriver are not installed")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
).split()
NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost"
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key of an element's id in WebDriver's JSON."""


class Browser:
    """A headless browser without a network, with a fresh profile in ``folder``."""

    def __init__(self, folder: Path, width: int = 1400, height: int = 1000) -> None:
        self._folder = folder
        self._size = f"--window-size={width},{height}"

    def __enter__(self) -> Browser:
        assert DRIVER is not None
        self._driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self._driver.stdout is not None
        port = next(line.split()[-1].rstrip(".") for line in self._driver.stdout if "successfully on port" in line)
        self._root = f"http://127.0.0.1:{port}/session"
        arguments = [*FLAGS, NO_NETWORK, self._size, f"--user-data-dir={self._folder / 'chromium'}"]
        options = {"goog:chromeOptions": {"binary": CHROMIUM, "args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        try:
            self._session = ""
            self._session = "/" + self._send("POST", "", {"capabilities": {"alwaysMatch": options}})["sessionId"]
        except BaseException:
            self._driver.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.communicate(timeout=20)

    def _send(self, method: str, path: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(
            self._root + self._session + path, body, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path) -> None:
        """Open a file and wait until it is loaded."""
        self.open_address(path.as_uri())

    def open_address(self, address: str) -> None:
        """Open an address of this machine and wait until it is loaded."""
        self._send("POST", "/url", {"url": address})

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function, and return its result."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> str:
        """Return the id of the first element of a selector."""
        return str(self._send("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT])

    def click(self, selector: str) -> None:
        """Click on the middle of an element, as a pointer does: what covers it gets the click."""
        self._send("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector: str, text: str) -> None:
        """Type a text into a field, in place of what it has."""
        element = self.find(selector)
        self._send("POST", f"/element/{element}/clear", {})
        self._send("POST", f"/element/{element}/value", {"text": text})

    def point_at(self, selector: str) -> None:
        """Move the pointer to the middle of an element."""
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {ELEMENT: self.find(selector)}}
        self._send("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def emulate(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the window a size in pixels, and pages the preferred colour scheme light or dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        for command, parameters in (("setDeviceMetricsOverride", size), ("setEmulatedMedia", {"features": [scheme]})):
            self._send("POST", "/goog/cdp/execute", {"cmd": f"Emulation.{command}", "params": parameters})

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as a PNG file."""
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot")))

    def messages(self) -> list[str]:
        """Return the errors and warnings of the console since the last call."""
        time.sleep(0.05)
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]
