"""What windows took apart, put together again: Col2Im, MaxUnpool."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, agree, agree_shapes
from dovetail.ops.nn.sliding_window import SlidingWindowOp, span
from dovetail.ops.shape_values import elements_of, integers_of, join_sizes, length_of_vector

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Col2Im(
    SlidingWindowOp,
    sig="x: N, image_shape!: I, block_shape!: I1 -> y: N",
    onnx="Col2Im-18(x, image_shape, block_shape; strides?, pads~natural?, dilations?)",
    openvino="Col2Im-15(x, image_shape, block_shape; strides?, dilations?, pads_begin+pads_end:pads?)",
):
    """Blocks added up where they were taken from: the transpose of taking them out of a picture.

    ``x`` [N, channels * elements of a block, blocks], or without N, to [N, channels, *image]. Blocks of the sizes ``block``, with
    ``dilations`` between their elements, begin every ``strides`` elements in the picture with ``pads`` around it, and are counted
    in row-major order, as are the elements of each. What falls on the padding is dropped. Sources: ONNX Col2Im 18; OpenVINO
    Col2Im-15.
    """

    def shape(self, x: View, image: View, block: View) -> Any:
        counts = [length_of_vector(each, name) for each, name in ((image, "image"), (block, "block"))]
        known = [count for count in counts if isinstance(count, int)]
        if len(known) == 2:
            agree(*known)
        shape, sizes, kernel = x.shape, elements_of(image), elements_of(block)
        if shape is not None and len(shape) not in (2, 3):
            raise RuleError("blocks.rank", f"channels and blocks are needed, not the rank {len(shape)}")
        if shape is None or not known:
            return None
        places = None if sizes is None or kernel is None else self.geometry(sizes, kernel).outs
        if places is not None and symbolic.equal(shape[-1], symbolic.product(places)) is False:
            raise RuleError("blocks.count", f"{shape[-1]} blocks, and places for {symbolic.product(places)}")
        channels = None
        if kernel is not None:
            elements = symbolic.product(kernel)
            if isinstance(shape[-2], int) and isinstance(elements, int) and (not elements or shape[-2] % elements):
                raise RuleError("blocks.divide", f"{shape[-2]} channels of blocks of {elements} elements")
            channels = shape[-2] // elements if isinstance(elements, int) else None
        return (*shape[:-2], channels, *(sizes or [None] * known[0]))

    def canonical(self, x: View, image: View, block: View) -> Op:
        count = length_of_vector(image, "image")
        return self.with_(**self.plain(count)) if isinstance(count, int) else self

    def decompose(self, b: Builder, x: Value, image: Value, block: Value) -> Any:
        """Each element scattered to where it lies, after those that fall on the padding are left out."""
        sizes, kernel = integers_of(image), integers_of(block)
        if sizes is None or kernel is None:
            raise UnsupportedError("blocks.size", "pictures and blocks of sizes that only run time knows")
        self.shape(x, image, block)
        found = self.geometry(sizes, kernel)
        target = np.zeros((*kernel, *found.outs), np.int64)
        inside = np.ones(target.shape, bool)
        for axis, size in enumerate(sizes):
            offsets = np.arange(kernel[axis])[:, None] * found.dilations[axis] - found.begins[axis]
            places = offsets + np.arange(found.outs[axis]) * found.strides[axis]
            shape = [1] * target.ndim
            shape[axis], shape[axis + len(sizes)] = places.shape
            target = target * size + places.reshape(shape)
            inside &= ((places >= 0) & (places < size)).reshape(shape)
        batch = shape_value(b, x, range(len(x.dims) - 2))
        columns = b.Reshape(x, join_sizes(b, [batch, -1, target.size]), special_zero=False)
        if not inside.all():
            columns = b.Gather(columns, b.constant(np.flatnonzero(inside)), axis=-1)
        empty = b.Expand(
            b.constant(np.zeros((), x.dtype.numpy), x.dtype), join_sizes(b, [batch, _channels(b, x, kernel), prod(sizes)])
        )
        places = b.Expand(b.constant(target[inside]), shape_value(b, columns))
        y = b.ScatterElements(empty, places, columns, axis=-1, reduction="add")
        return b.Reshape(y, join_sizes(b, [batch, _channels(b, x, kernel), *sizes]), special_zero=False)


def _channels(b: Builder, x: Value, kernel: list[int]) -> Any:
    count = x.dims[-2]
    if isinstance(count, int):
        return count // prod(kernel)
    return b.Divide(shape_value(b, x, [len(x.dims) - 2]), [prod(kernel)])


class MaxUnpool(
    SlidingWindowOp,
    sig="x: F, indices: i64, output_shape?!: i64 -> y: F",
    onnx="MaxUnpool-9,11,22(x, indices, output_shape?; kernel_shape, strides?, pads~natural?)",
):
    """``x`` put back where MaxPool found it, and 0 elsewhere: ``indices`` count the elements of the whole result in row-major
    order.

    The result has ``(size - 1) * stride + kernel - pads`` elements along an axis; where ``target`` is given it has that shape, of
    which these are the first. Source: ONNX MaxUnpool 9 to 22 and its reference evaluator (for ``target``).
    """

    kernel_shape: tuple[int, ...] = ()

    def shape(self, x: View, indices: View, target: View | None = None) -> Any:
        shape = agree_shapes(x.shape, indices.shape)
        if target is not None:
            length_of_vector(target, "target")
        inner = None if shape is None else self.inner(shape)
        if target is None:
            return inner
        found = elements_of(target)
        if found is None:
            return None if shape is None else (None,) * len(shape)
        if inner is not None:
            if len(inner) != len(found):
                raise RuleError("shape.rank", f"{len(found)} sizes for {len(inner)} axes")
            for size, whole in zip(inner, found, strict=True):
                if symbolic.less(whole, size) is True:
                    raise RuleError("pool.target", f"{size} elements do not lie in {whole}")
        return tuple(found)

    def inner(self, shape: Shape) -> tuple[Any, ...]:
        """The shape without a target."""
        count = len(shape) - 2
        if count < 1 or len(self.kernel_shape) != count:
            raise RuleError("window.rank", f"kernel {list(self.kernel_shape)} for {count} spatial axes")
        strides, _ = self.steps(count)
        begins, ends = self.explicit_pads(count)
        axes = zip(shape[2:], strides, self.kernel_shape, begins, ends, strict=True)
        return (*shape[:2], *((n - 1) * stride + span(size, 1) - begin - end for n, stride, size, begin, end in axes))

    def canonical(self, x: View, indices: View, target: View | None = None) -> Op:
        return self if x.shape is None else self.with_(**self.plain(len(x.shape) - 2) | {"dilations": None})

    def decompose(self, b: Builder, x: Value, indices: Value, target: Value | None = None) -> Any:
        shape = x.dims
        inner = self.inner(shape)
        if all(isinstance(size, int) for size in inner):
            sizes: Any = list(inner)
        else:
            count = len(shape) - 2
            strides, _ = self.steps(count)
            begins, ends = self.explicit_pads(count)
            rest = [
                size - stride - low - high
                for size, stride, low, high in zip(self.kernel_shape, strides, begins, ends, strict=True)
            ]
            spatial = b.Add(b.Multiply(b.Gather(b.Shape(x), list(range(2, len(shape))), axis=0), list(strides)), rest)
            sizes = b.Concat(b.Gather(b.Shape(x), [0, 1], axis=0), spatial, axis=0)
        whole = [prod(sizes)] if isinstance(sizes, list) else b.ReduceProd(sizes, [0])
        zero = b.constant(np.zeros((), x.dtype.numpy), x.dtype)
        flat = b.ScatterElements(b.Expand(zero, whole), b.Reshape(indices, [-1]), b.Reshape(x, [-1]), axis=0)
        y = b.Reshape(flat, sizes, special_zero=False)
        if target is None:
            return y
        more = b.Subtract(b.Cast(target, to=dtypes.i64) if target.dtype != "i64" else target, sizes)
        return b.Pad(y, b.Concat(b.constant(np.zeros(len(shape), np.int64)), more, axis=0))
