"""Runners of a model in onnxruntime, OpenVINO and dovetail, and their peak memory.

This module imports no other module of dovetail at its start, because as a script it runs in a process with a single engine.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dovetail.errors import EngineError

Call = Callable[[], Any]
BF16 = "bfloat16"
LAST_OF_NUMPY = 255
"""The largest type number of numpy's built-in element types; types that other packages register have larger numbers."""


class NodeTime(NamedTuple):
    """NodeTime holds the engine's names for a node, its operator and its kernel, and the node's seconds in one run."""

    node: str
    kind: str
    kernel: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Runner:
    """Runner is a model loaded in one engine: ``run`` maps inputs by name to outputs by name.

    ``prepare`` binds inputs and returns a call that runs the model on them with minimal overhead.
    """

    name: str
    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    notes: tuple[str, ...] = ()
    """The reasons why this engine replaces the runtime of the file's format; empty if it replaces none."""
    prepare: Callable[[Mapping[str, Any]], Call] | None = None
    collect: Callable[[], list[NodeTime]] | None = None
    """A function that returns the node times of all calls; only a runner with ``profiles`` has node times."""

    def call(self, inputs: Mapping[str, Any]) -> Call:
        return (lambda: self.run(inputs)) if self.prepare is None else self.prepare(inputs)


class Names(NamedTuple):
    """Names holds the names of a model's inputs and outputs, in order."""

    inputs: Sequence[str]
    outputs: Sequence[str]


def is_installed(engine: str) -> bool:
    return engine == "dovetail" or importlib.util.find_spec(engine) is not None


def runner(
    engine: str,
    model: str | bytes,
    threads: int | None = None,
    names: Names | None = None,
    *,
    exact: bool = False,
    profiles: str | None = None,
    precision: str | None = None,
) -> Runner:
    """Load a model (a path, or the bytes of an ONNX file) in "onnxruntime", "openvino" or "dovetail".

    ``threads``: None means the engine's default. ``names`` replace the engine's names of inputs and outputs, which differ for IR.

    ``exact``: compute quantized layers exactly, and require inputs and outputs to have the names in ``names``. Without it, on x86
    before AVX-512 VNNI, onnxruntime and OpenVINO accumulate pairs of 8-bit products in saturating 16 bits, and OpenVINO quantizes
    the activations of layers with 8-bit weights; onnxruntime quantizes those of products with dequantized 4-bit weights.

    ``precision``: see :func:`dovetail.compile`; "bf16" is a hint for OpenVINO too, and onnxruntime ignores it.

    ``profiles``: a folder for the profile of onnxruntime or OpenVINO; the runner then collects the times of nodes.

    Raises EngineError [runtime.load] if the engine rejects the model; a run may raise [runtime.run].
    """
    if engine == "dovetail":
        return _dovetail(model, threads, "f32" if exact else precision)
    if engine == "openvino":
        return _openvino(model, threads, names, exact, profiles, "bf16" if precision == "bf16" else "f32")
    return _onnxruntime(model, threads, names, exact, profiles)


def _dovetail(model: str | bytes, threads: int | None, precision: str | None) -> Runner:
    from dovetail.formats import import_foreign, load
    from dovetail.formats.onnx import codec
    from dovetail.runtime.compilation import compile

    loaded = import_foreign(codec.read(model)) if isinstance(model, bytes) else load(model)
    return ours(compile(loaded, threads=threads, precision=precision))


def ours(program: Any) -> Runner:
    """Return a runner of a dovetail program."""

    def prepare(inputs: Mapping[str, Any]) -> Call:
        given = dict(inputs)
        return lambda: program(given)

    return Runner("dovetail", lambda inputs: dict(program(dict(inputs))), prepare=prepare)


