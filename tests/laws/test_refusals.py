"""What each operator refuses, and with which code: wrong attributes, ranks, sizes, elements and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.build import Builder
from dovetail.errors import DovetailError

Write = Callable[[Builder, Callable[..., Any]], Any]
"""An operator written through a builder; the second argument makes an input: a type, then sizes (``...`` for no rank)."""


def refused(write: Write) -> str:
    """The code with which it is refused: when it is made, or when sizes of its inputs are known."""
    b = Builder()

    def given(kind: str = "f32", *sizes: Any) -> Any:
        return b.input(f"x{len(b.graph.inputs)}", kind, None if ... in sizes else sizes)

    with pytest.raises(DovetailError) as caught:
        write(b, given)
    return caught.value.code
