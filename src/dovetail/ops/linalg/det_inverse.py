"""Det and Inverse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.builders import reshape_like
from dovetail.ops.casts import as_type, round_to, wide_type

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class _Square(Op):
    """_Square is the base of Det and Inverse, which operate on the square matrices in the last two axes."""

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a determinant")

    def square_shape(self, x: View) -> Any:
        """Return the shape of ``x`` with one common size for the last two axes, whose sizes must agree."""
        if x.shape is None:
            return None
        if len(x.shape) < 2:
            raise RuleError("shape.rank", f"x must have rank at least 2, got {len(x.shape)}")
        rank = len(x.shape)
        size = agree(x.shape[-2], x.shape[-1], ("x", rank - 2), ("x", rank - 1))
        return (*x.shape[:-2], size, size)


class Det(_Square, sig="x: F -> y: F", onnx="Det-11,22(x)"):
    """Compute the determinants of the matrices in the last two axes. Floats of fewer than 32 bits are computed in f32.

    Source: ONNX Det 11, 22.
    """

    def shape(self, x: View) -> Any:
        shape = self.square_shape(x)
        return None if shape is None else shape[:-2]

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        return round_to(xp, xp.linalg.det(arrays.widen(xp, x)), arrays.element(x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        """Multiply ``g`` by the cofactor matrix det(x) * inverse(x)'; for up to 3 rows the cofactors need no inverse."""
        if isinstance(x.dims[-1], int) and x.dims[-1] <= 3:
            return [_cofactors(b, g, x)]
        return [b.Multiply(_transpose_matrices(b, b.Inverse(x)), b.Unsqueeze(b.Multiply(g, y), [-2, -1]))]

    def decompose(self, b: Builder, x: Value) -> Any:
        size = x.dims[-1] if isinstance(x.dims[-1], int) else x.dims[-2]
        if not isinstance(size, int) or not 1 <= size <= 3:
            raise UnsupportedError("type.unknown", f"matrices must have 1 to 3 rows for the decomposition of Det, got {size}")
        wide = wide_type(x.dtype)
        rows = as_type(b, x, wide)
        return as_type(b, _determinant(b, rows, list(range(size)), list(range(size))), x.dtype)


def _at(b: Builder, x: Value, row: int, column: int) -> Any:
    return b.Gather(b.Gather(x, np.array(row), axis=-2), np.array(column), axis=-1)


def _determinant(b: Builder, x: Value, rows: list[int], columns: list[int]) -> Any:
    """Expand the determinant of a submatrix along its first row."""
    if len(rows) == 1:
        return _at(b, x, rows[0], columns[0])
    total = None
    for index, column in enumerate(columns):
        rest = [other for other in columns if other != column]
        term = b.Multiply(_at(b, x, rows[0], column), _determinant(b, x, rows[1:], rest))
        total = term if total is None else b.Subtract(total, term) if index % 2 else b.Add(total, term)
    return total


def _cofactors(b: Builder, g: Value, x: Value) -> Any:
    """Return ``g`` times the matrix of cofactors, the gradient of a small determinant."""
    size = x.dims[-1]
    if size == 0:
        # The determinant of a matrix without rows is 1, and its gradient has no elements.
        return x
    cofactors = []
    for row in range(size):
        for column in range(size):
            rows, columns = ([other for other in range(size) if other != excluded] for excluded in (row, column))
            term = b.Multiply(g, _determinant(b, x, rows, columns)) if size > 1 else g
            cofactors.append(b.Unsqueeze(b.Negative(term) if (row + column) % 2 else term, [-1]))
    flat = b.Concat(*cofactors, axis=-1) if len(cofactors) > 1 else cofactors[0]
    return reshape_like(b, flat, x)


class Inverse(
    _Square,
    sig="x: F -> y: F",
    onnx="com.microsoft:Inverse-1(x)",
    openvino="Inverse-14(x; adjoint=false)",
):
    """Compute the inverses of the matrices in the last two axes; with ``adjoint``, the transposes of these inverses.

    Floats of fewer than 32 bits are computed in f32. A singular matrix raises an error. Sources: OpenVINO Inverse-14;
    onnxruntime's com.microsoft Inverse.
    """

    adjoint: bool = False

    def shape(self, x: View) -> Any:
        return self.square_shape(x)

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        y = xp.linalg.inv(arrays.widen(xp, x))
        return round_to(xp, xp.matrix_transpose(y) if self.adjoint else y, arrays.element(x))

    def vjp(self, b: Builder, g: Value, y: Value, x: Value) -> Any:
        if self.adjoint:
            g = _transpose_matrices(b, g)
        else:
            y = _transpose_matrices(b, y)
        return [b.Negative(b.MatMul(b.MatMul(y, g), y))]

    def decompose(self, b: Builder, x: Value) -> Any:
        return _transpose_matrices(b, b.Inverse(x)) if self.adjoint else None


def _transpose_matrices(b: Builder, x: Value) -> Any:
    """Transpose the matrices in the last two axes."""
    rank = len(x.dims)
    return b.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])
