"""Files that depart from their format, each with what onnxruntime and OpenVINO do with it and what dovetail should.

docs/formats.md has the same table for people; tests/laws/test_deviations.py holds both against the runtimes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

BOTH, ORT, OPENVINO, NOBODY = ("onnxruntime", "openvino"), ("onnxruntime",), ("openvino",), ()
UNKNOWN_FIELD = b"\xc2\x3e\x03abc"
"""Field 1000, of three bytes."""


@dataclass(frozen=True)
class Deviation:
    """``code``: what check reports; ``accepted``: by whom besides dovetail; ``taken``: load accepts it too."""

    name: str
    make: Callable[[], Any]
    code: str
    accepted: tuple[str, ...]
    taken: bool = True


CASES: list[Deviation] = []
PRESERVED = {
    "negative axis: Transpose", "float for an integer", "unknown attribute", "attribute missing", "flag of 2", "too many inputs",
    "index input of int32", "IR: unknown attribute of an operator", "IR: float for an integer", "IR: attribute missing",
}  # fmt: skip
"""Cases that load with a preserved node, which is refused where it is run or converted."""


def case(name: str, code: str, accepted: tuple[str, ...] = BOTH, taken: bool = True) -> Callable[[Any], Any]:
    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        CASES.append(Deviation(name, make, code, accepted, taken))
        return make

    return register


def add(name: str, code: str, accepted: tuple[str, ...], make: Callable[[], Any], taken: bool = True) -> None:
    CASES.append(Deviation(name, make, code, accepted, taken))


def tensor(name: str, data: Any, kind: Any = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.array(data, kind), name)


def info(name: str, shape: Any = (2, 3), kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], x: Any = (2, 3), y: int = 2, *, opset: int = 13, kind: int = TensorProto.FLOAT, **more: Any) -> Any:
    """Return a model from ``x`` to ``y``, which has ``y`` axes."""
    graph = helper.make_graph(nodes, "g", [info("x", x)], [info("y", [f"y{axis}" for axis in range(y)], kind)], **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def one(
    op: str, x: Any = (2, 3), y: int = 2, *, inits: Any = (), outputs: Any = ("y",), domain: str = "", **attributes: Any
) -> Any:
    opset, kind = attributes.pop("opset", 13), attributes.pop("kind", TensorProto.FLOAT)
    node = helper.make_node(op, ["x", *(each.name for each in inits)], list(outputs), domain=domain, **attributes)
    return model([node], x, y, opset=opset, kind=kind, initializer=list(inits))


def chain(*kinds: str) -> list[Any]:
    """Nodes one after the other, from x to y."""
    names = ["x", *(f"t{index}" for index in range(1, len(kinds))), "y"]
    return [helper.make_node(kind, [names[index]], [names[index + 1]], name=f"n{index}") for index, kind in enumerate(kinds)]


def changed(proto: ModelProto, change: Callable[[Any], Any]) -> ModelProto:
    change(proto)
    return proto


# Axes before opset 11

WEIGHT = tensor("w", np.ones((2, 3)))
WIDE = (2, 3, 4)
_REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
for _kind in _REDUCTIONS:
    add(
        f"negative axes: {_kind}", "attribute.value", BOTH,
        lambda kind=_kind: one(kind, WIDE, 2, axes=[-1], keepdims=0, opset=10),
    )  # fmt: skip
for _kind in ("ArgMax", "ArgMin"):
    add(
        f"negative axis: {_kind}", "attribute.value", BOTH,
        lambda kind=_kind: one(kind, WIDE, 3, axis=-1, kind=TensorProto.INT64, opset=10),
    )  # fmt: skip
add("negative axis: Concat", "attribute.value", BOTH, lambda: one("Concat", inits=[WEIGHT], axis=-1, opset=10))
add("negative axis: Split", "attribute.value", BOTH, lambda: one("Split", (2, 4), outputs=("y", "z"), axis=-1, opset=10))
add("negative axes: Squeeze", "attribute.value", BOTH, lambda: one("Squeeze", (2, 3, 1), axes=[-1], opset=10))
add("negative axes: Unsqueeze", "attribute.value", BOTH, lambda: one("Unsqueeze", y=4, axes=[-1, -3], opset=10))
add("negative axis: Flatten", "attribute.value", OPENVINO, lambda: one("Flatten", WIDE, axis=-1, opset=10))
add("negative axes: Slice", "attribute.value", BOTH, lambda: one("Slice", axes=[-1], starts=[1], ends=[3], opset=9))
add(
    "negative axis: Compress", "attribute.value", BOTH,
    lambda: one("Compress", inits=[tensor("c", [1, 0, 1], bool)], axis=-1, opset=10),
)  # fmt: skip
add(
    "negative index: Gather", "index.range", BOTH, lambda: one("Gather", inits=[tensor("i", [-1, 0], np.int64)], axis=1, opset=10)
)
add("negative axis: Transpose", "attribute.value", NOBODY, lambda: one("Transpose", perm=[-1, 0], opset=10), False)


@case("axis below -1: OneHot", "attribute.value")
def _one_hot() -> Any:
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Cast", ["a"], ["i"], to=7)]
    nodes += [helper.make_node("OneHot", ["i", "d", "v"], ["y"], axis=-2)]
    return model(nodes, (3,), 2, opset=10, initializer=[tensor("d", [4], np.int64), tensor("v", [0, 1])])


# Declarations

for _name, _first, _second in (
    ("the same", (2, 3), (2, 3)),
    ("another shape", (2, 3), (5, 3)),
    ("a wrong one first", (5, 3), (2, 3)),
):
    add(
        f"value declared twice, {_name}", "value.repeated", BOTH,
        lambda first=_first, second=_second: model(chain("Neg", "Exp"), value_info=[info("t1", first), info("t1", second)]),
    )  # fmt: skip
add(
    "value declared twice, another type", "value.repeated", OPENVINO,
    lambda: model(chain("Neg", "Exp"), value_info=[info("t1"), info("t1", kind=TensorProto.INT64)]),
)  # fmt: skip
add("value without a name declared", "name.missing", BOTH, lambda: model(chain("Neg"), value_info=[info("")]))
add("value of negative size declared", "type.dims", BOTH, lambda: model(chain("Neg", "Exp"), value_info=[info("t1", (-2, 3))]))
add(
    "value of too many elements declared",
    "type.dims",
    BOTH,
    lambda: model(chain("Neg", "Exp"), value_info=[info("t1", (2**62, 8))]),
)
add("input of negative size", "type.dims", ORT, lambda: model(chain("Neg"), (-2, 3)), False)

# Names and order

add("nodes out of order", "graph.order", BOTH, lambda: model(chain("Neg", "Exp", "Abs")[::-1]))
add(
    "two nodes of one name",
    "node.name",
    OPENVINO,
    lambda: changed(model(chain("Neg", "Exp")), lambda m: setattr(m.graph.node[1], "name", "n0")),
)
add("two nodes make one value", "graph.repeated", OPENVINO, lambda: model([*chain("Neg"), *chain("Exp")]), False)
add(
    "initializer twice, alike",
    "graph.repeated",
    BOTH,
    lambda: changed(one("Add", inits=[WEIGHT]), lambda m: m.graph.initializer.append(WEIGHT)),
)
add(
    "initializer twice, of one shape", "graph.repeated", BOTH,
    lambda: changed(one("Add", inits=[WEIGHT]), lambda m: m.graph.initializer.append(tensor("w", 2 * np.ones((2, 3))))),
)  # fmt: skip
add(
    "initializer twice, of other shapes", "graph.repeated", OPENVINO,
    lambda: changed(one("Add", inits=[WEIGHT]), lambda m: m.graph.initializer.append(tensor("w", np.ones(3)))), False,
)  # fmt: skip
add(
    "initializer without a name",
    "name.missing",
    BOTH,
    lambda: changed(model(chain("Neg")), lambda m: m.graph.initializer.append(tensor("", [1]))),
)
add(
    "initializer that is no input, IR 3",
    "initializer.input",
    BOTH,
    lambda: changed(one("Add", inits=[WEIGHT]), lambda m: setattr(m, "ir_version", 3)),
)


@case("branch reads what comes later", "graph.order")
def _late_capture() -> Any:
    bodies = [helper.make_graph([helper.make_node(kind, ["t"], [kind])], kind, [], [info(kind, None)]) for kind in ("Neg", "Abs")]
    for body in bodies:
        body.output[0].type.tensor_type.shape.SetInParent()
        body.output[0].type.tensor_type.ClearField("shape")
    branch = helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    return model([branch, helper.make_node("Exp", ["x"], ["t"])], initializer=[tensor("c", True, bool)])


@case("input of a body with an outer name", "graph.repeated")
def _hiding_input() -> Any:
    add_row = helper.make_node("Add", ["x", "row"], ["t"])
    body = helper.make_graph([add_row], "body", [info("x", (2, 3)), info("row", (3,))], [info("t", (2, 3))])
    scan = helper.make_node("Scan", ["x", "rows"], ["s"], body=body, num_scan_inputs=1)
    return model([scan, helper.make_node("Mul", ["s", "x"], ["y"])], initializer=[tensor("rows", np.ones((2, 3)))])


def _with_initializer_in_branch(data: Any) -> Any:
    bodies = [
        helper.make_graph([helper.make_node(kind, ["x", "w"], [kind])], kind, [], [info(kind, (2, 3))]) for kind in ("Add", "Sub")
    ]
    bodies[0].initializer.append(tensor("w", data))
    branch = helper.make_node("If", ["c"], ["t"], then_branch=bodies[0], else_branch=bodies[1])
    return model([branch, helper.make_node("Mul", ["t", "w"], ["y"])], initializer=[tensor("c", True, bool), WEIGHT])


case("initializer of a branch with an outer name, alike", "graph.repeated")(lambda: _with_initializer_in_branch(np.ones((2, 3))))
case("initializer of a branch with an outer name, unlike", "graph.repeated", taken=False)(
    lambda: _with_initializer_in_branch(2 * np.ones((2, 3)))
)


@case("initializer of a branch in a body whose input has its name", "graph.repeated", ORT, taken=False)
def _hidden_twice() -> Any:
    kinds = ("Add", "Sub")
    bodies = [helper.make_graph([helper.make_node(kind, ["x", "w"], [kind])], kind, [], [info(kind, (2, 3))]) for kind in kinds]
    bodies[0].initializer.append(WEIGHT)
    branch = helper.make_node("If", ["c"], ["t"], then_branch=bodies[0], else_branch=bodies[1])
    step = [branch, helper.make_node("Mul", ["t", "w"], ["u"])]
    body = helper.make_graph(step, "body", [info("w", (2, 3))], [info("u", (2, 3))])
    scan = helper.make_node("Scan", ["rows"], ["s"], body=body, num_scan_inputs=1)
    rows = tensor("rows", np.arange(12).reshape(2, 2, 3))
    return model([scan, helper.make_node("Add", ["s", "w"], ["y"])], y=3, initializer=[tensor("c", True, bool), WEIGHT, rows])


# Versions


def imports(proto: ModelProto, **versions: int) -> ModelProto:
    del proto.opset_import[:]
    proto.opset_import.extend(helper.make_opsetid(domain.replace("_", "."), version) for domain, version in versions.items())
    return proto


add("no import of the default domain", "opset.missing", BOTH, lambda: imports(model(chain("Neg")), ai_onnx_ml=2))
add("no import, and versions differ", "opset.missing", BOTH, lambda: imports(one("Softmax", WIDE, 3), ai_onnx_ml=2), False)
add("no import at all", "opset.missing", NOBODY, lambda: imports(model(chain("Neg"))), False)
add("no import of com.microsoft", "opset.missing", BOTH, lambda: one("Gelu", domain="com.microsoft"))
add("newer opset", "opset.version", OPENVINO, lambda: model(chain("Neg"), opset=99), False)
add(
    "newer IR version",
    "ir.version",
    OPENVINO,
    lambda: changed(model(chain("Neg")), lambda m: setattr(m, "ir_version", 99)),
    False,
)
add("no IR version", "ir.version", NOBODY, lambda: changed(model(chain("Neg")), lambda m: m.ClearField("ir_version")), False)


# Attributes and inputs


def attribute(proto: ModelProto, name: str, value: Any) -> ModelProto:
    proto.graph.node[0].attribute.append(helper.make_attribute(name, value))
    return proto


add("attribute twice, alike", "attribute.repeated", OPENVINO, lambda: attribute(one("Softmax", axis=1), "axis", 1))
add("attribute twice, otherwise", "attribute.repeated", OPENVINO, lambda: attribute(one("Softmax", axis=1), "axis", 0), False)
add("integer for a float", "attribute.value", OPENVINO, lambda: attribute(one("LeakyRelu"), "alpha", 3))
add("float for an integer", "attribute.value", OPENVINO, lambda: attribute(one("Concat", inits=[WEIGHT]), "axis", 1.0), False)
add("unknown attribute", "attribute.unknown", OPENVINO, lambda: one("Neg", foo=1), False)
add("attribute missing", "attribute.missing", NOBODY, lambda: one("Concat", inits=[WEIGHT]), False)
add("flag of 2", "attribute.value", NOBODY, lambda: one("ReduceMax", axes=[1], keepdims=2), False)
add(
    "reference outside a function", "attribute.reference", BOTH,
    lambda: changed(one("Softmax", axis=1), lambda m: setattr(m.graph.node[0].attribute[0], "ref_attr_name", "q")),
)  # fmt: skip
_POOL = {"x": (1, 1, 5, 5), "y": 4, "kernel_shape": [2, 2], "strides": [2, 2]}
add("pads beside auto_pad", "attribute.conflict", BOTH, lambda: one("MaxPool", auto_pad="SAME_UPPER", pads=[1, 1, 1, 1], **_POOL))
add("empty auto_pad", "attribute.value", BOTH, lambda: one("MaxPool", auto_pad="", **_POOL))
add("inputs left out after the last", "node.inputs", OPENVINO, lambda: model([helper.make_node("Neg", ["x", "", ""], ["y"])]))
add("outputs left out after the last", "node.outputs", OPENVINO, lambda: model([helper.make_node("Neg", ["x"], ["y", ""])]))
add("too many inputs", "node.inputs", OPENVINO, lambda: model([helper.make_node("Neg", ["x", "x"], ["y"])]), False)
add("bound of shape [1]: Clip", "shape.rank", BOTH, lambda: one("Clip", inits=[tensor("lo", [0])]))
add("axis of shape [1]: CumSum", "shape.rank", BOTH, lambda: one("CumSum", inits=[tensor("a", [1], np.int64)], opset=14))


@case("signal of rank 2: STFT", "shape.rank")
def _stft() -> Any:
    inits = [tensor("s", 1, np.int64), tensor("w", [1, 1]), tensor("n", 2, np.int64)]
    return model([helper.make_node("STFT", ["x", "s", "w", "n"], ["y"])], y=4, opset=17, initializer=inits)


add("index input of int32", "type.version", OPENVINO, lambda: one("Reshape", inits=[tensor("s", [3, 2], np.int32)]), False)

# Tensors, texts, metadata

add(
    "elements twice", "data.field", BOTH,
    lambda: changed(one("Add", inits=[tensor("w", np.ones(3))]), lambda m: m.graph.initializer[0].float_data.extend([5, 5, 5])),
)  # fmt: skip


@case("external data beside elements", "data.external")
def _external() -> Any:
    proto = one("Add", inits=[WEIGHT])
    proto.graph.initializer[0].external_data.add(key="location", value="w.bin")
    return proto


for _where, _path in (("model", lambda m: m), ("graph", lambda m: m.graph), ("node", lambda m: m.graph.node[0])):
    add(
        f"metadata key twice: {_where}", "metadata.repeated", BOTH,
        lambda path=_path: changed(model(chain("Neg")), lambda m: [path(m).metadata_props.add(key="k", value=v) for v in "ab"]),
    )  # fmt: skip
_PLACES = {
    "model": lambda m: m,
    "graph": lambda m: m.graph,
    "node": lambda m: m.graph.node[0],
    "attribute": lambda m: m.graph.node[0].attribute[0],
    "initializer": lambda m: m.graph.initializer[0],
    "input": lambda m: m.graph.input[0],
    "dimension": lambda m: m.graph.input[0].type.tensor_type.shape.dim[0],
    "import": lambda m: m.opset_import[0],
}
for _where, _path in _PLACES.items():
    add(
        f"unknown field: {_where}", "proto.unknown", BOTH,
        lambda path=_path: changed(one("Concat", inits=[WEIGHT], axis=1), lambda m: path(m).MergeFromString(UNKNOWN_FIELD)),
    )  # fmt: skip


@case("unknown attribute type", "proto.unknown", NOBODY, False)
def _attribute_type() -> Any:
    proto = one("Softmax", axis=1)
    proto.graph.node[0].attribute[0].ClearField("type")
    proto.graph.node[0].attribute[0].MergeFromString(b"\xa0\x01\x63")
    return proto


add("documentation that is not UTF-8", "proto.text", BOTH, lambda: latin("doc_string"))
add("node name that is not UTF-8", "proto.text", BOTH, lambda: latin("name"))
add(
    "training information",
    "training.info",
    BOTH,
    lambda: changed(model(chain("Neg")), lambda m: setattr(m.training_info.add().initialization, "name", "i")),
)


def latin(field: str) -> bytes:
    proto = changed(model(chain("Neg")), lambda m: setattr(m.graph.node[0], field, "QQ"))
    return bytes(proto.SerializeToString()).replace(b"QQ", b"\xd6\xd0")


@case("attribute that a function does not have", "attribute.unknown", ORT)
def _function_attribute() -> Any:
    proto = one("F", domain="my", foo=3)
    proto.opset_import.append(helper.make_opsetid("my", 1))
    proto.functions.append(
        helper.make_function("my", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 13)])
    )
    return proto


@case("function without a name", "name.missing")
def _function_name() -> Any:
    proto = model(chain("Neg"))
    proto.functions.append(
        helper.make_function("my", "", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 13)])
    )
    return proto


# OpenVINO IR

X, S, Y = (
    f'<port id="{place}" precision="FP32" names="{name}"><dim>2</dim><dim>{size}</dim></port>'
    for place, name, size in ((0, "x", 3), (2, "s", 3), (2, "y", 6))
)
FIRST, SECOND, WIDER = (
    f'<port id="{place}" precision="FP32"><dim>2</dim><dim>{size}</dim></port>' for place, size in ((0, 3), (1, 3), (0, 6))
)


def layer(number: int, name: str, kind: str, inner: str) -> str:
    return f'<layer id="{number}" name="{name}" type="{kind}" version="opset1">{inner}</layer>'


LAYERS = (
    layer(0, "x", "Parameter", f'<data shape="2,3" element_type="f32" /><output>{X}</output>'),
    layer(1, "w", "Const", f'<data element_type="f32" shape="2,3" offset="0" size="24" /><output>{FIRST}</output>'),
    layer(2, "add", "Add", f'<data auto_broadcast="numpy" /><input>{FIRST}{SECOND}</input><output>{S}</output>'),
    layer(3, "cat", "Concat", f'<data axis="1" /><input>{FIRST}{SECOND}</input><output>{Y}</output>'),
    layer(4, "r", "Result", f"<input>{WIDER}</input>"),
)
ENDS = ((0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0), (0, 0, 3, 1), (3, 2, 4, 0))
EDGES = (f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}" />' for a, b, c, d in ENDS)
IR = f'<net name="m" version="11"><layers>{"".join(LAYERS)}</layers><edges>{"".join(EDGES)}</edges><rt_info /></net>'
WEIGHTS = np.arange(8, dtype=np.float32).tobytes()


def ir(name: str, code: str, pattern: str, replacement: str, taken: bool = True, accepted: tuple[str, ...] = OPENVINO) -> None:
    text = re.sub(pattern, replacement, IR, count=1, flags=re.S)
    assert text != IR, name
    add(f"IR: {name}", code, accepted, lambda: text, taken)


ir("unknown attribute of net", "ir.unknown", "<net ", '<net foo="1" ')
ir("unknown attribute of a layer", "ir.unknown", '<layer id="2"', '<layer id="2" precision="FP32"')
ir("unknown attribute of a port", "ir.unknown", ' names="s"', ' names="s" foo="1"')
ir("unknown attribute of an edge", "ir.unknown", "<edge ", '<edge foo="1" ')
ir("unknown attribute of a Parameter", "ir.unknown", '<data shape="2,3"', '<data foo="1" shape="2,3"')
ir("unknown attribute of a Const", "ir.unknown", ' offset="0"', ' offset="0" foo="1"')
ir("unknown attribute of an operator", "attribute.unknown", '<data axis="1"', '<data axis="1" foo="1"', False)
ir("unknown element in net", "ir.unknown", "<rt_info />", "<rt_info /><statistics />")
ir("unknown element in layers", "ir.unknown", "<layers>", "<layers><foo />")
ir("unknown element in edges", "ir.unknown", "<edges>", "<edges><foo />")
ir("unknown element in a port", "ir.unknown", 'names="s">', 'names="s"><foo />')
ir("unknown element in a layer", "ir.unknown", '<data axis="1" />', '<data axis="1" /><blobs />', False)
ir("pre-processing", "ir.unknown", "<layers>", '<pre-process reference-layer-name="x" /><layers>', False)
ir("stray text", "ir.unknown", "<edges>", "<edges>hello")
ir("two rt_info in net", "ir.repeated", "<rt_info />", "<rt_info /><rt_info />")
ir("two rt_info in a layer", "ir.repeated", '<data axis="1" />', '<data axis="1" /><rt_info /><rt_info />')
ir("two data in a layer", "ir.repeated", '<data axis="1" />', '<data axis="1" /><data axis="0" />', False)
ir("port with a range of sizes", "ir.number", 'names="s"><dim>2</dim>', 'names="s"><dim>1..4</dim>')
ir("port of too many elements", "ir.number", 'names="s"><dim>2</dim>', 'names="s"><dim>9223372036854775807</dim>')
ir("port of negative size", "ir.number", 'names="s"><dim>2</dim>', 'names="s"><dim>-7</dim>', False, NOBODY)
ir("word in capitals", "attribute.value", '"numpy"', '"NUMPY"')
ir("float for an integer", "attribute.value", '<data axis="1"', '<data axis="1.0"', False)
ir("attribute missing", "attribute.missing", '<data axis="1" />', "", False)
ir("constant with bytes to spare", "ir.constant", 'size="24"', 'size="28"')
ir("constant with too few bytes", "ir.constant", 'size="24"', 'size="20"', False, NOBODY)
ir("two layers of one id", "ir.repeated", '<layer id="3"', '<layer id="2"', False, NOBODY)
ir(
    "two edges to one port",
    "ir.repeated",
    "</edges>",
    '<edge from-layer="0" from-port="0" to-layer="2" to-port="0" /></edges>',
    False,
    NOBODY,
)
ir("a namespace", "ir.unknown", "<net ", '<net xmlns="urn:x" xmlns:y="urn:y" ')
ir("a DTD", "ir.dtd", "<net ", "<!DOCTYPE net><net ", False)
ir("another version", "ir.version", 'version="11"', 'version="12"', False, NOBODY)
