"""The labels of classes, which classifiers of ai.onnx.ml name by integers or by strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import RuleError


class Labels:
    """The labels of a classifier: ``strings`` where there are any, else ``integers``."""

    def __init__(self, integers: tuple[int, ...], strings: tuple[str, ...]) -> None:
        self.items: tuple[Any, ...] = strings or integers
        self.dtype: DType = dtypes.string if strings else dtypes.i64

    def __len__(self) -> int:
        return len(self.items)

    def table(self) -> Any:
        """The labels as a vector."""
        return self.array(self.items)

    def array(self, items: Any) -> Any:
        """Labels as a vector of their element type."""
        found = np.empty(len(items), object if self.dtype == "string" else np.int64)
        found[:] = items
        return found

    def gather(self, b: Any, places: Any) -> Any:
        """The labels at ``places``."""
        return b.Gather(b.constant(self.table(), self.dtype), places, axis=0)

    def choose(self, b: Any, is_second: Any, first: Any, second: Any) -> Any:
        """``second`` where ``is_second``, else ``first``: two labels."""
        pair = b.constant(self.array((first, second)), self.dtype)
        return b.Gather(pair, b.Cast(is_second, to=dtypes.i64), axis=0)


def check_labels(kind: str, integers: tuple[int, ...], strings: tuple[str, ...]) -> Labels:
    """The labels. Raises RuleError [class.labels] where both kinds are given, or fewer than two."""
    if bool(integers) == bool(strings):
        raise RuleError("class.labels", f"{kind} needs labels of classes that are either integers or strings")
    found = Labels(integers, strings)
    if len(found) < 2:
        raise RuleError("class.labels", f"{kind} needs at least 2 labels of classes, got {len(found)}")
    return found


__all__ = ["Labels", "check_labels"]
