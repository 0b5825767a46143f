"""Quantized weights in four encodings: each becomes each other one with the same elements, or is refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import dovetail
import oracles
from dovetail import Builder, Model, UnsupportedError, cli
from dovetail.ir import dtypes
from dovetail.passes.encodings import ENCODINGS
from dovetail.passes.exact_activations import FAKE_QUANTIZE, QDQ
from dovetail.passes.exact_encodings import COMPRESSED, MATMULNBITS

OPERATORS = {
    QDQ: "DequantizeLinear",
    FAKE_QUANTIZE: "FakeQuantize",
    MATMULNBITS: "MatMulNBits",
    COMPRESSED: "Multiply",
}
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
"""Properties of OpenVINO, which else rounds the rows to 8 bits."""
REASONS = {
    FAKE_QUANTIZE: ("FakeQuantize divides by", "is no multiple of the block"),
    MATMULNBITS: ("blocks must be multiples of 16",),
    COMPRESSED: ("is no multiple of the block",),
}


class Layer(NamedTuple):
    """A product of ``depth`` with codes of ``dtype``; ``block`` 0 is one scale for each column, -1 one scale for all."""

    dtype: str
    block: int
    has_points: bool
    powers: bool
    depth: int = 96
    columns: int = 7
    transposed: bool = True

    def __str__(self) -> str:
        return "-".join(str(part) for part in self)


def layers() -> Iterator[Layer]:
    for dtype, block, points, powers in product(("i8", "u8", "i4", "u4", "u2"), (-1, 0, 16, 32, 6), (False, True), (False, True)):
        yield Layer(dtype, block, points, powers, transposed=points != powers)
    for dtype, block in product(("i8", "u4"), (0, 16)):
        yield Layer(dtype, block, True, True, depth=37, columns=3)
        yield Layer(dtype, block, False, True, depth=70, columns=1, transposed=False)


def model_of(layer: Layer) -> Model:
    chance = np.random.default_rng([int(part) + 7 for part in layer[1:]])
    kind = dtypes.dtype(layer.dtype)
    low, high = kind.range()
    blocks = -(-layer.depth // layer.block) if layer.block > 0 else 1
    shape = (layer.columns, blocks) if layer.block > 0 else (layer.columns,) if layer.block == 0 else ()
    scales = chance.uniform(0.5, 1, shape).astype(np.float32)
    if layer.powers:
        scales = np.exp2(np.rint(scales * 8 - 6)).astype(np.float32)
    codes, points = (
        chance.integers(low, high + 1, s).astype(np.int16).astype(kind.numpy) for s in ((layer.columns, layer.depth), shape)
    )
    axis = 1 if layer.block > 0 else 0
    if not layer.transposed:
        codes, axis = np.ascontiguousarray(codes.T), 1 - axis
        scales, points = (np.ascontiguousarray(array.T) for array in (scales, points))
    with Builder() as b:
        x = b.input("x", "f32", ("m", layer.depth))
        constants = [b.constant(array) for array in (codes, scales, *([points] if layer.has_points else []))]
        w = b.DequantizeLinear(*constants, axis=axis, block_size=max(layer.block, 0))
        b.output("y", b.MatMul(x, w, transpose_b=layer.transposed))
    return b.model


def operators(model: Model) -> set[str]:
    return {type(node.op).__name__ for node in model.graph.nodes}


def elements(model: Model, depth: int) -> np.ndarray:
    """Return the elements of the weights: rows of one 1 and zeros sum one element each."""
    result: np.ndarray = dovetail.interpret(model, {"x": np.eye(depth, dtype=np.float32)})["y"]
    return result


def forms_of(layer: Layer) -> dict[str, Model]:
    """Return the layer in each encoding that it has."""
    found = {}
    for encoding in ENCODINGS:
        try:
            found[encoding] = dovetail.change_encoding(model_of(layer), encoding)
        except UnsupportedError as error:
            assert error.code == "op.unsayable"
            assert any(reason in str(error) for reason in REASONS[encoding]), str(error)
    return found


@pytest.mark.parametrize("layer", [*layers()], ids=str)
def test_each_encoding_becomes_each_other_one(layer: Layer) -> None:
    want = elements(model_of(layer), layer.depth)
    forms = forms_of(layer)
    assert set(forms) >= {QDQ, *({FAKE_QUANTIZE} if layer.powers and not (layer.block > 0 and layer.depth % layer.block) else ())}
    for model, encoding in product(forms.values(), ENCODINGS):
        if encoding not in forms:
            with pytest.raises(UnsupportedError, match=r"op\.unsayable"):
                dovetail.change_encoding(model, encoding)
            continue
        new = dovetail.change_encoding(model, encoding)
        assert OPERATORS[encoding] in operators(new)
        assert not operators(new) & ({*OPERATORS.values()} - {OPERATORS[encoding], "Multiply"})
        np.testing.assert_array_equal(elements(new, layer.depth), want)
        np.testing.assert_array_equal(dovetail.compile(new)(np.eye(layer.depth, dtype=np.float32))["y"], want)


def is_wrong_in_openvino(layer: Layer) -> bool:
    """OpenVINO 2026.4 computes wrong products of i8 codes in blocks of 6, and of rows of 4 bits that are no whole bytes."""
    return layer.block == 6 or (dtypes.dtype(layer.dtype).bits < 8 and layer.depth % 2 == 1)


COMPARED = [layer for layer in layers() if layer.depth != 96 or layer.has_points or layer.block == 16]


def assert_near(theirs: np.ndarray, model: Model, x: np.ndarray) -> None:
    """Assert that a runtime's product differs by no more than the roundings of the products and the sums in f32."""
    depth = x.shape[1]
    bound = (depth + 4) * np.finfo(np.float32).eps * np.abs(x).max() * np.abs(elements(model, depth)).max()
    np.testing.assert_allclose(theirs, dovetail.interpret(model, {"x": x})["y"], rtol=0, atol=bound)


