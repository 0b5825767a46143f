"""Report of inference: equations between dimensions, bounds of symbols, and dimensions that stay unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.errors import RuleError, raise_all
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.equations import Equation
from dovetail.ir.graph import INFERRED, Graph, Model, Node, Value
from dovetail.ir.infer import infer_with_equations
from dovetail.ir.op import Op, bodies, host_inputs, infer_types
from dovetail.ir.suggestions import check_keywords
from dovetail.ir.types import Tensor, sizes_in
from dovetail.ops.constant import Foreign


@dataclass(frozen=True, slots=True)
class UnknownDimension:
    """UnknownDimension is a dimension that does not follow from the dimensions of the inputs.

    ``value`` is the first value that has the dimension, ``node`` and ``op`` are the label and the operator of the node that
    produces this value. ``axis`` is None where the rank is unknown, and ``symbol`` is the text of the size. ``depends_on_data``
    is True where the elements of a tensor determine the size, as for NonZero; otherwise inference lost the size at ``node``.
    """

    value: str
    axis: int | None
    symbol: str
    node: str
    op: str
    depends_on_data: bool


@dataclass(frozen=True, slots=True)
class InferenceReport:
    """InferenceReport holds the inferred model, and the results of inference about its dimensions.

    ``equations`` are the equations that replaced a symbol. ``replacements`` maps the name of each replaced symbol to the text of
    its replacement, and ``bounds`` maps each symbol of the inputs to its inclusive bounds. ``unknown`` lists the dimensions that
    do not follow from the dimensions of the inputs.
    """

    model: Model
    equations: tuple[Equation, ...]
    replacements: dict[str, str]
    bounds: dict[str, tuple[int | None, int | None]]
    unknown: tuple[UnknownDimension, ...]

    @property
    def losses(self) -> tuple[UnknownDimension, ...]:
        """The unknown dimensions that do not depend on data."""
        return tuple(item for item in self.unknown if not item.depends_on_data)

    def raise_losses(self) -> None:
        """Raise RuleError [type.unknown] with every lost dimension in its ``diagnostics``, if any dimension was lost."""
        raise_all(
            [
                RuleError(
                    "type.unknown",
                    f"the {'rank' if item.axis is None else f'size of axis {item.axis}'} of {item.value!r} is unknown",
                    node=item.node,
                    op=item.op,
                    file=self.model.file,
                )
                for item in self.losses
            ],
            "dimensions that stay unknown",
        )


@check_keywords
def infer_report(model: Model) -> InferenceReport:
    """Infer a copy of ``model``, solve the equations of its operators, and report on its dimensions.

    Dimensions that an operator demands to be equal become one symbol in the whole graph. Symbols get bounds that keep every
    dimension non-negative.

    Raises RuleError with every independent fault in its ``diagnostics``, [shape.disagree] where two operators demand different
    sizes, and the errors of :func:`infer`.

    >>> with dovetail.Builder() as b: y = b.output("y", b.Add(b.input("x", "f32", ("n",)), b.input("z", "f32", ("m",))))
    >>> dovetail.infer_report(b.model).bounds
    {'n': (0, None), 'm': (0, None)}
    """
    new, substitution, equations = infer_with_equations(model)
    known: dict[str, tuple[int | None, int | None]] = {}
    for value in new.graph.inputs:
        for size in sizes_in(value.type):
            known.update((str(symbolic.name_of(symbol)), symbolic.bounds(symbol)) for symbol in symbolic.symbols(size))
    unknown: list[UnknownDimension] = []
    _collect_unknown(new.graph, set(known), unknown)
    replacements = {name: str(size) for name, size in substitution.values.items() if symbolic.name_of(size) != name}
    return InferenceReport(new, tuple(equations), replacements, known, tuple(unknown))


def _collect_unknown(graph: Graph, known: set[str], unknown: list[UnknownDimension]) -> None:
    """Append each unknown rank, and each symbol outside ``known``, at the first value that has it.

    The names that a file declares for unknown sizes of an earlier value, or for the axes of one of unknown rank, are left out.
    """
    for node in graph.nodes:
        for _, body in bodies(node.op):
            inner = {str(symbolic.name_of(s)) for x in body.inputs for size in sizes_in(x.type) for s in symbolic.symbols(size)}
            _collect_unknown(body, known | inner, unknown)
        for y in node.outputs:
            type_ = y.type
            if isinstance(type_, Tensor) and type_.shape is None:
                if not any(x is not None and x.node is not None and _has_unknown_rank(x) for x in node.inputs):
                    unknown.append(UnknownDimension(y.name, None, "...", node.label, _name_of(node.op), _reads_data(node)))
                continue
            shape = type_.shape if isinstance(type_, Tensor) else tuple(sizes_in(type_))
            for axis, size in enumerate(shape or ()):
                names = [] if size is None else [str(symbolic.name_of(symbol)) for symbol in symbolic.symbols(size)]
                if all(name in known for name in names):
                    continue
                is_declared = _is_declared(node, y.index, axis, known)
                known.update(names)
                if not is_declared:
                    unknown.append(UnknownDimension(y.name, axis, str(size), node.label, _name_of(node.op), _reads_data(node)))


def _is_declared(node: Node, index: int, axis: int, known: set[str]) -> bool:
    """Test whether the rule of ``node`` gives a known size, or no shape for an input of unknown rank: the file named the size."""
    if isinstance(node.op, Foreign):
        return False
    type_ = infer_types(node.op, tuple(node.inputs), node.outputs[0].name)[index]
    if not isinstance(type_, Tensor) or type_.shape is None:
        return any(x is not None and x.node is not None and _has_unknown_rank(x) for x in node.inputs)
    return all(str(symbolic.name_of(symbol)) in known for symbol in symbolic.symbols(type_.shape[axis]))


def _name_of(op: Op) -> str:
    return repr(op) if isinstance(op, Foreign) else type(op).__name__


def _has_unknown_rank(x: Value) -> bool:
    return isinstance(x.type, Tensor) and x.type.shape is None


def _reads_data(node: Node) -> bool:
    """Test whether the elements of tensors, and not only dimensions, determine the shapes of a node's outputs.

    Return False for a Foreign operator, whose rules are not known.
    """
    op = node.op
    if isinstance(op, Foreign):
        return False
    if op.sizes_depend_on_data or any(True for _ in bodies(op)):
        return True
    if any(x is not None and not isinstance(x.type, Tensor) for x in (*node.inputs, *node.outputs)):
        return True
    hosts = host_inputs(op, len(node.inputs))
    return any(_is_data(x) for x, host in zip(node.inputs, hosts, strict=True) if host and x is not None)


def _is_data(value: Value) -> bool:
    """Test whether the unknown elements of a shape value come from elements of a tensor, through any number of operators."""
    seen: set[int] = set()
    stack = [value]
    while stack:
        x = stack.pop()
        if id(x) in seen or not _has_unknown_elements(x):
            continue
        seen.add(id(x))
        node = x.node
        if node is None or node.op.sizes_depend_on_data or not isinstance(x.type, Tensor) or any(True for _ in bodies(node.op)):
            return True
        stack += [item for item in node.inputs if item is not None]
    return False


def _is_integer(x: Value) -> bool:
    dtype = x.type.dtype if isinstance(x.type, Tensor) else None
    return dtype is not None and (dtype.is_integer or dtype.kind == "bool")


def _has_unknown_elements(x: Value) -> bool:
    """Test whether some element of a value is neither a number nor an expression over dimensions."""
    if x.constant is not None:
        return False
    if x.value is None:
        return True
    elements = np.ravel(np.asarray(x.value, dtype=object)).tolist()
    names = {str(symbolic.name_of(s)) for item in elements if isinstance(item, symbolic.Dim) for s in symbolic.symbols(item)}
    return any(name.startswith("?") and name.endswith("]") for name in names)


def annotate(model: Model) -> Model:
    """Return a copy of a model whose values carry their shape and shape value as text, which :func:`dovetail.save` writes.

    In ONNX the shape value is the property ``dovetail.value`` of the value. In OpenVINO IR the port's ``rt_info`` has the shape
    as ``dovetail_shape`` and the shape value as ``dovetail_value``. Other readers ignore these texts, and ``load`` infers again.
    """
    new = copy_model(model)
    for value in new.graph.values():
        texts: dict[str, str] = {}
        if isinstance(value.type, Tensor) and value.type.shape and not all(isinstance(size, int) for size in value.type.shape):
            texts["shape"] = f"[{', '.join(map(str, value.type.shape))}]"
        if value.constant is None and not _has_unknown_elements(value) and _is_integer(value):
            texts["value"] = _array_text(value.value)
        if texts:
            value.metadata[INFERRED] = texts
    return new


def _array_text(array: np.ndarray[Any, Any]) -> str:
    """Return an array of integers and expressions as nested lists."""
    items = np.asarray(array, dtype=object)
    return str(items.item()) if items.ndim == 0 else f"[{', '.join(_array_text(item) for item in items)}]"
