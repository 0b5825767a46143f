"""Col2Im adds blocks of columns into an image."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.nn.sliding_window import SlidingWindowOp
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
    """Add blocks of columns into an image: the transpose of im2col.

    ``x`` is [N, channels * block elements, blocks] and the result [N, channels, *image_shape]; both may lack the axis N. Blocks
    of ``block_shape``, with ``dilations`` between their elements, begin every ``strides`` elements in the image padded by
    ``pads``. Blocks, and the elements of each block, are in row-major order. Elements on the padding are dropped.
    Sources: ONNX Col2Im 18; OpenVINO Col2Im-15.
    """

    def shape(self, x: View, image: View, block: View) -> Any:
        counts = [length_of_vector(item, name) for item, name in ((image, "image"), (block, "block"))]
        known_counts = [count for count in counts if isinstance(count, int)]
        if len(known_counts) == 2:
            agree(known_counts[0], known_counts[1], "the length of image_shape", "the length of block_shape")
        shape, sizes, kernel = x.shape, elements_of(image), elements_of(block)
        if shape is not None and len(shape) not in (2, 3):
            raise RuleError("shape.rank", f"rank must be 2 or 3 (channels, blocks), got {len(shape)}")
        if shape is None or not known_counts:
            return None
        block_counts = None if sizes is None or kernel is None else self.geometry(sizes, kernel).outs
        if block_counts is not None and symbolic.equal(shape[-1], symbolic.product(block_counts)) is False:
            raise RuleError(
                "shape.disagree",
                f"number of blocks ({shape[-1]}) must equal the number of block positions ({symbolic.product(block_counts)})",
            )
        channels = None
        if kernel is not None:
            elements = symbolic.product(kernel)
            if isinstance(shape[-2], int) and isinstance(elements, int) and (not elements or shape[-2] % elements):
                raise RuleError("shape.multiple", f"channels ({shape[-2]}) must be a multiple of the block elements ({elements})")
            channels = shape[-2] // elements if isinstance(elements, int) else None
        return (*shape[:-2], channels, *(sizes or [None] * known_counts[0]))

    def canonical(self, x: View, image: View, block: View) -> Op:
        count = length_of_vector(image, "image")
        return self.with_(**self.plain(count)) if isinstance(count, int) else self

    def decompose(self, b: Builder, x: Value, image: Value, block: Value) -> Any:
        """Add each element to its position in the image, and drop the elements on the padding."""
        sizes, kernel = integers_of(image), integers_of(block)
        if sizes is None or kernel is None:
            raise UnsupportedError("constant.needed", "Col2Im needs constant image_shape and block_shape, got computed values")
        self.shape(x, image, block)
        geometry = self.geometry(sizes, kernel)
        refuse_table((*kernel, *geometry.outs), 32, "the positions of a Col2Im")
        target = np.zeros((*kernel, *geometry.outs), np.int64)
        inside = np.ones(target.shape, bool)
        for axis, size in enumerate(sizes):
            offsets = np.arange(kernel[axis])[:, None] * geometry.dilations[axis] - geometry.begins[axis]
            positions = offsets + np.arange(geometry.outs[axis]) * geometry.strides[axis]
            shape = [1] * target.ndim
            shape[axis], shape[axis + len(sizes)] = positions.shape
            target = target * size + positions.reshape(shape)
            inside &= ((positions >= 0) & (positions < size)).reshape(shape)
        batch = shape_value(b, x, range(len(x.dims) - 2))
        columns = b.Reshape(x, join_sizes(b, [batch, -1, target.size]), special_zero=False)
        if not inside.all():
            columns = b.Gather(columns, b.constant(np.flatnonzero(inside)), axis=-1)
        empty = b.Expand(
            b.constant(np.zeros((), x.dtype.numpy), x.dtype), join_sizes(b, [batch, _channels(b, x, kernel), prod(sizes)])
        )
        indices = b.Expand(b.constant(target[inside]), shape_value(b, columns))
        y = b.ScatterElements(empty, indices, columns, axis=-1, reduction="add")
        return b.Reshape(y, join_sizes(b, [batch, _channels(b, x, kernel), *sizes]), special_zero=False)


def _channels(b: Builder, x: Value, kernel: list[int]) -> Any:
    count = x.dims[-2]
    if isinstance(count, int):
        return count // prod(kernel)
    return b.Divide(shape_value(b, x, [len(x.dims) - 2]), [prod(kernel)])
