"""The nine architectures that the ``onnx`` package brings along, as they are or with seeded random weights.

Their stored weights are constant fills, which hide every ordering error: reversing every Concat moves the outputs by 3e-7.
With random weights,
scaled so that the signal keeps its size from layer to layer, a swapped channel shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def names() -> list[str]:
    """The architectures, sorted: bvlc_alexnet, densenet121, ..."""
    return sorted(path.stem.removeprefix("light_") for path in FOLDER.glob("light_*.onnx"))


def path_of(name: str) -> Path:
    return FOLDER / f"light_{name}.onnx"


def stored_output(name: str) -> np.ndarray[Any, Any]:
    """The output that the onnx package stores for this model, computed by its makers."""
    tensor = onnx.TensorProto()
    tensor.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def with_random_weights(name: str, seed: int = 0) -> onnx.ModelProto:
    """The model with every filled weight replaced by a random one that suits where it is read."""
    model = onnx.load(path_of(name))
    graph = model.graph
    generator = np.random.default_rng(seed)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for index, item in enumerate(node.input):
            readers.setdefault(item, []).append((node, index))
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in shapes:
            shape = tuple(int(size) for size in shapes[node.input[0]])
            reader, index = next(iter(_final_readers(node.output[0], readers)))
            weight = _weight(generator, shape, reader, index)
            if index == 1 and any(user.op_type in ("Sum", "Concat") for user, _ in readers.get(reader.output[0], [])):
                # What is added to a residual stream stays small beside it, or the signal would double at every block.
                weight = weight * np.float32(0.2)
            graph.initializer.append(numpy_helper.from_array(weight, node.output[0]))
        else:
            kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)
    _drop_unread(graph)
    # From IR version 4 on an initializer need not be a graph input as well.
    model.ir_version = 4
    inputs = [value for value in graph.input if value.name not in shapes]
    del graph.input[:]
    graph.input.extend(inputs)
    return model


def _final_readers(name: str, readers: dict[str, list[tuple[onnx.NodeProto, int]]]) -> Iterator[tuple[onnx.NodeProto, int]]:
    for node, index in readers.get(name, []):
        if node.op_type in ("Unsqueeze", "Reshape"):
            yield from _final_readers(node.output[0], readers)
        else:
            yield node, index


def _weight(generator: np.random.Generator, shape: tuple[int, ...], reader: onnx.NodeProto, index: int) -> np.ndarray[Any, Any]:
    kind = reader.op_type
    if (kind == "BatchNormalization" and index in (1, 4)) or kind == "Mul":
        found = generator.uniform(0.5, 1.5, shape)
    elif len(shape) >= 2 and index == 1:
        transposed = any(item.name == "transB" and item.i for item in reader.attribute)
        fan_in = int(np.prod(shape[1:])) if kind == "Conv" or transposed else shape[0]
        gain = 1 if kind == "Gemm" else 2  # a Relu behind a convolution halves the signal's power
        found = generator.standard_normal(shape, dtype=np.float32) * np.sqrt(gain / fan_in)
    else:
        found = generator.standard_normal(shape) * 0.1
    return np.asarray(found).astype(np.float32)


def _drop_unread(graph: onnx.GraphProto) -> None:
    read = {item for node in graph.node for item in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) != len(graph.initializer):
        copies = [tensor.SerializeToString() for tensor in kept]
        del graph.initializer[:]
        for text in copies:
            graph.initializer.add().ParseFromString(text)


def image(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """A random input for each graph input that no initializer fills."""
    filled = {tensor.name for tensor in model.graph.initializer}
    generator = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        if value.name not in filled:
            shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
            found[value.name] = generator.standard_normal(shape).astype(np.float32)
    return found
