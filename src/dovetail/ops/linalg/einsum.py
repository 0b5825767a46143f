"""Products of many tensors with their axes named: Einsum."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from dovetail import symbolic
from dovetail.errors import RuleError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Unknown, agree, broadcast_size
from dovetail.ops.shape_values import join_sizes

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


class _Equation(NamedTuple):
    """The labels of each operand and of the result, an axis of an ellipsis being its number from the end."""

    terms: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]


class _Factor(NamedTuple):
    """A tensor whose axes have these labels, all different."""

    labels: tuple[str, ...]
    value: Any


class Einsum(
    Op,
    sig="*xs: N -> y: N",
    onnx="Einsum-12,28(*xs; equation | broadcast=false)",
    openvino="Einsum-7(*xs; equation | broadcast=true/false)",
):
    """The sum over all labels that ``equation`` does not have in its result, of products of the ``xs`` at these labels.

    A letter names an axis, one that comes twice in a term its diagonal; an ellipsis stands for axes that broadcast, which come
    first in a result that is left out, before the labels that come once, in the order of their codes. With ``broadcast`` axes of
    one letter broadcast too, and ellipses may stand for different numbers of axes. Sources: ONNX Einsum 12, 28; OpenVINO
    Einsum-7.
    """

    equation: str
    broadcast: bool = False

    def validate(self) -> None:
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        for term in (*left.split(","), *([right] if arrow else [])):
            if not _TERM.fullmatch(term):
                raise RuleError("einsum.equation", f"{term!r} in {self.equation!r} is no list of letters with one ellipsis")
        letters = right.replace("...", "")
        if len(set(letters)) < len(letters):
            raise RuleError("einsum.equation", f"the result of {self.equation!r} names an axis twice")
        missing = sorted(set(letters) - set(left))
        if missing:
            raise RuleError("einsum.equation", f"no operand of {self.equation!r} has the axis {missing[0]!r}")

    def parsed(self, xs: Sequence[Any]) -> _Equation:
        """The equation for operands of these ranks. Raises RuleError [einsum.rank], Unknown."""
        left, _, right = self.written_out().equation.partition("->")  # type: ignore[attr-defined]
        terms = left.split(",")
        if len(terms) != len(xs):
            raise RuleError("einsum.operands", f"{len(xs)} operands for the {len(terms)} of {self.equation!r}")
        if any(x.shape is None for x in xs):
            raise Unknown
        labels = [self._labels(term, len(x.shape)) for term, x in zip(terms, xs, strict=True)]
        hidden = [sum(label.isdigit() for label in each) for each, term in zip(labels, terms, strict=True) if "..." in term]
        if len(set(hidden)) > 1 and not self.broadcast:
            raise RuleError("einsum.rank", f"the ellipses of {self.equation!r} stand for {hidden} axes")
        most = tuple(str(place) for place in range(max(hidden, default=0), 0, -1))
        front, dots, back = right.partition("...")
        return _Equation(tuple(labels), (*front, *(most if dots else ()), *back))

    def _labels(self, term: str, rank: int) -> tuple[str, ...]:
        front, dots, back = term.partition("...")
        hidden = rank - len(front) - len(back)
        if hidden < 0 or (hidden and not dots):
            raise RuleError("einsum.rank", f"a tensor of rank {rank} for {term!r}")
        return (*front, *(str(place) for place in range(hidden, 0, -1)), *back)

    def sizes(self, equation: _Equation, xs: Sequence[Any]) -> dict[str, Any]:
        """The size of each label, None where only run time can tell. Raises RuleError where sizes disagree."""
        found: dict[str, Any] = {}
        for labels, x in zip(equation.terms, xs, strict=True):
            own: dict[str, Any] = {}
            for label, size in zip(labels, x.shape, strict=True):
                own[label] = agree(own[label], size) if label in own else size
            for label, size in own.items():
                if label not in found:
                    found[label] = size
                elif found[label] is not None:
                    stretches = self.broadcast or label.isdigit()
                    found[label] = broadcast_size(found[label], size) if stretches else agree(found[label], size)
        return found

    def shape(self, *xs: Any) -> Any:
        equation = self.parsed(xs)
        sizes = self.sizes(equation, xs)
        return tuple(sizes[label] for label in equation.result)

    def value(self, *xs: Any) -> Any:
        """Shape values do not come out of products."""
        raise Unknown

    def written_out(self) -> Op:
        """The same without blanks and with its result."""
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        if not arrow:
            letters = left.replace("...", "").replace(",", "")
            once = sorted(letter for letter in letters if letters.count(letter) == 1)
            right = "".join(["..." if "..." in left else "", *once])
        return self.with_(equation=f"{left}->{right}")

    def canonical(self, *xs: Any) -> Op:
        """Where no size differs from another one of its label, nothing broadcasts."""
        if not self.broadcast or any(x.shape is None for x in xs):
            return self
        plain = self.with_(broadcast=False)
        equation = self.parsed(xs)
        seen: dict[str, Any] = {}
        for labels, x in zip(equation.terms, xs, strict=True):
            for label, size in zip(labels, x.shape, strict=True):
                if not label.isdigit() and symbolic.equal(seen.setdefault(label, size), size) is not True:
                    return self
        hidden = {sum(label.isdigit() for label in each) for each in equation.terms if any(map(str.isdigit, each))}
        spans = {sum(map(str.isdigit, each)) for each, term in self._dotted(equation)}
        return plain if len(hidden | spans) <= 1 else self

    def _dotted(self, equation: _Equation) -> list[tuple[tuple[str, ...], str]]:
        terms = self.equation.replace(" ", "").partition("->")[0].split(",")
        return [pair for pair in zip(equation.terms, terms, strict=True) if "..." in pair[1]]

    def decompose(self, b: Any, *xs: Any) -> Any:
        """Diagonals, then products of two, in each of which what nobody reads afterwards is summed over."""
        equation = self.parsed(xs)
        self.sizes(equation, xs)
        factors = [_diagonal(b, labels, x) for labels, x in zip(equation.terms, xs, strict=True)]
        done = factors[0]
        for place, other in enumerate(factors[1:], start=1):
            later = {*equation.result, *(label for each in factors[place + 1 :] for label in each.labels)}
            done = _product(b, done, other, later, self.broadcast)
        done = _summed(b, done, set(equation.result))
        return _turned(b, done, equation.result).value if done.labels != equation.result else _made(b, done.value, xs)


def _made(b: Any, value: Any, xs: Sequence[Any]) -> Any:
    return b.Identity(value) if any(value is x for x in xs) else value


def _diagonal(b: Any, labels: tuple[str, ...], x: Any) -> _Factor:
    """``x`` with one axis for each label: of a matrix with its rows end to end, each element one place further in its row."""
    while len(set(labels)) < len(labels):
        label = next(each for each in labels if labels.count(each) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
        size = agree(x.dims[first], x.dims[second])
        flat = b.Transpose(x, [*rest, first, second])
        flat = b.Reshape(
            flat, join_sizes(b, [*_lengths(b, flat, range(len(rest))), -1 if 0 not in x.dims else 0]), special_zero=False
        )
        step = size + 1 if isinstance(size, int) else b.Add(shape_value(b, x, [first]), 1)
        x = b.Slice(flat, [0], [2**63 - 1], [len(rest)], [step] if isinstance(step, int) else step)
        labels = (*(labels[axis] for axis in rest), label)
    return _Factor(labels, x)


def _lengths(b: Any, x: Any, axes: Any) -> list[Any]:
    """The sizes of axes as parts of a target."""
    return [x.dims[axis] if isinstance(x.dims[axis], int) else shape_value(b, x, [axis]) for axis in axes]


def _summed(b: Any, factor: _Factor, kept: set[str]) -> _Factor:
    axes = [axis for axis, label in enumerate(factor.labels) if label not in kept]
    if not axes:
        return factor
    return _Factor(tuple(label for label in factor.labels if label in kept), b.ReduceSum(factor.value, axes, keepdims=False))


def _turned(b: Any, factor: _Factor, order: Sequence[str]) -> _Factor:
    axes = [factor.labels.index(label) for label in order]
    return _Factor(tuple(order), factor.value if axes == sorted(axes) else b.Transpose(factor.value, axes))


def _product(b: Any, left: _Factor, right: _Factor, later: set[str], stretches: bool) -> _Factor:
    """The product of two, summed over the labels that both have and nobody reads ``later``."""
    left, right = _without_ones(b, left, right, later), _without_ones(b, right, left, later)
    left = _summed(b, left, later | set(right.labels))
    right = _summed(b, right, later | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    inner = [label for label in shared if label not in later]
    batch = [label for label in shared if label in later]
    rows, columns = ([label for label in each.labels if label not in shared] for each in (left, right))
    if not inner:
        return _outer(b, left, right, [*batch, *rows, *columns])
    for label in inner:
        if stretches or label.isdigit():
            left, right = _stretched(b, left, right, label), _stretched(b, right, left, label)
        elif len(inner) > 1:
            left = _held(b, left, right, label)
    left, right = _turned(b, left, [*batch, *rows, *inner]), _turned(b, right, [*batch, *inner, *columns])
    product = b.MatMul(_matrix(b, left, batch, rows, inner), _matrix(b, right, batch, inner, columns))
    labels = (*batch, *rows, *columns)
    if len(rows) == 1 and len(columns) == 1:
        return _Factor(labels, product)
    sizes = [
        *_lengths(b, product, range(len(batch))),
        *_lengths(b, left.value, range(len(batch), len(batch) + len(rows))),
        *_lengths(b, right.value, range(len(batch) + len(inner), len(right.labels))),
    ]
    return _Factor(labels, b.Reshape(product, join_sizes(b, sizes), special_zero=False))


def _axes_of(label: str, factor: _Factor, other: _Factor) -> tuple[int, int] | None:
    """Where both have an axis, if only run time tells whether it is as long in both."""
    axis, place = factor.labels.index(label), other.labels.index(label)
    return None if symbolic.equal(factor.value.dims[axis], other.value.dims[place]) is True else (axis, place)


def _stretched(b: Any, factor: _Factor, other: _Factor, label: str) -> _Factor:
    """``factor`` with as many elements along the axis as ``other`` has, where it has one. Expand refuses other sizes."""
    axes = _axes_of(label, factor, other)
    if axes is None:
        return factor
    sizes: list[Any] = [1] * len(factor.labels)
    (sizes[axes[0]],) = _lengths(b, other.value, [axes[1]])
    return _Factor(factor.labels, b.Expand(factor.value, join_sizes(b, sizes)))


def _held(b: Any, factor: _Factor, other: _Factor, label: str) -> _Factor:
    """``factor``, which Reshape refuses when it runs where the axis is not as long in ``other``: axes that are one to a product
    might agree by chance."""
    axes = _axes_of(label, factor, other)
    if axes is None:
        return factor
    sizes = _lengths(b, factor.value, range(len(factor.labels)))
    (sizes[axes[0]],) = _lengths(b, other.value, [axes[1]])
    return _Factor(factor.labels, b.Reshape(factor.value, join_sizes(b, sizes), special_zero=False))


def _matrix(b: Any, factor: _Factor, batch: list[str], rows: list[str], columns: list[str]) -> Any:
    if len(rows) == len(columns) == 1:
        return factor.value
    sizes = [*_lengths(b, factor.value, range(len(batch))), *_folded(b, factor, rows), *_folded(b, factor, columns)]
    return b.Reshape(factor.value, join_sizes(b, sizes), special_zero=False)


def _folded(b: Any, factor: _Factor, labels: list[str]) -> list[Any]:
    """The one size of the axes of ``labels`` together, as a part of a target."""
    sizes = _lengths(b, factor.value, [factor.labels.index(label) for label in labels])
    known = prod(size for size in sizes if isinstance(size, int))
    total: Any = known
    for size in sizes:
        if not isinstance(size, int):
            total = b.Multiply(size, total)
    return [total]


def _without_ones(b: Any, factor: _Factor, other: _Factor, later: set[str]) -> _Factor:
    """``factor`` without the axes of size 1 that ``other`` has and that need not be there: what is summed over."""
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


def _outer(b: Any, left: _Factor, right: _Factor, labels: list[str]) -> _Factor:
    """Element by element, each tensor given axes of size 1 for the labels that it lacks."""
    values = []
    for each in (left, right):
        turned = _turned(b, each, [label for label in labels if label in each.labels])
        missing = [place for place, label in enumerate(labels) if label not in each.labels]
        values.append(b.Unsqueeze(turned.value, missing) if missing else turned.value)
    return _Factor(tuple(labels), b.Multiply(*values))
