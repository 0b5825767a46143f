"""Concat by the rules of its documents: ONNX 1, 4, 11, 13 and OpenVINO Concat-1. Each test names its rule after SEMANTICS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from assertions import assert_same_bits
from dovetail.errors import DovetailError
from dovetail.ir import dtypes
from single_node_models import (
    FIFTEEN,
    FLOATS,
    IR_TYPES,
    KNOWN,
    NODE,
    ONNX_TYPES,
    OPEN,
    RANKLESS,
    SIXTEEN,
    STORED,
    Given,
    Operator,
    Way,
    _layer,
    assert_bits,
    deviates,
    elements,
    feeds,
    given,
    holds,
    moved,
    place,
    port,
    refused,
    save_ir,
    sweep,
    write,
)

ALLOWED = {1: FLOATS, 4: FIFTEEN, 11: FIFTEEN, 13: SIXTEEN}
FORMS = [("onnx", 1), ("onnx", 4), ("onnx", 11), ("onnx", 13), ("openvino", 1)]
every_form = pytest.mark.parametrize(("format", "version"), FORMS)
FROM_THE_END = [("onnx", 11), ("onnx", 13), ("openvino", 1)]


def concat(format: str, version: int, *xs: Any, **attributes: Any) -> Operator:
    return Operator(format, "Concat", version, xs, attributes)


def f32(*shape: int, start: int = 0) -> Any:
    return elements("f32", int(np.prod(shape)), start).reshape(shape)


def joined(axis: int, *xs: Any) -> Any:
    return moved(lambda *xs: np.concatenate(xs, axis), *xs)


@every_form
@pytest.mark.parametrize(
    ("axis", "shapes"),
    [(0, [(2,), (3,)]), (1, [(2, 3), (2, 1), (2, 2)]), (0, [(1, 2, 2), (3, 2, 2)]), (2, [(1, 2, 1, 2, 1), (1, 2, 4, 2, 1)])],
)
def test_inputs_are_concatenated_along_the_axis(format: str, version: int, axis: int, shapes: Any) -> None:
    """SEMANTICS: same dims off the axis; order of inputs = list order (ONNX)."""
    xs = [f32(*shape, start=index) for index, shape in enumerate(shapes)]
    holds(concat(format, version, *xs, axis=axis), joined(axis, *xs))


def test_the_axis_of_onnx_1_is_1_when_left_out() -> None:
    """SEMANTICS: ONNX 1: axis optional, default 1."""
    x, y = f32(2, 3), f32(2, 1, start=4)
    holds(concat("onnx", 1, x, y), joined(1, x, y))
    refused(concat("onnx", 1, f32(2), f32(3)), "axis.range", through=(KNOWN, STORED, OPEN))


@pytest.mark.parametrize(("format", "version"), FORMS[1:])
def test_the_axis_is_required_from_onnx_4_and_in_openvino(format: str, version: int) -> None:
    """SEMANTICS: axis required in ONNX 4, 11, 13 and OpenVINO Concat-1."""
    refused(concat(format, version, f32(2, 3), f32(2, 3)), "attribute.missing")


@pytest.mark.parametrize(("format", "version"), FROM_THE_END)
@pytest.mark.parametrize("axis", [-1, -2, -3])
def test_a_negative_axis_counts_from_the_end(format: str, version: int, axis: int) -> None:
    """SEMANTICS: negative axis [-r, r-1] in ONNX 11, 13 and OpenVINO."""
    shape = [2, 2, 2]
    shape[axis] = 3
    x, y = f32(2, 2, 2), f32(*shape, start=3)
    holds(concat(format, version, x, y, axis=axis), joined(axis, x, y))


@pytest.mark.parametrize("version", [1, 4])
@pytest.mark.parametrize("axis", [-1, -2, -(2**63)])
def test_there_is_no_negative_axis_before_onnx_11(version: int, axis: int) -> None:
    """SEMANTICS: negative axis: no in ONNX 1 and 4. Ruling 6: a fault to check, a warning to load, refused by strict."""
    deviates(concat("onnx", version, f32(2, 3), f32(2, 3), axis=axis), "attribute.value", "" if axis >= -2 else "axis.range")


@every_form
@pytest.mark.parametrize("axis", [2, 3, -3, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)])
def test_the_axis_lies_in_the_rank_and_is_checked_as_64_bits(format: str, version: int, axis: int) -> None:
    """SEMANTICS: check the axis as a 64-bit value (2^32 must not pass as 0)."""
    operator = concat(format, version, f32(2, 3), f32(2, 3), axis=axis)
    if axis < 0 and (format, version) not in FROM_THE_END:
        deviates(operator, "attribute.value", "axis.range")
    else:
        refused(operator, "axis.range", silent=True)


@pytest.mark.parametrize(
    "axis", ["1.5", "1abc", "", "one", "0x1", "9223372036854775808", "18446744073709551616", "1,0", "true", "\u0661"]
)
def test_the_axis_of_ir_is_an_integer(axis: str) -> None:
    """SEMANTICS: axis required, a 64-bit value."""
    refused(concat("openvino", 1, f32(2, 3), f32(2, 3), axis=axis), "attribute.value")


@pytest.mark.parametrize("version", [1, 4, 11, 13])
@pytest.mark.parametrize("axis", [1.0, "1", [1]])
def test_the_axis_of_onnx_is_an_int(version: int, axis: Any) -> None:
    """SEMANTICS: axis required, a 64-bit value."""
    refused(concat("onnx", version, f32(2, 3), f32(2, 3), axis=axis), "attribute.value")


@pytest.mark.parametrize(("version", "name", "is_allowed"), list(sweep(ALLOWED, ONNX_TYPES)))
def test_each_version_of_onnx_moves_its_types_bit_for_bit_and_no_other(version: int, name: str, is_allowed: bool) -> None:
    """SEMANTICS: types f16 f32 f64; 15 (no bf16); 15 (no bf16); 16 (+bf16); never f8, 4-, 2-bit. Ruling 7: NaN payloads, -0
    and denormals survive."""
    x, y = elements(name, 6).reshape(2, 3), elements(name, 10, 6).reshape(2, 5)
    operator = concat("onnx", version, x, y, axis=1)
    if is_allowed:
        other = "" if dtypes.dtype(name).openvino else "type.version"
        holds(operator, joined(1, x, y), through=(KNOWN, STORED), other=other)
    else:
        refused(operator, "type.version", through=(KNOWN, STORED))


@pytest.mark.parametrize("name", IR_TYPES)
def test_openvino_moves_any_type_bit_for_bit(name: str) -> None:
    """SEMANTICS: types any. Ruling 3: bool and string are moved too. Ruling 7: sub-byte elements move by element, not by byte."""
    x, y = elements(name, 6).reshape(2, 3), elements(name, 10, 6).reshape(2, 5)
    operator = concat("openvino", 1, given(x, name), given(y, name), axis=1)
    holds(operator, joined(1, x, y), through=(KNOWN, STORED), other="" if name in SIXTEEN else "type.version")


@pytest.mark.parametrize("name", IR_TYPES)
@pytest.mark.parametrize("opset", [3, 10, 11, 21])
def test_a_type_that_the_target_opset_lacks_is_refused(name: str, opset: int) -> None:
    """SEMANTICS: types per version hold for what is written, too."""
    x = elements(name, 3)
    version = {3: 1, 10: 4, 11: 11, 21: 13}[opset]
    code = "" if name in ALLOWED[version] else "type.version"
    holds(
        concat("openvino", 1, given(x, name), given(x, name), axis=0), joined(0, x, x), through=(KNOWN,), other=code, opset=opset
    )


@pytest.mark.parametrize("opset", [3, 10, 12, 13, 21])
def test_a_negative_axis_is_written_as_the_version_has_it(opset: int) -> None:
    """SEMANTICS: negative axis no before ONNX 11; the rank tells which axis is meant."""
    x = f32(2, 3)
    operator = concat("openvino", 1, x, x, axis=-2)
    holds(operator, joined(0, x, x), through=(KNOWN, OPEN, STORED), opset=opset)
    rankless = "" if opset > 10 else "op.unsayable"
    holds(operator, joined(0, x, x), through=(RANKLESS,), other=rankless, opset=opset)


@every_form
def test_at_least_one_input(format: str, version: int) -> None:
    """SEMANTICS: at least one input."""
    refused(concat(format, version, axis=0), "node.inputs", through=(KNOWN,))


@every_form
def test_one_input_is_a_copy(format: str, version: int) -> None:
    """SEMANTICS: one input is a copy."""
    x = f32(2, 3)
    operator = concat(format, version, x, axis=1)
    holds(operator, x)
    folder, path = place(operator, KNOWN)
    with folder:
        (y,) = dovetail.run(path, feeds(operator, KNOWN)).values()
        assert not np.shares_memory(x, y) and y.flags.writeable


@every_form
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_a_scalar_is_refused_as_the_only_input_too(format: str, version: int, count: int, axis: int) -> None:
    """SEMANTICS: no scalar, not even alone."""
    if axis == -1 and (format, version) not in FROM_THE_END:
        return
    xs = [np.float32(index).reshape(()) for index in range(count)]
    refused(concat(format, version, *xs, axis=axis), "shape.rank", silent=True)


@every_form
def test_every_input_has_the_same_type(format: str, version: int) -> None:
    """SEMANTICS: same type; no type promotion."""
    with np.errstate(invalid="ignore"):  # signalling NaN among the elements
        wide = f32(2, 3).astype(np.float64)
    refused(concat(format, version, f32(2, 3), wide, axis=0), "type.disagree")
    refused(concat(format, version, f32(2), elements("f16", 2), axis=0), "type.disagree")


@pytest.mark.parametrize(
    ("shapes", "axis", "code"),
    [
        ([(2, 3), (2,)], 0, "shape.rank"),
        ([(2, 3), ()], 0, "shape.rank"),
        ([(2, 3), (1, 2, 3)], 0, "shape.rank"),
        ([(2, 3), (2, 4)], 0, "shape.disagree"),
        ([(2, 3), (3, 3)], 1, "shape.disagree"),
        ([(2, 3), (1, 3)], 1, "shape.disagree"),
        ([(2, 3), (2, 3), (2, 1)], 0, "shape.disagree"),
        ([(2, 3), (0, 4)], 0, "shape.disagree"),
        ([(2, 3), (2, 0)], 0, "shape.disagree"),
        ([(0,), (2, 3)], 0, "shape.rank"),
        ([(2, 3), (0,)], 0, "shape.rank"),
    ],
)
@every_form
def test_ranks_and_sizes_off_the_axis_agree(format: str, version: int, shapes: Any, axis: int, code: str) -> None:
    """SEMANTICS: same rank, same dims off the axis; no broadcasting; an empty input still has to agree off the axis, and a
    [0] does not join a [2,3]."""
    refused(concat(format, version, *(f32(*shape) for shape in shapes), axis=axis), code, silent=True)


@every_form
@pytest.mark.parametrize(
    ("axis", "shapes"), [(0, [(2, 3), (0, 3), (1, 3)]), (1, [(0, 3), (0, 2)]), (0, [(0,), (0,)]), (0, [(0,), (2,)])]
)
def test_0_is_an_ordinary_size(format: str, version: int, axis: int, shapes: Any) -> None:
    """SEMANTICS: 0 is an ordinary size. nGraph: a zero-length input of Concat is fine."""
    xs = [f32(*shape, start=index) for index, shape in enumerate(shapes)]
    holds(concat(format, version, *xs, axis=axis), joined(axis, *xs))


@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_an_axis_sum_past_2_63_is_an_error(format: str, tmp_path: Path) -> None:
    """SEMANTICS: an axis sum past 2^63-1 is an error."""
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), (2**62,), (0,))
    version = 13 if format == "onnx" else 1
    operator = concat(format, version, huge, huge, axis=0)
    for way in (KNOWN, OPEN):
        path = write(operator, way, tmp_path)
        try:
            code = dovetail.run(path, feeds(operator, way))
        except DovetailError as error:
            code = error.code, error.diagnostics[0].node
        assert code == ("shape.range", NODE), way.name
    assert [item.code for item in dovetail.check(write(operator, KNOWN, tmp_path))] == ["shape.range"]


def test_the_largest_axis_sum_is_not_an_error(tmp_path: Path) -> None:
    """SEMANTICS: an axis sum past 2^63-1 is an error; 2^63-1 itself is a size."""
    first = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), (2**62,), (0,))
    second = np.lib.stride_tricks.as_strided(np.zeros(1, np.int8), (2**62 - 1,), (0,))
    path = write(concat("onnx", 13, first, second, axis=0), KNOWN, tmp_path)
    assert [(item.code, item.severity) for item in dovetail.check(path)] in ([], [("run.memory", "warning")])
    assert dovetail.load(path).values["y0"].type.shape == (2**63 - 1,)


def test_inference_of_open_sizes(tmp_path: Path) -> None:
    """SEMANTICS: same dims off the axis: they have the first one's name, and a known one wins; the axis is the sum."""
    for format, version in FORMS:
        model = dovetail.load(write(concat(format, version, f32(2, 3), f32(2, 1), axis=1), OPEN, tmp_path))
        (a, b), (_, d) = (value.type.shape for value in model.inputs)
        assert model.outputs[0].type.shape == (a, b + d)
        half = dovetail.load(
            write(concat(format, version, f32(2, 3), f32(2, 1), axis=1), Way("half stored", data="half", sizes="open"), tmp_path)
        )
        assert half.outputs[0].type.shape == (2, 1 + half.inputs[0].type.shape[1])


