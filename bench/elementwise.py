"""Elementwise chains, pooling, reductions and normalisation in the core, beside torch, onnxruntime and OpenVINO.

Medians of interleaved runs: the libraries take turns, so that a busy moment of the machine falls on all of them. Every one reads
preallocated arrays; the core's and torch's images lie channels last where the name says so. A ratio below 1 means that the core
is faster than the best of the others.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dovetail.engine.run.step_encoding import extent_of
from dovetail.engine.select.elementwise_codegen import Input, assemble, opcodes
from dovetail.ir.dtypes import f32
from dovetail.ir.host import native_core
from dovetail.ops.elementwise.activation import Gelu, Relu, Sigmoid, Swish
from dovetail.ops.elementwise.binary import Add, Multiply
from dovetail.ops.elementwise.unary import Exp, Tanh

Call = Callable[[], Any]


class Case(NamedTuple):
    """A measured call: the core's kernel and attributes, torch's function, the nodes of an ONNX model, shapes of the inputs."""

    name: str
    kernel: str
    attributes: dict[str, Any]
    torch: Callable[..., Any]
    nodes: Sequence[tuple[str, Sequence[str], dict[str, Any]]]
    shapes: Sequence[tuple[int, ...]]
    y: tuple[int, ...]
    last: bool = False


def chain(body: Any, count: int) -> dict[str, Any]:
    return assemble(body, [len(body) - 1], [Input(f32)] * count)._asdict()


def cases() -> list[Case]:
    import torch
    from torch.nn import functional

    image, wide, row = (1, 256, 56, 56), (1, 64, 112, 112), (128, 3072)
    channel = (1, 256, 1, 1)
    pool = {"kernel": [3, 3], "strides": [2, 2], "pads_begin": [1, 1], "pads_end": [1, 1]}
    onnx_pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    scaled = [(Multiply(), (0, 1)), (Add(), (~0, 2)), (Relu(), (~1,))]
    small = (1, 64, 14, 14)
    return [
        Case("relu", "elementwise", chain([(Relu(), (0,))], 1), torch.relu, [("Relu", "x", {})], [wide], wide),
        Case("relu small", "elementwise", chain([(Relu(), (0,))], 1), torch.relu, [("Relu", "x", {})], [small], small),
        Case("add", "elementwise", chain([(Add(), (0, 1))], 2), torch.add, [("Add", "xw", {})], [image] * 2, image),
        Case(
            "add, relu", "elementwise", chain([(Add(), (0, 1)), (Relu(), (~0,))], 2), lambda x, w: torch.relu_(x + w),
            [("Add", "xw", {}), ("Relu", "0", {})], [image] * 2, image,
        ),
        Case(
            "scale, shift, relu by channel", "elementwise", chain(scaled, 3), lambda x, w, b: torch.relu_(torch.addcmul(b, x, w)),
            [("Mul", "xw", {}), ("Add", "0b", {}), ("Relu", "1", {})], [image, channel, channel], image,
        ),
        Case(
            "the same, channels last", "elementwise", chain(scaled, 3), lambda x, w, b: torch.relu_(torch.addcmul(b, x, w)),
            [("Mul", "xw", {}), ("Add", "0b", {}), ("Relu", "1", {})], [image, channel, channel], image, True,
        ),
        Case("exp", "elementwise", chain([(Exp(), (0,))], 1), torch.exp, [("Exp", "x", {})], [row], row),
        Case("tanh", "elementwise", chain([(Tanh(), (0,))], 1), torch.tanh, [("Tanh", "x", {})], [row], row),
        Case("sigmoid", "elementwise", chain([(Sigmoid(), (0,))], 1), torch.sigmoid, [("Sigmoid", "x", {})], [row], row),
        Case(
            "swish", "elementwise", chain([(Swish(), (0,))], 1), functional.silu,
            [("Sigmoid", "x", {}), ("Mul", "x0", {})], [row], row,
        ),
        Case("gelu", "elementwise", chain([(Gelu(), (0,))], 1), functional.gelu, [("Gelu", "x", {})], [row], row),
        Case(
            "gelu, tanh form", "elementwise", chain([(Gelu(approximate="tanh"), (0,))], 1),
            lambda x: functional.gelu(x, approximate="tanh"),
            [("Gelu", "x", {"approximate": "tanh"})], [row], row,
        ),
        Case(
            "max pool", "pool", {"mode": "max", **pool}, lambda x: functional.max_pool2d(x, 3, 2, 1),
            [("MaxPool", "x", onnx_pool)], [wide], (1, 64, 56, 56),
        ),
        Case(
            "max pool, channels last", "pool", {"mode": "max", **pool}, lambda x: functional.max_pool2d(x, 3, 2, 1),
            [("MaxPool", "x", onnx_pool)], [wide], (1, 64, 56, 56), True,
        ),
        Case(
            "average pool 2x2, channels last", "pool", {"mode": "average", "kernel": [2, 2], "strides": [2, 2]},
            lambda x: functional.avg_pool2d(x, 2, 2), [("AveragePool", "x", {"kernel_shape": [2, 2], "strides": [2, 2]})],
            [image], (1, 256, 28, 28), True,
        ),
        Case(
            "average pool 3x3, channels last", "pool",
            {"mode": "average", "kernel": [3, 3], "pads_begin": [1, 1], "pads_end": [1, 1]},
            lambda x: functional.avg_pool2d(x, 3, 1, 1, count_include_pad=False),
            [("AveragePool", "x", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})], [(1, 192, 28, 28)], (1, 192, 28, 28), True,
        ),
        Case(
            "mean of places", "reduce", {"mode": "mean", "axes": [2, 3]}, lambda x: x.mean((2, 3), keepdim=True),
            [("GlobalAveragePool", "x", {})], [(1, 2048, 7, 7)], (1, 2048, 1, 1),
        ),
        Case(
            "mean of places, channels last", "reduce", {"mode": "mean", "axes": [2, 3]}, lambda x: x.mean((2, 3), keepdim=True),
            [("GlobalAveragePool", "x", {})], [(1, 2048, 7, 7)], (1, 2048, 1, 1), True,
        ),
        Case(
            "greatest of rows", "reduce", {"mode": "max", "axes": [1]}, lambda x: x.amax(1, keepdim=True),
            [("ReduceMax", "x", {"axes": [1]})], [row], (128, 1),
        ),
        Case(
            "softmax", "softmax", {"axis": 2}, lambda x: torch.softmax(x, -1), [("Softmax", "x", {"axis": -1})], [(12, 128, 128)],
            (12, 128, 128),
        ),
        Case(
            "softmax of 1000", "softmax", {"axis": 1}, lambda x: torch.softmax(x, -1), [("Softmax", "x", {"axis": -1})],
            [(1, 1000)], (1, 1000),
        ),
        Case(
            "layer norm", "layer_norm", {"axis": 1, "epsilon": 1e-5, "has_bias": 1},
            lambda x, w, b: functional.layer_norm(x, (768,), w, b),
            [("LayerNormalization", "xwb", {})], [(128, 768), (768,), (768,)], (128, 768),
        ),
        Case(
            "local response, channels last", "lrn", {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
            lambda x: functional.local_response_norm(x, 5, 1e-4, 0.75, 1.0),
            [("LRN", "x", {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0})], [(1, 64, 56, 56)], (1, 64, 56, 56), True,
        ),
    ]  # fmt: skip


def last(array: Any) -> Any:
    """Return the same elements with channels running fastest."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1) if array.ndim == 4 else array


