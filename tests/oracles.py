"""Those who know the answer without us: onnxruntime, onnx.reference, OpenVINO."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dovetail.formats.openvino import write as openvino_write
from dovetail.ir import dtypes
from dovetail.ir.graph import Model

RUNTIME_OPSET = 26
"""The newest opset that onnxruntime gets: versions before 1.32 read no newer one."""


class Silent(Exception):
    """The oracle does not know this operator or element type, and says why."""


@cache
def _options() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # What is asked is what the operators mean, not what an optimiser makes of them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


SATURATES = "onnxruntime adds products of bytes in 16 bits on this processor, and saturates"


def skip_where_bytes_saturate() -> None:
    """Skip a test that compares products of u8 and i8 with onnxruntime: before AVX-512 VNNI it adds pairs of them in 16 bits."""
    if _saturates():
        pytest.skip(SATURATES)


def sums_saturate(data: bytes, inputs: Mapping[str, Any]) -> bool:
    """Return whether onnxruntime's answer is wrong on this processor.

    The ONNX file adds products of bytes of which some are signed.
    """
    return _has_signed_bytes(data, inputs) and _saturates()


@cache
def contrib_schemas() -> dict[tuple[str, str, int], Any]:
    """Return onnxruntime's schemas of the operators that it adds to ONNX's: their attributes."""
    try:
        from onnxruntime.capi import onnxruntime_pybind11_state as state
    except ImportError:
        return {}
    import onnx

    found = {}
    for schema in state.get_all_operator_schema():
        if schema.domain in ("com.microsoft", "com.microsoft.nchwc"):
            attributes = {
                name: SimpleNamespace(required=item.required, default_value=onnx.AttributeProto.FromString(item._default_value))
                for name, item in schema.attributes.items()
            }
            inputs = [SimpleNamespace(option=SimpleNamespace(name=str(port.option).rpartition(".")[2])) for port in schema.inputs]
            found[schema.domain, schema.name, schema.since_version] = SimpleNamespace(attributes=attributes, inputs=inputs)
    return found


_UNKNOWN_TO_ONNXRUNTIME = (
    "Could not find an implementation", "NOT_IMPLEMENTED", "is not a registered function/op", "Unsupported type",
    "No Op registered for", "does not support type", "Type not supported", "not supported yet", "cannot be created",
    "not implemented", "unsupported data type", "No corresponding Numpy type", "does not support double",
    "Unrecognized attribute: left_window_size", "not currently registered or supported",
    "Batchwise recurrent operations", "size_ % 2 == 1 was false", "min_ <= max_ was false", "Invalid Target shape product of 0",
    "exclude_outside can be set to 1 when", "Type 'tensor(bfloat16)' of input parameter",
)  # fmt: skip
# numpy's own types reach onnxruntime as arrays, all others as OrtValues over their bits.
_CARRIED = {"bf16": np.uint16, "f8e4m3": np.uint8, "f8e4m3fnuz": np.uint8, "f8e5m2": np.uint8, "f8e5m2fnuz": np.uint8}
_UNCARRIED = ("f8e8m0", "f4e2m1", "f6e2m3", "f6e3m2", "i4", "u4", "i2", "u2", "complex64", "complex128")


def run_onnxruntime(data: bytes, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of an ONNX file. Raises Silent where onnxruntime has no kernel."""
    import onnxruntime

    odd = sorted({name for array in inputs.values() if (name := dtypes.dtype(array.dtype).name) in _UNCARRIED})
    if odd:
        raise Silent(f"onnxruntime takes no {odd[0]} from Python")
    try:
        if sums_saturate(data, inputs):
            raise Silent(SATURATES)
        session = onnxruntime.InferenceSession(data, _options(), providers=["CPUExecutionProvider"])
        types = {item.type for item in (*session.get_inputs(), *session.get_outputs())}
        if types.isdisjoint(f"tensor({word})" for word in _ORT_WORDS.values()):
            return session.run(None, dict(inputs))
        names = [item.name for item in session.get_outputs()]
        return [_from_ort(item) for item in session.run_with_ort_values(names, {key: _ort_value(x) for key, x in inputs.items()})]
    except Exception as error:
        if any(text in str(error) for text in _UNKNOWN_TO_ONNXRUNTIME):
            raise Silent(f"onnxruntime: {str(error).splitlines()[0][:160]}") from None
        raise


def onnxruntime_ports(data: bytes) -> list[list[str]]:
    """Return the names of the inputs and of the outputs of an ONNX file. Raises Silent where onnxruntime has no kernel."""
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(data, _options(), providers=["CPUExecutionProvider"])
    except Exception as error:
        if any(text in str(error) for text in _UNKNOWN_TO_ONNXRUNTIME):
            raise Silent(f"onnxruntime: {str(error).splitlines()[0][:160]}") from None
        raise
    return [[item.name for item in side] for side in (session.get_inputs(), session.get_outputs())]


