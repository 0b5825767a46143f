"""When two answers, two types, two graphs are the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.op import Op, bodies
from dovetail.ir.types import Tensor, Type


def assert_same_bits(ours: Any, theirs: Any, what: str = "", payloads: bool = False) -> None:
    """Compare type, shape and bytes; any NaN equals any other of its type, unless ``payloads`` count too."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == theirs.dtype or {ours.dtype.kind, theirs.dtype.kind} <= set("OUST"), (
        f"{what}: {ours.dtype}, {theirs.dtype}"
    )
    assert ours.shape == theirs.shape, f"{what}: shapes {ours.shape}, {theirs.shape}"
    if ours.dtype.kind in "OUST":
        assert [_plain(item) for item in ours.ravel()] == [_plain(item) for item in theirs.ravel()], what
        return
    if ours.tobytes() == theirs.tobytes():
        return
    wrong = np.ascontiguousarray(ours).reshape(-1).view(np.uint8) != np.ascontiguousarray(theirs).reshape(-1).view(np.uint8)
    places = wrong.reshape(-1, ours.dtype.itemsize).any(axis=1)
    if ours.dtype.kind not in "iub" and not payloads:
        with np.errstate(all="ignore"):
            places &= ~(np.isnan(_wide(ours)) & np.isnan(_wide(theirs))).reshape(-1)
    if places.any():
        at = int(np.argmax(places))
        raise AssertionError(
            f"{what}: {int(places.sum())} of {places.size} elements differ, first at {at}: "
            f"{ours.reshape(-1)[at]!r}, {theirs.reshape(-1)[at]!r}"
        )


def assert_close(ours: Any, theirs: Any, tolerance: float | None, what: str = "") -> None:
    """Equal up to ``tolerance`` times the largest finite magnitude; bit for bit where it is None. NaN and infinity must match."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if tolerance is None or ours.dtype.kind in "iubOUST":
        assert_same_bits(ours, theirs, what)
        return
    assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype}, {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{what}: shapes {ours.shape}, {theirs.shape}"
    with np.errstate(all="ignore"):
        left, right = _wide(ours), _wide(theirs)
        finite = np.isfinite(right)
        scale = float(np.abs(right[finite]).max(initial=0))
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        near = np.isfinite(left) & finite & (np.abs(left - right) <= tolerance * scale)
    if not np.all(same | near):
        at = int(np.argmin((same | near).reshape(-1)))
        worst = np.abs(left - right)[np.isfinite(left) & finite].max(initial=0)
        raise AssertionError(
            f"{what}: element {at} is {left.reshape(-1)[at]!r}, should be {right.reshape(-1)[at]!r}; "
            f"worst difference {worst:.3g} with magnitudes up to {scale:.3g}"
        )


def _wide(x: Any) -> Any:
    return x.astype(np.complex128) if x.dtype.kind == "c" else x.astype(np.float64)


def _plain(item: Any) -> Any:
    return item.decode() if isinstance(item, bytes) else item


def assert_claim_holds(claim: Type, array: Any, what: str = "", sizes: dict[str, int] | None = None) -> None:
    """Check that the inferred type of a value is true of the array: it may leave things open, and is never wrong."""
    if not isinstance(claim, Tensor):
        return
    if claim.dtype is not None:
        assert array.dtype == claim.dtype.numpy, f"{what}: inferred {claim}, and is {array.dtype}"
    if claim.shape is None:
        return
    assert len(claim.shape) == array.ndim, f"{what}: inferred {claim}, and has the shape {array.shape}"
    for axis, (size, real) in enumerate(zip(claim.shape, array.shape, strict=True)):
        assert_size_holds(size, real, f"{what}: axis {axis} of {claim}, where the shape is {array.shape}", sizes or {})


def assert_size_holds(size: Any, real: int, what: str, sizes: dict[str, int]) -> None:
    found = symbolic.substitute(size, sizes) if not isinstance(size, int) else size
    if isinstance(found, int):
        assert found == real, f"{what}: {size} is {found}, and should be {real}"
    else:
        low, high = symbolic.bounds(found)
        assert (low is None or low <= real) and (high is None or real <= high), f"{what}: {size} within [{low}, {high}] is {real}"


def is_vague(size: Any) -> bool:
    """Return whether some part of a size is a symbol that inference made up."""
    return not isinstance(size, int) and any(
        (symbolic.name_of(symbol) or "").startswith("?") for symbol in symbolic.symbols(size)
    )


def differences(first: Graph, second: Graph, alike: Callable[[Op, Op], bool] | None = None) -> list[str]:
    """Return the differences of two graphs, node by node; names of inner values do not matter, names at the ends do.

    ``alike`` may allow operators of one class that are not equal.
    """
    found: list[str] = []
    ours, theirs = _Numbers(), _Numbers()
    for side, xs, ys in (("input", first.inputs, second.inputs), ("output", first.outputs, second.outputs)):
        if [x.name for x in xs] != [y.name for y in ys]:
            found.append(f"{side}s {[x.name for x in xs]}, {[y.name for y in ys]}")
    found.extend(
        f"{x.name}: {x.type}, {y.type}"
        for x, y in zip(first.inputs, second.inputs, strict=False)
        if not _same_type(x.type, y.type)
    )
    ours.enter(first.inputs), theirs.enter(second.inputs)
    mine, yours = list(_in_order(first)), list(_in_order(second))
    if len(mine) != len(yours):
        return [*found, f"{len(mine)} nodes {_kinds(mine)}, {len(yours)} nodes {_kinds(yours)}"]
    for node, other in zip(mine, yours, strict=True):
        found.extend(_node_differences(node, other, ours, theirs, alike))
        ours.enter(node.outputs), theirs.enter(other.outputs)
    if [ours.of(y) for y in first.outputs] != [theirs.of(y) for y in second.outputs]:
        found.append("the outputs are made by other nodes")
    return found


def assert_same_graph(first: Model | Graph, second: Model | Graph, what: str = "") -> None:
    found = differences(getattr(first, "graph", first), getattr(second, "graph", second))
    assert not found, f"{what}: " + "; ".join(found)


class _Numbers:
    """The values of one graph, counted in order; a Constant is its contents."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def enter(self, values: Sequence[Value]) -> None:
        for value in values:
            self.known[id(value)] = len(self.known)

    def of(self, value: Value | None) -> Any:
        if value is None:
            return None
        data = value.constant
        if data is None:
            return self.known.get(id(value))
        return str(value.type), data.tolist() if data.dtype == object else data.tobytes()


