"""Self-contained HTML documents with a content security policy; names and data from files are escaped."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files

from dovetail.errors import printable


def document(title: str, body: str, style: str, script: str = "") -> str:
    """Return an HTML page, which is also well-formed XML. ``title`` is plain text, ``body`` is HTML.

    The content security policy allows only ``style`` and ``script``, by their digests, and no requests.
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
    """Return an item as the text of an element or attribute, with control characters and markup escaped."""
    return escape(printable(str(item)))


def json_of(data: object, *, is_ascii: bool = True) -> str:
    """Return JSON for a script element of a page; characters that end a script or begin markup are escaped.

    ``is_ascii``: non-ASCII characters are escaped too.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=is_ascii)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def cards(items: list[tuple[str, str, str]]) -> str:
    """Return cards, each with a name, a figure and a line of explanation, as HTML."""
    body = "".join(f"<div><span>{text_of(a)}</span><b>{text_of(b)}</b><small>{text_of(c)}</small></div>" for a, b, c in items)
    return f'<div class="cards">{body}</div>'


def _digest(text: str) -> str:
    """Return the digest of a style or script in the notation of content security policies."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
