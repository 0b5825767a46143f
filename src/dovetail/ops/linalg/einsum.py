"""Einsum."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, View, agree, broadcast_size
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


class _Equation(NamedTuple):
    """_Equation holds the axis labels of operands and result; the label of an ellipsis axis is the axis's index from the end."""

    terms: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


class _Factor(NamedTuple):
    """_Factor holds a tensor and one label per axis of the tensor; all labels differ."""

    labels: tuple[str, ...]
    value: Any


class Einsum(
    Op,
    sig="*xs: N -> y: N",
    onnx="Einsum-12,28(*xs; equation | broadcast=true/false)",
    openvino="Einsum-7(*xs; equation | broadcast=true/false)",
):
    """Compute the Einstein summation of ``equation``: products of the ``xs``, summed over the labels missing in the result.

    A letter names an axis; a letter that occurs twice in a term names the diagonal of two axes; an ellipsis stands for axes
    that broadcast. Without an explicit result, the result has the axes of the ellipsis, then the labels that occur once, in the
    order of their character codes. With ``broadcast``, axes with the same letter also broadcast, as in every runtime, and
    ellipses may stand for different numbers of axes.
    Sources: ONNX Einsum 12, 28; OpenVINO Einsum-7.
    """

    decomposes_in_f32 = True

    equation: str
    broadcast: bool = False

    def validate(self) -> None:
        operands, arrow, result = self.equation.replace(" ", "").partition("->")
        for term in (*operands.split(","), *([result] if arrow else [])):
            if not _TERM.fullmatch(term):
                raise RuleError(
                    "attribute.value", f"term {term!r} of {self.equation!r} must consist of letters and at most one ellipsis"
                )
        letters = result.replace("...", "")
        if len(set(letters)) < len(letters):
            raise RuleError("attribute.value", f"the result of {self.equation!r} must name each axis at most once")
        missing = sorted(set(letters) - set(operands))
        if missing:
            raise RuleError("attribute.value", f"result axis {missing[0]!r} of {self.equation!r} must occur in an operand")

    def parse(self, xs: Sequence[Any]) -> _Equation:
        """Parse the equation for operands with the ranks of ``xs``. Raises RuleError [shape.rank], Unknown."""
        operands, _, result = self.with_explicit_result().equation.partition("->")  # type: ignore[attr-defined]
        terms = operands.split(",")
        if len(terms) != len(xs):
            raise RuleError("attribute.conflict", f"{self.equation!r} needs {len(terms)} operands, got {len(xs)}")
        if any(x.shape is None for x in xs):
            raise Unknown
        labels = [self._labels(term, len(x.shape)) for term, x in zip(terms, xs, strict=True)]
        ellipsis_ranks = [
            sum(label.isdigit() for label in term_labels)
            for term_labels, term in zip(labels, terms, strict=True)
            if "..." in term
        ]
        if len(set(ellipsis_ranks)) > 1 and not self.broadcast:
            raise RuleError(
                "shape.rank", f"ellipses of {self.equation!r} must stand for equal numbers of axes, got {ellipsis_ranks}"
            )
        ellipsis_labels = tuple(str(index) for index in range(max(ellipsis_ranks, default=0), 0, -1))
        front, dots, back = result.partition("...")
        return _Equation(tuple(labels), (*front, *(ellipsis_labels if dots else ()), *back))

    def _labels(self, term: str, rank: int) -> tuple[str, ...]:
        front, dots, back = term.partition("...")
        ellipsis_rank = rank - len(front) - len(back)
        if ellipsis_rank < 0 or (ellipsis_rank and not dots):
            raise RuleError("shape.rank", f"term {term!r} must fit the rank of the operand, got rank {rank}")
        return (*front, *(str(index) for index in range(ellipsis_rank, 0, -1)), *back)

    def sizes(self, equation: _Equation, xs: Sequence[Any]) -> dict[str, Any]:
        """Return the size of each label, None for an unknown size. Raises RuleError where sizes disagree."""
        sizes: dict[str, Any] = {}
        owners: dict[str, tuple[int, int]] = {}
        for number, (labels, x) in enumerate(zip(equation.terms, xs, strict=True)):
            own: dict[str, Any] = {}
            for axis, (label, size) in enumerate(zip(labels, x.dims, strict=True)):
                if label in own:
                    size = agree(own[label], size, (number, labels.index(label)), (number, axis))
                own[label] = size
            for label, size in own.items():
                if label not in sizes:
                    sizes[label], owners[label] = size, (number, labels.index(label))
                elif sizes[label] is not None:
                    stretches = self.broadcast or label.isdigit()
                    names = owners[label], (number, labels.index(label))
                    sizes[label] = (broadcast_size if stretches else agree)(sizes[label], size, *names)
        return sizes

    def shape(self, *xs: View) -> Any:
        equation = self.parse(xs)
        sizes = self.sizes(equation, xs)
        return tuple(sizes[label] for label in equation.result)

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through products."""
        raise Unknown

    def with_explicit_result(self) -> Op:
        """Return the operator with an equation that has no blanks and an explicit result."""
        operands, arrow, result = self.equation.replace(" ", "").partition("->")
        if not arrow:
            letters = operands.replace("...", "").replace(",", "")
            once = sorted(letter for letter in letters if letters.count(letter) == 1)
            result = "".join(["..." if "..." in operands else "", *once])
        return self.with_(equation=f"{operands}->{result}")

    def canonical(self, *xs: View) -> Op:
        """Drop ``broadcast`` where equal labels have equal sizes."""
        if not self.broadcast or any(x.shape is None for x in xs):
            return self
        plain = self.with_(broadcast=False)
        equation = self.parse(xs)
        label_sizes: dict[str, Any] = {}
        for labels, x in zip(equation.terms, xs, strict=True):
            for label, size in zip(labels, x.dims, strict=True):
                if not label.isdigit() and symbolic.equal(label_sizes.setdefault(label, size), size) is not True:
                    return self
        ellipsis_ranks = {
            sum(label.isdigit() for label in term_labels) for term_labels in equation.terms if any(map(str.isdigit, term_labels))
        }
        spans = {sum(map(str.isdigit, term_labels)) for term_labels, term in self._ellipsis_terms(equation)}
        return plain if len(ellipsis_ranks | spans) <= 1 else self

    def has_equal_ellipses(self, *xs: View) -> bool:
        """Tell whether all ellipses stand for equal numbers of axes."""
        return len({sum(map(str.isdigit, labels)) for labels, _ in self._ellipsis_terms(self.parse(xs))}) <= 1

    def _ellipsis_terms(self, equation: _Equation) -> list[tuple[tuple[str, ...], str]]:
        terms = self.equation.replace(" ", "").partition("->")[0].split(",")
        return [pair for pair in zip(equation.terms, terms, strict=True) if "..." in pair[1]]

    def decompose(self, b: Builder, *xs: Value) -> Any:
        """Take diagonals, contract two operands at a time, and sum over labels that neither later operands nor the result use."""
        equation = self.parse(xs)
        self.sizes(equation, xs)
        factors = [_diagonal(b, labels, x) for labels, x in zip(equation.terms, xs, strict=True)]
        product = factors[0]
        for index, other in enumerate(factors[1:], start=1):
            later = {*equation.result, *(label for factor in factors[index + 1 :] for label in factor.labels)}
            product = _contract(b, product, other, later, self.broadcast)
        product = _sum_out(b, product, set(equation.result))
        return (
            _transpose_to(b, product, equation.result).value
            if product.labels != equation.result
            else _identity_if_input(b, product.value, xs)
        )


def _identity_if_input(b: Builder, value: Value, xs: Sequence[Any]) -> Any:
    return b.Identity(value) if any(value is x for x in xs) else value


def _diagonal(b: Builder, labels: tuple[str, ...], x: Value) -> _Factor:
    """Reduce repeated labels of ``x`` to their diagonal.

    The two axes of a label of size n are flattened; the diagonal is every (n + 1)-th element.
    """
    while len(set(labels)) < len(labels):
        label = next(repeated for repeated in labels if labels.count(repeated) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
        size = agree(x.dims[first], x.dims[second], ("the operand", first), ("the operand", second))
        flat = b.Transpose(x, [*rest, first, second])
        flat = b.Reshape(
            flat, join_sizes(b, [*_target_sizes(b, flat, range(len(rest))), -1 if 0 not in x.dims else 0]), special_zero=False
        )
        step = size + 1 if isinstance(size, int) else b.Add(shape_value(b, x, [first]), 1)
        x = b.Slice(flat, [0], [2**63 - 1], [len(rest)], [step] if isinstance(step, int) else step)
        labels = (*(labels[axis] for axis in rest), label)
    return _Factor(labels, x)


def _target_sizes(b: Builder, x: Value, axes: Iterable[int]) -> list[Any]:
    """Return the sizes of axes as elements of a Reshape target."""
    return [x.dims[axis] if isinstance(x.dims[axis], int) else shape_value(b, x, [axis]) for axis in axes]


def _sum_out(b: Builder, factor: _Factor, remaining: set[str]) -> _Factor:
    axes = [axis for axis, label in enumerate(factor.labels) if label not in remaining]
    if not axes:
        return factor
    return _Factor(tuple(label for label in factor.labels if label in remaining), b.ReduceSum(factor.value, axes, keepdims=False))


def _transpose_to(b: Builder, factor: _Factor, order: Sequence[str]) -> _Factor:
    axes = [factor.labels.index(label) for label in order]
    return _Factor(tuple(order), factor.value if axes == sorted(axes) else b.Transpose(factor.value, axes))


def _contract(b: Builder, left: _Factor, right: _Factor, later: set[str], stretches: bool) -> _Factor:
    """Multiply two factors and sum over the labels that are not in ``later``."""
    left, right = _squeeze_ones(b, left, right, later), _squeeze_ones(b, right, left, later)
    left = _sum_out(b, left, later | set(right.labels))
    right = _sum_out(b, right, later | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    inner = [label for label in shared if label not in later]
    batch = [label for label in shared if label in later]
    rows, columns = ([label for label in factor.labels if label not in shared] for factor in (left, right))
    if not inner:
        return _multiply_outer(b, left, right, [*batch, *rows, *columns])
    for label in inner:
        if stretches or label.isdigit():
            left, right = _expand_axis(b, left, right, label), _expand_axis(b, right, left, label)
        elif len(inner) > 1:
            left = _check_axis(b, left, right, label)
    left, right = _transpose_to(b, left, [*batch, *rows, *inner]), _transpose_to(b, right, [*batch, *inner, *columns])
    product = b.MatMul(_matrix(b, left, batch, rows, inner), _matrix(b, right, batch, inner, columns))
    labels = (*batch, *rows, *columns)
    if len(rows) == 1 and len(columns) == 1:
        return _Factor(labels, product)
    sizes = [
        *_target_sizes(b, product, range(len(batch))),
        *_target_sizes(b, left.value, range(len(batch), len(batch) + len(rows))),
        *_target_sizes(b, right.value, range(len(batch) + len(inner), len(right.labels))),
    ]
    return _Factor(labels, b.Reshape(product, join_sizes(b, sizes), special_zero=False))


def _axes_of(label: str, factor: _Factor, other: _Factor) -> tuple[int, int] | None:
    """Return the axis of ``label`` in each factor; None where both axes are known to have equal sizes."""
    axis, other_axis = factor.labels.index(label), other.labels.index(label)
    return None if symbolic.equal(factor.value.dims[axis], other.value.dims[other_axis]) is True else (axis, other_axis)


def _expand_axis(b: Builder, factor: _Factor, other: _Factor, label: str) -> _Factor:
    """Expand the axis ``label`` of ``factor`` to the size of this axis in ``other``.

    At run time, Expand raises an error where the two sizes differ and neither is 1.
    """
    axes = _axes_of(label, factor, other)
    if axes is None:
        return factor
    sizes: list[Any] = [1] * len(factor.labels)
    (sizes[axes[0]],) = _target_sizes(b, other.value, [axes[1]])
    return _Factor(factor.labels, b.Expand(factor.value, join_sizes(b, sizes)))


def _check_axis(b: Builder, factor: _Factor, other: _Factor, label: str) -> _Factor:
    """Reshape the axis ``label`` of ``factor`` to the size in ``other``; Reshape fails at run time where the sizes differ.

    Without this check, flattened axes of different sizes could have equal products of sizes by coincidence.
    """
    axes = _axes_of(label, factor, other)
    if axes is None:
        return factor
    sizes = _target_sizes(b, factor.value, range(len(factor.labels)))
    (sizes[axes[0]],) = _target_sizes(b, other.value, [axes[1]])
    return _Factor(factor.labels, b.Reshape(factor.value, join_sizes(b, sizes), special_zero=False))


def _matrix(b: Builder, factor: _Factor, batch: list[str], rows: list[str], columns: list[str]) -> Any:
    if len(rows) == len(columns) == 1:
        return factor.value
    sizes = [*_target_sizes(b, factor.value, range(len(batch))), *_flat_size(b, factor, rows), *_flat_size(b, factor, columns)]
    return b.Reshape(factor.value, join_sizes(b, sizes), special_zero=False)


def _flat_size(b: Builder, factor: _Factor, labels: list[str]) -> list[Any]:
    """Return the product of the sizes of ``labels``, as an element of a Reshape target."""
    sizes = _target_sizes(b, factor.value, [factor.labels.index(label) for label in labels])
    static_size = prod(size for size in sizes if isinstance(size, int))
    total: Any = static_size
    for size in sizes:
        if not isinstance(size, int):
            total = b.Multiply(size, total)
    return [total]


def _squeeze_ones(b: Builder, factor: _Factor, other: _Factor, later: set[str]) -> _Factor:
    """Squeeze the size-1 axes of ``factor`` whose labels are to be summed over: labels in ``other``, but not in ``later``."""
    axes = [
        axis
        for axis, label in enumerate(factor.labels)
        if label in other.labels
        and label not in later
        and symbolic.equal(factor.value.dims[axis], 1) is True
        and symbolic.equal(other.value.dims[other.labels.index(label)], 1) is not True
    ]
    if not axes:
        return factor
    return _Factor(tuple(label for axis, label in enumerate(factor.labels) if axis not in axes), b.Squeeze(factor.value, axes))


def _multiply_outer(b: Builder, left: _Factor, right: _Factor, labels: list[str]) -> _Factor:
    """Multiply element-wise; each factor gets axes of size 1 for the labels that it lacks."""
    values = []
    for factor in (left, right):
        transposed = _transpose_to(b, factor, [label for label in labels if label in factor.labels])
        missing = [axis for axis, label in enumerate(labels) if label not in factor.labels]
        values.append(b.Unsqueeze(transposed.value, missing) if missing else transposed.value)
    return _Factor(tuple(labels), b.Multiply(*values))
