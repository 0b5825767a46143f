"""Regular expressions in the syntax of RE2, matched by RE2 itself: in time linear in the text, whatever the pattern is.

RE2 comes with the package ``google-re2``, which ``pip install dovetail[text]`` installs. It is imported when a pattern is first
compiled: few models have one.
Source: RE2, ``doc/syntax.txt``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dovetail.errors import RuleError, UnsupportedError

MEMORY = 8 << 20
"""Bytes of one compiled pattern and its automata, which is RE2's default; a pattern that needs more is refused."""


def check_pattern(pattern: str) -> None:
    """Raises RuleError [regex.syntax] for what RE2 refuses; without RE2 a pattern is first looked at when it is run."""
    if _library() is not None:
        compiled(pattern)


@lru_cache(256)
def compiled(pattern: str, longest: bool = False) -> Any:
    """``pattern`` compiled for texts in UTF-8. ``longest``: of the matches at one place the longest, not the first by preference.

    Raises RuleError [regex.syntax], UnsupportedError [regex.engine] where RE2 is not installed.
    """
    library = _library()
    if library is None:
        raise UnsupportedError("regex.engine", "patterns are matched by RE2, which is not here: pip install 'dovetail[text]'")
    options = library.Options()
    options.log_errors = False
    options.longest_match = longest
    # Nobody reads the groups, and capturing thousands of them would take memory at each position of the text.
    options.never_capture = True
    options.max_mem = MEMORY
    try:
        return library.compile(pattern.encode(), options)
    except (library.error, UnicodeEncodeError) as error:
        text = error.args[0] if error.args else ""
        reason = text.decode(errors="replace") if isinstance(text, bytes) else str(error)
        raise RuleError("regex.syntax", f"RE2 refuses the pattern {_shortened(pattern)!r}: {_shortened(reason)}") from None


def full_matcher(pattern: str) -> Callable[[str], bool]:
    """Tells whether the whole of a text matches. Raises as :func:`compiled`."""
    match = compiled(pattern).fullmatch
    return lambda text: match(text.encode(errors="surrogatepass")) is not None


@lru_cache(1)
def _library() -> Any:
    """RE2's module; None where it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."


__all__ = ["check_pattern", "compiled", "full_matcher"]