def test_port_ids_give_the_order_in_ir(tmp_path: Path) -> None:
    """SEMANTICS: order of inputs = port id order (OpenVINO)."""
    f = dtypes.f32
    layers = "".join(
        _layer(index, f"x{index}", "Parameter", f'shape="{size}" element_type="f32"', "", port(0, [size], f, f"x{index}"))
        for index, size in enumerate((1, 2, 3))
    )
    inputs = port(7, [3]) + port(2, [1]) + port(5, [2])
    layers += _layer(3, NODE, "Concat", 'axis="0"', inputs, port(8, None, f, "y0")) + _layer(
        4, "r", "Result", "", port(0, None), ""
    )
    edges = [(2, 0, 3, 7), (1, 0, 3, 5), (0, 0, 3, 2), (3, 8, 4, 0)]
    xs = [f32(1), f32(2, start=1), f32(3, start=3)]
    for order in (edges, edges[::-1]):
        path = save_ir(tmp_path, layers, order)
        assert_bits(dovetail.run(path, xs)["y0"], joined(0, *xs))
        dovetail.save(dovetail.load(path), tmp_path / "other.onnx")
        assert_bits(dovetail.run(tmp_path / "other.onnx", xs)["y0"], joined(0, *xs))


def test_list_order_is_the_order_in_onnx(tmp_path: Path) -> None:
    """SEMANTICS: order of inputs = list order (ONNX). The same value may fill several slots."""
    import onnx

    for version in (1, 4, 11, 13):
        source = f"""<ir_version: 10, opset_import: ["": {version}]>
            alone (float[1,2] a, float[1,3] b) => (float[1,n] y) {{ y = Concat<axis = 1>(b, a, b, b) }}"""
        onnx.save(onnx.parser.parse_model(source), tmp_path / "model.onnx")
        a, b = f32(1, 2), f32(1, 3, start=2)
        expected = joined(1, b, a, b, b)
        model = dovetail.load(tmp_path / "model.onnx")
        assert model.values["y"].type.shape == (1, 11)
        assert_bits(dovetail.run(model, {"a": a, "b": b})["y"], expected)
        dovetail.save(model, tmp_path / "model.xml")
        other = dovetail.load(tmp_path / "model.xml")
        assert other.values["y"].type.shape == (1, 11)
        assert_bits(dovetail.run(other, {"a": a, "b": b})["y"], expected)


