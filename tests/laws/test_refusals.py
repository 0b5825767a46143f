"""Refusals of each operator, and their codes: wrong attributes, ranks, sizes, elements and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail.errors import DovetailError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.laws.gradients import adjoints

# Of the builder as Any: the calls are wrong on purpose.
Write = Callable[[Any, Callable[..., Any]], Any]
"""An operator written through a builder; the second argument makes an input: a type, then sizes (``...`` for no rank)."""


def refused(write: Write) -> str:
    """Return the code of the error that refuses the operator."""
    b = Builder()

    def given(kind: str, *sizes: Any) -> Any:
        return b.input(f"x{len(b.graph.inputs)}", kind, None if ... in sizes else sizes)

    with pytest.raises(DovetailError) as caught:
        write(b, given)
    return caught.value.code


def slope(b: Builder, y: Any) -> None:
    """Build the gradient of ``y``."""
    smooth = [x for x in b.graph.inputs if x.dtype.is_float]
    adjoints(b, [y], [b.input_of("g", y.type)], smooth)


def saved(b: Builder, y: Any) -> None:
    """``y`` is written as ONNX."""
    b.output("y", y)
    onnx_write.save(b.model, None, opset=18)


def moved(b: Builder, y: Any) -> None:
    """Compute the windows of ``y``."""
    node = b.graph.nodes[-1]
    node.op.windows(*node.inputs)


def taken_apart(b: Builder, y: Any) -> None:
    """``y`` is written with other operators."""
    node = b.graph.nodes[-1]
    node.op.decompose(b, *node.inputs)


def normalized(b: Builder, x: Callable[..., Any], **attributes: Any) -> Any:
    return b.BatchNormalization(x("f32", 2, 3, 4), *(x("f32", 3) for _ in range(4)), **attributes)


def _factors(x: Callable[..., Any], kind: str, z: tuple[int, ...] = ()) -> list[Any]:
    """Return the inputs of QLinearMatMul."""
    return [x(kind, 2, 3), x("f32"), x(kind), x(kind, 3, 2), x("f32"), x(kind), x("f32", *z), x(kind)]


def _table(b: Builder, x: Any, kind: str, *rest: Any, **attributes: Any) -> Any:
    attributes = {"block_size": 16, **attributes}
    return b.GatherBlockQuantized(x(kind, 5, 24 if kind == "u8" else 48), x("i64", 2), x("f32", 5, 3), *rest, **attributes)


def _bits(b: Builder, x: Callable[..., Any], *rest: Any, **changes: Any) -> Any:
    attributes = {"k": 70, "n": 5, "bits": 4, "block_size": 32, **changes}
    return b.MatMulNBits(x("f32", 4, 70), x("u8", 5, 3, 16), x("f32", 5, 3), *rest, **attributes)


def _regions(x: Callable[..., Any]) -> list[Any]:
    """Return the inputs of RoiAlign."""
    return [x("f32", 1, 2, 3, 4), x("f32", 5, 4), x("i64", 5)]


def _cached(b: Builder, x: Callable[..., Any], rest: tuple[int, Any] | None = None, **changes: Any) -> Any:
    """GroupQueryAttention of 4 heads of 8 columns; ``rest`` puts one of its inputs in its place."""
    inputs: list[Any] = [
        x("f32", 2, 5, 32),
        x("f32", 2, 5, 16),
        x("f32", 2, 5, 16),
        None,
        None,
        x("i32", 2),
        x("i32"),
        *[None] * 9,
    ]
    if rest is not None:
        inputs[rest[0]] = rest[1]
    return b.GroupQueryAttention(*inputs, **{"num_heads": 4, "kv_num_heads": 2, **changes})


def _deformed(b: Builder, x: Callable[..., Any], columns: int = 8, outs: Any = (4, 4), masks: int = 4, **changes: Any) -> Any:
    """DeformConv of 4 channels by kernels of 2 by 2."""
    offset = x("f32", 1, columns, *outs)
    return b.DeformConv(x("f32", 1, 4, 5, 5), x("f32", 2, 4, 2, 2), offset, None, x("f32", 1, masks, 4, 4), **changes)


def _terms(b: Builder, x: Any, **changes: Any) -> Any:
    attributes = {
        "mode": "tf",
        "min_gram_length": 1,
        "max_gram_length": 2,
        "max_skip_count": 1,
        "ngram_counts": (0, 1),
        "pool_int64s": (1, 2, 3, 4, 5),
    }
    return b.TfIdfVectorizer(x, **{**attributes, "ngram_indexes": (0, 1, 2), **changes})


def _tree(b: Builder, x: Any, **changes: Any) -> Any:
    attributes = {
        "n_targets": 1, "tree_roots": (0,), "nodes_featureids": (0, 1), "nodes_modes": (0, 1), "nodes_splits": (0.5, 1.0),
        "nodes_truenodeids": (1, 0), "nodes_trueleafs": (False, True), "nodes_falsenodeids": (2, 1),
        "nodes_falseleafs": (True, True), "leaf_targetids": (0, 0, 0), "leaf_weights": (1.0, 2.0, 3.0),
    }  # fmt: skip
    return b.TreeEnsemble(x, **{**attributes, **changes})


def _columns(**changes: Any) -> dict[str, Any]:
    """Return the nodes of a tree of one test, as columns."""
    nodes = {
        "nodes_treeids": (0, 0, 0), "nodes_nodeids": (0, 1, 2), "nodes_featureids": (1, 0, 0),
        "nodes_modes": ("BRANCH_LEQ", "LEAF", "LEAF"), "nodes_values": (0.5, 0.0, 0.0), "nodes_truenodeids": (1, 0, 0),
        "nodes_falsenodeids": (2, 0, 0),
    }  # fmt: skip
    return {**nodes, **changes}


def _regression(b: Builder, x: Any, **changes: Any) -> Any:
    leaves = {"target_treeids": (0, 0), "target_nodeids": (1, 2), "target_ids": (0, 0), "target_weights": (1.0, 2.0)}
    return b.TreeEnsembleRegressor(x, **_columns(**{**leaves, **changes}))


def _choice(b: Builder, x: Any, **changes: Any) -> Any:
    leaves = {"class_treeids": (0, 0), "class_nodeids": (1, 2), "class_ids": (0, 0), "class_weights": (1.0, 2.0)}
    return b.TreeEnsembleClassifier(x, **_columns(**{"classlabels_int64s": (0, 1), **leaves, **changes}))


def _machine(b: Builder, x: Any, **changes: Any) -> Any:
    attributes = {"coefficients": (1.0, 2.0), "rho": (0.5,), "support_vectors": (1.0,) * 4, "n_supports": 2}
    return b.SVMRegressor(x, **{**attributes, **changes})


def _voters(b: Builder, x: Any, **changes: Any) -> Any:
    attributes = {"coefficients": (1.0, 2.0), "rho": (0.5,), "support_vectors": (1.0,) * 4, "vectors_per_class": (1, 1)}
    return b.SVMClassifier(x, **{**attributes, "classlabels_ints": (3, 4), **changes})


def _nms_rotated(b: Any, x: Any, boxes: Any = (1, 3, 5), scores: Any = (1, 2, 3), limit: Any = (), **more: Any) -> Any:
    return b.NMSRotated(x("f32", *boxes), x("f32", *scores), x("i64"), x("f32", *limit), x("f32"), **more)


def _found(x: Callable[..., Any], scores: int = 6, boxes: int = 8, pictures: Any = 1) -> list[Any]:
    """Return the inputs of DetectionOutput for two priors of three classes."""
    return [x("f32", pictures, boxes), x("f32", pictures, scores), x("f32", 1, 2, 8)]


def _proposed(b: Builder, x: Callable[..., Any], **changes: Any) -> Any:
    """Proposal of one anchor per cell."""
    plain = {"base_size": 8, "pre_nms_topn": 9, "post_nms_topn": 4, "nms_thresh": 0.5, "feat_stride": 8, "min_size": 1}
    deltas, image_shape = changes.pop("deltas", (1, 4, 3, 3)), changes.pop("image_shape", (3,))
    return b.Proposal(
        x("f32", 1, 2, 3, 3), x("f32", *deltas), x("f32", *image_shape), **{**plain, "ratio": (1.0,), "scale": (1.0,), **changes}
    )


def _binned(b: Builder, x: Callable[..., Any], **changes: Any) -> Any:
    """PSROIPooling of two channels of two by two bins."""
    return b.PSROIPooling(
        x("f32", 1, 8, 5, 5), x("f32", 3, 5), **{"output_dim": 2, "group_size": 2, "spatial_scale": 1.0, **changes}
    )


def _deformed_bins(b: Builder, x: Callable[..., Any], offsets: int = 4, **changes: Any) -> Any:
    """DeformablePSROIPooling of two channels of two by two bins, moved by offsets."""
    inputs = x("f32", 1, 8, 5, 5), x("f32", 3, 5), x("f32", 3, offsets, 1, 1)
    return b.DeformablePSROIPooling(*inputs, **{"output_dim": 2, "group_size": 2, "spatial_scale": 1.0, **changes})


OPEN = ...
"""No rank."""

REFUSALS: dict[str, list[tuple[str, Write]]] = {
    "Flatten": [
        ("axis.range", lambda b, x: b.Flatten(x("f32", 2, 3), axis=3)),
        ("axis.range", lambda b, x: b.Flatten(x("f32", 2, 3), axis=-3)),
    ],
    "Squeeze": [
        ("shape.disagree", lambda b, x: b.Squeeze(x("f32", 2, 3), [0])),
        ("shape.rank", lambda b, x: b.Squeeze(x("f32", 1, 3), x("i64", 1, 1))),
        ("axis.range", lambda b, x: b.Squeeze(x("f32", 1, 3), [2])),
        ("axis.repeated", lambda b, x: b.Squeeze(x("f32", 1, 3), [0, -2])),
    ],
    "Unsqueeze": [
        ("shape.rank", lambda b, x: b.Unsqueeze(x("f32", 1, 3), x("i64", 1, 1))),
        ("axis.range", lambda b, x: b.Unsqueeze(x("f32", 2), [2])),
        ("axis.range", lambda b, x: b.Unsqueeze(x("f32", 2), [-3])),
        ("axis.repeated", lambda b, x: b.Unsqueeze(x("f32", 2), [0, -3])),
    ],
    "Transpose": [
        ("axis.repeated", lambda b, x: b.Transpose(x("f32", 2, 3), [0, 0])),
        ("axis.repeated", lambda b, x: b.Transpose(x("f32", 2, 3), [0])),
        ("axis.repeated", lambda b, x: b.Transpose(x("f32", 2, 3), [1, 2])),
        ("axis.repeated", lambda b, x: b.Transpose(x("f32", 2, 3), [-1, 0])),
    ],
    "Expand": [
        ("shape.broadcast", lambda b, x: b.Expand(x("f32", 3), [2])),
        ("shape.broadcast", lambda b, x: b.Expand(x("f32", 3, 1), [1], bidirectional=False)),
        ("shape.broadcast", lambda b, x: b.Expand(x("f32", 3), [1], bidirectional=False)),
        ("shape.range", lambda b, x: b.Expand(x("f32", 1), [-1])),
        ("shape.rank", lambda b, x: b.Expand(x("f32", 1), x("i64", 1, 1))),
    ],
    "Tile": [
        ("attribute.length", lambda b, x: b.Tile(x("f32", 2, 3), [1])),
        ("attribute.length", lambda b, x: b.Tile(x("f32", 2, 3), [1, 1, 1])),
        ("attribute.range", lambda b, x: b.Tile(x("f32", 2, 3), [1, -1])),
        ("shape.rank", lambda b, x: b.Tile(x("f32", 2, 3), x("i64", 1, 2))),
    ],
    "Slice": [
        ("attribute.range", lambda b, x: b.Slice(x("f32", 2), [0], [1], [0], [0])),
        ("attribute.range", lambda b, x: b.Slice(x("f32", OPEN), [0, 0], [1, 1], [0, 1], [1, 0])),
        ("attribute.length", lambda b, x: b.Slice(x("f32", 2), [0, 0], [1, 1])),
        ("attribute.length", lambda b, x: b.Slice(x("f32", 2, 2), [0, 0], [1], [0, 1])),
        ("attribute.length", lambda b, x: b.Slice(x("f32", 2, 2), [0], [1], [0, 1])),
        ("attribute.length", lambda b, x: b.Slice(x("f32", 2, 2), [0], [1], [0], [1, 1])),
        ("shape.rank", lambda b, x: b.Slice(x("f32", 2, 2), x("i64", 1, 1), [1])),
        ("shape.rank", lambda b, x: b.Slice(x("f32", 2, 2), x("i64"), [1])),
        ("axis.range", lambda b, x: b.Slice(x("f32", 2), [0], [1], [1])),
        ("axis.repeated", lambda b, x: b.Slice(x("f32", 2, 2), [0, 0], [1, 1], [1, -1])),
    ],
    "Roll": [
        ("attribute.length", lambda b, x: b.Roll(x("f32", 2, 2), [1, 2], [0])),
        ("attribute.length", lambda b, x: b.Roll(x("f32", 2, 2), [1], [0, 1])),
        ("shape.rank", lambda b, x: b.Roll(x("f32", 2, 2), x("i64", 1, 1), [0])),
        ("shape.rank", lambda b, x: b.Roll(x("f32", 2, 2), [1], x("i64", 1, 1))),
        ("axis.range", lambda b, x: b.Roll(x("f32", 2, 2), [1], [2])),
    ],
    "Pad": [
        ("attribute.value", lambda b, x: b.Pad(x("f32", 2), [0, 0], mode="mirror")),
        ("shape.single", lambda b, x: b.Pad(x("f32", 2), [0, 0], x("f32", 1, 1))),
        ("attribute.length", lambda b, x: b.Pad(x("f32", 2, 2), [1, 1])),
        ("attribute.length", lambda b, x: b.Pad(x("f32", 2, 2), [1, 1, 1, 1], None, [0])),
        ("shape.empty", lambda b, x: b.Pad(x("f32", 0), [1, 0], mode="edge")),
        ("shape.empty", lambda b, x: b.Pad(x("f32", 0), [0, 1], mode="reflect")),
        ("shape.rank", lambda b, x: b.Pad(x("f32", OPEN), x("i64", 1, 1))),
        ("shape.rank", lambda b, x: b.Pad(x("f32", 2), [0, 0], None, x("i64", 1, 1))),
        ("axis.range", lambda b, x: b.Pad(x("f32", 2), [0, 0], None, [1])),
        ("axis.repeated", lambda b, x: b.Pad(x("f32", 2), [0, 0, 0, 0], None, [0, -1])),
    ],
    "DepthToSpace": [
        ("shape.rank", lambda b, x: b.DepthToSpace(x("f32", 4, 2), blocksize=2)),
        ("shape.multiple", lambda b, x: b.DepthToSpace(x("f32", 1, 6, 1, 1), blocksize=2)),
        ("attribute.range", lambda b, x: b.DepthToSpace(x("f32", 1, 4, 1, 1), blocksize=0)),
        ("attribute.value", lambda b, x: b.DepthToSpace(x("f32", 1, 4, 1, 1), blocksize=2, mode="CRD")),
    ],
    "SpaceToDepth": [
        ("shape.rank", lambda b, x: b.SpaceToDepth(x("f32", 4, 2), blocksize=2)),
        ("shape.multiple", lambda b, x: b.SpaceToDepth(x("f32", 1, 1, 2, 3), blocksize=2)),
        ("attribute.range", lambda b, x: b.SpaceToDepth(x("f32", 1, 1, 2, 2), blocksize=-1)),
    ],
    "ShuffleChannels": [
        ("attribute.range", lambda b, x: b.ShuffleChannels(x("f32", 1, 4), group=0)),
        ("shape.multiple", lambda b, x: b.ShuffleChannels(x("f32", 1, 4), group=3)),
        ("shape.rank", lambda b, x: b.ShuffleChannels(x("f32"))),
        ("axis.range", lambda b, x: b.ShuffleChannels(x("f32", 1, 4), axis=2)),
    ],
    "Gather": [
        ("attribute.value", lambda b, x: b.Gather(x("f32", 2), [0], bounds="clamp")),
        ("shape.rank", lambda b, x: b.Gather(x("f32"), [0])),
        ("axis.range", lambda b, x: b.Gather(x("f32", 2), [0], axis=1)),
        ("index.range", lambda b, x: b.Gather(x("f32", 2), [2])),
        ("index.range", lambda b, x: b.Gather(x("f32", 2), [-3])),
        ("index.range", lambda b, x: b.Gather(x("f32", 2), [-1], bounds="natural")),
        ("attribute.range", lambda b, x: b.Gather(x("f32", 2, 2), x("i64", 2), axis=0, batch_dims=1)),
        ("attribute.range", lambda b, x: b.Gather(x("f32", 2, 2, 2), x("i64", 2), axis=2, batch_dims=2)),
        ("attribute.range", lambda b, x: b.Gather(x("f32", 2, 2), x("i64", 2), axis=1, batch_dims=-2)),
        ("shape.disagree", lambda b, x: b.Gather(x("f32", 2, 2), x("i64", 3, 1), axis=1, batch_dims=1)),
    ],
    "GatherElements": [
        ("shape.rank", lambda b, x: b.GatherElements(x("f32"), x("i64", 1))),
        ("shape.rank", lambda b, x: b.GatherElements(x("f32", 2, 2), x("i64", 2))),
        ("shape.disagree", lambda b, x: b.GatherElements(x("f32", 2, 2), x("i64", 2, 3), axis=0)),
        ("index.range", lambda b, x: b.GatherElements(x("f32", 2), [2])),
        ("index.range", lambda b, x: b.GatherElements(x("f32", 2), [-3])),
        ("axis.range", lambda b, x: b.GatherElements(x("f32", 2), [0], axis=1)),
    ],
    "GatherND": [
        ("shape.rank", lambda b, x: b.GatherND(x("f32"), [0])),
        ("shape.rank", lambda b, x: b.GatherND(x("f32", 2), x("i64"))),
        ("index.range", lambda b, x: b.GatherND(x("f32", 2), [[0, 0]])),
        ("index.range", lambda b, x: b.GatherND(x("f32", 2, 2), x("i64", 2, 2), batch_dims=1)),
        ("index.range", lambda b, x: b.GatherND(x("f32", 2, 3), [[0, 3]])),
        ("index.range", lambda b, x: b.GatherND(x("f32", 2, 3), [[-3, 0]])),
        ("attribute.range", lambda b, x: b.GatherND(x("f32", 2), x("i64", 2, 1), batch_dims=1)),
        ("attribute.range", lambda b, x: b.GatherND(x("f32", 2), x("i64", 2, 1), batch_dims=-1)),
        ("shape.disagree", lambda b, x: b.GatherND(x("f32", 2, 2), x("i64", 3, 1), batch_dims=1)),
    ],
    "ScatterElements": [
        ("attribute.value", lambda b, x: b.ScatterElements(x("f32", 2), [0], x("f32", 1), reduction="sum")),
        ("shape.rank", lambda b, x: b.ScatterElements(x("f32", 2, 2), x("i64", 2), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.ScatterElements(x("f32", 2, 2), x("i64", 2, 3), x("f32", 2, 3), axis=0)),
        ("shape.disagree", lambda b, x: b.ScatterElements(x("f32", 2), x("i64", 1), x("f32", 2))),
        ("index.range", lambda b, x: b.ScatterElements(x("f32", 2), [2], x("f32", 1))),
        ("index.range", lambda b, x: b.ScatterElements(x("f32", 2), [-3], x("f32", 1))),
        ("axis.range", lambda b, x: b.ScatterElements(x("f32", 2), [0], x("f32", 1), axis=1)),
    ],
    "ScatterND": [
        ("attribute.value", lambda b, x: b.ScatterND(x("f32", 2), [[0]], x("f32", 1), reduction="sum")),
        ("index.range", lambda b, x: b.ScatterND(x("f32", 2), [[0, 0]], x("f32", 1))),
        ("index.range", lambda b, x: b.ScatterND(x("f32", 2), [[2]], x("f32", 1))),
        ("shape.rank", lambda b, x: b.ScatterND(x("f32"), [[0]], x("f32", 1))),
        ("shape.disagree", lambda b, x: b.ScatterND(x("f32", 2), [[0]], x("f32", 2))),
    ],
    "ScatterUpdate": [
        ("shape.rank", lambda b, x: b.ScatterUpdate(x("f32"), [0], x("f32", 1))),
        ("index.range", lambda b, x: b.ScatterUpdate(x("f32", 2), [2], x("f32", 1))),
        ("index.range", lambda b, x: b.ScatterUpdate(x("f32", 2), [-1], x("f32", 1))),
        ("shape.disagree", lambda b, x: b.ScatterUpdate(x("f32", 2), [0], x("f32", 2))),
        ("shape.rank", lambda b, x: b.ScatterUpdate(x("f32", 2), [0], x("f32"))),
        ("axis.range", lambda b, x: b.ScatterUpdate(x("f32", 2), [0], x("f32", 1), axis=1)),
    ],
    "Compress": [
        ("shape.rank", lambda b, x: b.Compress(x("f32", 2), x("boolean", 1, 2))),
        ("shape.rank", lambda b, x: b.Compress(x("f32", 2), x("boolean"))),
        ("shape.disagree", lambda b, x: b.Compress(x("f32", 2), x("boolean", 3), axis=0)),
        ("axis.range", lambda b, x: b.Compress(x("f32", 2), x("boolean", 2), axis=1)),
    ],
    "OneHot": [
        ("shape.range", lambda b, x: b.OneHot(x("i64", 2), np.int64(-1), x("f32"), x("f32"))),
        ("axis.range", lambda b, x: b.OneHot(x("i64", 2), np.int64(3), x("f32"), x("f32"), axis=2)),
        ("axis.range", lambda b, x: b.OneHot(x("i64", 2), np.int64(3), x("f32"), x("f32"), axis=-3)),
    ],
    "Trilu": [
        ("shape.rank", lambda b, x: b.Trilu(x("f32", 2))),
        ("shape.rank", lambda b, x: b.Trilu(x("f32"))),
    ],
    "EyeLike": [
        ("shape.rank", lambda b, x: b.EyeLike(x("f32", 2))),
        ("shape.rank", lambda b, x: b.EyeLike(x("f32", 2, 2, 2))),
    ],
    "ReverseSequence": [
        ("shape.rank", lambda b, x: b.ReverseSequence(x("f32", 2, 3), x("i64", 3, 1))),
        ("axis.repeated", lambda b, x: b.ReverseSequence(x("f32", 2, 3), x("i64", 3), batch_axis=1, time_axis=-1)),
        ("shape.disagree", lambda b, x: b.ReverseSequence(x("f32", 2, 3), x("i64", 2))),
        ("attribute.range", lambda b, x: b.ReverseSequence(x("f32", 2, 3), [0, 3, 1])),
        ("attribute.range", lambda b, x: b.ReverseSequence(x("f32", 2, 3), [0, -1, 1])),
        ("attribute.range", lambda b, x: b.ReverseSequence(x("f32", "n", 3), [0, -1, 1])),
    ],
    "ConstantOfShape": [
        ("constant.value", lambda b, x: b.ConstantOfShape([2], x("f32", 2))),
        ("shape.range", lambda b, x: b.ConstantOfShape([-1], x("f32"))),
        ("shape.rank", lambda b, x: b.ConstantOfShape(x("i64"), x("f32"))),
    ],
    "Range": [
        ("type.class", lambda b, x: b.Range(x("f32"), x("f32"), x("f32"), output_type=dtypes.i64)),
        ("shape.single", lambda b, x: b.Range(x("f32", 2), x("f32"), x("f32"))),
        ("shape.single", lambda b, x: b.Range(x("f32"), x("f32", 1, 1), x("f32"))),
        ("shape.single", lambda b, x: b.Range(x("f32"), x("f32"), x("f32", 0))),
        ("attribute.range", lambda b, x: b.Range(x("i64"), x("i64"), np.int64(0))),
        ("attribute.range", lambda b, x: b.Range(np.float32(0), np.float32(1), np.float32(0))),
    ],
    "Cast": [
        ("attribute.value", lambda b, x: b.Cast(x("f32"), to=dtypes.i64, round_mode="half")),
        ("attribute.conflict", lambda b, x: b.Cast(x("nf4"), to=dtypes.f32)),
        ("attribute.conflict", lambda b, x: b.Cast(x("f32"), to=dtypes.f32, source=dtypes.dtype("nf4"))),
    ],
    "CastLike": [
        ("attribute.value", lambda b, x: b.CastLike(x("f32"), x("i64"), round_mode="half")),
        ("attribute.conflict", lambda b, x: b.CastLike(x("nf4"), x("f32"))),
    ],
    "BitCast": [
        ("attribute.conflict", lambda b, x: b.BitCast(x("f32"), to=dtypes.i64)),
        ("attribute.conflict", lambda b, x: b.BitCast(x("string"), to=dtypes.string)),
    ],
    "Clip": [
        ("attribute.range", lambda b, x: b.Clip(x("f32", 2), x("f32", 2))),
        ("attribute.range", lambda b, x: b.Clip(x("f32", 2), None, x("f32", 1, 2))),
    ],
    "Dropout": [
        ("node.outputs", lambda b, x: b.Dropout(x("f32", 2), outputs=3)),
        ("node.outputs", lambda b, x: b.Dropout(x("f32", 2), outputs=0)),
        ("shape.single", lambda b, x: b.Dropout(x("f32", 2), x("f32", 2))),
        ("shape.single", lambda b, x: b.Dropout(x("f32", 2), x("f32"), x("boolean", 2))),
    ],
    "Not": [
        ("type.class", lambda b, x: b.BitwiseNot(x("f32", 2))),
    ],
    "BitShift": [
        ("attribute.value", lambda b, x: b.BitShift(x("u8", 2), x("u8", 2), direction="up")),
    ],
    "Gelu": [
        ("attribute.value", lambda b, x: b.Gelu(x("f32", 2), approximate="sigmoid")),
    ],
    "Round": [
        ("attribute.value", lambda b, x: b.Round(x("f32", 2), mode="up")),
    ],
    "PRelu": [
        ("shape.broadcast", lambda b, x: b.PRelu(x("f32", 2), x("f32", 3))),
        ("shape.broadcast", lambda b, x: b.PRelu(x("f32", 1), x("f32", 3))),
        ("shape.broadcast", lambda b, x: b.PRelu(x("f32", 2), x("f32", 1, 2))),
    ],
    "Add": [
        ("shape.broadcast", lambda b, x: b.Add(x("f32", 2), x("f32", 3))),
        ("shape.disagree", lambda b, x: b.Add(x("f32", 2), x("f32", 1), broadcast=False)),
        ("shape.rank", lambda b, x: b.Add(x("f32", 2), x("f32", 1, 2), broadcast=False)),
        ("type.disagree", lambda b, x: b.Add(x("f32", 2), x("i64", 2))),
        ("type.class", lambda b, x: b.Add(x("u1", 2), x("u1", 2))),
        ("type.class", lambda b, x: b.Add(x("boolean", 2), x("boolean", 2))),
    ],
    "Sum": [
        ("node.inputs", lambda b, x: b.Sum()),
        ("shape.disagree", lambda b, x: b.Sum(x("f32", 2), x("f32", 1), broadcast=False)),
    ],
    "ArgMax": [
        ("shape.empty", lambda b, x: b.ArgMax(x("f32", 2, 0), axis=1)),
        ("axis.range", lambda b, x: b.ArgMax(x("f32", 2), axis=1)),
    ],
    "ReduceSum": [
        ("constant.needed", lambda b, x: b.ReduceSum(x("f32", 2), x("i64", 1, 1))),
        ("axis.range", lambda b, x: b.ReduceSum(x("f32", 2), [1])),
        ("axis.range", lambda b, x: b.ReduceSum(x("f32", 2), [-2])),
        ("axis.repeated", lambda b, x: b.ReduceSum(x("f32", 2), [0, -1])),
    ],
    "ReduceMax": [
        ("type.class", lambda b, x: b.ReduceMax(x("string", 2), [0])),
        ("type.class", lambda b, x: b.ReduceMax(x("complex64", 2), [0])),
    ],
    "CumSum": [
        ("shape.single", lambda b, x: b.CumSum(x("f32", 2), [0])),
        ("axis.range", lambda b, x: b.CumSum(x("f32", 2), np.int64(1))),
    ],
    "Softmax": [
        ("axis.range", lambda b, x: b.Softmax(x("f32", 2), axis=1)),
        ("axis.range", lambda b, x: b.Softmax(x("f32", 2), axis=-2)),
    ],
    "LogSoftmax": [
        ("axis.range", lambda b, x: b.LogSoftmax(x("f32", 2), axis=1)),
    ],
    "MatMul": [
        ("shape.rank", lambda b, x: b.MatMul(x("f32"), x("f32", 2))),
        ("shape.rank", lambda b, x: b.MatMul(x("f32", OPEN), x("f32"))),
        ("shape.disagree", lambda b, x: b.MatMul(x("f32", 2, 3), x("f32", 2, 3))),
        ("shape.disagree", lambda b, x: b.MatMul(x("f32", 3), x("f32", 2, 3))),
        ("shape.broadcast", lambda b, x: b.MatMul(x("f32", 2, 2, 3), x("f32", 3, 3, 2))),
    ],
    "Gemm": [
        ("shape.rank", lambda b, x: b.Gemm(x("f32", 2), x("f32", 2, 2))),
        ("shape.rank", lambda b, x: b.Gemm(x("f32", 2, 2), x("f32", 2, 2, 2))),
        ("attribute.conflict", lambda b, x: b.Gemm(x("i32", 2, 2), x("i32", 2, 2), alpha=0.5)),
        ("attribute.conflict", lambda b, x: b.Gemm(x("i32", 2, 2), x("i32", 2, 2), x("i32", 2), beta=0.5)),
        ("shape.rank", lambda b, x: b.Gemm(x("f32", 2, 2), x("f32", 2, 2), x("f32", 2), broadcast=False)),
        ("shape.broadcast", lambda b, x: b.Gemm(x("f32", 2, 2), x("f32", 2, 2), x("f32", 1, 2), broadcast=False)),
        ("shape.rank", lambda b, x: b.Gemm(x("f32", 2, 2), x("f32", 2, 2), x("f32", 1, 2, 2))),
        ("shape.broadcast", lambda b, x: b.Gemm(x("f32", 2, 2), x("f32", 2, 3), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.Gemm(x("f32", 2, 3), x("f32", 2, 3))),
    ],
    "Conv": [
        ("attribute.range", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), group=0)),
        ("shape.multiple", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 3, 1, 1), group=2)),
        ("shape.rank", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1, 1))),
        ("shape.rank", lambda b, x: b.Conv(x("f32", OPEN), x("f32", 2, 2))),
        ("attribute.length", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), kernel_shape=(1, 1))),
        ("shape.disagree", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), kernel_shape=(2,))),
        ("shape.rank", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), x("f32", 2, 1))),
        ("shape.disagree", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), x("f32", 3))),
        ("shape.disagree", lambda b, x: b.Conv(x("f32", 1, 3, 4), x("f32", 2, 2, 1))),
        ("shape.range", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 5))),
        ("attribute.value", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), auto_pad="same")),
        ("attribute.range", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), strides=(0,))),
        ("attribute.range", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), dilations=(0,))),
        ("attribute.conflict", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), pads=(1, 0), auto_pad="valid")),
        ("attribute.length", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), strides=(1, 1))),
        ("attribute.length", lambda b, x: b.Conv(x("f32", 1, 2, 4), x("f32", 2, 2, 1), pads=(1,))),
    ],
    "ConvTranspose": [
        ("shape.multiple", lambda b, x: b.ConvTranspose(x("f32", 1, 3, 4), x("f32", 3, 1, 1), group=2)),
        ("attribute.length", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 2, 2, 1), None, [4, 4])),
        ("shape.rank", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 2, 2, 1), None, x("i64"))),
        (
            "op.unsupported",
            lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 2, 2, 1), None, [9], auto_pad="same_upper"),
        ),
        ("shape.disagree", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 3, 2, 1))),
        ("shape.disagree", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 2, 3, 1), x("f32", 2))),
        ("shape.range", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 1), x("f32", 2, 2, 1), pads=(1, 1))),
        ("attribute.length", lambda b, x: b.ConvTranspose(x("f32", 1, 2, 4), x("f32", 2, 2, 1), output_padding=(0, 0))),
    ],
    "GroupConv": [
        ("type.unknown", lambda b, x: slope(b, b.GroupConv(x("f32", OPEN), x("f32", OPEN)))),
        ("op.unsayable", lambda b, x: saved(b, b.GroupConv(x("f32", OPEN), x("f32", OPEN)))),
    ],
    "MaxPool": [
        ("node.outputs", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2,), outputs=3)),
        ("node.outputs", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2,), outputs=0)),
        ("axis.range", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2,), outputs=2, axis=3)),
        ("axis.range", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2,), outputs=2, axis=-4)),
        ("attribute.range", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(0,))),
        ("shape.range", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(5,), rounding_type="ceil")),
        ("attribute.length", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2, 2))),
        ("shape.rank", lambda b, x: b.MaxPool(x("f32", 1, 4), kernel_shape=())),
        ("attribute.value", lambda b, x: b.MaxPool(x("f32", 1, 1, 4), kernel_shape=(2,), rounding_type="up")),
    ],
    "AveragePool": [
        ("attribute.value", lambda b, x: b.AveragePool(x("f32", 1, 1, 4), kernel_shape=(2,), divisor="all")),
    ],
    "LpPool": [
        ("attribute.range", lambda b, x: b.LpPool(x("f32", 1, 1, 4), kernel_shape=(2,), p=0)),
    ],
    "GlobalLpPool": [
        ("attribute.range", lambda b, x: b.GlobalLpPool(x("f32", 1, 1, 4), p=0)),
        ("shape.rank", lambda b, x: b.GlobalLpPool(x("f32", 1, 4))),
    ],
    "BatchNormalization": [
        ("node.outputs", lambda b, x: normalized(b, x, outputs=2)),
        ("node.outputs", lambda b, x: normalized(b, x, training_mode=True, outputs=4)),
        ("node.outputs", lambda b, x: normalized(b, x, outputs=0)),
        ("op.unsupported", lambda b, x: normalized(b, x, training_mode=True, spatial=False)),
        ("shape.rank", lambda b, x: b.BatchNormalization(x("f32"), *(x("f32", 1) for _ in range(4)))),
        ("shape.rank", lambda b, x: b.BatchNormalization(x("f32", 2, 3), x("f32", 1, 3), *(x("f32", 3) for _ in range(3)))),
        ("shape.disagree", lambda b, x: b.BatchNormalization(x("f32", 2, 3), *(x("f32", 3) for _ in range(3)), x("f32", 2))),
        ("shape.rank", lambda b, x: normalized(b, x, spatial=False)),
        ("shape.disagree", lambda b, x: b.BatchNormalization(x("f32", 2, 3), *(x("f32", 2) for _ in range(4)), spatial=False)),
    ],
    "MeanVarianceNormalization": [
        ("attribute.value", lambda b, x: b.MeanVarianceNormalization(x("f32", 2), [0], eps_mode="sum")),
        ("axis.range", lambda b, x: b.MeanVarianceNormalization(x("f32", 2), [1])),
    ],
    "LayerNormalization": [
        ("axis.range", lambda b, x: b.LayerNormalization(x("f32", 2), x("f32", 2), axis=1)),
        ("shape.broadcast", lambda b, x: b.LayerNormalization(x("f32", 2), x("f32", 1, 2))),
        ("shape.broadcast", lambda b, x: b.LayerNormalization(x("f32", 2), x("f32", 3))),
        ("shape.broadcast", lambda b, x: b.LayerNormalization(x("f32", 2), x("f32", 2), x("f32", 3))),
    ],
    "GroupNormalization": [
        ("attribute.range", lambda b, x: b.GroupNormalization(x("f32", 1, 2, 2), x("f32", 2), x("f32", 2), num_groups=0)),
        ("shape.multiple", lambda b, x: b.GroupNormalization(x("f32", 1, 3, 2), x("f32", 3), x("f32", 3), num_groups=2)),
        ("shape.rank", lambda b, x: b.GroupNormalization(x("f32", 1), x("f32", 1), x("f32", 1))),
        ("shape.disagree", lambda b, x: b.GroupNormalization(x("f32", 1, 4, 2), x("f32", 2), x("f32", 4), num_groups=2)),
        (
            "shape.disagree",
            lambda b, x: b.GroupNormalization(x("f32", 1, 4), x("f32", 4), x("f32", 4), num_groups=2, per_group=True),
        ),
    ],
    "LRN": [
        ("attribute.range", lambda b, x: b.LRN(x("f32", 1, 2, 2), size=0)),
        ("axis.range", lambda b, x: b.LRN(x("f32", 1), size=1)),
    ],
    "NormalizeL2": [
        ("attribute.value", lambda b, x: b.NormalizeL2(x("f32", 1), [0], eps=1e-3, eps_mode="min")),
        ("axis.range", lambda b, x: b.NormalizeL2(x("f32", 1), [1], eps=1e-3)),
    ],
    "LpNormalization": [
        ("attribute.range", lambda b, x: b.LpNormalization(x("f32", 1), p=3)),
        ("axis.range", lambda b, x: b.LpNormalization(x("f32", 1), axis=1)),
    ],
    "Resize": [
        ("attribute.value", lambda b, x: b.Resize(x("f32", 2), [4], mode="area")),
        ("attribute.value", lambda b, x: b.Resize(x("f32", 2), [4], coordinate_transformation_mode="half")),
        ("attribute.value", lambda b, x: b.Resize(x("f32", 2), [4], nearest_mode="round")),
        ("attribute.value", lambda b, x: b.Resize(x("f32", 2), [4], keep_aspect_ratio_policy="keep")),
        ("attribute.conflict", lambda b, x: b.Resize(x("f32", 2), [4], antialias=True)),
        ("attribute.conflict", lambda b, x: b.Resize(x("f32", 2), [4], mode="linear", narrow=True)),
        ("attribute.conflict", lambda b, x: b.Resize(x("f32", 2))),
        ("attribute.conflict", lambda b, x: b.Resize(x("f32", 2), [4], np.float32([2]))),
        ("attribute.conflict", lambda b, x: b.Resize(x("boolean", 2), [4], mode="linear")),
        ("shape.rank", lambda b, x: b.Resize(x("f32", 2), x("i64", 1, 1))),
        ("attribute.length", lambda b, x: b.Resize(x("f32", 2), [4, 4])),
        ("attribute.length", lambda b, x: b.Resize(x("f32", 2, 2), [4, 4], axes=(1,))),
        ("attribute.length", lambda b, x: b.Resize(x("f32", 2), None, np.float32([2, 2]))),
        (
            "attribute.length",
            lambda b, x: b.Resize(
                x("f32", 2), [4], None, np.float32([0]), coordinate_transformation_mode="tf_crop_and_resize", mode="linear"
            ),
        ),
        ("shape.range", lambda b, x: b.Resize(x("f32", 2), [-1])),
        (
            "attribute.conflict",
            lambda b, x: b.Resize(x("f32", 2), [4], coordinate_transformation_mode="tf_crop_and_resize", mode="linear"),
        ),
        ("attribute.range", lambda b, x: b.Resize(x("f32", 2), None, np.float32([0]))),
        ("attribute.range", lambda b, x: b.Resize(x("f32", 2), None, np.float32([-1]))),
        ("attribute.range", lambda b, x: b.Resize(x("f32", 2), None, np.float32([np.inf]))),
        ("axis.range", lambda b, x: b.Resize(x("f32", 2), [4], axes=(1,))),
    ],
    "QuantizeLinear": [
        ("shape.single", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32", 3))),
        ("shape.rank", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32", 2, 3), axis=1)),
        ("op.unsupported", lambda b, x: b.QuantizeLinear(x("i32", 2, 3), x("i32"))),
        ("quantize.type", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32"), x("i32"))),
        ("quantize.type", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32"), x("i8"), output_dtype=dtypes.u8)),
        ("attribute.range", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32", 2, 3), block_size=-1)),
        ("attribute.conflict", lambda b, x: b.QuantizeLinear(x("f32", 2, 3), x("f32", 2, 3), block_size=2)),
        ("shape.rank", lambda b, x: b.QuantizeLinear(x("f32", 2, 4), x("f32", 2), axis=1, block_size=2)),
        ("shape.disagree", lambda b, x: b.QuantizeLinear(x("f32", 2, 4), x("f32", 2, 3), axis=1, block_size=2)),
        ("shape.disagree", lambda b, x: b.QuantizeLinear(x("f32", 2, 4), x("f32", 3), axis=1)),
        ("shape.disagree", lambda b, x: b.QuantizeLinear(x("f32", 2, 4), x("f32", 4), x("u8", 3), axis=1)),
        ("axis.range", lambda b, x: b.QuantizeLinear(x("f32", 2, 4), x("f32", 4), axis=2)),
        ("type.unknown", lambda b, x: saved(b, b.QuantizeLinear(x("f32", 2, 4), x("f64", OPEN), axis=1))),
    ],
    "DequantizeLinear": [
        ("quantize.type", lambda b, x: b.DequantizeLinear(x("i64", 2), x("f32"))),
        ("quantize.type", lambda b, x: b.DequantizeLinear(x("i8", 2), x("f32"), output_dtype=dtypes.i32)),
        ("type.disagree", lambda b, x: b.DequantizeLinear(x("i8", 2), x("f32"), x("u8"))),
    ],
    "MatMulInteger": [
        ("quantize.type", lambda b, x: b.MatMulInteger(x("i16", 2, 3), x("i8", 3, 2))),
        ("shape.rank", lambda b, x: b.MatMulInteger(x("i8"), x("i8", 3, 2))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 2, 3), x("i8", 2, 2))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 2, 3), x("i8", 3, 2), x("i8", 3))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 2, 3), x("i8", 3, 2), None, x("i8", 3))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 2, 3), x("i8", 3, 2), x("i8", 2, 3))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 4, 2, 3), x("i8", 3, 2), x("i8", 2))),
        ("shape.disagree", lambda b, x: b.MatMulInteger(x("i8", 3), x("i8", 3), x("i8", 3))),
    ],
    "ConvInteger": [
        ("quantize.type", lambda b, x: b.ConvInteger(x("i32", 1, 2, 3), x("i8", 2, 2, 3))),
        ("shape.single", lambda b, x: b.ConvInteger(x("i8", 1, 2, 3), x("i8", 2, 2, 3), x("i8", 2))),
        ("shape.disagree", lambda b, x: b.ConvInteger(x("i8", 1, 2, 3), x("i8", 2, 2, 3), None, x("i8", 2, 1))),
        ("shape.disagree", lambda b, x: b.ConvInteger(x("i8", 1, 2, 3), x("i8", 2, 2, 3), None, x("i8", 3))),
    ],
    "QLinearMatMul": [
        ("op.unsupported", lambda b, x: b.QLinearMatMul(*_factors(x, "f8e4m3"))),
        ("shape.single", lambda b, x: b.QLinearMatMul(*_factors(x, "i8", z=(2,)))),
    ],
    "QGemm": [
        ("attribute.conflict", lambda b, x: b.QGemm(*_factors(x, "i8")[:6], x("i32", 2), x("f32"))),
        ("shape.disagree", lambda b, x: b.QGemm(*_factors(x, "i8")[:4], x("f32", 3, 2), x("i8"))),
        ("shape.disagree", lambda b, x: b.QGemm(*_factors(x, "i8")[:4], x("f32", 3), x("i8"))),
        ("shape.rank", lambda b, x: b.QGemm(x("i8", 1, 2, 3), *_factors(x, "i8")[1:6])),
    ],
    "MatMulIntegerToFloat": [
        (
            "shape.rank",
            lambda b, x: b.MatMulIntegerToFloat(x("i8", 2, 3), x("i8", 3, 2), x("f32"), x("f32"), None, None, x("f32", 1, 2)),
        ),
    ],
    "QLinearConcat": [
        ("node.inputs", lambda b, x: b.QLinearConcat(x("f32"), x("i8"), x("i8", 2), x("f32"), axis=0)),
        ("quantize.type", lambda b, x: b.QLinearConcat(x("f32"), x("i8"), x("i8", 2), x("f32"), x("u8"), axis=0)),
        ("quantize.type", lambda b, x: b.QLinearConcat(x("f32"), x("i8"), x("i16", 2), x("f32"), x("i16"), axis=0)),
        ("shape.single", lambda b, x: b.QLinearConcat(x("f32"), x("i8"), x("i8", 2), x("f32", 2), x("i8"), axis=0)),
    ],
    "QLinearAdd": [
        ("shape.single", lambda b, x: b.QLinearAdd(x("i8", 2), x("f32", 2), None, x("i8", 2), x("f32"), None, x("f32"))),
        ("shape.single", lambda b, x: b.QLinearAdd(x("i8", 2), x("f32"), x("i8", 2), x("i8", 2), x("f32"), None, x("f32"))),
    ],
    "QLinearAveragePool": [
        (
            "op.unsupported",
            lambda b, x: b.QLinearAveragePool(x("i8", 1, 2, 3), x("f32"), None, x("f32"), kernel_shape=(2,), channels_last=True),
        ),
    ],
    "QLinearGlobalAveragePool": [
        ("shape.rank", lambda b, x: b.QLinearGlobalAveragePool(x("i8", 1, 2), x("f32"), x("i8"), x("f32"), x("i8"))),
    ],
    "MatMulNBits": [
        ("attribute.range", lambda b, x: _bits(b, x, bits=3)),
        ("attribute.range", lambda b, x: _bits(b, x, block_size=8)),
        ("attribute.range", lambda b, x: _bits(b, x, block_size=48)),
        ("attribute.range", lambda b, x: _bits(b, x, k=0)),
        ("op.unsupported", lambda b, x: _bits(b, x, prepacked=True)),
        ("shape.disagree", lambda b, x: _bits(b, x, None, x("i32", 71))),
        ("shape.disagree", lambda b, x: _bits(b, x, None, x("i32", 1, 70))),
        ("shape.disagree", lambda b, x: _bits(b, x, x("u8", 5, 2, 1))),
        ("shape.disagree", lambda b, x: _bits(b, x, x("u8", 5, 3))),
        ("shape.disagree", lambda b, x: _bits(b, x, None, None, x("f32", 4))),
        ("quantize.type", lambda b, x: _bits(b, x, x("i8", 5, 2))),
    ],
    "GatherBlockQuantized": [
        ("attribute.range", lambda b, x: _table(b, x, "u8", bits=3)),
        ("attribute.range", lambda b, x: _table(b, x, "u8", block_size=8)),
        ("attribute.range", lambda b, x: _table(b, x, "u4", block_size=0)),
        ("attribute.conflict", lambda b, x: _table(b, x, "u8", gather_axis=1)),
        ("attribute.conflict", lambda b, x: _table(b, x, "u8", quantize_axis=0)),
        ("attribute.conflict", lambda b, x: _table(b, x, "f8e5m2", x("f8e5m2", 5, 3))),
        ("quantize.type", lambda b, x: _table(b, x, "i8")),
        ("shape.rank", lambda b, x: b.GatherBlockQuantized(x("u4"), x("i64", 2), x("f32"), block_size=16)),
        ("shape.rank", lambda b, x: b.GatherBlockQuantized(x("u4", 5, 16), x("i64", 2), x("f32", 5), block_size=16)),
        ("shape.rank", lambda b, x: _table(b, x, "u4", x("u4", 5))),
        ("shape.disagree", lambda b, x: _table(b, x, "u4", x("u4", 5, 2))),
        ("shape.disagree", lambda b, x: _table(b, x, "u8", x("u8", 5, 3))),
        ("shape.disagree", lambda b, x: b.GatherBlockQuantized(x("u4", 5, 16), x("i64", 2), x("f32", 1, 1), block_size=16)),
    ],
    "FakeQuantize": [
        ("attribute.range", lambda b, x: b.FakeQuantize(x("f32", 2), *[x("f32")] * 4, levels=1)),
        ("shape.broadcast", lambda b, x: b.FakeQuantize(x("f32", 2), *[x("f32", 1, 1)] * 4, levels=2)),
        ("shape.broadcast", lambda b, x: b.FakeQuantize(x("f32", 1, 3), *[x("f32", 2, 1)] * 4, levels=2)),
        ("shape.disagree", lambda b, x: b.FakeQuantize(x("f32", 3), *[x("f32", 1)] * 4, levels=2, broadcast=False)),
    ],
    "RoiAlign": [
        ("attribute.range", lambda b, x: b.RoiAlign(*_regions(x), output_height=0)),
        ("attribute.range", lambda b, x: b.RoiAlign(*_regions(x), output_width=0)),
        ("attribute.range", lambda b, x: b.RoiAlign(*_regions(x), sampling_ratio=-1)),
        ("attribute.value", lambda b, x: b.RoiAlign(*_regions(x), mode="median")),
        ("attribute.value", lambda b, x: b.RoiAlign(*_regions(x), aligned_mode="pixel")),
        ("shape.rank", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3), x("f32", 5, 4), x("i64", 5))),
        ("shape.rank", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3, 4), x("f32", 5), x("i64", 5))),
        ("shape.rank", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3, 4), x("f32", 5, 4), x("i64", 5, 1))),
        ("shape.disagree", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3, 4), x("f32", 5, 5), x("i64", 5))),
        ("shape.disagree", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3, 4), x("f32", 5, 4), x("i64", 4))),
        ("type.disagree", lambda b, x: b.RoiAlign(x("f32", 1, 2, 3, 4), x("f64", 5, 4), x("i64", 5))),
        ("shape.disagree", lambda b, x: b.RoiAlignRotated(x("f32", 1, 2, 3, 4), x("f32", 5, 4), x("i64", 5))),
    ],
    "PriorBox": [
        ("attribute.length", lambda b, x: b.PriorBox([2, 2], [8, 8], variance=(1.0, 2.0))),
        ("attribute.length", lambda b, x: b.PriorBox([2, 2], [8, 8], fixed_size=(1.0,))),
        ("attribute.range", lambda b, x: b.PriorBox([2, 2], [8, 8], fixed_size=(1.0,), density=(0.0,))),
        ("op.unsupported", lambda b, x: b.PriorBox([2, 2], [8, 8], fixed_size=(1.0,), density=(1.0,), min_size=(1.0,))),
        ("op.unsupported", lambda b, x: b.PriorBox([2, 2], [8, 8], min_size=(1.0,), max_size=(2.0,), scale_all_sizes=False)),
        ("shape.disagree", lambda b, x: b.PriorBox([2, 2, 2], [8, 8])),
        ("shape.rank", lambda b, x: b.PriorBox([2, 2], x("i64", 1, 2))),
    ],
    "PriorBoxClustered": [
        ("attribute.length", lambda b, x: b.PriorBoxClustered([2, 2], [8, 8], variance=(1.0, 2.0))),
        ("attribute.length", lambda b, x: b.PriorBoxClustered([2, 2], [8, 8], width=(1.0, 2.0))),
    ],
    "GatherTree": [
        ("shape.rank", lambda b, x: b.GatherTree(x("i32", 2, 3), x("i32", 2, 3), x("i32", 3), x("i32"))),
        ("shape.rank", lambda b, x: b.GatherTree(*[x("i32", 2, 3, 4)] * 2, x("i32", 3, 1), x("i32"))),
        ("shape.rank", lambda b, x: b.GatherTree(*[x("i32", 2, 3, 4)] * 2, x("i32", 3), x("i32", 1))),
        ("type.unknown", lambda b, x: saved(b, b.GatherTree(*[x("i32", "n", 3, 4)] * 2, x("i32", 3), x("i32")))),
        ("shape.disagree", lambda b, x: b.GatherTree(*[x("i32", 2, 3, 4)] * 2, x("i32", 2), x("i32"))),
    ],
    "DetectionOutput": [
        ("attribute.value", lambda b, x: b.DetectionOutput(*_found(x), code_type="corner")),
        ("attribute.length", lambda b, x: b.DetectionOutput(*_found(x), keep_top_k=(1, 2))),
        ("shape.rank", lambda b, x: b.DetectionOutput(x("f32", 1, 8, 1), *_found(x)[1:])),
        ("shape.multiple", lambda b, x: b.DetectionOutput(*_found(x))),
        ("shape.multiple", lambda b, x: b.DetectionOutput(*_found(x, 7), normalized=True)),
        ("shape.disagree", lambda b, x: b.DetectionOutput(*_found(x, 6, 9), normalized=True)),
        ("shape.multiple", lambda b, x: b.DetectionOutput(*_found(x), normalized=True, num_classes=4)),
        ("type.unknown", lambda b, x: saved(b, b.DetectionOutput(*_found(x, 6, 8, "n"), normalized=True))),
    ],
    "GroupedMatMul": [
        ("shape.rank", lambda b, x: b.GroupedMatMul(x("f32", 2, 3, 4), x("f32", 5, 4))),
        ("shape.rank", lambda b, x: b.GroupedMatMul(x("f32", 6, 4), x("f32", 2, 5, 4))),
        ("shape.rank", lambda b, x: b.GroupedMatMul(x("f32", 2, 3, 4), x("f32", 2, 5, 4), x("i32", 2))),
        ("shape.rank", lambda b, x: b.GroupedMatMul(x("f32", 6, 4), x("f32", 2, 5, 4), x("i32", 2, 1))),
        ("shape.disagree", lambda b, x: b.GroupedMatMul(x("f32", 6, 4), x("f32", 2, 4, 5), x("i32", 2))),
        ("shape.disagree", lambda b, x: b.GroupedMatMul(x("f32", 6, 4), x("f32", 2, 5, 4), x("i32", 3))),
        ("shape.disagree", lambda b, x: b.GroupedMatMul(x("f32", 3, 3, 4), x("f32", 2, 5, 4))),
    ],
    "NMSRotated": [
        ("attribute.value", lambda b, x: _nms_rotated(b, x, output_type=dtypes.i8)),
        ("shape.rank", lambda b, x: _nms_rotated(b, x, boxes=(3, 5))),
        ("shape.rank", lambda b, x: _nms_rotated(b, x, scores=(1, 3))),
        ("shape.disagree", lambda b, x: _nms_rotated(b, x, boxes=(1, 3, 4))),
        ("shape.single", lambda b, x: _nms_rotated(b, x, limit=(2,))),
        ("shape.disagree", lambda b, x: _nms_rotated(b, x, boxes=(1, 4, 5))),
        ("shape.disagree", lambda b, x: _nms_rotated(b, x, boxes=(2, 3, 5))),
    ],
    "MulticlassNms": [
        ("attribute.value", lambda b, x: b.MulticlassNms(x("f32", 1, 3, 4), x("f32", 1, 2, 3), sort_result_type="class")),
        ("attribute.value", lambda b, x: b.MulticlassNms(x("f32", 1, 3, 4), x("f32", 1, 2, 3), output_type=dtypes.i8)),
        ("shape.rank", lambda b, x: b.MulticlassNms(x("f32", 3, 4), x("f32", 1, 2, 3))),
        ("shape.disagree", lambda b, x: b.MulticlassNms(x("f32", 1, 3, 5), x("f32", 1, 2, 3))),
        ("shape.disagree", lambda b, x: b.MulticlassNms(x("f32", 1, 4, 4), x("f32", 1, 2, 3))),
        ("op.unsupported", lambda b, x: saved(b, b.MulticlassNms(x("f32", 1, 3, 4), x("f32", 1, 2, 3), nms_eta=0.5)[0])),
        ("type.unknown", lambda b, x: saved(b, b.MulticlassNms(x("f32", "n", 3, 4), x("f32", "n", 2, 3))[0])),
    ],
    "MatrixNms": [
        ("attribute.value", lambda b, x: b.MatrixNms(x("f32", 1, 3, 4), x("f32", 1, 2, 3), decay_function="cubic")),
        ("shape.disagree", lambda b, x: b.MatrixNms(x("f32", 2, 3, 4), x("f32", 1, 2, 3))),
    ],
    "CTCLoss": [
        ("shape.rank", lambda b, x: b.CTCLoss(x("f32", 2, 3), x("i32", 2), x("i32", 2, 3), x("i32", 2))),
        ("shape.rank", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2, 1), x("i32", 2, 3), x("i32", 2))),
        ("shape.rank", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2), x("i32", 2), x("i32", 2))),
        ("shape.rank", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2), x("i32", 2, 3), x("i32", 2, 1))),
        ("shape.rank", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2), x("i32", 2, 3), x("i32", 2), x("i32", 2))),
        ("shape.disagree", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2), x("i32", 2, 4), x("i32", 2))),
        ("shape.disagree", lambda b, x: b.CTCLoss(x("f32", 2, 3, 4), x("i32", 2), x("i32", 2, 3), x("i32", 3))),
        ("type.unknown", lambda b, x: saved(b, b.CTCLoss(x("f32", 2, "t", 4), x("i32", 2), x("i32", 2, "t"), x("i32", 2)))),
    ],
    "Proposal": [
        ("attribute.value", lambda b, x: _proposed(b, x, framework="torch")),
        ("attribute.range", lambda b, x: _proposed(b, x, post_nms_topn=0)),
        ("shape.disagree", lambda b, x: _proposed(b, x, scale=(1.0, 2.0))),
        ("shape.rank", lambda b, x: _proposed(b, x, image_shape=(2,))),
        ("shape.disagree", lambda b, x: _proposed(b, x, deltas=(1, 4, 3, 2))),
        ("node.outputs", lambda b, x: _proposed(b, x, outputs=3)),
        ("op.unsayable", lambda b, x: saved(b, _proposed(b, x)[0])),
    ],
    "AdaptiveAveragePool": [
        ("shape.rank", lambda b, x: b.AdaptiveAveragePool(x("f32", 2, 3), [1])),
        ("attribute.length", lambda b, x: b.AdaptiveAveragePool(x("f32", 2, 3, 4), [1, 1])),
        ("shape.range", lambda b, x: b.AdaptiveAveragePool(x("f32", 2, 3, 4), [0])),
        ("shape.rank", lambda b, x: b.AdaptiveAveragePool(x("f32", 2, 3, 4), x("i64", 1, 1))),
        ("type.unknown", lambda b, x: saved(b, b.AdaptiveAveragePool(x("f32", 2, 3, 4), x("i64", 1)))),
        ("attribute.value", lambda b, x: b.AdaptiveMaxPool(x("f32", 2, 3, 4), [1], index_element_type=dtypes.i8)),
    ],
    "RoiPool": [
        ("attribute.range", lambda b, x: b.RoiPool(x("f32", 1, 2, 3, 4), x("f32", 5, 5), pooled_shape=(1,))),
        ("attribute.range", lambda b, x: b.RoiPool(x("f32", 1, 2, 3, 4), x("f32", 5, 5), pooled_shape=(1, 0))),
        ("attribute.value", lambda b, x: b.RoiPool(x("f32", 1, 2, 3, 4), x("f32", 5, 5), pooled_shape=(1, 1), method="mean")),
        ("shape.rank", lambda b, x: b.RoiPool(x("f32", 1, 2, 3), x("f32", 5, 5), pooled_shape=(1, 1))),
        ("shape.disagree", lambda b, x: b.RoiPool(x("f32", 1, 2, 3, 4), x("f32", 5, 4), pooled_shape=(1, 1))),
    ],
    "PSROIPooling": [
        ("attribute.range", lambda b, x: _binned(b, x, output_dim=0)),
        ("attribute.range", lambda b, x: _binned(b, x, mode="bilinear", spatial_bins_y=0)),
        ("attribute.value", lambda b, x: _binned(b, x, mode="max")),
        ("shape.disagree", lambda b, x: _binned(b, x, group_size=1)),
        ("shape.disagree", lambda b, x: _binned(b, x, mode="bilinear", spatial_bins_y=2)),
    ],
    "DeformablePSROIPooling": [
        ("attribute.range", lambda b, x: _deformed_bins(b, x, part_size=0)),
        ("shape.disagree", lambda b, x: _deformed_bins(b, x, part_size=2)),
        ("attribute.value", lambda b, x: _deformed_bins(b, x, mode="max")),
        ("shape.multiple", lambda b, x: _deformed_bins(b, x, 3)),
        ("shape.multiple", lambda b, x: _deformed_bins(b, x, 6)),
        ("shape.disagree", lambda b, x: _deformed_bins(b, x, group_size=1)),
    ],
    "AffineGrid": [
        ("shape.rank", lambda b, x: b.AffineGrid(x("f32", 2, 3), [1, 1, 2, 2])),
        ("attribute.length", lambda b, x: b.AffineGrid(x("f32", 1, 2, 3), [1, 1, 2])),
        ("shape.disagree", lambda b, x: b.AffineGrid(x("f32", 1, 2, 2), [1, 1, 2, 2])),
        ("shape.disagree", lambda b, x: b.AffineGrid(x("f32", 1, 2, 3), [1, 1, 2, 2, 2])),
        ("shape.disagree", lambda b, x: b.AffineGrid(x("f32", 2, 2, 3), [1, 1, 2, 2])),
        ("shape.rank", lambda b, x: b.AffineGrid(x("f32", 1, 2, 3), x("i64", 1, 4))),
    ],
    "Unique": [
        ("attribute.value", lambda b, x: b.Unique(x("f32", 3), index_element_type=dtypes.i8)),
        ("attribute.value", lambda b, x: b.Unique(x("f32", 3), count_element_type=dtypes.f32)),
        ("axis.range", lambda b, x: b.Unique(x("f32", 3), axis=1)),
        ("node.outputs", lambda b, x: b.Unique(x("f32", 3), outputs=5)),
    ],
    "SearchSorted": [
        ("attribute.value", lambda b, x: b.SearchSorted(x("f32", 3), x("f32", 2), output_type=dtypes.i8)),
        ("shape.rank", lambda b, x: b.SearchSorted(x("f32"), x("f32", 2))),
        ("shape.rank", lambda b, x: b.SearchSorted(x("f32", 2, 3), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.SearchSorted(x("f32", 2, 3), x("f32", 3, 3))),
    ],
    "Col2Im": [
        ("shape.rank", lambda b, x: b.Col2Im(x("f32", 1, 1, 4, 4), [3, 3], [2, 2])),
        ("shape.disagree", lambda b, x: b.Col2Im(x("f32", 1, 4, 5), [3, 3], [2, 2])),
        ("shape.multiple", lambda b, x: b.Col2Im(x("f32", 1, 5, 4), [3, 3], [2, 2])),
        ("shape.disagree", lambda b, x: b.Col2Im(x("f32", 1, 4, 4), [3, 3], [2, 2, 1])),
        ("attribute.length", lambda b, x: b.Col2Im(x("f32", 1, 4, 4), [3, 3], [2, 2], strides=(1,))),
        ("shape.range", lambda b, x: b.Col2Im(x("f32", 1, 4, 4), [1, 3], [2, 2])),
        ("shape.rank", lambda b, x: b.Col2Im(x("f32", 1, 4, 4), x("i64", 1, 2), [2, 2])),
    ],
    "MaxUnpool": [
        ("attribute.length", lambda b, x: b.MaxUnpool(x("f32", 1, 1, 2, 2), x("i64", 1, 1, 2, 2), kernel_shape=(2,))),
        ("shape.disagree", lambda b, x: b.MaxUnpool(x("f32", 1, 1, 2), x("i64", 1, 1, 3), kernel_shape=(2,))),
        ("shape.range", lambda b, x: b.MaxUnpool(x("f32", 1, 1, 2), x("i64", 1, 1, 2), [1, 1, 2], kernel_shape=(2,))),
        ("shape.rank", lambda b, x: b.MaxUnpool(x("f32", 1, 1, 2), x("i64", 1, 1, 2), [1, 4], kernel_shape=(2,))),
    ],
    "DeformConv": [
        ("attribute.range", lambda b, x: _deformed(b, x, offset_group=0)),
        ("shape.multiple", lambda b, x: _deformed(b, x, offset_group=3)),
        ("shape.disagree", lambda b, x: _deformed(b, x, group=2)),
        ("shape.disagree", lambda b, x: _deformed(b, x, 9)),
        ("shape.disagree", lambda b, x: _deformed(b, x, 8, (3, 4))),
        ("shape.rank", lambda b, x: _deformed(b, x, 8, (4,))),
        ("shape.disagree", lambda b, x: _deformed(b, x, 8, (4, 4), 5)),
    ],
    "Det": [
        ("shape.rank", lambda b, x: b.Det(x("f32", 2))),
        ("shape.disagree", lambda b, x: b.Det(x("f32", 2, 3))),
    ],
    "Inverse": [
        ("shape.rank", lambda b, x: b.Inverse(x("f32", 2))),
        ("shape.disagree", lambda b, x: b.Inverse(x("f32", 2, 3))),
    ],
    "STFT": [
        ("shape.rank", lambda b, x: b.STFT(x("f32", 9), b.constant(2), x("f32", 4))),
        ("shape.disagree", lambda b, x: b.STFT(x("f32", 2, 9, 3), b.constant(2), x("f32", 4), onesided=False)),
        ("shape.disagree", lambda b, x: b.STFT(x("f32", 2, 9, 2), b.constant(2), x("f32", 4))),
        ("attribute.range", lambda b, x: b.STFT(x("f32", 2, 9, 1), b.constant(0), x("f32", 4))),
        ("attribute.range", lambda b, x: b.STFT(x("f32", 2, 9, 1), b.constant(2), x("f32", 10))),
        ("attribute.range", lambda b, x: b.STFT(x("f32", 2, 9, 1), b.constant(2), None, b.constant(0))),
        ("shape.rank", lambda b, x: b.STFT(x("f32", 2, 9, 1), b.constant(2), x("f32", 4, 1))),
        ("shape.disagree", lambda b, x: b.STFT(x("f32", 2, 9, 1), b.constant(2), x("f32", 4), b.constant(5))),
        ("shape.rank", lambda b, x: b.STFT(x("f32", 2, 9, 1), x("i64", 2), x("f32", 4))),
    ],
    "ISTFT": [
        ("shape.rank", lambda b, x: b.ISTFT(x("f32", 9, 2), x("f32", 4), b.constant(4), b.constant(2))),
        ("shape.disagree", lambda b, x: b.ISTFT(x("f32", 3, 9, 1), x("f32", 4), b.constant(4), b.constant(2))),
        ("shape.disagree", lambda b, x: b.ISTFT(x("f32", 3, 9, 2), x("f32", 5), b.constant(4), b.constant(2))),
        ("shape.rank", lambda b, x: b.ISTFT(x("f32", 3, 9, 2), x("f32", 5, 1), b.constant(4), b.constant(2))),
        ("attribute.range", lambda b, x: b.ISTFT(x("f32", 3, 9, 2), x("f32", 4), b.constant(4), b.constant(0))),
        ("attribute.range", lambda b, x: b.ISTFT(x("f32", 3, 9, 2), x("f32", 4), b.constant(0), b.constant(2))),
        ("shape.disagree", lambda b, x: b.ISTFT(x("f32", 4, 9, 2), x("f32", 4), b.constant(4), b.constant(2))),
    ],
    "MelWeightMatrix": [
        ("type.class", lambda b, x: b.MelWeightMatrix(*[b.constant(8)] * 3, x("f32"), x("f32"), output_datatype=dtypes.boolean)),
        ("shape.rank", lambda b, x: b.MelWeightMatrix(*[b.constant(8)] * 3, x("f32", 2), x("f32"))),
        ("shape.rank", lambda b, x: b.MelWeightMatrix(x("i64", 2), *[b.constant(8)] * 2, x("f32"), x("f32"))),
    ],
    "windows": [
        ("constant.needed", lambda b, x: moved(b, b.Transpose(x("f32", 2, 2), x("i64", 2)))),
        ("constant.needed", lambda b, x: moved(b, b.Tile(x("f32", 2, 2), x("i64", 2)))),
        ("constant.needed", lambda b, x: moved(b, b.Roll(x("f32", 2), [1], x("i64", 1)))),
        ("constant.needed", lambda b, x: moved(b, b.Pad(x("f32", 2), [1, 1], x("f32")))),
    ],
    "written": [
        ("constant.needed", lambda b, x: saved(b, b.Roll(x("f32", 2), [1], x("i64", 1)))),
        ("constant.needed", lambda b, x: saved(b, b.Roll(x("f32", OPEN), [1], [0]))),
    ],
    "Attention": [
        ("shape.rank", lambda b, x: b.Attention(*(x("f32", 2, 3) for _ in range(3)))),
        ("shape.rank", lambda b, x: b.Attention(x("f32", 2, 3, 4), x("f32", 2, 1, 3, 4), x("f32", 2, 1, 3, 4))),
        ("attention.heads", lambda b, x: b.Attention(*(x("f32", 2, 3, 4) for _ in range(3)))),
        ("attention.heads", lambda b, x: b.Attention(*(x("f32", 2, 3, 4) for _ in range(3)), q_num_heads=3, kv_num_heads=3)),
        ("attention.heads", lambda b, x: b.Attention(x("f32", 2, 3, 4, 4), x("f32", 2, 2, 4, 4), x("f32", 2, 2, 4, 4))),
        ("attention.heads", lambda b, x: b.Attention(*(x("f32", 2, 3, 4) for _ in range(3)), q_num_heads=0, kv_num_heads=1)),
        ("shape.disagree", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), q_num_heads=2)),
        ("shape.disagree", lambda b, x: b.Attention(x("f32", 2, 3, 4, 4), x("f32", 2, 3, 4, 5), x("f32", 2, 3, 4, 5))),
        ("shape.disagree", lambda b, x: b.Attention(x("f32", 2, 3, 4, 4), x("f32", 2, 3, 4, 4), x("f32", 2, 3, 5, 4))),
        ("attribute.conflict", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), None, x("f32", 2, 3, 1, 4))),
        ("shape.rank", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), None, *[x("f32", 2, 3, 4)] * 2)),
        (
            "attribute.conflict",
            lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), None, *[x("f32", 2, 3, 1, 4)] * 2, x("i64", 2)),
        ),
        (
            "shape.rank",
            lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), None, None, None, x("i64", 2, 1)),
        ),
        ("attribute.conflict", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), x("i64", 4, 4))),
        ("shape.broadcast", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), x("boolean", 4, 3))),
        (
            "shape.broadcast",
            lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), x("boolean", 4, 5), short_mask=True),
        ),
        ("shape.rank", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), x("boolean", 1, 1, 1, 4, 4))),
        ("attribute.value", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), qk_matmul_output_mode="all")),
        ("attribute.range", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), left_window_size=-2)),
        ("attribute.range", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), softcap=-1.0)),
        (
            "attribute.value",
            lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), softmax_precision=dtypes.i32),
        ),
        ("node.outputs", lambda b, x: b.Attention(*(x("f32", 2, 3, 4, 4) for _ in range(3)), outputs=5)),
        ("type.disagree", lambda b, x: b.Attention(x("f32", 2, 3, 4, 4), x("f16", 2, 3, 4, 4), x("f32", 2, 3, 4, 4))),
    ],
    "ScaledDotProductAttention": [
        ("shape.rank", lambda b, x: b.ScaledDotProductAttention(*[x("f32", 2, 4, 8)] * 3, None, None, x("f32", 4, 1))),
        ("shape.rank", lambda b, x: b.ScaledDotProductAttention(*[x("f32", 2, 4, 8)] * 3, None, None, x("f32", 2, 4, 2))),
        ("shape.disagree", lambda b, x: b.ScaledDotProductAttention(*[x("f32", 2, 4, 8)] * 3, None, None, x("f32", 2, 3, 1))),
        ("shape.rank", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 3) for _ in range(3)))),
        ("shape.rank", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 3, 4) for _ in range(3)), x("f32", 3))),
        ("attribute.conflict", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 3, 4) for _ in range(3)), x("f16", 3, 3))),
        ("shape.broadcast", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 3, 4) for _ in range(3)), x("f32", 3, 2))),
        ("shape.disagree", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 1, 4) for _ in range(3)), x("f32", 1, 2))),
        ("shape.single", lambda b, x: b.ScaledDotProductAttention(*(x("f32", 2, 3, 4) for _ in range(3)), None, x("f32", 2))),
        ("shape.broadcast", lambda b, x: b.ScaledDotProductAttention(x("f32", 2, 3, 4), x("f32", 3, 3, 4), x("f32", 2, 3, 4))),
    ],
    "TensorScatter": [
        ("attribute.value", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 1, 3), mode="round")),
        ("axis.range", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 1, 3), axis=0)),
        ("shape.disagree", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 5, 3))),
        ("shape.rank", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 1, 3), x("i64", 2, 1))),
        ("shape.disagree", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 1, 4))),
        ("shape.disagree", lambda b, x: b.TensorScatter(x("f32", 2, 4, 3), x("f32", 2, 1, 3), x("i64", 3))),
    ],
    "RotaryEmbedding": [
        (
            "attribute.range",
            lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 1, 3, 1)] * 2, rotary_embedding_dim=3),
        ),
        (
            "attribute.range",
            lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 1, 3, 3)] * 2, rotary_embedding_dim=6),
        ),
        ("attribute.range", lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 5), *[x("f32", 1, 3, 2)] * 2)),
        ("attention.heads", lambda b, x: b.RotaryEmbedding(x("f32", 1, 3, 4), *[x("f32", 1, 3, 2)] * 2)),
        ("attention.heads", lambda b, x: b.RotaryEmbedding(x("f32", 1, 3, 4), *[x("f32", 1, 3, 2)] * 2, num_heads=3)),
        ("attention.heads", lambda b, x: b.RotaryEmbedding(x("f32", 1, 3, 4), *[x("f32", 1, 3, 2)] * 2, num_heads=-1)),
        ("shape.rank", lambda b, x: b.RotaryEmbedding(x("f32", 3, 4), *[x("f32", 1, 3, 2)] * 2)),
        ("shape.rank", lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 3, 2)] * 2)),
        ("shape.rank", lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 1, 3, 2)] * 2, x("i64", 1, 3))),
        ("shape.rank", lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 3, 2)] * 2, x("i64", 3))),
        ("shape.disagree", lambda b, x: b.RotaryEmbedding(x("f32", 1, 2, 3, 4), *[x("f32", 1, 3, 1)] * 2)),
    ],
    "states": [
        ("attribute.value", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 2), activation="tanh")),
        ("shape.rank", lambda b, x: b.CausalConvWithState(x("f32", 2, 3), x("f32", 3, 1, 2))),
        ("shape.rank", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 2), x("f32", 3, 1))),
        ("shape.range", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 0))),
        ("shape.disagree", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 2, 1, 2))),
        ("shape.disagree", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 2, 2))),
        ("shape.disagree", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 2), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 2), None, x("f32", 2, 3, 2))),
        ("node.outputs", lambda b, x: b.CausalConvWithState(x("f32", 2, 3, 4), x("f32", 3, 1, 2), outputs=3)),
        (
            "attribute.value",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 3, q_num_heads=2, kv_num_heads=2, update_rule="other"),
        ),
        ("attribute.conflict", lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 3, q_num_heads=2, kv_num_heads=2)),
        (
            "attribute.conflict",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 5, q_num_heads=2, kv_num_heads=2, update_rule="linear"),
        ),
        (
            "shape.rank",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 8)] * 3, q_num_heads=2, kv_num_heads=2, update_rule="linear"),
        ),
        (
            "shape.rank",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 4, q_num_heads=2, kv_num_heads=2, update_rule="linear"),
        ),
        (
            "attention.heads",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 3, q_num_heads=3, kv_num_heads=2, update_rule="linear"),
        ),
        (
            "attention.heads",
            lambda b, x: b.LinearAttention(*[x("f32", 2, 3, 8)] * 3, q_num_heads=3, kv_num_heads=3, update_rule="linear"),
        ),
        (
            "attention.heads",
            lambda b, x: b.LinearAttention(
                *[x("f32", 2, 3, 8)] * 3, None, x("f32", 2, 3, 4), q_num_heads=2, kv_num_heads=2, update_rule="gated"
            ),
        ),
        (
            "shape.disagree",
            lambda b, x: b.LinearAttention(
                *[x("f32", 2, 3, 8)] * 3, x("f32", 2, 2, 4, 5), q_num_heads=2, kv_num_heads=2, update_rule="linear"
            ),
        ),
        (
            "shape.disagree",
            lambda b, x: b.LinearAttention(
                *[x("f32", 2, 3, 8)] * 2, x("f32", 2, 4, 8), q_num_heads=2, kv_num_heads=2, update_rule="linear"
            ),
        ),
    ],
    "training": [
        ("attribute.value", lambda b, x: b.Momentum(x("f32"), x("i64"), *[x("f32", 3)] * 3, mode="quick")),
        ("shape.single", lambda b, x: b.Momentum(x("f32", 2), x("i64"), *[x("f32", 3)] * 3)),
        ("shape.single", lambda b, x: b.Adagrad(x("f32"), x("i64", 2), *[x("f32", 3)] * 3)),
        ("node.inputs", lambda b, x: b.Adam(x("f32"), x("i64"), *[x("f32", 3)] * 3)),
        ("node.outputs", lambda b, x: b.Adam(x("f32"), x("i64"), *[x("f32", 3)] * 4, outputs=4)),
        ("shape.disagree", lambda b, x: b.Momentum(x("f32"), x("i64"), *[x("f32", 3)] * 2, x("f32", 4))),
    ],
    "GroupQueryAttention": [
        ("attention.heads", lambda b, x: _cached(b, x, kv_num_heads=3)),
        ("attention.heads", lambda b, x: _cached(b, x, num_heads=3, kv_num_heads=3)),
        ("attribute.range", lambda b, x: _cached(b, x, local_window_size=0)),
        ("attribute.range", lambda b, x: _cached(b, x, local_window_size=2, causal=False)),
        ("attribute.range", lambda b, x: _cached(b, x, softcap=-1.0)),
        ("attribute.value", lambda b, x: _cached(b, x, outputs=4)),
        ("attribute.value", lambda b, x: _cached(b, x, qk_output="raw")),
        ("node.outputs", lambda b, x: _cached(b, x, outputs=5)),
        ("op.unsupported", lambda b, x: _cached(b, x, sliding_window_cache=True)),
        ("op.unsupported", lambda b, x: _cached(b, x, v_quant_type="bytes")),
        ("op.unsupported", lambda b, x: _cached(b, x, rest=(12, x("f32", 1)))),
        ("op.unsupported", lambda b, x: _cached(b, x, rest=(14, x("f32", 8)))),
        ("attribute.conflict", lambda b, x: _cached(b, x, rest=(3, x("f32", 2, 2, 4, 8)))),
        ("attribute.conflict", lambda b, x: _cached(b, x, rest=(7, x("f32", 9, 4)))),
        ("attribute.conflict", lambda b, x: _cached(b, x, do_rotary=True)),
        ("shape.rank", lambda b, x: _cached(b, x, rest=(9, x("i64", 2)))),
        ("shape.rank", lambda b, x: _cached(b, x, rest=(11, x("f32", 1, 4)))),
        ("shape.rank", lambda b, x: _cached(b, x, rest=(5, x("i32", 2, 1, 1)))),
        ("shape.disagree", lambda b, x: _cached(b, x, rest=(11, x("f32", 3)))),
        ("shape.disagree", lambda b, x: _cached(b, x, rest=(5, x("i32", 3)))),
        ("shape.disagree", lambda b, x: _cached(b, x, rest=(9, x("i64", 2, 6)))),
        ("shape.disagree", lambda b, x: _cached(b, x, rest=(2, x("f32", 2, 5, 8)))),
    ],
    "losses": [
        ("attribute.value", lambda b, x: b.NegativeLogLikelihoodLoss(x("f32", 2, 3), x("i64", 2), reduction="max")),
        ("shape.rank", lambda b, x: b.NegativeLogLikelihoodLoss(x("f32", 2), x("i64", 2))),
        ("shape.disagree", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("i64", 2, 3))),
        ("shape.rank", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("i64", 2), x("f32", 1, 3))),
        ("shape.disagree", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("i64", 2), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("i64", 3))),
        ("type.class", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("f32", 2))),
        ("type.disagree", lambda b, x: b.NegativeLogLikelihoodLoss(x("f32", 2, 3), x("i64", 2), x("f64", 3))),
        ("node.outputs", lambda b, x: b.SoftmaxCrossEntropyLoss(x("f32", 2, 3), x("i64", 2), outputs=3)),
    ],
    "Einsum": [
        ("attribute.value", lambda b, x: b.Einsum(x("f32", 2), equation="1->1")),
        ("attribute.value", lambda b, x: b.Einsum(x("f32", 2), equation="i->j")),
        ("attribute.value", lambda b, x: b.Einsum(x("f32", 2), equation="i->ii")),
        ("attribute.value", lambda b, x: b.Einsum(x("f32", 2), equation="i......->i")),
        ("attribute.conflict", lambda b, x: b.Einsum(x("f32", 2), equation="i,i->i")),
        ("shape.rank", lambda b, x: b.Einsum(x("f32", 2, 2), equation="i->i")),
        ("shape.rank", lambda b, x: b.Einsum(x("f32", 2), equation="i...j->i")),
        ("shape.rank", lambda b, x: b.Einsum(x("f32", 2), x("f32", 2, 2), equation="...,...->...")),
        ("shape.disagree", lambda b, x: b.Einsum(x("f32", 2, 3), equation="ii->i")),
        ("shape.disagree", lambda b, x: b.Einsum(x("f32", 2), x("f32", 1), equation="i,i->i")),
        ("shape.disagree", lambda b, x: slope(b, b.Einsum(x("f32", 2), x("f32", 3), equation="i,i->i", broadcast=True))),
    ],
    "lists": [
        ("node.inputs", lambda b, x: b.SequenceConstruct()),
        ("type.disagree", lambda b, x: b.SequenceConstruct(x("f32", 2), x("f16", 2))),
        ("type.kind", lambda b, x: b.SequenceConstruct(b.SequenceEmpty())),
        ("type.kind", lambda b, x: b.SequenceAt(x("f32", 2), 0)),
        ("type.kind", lambda b, x: b.SequenceLength(x("f32", 2))),
        ("type.kind", lambda b, x: b.ConcatFromSequence(x("f32", 2), axis=0)),
        ("type.kind", lambda b, x: b.Concat(b.SequenceConstruct(x("f32", 2)), axis=0)),
        ("index.range", lambda b, x: b.SequenceAt(b.SequenceConstruct(x("f32", 2)), 1)),
        ("index.range", lambda b, x: b.SequenceAt(b.SequenceConstruct(x("f32", 2)), -2)),
        ("index.range", lambda b, x: b.SequenceAt(b.SequenceEmpty(), 0)),
        ("shape.single", lambda b, x: b.SequenceAt(b.SequenceConstruct(x("f32", 2)), x("i64", 2))),
        ("type.class", lambda b, x: b.SequenceAt(b.SequenceConstruct(x("f32", 2)), x("f32"))),
        ("index.range", lambda b, x: b.SequenceErase(b.SequenceEmpty())),
        ("index.range", lambda b, x: b.SequenceErase(b.SequenceConstruct(x("f32", 2)), 1)),
        ("index.range", lambda b, x: b.SequenceInsert(b.SequenceEmpty(), x("f32", 2), 1)),
        ("index.range", lambda b, x: b.SequenceInsert(b.SequenceConstruct(x("f32", 2)), x("f32", 2), -2)),
        ("type.disagree", lambda b, x: b.SequenceInsert(b.SequenceEmpty(), x("f64", 2))),
        ("type.kind", lambda b, x: b.SequenceInsert(x("f32", 2), x("f32", 2))),
        ("shape.rank", lambda b, x: b.SplitToSequence(x("f32"))),
        ("axis.range", lambda b, x: b.SplitToSequence(x("f32", 2), axis=1)),
        ("split.sizes", lambda b, x: b.SplitToSequence(x("f32", 2), x("i64", 1, 1))),
        ("split.sizes", lambda b, x: b.SplitToSequence(x("f32", 2), [1, 2])),
        ("split.sizes", lambda b, x: b.SplitToSequence(x("f32", 2), [3, -1])),
        ("split.sizes", lambda b, x: b.SplitToSequence(x("f32", 2), 0)),
        ("sequence.empty", lambda b, x: b.ConcatFromSequence(b.SequenceEmpty(), axis=0)),
        ("shape.rank", lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(x("f32")), axis=0)),
        ("axis.range", lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(x("f32", 2)), axis=1)),
        ("axis.range", lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(x("f32", 2)), axis=2, new_axis=True)),
        ("shape.disagree", lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(x("f32", 2, 3), x("f32", 2, 4)), axis=0)),
        (
            "shape.disagree",
            lambda b, x: b.ConcatFromSequence(b.SequenceConstruct(x("f32", 2), x("f32", 3)), axis=0, new_axis=True),
        ),
        ("attribute.missing", lambda b, x: b.Optional()),
        ("type.kind", lambda b, x: b.Negative(b.Optional(x("f32", 2)))),
        ("type.unknown", lambda b, x: slope(b, b.SequenceAt(b.SequenceConstruct(x("f32", 2), x("f32", 3)), x("i64")))),
    ],
    "texts": [
        ("type.disagree", lambda b, x: b.StringConcat(x("string", 2), x("f32", 2))),
        ("shape.broadcast", lambda b, x: b.StringConcat(x("string", 2), x("string", 3))),
        ("type.class", lambda b, x: b.StringSplit(x("i64", 2))),
        ("type.class", lambda b, x: b.RegexFullMatch(x("i64", 2), pattern="a")),
        ("attribute.missing", lambda b, x: b.RegexFullMatch(x("string", 2))),
        ("attribute.value", lambda b, x: b.StringNormalizer(x("string", 2), case_change_action="UPPER")),
        ("op.unsupported", lambda b, x: b.StringNormalizer(x("string", 2), locale="tr_TR.UTF-8")),
        ("shape.rank", lambda b, x: b.StringNormalizer(x("string"))),
        ("shape.rank", lambda b, x: b.StringNormalizer(x("string", 2, 2))),
        *(
            ("attribute.value", lambda b, x, pattern=pattern: b.RegexFullMatch(x("string", 2), pattern=pattern))
            for pattern in (
                "(",
                ")",
                "a**",
                "a++",
                "a{2}{3}",
                "x{1001}",
                "a{3,2}",
                "*a",
                "(*a)",
                "a|*",
                "[b-a]",
                "[a-\\d]",
                "[[:foo:]]",
                "[a",
                "[a-",
                "\\",
                "\\1",
                "\\Z",
                "\\x{110000}",
                "\\xg",
                "\\y",
                "(?=a)a",
                "(?P<n",
                "(?#a)",
                "(" * 5000,
            )
        ),
        ("attribute.value", lambda b, x: _terms(b, x("i64", 3), mode="TF")),
        ("attribute.range", lambda b, x: _terms(b, x("i64", 3), min_gram_length=0)),
        ("attribute.range", lambda b, x: _terms(b, x("i64", 3), min_gram_length=3)),
        ("attribute.range", lambda b, x: _terms(b, x("i64", 3), max_skip_count=-1)),
        ("attribute.range", lambda b, x: _terms(b, x("i64", 3), max_gram_length=3)),
        ("attribute.conflict", lambda b, x: _terms(b, x("i64", 3), pool_int64s=())),
        ("attribute.conflict", lambda b, x: _terms(b, x("i64", 3), pool_strings=("a",))),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), ngram_counts=(0, 6))),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), ngram_counts=(0, 2))),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), ngram_counts=())),
        ("attribute.conflict", lambda b, x: _terms(b, x("i64", 3), pool_int64s=(1, 2, 1, 2, 1))),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), ngram_indexes=(0, 1))),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), ngram_indexes=(0, 1, -1))),
        ("op.unsupported", lambda b, x: _terms(b, x("i64", 3), ngram_indexes=(0, 1, 1), mode="idf")),
        ("attribute.length", lambda b, x: _terms(b, x("i64", 3), weights=(1.0,))),
        ("shape.rank", lambda b, x: _terms(b, x("i64"))),
        ("shape.rank", lambda b, x: _terms(b, x("i64", 1, 1, 1))),
        ("type.class", lambda b, x: _terms(b, x("string", 3))),
        ("type.class", lambda b, x: _terms(b, x("f32", 3))),
    ],
    "columns of trees": [
        *(
            ("tree.nodes", lambda b, x, name=name: _regression(b, x("f32", 2, 2), **{name: _columns()[name][:2]}))
            for name in _columns()
        ),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_missing_value_tracks_true=(True,))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), **dict.fromkeys(_columns(), ()))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_truenodeids=(0, 0, 0))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_truenodeids=(3, 0, 0))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_falsenodeids=(-1, 0, 0))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_nodeids=(0, 1, 1))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_treeids=(0, 1, 0))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_treeids=(0, 0, 1))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_featureids=(-1, 0, 0))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), target_nodeids=(1, 3))),
        (
            "tree.nodes",
            lambda b, x: _regression(
                b,
                x("f32", 2, 2),
                nodes_modes=("BRANCH_LT", "BRANCH_LT", "LEAF"),
                nodes_truenodeids=(1, 0, 0),
                nodes_falsenodeids=(2, 2, 0),
                target_nodeids=(2, 2),
            ),
        ),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), nodes_modes=("BRANCH", "LEAF", "LEAF"))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), target_ids=(0,))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), target_ids=(0, 1))),
        ("tree.nodes", lambda b, x: _regression(b, x("f32", 2, 2), n_targets=0)),
        ("attribute.value", lambda b, x: _regression(b, x("f32", 2, 2), aggregate_function="median")),
        ("attribute.length", lambda b, x: _regression(b, x("f32", 2, 2), base_values=(1.0, 2.0))),
        ("shape.disagree", lambda b, x: _regression(b, x("f32", 2, 1))),
        ("attribute.value", lambda b, x: _regression(b, x("f32", 2, 2), post_transform="tanh")),
        ("shape.rank", lambda b, x: _regression(b, x("f32", 2))),
        ("attribute.conflict", lambda b, x: _choice(b, x("f32", 2, 2), classlabels_int64s=())),
        ("attribute.length", lambda b, x: _choice(b, x("f32", 2, 2), classlabels_int64s=(1,))),
        ("attribute.conflict", lambda b, x: _choice(b, x("f32", 2, 2), classlabels_strings=("a", "b"))),
        ("attribute.length", lambda b, x: _choice(b, x("f32", 2, 2), base_values=(1.0, 2.0, 3.0))),
        ("op.unsupported", lambda b, x: _choice(b, x("f32", 2, 2), base_values=(1.0,), class_ids=(0, 1))),
        ("attribute.value", lambda b, x: _choice(b, x("f32", 2, 2), post_transform="probit")),
    ],
    "models beside trees": [
        ("attribute.length", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=(1.0,) * 3, targets=2)),
        ("attribute.length", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=(1.0,) * 2, intercepts=(1.0,) * 2)),
        ("attribute.length", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=())),
        ("attribute.length", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=(1.0,), targets=0)),
        ("shape.disagree", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=(1.0,) * 3)),
        ("shape.rank", lambda b, x: b.LinearRegressor(x("f32", 2, 2, 2), coefficients=(1.0,) * 2)),
        ("attribute.value", lambda b, x: b.LinearRegressor(x("f32", 2, 2), coefficients=(1.0,) * 2, post_transform="exp")),
        (
            "attribute.length",
            lambda b, x: b.LinearClassifier(
                x("f32", 2, 2), coefficients=(1.0,) * 4, intercepts=(1.0, 2.0), classlabels_ints=(1, 2, 3)
            ),
        ),
        (
            "attribute.value",
            lambda b, x: b.LinearClassifier(
                x("f32", 2, 2), coefficients=(1.0,) * 2, intercepts=(1.0,), classlabels_ints=(1, 2), post_transform="probit"
            ),
        ),
        ("attribute.value", lambda b, x: _machine(b, x("f32", 2, 2), kernel_type="cosine")),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), kernel_params=(1.0,))),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), support_vectors=(1.0,) * 3)),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), support_vectors=())),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), n_supports=-1)),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), coefficients=(1.0,))),
        ("attribute.length", lambda b, x: _machine(b, x("f32", 2, 2), rho=())),
        ("shape.disagree", lambda b, x: _machine(b, x("f32", 2, 3))),
        ("attribute.value", lambda b, x: _machine(b, x("f32", 2, 2), post_transform="probit")),
        ("attribute.range", lambda b, x: _voters(b, x("f32", 2, 2), vectors_per_class=(3, -1))),
        ("attribute.length", lambda b, x: _voters(b, x("f32", 2, 2), vectors_per_class=(2,))),
        ("attribute.length", lambda b, x: _voters(b, x("f32", 2, 2), coefficients=(1.0,) * 3)),
        ("attribute.length", lambda b, x: _voters(b, x("f32", 2, 2), prob_a=(1.0,))),
        ("attribute.length", lambda b, x: _voters(b, x("f32", 2, 2), rho=(1.0, 2.0))),
        (
            "attribute.length",
            lambda b, x: _voters(b, x("f32", 2, 2), vectors_per_class=(), support_vectors=(), coefficients=(1.0,)),
        ),
        ("attribute.value", lambda b, x: _voters(b, x("f32", 2, 2), post_transform="probit")),
        ("attribute.length", lambda b, x: b.Scaler(x("f32", 2, 2), offset=(1.0,) * 3)),
        ("attribute.value", lambda b, x: b.Normalizer(x("f32", 2, 2), norm="l3")),
        ("attribute.conflict", lambda b, x: b.Imputer(x("f32", 2, 2))),
        ("attribute.conflict", lambda b, x: b.Imputer(x("f32", 2, 2), imputed_value_int64s=(1,))),
        ("attribute.range", lambda b, x: b.Imputer(x("i32", 2, 2), imputed_value_int64s=(2**40,))),
        ("attribute.length", lambda b, x: b.Imputer(x("f32", 2, 2), imputed_value_floats=(1.0,) * 3)),
        ("attribute.conflict", lambda b, x: b.OneHotEncoder(x("i64", 2))),
        ("attribute.conflict", lambda b, x: b.OneHotEncoder(x("i64", 2), cats_strings=("a",))),
        ("attribute.conflict", lambda b, x: b.OneHotEncoder(x("i64", 2), cats_int64s=(1, 1))),
        ("shape.disagree", lambda b, x: b.FeatureVectorizer(x("f32", 2, 2), inputdimensions=(1, 2))),
        ("shape.disagree", lambda b, x: b.FeatureVectorizer(x("f32", 2, 2), inputdimensions=(-1,))),
        ("shape.rank", lambda b, x: b.FeatureVectorizer(x("f32"), inputdimensions=(1,))),
        ("shape.disagree", lambda b, x: b.FeatureVectorizer(x("f32", 2, 2), x("f32", 3, 2), inputdimensions=(1, 2))),
        ("attribute.conflict", lambda b, x: b.ZipMap(x("f32", 2, 2))),
        ("attribute.length", lambda b, x: b.ZipMap(x("f32", 2, 2), classlabels_int64s=(1,))),
        ("shape.rank", lambda b, x: b.ZipMap(x("f32"), classlabels_int64s=(1,))),
        ("attribute.conflict", lambda b, x: b.DictVectorizer(x("f32", 2))),
        ("type.kind", lambda b, x: b.DictVectorizer(x("f32", 2), int64_vocabulary=(1,))),
        ("attribute.value", lambda b, x: b.CastMap(x("f32", 2), map_form="packed")),
        ("attribute.range", lambda b, x: b.CastMap(x("f32", 2), max_map=0)),
        ("attribute.conflict", lambda b, x: b.Tokenizer(x("string", 2), mark=False, mincharnum=1, pad_value="")),
        ("attribute.range", lambda b, x: b.Tokenizer(x("string", 2), mark=False, mincharnum=0, pad_value="", tokenexp="a")),
        (
            "attribute.conflict",
            lambda b, x: b.Tokenizer(x("string", 2), mark=False, mincharnum=1, pad_value="", separators=("", "a")),
        ),
        ("attribute.value", lambda b, x: b.Tokenizer(x("string", 2), mark=False, mincharnum=1, pad_value="", tokenexp="a**")),
        ("shape.rank", lambda b, x: b.Tokenizer(x("string"), mark=False, mincharnum=1, pad_value="", tokenexp="a")),
    ],
    "labels and trees": [
        ("shape.rank", lambda b, x: b.LabelEncoder(x("i64", 2), x("i64", 2, 1), x("f32", 2), x("f32"))),
        ("shape.rank", lambda b, x: b.LabelEncoder(x("i64", 2), x("i64", 2), x("f32"), x("f32"))),
        ("shape.single", lambda b, x: b.LabelEncoder(x("i64", 2), x("i64", 2), x("f32", 2), x("f32", 2))),
        ("shape.disagree", lambda b, x: b.LabelEncoder(x("i64", 2), x("i64", 2), x("f32", 3), x("f32"))),
        ("type.disagree", lambda b, x: b.LabelEncoder(x("i64", 2), x("i32", 2), x("f32", 2), x("f32"))),
        ("type.disagree", lambda b, x: b.LabelEncoder(x("i64", 2), x("i64", 2), x("f32", 2), x("f64"))),
        ("constant.needed", lambda b, x: saved(b, b.LabelEncoder(x("i64", 2), x("i64", 2), x("f32", 2), x("f32")))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), tree_roots=())),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), tree_roots=(2,))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_splits=(0.5,))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_featureids=(0, -1))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_missing_value_tracks_true=(True,))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_truenodeids=(0, 0))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_truenodeids=(2, 0))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), leaf_weights=(1.0, 2.0))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), leaf_targetids=(0, 1, 0))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_falsenodeids=(1, 3))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), leaf_sizes=(1, 1))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), leaf_sizes=(-1, 2, 2))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_modes=(0, 7))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), nodes_modes=(0, 6))),
        ("tree.nodes", lambda b, x: _tree(b, x("f32", 2, 2), membership_values=((1.0,),))),
        ("attribute.value", lambda b, x: _tree(b, x("f32", 2, 2), aggregate_function="SUM")),
        ("attribute.value", lambda b, x: _tree(b, x("f32", 2, 2), post_transform="probit")),
        ("shape.disagree", lambda b, x: _tree(b, x("f32", 2, 1))),
        ("shape.rank", lambda b, x: _tree(b, x("f32", 2))),
        ("type.class", lambda b, x: _tree(b, x("i64", 2, 2))),
    ],
    "gradients": [
        ("grad.op", lambda b, x: slope(b, b.DequantizeLinear(b.QuantizeLinear(x("f32", 2), 0.5), 0.5))),
        ("grad.op", lambda b, x: slope(b, b.Cast(b.QuantizeLinear(x("f32", 2), 0.5), to=dtypes.f32))),
        ("grad.op", lambda b, x: slope(b, b.Relu(b.DequantizeLinear(b.QuantizeLinear(x("f32", 2), 0.5), 0.5)))),
        ("grad.op", lambda b, x: slope(b, b.FakeQuantize(x("f32", 2), 0.0, 1.0, 0.0, 1.0, levels=4))),
        ("type.unknown", lambda b, x: slope(b, b.Conv(x("f32", OPEN), x("f32", OPEN)))),
        ("constant.needed", lambda b, x: slope(b, b.Slice(x("f32", 3, 3), x("i64", 1), x("i64", 1), x("i64", 1)))),
        ("constant.needed", lambda b, x: slope(b, b.Pad(x("f32", 3, 3), x("i64", 2), None, x("i64", 1), mode="edge"))),
        ("constant.needed", lambda b, x: slope(b, b.Pad(x("f32", OPEN), [1, 1], mode="edge"))),
        ("constant.needed", lambda b, x: slope(b, b.Transpose(x("f32", 2, 2), x("i64", 2)))),
        ("type.unknown", lambda b, x: slope(b, b.PRelu(x("f32", 2, "n", 2), x("f32", "m"), channels=True))),
        ("type.unknown", lambda b, x: saved(b, b.MatMul(x("f32", OPEN), x("f32", 2, 2), transpose_a=True))),
    ],
}


@pytest.mark.parametrize(
    ("code", "write"),
    [pytest.param(*row, id=f"{name}: {row[0]} {place}") for name, rows in REFUSALS.items() for place, row in enumerate(rows)],
)
def test_invalid_nodes_are_refused(code: str, write: Write) -> None:
    assert refused(write) == code
