"""The constants that an import creates, and the file's constants that it turns into attributes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value

MAX_SHARED_ELEMENTS = 64
"""Larger constants are not compared with the existing ones."""

FOLDED = "folded"
"""Metadata of a constant that was also read as an attribute, or folded, when the model was imported."""


class ImportedConstants:
    """The constants of one graph during its import."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def add(self, data: ArrayLike, dtype: DType) -> Value:
        """Add a constant that is not in the file. Nodes share small constants of equal type and value."""
        array = np.asarray(data, dtype=dtype.numpy)
        if array.size > MAX_SHARED_ELEMENTS or array.dtype.hasobject:
            return self._b.constant(array, dtype)
        key = dtype.name, array.shape, array.tobytes()
        if key not in self._shared:
            self._shared[key] = self._b.constant(array, dtype)
        return self._shared[key]

    def mark_folded_constant(self, x: Value) -> None:
        """Note that ``x`` was read as an attribute: the constant itself, or the constants that it is computed from."""
        pending = [x]
        while pending:
            value = pending.pop()
            if id(value) in self._b.folded_inputs:
                continue
            self._b.folded_inputs.add(id(value))
            if value.node is not None:
                pending += [operand for operand in value.node.inputs if operand is not None]

    def remove_folded_constants(self) -> None:
        """Remove constants that were folded into attributes or other constants, and that no node reads.

        The others have the metadata FOLDED: replacing such a constant would change only some of its readers.
        """
        graph = self._b.graph
        outputs = {id(value) for value in graph.outputs}
        nodes = []
        for node in graph.nodes:
            value = node.outputs[0] if node.outputs else None
            is_folded = value is not None and value.constant is not None and id(value) in self._b.folded_inputs
            if value is not None and is_folded and not value.uses and id(value) not in outputs:
                graph.release(value.name)
                continue
            if value is not None and is_folded:
                value.metadata[FOLDED] = True
            nodes.append(node)
        graph.nodes = nodes
