"""Elements looked up in a table: LabelEncoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, dtypes
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.shape_values import view_of
from dovetail.ops.text.strings import strings_of


class LabelEncoder(Op, sig="x: T, keys: T, values: T1, other: T1 -> y: T1"):
    """For each element of ``x`` the one of ``values`` that stands where the element stands in ``keys``, the last of several;
    ``other``, one element, for those that do not stand there.

    A NaN is equal to any other. Source: ONNX ai.onnx.ml LabelEncoder 1, 2, 4.
    """

    def shape(self, x: Any, keys: Any, values: Any, other: Any) -> Any:
        for name, table in (("keys", keys), ("values", values)):
            if table.shape is not None and len(table.shape) != 1:
                raise RuleError("label.table", f"{name} should be a vector, not of rank {len(table.shape)}")
        if keys.shape is not None and values.shape is not None:
            agree(keys.shape[0], values.shape[0])
        if other.shape is not None and any(isinstance(size, int) and size != 1 for size in other.shape):
            raise RuleError("label.table", f"one element stands for all others, not of shape {list(other.shape)}")
        return x.shape

    def evaluate(self, xp: Any, x: Any, keys: Any, values: Any, other: Any) -> Any:
        self.shape(*map(view_of, (x, keys, values, other)))
        if not arrays.is_numpy(xp):
            return _compared(xp, x, keys, values, other)
        rows = dict(zip(_hashable(keys), range(len(keys)), strict=True))
        places = [rows.get(item, len(keys)) for item in _hashable(x)]
        table = np.concatenate([values, other.reshape(1)])
        return table[np.array(places, np.int64)].reshape(x.shape)

    def decompose(self, b: Any, x: Any, keys: Any, values: Any, other: Any) -> Any:
        """By comparing with each key."""
        (count,) = keys.dims
        wide = b.Unsqueeze(x, [-1])
        same = b.Equal(wide, keys)
        if x.dtype.is_float:
            same = b.Or(same, b.And(b.IsNaN(wide), b.IsNaN(keys)))
        # Counted from 1: OpenVINO's CPU plugin computes an Add of integers after a ReduceMax wrongly, where it fuses the two.
        one = b.constant(1, dtypes.i64)
        numbers = b.Range(one, b.Add(_count(b, keys), one), one, output_type=dtypes.i64)
        missing = b.constant(np.array([0]), dtypes.i64)
        places = b.ReduceMax(b.Where(same, numbers, missing), [-1], keepdims=False) if count != 0 else None
        if places is None:
            return b.Expand(b.Reshape(other, []), b.Shape(x))
        table = b.Concat(b.Reshape(other, [1]), values, axis=0)
        return b.Gather(table, places, axis=0)


def _compared(xp: Any, x: Any, keys: Any, values: Any, other: Any) -> Any:
    """The same in any library: by comparing with each key."""
    wide = xp.expand_dims(x, axis=-1)
    same = (wide == keys) | ((wide != wide) & (keys != keys))
    # What is found nowhere is found in a first row.
    none = xp.ones((*x.shape, 1), dtype=xp.bool)
    rows = xp.where(xp.concat([none, same], axis=-1), xp.arange(keys.shape[0] + 1, dtype=xp.int64), 0)
    return arrays.take(xp, xp.concat([xp.reshape(other, (1,)), values]), xp.max(rows, axis=-1), 0)


def _count(b: Any, keys: Any) -> Any:
    (count,) = keys.dims
    return b.constant(count, dtypes.i64) if isinstance(count, int) else b.Squeeze(b.Shape(keys), [0])


def _hashable(x: Any) -> list[Any]:
    """The elements as they are looked up: every NaN is one and the same."""
    found = strings_of(x) if x.dtype == object else x.reshape(-1).tolist()
    return ["nan" if item != item else item for item in found] if x.dtype.kind == "f" else found
