"""Feature encoding: Scaler, Normalizer, Imputer, OneHotEncoder and FeatureVectorizer of ai.onnx.ml."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op
from dovetail.ir.types import View
from dovetail.ops.ml.linear_models import as_rows, row_count_of

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Scaler(Op, sig="x: R -> y: f32", onnx="ai.onnx.ml:Scaler-1(x; offset?, scale?)"):
    """Scaler computes ``(x - offset) * scale`` in f32.

    ``offset`` and ``scale`` hold one number, or one number per feature along the last axis; empty means 0 and 1.
    Source: ONNX ai.onnx.ml Scaler 1.
    """

    offset: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def shape(self, x: View) -> Any:
        _check_values("offset", self.offset, x)
        _check_values("scale", self.scale, x)
        return x.shape

    def decompose(self, b: Builder, x: Value) -> Any:
        y = x if x.dtype is dtypes.f32 else b.Cast(x, to=dtypes.f32)
        scaled = y
        if self.offset:
            scaled = b.Subtract(scaled, b.constant(np.array(self.offset, np.float32), dtypes.f32))
        if self.scale:
            scaled = b.Multiply(scaled, b.constant(np.array(self.scale, np.float32), dtypes.f32))
        return b.Identity(x) if scaled is x else scaled


class Normalizer(Op, sig="x: R -> y: f32", onnx="ai.onnx.ml:Normalizer-1(x; norm~{MAX:max,L1:l1,L2:l2}=MAX)"):
    """Normalizer divides each row of ``x`` by its norm, in f32; a row of norm 0 is unchanged. A vector is one row.

    The norm ``max`` is the greatest element, not the greatest magnitude; ``l1`` is the sum of magnitudes; ``l2`` is the root of
    the sum of squares.
    Source: ONNX ai.onnx.ml Normalizer 1.
    """

    norm: str = "max"

    def validate(self) -> None:
        if self.norm not in ("max", "l1", "l2"):
            raise RuleError("attribute.value", f"norm must be max, l1 or l2, got {self.norm!r}")

    def shape(self, x: View) -> Any:
        row_count_of(x, None)
        return x.shape

    def decompose(self, b: Builder, x: Value) -> Any:
        y = x if x.dtype is dtypes.f32 else b.Cast(x, to=dtypes.f32)
        reduction = {"max": "ReduceMax", "l1": "ReduceL1", "l2": "ReduceL2"}[self.norm]
        if x.dims[-1] == 0:
            return b.Identity(y) if y is x else y
        norm = b.apply(reduction, y, [len(x.dims) - 1], keepdims=True)
        is_zero = b.Equal(norm, b.constant(0, dtypes.f32))
        return b.Divide(y, b.Where(is_zero, b.constant(1, dtypes.f32), norm))


class Imputer(
    Op,
    sig="x: R -> y: R",
    onnx="ai.onnx.ml:Imputer-1(x; imputed_value_floats?, imputed_value_int64s?, replaced_value_float=0.0, "
    "replaced_value_int64=0)",
):
    """Imputer replaces each element of ``x`` that equals the replaced value.

    In floats, ``imputed_value_floats`` replaces elements equal to ``replaced_value_float``; in integers,
    ``imputed_value_int64s`` replaces elements equal to ``replaced_value_int64``. The imputed values are one number, or one
    number per feature along the last axis. A NaN counts as equal to a NaN.
    Source: ONNX ai.onnx.ml Imputer 1.
    """

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def validate(self) -> None:
        if bool(self.imputed_value_floats) == bool(self.imputed_value_int64s):
            raise RuleError("attribute.conflict", "Imputer needs either imputed_value_floats or imputed_value_int64s")

    def types(self, x: View) -> list[Any]:
        suffix = "floats" if x.dtype.is_float else "int64s"
        values = self._values(x.dtype)
        if not values:
            raise RuleError("attribute.conflict", f"Imputer needs imputed_value_{suffix} for {x.dtype}")
        if not x.dtype.is_float:
            low, high = x.dtype.range()
            if not all(low <= value <= high for value in (*values, self.replaced_value_int64)):
                raise RuleError(
                    "attribute.range",
                    f"Imputer values must be in [{low}, {high}] for {x.dtype}, got {[*values, self.replaced_value_int64]}",
                )
        _check_values(f"imputed_value_{suffix}", values, x)
        return [x.type]

    def _values(self, dtype: DType) -> tuple[Any, ...]:
        return self.imputed_value_floats if dtype.is_float else self.imputed_value_int64s

    def decompose(self, b: Builder, x: Value) -> Any:
        replaced = self.replaced_value_float if x.dtype.is_float else self.replaced_value_int64
        if replaced != replaced:
            is_missing = b.IsNaN(x)
        else:
            is_missing = b.Equal(x, b.constant(np.array(replaced, x.dtype.numpy), x.dtype))
        return b.Where(is_missing, b.constant(np.array(self._values(x.dtype), x.dtype.numpy), x.dtype), x)


class OneHotEncoder(Op, sig="x: T -> y: f32", onnx="ai.onnx.ml:OneHotEncoder-1(x; cats_int64s?, cats_strings?, zeros=1)"):
    """OneHotEncoder writes a 1 at the index of each element's category along a new last axis, and 0 elsewhere.

    Numbers are truncated to integers and searched in ``cats_int64s``; strings are searched in ``cats_strings``. An element
    without a category, such as NaN, gives zeros; where ``zeros`` is false, it raises an error at run time.
    Source: ONNX ai.onnx.ml OneHotEncoder 1.
    """

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def validate(self) -> None:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            raise RuleError("attribute.conflict", "OneHotEncoder needs either cats_int64s or cats_strings")
        categories = self.cats_strings or self.cats_int64s
        if len(set(categories)) < len(categories):
            raise RuleError("attribute.conflict", f"categories of OneHotEncoder must be unique, got {list(categories)}")

    def shape(self, x: View) -> Any:
        dtype = x.type.dtype
        if dtype is not None and (dtype == "string") != bool(self.cats_strings):
            raise RuleError(
                "attribute.conflict", f"x of type {dtype} needs {'cats_strings' if dtype == 'string' else 'cats_int64s'}"
            )
        return None if x.shape is None else (*x.shape, len(self.cats_strings or self.cats_int64s))

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        if self.cats_strings:
            items = np.array([item.decode() if isinstance(item, bytes) else item for item in x.reshape(-1)], object)
            is_category = items.reshape(*x.shape, 1) == np.array(self.cats_strings, object)
            is_category = np.asarray(is_category, bool)
            is_known = bool(np.all(is_category.any(-1)))
        else:
            keys = arrays.cast(xp, x, dtypes.i64)
            is_category = xp.expand_dims(keys, axis=-1) == xp.asarray(self.cats_int64s, dtype=xp.int64)
            if arrays.element(x).is_float:
                is_category = is_category & ~xp.expand_dims(xp.isnan(x), axis=-1)
            is_known = bool(xp.all(xp.any(is_category, axis=-1)))
        if not self.zeros and not is_known:
            raise RuleError("attribute.conflict", "every element must have a category where zeros of OneHotEncoder is false")
        return xp.astype(is_category, xp.float32)

    def decompose(self, b: Builder, x: Value) -> Any:
        if not self.zeros:
            raise UnsupportedError("op.unsayable", "OneHotEncoder with zeros=false has no decomposition into other operators")
        categories: Any = self.cats_int64s
        if self.cats_strings:
            categories = np.empty(len(self.cats_strings), object)
            categories[:] = self.cats_strings
        dtype = dtypes.string if self.cats_strings else dtypes.i64
        keys = x if x.dtype is dtype else b.Cast(x, to=dtype)
        is_category = b.Equal(b.Unsqueeze(keys, [-1]), b.constant(categories, dtype))
        if x.dtype.is_float:
            is_category = b.And(is_category, b.Not(b.Unsqueeze(b.IsNaN(x), [-1])))
        return b.Cast(is_category, to=dtypes.f32)


class FeatureVectorizer(Op, sig="*xs: any -> y: f32", onnx="ai.onnx.ml:FeatureVectorizer-1(*xs; inputdimensions?)"):
    """FeatureVectorizer concatenates the features of all inputs in f32.

    The features of input i are cut or zero-padded to ``inputdimensions[i]``. A vector is one row; axes after the first are
    flattened.
    Source: ONNX ai.onnx.ml FeatureVectorizer 1.
    """

    inputdimensions: tuple[int, ...] = ()

    def validate(self) -> None:
        if not self.inputdimensions or any(size < 0 for size in self.inputdimensions):
            raise RuleError("shape.disagree", f"inputdimensions must not be empty or negative, got {list(self.inputdimensions)}")

    def shape(self, *xs: View) -> Any:
        if len(xs) != len(self.inputdimensions):
            raise RuleError(
                "shape.disagree",
                f"the number of inputs ({len(xs)}) must equal the number of inputdimensions ({len(self.inputdimensions)})",
            )
        counts = []
        for x in xs:
            x.dtype  # noqa: B018  raises for an input that is no tensor
            if x.shape is not None:
                if not x.shape:
                    raise RuleError("shape.rank", "FeatureVectorizer needs inputs of rank at least 1, got a scalar")
                counts.append(1 if len(x.shape) == 1 else x.shape[0])
        if any(symbolic.equal(count, counts[0]) is False for count in counts):
            raise RuleError("shape.disagree", f"inputs must have equal numbers of rows, got {', '.join(map(str, counts))}")
        return (counts[0] if counts else None, sum(self.inputdimensions))

    def decompose(self, b: Builder, *xs: Value) -> Any:
        parts = []
        for x, size in zip(xs, self.inputdimensions, strict=True):
            rows = x if len(x.dims) <= 2 else b.Flatten(x, axis=1)
            rows = as_rows(b, rows)
            width = rows.dims[1]
            if not isinstance(width, int) or width < size:
                rows = b.Pad(rows, [0, 0, 0, size - width if isinstance(width, int) else size])
            if not isinstance(width, int) or width > size:
                rows = b.Slice(rows, [0], [size], [1])
            parts.append(rows)
        joined = b.Concat(*parts, axis=1)
        return b.Identity(joined) if joined is xs[0] else joined


def _check_values(name: str, values: tuple[Any, ...], x: View) -> None:
    """Raise RuleError [attribute.length] unless ``values`` holds no number, one number, or one number per feature of ``x``."""
    if len(values) < 2 or x.shape is None:
        return
    if not x.shape or symbolic.equal(x.shape[-1], len(values)) is False:
        raise RuleError(
            "attribute.length",
            f"{name} ({len(values)} values) must have the size of the last axis of [{', '.join(map(str, x.shape))}]",
        )
