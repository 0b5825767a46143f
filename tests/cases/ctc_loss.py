"""Losses of texts: with letters that come twice, of several lengths, with each way to read labels."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.training.ctc_loss import CTCLoss

_LABELS = np.int32([[1, 1, 2, 0, 0, 0], [0, 2, 1, 2, 0, 0]])


def loss(op: CTCLoss, name: str, *more: Any, lengths: Any = (6, 5), counts: Any = (3, 4), **rest: Any) -> Case:
    given = (floats(2, 6, 4), np.int32(lengths), _LABELS, np.int32(counts), *more)
    return Case(op, given, f"CTCLoss {name}", **{"tolerance": 1e-5, **rest})


CASES: list[Case] = [
    *(
        loss(
            CTCLoss(collapse, merge, unique),
            f"{'collapsed, ' if collapse else ''}{'' if merge else 'not '}merged{', each once' if unique else ''}",
        )
        for collapse, merge, unique in itertools.product((False, True), repeat=3)
    ),
    loss(CTCLoss(), "with a blank of its own", np.array(3, np.int32)),
    loss(CTCLoss(), "of one letter", counts=(1, 1)),
    loss(CTCLoss(), "as long as its time", lengths=(3, 4), counts=(2, 4)),
]
