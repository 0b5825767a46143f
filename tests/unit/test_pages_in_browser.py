"""Pages and pictures in chromium: what is visible, folding, search, the pointer, console errors, texts inside of their boxes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx.backend.test
import pytest

import dovetail
from browser import Browser, requires_browser
from dovetail.ir.graph import Model
from dovetail.report.draw import draw_model

pytestmark = requires_browser
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
CORPUS = Path(os.environ.get("DOVETAIL_CORPUS", Path(__file__).parents[3] / "shared" / "corpus"))
FILES = [*LIGHT.glob("light_[dis]*.onnx"), *sorted([*CORPUS.glob("hf_llama_kv*.onnx"), *CORPUS.glob("own_ssd_nms*.onnx")])[::2]]
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=document.title='owned'>\"'`${1}\x1b[31m\u202e"

VISIBLE = "return document.querySelectorAll('#picture [data-item]').length"
OUTSIDE = """
const box = document.querySelector('svg').getBoundingClientRect();
return [...document.querySelectorAll('svg text, svg rect, svg path')].filter(each => {
  const at = each.getBoundingClientRect();
  return at.width && (at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 1 || at.bottom > box.bottom + 1);
}).map(each => each.outerHTML.slice(0, 200));
"""
"""Elements of a picture outside of it."""
OVERFLOWS = """
return [...document.querySelectorAll('svg .dt-card, svg .dt-frame')].flatMap(box => {
  const edge = box.querySelector('.dt-rect').getBoundingClientRect();
  return [...box.querySelectorAll('text')].filter(text => {
    const at = text.getBoundingClientRect();
    return at.left < edge.left - 0.5 || at.right > edge.right + 0.5 || at.bottom > edge.bottom + 0.5;
  }).map(text => text.textContent);
});
"""
"""Texts that are wider or lower than their boxes."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


def modules() -> Model:
    """Three modules of three nodes each that repeat nothing, so that each is a frame."""
    with dovetail.Builder("modules") as b:
        x = b.input("x", "f32", ("n", 8))
        for number in range(3):
            x = b.Relu(b.MatMul(x, np.ones((8, 8), np.float32)))
            x = b.Tanh(x) if number == 1 else b.Sigmoid(x) if number else b.Exp(x)
        b.output("y", x)
    computing = [node for node in b.model.graph.nodes if node.outputs[0].constant is None]
    for number, node in enumerate(computing):
        node.name = f"layer{number // 3}/{node.op.title}"
    return b.model


def open_page(browser: Browser, folder: Path, text: str, suffix: str = "html") -> None:
    path = folder / f"page.{suffix}"
    path.write_text(text, encoding="utf-8")
    browser.open(path)


def test_frames_fold_and_open_at_a_click(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, draw_model(modules(), boxes=1).html())
    # The graph, an input, an output and three folded modules.
    assert browser.run(VISIBLE) == 6
    browser.click("#picture .fold:nth-of-type(2)")
    assert browser.run(VISIBLE) == 9
    browser.click("#open")
    assert browser.run(VISIBLE) == 15
    browser.click("#close")
    assert browser.run(VISIBLE) == 6
    assert browser.messages() == [] and browser.run("return performance.getEntriesByType('resource').length") == 0


def test_search_opens_the_frames_around_its_results(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, draw_model(modules(), boxes=1).html())
    browser.type("#search", "tanh")
    assert browser.run("return document.getElementById('found').textContent") == "1 of 1"
    assert browser.run(VISIBLE) == 9
    x, y, right, bottom = browser.run(
        "const at = document.querySelector('#picture .hit').getBoundingClientRect(), box = stage.getBoundingClientRect();"
        "return [at.left - box.left, at.top - box.top, box.right - at.right, box.bottom - at.bottom];"
    )
    assert min(x, y, right, bottom) >= 0
    browser.type("#search", "relu")
    assert browser.run("return document.getElementById('found').textContent") == "1 of 3"
    browser.type("#search", "nothing of this name")
    assert browser.run("return document.getElementById('found').textContent") == "0 of 0"
    assert browser.run("return document.querySelectorAll('#picture .hit').length") == 0


