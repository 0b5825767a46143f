"""Published faults of releases of onnxruntime, OpenVINO and onnx, rebuilt as models: each is located and reduced unattended.

    python bench/releases.py [--case NAME] [--most 3] [--json]

Each case is a model with operators before and behind the pattern of a public report, a release that is right and one that is
wrong. It counts if the right release agrees with the reference, the wrong one does not, and the smallest model has at most
--most nodes, which are of the pattern. The environments of the releases are made once; this needs a package index.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

import dovetail
from dovetail.compare.reduce.model_parts import operators_of
from dovetail.compare.referee.judgement import judge_releases
from dovetail.errors import DovetailError
from dovetail.runtime.random_inputs import random_inputs

node = helper.make_node


class Pattern(NamedTuple):
    """Pattern is the part of a model that a report is about: nodes from "a" to "b", their constants, and the shape of "a"."""

    nodes: Sequence[NodeProto]
    constants: Mapping[str, Any]
    shape: Sequence[int]
    opset: int = 17


class Case(NamedTuple):
    """Case is a public report with a release that is right and one that is wrong; a regression if the right one is older."""

    report: str
    right: str
    wrong: str
    pattern: Callable[[], Pattern]

    @property
    def is_regression(self) -> bool:
        versions = [[int(part) for part in release.split("==")[1].split(".")] for release in (self.right, self.wrong)]
        return versions[0] < versions[1]


def draw(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def integers(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def pad_average_pool() -> Pattern:
    nodes = [node("Pad", ["a", "pads"], ["p"]), node("AveragePool", ["p"], ["b"], kernel_shape=[2, 2])]
    return Pattern(nodes, {"pads": integers(0, 0, 1, 1, 0, 0, 1, 1)}, [1, 2, 8, 8])


def pad_max_pool() -> Pattern:
    nodes = [node("Pad", ["a", "pads", "v"], ["p"]), node("MaxPool", ["p"], ["b"], kernel_shape=[3, 3], strides=[2, 2])]
    return Pattern(nodes, {"pads": integers(0, 0, 1, 1, 0, 0, 1, 1), "v": np.float32(0)}, [1, 2, 8, 8])


def matmul_batch_norm() -> Pattern:
    names = ["t", "gamma", "beta", "mean", "variance"]
    nodes = [
        node("MatMul", ["a", "w"], ["m"]),
        node("Transpose", ["m"], ["t"], perm=[0, 2, 1]),
        node("BatchNormalization", names, ["b"]),
    ]
    constants = {name: abs(draw(5, seed=seed)) + 1 for seed, name in enumerate(names[1:])}
    return Pattern(nodes, {"w": draw(4, 5), **constants}, [2, 3, 4], 15)


def quantized_input_of_conv() -> Pattern:
    nodes = [
        node("QuantizeLinear", ["a", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Conv", ["d", "w", "c"], ["b"]),
    ]
    constants = {"s": np.float32(0.02), "z": np.int8(0), "w": draw(4, 3, 3, 3), "c": draw(4)}
    return Pattern(nodes, constants, [1, 3, 5, 5])


def layer_norm_of_one() -> Pattern:
    return Pattern([node("LayerNormalization", ["a", "g", "c"], ["b"])], {"g": draw(1), "c": draw(1, seed=1)}, [2, 3, 1])


def layer_norm_broadcast() -> Pattern:
    return Pattern([node("LayerNormalization", ["a", "g"], ["b"], axis=1)], {"g": draw(3, 1)}, [2, 3, 4])


def average_pool_end_padding() -> Pattern:
    pool = node("AveragePool", ["a"], ["b"], kernel_shape=[5, 1], auto_pad="SAME_LOWER", count_include_pad=1)
    return Pattern([pool], {}, [1, 1, 6, 2], 19)


def average_pool_ceil(opset: int) -> Pattern:
    pool = node(
        "AveragePool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, count_include_pad=1
    )
    return Pattern([pool], {}, [1, 1, 6, 6], opset)


def reduce_max_of_none() -> Pattern:
    nodes = [node("Slice", ["a", "o", "o", "i"], ["e"]), node("ReduceMax", ["e", "i"], ["b"], keepdims=1)]
    return Pattern(nodes, {"o": integers(0), "i": integers(1)}, [2, 3, 4], 20)


def reduce_sum_twice() -> Pattern:
    nodes = [node("ReduceSum", ["a", "i"], ["s"], keepdims=0), node("ReduceSum", ["s", "i"], ["b"], keepdims=0)]
    return Pattern(nodes, {"i": integers(-1)}, [1, 6, 4, 3], 13)


def reduce_mean_axes() -> Pattern:
    return Pattern([node("ReduceMean", ["a", "i"], ["b"])], {"i": integers(2, 3)}, [1, 3, 4, 5], 18)


def multiply_sum_add() -> Pattern:
    nodes = [
        node("Mul", ["a", "w"], ["m"]), node("ReduceSum", ["m", "i"], ["s"], keepdims=0), node("Add", ["s", "c"], ["b"])
    ]  # fmt: skip
    return Pattern(nodes, {"w": draw(1536, 4), "i": integers(-1), "c": draw(1536)}, [1, 1536, 4])


CASES = {
    "pad-average-pool": Case("onnxruntime#22177", "onnxruntime==1.19.2", "onnxruntime==1.20.1", pad_average_pool),
    "pad-max-pool": Case("none found", "onnxruntime==1.19.2", "onnxruntime==1.20.1", pad_max_pool),
    "matmul-batch-norm": Case("onnxruntime#20641", "onnxruntime==1.16.3", "onnxruntime==1.17.3", matmul_batch_norm),
    "quantized-conv": Case("onnxruntime#24398", "onnxruntime==1.20.1", "onnxruntime==1.21.1", quantized_input_of_conv),
    "layer-norm-of-one": Case("onnxruntime#25896", "onnxruntime==1.20.1", "onnxruntime==1.21.1", layer_norm_of_one),
    "layer-norm-broadcast": Case("onnxruntime#18184", "onnxruntime==1.24.4", "onnxruntime==1.23.2", layer_norm_broadcast),
    "average-pool-end": Case("onnxruntime#24681", "onnxruntime==1.32.0", "onnxruntime==1.22.1", average_pool_end_padding),
    "average-pool-ceil-19": Case(
        "onnxruntime#16203", "onnxruntime==1.21.1", "onnxruntime==1.20.1", lambda: average_pool_ceil(19)
    ),
    "average-pool-ceil-18": Case("pytorch#183528", "onnxruntime==1.32.0", "onnxruntime==1.26.0", lambda: average_pool_ceil(18)),
    "reduce-max-of-none": Case("onnxruntime#21897", "onnxruntime==1.21.1", "onnxruntime==1.20.1", reduce_max_of_none),
    "reduce-sum-twice": Case("openvino#31833", "openvino==2026.1.0", "openvino==2025.4.1", reduce_sum_twice),
    "reduce-mean-axes": Case("openvino#25169", "openvino==2024.6.0", "openvino==2024.2.0", reduce_mean_axes),
    "multiply-sum-add": Case("openvino#23616", "openvino==2024.2.0", "openvino==2024.1.0", multiply_sum_add),
}


def build(pattern: Pattern) -> onnx.ModelProto:
    """Return a model of the pattern with four elementwise operators before it and four behind it."""
    nodes = [
        node("Sub", ["x", "half"], ["x1"]), node("Sin", ["x1"], ["x2"]), node("Mul", ["x2", "three"], ["x3"]),
        node("LeakyRelu", ["x3"], ["a"]), *pattern.nodes, node("Tanh", ["b"], ["y1"]), node("Mul", ["y1", "three"], ["y2"]),
        node("Cos", ["y2"], ["y3"]), node("Abs", ["y3"], ["y"]),
    ]  # fmt: skip
    constants = {"half": np.float32(0.5), "three": np.float32(3), **pattern.constants}
    graph = helper.make_graph(
        nodes,
        "case",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, pattern.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", pattern.opset)])
    model.ir_version = 9 if pattern.opset >= 19 else 8
    return model


def judge(case: Case, most: int) -> dict[str, Any]:
    """Judge one case. Returns its row."""
    pattern = case.pattern()
    start = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.onnx"
        onnx.save(build(pattern), path)
        model = dovetail.load(path)
        found = judge_releases(model, [case.right, case.wrong], random_inputs(model))
    status = {row.engine: row.status for row in found.rows}
    # Operators are named after their outputs, which reductions keep.
    names = {name for each in pattern.nodes for name in each.output}
    nodes = [] if found.smallest is None else operators_of(found.smallest)
    is_located = bool(nodes) and all(any(y.name in names for y in each.outputs) for each in nodes)
    return {
        "report": case.report, "right": case.right, "wrong": case.wrong, "regression": case.is_regression,
        "reference": found.reference, "status": status, "location": str(found.location),
        "smallest": [type(each.op).__name__ for each in nodes], "located": is_located, "seconds": perf_counter() - start,
        "counts": status == {case.right: "agrees", case.wrong: status[case.wrong]} and status[case.wrong] != "agrees"
        and is_located and len(nodes) <= most,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    for name in [options.case] if options.case else CASES:
        try:
            row = rows[name] = judge(CASES[name], options.most)
        except DovetailError as error:
            rows[name] = {"counts": False, "regression": CASES[name].is_regression, "error": str(error)}
            print(f"{name}: {error}", file=sys.stderr)
            continue
        if not options.json:
            print(
                f"{name}: {row['report']}, {row['right']} {row['status'][row['right']]}, {row['wrong']} "
                f"{row['status'][row['wrong']]}, {len(build(CASES[name].pattern()).graph.node)} nodes to {row['smallest']}, "
                f"{row['seconds']:.0f} s, {'counts' if row['counts'] else 'does not count'}; {row['location']}",
                flush=True,
            )
    counted = [row for row in rows.values() if row["counts"]]
    if options.json:
        print(json.dumps(rows))
    else:
        regressions = sum(row["regression"] for row in counted)
        print(f"{len(counted)} of {len(rows)} located and reduced to at most {options.most} nodes; {regressions} are regressions")
    return 0 if len(counted) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
