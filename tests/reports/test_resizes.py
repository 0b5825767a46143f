"""Resizes of integers, in Pillow's modes and of open sizes: the pictures that OpenVINO's preprocessing and exporters make."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import openvino
import openvino.opset13 as ops
import pytest
from openvino import Layout, PartialShape, Type
from openvino.preprocess import ColorFormat, PrePostProcessor, ResizeAlgorithm
from openvino.utils.node_factory import NodeFactory

import dovetail
from dovetail.ir.graph import Model
from oracles import run_onnxruntime

RNG = np.random.default_rng(0)
F32 = {"INFERENCE_PRECISION_HINT": "f32"}


def in_openvino(path: Path, x: Any) -> Any:
    return openvino.Core().compile_model(path, "CPU", F32)([x])[0]


def interpolate(
    folder: Path, mode: str, target: Sequence[float], how: str, shape: Any, kind: Any = np.float32, **more: Any
) -> Path:
    """Save an IR of Interpolate-11 along the last two axes."""
    x = ops.parameter(PartialShape(shape), kind, "x")
    x.output(0).set_names({"x"})
    attributes = {
        "mode": mode, "shape_calculation_mode": how, "coordinate_transformation_mode": "half_pixel", "nearest_mode": "floor",
        "antialias": False, "pads_begin": [0], "pads_end": [0], "cube_coeff": -0.75, **more,
    }  # fmt: skip
    wanted = ops.constant(np.array(target, np.float32 if how == "scales" else np.int64))
    y = NodeFactory("opset11").create("Interpolate", [x, wanted, ops.constant(np.array([2, 3]))], attributes)
    y.output(0).set_names({"y"})
    openvino.serialize(openvino.Model([y], [x], "m"), folder / "m.xml")
    return folder / "m.xml"


def answers(path: Path, x: Any, folder: Path) -> dict[str, Any]:
    """Run a file here in both engines, and what is written of it in the runtimes."""
    model: Model = dovetail.load(path)
    dovetail.save(model, folder / "again.xml")
    dovetail.save(model, folder / "m.onnx")
    back = dovetail.load(folder / "m.onnx")
    return {
        "interpreter": dovetail.compile(model, engine="interpreter")({"x": x})["y"],
        "native": dovetail.compile(model, engine="native")({"x": x})["y"],
        "IR": in_openvino(folder / "again.xml", x),
        "ONNX": run_onnxruntime((folder / "m.onnx").read_bytes(), {"x": x})[0],
        "ONNX here": dovetail.run(back, {"x": x})["y"],
    }


def assert_near(found: Mapping[str, Any], want: Any, limit: float) -> None:
    for name, y in found.items():
        assert (y.dtype, y.shape) == (want.dtype, want.shape), name
        assert np.abs(y.astype(np.float64) - want.astype(np.float64)).max() <= limit, name


@pytest.mark.parametrize("algorithm", ["RESIZE_LINEAR", "RESIZE_CUBIC", "RESIZE_NEAREST"])
def test_the_preprocessing_of_a_picture_of_bytes_runs(algorithm: str, tmp_path: Path) -> None:
    x = ops.parameter(PartialShape([1, 3, 6, 6]), np.float32, "x")
    weights = RNG.standard_normal((2, 3, 3, 3)).astype("f4")
    steps = PrePostProcessor(openvino.Model([ops.convolution(x, weights, [1, 1], [0, 0], [0, 0], [1, 1])], [x], "m"))
    steps.input().tensor().set_element_type(Type.u8).set_layout(Layout("NHWC")).set_spatial_static_shape(11, 9)
    steps.input().preprocess().resize(getattr(ResizeAlgorithm, algorithm))
    steps.input().model().set_layout(Layout("NCHW"))
    openvino.serialize(steps.build(), tmp_path / "m.xml")
    picture = RNG.integers(0, 255, (1, 11, 9, 3)).astype("u1")
    want = in_openvino(tmp_path / "m.xml", picture)
    model = dovetail.load(tmp_path / "m.xml")
    for engine in ("interpreter", "native"):
        (y,) = dovetail.compile(model, engine=engine)([picture]).values()
        # One unit of the picture in a few places.
        assert np.abs(y - want).max() < 0.02 * np.abs(want).max()


@pytest.mark.parametrize("kind", ["u1", "i1", "i4"])
@pytest.mark.parametrize("mode", ["linear", "linear_onnx", "cubic"])
def test_integers_are_rounded_to_nearest_in_every_format(mode: str, kind: str, tmp_path: Path) -> None:
    x = RNG.integers(0, 120, (1, 3, 7, 8)).astype(kind)
    path = interpolate(tmp_path, mode, [11, 9], "sizes", x.shape, x.dtype.type)
    want = in_openvino(path, x)
    found = answers(path, x, tmp_path)
    assert_near(found, want, 1)
    for name, y in found.items():
        assert np.mean(y != want) < 0.05, name


@pytest.mark.parametrize("mode", ["bilinear_pillow", "bicubic_pillow"])
def test_bytes_in_the_modes_of_pillow_are_near_to_openvino(mode: str, tmp_path: Path) -> None:
    x = RNG.integers(0, 255, (1, 3, 12, 9)).astype("u1")
    path = interpolate(tmp_path, mode, [7, 4], "sizes", [-1, 3, -1, -1], np.uint8)
    assert_near(answers(path, x, tmp_path), in_openvino(path, x), 2)


def test_a_linear_resize_of_bytes_in_onnx_runs_and_is_written_as_it_was(tmp_path: Path) -> None:
    x = (np.arange(20).reshape(1, 1, 4, 5) * 12).astype(np.uint8)
    nodes = [oh.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")]
    ports = [oh.make_tensor_value_info(name, 2, shape) for name, shape in (("x", [1, 1, 4, 5]), ("y", None))]
    scales = onnx.numpy_helper.from_array(np.float32([1, 1, 2, 2]), "s")
    graph = oh.make_graph(nodes, "g", ports[:1], ports[1:], [scales])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 18)], ir_version=8), tmp_path / "m.onnx")
    want = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), {"x": x})[0]
    model = dovetail.load(tmp_path / "m.onnx")
    assert_near({"here": dovetail.run(model, {"x": x})["y"]}, want, 1)
    dovetail.save(model, tmp_path / "again.onnx")
    assert [node.op_type for node in onnx.load(tmp_path / "again.onnx").graph.node] == ["Resize"]
    dovetail.save(model, tmp_path / "m.xml")
    assert_near({"IR": in_openvino(tmp_path / "m.xml", x)}, want, 1)


@pytest.mark.parametrize("mode, coefficient", [("bilinear_pillow", -0.75), ("bicubic_pillow", -0.75), ("bicubic_pillow", -0.3)])
@pytest.mark.parametrize("how, target", [("sizes", [7, 13]), ("scales", [0.3, 1.2])])
@pytest.mark.parametrize("shape", [[1, 4, 12, 9], [-1, 4, -1, -1]], ids=["static", "open"])
def test_the_modes_of_pillow_give_the_results_of_openvino(
    shape: Any, how: str, target: Any, mode: str, coefficient: float, tmp_path: Path
) -> None:
    x = RNG.standard_normal((1, 4, 12, 9)).astype("f4")
    path = interpolate(tmp_path, mode, target, how, shape, cube_coeff=coefficient)
    assert_near(answers(path, x, tmp_path), in_openvino(path, x), 1e-5)
    assert f'mode="{mode}"' in (tmp_path / "again.xml").read_text()


def test_antialiased_bicubic_of_torch_is_that_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(RNG.standard_normal((1, 4, 12, 9)).astype("f4"))
    want = torch.nn.functional.interpolate(x, size=(7, 3), mode="bicubic", antialias=True, align_corners=False).numpy()
    path = interpolate(tmp_path, "bicubic_pillow", [7, 3], "sizes", [1, 4, 12, 9])
    assert_near(answers(path, x.numpy(), tmp_path), want, 1e-5)


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "pytorch_half_pixel", "asymmetric", "tf_half_pixel_for_nn", "align_corners"]
)
@pytest.mark.parametrize("mode", ["nearest", "linear", "linear_onnx", "cubic"])
@pytest.mark.parametrize("scale", [0.3, 1.5])
def test_scales_over_open_sizes_give_the_results_of_openvino(scale: float, mode: str, coordinates: str, tmp_path: Path) -> None:
    # Multiples of 10 and 4: a scaled length that the margin may move, and one that is kept.
    for shape in ((1, 2, 10, 4), (1, 2, 7, 5)):
        x = RNG.standard_normal(shape).astype("f4")
        path = interpolate(tmp_path, mode, [scale, 1.2], "scales", [-1, 2, -1, -1], coordinate_transformation_mode=coordinates)
        assert_near(answers(path, x, tmp_path), in_openvino(path, x), 2e-5)


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [1 / 300, 1.2])
def test_onnx_scales_over_an_open_length_become_ir(scale: float, mode: str, coordinates: str, tmp_path: Path) -> None:
    nodes = [oh.make_node("Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates)]
    ports = [oh.make_tensor_value_info("x", 1, [1, 3, 4, "n"]), oh.make_tensor_value_info("y", 1, None)]
    scales = onnx.numpy_helper.from_array(np.float32([1, 1, 1, scale]), "s")
    graph = oh.make_graph(nodes, "g", ports[:1], ports[1:], [scales])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    # 3599 / 300 is just below a whole number. Positions in f32 are rounded to 1/4096 there.
    limit = 5e-3 if scale < 1 else 2e-4
    for length in (3600, 3599) if scale < 1 else (7, 10):
        x = RNG.standard_normal((1, 3, 4, length)).astype("f4")
        want = dovetail.run(dovetail.load(tmp_path / "m.onnx"), {"x": x})["y"]
        theirs = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), {"x": x})[0]
        # onnxruntime aligns the corners of whole lengths.
        if coordinates != "align_corners":
            assert_near({"onnxruntime": theirs}, want, limit)
        assert_near({"IR": in_openvino(tmp_path / "m.xml", x)}, want, limit)


@pytest.mark.parametrize(
    "mode, coordinates, rank",
    [
        ("nearest", "asymmetric", 3),
        ("nearest", "asymmetric", 4),
        ("linear", "half_pixel", 3),
        ("linear", "pytorch_half_pixel", 3),
        ("cubic", "pytorch_half_pixel", 4),
    ],
)
@pytest.mark.parametrize("factor", [2, 300])
def test_whole_factors_of_an_open_length_become_ir(factor: float, mode: str, coordinates: str, rank: int, tmp_path: Path) -> None:
    """Speech synthesis lengthens a signal by hundreds; every scaled length is whole."""
    node = oh.make_node(
        "Resize", ["x", "", "s"], ["y"], mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor"
    )
    shape = [1, 9, *[4] * (rank - 3), "n"]
    ports = [oh.make_tensor_value_info("x", 1, shape), oh.make_tensor_value_info("y", 1, None)]
    scales = onnx.numpy_helper.from_array(np.float32([*[1] * (rank - 1), factor]), "s")
    graph = oh.make_graph([node], "g", ports[:1], ports[1:], [scales])
    onnx.save(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 20)], ir_version=9), tmp_path / "m.onnx")
    dovetail.save(dovetail.load(tmp_path / "m.onnx"), tmp_path / "m.xml")
    for length in (7, 10):
        x = RNG.standard_normal((*shape[:-1], length)).astype("f4")
        want = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), {"x": x})[0]
        found = {"here": dovetail.run(tmp_path / "m.onnx", {"x": x})["y"], "IR": in_openvino(tmp_path / "m.xml", x)}
        assert_near(found, want, 0 if mode == "nearest" else 2e-4)


@pytest.mark.parametrize("factor", [0.5, 1.5, 2.0])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_factors_with_aligned_corners_are_those_of_torch(mode: str, factor: float, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch

    class Factor(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.interpolate(x, scale_factor=factor, mode=mode, align_corners=True)

    x = torch.tensor(RNG.standard_normal((1, 3, 6, 8)).astype("f4"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        converted = openvino.convert_model(Factor(), example_input=x, input=[PartialShape([-1, 3, -1, -1])])
    openvino.save_model(converted, tmp_path / "m.xml", compress_to_fp16=False)
    model = dovetail.load(tmp_path / "m.xml")
    dovetail.save(model, tmp_path / "m.onnx")
    for shape in ((1, 3, 6, 8), (2, 3, 7, 5)):
        x = torch.tensor(RNG.standard_normal(shape).astype("f4"))
        want = Factor()(x).numpy()
        (here,) = dovetail.run(model, [x.numpy()]).values()
        (theirs,) = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), {model.inputs[0].name: x.numpy()})
        assert_near({"here": here, "onnxruntime": theirs}, want, 2e-5)


@pytest.mark.parametrize("color", ["NV12_SINGLE_PLANE", "NV12_TWO_PLANES", "I420_SINGLE_PLANE", "I420_THREE_PLANES", "BGR"])
def test_the_preprocessing_of_a_frame_of_video_means_the_same_in_every_file(color: str, tmp_path: Path) -> None:
    """YUV 4:2:0 becomes RGB, then f32, resized and normalized."""
    x = ops.parameter(PartialShape([1, 3, 4, 4]), np.float32, "x")
    weights = RNG.standard_normal((2, 3, 3, 3)).astype("f4")
    y = ops.relu(ops.convolution(x, weights, [1, 1], [1, 1], [1, 1], [1, 1]))
    y.output(0).set_names({"y"})
    steps = PrePostProcessor(openvino.Model([y], [x], "m"))
    tensor = steps.input().tensor().set_element_type(Type.u8).set_layout(Layout("NHWC")).set_spatial_static_shape(8, 8)
    planes = {"NV12_TWO_PLANES": ["y", "uv"], "I420_THREE_PLANES": ["y", "u", "v"]}.get(color)
    tensor.set_color_format(getattr(ColorFormat, color), *([planes] if planes else []))
    process = steps.input().preprocess().convert_color(ColorFormat.RGB).convert_element_type(Type.f32)
    process.resize(ResizeAlgorithm.RESIZE_LINEAR).mean([123.0, 117.0, 104.0]).scale([58.0, 57.0, 58.0])
    steps.input().model().set_layout(Layout("NCHW"))
    built = steps.build()
    openvino.save_model(built, tmp_path / "m.xml", compress_to_fp16=False)
    frame = [RNG.integers(16, 235, list(port.shape)).astype("u1") for port in built.inputs]
    want = openvino.Core().compile_model(tmp_path / "m.xml", "CPU", F32)(frame)[0]
    assert dovetail.check(tmp_path / "m.xml") == []
    model = dovetail.load(tmp_path / "m.xml")
    dovetail.save(model, tmp_path / "again.xml")
    dovetail.save(model, tmp_path / "m.onnx")
    back = dovetail.load(tmp_path / "m.onnx")
    dovetail.save(back, tmp_path / "back.xml")
    feeds = dict(zip([value.name for value in model.inputs], frame, strict=True))
    files = {name: openvino.Core().compile_model(tmp_path / name, "CPU", F32)(frame)[0] for name in ("again.xml", "back.xml")}
    simplified = dovetail.simplify(model, prove=True)
    here = {
        f"{name}, {engine}": next(iter(dovetail.run(each, feeds, engine).values()))
        for name, each in (("IR", model), ("ONNX", back), ("simplified", simplified))
        for engine in ("interpreter", "native")
    }
    theirs = run_onnxruntime((tmp_path / "m.onnx").read_bytes(), feeds)[0]
    assert_near(files | here | {"onnxruntime": theirs}, want, 2e-3 * float(np.abs(want).max()))


def test_a_nearest_resize_whose_lengths_the_formats_round_differently_is_refused_by_name(tmp_path: Path) -> None:
    with dovetail.Builder("m") as b:
        x = b.input("x", "f32", (1, 3, 4, "n"))
        b.output("y", b.Resize(x, None, np.float32([1, 1, 1, 0.3]), mode="nearest"))
    with pytest.raises(dovetail.DovetailError, match="before run time") as caught:
        dovetail.save(b.model, tmp_path / "m.xml")
    assert caught.value.code == "type.unknown"
