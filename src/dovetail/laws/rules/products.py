"""Rewrites of products of matrices over the real numbers: rows in one shape, and scalar factors at the left operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Tensor, Type, are_equal_shapes
from dovetail.laws.law import Result
from dovetail.laws.rules.arithmetic import is_plain
from dovetail.laws.rules.movement import are_equal_products, is_one, reshape
from dovetail.laws.rules.real_arithmetic import MAX_OPERANDS, chain_of, operands_of
from dovetail.laws.rules.slices import ExactSlice
from dovetail.laws.terms.terms import Terms
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.nn.conv import Conv
from dovetail.ops.tensor.concat_split import Concat
from dovetail.ops.tensor.reshape import Reshape
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose

MAX_VISITED = 32
"""Maximum number of terms that the search for a magnitude visits; a term with more is not scaled."""
BALANCED = 1e-5
"""A magnitude this near to 1 is not moved again."""


def group_rows(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite the product of regrouped rows and a matrix as the regrouped product: each row is multiplied alone."""
    x, y = xs
    if not isinstance(op, MatMul) or op.transpose_a or x is None or y is None or y.shape is None or len(y.shape) != 2:
        return None
    if x.shape is None or len(x.shape) < 2 or not isinstance(types[0], Tensor) or types[0].shape is None:
        return None
    rows = _rows_of(x)
    if are_equal_shapes(rows, x.shape[:-1]):
        return None
    return reshape(b, b.add(op, reshape(b, x, (*rows, x.shape[-1])), y)[0], types[0].shape)


def _rows_of(x: Value) -> Shape:
    """Return the sizes of the leading axes, those of the source of a Reshape if its last axes have the elements of a row of x.

    Axes of size 1 are left out, except the only one.
    """
    shape, rows = x.dims, x.dims[:-1]
    if x.node is not None and isinstance(x.node.op, Reshape) and x.node.input(0).shape is not None:
        source = x.node.input(0).dims
        for boundary in range(len(source)):
            leading, row = source[:boundary], source[boundary:]
            if are_equal_products(leading, rows) and are_equal_products(row, shape[-1:]):
                rows = leading
                break
    return tuple(size for size in rows if not is_one(size)) or (1,)


