"""Maps from keys to values, which are Python dicts in a run: ZipMap, DictVectorizer, CastMap."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import UNKNOWN, Map, Sequence, Tensor, Type, Unknown
from dovetail.ops.text.strings import string_tensor_of

_KINDS = {"to_float": dtypes.f32, "to_int64": dtypes.i64, "to_string": dtypes.string}
_ABSENT = {"to_float": 0.0, "to_int64": 0, "to_string": "0.f"}


class ZipMap(Op, sig="x: f32 -> z: any", onnx="ai.onnx.ml:ZipMap-1(x; classlabels_int64s?, classlabels_strings?)"):
    """For each row of ``x`` the map from the labels to the numbers of the row; a vector is one row.

    The labels are ``classlabels_int64s`` or ``classlabels_strings``, one for each column. Of two equal labels the last one's
    number is kept. Source: ONNX ai.onnx.ml ZipMap 1.
    """

    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()

    def validate(self) -> None:
        if bool(self.classlabels_int64s) == bool(self.classlabels_strings):
            raise RuleError("map.keys", "ZipMap needs either classlabels_int64s or classlabels_strings")

    def labels(self) -> tuple[Any, ...]:
        return self.classlabels_strings or self.classlabels_int64s

    def types(self, x: Any) -> list[Type]:
        if x.shape is not None:
            if len(x.shape) not in (1, 2):
                raise RuleError("input.rank", f"a vector or a matrix is needed, not rank {len(x.shape)}")
            if symbolic.equal(x.shape[-1], len(self.labels())) is False:
                raise RuleError("map.keys", f"{len(self.labels())} labels for {x.shape[-1]} columns")
        length = None if x.shape is None else 1 if len(x.shape) == 1 else x.shape[0]
        key = dtypes.string if self.classlabels_strings else dtypes.i64
        return [Sequence(Map(key, Tensor(dtypes.f32, ())), length)]

    def evaluate(self, xp: Any, x: Any) -> Any:
        rows = arrays.to_numpy(x)
        labels = self.labels()
        if rows.ndim not in (1, 2) or rows.shape[-1] != len(labels):
            raise RuleError("map.keys", f"{len(labels)} labels for an array of shape {list(rows.shape)}")
        return [dict(zip(labels, row, strict=True)) for row in np.atleast_2d(rows).tolist()]


class DictVectorizer(Op, sig="x: any -> y: T"):
    """The values of the map ``x`` in the order of a vocabulary of keys, as one row.

    A key that ``x`` lacks counts as 0, or as an empty text. ``dtype`` is the element type of the row, which has to be that of the
    map's values: a dict of a run does not tell f32 from f64.

    Keys of ``x`` outside of the vocabulary are left out. Source: ONNX ai.onnx.ml DictVectorizer 1.
    """

    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()
    dtype: DType = dtypes.f32

    def validate(self) -> None:
        if bool(self.int64_vocabulary) == bool(self.string_vocabulary):
            raise RuleError("map.keys", "DictVectorizer needs either int64_vocabulary or string_vocabulary")

    def types(self, x: Any) -> list[Type]:
        known = map_of(x.type)
        if (known.key == "string") != bool(self.string_vocabulary):
            raise RuleError("map.keys", f"the vocabulary is not of the keys of {known}")
        if isinstance(known.element, Tensor) and known.element.dtype not in (None, self.dtype):
            raise RuleError("type.disagree", f"DictVectorizer makes {self.dtype} of {known}")
        return [Tensor(self.dtype, (1, len(self.string_vocabulary or self.int64_vocabulary)))]

    def evaluate(self, xp: Any, x: dict[Any, Any]) -> Any:
        absent = "" if self.dtype == "string" else 0
        row = [x.get(key, absent) for key in self.string_vocabulary or self.int64_vocabulary]
        if self.dtype == "string":
            return string_tensor_of(row, (1, len(row)))
        return arrays.from_numpy(xp, np.array([row], self.dtype.numpy))


class CastMap(Op, sig="x: any -> y: T", onnx="ai.onnx.ml:CastMap-1(x; cast_to~lower=TO_FLOAT, map_form~lower=DENSE, max_map=1)"):
    """The values of the map ``x`` as one row, in the type that ``cast_to`` names (``to_float``, ``to_int64``, ``to_string``).

    ``dense``: by rising keys. ``sparse``: at the places that the keys name, of ``max_map`` places; 0, or the text 0.f, where
    there is none. A float becomes a text with six decimals. Source: ONNX ai.onnx.ml CastMap 1; what stands for an absent text is
    onnxruntime's.
    """

    cast_to: str = "to_float"
    map_form: str = "dense"
    max_map: int = 1

    def validate(self) -> None:
        if self.cast_to not in _KINDS or self.map_form not in ("dense", "sparse"):
            raise RuleError("map.form", f"cast_to {self.cast_to!r} and map_form {self.map_form!r}")
        if self.max_map < 1:
            raise RuleError("map.form", f"max_map is {self.max_map}, and should be at least 1")

    def types(self, x: Any) -> list[Type]:
        known = map_of(x.type)
        if known.key == "string":
            raise RuleError("map.keys", f"keys should be integers, not those of {known}")
        shape: Any = (1, self.max_map if self.map_form == "sparse" else None)
        return [Tensor(_KINDS[self.cast_to], shape)]

    def evaluate(self, xp: Any, x: dict[Any, Any]) -> Any:
        if self.map_form == "dense":
            row = [self._cast(x[key]) for key in sorted(x)]
        else:
            if any(key < 0 for key in x):
                raise RuleError("map.keys", f"the key {min(x)} is no place")
            row = [self._cast(x[place]) if place in x else _ABSENT[self.cast_to] for place in range(self.max_map)]
        if self.cast_to == "to_string":
            return string_tensor_of(row, (1, len(row)))
        return arrays.from_numpy(xp, np.array([row], _KINDS[self.cast_to].numpy))

    def _cast(self, item: Any) -> Any:
        if self.cast_to == "to_string":
            return item if isinstance(item, str) else f"{item:f}"
        try:
            return float(item) if self.cast_to == "to_float" else int(item)
        except (ValueError, OverflowError):
            raise RuleError("map.value", f"{item!r} is no number that {self.cast_to} takes") from None


def map_of(type: Type) -> Map:
    """The type as that of a map, raising Unknown where nothing is known of it and RuleError where it is another."""
    if isinstance(type, Map):
        return type
    if type == UNKNOWN:
        raise Unknown
    raise RuleError("type.map", f"a map is needed, not {type}")


__all__ = ["CastMap", "DictVectorizer", "ZipMap", "map_of"]
