"""Suggestions for misspelled names in error messages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from dovetail.ir.op import REGISTRY

_MAPPED_NAME = re.compile(r"\W*(?:[\w.]+:)?(\w+)")


def closest(name: str, candidates: Iterable[str]) -> str:
    """Return the text ``": did you mean 'axis'?"`` for the candidate most like ``name``, or no text."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[matches[0]]!r}?" if matches else ""


def closest_operators(name: str) -> str:
    """Return the text that suggests an operator: one that ONNX or OpenVINO calls ``name``, else one spelled like it."""
    for operator, cls in REGISTRY.items():
        for line in (*cls.onnx, *cls.openvino):
            match = _MAPPED_NAME.match(line)
            if match and match[1] == name:
                return f": did you mean {operator!r}?"
    return closest(name, REGISTRY)
