"""Products of matrices."""

from __future__ import annotations

from typing import Any

from dovetail import arrays, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import Size, Unknown, agree, broadcast
from dovetail.ops.elementwise.broadcast import unbroadcast


class MatMul(
    Op,
    sig="a: N, b: N -> y: N",
    onnx="MatMul-1,9,13(a, b)",
    openvino="MatMul-1(a, b; transpose_a=false, transpose_b=false)",
):
    """The product of the matrices in the last two axes; the axes before them broadcast.

    ``transpose_a`` and ``transpose_b`` swap the last two axes of ``x`` and of ``y`` first. A vector is a row on the left, a
    column on the right, never transposed, and its axis is not in the result. Floats of fewer than 32 bits are summed in f32 and
    rounded once; integers wrap. Sources: ONNX MatMul 1, 9, 13 (numpy.matmul); OpenVINO MatMul-1.
    """

    transpose_a: bool = False
    transpose_b: bool = False

    def shape(self, x: Any, y: Any) -> Any:
        left, right = x.shape, y.shape
        for shape in (left, right):
            if shape is not None and not shape:
                raise RuleError("matmul.scalar", "a scalar has no rows or columns")
        if left is None or right is None:
            return None
        rows, inner = _matrix(left, self.transpose_a, row=True)
        other, columns = _matrix(right, self.transpose_b, row=False)
        agree(inner, other)
        batch = broadcast(left[:-2], right[:-2])
        assert batch is not None
        return (*batch, *(() if rows is None else (rows,)), *(() if columns is None else (columns,)))

    def value(self, *xs: Any) -> Any:
        """Shape values do not come out of products of matrices."""
        raise Unknown

    def evaluate(self, xp: Any, x: Any, y: Any) -> Any:
        if self.transpose_a and x.ndim > 1:
            x = xp.matrix_transpose(x)
        if self.transpose_b and y.ndim > 1:
            y = xp.matrix_transpose(y)
        kind = x.dtype
        product = xp.matmul(arrays.widened(xp, x), arrays.widened(xp, y))
        return product if product.dtype == kind else arrays.cast(xp, product, arrays.element(x), saturate=False)

    def vjp(self, b: Any, g: Any, z: Any, x: Any, y: Any) -> Any:
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
        if swap_right:
            dy = b.MatMul(g, left, transpose_a=True, transpose_b=swap_left)
        else:
            dy = b.MatMul(left, g, transpose_a=not swap_left)
        return [_like(b, dx, x, left), _like(b, dy, y, right)]

    def decompose(self, b: Any, x: Any, y: Any) -> Any:
        """The operands transposed beforehand; None where there is nothing to transpose."""
        if not (self.transpose_a or self.transpose_b):
            return None
        x = transposed(b, x) if self.transpose_a else x
        y = transposed(b, y) if self.transpose_b else y
        return b.MatMul(x, y)

    def canonical(self, x: Any, y: Any) -> Op:
        """A vector is never transposed."""
        vectors = [v.shape is not None and len(v.shape) == 1 for v in (x, y)]
        return MatMul(self.transpose_a and not vectors[0], self.transpose_b and not vectors[1])


def _matrix(shape: tuple[Size, ...], transpose: bool, row: bool) -> tuple[Any, Any]:
    """The rows and columns of an operand, None for the axis that a vector lacks."""
    if len(shape) == 1:
        return (None, shape[0]) if row else (shape[0], None)
    return (shape[-1], shape[-2]) if transpose else (shape[-2], shape[-1])


def transposed(b: Any, x: Any) -> Any:
    """``x`` with its last two axes swapped. Raises UnsupportedError [matmul.rank] where the rank is not known."""
    if x.shape is None:
        raise UnsupportedError("matmul.rank", "a transposed operand of unknown rank")
    rank = len(x.shape)
    return x if rank < 2 else b.Transpose(x, [*range(rank - 2), rank - 1, rank - 2])


