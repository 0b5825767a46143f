"""Which native kernel does an operator's work, and how its attributes are said to it. One function per kind of kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail import symbolic
from dovetail.engine.memory.tensor import INTERPRET, MOVE, KernelCall, RunTensor, TensorMap
from dovetail.engine.rewrite.recurrent import cell_of
from dovetail.engine.select import indexing
from dovetail.engine.select.elementwise_codegen import refusal
from dovetail.engine.select.tree_ensemble import forest_work
from dovetail.errors import DovetailError
from dovetail.ir.graph import Node
from dovetail.ir.op import has, host_inputs
from dovetail.ir.types import Unknown, axis_in
from dovetail.ops.elementwise.clip import finite_range
from dovetail.ops.nn.sliding_window import Geometry

Choice = Callable[[Node, list[RunTensor | None], list[RunTensor]], KernelCall | str]
"""The work for a node, or the reason why there is no kernel for it."""


def select_kernel(node: Node, tensor_map: TensorMap) -> KernelCall:
    """The work that does a node: moving data, a native kernel, or the operator's own rule in the interpreter."""
    reads = [None if x is None else tensor_map.of(x) for x in node.inputs]
    writes = [tensor_map.of(y) for y in node.outputs]
    reason = "its shape is known only at run time"
    if not any(tensor is not None and tensor.is_dynamic for tensor in (*reads, *writes)):
        found = _chosen(node, reads, writes)
        if isinstance(found, KernelCall):
            return found
        reason = found
    return KernelCall(INTERPRET, (node,), reads, writes, reason=reason)


