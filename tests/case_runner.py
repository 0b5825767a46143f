"""A Case put to work: as a model of one operator, with its inputs, and what it evaluates to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from assertions import assert_close
from cases import Case, all_cases
from dovetail.ir import dtypes, op_mapping
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import apply
from dovetail.ir.graph import Model, Value
from dovetail.ir.op import Op, host_inputs
from dovetail.ir.types import Tensor, View
from dovetail.passes.check import validate

CASES: list[tuple[str, Case]] = list(all_cases())


LAWS = {
    "onnxruntime": "evaluate says what onnxruntime says; where it knows nothing, what onnx.reference says",
    "onnx.reference": "onnx.reference is asked where onnxruntime knows nothing",
    "old onnxruntime": "the oldest form that can say it gives the same in onnxruntime",
    "openvino": "evaluate says what OpenVINO says",
    "onnx": "ONNX gives back the graph",
    "ir": "IR gives back the graph",
    "edges": "a written form means the same for NaN, infinities, ties and -0",
    "gradient": "a gradient is the slope in a random direction",
    "gradient in onnxruntime": "a gradient model runs in onnxruntime",
    "second gradient": "the gradient of a gradient is its slope",
    "apart": "an operator taken apart gives the same",
    "shape": "the shape rule says all sizes, not only true ones",
    "rank": "the rank is known where every size is a symbol",
    "torch": "torch gives the answer of numpy",
    "jax": "jax.numpy gives the answer of numpy",
    "fold": "what follows from constants alone is folded",
}
"""What ``Case.skip`` may name."""


def at_most(count: int, cases: Sequence[tuple[str, Case]] = CASES) -> list[tuple[str, Case]]:
    """At most ``count`` cases of each operator, evenly spaced over its list, so that every family of attributes is in."""
    by_operator: dict[type, list[tuple[str, Case]]] = {}
    for family, case in cases:
        by_operator.setdefault(type(case.op), []).append((family, case))
    return [row for rows in by_operator.values() for row in rows[:: -(-len(rows) // count)]]


def over(cases: Sequence[tuple[str, Case]]) -> Any:
    """Parametrise ``case`` with these cases, by readable ids."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=f"{family}: {case}") for family, case in cases])


def skip_where_outside(case: Case, law: str) -> None:
    if law in case.skip:
        pytest.skip(case.skip[law])


OLDEST = 7


@cache
def onnx_schemas() -> list[Any]:
    """Return the schemas of all versions of ONNX's operators."""
    import onnx

    return list(onnx.defs.get_all_schemas_with_history())


@cache
def opsets(op: type[Op]) -> tuple[int, ...]:
    """Every opset in which a way to say ``op`` changes, and the newest."""
    import onnx

    kinds = {(mapping.domain, mapping.kind) for mapping in (op_mapping.parse(op, line) for line in op.onnx)}
    lines = {schema.since_version for schema in onnx_schemas() if (schema.domain, schema.name) in kinds}
    return tuple(sorted({max(version, OLDEST) for version in lines} | {onnx.defs.onnx_opset_version()}))


def is_constant(case: Case) -> list[bool]:
    """For each input, whether it stands in the model as a constant."""
    hosts = host_inputs(case.op, len(case.inputs))
    return [
        x is not None and (host or index in case.constants)
        for index, (x, host) in enumerate(zip(case.inputs, hosts, strict=True))
    ]


def write(b: Builder, case: Case, inputs: Sequence[Any]) -> list[Value]:
    """Return the case's operator in ``b``, applied to ``inputs``; graph inputs are ``x0``, ``x1``, ..."""
    xs: list[Value | None] = []
    for index, (x, constant) in enumerate(zip(inputs, is_constant(case), strict=True)):
        if x is None:
            xs.append(None)
        elif constant:
            xs.append(b.constant(x, name=f"c{index}"))
        else:
            xs.append(b.input(f"x{index}", dtypes.dtype(x.dtype), x.shape))
    return b.add(case.op, *xs)


def model_of(case: Case, inputs: Sequence[Any] | None = None) -> Model:
    """Return a model of the case's operator alone: inputs ``x0``, ..., outputs ``y0``, ..."""
    b = Builder("case")
    for index, y in enumerate(write(b, case, case.inputs if inputs is None else inputs)):
        b.output(f"y{index}", y)
    return sound(b.model)


def sound(model: Model) -> Model:
    """``model``, which holds together."""
    assert [str(item) for item in validate(model.graph)] == []
    return model


def feeds(case: Case, inputs: Sequence[Any] | None = None) -> dict[str, Any]:
    given = case.inputs if inputs is None else inputs
    return {
        f"x{index}": x
        for index, (x, constant) in enumerate(zip(given, is_constant(case), strict=True))
        if not constant and x is not None
    }


@cache
def _answer(key: int) -> tuple[Any, ...]:
    case = case_of(key)
    with np.errstate(all="ignore"):
        return apply(case.op, np, case.inputs)


_BY_KEY: dict[int, Case] = {id(case): case for _, case in CASES}


def case_of(key: int) -> Case:
    """Return the case of a table whose ``id`` is ``key``: a key of caches, as a case holds arrays."""
    return _BY_KEY[key]


def answer(case: Case) -> tuple[Any, ...]:
    """Return the results of the operator's ``evaluate``."""
    return _answer(id(case))


def view(x: Any, value: Any = None) -> View | None:
    return None if x is None else View(Tensor(dtypes.dtype(x.dtype), x.shape), value)


def views(case: Case) -> tuple[View | None, ...]:
    """Return the inputs as inference sees them: types, and the values of constants."""
    return tuple(
        view(x, shape_value(x) if constant else None) for x, constant in zip(case.inputs, is_constant(case), strict=True)
    )


def shape_value(x: Any) -> Any:
    """Return an array as an exact shape value; None where shape values cannot hold it."""
    if x is None or x.size > 1024 or not (dtypes.dtype(x.dtype).is_integer or x.dtype == np.bool_):
        return None
    return x.astype(object) if x.dtype == np.uint64 else x if x.dtype == np.bool_ else x.astype(np.int64)


def assert_same_answer(case: Case, theirs: Sequence[Any], oracle: str) -> None:
    """Compare the outputs of an ONNX runtime with the rule of the case's operator."""
    ours = answer(case)
    assert len(ours) == len(theirs)
    for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        # ONNX stores float attributes as f32.
        tolerance = max(case.tolerance, 2e-7) if case.tolerance is not None and mine.dtype == np.float64 else case.tolerance
        assert_close(mine, other, tolerance, f"{oracle}: output {index}")