def test_the_pointer_shows_names_and_types(browser: Browser, tmp_path: Path) -> None:
    model = modules()
    names = {node.label: number / 8 for number, node in enumerate(model.graph.nodes)}
    open_page(browser, tmp_path, draw_model(model, colors=names, measure="error", is_sum=False).html())
    assert browser.run("return getComputedStyle(tip).display") == "none"
    browser.point_at("#picture [data-item='3']")
    shown = browser.run("return tip.textContent")
    assert browser.run("return getComputedStyle(tip).display") == "block"
    assert "MatMul: layer0/MatMul" in shown and "f32[n, 8]" in shown and "error: " in shown


def test_fit_shows_the_whole_picture(browser: Browser, tmp_path: Path) -> None:
    open_page(browser, tmp_path, draw_model(dovetail.load(LIGHT / "light_squeezenet.onnx")).html())
    inside = (
        "const at = picture_group.getBoundingClientRect(), box = stage.getBoundingClientRect();"
        "return at.top >= box.top && at.bottom <= box.bottom && at.left >= box.left && at.right <= box.right;"
    )
    # At first it is legible.
    assert not browser.run(inside) and browser.run("return view.scale") >= 0.75
    browser.click("#fit")
    assert browser.run(inside)


@pytest.mark.parametrize(
    "path", [*LIGHT.glob("light_[dis]*.onnx"), *sorted(CORPUS.glob("*_[ls][ls][ad]*.onnx"))[::4]], ids=lambda path: path.name
)
def test_nothing_of_a_picture_is_outside_of_it_or_of_its_box(path: Path, browser: Browser, tmp_path: Path) -> None:
    model = dovetail.load(path)
    open_page(browser, tmp_path, draw_model(model).svg(), "svg")
    assert browser.run("return document.querySelectorAll('.dt-card').length") > 1
    assert browser.run(OUTSIDE) == [] and browser.run(OVERFLOWS) == [] and browser.messages() == []
    browser.screenshot(tmp_path / "shot.png")
    assert (tmp_path / "shot.png").stat().st_size > 20_000


def test_hostile_names_run_nothing(browser: Browser, tmp_path: Path) -> None:
    model = modules()
    for node in model.graph.nodes:
        node.name = f"{HOSTILE}/{node.name}"
    model.graph.name = HOSTILE
    pages = {
        "draw": draw_model(model, colors={model.graph.nodes[0].label: 1.0}, measure=HOSTILE).html(),
        "profile": dovetail.profile(model, dovetail.Inputs(sizes={"n": 2}), runs=1, threads=1).html(),
        "report": dovetail.model_report(model, dovetail.Inputs(sizes={"n": 2}), runs=1, threads=1).html(),
        "diff": dovetail.diff(model, modules()).html(),
        "compare": dovetail.compare_layers(
            model, engines=["interpreter", "native"], inputs=dovetail.Inputs(sizes={"n": 2})
        ).html(),
    }
    for text in pages.values():
        open_page(browser, tmp_path, text)
        assert "owned" not in browser.run("return document.title").partition("<")[0]
        assert browser.run("return document.querySelectorAll('img').length") == 0
        assert browser.messages() == []


def test_pages_fit_the_window(browser: Browser, tmp_path: Path) -> None:
    model = dovetail.load(LIGHT / "light_squeezenet.onnx")
    pages = [
        dovetail.profile(model, runs=1, threads=1).html(),
        dovetail.model_report(model, runs=1, threads=1).html(),
        dovetail.diff(model, dovetail.load(LIGHT / "light_shufflenet.onnx")).html(),
        dovetail.compare_layers(model, engines=["interpreter", "native"]).html(),
    ]
    for text in pages:
        open_page(browser, tmp_path, text)
        width, inner = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
        assert width <= inner and browser.messages() == []
