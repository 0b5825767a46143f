"""The operators as methods of a Builder: the generated stub, completion, documentation and misspelled names."""

from __future__ import annotations

import copy
import inspect

import pytest

from dovetail import Builder, RuleError
from dovetail.ir import operator_stub
from dovetail.ir.op import REGISTRY


def test_the_stub_is_that_of_the_registry() -> None:
    is_current = operator_stub.PATH.read_text(encoding="utf-8") == operator_stub.stub_text()
    assert is_current, f"the stub is out of date: run `{operator_stub.COMMAND}`"


def test_the_index_names_every_operator_of_the_package() -> None:
    operator_stub.import_operators()
    is_current = operator_stub.INDEX_PATH.read_text(encoding="utf-8") == operator_stub.index_text()
    assert is_current, f"the index is out of date: run `{operator_stub.COMMAND}`"


def test_operators_complete_and_explain_themselves() -> None:
    b = Builder()
    assert set(REGISTRY) <= set(dir(b)) and {"input", "output", "constant"} <= set(dir(b))
    assert b.Concat.__name__ == "Concat" and b.Concat.__doc__ == REGISTRY["Concat"].__doc__
    assert list(inspect.signature(b.Concat).parameters)[1:] == ["axis"]
    assert repr(b.Concat).startswith("<operator Concat(")
    for kind in REGISTRY:
        assert inspect.signature(getattr(b, kind)) is not None


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [("Concatenate", "'Concat'"), ("concat", "'Concat'"), ("Mul", "'Multiply'"), ("Sub", "'Subtract'"), ("Softmx", "'Softmax'")],
)
def test_a_wrong_operator_name_suggests_the_right_one(name: str, suggestion: str) -> None:
    b = Builder()
    assert not hasattr(b, name)
    with pytest.raises(RuleError, match=f"no operator is named '{name}': did you mean {suggestion}") as caught:
        getattr(b, name)
    assert caught.value.code == "name.unknown"


def test_protocols_see_missing_attributes() -> None:
    b = Builder("copied")
    assert not hasattr(b, "__array__")
    assert copy.copy(b).graph is b.graph
