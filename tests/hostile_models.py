"""Small ONNX models that cost much to readers without limits, one maker for each class; damaged .npy files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING
node = helper.make_node


def declared(name: str, shape: Any = None, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def integers(name: str, *values: int) -> Any:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def model_of(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    constants: Sequence[Any] = (),
    functions: Sequence[Any] = (),
    sparse: Sequence[Any] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), list(constants), sparse_initializer=list(sparse))
    imports = [helper.make_opsetid("", 21)] + [helper.make_opsetid("f", 1)] * bool(functions)
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def relus(count: int) -> onnx.ModelProto:
    """Return a chain of nodes."""
    names = ["x", *(f"t{index}" for index in range(count))]
    return model_of(
        [node("Relu", [names[index]], [names[index + 1]]) for index in range(count)], [declared("x", [1])], [declared(names[-1])]
    )


def if_nest(depth: int) -> onnx.ModelProto:
    """Return an If in an If."""

    def graph(level: int) -> Any:
        outputs = [declared(f"o{level}")]
        if not level:
            return helper.make_graph([node("Identity", ["x"], ["o0"])], "b0", [], outputs)
        other = helper.make_graph([node("Identity", ["x"], [f"e{level}"])], "e", [], [declared(f"e{level}")])
        chosen = node("If", ["c"], [f"o{level}"], then_branch=graph(level - 1), else_branch=other)
        return helper.make_graph([chosen], f"b{level}", [], outputs)

    whole = graph(depth)
    return model_of(list(whole.node), [declared("x", ["n", 3]), declared("c", [], BOOL)], list(whole.output))


def loop_nest(depth: int) -> onnx.ModelProto:
    """Return a Loop in a Loop, whose state grows in the innermost."""

    def body(level: int) -> Any:
        inputs = [declared(f"i{level}", [], INT64), declared(f"c{level}", [], BOOL), declared(f"s{level}")]
        inner = (
            node("Loop", ["t", f"c{level}", f"s{level}"], [f"so{level}"], body=body(level - 1))
            if level
            else node("Concat", ["s0", "x"], ["so0"], axis=0)
        )
        nodes = [node("Identity", [f"c{level}"], [f"co{level}"]), inner]
        return helper.make_graph(nodes, f"b{level}", inputs, [declared(f"co{level}", [], BOOL), declared(f"so{level}")])

    outer = node("Loop", ["t", "c", "x"], ["y"], body=body(depth - 1))
    return model_of([outer], [declared("x", [1, 3]), declared("c", [], BOOL)], [declared("y")], [integers_scalar("t", 1)])


def integers_scalar(name: str, value: int) -> Any:
    return helper.make_tensor(name, INT64, [], [value])


def loop(trips: int, collects: bool = False, goes_on: bool = True) -> onnx.ModelProto:
    """Return a Loop that makes ``trips`` trips, and may put together what each makes. Without ``goes_on`` the body's
    condition is an input of the loop, so that the number of trips is unknown before the run.
    """
    nodes = [node("Identity", ["c" if goes_on else "k"], ["co"]), node("Identity", ["s"], ["so"])]
    outputs = [declared("co", [], BOOL), declared("so", [2])]
    if collects:
        nodes.append(node("Identity", ["s"], ["sc"]))
        outputs.append(declared("sc", [2]))
    inputs = [declared("i", [], INT64), declared("c", [], BOOL), declared("s", [2])]
    body = helper.make_graph(nodes, "b", inputs, outputs)
    made = node("Loop", ["t", "", "x"] if goes_on else ["t", "k", "x"], ["y", "z"][: 1 + collects], body=body)
    outside = [declared("x", [2])] + [declared("k", [], BOOL)] * (not goes_on)
    return model_of([made], outside, [declared("y"), declared("z")][: 1 + collects], [integers_scalar("t", trips)])


def function_bomb(levels: int, calls: int, name: str = "A") -> onnx.ModelProto:
    """Functions that call the next one ``calls`` times each, by nodes with long names."""
    functions = []
    for level in range(levels):
        values = ["x", *(f"t{index}" for index in range(calls - 1)), "y"]
        nodes = [
            node(kind, [values[index]], [values[index + 1]], domain=domain, name=f"{name}{index}")
            for index in range(calls)
            for kind, domain in ((f"F{level - 1}", "f") if level else ("Relu", ""),)
        ]
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)]
        functions.append(helper.make_function("f", f"F{level}", ["x"], ["y"], nodes, imports))
    call = node(f"F{levels - 1}", ["x"], ["y"], domain="f", name=name)
    return model_of([call], [declared("x", [2])], [declared("y")], functions=functions)


def string_doubling(count: int, is_constant: bool = True) -> onnx.ModelProto:
    """Return a text that is put behind itself again and again."""
    names = ["s", *(f"s{index}" for index in range(count))]
    nodes = [node("StringConcat", [names[index]] * 2, [names[index + 1]]) for index in range(count)]
    text = helper.make_tensor("s", STRING, [1], [b"abcdefgh"])
    inputs = [] if is_constant else [declared("s", [1], STRING)]
    return model_of(nodes, inputs, [declared(names[-1], None, STRING)], [text] if is_constant else [])


def regex(pattern: str, text: str) -> onnx.ModelProto:
    return model_of(
        [node("RegexFullMatch", ["s"], ["y"], pattern=pattern)],
        [],
        [declared("y", None, BOOL)],
        [helper.make_tensor("s", STRING, [1], [text.encode()])],
    )


def concat_many(count: int) -> onnx.ModelProto:
    return model_of([node("Concat", ["x"] * count, ["y"], axis=0)], [declared("x", [1])], [declared("y")])


def split_many(count: int) -> onnx.ModelProto:
    outputs = [f"y{index}" for index in range(count)]
    return model_of([node("Split", ["x"], outputs, num_outputs=count, axis=0)], [declared("x", [count])], [declared("y0")])


def many_inputs(count: int) -> onnx.ModelProto:
    return model_of([node("Relu", ["x0"], ["y"])], [declared(f"x{index}", [1]) for index in range(count)], [declared("y")])


def swell(count: int) -> onnx.ModelProto:
    """Return a product of sums of sizes: 2**count terms."""
    nodes = [node("Shape", ["x"], ["sh"]), node("Split", ["sh"], [f"d{i}" for i in range(2 * count)], num_outputs=2 * count)]
    nodes += [node("Add", [f"d{2 * i}", f"d{2 * i + 1}"], [f"a{i}"]) for i in range(count)]
    products = ["a0", *(f"p{i}" for i in range(1, count))]
    nodes += [node("Mul", [products[i - 1], f"a{i}"], [products[i]]) for i in range(1, count)]
    nodes.append(node("Expand", ["one", products[-1]], ["y"]))
    one = numpy_helper.from_array(np.ones(1, np.float32), "one")
    return model_of(nodes, [declared("x", [f"n{i}" for i in range(2 * count)])], [declared("y")], [one])


def square(count: int, constant: bool = False) -> onnx.ModelProto:
    """Return a size (or the number 3) squared again and again, plus one."""
    nodes = [] if constant else [node("Shape", ["x"], ["s0"])]
    for index in range(count):
        nodes += [node("Mul", [f"s{index}"] * 2, [f"m{index}"]), node("Add", [f"m{index}", "one"], [f"s{index + 1}"])]
    nodes.append(node("Reshape", ["x", f"s{count}"], ["y"]))
    constants = [integers("one", 1)] + [integers("s0", 3)] * constant
    return model_of(nodes, [declared("x", ["n"])], [declared("y")], constants)


def npy_header(text: str, version: bytes = b"\x01\x00") -> bytes:
    """Return a .npy file with this header and no elements."""
    data = text.encode("latin1")
    return b"\x93NUMPY" + version + len(data).to_bytes(2, "little") + data


NPY_FILES = {
    "empty": (b"", "array.file"),
    "text": (b"a,b,c\n1,2,3\n", "array.file"),
    "scalar": (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': ()}\n") + b"1234", "dataset.unreadable"),
    "negative": (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}\n"), "file.size"),
    "too short": (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1000,)}\n") + b"1234", "dataset.unreadable"),
    "absurd": (npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 4)}\n"), "file.size"),
    "absurd, empty": (
        npy_header("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 0)}\n"),
        "file.size",
    ),
    "fields": (npy_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}\n") + b"1234", "dataset.type"),
    "code": (npy_header("{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}\n"), "array.file"),
    "nested": (npy_header("(" * 9000), "array.file"),
    "version": (npy_header("{}", b"\x09\x00"), "array.file"),
}
"""Damaged .npy files, and the code that a dataset of each raises."""
