"""nGraph's operators of versions 0 and 1. Sources: nGraph's operation documents (Concat) and its code of these versions."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import agree_shapes, axis_in
from dovetail.ngraph.nodes import ARITHMETIC, Constant, Node, Output, Sizes, check_integers, constant_of, output_of

v0 = SimpleNamespace()
v1 = SimpleNamespace()


class Concat(Node, version=v0):
    """Concat concatenates ``args`` along ``concatenation_axis``; a negative axis counts from the end."""

    def __init__(self, args: Sequence[Node | Output], concatenation_axis: int) -> None:
        (self.axis,) = check_integers([concatenation_axis], "the axis")
        super().__init__(*args)

    def write(self, b: Builder, *xs: Value) -> Any:
        return b.Concat(*xs, axis=self.axis)

    def get_concatenation_axis(self) -> int:
        """Return the axis, counted from the front if the rank is known."""
        rank = next((len(shape) for shape in (argument.get_shape() for argument in self.arguments) if shape is not None), None)
        return self.axis if rank is None else axis_in(self.axis, rank)


class Reshape(Node, version=v0):
    """Reshape, version 0, transposes by ``input_order``, a permutation of the axes, then reshapes to ``output_shape``."""

    def __init__(self, arg: Node | Output, input_order: Sequence[int], output_shape: Sizes) -> None:
        self.input_order = check_integers(input_order, "an axis")
        self.output_shape = check_integers(output_shape, "a size")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> Any:
        (x,) = xs
        if any(size < 0 for size in self.output_shape):
            raise RuleError("reshape.target", f"sizes must be at least 0, got {list(self.output_shape)}")
        rank = len(self.input_order) if x.shape is None else len(x.shape)
        if sorted(self.input_order) != list(range(rank)):
            raise RuleError("axis.repeated", f"input_order must be a permutation of {rank} axes, got {list(self.input_order)}")
        # If the rank is not known yet, the Transpose checks that the rank is the length of input_order.
        if self.input_order != tuple(range(rank)) or x.shape is None:
            x = b.Transpose(x, self.input_order)
        return b.Reshape(x, list(self.output_shape), special_zero=False)


class ReshapeV1(Node, version=v1):
    """Reshape, version 1, reshapes to ``pattern``. With ``special_zero`` a 0 copies the input dimension; -1 is inferred."""

    def __init__(self, arg: Node | Output, pattern: Node | Output, special_zero: bool) -> None:
        self.special_zero = bool(special_zero)
        super().__init__(arg, pattern)

    def write(self, b: Builder, *xs: Value) -> Any:
        x, pattern = xs
        return b.Reshape(x, pattern, special_zero=self.special_zero, empty="zero")


class Slice(Node, version=v0):
    """Slice, version 0, takes elements from ``lower_bounds`` up to ``upper_bounds`` in steps of ``strides``.

    Bounds are checked, never clamped.
    """

    def __init__(
        self, arg: Node | Output, lower_bounds: Sequence[int], upper_bounds: Sequence[int], strides: Sequence[int] | None = None
    ) -> None:
        self.lower_bounds = check_integers(lower_bounds, "a bound")
        self.upper_bounds = check_integers(upper_bounds, "a bound")
        self.strides = (1,) * len(self.lower_bounds) if strides is None else check_integers(strides, "a stride")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> Any:
        (x,) = xs
        counts = {len(self.lower_bounds), len(self.upper_bounds), len(self.strides)}
        if len(counts) != 1 or (x.shape is not None and counts != {len(x.shape)}):
            raise RuleError(
                "attribute.length", f"bounds and strides must have an item per axis of {x.type}, got {sorted(counts)}"
            )
        for axis, (low, high, stride) in enumerate(zip(self.lower_bounds, self.upper_bounds, self.strides, strict=True)):
            size = None if x.shape is None else x.shape[axis]
            if not 0 <= low <= high or (size is not None and symbolic.less_equal(high, size) is False):
                raise RuleError("attribute.range", f"bounds [{low}, {high}) along axis {axis} must lie in [0, {size}]")
            if stride < 1:
                raise RuleError("attribute.range", f"the stride along axis {axis} must be at least 1, got {stride}")
        axes = list(range(len(self.lower_bounds)))
        if not axes:
            return b.Identity(x)
        if x.shape is None:
            x = b.Transpose(x, tuple(axes))
        lows, highs = list(self.lower_bounds), list(self.upper_bounds)
        for axis in axes:
            if symbolic.less_equal(highs[axis], x.dims[axis]) is not True:
                # A Split refuses, at run time, bounds that a Slice would clamp.
                x = b.Split(x, [lows[axis], highs[axis] - lows[axis], -1], axis=axis, outputs=3, wildcard=True)[1]
                lows[axis], highs[axis] = 0, highs[axis] - lows[axis]
        return b.Slice(x, lows, highs, axes, list(self.strides))


class Split(Node, version=v0):
    """Split, version 0, splits along ``axis``, a scalar Constant or an integer.

    An integer ``splits`` is the number of equal pieces; a sequence has the lengths of the pieces.
    """

    def __init__(self, arg: Node | Output, axis: Node | Output | int, splits: int | Sequence[int]) -> None:
        self.axis = _scalar_axis(axis)
        self.lengths = check_integers(splits, "a length") if isinstance(splits, Sequence | np.ndarray) else None
        (self.count,) = [len(self.lengths)] if self.lengths is not None else check_integers([splits], "the number of pieces")
        super().__init__(arg)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        if self.lengths is None:
            pieces: list[Value] = b.Split(xs[0], axis=self.axis, outputs=self.count)
            return pieces
        if any(length <= 0 for length in self.lengths):
            raise RuleError("split.sizes", f"lengths must be positive, got {list(self.lengths)}")
        pieces = b.Split(xs[0], list(self.lengths), axis=self.axis, outputs=self.count)
        return pieces


def _scalar_axis(axis: Node | Output | int) -> int:
    if not isinstance(axis, Node | Output):
        return check_integers([axis], "the axis")[0]
    constant = constant_of(output_of(axis))
    if constant is None or constant.data.ndim != 0 or not constant.dtype.is_integer:
        raise RuleError("argument.type", f"the axis must be a scalar integer constant, got {axis!r}")
    return int(constant.data)


class SplitV1(Node, version=v1):
    """Split, version 1, splits along ``axis``, a scalar integer node, into ``num_splits`` equal pieces."""

    def __init__(self, data: Node | Output, axis: Node | Output | int, num_splits: int) -> None:
        self.axis = _scalar_axis(axis)
        (self.num_splits,) = check_integers([num_splits], "the number of pieces")
        super().__init__(data)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        pieces: list[Value] = b.Split(xs[0], axis=self.axis, outputs=self.num_splits)
        return pieces


class VariadicSplit(Node, version=v1):
    """VariadicSplit splits along ``axis``, a scalar or a vector of one element, by ``split_lengths``; -1: the remainder."""

    def __init__(self, data: Node | Output, axis: Node | Output | int, split_lengths: Node | Output | Sequence[int]) -> None:
        self.axis = _vector_axis(axis)
        if isinstance(split_lengths, Node | Output):
            lengths: Node | Output = split_lengths
        else:
            lengths = Constant("i64", (len(split_lengths),), list(check_integers(split_lengths, "a length")))
        shape = lengths.get_shape()
        if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
            raise RuleError("split.sizes", f"the lengths must be a vector of known length, got {lengths!r}")
        self.count = shape[0]
        super().__init__(data, lengths)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        pieces: list[Value] = b.Split(xs[0], xs[1], axis=self.axis, outputs=self.count, wildcard=True)
        return pieces


def _vector_axis(axis: Node | Output | int) -> int:
    constant = constant_of(output_of(axis)) if isinstance(axis, Node | Output) else None
    if constant is not None and constant.data.shape == (1,) and constant.dtype.is_integer:
        return int(constant.data[0])
    return _scalar_axis(axis)


class _BinaryNode(Node):
    """_BinaryNode is an elementwise operator on two arguments of equal shape and type; nGraph's version 0 does not broadcast."""

    kind = ""

    def __init__(self, arg0: Node | Output, arg1: Node | Output) -> None:
        super().__init__(arg0, arg1)

    def write(self, b: Builder, *xs: Value) -> Any:
        agree_shapes(xs[0].shape, xs[1].shape, "input 0", "input 1")
        return b.apply(self.kind, *xs, broadcast=False)


class Add(_BinaryNode, version=v0):
    """Add computes arg0 + arg1 elementwise."""

    kind = "Add"


class Subtract(_BinaryNode, version=v0):
    """Subtract computes arg0 - arg1 elementwise."""

    kind = "Subtract"


class Multiply(_BinaryNode, version=v0):
    """Multiply computes arg0 * arg1 elementwise."""

    kind = "Multiply"


ARITHMETIC.update(Add=Add, Subtract=Subtract, Multiply=Multiply)


class Core(Node):
    """Core is a node of one core operator, as used in gradients."""

    def __init__(self, op: Op, *arguments: Node | Output) -> None:
        self.op = op
        super().__init__(*arguments)

    def write(self, b: Builder, *xs: Value) -> list[Value]:
        return b.add(self.op, *xs)
