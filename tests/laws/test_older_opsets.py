"""An operator written for an opset that may not have it yet gives the same, or is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from assertions import assert_close
from case_laws import hold, law
from case_runner import answer, at_most, feeds, model_of, skip_where_outside
from cases import Case
from dovetail.errors import UnsupportedError
from dovetail.formats import import_foreign
from dovetail.formats.onnx import codec, write
from dovetail.interpreter.interpret import interpret

OPSETS = (9, 10, 12)
EACH = 5
SUMS = 1e-5
"""What sums of floats in another order may differ by."""


@law(at_most(EACH))
def check_older_opsets(case: Case) -> None:
    skip_where_outside(case, "onnx")
    model = model_of(case)
    refused = []
    for opset in OPSETS:
        try:
            data = write.save(model, None, opset=opset)
        except UnsupportedError as error:
            assert all(item.node for item in error.diagnostics), str(error)
            refused.append(error.diagnostics[0].message)
            continue
        assert data is not None
        found = interpret(import_foreign(codec.read(data)), feeds(case))
        for mine, theirs in zip(found.values(), answer(case), strict=False):
            assert_close(np.asarray(mine), theirs, max(case.tolerance or 0, SUMS), f"opset {opset}")
    if len(refused) == len(OPSETS):
        pytest.skip(f"refused: {refused[-1]}")


test_case = hold(check_older_opsets)
