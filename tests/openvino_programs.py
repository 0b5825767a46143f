"""Programs for OpenVINO: ``python tests/openvino_programs.py MODULE FOLDER`` runs them with that module as ``openvino``.

They import the package in the ways in which OpenVINO's samples do, and print what they find as JSON, by the program's name.
``FOLDER`` has the models of the test that runs this file.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

PROGRAMS: dict[str, Callable[[str], Any]] = {}


def program(function: Callable[[str], Any]) -> Callable[[str], Any]:
    PROGRAMS[function.__name__] = function
    return function


def pictures(count: int, height: int = 12, width: int = 10) -> Iterator[np.ndarray[Any, Any]]:
    random = np.random.default_rng(1)
    for _ in range(count):
        yield random.integers(0, 255, (height, width, 3), np.uint8)


F32 = {"INFERENCE_PRECISION_HINT": "f32"}


@program
def classify_one_picture(folder: str) -> Any:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(f"{folder}/image.onnx")
    assert len(model.inputs) == 1 and len(model.outputs) == 1
    picture = np.expand_dims(next(pictures(1)), 0)
    ppp = ov.preprocess.PrePostProcessor(model)
    ppp.input().tensor().set_shape(picture.shape).set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
    ppp.input().preprocess().resize(ov.preprocess.ResizeAlgorithm.RESIZE_LINEAR)
    ppp.input().model().set_layout(ov.Layout("NCHW"))
    ppp.output().tensor().set_element_type(ov.Type.f32)
    compiled = core.compile_model(ppp.build(), "CPU", F32)
    scores = next(iter(compiled.infer_new_request({0: picture}).values())).reshape(-1)
    return [[int(index), float(scores[index])] for index in np.argsort(scores)[::-1]]


@program
def classify_many_pictures(folder: str) -> Any:
    import openvino as ov
    from openvino.preprocess import PrePostProcessor, ResizeAlgorithm

    core = ov.Core()
    ppp = PrePostProcessor(core.read_model(f"{folder}/image.onnx"))
    ppp.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC")).set_spatial_dynamic_shape()
    ppp.input().model().set_layout(ov.Layout("NCHW"))
    ppp.input().preprocess().resize(ResizeAlgorithm.RESIZE_LINEAR)
    found: dict[int, Any] = {}

    def keep(request: ov.InferRequest, number: int) -> None:
        found[number] = next(iter(request.results.values())).tolist()

    queue = ov.AsyncInferQueue(core.compile_model(ppp.build(), "CPU", F32))
    queue.set_callback(keep)
    for number, picture in enumerate(pictures(5)):
        queue.start_async({0: picture[None]}, number)
    queue.wait_all()
    return [found[number] for number in range(5)]


@program
def reshape_to_the_size_of_a_picture(folder: str) -> Any:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(f"{folder}/image.onnx")
    picture = next(pictures(1))[None]
    count, height, width, channels = picture.shape
    model.reshape({model.input().get_any_name(): ov.PartialShape((count, channels, height, width))})
    ppp = ov.preprocess.PrePostProcessor(model)
    ppp.input().tensor().set_element_type(ov.Type.u8).set_layout(ov.Layout("NHWC"))
    ppp.input().model().set_layout(ov.Layout("NCHW"))
    compiled = core.compile_model(ppp.build(), "CPU", F32)
    return [str(model.input().partial_shape), compiled(picture)[0].tolist()]


@program
def query_devices(folder: str) -> Any:
    import openvino as ov

    core = ov.Core()
    for device in core.available_devices:
        for name in core.get_property(device, "SUPPORTED_PROPERTIES"):
            if name != "COMPATIBILITY_CHECK":
                str(core.get_property(device, name))
    return core.available_devices


@program
def measure_latency(folder: str) -> Any:
    import openvino as ov
    from openvino.utils.types import get_dtype

    compiled = ov.Core().compile_model(f"{folder}/image.onnx", "CPU", {"PERFORMANCE_HINT": "LATENCY", **F32})
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        tensor = request.get_tensor(port)
        assert tensor.get_size()
        tensor.data[:] = np.linspace(0, 1, tensor.get_size()).reshape(list(tensor.shape)).astype(get_dtype(tensor.element_type))
    for _ in range(3):
        request.infer()
        assert request.latency > 0
    return request.results[compiled.output(0)].tolist()


@program
def measure_throughput(folder: str) -> Any:
    import openvino as ov

    compiled = ov.Core().compile_model(f"{folder}/image.onnx", "CPU", {"PERFORMANCE_HINT": "THROUGHPUT", **F32})
    queue = ov.AsyncInferQueue(compiled)
    for request in queue:
        for port in compiled.inputs:
            request.get_tensor(port).data[:] = 0.5
    seen = set()
    for _ in range(10):
        seen.add(queue.get_idle_request_id())
        queue.start_async()
    queue.wait_all()
    assert all(queue[index].latency > 0 for index in seen)
    return queue[0].get_output_tensor().data.tolist()


@program
def call_with_changing_sizes(folder: str) -> Any:
    import openvino as ov

    core = ov.Core()
    compiled = core.compile_model(core.read_model(f"{folder}/pair.xml"), "CPU", F32)
    request = compiled.create_infer_request()
    found = []
    for rows in (1, 4, 2):
        request.infer({"p": np.full((rows, 4), rows, np.float32), "q": np.array([rows, 2])})
        found.append([tensor.data.tolist() for tensor in request.output_tensors])
    tensor = request.get_input_tensor(0)
    tensor.shape = [3, 4]
    tensor.data[:] = 1
    request.infer()
    return [found, request.get_output_tensor(0).data.tolist()]


@program
def keep_a_state(folder: str) -> Any:
    import openvino as ov

    request = ov.compile_model(f"{folder}/states.xml", "CPU").create_infer_request()
    found = []
    for number in range(4):
        if number == 2:
            for state in request.query_state():
                state.reset()
        request.start_async([np.full((1, 3), number, np.float32)])
        request.wait()
        found.append(request.get_output_tensor(0).data.tolist())
    return found


@program
def set_properties(folder: str) -> Any:
    import openvino as ov
    import openvino.properties as props
    import openvino.properties.hint as hints
    from openvino.properties import device, streams

    core = ov.Core()
    core.set_property("CPU", {hints.performance_mode: hints.PerformanceMode.LATENCY})
    assert isinstance(core.get_property("CPU", device.full_name), str)
    config = {hints.performance_mode: hints.PerformanceMode.THROUGHPUT, hints.inference_precision: ov.Type.f32}
    compiled = core.compile_model(f"{folder}/image.onnx", "CPU", config)
    assert compiled.get_property(props.optimal_number_of_infer_requests) >= 1
    config = {props.inference_num_threads(): 1, streams.num(): 1, hints.enable_cpu_pinning(): False}
    compiled = core.compile_model(f"{folder}/image.onnx", "CPU", config)
    return [compiled.get_property(props.inference_num_threads), compiled.get_property(streams.num)]


@program
def read_layouts(folder: str) -> Any:
    import openvino as ov
    from openvino import Layout, PartialShape, layout_helpers, set_batch

    model = ov.Core().read_model(f"{folder}/image.onnx")
    model.get_parameters()[0].set_layout(Layout("NCHW"))
    set_batch(model, 5)
    ports = [
        [sorted(port.names), str(port.partial_shape), port.element_type.to_string()] for port in (*model.inputs, *model.outputs)
    ]
    return [ports, layout_helpers.channels_idx(Layout("N??C")), str(PartialShape("1,?,2..5"))]


@program
def save_and_read(folder: str) -> Any:
    from openvino import Core, convert_model, save_model, serialize

    model = convert_model(f"{folder}/image.onnx")
    path = f"{folder}/{sys.argv[1].replace('.', '_')}.xml"
    save_model(model, f"{path}.xml", compress_to_fp16=False)
    serialize(Core().read_model(f"{path}.xml"), path)
    with open(path, "rb") as file, open(path.replace(".xml", ".bin"), "rb") as weights:
        model = Core().read_model(file.read(), weights.read())
    return Core().compile_model(model, "CPU", F32)(np.full((1, 3, 8, 8), 0.25, np.float32))[0].tolist()


if __name__ == "__main__":
    if sys.argv[1] != "openvino":
        sys.modules["openvino"] = import_module(sys.argv[1])
    print(json.dumps({name: run(sys.argv[2]) for name, run in PROGRAMS.items()}))
    loaded = [os.path.basename(str(getattr(module, "__file__", ""))) for module in list(sys.modules.values())]
    assert sys.argv[1] == "openvino" or not any(name.startswith("_pyopenvino") for name in loaded)
