"""The batch axis of a model: the leading axis of all inputs and outputs, which have a common size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, cast

from dovetail.compare.verification.conversion import random_outputs
from dovetail.data.rows.constant_inputs import fix_sizes
from dovetail.data.rows.constants import Constants
from dovetail.data.rows.map_outputs import call_with_columns, column_of
from dovetail.data.rows.row_independence import check_independence
from dovetail.data.rows.row_signature import INPUT_REMEDY, OUTPUT_REMEDY, RowPort, RowSignature
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import symbolic
from dovetail.ir.dtypes import f32
from dovetail.ir.edit import copy_model
from dovetail.ir.graph import EXTENSIONS, Graph, Model, Value
from dovetail.ir.infer import infer_graph
from dovetail.ir.op import bodies
from dovetail.ir.substitution import substitute_type
from dovetail.ir.types import Sequence as List, Size, Tensor, dims_of, dtype_of
from dovetail.ops.ml.maps import ZipMap
from dovetail.ops.quantization.integer_matmul_conv import DynamicQuantizeMatMul
from dovetail.ops.quantization.quantize_linear import DynamicQuantizeLinear
from dovetail.ops.recurrent.dynamic_quantize_lstm import DynamicQuantizeLSTM

BATCH_SCALED = DynamicQuantizeLinear, DynamicQuantizeMatMul, DynamicQuantizeLSTM
"""Operators that quantize all rows of a batch with one scale."""
TRIED_ROWS = (3, 7)
"""Numbers of rows with which the size of an output's leading axis is checked."""

RowCheck = Callable[[Callable[..., Mapping[str, Any]], dict[str, Any], Mapping[str, Any], int], None]
"""A function of a program, a batch, its results and its number of rows; it raises the errors of ``check_independence``."""


def row_signature(model: Model, constants: Constants) -> RowSignature:
    """Return the row signature of ``model``: its outputs, and its inputs except ``constants``, have a leading axis of rows.

    Raises EngineError [batch.axis], [batch.constant], and UnsupportedError [program.states] for a model with states.
    """
    if model.states:
        raise UnsupportedError("program.states", "a Mapper or Batcher takes a model without states", file=model.file)
    model = fix_sizes(model, constants)
    inputs = [value for value in model.inputs if value.name not in constants.arrays]
    maps = {value.name: _map_keys(value) for value in model.outputs if _map_keys(value)}
    tensors = [value for value in model.outputs if value.name not in maps]
    for values, remedy in ((inputs, INPUT_REMEDY), (tensors, OUTPUT_REMEDY)):
        for value in values:
            if not isinstance(value.type, Tensor) or value.type.dtype is None or value.type.shape == ():
                message = f"{value.name!r} must be a tensor with the rows on its leading axis, got {value.type}"
                raise _error(message, model, remedy)
    for value in inputs:
        if value.shape is None:
            raise _error(f"input {value.name!r} must have a known number of axes, got {value.type}", model, INPUT_REMEDY)
    sizes = [dims_of(value.type)[0] for value in inputs]
    if all(isinstance(size, int) for size in sizes):
        batch = _fixed_batch(model, inputs, cast("list[int]", sizes))
    else:
        _check_open_batch(model, inputs, sizes)
        batch = None
    ports = {value.name: _output_ports(value, maps.get(value.name, ())) for value in model.outputs}
    outputs = tuple(chain.from_iterable(ports.values()))
    (name, count), *_ = Counter(port.name for port in outputs).most_common(1) or [("", 0)]
    if count > 1:
        raise EngineError("batch.column", f"names of results must differ, got {name!r} {count} times", file=model.file)
    random = tuple(sorted(port.name for name in random_outputs(model) for port in ports[name]))
    has_scales = _has_batch_scales(model.graph)
    return RowSignature(tuple(map(_port, inputs)), outputs, batch, random, has_scales, tuple(maps.items()))


