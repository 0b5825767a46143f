"""Work as a count that no other process changes: the lines of Python that a call executes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_lines(function: Callable[[], object]) -> int:
    """Return the lines of Python that a call executes, each pass of a loop and of a comprehension once more."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count
