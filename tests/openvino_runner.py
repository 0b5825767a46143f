"""A row of the tables in ``cases_openvino`` put to work: built with openvino, run there, read by us, run, written, run again."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dovetail
import oracles
from cases_openvino import Fixed, Row
from dovetail.compare.verification.conversion import compare
from dovetail.errors import DovetailError
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.op import REGISTRY
from dovetail.ir.state import own_outputs
from dovetail.runtime.interpreter.session import InitialStates

FACTORY_NAMES = {"ReLU": "Relu", "SoftMax": "Softmax", "PReLU": "PRelu", "HSwish": "HSwish"}
"""Operators that IR calls otherwise than the openvino package does."""
ENGINES = ("interpreter", "native")


def built(row: Row) -> Any:
    """Return the model of ``row``, as openvino has it: inputs x0, x1, ..., outputs y0, y1, ..."""
    import openvino
    from openvino import opset1

    arguments, parameters = [], []
    for index, x in enumerate(row.inputs):
        if isinstance(x, Fixed):
            arguments.append(opset1.constant(x.array.astype(str)) if x.array.dtype.kind == "O" else _constant(x.array))
            continue
        kind = getattr(openvino.Type, dtypes.dtype(x.dtype).openvino or "")
        parameter = opset1.parameter(list(x.shape), kind, name=f"x{index}")
        parameter.output(0).get_tensor().set_names({f"x{index}"})
        arguments.append(parameter)
        parameters.append(parameter)
    made = _made(row, openvino, arguments)
    made, sinks = made if isinstance(made, tuple) else (made, [])
    outputs = list(made.outputs()) if hasattr(made, "outputs") else list(made)
    results = []
    for index, output in enumerate(outputs):
        output.get_tensor().set_names({f"y{index}"})
        results.append(opset1.result(output))
    if sinks:
        return openvino.Model(results, sinks, parameters, "row")
    return openvino.Model(results, parameters, "row")


def _made(row: Row, openvino: Any, arguments: list[Any]) -> Any:
    if row.build is not None:
        return row.build(openvino, *arguments)
    from openvino.utils.node_factory import NodeFactory

    return NodeFactory(f"opset{row.version}").create(FACTORY_NAMES.get(row.kind, row.kind), arguments, dict(row.attributes))


def _constant(array: Any) -> Any:
    import openvino
    from openvino import opset1

    if array.size and array.dtype.kind in "fiub" and array.dtype.name in np.sctypeDict:
        return opset1.constant(array)
    kind = getattr(openvino.Type, dtypes.dtype(array.dtype).openvino or "")
    if not array.size:
        return openvino.op.Constant(kind, openvino.Shape(array.shape), [])
    tensor = openvino.Tensor(kind, openvino.Shape(array.shape))
    tensor.data.view(np.uint8).reshape(-1)[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return opset1.constant(tensor)


STEPS = ("values", "ir", "onnx")

WITHOUT_ROWS = {
    "Parameter-1": "in every model",
    "Const-1": "in every model",
    "Result-1": "in every model",
    "BinaryConvolution-1": "weights of one bit, which the openvino package does not take from Python",
    "Proposal-1": "Proposal-4 without its scores, which no function of the package builds",
    "ExperimentalDetectronDetectionOutput-6": "the detectors of one library, whose last step nothing else needs",
}
"""Operators that no model is built of, with the reason."""


def known() -> set[tuple[str, int]]:
    """All operators of OpenVINO that are built, by their mappings and by what composes them."""
    found = {(kind, version) for domain, kind, version in OPENVINO.importers if not domain}
    for op in REGISTRY.values():
        for mapping in (op_mapping.parse(op, line) for line in OPENVINO.mapping_lines(op)):
            if not mapping.is_export_only:
                found |= {(mapping.kind, version) for version in mapping.versions}
    return found


def feeds(row: Row) -> dict[str, Any]:
    return {f"x{index}": np.asarray(x) for index, x in enumerate(row.inputs) if not isinstance(x, Fixed)}


class Work:
    """One row's files, and the answers to it."""

    def __init__(self, row: Row, folder: Path) -> None:
        import openvino

        self.row = row
        self.folder = folder
        self.source = folder / "source.xml"
        openvino.serialize(built(row), self.source)
        self.inputs = feeds(row)
        self.model: Any = None

    @property
    def names(self) -> list[str]:
        return [value.name for value in own_outputs(self.load())]

    def load(self) -> Any:
        if self.model is None:
            self.model = dovetail.load(self.source)
        return self.model

    def expected(self) -> dict[str, Any]:
        """Return the results that the row states, else OpenVINO's results on its own file."""
        if self.row.answers is not None:
            found = self.row.answers(*(x.array if isinstance(x, Fixed) else x for x in self.row.inputs))
            return {f"y{index}": np.asarray(y) for index, y in enumerate(found if isinstance(found, tuple | list) else [found])}
        return self.openvino()

    def openvino(self, path: Path | None = None) -> dict[str, Any]:
        """Return OpenVINO's results on an IR file, by default its own."""
        names = self.names
        return dict(zip(names, oracles.run_openvino_file(str(path or self.source), self.inputs, names), strict=True))

    def given(self) -> dict[str, Any]:
        """Return the inputs with what states begin with."""
        model = self.load()
        return {**InitialStates(model)(self.inputs), **self.inputs} if model.states else self.inputs

    def kinds(self) -> set[tuple[str, int, str]]:
        from dovetail.formats.openvino import codec

        return {(node.kind, node.version, node.domain) for node in codec.read(self.source).graph.nodes}

    def differences(self, reference: dict[str, Any], other: dict[str, Any]) -> list[str]:
        if self.row.is_random:
            first = [(name, x.dtype, x.shape) for name, x in reference.items()]
            second = [(name, x.dtype, x.shape) for name, x in other.items()]
            return [] if first == second else [f"{first} against {second}"]
        rows = compare(reference, other, self.row.tolerance)
        return [
            f"{row}: {reference.get(row.output)!r} against {other.get(row.output)!r}"[:2000] for row in rows if not row.agrees
        ]

    def values(self) -> list[str]:
        """Return the differences of our results on openvino's file from the expected ones, and of our types."""
        model = self.load()
        found = []
        for engine in ENGINES:
            got = dovetail.compile(model, engine)(dict(self.inputs))
            found.append((engine, {name: got[name] for name in self.names}))
        reference = self.expected()
        faults = [f"warned: {item}" for item in model.warnings]
        for value in own_outputs(model):
            theirs = reference[value.name]
            if value.dtype is not dtypes.dtype(theirs.dtype):
                faults.append(f"{value.name} is {value.type}, and OpenVINO makes {theirs.dtype}")
            known = value.shape
            is_fitting = known is not None and len(known) == theirs.ndim
            if not is_fitting or any(
                isinstance(size, int) and size != true for size, true in zip(known, theirs.shape, strict=True)
            ):
                faults.append(f"{value.name} is {value.type}, and OpenVINO makes {list(theirs.shape)}")
        for engine, got in found:
            faults += [f"{engine}: {item}" for item in self.differences(reference, got)]
        return faults

    def ir(self) -> list[str]:
        """Return the differences of OpenVINO's results on our IR from those on its own; it has to load IR that it cannot run."""
        path = self.folder / "written.xml"
        dovetail.save(self.load(), path)
        if self.row.answers is None and not self.row.refused:
            return self.differences(self.expected(), self.openvino(path))
        try:
            own = {} if self.row.is_unsafe or self.row.refused else self.openvino()
        except (RuntimeError, oracles.Silent):
            own = {}
        if not own:
            return [] if oracles.openvino_attributes(path, path.read_text(), "Result") else ["OpenVINO does not load it"]
        got = self.openvino(path)
        faults = self.differences(own, got)
        return faults and self.differences(self.expected(), got)

    def onnx(self) -> list[str]:
        """Return the differences of the results on our ONNX, in onnxruntime or, where that has no kernel, onnx.reference."""
        path = self.folder / "written.onnx"
        dovetail.save(self.load(), path)
        data, names = path.read_bytes(), [value.name for value in self.load().outputs]
        try:
            found = oracles.run_onnxruntime(data, self.given())
        except oracles.Silent:
            found = oracles.run_reference(data, self.given())
        return self.differences(self.expected(), {name: x for name, x in zip(names, found, strict=True) if name in self.names})


@cache
def work(row: Row) -> Work:
    """Return a row's work, its files in a folder that goes when the process ends."""
    folder = tempfile.TemporaryDirectory()
    _FOLDERS.append(folder)
    return Work(row, Path(folder.name))


_FOLDERS: list[Any] = []


def outcome(row: Row, step: str) -> tuple[str, str]:
    """Return the outcome of a step of a row: ("agrees", ""), ("refused", code and message), ("differs", how), ("silent", why) or
    ("failed", how)."""
    try:
        faults = getattr(work(row), step)()
    except oracles.Silent as reason:
        return "silent", str(reason)
    except DovetailError as error:
        return "refused", f"{error.code}: {error}"
    except Exception as error:
        return "failed", f"{type(error).__name__}: {str(error)[-1500:]}"
    return ("differs", "\n".join(faults)) if faults else ("agrees", "")
