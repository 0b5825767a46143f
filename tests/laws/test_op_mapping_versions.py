"""Versions, attributes and defaults of param lines, compared with onnx's schemas and with OpenVINO's reader."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import pytest

import oracles
from case_runner import CASES, model_of
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx.converters import ONNX
from dovetail.formats.openvino import write as openvino_write
from dovetail.ir import op_mapping
from dovetail.ir.op import REGISTRY, Op
from dovetail.ir.op_mapping import OpMapping, ParamMapping

UNREAD = {("LpPool", 1), ("GlobalLpPool", 1), ("Upsample", 10)}
"""What loads as Foreign: the exponent of the first two is a float, and Upsample-10 stands in no opset that was released."""

TOLD_ELSEWHERE = {
    ("Concat", 1, "axis"): "1",
    ("Split", 1, "axis"): "0",
    ("Reshape", 1, "shape"): None,
    ("BatchNormalization", 1, "is_test"): None,
    ("BatchNormalization", 6, "is_test"): None,
    ("Pad", 1, "value"): "left out",
    ("Pad", 2, "value"): "left out",
    ("GRU", 1, "direction"): "forward",
    **{("RNN", version, "activations"): "left out" for version in (1, 7, 14, 22)},
}
"""Defaults that are not the schema's: in its text alone; demanded, as its absence cannot be written; or an input
of ours that means the same where it is left out. The schema of GRU-1 says "foward"; that of RNN lists a function for each of two
directions, whatever the direction."""

NEWEST = 28
"""The opset up to which every version is known."""

Version = tuple[str, str, int]


@cache
def schemas() -> dict[Version, Any]:
    found: dict[Version, Any] = {
        (item.domain, item.name, item.since_version): item for item in onnx.defs.get_all_schemas_with_history()
    }
    return found | oracles.contrib_schemas()


ADDED = {("com.microsoft", "GroupQueryAttention", 1): ("q_norm_epsilon", "k_norm_epsilon")}
"""Attributes that came to a version later: an older onnxruntime does not have them."""


def lines(ops: Iterable[type[Op]], version: Version) -> list[OpMapping]:
    """Return the lines that read a version of an operator, in the order in which they are tried."""
    read = [op_mapping.parse(op, line) for op in ops for line in op.onnx]
    domain, kind, number = version
    return [
        mapping
        for mapping in read
        if (mapping.domain, mapping.kind) == (domain, kind) and number in mapping.versions and not mapping.is_export_only
    ]


def readers() -> dict[Version, list[type[Op]]]:
    """Return the operators whose lines read a version."""
    found: dict[Version, list[type[Op]]] = {}
    for op in REGISTRY.values():
        for mapping in (op_mapping.parse(op, line) for line in op.onnx):
            for number in () if mapping.is_export_only else mapping.versions:
                ops = found.setdefault((mapping.domain, mapping.kind, number), [])
                if op not in ops:
                    ops.append(op)
    return found


def versions() -> Iterator[Any]:
    for version, ops in readers().items():
        if version[0] and version not in schemas():
            # onnxruntime, which knows its own operators, is not installed.
            continue
        family = ops[0].__module__.rpartition(".")[2]
        yield pytest.param(version, ops, id=f"{family}: {ops[0].__name__}, {'.'.join(filter(None, version[:2]))}-{version[2]}")


def names() -> Iterator[Any]:
    for op in REGISTRY.values():
        for kind in sorted({op_mapping.parse(op, line).kind for line in op.onnx}):
            yield pytest.param(kind, id=f"{op.__module__.rpartition('.')[2]}: {op.__name__}, {kind}")


@pytest.mark.parametrize("kind", list(names()))
def test_every_version_of_an_operator_that_is_read_is_named(kind: str) -> None:
    said = {*readers(), *ONNX.importers}
    real = {version for version in schemas() if version[1] == kind and version[0] == "" and version[2] <= NEWEST}
    assert {(name, number) for _, name, number in real - said} <= UNREAD


@pytest.mark.parametrize(("version", "ops"), list(versions()))
def test_the_attributes_are_those_of_the_schema(version: Version, ops: list[type[Op]]) -> None:
    if version in ONNX.importers:
        return
    known = frozenset[str]().union(*(mapping.foreign_attributes for mapping in lines(ops, version))) - {"consumed_inputs"}
    theirs = set(schemas()[version].attributes) - {"consumed_inputs"}
    assert theirs <= known
    assert known - theirs <= set(ADDED.get(version, ()))


@pytest.mark.parametrize(("version", "ops"), list(versions()))
def test_inputs_are_optional_or_variadic_as_in_the_schema(version: Version, ops: list[type[Op]]) -> None:
    if version in ONNX.importers:
        return
    for mapping in lines(ops, version):
        theirs = [port.option.name for port in schemas()[version].inputs]
        ours = ["Variadic" if param.is_repeated else "Optional" if param.is_optional else "Single" for param in mapping.inputs]
        assert ours == theirs[: len(ours)], mapping.text


SIGNED = ("axis", "axes", "perm", "pads", "output_padding")
UNTOLD = {"MeanVarianceNormalization"}
"""Operators whose schemas do not say whether an axis may be negative, as onnxruntime's own do not; runtimes take it."""


