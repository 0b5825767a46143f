"""Transpose a matrix product that is read as an image, so that the channels of the image are last in memory.

A convolution reads ``Reshape(MatMul(a, b), [n, heads * depth, height, width])`` channels-last, but the product has its columns
last. The transposed product, ``MatMul(b^T, a^T)``, has its channels last, and the two transposes are views.
"""

from __future__ import annotations

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ops.elementwise.binary import Add
from dovetail.ops.linalg.matmul import MatMul
from dovetail.ops.nn.conv import Convolution
from dovetail.ops.tensor.reshape import Reshape


def transpose_product(b: Builder, node: Node) -> Value | None:
    """Transpose the product that a Reshape reads as an image; None for any other Reshape."""
    if not isinstance(node.op, Reshape) or not _is_read_as_image(node.outputs[0]):
        return None
    product = node.input(0)
    if product.node is None or product.node.op != MatMul() or len(product.uses) != 1 or product in b.graph.outputs:
        return None
    image, shape = node.outputs[0].shape, product.shape
    if image is None or shape is None or len(image) != 4 or len(shape) != 4 or product.dtype.name != "f32":
        return None
    heads, depth = shape[1], shape[2]
    if not (isinstance(heads, int) and isinstance(depth, int)) or image[1] != heads * depth or image[0] != shape[0]:
        return None
    left, right = product.node.input(0), product.node.input(1)
    if any(x.shape is None or len(x.shape) != 4 for x in (left, right)):
        return None
    order = [0, 1, 3, 2]
    y = b.Transpose(b.MatMul(b.Transpose(right, order), b.Transpose(left, order)), order)
    result: Value = b.add(node.op, y, *node.inputs[1:])[0]
    return result


def _is_read_as_image(image: Value) -> bool:
    """Return whether each reader of a value is a convolution, or an Add that also reads the result of a convolution."""
    return bool(image.uses) and all(
        isinstance(reader.op, Convolution) or (isinstance(reader.op, Add) and _is_convolved(reader)) for reader, _ in image.uses
    )


def _is_convolved(reader: Node) -> bool:
    return any(x is not None and x.node is not None and isinstance(x.node.op, Convolution) for x in reader.inputs)
