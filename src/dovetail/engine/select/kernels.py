"""Kernel selection: the native kernel for an operator, and the kernel's attributes from the operator's attributes.

To add a kernel for an operator, write a selector here or in ``indexing``, and add an entry to KERNELS. Add an entry to
KERNEL_TRAITS too where the kernel differs from the defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.engine.memory.tensor import INTERPRET, MOVE, KernelCall, RunTensor, TensorMap
from dovetail.engine.select.elementwise_codegen import explain_refusal
from dovetail.engine.select.indexing import (
    COMBINABLE,
    Reads,
    Writes,
    select_arg_min_max,
    select_cumulative,
    select_gather,
    select_gather_elements,
    select_gather_nd,
    select_nms,
    select_range,
    select_scatter_elements,
    select_scatter_nd,
    select_scatter_update,
    select_top_k,
    select_trilu,
)
from dovetail.engine.select.ml import select_label_encoder, select_squared_distances
from dovetail.engine.select.signal import select_dft, select_grid_sample, select_random_uniform
from dovetail.errors import DovetailError
from dovetail.ir import symbolic
from dovetail.ir.graph import Node
from dovetail.ir.op import Op, has, host_inputs
from dovetail.ir.types import Unknown, axis_in
from dovetail.ops.elementwise.clip import Clip, finite_range

if TYPE_CHECKING:
    from dovetail.engine.rewrite.compressed_product import CompressedMatMul
    from dovetail.engine.rewrite.fold_batchnorm import ScaledConv
    from dovetail.engine.rewrite.integer_conv import IntegerConv
    from dovetail.engine.rewrite.qdq_fusion import QuantizedConv
    from dovetail.engine.rewrite.recurrent import RecurrentSteps
    from dovetail.engine.rewrite.tree_ensemble import TreeEnsembleSums
    from dovetail.ops.linalg.matmul import Gemm, MatMul
    from dovetail.ops.nn.conv import Conv, ConvTranspose
    from dovetail.ops.nn.lrn import LRN
    from dovetail.ops.nn.normalization import LayerNormalization
    from dovetail.ops.nn.pool import AveragePool, MaxPool
    from dovetail.ops.nn.resize import Resize
    from dovetail.ops.nn.sliding_window import Geometry
    from dovetail.ops.quantization.quantize_linear import DynamicQuantizeLinear
    from dovetail.ops.reduction.reduce import (
        ReduceSum,
    )
    from dovetail.ops.reduction.softmax import LogSoftmax, Softmax

PRODUCT_TYPES = tuple(name for name in COMBINABLE if name not in ("f32", "boolean"))
"""Element types of native matrix products, except f32."""
ROUNDED_REDUCTIONS = ("l2", "logsum", "logsumexp")
"""Reductions whose terms or results are rounded; for integers these operators are defined to compute in f64."""
Selector = Callable[[Any, Node, Reads, Writes], KernelCall | str]
"""A function of operator, node, reads and writes, which returns the kernel call, or the reason why the node has no kernel."""


def selector_of(kind: type[Op]) -> Selector | None:
    """Return the selector of an operator with a specific kernel; None for any other operator."""
    return None if kind.is_custom else KERNELS.get(kind.__name__)


def select_kernel(node: Node, tensor_map: TensorMap) -> KernelCall:
    """Return the call that computes a node: data movement, a native kernel, or evaluation in the interpreter."""
    reads = [None if x is None else tensor_map.of(x) for x in node.inputs]
    writes = [tensor_map.of(y) for y in node.outputs]
    reason = "its shape is known only at run time"
    if not any(tensor is not None and tensor.is_dynamic for tensor in (*reads, *writes)):
        selected = _select(node, reads, writes)
        if isinstance(selected, KernelCall):
            return selected
        reason = selected
    return KernelCall(INTERPRET, (node,), reads, writes, reason=reason)


def _select(node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    if reason := getattr(node.op, "interpreter_reason", ""):
        return str(reason)
    hosts = host_inputs(node.op, len(reads))
    if any(is_host and tensor is not None and tensor.data is None for is_host, tensor in zip(hosts, reads, strict=True)):
        # The reason holds even if the sizes do not depend on the value, because the operator's rule may refuse the value.
        return "its shape depends on a value that is known only at run time"
    if has(node.op, "windows"):
        return _select_move(node, reads, writes)
    return (selector_of(type(node.op)) or _select_elementwise)(node.op, node, reads, writes)


def _select_move(node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    try:
        windows = node.op.windows(*(None if tensor is None else tensor.as_view() for tensor in reads))
    except (Unknown, symbolic.Inexact, DovetailError, NotImplementedError) as error:
        return f"its windows are known only at run time{f' ({error})' if str(error) else ''}"
    return KernelCall(MOVE, (node,), reads, writes, windows=windows)


def _is_f32(*tensors: RunTensor | None) -> bool:
    return all(tensor is None or (tensor.dtype is not None and tensor.dtype.name == "f32") for tensor in tensors)


def window_attributes(geometry: Geometry) -> dict[str, Any]:
    """Return the geometry of sliding windows as the attributes of convolution and pooling kernels."""
    return {
        "strides": list(geometry.strides),
        "dilations": list(geometry.dilations),
        "pads_begin": list(geometry.begins),
        "pads_end": list(geometry.ends),
    }


def _select_conv(op: Conv | ScaledConv, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, w, bias, factor = (*reads, None, None)[:4]
    assert x is not None and w is not None
    if not _is_f32(x, w):
        return f"convolution of {x.dtype}"
    if factor is not None and any(tensor is not None and tensor.data is None for tensor in reads[1:]):
        return "weights that are no constants"
    if len(x.sizes) > 5:
        return f"{len(x.sizes) - 2} spatial axes"
    attributes = window_attributes(op.geometry(x.sizes[2:], w.sizes[2:])) | {
        "groups": op.group,
        "has_bias": int(bias is not None),
        "has_factor": int(factor is not None),
        "has_residual": 0,
    }
    present: Reads = [x, w, *(tensor for tensor in (bias, factor) if tensor is not None)]
    return KernelCall("conv", (node,), present, writes, attributes, channels_last=(x, writes[0]))


def _select_conv_transpose(op: ConvTranspose, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, w, bias, output_shape = (*reads, None, None)[:4]
    assert x is not None and w is not None
    if not _is_f32(x, w, bias):
        return f"convolution of {x.dtype}"
    if output_shape is not None and output_shape.data is None:
        return "sizes that are known only at run time"
    if len(x.sizes) > 5:
        return f"{len(x.sizes) - 2} spatial axes"
    sizes = None if output_shape is None or output_shape.data is None else [int(size) for size in output_shape.data]
    geometry = op.transposed_geometry(x.sizes[2:], w.sizes[2:], sizes)
    attributes: dict[str, Any] = {
        "strides": list(geometry.strides),
        "dilations": list(geometry.dilations),
        "pads_begin": list(geometry.begins),
        "groups": op.group,
        "has_bias": int(bias is not None),
        "has_residual": 0,
    }
    present: Reads = [x, w] if bias is None else [x, w, bias]
    return KernelCall("conv_transpose", (node,), present, writes, attributes, channels_last=(x, writes[0]))


def _select_clip(op: Clip, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, low, high = (*reads, None, None)[:3]
    like = low or high
    if like is None or x is None or x.dtype is None:
        return "both bounds are omitted"
    # An omitted bound is the last finite value, to which infinities are clipped.
    low, high = (
        bound or RunTensor(like.name, like.type, like.shape, like.dtype, np.asarray(end, x.dtype.numpy))
        for bound, end in zip((low, high), finite_range(x.dtype), strict=True)
    )
    return _select_elementwise(op, node, [x, low, high], writes)


def _select_max_pool(op: MaxPool, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None
    if len(writes) > 1:
        if op.storage_order or op.index_element_type != "i64" or op.axis % len(x.sizes) > 2:
            return "indices other than row-major i64"
        return _select_pool("pool", op, node, x, writes, {"mode": "max", "axis": op.axis % len(x.sizes)})
    is_of_bytes = x.dtype is not None and x.dtype.name in ("u8", "i8") and len(x.sizes) == 4
    return _select_pool("quantized_pool" if is_of_bytes else "pool", op, node, x, writes, {"mode": "max"})


def _select_average_pool(op: AveragePool, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None
    return _select_pool("pool", op, node, x, writes, {"mode": "average", "divisor": op.divisor})


def _select_pool(
    kernel: str, op: MaxPool | AveragePool, node: Node, x: RunTensor, writes: Writes, attributes: dict[str, Any]
) -> KernelCall | str:
    if kernel == "pool" and not _is_f32(x):
        return f"pooling of {x.dtype}"
    if not 3 <= len(x.sizes) <= 5:
        return f"{len(x.sizes) - 2} spatial axes"
    geometry = op.geometry(x.sizes[2:], op.kernel_shape)
    attributes = window_attributes(geometry) | attributes | {"kernel": list(geometry.kernel)}
    return KernelCall(kernel, (node,), [x], writes, attributes, channels_last=(x, writes[0]))


def _select_resize(op: Resize, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None
    if not _is_f32(x):
        return f"resampling of {x.dtype}"
    if not 3 <= len(x.sizes) <= 5:
        return f"{len(x.sizes) - 2} spatial axes"
    if any(tensor is not None and tensor.data is None for tensor in reads[1:]):
        return "sizes that are known only at run time"
    optional = [None if tensor is None else tensor.as_view() for tensor in (*reads[1:], None, None, None)[:3]]
    rows = {row.axis: row for row in op.known_rows(x.as_view(), *optional)}
    channels_last = (x, writes[0]) if x.sizes[1] >= 8 else ()
    if min(rows, default=2) < 2:
        return "resampling along batch or channels"
    if not op.antialias and op.coordinate_transformation_mode != "tf_crop_and_resize":
        # Only sizes decide the indices and weights of the interpolation, which the kernel computes.
        for row in rows.values():
            op.refuse_taps(row)
        rule: dict[str, Any] = {
            "mode": op.mode,
            "coordinate_transformation_mode": op.coordinate_transformation_mode,
            "nearest_mode": op.nearest_mode,
            "cubic_coeff_a": float(op.cubic_coeff_a),
            "exclude_outside": int(op.exclude_outside),
            "keeps_equal": int(op.convention == "openvino"),
            "scales": op.scales_of(x.as_view(), *optional),
        }
        return KernelCall("resize", (node,), [x], writes, rule, channels_last=channels_last)
    taps = {axis: op.taps(row) for axis, row in rows.items()}
    if any(each.outside.any() for each in taps.values()):
        return "resampling beyond the input's edges"
    attributes: dict[str, Any] = {"taps": [], "places": [], "weights": []}
    for axis, size in enumerate(x.sizes[2:], 2):
        indices = taps[axis].indices if axis in taps else np.arange(size)[:, None]
        weights = taps[axis].weights if axis in taps else np.ones((size, 1))
        attributes["taps"].append(indices.shape[1])
        attributes["places"] += indices.reshape(-1).tolist()
        attributes["weights"] += weights.astype(np.float64).reshape(-1).tolist()
    return KernelCall("resize", (node,), [x], writes, attributes, channels_last=channels_last)


def _select_recurrent(op: RecurrentSteps, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    steps, r, *optional = (*reads, *[None] * 9)[:9]
    assert steps is not None and r is not None
    is_quantized = optional[5] is not None
    if not _is_f32(steps) or not (r.data is not None if is_quantized else _is_f32(r)):
        return "a recurrent layer of another type than f32"
    if not steps.count:
        return "a recurrent layer over an empty sequence"
    # Deferred: most models have no recurrent layer.
    from dovetail.engine.rewrite.recurrent import cell_of

    layer = op.layer
    names = ("has_inner", "has_lengths", "has_h", "has_c", "has_peepholes")
    attributes: dict[str, Any] = {name: int(tensor is not None) for name, tensor in zip(names, optional, strict=False)}
    attributes["is_quantized"] = int(is_quantized)
    attributes |= {"cell": cell_of(layer), "direction": layer.direction, "gates": getattr(layer, "weights_format", "iofc")}
    attributes["input_forget"] = int(getattr(layer, "input_forget", False))
    present: Reads = [steps, r, *(tensor for tensor in optional if tensor is not None)]
    return KernelCall("recurrent", (node,), present, writes, attributes)


def _select_quantized_conv(op: QuantizedConv, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, w, bias, factor, residual, w_zero = (*reads, None, None)[:6]
    assert x is not None and w is not None
    if any(tensor is None or tensor.data is None for tensor in (w, bias, factor)):
        return "weights that are no constants"
    if 0 in x.sizes[2:]:
        return "a product of no rows"
    geometry = op.conv.geometry(x.sizes[2:], w.sizes[2:])
    attributes = window_attributes(geometry) | {
        "x_zero": op.x_zero,
        "has_residual": int(residual is not None),
        "has_w_zero": int(w_zero is not None),
    }
    numbers: dict[str, float] = {"low": op.low - op.zero, "high": op.high - op.zero, "y_zero": op.zero}
    if residual is not None:
        numbers |= {"own": op.own, "beside": op.beside, "other_zero": op.other_zero, "y_zero": op.last_zero}
        numbers |= {"last_low": op.last_low - op.last_zero, "last_high": op.last_high - op.last_zero}
    attributes |= {name: float(number) for name, number in numbers.items()}
    present: Reads = [tensor for tensor in (x, w, bias, factor, w_zero, residual) if tensor is not None]
    return KernelCall("quantized_conv", (node,), present, writes, attributes, _channels_last(x, writes[0], residual))


def _channels_last(x: RunTensor, *others: RunTensor | None) -> tuple[RunTensor, ...]:
    """Return the images of quantized_conv that must be channels-last; an input of up to 4 channels may have any layout."""
    images = others if x.sizes[1] <= 4 else (x, *others)
    return tuple(tensor for tensor in images if tensor is not None)


def _select_integer_conv(op: IntegerConv, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, w, *optional = (*reads, *[None] * 5)[:7]
    assert x is not None and w is not None
    x_zero, w_zero, x_scale, _, bias = optional
    attributes = window_attributes(op.conv.geometry(x.sizes[2:], w.sizes[2:])) | {
        "results": "sums" if x_scale is None else "floats",
        "has_x_zero": int(x_zero is not None),
        "has_w_zero": int(w_zero is not None),
        "has_bias": int(bias is not None),
        "has_residual": 0,
    }
    present: Reads = [x, w, *(tensor for tensor in optional if tensor is not None)]
    return KernelCall("quantized_conv", (node,), present, writes, attributes, _channels_last(x, writes[0]))


def _select_dynamic_quantize(op: DynamicQuantizeLinear, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    return KernelCall("dynamic_quantize", (node,), reads, writes, {})


def _global_pool(mode: str) -> Selector:
    def select(op: Op, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
        x = reads[0]
        assert x is not None
        if not _is_f32(x):
            return f"pooling of {x.dtype}"
        return KernelCall("reduce", (node,), [x], writes, {"mode": mode, "axes": list(range(2, len(x.sizes)))})

    return select


def _reduce(mode: str) -> Selector:
    def select(op: ReduceSum, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
        x, axes = (*reads, None)[:2]
        assert x is not None and x.dtype is not None
        if x.dtype.name not in COMBINABLE or (mode in ROUNDED_REDUCTIONS and not x.dtype.is_float):
            return f"reduction of {x.dtype}"
        if axes is not None and axes.data is None:
            return "axes that are known only at run time"
        reduced = op.axes_of(len(x.sizes), None if axes is None else axes.data)
        return KernelCall("reduce", (node,), [x], writes, {"mode": mode, "axes": list(reduced)})

    return select


def _softmax(kernel: str) -> Selector:
    def select(op: Softmax | LogSoftmax, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
        x = reads[0]
        assert x is not None
        if not _is_f32(x):
            return f"softmax of {x.dtype}"
        axes = [axis for axis in op.axes(len(x.sizes)) if x.sizes[axis] != 1]
        if len(axes) > 1:
            return "softmax over several axes"
        axis = axes[0] if axes else axis_in(op.axis, len(x.sizes))
        return KernelCall(kernel, (node,), [x], writes, {"axis": axis})

    return select


def _select_layer_norm(op: LayerNormalization, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, scale, bias = (*reads, None)[:3]
    assert x is not None and scale is not None
    if not _is_f32(x, scale, bias) or len(writes) > 1 or op.stash_type.name != "f32":
        return "layer normalization of other types or with statistics"
    axis = axis_in(op.axis, len(x.sizes))
    if any(tensor is not None and not _is_suffix(tensor, x.sizes[axis:]) for tensor in (scale, bias)):
        return "a scale or bias that broadcasts"
    attributes = {"axis": axis, "epsilon": float(op.epsilon), "has_bias": int(bias is not None)}
    return KernelCall("layer_norm", (node,), [x, scale] if bias is None else [x, scale, bias], writes, attributes)


def _is_suffix(tensor: RunTensor, sizes: tuple[int, ...]) -> bool:
    return tuple(size for size in tensor.sizes if size != 1) == tuple(size for size in sizes if size != 1)


def _select_lrn(op: LRN, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x = reads[0]
    assert x is not None
    if not _is_f32(x) or [axis_in(axis, len(x.sizes)) for axis in op.axes] != [1]:
        return "local response normalization over other axes or types"
    attributes = {"size": op.size, "alpha": float(op.alpha), "beta": float(op.beta), "bias": float(op.bias)}
    return KernelCall("lrn", (node,), [x], writes, attributes, channels_last=(x, writes[0]))


def _select_matmul(op: MatMul, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, y = reads[:2]
    assert x is not None and y is not None
    if len(x.sizes) < 2 or len(y.sizes) < 2:
        return "matrix product with a vector"
    attributes = {"transpose_a": int(op.transpose_a), "transpose_b": int(op.transpose_b)}
    if x.dtype is not None and x.dtype.name in PRODUCT_TYPES and y.dtype is x.dtype:
        return KernelCall("plain_matmul", (node,), [x, y], writes, attributes)
    if not _is_f32(x, y):
        return f"matrix product of {x.dtype}"
    attributes |= {"has_bias": 0, "has_residual": 0}
    return KernelCall("matmul", (node,), [x, y], writes, attributes)


def _select_compressed_matmul(op: CompressedMatMul, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, codes, scales, points = (*reads, None)[:4]
    assert x is not None
    present: Reads = [tensor for tensor in (x, codes, scales, points) if tensor is not None]
    attributes = {
        "format": op.format,
        "block": op.block,
        "table": list(op.table),
        "packed_axis": -1 if not op.is_packed else 0 if op.transposed else 1,
        "transpose_b": int(op.transposed),
        "has_points": int(points is not None),
        "rows": op.rows,
        "has_bias": 0,
        "has_residual": 0,
    }
    return KernelCall("matmul", (node,), present, writes, attributes)


def _select_gemm(op: Gemm, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, y, bias = (*reads, None)[:3]
    assert x is not None and y is not None
    if not _is_f32(x, y, bias):
        return f"matrix product of {x.dtype}"
    if bias is not None and op.beta != 1:
        if bias.data is None:
            return "a bias with a factor"
        bias = RunTensor(bias.name, bias.type, bias.shape, bias.dtype, np.asarray(bias.data * np.float32(op.beta)))
    attributes = {
        "transpose_a": int(op.transpose_a),
        "transpose_b": int(op.transpose_b),
        "alpha": float(op.alpha),
        "has_bias": int(bias is not None),
        "has_residual": 0,
    }
    return KernelCall("matmul", (node,), [x, y] if bias is None else [x, y, bias], writes, attributes)


def _select_tree_ensemble(op: TreeEnsembleSums, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    if any(tensor is None or tensor.data is None for tensor in reads[1:]):
        return "trees that are no constants"
    return KernelCall("tree_ensemble", (node,), reads, writes, {"aggregate": op.aggregate_index})


def _select_elementwise(op: Op, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    inputs = [tensor for tensor in reads if tensor is not None]
    if len(inputs) != len(reads) or len(writes) != 1:
        return "an omitted input"
    reason = explain_refusal(op, [tensor.dtype for tensor in inputs], writes[0].dtype, [tensor.data for tensor in inputs])
    if reason:
        return reason
    return KernelCall("elementwise", (node,), reads, writes, {"body": [(op, tuple(range(len(inputs))))], "results": [0]})


# A table instead of attributes of operators: kernels belong to the engine, on which operators do not depend. Its keys are names,
# so that a model imports the modules of its own operators alone.
KERNELS: dict[str, Selector] = {
    "ArgMax": select_arg_min_max,
    "ArgMin": select_arg_min_max,
    "AveragePool": _select_average_pool,
    "Clip": _select_clip,
    "CompressedMatMul": _select_compressed_matmul,
    "Conv": _select_conv,
    "ConvTranspose": _select_conv_transpose,
    "CumProd": select_cumulative,
    "CumSum": select_cumulative,
    "DFT": select_dft,
    "DynamicQuantizeLinear": _select_dynamic_quantize,
    "Gather": select_gather,
    "GatherElements": select_gather_elements,
    "GatherND": select_gather_nd,
    "Gemm": _select_gemm,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "GridSample": select_grid_sample,
    "IntegerConv": _select_integer_conv,
    "LRN": _select_lrn,
    "LabelEncoder": select_label_encoder,
    "LayerNormalization": _select_layer_norm,
    "LogSoftmax": _softmax("log_softmax"),
    "MatMul": _select_matmul,
    "MaxPool": _select_max_pool,
    "NmsTable": select_nms,
    "QuantizedConv": _select_quantized_conv,
    "RandomUniform": select_random_uniform,
    "Range": select_range,
    "RecurrentSteps": _select_recurrent,
    "ReduceAll": _reduce("min"),
    "ReduceAny": _reduce("max"),
    "ReduceL1": _reduce("l1"),
    "ReduceL2": _reduce("l2"),
    "ReduceLogSum": _reduce("logsum"),
    "ReduceLogSumExp": _reduce("logsumexp"),
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("mean"),
    "ReduceMin": _reduce("min"),
    "ReduceProd": _reduce("prod"),
    "ReduceSum": _reduce("sum"),
    "ReduceSumSquare": _reduce("sumsquare"),
    "Resize": _select_resize,
    "ScaledConv": _select_conv,
    "ScatterElements": select_scatter_elements,
    "ScatterND": select_scatter_nd,
    "ScatterUpdate": select_scatter_update,
    "Softmax": _softmax("softmax"),
    "SquaredDistances": select_squared_distances,
    "TopK": select_top_k,
    "TreeEnsembleSums": _select_tree_ensemble,
    "Trilu": select_trilu,
}
"""The selector of each operator with a specific kernel, by name; any other operator may have an elementwise kernel."""
