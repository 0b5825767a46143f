"""Products with weights of few bits: the kernel that decodes them, against the interpreter, onnxruntime and OpenVINO."""

from __future__ import annotations

import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import Builder, Model, Value, cli
from dovetail.engine.engine import Engine
from dovetail.engine.rewrite.compressed_product import CompressedMatMul
from dovetail.engine.step_profile import profile_steps
from dovetail.ir import dtypes
from dovetail.ir.host import native_core
from dovetail.ir.packed_elements import PackedElements
from dovetail.measure import node_measures

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")

DEPTH, COLUMNS = 96, 70
ROWS = (1, 3, 8, 40)
RNG = np.random.default_rng(0)
SCALES = RNG.uniform(0.5, 1, (COLUMNS, 256)).astype(np.float32)
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
"""Properties of OpenVINO, which else rounds the rows to 8 bits."""
Product = Callable[[Builder, Value], Value]


def codes_of(dtype: str, *shape: int) -> np.ndarray:
    """Return random codes, one for each byte."""
    if dtype in ("f8e4m3", "f8e5m2", "f4e2m1", "f16", "bf16"):
        return RNG.standard_normal(shape).astype(dtypes.dtype(dtype).numpy)
    low, high = {"u4": (0, 16), "i4": (-8, 8), "nf4": (0, 16), "u2": (0, 4), "i2": (-2, 2), "u8": (0, 256), "i8": (-128, 128)}[
        dtype
    ]
    return RNG.integers(low, high, shape).astype(np.int16).astype(dtypes.dtype(dtype).numpy)