def check_onnx(data: bytes) -> None:
    """Let onnx's checker refuse an ONNX file, also by what it infers. Raises Silent for operators that it calls deprecated."""
    import onnx

    try:
        onnx.checker.check_model(data, full_check=True)
    except onnx.checker.ValidationError as error:
        if "is deprecated in domain_version" in str(error):
            raise Silent(f"onnx.checker: {str(error).splitlines()[0][:160]}") from None
        raise


_SUMS_OF_BYTES = (
    "MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv", "QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
)  # fmt: skip


def _has_signed_bytes(data: bytes, inputs: Mapping[str, Any]) -> bool:
    """Return whether the model adds products of bytes of which some are signed."""
    import onnx

    if not any(kind.encode() in data for kind in _SUMS_OF_BYTES):
        return False
    graph = onnx.load_from_string(data).graph
    kinds = {item.data_type for item in graph.initializer} | {dtypes.dtype(array.dtype).onnx for array in inputs.values()}
    return onnx.TensorProto.INT8 in kinds and any(node.op_type in _SUMS_OF_BYTES for node in graph.node)


@cache
def _saturates() -> bool:
    """Return whether onnxruntime's MatMulInteger is wrong here about 2 * 255 * 127."""
    import onnx
    import onnxruntime

    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 13]> g (uint8[1, 2] x, int8[2, 1] w) => (int32[1, 1] y) {y = MatMulInteger(x, w)}'
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), _options(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": np.full((1, 2), 255, np.uint8), "w": np.full((2, 1), 127, np.int8)})
    return int(found[0].item()) != 2 * 255 * 127


def _ort_value(x: Any) -> Any:
    import onnxruntime

    kind = dtypes.dtype(x.dtype)
    x = np.ascontiguousarray(x) if x.ndim else x
    if kind.name in _CARRIED:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(_CARRIED[kind.name]), kind.onnx)
    return onnxruntime.OrtValue.ortvalue_from_numpy(x)


def _from_ort(item: Any) -> Any:
    text = item.data_type()
    kind = next((name for name, word in _ORT_WORDS.items() if text == f"tensor({word})"), None)
    if kind is not None:
        return _bits_of(item, dtypes.dtype(kind))
    return item.numpy()


_ORT_WORDS = {
    "bf16": "bfloat16", "f8e4m3": "float8e4m3fn", "f8e4m3fnuz": "float8e4m3fnuz",
    "f8e5m2": "float8e5m2", "f8e5m2fnuz": "float8e5m2fnuz",
}  # fmt: skip


def _bits_of(item: Any, kind: Any) -> Any:
    import ctypes

    shape = tuple(item.shape())
    size = int(np.prod(shape)) * kind.numpy.itemsize
    raw = ctypes.string_at(item.data_ptr(), size) if size else b""
    return np.frombuffer(raw, np.uint8).view(kind.numpy).reshape(shape).copy()


