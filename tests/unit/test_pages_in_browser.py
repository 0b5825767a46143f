"""Pages and pictures in chromium: what is visible, folding, search, the pointer, console errors, texts inside of their boxes."""

from __future__ import annotations

import os
import re
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

TOO_WIDE = """
return [...document.body.querySelectorAll('*')].filter(each => {
  const at = each.getBoundingClientRect();
  const scrolls = each.closest('.wide, .drawing, #picture, #tip');
  return at.width && (at.right > innerWidth + 1 || at.left < -1) && (!scrolls || scrolls === each);
}).map(each => each.outerHTML.slice(0, 120));
"""
"""Elements of a page that are wider than the window, except the contents of boxes that scroll."""
SMALL = """
const names = 'text, td, th, p, li, dt, dd, span, small, b, h1, h2, h3, a, button, summary';
return [...document.querySelectorAll(names)].filter(each => {
  const at = each.getBoundingClientRect();
  const own = [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || !at.width || each.closest('#picture, .drawing')) return false;
  const scale = each.ownerSVGElement ? each.getScreenCTM().a : 1;
  return parseFloat(getComputedStyle(each).fontSize) * scale < 9.5;
}).map(each => `${each.tagName} ${each.textContent.slice(0, 60)}`);
"""
"""Texts below 9.5 pixels, except those of drawings, which zoom."""
PALE = """
const numbers = color => (color.match(/[0-9.]+/g) || []).map(Number);
const luminance = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const shapes = new Set(['rect', 'path', 'circle', 'polyline']);
function background(x, y, self) {
  for (const each of document.elementsFromPoint(x, y)) {
    if (each === self || self.contains(each)) continue;
    const style = getComputedStyle(each), color = shapes.has(each.tagName) ? style.fill : style.backgroundColor;
    const parts = numbers(color);
    if (color.startsWith('rgb') && (parts[3] === undefined || parts[3] > 0.95) && style.fillOpacity > 0.95) return parts;
  }
  return numbers(getComputedStyle(document.body).backgroundColor);
}
const found = [];
let count = 0;
const names = 'text, td, th, p, li, dt, dd div, span, small, b, h1, h2, h3, a, button, code, div';
for (const each of document.querySelectorAll(names)) {
  const own = [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  const at = each.getBoundingClientRect(), x = at.left + at.width / 2, y = at.top + at.height / 2;
  if (!own || !at.width || !document.elementsFromPoint(x, y).includes(each)) continue;
  const style = getComputedStyle(each), color = numbers(each.tagName === 'text' ? style.fill : style.color);
  const behind = background(x, y, each), share = Number(style.opacity);
  const mixed = color.slice(0, 3).map((c, i) => c * share + behind[i] * (1 - share));
  count++;
  const [high, low] = [luminance(mixed), luminance(behind)].sort((a, b) => b - a);
  if ((high + 0.05) / (low + 0.05) < 4.5) found.push(`${each.textContent.slice(0, 50)}: ${mixed} on ${behind}`);
}
return [count, found];
"""
"""The number of texts in the window, and those whose contrast with their background is below 4.5:1 (WCAG 2)."""


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


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """Return a page of each kind, by its name."""
    squeezenet, shufflenet = (dovetail.load(LIGHT / f"light_{name}.onnx") for name in ("squeezenet", "shufflenet"))
    model = modules()
    colors = {node.label: number / 8 for number, node in enumerate(model.graph.nodes)}
    inputs = dovetail.Inputs(sizes={"n": 2})
    return {
        "draw": draw_model(squeezenet).html(),
        "measure": draw_model(model, colors=colors, measure="error", is_sum=False).html(),
        "profile": dovetail.profile(squeezenet, runs=1, threads=1).html(),
        "report": dovetail.model_report(squeezenet, runs=1, threads=1).html(),
        "diff": dovetail.diff(squeezenet, shufflenet).html(),
        "compare": dovetail.compare_layers(model, engines=["interpreter", "native"], inputs=inputs).html(),
        "plan": dovetail.plan(squeezenet).html(),
    }


