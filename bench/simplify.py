"""Simplify every model of a folder, beside onnxslim and onnxsim: nodes, bytes, wall time, and whether the answers stay.

    python bench/simplify.py FOLDER [--models TEXT[,TEXT...]] [--peers PYTHON] [--rounds N] [--seconds S] [--prove] [--json]

FOLDER has an index.json as the development corpus or build/zoo have one. Each tool runs in a process of its own: it reads the
file, simplifies it and writes the result, once untimed and once timed; the tools are interleaved for N rounds. Nodes are those
of the written file, subgraphs included, constants apart; the opset stays. The written ONNX file runs in onnxruntime on the
stored inputs, an IR file, which ours alone simplifies, in OpenVINO; answers are compared with the stored ones, or where there
are none with those of the original file. --peers names an interpreter with the extra `bench`; --prove applies
`simplify(prove=True)`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

TOOLS = ("dovetail", "onnxslim", "onnxsim")
TOLERANCE = 1e-3
"""For records without a tolerance of their own, relative to the largest magnitude of an output."""


# One tool, in a process of its own


def simplify_file(tool: str, source: str, target: str, prove: bool) -> dict[str, Any]:
    """Simplify a file by one tool. Returns the seconds, and notes of the proof."""
    notes: list[str] = []
    if tool == "dovetail":
        import dovetail

        start = perf_counter()
        format = "onnx" if target.endswith(".onnx") else "openvino"
        model = dovetail.simplify(dovetail.load(source), prove=prove, target=format)
        report = model.report
        dovetail.save(model, target, **({"types": False} if target.endswith(".onnx") else {}))
        seconds = perf_counter() - start
        notes = [*report.notes, *(f"{each.name} taken back: {each.reverted}" for each in report.refutations)]
    elif tool == "onnxslim":
        import onnxslim

        start = perf_counter()
        onnxslim.slim(source, target)
        seconds = perf_counter() - start
    else:
        import onnx
        import onnxsim

        start = perf_counter()
        model, _ = onnxsim.simplify(onnx.load(source))
        onnx.save(model, target)
        seconds = perf_counter() - start
    return {"seconds": seconds, "notes": notes}


def run_tool(python: str, tool: str, source: Path, target: Path, seconds: float, prove: bool) -> dict[str, Any]:
    """Run ``simplify_file`` in a process. Returns its answer, or the reason why there is none as ``error``."""
    command = [python, __file__, "--tool", tool, str(source), str(target), *(["--prove"] if prove else [])]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"over {seconds:g} s"}
    lines = [line for line in ended.stdout.splitlines() if line.startswith('{"seconds"')]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {"error": f"{ended.returncode}: {ended.stderr.strip()[-160:]}"}
    return found


# Counting and comparing


def count_nodes(path: Path) -> int:
    """Count the nodes of a file and its subgraphs, without constants, parameters and results."""
    if path.suffix == ".xml":
        from xml.etree import ElementTree

        layers = ElementTree.parse(path).getroot().iter("layer")
        return sum(layer.get("type") not in ("Const", "Parameter", "Result") for layer in layers)
    import onnx

    def count(graph: Any) -> int:
        inner = (attribute.g for node in graph.node for attribute in node.attribute if attribute.type == attribute.GRAPH)
        return sum(node.op_type != "Constant" for node in graph.node) + sum(map(count, inner))

    return count(onnx.load(str(path), load_external_data=False).graph)


def count_bytes(path: Path) -> int:
    return path.stat().st_size + (path.with_suffix(".bin").stat().st_size if path.suffix == ".xml" else 0)


def run_file(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run a file in its own runtime. An input of IR that no stored name matches takes the array at its position."""
    if path.suffix == ".xml":
        return run_openvino(path, inputs)
    from dovetail.compare.verification.conversion import runner_for

    return dict(runner_for(path).run(inputs))


