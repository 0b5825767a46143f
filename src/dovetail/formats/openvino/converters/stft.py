"""Converters for STFT and MelWeightMatrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply, constant_value
from dovetail.ir.graph import Node, Value
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op
from dovetail.ir.types import View, is_static, static
from dovetail.ops.casts import as_type
from dovetail.ops.signal.stft import STFT, scalar_of
from dovetail.ops.tensor.reshape import Unsqueeze


class _Stft(
    Op,
    sig="x: F, window: F, length!: I, step!: I1 -> y: F",
    openvino="STFT-15(x, window, length, step; transpose_frames:transposed)",
):
    """_Stft is the STFT of OpenVINO: onesided, of real signals without an axis of parts; ``transposed`` puts frames last."""

    transposed: bool

    def shape(self, *xs: View | None) -> Any:
        return (None, None, None, 2)


@OPENVINO.importer("STFT", 15)
def import_stft(ctx: ImportContext) -> Value:
    """Import STFT; a window that is shorter than a frame is centered in the frame."""
    b, x, window = ctx.b, ctx.input(0), ctx.input(1)
    length, step = (_scalar(b, ctx.input(index)) for index in (2, 3))
    if len(window.dims) != 1:
        raise RuleError("shape.rank", f"STFT: the window must have rank 1, got rank {len(window.dims)}")
    rank, count = len(x.dims), window.dims[0]
    if rank not in (1, 2):
        raise UnsupportedError("shape.rank", f"STFT: the signal must have rank 1 or 2, got rank {rank}")
    frame_length = scalar_of(length, "frame_size")
    if not isinstance(count, int) or not isinstance(frame_length, int):
        raise UnsupportedError("type.unknown", "STFT needs a window and frames of static size")
    less = frame_length - count
    if less < 0:
        raise UnsupportedError(
            "shape.disagree", f"STFT: the window ({count} elements) must not be longer than a frame ({frame_length})"
        )
    window = b.Pad(window, [less // 2, less - less // 2]) if less else window
    y = b.add(STFT(), b.Unsqueeze(x, [-1] if rank == 2 else [0, 2]), step, window, length)[0]
    y = b.Transpose(y, [0, 2, 1, 3]) if ctx.attribute("transpose_frames", "bool") else y
    result: Value = y if rank == 2 else b.Squeeze(y, [0])
    return result


def _scalar(b: Builder, x: Value) -> Value:
    data = x.constant
    if data is not None and data.size == 1 and data.ndim:
        result: Value = b.constant(data.reshape(()), x.dtype)
        return result
    return x


@OPENVINO.legalize("STFT")
def legalize_stft(b: Builder, node: Node) -> Any:
    """Legalize STFT: decompose complex or two-sided STFT, and add a missing window of ones."""
    op: Any = node.op
    x, step, window, length = (*node.inputs, None, None)[:4]
    assert x is not None and step is not None
    if len(x.dims) == 2:
        return b.add(op, b.Unsqueeze(x, [2]), *node.inputs[1:])
    if not op.onesided or symbolic.equal(x.dims[2], 1) is not True:
        return op.decompose(b, *node.inputs)
    size = op.length_of(x, window, length)
    if not isinstance(size, int):
        return op.decompose(b, *node.inputs)
    if window is None:
        refuse_table((size,), x.dtype.numpy.itemsize, "the window of an STFT")
        window = b.constant(np.ones(size, x.dtype.numpy), x.dtype)
    frame_step = step if step.shape == () else b.Reshape(step, [])
    maker = x.node
    signal = b.Squeeze(x, [2]) if maker is None or not isinstance(maker.op, Unsqueeze) else maker.inputs[0]
    return b.add(_Stft(False), signal, window, b.constant(size, dtypes.i64), as_type(b, frame_step, dtypes.i64))[0]


@OPENVINO.legalize("MelWeightMatrix")
def legalize_mel_weight_matrix(b: Builder, node: Node) -> Any:
    """Fold MelWeightMatrix of constants into a constant, because OpenVINO has no such operator."""
    op: Any = node.op
    values = [None if x is None else constant_value(x) for x in node.inputs]
    if any(item is None for item in values):
        raise UnsupportedError(
            "constant.needed", "the inputs of MelWeightMatrix must be constant, because OpenVINO has no such operator"
        )
    y = node.outputs[0]
    if is_static(y.type):
        refuse_table(static(y.shape), y.dtype.numpy.itemsize, "MelWeightMatrix")
    return b.constant(apply(op, np, values)[0], op.output_datatype)
