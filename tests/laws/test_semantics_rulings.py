"""Examples of the specifications, the rulings where sources disagree, and the gradients, each by its name in
SEMANTICS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from single_node_models import (
    KNOWN,
    NODE,
    OPEN,
    Operator,
    _layer,
    assert_bits,
    deviates,
    elements,
    feeds,
    given,
    holds,
    moved,
    port,
    refused,
    save_ir,
    write,
)


def f32(*shape: int, start: int = 0) -> Any:
    return elements("f32", int(np.prod(shape)), start).reshape(shape)


# The examples: type, attributes, data inputs, constant inputs, the outputs declared

_JOINED = [(1, 8, 50, 50), (1, 16, 50, 50), (1, 32, 50, 50)]
EXAMPLES: dict[str, tuple[str, dict[str, str], list[Any], list[Any], list[Any]]] = {
    "Concat along axis 1": ("Concat", {"axis": "1"}, _JOINED, [], [(1, 56, 50, 50)]),
    "Concat along axis -3": ("Concat", {"axis": "-3"}, _JOINED, [], [(1, 56, 50, 50)]),
    "Reshape 1: an empty tensor": ("Reshape", {"special_zero": "false"}, [(2, 5, 5, 0)], [[0, 4]], [(0, 4)]),
    "Reshape 2: keep, compute, fix": ("Reshape", {"special_zero": "true"}, [(2, 5, 5, 24)], [[0, -1, 4]], [(2, 150, 4)]),
    "Reshape 3: keep two": ("Reshape", {"special_zero": "true"}, [(2, 2, 3)], [[0, 0, 1, -1]], [(2, 2, 1, 3)]),
    "Reshape 4: compute, keep": ("Reshape", {"special_zero": "true"}, [(3, 1, 1)], [[-1, 0]], [(3, 1)]),
    "Reshape 5: keep, compute": ("Reshape", {"special_zero": "true"}, [(3, 1, 1)], [[0, -1]], [(3, 1)]),
    "VariadicSplit by [1, 2, 3]": (
        "VariadicSplit", {}, [(6, 12, 10, 24)], [0, [1, 2, 3]], [(1, 12, 10, 24), (2, 12, 10, 24), (3, 12, 10, 24)],
    ),
    "VariadicSplit by [-1, 2]": ("VariadicSplit", {}, [(6, 12, 10, 24)], [0, [-1, 2]], [(4, 12, 10, 24), (2, 12, 10, 24)]),
}  # fmt: skip


def example(name: str, folder: Path, declared: list[Any] | None = None) -> tuple[Path, list[Any]]:
    """Return the file of an example, with the outputs it declares (or ``declared``), and inputs for it."""
    kind, attributes, shapes, constants, outputs = EXAMPLES[name]
    f = dtypes.f32
    layers, edges, weights, count = [], [], b"", len(shapes) + len(constants)
    for index, shape in enumerate(shapes):
        data = f'shape="{",".join(map(str, shape))}" element_type="f32"'
        layers.append(_layer(index, f"x{index}", "Parameter", data, "", port(0, list(shape), f, f"x{index}")))
    for index, constant in enumerate(constants, len(shapes)):
        array = np.array(constant, dtype=np.int64)
        sizes = ",".join(map(str, array.shape))
        data = f'element_type="i64" shape="{sizes}" offset="{len(weights)}" size="{array.nbytes}"'
        weights += array.tobytes()
        layers.append(_layer(index, f"c{index}", "Const", data, "", port(0, list(array.shape), dtypes.i64)))
    edges = [(index, 0, count, index) for index in range(count)]
    ins = [*shapes, *(np.shape(constant) for constant in constants)]
    inputs = "".join(port(index, list(shape)) for index, shape in enumerate(ins)).replace("<dim>", "<!-- data --><dim>", 1)
    made = "".join(port(count + index, list(shape), f, f"y{index}") for index, shape in enumerate(declared or outputs))
    data = " ".join(f'{key}="{value}"' for key, value in attributes.items())
    layers.append(_layer(count, NODE, kind, data, inputs, made))
    for index, shape in enumerate(outputs):
        layers.append(_layer(count + 1 + index, f"result {index}", "Result", "", port(0, list(shape)), ""))
        edges.append((count, count + index, count + 1 + index, 0))
    return save_ir(folder, "".join(layers), edges, weights), [f32(*shape, start=index) for index, shape in enumerate(shapes)]


def answer(name: str, xs: list[Any]) -> list[Any]:
    kind, _, _, _, outputs = EXAMPLES[name]
    if kind == "Concat":
        return [np.concatenate(xs, 1)]
    if kind == "Reshape":
        return [xs[0].reshape(outputs[0])]
    return np.split(xs[0], np.cumsum([shape[0] for shape in outputs])[:-1])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_the_documents_are_as_printed(name: str, tmp_path: Path) -> None:
    """Every IR example of the documents: in check, in inference, at run time, in both formats."""
    path, xs = example(name, tmp_path)
    outputs = EXAMPLES[name][4]
    assert dovetail.check(path) == []
    model = dovetail.load(path)
    assert model.warnings == []
    dovetail.save(model, tmp_path / "other.onnx")
    dovetail.save(dovetail.load(tmp_path / "other.onnx"), tmp_path / "again.xml")
    for each in (model, dovetail.load(tmp_path / "other.onnx"), dovetail.load(tmp_path / "again.xml")):
        assert [value.type.shape for value in each.outputs] == outputs
        found = list(dovetail.run(each, xs).values())
        for y, theirs in zip(found, answer(name, xs), strict=True):
            assert_bits(y, theirs, name)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if not name.startswith("Reshape 1")])
def test_openvino_reads_the_examples_alike(name: str, tmp_path: Path) -> None:
    """Every IR example of the documents: by OpenVINO."""
    path, xs = example(name, tmp_path)
    names = [f"y{index}" for index in range(len(EXAMPLES[name][4]))]
    theirs = oracles.run_openvino_file(str(path), {f"x{index}": x for index, x in enumerate(xs)}, names)
    for y, other in zip(dovetail.run(path, xs).values(), theirs, strict=True):
        assert_bits(y, other, name)


@pytest.mark.parametrize("name", ["Concat along axis 1", "Concat along axis -3"])
def test_a_wrong_declared_sum_is_recomputed(name: str, tmp_path: Path) -> None:
    """SEMANTICS: ruling 1: "8 + 16 + 32 = 48": it is 56. A file whose declared output is wrong is recomputed, with a warning."""
    path, xs = example(name, tmp_path, [(1, 48, 50, 50)])
    assert dovetail.check(path) == []
    model = dovetail.load(path)
    assert model.outputs[0].type.shape == (1, 56, 50, 50)
    (warning,) = model.warnings
    assert (warning.code, warning.severity, warning.file) == ("type.declared", "warning", str(path))
    assert warning.node and "48" in warning.message and "56" in warning.message
    assert dovetail.run(path, xs)["y0"].shape == (1, 56, 50, 50)
    for other in ("again.xml", "other.onnx"):
        dovetail.save(model, tmp_path / other)
        loaded = dovetail.load(tmp_path / other)
        assert loaded.warnings == []
        assert loaded.outputs[0].type.shape == (1, 56, 50, 50)


def test_a_wrong_declaration_of_an_onnx_file_is_recomputed(tmp_path: Path) -> None:
    """SEMANTICS: ruling 1: a file whose declared output is wrong is recomputed, with a warning."""
    import onnx

    for declared in ("float[1,48]", "float[56]", "double[1,56]", "float[48,1]"):
        source = f"""<ir_version: 10, opset_import: ["": 13]>
            alone (float[1,8] a, float[1,16] b, float[1,32] c) => ({declared} y) {{ y = Concat<axis = 1>(a, b, c) }}"""
        onnx.save(onnx.parser.parse_model(source), tmp_path / "model.onnx")
        model = dovetail.load(tmp_path / "model.onnx")
        assert str(model.outputs[0].type) == "f32[1, 56]"
        assert [item.code for item in model.warnings] == ["type.declared"], declared
        assert [item.code for item in dovetail.check(tmp_path / "model.onnx")] == ["type.declared"]


def test_a_consistent_declaration_gives_no_warning(tmp_path: Path) -> None:
    """SEMANTICS: ruling 1, the other way: a declaration that does not contradict is no fault."""
    import onnx

    source = """<ir_version: 10, opset_import: ["": 13]>
        alone (float[n,8] a, float[n,m] b) => (float[n,k] y) { y = Concat<axis = 1>(a, b) }"""
    onnx.save(onnx.parser.parse_model(source), tmp_path / "model.onnx")
    model = dovetail.load(tmp_path / "model.onnx")
    assert model.warnings == []
    assert str(model.outputs[0].type) == "f32[n, m + 8]"


@pytest.mark.parametrize("name", ["boolean", "string"])
def test_bool_and_string_are_moved_too(name: str) -> None:
    """SEMANTICS: ruling 3: "any numeric type": bool and string are moved too."""
    x = elements(name, 6).reshape(2, 3)
    holds(Operator("openvino", "Concat", 1, (x, x), {"axis": 0}), np.concatenate([x, x]))
    target = np.array([3, 2], dtype=np.int64)
    holds(Operator("openvino", "Reshape", 1, (x, target), {"special_zero": True}, host=(1,)), x.reshape(3, 2))
    lengths = np.array([1, 2], dtype=np.int64)
    split = Operator("openvino", "VariadicSplit", 1, (x, np.int64(1), lengths), {}, 2, host=(1, 2), fixed=(1,))
    holds(split, x[:, :1], x[:, 1:])


def test_the_index_of_a_0_is_smaller_than_the_rank() -> None:
    """SEMANTICS: ruling 4: it must be smaller."""
    for size, code in ((2, "reshape.target"), (1, "")):
        target = np.array([6, 0] if size == 2 else [0], dtype=np.int64)
        operator = Operator("openvino", "Reshape", 1, (f32(6), target), {"special_zero": True}, host=(1,))
        if code:
            refused(operator, code, silent=True)
        else:
            holds(operator, f32(6))


RULING_5: dict[str, tuple[Operator, str]] = {
    "a volume after a copied 0": (
        Operator("openvino", "Reshape", 1, (f32(2, 3), np.array([0, 4])), {"special_zero": True}, host=(1,)),
        "reshape.volume",
    ),
    "lengths [-1, 7] on 6": (
        Operator("openvino", "VariadicSplit", 1, (f32(6), np.int64(0), np.array([-1, 7])), {}, 2, host=(1, 2), fixed=(1,)),
        "split.sizes",
    ),
    "a float axis": (
        Operator("openvino", "VariadicSplit", 1, (f32(6), np.float32(0), np.array([4, 2])), {}, 2, host=(1, 2), fixed=(1,)),
        "constant.value",
    ),
    "no axis": (Operator("openvino", "Concat", 1, (f32(6), f32(6))), "attribute.missing"),
    "no special_zero": (Operator("openvino", "Reshape", 1, (f32(6), np.array([2, 3])), host=(1,)), "attribute.missing"),
    "no num_splits": (Operator("openvino", "Split", 1, (f32(6), np.int64(0)), {}, 2, host=(1,), fixed=(1,)), "attribute.missing"),
}


@pytest.mark.parametrize("name", RULING_5)
def test_faults_that_openvino_accepts_are_refused_with_the_name_of_the_node(name: str) -> None:
    """SEMANTICS: ruling 5: we refuse each with an error that names the node."""
    operator, code = RULING_5[name]
    refused(operator, code, silent=True)


@pytest.mark.parametrize("name", ["a volume after a copied 0", "lengths [-1, 7] on 6"])
def test_openvino_accepts_these_faults(name: str, tmp_path: Path) -> None:
    """SEMANTICS: ruling 5, the other side: OpenVINO's reader takes the file."""
    openvino = pytest.importorskip("openvino")
    operator, _ = RULING_5[name]
    assert openvino.Core().read_model(write(operator, KNOWN, tmp_path)).get_ops()


