"""MatMul and Gemm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.op import Op, Sizes
from dovetail.ir.types import Size, Unknown, View, agree, broadcast
from dovetail.ops.elementwise.broadcast import unbroadcast

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class MatMul(
    Op,
    sig="a: N, b: N -> y: N",
    onnx="MatMul-1,9,13(a, b)",
    openvino="MatMul-1(a, b; transpose_a=false, transpose_b=false)",
):
    """Compute the product of the matrices in the last two axes; the axes before them broadcast.

    ``transpose_a`` and ``transpose_b`` swap the last two axes of ``a`` and of ``b`` first. A vector is a row as ``a`` and a
    column as ``b``; it is never transposed, and its axis is not in the result. Floats of fewer than 32 bits are summed in f32
    and rounded once; integers wrap.
    Sources: ONNX MatMul 1, 9, 13 (numpy.matmul); OpenVINO MatMul-1.
    """

    transpose_a: bool = False
    transpose_b: bool = False

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return _multiply_adds(inputs[0], self.transpose_a, output)

    def shape(self, x: View, y: View) -> Any:
        left, right = x.shape, y.shape
        for shape in (left, right):
            if shape is not None and not shape:
                raise RuleError("shape.rank", "operands must have rank 1 or more, got a scalar")
        if left is None or right is None:
            return None
        rows, inner = _matrix(left, self.transpose_a, row=True)
        other, columns = _matrix(right, self.transpose_b, row=False)
        first_axis = max(len(left) - 2 if self.transpose_a else len(left) - 1, 0)
        second_axis = max(len(right) - 1 if self.transpose_b else len(right) - 2, 0)
        agree(inner, other, ("a", first_axis), ("b", second_axis))
        batch = broadcast(left[:-2], right[:-2])
        assert batch is not None
        return (*batch, *(() if rows is None else (rows,)), *(() if columns is None else (columns,)))

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through matrix products."""
        raise Unknown

    def evaluate(self, xp: Namespace, x: Array, y: Array) -> Any:
        if self.transpose_a and x.ndim > 1:
            x = xp.matrix_transpose(x)
        if self.transpose_b and y.ndim > 1:
            y = xp.matrix_transpose(y)
        kind = x.dtype
        product = xp.matmul(arrays.widen(xp, x), arrays.widen(xp, y))
        return product if product.dtype == kind else arrays.cast(xp, product, arrays.element(x), saturate=False)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value) -> Any:
        ranks = len(x.dims), len(y.dims)
        left = b.Unsqueeze(x, [0]) if ranks[0] == 1 else x
        right = b.Unsqueeze(y, [1]) if ranks[1] == 1 else y
        if ranks[1] == 1:
            g = b.Unsqueeze(g, [-1])
        if ranks[0] == 1:
            g = b.Unsqueeze(g, [-2])
        swap_left, swap_right = self.transpose_a and ranks[0] > 1, self.transpose_b and ranks[1] > 1
        if swap_left:
            dx = b.MatMul(right, g, transpose_a=swap_right, transpose_b=True)
        else:
            dx = b.MatMul(g, right, transpose_b=not swap_right)
        dx = _like(b, dx, x, left)
        if (
            not swap_left
            and ranks[0] > 2
            and ranks[1] <= 2
            and all(isinstance(v.dims[-1], int) and v.dims[-1] for v in (left, g))
        ):
            # One product over all rows, instead of a sum of one product for each matrix of ``x``.
            left, g = _rows(b, left), _rows(b, g)
        if swap_right:
            dy = b.MatMul(g, left, transpose_a=True, transpose_b=swap_left)
        else:
            dy = b.MatMul(left, g, transpose_a=not swap_left)
        return [dx, _like(b, dy, y, right)]

    def decompose(self, b: Builder, x: Value, y: Value) -> Any:
        """Transpose the operands before the product; return None where no operand is to be transposed."""
        if not (self.transpose_a or self.transpose_b):
            return None
        x = swap_last_axes(b, x) if self.transpose_a else x
        y = swap_last_axes(b, y) if self.transpose_b else y
        return b.MatMul(x, y)

    def canonical(self, x: View, y: View) -> Op:
        """Drop ``transpose_a`` and ``transpose_b`` for vectors."""
        vectors = [v.shape is not None and len(v.shape) == 1 for v in (x, y)]
        return MatMul(self.transpose_a and not vectors[0], self.transpose_b and not vectors[1])


def _matrix(shape: tuple[Size, ...], transpose: bool, row: bool) -> tuple[Any, Any]:
    """Return the numbers of rows and columns of an operand, None for the axis that a vector lacks."""
    if len(shape) == 1:
        return (None, shape[0]) if row else (shape[0], None)
    return (shape[-1], shape[-2]) if transpose else (shape[-2], shape[-1])


def _multiply_adds(first: Sizes | None, transpose: bool, output: Sizes) -> int:
    return prod(output) * (_matrix(first, transpose, row=True)[1] if first else 1)


def swap_last_axes(b: Builder, x: Value) -> Any:
    """Swap the last two axes of ``x``. Raises UnsupportedError [type.unknown] where the rank is unknown."""
    if x.shape is None:
        raise UnsupportedError("type.unknown", "a transposed operand must have a known rank")
    rank = len(x.shape)
    return x if rank < 2 else b.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _rows(b: Builder, x: Value) -> Any:
    """Reshape matrices [..., rows, columns] to one matrix [all rows, columns]."""
    return b.Reshape(x, [-1, x.dims[-1]], special_zero=False)


