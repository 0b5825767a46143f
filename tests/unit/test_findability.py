"""Questions "where is ...?" of a person who does not know the source: the place to look at first has the answer."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = {
    "opset conversion": ("src/dovetail/formats/onnx/opset_conversion.py", "def convert_opset("),
    "the choice of Winograd": ("native/kernels/winograd.cpp", "winograd"),
    "a Reshape's -1": ("src/dovetail/ops/tensor/reshape.py", "-1"),
    "the reason of a copy in a plan": ("src/dovetail/engine/memory/copy_cost.py", "def reason_to_copy("),
    "the fuzz stages": ("fuzz/stages.py", "def save_text("),
    "dovetail compare": ("src/dovetail/compare/values/layers.py", "def compare_layers("),
    "dovetail diff": ("src/dovetail/compare/diff/model_diff.py", "def diff("),
    "dovetail prove": ("src/dovetail/compare/prove/proof.py", "def prove("),
    "dovetail reduce": ("src/dovetail/compare/reduce/reduction.py", "def reduce("),
    "dovetail profile": ("src/dovetail/measure/model_profile.py", "def profile("),
    "dovetail map": ("src/dovetail/data/rows/map_rows.py", "def map_rows("),
    "dovetail reshard": ("src/dovetail/data/tensors/reshard.py", "def reshard("),
    "the list of simplify's passes": ("src/dovetail/passes/simplification/passes.py", "common_subexpressions"),
    "the rule that two operands commute": ("src/dovetail/ops/elementwise/binary.py", "def is_commutative("),
    "the gradient of Concat": ("src/dovetail/ops/tensor/concat_split.py", "def vjp("),
    "the IR writer of Loop": ("src/dovetail/formats/openvino/converters/loop.py", "exporter("),
    "the lock of a job": ("src/dovetail/storage/lock.py", "def "),
    "the check of a .npy header": ("src/dovetail/storage/npy_file.py", "def read_npy_header("),
    "the limit of a loop's trips": ("src/dovetail/ir/limits.py", "loop"),
    "the arena's offsets": ("src/dovetail/engine/memory/arena.py", "offset"),
    "the plan cache's key": ("src/dovetail/runtime/plan_cache/cached_program.py", "class CacheKey"),
    "the text of an error code": ("docs/errors.md", "`axis.range`"),
    "the table of an operator's versions": ("src/dovetail/ops/tensor/concat_split.py", "Concat-11,13("),
    "the JAX backend": ("src/dovetail/runtime/devices/jax_program.py", "class "),
    "the HTML of a report": ("src/dovetail/report/document.py", "<html"),
}


@pytest.mark.parametrize("question", PLACES)
def test_the_place_that_is_looked_at_first_has_the_answer(question: str) -> None:
    path, text = PLACES[question]
    assert text in (ROOT / path).read_text("utf-8")
