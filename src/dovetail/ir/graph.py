"""The data: Model, Graph, Node, Value. Uses and order are kept by the verbs of ir/edit.py; there are no algorithms here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dovetail import symbolic
from dovetail.errors import printable
from dovetail.ir.types import UNKNOWN, Shape, Tensor, Type, View, is_static, shape_of, static
from dovetail.limits import DEFAULT, Limits

if TYPE_CHECKING:
    from dovetail.errors import DovetailError
    from dovetail.ir.op import Op

VALUE_LIMIT = 1024
"""The most elements of an integer tensor whose value is followed as a shape value."""


class Value(View):
    """One tensor (or sequence, or optional) that flows through a graph: ``name``, ``type``, who makes and who reads it.

    ``uses`` are the inputs that read it, as (node, place), in the order in which they came; a dict, so that one leaves as
    quickly as it comes. ``names`` are all the names a file gave it (an IR port may have several or none). ``value`` is what is
    known of its elements before anything runs: an exact array of integers and dims, or None.
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
        """Whether elements that were known before are those of a tensor of the type that this value has now."""
        shape = self.shape
        return shape is not None and np.shape(value) == shape

    @property
    def constant(self) -> np.ndarray[Any, Any] | None:
        """The elements, where this value is the output of a Constant."""
        return getattr(self.node.op, "data", None) if self.node is not None else None

    def __repr__(self) -> str:
        return printable(f"<{self.name}: {self.type}>")

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Value is a part of its graph and is not copied or pickled alone; take the Model or the Graph")

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
    """A Constant's elements, or a symbol for each element of a small integer tensor that nothing is known of."""
    type = value.type
    if not isinstance(type, Tensor) or type.dtype is None or not type.dtype.is_integer:
        return None
    data = value.constant
    if data is not None:
        return data.astype(np.int64 if type.dtype.name != "u64" else object) if data.size <= VALUE_LIMIT else None
    if not is_static(type):
        return None
    sizes = static(type.shape)
    count = prod(sizes)
    if count > 64:
        return None
    low, high = type.dtype.range()
    array = np.empty(count, dtype=object)
    for position in range(count):
        array[position] = symbolic.symbol(f"?{value.name}[{position}]", low, high)
    return array.reshape(sizes)


Operand: TypeAlias = Value | np.ndarray[Any, Any] | np.generic | bool | int | float | complex | str | Sequence[Any]
"""Inputs of operators as users write them: a Value, or data that becomes a constant."""


class Node:
    """One operator at work: ``op`` (an immutable value), ``inputs`` (None: an optional one left out) and ``outputs``."""

    __slots__ = ("doc", "inputs", "metadata", "name", "op", "outputs", "place")

    def __init__(self, op: Op, inputs: list[Value | None], outputs: list[Value], name: str = "", place: str = "") -> None:
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.name = name
        self.place = place
        self.doc = ""
        self.metadata: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """What to call this node in a message: its name, or what it makes."""
        return self.name or (self.outputs[0].name if self.outputs else type(self.op).__name__)

    def input(self, index: int) -> Value:
        """Return an input that the operator requires."""
        x = self.inputs[index]
        assert x is not None
        return x

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Node is a part of its graph and is not copied or pickled alone; take the Model or the Graph")

    def __repr__(self) -> str:
        inputs = ", ".join("-" if x is None else x.name for x in self.inputs)
        return printable(f"<{', '.join(y.name for y in self.outputs)} = {self.op}({inputs})>")


class Graph:
    """Nodes in an order in which every value is made before it is read; ``inputs`` and ``outputs`` in the user's order.

    A body of a control-flow operator is a Graph too, and closed: it reads its own inputs and nothing from outside. ``fault`` is
    the error of the last inference of a body: one that cannot run with the inputs of its operator may still be one that does not.
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
        """Every value, each before its readers."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.outputs

    def claim(self, name: str) -> str:
        """``name`` if it is free in this graph, else the first free of name_2, name_3 ...; taken from now on."""
        found = name
        while found in self._names:
            self._names[name] = self._names.get(name, 1) + 1
            found = f"{name}_{self._names[name]}"
        self._names[found] = 1
        return found

    def free_name(self, name: str) -> str:
        """The name that ``claim`` would give, without taking it."""
        found = self.claim(name)
        self.release(found)
        return found

    def release(self, name: str) -> None:
        if self._names.pop(name, None) is not None:
            self._released[name] = self._released.get(name, 0) + 1

    def stem(self, name: str) -> str:
        """What the symbols of a new value called ``name`` are named after: no value that was called so before shares them."""
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


class Values(dict[str, Value]):
    """The values of a graph by name."""


class Model:
    """A graph and what a file says about it: ``format`` it came from, ``versions`` (ONNX opset imports by domain, IR version),
    ``metadata`` by name, ``producer`` (name, version), ``doc``, ``file``; ``states``: which inputs and outputs are kept
    between calls (see ``ir/state.py``); ``limits``: those that it was loaded with, which hold for what is done with it."""

    __slots__ = (
        "__weakref__", "doc", "file", "format", "graph", "limits", "metadata", "producer", "states", "versions", "warnings",
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
        self.limits: Limits = DEFAULT

    @property
    def inputs(self) -> list[Value]:
        return self.graph.inputs

    @property
    def outputs(self) -> list[Value]:
        return self.graph.outputs

    @property
    def values(self) -> Values:
        return Values((value.name, value) for value in self.graph.values())

    def __repr__(self) -> str:
        def sides(values: Iterable[Value]) -> str:
            return printable(", ".join(f"{value.name}: {value.type}" for value in values))

        return f"<Model {self.graph.name!r}: ({sides(self.inputs)}) -> ({sides(self.outputs)}), {len(self.graph.nodes)} nodes>"

    def __str__(self) -> str:
        return EXTENSIONS.model_text(self)

    def _repr_html_(self) -> str:
        return EXTENSIONS.model_html(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        return EXTENSIONS.copy_model(self)


class Extensions:
    """Functions of higher modules that methods of Value, Graph and Model call. Each such module registers its own on import,
    and is imported at the first call."""

    apply_operator: Callable[[str, Sequence[Operand]], Value]
    index_value: Callable[[Value, object], Value]
    copy_graph: Callable[[Graph], Graph]
    copy_model: Callable[[Model], Model]
    reduce_graph: Callable[[Graph], tuple[Any, ...]]
    model_text: Callable[[Model], str]
    model_html: Callable[[Model], str]

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
    "model_text": "dovetail.ir.printer",
    "model_html": "dovetail.report.notebook",
}
EXTENSIONS = Extensions()
