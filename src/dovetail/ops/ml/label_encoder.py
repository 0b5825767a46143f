"""Table lookup: LabelEncoder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.shape_values import view_of
from dovetail.ops.text.strings import strings_of

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class LabelEncoder(Op, sig="x: T, keys: T, values: T1, default: T1 -> y: T1"):
    """LabelEncoder looks up each element of ``x`` in ``keys`` and returns the element of ``values`` at the same index.

    Of several equal keys the last one counts. The result is ``default`` (one element) for an element that is not in ``keys``. A
    NaN counts as equal to a NaN.
    Source: ONNX ai.onnx.ml LabelEncoder 1, 2, 4.
    """

    rounds_half_once = False
    fixed_ports = (1, 2, 3)

    def shape(self, x: View, keys: View, values: View, default: View) -> Any:
        for name, table in (("keys", keys), ("values", values)):
            if table.shape is not None and len(table.shape) != 1:
                raise RuleError("shape.rank", f"{name} must be a vector, got rank {len(table.shape)}")
        if keys.shape is not None and values.shape is not None:
            agree(keys.shape[0], values.shape[0], ("keys", 0), ("values", 0))
        if default.shape is not None and any(isinstance(size, int) and size != 1 for size in default.shape):
            raise RuleError("shape.single", f"default must be one element, got shape {list(default.shape)}")
        return x.shape

    def evaluate(self, xp: Namespace, x: Array, keys: Array, values: Array, default: Array) -> Any:
        self.shape(*map(view_of, (x, keys, values, default)))
        if not arrays.is_numpy(xp):
            return _look_up(xp, x, keys, values, default)
        rows = dict(zip(_hashable_elements_of(keys), range(len(keys)), strict=True))
        indices = [rows.get(item, len(keys)) for item in _hashable_elements_of(x)]
        table = np.concatenate([values, default.reshape(1)])
        return table[np.array(indices, np.int64)].reshape(x.shape)

    def decompose(self, b: Builder, x: Value, keys: Value, values: Value, default: Value) -> Any:
        """Emit a comparison of each element with each key, and gather the value of the last equal key."""
        (count,) = keys.dims
        elements = b.Unsqueeze(x, [-1])
        is_equal = b.Equal(elements, keys)
        if x.dtype.is_float:
            is_equal = b.Or(is_equal, b.And(b.IsNaN(elements), b.IsNaN(keys)))
        # Indices are 1-based: OpenVINO's CPU plugin computes an integer Add fused after ReduceMax wrongly.
        one = b.constant(1, dtypes.i64)
        numbers = b.Range(one, b.Add(_key_count_of(b, keys), one), one, output_type=dtypes.i64)
        missing = b.constant(np.array([0]), dtypes.i64)
        indices = b.ReduceMax(b.Where(is_equal, numbers, missing), [-1], keepdims=False) if count != 0 else None
        if indices is None:
            return b.Expand(b.Reshape(default, []), b.Shape(x))
        table = b.Concat(b.Reshape(default, [1]), values, axis=0)
        return b.Gather(table, indices, axis=0)


def _look_up(xp: Namespace, x: Array, keys: Array, values: Array, default: Array) -> Any:
    """Look up the elements of ``x`` in any array library, by a comparison with each key."""
    elements = xp.expand_dims(x, axis=-1)
    is_equal = (elements == keys) | ((elements != elements) & (keys != keys))
    # Row 0 of the table, the default, matches every element, so that an element without a key has a match.
    is_default = xp.ones((*x.shape, 1), dtype=xp.bool)
    rows = xp.where(xp.concat([is_default, is_equal], axis=-1), xp.arange(keys.shape[0] + 1, dtype=xp.int64), 0)
    return arrays.take(xp, xp.concat([xp.reshape(default, (1,)), values]), xp.max(rows, axis=-1), 0)


def _key_count_of(b: Builder, keys: Value) -> Any:
    (count,) = keys.dims
    return b.constant(count, dtypes.i64) if isinstance(count, int) else b.Squeeze(b.Shape(keys), [0])


def _hashable_elements_of(x: Array) -> list[Any]:
    """Return the elements as dictionary keys, with one common key for all NaN elements."""
    items = strings_of(x) if x.dtype == object else x.reshape(-1).tolist()
    return ["nan" if item != item else item for item in items] if x.dtype.kind == "f" else items
