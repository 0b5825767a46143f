"""Public reports of shapes, gradients, files and operators with sizes; docs/reports.md lists them by number."""

from __future__ import annotations

import io
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.cli import main
from report_routes import FLOAT, INT64, assert_every_way, assert_here, assert_outputs, proto_of, run_onnxruntime, run_openvino

pytest.importorskip("onnxruntime")
pytest.importorskip("openvino")
node = helper.make_node
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


NEUTRAL = {
    "ReduceSum": 0.0,
    "ReduceProd": 1.0,
    "ReduceMax": -np.inf,
    "ReduceMin": np.inf,
    "ReduceMean": np.nan,
    "ReduceL1": 0.0,
    "ReduceL2": 0.0,
    "ReduceSumSquare": 0.0,
    "ReduceLogSum": -np.inf,
    "ReduceLogSumExp": -np.inf,
}


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("kind", NEUTRAL)
def test_04_reductions_of_nothing(tmp_path: Path, kind: str, keepdims: int) -> None:
    x = np.zeros((3, 0, 4), np.float32)
    for axes, kept, dropped in (([1], (3, 1, 4), (3, 4)), (None, (1, 1, 1), ()), ([2, 1], (3, 1, 1), (3,))):
        constants = {} if axes is None else {"axes": np.array(axes)}
        proto = proto_of(
            [node(kind, ["x", *constants], ["y"], keepdims=keepdims)],
            [("x", FLOAT, [3, "n", 4])],
            [("y", FLOAT, None)],
            constants,
            opset=20,
        )
        expected = {"y": np.full(kept if keepdims else dropped, NEUTRAL[kind], np.float32)}
        # onnxruntime refuses some of them, and OpenVINO's plugin has its own values for the mean.
        assert_every_way(proto, {"x": x}, expected, tmp_path, opsets=(13,), in_onnxruntime=False, in_openvino=False)


@pytest.mark.parametrize(("p", "q"), [(1, 1), (4, 1), (1, 4), (4, 4)])
@pytest.mark.parametrize("rank", [2, 3])
def test_07_gradients_of_broadcast_products_with_open_sizes(tmp_path: Path, p: int, q: int, rank: int) -> None:
    torch = pytest.importorskip("torch")
    proto = proto_of(
        [node("MatMul", ["a", "b"], ["m"]), node("Add", ["m", "c"], ["y"])],
        [("a", FLOAT, ["p", "h", "i", "k"]), ("b", FLOAT, ["q", "h", "k", "j"][4 - rank - 1 :]), ("c", FLOAT, ["j"])],
        [("y", FLOAT, None)],
    )
    gradient = dovetail.grad(dovetail.load(proto))
    dovetail.save(gradient, tmp_path / "g.onnx")
    onnx.checker.check_model(tmp_path / "g.onnx", full_check=True)
    arrays = {"a": normal(p, 2, 3, 5), "b": normal(q, 2, 5, 4)[(0,) * (3 - rank)], "c": normal(4)}
    arrays["b"] = normal(*(q, 2, 5, 4)[4 - rank - 1 :])
    tensors = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    y = torch.matmul(tensors["a"], tensors["b"]) + tensors["c"]
    slope = normal(*y.shape)
    y.backward(torch.tensor(slope))
    expected = {f"grad:{name}": tensor.grad.numpy() for name, tensor in tensors.items()}
    feeds = {**arrays, "grad:y": slope}
    assert_here(gradient, feeds, expected, 1e-5, "gradient")
    assert_outputs(run_onnxruntime(tmp_path / "g.onnx", feeds), expected, 1e-5, "onnxruntime")