def test_negative_axes_before_onnx_11_are_deviations() -> None:
    """SEMANTICS: ruling 6: a fault to check, a warning to load, refused by strict."""
    for kind, version, outputs in (("Concat", 1, 1), ("Concat", 4, 1), ("Split", 1, 2), ("Split", 2, 2)):
        operator = Operator("onnx", kind, version, (f32(2, 2),), {"axis": -1}, outputs)
        deviates(operator, "attribute.value")


@pytest.mark.parametrize("name", ["i64", "f64", "u64"])
def test_wide_types_stay_wide(name: str) -> None:
    """SEMANTICS: ruling 7: i64 stays i64 and f64 stays f64 in every engine."""
    x = elements(name, 9).reshape(3, 3)
    for format, version in (("onnx", 13), ("openvino", 1)):
        holds(Operator(format, "Concat", version, (x, x), {"axis": 1}), moved(lambda *xs: np.concatenate(xs, 1), x, x))


@pytest.mark.parametrize("name", ["i4", "u4", "u2", "f4e2m1", "nf4", "u1", "u3", "u6"])
def test_sub_byte_elements_move_by_element(name: str, tmp_path: Path) -> None:
    """SEMANTICS: ruling 7: sub-byte elements move by element, not by byte: stored pieces of odd lengths are joined and cut."""
    x, y = elements(name, 3), elements(name, 5, 3)
    joined = np.concatenate([x, y])
    holds(Operator("openvino", "Concat", 1, (given(x, name), given(y, name)), {"axis": 0}), joined, other=None)
    lengths = np.array([1, 7])
    split = Operator("openvino", "VariadicSplit", 1, (given(joined, name), np.int64(0), lengths), {}, 2, host=(1, 2), fixed=(1,))
    holds(split, joined[:1], joined[1:], other=None)


