"""The site that `make docs` builds: without warnings, from local files alone, with links that lead somewhere."""

from __future__ import annotations

import importlib.util
import itertools
import re
import subprocess
import sys
import time
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from browser import Browser, requires_browser

ROOT = Path(__file__).parents[2]
PAGES = ("index", "project/overview", "api/running", "errors", "operators", "howto/rebatch", "howto/migrate")
"""Pages whose layout is tested in a browser."""
pytestmark = pytest.mark.skipif(importlib.util.find_spec("mkdocstrings") is None, reason="the site needs the extra docs")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    pages = sorted(site.glob("**/*.html"))
    assert len(pages) > 100
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//""", text), page.name


def test_each_link_of_the_site_leads_to_a_file(site: Path) -> None:
    for page in site.glob("**/*.html"):
        if page.name == "404.html":
            continue
        for address in re.findall(r"""(?:src|href)="(?!\w+:)([^"#?]+)""", page.read_text(encoding="utf-8")):
            assert (page.parent / unquote(unescape(address))).exists(), f"{page.relative_to(site)}: {address}"


def test_docstrings_have_no_markup_of_sphinx_in_the_site(site: Path) -> None:
    for page in site.glob("api/*.html"):
        text = re.sub(r"(?s)<(pre|code)\b.*?</\1>", "", page.read_text(encoding="utf-8"))
        assert not re.search(r"``|:(?:func|class|meth|mod):|&gt;&gt;&gt;|\]\[", text), page.name


def test_error_codes_are_links_to_their_entries(site: Path) -> None:
    entries = set(re.findall(r'<span id="([a-z]+\.[\w.-]+)">', (site / "errors.html").read_text(encoding="utf-8")))
    assert len(entries) > 150
    linked = 0
    for page in site.glob("**/*.html"):
        text = re.sub(r"(?s)<(pre|nav)\b.*?</\1>", "", page.read_text(encoding="utf-8"))
        for start, code in re.findall(r"(.{0,40})<code>([a-z]+\.[\w.*-]+)</code>", text):
            family = code.removesuffix("*")
            if code in entries or (family != code and any(entry.startswith(family) for entry in entries)):
                assert re.search(rf'#{re.escape(family)}[\w.-]*">$', start), f"{page.relative_to(site)}: {code}"
                linked += 1
    assert linked > 500


def test_docstrings_of_the_api_refer_to_no_function_without_a_page(site: Path) -> None:
    for page in site.glob("api/*.html"):
        assert not re.search(r"see <code>[\w.]+</code>\.", page.read_text(encoding="utf-8")), page.name


@requires_browser
def test_the_site_fits_windows_and_searches_without_a_server(site: Path, tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        for width, dark in itertools.product((480, 1400), (False, True)):
            browser.emulate(width, 1000, dark=dark)
            for page in PAGES:
                browser.open(site / f"{page}.html")
                assert browser.run("return document.documentElement.scrollWidth") <= width, page
                assert browser.run("return document.body.dataset.mdColorScheme") == ("slate" if dark else "default"), page
                browser.screenshot(tmp_path / f"{page.replace('/', '_')}_{width}_{'dark' if dark else 'light'}.png")
        browser.type(".md-search__input", "rebatch")
        script = "return Array.from(document.querySelectorAll('.md-search-result__link'), link => link.href)"
        for _ in range(200):
            if links := browser.run(script):
                break
            time.sleep(0.05)
        assert any("howto/rebatch.html" in link for link in links)
        assert browser.messages() == []
