"""Write ONNX graphs node by node, as exporters leave them: what the models of language_models.py and vision_models.py share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Writer:
    """A graph that grows by calls: ``w.Conv(x, weight, strides=[2, 2])`` writes a node and gives its result's name (of several,
    a list: ``outputs=3``). Arrays and numbers among the inputs become initializers; None is an input left out.
    """

    def __init__(self, seed: int = 0) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.generator = np.random.default_rng(seed)
        self._names: dict[str, int] = {}

    def __getattr__(self, kind: str) -> Any:
        if not kind[0].isupper():
            raise AttributeError(kind)
        return lambda *inputs, **attributes: self._node(kind, inputs, **attributes)

    def _node(self, kind: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Any:
        names = ["" if x is None else x if isinstance(x, str) else self.constant(x) for x in inputs]
        made = [self._claim(kind.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, names, made, name=f"node_{made[0]}", **attributes))
        return made[0] if outputs == 1 else made

    def _claim(self, stem: str) -> str:
        self._names[stem] = self._names.get(stem, 0) + 1
        return f"{stem}_{self._names[stem]}"

    def input(self, name: str, kind: int, shape: Sequence[Any]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, value: str, name: str, kind: int = FLOAT, shape: Sequence[Any] | None = None) -> None:
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"node_{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, data: Any) -> str:
        """An initializer; Python's integers are i64, its floats f32."""
        array = np.asarray(data)
        if not hasattr(data, "dtype") and array.dtype.kind == "f":
            array = array.astype(np.float32)
        name = self._claim("constant")
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    # Weights, scaled so that the signal keeps its size

    def normal(self, *shape: int, fan_in: int, gain: float = 1.0) -> Any:
        return self.generator.standard_normal(shape, np.float32) * np.float32(gain / np.sqrt(fan_in))

    def vector(self, size: int, centre: float = 0.0) -> Any:
        return np.float32(centre) + self.generator.standard_normal(size, np.float32) * np.float32(0.1)

    def linear(self, x: str, rows: int, columns: int) -> str:
        """MatMul and Add, as torch's linear layers of more than two axes are exported."""
        return self.Add(self.vector(columns), self.MatMul(x, self.normal(rows, columns, fan_in=rows)))

    def layer_norm(self, x: str, width: int, epsilon: float = 1e-5) -> str:
        return self.LayerNormalization(x, self.vector(width, 1.0), self.vector(width), axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        """The exact form, in its parts."""
        wide = self.Add(self.Erf(self.Div(x, float(np.sqrt(2)))), 1.0)
        return self.Mul(self.Mul(x, wide), 0.5)

    def heads(self, x: str, heads: int, size: int, order: Sequence[int] = (0, 2, 1, 3)) -> str:
        """[batch, length, heads * size] with its heads apart, and its axes in ``order``."""
        return self.Transpose(self.Reshape(x, [0, 0, heads, size]), perm=list(order))

    def model(self, opset: int = 17) -> onnx.ModelProto:
        graph = helper.make_graph(self.nodes, "main", self.inputs, self.outputs, self.tensors)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 8
        return made
