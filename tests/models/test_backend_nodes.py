"""The node tests that the onnx package generates, run through its own Backend interface and compared by its own rules.

All of them count. A test of an operator that is built here passes or stands in gaps.toml; others are skipped, by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest

from backend_data import Sample, assert_similar, samples
from coverage_summary import NOT_BUILT
from dovetail.compat import onnx_backend as backend
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx.converters import ONNX
from dovetail.ir import op_mapping
from dovetail.ir.graph import Graph
from dovetail.ir.op import REGISTRY, bodies

BUILT = frozenset(
    """
    Concat Reshape Split
    Transpose Squeeze Unsqueeze Flatten Slice Gather Pad Expand Tile Identity Shape Size Constant ConstantOfShape Range Cast
    CastLike DepthToSpace SpaceToDepth
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu Log Mish Neg
    Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu PRelu
    Add Sub Mul Div Mod Pow Max Min Mean Sum
    And Or Xor Not Equal Greater GreaterOrEqual Less LessOrEqual Where Clip
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
    MatMul Gemm Conv ConvTranspose MaxPool AveragePool GlobalAveragePool GlobalMaxPool
    BatchNormalization LayerNormalization LRN Softmax LogSoftmax Dropout Resize Upsample If
    Attention RotaryEmbedding Einsum
    """.split()
)
"""The operators that have to be there, whatever is."""


def known() -> frozenset[str]:
    """All operators of ONNX that are built, by their mappings and by what composes them."""
    mappings = (op_mapping.parse(op, line) for op in REGISTRY.values() for line in op.onnx)
    return frozenset({mapping.kind for mapping in mappings} | {kind for _, kind, _ in ONNX.importers})


REFUSED = {"ImageDecoder"}
"""What is not built because it cannot be, which gaps.toml says."""
HERE = BUILT | known() | REFUSED


ENGINES = ("interpreter", "native")


TESTS = samples("node")


@pytest.mark.parametrize("test", [pytest.param(test, id=test.name.removeprefix("test_")) for test in TESTS])
def test_backend_node(test: Sample) -> None:
    model: Any = test.read_model()
    try:
        prepared = [backend.prepare(model, "CPU", engine=engine) for engine in ENGINES]
        refuse_foreign(prepared[0].program.model.graph)
    except UnsupportedError as error:
        missing = sorted(set(kinds(model.graph)) - HERE)
        if missing:
            pytest.skip(NOT_BUILT + ", ".join(missing))
        raise AssertionError(f"{error}") from error
    for (inputs, expected), each in product(test.read_pairs(), prepared):
        assert_similar(expected, list(each.run(inputs)), test.rtol, test.atol)


def refuse_foreign(graph: Graph) -> None:
    for node in graph.nodes:
        if type(node.op).__name__ == "Foreign":
            raise UnsupportedError("op.unknown", f"{node.op} is not known", node=node.label)
        for _, body in bodies(node.op):
            refuse_foreign(body)


def kinds(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.op_type
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from kinds(body)


def test_the_onnx_package_knows_these_node_tests() -> None:
    assert len(TESTS) >= 1884, "fewer node tests than onnx 1.23 generates"


def test_the_backend_runs_on_the_cpu_only() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA")


def test_one_node_runs_alone() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = onnx.helper.make_node("Concat", ["x", "x"], ["y"], axis=-1)
    outputs: Any = backend.run_node(node, [x, x])
    np.testing.assert_array_equal(outputs.y, np.concatenate([x, x], axis=1))


def test_a_model_runs_with_inputs_by_name() -> None:
    x = np.arange(4, dtype=np.int64)
    node = onnx.helper.make_node("Split", ["x"], ["a", "b"], num_outputs=2)
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, None) for name in "xab"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", info[:1], info[1:]))
    a, b = backend.run_model(model, {"x": x})
    assert a.tolist() == [0, 1] and b.tolist() == [2, 3]


IF = """<ir_version: 9, opset_import: ["" : 20]>
g (float[6] x, float[6] z) => (float[N] y) {{
    size = Size (x)
    bound = Constant <value_int: int = 7> ()
    condition = {0} (size, bound)
    y = If (condition) <then_branch: graph = t () => (a) {{ a = {1} }}, else_branch: graph = e () => (b) {{ b = {2} }}>
}}"""


@pytest.mark.parametrize("parts", [("Less", "Add (z, x)", "Gemm (x, z)"), ("Equal", "Gemm (x, z)", "Add (z, x)")])
def test_a_branch_that_never_runs_need_not_fit(parts: tuple[str, str, str]) -> None:
    # So do the functions that onnx expands AffineGrid to.
    x = np.arange(6, dtype=np.float32)
    (y,) = backend.run_model(onnx.parser.parse_model(IF.format(*parts)), [x, x])
    np.testing.assert_array_equal(y, x + x)