@pytest.mark.parametrize("suffix", [".onnx", ".xml"])
def test_08_two_models_whose_data_files_have_one_name(tmp_path: Path, suffix: str) -> None:
    weights = [normal(64, 64), normal(64, 64)]
    for folder, weight in zip("ab", weights, strict=True):
        (tmp_path / folder).mkdir()
        proto = proto_of([node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, ["n", 64])], [("y", FLOAT, ["n", 64])], {"w": weight})
        onnx.save(proto, tmp_path / folder / "m.onnx", save_as_external_data=True, location="weights.data", size_threshold=0)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    first, second = (dovetail.load(tmp_path / folder / "m.onnx") for folder in "ab")
    merged = dovetail.merge(first, second, {"y": "x"}, prefix_second="second/")
    # The merged model is saved beside the first one, in a file whose data must not be those of the first.
    path = tmp_path / "a" / f"both{suffix}"
    dovetail.save(merged, path, **({"external": True} if suffix == ".onnx" else {}))
    x = normal(3, 64)
    expected = {"second/y": x @ weights[0] @ weights[1]}
    assert_here(dovetail.load(path), {"x": x}, expected, 1e-5, "merged")
    run = run_onnxruntime if suffix == ".onnx" else run_openvino
    assert_outputs(run(path, {"x": x}), expected, 1e-5, "runtime")
    assert {name: name.read_bytes() for name in before} == before


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [(3, 2, 1), (4, 2, 1), (3, 1, 1), (4, 3, 1), (2, 2, 1), (3, 2, 2)])
def test_09_transposed_convolutions_that_keep_the_size(
    tmp_path: Path, mode: str, kernel: int, stride: int, dilation: int
) -> None:
    torch = pytest.importorskip("torch")
    x, w = normal(2, 3, 4, 5), normal(3, 2, kernel, kernel)
    proto = proto_of(
        [node("ConvTranspose", ["x", "w"], ["y"], auto_pad=mode, strides=[stride] * 2, dilations=[dilation] * 2)],
        [("x", FLOAT, ["n", 3, "h", "w0"])],
        [("y", FLOAT, None)],
        {"w": w},
    )
    full = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), stride=stride, dilation=dilation).numpy()
    extra = (kernel - 1) * dilation + 1 - stride
    begin = extra // 2 if mode == "SAME_UPPER" else extra - extra // 2
    expected = {"y": full[:, :, begin : begin + 4 * stride, begin : begin + 5 * stride]}
    model = assert_every_way(proto, {"x": x}, expected, tmp_path, tolerance=1e-5, opsets=(11, 22))
    height, width = (str(size) for size in model.outputs[0].type.shape[2:])
    assert (height, width) == (("h", "w0") if stride == 1 else (f"{stride}*h", f"{stride}*w0"))


@pytest.mark.parametrize(
    ("target", "text"), [(["a", "b", -1], "f32[a, b, 6]"), (["a", -1, 6], "f32[a, b, 6]"), ([-1, "b"], "f32[6*a, b]")]
)
@pytest.mark.parametrize("source", ["shape of x", "shapes of others"])
def test_15_reshape_to_sizes_that_are_computed(tmp_path: Path, target: list[Any], text: str, source: str) -> None:
    nodes, parts, constants, inputs = [], [], {}, [("x", FLOAT, ["a", "b", 2, 3])]
    for index, size in enumerate(target):
        parts.append(f"part{index}")
        if isinstance(size, int):
            constants[parts[-1]] = np.array([size])
            continue
        origin, axis = ("x", "ab".index(size)) if source == "shape of x" else (f"o{size}", 0)
        if origin != "x":
            inputs.append((origin, FLOAT, [size]))
        constants[f"at{index}"], constants["zero"] = np.array(axis), np.array([0])
        nodes += [
            node("Shape", [origin], [f"s{index}"]),
            node("Gather", [f"s{index}", f"at{index}"], [f"g{index}"]),
            node("Unsqueeze", [f"g{index}", "zero"], [parts[-1]]),
        ]
    nodes += [node("Concat", parts, ["t"], axis=0), node("Reshape", ["x", "t"], ["y"])]
    proto = proto_of(nodes, inputs, [("y", FLOAT, None)], constants)
    x = normal(4, 5, 2, 3)
    sizes = {"a": 4, "b": 5}
    feeds = {"x": x} | {name: normal(sizes[name[1]]) for name, *_ in inputs[1:]}
    expected = {"y": x.reshape([sizes.get(size, size) for size in target])}
    model = assert_every_way(proto, feeds, expected, tmp_path)
    assert str(dovetail.infer(model).outputs[0].type) == text


