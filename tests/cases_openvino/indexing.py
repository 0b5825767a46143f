"""Taking elements by their places, and putting them there."""

from __future__ import annotations

import numpy as np

from cases_openvino import Row, fixed, numbers

_X = numbers(3, 4, 5)
_PLACES = np.int64([[0, 2], [1, 1]])
_DATA = numbers(3, 4)
_ELEMENTS = np.int64([[0, 2, 1, 0], [2, 1, 0, 0]])
_UPDATES = numbers(2, 4, seed=7)

ROWS: list[Row] = [
    *(Row("Gather-1", (_X, _PLACES, fixed(np.int64(axis)))) for axis in (0, 1, -1)),
    *(
        Row(f"Gather-{version}", (_X, indices, fixed(np.int64(axis))), {"batch_dims": dims})
        for version in (7, 8)
        for indices, axis, dims in (
            (_PLACES, 0, 0),
            (_PLACES, -2, 0),
            (np.int64(1), 1, 0),
            (np.int32([[0, 3], [1, 2], [2, 0]]), 1, 1),
            (np.int32([[0, 3], [1, 2], [2, 0]]), 2, -1),
        )
    ),
    *(
        Row("Gather-8", (_X, np.int64([-1, 0, -3]), fixed(np.int64(axis))), {"batch_dims": 0}, f"negative {axis}")
        for axis in (0, 2)
    ),
    Row("Gather-8", (_X, fixed(np.int64([0, 2])), fixed(np.int64(1)))),
    *(
        Row("GatherElements-6", (_DATA, indices), {"axis": axis})
        for indices, axis in ((_ELEMENTS, 0), (np.int32([[0, 3], [1, 2], [0, 0]]), 1), (_ELEMENTS, -2))
    ),
    *(
        Row(f"GatherND-{version}", (_X, indices), {"batch_dims": dims})
        for version in (5, 8)
        for indices, dims in (
            (np.int64([[0, 1], [2, 3]]), 0),
            (np.int64([[0], [2]]), 0),
            (np.int32([[[0], [1]], [[2], [0]], [[3], [3]]]), 1),
            (np.int32([[[0], [1], [2], [0]], [[2], [0], [1], [1]], [[3], [3], [4], [0]]]), 2),
        )
    ),
    Row("ScatterUpdate-3", (_DATA, fixed([2, 0]), numbers(2, 4, seed=6), fixed(np.int64(0)))),
    Row("ScatterUpdate-3", (_DATA, np.int32([[1, 3]]), numbers(3, 1, 2, seed=6), fixed(np.int64(1)))),
    Row("ScatterElementsUpdate-3", (_DATA, _ELEMENTS, _UPDATES, fixed(np.int64(0)))),
    Row("ScatterElementsUpdate-3", (_DATA, np.int64([[0, 3], [1, 2], [0, 1]]), numbers(3, 2, seed=8), fixed(np.int64(-1)))),
    *(
        Row(
            "ScatterElementsUpdate-12",
            (_DATA, indices, _UPDATES, fixed(np.int64(0))),
            {"reduction": how, "use_init_val": initial},
        )
        for how in ("none", "sum", "prod", "min", "max", "mean")
        for initial in (True, False)
        for indices in (_ELEMENTS,) + ((np.int64([[0, 2, 1, 0], [0, 2, 0, -1]]),) if how != "none" else ())
    ),
    *(Row(f"ScatterNDUpdate-{version}", (_X, np.int64([[0, 1], [2, 3]]), numbers(2, 5, seed=6))) for version in (4, 15)),
    Row("ScatterNDUpdate-4", (_X, np.int32([[0], [2]]), numbers(2, 4, 5, seed=6))),
    *(
        Row("ScatterNDUpdate-15", (_X, np.int32([[0, 1], [2, 3], [0, 1]]), numbers(3, 5, seed=6)), {"reduction": how})
        for how in ("sum", "sub", "prod", "min", "max")
    ),
    *(
        Row("SparseFillEmptyRows-16", (values, fixed(shape), indices, fixed(default)), name=name)
        for values, shape, indices, default, name in (
            (np.float32([1, 2, 3]), [4, 5], np.int64([[0, 1], [0, 3], [2, 0]]), np.float32(-1), "two rows empty"),
            (np.float32([1, 2]), [2, 3], np.int64([[0, 1], [1, 0]]), np.float32(9), "none empty"),
            (np.int32([5]), [3, 2], np.int64([[1, 1]]), np.int32(0), "of whole numbers"),
        )
    ),
]
