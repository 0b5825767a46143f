"""Boxes that overlap."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cases_openvino import Row, fixed
from openvino_answers import soft_suppression, suppression

_CHANCE = np.random.default_rng(0)
_FIRST = _CHANCE.uniform(0, 1, (2, 10, 2))
_BOXES = np.concatenate([_FIRST, _FIRST + _CHANCE.uniform(0.2, 0.6, (2, 10, 2))], -1).astype(np.float32)
_SCORES = _CHANCE.uniform(0, 1, (2, 3, 10)).astype(np.float32)


def _limits(most: Any, overlap: Any, least: Any, kind: Any = np.int64) -> list[Any]:
    return [fixed(kind(most)), fixed(np.float32(overlap)), fixed(np.float32(least))]


def _padded(version: int, encoding: str, order: bool, kind: Any, limits: tuple[Any, ...], batch: int) -> Row:
    attributes = {
        "box_encoding": encoding,
        "sort_result_descending": order,
        **({} if version == 1 else {"output_type": kind.__name__.replace("int", "i")}),
    }
    return Row(
        f"NonMaxSuppression-{version}",
        (_BOXES[:batch], _SCORES[:batch], *_limits(*limits)),
        attributes,
        answers=suppression(version, encoding == "center", order, kind),
        why="OpenVINO gives as many rows as are kept, where its specification and the shape in the file fill up with -1",
    )


def _soft(version: int, encoding: str, order: bool, kind: Any, limits: tuple[Any, ...], sigma: float) -> Row:
    attributes = {"box_encoding": encoding, "sort_result_descending": order, "output_type": kind.__name__.replace("int", "i")}
    return Row(
        f"NonMaxSuppression-{version}",
        (_BOXES, _SCORES, *_limits(*limits), fixed(np.float32(sigma))),
        attributes,
        f"soft {encoding} {order} {attributes['output_type']} {limits} {sigma}",
        answers=soft_suppression(encoding == "center", order, kind) if version == 5 else None,
        why="OpenVINO's CPU plugin passes over no box where scores fall, and its specification those that overlap too much"
        if version == 5
        else "",
        tolerance=1e-6,
    )


ROWS: list[Row] = [
    *(
        Row(
            f"NonMaxSuppression-{version}",
            (_BOXES, _SCORES, *_limits(most, overlap, least)),
            {"box_encoding": boxes, "sort_result_descending": order, "output_type": kind},
        )
        for version in (5, 9)
        for boxes, order, kind in itertools.product(("corner", "center"), (True, False), ("i64", "i32"))
        for most, overlap, least in ((4, 0.3, 0.2), (20, 0.5, 0.0))
        if boxes == "corner" or most == 4
    ),
    *(
        Row(
            f"NonMaxSuppression-{version}",
            (_BOXES, _SCORES, fixed(np.int64(3))),
            {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"},
            "with a limit alone",
        )
        for version in (5, 9)
    ),
    *(
        _padded(version, *case)
        for version in (1, 3, 4)
        for case in itertools.product(
            ("corner", "center"), (True, False), (np.int64, np.int32), ((4, 0.3, 0.2), (20, 0.5, 0.0)), (1, 2)
        )
        if version > 1 or case[2] is np.int64
    ),
    *(
        _soft(version, encoding, order, kind, limits, sigma)
        for version in (5, 9)
        for encoding, order, kind in itertools.product(("corner", "center"), (True, False), (np.int64, np.int32))
        for limits, sigma in (((3, 0.4, 0.1), 0.5), ((20, 0.2, 0.3), 0.1))
        if encoding == "corner" or kind is np.int64
    ),
    Row(
        "NonMaxSuppression-9",
        (_BOXES, _SCORES, *_limits(20, 0.4, 0.2), np.float32(0.5)),
        {"box_encoding": "corner", "sort_result_descending": True, "output_type": "i64"},
        "soft, by a sigma that only run time knows",
        tolerance=1e-6,
    ),
]