def _in_order(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if type(node.op).__name__ != "Constant"]


def _kinds(nodes: Sequence[Node]) -> list[str]:
    return [type(node.op).__name__ for node in nodes]


def _node_differences(
    node: Node, other: Node, ours: _Numbers, theirs: _Numbers, alike: Callable[[Op, Op], bool] | None
) -> list[str]:
    found = []
    if not same_op(node, other) and not (
        alike and type(node.op) is type(other.op) and alike(_canonical(node), _canonical(other))
    ):
        found.append(f"{node.op}, {other.op}")
    if _numbered(node, ours) != _numbered(other, theirs):
        found.append(f"{node.op}: inputs {node.inputs}, {other.inputs}")
    for x, y in zip(node.outputs, other.outputs, strict=False):
        if not _same_type(x.type, y.type):
            found.append(f"{node.op} makes {x.type}, {y.type}")
    if len(node.outputs) != len(other.outputs):
        found.append(f"{node.op}: {len(node.outputs)} outputs, {len(other.outputs)}")
    return found


def _numbered(node: Node, numbers: _Numbers) -> list[Any]:
    """Return the inputs of a node, without optional inputs left out at its end."""
    found = [numbers.of(x) for x in node.inputs]
    while found and found[-1] is None:
        found.pop()
    return found


def _same_type(first: Type, second: Type) -> bool:
    """Equal, up to the names of symbols that inference made up."""
    if first == second:
        return True
    if not isinstance(first, Tensor) or not isinstance(second, Tensor) or first.dtype != second.dtype:
        return False
    if first.shape is None or second.shape is None or len(first.shape) != len(second.shape):
        return False
    return all(a == b or (is_vague(a) and is_vague(b)) for a, b in zip(first.shape, second.shape, strict=True))


def same_op(node: Node, other: Node) -> bool:
    """Equal operators, in their canonical form for their inputs; subgraphs node by node."""
    if type(node.op) is not type(other.op):
        return False
    if any(True for _ in bodies(node.op)):
        return all(not differences(x, y) for (_, x), (_, y) in zip(bodies(node.op), bodies(other.op), strict=True))
    return node.op == other.op or _canonical(node) == _canonical(other)


def _canonical(node: Node) -> Op:
    return node.op.canonical(*node.inputs)
