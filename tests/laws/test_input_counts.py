"""Any number of inputs is an answer or a RuleError, never an error of Python."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from dovetail.ir.op import REGISTRY, Op, infer_types
from dovetail.ir.types import UNKNOWN, Tensor, View

INPUTS = [View(UNKNOWN), View(Tensor(dtypes.f32, (2, 3))), None]


def constructible() -> list[Op]:
    found = []
    for cls in REGISTRY.values():
        try:
            found.append(cls())
        except (TypeError, DovetailError):
            # An attribute is required.
            continue
    return found


@pytest.mark.parametrize("op", constructible(), ids=lambda op: type(op).__name__)
def test_any_number_of_inputs_is_an_answer_or_a_rule_error(op: Any) -> None:
    for x in INPUTS:
        for count in (0, 1, 2, 3, 4, 5, 6, 30):
            try:
                types = infer_types(op, (x,) * count)
            except DovetailError as error:
                assert error.code != "op.failed", error
            else:
                assert all(type is not None for type in types)


@pytest.mark.parametrize("count", [0, 2])
def test_an_operator_with_a_rule_for_types_counts_its_inputs(count: int) -> None:
    x = View(Tensor(dtypes.f32, (2, 3)))
    with pytest.raises(DovetailError) as caught:
        infer_types(REGISTRY["Identity"](), (x,) * count)
    assert caught.value.code == "node.inputs"