# Gradients


def slopes(operator: Operator, folder: Path, **options: Any) -> list[dovetail.Model]:
    """Return the gradient model of ``operator``'s first output, as made and through both formats."""
    found = []
    for way in (KNOWN, OPEN):
        model = dovetail.load(write(operator, way, folder))
        gradient = dovetail.grad(model, of="y0", **options)
        assert dovetail.check(gradient) == []
        found.append(gradient)
        for name in ("slope.onnx", "slope.xml"):
            # What a gradient is made of is younger than some operators.
            dovetail.save(gradient, folder / name, opset=21 if name == "slope.onnx" else None)
            found.append(dovetail.load(folder / name))
    return found


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("format", "version"), [("onnx", 4), ("onnx", 13), ("openvino", 1)])
def test_the_gradient_of_concat_is_slices_of_the_incoming_one(format: str, version: int, tmp_path: Path) -> None:
    """SEMANTICS: Concat: slice the incoming gradient."""
    x, y, g = numbers(2, 3), numbers(2, 2), numbers(2, 5)
    for model in slopes(Operator(format, "Concat", version, (x, y), {"axis": 1}), tmp_path):
        found = dovetail.run(model, {"x0": x, "x1": y, "grad:y0": g})
        assert_bits(found["grad:x0"], np.ascontiguousarray(g[:, :3]))
        assert_bits(found["grad:x1"], np.ascontiguousarray(g[:, 3:]))


