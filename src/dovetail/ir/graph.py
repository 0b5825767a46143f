"""Model, Graph, Node and Value: the data of the intermediate representation. dovetail.ir.edit has the operations on it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dovetail.errors import MissingAttributeError, printable
from dovetail.ir import symbolic
from dovetail.ir.limits import Limits, default_limits
from dovetail.ir.suggestions import RENAMED
from dovetail.ir.types import UNKNOWN, Shape, Tensor, Type, View, is_static, shape_of, static

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.ir.dtypes import DType, DTypeLike
    from dovetail.ir.op import Op
    from dovetail.ir.packed_elements import PackedElements

VALUE_LIMIT = 1024
"""The maximum number of elements of an integer tensor whose elements are tracked symbolically as a shape value."""

INFERRED = "inferred"
"""The key of ``Value.metadata`` for the texts ``shape`` and ``value``, which the writers store with a value's type."""


class Value(View):
    """Value is one edge of a graph in static single assignment: a tensor, sequence, optional or map.

    ``node`` and ``index`` are the node that produces the value and the output's index; ``node`` is None for a graph input.
    ``uses`` lists the inputs that read the value, as (node, input index), in order; it is a dict so that removal takes constant
    time. ``names`` are all names of the value in a file: a port of OpenVINO IR may have several or none. ``value`` holds the
    statically known elements: an exact array of integers and Dims, or None.
    """

    __slots__ = ("_value", "doc", "index", "metadata", "name", "names", "node", "uses")

    def __init__(self, name: str, type: Type = UNKNOWN, node: Node | None = None, index: int = 0) -> None:
        self.name = name
        self.names: tuple[str, ...] = ()
        self.type = type
        self.node = node
        self.index = index
        self.uses: dict[tuple[Node, int], None] = {}
        self._value: Any = None
        self.doc = ""
        self.metadata: dict[str, Any] = {}

    @property
    def shape(self) -> Shape | None:
        type = self.type
        return type.shape if type.__class__ is Tensor else shape_of(type)

    @property
    def value(self) -> Any:
        value = self._value
        if value is None or (self.node is None and not self._fits(value)):
            self._value = value = _first_value(self)
        return value

    @value.setter
    def value(self, value: Any) -> None:
        self._value = value

    def _fits(self, value: Any) -> bool:
        """Return whether the known elements have the shape of the type, which may have changed after the elements were stored."""
        shape = self.shape
        return shape is not None and np.shape(value) == shape

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The elements if the value is the output of a Constant, else None."""
        return getattr(self.node.op, "data", None) if self.node is not None else None

    @property
    def storage(self) -> np.ndarray[Any, Any] | PackedElements | None:
        """``constant`` as it is in memory: constants of few bits may be packed, and ``constant`` unpacks them at each read."""
        return getattr(self.node.op, "storage", None) if self.node is not None else None

    def __repr__(self) -> str:
        return printable(f"<{self.name}: {self.type}>")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Value cannot be copied or pickled without its graph; copy or pickle the Model or the Graph")

    def _operator(self, kind: str, *operands: Operand) -> Value:
        return EXTENSIONS.apply_operator(kind, operands)

    def __add__(self, other: Operand) -> Value:
        return self._operator("Add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self._operator("Add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self._operator("Subtract", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self._operator("Subtract", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self._operator("Multiply", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self._operator("Multiply", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self._operator("Divide", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self._operator("Divide", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self._operator("Power", self, other)

    def __matmul__(self, other: Operand) -> Value:
        return self._operator("MatMul", self, other)

    def __neg__(self) -> Value:
        return self._operator("Negative", self)

    def __getitem__(self, key: object) -> Value:
        return EXTENSIONS.index_value(self, key)

    def __iter__(self) -> Iterator[Value]:
        raise TypeError("a Value is a tensor of a graph and cannot be iterated; use split")


def _first_value(value: Value) -> Any:
    """Return the elements of a Constant, or a symbol for each element of another small integer tensor."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or not (type.dtype.is_integer or type.dtype.kind == "bool"):
        return None
    storage = value.storage
    data = value.constant if storage is not None and storage.size <= VALUE_LIMIT else None
    if type.dtype.kind == "bool":
        return data
    if storage is not None:
        return None if data is None else data.astype(np.int64 if type.dtype.name != "u64" else object)
    if not is_static(type):
        return None
    sizes = static(type.shape)
    count = prod(sizes)
    # numpy counts an axis of size 0 as 1.
    if prod(size or 1 for size in sizes) > 64:
        return None
    low, high = type.dtype.range()
    array = np.empty(count, dtype=object)
    for position in range(count):
        array[position] = symbolic.symbol(f"?{value.name}[{position}]", low, high)
    return array.reshape(sizes)


