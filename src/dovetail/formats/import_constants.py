"""The constants that an import creates, and the file's constants that it turns into attributes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dovetail.dtypes import DType
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value

MAX_SHARED_ELEMENTS = 64
"""Larger constants are not compared with the existing ones."""


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
        """Note that the constant ``x`` was read as an attribute."""
        if x.constant is not None:
            self._b.folded_inputs.add(id(x))

    def remove_folded_constants(self) -> None:
        """Remove constants that were folded into attributes or other constants, and that no node reads."""
        graph = self._b.graph
        outputs = {id(value) for value in graph.outputs}
        nodes = []
        for node in graph.nodes:
            value = node.outputs[0] if node.outputs else None
            if value is not None and id(value) in self._b.folded_inputs and not value.uses and id(value) not in outputs:
                graph.release(value.name)
            else:
                nodes.append(node)
        graph.nodes = nodes