KINDS = ("draw", "measure", "profile", "report", "diff", "compare", "plan")
CHOOSE = "choose(items.findIndex(item => item.x && item.x[1].some(row => row.length > 3)))"
"""The script that shows the details of a node with weights."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_legible_at_each_width_and_in_both_colour_schemes(
    kind: str, pages: dict[str, str], browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(pages[kind], encoding="utf-8")
    for width in (1400, 480):
        for dark in (False, True):
            browser.emulate(width, 1000, dark=dark)
            browser.open(path)
            if kind == "draw":
                browser.run(CHOOSE)
            state = f"{width} pixels, {'dark' if dark else 'light'}"
            scroll, inner = browser.run("return [document.documentElement.scrollWidth, innerWidth]")
            assert inner == width and scroll <= inner, state
            assert browser.run(TOO_WIDE) == [], state
            assert browser.run(SMALL) == [], state
            color = browser.run("return getComputedStyle(document.body).backgroundColor")
            level = sum(map(int, re.findall("[0-9]+", color)[:3])) / 3
            assert level < 60 if dark else level > 240, (state, color)
            height = browser.run("return document.documentElement.scrollHeight")
            browser.emulate(width, min(height, 6000), dark=dark)
            count, pale = browser.run(PALE)
            assert count > 5 and pale == [], state
            shot = tmp_path / f"{kind}_{width}_{dark}.png"
            browser.screenshot(shot)
            assert shot.stat().st_size > 5000 and browser.messages() == []


def test_long_names_are_inside_of_the_picture_of_a_profile(browser: Browser, tmp_path: Path) -> None:
    model = modules()
    for number, node in enumerate(model.graph.nodes):
        node.name = f"/{'mmmm_WWWW.' * 8}{number}/embeddings/position_embeddings_{number}/{node.op.title}"
    open_page(browser, tmp_path, dovetail.profile(model, dovetail.Inputs(sizes={"n": 2}), runs=1, threads=1).svg(), "svg")
    assert browser.run("return document.querySelectorAll('text.name').length") > 5 and browser.run(OUTSIDE) == []


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_has_dark_colours_where_they_are_preferred(dark: bool, browser: Browser, tmp_path: Path) -> None:
    browser.emulate(1400, 1000, dark=dark)
    open_page(browser, tmp_path, modules().svg(), "svg")
    fill = browser.run("return getComputedStyle(document.querySelector('rect')).fill")
    assert (fill == "rgb(255, 255, 255)") is (not dark)
    count, pale = browser.run(PALE.replace("document.body", "document.documentElement"))
    assert count > 15 and pale == []
    browser.emulate(1400, 1000)


def test_a_click_shows_attributes_and_weights_to_copy(browser: Browser, tmp_path: Path) -> None:
    browser.emulate(1400, 1000)
    open_page(browser, tmp_path, draw_model(modules()).html())
    assert not browser.run("return panel.checkVisibility()")
    browser.click("#picture .node")
    title, text = browser.run("return [details.querySelector('h2').textContent, details.innerText]")
    assert title == "MatMul: layer0/MatMul" and "min 1, max 1, mean 1" in text and "f32[8, 8]" in text
    assert browser.run("return getComputedStyle(details).userSelect") != "none"
    copied = browser.run("return text_of_details()")
    assert copied.startswith("MatMul: layer0/MatMul\n") and "  b: " in copied and "min 1, max 1, mean 1" in copied
    browser.run("Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { window.kept = text; }}})")
    browser.click("#copy")
    assert browser.run("return [window.kept, copied.textContent]") == [copied, "copied"]
    browser.click("#hide")
    assert not browser.run("return panel.checkVisibility()") and browser.run(VISIBLE) == 15 and browser.messages() == []


def test_details_with_hostile_texts_run_nothing(browser: Browser, tmp_path: Path) -> None:
    model = modules()
    for node in model.graph.nodes:
        node.name, node.kind = f"{HOSTILE}/{node.name}", HOSTILE
        for y in node.outputs:
            y.name = f"{HOSTILE}{y.name}"
    open_page(browser, tmp_path, draw_model(model).html())
    browser.run(CHOOSE)
    assert "<img src=x" in browser.run("return details.textContent")
    assert browser.run("return [document.querySelectorAll('img').length, document.title]") == [0, "modules"]
    assert browser.messages() == []
