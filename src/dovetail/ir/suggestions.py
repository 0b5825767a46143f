"""Suggestions for misspelled names in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, candidates: Iterable[str]) -> str:
    """Return the text ``": did you mean 'axis'?"`` for the candidate most like ``name``, or no text."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[matches[0]]!r}?" if matches else ""
