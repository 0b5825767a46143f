"""A network in onnxruntime and OpenVINO, through a written model: where they are installed and take it."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import Any

from dovetail.errors import DovetailError
from dovetail.formats.onnx import write as onnx_write
from dovetail.ir import dtypes
from dovetail.ir.graph import Model
from networks.comparison import Difference, disagreement
from networks.network import Network
from networks.reference import Answer, answers

WIDER = 8.0
"""The tolerance of other runtimes, whose approximations have fewer bits than our kernels at times, beside that of ours."""
TAKEN = ("f32", "i32", "i64", "boolean", "u8", "i8")


def compare_with_others(network: Network, done: Counter[str]) -> Difference | None:
    """Return the first difference from another runtime; what one refuses is counted in ``done`` and no difference.

    Networks of 16-bit floats, and those with operators of :data:`GRIDS`, are left out.
    """
    if any(dtypes.dtype(array.dtype).name not in TAKEN for array in network.shots[0].values()):
        return None
    shot = network.shots[0]
    known = answers(network, shot)
    if any(answer.dtype not in TAKEN for answer in known.values()) or any(
        type(step.op).__name__ in GRIDS for step in network.steps
    ):
        return None
    model, row = network.model(), [known[name] for name in network.outputs]
    for name, run in (("onnxruntime", _onnxruntime), ("openvino", _openvino)):
        if find_spec(name) is None or (name == "openvino" and any(type(step.op).__name__ == "Loop" for step in network.steps)):
            # Its CPU plugin gives a last state's shape to what a Loop stacks, where that is converted to booleans.
            continue
        found = _asked(run, model, shot)
        if isinstance(found, str):
            done[f"{name}: refused"] += 1
            continue
        done[f"{name}: compared"] += 1
        if text := disagreement(found, [_wider(answer) for answer in row]):
            return Difference("others", name, text)
    return None


GRIDS = (
    "QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "FakeQuantize",
    "MatMulInteger", "ConvInteger", "MatMulIntegerToFloat",
)  # fmt: skip
"""Operators of bytes are compared with other runtimes in the laws of their cases, with the processor's limits in mind."""


def _wider(answer: Answer) -> Answer:
    if answer.is_exact:
        return answer
    noisy = tuple(answer.truth + WIDER * (each - answer.truth) for each in answer.noisy)
    return Answer(answer.actual, answer.truth, (noisy[0], noisy[1]))


def _asked(run: Any, model: Model, shot: Any) -> Any:
    """Return the outputs, or why there are none."""
    from oracles import Silent

    try:
        return run(model, shot)
    except (Silent, DovetailError) as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _onnxruntime(model: Model, shot: Any) -> Any:
    from oracles import RUNTIME_OPSET, run_onnxruntime

    data = onnx_write.save(model, None, opset=RUNTIME_OPSET)
    assert data is not None
    return run_onnxruntime(data, shot)


def _openvino(model: Model, shot: Any) -> Any:
    from oracles import run_openvino

    return run_openvino(model, shot)
