"""Self-contained HTML documents: their policy, style and script; names and data from a file escaped."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files

from dovetail.errors import printable


def document(title: str, body: str, style: str, script: str = "") -> str:
    """Return a page, which is well-formed XML too. ``title`` is plain text, ``body`` is HTML.

    Its content security policy allows the page's own style and script, by their digests, and no request.
    """
    sources = f"style-src {_digest(style)}" + (f"; script-src {_digest(script)}" if script else "")
    policy = f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'"
    ending = f"<script>{script}</script>" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"/><title>{text_of(title)}</title>'
        '<meta name="viewport" content="width=device-width"/>'
        f"<style>{style}</style></head><body>{body}{ending}</body></html>\n"
    )


def stylesheet(name: str) -> str:
    """Return a style sheet of this package."""
    return files("dovetail.report").joinpath(f"{name}.css").read_text(encoding="utf-8")


def script_source(name: str) -> str:
    """Return a script of this package."""
    return files("dovetail.report").joinpath(f"{name}.js").read_text(encoding="utf-8")


def text_of(item: object) -> str:
    """Return an item as the text of an element or attribute, with controls and markup escaped."""
    return escape(printable(str(item)))


def json_of(data: object, *, is_ascii: bool = True) -> str:
    """Return JSON for an element of the page. Characters that end a script or begin markup are escaped.

    ``is_ascii``: all characters beyond ASCII are escaped too.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=is_ascii)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def cards(items: list[tuple[str, str, str]]) -> str:
    """Return cards of a name, a figure and a line about it."""
    body = "".join(f"<div><span>{text_of(a)}</span><b>{text_of(b)}</b><small>{text_of(c)}</small></div>" for a, b, c in items)
    return f'<div class="cards">{body}</div>'


def _digest(text: str) -> str:
    """Return the digest of a style or a script as a content security policy writes it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
