"""Laws: rewrites of one operator that hold for all inputs, and tests of the values that they match."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.op import Op
from dovetail.ir.types import Tensor, Type
from dovetail.ops.shape_values import integers_of

Inputs: TypeAlias = Sequence[Value | None]
Types: TypeAlias = Sequence[Type]
Result: TypeAlias = Value | Sequence[Value | None] | None
"""Values that equal the outputs of an operator (None for an output that nothing may read); None if the law does not apply."""
Rule: TypeAlias = Callable[[Builder, Op, Inputs, Types], Result]
"""Function that returns values equal to the outputs of an operator, in a graph or in terms.

Its parameters are the builder, the operator, the inputs and the types of the outputs.
"""


class Law(NamedTuple):
    """Law is a rewrite of the operators of ``kinds``, which are classes or a test of a class.

    ``rewrite`` has the parameters of a Rule; if no pass of simplify applies the law, its builder may be a table of terms.
    ``shrinks`` names the pass of :func:`dovetail.simplify` that applies the law; such a law makes no graph larger. Without such
    a pass ``shrinks`` is empty.

    Both sides have the same bits, unless ``over_reals`` names the rewrite. Both sides are then equal over the real numbers, and
    ``{}`` in the name stands for the operator class. Proofs apply the laws with ``is_of_terms``.
    """

    rewrite: Callable[..., Result]
    kinds: Collection[type[Op]] | Callable[[type[Op]], bool]
    shrinks: str = ""
    over_reals: str = ""
    is_of_terms: bool = True

    def is_about(self, kind: type[Op]) -> bool:
        """Return whether the law rewrites operators of a class."""
        return self.kinds(kind) if callable(self.kinds) else kind in self.kinds


def is_among(value: Value, values: Iterable[Value]) -> bool:
    """Return whether ``value`` itself is one of ``values``."""
    return any(value is other for other in values)


def is_read_once(graph: Graph, value: Value) -> bool:
    """Return whether exactly one node input reads ``value``, and ``value`` is no graph output."""
    return len(value.uses) == 1 and not is_among(value, graph.outputs)


def producer(value: Value | None, kind: type[Op] | tuple[type[Op], ...]) -> Node | None:
    """Return the node that produces ``value`` if the operator of the node is of the class ``kind``, else None."""
    return value.node if value is not None and value.node is not None and isinstance(value.node.op, kind) else None


def permutation_of(xs: Inputs) -> list[int] | None:
    """Return the permutation of a Transpose from the inputs of the Transpose; None if the permutation is unknown."""
    x, perm = (*xs, None)[:2]
    if x is None or not isinstance(x.type, Tensor) or x.type.shape is None:
        return None
    order = [] if perm is None else integers_of(perm)
    return order if order is None or order else list(reversed(range(len(x.type.shape))))
