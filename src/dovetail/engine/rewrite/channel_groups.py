"""Order the output channels of a convolution by the parts that a Split takes from each of several groups.

``Split(Reshape(Conv(x, w), [n, groups, depth, -1]), axis=2)`` takes some channels of every group (the queries, keys and values of
attention heads). If the weights are ordered by part, each part is a range of contiguous channels, which a kernel reads as an
image without a copy. Each channel keeps its weights, so that its results keep their bits.
"""

from __future__ import annotations

import numpy as np

from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import FOLD_LIMIT
from dovetail.ir.graph import Node, Value
from dovetail.ops.nn.conv import Conv
from dovetail.ops.tensor.concat_split import Split
from dovetail.ops.tensor.reshape import Reshape


def order_channels_by_part(b: Builder, node: Node) -> list[Value] | None:
    """Rewrite a Split of grouped channels to a Split of channels; None where no convolution computes the channels."""
    grouped = node.input(0) if isinstance(node.op, Split) else None
    channels = _only_source(b, grouped, Reshape)
    conv = None if channels is None else _only_source(b, channels, Conv, is_output=True)
    if grouped is None or channels is None or conv is None or conv.node is None:
        return None
    lengths = _part_lengths_of(node, grouped, channels)
    weights = [value for value in conv.node.inputs[1:] if value is not None]
    constants = [value.constant for value in weights if value.constant is not None and value.constant.nbytes <= FOLD_LIMIT]
    is_plain = isinstance(conv.node.op, Conv) and conv.node.op.group == 1
    if lengths is None or not is_plain or len(constants) < len(conv.node.inputs) - 1:
        return None
    groups, depth = (int(size) for size in grouped.dims[1:3])
    order = np.arange(groups * depth).reshape(groups, depth)
    starts = np.cumsum([0, *lengths])
    rows = np.concatenate([order[:, start : start + length].reshape(-1) for start, length in zip(starts, lengths, strict=False)])
    moved = [b.constant(array[rows], value.dtype) for array, value in zip(constants, weights, strict=True)]
    y = b.add(conv.node.op, conv.node.inputs[0], *moved)[0]
    parts = b.Split(y, [groups * length for length in lengths], axis=1, outputs=len(lengths))
    last = grouped.dims[3]
    sizes = [[0, groups, length, last if isinstance(last, int) else -1] for length in lengths]
    return [b.Reshape(part, size) for part, size in zip(parts, sizes, strict=True)]


def _only_source(b: Builder, value: Value | None, kind: type, is_output: bool = False) -> Value | None:
    """Return the first input of the node of type ``kind`` that computes ``value``; with ``is_output`` return ``value``.

    None unless a node of this type computes the value and the value has exactly one reader.
    """
    if value is None or value.node is None or not isinstance(value.node.op, kind):
        return None
    if len(value.uses) != 1 or value in b.graph.outputs:
        return None
    return value if is_output else value.node.input(0)


def _part_lengths_of(node: Node, grouped: Value, channels: Value) -> list[int] | None:
    """Return the lengths of the parts along axis 2 of [n, groups, depth, size]; None for any other Split."""
    assert isinstance(node.op, Split)
    if grouped.shape is None or len(grouped.shape) != 4 or channels.shape is None or len(channels.shape) < 3:
        return None
    batch, groups, depth, _ = grouped.shape
    is_grouped = isinstance(groups, int) and isinstance(depth, int) and groups > 1 and channels.shape[1] == groups * depth
    if not is_grouped or batch != channels.shape[0] or 0 in grouped.shape or node.op.axis not in (2, -2):
        return None
    lengths = [None if y.shape is None else y.shape[2] for y in node.outputs]
    known = [length for length in lengths if isinstance(length, int) and length > 0]
    return known if len(known) == len(lengths) else None
