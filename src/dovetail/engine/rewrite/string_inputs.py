"""Dictionary encoding of string inputs: a model that only looks up strings reads integer codes, which kernels support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.arrays import Array
from dovetail.ir.builder import Builder
from dovetail.ir.edit import connect, copy_model, disconnect, remove_dead
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.op import moves_first_input
from dovetail.ir.types import Tensor
from dovetail.ops.tensor.concat_split import Concat

UNKNOWN_CODE = -1


class EncodedStrings(NamedTuple):
    """EncodedStrings is a model that takes i64 codes in place of strings. ``codes``: the code of each string that is looked up.

    ``takes_unknown``: whether the model accepts other strings, encoded as UNKNOWN_CODE; otherwise the model refuses them.
    """

    model: Model
    codes: dict[str, int]
    takes_unknown: bool

    def encode(self, array: Array) -> Array:
        """Return the codes of an array of strings; None where a string is unknown and the model refuses unknown strings."""
        codes = [self.codes.get(item) if type(item) is str else None for item in array.reshape(-1).tolist()]
        if not self.takes_unknown and None in codes:
            return None
        return np.array([UNKNOWN_CODE if code is None else code for code in codes], np.int64).reshape(array.shape)


def encode_strings(model: Model) -> EncodedStrings | None:
    """Return the model with codes in place of strings; None without a string input, or if strings have a use besides look-ups."""
    if not any(map(is_string, model.inputs)):
        return None
    # Deferred: few models have inputs of strings.
    from dovetail.ops.ml.feature_encoding import OneHotEncoder

    new = copy_model(model)
    lookups = _lookups_of(new.graph)
    if lookups is None:
        return None
    words = [word for node in lookups for word in _words_of(node)]
    if any(type(word) is not str for word in words):
        return None
    codes = {word: code for code, word in enumerate(dict.fromkeys(words))}
    takes_unknown = all(node.op.zeros for node in lookups if isinstance(node.op, OneHotEncoder))
    try:
        for node in lookups:
            _encode_lookup(new.graph, node, codes)
        for value in new.graph.inputs:
            if is_string(value):
                assert isinstance(value.type, Tensor)
                value.type = Tensor(dtypes.i64, value.type.shape)
        remove_dead(new.graph)
        infer_graph(new.graph)
    except DovetailError:
        return None
    return EncodedStrings(new, codes, takes_unknown)


def is_string(value: Value) -> bool:
    return isinstance(value.type, Tensor) and value.type.dtype is not None and value.type.dtype.name == "string"


def _lookups_of(graph: Graph) -> list[Node] | None:
    """Return the nodes that look up the elements of string inputs; None where strings have another use."""
    lookups: dict[Node, None] = {}
    moved = [value for value in graph.inputs if is_string(value)]
    outputs = {id(value) for value in graph.outputs}
    seen = {id(value) for value in moved}
    while moved:
        value = moved.pop()
        if id(value) in outputs:
            return None
        for node, index in value.uses:
            if _looks_up(node, index):
                lookups[node] = None
                continue
            if not isinstance(node.op, Concat) and (index or not moves_first_input(node.op)):
                return None
            for y in node.outputs:
                if id(y) not in seen:
                    seen.add(id(y))
                    moved.append(y)
    # A Concat with strings that do not come from inputs would mix codes with strings.
    if any(x is not None and is_string(x) and id(x) not in seen for node in graph.nodes for x in _moved_inputs(node, seen)):
        return None
    return list(lookups)


def _moved_inputs(node: Node, seen: set[int]) -> Sequence[Value | None]:
    return node.inputs if isinstance(node.op, Concat) and any(id(y) in seen for y in node.outputs) else ()


def _looks_up(node: Node, index: int) -> bool:
    # Deferred: few models have inputs of strings.
    from dovetail.ops.ml.feature_encoding import OneHotEncoder
    from dovetail.ops.ml.label_encoder import LabelEncoder

    if isinstance(node.op, OneHotEncoder):
        return bool(node.op.cats_strings)
    if not isinstance(node.op, LabelEncoder) or index != 0:
        return False
    _, keys, values, default = node.inputs
    return keys is not None and keys.constant is not None and not any(x is None or is_string(x) for x in (values, default))


def _words_of(node: Node) -> list[str]:
    # Deferred: few models have inputs of strings.
    from dovetail.ops.ml.feature_encoding import OneHotEncoder

    if isinstance(node.op, OneHotEncoder):
        return list(node.op.cats_strings)
    keys = node.input(1).constant
    assert keys is not None
    return list(keys.reshape(-1).tolist())


def _encode_lookup(graph: Graph, node: Node, codes: Mapping[str, int]) -> None:
    """Change a look-up node to look up codes in place of strings."""
    # Deferred: few models have inputs of strings.
    from dovetail.ops.ml.feature_encoding import OneHotEncoder

    if isinstance(node.op, OneHotEncoder):
        # encode() never passes an unknown string to a model that refuses unknown strings.
        node.op = OneHotEncoder(cats_int64s=tuple(codes[word] for word in node.op.cats_strings), zeros=True)
        return
    nodes, graph.nodes = graph.nodes, []
    keys = Builder(graph=graph).constant(np.array([codes[word] for word in _words_of(node)], np.int64))
    graph.nodes += nodes
    inputs = [node.inputs[0], keys, *node.inputs[2:]]
    disconnect(node)
    node.inputs = inputs
    connect(node)
