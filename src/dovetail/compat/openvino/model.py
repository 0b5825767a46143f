"""Model, and the functions that read, convert, change and save models."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from math import prod
from typing import TypeAlias

import numpy as np

from dovetail.compat.openvino.element_type import Type
from dovetail.compat.openvino.errors import Partial, runtime_errors
from dovetail.compat.openvino.layout import Layout
from dovetail.compat.openvino.nodes import Node, Output, TensorPort, find_port, layouts_of, port_node, ports_text
from dovetail.compat.openvino.operations import nodes_of
from dovetail.compat.openvino.runtime_info import OVAny, Path, Tree, find, keys_of, store, text_of, tree_of
from dovetail.compat.openvino.shapes import Dimension, PartialShape, Shape, ShapeLike
from dovetail.errors import DovetailError, EngineError, UnsupportedError
from dovetail.formats import load, reload, save
from dovetail.formats.model_source import Source
from dovetail.ir import dtypes, graph as ir
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, move_readers
from dovetail.ir.infer import infer_graph, pure_inference
from dovetail.ir.limits import counting
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.ir.types import Tensor as TensorType
from dovetail.ops.constant import Constant
from dovetail.passes.rebatch import rebatch

NewShapes: TypeAlias = ShapeLike | Mapping[object, ShapeLike]
"""The argument of ``reshape``: the shape of the only input, or shapes by index, name or port."""


class Model(Partial):
    """Model is a graph with inputs and outputs; ``reshape`` and ``set_batch`` change it in place.

    It is read by ``Core.read_model`` or ``convert_model``; it cannot be constructed from operations.
    """

    def __init__(self, other: object = None, *operations: object, **options: object) -> None:
        if operations or options or not isinstance(other, Model | ir.Model):
            message = "Model(results, parameters) is not supported: build the model with dovetail.Builder, and save it"
            raise UnsupportedError("argument.value", message)
        self.source: ir.Model = other.source if isinstance(other, Model) else other
        self.layouts: dict[tuple[bool, int], Layout] = (
            dict(other.layouts) if isinstance(other, Model) else layouts_of(self.source)
        )
        self._name: str = other.friendly_name if isinstance(other, Model) else self.source.graph.name
        self._info: Tree = deepcopy(other._info) if isinstance(other, Model) else tree_of(self.source.metadata)
        self._new_info: dict[tuple[str, ...], object] = dict(other._new_info) if isinstance(other, Model) else {}
        self.file: str | None = other.file
        """The file whose content the model still is, for the plan cache; None after a change."""

    def replace_source(self, source: ir.Model) -> None:
        """Let the model be a changed copy of its graph."""
        self.source, self.file = source, None

    @property
    def friendly_name(self) -> str:
        return self._name

    @friendly_name.setter
    def friendly_name(self, name: str) -> None:
        self._name = name

    def get_friendly_name(self) -> str:
        return self._name

    def set_friendly_name(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    def get_name(self) -> str:
        return self._name

    @property
    def inputs(self) -> list[Output]:
        return [Output(self, True, index) for index in range(len(own_inputs(self.source)))]

    @property
    def outputs(self) -> list[Output]:
        return [Output(self, False, index) for index in range(len(own_outputs(self.source)))]

    def input(self, index: int | str | None = None) -> TensorPort:
        """Return the input with that index or name, or the only input. Raises EngineError [input.unknown], [input.count]."""
        return find_port(self.inputs, index, "Input")

    def output(self, index: int | str | None = None) -> TensorPort:
        """Return the output with that index or name, or the only output. Raises EngineError [input.unknown], [input.count]."""
        return find_port(self.outputs, index, "Output")

    @property
    def parameters(self) -> list[Node]:
        return [port_node(self, True, index) for index in range(len(self.inputs))]

    def get_parameters(self) -> list[Node]:
        return self.parameters

    @property
    def results(self) -> list[Node]:
        return [port_node(self, False, index) for index in range(len(self.outputs))]

    def get_results(self) -> list[Node]:
        return self.results

    def result(self, index: int) -> Node:
        return self.results[index]

    def get_result(self) -> Node:
        self.output()
        return self.results[0]

    def get_ops(self) -> list[Node]:
        """Return the operations that the model has as IR. Raises UnsupportedError for a model that IR cannot express."""
        with runtime_errors():
            return nodes_of(self)

    def get_ordered_ops(self) -> list[Node]:
        """Return the operations in topological order."""
        return self.get_ops()

    def get_output_size(self) -> int:
        return len(self.outputs)

    def get_output_shape(self, index: int) -> Shape:
        return self.output(index).shape

    def get_output_partial_shape(self, index: int) -> PartialShape:
        return self.output(index).partial_shape

    def get_output_element_type(self, index: int) -> Type:
        return self.output(index).element_type

    def get_output_op(self, index: int) -> Node:
        return self.results[index]

    def get_parameter_index(self, parameter: Node) -> int:
        """Return the index of a parameter; -1 if the model has no such parameter."""
        return self.parameters.index(parameter) if parameter in self.parameters else -1

    def get_result_index(self, result: Node | TensorPort) -> int:
        """Return the index of a result; -1 if the model has no such result."""
        found: Sequence[Node | TensorPort] = self.results if isinstance(result, Node) else self.outputs
        return found.index(result) if result in found else -1

    def is_dynamic(self) -> bool:
        """Return whether the shape of a value is not static."""
        return any(PartialShape.of_sizes(value.shape).is_dynamic for value in self.source.graph.values())

    @property
    def dynamic(self) -> bool:
        return self.is_dynamic()

    def reshape(self, partial_shape: NewShapes, variables_shapes: Mapping[str, ShapeLike] | None = None) -> None:
        """Set the shapes of inputs, and infer all other shapes.

        ``partial_shape`` is the shape of the only input, or a dict by index, name or port. A constant that holds an old size is
        repaired where :func:`dovetail.rebatch` can repair it. Raises RuntimeError, and leaves the model as it was, if an
        operator rejects the shapes.
        """
        if variables_shapes:
            raise UnsupportedError("argument.value", "variables_shapes is not supported: the shapes of states are inferred")
        shapes = {self._input_index(key): PartialShape(shape) for key, shape in self._by_key(partial_shape).items()}
        with runtime_errors():
            self.replace_source(with_input_shapes(self.source, shapes))

    def _by_key(self, shapes: NewShapes) -> Mapping[object, ShapeLike]:
        if isinstance(shapes, Mapping):
            return shapes
        self.input()
        return {0: shapes}

    def _input_index(self, key: object) -> int:
        if isinstance(key, TensorPort):
            return key.position
        if not isinstance(key, int | str) or isinstance(key, bool):
            raise TypeError(f"Incorrect key type {type(key)} to reshape a model, expected keys as openvino.Output, int or str.")
        return find_port(self.inputs, key, "Input").position

    def add_outputs(self, outputs: str | TensorPort | Sequence[str | TensorPort]) -> list[Output]:
        """Make values of the graph outputs too; values are named as in the file. Returns the new outputs."""
        items = [outputs] if isinstance(outputs, str | TensorPort) else list(outputs)
        if any(isinstance(item, tuple) for item in items):
            raise UnsupportedError("argument.value", "outputs must be names of tensors or ports, got a node and an index")
        count = len(self.outputs)
        with runtime_errors():
            names = [item if isinstance(item, str) else item.value.name for item in items]
            self.replace_source(self.source.add_outputs(names))
        return self.outputs[count:]

    def has_rt_info(self, path: Path) -> bool:
        """Return whether the model has the entry ``path``: a name, or a list of names."""
        try:
            find(self._info, path)
        except EngineError:
            return False
        return True

    def get_rt_info(self, path: Path = ()) -> OVAny:
        """Return the entry ``path``, by default all entries. Raises EngineError [name.unknown]."""
        return OVAny(find(self._info, path))

    def set_rt_info(self, obj: object, path: Path) -> None:
        """Set the entry ``path``, which ``save_model`` writes as text."""
        store(self._info, path, obj)
        self._new_info[keys_of(path)] = obj

    @property
    def rt_info(self) -> Tree:
        """All entries, as a dict of values and dicts."""
        return self._info

    def to_save(self) -> ir.Model:
        """Return the graph under the model's friendly name, and with the entries that were set."""
        source = self.source
        if self._new_info:
            source = source if source.format == "openvino" else reload(source, "openvino")
            source = source.set_metadata({"/".join(path): text_of(value) for path, value in self._new_info.items()})
        if source.graph.name != self.friendly_name:
            source = copy_model(source)
            source.graph.name = self.friendly_name
        return source

    def clone(self) -> Model:
        """Return a copy that changes independently."""
        return Model(self)

    def __copy__(self) -> Model:
        raise TypeError("Cannot copy 'openvino.Model'. Please, use deepcopy instead.")

    def __deepcopy__(self, memo: dict[int, object]) -> Model:
        return self.clone()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<Model: '{self._name}'\n{ports_text(self.inputs, self.outputs)}>"


