"""Hashable keys of operators and of constants: equal keys mean equal attributes and equal bytes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from dovetail.ir.dtypes import DType
from dovetail.ir.graph import Graph
from dovetail.ir.op import Op
from dovetail.ir.packed_elements import PackedElements

Array = np.ndarray[Any, Any]


def operator_key(op: Op, *, with_subgraphs: bool = True) -> Any:
    """Return a key of the class and the attributes of an operator.

    A subgraph is equal only to itself. Without ``with_subgraphs`` the key omits the subgraphs, which the caller compares.
    """
    state = op.__dict__
    cls: Any = type(op)
    if not state:
        return cls
    return (cls, *(freeze(value) for value in state.values() if with_subgraphs or not isinstance(value, Graph)))


def freeze(value: Any) -> Hashable:
    """Return a hashable form of an attribute in which 1, 1.0 and True, and zeros of either sign, are different."""
    kind = value.__class__
    if kind is str or kind is DType or value is None:
        return value  # type: ignore[no-any-return]
    if kind is bool or kind is int:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if isinstance(value, Graph):
        # The graph and not its identity, which another graph may have after this one is deleted.
        return value
    if isinstance(value, Op):
        return (operator_key(value),)
    if isinstance(value, PackedElements):
        value = value.unpack()
    if isinstance(value, np.ndarray):
        return "array", value.dtype.name, value.shape, digest(value)
    if isinstance(value, tuple | list):
        return ("tuple", *map(freeze, value))
    if isinstance(value, dict):
        return ("dict", *((freeze(key), freeze(item)) for key, item in value.items()))
    if isinstance(value, BaseException):
        return "error", str(value)
    if isinstance(value, np.generic):
        return freeze(np.asarray(value))
    if is_dataclass(value):
        # Tensors and graphs of unknown operators.
        return (kind, *(freeze(getattr(value, field.name)) for field in fields(value)))
    if not isinstance(value, Hashable):
        return kind, id(value)
    return kind, value


def digest(data: Array) -> bytes:
    """Return the digest of an array's elements in row-major order."""
    if data.dtype.hasobject:
        code = blake2b(digest_size=32)
        for item in data.reshape(-1).tolist():
            text = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else bytes(item)
            code.update(f"{type(item).__name__}:{len(text)}:".encode() + text)
        return code.digest()
    flat = np.ascontiguousarray(data).reshape(-1)
    return blake2b(flat.view(np.uint8).data, digest_size=32).digest()
