"""Nodes of a model, under the names of OpenVINO's operators, and the ports of models, compiled models and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dovetail.compat.openvino.element_type import Type, type_of
from dovetail.compat.openvino.errors import Partial
from dovetail.compat.openvino.layout import Layout
from dovetail.compat.openvino.shapes import PartialShape, Shape
from dovetail.errors import EngineError
from dovetail.ir.graph import Model, Value
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.ir.types import Tensor


class Owner(Protocol):
    """Owner is a Model or a CompiledModel: it holds a model of dovetail and the layouts of its ports."""

    @property
    def source(self) -> Model:
        """The model of dovetail."""

    @property
    def layouts(self) -> dict[tuple[bool, int], Layout]:
        """The layouts by (whether the port is an input, index)."""


class TensorPort(Partial):
    """TensorPort is an input or output of a model, or the output of a node. It shows the model's current shapes.

    ``names`` are the names of the tensor in the file; ``any_name`` is one of them.
    """

    def __init__(self, owner: Owner, is_input: bool, index: int, node: Node | None = None) -> None:
        self._owner = owner
        self._is_input = is_input
        self._index = index
        self._node = node

    @property
    def value(self) -> Value:
        """The value of the model of dovetail."""
        if self._node is not None:
            return self._node.values[self._index]
        model = self._owner.source
        return (own_inputs(model) if self._is_input else own_outputs(model))[self._index]

    @property
    def position(self) -> int:
        """The index among the inputs or outputs of the model."""
        return self._index

    @property
    def is_input(self) -> bool:
        return self._is_input

    @property
    def names(self) -> set[str]:
        return names_of(self.value, self._owner.source)

    def get_names(self) -> set[str]:
        return self.names

    @property
    def any_name(self) -> str:
        return self.get_any_name()

    def get_any_name(self) -> str:
        """Return one name of the tensor, the first in alphabetical order. Raises EngineError [name.unknown] without names."""
        if not self.names:
            raise EngineError("name.unknown", "Attempt to get a name for a Tensor without names")
        return min(self.names)

    @property
    def element_type(self) -> Type:
        type = self.value.type
        return type_of(type.dtype) if isinstance(type, Tensor) else Type.dynamic

    def get_element_type(self) -> Type:
        return self.element_type

    @property
    def partial_shape(self) -> PartialShape:
        return PartialShape.of_sizes(self.value.shape)

    def get_partial_shape(self) -> PartialShape:
        return self.partial_shape

    @property
    def shape(self) -> Shape:
        return self.partial_shape.to_shape()

    def get_shape(self) -> Shape:
        """Return the shape. Raises EngineError [argument.value] if it is dynamic."""
        return self.shape

    @property
    def index(self) -> int:
        """The index of the output at its node."""
        return 0 if self._node is None else self._index

    def get_index(self) -> int:
        return self.index

    @property
    def node(self) -> Node:
        """The node: a Parameter for an input, a Result for an output."""
        return self._node or port_node(self._owner, self._is_input, self._index)

    def get_node(self) -> Node:
        return self.node

    @property
    def tensor(self) -> TensorPort:
        """The description of the tensor: its names, type and shape."""
        return self

    def get_tensor(self) -> TensorPort:
        return self

    @property
    def layout(self) -> Layout:
        return self._owner.layouts.get((self._is_input, self._index), Layout())

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._owner.layouts[self._is_input, self._index] = layout

    def _key(self) -> tuple[object, ...]:
        return id(self._owner), self._is_input, self._index, self._node

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorPort) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        names, kind = ", ".join(sorted(self.names)), self.element_type.to_string()
        return f"<{type(self).__name__}: names[{names}] shape{self.partial_shape} type: {kind}>"


class Output(TensorPort):
    """Output is a port of a Model or of a node."""


class ConstOutput(TensorPort):
    """ConstOutput is a port of a CompiledModel, and a key of the results of its requests."""


_TYPE_NAMES = {"Const": "Constant", "ReLU": "Relu", "SoftMax": "Softmax", "PReLU": "PRelu", "HSwish": "HSwish"}
"""Names of operations that differ between IR files and the nodes of OpenVINO."""


class TypeInfo:
    """TypeInfo is the name of an operation and of its operator set."""

    def __init__(self, name: str, version_id: str) -> None:
        self.name, self.version_id = name, version_id

    def __repr__(self) -> str:
        return f"<DiscreteTypeInfo: {self.name} {self.version_id}>"


class Node(Partial):
    """Node is an operation: a Parameter, a Constant, a Result or an operator. It cannot be changed."""

    def __init__(
        self, owner: Owner, kind: str, name: str, values: list[Value], *, version: int = 1, port: TensorPort | None = None
    ) -> None:
        self._owner = owner
        self._kind = _TYPE_NAMES.get(kind, kind)
        self._name = name
        self._version = version
        self._port = port
        self.values = values
        """The outputs as values of the model of dovetail; a Result has the value that it returns."""
        self.sources: list[Node] = []
        """The nodes whose outputs this node reads, in order."""
        self.source_indices: list[int] = []
        self.attributes: dict[str, object] = {}

    @property
    def friendly_name(self) -> str:
        return self._name

    @property
    def name(self) -> str:
        return self._name

    def get_friendly_name(self) -> str:
        return self._name

    def get_name(self) -> str:
        return self._name

    def get_type_name(self) -> str:
        return self._kind

    @property
    def type_info(self) -> TypeInfo:
        return TypeInfo(self._kind, f"opset{self._version}")

    def get_type_info(self) -> TypeInfo:
        return self.type_info

    def get_attributes(self) -> dict[str, object]:
        """Return the attributes as they stand in an IR file."""
        return dict(self.attributes)

    def outputs(self) -> list[Output]:
        return [Output(self._owner, False, index, self) for index in range(len(self.values))]

    def output(self, index: int) -> Output:
        return self.outputs()[index]

    def get_output_size(self) -> int:
        return len(self.values)

    def get_output_shape(self, index: int) -> Shape:
        return self.output(index).shape

    def get_output_partial_shape(self, index: int) -> PartialShape:
        return self.output(index).partial_shape

    def get_output_element_type(self, index: int) -> Type:
        return self.output(index).element_type

    def input_values(self) -> list[Output]:
        """Return the outputs of other nodes that this node reads."""
        return [source.output(index) for source, index in zip(self.sources, self.source_indices, strict=True)]

    inputs = input_values

    def input_value(self, index: int) -> Output:
        return self.input_values()[index]

    input = input_value

    def get_input_size(self) -> int:
        return len(self.sources)

    def get_input_shape(self, index: int) -> Shape:
        return self.input_value(index).shape

    def get_input_partial_shape(self, index: int) -> PartialShape:
        return self.input_value(index).partial_shape

    def get_input_element_type(self, index: int) -> Type:
        return self.input_value(index).element_type

    @property
    def shape(self) -> Shape:
        return self.output(0).shape

    @property
    def partial_shape(self) -> PartialShape:
        return self.output(0).partial_shape

    @property
    def element_type(self) -> Type:
        return self.output(0).element_type

    def get_partial_shape(self) -> PartialShape:
        return self.partial_shape

    def get_element_type(self) -> Type:
        return self.element_type

    @property
    def layout(self) -> Layout:
        """The layout of a Parameter or Result of the model."""
        return self._checked_port().layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._checked_port().layout = layout if isinstance(layout, Layout) else Layout(layout)

    def get_layout(self) -> Layout:
        return self.layout

    def set_layout(self, layout: Layout) -> None:
        self.layout = layout

    def _checked_port(self) -> TensorPort:
        if self._port is None:
            raise AttributeError(f"the node must be a Parameter or a Result to have a layout, got {self._kind}")
        return self._port

    def _key(self) -> tuple[object, ...]:
        return id(self._owner), self._kind, self._name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        kind = f", {self.element_type.to_string()}" if self._kind == "Parameter" else ""
        shapes = ", ".join(str(output.partial_shape) for output in self.outputs())
        return f"<{self._kind}: '{self._name}' ({shapes}{kind})>"


def port_node(owner: Owner, is_input: bool, index: int) -> Node:
    """Return the Parameter or the Result of an input or output of a model."""
    model = owner.source
    value = (own_inputs(model) if is_input else own_outputs(model))[index]
    if is_input:
        name = str(value.metadata.get("name", value.name))
    else:
        name = str(value.metadata.get("result") or f"{value.name}/sink_port_0")
    return Node(owner, "Parameter" if is_input else "Result", name, [value], port=TensorPort(owner, is_input, index))


def names_of(value: Value, model: Model) -> set[str]:
    """Return the names of a tensor. A value without names in an IR file has none; elsewhere its name is one."""
    return set(value.names) or (set() if model.format == "openvino" else {value.name})


def ports_text(inputs: Sequence[TensorPort], outputs: Sequence[TensorPort]) -> str:
    """Return the ports of a model, one on each line, for a repr."""
    parts = [f"{kind}[\n" + ",\n".join(map(repr, ports)) + "\n]" for kind, ports in (("inputs", inputs), ("outputs", outputs))]
    return "\n".join(parts).replace("<Output:", "<ConstOutput:")


def layouts_of(model: Model) -> dict[tuple[bool, int], Layout]:
    """Return the layouts that an IR file states for the inputs and outputs of a model."""
    found: dict[tuple[bool, int], Layout] = {}
    for is_input, values in ((True, own_inputs(model)), (False, own_outputs(model))):
        for index, value in enumerate(values):
            for item in value.metadata.get("rt_info", []):
                text = item.get("attributes", {}).get("layout")
                if text is not None:
                    found[is_input, index] = Layout(text)
    return found


def find_port(ports: Sequence[TensorPort], key: int | str | None, kind: str) -> TensorPort:
    """Return the port with that index or name, or the only port if ``key`` is None.

    Raises EngineError [input.unknown] for an unknown name, [input.count] if there is not exactly one port, and IndexError.
    """
    if key is None:
        if len(ports) != 1:
            raise EngineError("input.count", f"{kind.lower()}() must be called on a model with exactly one, got {len(ports)}")
        return ports[0]
    if isinstance(key, str):
        for port in ports:
            if key in port.names:
                return port
        raise EngineError("input.unknown", f"{kind} for tensor name '{key}' is not found.")
    if not 0 <= key < len(ports):
        raise IndexError(f"the index must be from 0 to {len(ports) - 1}, got {key}")
    return ports[key]