@pytest.mark.parametrize(("version", "ops"), list(versions()))
def test_an_axis_or_a_pad_is_negative_only_where_the_schema_allows_it(version: Version, ops: list[type[Op]]) -> None:
    if version in ONNX.importers or version[1] in UNTOLD or version[0]:
        return
    for mapping in lines(ops, version):
        for param in mapping.attributes:
            for name in () if param.is_ignored else set(SIGNED).intersection(param.foreign_names):
                attribute = schemas()[version].attributes[name]
                told = attribute.description.lower().replace("non-negative", "")
                is_signed = attribute.default_value.i < 0 or any(words in told for words in ("negative", "[-r", "from the back"))
                assert (param.conversion in ("natural", "front")) != is_signed, f"{mapping.text}: {name}"


@pytest.mark.parametrize(("version", "ops"), list(versions()))
def test_an_attribute_left_out_means_the_default_of_the_schema(version: Version, ops: list[type[Op]]) -> None:
    tried = lines(ops, version)
    assert tried
    for mapping in tried:
        for param in mapping.attributes:
            if param.is_ignored:
                continue
            for name in param.foreign_names:
                check(version, mapping, param, name, any(not demands(each, name) for each in tried))


def demands(mapping: OpMapping, name: str) -> bool:
    return any(name in param.foreign_names and param.default is None and not param.is_optional for param in mapping.attributes)


def check(version: Version, mapping: OpMapping, param: ParamMapping, name: str, may_be_left_out: bool) -> None:
    _, kind, number = version
    attribute = schemas()[version].attributes[name]
    if (kind, number, name) in TOLD_ELSEWHERE:
        told = TOLD_ELSEWHERE[kind, number, name]
        assert (param.default, param.is_optional) == ((None, True) if told == "left out" else (told, False))
        return
    default = onnx.helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else None
    assert may_be_left_out != attribute.required, f"{mapping.text}: {name}"
    if attribute.required or demands(mapping, name):
        return
    if default is None:
        assert (param.default, param.is_optional) == (None, True), f"{mapping.text}: {name} has no default"
        return
    assert param.default is not None, f"{mapping.text}: the default of {name} is {default!r}"
    if param.name in mapping.op.fields_by_name:
        given = default.decode() if isinstance(default, bytes) else default
        meant = op_mapping.read_attribute(mapping, param, {name: given}, is_text=False)
        assert op_mapping.read_attribute(mapping, param, {}, is_text=False) == meant, f"{mapping.text}: {name} is {default!r}"
    else:
        # An input of ours, whose default is the text of a number or of a list.
        assert op_mapping.coerce("float" if isinstance(default, float) else "tuple[int, ...]", param.default) == (
            default if isinstance(default, float) else tuple(default)
        ), f"{mapping.text}: {name} is {default!r}"