def test_no_type_is_promoted_where_only_run_time_knows_types(tmp_path: Path) -> None:
    """SEMANTICS: no type promotion. Ruling 7: types are never promoted or narrowed."""
    operator = concat("openvino", 1, Given(f32(2), dtypes.f32), Given(f32(2), dtypes.f32), axis=0)
    text = write(operator, KNOWN, tmp_path).read_text().replace('element_type="f32"', 'element_type="dynamic"', 2)
    (tmp_path / "model.xml").write_text(text.replace(' precision="FP32"', ""))
    model = dovetail.load(tmp_path / "model.xml")
    assert_bits(dovetail.run(model, [f32(2), f32(2)])["y0"], joined(0, f32(2), f32(2)))
    with pytest.raises(DovetailError) as caught:
        dovetail.run(model, [f32(2), f32(2).astype(np.float64)])
    assert (caught.value.code, caught.value.node) == ("type.disagree", NODE)


@pytest.mark.parametrize("version", [4, 11, 13])
@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "i64", "u8", "boolean", "string"])
def test_oracles_of_onnx_give_the_same(version: int, name: str, tmp_path: Path) -> None:
    """SEMANTICS: Concat, ONNX: by onnxruntime and onnx.reference."""
    if name not in ALLOWED[version]:
        return
    x, y = elements(name, 6).reshape(2, 3), elements(name, 2, 6).reshape(2, 1)
    operator = concat("onnx", version, x, y, axis=1 if version == 4 else -1)
    data = write(operator, KNOWN, tmp_path).read_bytes()
    ours = dovetail.run(tmp_path / "model.onnx", feeds(operator, KNOWN))["y0"]
    heard = 0
    for oracle in (oracles.run_onnxruntime, oracles.run_reference):
        try:
            (theirs,) = oracle(data, feeds(operator, KNOWN))
        except oracles.Silent:
            continue
        assert_bits(ours, np.asarray(theirs))
        heard += 1
    assert heard


def test_openvino_gives_the_same(tmp_path: Path) -> None:
    """SEMANTICS: Concat-1: by OpenVINO."""
    for name in ("f32", "f16", "bf16", "i32", "u8", "boolean"):
        x, y = elements(name, 6).reshape(2, 3), elements(name, 2, 6).reshape(2, 1)
        operator = concat("openvino", 1, x, y, axis=-1)
        path = write(operator, KNOWN, tmp_path)
        (theirs,) = oracles.run_openvino_file(str(path), feeds(operator, KNOWN), ["y0"])
        assert_same_bits(dovetail.run(path, feeds(operator, KNOWN))["y0"], theirs, name)