def blocks(dtype: str, kind: str = "f32", points: bool = False, block: int = 32) -> Product:
    """Cast, Subtract, Multiply and Reshape, as OpenVINO's models have them."""
    shape = (COLUMNS, DEPTH // block)
    codes, offsets = codes_of(dtype, *shape, block), codes_of(dtype, *shape, 1)
    scales = SCALES[:, : shape[1], None].astype(dtypes.dtype(kind).numpy)
    source = {"source": dtype} if dtype == "nf4" else {}

    def build(b: Builder, x: Value) -> Value:
        w = b.Cast(b.constant(codes, dtype), to=kind, **source)
        if points:
            w = b.Subtract(w, b.Cast(b.constant(offsets, dtype), to=kind))
        w = b.Reshape(b.Multiply(w, b.constant(scales)), [COLUMNS, DEPTH])
        return b.MatMul(x, w if kind == "f32" else b.Cast(w, to="f32"), transpose_b=True)

    return build


def channels(dtype: str, points: bool = False, transposes: bool = False) -> Product:
    """One scale for each column; with ``transposes`` a Transpose is before the product, and a bias and Relu behind it."""
    codes, offsets = codes_of(dtype, COLUMNS, DEPTH), codes_of(dtype, COLUMNS, 1)
    bias = RNG.standard_normal(COLUMNS).astype(np.float32)

    def build(b: Builder, x: Value) -> Value:
        w = b.Cast(b.constant(codes, dtype), to="f32")
        if points:
            w = b.Subtract(w, b.Cast(b.constant(offsets, dtype), to="f32"))
        w = b.Multiply(w, b.constant(SCALES[:, :1]))
        return b.Relu(b.Add(b.MatMul(x, b.Transpose(w)), bias)) if transposes else b.MatMul(x, w, transpose_b=True)

    return build


def dequantized(dtype: str, block: int = 0, points: bool = False) -> Product:
    """DequantizeLinear, with blocks of ONNX 21 or by column."""
    codes = codes_of(dtype, DEPTH, COLUMNS)
    scales = np.ascontiguousarray(SCALES.T[: DEPTH // block]) if block else SCALES[:, 0]
    offsets = [codes_of(dtype, *scales.shape)] if points else []

    def build(b: Builder, x: Value) -> Value:
        attributes = {"axis": 0, "block_size": block} if block else {"axis": 1}
        more = [b.constant(array, dtype) for array in offsets]
        return b.MatMul(x, b.DequantizeLinear(b.constant(codes, dtype), scales, *more, **attributes))

    return build


def plain(dtype: str) -> Product:
    codes = codes_of(dtype, DEPTH, COLUMNS)
    return lambda b, x: b.MatMul(x, b.Cast(b.constant(codes), to="f32"))


def packed(bits: int, points: str = "", depth: int = DEPTH, block: int = 32, **more: Any) -> Product:
    count = -(-depth // block)
    codes = RNG.integers(0, 256, (COLUMNS, count, block * bits // 8)).astype(np.uint8)
    scales = SCALES[:, :count]
    offsets = []
    if points == "codes":
        offsets = [RNG.integers(0, 256, (COLUMNS, -(-count * bits // 8))).astype(np.uint8)]
    if points == "floats":
        offsets = [RNG.uniform(0, 2**bits, (COLUMNS, count)).astype(np.float32)]

    def build(b: Builder, x: Value) -> Value:
        constants = [b.constant(array) for array in (codes, np.ascontiguousarray(scales), *offsets)]
        return b.MatMulNBits(x, *constants, k=depth, n=COLUMNS, bits=bits, block_size=block, **more)

    return build


PRODUCTS: dict[str, Product] = {
    "u4 in blocks with zero points": blocks("u4", points=True),
    "u4 in blocks": blocks("u4"),
    "i4 in blocks": blocks("i4", points=True),
    "nf4 in blocks": blocks("nf4"),
    "f4 in blocks": blocks("f4e2m1"),
    "u2 in blocks": blocks("u2", points=True),
    "u8 in blocks": blocks("u8", points=True),
    "i8 in blocks of 6": blocks("i8", points=True, block=6),
    "i4 in blocks of 3": blocks("i4", block=3 * 4),
    "i8 by column": channels("i8"),
    "u8 by column with zero points": channels("u8", points=True),
    "u4 by column": channels("u4", points=True),
    "i8 transposed": channels("i8", transposes=True),
    "f8e4m3 by column": channels("f8e4m3"),
    "f8e5m2 by column": channels("f8e5m2"),
    "DequantizeLinear of u4 in blocks": dequantized("u4", 32, points=True),
    "DequantizeLinear of i4 in blocks": dequantized("i4", 16),
    "DequantizeLinear of i8 by column": dequantized("i8"),
    "DequantizeLinear of u8 by column": dequantized("u8", points=True),
    "f16": plain("f16"),
    "bf16": plain("bf16"),
    **{f"MatMulNBits {bits} {points}": packed(bits, points) for bits in (2, 4, 8) for points in ("", "codes", "floats")},
}


WRITTEN_AS_IR = [name for name in PRODUCTS if not name.startswith(("MatMulNBits 2", "f4"))]
WRITTEN_AS_IR.remove("i8 in blocks of 6")  # of which OpenVINO computes other sums than numpy


def model_of(product: Product, depth: int = DEPTH) -> Model:
    with Builder() as b:
        b.output("y", product(b, b.input("x", "f32", ("n", depth))))
    return b.model


def rows_of(count: int, depth: int = DEPTH) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, depth)).astype(np.float32)


def assert_compressed(model: Model, x: np.ndarray) -> None:
    """Assert that the engine runs one native product with the weights as they are stored."""
    bound, _ = Engine(model).bind({"x": x})
    assert not bound.python_steps
    (step,) = (step for step in bound.native_steps if step.kernel != "copy")
    assert step.kernel == "matmul" and "format" in step.attributes


def assert_near(found: np.ndarray, want: np.ndarray, depth: int = DEPTH) -> None:
    """Assert that two results differ by no more than the roundings of ``depth`` products and sums in f32."""
    bound = (depth + 4) * np.finfo(np.float32).eps * np.abs(want).max()
    np.testing.assert_allclose(found, want, rtol=0, atol=bound)


@pytest.mark.parametrize("name", PRODUCTS)
def test_weights_of_few_bits_are_decoded_in_the_product(name: str) -> None:
    model = model_of(PRODUCTS[name])
    program, reference = dovetail.compile(model), dovetail.compile(model, "interpreter")
    for count in ROWS:
        x = rows_of(count)
        assert_near(program(x)["y"], reference(x)["y"])
    assert_compressed(model, rows_of(1))


@pytest.mark.parametrize("name", WRITTEN_AS_IR)
def test_openvino_computes_the_same_from_the_written_weights(name: str, tmp_path: Path) -> None:
    openvino = pytest.importorskip("openvino")
    model = model_of(PRODUCTS[name])
    dovetail.save(model, tmp_path / "m.xml")
    compiled = openvino.Core().compile_model(tmp_path / "m.xml", "CPU", EXACT)
    again = dovetail.load(tmp_path / "m.xml")
    for count in (1, 8):
        x = rows_of(count)
        assert_near(dovetail.compile(again)(x)[0], compiled([x])[0])
    assert_compressed(model, rows_of(1))


@pytest.mark.parametrize("name", [name for name in PRODUCTS if name.startswith(("MatMulNBits", "Dequantize"))])
def test_onnxruntime_computes_the_same(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if name == "MatMulNBits 8 floats":
        pytest.skip("onnxruntime takes zero points of 8 bits as codes only")
    model = model_of(PRODUCTS[name])
    dovetail.save(model, tmp_path / "m.onnx")
    options = onnxruntime.SessionOptions()
    # By default onnxruntime rounds the rows to 8 bits in products of DequantizeLinear.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "0")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    for count in (1, 8):
        x = rows_of(count)
        assert_near(dovetail.compile(model)(x)["y"], session.run(None, {"x": x})[0])


@pytest.mark.parametrize("depth", [1, 15, 16, 17, 100, 1600, 3000])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_depths_that_do_not_fill_a_block_or_a_word(bits: int, depth: int) -> None:
    model = model_of(packed(bits, "codes" if depth % 2 else "", depth, 512 if depth > 1000 else 16), depth)
    program, reference = dovetail.compile(model), dovetail.compile(model, "interpreter")
    for count in (*ROWS, 60):
        x = rows_of(count, depth)
        assert_near(program(x)["y"], reference(x)["y"], depth)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e-44])
@pytest.mark.parametrize("name", ["u4 in blocks with zero points", "i8 by column", "MatMulNBits 4 codes", "f16", "nf4 in blocks"])
def test_extreme_inputs_have_the_answer_of_the_operators(name: str, value: float) -> None:
    model = model_of(PRODUCTS[name])
    program, reference = dovetail.compile(model), dovetail.compile(model, "interpreter")
    for count in (1, 3, 40):
        x = rows_of(count)
        x[0, 5] = value
        found, want = program(x)["y"], reference(x)["y"]
        np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
        np.testing.assert_array_equal(np.isposinf(found), np.isposinf(want))
        finite = np.isfinite(want)
        np.testing.assert_allclose(found[finite], want[finite], rtol=1e-5, atol=1e-5 * np.abs(want[finite]).max(initial=0))


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, 1e-44, 3e38])
def test_extreme_scales_have_the_answer_of_the_operators(scale: float) -> None:
    scales = SCALES[:, :3].copy()
    scales[3, 1] = scale
    codes = RNG.integers(0, 256, (COLUMNS, 3, 16)).astype(np.uint8)
    with Builder() as b:
        x = b.input("x", "f32", ("n", DEPTH))
        b.output("y", b.MatMulNBits(x, b.constant(codes), b.constant(scales), k=DEPTH, n=COLUMNS))
    x = rows_of(3)
    found, want = dovetail.compile(b.model)(x)["y"], dovetail.compile(b.model, "interpreter")(x)["y"]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("entry", [-1, 3])
@pytest.mark.parametrize("engine", ["native", "interpreter"])
def test_entries_of_g_idx_outside_the_blocks_are_refused(engine: str, entry: int, is_constant: bool) -> None:
    entries = np.arange(70, dtype=np.int32) // 32
    entries[5] = entry
    with Builder() as b:
        x, constants = b.input("x", "f32", (2, 70)), (b.constant(np.ones((5, 3, 16), np.uint8)), b.constant(SCALES[:5, :3]))
        g_idx = b.constant(entries) if is_constant else b.input("g_idx", "i32", (70,))
        b.output("y", b.MatMulNBits(x, *constants, None, g_idx, k=70, n=5))
    inputs = [rows_of(2, 70), *([] if is_constant else [entries])]
    with pytest.raises(dovetail.DovetailError, match=r"index\.range"):
        dovetail.compile(b.model, engine)(*inputs)


@pytest.mark.parametrize("is_natural", [True, False])
def test_weights_with_a_natural_g_idx_stay_in_few_bits(is_natural: bool) -> None:
    entries = np.arange(DEPTH, dtype=np.int32) // 32 if is_natural else np.arange(DEPTH, dtype=np.int32) % 3
    codes = RNG.integers(0, 256, (COLUMNS, 3, 16)).astype(np.uint8)
    with Builder() as b:
        constants = [b.constant(array) for array in (codes, np.ascontiguousarray(SCALES[:, :3]))]
        b.output("y", b.MatMulNBits(b.input("x", "f32", ("n", DEPTH)), *constants, None, entries, k=DEPTH, n=COLUMNS))
    assert any(isinstance(node.op, CompressedMatMul) for node in Engine(b.model).graph.nodes) == is_natural
    x = rows_of(3)
    assert_near(dovetail.compile(b.model)(x)["y"], dovetail.compile(b.model, "interpreter")(x)["y"])


def test_batches_residuals_and_f16_inputs() -> None:
    product = PRODUCTS["MatMulNBits 4 codes"]
    with Builder() as b:
        first, second = b.input("x", "f32", ("b", 3, DEPTH)), b.input("r", "f32", ("b", 3, COLUMNS))
        b.output("y", b.Add(b.Relu(product(b, first)), second))
    with Builder() as half:
        rows = half.input("x", "f16", ("b", 3, DEPTH))
        codes, scales = codes_of("i8", DEPTH, COLUMNS), SCALES[:, 0].astype(np.float16)
        half.output("y", half.MatMul(rows, half.Multiply(half.Cast(half.constant(codes), to="f16"), half.constant(scales))))
    for batch in (1, 2, 5, 30):
        x, r = rows_of(batch * 3).reshape(batch, 3, DEPTH), RNG.standard_normal((batch, 3, COLUMNS)).astype(np.float32)
        assert_near(dovetail.compile(b.model)(x, r)["y"], dovetail.compile(b.model, "interpreter")(x, r)["y"])
        x = x.astype(np.float16)
        found, want = dovetail.compile(half.model)(x)["y"], dovetail.compile(half.model, "interpreter")(x)["y"]
        # The weights are not rounded to f16.
        np.testing.assert_allclose(found.astype(float), want.astype(float), atol=2**-10 * np.abs(want).max())


BYTE_ROWS = [
    *(f"MatMulNBits {bits} {points}" for bits in (2, 4, 8) for points in ("", "codes", "floats")),
    "i4 in blocks", "u8 in blocks", "i8 by column", "DequantizeLinear of u4 in blocks",
]  # fmt: skip


@pytest.mark.parametrize("name", BYTE_ROWS)
def test_rows_are_rounded_to_8_bits_on_request(name: str) -> None:
    """Each row and block differs by at most half a step of 1 / 127 of its greatest magnitude."""
    model = model_of(PRODUCTS[name])
    program = dovetail.compile(model, precision="int8")
    exact = dovetail.compile(model, "interpreter")
    engine = Engine(model, precision="int8")
    (node,) = (node for node in engine.graph.nodes if isinstance(node.op, CompressedMatMul))
    assert isinstance(node.op, CompressedMatMul) and node.op.rows == "int8"
    codes, scales, *points = (value.constant for value in node.inputs[1:])
    weights = node.op.evaluate(np, np.eye(DEPTH, dtype=np.float32), codes, scales, *points)
    for count in ROWS:
        x = rows_of(count)
        x[count // 2, :40] = 0
        found, want = program(x)["y"], exact(x)["y"]
        limits = np.stack([np.abs(x[:, at : at + node.op.block]).max(1) for at in range(0, DEPTH, node.op.block)], 1)
        steps = np.repeat(limits / 254, node.op.block, 1)[:, :DEPTH]
        assert np.all(np.abs(found - want) <= steps @ np.abs(weights) + 1e-4)
        assert_near(found, node.op.evaluate(np, x, codes, scales, *points))


@pytest.mark.parametrize(("bits", "block"), [(2, 32), (4, 16), (4, 32), (4, 128), (8, 32)])
def test_accuracy_level_4_rounds_rows_as_onnxruntime_does(bits: int, block: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = model_of(packed(bits, "codes", 256, block, accuracy_level=4), 256)
    dovetail.save(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 2, 9):
        x = rows_of(count, 256)
        found = dovetail.compile(model)(x)["y"]
        assert_near(found, session.run(None, {"x": x})[0], 256)
        exact = dovetail.compile(model, precision="f32")(x)["y"]
        assert_near(exact, dovetail.compile(model, "interpreter")(x)["y"], 256)
        assert np.abs(found - exact).max() > 1e-4


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_rows_that_are_not_finite_are_not_rounded(value: float) -> None:
    model = model_of(PRODUCTS["MatMulNBits 4 codes"])
    x = rows_of(3)
    x[1, 7] = value
    found, want = dovetail.compile(model, precision="int8")(x)["y"], dovetail.compile(model, "interpreter")(x)["y"]
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(want))


def test_bf16_is_refused_where_the_processor_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of(packed(4))
    monkeypatch.setattr(native_core, "has_bf16", lambda: False)
    with pytest.raises(dovetail.EngineError, match="AVX512-BF16"):
        dovetail.compile(model, precision="bf16")
    x = rows_of(2)
    np.testing.assert_array_equal(dovetail.compile(model, precision="auto")(x)["y"], dovetail.compile(model)(x)["y"])


def test_the_command_line_and_the_plan_cache_keep_precisions_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, x = tmp_path / "m.onnx", rows_of(3)
    dovetail.save(model_of(PRODUCTS["MatMulNBits 4 codes"]), path)
    np.save(tmp_path / "x.npy", x)
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(tmp_path / "cache"))
    found: dict[str, np.ndarray] = {}
    for precision in ("f32", "int8", "f32", "int8"):
        want = dovetail.compile(str(path), precision=precision)(x)["y"]
        with pytest.raises(SystemExit):
            cli.main(["run", str(path), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy"), "--precision", precision])
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)
        np.testing.assert_array_equal(found.setdefault(precision, want), want)
    assert np.abs(found["f32"] - found["int8"]).max() > 1e-4


def test_rows_of_a_dataset_are_computed_in_the_precision_of_the_job(tmp_path: Path) -> None:
    path, x = tmp_path / "m.onnx", rows_of(40)
    dovetail.save(model_of(PRODUCTS["MatMulNBits 4 codes"]), path)
    np.save(tmp_path / "x.npy", x)
    for precision in ("f32", "int8"):
        words = ["map", str(path), str(tmp_path / "x.npy"), "-o", str(tmp_path / precision), "--workers", "1", "--batch", "8"]
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--precision", precision])
        assert ended.value.code == 0
        found = np.concatenate([np.load(part) for part in sorted((tmp_path / precision / "y").iterdir())])
        program = dovetail.compile(str(path), precision=precision)
        np.testing.assert_array_equal(found, np.concatenate([program(x[start : start + 8])["y"] for start in range(0, 40, 8)]))
    with pytest.raises(dovetail.EngineError, match=r"folder\.resume.*precision 'int8', now 'f32'"):
        mapper = dovetail.Mapper(path, batch=8, precision="f32")
        dovetail.map_rows(mapper, tmp_path / "x.npy", tmp_path / "int8", workers=1)
    with pytest.raises(dovetail.EngineError, match=r"argument\.value"):
        dovetail.Mapper(path, precision="i8")


def test_a_picture_has_the_times_of_the_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, found = tmp_path / "m.onnx", []
    dovetail.save(model_of(PRODUCTS["MatMulNBits 4 codes"]), path)

    def profile(*arguments: Any, precision: str | None) -> Any:
        found.append(precision)
        return profile_steps(*arguments, precision=precision)

    monkeypatch.setattr(node_measures, "profile_steps", profile)
    words = ["draw", str(path), "-o", str(tmp_path / "m.svg"), "--color", "time", "--dim", "n=4"]
    for precision in ("int8", "f32"):
        with pytest.raises(SystemExit) as ended:
            cli.main([*words, "--precision", precision])
        assert ended.value.code == 0
    assert found == ["int8", "f32"]


def test_packed_weights_with_derived_scales_stay_in_their_process() -> None:
    """Other processes import packed weights by the offsets of constants in a file. An address is valid in one process only."""
    x = rows_of(2)
    for has_scales_in_base in (True, False):
        engine = Engine(model_of(PRODUCTS["i8 by column"]))
        (node,) = (node for node in engine.graph.nodes if isinstance(node.op, CompressedMatMul))
        addresses = [value.constant.__array_interface__["data"][0] for value in node.inputs[1:]]
        first, last = min(addresses), max(addresses) + (1 << 20)
        engine._weight_cache.set_base(*((first, last - first) if has_scales_in_base else (addresses[0], DEPTH * COLUMNS)))
        engine({"x": x})
        assert len(engine._weight_cache.export_floats()) == has_scales_in_base


def test_precisions_that_do_not_exist_are_refused() -> None:
    model = model_of(PRODUCTS["f16"])
    with pytest.raises(dovetail.EngineError, match="precision must be one of f32, bf16, int8, auto, got 'i8'"):
        dovetail.compile(model, precision="i8")
    with pytest.raises(dovetail.EngineError, match="native engine"):
        dovetail.compile(model, "interpreter", precision="int8")


def test_compiled_weights_take_as_many_bytes_as_the_file_has() -> None:
    model = model_of(packed(4, depth=4096), 4096)
    engine = Engine(model)
    engine.bind({"x": rows_of(1, 4096)})
    stored = sum(value.constant.nbytes for value in model.graph.values() if value.constant is not None)
    assert engine.packed_bytes <= 1.2 * stored


MEMORY = """
import sys
from pathlib import Path
import numpy as np
import dovetail

def status(field):
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))

first, path = sys.argv[1:]
dovetail.compile(first)(np.zeros((1, 1024), np.float32))
Path("/proc/self/clear_refs").write_text("5")
before = status("VmRSS:")
dovetail.compile(dovetail.load(path, map="always"))(np.zeros((1, 1024), np.float32))
print(1024 * (status("VmHWM:") - before))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the system has no peak of resident memory")
@pytest.mark.parametrize(("encoding", "suffix"), [("matmulnbits", "onnx"), ("qdq", "onnx"), ("compressed", "xml")])
def test_memory_of_a_compiled_model_is_that_of_its_packed_weights(encoding: str, suffix: str, tmp_path: Path) -> None:
    """The pages of the file are returned to the system as the weights are packed."""
    for name, layers in (("first", 1), ("model", 48)):
        with Builder() as b:
            x = b.input("x", "f32", ("n", 1024))
            for _ in range(layers):
                codes, scales = RNG.integers(0, 256, (1024, 32, 16)).astype(np.uint8), RNG.uniform(0, 0.01, (1024, 32))
                x = b.MatMulNBits(x, b.constant(codes), b.constant(scales.astype(np.float32)), k=1024, n=1024)
            b.output("y", x)
        dovetail.save(dovetail.change_encoding(b.model, encoding), tmp_path / f"{name}.{suffix}")
    words = [sys.executable, "-c", MEMORY, *(str(tmp_path / f"{name}.{suffix}") for name in ("first", "model"))]
    found = subprocess.run(words, capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 1.2 * sum(file.stat().st_size for file in tmp_path.glob("model.*"))


FEW_BITS = {"onnx": ("u2", "i2", "u4", "i4", "f4e2m1"), "xml": ("u2", "u4", "i4", "nf4", "f4e2m1")}


@pytest.mark.parametrize("sizes", [(96, 70), (96, 69), (95, 70), (95, 69), (7, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize(("suffix", "dtype"), [(suffix, dtype) for suffix, names in FEW_BITS.items() for dtype in names])
def test_products_of_packed_weights_have_the_bits_of_unpacked_ones(
    suffix: str, dtype: str, is_transposed: bool, sizes: tuple[int, int], tmp_path: Path
) -> None:
    """Constants of a file stay packed; those of a builder have one element per byte. Odd sizes end within a byte."""
    depth, columns = sizes
    codes = codes_of(dtype, *(sizes[::-1] if is_transposed else sizes))
    scales = SCALES[:columns, 0] if is_transposed else SCALES[:1, :columns][0]
    with Builder() as b:
        x, stored = b.input("x", "f32", ("n", depth)), b.constant(codes, dtype, "codes")
        if suffix == "onnx":
            w = b.DequantizeLinear(stored, scales, axis=0 if is_transposed else 1)
        else:
            source = {"source": dtype} if dtype == "nf4" else {}
            w = b.Multiply(b.Cast(stored, to="f32", **source), scales[:, None] if is_transposed else scales)
        b.output("y", b.MatMul(x, w, transpose_b=is_transposed))
    path, again = tmp_path / f"m.{suffix}", tmp_path / f"again.{suffix}"
    opset = 25 if suffix == "onnx" else None
    dovetail.save(b.model, path, opset=opset)
    loaded = dovetail.load(path, map="always")
    (constant,) = (value for value in loaded.graph.values() if value.constant is not None and value.dtype == dtype)
    assert constant.constant.tobytes() == codes.tobytes() and constant.constant.dtype == codes.dtype
    assert constant.storage.nbytes == -(-codes.size * dtypes.dtype(dtype).bits // 8)
    for precision in ("f32", "int8"):
        expected, first, second = (dovetail.compile(m, precision=precision) for m in (b.model, loaded, loaded))
        for count in (1, 9):
            x = rows_of(count, depth)
            assert first(x)["y"].tobytes() == second(x)["y"].tobytes() == expected(x)["y"].tobytes()
    interpreted = [dovetail.run(model, x, "interpreter")["y"].tobytes() for model in (b.model, loaded, loaded)]
    assert len(set(interpreted)) == 1
    dovetail.save(loaded, again, opset=opset)
    for file in tmp_path.glob("m.*"):
        assert file.read_bytes() == (tmp_path / f"again{file.suffix}").read_bytes()


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_packed_weights_are_read_described_and_written_as_they_are(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """5 * 7 elements of 4 bits end within a byte: bits behind the last element of a file count nowhere."""
    with Builder() as b:
        w = b.Multiply(b.Cast(b.constant(codes_of("u4", 5, 7), "u4", "codes"), to="f32"), SCALES[:7, 0])
        b.output("y", b.MatMul(b.input("x", "f32", ("n", 5)), w))
    external = {"external": "m.bin", "threshold": 0} if suffix == "onnx" else {}
    dovetail.save(b.model, path := tmp_path / f"m.{suffix}", **external)
    weights = path.with_suffix(".bin")
    expected, (value,) = weights.read_bytes(), (x for x in dovetail.load(path).graph.values() if x.dtype == "u4")
    start = expected.index(value.storage.packed.tobytes())
    weights.write_bytes(expected[: start + 17] + bytes([expected[start + 17] | 0xF0]) + expected[start + 18 :])
    with monkeypatch.context() as patch:
        patch.setattr(PackedElements, "unpack", None)
        loaded = dovetail.load(path)
        assert str(loaded) and loaded._repr_html_()
        (tmp_path / "again").mkdir()
        dovetail.save(loaded, tmp_path / "again" / path.name, **external)
    assert (tmp_path / "again" / "m.bin").read_bytes() == expected


@pytest.mark.parametrize("suffix", ["onnx", "xml"])
def test_packed_weights_of_a_file_that_changes_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"m.{suffix}"
    external = {"external": "m.bin", "threshold": 0} if suffix == "onnx" else {}
    dovetail.save(model_of(dequantized("u4") if suffix == "onnx" else blocks("u4")), path, **external)
    model, weights = dovetail.load(path, map="always"), path.with_suffix(".bin")
    with open(weights, "ab") as stream:
        stream.write(b"0")
    with pytest.raises(dovetail.FormatError, match="must not change after loading"):
        dovetail.compile(model)


def test_packed_bytes_are_released_once_they_are_unpacked() -> None:
    released: list[np.ndarray] = []
    elements = PackedElements(np.array([0x21, 0x43], np.uint8), dtypes.dtype("u4"), (3,), released.append)
    array = elements.unpack()
    assert array.tolist() == [1, 2, 3] and elements.unpack() is array
    assert len(released) == 1 and np.shares_memory(released[0], elements.packed)


def test_an_unpacked_constant_lives_as_long_as_its_readers(tmp_path: Path) -> None:
    dovetail.save(model_of(dequantized("i4")), tmp_path / "m.onnx")
    model = pickle.loads(pickle.dumps(dovetail.load(tmp_path / "m.onnx")))
    (value,) = (value for value in model.graph.values() if value.constant is not None and value.dtype == "i4")
    array = value.constant
    assert value.constant is array and not array.flags.writeable
    reference = weakref.ref(array)
    del array
    assert reference() is None and value.constant.shape == (DEPTH, COLUMNS)


def test_weights_in_two_models_of_one_process_are_not_mixed_up() -> None:
    """Packed weights have keys of their codes and of their scales."""
    codes = codes_of("i8", DEPTH, COLUMNS)
    with Builder() as b:
        x, shared = b.input("x", "f32", ("n", DEPTH)), b.constant(codes)
        for index, factor in enumerate((1, 2)):
            w = b.DequantizeLinear(shared, b.constant(SCALES[:, 0] * np.float32(factor)), axis=1)
            b.output(f"y{index}", b.MatMul(x, w))
    y0, y1 = dovetail.compile(b.model)(rows_of(2))
    np.testing.assert_allclose(y1, 2 * y0, rtol=1e-6)


@pytest.mark.parametrize("precision", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("name", [name for name in PRODUCTS if name != "i8 transposed"])  # which has a bias and Relu
def test_results_are_within_the_roundings_of_their_path_from_f64(name: str, precision: str) -> None:
    """With u = 2^-8 and v = 2^-24, the unit roundoffs of bf16 and f32, an error is at most a share of the product of magnitudes.

    The share is (depth + 4) v for sums in f32 of weights that are rounded once, and (1 + u)^2 - 1 more where rows and weights are
    rounded to bf16. Rows of 8 bits are half a step of their greatest magnitude / 127 away.
    """
    model, u, v = model_of(PRODUCTS[name]), 2.0**-8, 2.0**-24
    weights = dovetail.compile(model, "interpreter")(np.eye(DEPTH, dtype=np.float32))["y"].astype(np.float64)
    engine, was_rounded = Engine(model, precision=precision), False
    for count in (1, 3, 9, 40, 130):
        x = rows_of(count)
        exact = x.astype(np.float64) @ weights
        products = np.abs(x).astype(np.float64) @ np.abs(weights)
        sums = (DEPTH + 4) * v * products
        bound = sums
        if precision == "bf16":
            bound = sums + ((1 + u) ** 2 - 1) * products
        if precision == "int8":
            bound = sums + np.abs(x).max(-1, keepdims=True) / 254 * (1 + u) * np.abs(weights).sum(0)
        error = np.abs(engine({"x": x})["y"] - exact)
        assert (error <= bound).all(), f"{count} rows: {float((error / bound).max()):.3g} of the bound"
        was_rounded = was_rounded or bool((error > sums).any())
    is_integer = not name.startswith(("nf4", "f4", "f8", "f16", "bf16"))
    assert was_rounded == (precision == "bf16" or (precision == "int8" and is_integer))