def test_a_value_in_several_slots_gets_the_sum(tmp_path: Path) -> None:
    """SEMANTICS: a value in several slots gets the sum."""
    import onnx

    source = """<ir_version: 10, opset_import: ["": 13]>
        alone (float[n,2] a, float[n,3] b) => (float[n,k] y) { y = Concat<axis = -1>(a, b, a, a) }"""
    onnx.save(onnx.parser.parse_model(source), tmp_path / "model.onnx")
    a, b, g = numbers(2, 2), numbers(2, 3), numbers(2, 9)
    gradient = dovetail.grad(dovetail.load(tmp_path / "model.onnx"), of="y", wrt=["a", "b"])
    dovetail.save(gradient, tmp_path / "slope.xml")
    for model in (gradient, dovetail.load(tmp_path / "slope.xml")):
        found = dovetail.run(model, {"a": a, "b": b, "grad:y": g})
        np.testing.assert_allclose(found["grad:a"], g[:, :2] + g[:, 5:7] + g[:, 7:], rtol=1e-6)
        assert_bits(found["grad:b"], np.ascontiguousarray(g[:, 2:5]))


@pytest.mark.parametrize("form", ["onnx 2", "onnx 13", "onnx 18", "Split", "VariadicSplit"])
def test_the_gradient_of_split_is_a_concat_with_zeros_for_unused_outputs(form: str, tmp_path: Path) -> None:
    """SEMANTICS: Split: concat, zeros for unused outputs."""
    x, g = numbers(6, 2), numbers(2, 2)
    lengths = np.array([2, 2, 2], dtype=np.int64)
    operator = {
        "onnx 2": Operator("onnx", "Split", 2, (x,), {"axis": 0, "split": [2, 2, 2]}, 3),
        "onnx 13": Operator("onnx", "Split", 13, (x, lengths), {"axis": 0}, 3, host=(1,)),
        "onnx 18": Operator("onnx", "Split", 18, (x,), {"axis": 0, "num_outputs": 3}, 3),
        "Split": Operator("openvino", "Split", 1, (x, np.int64(0)), {"num_splits": 3}, 3, host=(1,), fixed=(1,)),
        "VariadicSplit": Operator("openvino", "VariadicSplit", 1, (x, np.int64(0), lengths), {}, 3, host=(1, 2), fixed=(1,)),
    }[form]
    for model in slopes(operator, tmp_path):
        found = dovetail.run(model, {"x0": x, "grad:y0": g})
        assert_bits(found["grad:x0"], np.concatenate([g, np.zeros((4, 2), np.float32)]))


