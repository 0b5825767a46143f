"""Compare the error codes that public functions raise in tests with those that their docstrings name.

Imported before any other module of dovetail: it replaces the decorator of the public functions by one that records.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache, wraps
from typing import Any

from dovetail.errors import ArgumentTypeError, DovetailError
from dovetail.ir import suggestions

UNDOCUMENTED: list[str] = []
"""A public function and a code that its docstring does not name, for each such error in the running test."""
_check_keywords = suggestions.check_keywords


def _record_codes(item: Any) -> Any:
    """Decorate a public function or class as the product does, and record the codes of a function."""
    checked = _check_keywords(item)
    if isinstance(item, type) or item.__qualname__ != item.__name__:
        return checked

    @wraps(checked)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return checked(*arguments, **options)
        except DovetailError as error:
            is_wrong_call = isinstance(error, ArgumentTypeError) and error.message.startswith(item.__name__)
            if not is_wrong_call and not is_documented(item.__name__, error.code):
                UNDOCUMENTED.append(f"{item.__name__} [{error.code}]")
            raise

    return call


suggestions.check_keywords = _record_codes


def is_documented(name: str, code: str) -> bool:
    """Return whether the docstring of a public function names a code, its family, or a function whose docstring does."""
    return any(fnmatchcase(code, pattern) for pattern in documented_codes(name))


@cache
def documented_codes(name: str) -> frozenset[str]:
    """Return the codes and families (``shape.*``) that the docstring of a public function names, and of those it refers to."""
    import dovetail

    function: Callable[..., Any] = getattr(dovetail, name)
    _, _, text = (function.__doc__ or "").partition("Raises")
    found = set(re.findall(r"\[([a-z0-9-]+\.[a-z0-9*-]+)\]", text))
    for other in re.findall(r":func:`(?:dovetail\.)?(\w+)`", text):
        if other != name:
            found |= documented_codes(other)
    return frozenset(found)