def with_input_shapes(model: ir.Model, shapes: Mapping[int, PartialShape]) -> ir.Model:
    """Return a copy of ``model`` with new shapes of inputs by index. Raises the errors of :func:`dovetail.infer`."""
    new = copy_model(model)
    targets = own_inputs(new)
    for index, shape in shapes.items():
        value = targets[index]
        value.type = TensorType(value.dtype, shape.to_sizes(value.name))
        value.value = None
    try:
        with counting(new.limits), pure_inference():
            infer_graph(new.graph, file=new.file)
        return new
    except DovetailError:
        if not all(shape.is_static for shape in shapes.values()):
            raise
        sizes = {targets[index].name: [int(str(size)) for size in shape] for index, shape in shapes.items()}
        try:
            return rebatch(model, shapes=sizes)
        except DovetailError as error:
            raise error from None


def read_model(source: Source, weights: object = None) -> Model:
    """Read a model file, bytes or a message of ONNX. Raises RuntimeError for a file that cannot be read."""
    with runtime_errors():
        model = Model(load(source, weights=weights))  # type: ignore[arg-type]
    if weights is not None:
        # A plan of the file would have the weights beside it.
        model.file = None
    return model


def convert_model(input_model: object, **options: object) -> Model:
    """Return a Model of a model file, an ``onnx.ModelProto`` or a Model.

    The option ``share_weights`` has no effect; other options, and models of other libraries, are refused by UnsupportedError
    [argument.value].
    """
    refused = [name for name, value in options.items() if value is not None and name not in ("share_weights", "verbose")]
    if refused:
        raise UnsupportedError("argument.value", f"convert_model does not support {', '.join(map(repr, refused))}")
    if isinstance(input_model, Model):
        return input_model.clone()
    if not isinstance(input_model, str | os.PathLike | bytes) and not hasattr(input_model, "SerializeToString"):
        message = f"input_model must be a path, a Model or an onnx.ModelProto, got {type(input_model).__name__}"
        raise UnsupportedError("argument.value", message)
    return read_model(input_model)


