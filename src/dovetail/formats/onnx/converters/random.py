"""Converters for random operators, which in ONNX have bounds as attributes and one f32 seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.export_context import ExportContext
from dovetail.formats.foreign import ForeignNode
from dovetail.formats.import_context import ImportContext
from dovetail.formats.mapping_selection import constant_or_none
from dovetail.formats.onnx.dialect import ONNX, encode_attribute
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Node, Value
from dovetail.ir.op import REGISTRY
from dovetail.ops.random import Bernoulli, Multinomial, RandomNormal, RandomUniform

_WORDS = {"RandomUniform": (("low", 0.0), ("high", 1.0)), "RandomNormal": (("mean", 0.0), ("scale", 1.0))}


def _seed(ctx: ImportContext) -> float:
    """Return the seed in the file; without one, the number of the draw, so that different nodes draw different numbers."""
    seed = ctx.attribute("seed", "float", None)
    return float(next(ctx.scope.draws)) if seed is None else float(seed)


@ONNX.importer("RandomUniform", 1, 22)
@ONNX.importer("RandomNormal", 1, 22)
def import_random(ctx: ImportContext) -> list[Value]:
    kind = ctx.attribute("dtype", "DType", dtypes.f32)
    shape = ctx.b.constant(np.array(ctx.attribute("shape", "tuple[int, ...]"), np.int64))
    return ctx.b.add(REGISTRY[ctx.node.kind](seed=_seed(ctx)), shape, *_bounds(ctx, ctx.node.kind, kind))


@ONNX.importer("RandomUniformLike", 1, 22)
@ONNX.importer("RandomNormalLike", 1, 22)
def import_random_like(ctx: ImportContext) -> list[Value]:
    name = ctx.node.kind.removesuffix("Like")
    kind = ctx.attribute("dtype", "DType", None) or ctx.input(0).dtype
    if not kind.is_float:
        raise UnsupportedError("attribute.value", f"{ctx.node.kind}: dtype must be a float type, got {kind}")
    return ctx.b.add(REGISTRY[ctx.node.kind](seed=_seed(ctx)), ctx.input(0), *_bounds(ctx, name, kind))


def _bounds(ctx: ImportContext, name: str, kind: dtypes.DType) -> list[Value]:
    if not kind.is_float:
        raise UnsupportedError("attribute.value", f"{ctx.node.kind}: dtype must be a float type, got {kind}")
    values = [ctx.attribute(word, "float", default) for word, default in _WORDS[name]]
    return [ctx.b.constant(value, kind) for value in values]


@ONNX.importer("Bernoulli", 15, 22)
def import_bernoulli(ctx: ImportContext) -> list[Value]:
    return ctx.b.add(Bernoulli(seed=_seed(ctx), dtype=ctx.attribute("dtype", "DType", None)), ctx.input(0))


@ONNX.importer("Multinomial", 7, 22)
def import_multinomial(ctx: ImportContext) -> list[Value]:
    dtype, count = ctx.attribute("dtype", "DType", dtypes.i32), ctx.attribute("sample_size", "int", 1)
    return ctx.b.add(Multinomial(seed=_seed(ctx), sample_size=count, dtype=dtype), ctx.input(0))


@ONNX.legalize("RandomUniform", "RandomNormal")
def legalize_random(b: Builder, node: Node) -> Any:
    """Legalize random operators whose bounds or shape are computed at run time.

    Bounds computed at run time scale random numbers with default bounds. For a shape computed at run time the Like operator of a
    zero tensor is used.
    """
    op: Any = node.op
    shape, first, last = (node.input(index) for index in range(3))
    scaled = op.decompose(b, shape, first, last) if isinstance(op, RandomUniform) else _scale_normal(b, op, shape, first, last)
    if scaled is not None:
        return scaled
    if shape.constant is None:
        like = REGISTRY[f"{type(op).__name__}Like"](**op.seeds())
        return b.add(like, b.apply("ConstantOfShape", shape, np.zeros(1, np.float32)), first, last)
    return None


def _scale_normal(b: Builder, op: RandomNormal, shape: Value, mean: Value, deviation: Value) -> Any:
    if mean.constant is not None and deviation.constant is not None:
        return None
    zero, one = (b.constant(np.array(value, mean.dtype.numpy), mean.dtype) for value in (0, 1))
    return b.Add(b.Multiply(b.add(op, shape, zero, one)[0], b.Reshape(deviation, [])), b.Reshape(mean, []))


@ONNX.legalize("RandomUniformLike", "RandomNormalLike")
def legalize_random_like(b: Builder, node: Node) -> Any:
    """Decompose a Like operator into RandomUniform or RandomNormal if bounds are computed at run time or are integers."""
    op: Any = node.op
    bounds = node.inputs[1:]
    has_constant_bounds = all(x is not None and x.constant is not None and x.dtype.is_float for x in bounds)
    return None if has_constant_bounds else op.decompose(b, *node.inputs)


def _seed_attribute(op: Any) -> dict[str, float]:
    """Return the attribute ``seed``, which combines the two seeds of a core operator."""
    return {"seed": float(np.float32(op.seed + op.op_seed % 2**20 * 1021 if op.op_seed else op.seed))}


@ONNX.exporter("RandomUniform", "RandomNormal", "RandomUniformLike", "RandomNormalLike")
def export_random(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    kind = type(op).__name__
    x, *bounds = node.inputs
    words = _WORDS[kind.removesuffix("Like")]
    attributes: dict[str, Any] = {"dtype": encode_attribute(node.outputs[0].dtype), **_seed_attribute(op)}
    for (word, _), value in zip(words, bounds, strict=True):
        data = None if value is None else constant_or_none(value)
        if data is None:
            raise UnsupportedError("op.unsayable", f"{kind}: {word} must be constant")
        attributes[word] = float(data.reshape(()))
    if kind.endswith("Like"):
        return [ctx.add_node(node, "", kind, ctx.version(kind), [ctx.key(x)], attributes)]
    shape = None if x is None else constant_or_none(x)
    if shape is None:
        raise UnsupportedError("op.unsayable", f"{kind}: the shape must be constant")
    attributes["shape"] = [int(size) for size in shape]
    return [ctx.add_node(node, "", kind, ctx.version(kind), [], attributes)]


@ONNX.exporter("Bernoulli")
def export_bernoulli(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = _seed_attribute(op) | ({} if op.dtype is None else {"dtype": encode_attribute(op.dtype)})
    version = ctx.version("Bernoulli")
    return [ctx.add_node(node, "", "Bernoulli", version, [ctx.key(node.inputs[0])], attributes)]


@ONNX.exporter("Multinomial")
def export_multinomial(ctx: ExportContext, node: Node) -> list[ForeignNode]:
    op: Any = node.op
    attributes = {**_seed_attribute(op), "sample_size": op.sample_size, "dtype": encode_attribute(op.dtype)}
    version = ctx.version("Multinomial")
    return [ctx.add_node(node, "", "Multinomial", version, [ctx.key(node.inputs[0])], attributes)]
