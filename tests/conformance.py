"""Count the onnx package's backend tests that each engine passes: dovetail's two, onnxruntime, and OpenVINO's own ONNX reader.

``python tests/conformance.py [--kind node] [--engine onnxruntime] [--write]`` prints the table; ``--write`` renews
docs/conformance.md. All engines get the same models and inputs, and are held to one rule (:func:`backend_data.assert_similar`).
Each works in a child process, which a fault or a test of more than LIMIT seconds ends; the next child goes on after it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import tomllib
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from backend_data import KINDS, Sample, assert_similar, samples
from oracles import RUNTIME_OPSET

LIMIT = 60
ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "conformance.md"
Run = Callable[[Any, list[Any]], list[Any]]


def in_dovetail(engine: str) -> Run:
    def run(model: Any, inputs: list[Any]) -> list[Any]:
        from dovetail.compat import onnx_backend as backend

        return list(backend.prepare(model, "CPU", engine=engine).run(inputs))

    return run


def in_onnxruntime(model: Any, inputs: list[Any]) -> list[Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session, given = _session(*fed(model, inputs))
    numbers = [_number(item.type) for item in session.get_outputs()]
    if all(number is None or _is_plain(number) for number in numbers):
        return list(session.run(None, given))
    # Of other elements an OrtValue gives the bytes; but it is made of no texts.
    session, given = _session(*fed(model, inputs, texts=False))
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(x) for name, x in given.items()}
    found = session.run_with_ort_values([item.name for item in session.get_outputs()], values)
    return [_unpacked(item, number) for item, number in zip(found, numbers, strict=True)]


def _session(model: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]), given


def _unpacked(item: Any, number: int | None) -> Any:
    """Return an OrtValue as an array, by its bytes where numpy has no such type."""
    if number is None or _is_plain(number):
        return item.numpy()
    import ctypes

    shape = list(item.shape())
    size = -(-int(np.prod(shape)) * _bits(number) // 8)
    raw = ctypes.string_at(item.data_ptr(), size) if size else b""
    return numpy_helper.to_array(onnx.TensorProto(data_type=number, dims=shape, raw_data=raw))


def in_openvino(model: Any, inputs: list[Any]) -> list[Any]:
    import openvino

    kinds = {getattr(openvino.Type, theirs): getattr(onnx.TensorProto, ours) for theirs, ours in _OPENVINO.items()}
    model, given = fed(model, inputs)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        read = _core().read_model(path)
    compiled = _core().compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1})
    request = compiled.create_infer_request()
    held = []
    # By place: reading a model may give an input the name of the output that is the same.
    by_name = {name: x for name, x in given.items() if len(read.inputs) != len(given)}
    places = list(given.values()) if not by_name else [_named(port.get_names(), by_name) for port in read.inputs]
    for port, x in zip(compiled.inputs, places, strict=True):
        # A tensor may lie in the array that it is made of.
        held.append(x.astype(str) if x.dtype == object else np.array(x, order="C"))
        request.set_tensor(port, openvino.Tensor(held[-1]))
    request.infer()
    found: list[Any] = []
    for port in compiled.outputs:
        tensor = request.get_tensor(port)
        if tensor.element_type == openvino.Type.string:
            found.append(np.array(tensor.str_data.tolist(), dtype=object).reshape(tuple(tensor.shape)))
        elif tensor.element_type in kinds:
            raw = np.ascontiguousarray(tensor.data).view(np.uint8).tobytes()
            shape = list(tensor.shape)
            found.append(numpy_helper.to_array(onnx.TensorProto(data_type=kinds[tensor.element_type], dims=shape, raw_data=raw)))
        else:
            found.append(np.array(tensor.data))
    return found


_OPENVINO = {
    "bf16": "BFLOAT16", "f8e4m3": "FLOAT8E4M3FN", "f8e5m2": "FLOAT8E5M2", "f8e8m0": "FLOAT8E8M0", "f4e2m1": "FLOAT4E2M1",
    "i4": "INT4", "u4": "UINT4", "u2": "UINT2",
}  # fmt: skip


def _named(names: set[str], given: dict[str, Any]) -> Any:
    (found,) = [x for name, x in given.items() if name in names]
    return found


@cache
def _core() -> Any:
    import openvino

    return openvino.Core()


def fed(model: Any, inputs: list[Any], texts: bool = True) -> tuple[Any, dict[str, Any]]:
    """Return the model, and its inputs by name. What numpy's own types cannot carry to a peer becomes an initializer of the
    model; texts too, where ``texts`` is false.
    """
    names = [value.name for value in model.graph.input]
    held = {tensor.name for tensor in model.graph.initializer}
    if len(names) > len(inputs):
        names = [name for name in names if name not in held]
    given: dict[str, Any] = {}
    odd: dict[str, Any] = {}
    for name, x in zip(names, inputs, strict=False):
        # numpy's own scalars are arrays to an engine.
        x = np.asarray(x) if isinstance(x, np.generic) else x
        (odd if _is_odd(x, texts) else given)[name] = x
    if odd:
        model = onnx.ModelProto.FromString(model.SerializeToString())
        left = [value for value in model.graph.input if value.name not in odd]
        types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
        del model.graph.input[:]
        model.graph.input.extend(left)
        for name, x in odd.items():
            tensor = numpy_helper.from_array(x, name)
            assert tensor.data_type == types[name]
            model.graph.initializer.append(tensor)
    return model, given


def _is_odd(x: Any, texts: bool) -> bool:
    if not isinstance(x, np.ndarray):
        return False
    number = int(onnx.helper.np_dtype_to_tensor_dtype(x.dtype))
    return not _is_plain(number) or (number == onnx.TensorProto.STRING and not texts)


def _number(text: str) -> int | None:
    """Return the element type's number of a type as onnxruntime writes it; None for what is no tensor."""
    if not text.startswith("tensor("):
        return None
    word = text.removeprefix("tensor(").removesuffix(")")
    if word.startswith(("float8", "float4")):
        return int(getattr(onnx.TensorProto, word.upper()))
    plain = {"double": "DOUBLE", "float": "FLOAT", "bool": "BOOL", "string": "STRING"}
    return int(getattr(onnx.TensorProto, plain.get(word, word.upper())))


