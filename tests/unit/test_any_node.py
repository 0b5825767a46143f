"""Any node of any known operator, with any attributes and inputs, is a graph or a DovetailError: never another exception."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import DovetailError
from dovetail.formats import import_foreign
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignGraph, ForeignModel, ForeignNode, ForeignTensor, ForeignValue
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.onnx.write import save as save_onnx
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.formats.openvino.write import to_foreign as to_ir
from dovetail.ir import dtypes, symbolic
from dovetail.ir.types import Tensor
from dovetail.runtime.random_inputs import random_inputs

COUNT = 2000
ELEMENTS = "f32 f32 f32 f32 i64 i64 i32 f16 bf16 boolean u8 string f64 i4 f8e4m3".split()
SIZES: list[Any] = [0, 1, 2, 3, 4, 6, symbolic.symbol("n"), symbolic.symbol("m")]
NAN, INFINITY = float("nan"), float("inf")
ONNX_VALUES: list[Any] = [
    0, 1, 2, 3, -1, 2**62, -(2**63), 0.5, -1.0, NAN, INFINITY, "", "NOTSET", "SAME_UPPER", "VALID", "nearest", "linear", "add",
    "reflect", (), (1,), (1, 1), (0, 1, 2), (2, 2, 2, 2), (-1,), (0.5, 1.0), ("a", "b"), (2**62, 2**62),
]  # fmt: skip
IR_VALUES = [
    "0", "1", "2", "-1", "1,1", "2,2", "0,0", "0,1,2", "", "x", "1.5", "nan", "1e30", "9223372036854775807",
    "4611686018427387904,4611686018427387904", "true", "false", "i64", "f32", "same_upper", "valid", "floor", "nearest",
    "constant", "numpy", "pdpd",
]  # fmt: skip


class Operators:
    """The operators of a dialect, read once: (domain, kind, version) of each, and the mappings that import it."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.mappings = dialect.import_mappings()
        self.known = sorted({*self.mappings, *dialect.importers})


def facts(operators: Operators, domain: str, kind: str, version: int) -> tuple[list[str], int]:
    """Return the names of the attributes, and how many inputs there may be."""
    mappings = operators.mappings.get((domain, kind, version), ())
    names = {name for mapping in mappings for param in mapping.attributes for name in param.foreign_names}
    count = max((len(mapping.inputs) for mapping in mappings), default=3)
    # onnxruntime has operators of its own, which the onnx package does not know.
    if operators.dialect is ONNX and onnx.defs.has(kind, version, domain):
        schema = onnx.defs.get_schema(kind, version, domain)
        names.update(schema.attributes)
        count = min(schema.max_input, 6)
    return sorted(names), count


def constant(chance: random.Random, key: str) -> ForeignTensor:
    dtype = dtypes.dtype(chance.choice(["i64", "i64", "i64", "f32", "i32", "boolean"]))
    if chance.random() < 0.1:
        return ForeignTensor(dtype, np.array(chance.choice([2**62, -(2**63), 2**40])).astype(dtype.numpy), key)
    shape = [chance.choice([0, 1, 2, 3, 4]) for _ in range(chance.choice([0, 1, 1, 1, 2]))]
    numbers = [chance.randrange(-3, 9) for _ in range(int(np.prod(shape)))]
    return ForeignTensor(dtype, np.array(numbers, np.int64).reshape(shape).astype(dtype.numpy), key)


def any_model(operators: Operators, chance: random.Random) -> ForeignModel:
    """One node of a known operator, mostly wrong."""
    dialect = operators.dialect
    domain, kind, version = chance.choice(operators.known)
    names, most = facts(operators, domain, kind, version)
    values = ONNX_VALUES if dialect is ONNX else IR_VALUES
    often = chance.choice([0.0, 0.3, 0.6])
    attributes = {name: chance.choice(values) for name in names if chance.random() < often}
    graph = ForeignGraph("g")
    keys: list[str | None] = []
    element = dtypes.dtype(chance.choice(ELEMENTS))
    for index in range(chance.randint(max(0, most - 2), most + (chance.random() < 0.1))):
        key = f"x{index}"
        draw = chance.random()
        if draw < 0.05:
            keys.append(None)
            continue
        if draw < 0.45 and index:
            graph.constants[key] = tensor = constant(chance, key)
            graph.values[key] = ForeignValue(key, Tensor(tensor.dtype, tensor.data.shape), (key,))
        else:
            dtype = dtypes.dtype(chance.choice(ELEMENTS)) if chance.random() < 0.2 else element
            rank = chance.choice([0, 1, 1, 2, 3, 4, 4, 5, None])
            shape = None if rank is None else tuple(chance.choice(SIZES) for _ in range(rank))
            graph.values[key] = value = ForeignValue(key, Tensor(dtype, shape), (key,))
            graph.inputs.append(value)
        keys.append(key)
    results = [f"y{index}" for index in range(chance.choice([1, 1, 1, 2, 3]))]
    graph.outputs = [ForeignValue(name, None, (name,)) for name in results]
    graph.values.update({value.key: value for value in graph.outputs})
    graph.nodes.append(ForeignNode(kind, version, keys, list(results), attributes, domain, "node", "node 0"))
    return ForeignModel(dialect.name, graph, {"": 21} if dialect is ONNX else {"ir": 11}, file="file")


def use(model: dovetail.Model) -> None:
    """Everything one does with a model; what is refused is refused in order."""
    assert isinstance(dovetail.check(model), list)
    assert str(model) and model._repr_html_()
    for write in (lambda: save_onnx(model, None), lambda: to_ir(model)):
        try:
            write()
        except DovetailError as error:
            assert error.diagnostics
    sizes = [y.type.shape for y in model.graph.values() if isinstance(y.type, Tensor) and y.type.shape]
    if not any(isinstance(size, int) and size > 10**6 for shape in sizes for size in shape):
        dovetail.run(model, random_inputs(model))


@pytest.mark.parametrize("dialect", [ONNX, OPENVINO], ids=["onnx", "openvino"])
def test_any_node_is_a_graph_or_an_error_of_ours(dialect: Dialect) -> None:
    operators = Operators(dialect)
    chance = random.Random(0)
    lifts = 0
    for _ in range(COUNT):
        foreign = any_model(operators, chance)
        node = foreign.graph.nodes[0]
        start = time.process_time()
        try:
            model = import_foreign(foreign)
            lifts += 1
            use(model)
        except DovetailError as error:
            assert error.code and error.diagnostics
        except Exception as error:
            shown = [str(foreign.graph.values[key].type) if key else None for key in node.inputs]
            raise AssertionError(f"{node.kind}-{node.version} {node.attributes} of {shown}") from error
        assert time.process_time() - start < 5, f"{node.kind}-{node.version} {node.attributes}"
    assert lifts > COUNT // 40, "too few come through to say anything"