def _onnxruntime(
    model: str | bytes, threads: int | None, names: Names | None, exact: bool, profiles: str | None = None
) -> Runner:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
        # At the default level 4, onnxruntime rounds the activations of products with dequantized weights to 8 bits.
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    if profiles is not None:
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(profiles, "onnxruntime")
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise failure("runtime.load", "onnxruntime cannot load the model", error, model) from error
    outputs = [output.name for output in session.get_outputs()]
    known = {item.name for item in session.get_inputs()}
    lacking = [output.name for output in session.get_outputs() if output.type == f"tensor({BF16})"]

    def prepare(inputs: Mapping[str, Any]) -> Call:
        given = {name: array for name, array in inputs.items() if name in known}
        if any(not _is_numpy_type(array) for array in given.values()) or lacking:
            values = {name: _ort_value(array) for name, array in given.items()}
            return lambda: [_from_ort_value(item) for item in session.run_with_ort_values(None, values)]
        return lambda: session.run(None, given)

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(zip(outputs, prepare(inputs)(), strict=True))
        except Exception as error:
            raise failure("runtime.run", "onnxruntime cannot run the model", error, model) from error

    def collect() -> list[NodeTime]:
        with open(session.end_profiling(), encoding="utf-8", errors="replace") as stream:
            return _node_times(json.load(stream))

    return Runner(f"onnxruntime {onnxruntime.__version__}", run, prepare=prepare, collect=collect)


def _node_times(events: Sequence[Mapping[str, Any]]) -> list[NodeTime]:
    """Return the kernel times in seconds from a profile of onnxruntime, which has microseconds."""
    suffix = "_kernel_time"
    found = []
    for event in events:
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(suffix):
            kind = str(event.get("args", {}).get("op_name", ""))
            found.append(NodeTime(name.removesuffix(suffix), kind, kind, float(event.get("dur", 0)) / 1e6))
    return found


def _is_numpy_type(array: object) -> bool:
    kind = np.asarray(array).dtype
    return kind.kind != "V" and kind.num <= LAST_OF_NUMPY


def _ort_value(array: Any) -> Any:
    """Return an OrtValue of an array; elements of types that numpy lacks are passed as unsigned integers of the same bits."""
    import onnxruntime

    array = np.asarray(array, order="C")
    if _is_numpy_type(array):
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    from dovetail.ir.dtypes import dtype

    bits = array.view(f"u{array.dtype.itemsize}")
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, dtype(array.dtype).onnx)


def _from_ort_value(item: Any) -> Any:
    if item.data_type() != f"tensor({BF16})":
        return item.numpy()
    import ctypes

    import ml_dtypes

    shape = tuple(item.shape())
    raw = ctypes.string_at(item.data_ptr(), int(np.prod(shape)) * 2) if 0 not in shape else b""
    return np.frombuffer(raw, ml_dtypes.bfloat16).reshape(shape).copy()


