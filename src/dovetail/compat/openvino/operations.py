"""The operations of a model as views, from its export to IR."""

from __future__ import annotations

from dovetail.compat.openvino.nodes import Node, Owner, port_node
from dovetail.formats.foreign import ForeignModel, ForeignNode
from dovetail.formats.openvino.write import to_foreign
from dovetail.ir.graph import Value
from dovetail.ir.state import own_inputs, own_outputs


def nodes_of(owner: Owner) -> list[Node]:
    """Return the operations that the model has as IR: parameters, constants and operators in topological order, then results.

    Raises UnsupportedError for a model that IR cannot express.
    """
    foreign = to_foreign(owner.source)
    return _Views(owner, foreign).nodes


class _Views:
    """_Views makes the nodes of a model from its export to IR."""

    def __init__(self, owner: Owner, foreign: ForeignModel) -> None:
        self.nodes: list[Node] = []
        self._origins: dict[str, tuple[Node, int]] = {}
        graph, model = foreign.graph, owner.source
        parameters = {value.name: port_node(owner, True, index) for index, value in enumerate(own_inputs(model))}
        for value in graph.inputs:
            if value.name in parameters:
                self._add(parameters[value.name], [value.key])
        for key, constant in graph.constants.items():
            from_constant = Value(constant.name or key)
            from_constant.type = graph.values[key].type if key in graph.values else from_constant.type  # type: ignore[assignment]
            self._add(Node(owner, "Const", constant.name or key, [from_constant]), [key])
        for layer in graph.nodes:
            self._add_layer(owner, foreign, layer)
        for index, (output, value) in enumerate(zip(own_outputs(model), graph.outputs, strict=False)):
            node = port_node(owner, False, index)
            if value.key in self._origins:
                self._connect(node, [value.key])
            node.values = [output]
            self.nodes.append(node)

    def _add_layer(self, owner: Owner, foreign: ForeignModel, layer: ForeignNode) -> None:
        keys = [key for key in layer.outputs if key is not None]
        values = []
        for key in keys:
            described = foreign.graph.values.get(key)
            value = Value(described.name if described else key)
            if described is not None:
                value.names = described.names
                value.type = described.type or value.type
            values.append(value)
        node = Node(owner, layer.kind, layer.name or (keys[0] if keys else layer.kind), values, version=layer.version)
        node.attributes = dict(layer.attributes)
        self._connect(node, [key for key in layer.inputs if key is not None])
        self._add(node, keys)

    def _connect(self, node: Node, keys: list[str]) -> None:
        origins = [self._origins[key] for key in keys if key in self._origins]
        node.sources = [source for source, _ in origins]
        node.source_indices = [index for _, index in origins]

    def _add(self, node: Node, keys: list[str]) -> None:
        self.nodes.append(node)
        self._origins.update((key, (node, index)) for index, key in enumerate(keys))