Operand: TypeAlias = Value | np.ndarray[Any, Any] | np.generic | bool | int | float | complex | str | Sequence[Any]
"""An operator's input in the user's call: a Value, or data that becomes a Constant."""


class Node:
    """Node is one operator applied to inputs. ``op`` is immutable; None stands for an omitted optional input.

    ``location`` is the node's position in its file, for messages. ``kind`` is the operator's name in this file, such as
    "Convolution" for a Conv of an OpenVINO IR; "" for a node that no operator of a file corresponds to.
    """

    __slots__ = ("doc", "inputs", "kind", "location", "metadata", "name", "op", "outputs")

    def __init__(self, op: Op, inputs: list[Value | None], outputs: list[Value], name: str = "", location: str = "") -> None:
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.name = name
        self.location = location
        self.kind = ""
        self.doc = ""
        self.metadata: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """The text that identifies the node in messages: its name, or the name of its first output if the node has no name."""
        return self.name or (self.outputs[0].name if self.outputs else type(self.op).__name__)

    @property
    def title(self) -> str:
        """The operator's name in pages: that of the node's file, or else that of dovetail."""
        op: Any = self.op
        if type(op).__name__ == "Foreign":
            return f"{op.domain + '.' if op.domain else ''}{op.kind}"
        return self.kind or str(op.title)

    def input(self, index: int) -> Value:
        """Return an input that the operator requires."""
        x = self.inputs[index]
        assert x is not None
        return x

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Node cannot be copied or pickled without its graph; copy or pickle the Model or the Graph")

    def __repr__(self) -> str:
        inputs = ", ".join("-" if x is None else x.name for x in self.inputs)
        return printable(f"<{', '.join(y.name for y in self.outputs)} = {self.op}({inputs})>")