@pytest.mark.parametrize("kind", ["ScatterND", "ScatterElements"])
@pytest.mark.parametrize("reduction", ["add", "mul", "max"])
def test_18_scatters_at_repeated_indices(tmp_path: Path, kind: str, reduction: str) -> None:
    a, updates = np.ones((5, 3), np.float32), np.full((5, 3), 2, np.float32)
    rows = np.array([0, 4, 2, 2, 4])
    index = rows[:, None] if kind == "ScatterND" else np.repeat(rows[:, None], 3, 1)
    proto = proto_of(
        [node(kind, ["a", "i", "u"], ["y"], reduction=reduction)],
        [("a", FLOAT, ["n", 3]), ("i", INT64, ["m", index.shape[1]]), ("u", FLOAT, ["m", 3])],
        [("y", FLOAT, ["n", 3])],
        opset=18,
    )
    count = np.bincount(rows, minlength=5)[:, None]
    result = {"add": a + 2 * count, "mul": 2.0**count, "max": np.where(count, 2, 1)}[reduction]
    expected = {"y": np.broadcast_to(result, (5, 3)).astype(np.float32)}
    feeds = {"a": a, "i": index, "u": updates}
    model = assert_every_way(proto, feeds, expected, tmp_path, opsets=(18, 21))
    for opset in (11, 13, 16):
        try:
            dovetail.save(model, tmp_path / "old.onnx", opset=opset)
        except dovetail.UnsupportedError as refusal:
            assert kind in str(refusal) and opset < (18 if reduction == "max" else 16)
        else:
            assert_outputs(run_onnxruntime(tmp_path / "old.onnx", feeds), expected, None, f"opset {opset}")


def test_19_an_encoder_layer_at_every_batch_and_length(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.TransformerEncoderLayer(16, 4, dim_feedforward=24, batch_first=True)
    ).eval()
    buffer = io.BytesIO()
    was = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                layer, torch.zeros(2, 7, 6), buffer, input_names=["x"], output_names=["y"], opset_version=17, dynamo=False
            )
        expected = {
            size: layer(torch.tensor(np.random.default_rng(1).standard_normal((*size, 6)), dtype=torch.float32)).detach().numpy()
            for size in ((1, 1), (2, 7), (3, 11), (5, 2))
        }
    finally:
        torch.backends.mha.set_fastpath_enabled(was)
    new = dovetail.rebatch(dovetail.load(buffer.getvalue()), shapes={"x": ["batch", "length", 6]})
    report = new.report
    assert all(row.agrees for row in report.comparisons)
    assert [str(value.type) for value in (*new.inputs, *new.outputs)] == ["f32[batch, length, 6]", "f32[batch, length, 16]"]
    dovetail.save(new, tmp_path / "m.onnx")
    dovetail.save(new, tmp_path / "m.xml")
    for size, array in expected.items():
        feeds = {"x": np.random.default_rng(1).standard_normal((*size, 6)).astype(np.float32)}
        assert_here(new, feeds, {"y": array}, 1e-5, str(size))
        assert_outputs(run_onnxruntime(tmp_path / "m.onnx", feeds), {"y": array}, 1e-5, "onnxruntime")
        assert_outputs(run_openvino(tmp_path / "m.xml", feeds), {"y": array}, 1e-5, "OpenVINO")


