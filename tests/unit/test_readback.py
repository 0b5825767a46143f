"""A fault of an exporter writes no file: the bytes to write are imported again, and their types compared with the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.openvino.converters import OPENVINO
from dovetail.formats.readback import contradicts
from dovetail.ir.types import Sequence, Tensor

FORMATS = {"m.onnx": (ONNX, 13), "m.xml": (OPENVINO, 1)}


def joining() -> dovetail.Model:
    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3))
        b.output("y", b.Concat(x, x, axis=1))
    return b.model


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("axis", [0, 5])
def test_a_wrong_attribute_is_not_written(name: str, axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, version = FORMATS[name]

    def wrong(ctx: Any, node: Any) -> Any:
        keys = [ctx.key(x) for x in node.inputs]
        return [ctx.add_node(node, "", "Concat", version, keys, {"axis": axis if name == "m.onnx" else str(axis)})]

    monkeypatch.setitem(dialect.exporters, "Concat", wrong)
    with pytest.raises(UnsupportedError) as caught:
        dovetail.save(joining(), tmp_path / name)
    assert {item.code for item in caught.value.diagnostics} == {"write.mismatch"}
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    dovetail.save(joining(), tmp_path / name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_wrong_type_inside_a_model_with_right_outputs_is_not_written(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IR has no names of sizes, and a second export declares the type that the first one has in the file."""
    dialect, version = FORMATS[name]

    def wrong(ctx: Any, node: Any) -> Any:
        keys = [ctx.key(x) for x in node.inputs][:1]
        return [ctx.add_node(node, "", "Concat", version, keys, {"axis": 0 if name == "m.onnx" else "0"})]

    with dovetail.Builder() as b:
        x = b.input("x", "f32", ("n", 3))
        b.output("y", b.ReduceSum(b.Concat(x, np.ones((1, 3), np.float32), axis=0), [0]))
    monkeypatch.setitem(dialect.exporters, "Concat", wrong)
    with pytest.raises(UnsupportedError, match=r"f32\[n \+ 1, 3\], got f32\[n, 3\]") as caught:
        dovetail.save(b.model, tmp_path / name)
    assert {item.code for item in caught.value.diagnostics} == {"write.mismatch"}
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    dovetail.save(b.model, tmp_path / name)


@pytest.mark.parametrize("name", FORMATS)
def test_a_rewriting_that_changes_a_type_is_not_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect, _ = FORMATS[name]
    monkeypatch.setitem(
        dialect.legalizations, "Concat", lambda b, node: b.Cast(b.add(node.op, *node.inputs)[0], to=dovetail.ir.dtypes.f64)
    )
    with pytest.raises(UnsupportedError) as caught:
        dovetail.save(joining(), tmp_path / name)
    assert caught.value.code == "write.mismatch" and "f32[n, 6]" in caught.value.message
    assert not list(tmp_path.iterdir())


def test_types_contradict_where_they_are_known_to_differ() -> None:
    n, other, unknown = (dovetail.ir.symbolic.symbol(name) for name in ("n", "m", "?y.0"))
    f32, i64 = dovetail.ir.dtypes.f32, dovetail.ir.dtypes.i64

    def sizes(*shape: Any) -> Tensor:
        return Tensor(f32, shape)

    differing = [
        (sizes(2), sizes(3)), (sizes(2), sizes(2, 1)), (sizes(n), sizes(n + 1)), (sizes(2), Tensor(i64, (2,))),
        (Sequence(sizes(2)), sizes(2)), (Sequence(sizes(2)), Sequence(sizes(3))),
    ]  # fmt: skip
    alike = [
        (sizes(2), sizes(n)), (sizes(n), sizes(other)), (sizes(unknown), sizes(unknown + 1)), (sizes(2), Tensor(f32, None)),
        (sizes(2), Tensor(None, (2,))), (sizes(None), sizes(4)),
    ]  # fmt: skip
    assert all(contradicts(*pair) and contradicts(*reversed(pair)) for pair in differing)
    assert not any(contradicts(*pair) or contradicts(*reversed(pair)) for pair in alike)


@pytest.mark.parametrize("name", FORMATS)
def test_the_readback_check_does_not_change_the_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dovetail.save(joining(), tmp_path / name)
    checked = (tmp_path / name).read_bytes()
    for module in ("onnx", "openvino"):
        monkeypatch.setattr(f"dovetail.formats.{module}.write.check_readback", lambda *rest: None)
    dovetail.save(joining(), tmp_path / name)
    assert (tmp_path / name).read_bytes() == checked


LOOP = """<ir_version: 8, opset_import: ["": 13]> agraph (int64 n) => (float[k] ys) {
    ys = Loop (n, ) <body: graph = b (int64 i, bool c) => (bool c2, float e) { c2 = Identity (c) e = Cast <to = 1> (i) }> }"""


def test_inputs_that_are_left_out_are_counted(tmp_path: Path) -> None:
    """A Loop without a condition and without states has two inputs all the same."""
    onnx.save(onnx.parser.parse_model(LOOP), tmp_path / "a.onnx")
    model = dovetail.load(tmp_path / "a.onnx")
    dovetail.save(model, tmp_path / "b.onnx")
    written = onnx.load(tmp_path / "b.onnx")
    onnx.checker.check_model(written, full_check=True)
    assert list(written.graph.node[0].input) == ["n", ""]
    found = dovetail.run(tmp_path / "b.onnx", {"n": np.int64(3)})["ys"]
    np.testing.assert_array_equal(found, [0, 1, 2])
    # The first version of Loop has a state at least.
    with pytest.raises(UnsupportedError, match=r"op\.unsayable.* at least 3 inputs"):
        dovetail.save(model, tmp_path / "c.onnx", opset=10)