def run_reference(data: bytes, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of an ONNX file by the onnx package's own evaluator. Raises Silent where it has no rule."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    try:
        return list(ReferenceEvaluator(onnx.load_from_string(data)).run(None, dict(inputs)))
    except (NotImplementedError, onnx.reference.op_run.RuntimeImplementationError) as error:
        raise Silent(f"onnx.reference: {error}") from None


# What OpenVINO's CPU plugin has no numpy array for.
_SUB_BYTE = ("i4", "u4", "u2", "nf4", "f4e2m1", "u1", "u3", "u6")
_WIDE = ("i64", "u64", "u32")


def run_openvino(model: Model, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of ``model``, written as IR and read by OpenVINO.

    Raises Silent where its CPU plugin takes no such values.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.xml")
        openvino_write.save(model, path)
        return run_openvino_file(path, inputs, [value.name for value in model.outputs])


def run_openvino_file(path: str, inputs: Mapping[str, Any], outputs: Sequence[str]) -> list[Any]:
    """Return the outputs of an IR file; ``outputs`` are the names it should have, in this order."""
    for array in inputs.values():
        name = dtypes.dtype(array.dtype).name
        if name in _SUB_BYTE:
            raise Silent(f"OpenVINO takes no {name} from numpy")
        if name in _WIDE and array.size and (int(array.max()) > 2**31 - 1 or int(array.min()) < -(2**31)):
            raise Silent(f"OpenVINO's CPU plugin computes {name} in i32")
    return _asked(_infer, path, dict(inputs), tuple(outputs))


def openvino_attributes(path: Path, text: str, kind: str) -> list[dict[str, str]] | None:
    """Return the attributes that OpenVINO gives the layers of ``kind`` in an IR file whose text is this.

    None where it refuses it.
    """
    path.write_text(text)
    found: list[dict[str, str]] | None = _asked(_attributes, str(path), kind)
    return found


def check_openvino_names(path: Path, names: list[list[str]]) -> None:
    """Let OpenVINO compile an IR file whose inputs and outputs must have ``names``. Raises Silent where it has no kernel."""
    _asked(_find_by_name, str(path), names)


def _asked(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the answer of the other process; of a new one, too, where it ended: an earlier model may have spoilt its memory."""
    global _worker
    for is_new in (_worker is None, True):
        if _worker is None:
            _worker = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return _worker.submit(function, *arguments).result(timeout=120)
        except BrokenProcessPool:
            _worker = None
            if is_new:
                raise AssertionError("OpenVINO aborted") from None


def close() -> None:
    """End the other process, which a process that multiprocessing started would otherwise wait for."""
    global _worker
    if _worker is not None:
        _worker.shutdown()
        _worker = None


def _attributes(path: str, kind: str) -> list[dict[str, str]] | None:
    try:
        model = _core().read_model(path)
    except RuntimeError:
        return None
    nodes = [node for node in model.get_ops() if node.get_type_name() == kind]
    return [{name: str(value) for name, value in node.get_attributes().items()} for node in nodes]


# What the CPU plugin says of element types that it has no kernel for.
_UNKNOWN_TO_OPENVINO = ("unsupported src_prc", "unsupported dst_prc")

# In a process of its own: what OpenVINO does not expect it answers with abort().
_worker: ProcessPoolExecutor | None = None


@cache
def _core() -> Any:
    import openvino

    return openvino.Core()


def _compile(path: str) -> Any:
    options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
    try:
        return _core().compile_model(path, "CPU", options)
    except RuntimeError as error:
        if any(text in str(error) for text in _UNKNOWN_TO_OPENVINO):
            raise Silent(f"OpenVINO: {str(error).strip().splitlines()[-1][:160]}") from None
        raise


def _find_by_name(path: str, names: list[list[str]]) -> None:
    compiled = _compile(path)
    for wanted, ports in zip(names, (compiled.inputs, compiled.outputs), strict=True):
        actual = [port.get_names() for port in ports]
        assert [[index for index, own in enumerate(actual) if name in own] for name in wanted] == [
            [index] for index in range(len(ports))
        ], f"{actual} instead of {wanted}"


def _infer(path: str, inputs: dict[str, Any], outputs: tuple[str, ...]) -> list[Any]:
    compiled = _compile(path)
    request = compiled.create_infer_request()
    # By name, as users do: compiling drops the names of values that are the same.
    assert len(compiled.inputs) == len(inputs), f"{[port.get_names() for port in compiled.inputs]}, not {list(inputs)}"
    for name, array in inputs.items():
        request.set_tensor(name, _tensor(array))
    request.infer()
    for port in compiled.outputs:
        kind = port.get_element_type().get_type_name()
        if kind in _SUB_BYTE:
            raise Silent(f"OpenVINO gives no {kind} to numpy")
    assert len(compiled.outputs) == len(outputs), f"{[port.get_names() for port in compiled.outputs]}, not {list(outputs)}"
    return [_from_tensor(request.get_tensor(name)) for name in outputs]


def _tensor(array: Any) -> Any:
    import openvino

    kind = dtypes.dtype(array.dtype)
    if kind.name == "string":
        return openvino.Tensor(array.astype(str))
    if kind.name not in ("bf16", "f8e4m3", "f8e5m2", "f8e8m0"):
        return openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape))
    target = openvino.Tensor(getattr(openvino.Type, kind.openvino), openvino.Shape(array.shape))
    if array.size:
        np.copyto(target.data.view(np.uint8).reshape(-1), np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return target


def _from_tensor(tensor: Any) -> Any:
    kind = dtypes.BY_OPENVINO[tensor.element_type.get_type_name()]
    if kind.name == "string":
        return np.array(tensor.str_data.tolist(), dtype=object).reshape(tuple(tensor.shape))
    data = np.array(tensor.data)
    return data if data.dtype == kind.numpy else data.reshape(-1).view(kind.numpy).reshape(tuple(tensor.shape))


def as_f32(array: Any) -> Any:
    """``array`` in the precision in which the CPU plugin computes f64."""
    with np.errstate(all="ignore"):
        return array.astype(np.float32)
