"""Run models in the runtime of this environment, one request a line; a script that needs only numpy and the runtime.

A request has the paths of a model and of an .npz file of its inputs, and the path of an .npz file for its outputs. Arrays of
types that numpy lacks are unsigned integers of the same bits, with the name of their type. The script runs in Python 3.8 too.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnxruntime


def run_onnxruntime(request: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if request["threads"] is not None:
        options.intra_op_num_threads = request["threads"]
        options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
    known = {item.name for item in session.get_inputs()}
    fed = {name: array for name, array in inputs.items() if name in known}
    kinds = {entry["name"]: entry["onnx"] for entry in request["inputs"] if entry["type"]}
    if not kinds and all(item.type != "tensor(bfloat16)" for item in session.get_outputs()):
        return list(session.run(None, fed))
    values = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, kinds[name])
        if name in kinds
        else onnxruntime.OrtValue.ortvalue_from_numpy(array)
        for name, array in fed.items()
    }
    return [_from_value(value) for value in session.run_with_ort_values(None, values)]


def _from_value(value: onnxruntime.OrtValue) -> Any:
    if value.data_type() != "tensor(bfloat16)":
        return value.numpy()
    shape = tuple(value.shape())
    size = int(np.prod(shape, dtype=np.int64)) * 2
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return ("bfloat16", np.frombuffer(raw, np.uint16).reshape(shape))


def run_openvino(request: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    try:
        import openvino as ov

        core = ov.Core()
    except AttributeError:
        # Releases before 2023.1.
        ov = importlib.import_module("openvino.runtime")
        core = ov.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    if request["threads"] is not None:
        config.update({"INFERENCE_NUM_THREADS": str(request["threads"]), "PERFORMANCE_HINT": "LATENCY"})
    compiled = core.compile_model(core.read_model(request["model"]), "CPU", config)
    entries = {entry["name"]: entry for entry in request["inputs"]}
    names = [entry["name"] for entry in request["inputs"]]
    fed = []
    for index, port in enumerate(compiled.inputs):
        same = [name for name in names if name in port.get_names()]
        entry = entries[same[0] if same else names[index]]
        array = inputs[entry["name"]]
        if entry["type"]:
            tensor = ov.Tensor(getattr(ov.Type, entry["openvino"]), ov.Shape(array.shape))
            np.copyto(tensor.data.view(np.uint8).reshape(-1), array.reshape(-1).view(np.uint8))
            fed.append(tensor)
        else:
            fed.append(ov.Tensor(array))
    found = compiled(fed)
    outputs: list[Any] = []
    for port in compiled.outputs:
        array = np.array(found[port])
        is_bf16 = port.get_element_type().get_type_name() == "bf16"
        outputs.append(("bfloat16", array.view(np.uint16)) if is_bf16 else array)
    return outputs


def run_onnx(request: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    import onnx.reference

    strange = [entry["type"] for entry in request["inputs"] if entry["type"]]
    if strange:
        raise ValueError(f"inputs of the type {strange[0]} are not passed to the reference evaluator")
    return list(onnx.reference.ReferenceEvaluator(request["model"]).run(None, inputs))


RUNTIMES: dict[str, Callable[[dict[str, Any], dict[str, Any]], list[Any]]] = {
    "onnx": run_onnx,
    "onnxruntime": run_onnxruntime,
    "openvino": run_openvino,
}


def encode(item: object, arrays: dict[str, Any]) -> Any:
    """Return the description of an output, and add its arrays to ``arrays``."""
    if item is None:
        return None
    if isinstance(item, list):
        return [encode(each, arrays) for each in item]
    kind = ""
    if isinstance(item, tuple):
        kind, item = item
    array = np.asarray(item)
    if isinstance(item, dict) or array.dtype.kind == "V":
        raise ValueError(
            f"outputs of the type {array.dtype if array.dtype.kind == 'V' else type(item).__name__} are not passed on"
        )
    if array.dtype.kind == "O":
        array = array.astype("U")
    elif array.dtype.num > 255:
        # Types of ml_dtypes.
        kind, array = array.dtype.name, array.view(f"u{array.dtype.itemsize}")
    key = str(len(arrays))
    arrays[key] = array
    return {"key": key, "type": kind}


def answer_of(package: str, request: dict[str, Any]) -> dict[str, Any]:
    inputs: dict[str, Any] = {}
    with np.load(request["arrays"], allow_pickle=False) as stored:
        for index, entry in enumerate(request["inputs"]):
            array = stored[str(index)]
            inputs[entry["name"]] = array.astype(object) if array.dtype.kind == "U" else array
    try:
        outputs = RUNTIMES[package](request, inputs)
        arrays: dict[str, Any] = {}
        described = [encode(item, arrays) for item in outputs]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}"}
    np.savez(request["results"], **arrays)
    return {"outputs": described}


def probe(package: str) -> None:
    """Import a runtime, and pass it an array: some releases are imported with a numpy that they cannot use."""
    runtime = importlib.import_module(package)
    array = np.arange(3, dtype=np.float32)
    if package == "onnxruntime" and hasattr(runtime, "OrtValue"):
        array_of_runtime = runtime.OrtValue.ortvalue_from_numpy(array).numpy()
    elif package == "openvino":
        namespace = runtime if hasattr(runtime, "Tensor") else importlib.import_module("openvino.runtime")
        array_of_runtime = namespace.Tensor(array).data
    else:
        return
    if not np.array_equal(array, array_of_runtime):
        raise ValueError(f"an array of {package} differs from numpy's")


def end_with(parent: int) -> None:
    """End this process when its parent has ended, also in a run that hangs."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    if sys.argv[1] == "--probe":
        probe(sys.argv[2])
        return
    package = sys.argv[1]
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    # A runtime may print on stdout, which carries the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    importlib.import_module(package)
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(answer_of(package, json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
