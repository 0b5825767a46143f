"""Class labels of the classifiers of ai.onnx.ml: integers or strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import dtypes
from dovetail.ir.dtypes import DType

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

Label: TypeAlias = int | str


class Labels:
    """Labels holds the labels of a classifier: ``strings`` if there are any, else ``integers``."""

    def __init__(self, integers: tuple[int, ...], strings: tuple[str, ...]) -> None:
        self.items: tuple[Any, ...] = strings or integers
        self.dtype: DType = dtypes.string if strings else dtypes.i64

    def __len__(self) -> int:
        return len(self.items)

    def table(self) -> Any:
        """Return the labels as a vector."""
        return self.array(self.items)

    def array(self, items: Sequence[Any]) -> Any:
        """Return ``items`` as a vector of the labels' type."""
        labels = np.empty(len(items), object if self.dtype == "string" else np.int64)
        labels[:] = items
        return labels

    def gather(self, b: Builder, indices: Value) -> Any:
        """Emit a Gather of the labels at ``indices``."""
        return b.Gather(b.constant(self.table(), self.dtype), indices, axis=0)

    def choose(self, b: Builder, is_second: Value, first: Label, second: Label) -> Any:
        """Emit a Gather of the label ``second`` where ``is_second`` is true, else of ``first``."""
        pair = b.constant(self.array((first, second)), self.dtype)
        return b.Gather(pair, b.Cast(is_second, to=dtypes.i64), axis=0)


def check_labels(operator: str, integers: tuple[int, ...], strings: tuple[str, ...]) -> Labels:
    """Return the labels.

    Raises RuleError [attribute.conflict] for labels of both types or no labels, [attribute.length] for fewer than two labels.
    """
    if bool(integers) == bool(strings):
        raise RuleError(
            "attribute.conflict",
            f"{operator} needs class labels of one type, got {len(integers)} integers and {len(strings)} strings",
        )
    labels = Labels(integers, strings)
    if len(labels) < 2:
        raise RuleError("attribute.length", f"{operator} needs at least 2 class labels, got {len(labels)}")
    return labels