def _like(b: Any, g: Any, x: Any, matrix: Any) -> Any:
    """The gradient of an operand from that of its broadcast form as a matrix."""
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
    """``alpha * x @ y + beta * bias`` for matrices ``x`` and ``y``, swapped first where ``transpose_a``, ``transpose_b`` say so.

    ``bias`` broadcasts to the product, or has its shape exactly without ``broadcast``. Floats of fewer than 32 bits are computed
    in f32 and rounded once. Source: ONNX Gemm 1 to 13. Raises UnsupportedError [gemm.scale]: a fraction of integers is not
    specified.
    """

    alpha: float = 1.0
    beta: float = 1.0
    transpose_a: bool = False
    transpose_b: bool = False
    broadcast: bool = True

    def shape(self, x: Any, y: Any, bias: Any = None) -> Any:
        self._check_scale(x)
        for operand in (x, y):
            if operand.shape is not None and len(operand.shape) != 2:
                raise RuleError("gemm.rank", f"matrices are needed, not {operand.type}")
        rows = columns = None
        inner: list[Any] = []
        if x.shape is not None:
            rows, left = _matrix(x.shape, self.transpose_a, row=True)
            inner.append(left)
        if y.shape is not None:
            right, columns = _matrix(y.shape, self.transpose_b, row=False)
            inner.append(right)
        if len(inner) == 2:
            agree(*inner)
        if bias is not None and bias.shape is not None and rows is not None and columns is not None:
            self._check_bias(bias.shape, (rows, columns))
        return rows, columns

    def _check_scale(self, x: Any) -> None:
        dtype = getattr(x.type, "dtype", None)
        if dtype is not None and dtype.is_integer:
            for name in ("alpha", "beta"):
                if not float(getattr(self, name)).is_integer():
                    raise UnsupportedError("gemm.scale", f"{name} = {getattr(self, name)} of {dtype}")

    def _check_bias(self, bias: tuple[Size, ...], product: tuple[Size, Size]) -> None:
        if not self.broadcast and len(bias) != 2:
            raise RuleError("gemm.bias", f"a bias of rank {len(bias)} needs broadcasting")
        if len(bias) > 2:
            raise RuleError("gemm.bias", f"a bias of rank {len(bias)} does not broadcast to a matrix")
        for size, whole in zip(bias[::-1], product[::-1], strict=False):
            # A symbol may turn out to be 1, which broadcasts to anything.
            may_stretch = self.broadcast and (not isinstance(size, int) or size == 1)
            if not may_stretch and symbolic.equal(size, whole) is False:
                raise RuleError("gemm.bias", f"a bias of size {size} does not broadcast to {whole}")

    def value(self, *xs: Any) -> Any:
        """Shape values do not come out of products of matrices."""
        raise Unknown

    def evaluate(self, xp: Any, x: Any, y: Any, bias: Any = None) -> Any:
        kind = arrays.element(x)
        x, y = arrays.widened(xp, x), arrays.widened(xp, y)
        product = xp.matmul(xp.matrix_transpose(x) if self.transpose_a else x, xp.matrix_transpose(y) if self.transpose_b else y)
        product = _scaled(product, self.alpha, kind.is_integer)
        if bias is not None:
            product = product + _scaled(arrays.widened(xp, bias), self.beta, kind.is_integer)
        return product if arrays.element(product) is kind else arrays.cast(xp, product, kind, saturate=False)

    def vjp(self, b: Any, g: Any, z: Any, x: Any, y: Any, bias: Any = None) -> Any:
        scaled = g if self.alpha == 1 else b.Multiply(g, self.alpha)
        dx, dy = MatMul(self.transpose_a, self.transpose_b).vjp(b, scaled, z, x, y)
        if bias is None:
            return [dx, dy]
        weighted = g if self.beta == 1 else b.Multiply(g, self.beta)
        return [dx, dy, unbroadcast(b, weighted, bias)]

    def canonical(self, x: Any, y: Any, bias: Any = None) -> Op:
        """A bias of the product's own shape needs no broadcasting, and may have it."""
        return self.with_(broadcast=True)

    def decompose(self, b: Any, x: Any, y: Any, bias: Any = None) -> Any:
        product = b.MatMul(x, y, transpose_a=self.transpose_a, transpose_b=self.transpose_b)
        if self.alpha != 1:
            product = b.Multiply(product, self.alpha)
        if bias is None:
            return product
        return b.Add(product, bias if self.beta == 1 else b.Multiply(bias, self.beta))


def _scaled(x: Any, factor: float, whole: bool) -> Any:
    return x if factor == 1 else x * (int(factor) if whole else factor)
