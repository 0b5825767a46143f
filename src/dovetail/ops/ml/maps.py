"""Maps from keys to values, Python dicts at run time: ZipMap, DictVectorizer and CastMap of ai.onnx.ml."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import UNKNOWN, Map, Sequence, Tensor, Type, Unknown, View
from dovetail.ops.text.strings import string_tensor_of

_CAST_TYPES = {"to_float": dtypes.f32, "to_int64": dtypes.i64, "to_string": dtypes.string}
_MISSING_VALUES = {"to_float": 0.0, "to_int64": 0, "to_string": "0.f"}


class ZipMap(Op, sig="x: f32 -> z: any", onnx="ai.onnx.ml:ZipMap-1(x; classlabels_int64s?, classlabels_strings?)"):
    """ZipMap returns for each row of ``x`` a map from the labels to the numbers of the row; a vector is one row.

    The labels are ``classlabels_int64s`` or ``classlabels_strings``, one label per column. Where labels are equal, the map has
    the number of the last such column.
    Source: ONNX ai.onnx.ml ZipMap 1.
    """

    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()

    converts_outputs = True

    def validate(self) -> None:
        if bool(self.classlabels_int64s) == bool(self.classlabels_strings):
            raise RuleError("attribute.conflict", "ZipMap needs either classlabels_int64s or classlabels_strings")

    def labels(self) -> tuple[Any, ...]:
        return self.classlabels_strings or self.classlabels_int64s

    def types(self, x: View) -> list[Type]:
        if x.shape is not None:
            if len(x.shape) not in (1, 2):
                raise RuleError("shape.rank", f"x must have rank 1 or 2, got {len(x.shape)}")
            if symbolic.equal(x.shape[-1], len(self.labels())) is False:
                raise RuleError(
                    "attribute.length",
                    f"the number of labels ({len(self.labels())}) must equal the number of columns ({x.shape[-1]})",
                )
        length = None if x.shape is None else 1 if len(x.shape) == 1 else x.shape[0]
        key = dtypes.string if self.classlabels_strings else dtypes.i64
        return [Sequence(Map(key, Tensor(dtypes.f32, ())), length)]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        rows = arrays.to_numpy(x)
        labels = self.labels()
        if rows.ndim not in (1, 2) or rows.shape[-1] != len(labels):
            raise RuleError(
                "attribute.length",
                f"the number of labels ({len(labels)}) must equal the number of columns of x, got shape {list(rows.shape)}",
            )
        return [dict(zip(labels, row, strict=True)) for row in np.atleast_2d(rows).tolist()]


class DictVectorizer(Op, sig="x: any -> y: T"):
    """DictVectorizer returns the values of the map ``x`` in the order of a vocabulary of keys, as one row.

    A missing key has the value 0, or the empty string; keys outside of the vocabulary are dropped. ``dtype`` is the element
    type of the row and must be the type of the map's values: the values of a Python dict do not distinguish f32 from f64.
    Source: ONNX ai.onnx.ml DictVectorizer 1.
    """

    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()
    dtype: DType = dtypes.f32

    def validate(self) -> None:
        if bool(self.int64_vocabulary) == bool(self.string_vocabulary):
            raise RuleError("attribute.conflict", "DictVectorizer needs either int64_vocabulary or string_vocabulary")

    def types(self, x: View) -> list[Type]:
        map_type = map_type_of(x.type)
        if (map_type.key == "string") != bool(self.string_vocabulary):
            raise RuleError("attribute.conflict", f"the vocabulary must have the type of the map's keys, got {map_type}")
        if isinstance(map_type.element, Tensor) and map_type.element.dtype not in (None, self.dtype):
            raise RuleError("type.disagree", f"values of the map must have the dtype {self.dtype}, got {map_type}")
        return [Tensor(self.dtype, (1, len(self.string_vocabulary or self.int64_vocabulary)))]

    def evaluate(self, xp: Namespace, x: dict[Any, Any]) -> Any:
        missing = "" if self.dtype == "string" else 0
        row = [x.get(key, missing) for key in self.string_vocabulary or self.int64_vocabulary]
        if self.dtype == "string":
            return string_tensor_of(row, (1, len(row)))
        return arrays.from_numpy(xp, np.array([row], self.dtype.numpy))


class CastMap(Op, sig="x: any -> y: T", onnx="ai.onnx.ml:CastMap-1(x; cast_to~lower=TO_FLOAT, map_form~lower=DENSE, max_map=1)"):
    """CastMap returns the values of the map ``x`` as one row, in the type of ``cast_to`` (to_float, to_int64, to_string).

    With ``map_form`` dense, the values are in ascending order of their keys. With ``map_form`` sparse, the row has ``max_map``
    elements, and the value of key k is element k; elements without a key are 0, or the string 0.f. A float becomes a string
    with six decimals.
    Source: ONNX ai.onnx.ml CastMap 1; the string of a missing key is onnxruntime's.
    """

    cast_to: str = "to_float"
    map_form: str = "dense"
    max_map: int = 1

    def validate(self) -> None:
        if self.cast_to not in _CAST_TYPES or self.map_form not in ("dense", "sparse"):
            raise RuleError(
                "attribute.value",
                f"cast_to must be one of {', '.join(_CAST_TYPES)} and map_form dense or sparse, "
                f"got {self.cast_to!r} and {self.map_form!r}",
            )
        if self.max_map < 1:
            raise RuleError("attribute.range", f"max_map must be at least 1, got {self.max_map}")

    def types(self, x: View) -> list[Type]:
        map_type = map_type_of(x.type)
        if map_type.key == "string":
            raise RuleError("attribute.conflict", f"keys must be integers, got {map_type}")
        shape: Any = (1, self.max_map if self.map_form == "sparse" else None)
        return [Tensor(_CAST_TYPES[self.cast_to], shape)]

    def evaluate(self, xp: Namespace, x: dict[Any, Any]) -> Any:
        if self.map_form == "dense":
            row = [self._cast(x[key]) for key in sorted(x)]
        else:
            if any(key < 0 for key in x):
                raise RuleError("attribute.range", f"keys of a sparse map must not be negative, got {min(x)}")
            row = [self._cast(x[index]) if index in x else _MISSING_VALUES[self.cast_to] for index in range(self.max_map)]
        if self.cast_to == "to_string":
            return string_tensor_of(row, (1, len(row)))
        return arrays.from_numpy(xp, np.array([row], _CAST_TYPES[self.cast_to].numpy))

    def _cast(self, item: float | int | str) -> Any:
        if self.cast_to == "to_string":
            return item if isinstance(item, str) else f"{item:f}"
        try:
            return float(item) if self.cast_to == "to_float" else int(item)
        except (ValueError, OverflowError):
            raise RuleError("array.cast", f"{self.cast_to} cannot convert {item!r}") from None


def map_type_of(type: Type) -> Map:
    """Return the type as a Map. Raises Unknown for an unknown type, RuleError [type.kind] for another type."""
    if isinstance(type, Map):
        return type
    if type == UNKNOWN:
        raise Unknown
    raise RuleError("type.kind", f"input must be a map, got {type}")
