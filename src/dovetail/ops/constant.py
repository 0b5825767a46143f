"""Constant, DefaultInput, Identity and Foreign. Foreign preserves an operator of a file that dovetail cannot import."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import DovetailError, UnsupportedError, printable
from dovetail.ir import arrays
from dovetail.ir.dtypes import DType
from dovetail.ir.op import Op, Windows, bodies
from dovetail.ir.packed_elements import PackedElements
from dovetail.ir.types import UNKNOWN, Tensor, Type, View

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Graph, Value


class Constant(Op, sig="-> y: any"):
    """Hold a constant tensor. ``data`` has one element per numpy element and is read-only.

    A reader of files may pass PackedElements for ``data``: each read of ``data`` then unpacks them.
    """

    is_in_catalog = False

    data: np.ndarray[Any, Any]
    dtype: DType

    @property
    def storage(self) -> np.ndarray[Any, Any] | PackedElements:
        """The elements as they are in memory: packed, or the array ``data``."""
        storage: np.ndarray[Any, Any] | PackedElements = self.__dict__["data"]
        return storage

    def types(self) -> list[Type]:
        return [Tensor(self.dtype, self.storage.shape)]

    def value(self) -> Any:
        return None

    def evaluate(self, xp: Namespace) -> Any:
        return arrays.from_numpy(xp, self.data)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.storage.shape))
        if self.storage.size <= 8:
            return f"Constant({self.data.tolist()}, {self.dtype})"
        return f"Constant({self.dtype}[{shape}])"


def _data_of(op: Constant) -> np.ndarray[Any, Any]:
    return op.storage.unpack() if isinstance(op.storage, PackedElements) else op.storage


# In the body of the class, the property would be the default of the attribute.
setattr(Constant, "data", property(_data_of))  # noqa: B010


class DefaultInput(Op, sig="-> y: any"):
    """Return the value of an optional model input: ``default`` if the caller passes no array.

    An optional input is an ONNX initializer that is also a graph input (IR version 4). ``declared`` is the type of the graph
    input. Shape inference and rewrites do not treat ``default`` as a constant, until
    :func:`dovetail.formats.default_inputs.freeze_defaults` replaces the node by a Constant.
    """

    is_in_catalog = False

    default: np.ndarray[Any, Any]
    dtype: DType
    declared: Type | None = None

    def types(self) -> list[Type]:
        return [Tensor(self.dtype, self.default.shape) if self.declared is None else self.declared]

    def value(self) -> Any:
        return None

    def evaluate(self, xp: Namespace) -> Any:
        return arrays.from_numpy(xp, self.default)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"DefaultInput({self.dtype}[{', '.join(map(str, self.default.shape))}])"


class Identity(Op, sig="input: any -> output: any", onnx="Identity-1,13,14,16,19,21,23,24,25(input)"):
    """Return ``input``."""

    def types(self, input: View) -> list[Type]:
        return [input.type]

    def evaluate(self, xp: Namespace, input: Array) -> Any:
        return input

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [g]

    def windows(self, input: View) -> Windows:
        return Windows.whole(input.shape)


class Foreign(Op, sig="*inputs?: any -> *outputs: any"):
    """Preserve an operator that dovetail cannot import: the node is printed, checked and exported unchanged.

    A Foreign node cannot be converted, run or differentiated. Subgraphs among its attributes stay in the format of the file;
    ``captures`` holds the names under which these subgraphs refer to the last inputs. ``fault`` is the error for an operator
    that dovetail knows: the import rule refuses the node, or dovetail does not support the operator exactly.
    """

    is_in_catalog = False
    sizes_depend_on_data = True

    format: str
    domain: str
    kind: str
    version: int
    attributes: tuple[tuple[str, Any], ...]
    outputs: int
    captures: tuple[str, ...] = ()
    fault: DovetailError | None = None

    def types(self, *inputs: View) -> list[Type]:
        return [UNKNOWN] * self.outputs

    @property
    def refusal(self) -> DovetailError:
        """Return the error that a run, a gradient or a conversion of the node raises."""
        if self.fault is not None:
            return copy(self.fault)
        return UnsupportedError(
            "op.unknown", f"there is no rule to run {self.domain + '.' if self.domain else ''}{self.kind}-{self.version}"
        )

    def evaluate(self, xp: Namespace, *inputs: Array) -> Any:
        raise self.refusal

    def __hash__(self) -> int:
        return hash((self.format, self.domain, self.kind, self.version, self.outputs))

    def __repr__(self) -> str:
        return printable(f"Foreign({self.domain + '.' if self.domain else ''}{self.kind}-{self.version})")


def preserved_faults(graph: Graph) -> Iterator[DovetailError]:
    """Yield the ``fault`` of each preserved node of ``graph`` and of its subgraphs."""
    for node in graph.nodes:
        if isinstance(node.op, Foreign) and node.op.fault is not None:
            yield node.op.fault
        for _, body in bodies(node.op):
            yield from preserved_faults(body)
