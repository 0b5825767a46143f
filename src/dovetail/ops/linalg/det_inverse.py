"""Square matrices: determinants and inverses."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.builders import reshape_like
from dovetail.ops.casts import as_type, round_to, wide_type


class _Square(Op):
    """Of the matrices in the last two axes."""

    def value(self, *xs: Any) -> Any:
        raise symbolic.Inexact("a determinant")

    def check(self, x: Any) -> Any:
        """The shape of ``x``, whose last two sizes are equal."""
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            raise RuleError("square.rank", f"a matrix is needed, not the rank {len(x.shape)}")
        size = agree(*x.shape[-2:])
        return (*x.shape[:-2], size, size)


class Det(_Square, sig="x: F -> y: F", onnx="Det-11,22(x)"):
    """The determinants of the matrices in the last two axes of ``x``. Floats of fewer than 32 bits are computed in f32.

    Source: ONNX Det 11, 22.
    """

    def shape(self, x: Any) -> Any:
        found = self.check(x)
        return None if found is None else found[:-2]

    def evaluate(self, xp: Any, x: Any) -> Any:
        return round_to(xp, xp.linalg.det(arrays.widened(xp, x)), arrays.element(x))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        """That of a matrix is its determinant times its inverse, transposed; small ones are taken apart, inverse or not."""
        if isinstance(x.dims[-1], int) and x.dims[-1] <= 3:
            return [_cofactors(b, g, x)]
        return [b.Multiply(_flipped(b, b.Inverse(x)), b.Unsqueeze(b.Multiply(g, y), [-2, -1]))]

    def decompose(self, b: Any, x: Any) -> Any:
        size = x.dims[-1] if isinstance(x.dims[-1], int) else x.dims[-2]
        if not isinstance(size, int) or not 1 <= size <= 3:
            raise UnsupportedError("square.size", f"the determinant of a matrix of {size} rows, taken apart for up to 3")
        wide = wide_type(x.dtype)
        rows = as_type(b, x, wide)
        return as_type(b, _determinant(b, rows, list(range(size)), list(range(size))), x.dtype)


def _at(b: Any, x: Any, row: int, column: int) -> Any:
    return b.Gather(b.Gather(x, np.array(row), axis=-2), np.array(column), axis=-1)


def _determinant(b: Any, x: Any, rows: list[int], columns: list[int]) -> Any:
    """Along the first row, that of a part of the matrix."""
    if len(rows) == 1:
        return _at(b, x, rows[0], columns[0])
    total = None
    for place, column in enumerate(columns):
        rest = [other for other in columns if other != column]
        term = b.Multiply(_at(b, x, rows[0], column), _determinant(b, x, rows[1:], rest))
        total = term if total is None else b.Subtract(total, term) if place % 2 else b.Add(total, term)
    return total


def _cofactors(b: Any, g: Any, x: Any) -> Any:
    """The gradient of the determinant of a small matrix: ``g`` times what is left without each row and column."""
    size = x.dims[-1]
    made = []
    for row in range(size):
        for column in range(size):
            rows, columns = ([each for each in range(size) if each != place] for place in (row, column))
            term = b.Multiply(g, _determinant(b, x, rows, columns)) if size > 1 else g
            made.append(b.Unsqueeze(b.Negative(term) if (row + column) % 2 else term, [-1]))
    flat = b.Concat(*made, axis=-1) if len(made) > 1 else made[0]
    return reshape_like(b, flat, x)


class Inverse(
    _Square,
    sig="x: F -> y: F",
    onnx="com.microsoft:Inverse-1(x)",
    openvino="Inverse-14(x; adjoint=false)",
):
    """The inverses of the matrices in the last two axes of ``x``, or with ``adjoint`` their transposes. Floats of fewer than
    32 bits are computed in f32. A matrix without an inverse is an error.

    Sources: OpenVINO Inverse-14; onnxruntime's com.microsoft Inverse.
    """

    adjoint: bool = False

    def shape(self, x: Any) -> Any:
        return self.check(x)

    def evaluate(self, xp: Any, x: Any) -> Any:
        y = xp.linalg.inv(arrays.widened(xp, x))
        return round_to(xp, xp.matrix_transpose(y) if self.adjoint else y, arrays.element(x))

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        if self.adjoint:
            g = _flipped(b, g)
        else:
            y = _flipped(b, y)
        return [b.Negative(b.MatMul(b.MatMul(y, g), y))]

    def decompose(self, b: Any, x: Any) -> Any:
        return _flipped(b, b.Inverse(x)) if self.adjoint else None


def _flipped(b: Any, x: Any) -> Any:
    """The matrices transposed."""
    rank = len(x.dims)
    return b.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])