def save_model(model: Model, output_model: str | os.PathLike[str], compress_to_fp16: bool = True) -> None:
    """Save a model as IR: ``.xml`` with ``.bin``. With ``compress_to_fp16`` f32 and f64 constants are stored as f16.

    A constant with elements that f16 cannot hold is stored as it is. Raises the errors of :func:`dovetail.save` as RuntimeError.
    """
    with runtime_errors():
        source = model.to_save()
        save(compress_constants(source) if compress_to_fp16 else source, output_model)


def serialize(model: Model, xml_path: str | os.PathLike[str], bin_path: str | os.PathLike[str] = "", version: str = "") -> None:
    """Save a model as IR without compression; ``version`` must be IR_V11 or empty."""
    if str(version).rpartition(".")[2] not in ("", "UNSPECIFIED", "IR_V11"):
        raise UnsupportedError("argument.value", f"version must be IR_V11, got {version!r}")
    with runtime_errors():
        save(model.to_save(), xml_path, weights=bin_path or None)


def compress_constants(model: ir.Model) -> ir.Model:
    """Return a copy of ``model`` whose f32 and f64 constants are stored as f16, each with a Cast to its type.

    A constant of a single element, and one with an element beyond the range of f16, is left as it is.
    """
    new = copy_model(model)
    b = Builder(graph=new.graph)
    nodes: list[ir.Node] = []
    for node in list(new.graph.nodes):
        nodes.append(node)
        value = node.outputs[0] if node.outputs else None
        data = None if value is None else value.constant
        if value is None or data is None or data.dtype.name not in ("float32", "float64") or prod(data.shape) < 2:
            continue
        if not np.all(np.abs(data) <= np.finfo(np.float16).max) or any(value is output for output in new.graph.outputs):
            continue
        former, readers = value.dtype, ir.Value("")
        move_readers(value, readers)
        node.op = Constant(data=data.astype(np.float16), dtype=dtypes.f16)
        value.type, value.value = TensorType(dtypes.f16, data.shape), None
        cast: ir.Value = b.apply("Cast", value, to=former)
        nodes.append(new.graph.nodes.pop())
        move_readers(readers, cast)
    new.graph.nodes = nodes
    return new


def get_batch(model: Model) -> Dimension:
    """Return the dimension of the axis N of the inputs' layouts. Raises EngineError [argument.value] without such a layout."""
    dimensions = [model.inputs[index].partial_shape.get_dimension(axis) for index, axis in _batch_axes(model).items()]
    if any(not dimension.compatible(dimensions[0]) for dimension in dimensions):
        raise EngineError("argument.value", f"the batch must be the same in all inputs, got {', '.join(map(str, dimensions))}")
    return dimensions[0]


def set_batch(model: Model, batch_size: Dimension | int | str = -1) -> None:
    """Set the dimension of the axis N of all inputs whose layout has this axis."""
    shapes: dict[object, ShapeLike] = {}
    for index, axis in _batch_axes(model).items():
        shape = model.inputs[index].partial_shape
        shape[axis] = Dimension.of(batch_size)
        shapes[index] = shape
    model.reshape(shapes)


def _batch_axes(model: Model) -> dict[int, int]:
    layouts = {index: port.layout for index, port in enumerate(model.inputs)}
    axes = {index: layout.get_index_by_name("N") for index, layout in layouts.items() if layout.has_name("N")}
    if not axes:
        ports = ", ".join(f"{port!r} layout {layout}" for port, layout in zip(model.inputs, layouts.values(), strict=True))
        message = f"the layout of an input must have the axis N: use set_layout, e.g. on model.get_parameters()[0]; got {ports}"
        raise EngineError("argument.value", message)
    return axes
