"""Programs that torch.compile compiles from a trace of the interpreter, one trace for each set of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dovetail.errors import DovetailError, EngineError
from dovetail.ir.graph import Model
from dovetail.ir.limits import active, counting
from dovetail.runtime.devices.torch_program import TorchProgram


class CompiledTorchProgram(TorchProgram):
    """CompiledTorchProgram is a Program compiled by torch.compile. It rejects nodes whose shapes depend on elements."""

    def __init__(self, model: Model, device: object = None, results: str = "numpy", torch_compile: bool = True) -> None:
        super().__init__(model, device, results, torch_compile=torch_compile)
        self._compiled: dict[Any, tuple[Callable[..., Any], list[EngineError]]] = {}

    def close(self) -> None:
        super().close()
        self._compiled = {}

    def _execute(self, inputs: list[Any]) -> list[Any]:
        key = _signature(inputs)
        if key not in self._compiled:
            self._compiled[key] = self._compile(inputs)
        function, errors = self._compiled[key]
        try:
            outputs, failed = function(list(self._constants.values()), inputs)
        except self._torch._dynamo.exc.TorchDynamoException as error:
            message = f"torch.compile fails: {str(error).strip().splitlines()[0]}"
            raise EngineError("runtime.run", message, file=self.model.file) from error
        for is_failed, check in zip(failed, errors, strict=True):
            if bool(is_failed):
                raise EngineError(check.code, check.message, node=check.node, op=check.op, file=self.model.file)
        return list(outputs)

    def _compile(self, inputs: list[Any]) -> tuple[Callable[..., Any], list[EngineError]]:
        # Deferred for start-up time.
        from torch.fx.experimental.proxy_tensor import make_fx

        errors: list[EngineError] = []

        def trace(weights: Sequence[Any], items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            constants = dict(zip(self._constants, weights, strict=True))
            with counting(self.model.limits if active() is None else None):
                outputs, checks = self.execution.trace(items, constants, self._xp, "torch.compile", self._is_tracing_error)
            errors[:] = [check.error for check in checks]
            return outputs, [check.failed for check in checks]

        try:
            module = make_fx(trace, tracing_mode="fake", _allow_non_fake_inputs=True)(list(self._constants.values()), inputs)
        except DovetailError as error:
            raise error.at(file=self.model.file) from None
        # The attention patterns of torch's pattern matcher expect Python numbers, and fail on scalar tensors.
        return self._torch.compile(module, options={"pattern_matcher": False}), errors

    def _is_tracing_error(self, error: BaseException) -> bool:
        fake = self._torch._subclasses.fake_tensor
        classes = (fake.DataDependentOutputException, fake.DynamicOutputShapeException)
        return isinstance(error, classes) or (isinstance(error, RuntimeError) and "tensor subclasses" in str(error))


def _signature(items: Sequence[Any]) -> Any:
    return tuple(
        None if item is None else _signature(item) if isinstance(item, list) else (tuple(item.shape), item.dtype)
        for item in items
    )