# OpenVINO has no schemas to ask: its specification, and what its reader makes of a layer without the attribute.

_BROADCASTS = (
    "Add BitwiseAnd BitwiseLeftShift BitwiseOr BitwiseRightShift BitwiseXor Divide Equal FloorMod Greater GreaterEqual Less "
    "LessEqual LogicalAnd LogicalOr LogicalXor Maximum Minimum Mod Multiply NotEqual Power Select SquaredDifference Subtract Xor"
)
_REDUCTIONS = "ReduceL1 ReduceL2 ReduceLogicalAnd ReduceLogicalOr ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"
_RECURRENT = "GRUCell GRUSequence LSTMCell LSTMSequence RNNCell RNNSequence"
DEFAULTS = {
    (kind, name): default
    for name, default, kinds in (
        ("activations", "[sigmoid,tanh,tanh]", "LSTMSequence LSTMCell"),
        ("activations", "[sigmoid,tanh]", "GRUSequence GRUCell"),
        ("activations", "[tanh]", "RNNSequence RNNCell"),
        ("activations_alpha", "[]", _RECURRENT),
        ("activations_beta", "[]", _RECURRENT),
        ("adjoint", "false", "Inverse"),
        ("align_corners", "false", "GridSample"),
        ("aligned_mode", "asymmetric", "ROIAlign"),
        ("approximation_mode", "ERF", "Gelu"),
        ("aspect_ratio", "[]", "PriorBox"),
        ("background_class", "-1", "MatrixNms MulticlassNms"),
        ("background_label_id", "0", "DetectionOutput"),
        ("clip", "false", "PriorBox"),
        ("clip", "true", "PriorBoxClustered"),
        ("clip_after_nms", "false", "DetectionOutput"),
        ("clip_before_nms", "false", "DetectionOutput"),
        ("box_coordinate_scale", "1.0", "Proposal"),
        ("box_size_scale", "1.0", "Proposal"),
        ("clip_after_nms", "false", "Proposal"),
        ("clip_before_nms", "true", "Proposal"),
        ("code_type", "caffe.PriorBoxParameter.CORNER", "DetectionOutput"),
        ("confidence_threshold", "0", "DetectionOutput"),
        ("ctc_merge_repeated", "true", "CTCLoss"),
        ("decay_function", "linear", "MatrixNms"),
        ("decrease_label_id", "false", "DetectionOutput"),
        ("density", "[]", "PriorBox"),
        ("fixed_ratio", "[]", "PriorBox"),
        ("fixed_size", "[]", "PriorBox"),
        ("flip", "false", "PriorBox"),
        ("height", "[]", "PriorBoxClustered"),
        ("input_height", "1", "DetectionOutput"),
        ("input_width", "1", "DetectionOutput"),
        ("keep_top_k", "-1", "MatrixNms MulticlassNms"),
        ("max_size", "[]", "PriorBox"),
        ("min_max_aspect_ratios_order", "true", "PriorBox"),
        ("min_size", "[]", "PriorBox"),
        ("nms_eta", "1.0", "MulticlassNms"),
        ("nms_top_k", "-1", "MatrixNms MulticlassNms"),
        ("normalize", "false", "Proposal"),
        ("normalized", "false", "DetectionOutput"),
        ("normalized", "true", "MatrixNms MulticlassNms"),
        ("objectness_score", "0", "DetectionOutput"),
        ("post_threshold", "0", "MatrixNms"),
        ("scale_all_sizes", "true", "PriorBox"),
        ("score_threshold", "0", "MatrixNms MulticlassNms"),
        ("share_location", "true", "DetectionOutput"),
        ("step", "0", "PriorBox PriorBoxClustered"),
        ("step_h", "0", "PriorBoxClustered"),
        ("step_w", "0", "PriorBoxClustered"),
        ("top_k", "-1", "DetectionOutput"),
        ("variance", "[]", "PriorBox PriorBoxClustered"),
        ("variance_encoded_in_target", "false", "DetectionOutput"),
        ("width", "[]", "PriorBoxClustered"),
        ("auto_broadcast", "numpy", f"{_BROADCASTS} FakeQuantize"),
        ("auto_pad", "explicit", "AvgPool Convolution ConvolutionBackpropData DeformableConvolution MaxPool"),
        ("axis", "0", "MaxPool"),
        ("axis", "1", "LogSoftmax ShuffleChannels SoftMax"),
        ("batch_axis", "0", "ReverseSequence"),
        ("batch_dims", "0", "Gather GatherND"),
        ("bilinear_interpolation_pad", "false", "DeformableConvolution"),
        ("block_size", "1", "DepthToSpace SpaceToDepth"),
        ("clip", "0", _RECURRENT),
        ("clockwise", "true", "NMSRotated"),
        ("count_element_type", "i64", "Unique"),
        ("deformable_group", "1", "DeformableConvolution"),
        ("detect_negative", "true", "IsInf"),
        ("detect_positive", "true", "IsInf"),
        ("exclusive", "false", "CumSum"),
        ("framework", "", "Proposal"),
        ("gaussian_sigma", "2.0", "MatrixNms"),
        ("group_size", "1", "DeformablePSROIPooling PSROIPooling"),
        ("group", "1", "DeformableConvolution ShuffleChannels"),
        ("index_element_type", "i32", "TopK"),
        ("index_element_type", "i64", "AdaptiveMaxPool MaxPool Unique"),
        ("iou_threshold", "0", "MulticlassNms"),
        ("keep_dims", "false", _REDUCTIONS),
        ("input_forget", "false", "LSTMCell"),
        ("linear_before_reset", "false", "GRUCell GRUSequence"),
        ("m_pythondiv", "true", "Divide"),
        ("mode", "average", "PSROIPooling"),
        ("mode", "bilinear", "GridSample"),
        ("mode", "bilinear_deformable", "DeformablePSROIPooling"),
        ("mode", "half_to_even", "Round"),
        ("mode", "numpy", "Broadcast"),
        ("negative_indices_mode", "ignore_negative", "OneHot"),
        ("output_type", "i64", "Bucketize MatrixNms MulticlassNms NMSRotated NonZero SearchSorted ShapeOf"),
        ("padding_mode", "zeros", "GridSample"),
        ("part_size", "1", "DeformablePSROIPooling"),
        ("reduction", "none", "ScatterElementsUpdate ScatterNDUpdate"),
        ("reverse", "false", "CumSum"),
        ("preprocess_collapse_repeated", "false", "CTCLoss"),
        ("right_mode", "false", "SearchSorted"),
        ("rounding_type", "floor", "AvgPool MaxPool"),
        ("seq_axis", "1", "ReverseSequence"),
        ("sort_result_across_batch", "false", "MatrixNms MulticlassNms"),
        ("sort_result_type", "none", "MatrixNms MulticlassNms"),
        ("sorted", "true", "Unique"),
        ("spatial_bins_x", "1", "DeformablePSROIPooling PSROIPooling"),
        ("spatial_bins_y", "1", "DeformablePSROIPooling PSROIPooling"),
        ("sort_result_descending", "true", "NMSRotated"),
        ("stable", "false", "TopK"),
        ("trans_std", "1.0", "DeformablePSROIPooling"),
        ("transpose_a", "false", "MatMul"),
        ("transpose_b", "false", "MatMul"),
        ("unique", "false", "CTCLoss"),
        ("use_init_val", "true", "ScatterElementsUpdate"),
        ("weights_format", "fico", "LSTMCell"),
        ("with_right_bound", "true", "Bucketize"),
    )
    for kind in kinds.split()
}
UNSAID = {
    ("Xor", "auto_broadcast"),
    ("Bucketize", "output_type"),
    ("Bucketize", "with_right_bound"),
    ("LSTMCell", "input_forget"),
    ("LSTMCell", "weights_format"),
    ("PriorBoxClustered", "width"),
    ("PriorBoxClustered", "height"),
}
"""Defaults of layers that nothing writes."""
STRICT = {
    ("DeformableConvolution", "deformable_group"),
    ("DeformableConvolution", "group"),
    ("PSROIPooling", "mode"),
    ("PSROIPooling", "group_size"),
    ("DepthToSpace", "block_size"),
    ("SpaceToDepth", "block_size"),
    ("ShapeOf", "output_type"),
}
"""What OpenVINO's reader demands although the specification has a default for it."""
EMPTY = {
    ("CTCLoss", "ctc_merge_repeated"),
    *((kind, "activations") for kind in _RECURRENT.split()),
    *(("PSROIPooling", f"spatial_bins_{axis}") for axis in "xy"),
}
"""What OpenVINO's reader leaves empty or at 0, against its specification."""
OPTIONAL = {("ConvolutionBackpropData", "output_padding")} | {
    ("Col2Im", name) for name in ("strides", "dilations", "pads_begin", "pads_end")
}
"""What may be left out without a default."""