def _is_plain(number: int | None) -> bool:
    return number in _PLAIN


_PLAIN = frozenset(
    getattr(onnx.TensorProto, name)
    for name in "FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 COMPLEX128".split()
)


def _bits(number: int) -> int:
    name = onnx.TensorProto.DataType.Name(number)
    return next(
        (bits for word, bits in (("INT4", 4), ("FLOAT4", 4), ("INT2", 2), ("FLOAT6", 6), ("BFLOAT16", 16)) if word in name), 8
    )


ENGINES: dict[str, Run] = {
    "dovetail, interpreter": in_dovetail("interpreter"),
    "dovetail, native": in_dovetail("native"),
    "onnxruntime": in_onnxruntime,
    "OpenVINO": in_openvino,
}


def outcome(run: Run, sample: Sample) -> str:
    """``passed``, ``refused`` (an exception), or ``other`` (something else comes out), with a reason behind it."""
    model: Any = sample.read_model()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = [(run(model, list(inputs)), expected) for inputs, expected in sample.read_pairs()]
    except Exception as error:
        return f"refused: {_line(error)}"
    try:
        for found, expected in results:
            assert_similar(expected, found, sample.rtol, sample.atol)
    except Exception as error:
        return f"other: {_line(error)}"
    return "passed"


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200]


def _child(pipe: Any, run: Run, rest: Sequence[Sample]) -> None:
    # What engines print about models that they refuse is no part of the table.
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    for sample in rest:
        pipe.send(outcome(run, sample))


def outcomes(engine: str, rest: list[Sample]) -> dict[str, str]:
    """Return the outcome of each test, by name."""
    found: dict[str, str] = {}
    context = multiprocessing.get_context("fork")
    while len(found) < len(rest):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, ENGINES[engine], rest[len(found) :]))
        child.start()
        theirs.close()
        while len(found) < len(rest):
            name = rest[len(found)].name
            try:
                if not ours.poll(LIMIT):
                    found[name] = f"crashed: more than {LIMIT} s"
                    break
                found[name] = ours.recv()
            except EOFError:
                child.join()
                found[name] = f"crashed: exit code {child.exitcode}"
                break
        child.kill()
        child.join()
    return found


