"""Measure the time and the size of pictures of models, beside netron's export in a headless chromium.

    python bench/draw.py [FILE ...] [--seconds S] [--json]

Without files: densenet121 of the onnx package, the language model and the detector of bench/models.py, and a graph of 10,000
nodes that repeats nothing. Times of dovetail are those of `draw_model` and of one picture, of a loaded model; *open* is the
SVG with every module and section open, and a PNG has one pixel for a unit. netron's time is that from the start of its page
until its SVG is there, which includes reading the file. netron draws every node, dovetail draws repeated blocks once and
large graphs as sections that open in the page. Where netron, chromium or chromedriver is missing, or no picture is there
after S seconds, its cells say so.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import language_models  # noqa: E402
import onnx.backend.test  # noqa: E402
import vision_models  # noqa: E402

import dovetail  # noqa: E402
from browser import CHROMIUM, DRIVER, Browser  # noqa: E402
from dovetail.report.draw import draw_model  # noqa: E402

LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
CAPTURE = "window.blobs = []; URL.createObjectURL = blob => { window.blobs.push(blob); return 'data:,'; };"
"""Keeps what a page offers for download."""
EXPORT = """
const button = document.getElementById('message-button');
if (document.body.classList.contains('message') || document.body.classList.contains('alert')) button.click();
if (!document.querySelector('#canvas #nodes .node, #canvas .node')) return null;
if (!window.blobs.length) {
  for (const type of ['keydown', 'keyup']) {
    window.dispatchEvent(new KeyboardEvent(type, { key: 'e', keyCode: 69, ctrlKey: true, altKey: true }));
  }
}
return window.blobs.length ? window.blobs[0].size : null;
"""
"""Answers netron's messages, and requests its export as SVG (Ctrl+Alt+E) once nodes are drawn; the bytes, or null."""


def synthetic(count: int) -> dovetail.Model:
    """Return a graph without repeated blocks: Relu or Add of earlier values by a fixed pseudo-random sequence."""
    state = 1
    with dovetail.Builder("synthetic") as b:
        values = [b.input("x", "f32", (1, 8))]
        for _ in range(count):
            state = state * 1103515245 + 12345 & 0x7FFFFFFF
            near = values[-1 - state % min(len(values), 20)]
            values.append(b.Relu(values[-1]) if state >> 8 & 1 else b.Add(values[-1], near))
        b.output("y", values[-1])
    return b.model


def default_files(folder: Path) -> Iterator[Path]:
    yield LIGHT / "light_densenet121.onnx"
    for name, make in (("Llama 135M", language_models.llama), ("detector 640", vision_models.detector)):
        path = folder / f"{name}.onnx"
        path.write_bytes(make()[0].SerializeToString())
        yield path
    path = folder / "10,000 nodes.onnx"
    dovetail.save(synthetic(10_000), path)
    yield path


def timed(make: Callable[[], str | bytes]) -> tuple[float, int]:
    """Return the seconds of a picture and its bytes."""
    start = time.perf_counter()
    data = make()
    return time.perf_counter() - start, len(data.encode() if isinstance(data, str) else data)


def measure(path: Path) -> dict[str, Any]:
    model = dovetail.load(path)
    pictures = {
        "svg": lambda: draw_model(model).svg(),
        "open": lambda: draw_model(model, depth=100).svg(),
        "png": lambda: draw_model(model).png(),
        "html": lambda: draw_model(model).html(),
    }
    # The first picture imports the libraries.
    draw_model(synthetic(2)).png()
    drawing = draw_model(model)
    drawing.svg()
    row: dict[str, Any] = {"model": path.stem, "nodes": len(model.graph.nodes), "drawn": drawing.as_dict()["drawn"]}
    for kind, make in pictures.items():
        row[f"{kind}_seconds"], row[f"{kind}_bytes"] = timed(make)
    return row


def measure_netron(path: Path, folder: Path, limit: float) -> dict[str, Any]:
    """Return the seconds and bytes of netron's SVG, or why there is none."""
    if importlib.util.find_spec("netron") is None:
        return {"netron": "netron is not installed"}
    if DRIVER is None or CHROMIUM is None:
        return {"netron": "chromium or chromedriver is not installed"}
    import netron

    with contextlib.redirect_stdout(sys.stderr):
        address = netron.start(str(path), browse=False)
    page = f"http://localhost:{address[1]}/"
    try:
        with tempfile.TemporaryDirectory(dir=folder) as profile, Browser(Path(profile)) as browser:
            browser.open_address(page)
            browser.run("document.cookie = 'consent=1'")
            start = time.perf_counter()
            browser.open_address(page)
            browser.run(CAPTURE)
            while (size := browser.run(EXPORT)) is None:
                if time.perf_counter() - start > limit:
                    return {"netron": f"no picture after {limit:g} s"}
                time.sleep(0.1)
            return {"netron_seconds": time.perf_counter() - start, "netron_bytes": size}
    except (AssertionError, OSError) as error:
        return {"netron": f"no picture: {' '.join(str(error).split())[:80]}"}
    finally:
        with contextlib.redirect_stdout(sys.stderr):
            netron.stop(address)


def text(row: dict[str, Any]) -> str:
    """Return the row of the table of docs/measurements/pictures.md."""
    cells = [row["model"], f"{row['nodes']:,}", f"{row['drawn']:,}"]
    cells += [f"{row[f'{kind}_seconds']:.2f} s, {row[f'{kind}_bytes'] / 1e3:,.0f} kB" for kind in ("svg", "open", "png", "html")]
    cells.append(row.get("netron") or f"{row['netron_seconds']:.2f} s, {row['netron_bytes'] / 1e3:,.0f} kB")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="the limit of netron's page")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in options.files or default_files(folder):
            rows.append(measure(path) | measure_netron(path, folder, options.seconds))
            if not options.json:
                print(text(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