@pytest.mark.parametrize("layer", COMPARED, ids=str)
def test_onnxruntime_agrees(layer: Layer, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).standard_normal((5, layer.depth)).astype(np.float32)
    for encoding, model in forms_of(layer).items():
        if encoding not in (QDQ, MATMULNBITS) or (encoding == QDQ and layer.dtype == "u2"):
            continue  # onnxruntime 1.32 does not load opset 25, which has u2.
        path = tmp_path / f"{encoding}.onnx"
        dovetail.save(model, path)
        assert OPERATORS[encoding] in operators(dovetail.load(path))
        assert_near(oracles.run_onnxruntime(path.read_bytes(), {"x": x})[0], model, x)


@pytest.mark.parametrize("layer", [layer for layer in COMPARED if not is_wrong_in_openvino(layer)], ids=str)
def test_openvino_agrees(layer: Layer, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    x = np.random.default_rng(0).standard_normal((5, layer.depth)).astype(np.float32)
    for encoding, model in forms_of(layer).items():
        path = tmp_path / f"{encoding}.xml"
        dovetail.save(model, path)
        if encoding in (FAKE_QUANTIZE, COMPRESSED):
            assert OPERATORS[encoding] in operators(dovetail.load(path))
        assert_near(openvino.Core().compile_model(path, "CPU", EXACT)([x])[0], model, x)


def quantizer(dtype: str = "u8", scale: float = 0.05, point: int = 120) -> Model:
    with Builder() as b:
        x = b.input("x", "f32", ("n",))
        parts = b.constant(np.float32(scale)), b.constant(np.array(point).astype(dtypes.dtype(dtype).numpy))
        b.output("y", b.DequantizeLinear(b.QuantizeLinear(x, *parts), *parts))
    return b.model


def fake(low: float, high: float, levels: int = 256, out: tuple[float, float] | None = None) -> Model:
    with Builder() as b:
        limits = [np.float32(limit) for limit in (low, high, *(out or (low, high)))]
        b.output("y", b.FakeQuantize(b.input("x", "f32", ("n",)), *limits, levels=levels))
    return b.model


@pytest.mark.parametrize(
    ("model", "encoding"),
    [
        (quantizer(), FAKE_QUANTIZE),
        (quantizer("i8", 0.25, 3), FAKE_QUANTIZE),
        (quantizer("u8", 0.5, 0), FAKE_QUANTIZE),
        (fake(0, 2.55), QDQ),
        (fake(-128, 127), QDQ),
    ],
)
def test_activations_have_the_same_steps_or_are_refused_with_a_number(model: Model, encoding: str) -> None:
    """FakeQuantize rounds (x - low) / (high - low) * steps, QuantizeLinear x / scale: a step may be one float further."""
    try:
        new = dovetail.change_encoding(model, encoding)
    except UnsupportedError as error:
        x, _, first, second = str(error).split("steps are at other numbers: ")[1].replace(" and ", " ").split()[:4]
        theirs = dovetail.run(model, {"x": np.float32([x])})["y"][0]
        assert theirs == np.float32(first) != np.float32(second)
        return
    x = np.random.default_rng(0).uniform(-200, 200, 100_000).astype(np.float32)
    np.testing.assert_array_equal(dovetail.run(new, {"x": x})["y"], dovetail.run(model, {"x": x})["y"])


@pytest.mark.parametrize(
    ("model", "encoding", "reason"),
    [
        (fake(-1, 1, out=(-2, 2)), QDQ, "the output range the same"),
        (fake(1, -1), QDQ, "ascending"),
        (fake(0, 1, 255), QDQ, "4, 16 or 256 levels"),
        (fake(0, 1, 1000), QDQ, "at most 256 levels"),
        (fake(1, 2), QDQ, "the range must contain 0"),
        (quantizer("u16", 0.05, 120), FAKE_QUANTIZE, "at most 8 bits"),
    ],
)
def test_activations_without_the_other_form_are_refused(model: Model, encoding: str, reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason):
        dovetail.change_encoding(model, encoding)
    kept = dovetail.change_encoding(model, encoding, keeps_others=True)
    assert operators(kept) == operators(model)


def weight(build: Any) -> Model:
    with Builder() as b:
        b.output("y", build(b, b.input("x", "f32", ("n", 32))))
    return b.model


W = np.arange(64, dtype=np.int8).reshape(32, 2)
HALF = np.float32(0.5)
REFUSED: dict[str, tuple[str, str, Any]] = {
    "g_idx": (QDQ, "g_idx assigns positions to blocks in another order", lambda b, x: b.MatMulNBits(
        x, np.ones((2, 2, 8), np.uint8), np.ones((2, 2), np.float32), None, np.int32([1, 0] * 16), k=32, n=2, block_size=16)),
    "zero points of floats": (QDQ, "its zero points must be u4, got 7.5 to 7.5", lambda b, x: b.MatMulNBits(
        x, np.ones((2, 1, 16), np.uint8), np.ones((2, 1), np.float32), np.full((2, 1), 7.5, np.float32), k=32, n=2)),
    "weights that are no constants": (QDQ, "its weights must be constants", lambda b, x: b.MatMulNBits(
        x, b.input("w", "u8", (2, 1, 16)), np.ones((2, 1), np.float32), k=32, n=2)),
    "codes that are gathered": (COMPRESSED, "its codes are computed by Gather", lambda b, x: b.Add(x, b.DequantizeLinear(
        b.Gather(np.ones((4, 32), np.int8), b.input("i", "i64", (1,)), axis=0), HALF))),
    "nf4": (QDQ, "does not dequantize nf4", lambda b, x: b.MatMul(
        x, b.Multiply(b.Cast(b.constant(W.view(np.uint8) % 16, "nf4"), to="f32", source="nf4"), HALF))),
    "f8": (MATMULNBITS, "integers of 2, 4 or 8 bits, got f8e5m2", lambda b, x: b.MatMul(
        x, b.DequantizeLinear(W.astype(dtypes.dtype("f8e5m2").numpy), HALF))),
    "codes of 32 bits": (COMPRESSED, "codes must have at most 8 bits, got i32", lambda b, x: b.Add(
        x, b.DequantizeLinear(np.arange(32, dtype=np.int32), HALF))),
    "a scalar": (COMPRESSED, "codes must have at least 1 axis, got a scalar", lambda b, x: b.Add(
        x, b.DequantizeLinear(b.constant(np.int8(3)), HALF))),
    "two readers": (MATMULNBITS, "other operators than products read the weight", lambda b, x: b.Add(
        b.MatMul(x, w := b.DequantizeLinear(W, HALF)), b.ReduceSum(w, [0]))),
    "f16": (MATMULNBITS, "elements rounded to f16", lambda b, x: b.MatMul(
        x, b.Cast(b.Multiply(b.Cast(b.constant(W), to="f16"), np.float16(0.3)), to="f32"))),
    "two roundings": (QDQ, "round more than once", lambda b, x: b.Cast(b.MatMul(
        b.Cast(x, to="f16"), b.Cast(b.Multiply(b.Cast(b.constant(W), to="f32"), HALF), to="f16")), to="f32")),
    "levels": (QDQ, "integers of at most 8 bits", lambda b, x: b.MatMul(
        x, b.FakeQuantize(W.astype(np.float32), np.float32(0), np.float32(1), np.float32(0), HALF, levels=1000))),
    "an uneven grid": (QDQ, "its elements are not exactly", lambda b, x: b.MatMul(
        x, b.FakeQuantize(W.astype(np.float32), np.float32(0), np.float32(63), np.float32(0.1), np.float32(0.7), levels=64))),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_obstacles_have_names(name: str) -> None:
    encoding, reason, build = REFUSED[name]
    model = weight(build)
    with pytest.raises(UnsupportedError, match=reason):
        dovetail.change_encoding(model, encoding)
    assert operators(dovetail.change_encoding(model, encoding, keeps_others=True)) == operators(model)


def test_all_refusals_are_listed_and_names_are_checked() -> None:
    def build(b: Builder, x: Any) -> Any:
        parts = [b.MatMul(x, b.DequantizeLinear(W.astype(dtypes.dtype("f8e5m2").numpy), HALF)) for _ in range(2)]
        return b.Add(*parts)

    with pytest.raises(UnsupportedError) as caught:
        dovetail.change_encoding(weight(build), MATMULNBITS)
    assert len(caught.value.diagnostics) == 2
    with pytest.raises(dovetail.RuleError, match=r"argument\.value.*qdq"):
        dovetail.change_encoding(weight(build), "qqd")


def test_products_that_share_a_weight_share_its_packed_form() -> None:
    def build(b: Builder, x: Any) -> Any:
        w = b.DequantizeLinear(W, HALF)
        return b.Add(b.MatMul(x, w), b.Gemm(x, w, np.float32([1, 2])))

    new = dovetail.change_encoding(weight(build), MATMULNBITS)
    assert Counter(type(node.op).__name__ for node in new.graph.nodes)["MatMulNBits"] == 2
    assert len([value for value in new.graph.values() if value.constant is not None and value.dtype == "u8"]) == 1
    np.testing.assert_array_equal(elements(new, 32), elements(weight(build), 32))


def command(*words: object) -> int:
    """Return the exit code of a command."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(word) for word in words])
    assert isinstance(caught.value.code, int)
    return caught.value.code


@pytest.mark.parametrize("kind", ["f16", "f32"])
def test_weights_of_openvino_are_dequantized_in_onnx(kind: str, tmp_path: Path) -> None:
    """Models with compressed weights multiply in f16 and round to it; DequantizeLinear with scales of f16 does so too."""
    chance = np.random.default_rng(0)
    codes = chance.integers(0, 16, (6, 4, 32)).astype(np.uint8).astype(dtypes.dtype("u4").numpy)
    points = chance.integers(0, 16, (6, 4, 1)).astype(np.uint8).astype(dtypes.dtype("u4").numpy)
    scales = chance.uniform(0.01, 1, (6, 4, 1)).astype(dtypes.dtype(kind).numpy)
    with Builder() as b:
        x = b.input("x", "f32", ("n", 128))
        w = b.Multiply(b.Subtract(b.Cast(b.constant(codes), to=kind), b.Cast(b.constant(points), to=kind)), b.constant(scales))
        b.output("y", b.MatMul(x, b.Cast(b.Reshape(w, [6, 128]), to="f32"), transpose_b=True))
    source, target = tmp_path / "m.xml", tmp_path / "m.onnx"
    dovetail.save(b.model, source)
    # OpenVINO, as the engine, does not round weights to f16, and onnxruntime does: 2^-11 of each element.
    assert command("convert", source, target, "--verify", "--tolerance", "1e-3" if kind == "f16" else "1e-5") == 0
    new = dovetail.load(target)
    assert "DequantizeLinear" in operators(new) and "Subtract" not in operators(new)
    np.testing.assert_array_equal(elements(new, 128), elements(b.model, 128))
    assert command("convert", target, source, "--encoding", "compressed") == 0
    np.testing.assert_array_equal(elements(dovetail.load(source), 128), elements(b.model, 128))


def test_the_command_refuses_inexact_encodings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "new.onnx"
    dovetail.save(quantizer(), source)
    assert command("convert", source, target, "--encoding", "fakequantize") == 4
    assert "steps are at other numbers" in capsys.readouterr().err
    assert not target.exists()
    assert command("convert", source, target, "--encoding", "qdq", "--stateless") == 2
