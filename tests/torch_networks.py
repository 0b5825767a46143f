"""A torch module of an ONNX file, written without dovetail: torch's operators and autograd on the weights of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional

Attributes = dict[str, Any]


def _padded(x: Any, attributes: Attributes, fill: float = 0.0) -> Any:
    pads = attributes.get("pads")
    if not pads or not any(pads):
        return x
    count = len(pads) // 2
    return functional.pad(x, [pads[axis + side] for axis in reversed(range(count)) for side in (0, count)], value=fill)


def _conv(a: Attributes, x: Any, weight: Any, bias: Any = None) -> Any:
    steps = {"stride": a.get("strides", 1), "dilation": a.get("dilations", 1), "groups": a.get("group", 1)}
    return {3: functional.conv1d, 4: functional.conv2d}[x.ndim](_padded(x, a), weight, bias, **steps)


def _batch_norm(a: Attributes, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    return functional.batch_norm(x, mean, variance, scale, bias, eps=a.get("epsilon", 1e-5))


def _max_pool(a: Attributes, x: Any) -> Any:
    x = _padded(x, a, -torch.inf)
    return functional.max_pool2d(x, a["kernel_shape"], a["strides"], ceil_mode=bool(a.get("ceil_mode")))


def _average_pool(a: Attributes, x: Any) -> Any:
    pads = a.get("pads", [0, 0, 0, 0])
    assert pads[:2] == pads[2:]
    is_counted = bool(a.get("count_include_pad"))
    return functional.avg_pool2d(x, a["kernel_shape"], a["strides"], pads[:2], bool(a.get("ceil_mode")), is_counted)


def _clip(a: Attributes, x: Any, low: Any = None, high: Any = None) -> Any:
    return torch.clamp(x, a.get("min", low), a.get("max", high))


def _gemm(a: Attributes, x: Any, weight: Any, bias: Any) -> Any:
    assert not a.get("transA") and a.get("alpha", 1) == a.get("beta", 1) == 1
    return x @ (weight.T if a.get("transB") else weight) + bias


def _reshape(_: Attributes, x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[axis] if size == 0 else size for axis, size in enumerate(shape.tolist())])


def _slice(_: Attributes, x: Any, starts: Any, ends: Any, axes: Any, steps: Any = None) -> Any:
    assert steps is None or steps.eq(1).all()
    for start, end, axis in zip(starts.tolist(), ends.tolist(), axes.tolist(), strict=True):
        x = x[(slice(None),) * axis + (slice(start, end),)]
    return x


def _cast(a: Attributes, x: Any) -> Any:
    return x.to(getattr(torch, onnx.helper.tensor_dtype_to_np_dtype(a["to"]).name))


def _concat(a: Attributes, *xs: Any) -> Any:
    return torch.cat(xs, a["axis"])


OPERATORS: dict[str, Callable[..., Any]] = {
    "Add": lambda _, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": _concat,
    "Conv": _conv,
    "Div": lambda _, x, y: x / y,
    "Dropout": lambda _, x, *ratio: x,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda _, x: x.mean((2, 3), keepdim=True),
    "HardSigmoid": lambda a, x: torch.clamp(x * a.get("alpha", 0.2) + a.get("beta", 0.5), 0, 1),
    "HardSwish": lambda _, x: x * torch.clamp(x / 6 + 0.5, 0, 1),
    "Identity": lambda _, x: x,
    "MatMul": lambda _, x, y: x @ y,
    "MaxPool": _max_pool,
    "Mul": lambda _, x, y: x * y,
    "Relu": lambda _, x: torch.relu(x),
    "Reshape": _reshape,
    "Shape": lambda _, x: torch.tensor(x.shape),
    "Slice": _slice,
    "Softmax": lambda a, x: torch.softmax(x, a.get("axis", -1)),
    "Sum": lambda _, *xs: sum(xs),
    "Transpose": lambda a, x: x.permute(a["perm"]),
}


class Network(torch.nn.Module):  # type: ignore[misc]
    """Network computes the value ``output`` of an ONNX file of one input; ``weights`` names its parameters.

    Parameters of the module keep the order of ``weights``; all other constants are fixed.
    """

    def __init__(self, path: Path, weights: Mapping[str, Any], output: str) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        constants = {tensor.name: tensor for tensor in graph.initializer}
        constants |= {node.output[0]: node.attribute[0].t for node in graph.node if node.op_type == "Constant"}
        self.nodes = [node for node in graph.node if node.op_type != "Constant"]
        self.arrays = {name: torch.tensor(numpy_helper.to_array(tensor)) for name, tensor in constants.items()}
        self.input = next(value.name for value in graph.input if value.name not in constants)
        self.output, self.names = output, list(weights)
        self.trained = torch.nn.ParameterList(torch.nn.Parameter(self.arrays[name]) for name in self.names)

    def forward(self, x: Any) -> Any:
        values = {"": None, self.input: x, **self.arrays, **dict(zip(self.names, self.trained, strict=True))}
        for node in self.nodes:
            attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            values[node.output[0]] = OPERATORS[node.op_type](attributes, *(values[name] for name in node.input))
            if node.output[0] == self.output:
                break
        return values[self.output]
