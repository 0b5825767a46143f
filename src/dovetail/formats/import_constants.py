"""Constants during an import: new constants are created, and constants of the file become attributes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dovetail.ir.builder import Builder
from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Value

MAX_SHARED_ELEMENTS = 64
"""The maximum number of elements of a constant that is compared with earlier constants, so that equal constants are shared."""

FOLDED = "folded"
"""The metadata key of a constant that has readers, but also became an attribute or was folded during the import."""


class ImportedConstants:
    """ImportedConstants adds, shares and removes the constants of one graph during its import."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._shared: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def add(self, data: ArrayLike, dtype: DType) -> Value:
        """Add a constant that is not in the file. Small constants of equal type, shape and elements are shared."""
        array = np.asarray(data, dtype=dtype.numpy)
        if array.size > MAX_SHARED_ELEMENTS or array.dtype.hasobject:
            return self._b.constant(array, dtype)
        key = dtype.name, array.shape, array.tobytes()
        if key not in self._shared:
            self._shared[key] = self._b.constant(array, dtype)
        return self._shared[key]

    def mark_folded_constant(self, x: Value) -> None:
        """Record that ``x`` became an attribute; mark ``x`` and all values that it is computed from as folded."""
        pending = [x]
        while pending:
            value = pending.pop()
            if id(value) in self._b.folded_inputs:
                continue
            self._b.folded_inputs.add(id(value))
            if value.node is not None:
                pending += [operand for operand in value.node.inputs if operand is not None]

    def remove_folded_constants(self) -> None:
        """Remove constants that were folded into attributes or other constants and have no other reader.

        Folded constants with other readers get the metadata FOLDED: replacing such a constant changes only some of its uses.
        """
        graph = self._b.graph
        outputs = {id(value) for value in graph.outputs}
        nodes = []
        for node in graph.nodes:
            value = node.outputs[0] if node.outputs else None
            is_folded = value is not None and value.storage is not None and id(value) in self._b.folded_inputs
            if value is not None and is_folded and not value.uses and id(value) not in outputs:
                graph.release(value.name)
                continue
            if value is not None and is_folded:
                value.metadata[FOLDED] = True
            nodes.append(node)
        graph.nodes = nodes