def row_check(model: Model) -> RowCheck:
    """Return a function of a program, a batch, its results and its number of rows, which is :func:`check_independence`.

    Raises EngineError [batch.axis] for a model without an open batch axis, UnsupportedError [program.states].
    """
    signature = row_signature(model, Constants({}))
    if signature.batch is not None:
        message = f"the inputs must have an open leading size, got the fixed size {signature.batch}; {INPUT_REMEDY}"
        raise EngineError("batch.axis", message, file=model.file)

    def check(program: Callable[..., Mapping[str, Any]], inputs: dict[str, Any], results: Mapping[str, Any], rows: int) -> None:
        def run(inputs: dict[str, Any]) -> Mapping[str, Any]:
            return call_with_columns(program, inputs, None, signature.maps) if signature.maps else program(inputs)

        check_independence(run, inputs, run(inputs) if signature.maps else results, rows, signature)

    return check


def _map_keys(value: Value) -> tuple[int | str, ...]:
    """Return the map keys of a ZipMap's output; empty for other values."""
    op = value.node.op if value.node is not None else None
    return tuple(dict.fromkeys(op.labels())) if isinstance(op, ZipMap) else ()


def _output_ports(value: Value, keys: Sequence[int | str]) -> list[RowPort]:
    return [RowPort(column_of(value.name, key), f32, ()) for key in keys] if keys else [_port(value)]


def _has_batch_scales(graph: Graph) -> bool:
    return any(
        isinstance(node.op, BATCH_SCALED) or any(_has_batch_scales(body) for _, body in bodies(node.op)) for node in graph.nodes
    )


def _error(message: str, model: Model, remedy: str) -> EngineError:
    return EngineError("batch.axis", f"{message}; {remedy}", file=model.file)


def _input_text(inputs: Sequence[Value]) -> str:
    return ", ".join(f"{value.name}: {value.type}" for value in inputs) or "no inputs"


def _fixed_batch(model: Model, inputs: Sequence[Value], sizes: Sequence[int]) -> int:
    if not sizes or sizes[0] < 1 or len(set(sizes)) > 1:
        message = f"the inputs must have one leading size of at least 1, got {_input_text(inputs)}"
        raise _error(message, model, INPUT_REMEDY)
    for value in model.outputs:
        leading = _leading_size(value)
        if isinstance(leading, int) and leading != sizes[0]:
            raise _error(
                f"output {value.name!r} must have {sizes[0]} rows like the inputs, got {value.type}", model, OUTPUT_REMEDY
            )
    return sizes[0]


def _check_open_batch(model: Model, inputs: Sequence[Value], sizes: Sequence[Size]) -> None:
    """Unify the symbols of the inputs' leading axes, infer the model anew, and check the outputs' leading sizes."""
    names = [symbolic.name_of(size) for size in sizes]
    inner = {symbolic.name_of(x) for value in inputs for size in dims_of(value.type)[1:] for x in symbolic.symbols(size)}
    leading = {name for name in names if name is not None}
    if None in names or leading & inner:
        message = f"the inputs must have leading axes of one common symbolic size, got {_input_text(inputs)}"
        raise _error(message, model, INPUT_REMEDY)
    model = copy_model(model)
    for value in model.graph.values():
        value.type = substitute_type(value.type, dict.fromkeys(leading, sizes[0]))
    infer_graph(model.graph, file=model.file)
    rows = next(iter(name for name in names if name is not None))
    for value in model.outputs:
        size = _leading_size(value)
        tried = [count if size is None else symbolic.substitute(size, {rows: count}) for count in TRIED_ROWS]
        # A size that depends on the data is checked in each run.
        if any(isinstance(actual, int) and actual != count for actual, count in zip(tried, TRIED_ROWS, strict=True)):
            message = f"output {value.name!r} must have as many rows as the inputs ({rows}), got {value.type}"
            raise _error(message, model, OUTPUT_REMEDY)


def _leading_size(value: Value) -> Size | None:
    if isinstance(value.type, List):
        return value.type.length
    return value.shape[0] if value.shape else None


def _port(value: Value) -> RowPort:
    shape = None if value.shape is None else tuple(size if isinstance(size, int) else str(size) for size in value.shape[1:])
    return RowPort(value.name, dtype_of(value.type), shape)


EXTENSIONS.row_check = row_check
