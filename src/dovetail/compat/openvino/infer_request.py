"""InferRequest: one run of a compiled model at a time, with its tensors, results and states."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Sequence, ValuesView
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dovetail.compat.openvino.element_type import Type
from dovetail.compat.openvino.errors import Partial, Refusal, runtime_errors
from dovetail.compat.openvino.nodes import ConstOutput, TensorPort, find_port, ports_text
from dovetail.compat.openvino.shapes import PartialShape
from dovetail.compat.openvino.tensor import Array, Tensor, empty_tensor
from dovetail.errors import EngineError
from dovetail.ir.graph import Value
from dovetail.ir.state import State, own_inputs, own_outputs
from dovetail.runtime.interpreter.session import InitialStates, Session

if TYPE_CHECKING:
    from dovetail.compat.openvino.compiled_model import CompiledModel

InputsLike: TypeAlias = object
"""Inputs of a run: None, an array, a Tensor or a number for a model with one input; or a list, a tuple, or a dict of these by
index, name or ConstOutput."""
Key: TypeAlias = int | str | ConstOutput


class OVDict(Mapping[ConstOutput, Array]):
    """OVDict maps the output ports to arrays; an index or a name selects an array too."""

    __slots__ = ("_arrays",)

    def __init__(self, arrays: dict[ConstOutput, Array]) -> None:
        self._arrays = arrays

    def __getitem__(self, key: Key) -> Array:
        if isinstance(key, ConstOutput):
            return self._arrays[key]
        if isinstance(key, int | np.integer):
            if not -len(self._arrays) <= key < len(self._arrays):
                raise KeyError(key)
            return list(self._arrays.values())[key]
        if isinstance(key, str):
            for port, array in self._arrays.items():
                if key in port.names:
                    return array
            raise KeyError(key)
        raise TypeError(f"Unknown key type: {type(key)}")

    def __iter__(self) -> Iterator[ConstOutput]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def keys(self) -> KeysView[ConstOutput]:
        return self._arrays.keys()

    def values(self) -> ValuesView[Array]:
        return self._arrays.values()

    def items(self) -> ItemsView[ConstOutput, Array]:
        return self._arrays.items()

    def names(self) -> tuple[set[str], ...]:
        """Return the names of each output."""
        return tuple(port.names for port in self._arrays)

    def to_dict(self) -> dict[ConstOutput, Array]:
        """Return the dict of arrays by port."""
        return self._arrays

    def to_tuple(self) -> tuple[Array, ...]:
        """Return the arrays in the order of the outputs."""
        return tuple(self._arrays.values())

    def __repr__(self) -> str:
        return repr(self._arrays)


class VariableState(Partial):
    """VariableState is a state of a request: a variable that ReadValue reads and Assign writes."""

    def __init__(self, session: Session, state: State, value: Value, initial: InitialStates) -> None:
        self._session, self._state, self._value, self._initial = session, state, value, initial

    @property
    def name(self) -> str:
        return self._state.variable

    @property
    def state(self) -> Tensor:
        """A copy of the elements; before the first run the initial ones."""
        states = self._session.states
        array = states.get(self._state.input)
        if array is None:
            array = self._initial({})[self._state.input]
        tensor = empty_tensor(self._value.dtype, array.shape)
        tensor.replace(np.array(array))
        return tensor

    @state.setter
    def state(self, tensor: Tensor) -> None:
        shape = PartialShape.of_sizes(self._value.shape)
        if not shape.compatible(PartialShape(tensor.shape)):
            raise EngineError("shape.disagree", f"the state {self.name} must have the shape {shape}, got {tensor.shape}")
        self._session.states[self._state.input] = tensor.to_array(self._value.dtype).copy()

    def reset(self) -> None:
        """Restore the initial value."""
        self._session.states.pop(self._state.input, None)

    def __repr__(self) -> str:
        return f"<VariableState: {self.name}>"


class InferRequest(Partial):
    """InferRequest runs a compiled model, in the thread of the caller (``infer``) or in another one (``start_async``).

    It owns a tensor for each input and output. While it runs, calls that read or change it raise EngineError [run.failed].
    """

    def __init__(self, compiled: CompiledModel) -> None:
        self._compiled = compiled
        model = compiled.source
        self._values = own_inputs(model), own_outputs(model)
        self._shapes = tuple([PartialShape.of_sizes(value.shape) for value in values] for values in self._values)
        self._tensors = tuple([_tensor_of(value) for value in values] for values in self._values)
        self._session = compiled.program.session({state.input: state.output for state in model.states}) if model.states else None
        self._callback: Callable[[object], object] | None = None
        self._userdata: object = None
        self._future: Future[None] | None = None
        self._cancelled: Callable[[], None] | None = None
        self._is_busy = False
        self._seconds: float | None = None

    # Ports and tensors

    @property
    def model_inputs(self) -> list[ConstOutput]:
        return self._compiled.inputs

    @property
    def model_outputs(self) -> list[ConstOutput]:
        return self._compiled.outputs

    def get_compiled_model(self) -> CompiledModel:
        return self._compiled

    @property
    def input_tensors(self) -> list[Tensor]:
        self._check_idle()
        return list(self._tensors[0])

    @property
    def output_tensors(self) -> list[Tensor]:
        self._check_idle()
        return list(self._tensors[1])

    def get_input_tensor(self, index: int | None = None) -> Tensor:
        """Return the tensor of an input, by default of the only one."""
        return self._tensors[0][self._find(0, index)]

    def get_output_tensor(self, index: int | None = None) -> Tensor:
        """Return the tensor of an output, by default of the only one."""
        return self._tensors[1][self._find(1, index)]

    def get_tensor(self, name: str | TensorPort) -> Tensor:
        """Return the tensor of a port, or of the input or output of that name."""
        side, index = self._side(name)
        return self._tensors[side][index]

    def set_tensor(self, name: str | TensorPort, tensor: Tensor) -> None:
        """Let ``tensor`` be the memory of an input or output. Raises EngineError [input.dtype], [input.shape]."""
        self._set(*self._side(name), tensor)

    def set_input_tensor(self, *arguments: int | Tensor, **named: int | Tensor) -> None:
        """Set the tensor of an input: ``set_input_tensor(index, tensor)``, or the tensor alone for the only input."""
        self._set_positional(0, *arguments, **named)

    def set_output_tensor(self, *arguments: int | Tensor, **named: int | Tensor) -> None:
        """Set the tensor of an output: ``set_output_tensor(index, tensor)``, or the tensor alone for the only output."""
        self._set_positional(1, *arguments, **named)

    def set_tensors(self, inputs: Mapping[str | TensorPort, Tensor]) -> None:
        """Set the tensors of inputs or outputs by name or port."""
        for name, tensor in inputs.items():
            self.set_tensor(name, tensor)

    def set_input_tensors(self, inputs: Mapping[int, Tensor]) -> None:
        """Set the tensors of inputs by index."""
        for index, tensor in inputs.items():
            self.set_input_tensor(index, tensor)

    def set_output_tensors(self, outputs: Mapping[int, Tensor]) -> None:
        """Set the tensors of outputs by index."""
        for index, tensor in outputs.items():
            self.set_output_tensor(index, tensor)

    def _set_positional(self, side: int, *arguments: int | Tensor, **named: int | Tensor) -> None:
        items = [*arguments, *(named[name] for name in ("index", "tensor") if name in named)]
        index = items[0] if len(items) > 1 else None
        tensor = items[-1]
        if not isinstance(tensor, Tensor) or not (index is None or isinstance(index, int)):
            raise TypeError(f"expected an index and a Tensor, or a Tensor, got {items!r}")
        self._set(side, self._find(side, index), tensor)

    def _set(self, side: int, index: int, tensor: Tensor) -> None:
        self._check_idle()
        if not isinstance(tensor, Tensor):
            raise TypeError(f"a Tensor is needed, got {type(tensor)}")
        value = self._values[side][index]
        kind, shape = self._tensors[side][index].element_type, self._shapes[side][index]
        if tensor.element_type is not kind:
            message = f"the tensor for {value.name!r} must be {kind.to_string()}, got {tensor.element_type.to_string()}"
            raise EngineError("input.dtype", message)
        is_empty_output = side == 1 and not tensor.size
        if not shape.compatible(PartialShape(tensor.shape)) and not is_empty_output:
            raise EngineError("input.shape", f"the tensor for {value.name!r} must have the shape {shape}, got {tensor.shape}")
        self._tensors[side][index] = tensor

    def _find(self, side: int, index: int | None) -> int:
        self._check_idle()
        ports = self._compiled.outputs if side else self._compiled.inputs
        try:
            return find_port(ports, index, "Output" if side else "Input").position
        except IndexError as error:
            raise EngineError("input.unknown", str(error)) from None

    def _side(self, name: str | TensorPort) -> tuple[int, int]:
        """Return 0 for an input and 1 for an output, and the index, of a port or a name."""
        self._check_idle()
        if isinstance(name, TensorPort):
            return 0 if name.is_input else 1, name.position
        for side, ports in enumerate((self._compiled.inputs, self._compiled.outputs)):
            for port in ports:
                if name in port.names:
                    return side, port.position
        raise EngineError("input.unknown", f"Port for tensor name {name} was not found.")

    # Inputs

    def take_inputs(self, inputs: InputsLike, is_shared: bool) -> None:
        """Set the tensors of inputs; with ``is_shared`` an array of the right type is not copied."""
        if inputs is None:
            return
        if isinstance(inputs, list) and len(self._values[0]) == 1 and _is_simple(inputs):
            inputs = [np.array(inputs)]
        if isinstance(inputs, Mapping) and not isinstance(inputs, OVDict):
            for key, item in inputs.items():
                if not isinstance(key, int | str | ConstOutput):
                    raise TypeError(f"Incompatible key type for input: {key}")
                self._take_input(self._input_index(key), item, is_shared)
        elif isinstance(inputs, list | tuple | OVDict):
            arrays: Sequence[object] = inputs.to_tuple() if isinstance(inputs, OVDict) else inputs
            for index, item in enumerate(arrays):
                self._take_input(self._find(0, index), item, is_shared)
        else:
            self._take_input(self._find(0, None), inputs, is_shared)

    def _input_index(self, key: Key) -> int:
        if isinstance(key, int):
            return self._find(0, key)
        side, index = self._side(key)
        if side:
            raise EngineError("input.unknown", f"{key!r} must be an input, got an output")
        return index

    def _take_input(self, index: int, item: object, is_shared: bool) -> None:
        if isinstance(item, Tensor):
            self._set(0, index, item)
            return
        if not isinstance(item, int | float | str | bytes | np.generic | list) and not hasattr(item, "__array__"):
            raise TypeError(f"Incompatible inputs of type: {type(item)}")
        array = np.asarray(item)
        tensor = self._tensors[0][index]
        kind, shape = tensor.element_type, self._shapes[0][index]
        if kind is Type.string:
            self._set(0, index, Tensor(array.astype(object)))
            return
        if array.dtype.kind in "SU":
            array = array.astype(kind.to_dtype())
        if not array.ndim and tensor.size == 1:
            array = array.reshape(tuple(tensor.shape))
        if not shape.compatible(PartialShape(list(array.shape))):
            name = self._values[0][index].name
            raise EngineError("input.shape", f"the input {name!r} must have the shape {shape}, got {list(array.shape)}")
        is_exact = array.dtype == kind.to_dtype() and kind is not Type.bf16
        if is_shared and is_exact and array.flags.writeable:
            self._tensors[0][index] = Tensor(np.ascontiguousarray(array), shared_memory=True)
        elif is_shared:
            bits = array.view(kind.to_dtype()) if array.dtype.itemsize == 2 and kind is Type.bf16 else array
            self._tensors[0][index] = Tensor(kind, list(array.shape))
            self._tensors[0][index].data[...] = bits
        else:
            tensor.shape = array.shape
            tensor.data[...] = array

    # Runs

    def infer(
        self,
        inputs: InputsLike = None,
        share_inputs: bool = False,
        share_outputs: bool = False,
        *,
        decode_strings: bool = True,
    ) -> OVDict:
        """Run once in the thread of the caller, and return the results.

        Inputs that are not passed keep their tensors. With ``share_inputs`` arrays are read in place; with ``share_outputs``
        the results are views of the output tensors, which the next run overwrites. Raises EngineError [input.*], [run.*].
        """
        self._check_idle()
        self.take_inputs(inputs, share_inputs)
        self._is_busy = True
        try:
            self._compiled.streams.run(self._run)
        finally:
            self._is_busy = False
        return self._results(share_outputs, decode_strings)

    def _run(self) -> None:
        begin = time.perf_counter()
        with runtime_errors():
            inputs = {
                value.name: tensor.to_array(value.dtype) for value, tensor in zip(self._values[0], self._tensors[0], strict=True)
            }
            targets: dict[str, Array] = {}
            results: Mapping[str, Array]
            if self._session is None:
                targets = self._targets()
                results = self._compiled.program(inputs, out=targets or None)
            else:
                results = self._session(inputs)
        for value, tensor in zip(self._values[1], self._tensors[1], strict=True):
            if value.name not in targets:
                tensor.replace(results[value.name])
        self._seconds = time.perf_counter() - begin

    def _targets(self) -> dict[str, Array]:
        """Return the memory of the outputs of static shape, into which the program writes."""
        return {
            value.name: tensor.to_array(value.dtype)
            for value, shape, tensor in zip(self._values[1], self._shapes[1], self._tensors[1], strict=True)
            if shape.is_static and tensor.element_type is not Type.string
        }

    def _results(self, is_shared: bool, decodes: bool) -> OVDict:
        arrays: dict[ConstOutput, Array] = {}
        for port, tensor in zip(self._compiled.outputs, self._tensors[1], strict=True):
            if tensor.element_type is Type.string:
                arrays[port] = tensor.str_data if decodes else tensor.bytes_data
            else:
                arrays[port] = tensor.data if is_shared else tensor.data.copy()
        return OVDict(arrays)

    @property
    def results(self) -> OVDict:
        """The results of the last run."""
        self._check_idle()
        return self._results(False, True)

    def start_async(self, inputs: InputsLike = None, userdata: object = None, share_inputs: bool = False) -> None:
        """Run once in another thread; ``wait`` returns after the run and its callback."""
        self._check_idle()
        self.take_inputs(inputs, share_inputs)
        if userdata is not None:
            if self._callback is None:
                warnings.warn("There is no callback function!", RuntimeWarning, stacklevel=2)
            else:
                self._userdata = userdata
        callback, argument = self._callback, self._userdata

        def done(error: BaseException | None) -> None:
            if error is None and callback is not None:
                callback(argument)

        self.submit(done)

    def submit(self, done: Callable[[BaseException | None], None], cancelled: Callable[[], None] | None = None) -> None:
        """Run once in another thread, and there call ``done`` with the error of the run or None.

        A run that is cancelled before it begins calls ``cancelled`` instead.
        """
        self._is_busy, self._cancelled = True, cancelled

        def work() -> None:
            error: BaseException | None = None
            try:
                self._compiled.streams.run(self._run)
            except BaseException as raised:
                error = raised
                raise
            finally:
                self._is_busy = False
                done(error)

        try:
            self._future = self._compiled.streams.submit(work)
        except BaseException:
            self._is_busy = False
            raise

    def wait(self) -> None:
        """Wait for the run and its callback. Raises the error of the run, or EngineError [run.failed] for the callback's."""
        if self._future is not None:
            _raise_as_runtime_error(self._future, None)

    def wait_for(self, timeout: int) -> bool:
        """Wait for at most ``timeout`` milliseconds, and return whether a run has ended. Raises EngineError [argument.value]."""
        if timeout < 0:
            raise EngineError("argument.value", f"the timeout must not be negative, got {timeout}")
        if self._future is None:
            return self._seconds is not None
        return _raise_as_runtime_error(self._future, timeout / 1000)

    def cancel(self) -> None:
        """Cancel a run that has not begun; one that has begun goes on to its end."""
        if self._future is not None and self._future.cancel():
            self._future, self._is_busy = None, False
            if self._cancelled is not None:
                self._cancelled()

    def set_callback(self, callback: Callable[[object], object], userdata: object) -> None:
        """Set the function that is called with ``userdata`` after each asynchronous run."""
        self._check_idle()
        self._callback, self._userdata = callback, userdata

    get_profiling_info = Refusal("dovetail.profile measures each node")

    @property
    def userdata(self) -> object:
        return self._userdata

    @property
    def latency(self) -> float:
        """The duration of the last run, in milliseconds."""
        self._check_idle()
        return (self._seconds or 0.0) * 1e3

    def _check_idle(self) -> None:
        if self._is_busy:
            raise EngineError("run.failed", "Infer Request is busy")

    # States

    def query_state(self) -> list[VariableState]:
        """Return the states of the model; an empty list for a model without states."""
        self._check_idle()
        model = self._compiled.source
        if self._session is None:
            return []
        values = {value.name: value for value in model.inputs}
        initial = InitialStates(model)
        return [VariableState(self._session, state, values[state.input], initial) for state in model.states]

    def reset_state(self) -> None:
        """Restore the initial states."""
        self._check_idle()
        if self._session is not None:
            self._session.reset()

    def __repr__(self) -> str:
        return f"<InferRequest:\n{ports_text(self.model_inputs, self.model_outputs)}>"


def _tensor_of(value: Value) -> Tensor:
    """Return the first tensor of an input or output, with 0 for each size that is not static."""
    sizes = value.shape or ()
    return empty_tensor(value.dtype, tuple(size if isinstance(size, int) else 0 for size in sizes))


def _is_simple(items: Sequence[object]) -> bool:
    return all(
        all(isinstance(inner, str | float | int | bytes) for inner in item)
        if isinstance(item, list)
        else isinstance(item, str | float | int | bytes)
        for item in items
    )


def _raise_as_runtime_error(future: Future[None], timeout: float | None) -> bool:
    """Wait for a future, and return whether it has ended. Raises its error as a RuntimeError."""
    if timeout is not None:
        event = threading.Event()
        future.add_done_callback(lambda _: event.set())
        if not event.wait(timeout):
            return False
    error = future.exception()
    if error is None:
        return True
    if isinstance(error, RuntimeError):
        raise error
    raise EngineError("run.failed", f"{type(error).__name__}: {error}") from error