class Graph:
    """Graph holds nodes in topological order, with ``inputs`` and ``outputs`` in the user's order.

    The subgraph of a control-flow operator is a closed Graph: its nodes read no values of the outer graph. ``fault`` is the error
    of the last inference of a subgraph; it is raised only if the subgraph runs.
    """

    __slots__ = ("_names", "_released", "doc", "fault", "inputs", "metadata", "name", "nodes", "outputs")

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.nodes: list[Node] = []
        self.doc = ""
        self.metadata: dict[str, Any] = {}
        self.fault: DovetailError | None = None
        self._names: dict[str, int] = {}
        self._released: dict[str, int] = {}

    def values(self) -> Iterator[Value]:
        """Yield every value in topological order."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.outputs

    def claim(self, name: str) -> str:
        """Reserve and return ``name``; if that name is in use, the first free name of name_2, name_3, ..."""
        candidate = name
        while candidate in self._names:
            self._names[name] = self._names.get(name, 1) + 1
            candidate = f"{name}_{self._names[name]}"
        self._names[candidate] = 1
        return candidate

    def free_name(self, name: str) -> str:
        """Return the name that ``claim`` would reserve."""
        candidate = self.claim(name)
        self.release(candidate)
        return candidate

    def release(self, name: str) -> None:
        """Make a name available again."""
        if self._names.pop(name, None) is not None:
            self._released[name] = self._released.get(name, 0) + 1

    def stem(self, name: str) -> str:
        """Return the prefix for symbols of a new value ``name``; it differs from the prefixes of earlier values of that name."""
        count = self._released.get(name, 0)
        return f"{name}~{count}" if count else name

    def is_taken(self, name: str) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self.nodes))

    def __reduce__(self) -> tuple[Any, ...]:
        return EXTENSIONS.reduce_graph(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        return EXTENSIONS.copy_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.inputs)} inputs, {len(self.nodes)} nodes, {len(self.outputs)} outputs>"


class ValuesByName(dict[str, Value]):
    """ValuesByName maps names to the values of a graph."""


class Model:
    """Model is a graph with the metadata of its file.

    - ``format``: the source format
    - ``versions``: ONNX opset imports by domain, or the IR version
    - ``metadata``: entries by name
    - ``producer``: name and version of the exporting tool
    - ``states``: inputs and outputs kept between calls (see :mod:`dovetail.ir.state`)
    - ``limits``: the limits the model was loaded with, which also apply to later operations on the model
    - ``report``: the report of the function that created the model (``simplify``, ``rebatch``, ``reduce``), else None; pickled,
      but neither copied by ``deepcopy`` nor saved
    """

    __slots__ = (
        "__weakref__", "doc", "file", "format", "graph", "limits", "metadata", "producer", "report", "states", "versions",
        "warnings",
    )  # fmt: skip

    def __init__(
        self, graph: Graph, *, format: str = "", versions: dict[str, int] | None = None, file: str | None = None
    ) -> None:
        self.graph = graph
        self.format = format
        self.versions: dict[str, int] = dict(versions or {})
        self.metadata: dict[str, Any] = {}
        self.producer: tuple[str, str] = ("", "")
        self.doc = ""
        self.file = file
        self.warnings: list[Any] = []
        self.states: list[Any] = []
        self.limits: Limits = default_limits()
        self.report: Any = None

    @property
    def title(self) -> str:
        """The model's name in pages: the name of its file without folders, or else the name of its graph, or else "model"."""
        return os.path.basename(self.file or "") or self.graph.name or "model"

    @property
    def inputs(self) -> list[Value]:
        return self.graph.inputs

    @property
    def outputs(self) -> list[Value]:
        return self.graph.outputs

    @property
    def values(self) -> ValuesByName:
        return ValuesByName((value.name, value) for value in self.graph.values())

    def rename_values(self, names: Mapping[str, str]) -> Model:
        """Return a model with values renamed; see :func:`dovetail.passes.edit.rename_values`."""
        return EXTENSIONS.rename_values(self, names)

    def set_outputs(self, names: str | Iterable[str]) -> Model:
        """Return a model with these values as its outputs; see :func:`dovetail.passes.edit.set_outputs`."""
        return EXTENSIONS.set_outputs(self, names)

    def add_outputs(self, names: str | Iterable[str]) -> Model:
        """Return a model with more outputs; see :func:`dovetail.passes.edit.add_outputs`."""
        return EXTENSIONS.add_outputs(self, names)

    def drop_outputs(self, names: str | Iterable[str]) -> Model:
        """Return a model with fewer outputs; see :func:`dovetail.passes.edit.drop_outputs`."""
        return EXTENSIONS.drop_outputs(self, names)

    def with_constants(self, data: Mapping[str, Operand]) -> Model:
        """Return a model with new elements of constants; see :func:`dovetail.passes.edit.with_constants`."""
        return EXTENSIONS.with_constants(self, data)

    def convert_inputs(self, dtypes: Mapping[str, DTypeLike]) -> Model:
        """Return a model with new element types of inputs; see :func:`dovetail.passes.edit.convert_inputs`."""
        return EXTENSIONS.convert_inputs(self, dtypes)

    def set_metadata(self, entries: Mapping[str, str]) -> Model:
        """Return a model with additional metadata; see :func:`dovetail.passes.edit.set_metadata`."""
        return EXTENSIONS.set_metadata(self, entries)

    def svg(
        self,
        *,
        colors: Mapping[str, float] | None = None,
        measure: str = "value",
        unit: str = "",
        is_sum: bool = True,
        boxes: int = 150,
        depth: int | None = None,
    ) -> str:
        """Return a layered picture of the graph as SVG text; see :func:`dovetail.report.draw.draw_model`."""
        return EXTENSIONS.model_svg(
            self, colors=colors, measure=measure, unit=unit, is_sum=is_sum, boxes=boxes, depth=depth
        )  # fmt: skip

    if not TYPE_CHECKING:
        # Type checkers, which do not see it, report names that the class lacks.
        def __getattr__(self, name: str) -> Any:
            message = f"a Model has no attribute {name!r}"
            if (renamed := RENAMED.get(f"Model.{name}")) is not None:
                raise MissingAttributeError("attribute.unknown", f"{message}: did you mean {renamed!r}?")
            raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        def signature_text(values: Iterable[Value]) -> str:
            return printable(", ".join(f"{value.name}: {value.type}" for value in values))

        inputs, outputs = signature_text(self.inputs), signature_text(self.outputs)
        return f"<Model {self.graph.name!r}: ({inputs}) -> ({outputs}), {len(self.graph.nodes)} nodes>"

    def __str__(self) -> str:
        return EXTENSIONS.model_text(self)

    def _repr_html_(self) -> str:
        return EXTENSIONS.model_html(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return EXTENSIONS.copy_model(self)


class Extensions:
    """Extensions holds functions of higher modules that Value, Graph, Model, Builder and Batcher call.

    A higher module registers its functions when it is imported. The first call of one of these functions imports the module.
    """

    apply_operator: Callable[[str, Sequence[Operand]], Value]
    index_value: Callable[[Value, object], Value]
    copy_graph: Callable[[Graph], Graph]
    copy_model: Callable[[Model], Model]
    reduce_graph: Callable[[Graph], tuple[Any, ...]]
    fold_operator: Callable[[Op, Sequence[Value | None]], list[tuple[np.ndarray[Any, Any], DType]] | None]
    rename_values: Callable[[Model, Mapping[str, str]], Model]
    set_outputs: Callable[[Model, str | Iterable[str]], Model]
    add_outputs: Callable[[Model, str | Iterable[str]], Model]
    drop_outputs: Callable[[Model, str | Iterable[str]], Model]
    with_constants: Callable[[Model, Mapping[str, Operand]], Model]
    convert_inputs: Callable[[Model, Mapping[str, DTypeLike]], Model]
    set_metadata: Callable[[Model, Mapping[str, str]], Model]
    model_text: Callable[[Model], str]
    model_html: Callable[[Model], str]
    model_svg: Callable[..., str]
    row_check: Callable[[Model], Callable[..., None]]

    def __getattr__(self, name: str) -> Any:
        module = _MODULE_OF_EXTENSION.get(name)
        if module is None:
            raise AttributeError(name)
        importlib.import_module(module)
        return self.__dict__[name]


_MODULE_OF_EXTENSION = {
    "apply_operator": "dovetail.ir.builder",
    "index_value": "dovetail.ir.builder",
    "copy_graph": "dovetail.ir.edit",
    "copy_model": "dovetail.ir.edit",
    "reduce_graph": "dovetail.ir.edit",
    "fold_operator": "dovetail.ir.evaluate",
    "rename_values": "dovetail.passes.edit",
    "set_outputs": "dovetail.passes.edit",
    "add_outputs": "dovetail.passes.edit",
    "drop_outputs": "dovetail.passes.edit",
    "with_constants": "dovetail.passes.edit",
    "convert_inputs": "dovetail.passes.edit",
    "set_metadata": "dovetail.passes.edit",
    "model_text": "dovetail.report.printer",
    "model_html": "dovetail.report.notebook",
    "model_svg": "dovetail.report.draw.picture",
    "row_check": "dovetail.data.rows.batch_axis",
}
EXTENSIONS = Extensions()