def core_call(case: Case, arrays: Sequence[Any], threads: int) -> Call:
    core = native_core.core()
    y = np.zeros(case.y, np.float32)
    if case.last:
        arrays, y = [last(array) for array in arrays], last(y)
    kept = [*arrays, y]
    wide = [np.broadcast_to(array, case.y) for array in arrays] if case.kernel == "elementwise" else list(arrays)
    program = core.Program(core.ThreadPool(threads), core.WeightCache(), core.ArenaPool(), 0, [extent_of(each) for each in kept])
    rows = [(i + 1, 0, "f32", 4, list(each.shape), list(each.strides), 0, 0, 0) for i, each in enumerate([*wide, y])]
    program.add(case.kernel, rows[:-1], rows[-1:], case.attributes)
    visit = core.Execution(program)
    addresses = [0, *(array.ctypes.data for array in kept)]
    return lambda kept=kept: visit.run(addresses, 0, 1)


def torch_call(case: Case, arrays: Sequence[Any], threads: int) -> Call:
    import torch

    tensors = [torch.from_numpy(last(array) if case.last else array) for array in arrays]

    def call() -> None:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            case.torch(*tensors)

    return call


def onnx_model(case: Case) -> bytes:
    from onnx import TensorProto, helper

    nodes, names = [], "xwb"
    for place, (kind, sources, attributes) in enumerate(case.nodes):
        out = "y" if place == len(case.nodes) - 1 else str(place)
        inputs = list(sources)
        nodes.append(helper.make_node(kind, inputs, [out], **({} if kind == "ReduceMax" else attributes)))
    if case.nodes[0][0] == "ReduceMax":
        nodes[0].input.append("axes")
    values = [helper.make_tensor_value_info(names[i], TensorProto.FLOAT, shape) for i, shape in enumerate(case.shapes)]
    axes = [helper.make_tensor("axes", TensorProto.INT64, [1], case.nodes[0][2].get("axes", [0]))]
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, case.y)
    graph = helper.make_graph(nodes, "case", values, [y], axes if case.nodes[0][0] == "ReduceMax" else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()


def onnxruntime_call(case: Case, arrays: Sequence[Any], threads: int) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(onnx_model(case), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, array in zip("xwb", arrays, strict=False):
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))
    binding.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(case.y, np.float32)))
    return lambda: session.run_with_iobinding(binding)