@pytest.mark.parametrize("batch_axis", [0, 1])
def test_20_sequences_of_lengths_0_and_1_stay(tmp_path: Path, batch_axis: int) -> None:
    x, lengths = normal(4, 4, 2), np.array([0, 1, 3, 4])
    proto = proto_of(
        [node("ReverseSequence", ["x", "lengths"], ["y"], batch_axis=batch_axis, time_axis=1 - batch_axis)],
        [("x", FLOAT, ["s", "t", 2]), ("lengths", INT64, ["s" if batch_axis == 0 else "t"])],
        [("y", FLOAT, ["s", "t", 2])],
    )
    rows = np.moveaxis(x, batch_axis, 0).copy()
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = row[:length][::-1].copy()
    assert_every_way(proto, {"x": x, "lengths": lengths}, {"y": np.moveaxis(rows, 0, batch_axis)}, tmp_path, opsets=(10, 21))


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("sizes", [["n", 3, 5, 7], ["n", "c", "h", "w"]], ids=["open batch", "open sizes"])
@pytest.mark.parametrize(("kernel", "stride", "pad", "dilation"), [(2, 2, 0, 1), (3, 2, 1, 1), (2, 1, 1, 2)])
def test_22_indices_of_max_pool(
    tmp_path: Path, order: int, sizes: list[Any], kernel: int, stride: int, pad: int, dilation: int
) -> None:
    torch = pytest.importorskip("torch")
    x = normal(2, 3, 5, 7)
    proto = proto_of(
        [
            node(
                "MaxPool", ["x"], ["y", "i"], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
                dilations=[dilation] * 2, storage_order=order,
            )
        ],
        [("x", FLOAT, sizes)],
        [("y", FLOAT, None), ("i", INT64, None)],
    )  # fmt: skip
    y, index = torch.nn.functional.max_pool2d(torch.tensor(x), kernel, stride, pad, dilation, return_indices=True)
    height, width = np.divmod(index.numpy(), 7)
    plane = np.arange(6).reshape(2, 3, 1, 1) * 35
    expected = {"y": y.numpy(), "i": plane + (width * 5 + height if order else height * 7 + width)}
    assert_outputs(run_onnxruntime(proto, {"x": x}), expected, None, "onnxruntime")
    assert_every_way(proto, {"x": x}, expected, tmp_path, opsets=(12, 22), in_openvino=dilation == 1)


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("ignored", [None, 1])
@pytest.mark.parametrize("pixels", [(), (3,)])
def test_23_weighted_losses_in_ir(tmp_path: Path, reduction: str, ignored: int | None, pixels: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    scores, weights = normal(3, 5, *pixels), np.float32([0.5, 1.5, 1, 2, 0.25])
    labels = np.array([1, 0, 4] if not pixels else [[1, 0, 4], [1, 2, 3], [0, 0, 1]])
    open_sizes = ["n", 5, *("p" for _ in pixels)]
    proto = proto_of(
        [
            node(
                "SoftmaxCrossEntropyLoss", ["x", "y", "w"], ["loss", "log"], reduction=reduction,
                **({} if ignored is None else {"ignore_index": ignored}),
            )
        ],
        [("x", FLOAT, open_sizes), ("y", INT64, ["n", *open_sizes[2:]]), ("w", FLOAT, [5])],
        [("loss", FLOAT, None), ("log", FLOAT, None)],
    )  # fmt: skip
    x = torch.tensor(scores)
    options = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
    loss = torch.nn.functional.cross_entropy(x, torch.tensor(labels), torch.tensor(weights), **options)
    expected = {"loss": loss.numpy(), "log": torch.log_softmax(x, 1).numpy()}
    feeds = {"x": scores, "y": labels, "w": weights}
    assert_every_way(proto, feeds, expected, tmp_path, tolerance=1e-5, opsets=(13, 21))


def test_24_other_names_for_inputs_and_outputs_of_ir(tmp_path: Path) -> None:
    import openvino
    import openvino.opset13 as ops

    x = ops.parameter(openvino.PartialShape([-1, 3]), np.float32, name="in_layer")
    x.output(0).set_names({"x", "input.1"})
    half = ops.multiply(x, np.float32([0.5]), name="half")
    half.output(0).set_names({"half:0"})
    model = openvino.Model([half, ops.relu(half, name="out_layer")], [x], "m")
    model.outputs[1].set_names({"y"})
    source, target = tmp_path / "m.xml", tmp_path / "renamed.xml"
    openvino.save_model(model, source, compress_to_fp16=False)
    loaded = dovetail.load(source)
    renames = {loaded.inputs[0].name: "image", loaded.outputs[0].name: "score/0", loaded.outputs[1].name: "été"}
    words = [word for old, new in renames.items() for word in ("--rename", f"{old}={new}")]
    with pytest.raises(SystemExit) as ended:
        main(["edit", str(source), *words, "--verify", "-o", str(target)])
    assert ended.value.code == 0
    array = normal(2, 3)
    expected = {"score/0": array / 2, "été": np.maximum(array / 2, 0)}
    assert_outputs(run_openvino(target, {"image": array}), expected, 0.0, "OpenVINO")
    assert_here(dovetail.load(target), {"image": array}, expected, None, "renamed")
    dovetail.save(dovetail.load(target), tmp_path / "renamed.onnx")
    assert_outputs(run_onnxruntime(tmp_path / "renamed.onnx", {"image": array}), expected, None, "onnxruntime")


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("kind", ["GRU", "RNN", "LSTM"])
def test_25_reverse_directions_start_at_each_length(tmp_path: Path, kind: str, linear: int) -> None:
    if kind != "GRU" and linear:
        pytest.skip("an attribute of GRU alone")
    gates = {"GRU": 3, "RNN": 1, "LSTM": 4}[kind]
    w, r, b = normal(2, gates * 5, 4), normal(2, gates * 5, 5), normal(2, gates * 10)
    x, lengths = normal(7, 3, 4), np.array([7, 2, 4], np.int32)

    def proto(direction: str, rows: slice, sizes: tuple[Any, Any] = ("t", "n")) -> onnx.ModelProto:
        attributes: dict[str, Any] = {"hidden_size": 5, "direction": direction} | (
            {"linear_before_reset": linear} if kind == "GRU" else {}
        )
        return proto_of(
            [node(kind, ["x", "w", "r", "b", "lengths"], ["y", "h"], **attributes)],
            [("x", FLOAT, [*sizes, 4]), ("lengths", TensorProto.INT32, [sizes[1]])],
            [("y", FLOAT, None), ("h", FLOAT, None)],
            {"w": w[rows], "r": r[rows], "b": b[rows]},
        )

    feeds = {"x": x, "lengths": lengths}
    both = run_onnxruntime(proto("bidirectional", slice(0, 2)), feeds)
    for name, direction, rows in (
        ("b", "bidirectional", slice(0, 2)),
        ("r", "reverse", slice(1, 2)),
        ("f", "forward", slice(0, 1)),
    ):
        folder = tmp_path / name
        folder.mkdir()
        expected = {"y": both["y"][:, rows], "h": both["h"][rows]}
        # OpenVINO's plugin ignores the lengths where the sizes are open.
        assert_every_way(proto(direction, rows), feeds, expected, folder, tolerance=1e-5, opsets=(14, 22), in_openvino=False)
        dovetail.save(dovetail.load(proto(direction, rows, (7, 3))), folder / "fixed.xml")
        assert_outputs(run_openvino(folder / "fixed.xml", feeds), expected, 1e-5, "OpenVINO")


def test_29_folding_stores_nothing_large(tmp_path: Path) -> None:
    proto = proto_of(
        [
            node("ConstantOfShape", ["big"], ["zeros"], value=helper.make_tensor("v", FLOAT, [1], [0.5])),
            node("Expand", ["row", "big"], ["grid"]),
            node("Range", ["start", "stop", "step"], ["range"]),
            node("Tile", ["row", "times"], ["tiles"]),
            node("OneHot", ["labels", "depth", "pair"], ["hot"]),
            node("EyeLike", ["zeros"], ["eye"]),
            node("Sum", ["x", "zeros", "grid", "range", "tiles", "eye"], ["s"]),
            node("MatMul", ["s", "hot"], ["y"]),
        ],
        [("x", FLOAT, ["n", 512])],
        [("y", FLOAT, None)],
        {
            "big": np.array([512, 512]),
            "row": normal(1, 512),
            "start": np.float32(0),
            "stop": np.float32(512),
            "step": np.float32(1),
            "times": np.array([512, 1]),
            "labels": np.arange(512),
            "depth": np.array(512),
            "pair": np.float32([0, 1]),
        },
    )
    onnx.save(proto, tmp_path / "m.onnx")
    smaller = dovetail.simplify(dovetail.load(tmp_path / "m.onnx"))
    dovetail.save(smaller, tmp_path / "small.onnx")
    assert os.path.getsize(tmp_path / "small.onnx") < os.path.getsize(tmp_path / "m.onnx") + 4096
    x = normal(512, 512)
    expected = run_onnxruntime(proto, {"x": x})
    assert_outputs(run_onnxruntime(tmp_path / "small.onnx", {"x": x}), expected, 1e-5, "simplified")
    dovetail.save(smaller, tmp_path / "m.xml")
    assert os.path.getsize(tmp_path / "m.bin") < 2 * os.path.getsize(tmp_path / "m.onnx")
    assert_outputs(run_openvino(tmp_path / "m.xml", {"x": x}), expected, 1e-5, "OpenVINO")
    shutil.rmtree(tmp_path)
