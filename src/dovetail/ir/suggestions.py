"""Suggestions for misspelled names in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

RENAMED = {
    "algebra": "algebraic_simplification",
    "conditions": "dead_branches",
    "constants": "constant_folding",
    "dead": "dead_code",
    "duplicates": "common_subexpressions",
    "expands": "expand_elimination",
    "gemm": "gemm_fusion",
    "identities": "nop_elimination",
    "partitions": "slices_to_split",
    "products": "horizontal_fusion",
    "reshapes": "reshape_fusion",
    "shapes": "shape_folding",
    "slices": "slice_fusion",
    "transposes": "transpose_fusion",
    "weights": "weight_folding",
}
"""Earlier names of passes and parameters, by which their new names are suggested."""


def closest(name: str, candidates: Iterable[str]) -> str:
    """Return the text ``": did you mean 'axis'?"`` for the candidate that ``name`` was or is most like, or no text."""
    if RENAMED.get(name) in (candidates := list(candidates)):
        return f": did you mean {RENAMED[name]!r}?"
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[matches[0]]!r}?" if matches else ""
