"""Rewrite an ONNX file by one tool, or run a file; bench/judge.py runs this with the Python of an environment with the tools.

    PYTHON bench/other_tools.py TOOL SOURCE.onnx TARGET
    PYTHON bench/other_tools.py run MODEL INPUTS.npz OUTPUTS.npz
    PYTHON bench/other_tools.py versions

`run` computes an ONNX file in onnxruntime without its optimizations, an IR file in OpenVINO in f32. Outputs are numbered.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

VERSIONS = ("onnxslim", "onnxsim", "onnxscript", "onnxruntime", "onnx", "openvino")


def slim(source: str, target: str) -> None:
    import onnxslim

    onnxslim.slim(source, target)


def simplify_by_onnxsim(source: str, target: str) -> None:
    import onnx
    import onnxsim

    model, _ = onnxsim.simplify(onnx.load(source))
    onnx.save(model, target)


def optimize_by_onnxscript(source: str, target: str) -> None:
    import onnx
    from onnxscript import optimizer

    onnx.save(optimizer.optimize(onnx.load(source)), target)


def optimize_by_onnxruntime(source: str, target: str, level: str) -> None:
    import onnxruntime

    options = _session_options(level)
    options.optimized_model_filepath = target
    onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def convert_version(source: str, target: str) -> None:
    """Convert to the newest opset for which onnx's version converter has all adapters."""
    import onnx
    from onnx import version_converter

    model = onnx.load(source)
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    newest = onnx.defs.onnx_opset_version()
    for version in range(newest, opset, -1):
        try:
            converted = version_converter.convert_version(model, version)
        except Exception:
            if version == opset + 1:
                raise
            continue
        onnx.save(converted, target)
        return
    raise ValueError(f"opset {opset} is the newest of onnx, {newest}")


def convert_by_openvino(source: str, target: str) -> None:
    import openvino

    openvino.save_model(openvino.convert_model(source), target, compress_to_fp16=False)


def run_onnxruntime(model: str, inputs: dict[str, Any]) -> list[Any]:
    import onnxruntime

    session = onnxruntime.InferenceSession(model, _session_options("none"), providers=["CPUExecutionProvider"])
    names = {value.name for value in session.get_inputs()}
    results: list[Any] = session.run(None, {name: array for name, array in inputs.items() if name in names})
    return results


def _session_options(level: str) -> Any:
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }[level]
    return options


def run_openvino(model: str, inputs: dict[str, Any]) -> list[Any]:
    import openvino

    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    arrays = list(inputs.values())
    operands = {
        position: next((inputs[name] for name in port.get_names() if name in inputs), arrays[min(position, len(arrays) - 1)])
        for position, port in enumerate(compiled.inputs)
    }
    results = compiled.create_infer_request().infer(operands)
    return [results[port] for port in compiled.outputs]


TOOLS = {
    "onnxslim": slim,
    "onnxsim": simplify_by_onnxsim,
    "onnxscript": optimize_by_onnxscript,
    "onnxruntime basic": lambda source, target: optimize_by_onnxruntime(source, target, "basic"),
    "onnxruntime extended": lambda source, target: optimize_by_onnxruntime(source, target, "extended"),
    "onnx opset": convert_version,
    "openvino": convert_by_openvino,
}


def main() -> int:
    command, *paths = sys.argv[1:]
    if command == "versions":
        print(json.dumps({name: metadata.version(name) for name in VERSIONS}))
    elif command == "run":
        model, inputs, outputs = paths
        with np.load(inputs) as arrays:
            operands = dict(arrays)
        results = run_openvino(model, operands) if Path(model).suffix == ".xml" else run_onnxruntime(model, operands)
        np.savez(outputs, **{f"out{position}": np.asarray(result) for position, result in enumerate(results)})
    else:
        TOOLS[command](*paths)
    return 0


if __name__ == "__main__":
    sys.exit(main())
