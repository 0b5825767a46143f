"""Diff pairs of models made by known edits from a corpus: exactly the edit must be reported.

    python bench/diff.py CORPUS_FOLDER [--pairs N] [--seed N] [--models TEXT[,TEXT...]] [--kinds KIND[,KIND...]] [--json]

A pair is a file (.onnx or .xml) and a copy with one edit, which the onnx package or an XML parser makes: all names, the order of
nodes, an attribute, an element of a weight, a node inserted or removed; or the file that dovetail writes of it at a neighbouring
opset, or in the other format. Half of the edited copies have other names everywhere too. Expected are the labels of the nodes
that the edit touches, with the kind of their difference, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
from onnx import helper, numpy_helper

import dovetail
from dovetail.errors import DovetailError
from dovetail.ir.graph import Model

Expected = set[tuple[str, tuple[str, ...], tuple[str, ...]]]
"""The kind, the labels in the original and the labels in the edited model, for each reported difference."""
TRIES = 40
ATTRIBUTES = (
    "alpha",
    "epsilon",
    "axis",
    "perm",
    "keepdims",
    "transB",
    "transA",
    "strides",
    "pads",
    "dilations",
    "kernel_shape",
    "beta",
)


class Skip(Exception):
    """The file has no place for this edit."""


# Edits of ONNX files


def rename_onnx(model: onnx.ModelProto) -> dict[str, str]:
    """Give each node and value another name. Returns the new names by the old."""
    names: dict[str, str] = {"": ""}

    def value(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}_{name[:3][::-1]}")

    def visit(graph: onnx.GraphProto) -> None:
        for node in graph.node:
            node.name = names.setdefault(f"node {node.name}", f"n{len(names)}") if node.name else ""
            node.input[:], node.output[:] = map(value, node.input), map(value, node.output)
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    visit(attribute.g)
        for port in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            port.name = value(port.name)

    visit(model.graph)
    del model.graph.quantization_annotation[:]
    return {name.removeprefix("node "): new for name, new in names.items()}


def reorder_onnx(model: onnx.ModelProto, generator: random.Random) -> None:
    """Sort the nodes into a random topological order."""
    nodes = list(model.graph.node)
    known = {port.name for port in (*model.graph.input, *model.graph.initializer)} | {""}
    reads = [set(node.input) | set(captures_of(node)) for node in nodes]
    waiting: dict[str, list[int]] = defaultdict(list)
    missing = []
    for index, names in enumerate(reads):
        absent = names - known
        missing.append(len(absent))
        for name in absent:
            waiting[name].append(index)
    ready = [index for index, count in enumerate(missing) if count == 0]
    del model.graph.node[:]
    while ready:
        node = nodes[ready.pop(generator.randrange(len(ready)))]
        model.graph.node.append(node)
        for name in node.output:
            for index in waiting.pop(name, ()):
                missing[index] -= 1
                if missing[index] == 0:
                    ready.append(index)
    if len(model.graph.node) != len(nodes):
        raise Skip


def captures_of(node: onnx.NodeProto) -> list[str]:
    """Return the values of outer graphs that the subgraphs of a node read."""
    found = []
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            graph = attribute.g
            own = {port.name for port in (*graph.input, *graph.initializer)} | {name for n in graph.node for name in n.output}
            reads = {name for n in graph.node for name in (*n.input, *captures_of(n))} | {port.name for port in graph.output}
            found += sorted(reads - own - {""})
    return found


def change_attribute(model: onnx.ModelProto, loaded: Model, generator: random.Random) -> Expected:
    label, node = pick(nodes_of(model, loaded, lambda node: any(a.name in ATTRIBUTES for a in node.attribute)), generator)
    attribute = generator.choice([each for each in node.attribute if each.name in ATTRIBUTES])
    before = attribute.SerializeToString()
    if attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = attribute.f * 2 + 0.125
    elif attribute.type == onnx.AttributeProto.INT and attribute.name == "axis":
        shape = loaded.values[node.input[0]].shape if node.input[0] in loaded.values else None
        others = [axis for axis in range(len(shape or ())) if axis != attribute.i % len(shape or ())]
        if not others:
            raise Skip
        attribute.i = generator.choice(others)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = 1 - attribute.i if attribute.name in ("keepdims", "transA", "transB") else generator.choice([0, 1, 2])
    elif attribute.name == "perm":
        generator.shuffle(attribute.ints)
    else:
        attribute.ints[generator.randrange(len(attribute.ints))] += 1
    if attribute.SerializeToString() == before:
        raise Skip
    return {("changed", (label,), (label,))}


def change_weight(model: onnx.ModelProto, loaded: Model, generator: random.Random) -> Expected:
    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
    tensors = [each for each in model.graph.initializer if each.data_type in floats and readers_of(loaded, each.name)]
    if not tensors:
        raise Skip
    tensor = generator.choice(tensors)
    array = numpy_helper.to_array(tensor).copy()
    if not array.size:
        raise Skip
    index = generator.randrange(array.size)
    array.reshape(-1)[index] = other_number(array.reshape(-1)[index])
    tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return {("changed", (label,), (label,)) for label in readers_of(loaded, tensor.name)}


def insert_node(model: onnx.ModelProto, loaded: Model, generator: random.Random) -> Expected:
    floats = {
        value.name
        for node in loaded.graph.nodes
        for value in node.outputs
        if value.constant is None and value.uses and str(value.type).startswith("f32[")
    }
    _, node = pick(nodes_of(model, loaded, lambda node: bool(set(node.output) & floats)), generator)
    name = generator.choice([each for each in node.output if each in floats])
    readers = [(n, slot) for n in model.graph.node for slot, each in enumerate(n.input) if each == name]
    if not readers:
        raise Skip
    for reader, slot in readers if generator.random() < 0.5 else [generator.choice(readers)]:
        reader.input[slot] = "inserted_value"
    # Of two equal nodes in a row either may be the new one.
    beside = {node.op_type, *(reader.op_type for reader, _ in readers)}
    operator = generator.choice([each for each in ("Neg", "Relu", "Tanh", "Identity", "LeakyRelu") if each not in beside])
    position = next(index for index, each in enumerate(model.graph.node) if name in each.output) + 1
    model.graph.node.insert(position, helper.make_node(operator, [name], ["inserted_value"], name="inserted"))
    return {("added", (), ("inserted",))}


def remove_node(model: onnx.ModelProto, loaded: Model, generator: random.Random) -> Expected:
    """Remove a node whose first operand has the type of its output, and whose others are constants."""
    outputs = {port.name for port in model.graph.output}
    values = loaded.values

    makers = {name: node for node in model.graph.node for name in node.output}
    readers = defaultdict(list)
    for reader in model.graph.node:
        for name in reader.input:
            readers[name].append(reader)

    def can_go(node: onnx.NodeProto) -> bool:
        # Of two equal nodes in a row either may be the one that is gone.
        beside = [*readers[next(iter(node.output), "")], *(makers[name] for name in node.input if name in makers)]
        if any(each.op_type == node.op_type for each in beside):
            return False
        if len(node.output) != 1 or node.output[0] in outputs or not node.input or node.op_type == "Constant":
            return False
        first, result = values.get(node.input[0]), values.get(node.output[0])
        others = [values.get(name) for name in node.input[1:] if name]
        if first is None or result is None or not result.uses or first.constant is not None:
            return False
        return str(first.type) == str(result.type) and all(x is not None and x.constant is not None for x in others)

    label, node = pick(nodes_of(model, loaded, can_go), generator)
    before, after = node.output[0], node.input[0]
    for reader in model.graph.node:
        reader.input[:] = [after if name == before else name for name in reader.input]
        if before in captures_of(reader):
            raise Skip
    model.graph.node.remove(node)
    return {("removed", (label,), ())}


def nodes_of(model: onnx.ModelProto, loaded: Model, accept: Callable[[onnx.NodeProto], bool]) -> list[tuple[str, onnx.NodeProto]]:
    """Return the nodes of a file that are nodes of the graph too, with their labels."""
    labels = Counter(node.label for node in loaded.graph.nodes)
    found = [(node.name or next(iter(node.output), ""), node) for node in model.graph.node if accept(node)]
    return [(label, node) for label, node in found if labels[label] == 1]


def pick(found: list[tuple[str, onnx.NodeProto]], generator: random.Random) -> tuple[str, onnx.NodeProto]:
    if not found:
        raise Skip
    return generator.choice(found)


def other_number(number: Any) -> float:
    return 0.25 if number == 0.5 else 0.5


def readers_of(loaded: Model, name: str) -> list[str]:
    """Return the labels of the nodes that read a constant; none where importing has computed with it."""
    value = loaded.values.get(name)
    if value is None or value.constant is None:
        return []
    found: dict[str, None] = {}
    pending = [value]
    while pending:
        for reader, _ in pending.pop().uses:
            # What reads an Identity reads the constant.
            if type(reader.op).__name__ == "Identity":
                pending.append(reader.outputs[0])
            else:
                found[reader.label] = None
    return list(found)


# Edits of IR files


def edit_ir(kind: str, source: Path, target: Path, loaded: Model, generator: random.Random) -> Expected:
    tree = ElementTree.parse(source)
    root = tree.getroot()
    data = bytearray(source.with_suffix(".bin").read_bytes())
    layers = root.find("layers")
    expected: Expected = set()
    if kind == "rename":
        for number, layer in enumerate(layers):
            layer.set("name", f"layer{number}")
        for port in root.iter("port"):
            if port.get("names"):
                port.set("names", f"p{len(port.get('names'))}_{generator.random()}")
    elif kind == "reorder":
        # The order of <layers> and <edges> is free; the order of inputs and outputs is that of their layers.
        ports = [layer for layer in layers if layer.get("type") in ("Parameter", "Result", "Assign", "ReadValue")]
        others = [layer for layer in layers if layer not in ports]
        generator.shuffle(others)
        layers[:] = [*ports, *others]
        edges = root.find("edges")
        moved = list(edges)
        generator.shuffle(moved)
        edges[:] = moved
    elif kind == "attribute":
        names = ("eps", "alpha", "strides", "pads_begin", "axis", "keep_dims", "transpose_b", "epsilon")
        # Interpolate with pads is a Pad before it; an axis of a vector is the same whatever its sign is.
        accepted = {layer: set(names) - ({"pads_begin"} if layer.get("type") == "Interpolate" else set())
                    - ({"axis"} if len(layer.findall("input/port[1]/dim")) == 1 else set()) for layer in layers}  # fmt: skip
        places = [(layer, name) for layer in layers for name in names if name in accepted[layer]
                  if layer.find("data") is not None and name in layer.find("data").attrib and is_node(loaded, layer)]  # fmt: skip
        if not places:
            raise Skip
        layer, name = generator.choice(places)
        text = layer.find("data").get(name)
        layer.find("data").set(name, other_text(text))
        expected = {("changed", (layer.get("name"),), (layer.get("name"),))}
    else:
        constants = [
            layer
            for layer in layers
            if layer.get("type") == "Const" and layer.find("data").get("element_type") == "f32"
            and int(layer.find("data").get("size")) >= 4 and readers_of(loaded, layer.get("name"))
        ]  # fmt: skip
        if not constants:
            raise Skip
        layer = generator.choice(constants)
        facts = layer.find("data").attrib
        offset = int(facts["offset"]) + 4 * generator.randrange(int(facts["size"]) // 4)
        shared = [
            each.get("name")
            for each in layers
            if each.get("type") == "Const"
            and int(each.find("data").get("offset"))
            <= offset
            < int(each.find("data").get("offset")) + int(each.find("data").get("size"))
        ]
        data[offset : offset + 4] = np.float32(other_number(np.frombuffer(data[offset : offset + 4], np.float32)[0])).tobytes()
        expected = {("changed", (label,), (label,)) for name in shared for label in readers_of(loaded, name)}
    target.write_bytes(ElementTree.tostring(root))
    target.with_suffix(".bin").write_bytes(data)
    return expected


def is_node(loaded: Model, layer: Any) -> bool:
    return sum(node.label == layer.get("name") for node in loaded.graph.nodes) == 1


def other_text(text: str) -> str:
    if text in ("true", "false"):
        return "false" if text == "true" else "true"
    first, *rest = text.split(",")
    changed = str(float(first) * 2 + 0.125) if "." in first or "e" in first else str(int(first) + 1)
    return ",".join([changed, *rest])


# Pairs

EDITS = {"attribute": change_attribute, "weight": change_weight, "insert": insert_node, "remove": remove_node}
KINDS = ("rename", "reorder", "attribute", "weight", "insert", "remove", "opset", "format")


def make_pair(kind: str, source: Path, folder: Path, generator: random.Random) -> tuple[Path, Expected]:
    """Write the edited copy of a file. Returns its path and what a diff must report. Raises Skip."""
    target = folder / f"edited{source.suffix}"
    loaded = dovetail.load(source)
    if kind == "opset":
        if source.suffix != ".onnx":
            raise Skip
        opset = loaded.versions[""] + generator.choice([-1, 1, 2])
        dovetail.save(loaded, target, opset=opset)
        return target, set()
    if kind == "format":
        target = folder / f"edited{'.xml' if source.suffix == '.onnx' else '.onnx'}"
        dovetail.save(loaded, target)
        return target, set()
    if source.suffix == ".xml":
        if kind in ("insert", "remove"):
            raise Skip
        return target, edit_ir(kind, source, target, loaded, generator)
    model = onnx.load(source)
    expected: Expected = EDITS[kind](model, loaded, generator) if kind in EDITS else set()
    if kind == "reorder":
        reorder_onnx(model, generator)
    if kind == "rename" or generator.random() < 0.5:
        names = rename_onnx(model)
        expected = {(what, first, tuple(names[label] for label in second)) for what, first, second in expected}
    onnx.save(model, target)
    return target, expected


def check_pair(kind: str, source: Path, folder: Path, generator: random.Random) -> dict[str, Any]:
    """Make a pair that loads, and compare it. Raises Skip where no edit of the kind gives one."""
    for _ in range(TRIES):
        try:
            target, expected = make_pair(kind, source, folder, generator)
            first, second = dovetail.load(source), dovetail.load(target)
        except DovetailError:
            # The edit made an invalid model: try another place.
            continue
        break
    else:
        raise Skip
    start = perf_counter()
    found = dovetail.diff(first, second)
    seconds = perf_counter() - start
    reported = {(item.kind, item.first, item.second) for item in found.changes}
    faults = []
    if reported != expected:
        details = [(item.first or item.second, item.details) for item in found.changes[:6]]
        faults.append(f"expected {sorted(expected)}, reported {sorted(reported)[:6]} ({len(reported)}): {details}")
    if kind in ("attribute", "weight") and not faults:
        facts = ("attributes",) if kind == "attribute" else ("weights", "attributes")
        faults += [f"{item.first} has no {facts}" for item in found.changes if not any(getattr(item, each) for each in facts)]
        faults += [f"{item.first} has operands {item.operands}" for item in found.changes if item.operands]
    # An attribute or a removed node may change the type of an output; other edits may not.
    ports = [port for port in found.ports if port.is_difference]
    if ports and (kind not in ("attribute",) or any(port.kind != "changed" for port in ports)):
        faults.append(f"ports {[(port.role, port.kind, port.text) for port in ports][:3]}")
    return {"model": source.name, "kind": kind, "seconds": seconds, "nodes": found.nodes[0], "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default="", help="only files whose names contain one of these texts")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = options.models.split(",")
    files = sorted(
        path for path in options.corpus.iterdir() if path.suffix in (".onnx", ".xml") and any(t in path.name for t in texts)
    )
    generator = random.Random(options.seed)
    kinds = options.kinds.split(",")
    results: list[Any] = []
    while len(results) < options.pairs:
        kind = kinds[len(results) % len(kinds)]
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = check_pair(kind, generator.choice(files), Path(folder), generator)
            except Skip:
                continue
        results.append(result)
        if result["faults"] and not options.json:
            print(f"{kind} {result['model']}: {'; '.join(result['faults'])}"[:1200], flush=True)
    if options.json:
        print(json.dumps(results))
    else:
        for kind in kinds:
            own = [each for each in results if each["kind"] == kind]
            good = sum(not each["faults"] for each in own)
            print(f"{kind}: {good} of {len(own)} exactly reported, median {median(each['seconds'] for each in own) * 1e3:.0f} ms")
        print(f"all: {sum(not each['faults'] for each in results)} of {len(results)}")
    sys.exit(any(each["faults"] for each in results))


if __name__ == "__main__":
    main()