def _openvino(
    model: str | bytes,
    threads: int | None,
    names: Names | None,
    exact: bool,
    profiles: str | None = None,
    precision: str = "f32",
) -> Runner:
    import openvino

    core = openvino.Core()
    # Without this hint OpenVINO's CPU plugin may compute f32 models in bf16.
    config: dict[str, Any] = {"INFERENCE_PRECISION_HINT": precision}
    if profiles is not None:
        config["PERF_COUNT"] = True
    if exact:
        config |= {"LP_TRANSFORMS_MODE": False, "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    if threads is not None:
        config |= {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    try:
        compiled = core.compile_model(core.read_model(model), "CPU", config)
    except Exception as error:
        raise failure("runtime.load", "openvino cannot load the model", error, model) from error
    inputs_ = port_names(compiled.inputs, names.inputs if names else ())
    outputs = port_names(compiled.outputs, names.outputs if names else ())
    if exact:
        check_port_names(compiled.inputs, inputs_, model)
        check_port_names(compiled.outputs, outputs, model)

    def tensor(array: np.ndarray[Any, Any]) -> Any:
        array = np.asarray(array, order="C")
        if _is_numpy_type(array):
            return openvino.Tensor(array, shared_memory=array.flags.writeable)
        from dovetail.ir.dtypes import dtype

        made = openvino.Tensor(getattr(openvino.Type, str(dtype(array.dtype).openvino)), openvino.Shape(array.shape))
        np.copyto(made.data.view(np.uint8).reshape(-1), array.reshape(-1).view(np.uint8))
        return made

    times: list[NodeTime] = []

    def prepare(inputs: Mapping[str, Any]) -> Call:
        request = compiled.create_infer_request()
        for index, name in enumerate(inputs_):
            request.set_input_tensor(index, tensor(inputs[name]))
        if profiles is None:
            return lambda: request.infer(share_outputs=True)

        def call() -> None:
            request.infer(share_outputs=True)
            times.extend(
                NodeTime(each.node_name, each.node_type, each.exec_type, each.real_time.total_seconds())
                for each in request.get_profiling_info()
                if each.status.name == "EXECUTED"
            )

        return call

    def run(inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found = compiled([tensor(inputs[name]) for name in inputs_])
        except Exception as error:
            raise failure("runtime.run", "openvino cannot run the model", error, model) from error
        return {name: _in_type(np.array(found[index]), compiled.outputs[index]) for index, name in enumerate(outputs)}

    return Runner(f"openvino {openvino.__version__.split('-')[0]}", run, prepare=prepare, collect=lambda: times)


def _in_type(array: np.ndarray[Any, Any], port: Any) -> np.ndarray[Any, Any]:
    """Return an output in the port's element type; a bf16 output of OpenVINO arrives as an f16 array with the same bits."""
    if port.get_element_type().get_type_name() != "bf16":
        return array
    import ml_dtypes

    return array.view(ml_dtypes.bfloat16)


def port_names(ports: Sequence[Any], wanted: Sequence[str]) -> list[str]:
    """Return a name per port: a wanted name that the port has, else the wanted name at its index, else any name of the port."""
    found = []
    for index, port in enumerate(ports):
        same = [name for name in wanted if name in port.get_names()]
        found.append(same[0] if same else wanted[index] if index < len(wanted) else port.get_any_name())
    return found


def check_port_names(ports: Sequence[Any], names: Sequence[str], model: str | bytes) -> None:
    """Raise EngineError [runtime.load] if a named port lacks its entry of ``names``, or a name occurs twice."""
    from dovetail.errors import EngineError

    seen: set[str] = set()
    for port, name in zip(ports, names, strict=True):
        own = port.get_names()
        if (own and name not in own) or name in seen:
            message = f"openvino must have a distinct input or output {name!r}, got {', '.join(map(repr, sorted(own)))}"
            raise EngineError("runtime.load", message, file=model if isinstance(model, str) else None)
        seen.add(name)


def failure(code: str, what: str, error: Exception, model: str | bytes) -> EngineError:
    from dovetail.errors import EngineError

    return EngineError(code, f"{what}: {' '.join(str(error).split())[:500]}", file=model if isinstance(model, str) else None)


# Peak memory, measured in a separate process

RUNS = 3
"""The number of runs before the peak memory is read; there are several, as some engines allocate more in the second run."""


class Cost(NamedTuple):
    """Cost holds the peak memory of a new process with one engine, and the seconds to load and compile, not to import."""

    peak_bytes: int
    compile_seconds: float


def cost(
    engine: str,
    path: str,
    threads: int,
    names: Names,
    inputs: Mapping[str, np.ndarray[Any, Any]],
    precision: str | None = None,
) -> Cost:
    """Load, compile and run a model in a process that loads no other engine. Raises EngineError [runtime.run].

    ``precision``: see :func:`runner`.
    """
    from dovetail.errors import EngineError

    arrays = {name: [list(array.shape), array.dtype.name] for name, array in inputs.items()}
    request_ = json.dumps(
        {"engine": engine, "path": path, "threads": threads, "names": list(names), "inputs": arrays, "precision": precision}
    )
    # -P keeps this folder out of sys.path, because some of its modules have names of standard library modules.
    command = [sys.executable, "-P", __file__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    ended = subprocess.run(command, input=request_, capture_output=True, text=True, env=environment, check=False)
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"]
        raise EngineError("runtime.run", f"{engine} cannot run the model in a separate process: {lines[-1][:500]}", file=path)
    return Cost(*json.loads(ended.stdout.splitlines()[-1]))


def _measure_own_process() -> None:
    request_ = json.load(sys.stdin)
    inputs = {name: np.full(shape, 0, _numpy_type(kind)) for name, (shape, kind) in request_["inputs"].items()}
    importlib.import_module(request_["engine"])
    start = time.perf_counter()
    names = Names(*request_["names"])
    made = runner(request_["engine"], request_["path"], request_["threads"], names, precision=request_["precision"])
    seconds = time.perf_counter() - start
    call = made.call(inputs)
    for _ in range(RUNS):
        call()
    print(json.dumps([peak_bytes(), seconds]))


def _numpy_type(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))


def peak_bytes() -> int:
    """Return the peak resident memory of this process (VmHWM on Linux, else getrusage)."""
    if os.path.exists("/proc/self/status"):
        with open("/proc/self/status", encoding="ascii", errors="replace") as stream:
            return next(int(line.split()[1]) * 1024 for line in stream if line.startswith("VmHWM:"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    try:
        _measure_own_process()
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {' '.join(str(error).split())}")