def layers(op: type[Op]) -> list[OpMapping]:
    return [mapping for mapping in (op_mapping.parse(op, line) for line in op.openvino) if not mapping.is_export_only]


def with_layers() -> Iterator[Any]:
    for op in REGISTRY.values():
        if any(mapping.attributes for mapping in layers(op)):
            yield pytest.param(op, id=f"{op.__module__.rpartition('.')[2]}: {op.__name__}")


@pytest.mark.parametrize("op", list(with_layers()))
def test_an_attribute_of_ir_left_out_means_the_default_of_the_specification(op: type[Op]) -> None:
    read = layers(op)
    for mapping in read:
        for param in mapping.attributes:
            for name in () if param.is_ignored else param.foreign_names:
                key = (mapping.kind, name)
                beside = [each for each in read if (each.kind, each.versions) == (mapping.kind, mapping.versions)]
                told = {each.default for line in beside for each in line.attributes if name in each.foreign_names} - {None}
                assert told == ({DEFAULTS[key]} if key in DEFAULTS else set()), key
                assert param.is_optional == (key in OPTIONAL), key


def operators_with_openvino_defaults() -> Iterator[Any]:
    for op in REGISTRY.values():
        kinds = {op_mapping.parse(op, line).kind for line in op.openvino}
        names = {key for key in DEFAULTS if key[0] in kinds}
        if names:
            yield pytest.param(op, names, id=f"{op.__module__.rpartition('.')[2]}: {op.__name__}")


@pytest.mark.parametrize(("op", "names"), list(operators_with_openvino_defaults()))
def test_openvino_reads_a_layer_without_an_attribute_as_with_its_default(
    op: type[Op], names: set[tuple[str, str]], tmp_path: Path
) -> None:
    left = set(names)
    for case in (case for _, case in CASES if type(case.op) is op):
        path = tmp_path / "model.xml"
        try:
            openvino_write.save(model_of(case), str(path))
        except UnsupportedError:
            continue
        text = path.read_text()
        for kind, name in sorted(left):
            place = rf'(type="{kind}"[^>]*>\s*<data (?:[^>]* )?){name}="[^"]*"'
            if re.search(place, text):
                told = rf'\1{name}="{DEFAULTS[kind, name].strip("[]")}"'
                whole, without = (oracles.openvino_attributes(path, re.sub(place, each, text), kind) for each in (told, r"\1"))
                if whole is not None:
                    is_strict = (without is None and (kind, name) in STRICT) or (kind, name) in EMPTY
                    assert whole == without or is_strict, f"{kind}.{name}"
                    left.remove((kind, name))
        if not left:
            return
    assert left <= UNSAID, left
