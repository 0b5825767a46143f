"""Elementwise operators beyond the tables of cases: sizes known only at run time, and files of other writers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import dovetail
from dovetail.errors import DovetailError, EngineError, FormatError, UnsupportedError
from dovetail.formats import import_foreign, load
from dovetail.formats.onnx import codec
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import Builder
from dovetail.ir.evaluate import run
from dovetail.ir.graph import Model
from dovetail.laws.gradients import adjoints
from dovetail.ops.elementwise.broadcast import unbroadcast
from dovetail.ops.elementwise.unary import ErfInv


def onnx_model(
    opset: int, kind: str, shapes: dict[str, tuple[int, ...]], element: int = TensorProto.FLOAT, **attributes: Any
) -> Model:
    node = helper.make_node(kind, list(shapes), ["y"], **attributes)
    inputs = [helper.make_tensor_value_info(name, element, shape) for name, shape in shapes.items()]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "g", inputs, [output])
    return import_foreign(codec.read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])))


def ir_model(
    folder: Path,
    kind: str,
    shapes: list[tuple[int, ...]],
    *,
    precision: str = "f32",
    version: str = "opset1",
    rank: int = 0,
    **data: Any,
) -> Model:
    """Return an IR file of one layer."""

    def port(index: int, shape: tuple[int, ...]) -> str:
        return (
            f'<port id="{index}" precision="{precision.upper()}">' + "".join(f"<dim>{size}</dim>" for size in shape) + "</port>"
        )

    text = {name.replace("__", "."): value for name, value in data.items()}
    layers = [
        f'<layer id="{index}" name="x{index}" type="Parameter" version="opset1"><data element_type="{precision}" '
        f'shape="{",".join(map(str, shape))}"/><output>{port(0, shape)}</output></layer>'
        for index, shape in enumerate(shapes)
    ]
    count = len(shapes)
    attributes = " ".join(f'{name}="{value}"' for name, value in text.items())
    layers.append(
        f'<layer id="{count}" name="y" type="{kind}" version="{version}"><data {attributes}/><input>'
        + "".join(port(index, shape) for index, shape in enumerate(shapes))
        + f"</input><output>{port(count, shapes[0])}</output></layer>"
    )
    layers.append(f'<layer id="{count + 1}" name="r" type="Result" version="opset1"><input>{port(0, shapes[0])}</input></layer>')
    edges = [f'<edge from-layer="{index}" from-port="0" to-layer="{count}" to-port="{index}"/>' for index in range(count)]
    edges.append(f'<edge from-layer="{count}" from-port="{count}" to-layer="{count + 1}" to-port="0"/>')
    path = folder / "m.xml"
    path.write_text(
        f'<?xml version="1.0"?><net name="m" version="11"><layers>{"".join(layers)}</layers><edges>{"".join(edges)}</edges></net>'
    )
    (folder / "m.bin").write_bytes(b"")
    # Strict: a node that breaks a rule ends the load.
    return load(path, strict=True)


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("real", [(3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (3, 0)])
def test_a_gradient_is_summed_back_to_sizes_known_at_run_time(real: tuple[int, int]) -> None:
    b = Builder()
    g = b.input("g", "f32", ("n", "m"))
    x = b.input("x", "f32", ("a", "c"))
    b.output("dx", unbroadcast(b, g, x))
    wide = tuple(size if size != 1 else full for size, full in zip(real, (3, 4), strict=True))
    given = numbers(*wide)
    axes = tuple(axis for axis in range(2) if real[axis] == 1 and wide[axis] != 1)
    (found,) = run(b.graph, [given, np.zeros(real, np.float32)], np)
    np.testing.assert_allclose(found, given.sum(axis=axes, keepdims=True).reshape(real), rtol=1e-5)


def test_a_gradient_needs_ranks_to_be_summed_back() -> None:
    b = Builder()
    with pytest.raises(UnsupportedError, match=r"type\.unknown"):
        unbroadcast(b, b.input("g", "f32"), b.input("x", "f32", (2,)))


def test_a_gradient_of_a_reduction_over_axes_known_at_run_time() -> None:
    b = Builder()
    x, axes = b.input("x", "f32", (2, 3)), b.input("axes", "i64", (1,))
    y = b.ReduceSum(b.Multiply(x, x), axes, keepdims=False)
    seed = b.input("seed", "f32", (None,))
    (dx,) = adjoints(b, [y], [seed], [x])
    b.graph.outputs = [dx]
    given, weights = numbers(2, 3), numbers(2, seed=1)
    found = run(b.graph, [given, np.array([1]), weights], np)[0]
    np.testing.assert_allclose(found, 2 * given * weights[:, None], rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "axis", "place"),
    [
        ((5,), None, (5,)),
        ((4, 5), None, (4, 5)),
        ((3, 4), 1, (3, 4, 1)),
        ((2,), 0, (2, 1, 1, 1)),
        ((1, 1), None, (1, 1)),
        ((), None, ()),
    ],
)
@pytest.mark.parametrize(("kind", "opset", "function"), [("Add", 1, np.add), ("Mul", 6, np.multiply), ("Pow", 1, np.power)])
def test_before_version_7_the_second_input_starts_at_an_axis(
    shape: tuple[int, ...], axis: int | None, place: tuple[int, ...], kind: str, opset: int, function: Any
) -> None:
    attributes = {} if axis is None else {"axis": axis}
    model = onnx_model(opset, kind, {"a": (2, 3, 4, 5), "b": shape}, broadcast=1, **attributes)
    x, y = np.abs(numbers(2, 3, 4, 5)), numbers(*shape, seed=1)
    np.testing.assert_allclose(run(model.graph, [x, y], np)[0], function(x, y.reshape(place)), rtol=1e-6)


def test_before_version_7_broadcasting_needs_an_attribute() -> None:
    with pytest.raises(DovetailError, match="must be equal"):
        onnx_model(6, "Add", {"a": (2, 3), "b": (3,)})


def test_before_version_7_the_first_input_is_never_stretched() -> None:
    with pytest.raises(DovetailError, match=r"shape\.broadcast"):
        onnx_model(6, "Add", {"a": (1, 3), "b": (2, 3)}, broadcast=1)


@pytest.mark.parametrize(
    ("shape", "axis", "place"),
    [((3, 4), 1, (3, 4, 1)), ((4, 5), -1, (4, 5)), ((2, 1), 0, (2, 1, 1, 1)), ((3, 1, 1, 1), 1, (3, 1, 1))],
)
def test_paddles_broadcasting_starts_at_an_axis(
    tmp_path: Path, shape: tuple[int, ...], axis: int, place: tuple[int, ...]
) -> None:
    options = {"auto_broadcast": "pdpd", "auto_broadcast__auto_broadcast_axis": axis}
    model = ir_model(tmp_path, "Add", [(2, 3, 4, 5), shape], **options)
    x, y = numbers(2, 3, 4, 5), numbers(*shape, seed=1)
    np.testing.assert_array_equal(run(model.graph, [x, y], np)[0], x + y.reshape(place))


def test_paddles_broadcasting_without_an_axis_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"attribute\.missing"):
        ir_model(tmp_path, "Add", [(2, 3, 4, 5), (4, 5)], auto_broadcast="pdpd")


def test_openvinos_maximum_takes_two_inputs(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="must have 2 inputs"):
        ir_model(tmp_path, "Maximum", [(2,), (2,), (2,)], auto_broadcast="numpy")


def test_a_mod_of_floats_needs_fmod() -> None:
    with pytest.raises(FormatError, match=r"attribute\.value"):
        onnx_model(13, "Mod", {"a": (2,), "b": (2,)})
    model = onnx_model(13, "Mod", {"a": (2,), "b": (2,)}, fmod=1)
    (found,) = run(model.graph, [np.float32([-7, 7]), np.float32([3, -3])], np)
    np.testing.assert_array_equal(found, np.float32([-1, 1]))


def test_a_clamp_of_integers_keeps_to_the_whole_numbers_inside(tmp_path: Path) -> None:
    model = ir_model(tmp_path, "Clamp", [(6,)], precision="i32", min="-2.5", max="3.5")
    np.testing.assert_array_equal(run(model.graph, [np.int32([-9, -3, -2, 3, 4, 9])], np)[0], [-2, -2, -2, 3, 3, 3])


def test_slopes_before_version_7_belong_to_channels() -> None:
    model = onnx_model(6, "PRelu", {"x": (1, 3, 2), "slope": (3,)})
    x, slope = -np.ones((1, 3, 2), np.float32), np.float32([1, 2, 3])
    np.testing.assert_array_equal(run(model.graph, [x, slope], np)[0][0, :, 0], [-1, -2, -3])


def test_a_slope_may_be_computed_where_the_core_has_a_number(tmp_path: Path) -> None:
    model = ir_model(tmp_path, "Swish", [(3,), ()], version="opset4")
    x = np.float32([-1, 0.5, 2])
    found = run(model.graph, [x, np.float32(1.5)], np)[0]
    np.testing.assert_allclose(found, x / (1 + np.exp(-1.5 * x)), rtol=1e-6)


@pytest.mark.parametrize(("opset", "infinite"), [(19, True), (23, True), (24, False), (25, False)])
def test_until_version_24_infinity_became_nan_in_types_without_it(opset: int, infinite: bool) -> None:
    model = onnx_model(opset, "Cast", {"x": (2,)}, to=TensorProto.FLOAT8E4M3FNUZ)
    found = run(model.graph, [np.float32([np.inf, 1e9])], np)[0].astype(np.float32)
    assert np.isnan(found[0]) == infinite and found[1] == 240


def test_shapes_that_must_be_equal_are_checked_at_run_time() -> None:
    b = Builder()
    b.output("y", b.Add(b.input("x0", "f32", ("n",)), b.input("x1", "f32", ("m",)), broadcast=False))
    with pytest.raises(EngineError, match=r"shape.disagree"):
        run(b.graph, [numbers(2), numbers(1)], np)


def test_arithmetic_on_sizes_is_followed() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", "m"))
    n, m = symbolic.symbol("n"), symbolic.symbol("m")
    shape = b.Shape(x, output_type=dtypes.i64)
    for made, meant in (
        (b.Add(shape, 1), [n + 1, m + 1]),
        (b.Divide(b.Multiply(shape, 6), 2), [3 * n, 3 * m]),
        (b.Divide(b.Add(shape, 1), 2), [(n + 1) // 2, (m + 1) // 2]),
        (b.Mod(shape, 4), [n % 4, m % 4]),
        (b.Maximum(shape, 3), [symbolic.maximum(n, 3), symbolic.maximum(m, 3)]),
        (b.Negative(b.Minimum(shape, 3)), [-symbolic.minimum(n, 3), -symbolic.minimum(m, 3)]),
        (b.Where(b.GreaterEqual(shape, 0), shape, -1), [n, m]),
        (b.ReduceProd(shape), [n * m]),
        (b.ReduceSum(shape, [0], keepdims=False), n + m),
        (b.CumSum(shape, 0), [n, n + m]),
        (b.Cast(b.Cast(shape, to=dtypes.i32), to=dtypes.i64), [n, m]),
    ):
        assert made.value is not None and np.asarray(made.value).tolist() == meant, made


def test_the_inverse_of_the_error_function_is_exact_to_the_last_digits_of_f64() -> None:
    torch = pytest.importorskip("torch")
    near = 10.0 ** np.arange(-16, 0)
    x = np.concatenate([np.linspace(-0.999, 0.999, 101), 1 - near, near - 1, near])
    y = arrays.erfinv(np, x)
    np.testing.assert_allclose(y, torch.erfinv(torch.from_numpy(x)).numpy(), rtol=4e-15, atol=0)
    with Builder() as b:
        b.output("y", ErfInv().lower(b, b.input("x", "f64", x.shape)))
    (written,) = run(b.graph, [x], np)
    np.testing.assert_array_equal(written, y)


def test_beyond_its_ends_the_error_function_has_no_inverse() -> None:
    found = arrays.erfinv(np, np.array([-1, 1, -1.5, 2, np.nan, -0.0], np.float32))
    np.testing.assert_array_equal(found, np.array([-np.inf, np.inf, np.nan, np.nan, np.nan, -0.0], np.float32))
    assert np.signbit(found[-1])


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("slope", [None, (), (1,), (1, 1, 1)])
def test_one_slope_of_a_tensor_of_any_rank(slope: tuple[int, ...] | None, shape: tuple[int, ...], tmp_path: Path) -> None:
    """IR gives a slope of rank 1 to axis 1, which one element does not need."""
    if len(slope or ()) > len(shape):
        pytest.skip("the slope has a higher rank")
    b = Builder()
    x = b.input("x", "f32")
    b.output("y", b.LeakyRelu(x, alpha=0.5) if slope is None else b.PRelu(x, b.constant(np.full(slope, 0.5, np.float32))))
    dovetail.save(b.model, tmp_path / "m.xml")
    data = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    found = dovetail.run(tmp_path / "m.xml", {"x": data}, engine="interpreter")["y"]
    np.testing.assert_array_equal(found, np.where(data < 0, data / 2, data))
