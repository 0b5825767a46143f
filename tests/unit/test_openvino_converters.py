"""Operators of OpenVINO that are several of ours: a model of one, built and run by OpenVINO, says the same here, and what we
write of it says the same in OpenVINO and in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
import oracles
from assertions import assert_close
from cases.matmul import floats
from dovetail.errors import UnsupportedError
from dovetail.formats.onnx import write as onnx_write
from dovetail.runtime.interpreter.interpret import interpret

Build = Callable[..., Any]
TABLE = floats(5, 3)
OFFSETS = np.array([0, 2, 2, 5], np.int32)
BAG = np.array([4, 0, 1, 3, 2, 2, 0], np.int32)
SCORES = floats(2, 6, 4)
SCORES[:, 1] = SCORES[:, 0]
FRAMES = np.int32([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]]).T.astype(np.float32)


def i32(*items: Any) -> np.ndarray[Any, Any]:
    return np.array(items, np.int32)


def scalar(item: int) -> np.ndarray[Any, Any]:
    return np.array(item, np.int32)


def pixels(kind: Any, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).integers(0, 256, (2, *shape)).astype(kind)


# name: opset, how it is built from its inputs, what these are.
ROWS: dict[str, tuple[int, Build, tuple[Any, ...]]] = {
    "EmbeddingBagPackedSum": (3, lambda o, *x: o.embedding_bag_packed_sum(*x), (TABLE, i32([0, 1], [4, 4], [2, 0]))),
    "EmbeddingBagPackedSum with weights": (
        3,
        lambda o, *x: o.embedding_bag_packed_sum(*x),
        (TABLE, i32([0, 1], [4, 4], [2, 0]), floats(3, 2)),
    ),
    "EmbeddingBagPacked, mean": (
        15,
        lambda o, *x: o.embedding_bag_packed(*x, reduction="mean"),
        (TABLE, i32([0, 1], [4, 4], [2, 0])),
    ),
    "EmbeddingBagOffsetsSum": (3, lambda o, *x: o.embedding_bag_offsets_sum(*x), (TABLE, BAG, OFFSETS)),
    "EmbeddingBagOffsetsSum with a default": (3, lambda o, *x: o.embedding_bag_offsets_sum(*x), (TABLE, BAG, OFFSETS, scalar(3))),
    "EmbeddingBagOffsetsSum with weights": (
        3,
        lambda o, *x: o.embedding_bag_offsets_sum(*x),
        (TABLE, BAG, OFFSETS, scalar(0), floats(7)),
    ),
    "EmbeddingBagOffsets, mean": (15, lambda o, *x: o.embedding_bag_offsets(*x, reduction="mean"), (TABLE, BAG, OFFSETS)),
    "EmbeddingBagOffsets of deep rows": (15, lambda o, *x: o.embedding_bag_offsets(*x), (floats(5, 2, 3), BAG, OFFSETS)),
    "EmbeddingSegmentsSum": (3, lambda o, *x: o.embedding_segments_sum(*x), (TABLE, i32(0, 2, 3, 4), i32(0, 0, 2, 2), scalar(4))),
    "EmbeddingSegmentsSum with a default": (
        3,
        lambda o, *x: o.embedding_segments_sum(*x),
        (TABLE, i32(0, 2, 3, 4), i32(0, 0, 2, 2), scalar(4), scalar(1), floats(4)),
    ),
    "SpaceToBatch": (
        2,
        lambda o, x: o.space_to_batch(x, i32(1, 1, 2, 3), i32(0, 0, 1, 0), i32(0, 0, 0, 2)),
        (floats(2, 3, 3, 4),),
    ),
    "BatchToSpace": (
        2,
        lambda o, x: o.batch_to_space(x, i32(1, 1, 2, 3), i32(0, 0, 1, 0), i32(0, 0, 0, 2)),
        (floats(12, 3, 2, 2),),
    ),
    "ReorgYolo": (2, lambda o, x: o.reorg_yolo(x, [2]), (floats(2, 8, 4, 6),)),
    **{
        f"ExtractImagePatches, {pad}": (
            3,
            lambda o, x, pad=pad: o.extract_image_patches(x, [2, 3], [2, 1], [1, 2], pad),
            (floats(2, 3, 7, 6),),
        )
        for pad in ("valid", "same_upper", "same_lower")
    },
    **{
        f"CTCGreedyDecoder{', each' if not merge else ''}": (
            1,
            lambda o, x, mask, merge=merge: o.ctc_greedy_decoder(x, mask, merge),
            (SCORES.transpose(1, 0, 2).copy(), FRAMES),
        )
        for merge in (False, True)
    },
    **{
        f"CTCGreedyDecoderSeqLen{', each' if not merge else ''}": (
            6,
            lambda o, x, size, merge=merge: o.ctc_greedy_decoder_seq_len(x, size, None, merge),
            (SCORES, i32(6, 4)),
        )
        for merge in (False, True)
    },
    "CTCGreedyDecoderSeqLen with a blank": (
        6,
        lambda o, x, size: o.ctc_greedy_decoder_seq_len(x, size, i32(1), True, "i64", "i64"),
        (SCORES, i32(6, 5)),
    ),
    "SliceScatter": (
        15,
        lambda o, x, y: o.slice_scatter(x, y, i32(0, -1), i32(4, 0), i32(2, -2), i32(0, 2)),
        (floats(4, 3, 5), floats(2, 3, 2)),
    ),
    "SliceScatter without axes": (
        15,
        lambda o, x, y: o.slice_scatter(x, y, i32(1), i32(3), i32(1)),
        (floats(4, 3), floats(2, 3)),
    ),
    "GRN": (1, lambda o, x: o.grn(x, 0.5), (floats(2, 3, 4, 2),)),
    "RegionYolo of version 3": (
        1,
        lambda o, x: o.region_yolo(x, 4, 3, 6, False, [0, 1, 2], 1, 3),
        (floats(2, 24, 3, 2),),
    ),
    "RegionYolo of version 2": (1, lambda o, x: o.region_yolo(x, 4, 3, 2, True, [], 1, 3), (floats(2, 16, 3, 2),)),
    "Eye": (9, lambda o, x: o.eye(x, o.constant(scalar(4)), o.constant(scalar(1)), "f32"), (scalar(3),)),
    "Bucketize": (3, lambda o, x, y: o.bucketize(x, y), (floats(2, 3), np.sort(floats(4)))),
    "Bucketize with the left bound": (
        3,
        lambda o, x, y: o.bucketize(x, y, "i32", False),
        (np.float32([[1, 2, 3], [0, 5, 2]]), np.float32([1, 2, 4])),
    ),
    **{
        f"SegmentMax, {mode}": (
            16,
            lambda o, x, mode=mode: o.segment_max(x, i32(0, 0, 2, 4), scalar(6), mode),
            (floats(4, 3),),
        )
        for mode in ("ZERO", "LOWEST")
    },
    "SegmentMax without a count": (16, lambda o, x: o.segment_max(x, i32(0, 2, 2, 3), None, "ZERO"), (floats(4, 3),)),
    **{
        f"{kind} of {len(planes)} planes, {planes[0].dtype}": (
            8,
            lambda o, *x, name=name: getattr(o, name)(*x),
            planes,
        )
        for dtype in (np.uint8, np.float32)
        for kind, name, planes in (
            ("NV12toBGR", "nv12_to_bgr", (pixels(dtype, 4, 6, 1), pixels(dtype, 2, 3, 2))),
            ("NV12toRGB", "nv12_to_rgb", (pixels(dtype, 6, 6, 1),)),
            ("I420toRGB", "i420_to_rgb", (pixels(dtype, 4, 6, 1), pixels(dtype, 2, 3, 1), pixels(dtype, 2, 3, 1, seed=1))),
            ("I420toBGR", "i420_to_bgr", (pixels(dtype, 6, 6, 1),)),
        )
    },
    "Identity": (16, lambda o, x: o.relu(o.identity(x)), (floats(2, 3),)),
}


def saved(name: str, path: Path, is_open: bool) -> list[str]:
    """Return the operator's IR in ``path``, as OpenVINO writes it, with sizes that are left open or not.

    Returns its outputs' names.
    """
    openvino = pytest.importorskip("openvino")
    opset, build, inputs = ROWS[name]
    module = __import__(f"openvino.opset{max(opset, 3)}", fromlist=["x"])
    shapes = [[-1] * x.ndim if is_open else list(x.shape) for x in inputs]
    parameters = [module.parameter(shape, x.dtype) for shape, x in zip(shapes, inputs, strict=True)]
    for place, parameter in enumerate(parameters):
        parameter.output(0).set_names({f"x{place}"})
    outputs = list(build(module, *parameters).outputs())
    for place, output in enumerate(outputs):
        output.set_names({f"y{place}"})
    openvino.save_model(openvino.Model(outputs, parameters), str(path), compress_to_fp16=False)
    return [f"y{place}" for place in range(len(outputs))]


@pytest.mark.parametrize("is_open", [False, True], ids=["known sizes", "open sizes"])
@pytest.mark.parametrize("name", ROWS)
def test_a_node_of_openvino_gives_the_same_in_every_engine_and_format(name: str, is_open: bool, tmp_path: Path) -> None:
    given = {f"x{place}": x for place, x in enumerate(ROWS[name][2])}
    path = str(tmp_path / "model.xml")
    names = saved(name, tmp_path / "model.xml", False)
    theirs = oracles.run_openvino_file(path, given, names)
    if is_open:
        saved(name, tmp_path / "model.xml", True)
    try:
        model = dovetail.load(path, strict=True)
    except UnsupportedError as reason:
        assert is_open, str(reason)
        pytest.skip(f"refused: {reason.message}")
    answers = {"here": list(interpret(model, given).values()), "written as IR": oracles.run_openvino(model, given)}
    data = onnx_write.save(model, None, opset=oracles.RUNTIME_OPSET)
    assert data is not None
    answers["written as ONNX"] = oracles.run_onnxruntime(data, given)
    for where, found in answers.items():
        assert len(found) == len(theirs)
        for place, (mine, other) in enumerate(zip(found, theirs, strict=True)):
            assert_close(np.asarray(mine), other, 1e-5, f"{where}: output {place}")