@pytest.mark.parametrize(("format", "version"), [("onnx", 1), ("onnx", 5), ("onnx", 25), ("openvino", 1)])
def test_the_gradient_of_reshape_has_the_shape_of_the_input(format: str, version: int, tmp_path: Path) -> None:
    """SEMANTICS: Reshape: reshape back to the input's own shape."""
    x, g = numbers(2, 6), numbers(3, 4)
    if version == 1 and format == "onnx":
        operator = Operator(format, "Reshape", 1, (x,), {"shape": [3, -1]})
    else:
        attributes = {"special_zero": True} if format == "openvino" else {}
        operator = Operator(format, "Reshape", version, (x, np.array([3, -1])), attributes, host=(1,))
    for model in slopes(operator, tmp_path):
        assert_bits(dovetail.run(model, {"x0": x, "grad:y0": g})["grad:x0"], g.reshape(2, 6))


def test_shape_axis_and_length_inputs_have_no_gradient(tmp_path: Path) -> None:
    """SEMANTICS: shape, axis and length inputs have none."""
    from single_node_models import LATE

    reshape = Operator("onnx", "Reshape", 13, (numbers(2, 6), np.array([3, 4])), {}, host=(1,))
    split = Operator("openvino", "VariadicSplit", 1, (numbers(6), np.int64(0), np.array([4, 2])), {}, 2, host=(1, 2), fixed=(1,))
    for operator, name in ((reshape, "x1"), (split, "x2")):
        model = dovetail.load(write(operator, LATE, tmp_path))
        with pytest.raises(DovetailError) as caught:
            dovetail.grad(model, of="y0", wrt=[name])
        assert caught.value.code == "grad.dtype"
        gradient = dovetail.grad(model, of="y0")
        assert [y.name for y in gradient.outputs] == ["y0", "grad:x0"]
        shape = dovetail.run(model, feeds(operator, LATE))["y0"].shape
        found = dovetail.run(gradient, {**feeds(operator, LATE), "grad:y0": numbers(*shape)})
        assert found["grad:x0"].shape == operator.inputs[0].shape


@pytest.mark.parametrize("name", ["i64", "i32", "u8", "boolean", "string"])
def test_integer_string_and_bool_data_have_no_gradient(name: str, tmp_path: Path) -> None:
    """SEMANTICS: integer, string and bool data have none."""
    x = elements(name, 4)
    model = dovetail.load(write(Operator("onnx", "Concat", 13, (x, x), {"axis": 0}), KNOWN, tmp_path))
    with pytest.raises(DovetailError) as caught:
        dovetail.grad(model, of="y0", wrt=["x0"])
    assert caught.value.code == "grad.dtype"
