"""Reduce failing models of a corpus: each must come down to a few nodes on which its check still fails.

    python bench/reduce.py CORPUS_FOLDER [--models N] [--seed N] [--most N] [--json]

Each model (.onnx or .xml) gets a check that fails on one pattern of its file: an operator, two in a row, three in a row, two
anywhere, or an operator in a file that its own runtime loads. The check reads each candidate with the onnx package or an XML
parser. Every fourth check is a command, a Python process of its own. --most is the number of nodes to which a model must come.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import dovetail
from dovetail.compare.reduce.model_parts import operators_of
from dovetail.errors import DovetailError

KINDS = ("one", "edge", "path", "pair", "runs")
Edges = list[tuple[str, str]]


def read_graph(path: str) -> tuple[list[str], list[tuple[int, int]]]:
    """Return the operators of a file, constants apart, and the edges between them."""
    if path.endswith(".onnx"):
        import onnx

        nodes = [node for node in onnx.load(path).graph.node if node.op_type not in ("Constant", "Identity")]
        producers = {name: index for index, node in enumerate(nodes) for name in node.output}
        edges = [(producers[name], index) for index, node in enumerate(nodes) for name in node.input if name in producers]
        return [node.op_type for node in nodes], edges
    from xml.etree import ElementTree

    root = ElementTree.parse(path).getroot()
    layers = [layer for layer in root.find("layers") if layer.get("type") not in ("Const", "Parameter", "Result")]
    numbers = {layer.get("id"): index for index, layer in enumerate(layers)}
    ends = ((edge.get("from-layer"), edge.get("to-layer")) for edge in root.find("edges"))
    return [layer.get("type") for layer in layers], [(numbers[a], numbers[b]) for a, b in ends if a in numbers and b in numbers]


def has_pattern(path: str, kind: str, pattern: list[str]) -> bool:
    """Return whether the file has the fault: the pattern (and its runtime loads it, for ``runs``)."""
    kinds, edges = read_graph(path)
    if kind in ("one", "pair", "runs"):
        found = all(kinds.count(name) >= pattern.count(name) for name in pattern)
    else:
        ends = {index for index, name in enumerate(kinds) if name == pattern[0]}
        for name in pattern[1:]:
            ends = {second for first, second in edges if first in ends and kinds[second] == name}
        found = bool(ends)
    return found and (kind != "runs" or can_load(path))


def can_load(path: str) -> bool:
    try:
        if path.endswith(".onnx"):
            import onnxruntime

            onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        else:
            import openvino

            openvino.Core().compile_model(path, "CPU")
    except Exception:
        return False
    return True


def choose_pattern(path: str, kind: str, generator: random.Random) -> list[str]:
    kinds, edges = read_graph(path)
    rare = sorted(set(kinds), key=lambda name: (kinds.count(name), name))[: max(3, len(set(kinds)) // 2)]
    if kind in ("one", "runs"):
        return [generator.choice(rare)]
    if kind == "pair":
        return generator.sample(rare, 2)
    first, second = generator.choice(edges)
    if kind == "edge":
        return [kinds[first], kinds[second]]
    thirds = [end for start, end in edges if start == second]
    return [kinds[first], kinds[second], *([kinds[generator.choice(thirds)]] if thirds else [])]


def reduce_one(path: Path, kind: str, is_command: bool, generator: random.Random) -> dict[str, Any]:
    pattern = choose_pattern(str(path), kind, generator)
    command = shlex.join([sys.executable, str(Path(__file__).resolve()), "--check", kind, ",".join(pattern)]) + " {}"
    check: str | Callable[[str], bool] = command if is_command else lambda file: has_pattern(file, kind, pattern)
    start = perf_counter()
    found = dovetail.reduce(path, check, max_runs=400)
    seconds = perf_counter() - start
    return {
        "model": path.name, "kind": kind, "pattern": pattern, "command": is_command, "seconds": seconds,
        "runs": found.report.runs,
        "before": found.report.nodes_before, "after": found.report.nodes_after, "notes": found.report.notes,
        "nodes": [type(node.op).__name__ for node in operators_of(found)],
    }  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--check"]:
        sys.exit(has_pattern(sys.argv[4], sys.argv[2], sys.argv[3].split(",")))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    generator = random.Random(options.seed)
    files = sorted(path for path in options.corpus.iterdir() if path.suffix in (".onnx", ".xml"))
    results: list[dict[str, Any]] = []
    while len(results) < options.models:
        number = len(results)
        path = generator.choice([each for each in files if each.suffix == (".onnx", ".xml")[number % 2]])
        kind = KINDS[number // 2 % len(KINDS)]
        try:
            result = reduce_one(path, kind, number % 4 == 3, generator)
        except DovetailError as error:
            # A file that cannot be written again, such as one that breaks a rule, is no model to reduce.
            print(f"skipped {path.name}: {error.code}", file=sys.stderr)
            continue
        results.append(result)
        if not options.json:
            print(
                f"{result['model']}: {kind} {'>'.join(result['pattern'])}: {result['before']} to {result['after']} nodes "
                f"{result['nodes']}, {result['runs']} runs, {result['seconds']:.1f} s {'; '.join(result['notes'])}",
                flush=True,
            )
    good = sum(each["after"] <= options.most for each in results)
    print(json.dumps(results) if options.json else f"{good} of {len(results)} have at most {options.most} nodes")
    sys.exit(good < len(results))


if __name__ == "__main__":
    main()
