"""Conversion of constant inputs to the model's input types, and the symbolic sizes that their shapes fix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dovetail.data.rows.constants import Constants
from dovetail.data.rows.row_columns import UnfitRow, fit_row
from dovetail.data.rows.row_signature import RowPort
from dovetail.errors import EngineError
from dovetail.ir import symbolic
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import Model, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.substitution import substitute_type
from dovetail.ir.types import Size, Tensor, dtype_of


def fit_constants(values: Mapping[str, Any], model: Model, cast: bool) -> Constants:
    """Convert the values of constant inputs to the input types of ``model``. Raises EngineError [batch.constant]."""
    inputs = {value.name: value for value in model.inputs}
    arrays = {}
    for name, item in values.items():
        if name not in inputs:
            known = ", ".join(map(repr, inputs)) or "no inputs"
            raise EngineError("batch.constant", f"a constant must be an input of the model, got {name!r}; it has {known}")
        arrays[name] = _fit_constant(item, inputs[name], cast)
    return Constants(arrays)


def _fit_constant(item: object, value: Value, cast: bool) -> np.ndarray[Any, Any]:
    if not isinstance(value.type, Tensor) or value.type.dtype is None:
        raise EngineError("batch.constant", f"constant {value.name!r} must be a tensor of a known type, got {value.type}")
    shape = None if value.shape is None else tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    port = RowPort(value.name, dtype_of(value.type), shape)
    try:
        array = fit_row(item, port, value.name, cast)
    except UnfitRow as fault:
        rule = " and is converted without loss" if fault.code == "batch.dtype" else ""
        message = f"constant {value.name!r} must be {port}{rule}, got {_kind_of(item)}"
        raise EngineError("batch.constant", message) from None
    # Copied because the caller may write into its array, and because a view does not own the bytes to send.
    return np.array(array, order="C")


def _kind_of(item: object) -> str:
    if isinstance(item, np.ndarray) and item.ndim:
        return f"{item.dtype}{list(item.shape)}"
    text = repr(item)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fixed_sizes(model: Model, constants: Constants) -> dict[str, Size]:
    """Return a map from symbols to the sizes that the shapes of the constants fix. Raises EngineError [batch.constant]."""
    fixed: dict[str, Size] = {}
    for value in model.inputs:
        if value.name not in constants.arrays:
            continue
        for size, actual in zip(value.shape or (), constants.arrays[value.name].shape, strict=False):
            symbol = symbolic.name_of(size)
            if symbol is not None and fixed.setdefault(symbol, actual) != actual:
                message = f"{symbol} must be the same in all constants, got {fixed[symbol]} and {actual} in {value.name!r}"
                raise EngineError("batch.constant", message)
    return fixed


def fix_sizes(model: Model, constants: Constants) -> Model:
    """Return ``model`` with symbols replaced by the sizes that its constants fix. Raises EngineError [batch.constant]."""
    if not constants:
        return model
    fixed = _fixed_sizes(model, constants)
    model = copy_model(model)
    for value in model.graph.values():
        value.type = substitute_type(value.type, fixed)
    for value in model.inputs:
        if value.name in constants.arrays:
            value.type = Tensor(dtype_of(value.type), constants.arrays[value.name].shape)
    infer_graph(model.graph, file=model.file)
    return model
