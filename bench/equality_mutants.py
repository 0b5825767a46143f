"""Search for false proofs: one edit in a converted model, and whether `dovetail.prove` still calls it equal to the original.

    python bench/equality_mutants.py CORPUS [--count 2000] [--seed 0] [--models TEXT[,TEXT...]] [--megabytes 3] [--json]

Each model of the folder is converted to the other format and back; pairs that are not proved equal are left out. A mutant is
the converted model with one attribute, axis, order of inputs, constant, element type or edge changed. It counts if it runs and
its outputs differ from those of the original and of the unedited conversion, which round differently, on seeded inputs by more
than 1e-3 of an output's largest magnitude; such a mutant that is proved equal is a false proof. A mutant that differs by less
is judged too: it is a false proof if it is proved equal in bits and differs in bits in the interpreter. The exit code is 1 if
there is a false proof. ``--seed`` and the number of a mutant make it again: ``--only MODEL:NUMBER``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
from dovetail.compare.verification.conversion import random_outputs
from dovetail.compare.verification.rewrites import run_row_major
from dovetail.errors import DovetailError
from dovetail.formats import reload
from dovetail.ir.dtypes import dtype
from dovetail.ir.edit import copy_model, replace_uses, set_input
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.inputs_outputs import flatten_outputs
from dovetail.ir.op import bodies
from dovetail.ir.types import Tensor
from dovetail.ops.constant import Constant
from dovetail.ops.elementwise.cast import Cast
from dovetail.runtime.random_inputs import random_inputs

TELLING = 1e-3
"""The difference, relative to an output's largest magnitude, from which on a mutant counts."""
TRIES = 40
"""The most edits that are tried for one mutant."""
Edit = Callable[[Graph, random.Random], str | None]
Arrays = dict[str, Any]


# Edits: each changes the graph and describes the change, or returns None where the drawn place does not allow one


def graphs_of(graph: Graph) -> Iterator[Graph]:
    yield graph
    for node in graph.nodes:
        for _, body in bodies(node.op):
            yield from graphs_of(body)


def computing(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if not isinstance(node.op, Constant)]


