"""Merge declared types of a file into inferred types: a declaration fills in dimensions that inference leaves open."""

from __future__ import annotations

from collections.abc import Set

from dovetail.errors import Diagnostic, DovetailError
from dovetail.ir import symbolic
from dovetail.ir.graph import Graph, Value
from dovetail.ir.op import bodies
from dovetail.ir.types import UNKNOWN, Size, Tensor, Type, Unknown, forget_element_sizes, is_unnamed, sizes_in


def apply_declared_type(graph: Graph, value: Value, declared: Type | None, file: str | None) -> Diagnostic | None:
    """Merge the declared type into ``value``; return the warning [type.declared] if it contradicts the inferred type."""
    inferred = value.type
    if declared is None or declared == inferred:
        return None
    if not isinstance(declared, Tensor) or not isinstance(inferred, Tensor):
        if inferred == UNKNOWN:
            value.type = forget_element_sizes(declared)
        return None
    merged, is_contradicted = merge_declared_type(inferred, declared, _sizes_of_inputs(graph, inferred))
    if inferred.shape is None and declared.shape is not None and _has_other_rank(value, len(declared.shape)):
        merged, is_contradicted = inferred, True
    if not is_contradicted:
        value.type = merged
        return None
    # A declaration that contradicts the inferred type is wrong, so that its sizes are not used.
    value.type = Tensor(merged.dtype, inferred.shape)
    return declared_warning(value.name, declared, inferred, file)


def declared_warning(name: str, declared: Type | None, inferred: Type, file: str | None) -> Diagnostic:
    """Return the warning [type.declared] for a declared type that contradicts the inferred type."""
    return Diagnostic(
        "type.declared",
        f"the declared type of {name} is {declared}, inferred is {inferred}",
        name,
        file,
        severity="warning",
    )


def merge_declared_type(inferred: Tensor, declared: Tensor, free_sizes: Set[Size] = frozenset()) -> tuple[Tensor, bool]:
    """Return the inferred type with its unknown parts filled from the declared type, and whether the two types conflict.

    ``free_sizes`` are sizes that the caller of the model chooses; a declared integer does not replace such a size.
    """
    dtype = inferred.dtype or declared.dtype
    is_contradicted = inferred.dtype is not None and declared.dtype is not None and inferred.dtype is not declared.dtype
    if inferred.shape is None or declared.shape is None:
        return Tensor(dtype, inferred.shape if declared.shape is None else declared.shape), is_contradicted
    if len(inferred.shape) != len(declared.shape):
        return Tensor(dtype, inferred.shape), True
    sizes: list[Size] = []
    for ours, theirs in zip(inferred.shape, declared.shape, strict=True):
        if ours.__class__ is int:
            is_contradicted = is_contradicted or (theirs.__class__ is int and theirs != ours)
            sizes.append(ours)
        elif is_unnamed(ours) and not is_unnamed(theirs) and not (theirs.__class__ is int and ours in free_sizes):
            sizes.append(theirs)
        else:
            is_contradicted = is_contradicted or symbolic.equal(ours, theirs) is False
            sizes.append(ours)
    return Tensor(dtype, tuple(sizes)), is_contradicted


def _sizes_of_inputs(graph: Graph, type: Tensor) -> set[Size]:
    """Return the unnamed sizes of ``type`` that are also sizes of graph inputs."""
    unnamed = [size for size in type.shape or () if is_unnamed(size)]
    if not unnamed:
        return set()
    input_sizes = {size for x in graph.inputs for size in sizes_in(x.type) if is_unnamed(size)}
    return input_sizes.intersection(unnamed)


def _has_other_rank(value: Value, rank: int) -> bool:
    """Return whether ``value`` has another rank than ``rank`` at all but exceptional input sizes, or in a branch of an If."""
    if value.node is None:
        return False
    try:
        usual = value.node.op.usual_rank(*value.node.inputs)
    except (Unknown, DovetailError):
        usual = None
    if usual is not None:
        return usual != rank
    if type(value.node.op).__name__ != "If":
        return False
    shapes = [body.outputs[value.index].shape for _, body in bodies(value.node.op)]
    return any(shape is not None and len(shape) != rank for shape in shapes)
