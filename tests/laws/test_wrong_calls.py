"""Wrong calls of a Builder's methods end in errors of ours that say what the operator takes; lists stand for tuples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cases import Case, all_cases
from dovetail import Builder, DovetailError, RuleError, save
from dovetail.errors import UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.attribute_types import REQUIRED
from dovetail.ir.op import REGISTRY, Op

FIRST: dict[str, Case] = {}
for _, _case in all_cases():
    FIRST.setdefault(type(_case.op).__name__, _case)

FIRST_INPUT = REGISTRY["MatMul"].signature.inputs[0].name

WRONG: dict[str, tuple[Any, ...]] = {
    "bool": ("yes", 2, 0.5, None, [True]),
    "int": ("1", 1.5, None, [1], object()),
    "float": ("1.0", None, [1.0], True),
    "str": (1, None, ["word"], b"word"),
    "DType": (1.5, None, [dtypes.f32], "f31"),
    "Graph": ("body", None, 1),
    "tuple[int, ...]": ("12", 1, [1.5], ["1"], None, {1: 2}),
    "tuple[float, ...]": ("12", 1.0, ["1"], None),
    "tuple[str, ...]": ("word", [1], None),
    "tuple[bool, ...]": (True, ["yes"], None),
}
"""Values that an annotation refuses. An optional one takes None beside."""


def write_inputs(b: Builder, case: Case) -> list[Any]:
    signature = case.op.signature
    xs: list[Any] = []
    for index, x in enumerate(case.inputs):
        if x is None:
            xs.append(None)
        elif isinstance(x, list | dict) or index in case.constants or signature.port(index, len(case.inputs)).host:
            xs.append(x)
        else:
            xs.append(b.input(f"x{index}", x.dtype, x.shape))
    return xs


def refuse(kind: str, /, *inputs: Any, b: Builder | None = None, **attributes: Any) -> DovetailError | None:
    """Call a method and return its error; None where it takes the arguments. Anything but an error of ours fails."""
    try:
        getattr(b or Builder(), kind)(*inputs, **attributes)
    except DovetailError as error:
        assert str(error)
        return error
    return None


@pytest.mark.parametrize("kind", REGISTRY)
def test_any_number_of_inputs_is_counted(kind: str) -> None:
    cls = REGISTRY[kind]
    attributes = dict(FIRST[kind].op.__dict__) if kind in FIRST else {}
    for count in (0, 1, len(cls.signature.inputs) + 1, 30):
        b = Builder()
        error = refuse(kind, *(b.input(f"x{index}", "f32", (2, 3)) for index in range(count)), b=b, **attributes)
        is_wrong = count < cls.signature.min_inputs or (cls.signature.repeated is None and count > len(cls.signature.inputs))
        assert error is not None or not is_wrong
        if is_wrong and kind in FIRST:
            assert isinstance(error, RuleError) and error.code == "node.inputs" and f"got {count}" in error.message


@pytest.mark.parametrize("kind", FIRST)
def test_inputs_of_a_wrong_type_are_refused_or_taken(kind: str) -> None:
    case = FIRST[kind]
    attributes = dict(case.op.__dict__)
    for wrong in ("text", 2.5, True, 2**80, [[1], [2, 3]], {}, object(), np.zeros((1, 2, 3, 4, 5)), np.array(["a"]), 1j, None):
        for index in range(len(case.inputs)):
            b = Builder()
            xs = write_inputs(b, case)
            xs[index] = wrong
            refuse(kind, *xs, b=b, **attributes)


@pytest.mark.parametrize("kind", REGISTRY)
def test_an_attribute_of_a_wrong_type_or_name_is_refused(kind: str) -> None:
    cls = REGISTRY[kind]
    known = dict(FIRST[kind].op.__dict__) if kind in FIRST else {}
    for field in cls.fields:
        optional = field.annotation.removesuffix(" | None")
        for wrong in WRONG.get(optional, ()):
            if wrong is None and optional != field.annotation:
                continue
            b = Builder()
            error = refuse(kind, b=b, **{**known, field.name: wrong})
            assert isinstance(error, RuleError | UnsupportedError), (field, wrong)
            assert error.code in ("attribute.value", "dtype.unknown"), (field, wrong, error)
            assert error.code == "dtype.unknown" or (f"{field.name!r} must be" in error.message and "got" in error.message)
    error = refuse(kind, **{**known, "no_such_attribute": 1})
    assert isinstance(error, RuleError) and error.code == "attribute.unknown"
    for field in cls.fields:
        if field.default is REQUIRED and kind in FIRST:
            rest = {name: value for name, value in known.items() if name != field.name}
            error = refuse(kind, **rest)
            assert isinstance(error, RuleError) and error.code == "attribute.missing" and repr(field.name) in error.message


@pytest.mark.parametrize("kind", FIRST)
def test_lists_are_accepted_as_tuples(kind: str, tmp_path: Path) -> None:
    op = FIRST[kind].op
    attributes = {name: _as_lists(value) for name, value in op.__dict__.items()}
    assert type(op)(**attributes) == op
    if attributes == op.__dict__ or kind == "RuntimeAttributes":
        return
    written = []
    for own in (op.__dict__, attributes):
        b = Builder()
        xs = write_inputs(b, FIRST[kind])
        outputs = getattr(b, kind)(*xs, **own)
        for index, y in enumerate(outputs if isinstance(outputs, list) else [outputs]):
            b.output(f"y{index}", y)
        try:
            save(b.model, tmp_path / "model.onnx")
            written.append((tmp_path / "model.onnx").read_bytes())
        except DovetailError as error:
            written.append(error.code.encode())
    assert written[0] == written[1]


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("call", "code", "message"),
    [
        (lambda b, x: b.Adam(x), "node.inputs", "needs at least 2 inputs, got 1"),
        (lambda b, x: b.Relu(x, x), "node.inputs", "takes 1 input, got 2"),
        (lambda b, x: b.Concat(x, axis="1"), "attribute.value", "Concat: the attribute 'axis' must be an integer, got '1'"),
        (lambda b, x: b.Concat(x, axes=1), "attribute.unknown", "Concat has no attribute 'axes': did you mean 'axis'?"),
        (lambda b, x: b.Concat(x), "attribute.missing", "Concat needs the attribute 'axis'"),
        (lambda b, x: b.MatMul(**{FIRST_INPUT: x}), "attribute.unknown", "is an input of MatMul; inputs are positional"),
        (lambda b, x: b.MaxPool(x, strides=2), "attribute.value", "must be a list of integers or None, got 2"),
        (lambda b, x: b.Add(x, [[1], [2, 3]]), "constant.data", "cannot become a tensor"),
        (lambda b, x: b.constant(1.5, "string"), "constant.data", "elements must be strings, got float"),
    ],
)
def test_an_error_gives_subject_rule_and_actual_value(call: Any, code: str, message: str) -> None:
    b = Builder()
    with pytest.raises(RuleError) as caught:
        call(b, b.input("x", "f32", (2, 3)))
    assert caught.value.code == code and message in str(caught.value)


def test_numbers_of_numpy_and_booleans_become_those_of_python() -> None:
    concat = REGISTRY["Concat"](axis=np.int32(1))
    assert type(concat.__dict__["axis"]) is int and concat == REGISTRY["Concat"](axis=1)
    cast = REGISTRY["Cast"](to=np.float16)
    assert cast.__dict__["to"] is dtypes.f16
    reduce = REGISTRY["ReduceSum"](keepdims=0)
    assert reduce.__dict__["keepdims"] is False


def test_two_operators_of_one_name_collide() -> None:
    def define(module: str) -> type[Op]:
        return type(Op)("Concat", (Op,), {"__module__": module, "__annotations__": {}}, sig="x: T -> y: T")

    before = REGISTRY["Concat"]
    with pytest.raises(RuleError, match="both define an operator Concat") as caught:
        define("elsewhere")
    assert caught.value.code == "name.taken" and REGISTRY["Concat"] is before
