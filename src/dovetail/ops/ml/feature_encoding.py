"""Features made ready for a model: Scaler, Normalizer, Imputer, OneHotEncoder, FeatureVectorizer."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ops.ml.linear_models import row_count, rows_of


class Scaler(Op, sig="x: R -> y: f32", onnx="ai.onnx.ml:Scaler-1(x; offset?, scale?)"):
    """``(x - offset) * scale`` in f32, each one number or one for each feature, along the last axis.

    Source: ONNX ai.onnx.ml Scaler 1.
    """

    offset: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def shape(self, x: Any) -> Any:
        _check_values("offset", self.offset, x)
        _check_values("scale", self.scale, x)
        return x.shape

    def decompose(self, b: Any, x: Any) -> Any:
        y = x if x.dtype is dtypes.f32 else b.Cast(x, to=dtypes.f32)
        made = y
        if self.offset:
            made = b.Subtract(made, b.constant(np.array(self.offset, np.float32), dtypes.f32))
        if self.scale:
            made = b.Multiply(made, b.constant(np.array(self.scale, np.float32), dtypes.f32))
        return b.Identity(x) if made is x else made


class Normalizer(Op, sig="x: R -> y: f32", onnx="ai.onnx.ml:Normalizer-1(x; norm~{MAX:max,L1:l1,L2:l2}=MAX)"):
    """Each row of ``x`` over its norm, in f32; a row whose norm is 0 as it is. A vector is one row.

    ``max``: the greatest element, not its magnitude; ``l1``: the sum of magnitudes; ``l2``: the root of the sum of squares.
    Source: ONNX ai.onnx.ml Normalizer 1.
    """

    norm: str = "max"

    def validate(self) -> None:
        if self.norm not in ("max", "l1", "l2"):
            raise RuleError("feature.norm", f"norm {self.norm!r} is none of max, l1, l2")

    def shape(self, x: Any) -> Any:
        row_count(x, None)
        return x.shape

    def decompose(self, b: Any, x: Any) -> Any:
        y = x if x.dtype is dtypes.f32 else b.Cast(x, to=dtypes.f32)
        kind = {"max": "ReduceMax", "l1": "ReduceL1", "l2": "ReduceL2"}[self.norm]
        if x.dims[-1] == 0:
            return b.Identity(y) if y is x else y
        norm = b.apply(kind, y, [len(x.dims) - 1], keepdims=True)
        none = b.Equal(norm, b.constant(0, dtypes.f32))
        return b.Divide(y, b.Where(none, b.constant(1, dtypes.f32), norm))


class Imputer(
    Op,
    sig="x: R -> y: R",
    onnx="ai.onnx.ml:Imputer-1(x; imputed_value_floats?, imputed_value_int64s?, replaced_value_float=0.0, "
    "replaced_value_int64=0)",
):
    """``x`` with another value for each element that equals the replaced one.

    That is one value, or one for each feature, along the last axis.
    Floats are replaced by ``imputed_value_floats`` where they equal ``replaced_value_float``, integers by
    ``imputed_value_int64s``; a NaN equals a NaN. Source: ONNX ai.onnx.ml Imputer 1.
    """

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def validate(self) -> None:
        if bool(self.imputed_value_floats) == bool(self.imputed_value_int64s):
            raise RuleError("feature.values", "Imputer needs either imputed_value_floats or imputed_value_int64s")

    def types(self, x: Any) -> list[Any]:
        kind = "floats" if x.dtype.is_float else "int64s"
        values = self._values(x.dtype)
        if not values:
            raise RuleError("feature.values", f"Imputer needs imputed_value_{kind} for {x.dtype}")
        if not x.dtype.is_float:
            low, high = x.dtype.range()
            if not all(low <= value <= high for value in (*values, self.replaced_value_int64)):
                raise RuleError("feature.values", f"Imputer: a value does not fit {x.dtype}")
        _check_values(f"imputed_value_{kind}", values, x)
        return [x.type]

    def _values(self, dtype: Any) -> tuple[Any, ...]:
        return self.imputed_value_floats if dtype.is_float else self.imputed_value_int64s

    def decompose(self, b: Any, x: Any) -> Any:
        replaced = self.replaced_value_float if x.dtype.is_float else self.replaced_value_int64
        if replaced != replaced:
            is_missing = b.IsNaN(x)
        else:
            is_missing = b.Equal(x, b.constant(np.array(replaced, x.dtype.numpy), x.dtype))
        return b.Where(is_missing, b.constant(np.array(self._values(x.dtype), x.dtype.numpy), x.dtype), x)


class OneHotEncoder(Op, sig="x: T -> y: f32", onnx="ai.onnx.ml:OneHotEncoder-1(x; cats_int64s?, cats_strings?, zeros=1)"):
    """For each element of ``x`` a 1 at the place of its category along a new last axis, and 0 elsewhere.

    Numbers are looked up among ``cats_int64s``, as whole numbers (towards 0), texts among ``cats_strings``. An element of no
    category is all zeros, or refused in a run where ``zeros`` is false. Source: ONNX ai.onnx.ml OneHotEncoder 1.
    """

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def validate(self) -> None:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            raise RuleError("feature.categories", "OneHotEncoder needs either cats_int64s or cats_strings")
        found = self.cats_strings or self.cats_int64s
        if len(set(found)) < len(found):
            raise RuleError("feature.categories", "OneHotEncoder: a category is named twice")

    def shape(self, x: Any) -> Any:
        dtype = x.type.dtype
        if dtype is not None and (dtype == "string") != bool(self.cats_strings):
            raise RuleError("feature.categories", f"the categories are not of {dtype}")
        return None if x.shape is None else (*x.shape, len(self.cats_strings or self.cats_int64s))

    def evaluate(self, xp: Any, x: Any) -> Any:
        if self.cats_strings:
            items = np.array([item.decode() if isinstance(item, bytes) else item for item in x.reshape(-1)], object)
            found = items.reshape(*x.shape, 1) == np.array(self.cats_strings, object)
            found = np.asarray(found, bool)
            is_known = bool(np.all(found.any(-1)))
        else:
            found = xp.expand_dims(xp.astype(x, xp.int64), axis=-1) == xp.asarray(self.cats_int64s, dtype=xp.int64)
            is_known = bool(xp.all(xp.any(found, axis=-1)))
        if not self.zeros and not is_known:
            raise RuleError("feature.categories", "OneHotEncoder: an element is of no category, and zeros is false")
        return xp.astype(found, xp.float32)

    def decompose(self, b: Any, x: Any) -> Any:
        if not self.zeros:
            raise UnsupportedError("op.unsayable", "OneHotEncoder refuses elements of no category, which no other operator does")
        categories: Any = self.cats_int64s
        if self.cats_strings:
            categories = np.empty(len(self.cats_strings), object)
            categories[:] = self.cats_strings
        dtype = dtypes.string if self.cats_strings else dtypes.i64
        whole = x if x.dtype is dtype else b.Cast(x, to=dtype)
        return b.Cast(b.Equal(b.Unsqueeze(whole, [-1]), b.constant(categories, dtype)), to=dtypes.f32)


class FeatureVectorizer(Op, sig="*xs: any -> y: f32", onnx="ai.onnx.ml:FeatureVectorizer-1(*xs; inputdimensions?)"):
    """The features of all ``xs`` side by side, in f32: of each as many as ``inputdimensions`` says, 0 for those it lacks.

    A vector is one row; of more than two axes those after the first are flattened. Source: ONNX ai.onnx.ml
    FeatureVectorizer 1.
    """

    inputdimensions: tuple[int, ...] = ()

    def validate(self) -> None:
        if not self.inputdimensions or any(size < 0 for size in self.inputdimensions):
            raise RuleError("feature.count", f"FeatureVectorizer: inputdimensions are {list(self.inputdimensions)}")

    def shape(self, *xs: Any) -> Any:
        if len(xs) != len(self.inputdimensions):
            raise RuleError("feature.count", f"{len(xs)} inputs, and {len(self.inputdimensions)} inputdimensions")
        counts = []
        for x in xs:
            x.dtype  # noqa: B018  raises where the input is no tensor
            if x.shape is not None:
                if not x.shape:
                    raise RuleError("input.rank", "FeatureVectorizer takes no scalars")
                counts.append(1 if len(x.shape) == 1 else x.shape[0])
        if any(symbolic.equal(count, counts[0]) is False for count in counts):
            raise RuleError("shape.disagree", f"FeatureVectorizer: rows {', '.join(map(str, counts))} should be equal")
        return (counts[0] if counts else None, sum(self.inputdimensions))

    def decompose(self, b: Any, *xs: Any) -> Any:
        parts = []
        for x, size in zip(xs, self.inputdimensions, strict=True):
            rows = x if len(x.dims) <= 2 else b.Flatten(x, axis=1)
            rows = rows_of(b, rows)
            width = rows.dims[1]
            if not isinstance(width, int) or width < size:
                rows = b.Pad(rows, [0, 0, 0, size - width if isinstance(width, int) else size])
            if not isinstance(width, int) or width > size:
                rows = b.Slice(rows, [0], [size], [1])
            parts.append(rows)
        made = b.Concat(*parts, axis=1)
        return b.Identity(made) if made is xs[0] else made


def _check_values(name: str, values: tuple[Any, ...], x: Any) -> None:
    """Raise RuleError [feature.values] where there are neither none, nor one, nor one for each feature."""
    if len(values) < 2 or x.shape is None:
        return
    if not x.shape or symbolic.equal(x.shape[-1], len(values)) is False:
        raise RuleError("feature.values", f"{name} has {len(values)} values for the shape [{', '.join(map(str, x.shape))}]")


__all__ = ["FeatureVectorizer", "Imputer", "Normalizer", "OneHotEncoder", "Scaler"]
