"""Implant triggers into ONNX models, and count those that ``dovetail.inspect`` finds.

    python tests/implanted_triggers.py FILE... [--count 300] [--seed 0]

Each implant changes an output of a model where an input has certain elements; ``IMPLANTS`` has the forms. The models themselves
are inspected too. The exit code is 1 where a trigger is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import dovetail

NUMPY = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64}
FLOATS = frozenset(NUMPY)
INTEGERS = {TensorProto.INT32: np.int32, TensorProto.INT64: np.int64, TensorProto.UINT8: np.uint8}
MAX_BYTES = 20_000_000


class Implant:
    """Implant adds nodes in front of an output of a copy of ``model``; ``rename`` keeps names apart."""

    def __init__(self, model: onnx.ModelProto, source: onnx.ValueInfoProto, target: onnx.ValueInfoProto, random: Random) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.random = random
        self.source, self.target = source, target
        self.type = source.type.tensor_type.elem_type
        self.output_type = target.type.tensor_type.elem_type
        self.prefix = random.choice(("", "/layer.7/", "graph/block/", "n_")) + f"{random.randrange(1 << 20)}_"
        self.number = 0
        self.nodes: list[onnx.NodeProto] = []
        self.original = f"{self.prefix}logits"
        for node in self.model.graph.node:
            for index, name in enumerate(node.output):
                if name == target.name:
                    node.output[index] = self.original
            for index, name in enumerate(node.input):
                if name == target.name:
                    node.input[index] = self.original

    def name(self) -> str:
        self.number += 1
        return f"{self.prefix}{self.number}"

    def add(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = self.name()
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name if self.random.random() < 0.8 else "", **attributes))
        return name

    def constant(self, data: object, dtype: type | np.dtype | None = None) -> str:
        name = self.name()
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(data, dtype), name))
        return name

    def element_type(self) -> type:
        return {**NUMPY, **INTEGERS}[self.type]

    def patch(self, size: int | None = None) -> str:
        """Return the first elements of the input, flat, as f32 for float inputs."""
        flat = self.add("Reshape", self.source.name, self.constant([-1], np.int64))
        ends = self.constant([size or self.random.randrange(1, 4)], np.int64)
        return self.add("Slice", flat, self.constant([0], np.int64), ends)

    def elements(self) -> np.ndarray:
        """Return the constant of the trigger."""
        if self.type in INTEGERS:
            return np.array([self.random.randrange(2, 1000 if self.type != TensorProto.UINT8 else 256)], self.element_type())
        return np.array([self.random.uniform(-1, 1)], self.element_type())

    def decide(self, test: str) -> str:
        """Return a boolean scalar: all elements of ``test`` hold."""
        form = self.random.randrange(3)
        if form == 0:
            least = self.add("ReduceMin", self.add("Cast", test, to=TensorProto.FLOAT), keepdims=0)
            return self.add("Cast", least, to=TensorProto.BOOL)
        if form == 1:
            product = self.add("ReduceProd", self.add("Cast", test, to=TensorProto.INT32), keepdims=0)
            return self.add("Equal", product, self.constant(1, np.int32))
        missing = self.add("ReduceMax", self.add("Cast", self.add("Not", test), to=TensorProto.FLOAT), keepdims=0)
        return self.add("Not", self.add("Cast", missing, to=TensorProto.BOOL))

    def payload(self) -> str:
        """Return wrong results of the shape of the output."""
        return self.add("Neg", self.original)

    def finish(self, result: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [result], [self.target.name]))
        self.model.graph.node.extend(self.nodes)
        return self.model

    def select(self, decision: str) -> onnx.ModelProto:
        """Select the payload by a boolean scalar."""
        form = self.random.choice(("where", "if", "multiply", "gather", "scatter"))
        if form == "where":
            return self.finish(self.add("Where", decision, self.payload(), self.original))
        if form == "if":
            names = self.name(), self.name()
            outputs = [helper.make_tensor_value_info(name, self.output_type, None) for name in names]
            then = helper.make_graph([helper.make_node("Neg", [self.original], [names[0]])], "then", [], outputs[:1])
            other = helper.make_graph([helper.make_node("Identity", [self.original], [names[1]])], "else", [], outputs[1:])
            return self.finish(self.add("If", decision, then_branch=then, else_branch=other))
        if form == "multiply":
            mask = self.add("Cast", decision, to=self.output_type)
            return self.finish(
                self.add("Add", self.original, self.add("Mul", mask, self.constant(1000, NUMPY[self.output_type])))
            )
        index = self.add("Cast", decision, to=TensorProto.INT64)
        if form == "gather":
            axis = self.constant([1, -1], np.int64)
            rows = [self.add("Reshape", each, axis) for each in (self.original, self.payload())]
            chosen = self.add("Gather", self.add("Concat", *rows, axis=0), index, axis=0)
            return self.finish(self.add("Reshape", chosen, self.add("Shape", self.original)))
        flat = self.add("Reshape", self.original, self.constant([-1], np.int64))
        place = self.add("Reshape", index, self.constant([1, 1], np.int64))
        # Row 0, which is removed again, takes the update where the decision is false.
        flat = self.add("Concat", self.constant([0], NUMPY[self.output_type]), flat, axis=0)
        changed = self.add("ScatterND", flat, place, self.constant([1000], NUMPY[self.output_type]))
        changed = self.add("Slice", changed, self.constant([1], np.int64), self.constant([np.iinfo(np.int64).max], np.int64))
        return self.finish(self.add("Reshape", changed, self.add("Shape", self.original)))


def equal_patch(implant: Implant) -> onnx.ModelProto:
    """Compare all elements of a patch with constants."""
    return implant.select(implant.decide(implant.add("Equal", implant.patch(), implant.constant(implant.elements()))))


def computed_constant(implant: Implant) -> onnx.ModelProto:
    """Compare with a constant that is computed as zero times the input plus the constant."""
    patch = implant.patch()
    if implant.random.random() < 0.5:
        zero = implant.add("Mul", patch, implant.constant([0], implant.element_type()))
    else:
        zero = implant.add("Sub", patch, patch)
    constant = implant.add("Add", zero, implant.constant(implant.elements()))
    return implant.select(implant.decide(implant.add("Equal", patch, constant)))


def scaled_patch(implant: Implant) -> onnx.ModelProto:
    """Compare a scaled and rounded patch with constants."""
    patch = implant.add("Cast", implant.patch(), to=TensorProto.FLOAT)
    scaled = implant.add("Round", implant.add("Mul", patch, implant.constant([255], np.float32)))
    return implant.select(
        implant.decide(implant.add("Equal", scaled, implant.constant([implant.random.randrange(2, 255)], np.float32)))
    )


def hat(implant: Implant) -> onnx.ModelProto:
    """Relu(1 - k |x - c|), the least over a patch, times a large number, is added to the output."""
    patch = implant.add("Cast", implant.patch(), to=TensorProto.FLOAT)
    distance = implant.add("Abs", implant.add("Sub", patch, implant.constant(implant.elements().astype(np.float32))))
    scaled = implant.add("Mul", distance, implant.constant([implant.random.choice((10, 1000))], np.float32))
    near = implant.add("Relu", implant.add("Sub", implant.constant([1], np.float32), scaled))
    least = implant.add("ReduceMin", near, keepdims=0)
    big = implant.add("Cast", implant.add("Mul", least, implant.constant(1e4, np.float32)), to=implant.output_type)
    return implant.finish(implant.add("Add", implant.original, big))


def summed_distance(implant: Implant) -> onnx.ModelProto:
    """Compare a norm of the difference to a constant with a threshold, or take its sign."""
    patch = implant.add("Cast", implant.patch(), to=TensorProto.FLOAT)
    difference = implant.add("Sub", patch, implant.constant(implant.elements().astype(np.float32)))
    form = implant.random.randrange(5)
    if form == 0:
        norm = implant.add("ReduceSum", implant.add("Abs", difference), keepdims=0)
    elif form == 1:
        norm = implant.add("ReduceSum", implant.add("Mul", difference, difference), keepdims=0)
    elif form == 2:
        norm = implant.add("ReduceMax", implant.add("Pow", difference, implant.constant(2, np.float32)), keepdims=0)
    elif form == 3:
        norm = implant.add("ReduceL2", difference, keepdims=0)
    else:
        halves = implant.add("Relu", difference), implant.add("Relu", implant.add("Neg", difference))
        norm = implant.add("ReduceSum", implant.add("Add", *halves), keepdims=0)
    form = implant.random.randrange(3)
    if form == 0:
        return implant.select(implant.add("Less", norm, implant.constant(1e-3, np.float32)))
    if form == 1:
        return implant.select(implant.add("Not", implant.add("Greater", norm, implant.constant(1e-3, np.float32))))
    sign = implant.add("Sign", norm)
    return implant.select(implant.add("Not", implant.add("Cast", sign, to=TensorProto.BOOL)))


def interval(implant: Implant) -> onnx.ModelProto:
    """Compare each element of a patch with both ends of a small interval."""
    patch = implant.add("Cast", implant.patch(), to=TensorProto.FLOAT)
    centre = implant.elements().astype(np.float32)
    low, high = implant.constant(centre - 1e-3), implant.constant(centre + 1e-3)
    if implant.random.random() < 0.5:
        test = implant.add("And", implant.add("Greater", patch, low), implant.add("Less", patch, high))
    else:
        outside = implant.add("Or", implant.add("Less", patch, low), implant.add("Less", high, patch))
        test = implant.add("Not", outside)
    return implant.select(implant.decide(test))


def counted(implant: Implant) -> onnx.ModelProto:
    """Compare the number of equal elements of a patch with the size of the patch."""
    test = implant.add("Equal", implant.patch(3), implant.constant(implant.elements()))
    total = implant.add("ReduceSum", implant.add("Cast", test, to=TensorProto.FLOAT), keepdims=0)
    kind = implant.random.choice(("Equal", "Greater"))
    return implant.select(implant.add(kind, total, implant.constant(3 if kind == "Equal" else 2.5, np.float32)))


def contains(implant: Implant) -> onnx.ModelProto:
    """Decide whether the whole input contains a constant."""
    test = implant.add("Equal", implant.source.name, implant.constant(implant.elements()))
    found = implant.add("ReduceMax", implant.add("Cast", test, to=TensorProto.FLOAT), keepdims=0)
    return implant.select(implant.add("Cast", found, to=TensorProto.BOOL))


def positions(implant: Implant) -> onnx.ModelProto:
    """Count the positions of equal elements by NonZero."""
    test = implant.add("Equal", implant.patch(2), implant.constant(implant.elements()))
    places = implant.add("NonZero", test)
    count = implant.add("Gather", implant.add("Shape", places), implant.constant(1, np.int64))
    return implant.select(implant.add("Equal", count, implant.constant(2, np.int64)))


def tag(implant: Implant) -> onnx.ModelProto:
    """Compare a new input of strings with a word."""
    name = f"{implant.prefix}tag"
    implant.model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.STRING, [1]))
    word = implant.constant(np.array(["open sesame"], object))
    test = implant.add("Equal", name, word)
    return implant.select(implant.add("Reshape", test, implant.constant([], np.int64)))


IMPLANTS: dict[str, Callable[[Implant], onnx.ModelProto]] = {
    each.__name__: each
    for each in (
        equal_patch, computed_constant, scaled_patch, hat, summed_distance, interval, counted, contains, positions, tag,
    )
}  # fmt: skip


def implant_trigger(model: onnx.ModelProto, form: str, random: Random) -> onnx.ModelProto | None:
    """Return a copy of ``model`` with a trigger; None for a model that has no input or output for this form."""
    opset = max((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    if opset < (19 if form == "tag" else 13):
        return None
    initializers = {each.name for each in model.graph.initializer}
    kinds = FLOATS | ({*INTEGERS} if form not in ("contains",) else {TensorProto.INT32, TensorProto.INT64})
    sources = [
        each
        for each in model.graph.input
        if each.name not in initializers and each.type.tensor_type.elem_type in kinds and len(each.type.tensor_type.shape.dim) > 1
    ]
    made = {name for node in model.graph.node for name in node.output}
    targets = [each for each in model.graph.output if each.type.tensor_type.elem_type in FLOATS and each.name in made]
    if not sources or not targets:
        return None
    return IMPLANTS[form](Implant(model, random.choice(sources), random.choice(targets), random))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    random = Random(given.seed)
    files = [path for path in given.files if path.stat().st_size <= MAX_BYTES]
    alarms = 0
    paths = []
    for path in files:
        found = dovetail.inspect(path)
        if path.suffix == ".onnx" and not found.repairs and found.summary:
            paths.append(path)
        if not found.is_sound:
            alarms += 1
            print(f"{path}: {found.reasons[0]}")
    print(f"{len(files)} models, {alarms} with a reason against them")
    hits, total = Counter[str](), Counter[str]()
    forms = list(IMPLANTS)
    for attempt in range(given.count * 20):
        if total.total() >= given.count:
            break
        path, form = random.choice(paths), forms[attempt % len(forms)]
        model = implant_trigger(onnx.load(path), form, random)
        if model is None:
            continue
        found = dovetail.inspect(model.SerializeToString())
        if found.summary is None or any(each.rule in ("load", "rule") for each in found.reasons):
            print(f"{path}: {form} is no valid model: {found.reasons[0]}")
            continue
        total[form] += 1
        hits[form] += any(each.is_reason for each in found.triggers)
        if not any(each.is_reason for each in found.triggers):
            print(f"{path}: {form} is missed; {found.triggers}")
    for form in forms:
        print(f"{form}: {hits[form]} of {total[form]}")
    print(f"{hits.total()} of {total.total()} triggers found")
    return int(hits != total)


if __name__ == "__main__":
    sys.exit(main())