def _like(b: Builder, g: Value, x: Value, matrix: Value) -> Any:
    """Reduce the gradient ``g`` of a broadcast ``matrix`` to the shape of the operand ``x``, a matrix or vector."""
    from dovetail.ir.builder import shape_value

    g = unbroadcast(b, g, matrix)
    return g if matrix is x or g is None else b.Reshape(g, shape_value(b, x), special_zero=False)


class Gemm(
    Op,
    sig="a: N, b: N, c?: N -> y: N",
    onnx=(
        "Gemm-1,6(a, b, c; alpha=1.0, beta=1.0, transA:transpose_a=0, transB:transpose_b=0, broadcast=0)",
        "Gemm-7,9(a, b, c; alpha=1.0, beta=1.0, transA:transpose_a=0, transB:transpose_b=0 | broadcast=true)",
        "Gemm-11,13(a, b, c?; alpha=1.0, beta=1.0, transA:transpose_a=0, transB:transpose_b=0 | broadcast=true)",
    ),
):
    """Compute ``alpha * a @ b + beta * c`` for matrices ``a`` and ``b``.

    ``transpose_a`` and ``transpose_b`` transpose ``a`` and ``b`` first. ``c`` broadcasts to the product; without ``broadcast``,
    ``c`` has the shape of the product. Floats of fewer than 32 bits are computed in f32 and rounded once. Source: ONNX Gemm 1
    to 13. Raises UnsupportedError [attribute.conflict] for a fractional ``alpha`` or ``beta`` with integers, which ONNX does
    not define.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False
    broadcast: bool = True

    def multiply_adds(self, inputs: Sequence[Sizes | None], output: Sizes) -> int:
        return _multiply_adds(inputs[0], self.transpose_a, output)

    def shape(self, x: View, y: View, bias: View | None = None) -> Any:
        self._check_scale(x)
        for operand in (x, y):
            if operand.shape is not None and len(operand.shape) != 2:
                raise RuleError("shape.rank", f"operands must be matrices, got {operand.type}")
        rows = columns = None
        inner: list[Any] = []
        if x.shape is not None:
            rows, left = _matrix(x.shape, self.transpose_a, row=True)
            inner.append(left)
        if y.shape is not None:
            right, columns = _matrix(y.shape, self.transpose_b, row=False)
            inner.append(right)
        if len(inner) == 2:
            agree(inner[0], inner[1], ("a", 0 if self.transpose_a else 1), ("b", 1 if self.transpose_b else 0))
        if bias is not None and bias.shape is not None and rows is not None and columns is not None:
            self._check_bias(bias.shape, (rows, columns))
        return rows, columns

    def _check_scale(self, x: View) -> None:
        dtype = getattr(x.type, "dtype", None)
        if dtype is not None and dtype.is_integer:
            for name in ("alpha", "beta"):
                if not float(getattr(self, name)).is_integer():
                    raise UnsupportedError(
                        "attribute.conflict", f"{name} must be an integer for {dtype}, got {getattr(self, name)}"
                    )

    def _check_bias(self, bias: tuple[Size, ...], product: tuple[Size, Size]) -> None:
        if not self.broadcast and len(bias) != 2:
            raise RuleError("shape.rank", f"c must have rank 2 without broadcast, got rank {len(bias)}")
        if len(bias) > 2:
            raise RuleError("shape.rank", f"c must have rank 2 or less, got {len(bias)}")
        for size, whole in zip(bias[::-1], product[::-1], strict=False):
            # A symbolic size can be 1 at run time, which broadcasts to any size.
            may_stretch = self.broadcast and (not isinstance(size, int) or size == 1)
            if not may_stretch and symbolic.equal(size, whole) is False:
                raise RuleError("shape.broadcast", f"size {size} of c must broadcast to {whole}")

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through matrix products."""
        raise Unknown

    def evaluate(self, xp: Namespace, x: Array, y: Array, bias: Array | None = None) -> Any:
        kind = arrays.element(x)
        x, y = arrays.widen(xp, x), arrays.widen(xp, y)
        product = xp.matmul(xp.matrix_transpose(x) if self.transpose_a else x, xp.matrix_transpose(y) if self.transpose_b else y)
        product = _scale(product, self.alpha, kind.is_integer)
        if bias is not None:
            product = product + _scale(arrays.widen(xp, bias), self.beta, kind.is_integer)
        return product if arrays.element(product) is kind else arrays.cast(xp, product, kind, saturate=False)

    def vjp(self, b: Builder, g: Value, z: Value, x: Value, y: Value, bias: Value | None = None) -> Any:
        scaled = g if self.alpha == 1 else b.Multiply(g, self.alpha)
        dx, dy = MatMul(self.transpose_a, self.transpose_b).vjp(b, scaled, z, x, y)
        if bias is None:
            return [dx, dy]
        weighted = g if self.beta == 1 else b.Multiply(g, self.beta)
        return [dx, dy, unbroadcast(b, weighted, bias)]

    def canonical(self, x: View, y: View, bias: View | None = None) -> Op:
        """Set ``broadcast`` to true: it has no effect on a ``c`` with the product's shape, and every version has this form."""
        return self.with_(broadcast=True)

    def decompose(self, b: Builder, x: Value, y: Value, bias: Value | None = None) -> Any:
        product = b.MatMul(x, y, transpose_a=self.transpose_a, transpose_b=self.transpose_b)
        if self.alpha != 1:
            product = b.Multiply(product, self.alpha)
        if bias is None:
            return product
        return b.Add(product, bias if self.beta == 1 else b.Multiply(bias, self.beta))


def _scale(x: Array, factor: float, whole: bool) -> Any:
    return x if factor == 1 else x * (int(factor) if whole else factor)
