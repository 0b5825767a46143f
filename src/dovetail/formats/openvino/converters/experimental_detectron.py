"""Import ExperimentalDetectron operators and GenerateProposals as compositions of general operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.formats.import_context import ImportContext
from dovetail.formats.openvino.dialect import OPENVINO
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.graph import Value
from dovetail.ops.casts import as_type
from dovetail.ops.detection.nms_decomposition import select_boxes_in_loop
from dovetail.ops.detection.roi_align import RoiAlign
from dovetail.ops.shape_values import join_sizes

_END = 2**31
# The maximum logarithm of a box's growth, log(1000 / 16), in f32.
_MAX_LOG_GROWTH = float(np.float32(np.log(1000 / 16)))
# A region of size _CANONICAL_SIZE (the square root of its area, in pixels) is on pyramid level _CANONICAL_LEVEL.
_CANONICAL_SIZE, _CANONICAL_LEVEL = 224.0, 2


@OPENVINO.importer("ExperimentalDetectronPriorGridGenerator", 6)
def import_prior_grid_generator(ctx: ImportContext) -> Value:
    """Import ExperimentalDetectronPriorGridGenerator: shift the prior boxes to the center of each cell of a feature map."""
    b, priors, cells, picture = ctx.b, ctx.input_of_rank(0, 2), ctx.input_of_rank(1, 4), ctx.input_of_rank(2, 4)
    centers = []
    for axis, count, stride in ((2, "h", "stride_y"), (3, "w", "stride_x")):
        cell_count, step = ctx.attribute(count, "int", 0), ctx.attribute(stride, "float", 0.0)
        if cell_count and symbolic.equal(cells.dims[axis], cell_count) is not True:
            raise UnsupportedError(
                "op.unsupported", f"the grid must cover all cells along axis {axis} ({cells.dims[axis]}), got {cell_count}"
            )
        size = _number(b, cells, axis)
        apart = (
            b.constant(np.float32(step))
            if step
            else b.Divide(*(b.Cast(x, to=dtypes.f32) for x in (_number(b, picture, axis), size)))
        )
        numbers = b.Cast(b.Range(b.constant(0), size, b.constant(1)), to=dtypes.f32)
        centers.append(b.Multiply(b.Add(numbers, 0.5), apart))
    shape = join_sizes(b, [shape_value(b, cells, [2]), shape_value(b, cells, [3]), [1, 1]])
    y, x = (b.Expand(b.Unsqueeze(center, axes), shape) for center, axes in zip(centers, ([1, 2, 3], [0, 2, 3]), strict=True))
    moved = b.Add(as_type(b, b.Unsqueeze(priors, [0, 1]), dtypes.f32), b.Concat(x, y, x, y, axis=3))
    grid = as_type(b, moved, priors.dtype)
    flat: Value = b.Reshape(grid, [-1, 4]) if ctx.attribute("flatten", "bool", True) else grid
    return flat


def _number(b: Builder, x: Value, axis: int) -> Any:
    return b.Reshape(b.Slice(b.Shape(x), [axis], [axis + 1], [0]), [])


@OPENVINO.importer("ExperimentalDetectronTopKROIs", 6)
def import_top_k_rois(ctx: ImportContext) -> Value:
    """Import ExperimentalDetectronTopKROIs: return the ``max_rois`` regions of the greatest scores.

    With fewer regions the result is padded with rows of 0, which the specification does not define.
    """
    b, regions, chances = ctx.b, ctx.input_of_rank(0, 2), ctx.input_of_rank(1, 1)
    max_rois = ctx.attribute("max_rois", "int", 0)
    size = shape_value(b, chances, [0])
    count = [min(max_rois, *size)] if isinstance(size, list) else b.Minimum(size, b.constant([max_rois]))
    rows = b.Gather(regions, b.TopK(chances, count, axis=0)[1], axis=0)
    if count == [max_rois]:
        return rows
    missing = [max_rois - count[0]] if isinstance(count, list) else b.Subtract(b.constant([max_rois]), count)
    filled: Value = b.Pad(rows, join_sizes(b, [[0, 0], missing, [0]]))
    return filled


@OPENVINO.importer("ExperimentalDetectronROIFeatureExtractor", 6)
def import_roi_feature_extractor(ctx: ImportContext) -> list[Value]:
    """Import ExperimentalDetectronROIFeatureExtractor: RoiAlign of each region on the pyramid level for its size.

    The features of a region without an area are 0.
    """
    b, regions = ctx.b, ctx.input_of_rank(0, 2)
    levels = [ctx.input_of_rank(index, 4) for index in range(1, len(ctx.inputs))]
    size, samples = ctx.attribute("output_size", "int"), ctx.attribute("sampling_ratio", "int")
    scales, is_aligned = ctx.attribute("pyramid_scales", "tuple[int, ...]"), ctx.attribute("aligned", "bool", False)
    corners = as_type(b, regions, dtypes.f32)
    low, high = b.Slice(corners, [0], [2], [1]), b.Slice(corners, [2], [4], [1])
    area = b.ReduceProd(b.Subtract(high, low), [1])
    level = _level(b, area, len(levels))
    batch = b.Expand(b.constant(0), join_sizes(b, [shape_value(b, regions, [0])]))
    features = b.constant(0, levels[0].dtype)
    for number, (x, scale) in enumerate(zip(levels, scales, strict=True)):
        is_here = b.Equal(level, b.constant(number))
        seen = b.Multiply(corners, b.constant(np.float32(1) / np.float32(scale)))
        seen = b.Where(is_here, b.Subtract(seen, 0.5) if is_aligned else seen, 0.0)
        op = RoiAlign(output_height=size, output_width=size, sampling_ratio=samples, spatial_scale=1.0, aligned_mode="asymmetric")
        features = b.Where(b.Unsqueeze(is_here, [2, 3]), b.add(op, x, as_type(b, seen, x.dtype), batch)[0], features)
    return [features, b.Identity(regions)]


def _level(b: Builder, area: Value, count: int) -> Any:
    """Return the pyramid level of each region: floor(2 + log2(sqrt(area) / 224)), clamped to [0, ``count`` - 1].

    A region without an area gets level ``count``.
    """
    size = b.Add(b.Multiply(b.Sqrt(b.Maximum(area, 0.0)), 1 / _CANONICAL_SIZE), 1e-6)
    level = b.constant(0)
    for number in range(1, count):
        level = b.Add(level, b.Cast(b.GreaterEqual(size, 2.0 ** (number - _CANONICAL_LEVEL)), to=dtypes.i64))
    return b.Where(b.Greater(area, 0.0), level, b.constant(count))


@OPENVINO.importer("GenerateProposals", 9)
def import_generate_proposals(ctx: ImportContext) -> list[Value]:
    """Import GenerateProposals: shift anchors by deltas, clip them to the image, and suppress overlapping boxes."""
    b, picture, anchors = ctx.b, ctx.input_of_rank(0, 2), ctx.input_of_rank(1, 4)
    if ctx.attribute("nms_eta", "float", 1.0) != 1:
        raise UnsupportedError("op.unsupported", "GenerateProposals: nms_eta must be 1, as in OpenVINO")
    last = 0.0 if ctx.attribute("normalized", "bool", True) else 1.0
    deltas, scores = ctx.input_of_rank(2, 4), ctx.input_of_rank(3, 4)
    sizes = as_type(b, picture, dtypes.f32)
    low, high, chances = _refine(b, b.Slice(sizes, [0], [2], [1]), anchors, deltas, scores, last)
    low, high, chances = _select_best(b, low, high, chances, ctx.attribute("pre_nms_count", "int"))
    # An image has one scale for both axes, or one per axis. Image sizes are (height, width); boxes are (x, y).
    scales = b.Concat(b.Slice(sizes, [-1], [_END], [1]), b.Slice(sizes, [2], [3], [1]), axis=1)
    is_alive = _are_large(b, low, high, b.Multiply(scales, ctx.attribute("min_size", "float")), last)
    dropped = _find_overlaps(b, low, high, ctx.attribute("nms_threshold", "float"), last)
    alive = b.Unsqueeze(b.Where(is_alive, chances, b.constant(-np.inf, dtypes.f32)), [1])
    rows, values = select_boxes_in_loop(b, alive, None, dropped, b.constant(ctx.attribute("post_nms_count", "int")), None)
    boxes = b.GatherND(b.Concat(low, high, axis=2), b.Gather(rows, [0, 2], axis=1))
    pictures = b.Range(b.constant(0), _number(b, scores, 0), b.constant(1))
    is_of = b.Equal(b.Slice(rows, [0], [1], [1]), b.Unsqueeze(pictures, [0]))
    counts = b.ReduceSum(b.Cast(is_of, to=dtypes.i64), [0], keepdims=False)
    number = ctx.attribute("roi_num_type", "DType", dtypes.i64)
    return [as_type(b, boxes, scores.dtype), as_type(b, values, scores.dtype), as_type(b, counts, number)]


@OPENVINO.importer("ExperimentalDetectronGenerateProposalsSingleImage", 6)
def import_generate_proposals_single_image(ctx: ImportContext) -> list[Value]:
    """Import ExperimentalDetectronGenerateProposalsSingleImage.

    Boxes include their last pixel in all steps except the overlap. Boxes below ``min_size`` get the score 0. With fewer than
    ``post_nms_count`` boxes, the results are padded with rows of 0.
    """
    b, picture, anchors = ctx.b, ctx.input_of_rank(0, 1), ctx.input_of_rank(1, 2)
    deltas, scores = (b.Unsqueeze(ctx.input_of_rank(index, 3), [0]) for index in (2, 3))
    cells = join_sizes(b, [shape_value(b, scores, [2, 3]), shape_value(b, scores, [1]), 4])
    grid = b.Reshape(anchors, cells, special_zero=False)
    size = b.Unsqueeze(b.Slice(as_type(b, picture, dtypes.f32), [0], [2], [0]), [0])
    low, high, chances = _refine(b, size, grid, deltas, scores, 1.0)
    min_size = b.constant(np.full((1, 2), ctx.attribute("min_size", "float"), np.float32))
    chances = b.Where(_are_large(b, low, high, min_size, 1.0), chances, 0.0)
    low, high, chances = _select_best(b, low, high, chances, ctx.attribute("pre_nms_count", "int"))
    dropped = _find_overlaps(b, low, high, ctx.attribute("nms_threshold", "float"), 0.0)
    count = ctx.attribute("post_nms_count", "int")
    rows, values = select_boxes_in_loop(b, b.Unsqueeze(chances, [1]), None, dropped, b.constant(count), None)
    boxes = b.GatherND(b.Concat(low, high, axis=2), b.Gather(rows, [0, 2], axis=1))
    missing = b.Subtract(b.constant([count]), b.Gather(b.Shape(values), [0], axis=0))
    filled = b.Pad(boxes, join_sizes(b, [[0, 0], missing, [0]])), b.Pad(values, join_sizes(b, [[0], missing]))
    shaped = b.Reshape(filled[0], [count, 4], special_zero=False), b.Reshape(filled[1], [count], special_zero=False)
    return [as_type(b, x, scores.dtype) for x in shaped]


def _refine(b: Builder, size: Value, anchors: Value, deltas: Value, scores: Value, last: float) -> tuple[Any, Any, Any]:
    """Return both corners [images, boxes, 2] and the scores [images, boxes] of the shifted boxes.

    ``size`` [images, (height, width)] is the image size to which the boxes are clipped.
    """
    cells = join_sizes(b, [shape_value(b, scores, [0]), shape_value(b, scores, [1]), 4, shape_value(b, scores, [2, 3])])
    moves = b.Transpose(b.Reshape(as_type(b, deltas, dtypes.f32), cells, special_zero=False), [0, 3, 4, 1, 2])
    limit = b.Unsqueeze(b.Gather(b.Subtract(size, last), [1, 0], axis=1), [1])
    low, high = _shift_boxes(b, as_type(b, anchors, dtypes.f32), moves, limit, last)
    return low, high, b.Reshape(b.Transpose(as_type(b, scores, dtypes.f32), [0, 2, 3, 1]), [0, -1])


def _select_best(b: Builder, low: Value, high: Value, chances: Value, count: int) -> tuple[Any, Any, Any]:
    """Select the ``count`` boxes with the greatest scores of each image, sorted by descending score."""
    chances, order = b.TopK(chances, _clamp_count(b, chances, count), axis=1)
    low, high = (b.GatherND(x, b.Unsqueeze(order, [2]), batch_dims=1) for x in (low, high))
    return low, high, chances


def _are_large(b: Builder, low: Value, high: Value, min_size: Value, last: float) -> Any:
    """Return a boolean tensor of the boxes that have at least the width and height ``min_size`` [images, (width, height)]."""
    is_large = b.GreaterEqual(b.Add(b.Subtract(high, low), last), b.Unsqueeze(min_size, [1]))
    return b.And(*(b.Squeeze(b.Slice(is_large, [axis], [axis + 1], [2]), [2]) for axis in (0, 1)))


def _clamp_count(b: Builder, x: Value, count: int) -> Any:
    """Return the minimum of ``count`` and the size of axis 1."""
    size = shape_value(b, x, [1])
    return [min(count, *size)] if isinstance(size, list) else b.Minimum(size, b.constant([count]))


def _shift_boxes(b: Builder, anchors: Value, moves: Value, limit: Value, last: float) -> tuple[Any, Any]:
    """Shift boxes, and return both corners [images, boxes, 2], clipped to [0, ``limit``], limit [images, 1, (width, height)].

    Centers are shifted by fractions of the size, and sizes are multiplied by powers of e. ``last`` is 1 if a box includes its
    last pixel, else 0.
    """
    first, end = b.Slice(anchors, [0], [2], [-1]), b.Slice(anchors, [2], [4], [-1])
    size = b.Add(b.Subtract(end, first), last)
    middle = b.Add(b.Multiply(b.Slice(moves, [0], [2], [-1]), size), b.Add(first, b.Multiply(size, 0.5)))
    half = b.Multiply(b.Multiply(b.Exp(b.Minimum(b.Slice(moves, [2], [4], [-1]), _MAX_LOG_GROWTH)), size), 0.5)
    corners = []
    for corner in (b.Subtract(middle, half), b.Subtract(b.Add(middle, half), last)):
        flat = b.Reshape(corner, join_sizes(b, [shape_value(b, moves, [0]), -1, 2]), special_zero=False)
        corners.append(b.Maximum(b.Minimum(flat, limit), 0.0))
    return corners[0], corners[1]


def _find_overlaps(b: Builder, low: Value, high: Value, max_overlap: float, last: float) -> Any:
    """Return a boolean tensor [images, boxes, boxes] of the pairs of boxes whose IoU exceeds ``max_overlap``."""
    areas = b.ReduceProd(b.Add(b.Subtract(high, low), last), [2], keepdims=False)
    ours, theirs = ([b.Unsqueeze(x, [axis]) for x in (low, high, areas)] for axis in (2, 1))
    sides = b.Subtract(b.Minimum(ours[1], theirs[1]), b.Maximum(ours[0], theirs[0]))
    common = b.ReduceProd(b.Maximum(b.Add(sides, last), 0.0), [3], keepdims=False)
    touch = b.GreaterEqual(b.ReduceMin(sides, [3], keepdims=False), 0.0)
    both = b.Subtract(b.Add(ours[2], theirs[2]), common)
    is_sound = b.And(touch, b.Greater(both, 0.0))
    return b.And(is_sound, b.Greater(b.Divide(common, b.Where(is_sound, both, 1.0)), max_overlap))
