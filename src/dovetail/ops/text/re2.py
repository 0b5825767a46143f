"""Regular expressions, matched by RE2 in time linear in the text.

The package ``google-re2`` provides RE2; ``pip install dovetail-graph[text]`` installs the package. RE2 is imported when the first
pattern is compiled, because few models have patterns.
Source: RE2, ``doc/syntax.txt``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dovetail.errors import RuleError, UnsupportedError

MEMORY = 8 << 20
"""Memory limit of one compiled pattern and its automata, in bytes: RE2's default. A pattern that needs more is refused."""


def check_pattern(pattern: str) -> None:
    """Raise RuleError [attribute.value] for a pattern that RE2 refuses. If RE2 is not installed, nothing is checked."""
    if _import_re2() is not None:
        compile_pattern(pattern)


@lru_cache(256)
def compile_pattern(pattern: str, longest: bool = False) -> Any:
    """Compile ``pattern`` for UTF-8; matching is leftmost-longest with ``longest``, otherwise leftmost-first.

    Raises RuleError [attribute.value], and UnsupportedError [extra.missing] if RE2 is not installed.
    """
    library = _import_re2()
    if library is None:
        raise UnsupportedError("extra.missing", "regular expressions need RE2: pip install 'dovetail-graph[text]'")
    options = library.Options()
    options.log_errors = False
    options.longest_match = longest
    # No operator reads groups, and capturing thousands of groups takes memory at each position of the text.
    options.never_capture = True
    options.max_mem = MEMORY
    try:
        return library.compile(pattern.encode(), options)
    except (library.error, UnicodeEncodeError) as error:
        text = error.args[0] if error.args else ""
        reason = text.decode(errors="replace") if isinstance(text, bytes) else str(error)
        raise RuleError("attribute.value", f"RE2 refuses the pattern {_shorten(pattern)!r}: {_shorten(reason)}") from None


def full_matcher_of(pattern: str) -> Callable[[str], bool]:
    """Return a predicate that tests whether an entire text matches. Raises the errors of :func:`compile_pattern`."""
    match = compile_pattern(pattern).fullmatch
    return lambda text: match(text.encode(errors="surrogatepass")) is not None


@lru_cache(1)
def _import_re2() -> Any:
    """Return the module ``re2``; None if RE2 is not installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2


def _shorten(text: str) -> str:
    return text if len(text) <= 100 else f"{text[:100]}..."
