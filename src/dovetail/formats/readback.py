"""The check of what is written: a foreign model is imported again, in memory, and its types are held against the model's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence as Several

from dovetail import symbolic
from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignModel
from dovetail.formats.importer import Lifter
from dovetail.ir.graph import Graph, Model, Node, Value
from dovetail.ir.state import own_outputs
from dovetail.ir.types import Sequence, Size, Tensor, Type, is_unnamed
from dovetail.limits import counting


def check_written(model: Model, foreign: ForeignModel, dialect: Dialect) -> None:
    """Import ``foreign``, which was written for ``model``, and infer it: no rule may be broken and no type contradict, be it that
    of an output of the model or one that the file declares.

    Constants are shared, not read. What the importer does not handle is not judged. Raises UnsupportedError [write.mismatch] with
    every fault.
    """
    lifter = Lifter(dialect, foreign.graph, file=foreign.file)
    try:
        with counting() as usage, usage.remembering():
            graph = lifter.run()
    except UnsupportedError:
        return
    except DovetailError as error:
        lifter.errors.append(error)
    errors = [error for error in lifter.errors if not isinstance(error, UnsupportedError)]
    faults = [_mismatch(model.file, error.node, f"[{error.code}] {error.message}") for error in errors]
    if not lifter.errors:
        # ONNX has states as outputs; those of IR are inside.
        outputs = model.outputs if foreign.format == "onnx" else own_outputs(model)
        faults += [_mismatch(model.file, name, text) for name, text in _contradictions(outputs, foreign, graph, lifter.found)]
    raise_all(faults, f"faults in what would be written in {dialect.name}")


def check_rewritten(node: Node, made: Value | Several[Value | None] | None) -> None:
    """Hold the types of what is written in the place of a node against its own. Raises UnsupportedError [write.mismatch]."""
    values = [made] if isinstance(made, Value) or made is None else made
    for old, new in zip(node.outputs, values, strict=False):
        if new is not None and contradicts(old.type, new.type):
            raise _mismatch(None, None, f"{old.name} is {old.type}, and would be {new.type}")


def _mismatch(file: str | None, node: str | None, text: str) -> UnsupportedError:
    return UnsupportedError("write.mismatch", f"what would be written does not mean the same: {text}", node=node, file=file)


def _contradictions(
    ours: Several[Value], foreign: ForeignModel, graph: Graph, found: Mapping[str, Value]
) -> Iterator[tuple[str, str]]:
    if len(ours) != len(graph.outputs):
        yield "outputs", f"{len(graph.outputs)} outputs of {len(ours)}"
        return
    pairs = [(y.name, y.type, made.type) for y, made in zip(ours, graph.outputs, strict=True)]
    for key, item in foreign.graph.values.items():
        if key in found and item.type is not None:
            pairs.append((key, item.type, found[key].type))
    for name, wanted, made in pairs:
        if contradicts(wanted, made):
            yield name, f"{name} is {wanted}, and would be {made}"


def contradicts(first: Type, second: Type) -> bool:
    """Whether two types are known to differ: in element type, in rank, or in a size made of numbers and named symbols."""
    if first is second or first == second:
        return False
    if isinstance(first, Sequence) and isinstance(second, Sequence):
        return contradicts(first.element, second.element)
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return isinstance(first, Sequence | Tensor) and isinstance(second, Sequence | Tensor)
    if first.dtype is not None and second.dtype is not None and first.dtype is not second.dtype:
        return True
    if first.shape is None or second.shape is None:
        return False
    if len(first.shape) != len(second.shape):
        return True
    return any(_differ(a, b) for a, b in zip(first.shape, second.shape, strict=True))


def _differ(a: Size | None, b: Size | None) -> bool:
    if a is None or b is None or a is b:
        return False
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    # Symbols for what nothing is known of are made up anew, and may bear the same name.
    is_named = not any(is_unnamed(symbol) for size in (a, b) for symbol in symbolic.symbols(size))
    return is_named and symbolic.equal(a, b) is False


__all__ = ["check_rewritten", "check_written", "contradicts"]
