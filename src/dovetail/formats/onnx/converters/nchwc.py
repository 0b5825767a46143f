"""Import operators of the domain com.microsoft.nchwc: convolutions and pools over channels in blocks of 8 or 16.

onnxruntime's optimizer emits them at its highest level. A blocked tensor, whose channels are padded to a multiple of the block
size, is imported as a row-major tensor with the padded channels. Only the layout of the weights depends on the block size.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.errors import FormatError, UnsupportedError
from dovetail.formats.foreign import ForeignGraph, ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.import_node import constant_of
from dovetail.formats.onnx.converters.fusions import convolve
from dovetail.formats.onnx.dialect import ONNX
from dovetail.ir.graph import Value
from dovetail.ir.host import native_core
from dovetail.ops.nn.resize import Resize

_DOMAIN = "com.microsoft.nchwc"
_BLOCKS = (16, 8)
_POOL = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")


@ONNX.importer("ReorderInput", 1, domain=_DOMAIN)
def import_reorder_input(ctx: ImportContext) -> Value:
    """Import ReorderInput: pad the channels with zeros to a multiple of the block size."""
    x = ctx.input_of_rank(0, 4)
    if ctx.attribute("channels_last", "bool", False):
        x = ctx.b.Transpose(x, [0, 3, 1, 2])
    channels, block = x.dims[1], block_of(ctx)
    if not isinstance(channels, int):
        raise UnsupportedError("type.unknown", "ReorderInput: the number of channels must be known")
    padding = -channels % block
    return ctx.b.Pad(x, [0, 0, 0, 0, 0, padding, 0, 0]) if padding else ctx.b.Identity(x)


@ONNX.importer("ReorderOutput", 1, domain=_DOMAIN)
def import_reorder_output(ctx: ImportContext) -> Value:
    """Import ReorderOutput: keep the first ``channels`` channels."""
    x = ctx.b.Slice(ctx.input_of_rank(0, 4), [0], [ctx.attribute("channels", "int")], [1])
    return ctx.b.Transpose(x, [0, 2, 3, 1]) if ctx.attribute("channels_last", "bool", False) else x


@ONNX.importer("Conv", 1, domain=_DOMAIN)
def import_conv(ctx: ImportContext) -> Value:
    """Import Conv with blocked weights: [O / b, I / b, *kernel, b of I, b of O], or [O / b, I, *kernel, b of O]."""
    weights = ctx.input_of_rank(1, 4)
    data = constant_of(weights, "Conv: the weights")
    ctx.scope.constants.mark_folded_constant(weights)
    block, (outputs, inputs, height, width) = block_of(ctx), data.shape
    if outputs % block:
        raise FormatError("shape.multiple", f"Conv: the output channels ({outputs}) must be a multiple of the block ({block})")
    if _has_plain_inputs(inputs, ctx.attribute("group", "int", 1), block):
        blocks = data.reshape(outputs // block, inputs, height, width, block)
        ordered = blocks.transpose(0, 4, 1, 2, 3)
    else:
        blocks = data.reshape(outputs // block, inputs // block, height, width, block, block)
        ordered = blocks.transpose(0, 5, 1, 4, 2, 3)
    w = ctx.add_constant(np.ascontiguousarray(ordered).reshape(data.shape), weights.dtype)
    return convolve(ctx, [ctx.input(0), w, ctx.optional_input(2)], ctx.optional_input(3))


def _has_plain_inputs(inputs: int, group: int, block: int) -> bool:
    """Return whether the input channels of the weights are not blocked: depthwise, or fewer than the block size."""
    return inputs == 1 if group > 1 else inputs < block


@ONNX.importer("MaxPool", 1, domain=_DOMAIN)
def import_max_pool(ctx: ImportContext) -> Value:
    ctx.ignore("storage_order")
    return ctx.add_operator("MaxPool", 12, [ctx.input(0)], ctx.select_attributes(*_POOL))


@ONNX.importer("AveragePool", 1, domain=_DOMAIN)
def import_average_pool(ctx: ImportContext) -> Value:
    return ctx.add_operator("AveragePool", 19, [ctx.input(0)], ctx.select_attributes(*_POOL, "count_include_pad"))


@ONNX.importer("GlobalMaxPool", 1, domain=_DOMAIN)
def import_global_max_pool(ctx: ImportContext) -> Value:
    return ctx.add_operator("GlobalMaxPool", 1, [ctx.input(0)], {})


@ONNX.importer("GlobalAveragePool", 1, domain=_DOMAIN)
def import_global_average_pool(ctx: ImportContext) -> Value:
    return ctx.add_operator("GlobalAveragePool", 1, [ctx.input(0)], {})


@ONNX.importer("Upsample", 1, domain=_DOMAIN)
def import_upsample(ctx: ImportContext) -> list[Value]:
    mode = ctx.attribute("mode", "str", "nearest")
    coordinates = ctx.attribute("coordinate_transformation_mode", "str", "asymmetric")
    scales = ctx.b.constant(np.array(ctx.attribute("scales", "tuple[int, ...]"), np.float32))
    return ctx.b.add(Resize(mode, coordinates, "floor"), ctx.input(0), None, scales)


def block_of(ctx: ImportContext) -> int:
    """Return the block size, the number of channels in a block, which the file does not state.

    The block size is inferred from the shapes of weights and from the channel counts at each ReorderOutput. If 8 and 16 are both
    possible, the block size of this processor is used, as in onnxruntime, with the warning ``nchwc.block``.
    """
    scope = ctx.scope
    while scope.outer is not None:
        scope = scope.outer
    candidates = [block for block in _BLOCKS if all(_fits(block, *item) for item in _evidence(scope.foreign))]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise FormatError(
            "shape.multiple",
            f"{ctx.node.kind}: the channels of all weights must be multiples of one block size, {' or '.join(map(str, _BLOCKS))}",
        )
    instructions = native_core.instruction_set()
    if instructions == "python":
        raise UnsupportedError("nchwc.block", "the file must determine the block size, but 8 and 16 are both possible")
    block = 16 if instructions in ("avx512", "amx") else 8
    if not any(item.code == "nchwc.block" for item in ctx.scope.warnings):
        ctx.warn("nchwc.block", f"the file does not determine the block size; the block size of this processor, {block}, is used")
    return block


def _fits(block: int, kind: str, *numbers: int) -> bool:
    if kind == "Conv":
        outputs, inputs, group = numbers
        return not outputs % block and (_has_plain_inputs(inputs, group, block) or not inputs % block)
    filled, channels = numbers
    return filled == channels + -channels % block


def _evidence(graph: ForeignGraph) -> Iterator[tuple[Any, ...]]:
    """Yield the sizes of each Conv's weights, and the numbers of channels before and after each ReorderOutput."""
    channels: dict[str | None, int] = {}
    for node in graph.nodes:
        first = channels.get(node.inputs[0]) if node.inputs else None
        if node.domain == _DOMAIN and node.kind == "Conv":
            shape = _shape_of_weights(graph, node)
            if shape is None:
                continue
            first = shape[0]
            yield "Conv", shape[0], shape[1], int(node.attributes.get("group", 1))
        elif node.domain == _DOMAIN and node.kind == "ReorderOutput":
            if first is not None:
                yield "ReorderOutput", first, int(node.attributes.get("channels", 0))
            continue
        elif node.kind == "Concat":
            continue
        if first is not None:
            channels.update(dict.fromkeys(node.outputs[:1], first))


def _shape_of_weights(graph: ForeignGraph, node: ForeignNode) -> tuple[int, ...] | None:
    tensor = graph.constants.get(node.inputs[1] or "") if len(node.inputs) > 1 else None
    return tensor.data.shape if tensor is not None and len(tensor.data.shape) == 4 else None
