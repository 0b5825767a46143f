"""Random operators in ONNX's words: bounds are attributes, and there is one seed, of f32."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail import dtypes
from dovetail.errors import UnsupportedError
from dovetail.formats.exporter import Lowering, constant_or_none
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import Lifting
from dovetail.formats.onnx.dialect import ONNX, spell
from dovetail.ir.graph import Node, Value
from dovetail.ops.random import Bernoulli, Multinomial, RandomNormal, RandomNormalLike, RandomUniform, RandomUniformLike

_WORDS = {"RandomUniform": (("low", 0.0), ("high", 1.0)), "RandomNormal": (("mean", 0.0), ("scale", 1.0))}
_OPS = {"RandomUniform": (RandomUniform, RandomUniformLike), "RandomNormal": (RandomNormal, RandomNormalLike)}


def _seed(node: Lifting) -> float:
    """The seed of the file, or else one that no other node of the graph has: unlike nodes draw unlike numbers."""
    seed = node.attribute("seed", "float", None)
    return float(len(node.b.graph.nodes)) if seed is None else float(seed)


@ONNX.lift("RandomUniform", 1, 22)
@ONNX.lift("RandomNormal", 1, 22)
def drawn(node: Lifting) -> list[Value]:
    kind = node.attribute("dtype", "DType", dtypes.f32)
    shape = node.b.constant(np.array(node.attribute("shape", "tuple[int, ...]"), np.int64))
    return node.b.add(_OPS[node.node.kind][0](seed=_seed(node)), shape, *_bounds(node, node.node.kind, kind))


@ONNX.lift("RandomUniformLike", 1, 22)
@ONNX.lift("RandomNormalLike", 1, 22)
def drawn_like(node: Lifting) -> list[Value]:
    name = node.node.kind.removesuffix("Like")
    kind = node.attribute("dtype", "DType", None) or node.input(0).dtype
    if not kind.is_float:
        raise UnsupportedError("random.dtype", f"{node.node.kind} of {kind}")
    return node.b.add(_OPS[name][1](seed=_seed(node)), node.input(0), *_bounds(node, name, kind))


def _bounds(node: Lifting, name: str, kind: dtypes.DType) -> list[Value]:
    if not kind.is_float:
        raise UnsupportedError("random.dtype", f"{node.node.kind} of {kind}")
    values = [node.attribute(word, "float", default) for word, default in _WORDS[name]]
    return [node.b.constant(np.array(value, kind.numpy), kind) for value in values]


@ONNX.lift("Bernoulli", 15, 22)
def bernoulli(node: Lifting) -> list[Value]:
    return node.b.add(Bernoulli(seed=_seed(node), dtype=node.attribute("dtype", "DType", None)), node.input(0))


@ONNX.lift("Multinomial", 7, 22)
def multinomial(node: Lifting) -> list[Value]:
    dtype, count = node.attribute("dtype", "DType", dtypes.i32), node.attribute("sample_size", "int", 1)
    return node.b.add(Multinomial(seed=_seed(node), sample_size=count, dtype=dtype), node.input(0))


@ONNX.lower("RandomUniform", "RandomNormal")
def lower_drawn(b: Any, node: Node) -> Any:
    """Bounds that only run time knows stretch what is drawn from 0 to 1; such a shape is that of a tensor of zeros."""
    op: Any = node.op
    shape, first, last = node.inputs
    assert shape is not None and first is not None and last is not None
    made = op.decompose(b, shape, first, last) if isinstance(op, RandomUniform) else _stretched(b, op, shape, first, last)
    if made is not None:
        return made
    if shape.constant is None:
        like = _OPS[type(op).__name__][1](**op.seeds())
        return b.add(like, b.apply("ConstantOfShape", shape, np.zeros(1, np.float32)), first, last)
    return None


def _stretched(b: Any, op: Any, shape: Any, mean: Any, deviation: Any) -> Any:
    if mean.constant is not None and deviation.constant is not None:
        return None
    zero, one = (b.constant(np.array(value, mean.dtype.numpy), mean.dtype) for value in (0, 1))
    return b.Add(b.Multiply(b.add(op, shape, zero, one)[0], b.Reshape(deviation, [])), b.Reshape(mean, []))


@ONNX.lower("RandomUniformLike", "RandomNormalLike")
def lower_like(b: Any, node: Node) -> Any:
    """Bounds that only run time knows, or integers, are said of a shape."""
    op: Any = node.op
    bounds = node.inputs[1:]
    is_said = all(x is not None and x.constant is not None and x.dtype.is_float for x in bounds)
    return None if is_said else op.decompose(b, *node.inputs)


def _seed_said(op: Any) -> dict[str, float]:
    """Two seeds as one."""
    return {"seed": float(np.float32(op.seed + op.op_seed % 2**20 * 1021 if op.op_seed else op.seed))}


def _version(lowering: Lowering, kind: str) -> int:
    version = lowering.version_of("", kind)
    if version is None:
        raise UnsupportedError("op.unsayable", f"the target has no {kind}")
    return version


@ONNX.emit("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def emit_drawn(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    kind = type(op).__name__
    x, *bounds = node.inputs
    words = _WORDS[kind.removesuffix("Like")]
    attributes: dict[str, Any] = {"dtype": spell(node.outputs[0].dtype), **_seed_said(op)}
    for (word, _), value in zip(words, bounds, strict=True):
        data = None if value is None else constant_or_none(value)
        if data is None:
            raise UnsupportedError("op.unsayable", f"{kind} with a {word} that only run time knows")
        attributes[word] = float(data.reshape(()))
    if kind.endswith("Like"):
        return [lowering.finish(node, "", kind, _version(lowering, kind), [lowering.key(x)], attributes)]
    shape = None if x is None else constant_or_none(x)
    if shape is None:
        raise UnsupportedError("op.unsayable", f"{kind} of a shape that only run time knows")
    attributes["shape"] = [int(size) for size in shape]
    return [lowering.finish(node, "", kind, _version(lowering, kind), [], attributes)]


@ONNX.emit("Bernoulli")
def emit_bernoulli(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = _seed_said(op) | ({} if op.dtype is None else {"dtype": spell(op.dtype)})
    version = _version(lowering, "Bernoulli")
    return [lowering.finish(node, "", "Bernoulli", version, [lowering.key(node.inputs[0])], attributes)]


@ONNX.emit("Multinomial")
def emit_multinomial(lowering: Lowering, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = {**_seed_said(op), "sample_size": op.sample_size, "dtype": spell(op.dtype)}
    version = _version(lowering, "Multinomial")
    return [lowering.finish(node, "", "Multinomial", version, [lowering.key(node.inputs[0])], attributes)]
