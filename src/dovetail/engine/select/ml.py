"""Selection of kernels of ai.onnx.ml: LabelEncoder, and the distances of support vector machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.memory.tensor import KernelCall, RunTensor
from dovetail.engine.select.indexing import Reads, Writes
from dovetail.ir.graph import Node

if TYPE_CHECKING:
    from dovetail.ops.ml.label_encoder import LabelEncoder
    from dovetail.ops.ml.svm import SquaredDistances


def select_label_encoder(op: LabelEncoder, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    x, keys, values, default = reads
    assert x is not None and keys is not None and values is not None and default is not None
    if x.dtype is None or x.dtype.name not in ("f32", "f64", "i16", "i32", "i64") or keys.dtype is not x.dtype:
        return f"keys of {x.dtype}"
    if keys.data is None or values.data is None or default.data is None:
        return "a table that is no constant"
    data = np.concatenate([values.data, default.data.reshape(1)])
    table = RunTensor(values.name, values.type, data.shape, values.dtype, data)
    return KernelCall("label_encoder", (node,), [x, table], writes, {"keys": keys.data.tolist()})


def select_squared_distances(op: SquaredDistances, node: Node, reads: Reads, writes: Writes) -> KernelCall | str:
    _, vectors = reads
    assert vectors is not None
    if vectors.data is None:
        return "vectors that are no constants"
    return KernelCall("squared_distances", (node,), reads, writes, {})
