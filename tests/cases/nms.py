"""Boxes that overlap, at the edges of every limit."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from dovetail.ir import dtypes
from dovetail.ops.detection.nms import NonMaxSuppression

_I32 = dtypes.dtype("i32")
# Half of the first is the second, twins, a corner the other way round, boxes without area.
_BOXES = np.float32([[[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 2, 1, 3], [0, 2, 1, 3], [1, 1, 0, 0], [5, 5, 5, 6], [5, 5, 5, 6]]])
_SCORES = np.float32([[[0.9, 0.8, 0.7, 0.7, 0.5, 0.25, 0.25], [0.25, 0.9, 0.75, 0.75, 0.5, 0.5, 0.5]]])
_COUNT = {"shape": "how many are kept depends on the elements"}


def several(seed: int = 0) -> tuple[Any, Any]:
    """Two batches of three classes of ten boxes: corners, and scores."""
    chance = np.random.default_rng(seed)
    first = chance.uniform(0, 1, (2, 10, 2))
    boxes = np.concatenate([first, first + chance.uniform(0.2, 0.6, (2, 10, 2))], axis=-1)
    return boxes.astype(np.float32), chance.uniform(0, 1, (2, 3, 10)).astype(np.float32)


def limits(most: int | None = 10, overlap: float | None = 0.5, least: float | None = 0.1) -> tuple[Any, ...]:
    return (
        None if most is None else np.array([most], np.int64),
        None if overlap is None else np.array([overlap], np.float32),
        None if least is None else np.array([least], np.float32),
    )


def suppressed(
    op: NonMaxSuppression, name: str, inputs: tuple[Any, ...], skip: dict[str, str] | None = None, tolerance: float | None = None
) -> Case:
    constants = tuple(index for index in range(2, len(inputs)) if inputs[index] is not None)
    while inputs[-1] is None:
        inputs = inputs[:-1]
    return Case(op, inputs, f"NonMaxSuppression {name}", constants, _COUNT | (skip or {}), tolerance)


def softly(op: NonMaxSuppression, name: str, boxes: tuple[Any, Any], sigma: float, *given: Any, **more: Any) -> Case:
    inputs = (*boxes, *limits(*given), np.array([sigma], np.float32))
    return suppressed(op, f"with scores that fall, {name}", inputs, tolerance=1e-6, **more)


_UNWRITTEN = {"openvino": "OpenVINO's CPU plugin leaves the count unwritten where the limit is 0"}
_WORDS = {(1, False): "", (1, True): ", all by score", (3, False): ", three outputs", (3, True): ", three outputs, all by score"}
CASES: list[Case] = [
    *(
        suppressed(
            NonMaxSuppression(False, inclusive, descending, outputs=outputs),
            f"by {'as much as' if inclusive else 'more than'} {overlap}{_WORDS[outputs, descending]}",
            (_BOXES, _SCORES, *limits(overlap=overlap)),
        )
        for inclusive in (False, True)
        for outputs, descending in _WORDS
        for overlap in (0.5, 0.0, 1.0)
    ),
    *(
        suppressed(
            NonMaxSuppression(inclusive=inclusive, outputs=outputs),
            f"of several, {what}{_WORDS[outputs, False]}",
            (*several(), *each),
            _UNWRITTEN if outputs == 3 and each[0] is None else None,
        )
        for inclusive, outputs in ((False, 1), (True, 3))
        for what, each in (
            ("with all limits", limits(2, 0.3, 0.4)),
            ("of any score", limits(20, 0.4, None)),
            ("without a share", limits(3, None, 0.5)),
            ("without a limit", limits(None, None, None)),
            ("of a score that one has", limits(5, 0.9, float(several()[1][0, 0, 0]))),
        )
    ),
    suppressed(NonMaxSuppression(True), "with centers", (*several(1), *limits(4, 0.2, 0.1))),
    suppressed(NonMaxSuppression(True, True, True, _I32, 3), "with centers, of 32 bits", (*several(1), *limits(4, 0.2, 0.1))),
    suppressed(NonMaxSuppression(output_type=_I32), "of 32 bits", (*several(2), *limits(4, 0.2, 0.1))),
    suppressed(NonMaxSuppression(), "of one box", (_BOXES[:, :1], _SCORES[..., :1], *limits())),
    *(
        softly(
            NonMaxSuppression(inclusive=True, sort_result_descending=order, outputs=count),
            f"{what}{_WORDS[count, order]}",
            boxes,
            *rest,
        )
        for count, order in _WORDS
        for what, boxes, *rest in (
            ("of several", several(), 0.5, 20, 0.3, 0.2),
            ("of two at most", several(1), 0.1, 2, 0.0, 0.1),
            ("of twins", (_BOXES[:, :5], _SCORES[..., :5]), 0.7, 10, 0.5, 0.1),
            ("of any score", several(2), 0.01, 20, 0.4, None),
        )
    ),
    softly(NonMaxSuppression(True, True, True, _I32, 3), "with centers, of 32 bits", several(1), 0.3, 4, 0.2, 0.1),
    softly(
        NonMaxSuppression(outputs=3),
        "without area",
        (_BOXES[:, 3:], _SCORES[..., 3:]),
        *(0.5, 10, 0.5, 0.1),
        skip={"openvino": "OpenVINO's CPU plugin divides by what two boxes without area cover"},
    ),
    softly(NonMaxSuppression(inclusive=True, outputs=3), "by nothing", several(1), 0.0, 4, 0.2, 0.1),
    softly(NonMaxSuppression(outputs=3), "of nothing", several(1), 0.3, 4, 0.2, 2.0),
    softly(NonMaxSuppression(outputs=1), "of one box", (_BOXES[:, :1], _SCORES[..., :1]), 0.3, 4, 0.2, 0.1),
    *(
        softly(
            NonMaxSuppression(inclusive=inclusive, soft_and_hard=True, outputs=3),
            f"or suppressed by {'as much as' if inclusive else 'more than'} {overlap}",
            boxes,
            *(0.5, 20, overlap, 0.1),
        )
        for inclusive in (False, True)
        for overlap, boxes in ((0.3, several()), (0.5, (_BOXES, _SCORES)))
    ),
    Case(
        NonMaxSuppression(inclusive=True, outputs=3),
        (*several(), *limits(20, 0.4, 0.2), np.float32([0.5])),
        "NonMaxSuppression by a sigma that only run time knows",
        (2, 3, 4),
        _COUNT,
        1e-6,
    ),
]