def move_factor(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite the product of matrices and a scalar constant as a product whose left matrix is multiplied by the scalar.

    A slice of a term with weights becomes the slice of the multiplied term.
    """
    if not is_plain(types[0]):
        return None
    for factor, other in (xs, xs[::-1]):
        if factor is None or factor.constant is None or factor.shape != () or other is None:
            continue
        node = other.node
        if node is not None and isinstance(node.op, MatMul) and node.input(0).constant is None and node.input(1).constant is None:
            return b.add(node.op, b.Multiply(node.input(0), factor), node.input(1))
        if node is not None and isinstance(node.op, ExactSlice) and _has_weights(node.input(0)):
            return b.add(node.op, b.Multiply(node.input(0), factor), *node.inputs[1:])
    return None


def move_magnitude(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x @ y as (x * s) @ (y / s), where s is the magnitude of the constant factors of y."""
    x, y = xs
    if not is_plain(types[0]) or x is None or y is None or x.constant is not None or y.constant is not None:
        return None
    if (divided := _divide(b, y)) is None:
        return None
    quotient, magnitude = divided
    return b.add(op, b.Multiply(x, magnitude), quotient)


def move_magnitudes(b: Terms, op: Op, xs: list[Value | None], types: list[Type]) -> Result:
    """Rewrite x * y as (x / s) * (y / t) * (s * t), where s and t are the magnitudes of the constant factors of x and y."""
    if not is_plain(types[0]):
        return None
    operands = [each for x in xs if x is not None for each in operands_of(x, Multiply)]
    if len(operands) > MAX_OPERANDS or sum(x.constant is None for x in operands) < 2:
        return None
    results, factors = [], []
    for x in operands:
        divided = None if x.constant is not None else _divide(b, x)
        if divided is not None and not any(each.constant is not None for each in operands_of(divided[0], Multiply)):
            x, magnitude = divided
            factors.append(magnitude)
        results.append(x)
    if not factors:
        return None
    # The laws see the whole product once, and none of its parts.
    product = chain_of(b, Multiply, results)
    return None if product is None else b.Multiply(product, reduce(b.Multiply, factors))


def _divide(b: Terms, x: Value) -> tuple[Value, Value] | None:
    """Return a term divided by its magnitude, and the magnitude.

    None stands for a term of magnitude 1, and for a term whose quotient does not have the magnitude 1: it would be divided again.
    """
    magnitudes = _Magnitudes(b)
    magnitude = magnitudes.of(x)
    if magnitude is None or magnitude.constant is None or not magnitudes.is_complete or _is_balanced(magnitude):
        return None
    quotient = b.Multiply(x, b.Reciprocal(magnitude))
    rest = magnitudes.of(quotient)
    return (quotient, magnitude) if magnitudes.is_complete and (rest is None or _is_balanced(rest)) else None


def _is_balanced(magnitude: Value) -> bool:
    """Return whether a magnitude is 1, or no number by which terms are divided."""
    number = _number(magnitude)
    return not math.isfinite(number) or number < float(np.finfo(np.float32).tiny) or abs(number - 1) < BALANCED


class _Magnitudes:
    """_Magnitudes finds the magnitudes of terms: a term multiplied by c > 0 has the magnitude of the term multiplied by c.

    The table keeps the magnitudes of its terms, which do not change.
    """

    def __init__(self, b: Terms) -> None:
        self._b = b
        self._visited = 0
        self.is_complete = True

    def of(self, x: Value) -> Value | None:
        """Return the magnitude of a term as a scalar constant; None stands for 1."""
        if id(x) in self._b.magnitudes:
            return self._b.magnitudes[id(x)][1]
        if self._visited >= MAX_VISITED:
            self.is_complete = False
            return None
        self._visited += 1
        found = self._find(x)
        if self.is_complete:
            self._b.magnitudes[id(x)] = x, found
        return found

    def _find(self, x: Value) -> Value | None:
        if x.constant is not None:
            return self._largest(x)
        node = x.node
        if node is None:
            return None
        match node.op:
            case Reshape() | Transpose() | Expand():
                return self.of(node.input(0))
            case ExactSlice():
                return self.of(node.input(0)) if _has_weights(node.input(0)) else None
            case Add():
                operands = operands_of(x, Add)
                # The factors of weights are changed only where each operand has weights.
                return self._largest_of([each for each in operands if not _has_weights(each)] or operands)
            case Concat():
                return self._largest_of([each for each in node.inputs if each is not None])
            case Multiply():
                # A scalar is multiplied by the constant operand of a product, and no other operand changes.
                constants = [each for each in node.inputs if each is not None and each.constant is not None]
                return self._largest(constants[0]) if constants else None
            case MatMul() | Conv() if len(node.inputs) == 2:
                right = node.input(1)
                return self.of(node.input(0)) if right.constant is None else self._largest(right)
        return None

    def _largest_of(self, terms: Sequence[Value]) -> Value | None:
        return max((self.of(each) for each in terms), key=lambda each: 1.0 if each is None else _number(each))

    def _largest(self, x: Value) -> Value | None:
        """Return the absolute value of the element of a constant that is largest by magnitude."""
        data = x.constant
        assert data is not None
        if not data.size or not np.all(np.isfinite(data)) or not np.any(data):
            return None
        index = int(np.argmax(np.abs(data)))
        element = self._b.Gather(reshape(self._b, x, (data.size,)), np.array(index, np.int64), axis=0)
        if element.constant is None:
            return None
        return element if float(element.constant) > 0 else self._b.Negative(element)


def _has_weights(x: Value) -> bool:
    """Return whether a term is a constant, or takes a constant factor into its constants."""
    while x.node is not None and isinstance(x.node.op, Reshape | Transpose | Expand | ExactSlice):
        x = x.node.input(0)
    return x.constant is not None or (x.node is not None and isinstance(x.node.op, Add | Conv | MatMul))


def _number(x: Value) -> float:
    assert x.constant is not None
    return abs(float(x.constant))