def _chosen(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    if reason := getattr(node.op, "interpreter_reason", ""):
        return str(reason)
    hosts = host_inputs(node.op, len(reads))
    if any(host and tensor is not None and tensor.data is None for host, tensor in zip(hosts, reads, strict=True)):
        # Even where the sizes follow without it: the rule has to see the value, and may refuse it.
        return "what its shape depends on is known only at run time"
    if has(node.op, "windows"):
        return _movement(node, reads, writes)
    choice = KERNELS.get(type(node.op).__name__, _elementwise)
    return choice(node, reads, writes)


def _movement(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    try:
        windows = node.op.windows(*(None if tensor is None else tensor.as_view() for tensor in reads))
    except (Unknown, symbolic.Inexact, DovetailError, NotImplementedError) as error:
        return f"where its data goes is known only at run time ({error})" if str(error) else "where its data goes is not known"
    return KernelCall(MOVE, (node,), reads, writes, windows=windows)


def _is_f32(*tensors: RunTensor | None) -> bool:
    return all(tensor is None or (tensor.dtype is not None and tensor.dtype.name == "f32") for tensor in tensors)


def sliding(found: Geometry) -> dict[str, Any]:
    """Where windows lie, as the kernels of convolution and pooling are told."""
    return {
        "strides": list(found.strides),
        "dilations": list(found.dilations),
        "pads_begin": list(found.begins),
        "pads_end": list(found.ends),
    }


def _conv(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, w, bias, factor = (*reads, None, None)[:4]
    assert x is not None and w is not None
    if not _is_f32(x, w):
        return f"convolution of {x.dtype}"
    if any(tensor is not None and tensor.data is None for tensor in reads[1:]):
        return "weights that are no constants"
    if len(x.sizes) > 5:
        return f"{len(x.sizes) - 2} spatial axes"
    found = op.geometry(x.sizes[2:], w.sizes[2:])
    attributes = sliding(found) | {
        "groups": op.group,
        "has_bias": int(bias is not None),
        "has_factor": int(factor is not None),
        "has_residual": 0,
    }
    kept: list[RunTensor | None] = [x, w, *(tensor for tensor in (bias, factor) if tensor is not None)]
    return KernelCall("conv", (node,), kept, writes, attributes, channels_last=(x, writes[0]))


def _conv_transpose(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, w, bias, target = (*reads, None, None)[:4]
    assert x is not None and w is not None
    if not _is_f32(x, w, bias):
        return f"convolution of {x.dtype}"
    if w.data is None or (bias is not None and bias.data is None) or (target is not None and target.data is None):
        return "weights that are no constants"
    if len(x.sizes) > 5:
        return f"{len(x.sizes) - 2} spatial axes"
    sizes = None if target is None or target.data is None else [int(size) for size in target.data]
    found = op.placement(x.sizes[2:], w.sizes[2:], sizes)
    attributes: dict[str, Any] = {
        "strides": list(found.strides),
        "dilations": list(found.dilations),
        "pads_begin": list(found.begins),
        "groups": op.group,
        "has_bias": int(bias is not None),
        "has_residual": 0,
    }
    kept: list[RunTensor | None] = [x, w] if bias is None else [x, w, bias]
    return KernelCall("conv_transpose", (node,), kept, writes, attributes, channels_last=(x, writes[0]))


def _clip(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    x, low, high = (*reads, None, None)[:3]
    like = low or high
    if like is None or x is None or x.dtype is None:
        return "bounds left out"
    # One that is left out is the last finite value, which infinities meet.
    low, high = (
        bound or RunTensor(like.name, like.type, like.shape, like.dtype, np.asarray(end, x.dtype.numpy))
        for bound, end in zip((low, high), finite_range(x.dtype), strict=True)
    )
    return _elementwise(node, [x, low, high], writes)


def _pool(mode: str) -> Choice:
    def choice(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
        op: Any = node.op
        x = reads[0]
        assert x is not None
        of_bytes = mode == "max" and x.dtype is not None and x.dtype.name in ("u8", "i8") and len(x.sizes) == 4
        if not _is_f32(x) and not of_bytes:
            return f"pooling of {x.dtype}"
        if len(writes) > 1:
            return "indices beside the values"
        if not 3 <= len(x.sizes) <= 5:
            return f"{len(x.sizes) - 2} spatial axes"
        found = op.geometry(x.sizes[2:], op.kernel_shape)
        attributes = sliding(found) | {"mode": mode, "kernel": list(found.kernel)}
        if mode == "average":
            attributes["divisor"] = op.divisor
        return KernelCall("byte_pool" if of_bytes else "pool", (node,), [x], writes, attributes, channels_last=(x, writes[0]))

    return choice


def _resize(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x = reads[0]
    assert x is not None
    if not _is_f32(x):
        return f"resampling of {x.dtype}"
    if not 3 <= len(x.sizes) <= 5:
        return f"{len(x.sizes) - 2} spatial axes"
    if any(tensor is not None and tensor.data is None for tensor in reads[1:]):
        return "sizes that are known only at run time"
    views = [None if tensor is None else tensor.as_view() for tensor in (*reads, None, None, None)[:4]]
    rows = {row.axis: op.taps(row) for row in op.known_rows(*views)}
    if any(axis < 2 or taps.outside.any() for axis, taps in rows.items()):
        return "resampling along batch or channels, or of what lies outside"
    attributes: dict[str, Any] = {"taps": [], "places": [], "weights": []}
    for axis, size in enumerate(x.sizes[2:], 2):
        places = rows[axis].places if axis in rows else np.arange(size)[:, None]
        weights = rows[axis].weights if axis in rows else np.ones((size, 1))
        attributes["taps"].append(places.shape[1])
        attributes["places"] += places.reshape(-1).tolist()
        attributes["weights"] += weights.astype(np.float64).reshape(-1).tolist()
    return KernelCall("resize", (node,), [x], writes, attributes, channels_last=(x, writes[0]) if x.sizes[1] >= 8 else ())


def _moments(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    moments, r, *optional = (*reads, *[None] * 6)[:6]
    assert moments is not None and r is not None
    if not _is_f32(moments, r) or r.data is None:
        return "a recurrent layer whose weights are no constants of f32"
    if not moments.count:
        return "a recurrent layer over nothing"
    layer = op.layer
    names = ("has_inner", "has_lengths", "has_h", "has_c")
    attributes: dict[str, Any] = {name: int(tensor is not None) for name, tensor in zip(names, optional, strict=True)}
    attributes |= {"cell": cell_of(layer), "direction": layer.direction, "gates": getattr(layer, "weights_format", "iofc")}
    attributes["input_forget"] = int(getattr(layer, "input_forget", False))
    kept: list[RunTensor | None] = [moments, r, *(tensor for tensor in optional if tensor is not None)]
    return KernelCall("recurrent", (node,), kept, writes, attributes)


def _quantized_conv(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, w, bias, factor, other = (*reads, None)[:5]
    assert x is not None and w is not None
    if any(tensor is None or tensor.data is None for tensor in (w, bias, factor)):
        return "weights that are no constants"
    found = op.conv.geometry(x.sizes[2:], w.sizes[2:])
    attributes = sliding(found) | {"x_zero": op.x_zero, "has_residual": int(other is not None)}
    reals = {"low": op.low - op.zero, "high": op.high - op.zero, "y_zero": op.zero}
    if other is not None:
        reals |= {"own": op.own, "beside": op.beside, "other_zero": op.other_zero, "y_zero": op.last_zero}
        reals |= {"last_low": op.last_low - op.last_zero, "last_high": op.last_high - op.last_zero}
    attributes |= {name: float(number) for name, number in reals.items()}
    # The kernel reads up to 4 channels in any layout.
    channels_last = tuple(
        tensor for tensor in (x, writes[0], other) if tensor is not None and (tensor is not x or x.sizes[1] > 4)
    )
    return KernelCall(
        "quantized_conv", (node,), [x, w, bias, factor, *([] if other is None else [other])], writes, attributes, channels_last
    )


def _global_pool(mode: str) -> Choice:
    def choice(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
        x = reads[0]
        assert x is not None
        if not _is_f32(x):
            return f"pooling of {x.dtype}"
        attributes = {"mode": mode, "axes": list(range(2, len(x.sizes)))}
        return KernelCall("reduce", (node,), [x], writes, attributes)

    return choice


def _reduce(mode: str) -> Choice:
    def choice(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
        op: Any = node.op
        x, axes = (*reads, None)[:2]
        assert x is not None
        if not _is_f32(x):
            return f"reduction of {x.dtype}"
        if axes is not None and axes.data is None:
            return "axes that are known only at run time"
        reduced = op.axes_of(len(x.sizes), None if axes is None else axes.data)
        if not reduced or any(x.sizes[axis] == 0 for axis in reduced):
            return "a reduction of nothing"
        return KernelCall("reduce", (node,), [x], writes, {"mode": mode, "axes": list(reduced)})

    return choice


def _softmax(kernel: str) -> Choice:
    def choice(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
        op: Any = node.op
        x = reads[0]
        assert x is not None
        if not _is_f32(x):
            return f"softmax of {x.dtype}"
        axes = [axis for axis in op.axes(len(x.sizes)) if x.sizes[axis] != 1]
        if len(axes) > 1:
            return "softmax over several axes"
        axis = axes[0] if axes else axis_in(op.axis, len(x.sizes))
        return KernelCall(kernel, (node,), [x], writes, {"axis": axis})

    return choice


def _layer_norm(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, scale, bias = (*reads, None)[:3]
    assert x is not None and scale is not None
    if not _is_f32(x, scale, bias) or len(writes) > 1 or op.stash_type.name != "f32":
        return "layer normalisation of other types or with statistics"
    axis = axis_in(op.axis, len(x.sizes))
    if any(tensor is not None and not _is_suffix(tensor, x.sizes[axis:]) for tensor in (scale, bias)):
        return "a scale or bias that broadcasts"
    attributes = {"axis": axis, "epsilon": float(op.epsilon), "has_bias": int(bias is not None)}
    return KernelCall("layer_norm", (node,), [x, scale] if bias is None else [x, scale, bias], writes, attributes)


def _is_suffix(tensor: RunTensor, sizes: tuple[int, ...]) -> bool:
    return tuple(size for size in tensor.sizes if size != 1) == tuple(size for size in sizes if size != 1)


def _lrn(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x = reads[0]
    assert x is not None
    if not _is_f32(x) or [axis_in(axis, len(x.sizes)) for axis in op.axes] != [1]:
        return "local response over other axes or types"
    attributes = {"size": op.size, "alpha": float(op.alpha), "beta": float(op.beta), "bias": float(op.bias)}
    return KernelCall("lrn", (node,), [x], writes, attributes, channels_last=(x, writes[0]))


def _matmul(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, y = reads[:2]
    assert x is not None and y is not None
    if not _is_f32(x, y):
        return f"product of {x.dtype}"
    if len(x.sizes) < 2 or len(y.sizes) < 2:
        return "product with a vector"
    attributes = {"transpose_a": int(op.transpose_a), "transpose_b": int(op.transpose_b), "has_bias": 0, "has_residual": 0}
    return KernelCall("matmul", (node,), [x, y], writes, attributes)


def _gemm(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    op: Any = node.op
    x, y, bias = (*reads, None)[:3]
    assert x is not None and y is not None
    if not _is_f32(x, y, bias):
        return f"product of {x.dtype}"
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


def _elementwise(node: Node, reads: list[RunTensor | None], writes: list[RunTensor]) -> KernelCall | str:
    given = [tensor for tensor in reads if tensor is not None]
    if len(given) != len(reads) or len(writes) != 1:
        return "an input left out"
    reason = refusal(node.op, [tensor.dtype for tensor in given], writes[0].dtype, [tensor.data for tensor in given])
    if reason:
        return reason
    return KernelCall("chain", (node,), reads, writes, {"body": [(node.op, tuple(range(len(given))))], "results": [0]})


KERNELS: dict[str, Choice] = {
    "Conv": _conv,
    "ScaledConv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gather": indexing.gather_work,
    "GatherElements": indexing.gather_elements_work,
    "GatherND": indexing.gather_nd_work,
    "Clip": _clip,
    "MaxPool": _pool("max"),
    "AveragePool": _pool("average"),
    "Resize": _resize,
    "QuantizedConv": _quantized_conv,
    "RecurrentSteps": _moments,
    "GlobalAveragePool": _global_pool("mean"),
    "GlobalMaxPool": _global_pool("max"),
    "ReduceSum": _reduce("sum"),
    "ReduceMean": _reduce("mean"),
    "ReduceMax": _reduce("max"),
    "ReduceMin": _reduce("min"),
    "NonEmptyReduceMin": _reduce("min"),
    "ReduceProd": _reduce("prod"),
    "ReduceL1": _reduce("l1"),
    "ReduceL2": _reduce("l2"),
    "ReduceLogSum": _reduce("logsum"),
    "ReduceLogSumExp": _reduce("logsumexp"),
    "ReduceSumSquare": _reduce("sumsquare"),
    "Softmax": _softmax("softmax"),
    "LogSoftmax": _softmax("log_softmax"),
    "LayerNormalization": _layer_norm,
    "LRN": _lrn,
    "TopK": indexing.top_k_work,
    "ArgMax": indexing.arg_extreme_work,
    "ArgMin": indexing.arg_extreme_work,
    "NmsTable": indexing.suppress_work,
    "CumSum": indexing.cum_sum_work,
    "Range": indexing.range_work,
    "TreeEnsembleSums": forest_work,
    "MatMul": _matmul,
    "Gemm": _gemm,
}