def table(found: dict[str, dict[str, dict[str, str]]]) -> str:
    kinds = list(next(iter(found.values())))
    heads = [*kinds, "all", f"up to opset {RUNTIME_OPSET}", "refused", "other values", "crashed"]
    rows = ["| engine | " + " | ".join(heads) + " |", "| --- |" + " ---: |" * len(heads)]
    released = {(kind, sample.name) for kind in kinds for sample in samples(kind) if opset(sample) <= RUNTIME_OPSET}
    for engine, by_kind in found.items():
        counts = {kind: Counter(_word(text) for text in results.values()) for kind, results in by_kind.items()}
        whole = sum(counts.values(), Counter[str]())
        older = Counter(
            _word(text) for kind, results in by_kind.items() for name, text in results.items() if (kind, name) in released
        )
        cells = [_share(count) for count in counts.values()]
        cells += [f"{_share(count)} ({100 * count['passed'] / sum(count.values()):.2f} %)" for count in (whole, older)]
        cells += [str(whole[word]) for word in ("refused", "other", "crashed")]
        rows.append(f"| {engine} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _share(count: Counter[str]) -> str:
    return f"{count['passed']} / {sum(count.values())}"


def _word(text: str) -> str:
    return text.partition(":")[0]


def opset(sample: Sample) -> int:
    """Return the opset of ONNX's own operators that a test's model is of; 0 where it has none of them."""
    return max((item.version for item in sample.read_model().opset_import if not item.domain), default=0)


def reasons(found: dict[str, dict[str, dict[str, str]]]) -> list[str]:
    """Return a table of what dovetail does not pass, with a row for each reason."""
    gaps = tomllib.loads((ROOT / "tests" / "gaps.toml").read_text())["gap"]
    peers = [engine for engine in found if not engine.startswith("dovetail")]
    missed: dict[str, list[tuple[str, str]]] = {}
    for engine in found.keys() - peers:
        for kind, results in found[engine].items():
            for name in (name for name, text in results.items() if text != "passed"):
                short, file = name.removeprefix("test_"), "node" if kind == "node" else "model"
                label = short if kind == "node" else f"{kind}: {short}"
                test = f"tests/models/test_backend_{file}s.py::test_backend_{file}[{label}]"
                reason = next((gap["reason"] for gap in gaps if _fits(test, gap["test"])), "It is in no list.")
                tests = missed.setdefault(reason, [])
                tests += [(kind, name)] if (kind, name) not in tests else []
    rows = [
        f"| tests | {' | '.join(f'{peer} passes' for peer in peers)} | reason |",
        "| --- |" + " ---: |" * len(peers) + " --- |",
    ]
    for reason, tests in missed.items():
        passed = [sum(found[peer][kind][name] == "passed" for kind, name in tests) for peer in peers]
        names = ", ".join(f"`{name.removeprefix('test_')}`" for _, name in sorted(tests))
        rows.append(f"| {names} | {' | '.join(f'{count} of {len(tests)}' for count in passed)} | {reason} |")
    return rows


def _fits(test: str, pattern: str) -> bool:
    return fnmatchcase(test.replace("[", "("), pattern.replace("[", "("))


def page(found: dict[str, dict[str, dict[str, str]]]) -> str:
    import onnxruntime
    import openvino

    peer = openvino.__version__.partition("-")[0]
    lines = [
        "# Conformance",
        "",
        f"Generated by `python tests/conformance.py --write`: the backend tests that onnx {onnx.__version__} brings, in",
        f"dovetail, in onnxruntime {onnxruntime.__version__} and in OpenVINO {peer} with its own ONNX reader, in one",
        "environment, on the CPU.",
        "",
        "Passed / total. The rule is the same for all: onnx's own (shapes and element types equal, values within the test's",
        "tolerances), and integers and truth values exactly. Elements that numpy has no type for (bf16, f8, 4 and 2 bits)",
        "reach the peers as initializers of the model. An engine that raises an error has *refused*; one whose process ends,",
        f"or that takes more than {LIMIT} s, has *crashed*. The tests up to opset {RUNTIME_OPSET} are counted by themselves,",
        "too: newer opsets are read by onnxruntime from 1.32 on.",
        "",
        table(found),
        "",
        "## What dovetail does not pass",
        "",
        *reasons(found),
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--engine", action="append", choices=list(ENGINES))
    parser.add_argument("--match", default="", help="only tests with this in their names")
    parser.add_argument("--verbose", action="store_true", help="print what is not passed, with its reason")
    parser.add_argument("--write", action="store_true", help=f"renew {TARGET.name}")
    options = parser.parse_args()
    found: dict[str, dict[str, dict[str, str]]] = {}
    for engine in options.engine or ENGINES:
        found[engine] = {}
        for kind in options.kind or KINDS:
            found[engine][kind] = outcomes(engine, [sample for sample in samples(kind) if options.match in sample.name])
            for name, text in found[engine][kind].items():
                if options.verbose and text != "passed":
                    print(f"{engine}: {kind}: {name}: {text}")
    print(table(found))
    if options.write:
        TARGET.write_text(page(found))


if __name__ == "__main__":
    main()
