"""Attention with a cache: first rows and later ones, sequences of different lengths, tables, windows, sinks, scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ops.attention.group_query_attention import GroupQueryAttention

HEADS, KV_HEADS = 4, 2


def made(
    lengths: list[int], rows: int = 1, cached: int = 0, size: int = 8, packed: bool = False, turned: int = 0, total: int = 0
) -> list[Any]:
    """Return the first nine inputs: the sequences have ``lengths`` rows in the end."""
    batch = len(lengths)
    parts = [floats(batch, rows, count * size, seed=seed) for seed, count in enumerate((HEADS, KV_HEADS, KV_HEADS))]
    qkv = [np.concatenate(parts, axis=2), None, None] if packed else parts
    cache = [floats(batch, KV_HEADS, cached, size, seed=seed) for seed in (3, 4)] if cached else [None, None]
    angles = np.random.default_rng(4).uniform(0, 6, (16, turned // 2))
    tables = [function(angles).astype(np.float32) for function in (np.cos, np.sin)] if turned else [None, None]
    ends = np.array(lengths, np.int32) - 1
    return [*qkv, *cache, ends.astype(np.int32), np.array(total or max(lengths), np.int32), *tables]


def case(name: str, inputs: list[Any], *more: Any, **attributes: Any) -> Case:
    given = [*inputs, *more]
    while given[-1] is None:
        given.pop()
    op = GroupQueryAttention(HEADS, KV_HEADS, **attributes)
    return Case(op, tuple(given), f"GroupQueryAttention {name}", tolerance=1e-5)


_POSITIONS = np.array([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2]])
_BIAS = floats(2, HEADS, 5, 5, seed=6)
_SINK = floats(HEADS, seed=7)

CASES: list[Case] = [
    case("of first rows", made([5, 5], 5)),
    case("of first rows, one with a shorter sequence", made([5, 3], 5)),
    case("of first rows beside a cache that is not read", made([5, 5], 5, 7)),
    case("of first rows, packed", made([5, 4], 5, packed=True)),
    case("of a next row", made([6, 6], 1, 5)),
    case("of a next row of sequences of their own lengths", made([6, 4], 1, 5)),
    case("of a next row in a cache with room", made([6, 4], 1, 9)),
    case("of a next row, packed", made([6, 4], 1, 5, packed=True)),
    case("of some next rows", made([8], 3, 5)),
    case("of some next rows in a cache with room", made([8], 3, 9)),
    *(
        case(f"rotated, {interleaved} {turned} {rows}", made(lengths, rows, cached, 32, packed, turned), **_turned)
        for interleaved in (False, True)
        for _turned in ({"do_rotary": True, "rotary_interleaved": interleaved},)
        for turned, rows, lengths, cached, packed in ((32, 5, [5, 5], 0, True), (16, 1, [6, 4], 5, False), (16, 3, [8], 5, False))
    ),
    case("rotated at other places at first", made([5, 5], 5, size=16, turned=16), _POSITIONS, do_rotary=True),
    case("rotated at other places later", made([6, 4], 1, 5, 16, turned=16), _POSITIONS[:, :1], do_rotary=True),
    case("not rotated, in spite of tables", made([5, 5], 5, size=16, turned=16)),
    *(case(f"in a window of {window}", made([5, 3], 5), local_window_size=window) for window in (1, 2, 20)),
    case("in a window, of a next row", made([6, 4], 1, 9), local_window_size=2),
    case("with a cap and a scale", made([5, 5], 5), softcap=0.5, scale=0.5),
    case("with a bias", made([5, 3], 5), None, _BIAS),
    case("with a bias for all", made([5, 5], 5), None, _BIAS[:1, :1], softcap=0.5),
    case("with a bias in a cache with room", made([6, 4], 1, 9), None, floats(2, 1, 1, 6, seed=8), local_window_size=3),
    case("with a sink", made([5, 3], 5), None, None, _SINK),
    case("with a sink of 0", made([6, 4], 1, 5), smooth_softmax=True),
    case("of everything", made([5, 4], 5), causal=False),
    case("of everything, of a next row", made([6, 4], 1, 5), causal=False),
    *(
        case(
            f"with its {scores}, {rows}",
            made([6, 6], rows, cached),
            local_window_size=2,
            softcap=0.5,
            qk_output=scores,
            outputs=4,
        )
        for scores in ("masked", "weights")
        for rows, cached in ((6, 0), (1, 9))
    ),
]
