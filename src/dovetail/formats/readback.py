"""Verify an export: the foreign model is imported again in memory, and its types are compared with those of the model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence as Seq
from os import PathLike

from dovetail.errors import DovetailError, UnsupportedError, raise_all
from dovetail.formats.dialect import Dialect
from dovetail.formats.foreign import ForeignGraph, ForeignModel
from dovetail.formats.importer import GraphImporter
from dovetail.ir import symbolic
from dovetail.ir.graph import Model, Node, Value
from dovetail.ir.limits import counting
from dovetail.ir.state import own_outputs
from dovetail.ir.types import Sequence, Size, Tensor, Type, is_unnamed
from dovetail.ops.constant import preserved_faults
from dovetail.storage.deviations import WRITING, log


def check_readback(model: Model, foreign: ForeignModel, dialect: Dialect, read_back: Model | None = None) -> None:
    """Check ``foreign``, the export of ``model``: its import must violate no rule and have the output types of ``model``.

    The inferred types must also agree with the types that ``foreign`` declares. Constants are shared, not read. Nodes that
    ``model`` preserves, and operators that the importer does not support, are not verified. ``read_back``: a model imported from
    the bytes of ``foreign``. If ``read_back`` has no warnings and has every value, only its types are compared, without another
    import. Raises UnsupportedError [write.mismatch] with every fault.
    """
    # The outputs of an ONNX model include the states; in IR the states are variables and no outputs.
    outputs = model.outputs if foreign.format == "onnx" else own_outputs(model)
    if read_back is not None and not read_back.warnings:
        read_outputs = read_back.outputs if foreign.format == "onnx" else own_outputs(read_back)
        types = _types_by_key(foreign.graph, read_back)
        if types.keys() >= foreign.graph.values.keys() and not any(_contradictions(outputs, foreign, read_outputs, types)):
            return
    importer = GraphImporter(dialect, foreign.graph, file=foreign.file)
    scope = importer.scope
    try:
        with counting() as usage, usage.cache_inferences():
            graph = importer.import_graph()
    except UnsupportedError:
        return
    except DovetailError as error:
        scope.errors.append(error)
    preserved = {(fault.code, fault.message) for fault in preserved_faults(model.graph)}
    found = [*scope.errors, *(fault for fault in scope.faults if (fault.code, fault.message) not in preserved)]
    errors = [error for error in found if not isinstance(error, UnsupportedError)]
    faults = [_mismatch(model.file, error.node, f"[{error.code}] {error.message}") for error in errors]
    if not found:
        types = {key: value.type for key, value in scope.values.items()}
        faults += [_mismatch(model.file, name, text) for name, text in _contradictions(outputs, foreign, graph.outputs, types)]
    raise_all(faults, f"faults in the {dialect.name} file that would be written")


def log_decompositions(foreign: ForeignModel, path: object) -> None:
    """Log a warning for each class of custom operators that was exported to ``path`` as its decomposition."""
    for warning in foreign.warnings:
        log([warning], os.fspath(path) if isinstance(path, str | PathLike) else "the model", WRITING)


def check_replacement(node: Node, replacement: Value | Seq[Value | None] | None) -> None:
    """Compare the types of a node's replacement with those of its outputs. Raises UnsupportedError [write.mismatch]."""
    values = [replacement] if isinstance(replacement, Value) or replacement is None else replacement
    for old, new in zip(node.outputs, values, strict=False):
        if new is not None and contradicts(old.type, new.type):
            raise _mismatch(None, None, f"{old.name} must be {old.type}, got {new.type}")


def _mismatch(file: str | None, node: str | None, text: str) -> UnsupportedError:
    return UnsupportedError("write.mismatch", f"the file would not be equivalent to the model: {text}", node=node, file=file)


def _types_by_key(foreign: ForeignGraph, read_back: Model) -> dict[str, Type]:
    """Map the keys of values of ``foreign`` to their types in ``read_back``, where a value is found by name.

    Constants have the exact types of their data. A value that ``read_back`` lacks is missing in the result: a constant of the
    file may have become an attribute in ``read_back``.
    """
    values = read_back.values
    types: dict[str, Type] = {key: values[item.name].type for key, item in foreign.values.items() if item.name in values}
    types.update((key, Tensor(tensor.dtype, tensor.storage.shape)) for key, tensor in foreign.constants.items())
    return types


def _contradictions(
    outputs: Seq[Value], foreign: ForeignModel, read_outputs: Seq[Value], read_types: Mapping[str, Type]
) -> Iterator[tuple[str, str]]:
    """Yield name and message of each output and declared value whose expected type contradicts its type in the file."""
    if len(outputs) != len(read_outputs):
        yield "outputs", f"the file must have {len(outputs)} outputs, got {len(read_outputs)}"
        return
    types = [(y.name, y.type, imported.type) for y, imported in zip(outputs, read_outputs, strict=True)]
    for key, item in foreign.graph.values.items():
        if key in read_types and item.type is not None:
            types.append((key, item.type, read_types[key]))
    for name, expected, actual in types:
        if contradicts(expected, actual):
            yield name, f"{name} must be {expected}, got {actual}"


def contradicts(first: Type, second: Type) -> bool:
    """Return whether two types certainly differ: in element type, in rank, or in a size without unnamed symbols."""
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
    # Each import creates new unnamed symbols; two of them may have equal names and different sizes.
    is_named = not any(is_unnamed(symbol) for size in (a, b) for symbol in symbolic.symbols(size))
    return is_named and symbolic.equal(a, b) is False