def change_number(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + draw.choice((-2, -1, 1, 2))
    if isinstance(value, float):
        return draw.choice((value * 1.1 + 1e-3, -value - 0.5, value * 0.5))
    return None


def change_attribute(node: Node, name: str, draw: random.Random) -> str | None:
    value = getattr(node.op, name)
    if isinstance(value, tuple) and value:
        items = list(value)
        index = draw.randrange(len(items))
        if len(items) > 1 and draw.random() < 0.5:
            other = draw.randrange(len(items))
            items[index], items[other] = items[other], items[index]
        else:
            items[index] = change_number(items[index], draw)
        new: Any = tuple(items)
    elif isinstance(value, str):
        annotation = type(node.op).fields_by_name[name].annotation
        words = [word.strip(" '\"") for word in annotation.removeprefix("Literal[").removesuffix("]").split(",")]
        new = draw.choice(words) if annotation.startswith("Literal[") else None
    else:
        new = change_number(value, draw)
    if new is None or new == value:
        return None
    node.op = node.op.with_(**{name: new})
    return f"{node.op.title}.{name}: {value} -> {new}"


def edit_attribute(graph: Graph, draw: random.Random) -> str | None:
    nodes = [node for node in computing(graph) if any("axis" not in f.name and "axes" not in f.name for f in node.op.fields)]
    if not nodes:
        return None
    node = draw.choice(nodes)
    fields = [field.name for field in node.op.fields if "axis" not in field.name and "axes" not in field.name]
    return change_attribute(node, draw.choice(fields), draw)


def edit_axis(graph: Graph, draw: random.Random) -> str | None:
    names = ("axis", "axes", "perm", "batch_dims", "block", "group")
    pairs = [(node, field.name) for node in computing(graph) for field in node.op.fields if field.name in names]
    if not pairs:
        return None
    node, name = draw.choice(pairs)
    return change_attribute(node, name, draw)


def edit_inputs(graph: Graph, draw: random.Random) -> str | None:
    nodes = [node for node in computing(graph) if sum(x is not None for x in node.inputs) > 1]
    if not nodes:
        return None
    node = draw.choice(nodes)
    first, second = draw.sample([index for index, x in enumerate(node.inputs) if x is not None], 2)
    x, y = node.inputs[first], node.inputs[second]
    if x is y:
        return None
    set_input(node, first, y)
    set_input(node, second, x)
    return f"{node.op.title}: inputs {first} and {second} exchanged"


def edit_constant(graph: Graph, draw: random.Random) -> str | None:
    nodes = [node for node in graph.nodes if isinstance(node.op, Constant) and node.op.data.size]
    if not nodes:
        return None
    node = draw.choice(nodes)
    assert isinstance(node.op, Constant)
    data = np.array(node.op.data)
    kind = draw.choice(("element", "all", "exchange"))
    flat = data.reshape(-1)
    index = draw.randrange(flat.size)
    if data.dtype.kind in "OUS":
        return None
    if kind == "exchange":
        other = draw.randrange(flat.size)
        flat[index], flat[other] = flat[other].copy(), flat[index].copy()
    else:
        chosen = slice(None) if kind == "all" else slice(index, index + 1)
        if data.dtype.kind == "b":
            flat[chosen] = ~flat[chosen]
        elif data.dtype.kind in "iu":
            flat[chosen] = flat[chosen] + data.dtype.type(draw.choice((1, 2)))
        else:
            wide = flat[chosen].astype(np.float64)
            changed = wide * draw.choice((1.01, 1.5, -1.0)) + draw.choice((0.0, 0.01))
            flat[chosen] = changed.astype(data.dtype)
    if data.tobytes() == node.op.data.tobytes():
        return None
    node.op = node.op.with_(data=data)
    return f"constant {node.outputs[0].name}: {kind}"


def edit_type(graph: Graph, draw: random.Random) -> str | None:
    """Round a value through a coarser type, or change the type of a Cast."""
    values = [y for node in computing(graph) for y in node.outputs if isinstance(y.type, Tensor) and y.type.dtype is not None]
    casts = [node for node in graph.nodes if isinstance(node.op, Cast)]
    if casts and draw.random() < 0.3:
        node = draw.choice(casts)
        new = draw.choice(("f32", "i64", "i32", "f16", "u8", "i8", "f64"))
        old = node.op.with_()
        node.op = node.op.with_(to=dtype(new))
        return f"Cast to {new} instead of {old}"
    if not values:
        return None
    value = draw.choice(values)
    assert isinstance(value.type, Tensor) and value.type.dtype is not None
    coarse = {"f32": ("f8e4m3fn", "i8", "i32"), "f64": ("f16", "i32"), "i64": ("u8", "i8"), "i32": ("i8",), "f16": ("i8",)}
    choices = coarse.get(value.type.dtype.name)
    if choices is None or value.node is None:
        return None
    narrow = draw.choice(choices)
    return insert_cast(graph, value, narrow)


def insert_cast(graph: Graph, value: Value, narrow: str) -> str:
    from dovetail.ir.edit import connect

    assert isinstance(value.type, Tensor) and value.node is not None
    wide = value.type.dtype
    first, second = Value(graph.claim("narrow")), Value(graph.claim("wide"))
    replace_uses(graph, value, second)
    nodes = [connect(Node(Cast(to=dtype(narrow)), [value], [first])), connect(Node(Cast(to=wide), [first], [second]))]
    position = graph.nodes.index(value.node) + 1
    graph.nodes[position:position] = nodes
    if any(y is second for y in graph.outputs):
        name = value.name
        value.name, second.name = graph.claim(f"{name}_before"), name
    return f"{value.name} rounded to {narrow}"


def edit_edge(graph: Graph, draw: random.Random) -> str | None:
    """Replace an input of a node by an earlier value of the same type."""
    nodes = [node for node in computing(graph) if node.inputs]
    if not nodes:
        return None
    node = draw.choice(nodes)
    index = draw.randrange(len(node.inputs))
    x = node.inputs[index]
    if x is None:
        return None
    earlier = [*graph.inputs]
    for each in graph.nodes:
        if each is node:
            break
        earlier += each.outputs
    candidates = [y for y in earlier if y is not x and y.type == x.type]
    if not candidates:
        return None
    y = draw.choice(candidates)
    set_input(node, index, y)
    return f"{node.op.title}: input {index} is {y.name} instead of {x.name}"


EDITS: dict[str, Edit] = {
    "attribute": edit_attribute,
    "axis": edit_axis,
    "inputs": edit_inputs,
    "constant": edit_constant,
    "type": edit_type,
    "edge": edit_edge,
}


# Mutants


class Subject:
    """A model, its conversion, inputs, and the outputs of both for them."""

    def __init__(self, name: str, model: Model, converted: Model, seed: int) -> None:
        self.name = name
        self.model = model
        self.converted = converted
        self.inputs = random_inputs(model, seed=seed, beside={})
        self.random = random_outputs(model)
        self.outputs = [self.run(model), self.run(converted)]

    def run(self, model: Model) -> Arrays:
        outputs = flatten_outputs(dict(dovetail.run(model, self.inputs)))
        return {name: np.asarray(array) for name, array in outputs.items() if name not in self.random}

    def run_interpreter(self, model: Model) -> Arrays:
        outputs = flatten_outputs(run_row_major(model, self.inputs))
        return {name: np.asarray(array) for name, array in outputs.items() if name not in self.random}


def difference(before: Arrays, after: Arrays) -> float:
    """Return the largest difference, relative to the largest magnitude of its output; infinite for other types or shapes."""
    largest = 0.0
    if before.keys() != after.keys():
        return float("inf")
    for name, x in before.items():
        y = after[name]
        if x.shape != y.shape or x.dtype != y.dtype:
            return float("inf")
        if x.dtype.kind in "OUSb" or not x.size:
            largest = max(largest, float("inf") if not np.array_equal(x, y) else 0.0)
            continue
        x, y = x.astype(np.complex128), y.astype(np.complex128)
        bad = ~np.isfinite(x) | ~np.isfinite(y)
        if bad.any():
            if not np.array_equal(x[bad], y[bad], equal_nan=True):
                return float("inf")
            x, y = x[~bad], y[~bad]
        scale = float(np.abs(x).max(initial=0.0))
        apart = float(np.abs(x - y).max(initial=0.0))
        largest = max(largest, apart / scale if scale else (0.0 if not apart else float("inf")))
    return largest


def have_equal_bits(before: Arrays, after: Arrays) -> bool:
    return before.keys() == after.keys() and all(
        x.dtype == after[name].dtype
        and x.shape == after[name].shape
        and (x.tobytes() == after[name].tobytes() or np.array_equal(x, after[name], equal_nan=x.dtype.kind in "fc"))
        for name, x in before.items()
    )


def infer_again(model: Model) -> Model:
    """Infer the types of an edited model, without the elements that were known before the edit."""
    for graph in graphs_of(model.graph):
        for value in graph.values():
            value.value = None
    return dovetail.infer(model)


def make_mutant(subject: Subject, seed: str, wanted: str) -> tuple[str, str, Model, float] | None:
    """Return the kind, the description, the mutant, and its difference; None where no edit of those tried changes an output.

    Half of the tries are of the kind ``wanted``.
    """
    draw = random.Random(seed)
    for number in range(TRIES):
        mutant = copy_model(subject.converted)
        kind = wanted if number < TRIES // 2 else draw.choice(list(EDITS))
        try:
            graph = draw.choice(list(graphs_of(mutant.graph)))
            text = EDITS[kind](graph, draw)
            if text is None:
                continue
            mutant = infer_again(mutant)
            found = subject.run(mutant)
            apart = min(difference(outputs, found) for outputs in subject.outputs)
        except (DovetailError, ValueError, TypeError, OverflowError, IndexError):
            continue
        if apart:
            return kind, text, mutant, apart
    return None


def subjects(folder: Path, texts: list[str], megabytes: float, seed: int) -> Iterator[Subject | str]:
    """Yield each model whose conversion is proved equal, or the reason why a model is left out."""
    for path in sorted(folder.iterdir()):
        if path.suffix not in (".onnx", ".xml") or (texts and not any(text in path.name for text in texts)):
            continue
        weights = path.with_suffix(".bin") if path.suffix == ".xml" else path
        if weights.exists() and weights.stat().st_size > megabytes * 1e6:
            continue
        try:
            model = dovetail.load(path)
            there, back = ("openvino", "onnx") if path.suffix == ".onnx" else ("onnx", "openvino")
            converted = reload(reload(model, there), back)
            verdict = dovetail.prove(model, converted, real=True).verdict
            if verdict not in ("bits", "real"):
                yield f"{path.name}: not proved ({verdict})"
                continue
            yield Subject(path.name, model, converted, seed)
        except DovetailError as error:
            yield f"{path.name}: [{error.code}] {error.message}"


def judge(subject: Subject, number: int, seed: int) -> dict[str, Any] | None:
    """Make a mutant and try to prove it equal. Returns its row; None where no mutant was found."""
    found = make_mutant(subject, f"{subject.name}:{seed}:{number}", list(EDITS)[number % len(EDITS)])
    if found is None:
        return None
    kind, text, mutant, apart = found
    counts = apart > TELLING
    verdict = dovetail.prove(subject.model, mutant, real=counts).verdict
    is_false = verdict in ("bits", "real") and (counts or differs_in_bits(subject, mutant))
    return {
        "model": subject.name, "number": number, "kind": kind, "edit": text, "difference": apart, "counts": counts,
        "verdict": verdict, "false": is_false,
    }  # fmt: skip


def differs_in_bits(subject: Subject, mutant: Model) -> bool:
    return not have_equal_bits(subject.run_interpreter(subject.model), subject.run_interpreter(mutant))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", default="")
    parser.add_argument("--megabytes", type=float, default=3.0, help="the largest size of a model's weights")
    parser.add_argument("--only", metavar="MODEL:NUMBER", help="this mutant alone")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    texts = [text for text in options.models.split(",") if text]
    if options.only:
        texts = [options.only.rpartition(":")[0]]
    chosen: list[Subject] = []
    for each in subjects(options.folder, texts, options.megabytes, options.seed):
        if isinstance(each, str):
            print(f"left out: {each}", file=sys.stderr)
        else:
            chosen.append(each)
    if not chosen:
        sys.exit("no model of the folder is proved equal to its conversion")
    rows: list[dict[str, Any]] = []
    for number in range(options.count * 3):
        subject = chosen[number % len(chosen)]
        if options.only and number // len(chosen) != int(options.only.rpartition(":")[2]):
            continue
        row = judge(subject, number // len(chosen), options.seed)
        if row is None:
            continue
        rows.append(row)
        if options.json or row["false"]:
            print(json.dumps(row), flush=True)
        if sum(row["counts"] for row in rows) >= options.count or options.only:
            break
    counted = [row for row in rows if row["counts"]]
    kinds = Counter(row["kind"] for row in counted)
    verdicts = Counter(row["verdict"] for row in counted)
    false = sum(row["false"] for row in rows)
    print(f"{len(counted)} mutants of {len(chosen)} models ({', '.join(f'{n} {kind}' for kind, n in sorted(kinds.items()))})")
    small = len(rows) - len(counted)
    print(f"verdicts: {', '.join(f'{n} {verdict}' for verdict, n in sorted(verdicts.items()))}; {small} more differ by less")
    print(f"false proofs: {false}")
    sys.exit(1 if false else 0)


if __name__ == "__main__":
    main()