def openvino_call(case: Case, arrays: Sequence[Any], threads: int) -> Call:
    import openvino

    core = openvino.Core()
    model = core.compile_model(
        core.read_model(onnx_model(case)),
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"},
    )
    request = model.create_infer_request()
    for place, array in enumerate(arrays):
        request.set_input_tensor(place, openvino.Tensor(array, shared_memory=True))
    return request.infer


PEERS = {"torch": torch_call, "onnxruntime": onnxruntime_call, "openvino": openvino_call}


def measured(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Median microseconds of a call."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    repeats = {}
    for name, call in calls.items():
        call()
        begin = time.perf_counter()
        call()
        repeats[name] = max(1, int(1e-3 / max(time.perf_counter() - begin, 1e-6)))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - begin) / repeats[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", default="", help="a part of the names to measure")
    options = parser.parse_args()
    generator = np.random.default_rng(0)
    assert opcodes(), "the core is not assemble"
    for threads in options.threads:
        print(
            f"{threads} thread{'s' * (threads > 1)}, microseconds{'':12}{'core':>9}",
            *(f"{name:>12}" for name in PEERS),
            f"{'ratio':>7}",
        )
        ratios = []
        for case in cases():
            if options.only not in case.name:
                continue
            arrays = [generator.standard_normal(shape, np.float32) for shape in case.shapes]
            calls = {"core": core_call(case, arrays, threads)}
            calls |= {name: make(case, arrays, threads) for name, make in PEERS.items()}
            found = measured(calls, options.rounds)
            ratios.append(found["core"] / min(found[name] for name in PEERS))
            print(
                f"{case.name:<34} {found['core']:9.1f}",
                *(f"{found[name]:12.1f}" for name in PEERS),
                f"{ratios[-1]:7.2f}",
                flush=True,
            )
        print(f"geometric mean of the ratios: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
