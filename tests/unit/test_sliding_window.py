"""Windows whose sizes only run time knows, and the forms in which OpenVINO and old versions of ONNX spell them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from dovetail.errors import DovetailError, RuleError, UnsupportedError
from dovetail.formats import import_foreign, save
from dovetail.formats.onnx import codec as onnx_codec
from dovetail.formats.openvino import codec as openvino_codec
from dovetail.ir.builder import Builder
from dovetail.laws.gradients import grad
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.pool import AveragePool, MaxPool
from dovetail.runtime.interpreter.interpret import interpret

CHANCE = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return CHANCE.standard_normal(shape).astype(np.float32)


def slopes(op: Any, x: Any, others: tuple[Any, ...], sizes: tuple[Any, ...]) -> dict[str, Any]:
    """Return the results and gradients for ``x`` of a model whose input has ``sizes``."""
    b = Builder("slopes")
    inputs = [b.input("x", "f32", sizes)]
    for index, other in enumerate(others):
        if other is None:
            inputs.append(None)
        elif other.dtype == np.float32:
            inputs.append(b.input(f"w{index}", "f32", other.shape))
        else:
            inputs.append(b.constant(other))
    y = b.add(op, *inputs)[0]
    b.output("y", y)
    model = grad(b.model, of="y")
    names = {value.name for value in model.inputs}
    given = {"x": x} | {f"w{index}": w for index, w in enumerate(others) if f"w{index}" in names}
    static = interpret(b.model, {key: given[key] for key in given})["y"]
    given["grad:y"] = np.random.default_rng(1).standard_normal(static.shape).astype(np.float32)
    return interpret(model, given)


WINDOWS = [
    (Conv((2,), (1, 0)), (1, 2, 8), ((3, 2, 3),)),
    (Conv((3, 2), None, (1, 2), group=2), (2, 4, 8, 9), ((4, 2, 2, 3),)),
    *(
        (Conv((2,), None, None, auto_pad), (1, 2, size), ((3, 2, 4),))
        for auto_pad in ("same_upper", "same_lower", "valid")
        for size in (7, 8)
    ),
    (ConvTranspose((2,), (1, 0), output_padding=(1,)), (1, 2, 4), ((2, 3, 3),)),
    (ConvTranspose((2,), None, None, "same_lower", group=2), (1, 2, 4), ((2, 3, 3),)),
    (ConvTranspose((2,), (1, 0)), (1, 2, 4), ((2, 3, 3), None, np.array([7]))),
    (ConvTranspose((2,), None, None, "same_upper"), (1, 2, 4), ((2, 3, 3), None, np.array([6]))),
    (MaxPool((2,), (1, 1), kernel_shape=(3,)), (2, 2, 7), ()),
    (MaxPool((2,), None, None, "same_upper", kernel_shape=(3,), rounding_type="ceil_torch"), (2, 2, 6), ()),
    (AveragePool((2,), (1, 1), kernel_shape=(3,)), (2, 2, 6), ()),
    (AveragePool((2,), (1, 1), kernel_shape=(3,), divisor="padded"), (2, 2, 6), ()),
    (AveragePool((2,), None, None, "same_lower", kernel_shape=(3,)), (2, 2, 6), ()),
    (AveragePool((2,), kernel_shape=(3,), divisor="window"), (2, 2, 6), ()),
]


@pytest.mark.parametrize(("op", "shape", "others"), WINDOWS, ids=str)
def test_gradients_are_the_same_where_only_run_time_knows_the_sizes(op: Any, shape: Any, others: Any) -> None:
    x = floats(*shape)
    given = tuple(floats(*other) if isinstance(other, tuple) else other for other in others)
    known = slopes(op, x, given, shape)
    names = ("n", shape[1], *(f"s{axis}" for axis in range(len(shape) - 2)))
    unknown = slopes(op, x, given, names)
    assert known.keys() == unknown.keys()
    for name, array in known.items():
        np.testing.assert_allclose(unknown[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def from_openvino(tmp_path: Path, make: Any, *inputs: Any) -> tuple[list[Any], list[Any]]:
    """Return the outputs of what ``make`` builds from parameters, by us and by OpenVINO, from the file that it saves."""
    openvino = pytest.importorskip("openvino")
    from openvino import opset1

    parameters = [opset1.parameter(x.shape, x.dtype) for x in inputs]
    for index, parameter in enumerate(parameters):
        parameter.set_friendly_name(f"x{index}")
    node = make(*parameters)
    model = openvino.Model(node.outputs(), parameters)
    openvino.save_model(model, tmp_path / "m.xml", compress_to_fp16=False)
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    theirs = list(compiled(list(inputs)).values())
    ours = interpret(import_foreign(openvino_codec.read(tmp_path / "m.xml")), {f"x{index}": x for index, x in enumerate(inputs)})
    return list(ours.values()), theirs


def openvino_nodes() -> dict[str, tuple[Any, tuple[Any, ...]]]:
    openvino = pytest.importorskip("openvino")
    from openvino import opset1, opset2, opset6, opset8, opset11, opset14
    from openvino.utils.node_factory import NodeFactory

    del openvino
    x1, x2 = floats(1, 4, 6), floats(1, 4, 5, 6)

    def constant(*items: Any, kind: Any = np.int64) -> Any:
        return opset1.constant(np.array(items, dtype=kind))

    w, grouped = floats(4, 2, 3), floats(2, 2, 3, 3)
    found: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "MaxPool-1": (lambda x: opset1.max_pool(x, [2], [1], [1], [3], "ceil"), (x1,)),
        "MaxPool-8": (lambda x: opset8.max_pool(x, [2, 1], [1, 2], [0, 1], [1, 0], [2, 2], "floor", None, "i32", 1), (x2,)),
        "MaxPool-14": (lambda x: opset14.max_pool(x, [3], [1], [0], [1], [2], "ceil_torch"), (x1,)),
        "AvgPool-14": (lambda x: opset14.avg_pool(x, [2], [1], [1], [3], False, "ceil_torch"), (x1,)),
        "AvgPool-1 ceil without padding": (lambda x: opset1.avg_pool(x, [2], [0], [0], [3], False, "ceil"), (x1,)),
        "GroupConvolution": (
            lambda x: opset1.group_convolution(x, opset1.constant(floats(2, 3, 2, 3)), [2], [1], [0], [1]),
            (floats(1, 4, 6),),
        ),
        "GroupConvolution same": (
            lambda x: opset1.group_convolution(x, opset1.constant(floats(2, 2, 2, 4)), [2], [0], [0], [1], "same_lower"),
            (x1,),
        ),
        "GroupConvolutionBackpropData": (
            lambda x: opset1.group_convolution_backprop_data(
                x, opset1.constant(grouped), [2], None, [1], [0], [1], "explicit", [1]
            ),
            (x1,),
        ),
        "MVN-1": (lambda x: opset2.mvn(x, False, True, 0.5), (x2,)),
        "MVN-6": (lambda x: opset6.mvn(x, constant(1, 2), True, 0.5, "OUTSIDE_SQRT"), (x2,)),
        "LRN": (lambda x: opset1.lrn(x, constant(2, 3), 0.5, 0.75, 2.0, 3), (x2,)),
        "SoftMax-1": (lambda x: opset1.softmax(x, 1), (x2,)),
        "SoftMax-8": (lambda x: opset8.softmax(x, -2), (x2,)),
        "NormalizeL2": (lambda x: opset1.normalize_l2(x, constant(1), 0.25, "max"), (x2,)),
    }
    for auto_pad in ("explicit", "same_upper", "same_lower", "valid"):
        for exclude in (True, False):
            found[f"AvgPool-1 {auto_pad} {exclude}"] = (
                lambda x, auto_pad=auto_pad, exclude=exclude: opset1.avg_pool(x, [2], [1], [0], [3], exclude, "floor", auto_pad),
                (x1,),
            )
        for size in (None, 12, 11, 14):
            found[f"ConvolutionBackpropData {auto_pad} to {size}"] = (
                lambda x, auto_pad=auto_pad, size=size: opset1.convolution_backprop_data(
                    x, opset1.constant(w), [2], None if size is None else constant(size), [1], [0], [1], auto_pad
                ),
                (x1,),
            )
        found[f"GroupConvolutionBackpropData {auto_pad} to 12"] = (
            lambda x, auto_pad=auto_pad: opset1.group_convolution_backprop_data(
                x, opset1.constant(grouped), [2], constant(12), [1], [0], [1], auto_pad
            ),
            (x1,),
        )
    for mode, nearest in (
        ("nearest", "simple"),
        ("nearest", "round_prefer_floor"),
        ("linear", "floor"),
        ("linear_onnx", "floor"),
        ("cubic", "floor"),
    ):
        for coordinates in ("half_pixel", "asymmetric", "align_corners", "tf_half_pixel_for_nn", "pytorch_half_pixel"):
            for target in ([8, 4], [2.0, 0.75], [3, 9]):
                how = "sizes" if isinstance(target[0], int) else "scales"
                kind = np.int64 if how == "sizes" else np.float32
                found[f"Interpolate-11 {mode} {nearest} {coordinates} {target}"] = (
                    lambda x, mode=mode, nearest=nearest, coordinates=coordinates, target=target, how=how, kind=kind: (
                        opset11.interpolate(
                            x,
                            constant(*target, kind=kind),
                            mode,
                            how,
                            coordinate_transformation_mode=coordinates,
                            nearest_mode=nearest,
                            axes=constant(2, 3),
                        )
                    ),
                    (x2,),
                )
    attributes = {"mode": "linear_onnx", "pads_begin": [0, 0, 1, 0], "pads_end": [0, 0, 0, 2]}
    for how in ("sizes", "scales"):
        found[f"Interpolate-4 {how}"] = (
            lambda x, how=how: NodeFactory("opset4").create(
                "Interpolate",
                [x.output(0), *(each.output(0) for each in (constant(8, 9), constant(2, 0.5, kind=np.float32), constant(2, 3)))],
                {**attributes, "shape_calculation_mode": how},
            ),
            (x2,),
        )
    for mode in ("nearest", "linear"):
        for align in (True, False):
            found[f"Interpolate-1 {mode} {align}"] = (
                lambda x, mode=mode, align=align: opset1.interpolate(
                    x, constant(8, 9), {"axes": [2, 3], "mode": mode, "align_corners": align, "pads_begin": [0], "pads_end": [0]}
                ),
                (x2,),
            )
    return found


NODES = openvino_nodes()


@pytest.mark.parametrize("name", NODES)
def test_an_ir_of_openvino_gives_the_results_of_openvino(name: str, tmp_path: Path) -> None:
    ours, theirs = from_openvino(tmp_path, *(NODES[name][0], *NODES[name][1]))
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-5)


def onnx_node(kind: str, opset: int, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """Return our results of one ONNX node with these inputs, all of them constants."""
    from onnx import helper, numpy_helper

    names = [f"x{index}" for index in range(len(inputs))]
    node = helper.make_node(kind, names, [f"y{index}" for index in range(outputs)], **attributes)
    kinds = [helper.make_tensor_value_info(names[0], helper.np_dtype_to_tensor_dtype(inputs[0].dtype), inputs[0].shape)]
    constants = [numpy_helper.from_array(np.asarray(x), name) for x, name in zip(inputs[1:], names[1:], strict=True)]
    results = [helper.make_empty_tensor_value_info(f"y{index}") for index in range(outputs)]
    graph = helper.make_graph([node], "g", kinds, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    found = interpret(import_foreign(onnx_codec.read(model)), {"x0": inputs[0]})
    return list(found.values())


def test_softmax_before_13_folds_the_axes_from_its_axis_on() -> None:
    x = floats(2, 3, 4)
    flat = np.exp(x.reshape(2, 12))
    expected = (flat / flat.sum(axis=1, keepdims=True)).reshape(2, 3, 4)
    for opset in (1, 11):
        np.testing.assert_allclose(onnx_node("Softmax", opset, x)[0], expected, rtol=1e-5)


def test_batch_normalization_of_old_versions_is_inference_alone() -> None:
    x, parameters = floats(2, 3, 4), [floats(3), floats(3), floats(3), np.abs(floats(3))]
    expected = onnx_node("BatchNormalization", 15, x, *parameters)[0]
    for opset, attributes in ((1, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}), (6, {"is_test": 1}), (7, {}), (9, {})):
        np.testing.assert_array_equal(onnx_node("BatchNormalization", opset, x, *parameters, **attributes)[0], expected)
    for opset in (6, 7, 9):
        with pytest.raises(DovetailError):
            onnx_node("BatchNormalization", opset, x, *parameters, outputs=5)


def test_batch_normalization_7_without_spatial_has_parameters_for_each_place() -> None:
    x, parameters = floats(2, 3, 4), [floats(3, 4), floats(3, 4), floats(3, 4), np.abs(floats(3, 4))]
    scale, bias, mean, variance = parameters
    expected = (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    np.testing.assert_allclose(onnx_node("BatchNormalization", 7, x, *parameters, spatial=0)[0], expected, rtol=1e-5, atol=1e-6)


def test_gemm_of_old_versions_needs_an_attribute_to_broadcast() -> None:
    x, y, bias = floats(2, 3), floats(3, 4), floats(4)
    for opset in (1, 6):
        np.testing.assert_allclose(onnx_node("Gemm", opset, x, y, bias, broadcast=1)[0], x @ y + bias, rtol=1e-5)
        with pytest.raises(RuleError, match="broadcast"):
            onnx_node("Gemm", opset, x, y, bias)


def test_dropout_of_old_versions_drops_only_in_training() -> None:
    x = np.ones((50, 50), np.float32)
    for opset, attributes in ((1, {"is_test": 1}), (6, {"is_test": 1}), (7, {}), (10, {})):
        np.testing.assert_array_equal(onnx_node("Dropout", opset, x, **attributes)[0], x)
    dropped = onnx_node("Dropout", 6, x, ratio=0.25)[0]
    assert set(np.unique(dropped)) == {np.float32(0), np.float32(1 / 0.75)}
    assert onnx_node("Dropout", 7, x, outputs=2)[1].dtype == np.float32
    assert onnx_node("Dropout", 10, x, outputs=2)[1].dtype == np.bool_


def test_upsample_repeats_elements() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    expected = x.repeat(2, axis=2).repeat(3, axis=3)
    scales = np.array([1, 1, 2, 3], np.float32)
    np.testing.assert_array_equal(onnx_node("Upsample", 1, x, height_scale=2.0, width_scale=3.0)[0], expected)
    np.testing.assert_array_equal(onnx_node("Upsample", 7, x, scales=scales.tolist())[0], expected)
    np.testing.assert_array_equal(onnx_node("Upsample", 9, x, scales)[0], expected)
    np.testing.assert_array_equal(onnx_node("Resize", 10, x, scales)[0], expected)


@pytest.mark.parametrize(
    ("make", "error", "code"),
    [
        (lambda b, x: b.Conv(x, b.constant(floats(3, 3, 2))), RuleError, "shape.disagree"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 9))), RuleError, "shape.range"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 1, 2)), group=2), RuleError, "shape.multiple"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), kernel_shape=(3,)), RuleError, "shape.disagree"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), strides=(0,)), RuleError, "attribute.range"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), strides=(1, 1)), RuleError, "attribute.length"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), pads=(1, 1), auto_pad="valid"), RuleError, "attribute.conflict"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), auto_pad="SAME"), RuleError, "attribute.value"),
        (lambda b, x: b.Conv(x, b.constant(floats(3, 2, 2)), b.constant(floats(2))), RuleError, "shape.disagree"),
        (lambda b, x: b.MaxPool(x, kernel_shape=(2, 2)), RuleError, "attribute.length"),
        (lambda b, x: b.MaxPool(x, kernel_shape=(2,), rounding_type="up"), RuleError, "attribute.value"),
        (
            lambda b, x: b.ConvTranspose(x, b.constant(floats(2, 3, 3)), None, [40], strides=(2,), auto_pad="same_upper"),
            UnsupportedError,
            "op.unsupported",
        ),
        (lambda b, x: b.Resize(x, [1, 2, 3], [1.0, 1.0, 2.0]), RuleError, "attribute.conflict"),
        (lambda b, x: b.Resize(x, [1, 2]), RuleError, "attribute.length"),
        (lambda b, x: b.Resize(x, [1, 2, -3]), RuleError, "shape.range"),
        (lambda b, x: b.Resize(x, None, b.constant([1.0, 1.0, 0.0])), RuleError, "attribute.range"),
        (lambda b, x: b.Resize(x, [1, 2, 3], mode="area"), RuleError, "attribute.value"),
        (
            lambda b, x: b.Resize(x, [1, 2, 3], coordinate_transformation_mode="tf_crop_and_resize"),
            RuleError,
            "attribute.conflict",
        ),
        (
            lambda b, x: b.GroupNormalization(x, b.constant(floats(2)), b.constant(floats(2)), num_groups=3),
            RuleError,
            "shape.multiple",
        ),
        (lambda b, x: b.MatMul(x, b.constant(floats(3, 3))), RuleError, "shape.disagree"),
        (lambda b, x: b.Gemm(x, b.constant(floats(3, 3))), RuleError, "shape.rank"),
        (lambda b, x: b.Softmax(x, axis=3), RuleError, "axis.range"),
    ],
)
def test_invalid_attributes_and_inputs_are_refused(make: Any, error: Any, code: str) -> None:
    b = Builder("refused")
    with pytest.raises(error) as caught:
        make(b, b.input("x", "f32", (1, 2, 6)))
    assert caught.value.code == code


@pytest.mark.parametrize("auto_pad", ["valid", "same_upper", "same_lower"])
def test_zero_pads_are_not_written_into_onnx_with_auto_pad(auto_pad: str, tmp_path: Path) -> None:
    b = Builder("zeros")
    op = Conv(strides=(1, 1), dilations=(1, 1), pads=(0, 0, 0, 0), auto_pad=auto_pad)
    b.output("y", b.add(op, b.input("x", "f32", (1, 2, 5, 5)), b.constant(floats(3, 2, 3, 3)))[0])
    save(b.model, tmp_path / "zeros.onnx")
    node = next(node for node in onnx.load(tmp_path / "zeros.onnx").graph.node if node.op_type == "Conv")
    assert "pads" not in [attribute.name for attribute in node.attribute]