def run_openvino(path: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run an IR file in OpenVINO, in f32. The answers are numbered, as the corpus stores them."""
    import openvino

    compiled = openvino.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    arrays = list(inputs.values())
    given = {
        position: next(
            (inputs[name] for name in sorted(port.get_names()) if name in inputs), arrays[min(position, len(arrays) - 1)]
        )
        for position, port in enumerate(compiled.inputs)
    }
    results = compiled.create_infer_request().infer(given)
    return {f"out{position}": results[port] for position, port in enumerate(compiled.outputs)}


def compare_answers(record: dict[str, Any], source: Path, target: Path) -> str:
    """Compare the answers of a simplified file with the stored ones, or with the original's. Returns the first difference."""
    cases = list(cases_of(record, source))
    if not cases:
        return "no inputs"
    for inputs, stored in cases:
        try:
            reference = stored if stored is not None else run_file(source, inputs)
        except Exception as error:
            return f"the original does not run: {error}"[:160]
        try:
            answers = run_file(target, inputs)
        except Exception as error:
            return f"does not run: {error}"[:160]
        for position, (name, first) in enumerate(reference.items()):
            # OpenVINO's stored answers are numbered.
            second = answers[name] if name in answers else [*answers.values(), None][min(position, len(answers))]
            reason = difference(first, second, record)
            if reason:
                return f"{name}: {reason}"
    return ""


def difference(first: Any, second: Any, record: dict[str, Any]) -> str:
    if isinstance(first, list | dict) or first is None or second is None:
        return "" if type(first) is type(second) else "is missing"
    x, y = np.asarray(first), np.asarray(second)
    if x.shape != y.shape:
        return f"shape {y.shape} for {x.shape}"
    if record.get("unstable_reference") or x.dtype.kind in "OUS":
        return "" if x.dtype.kind not in "OUS" or np.array_equal(x, y) else "other strings"
    wide, narrow = x.astype(np.float64), y.astype(np.float64)
    if not np.array_equal(np.isfinite(wide), np.isfinite(narrow)):
        return "NaN or infinity in other places"
    finite = np.isfinite(wide)
    largest, apart = np.max(np.abs(wide[finite]), initial=0), np.max(np.abs(wide[finite] - narrow[finite]), initial=0)
    allowed = record.get("tolerance", TOLERANCE) * (3 if record.get("lowp") else 1)
    return "" if apart <= allowed * largest else f"{apart / largest if largest else apart:.3g} apart, {allowed:g} allowed"


def cases_of(record: dict[str, Any], source: Path) -> Any:
    """Yield the stored inputs of a model, each with the stored outputs or None."""
    if "inputs" in record and isinstance(record["inputs"], str):
        root = record["root"]
        for which in ("", "2"):
            path = root / record["inputs"].format(which)
            if path.exists():
                yield dict(np.load(path)), None
        return
    stem = source.with_suffix("")
    reference = "ovref" if source.suffix == ".xml" else "ref"
    for which in ("", "2"):
        inputs, stored = Path(f"{stem}.in{which}.npz"), Path(f"{stem}.{reference}{which}.npz")
        if inputs.exists() and (stored.exists() or not which):
            yield dict(np.load(inputs)), dict(np.load(stored)) if stored.exists() else None


# The table


def files_of(folder: Path, texts: list[str]) -> list[tuple[dict[str, Any], Path]]:
    records = json.loads((folder / "index.json").read_text(encoding="utf-8"))
    found = []
    for record in records:
        record["root"] = folder
        names = [record["file"]] if "file" in record else [f"{record['id']}.onnx", f"{record['id']}.xml"]
        names = [name for name in names if not texts or any(text in name for text in texts)]
        found += [(record, folder / name) for name in names if (folder / name).exists()]
    return found


def measure(record: dict[str, Any], source: Path, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Simplify one file by every tool, interleaved. Returns the row of the table."""
    tools = TOOLS if source.suffix == ".onnx" else TOOLS[:1]
    row: dict[str, Any] = {"file": source.name, "nodes": count_nodes(source), "bytes": count_bytes(source), "tools": {}}
    times: dict[str, list[float]] = {tool: [] for tool in tools}
    for number in range(options.rounds):
        for tool in tools:
            target = folder / f"{tool}{source.suffix}"
            python = sys.executable if tool == "dovetail" else options.peers
            prove = options.prove and tool == "dovetail" and number == options.rounds - 1
            found = run_tool(python, tool, source, target, options.seconds, prove)
            entry = row["tools"].setdefault(tool, {})
            if "error" in found:
                entry["error"] = found["error"]
                continue
            if not prove:
                times[tool].append(found["seconds"])
            entry["notes"] = found["notes"]
    for tool, entry in row["tools"].items():
        target = folder / f"{tool}{source.suffix}"
        if "error" not in entry:
            entry["nodes"], entry["bytes"] = count_nodes(target), count_bytes(target)
            entry["difference"] = compare_answers(record, source, target)
            entry["seconds"] = median(times[tool]) if times[tool] else None
    return row


def text_of(row: dict[str, Any]) -> str:
    parts = [f"{row['file'][:44]:44} {row['nodes']:6}"]
    for tool, entry in row["tools"].items():
        if "error" in entry:
            parts.append(f"{tool} fails: {entry['error']}"[:100])
            continue
        seconds = "" if entry["seconds"] is None else f"{entry['seconds']:7.3f} s"
        parts.append(f"{tool} {entry['nodes']:6} {entry['bytes'] / row['bytes']:6.3f} {seconds}")
        parts += [entry["difference"], *entry["notes"]]
    return "  ".join(part for part in parts if part)


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Return the lines about all files: answers, nodes, bytes and time."""
    ours = [(row, row["tools"]["dovetail"]) for row in rows if "error" not in row["tools"]["dovetail"]]
    lines = [
        f"{len(rows)} files, {len(ours)} simplified, {sum(not entry['difference'] for _, entry in ours)} with equal answers",
        f"larger than the original by more than 1 %: {sum(entry['bytes'] > 1.01 * row['bytes'] for row, entry in ours)}",
    ]
    for peer in TOOLS[1:]:
        both = [(row["tools"][peer], entry) for row, entry in ours if peer in row["tools"] and "error" not in row["tools"][peer]]
        if not both:
            continue
        fewer = sum(entry["nodes"] <= other["nodes"] for other, entry in both)
        ratios = [entry["seconds"] / other["seconds"] for other, entry in both if entry["seconds"] and other["seconds"]]
        time = f"; median of the ratios of time {median(ratios):.2f}" if ratios else ""
        lines.append(
            f"{peer}: {len(both)} files, {sum(not other['difference'] for other, _ in both)} with equal answers; ours has fewer "
            f"nodes or as many on {fewer} ({fewer / len(both):.1%}){time}"
        )
    return lines


def main() -> None:
    if "--tool" in sys.argv:
        _, tool, source, target, *rest = sys.argv[1:]
        if "--prove" not in rest:
            # The first run imports modules.
            simplify_file(tool, source, target, False)
        print(json.dumps(simplify_file(tool, source, target, "--prove" in rest)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--models", default="")
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=300, help="the most that one run may take")
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for record, source in files_of(options.folder.resolve(), [text for text in options.models.split(",") if text]):
            row = measure(record, source, options, Path(folder))
            rows.append(row)
            print(text_of(row), file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps({"rows": rows, "summary": summary(rows), "load": os.getloadavg()}, indent=1))
    else:
        print("\n".join(summary(rows)))


if __name__ == "__main__":
    main()
