"""The Backend interface of onnx: ``prepare``, ``run_model``, ``run_node`` and ``supports_device`` of ``onnx.backend.base``.

``onnx.backend.test.BackendTest(dovetail.compat.onnx_backend)`` tests this module, which needs the extra ``onnx``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from dovetail.errors import EngineError
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec
from dovetail.ir import dtypes
from dovetail.runtime.compilation import compile
from dovetail.runtime.program import Program
from dovetail.storage.deviations import Deviations, log


class Prepared(BackendRep):
    """Prepared is a compiled model; ``run`` may be called any number of times."""

    def __init__(self, program: Program) -> None:
        self.program = program
        names = [value.name for value in program.model.outputs]
        self._outputs = namedtupledict("Outputs", names)

    def run(self, inputs: Sequence[Any] | Mapping[str, Any], **kwargs: Any) -> tuple[Any, ...]:
        """Run the model, and return the outputs in order (and by name).

        ``inputs`` are arrays in order or by name, or a single array. Raises EngineError where the inputs do not fit the model,
        UnsupportedError [op.unknown] for an operator that cannot run.
        """
        _refuse(kwargs)
        if isinstance(inputs, Mapping):
            arrays: Any = {name: _array(item) for name, item in inputs.items()}
            outputs = self.program(arrays)
        else:
            outputs = self.program(*(_array(item) for item in ([inputs] if hasattr(inputs, "dtype") else inputs)))
        return self._outputs(*outputs.values())


class DovetailBackend(Backend):
    """DovetailBackend is the ONNX backend of dovetail on the CPU, with the option ``engine`` of :func:`dovetail.compile`."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: object) -> bool:
        """Return whether ``prepare`` accepts the model."""
        try:
            cls.prepare(model, device, **kwargs)
        except (ValueError, NotImplementedError, RuntimeError):
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Load and compile ``model``.

        The option ``engine`` is a parameter of :func:`dovetail.compile`. Raises the errors of ``dovetail.load``, and EngineError
        [device.unknown].
        """
        engine = kwargs.pop("engine", "auto")
        _refuse(kwargs)
        if not cls.supports_device(device):
            raise EngineError("device.unknown", f"the device must be CPU, got {device!r}")
        deviations = Deviations()
        loaded = import_foreign(codec.read(model, deviations=deviations), deviations)
        log(deviations.warnings(), "the model")
        return Prepared(compile(loaded, engine))

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Sequence[Any] | Mapping[str, Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator in the newest opset, or in ``opset_version``, and return its outputs."""
        opset = kwargs.pop("opset_version", defs.onnx_opset_version())
        arrays = dict(zip((name for name in node.input if name), (_array(item) for item in inputs), strict=False))
        values = [helper.make_tensor_value_info(name, _onnx_dtype(array), array.shape) for name, array in arrays.items()]
        infos: list[Any] = list(outputs_info or ())
        results = [
            helper.make_tensor_value_info(name, _onnx_dtype(np.zeros(0, infos[index][0])), infos[index][1])
            if index < len(infos)
            else helper.make_empty_tensor_value_info(name)
            for index, name in enumerate(node.output)
            if name
        ]
        graph = helper.make_graph([node], "node", values, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.partition(":")[0] == "CPU"


def _array(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, TensorProto) else item


def _onnx_dtype(array: np.ndarray[Any, Any]) -> int:
    number = dtypes.dtype(array.dtype).onnx
    assert number is not None
    return number


def _refuse(options: Mapping[str, Any]) -> None:
    if options:
        raise EngineError("argument.value", f"the backend has no option {', '.join(map(repr, options))}")


is_compatible = DovetailBackend.is_compatible
prepare = DovetailBackend.prepare
run_model = DovetailBackend.run_model
run_node = DovetailBackend.run_node
supports_device = DovetailBackend.supports_device
