"""Attention in every form, rotated positions, sums over named axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.attention.attention import Attention, ScaledDotProductAttention
from dovetail.ops.attention.rotary_embedding import RotaryEmbedding
from dovetail.ops.linalg.einsum import Einsum

_NEAR = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


def seen(*shape: int, seed: int = 9) -> np.ndarray[Any, Any]:
    """Return a mask of truth values in which every row has one that is true."""
    found = np.random.default_rng([seed, *shape]).random(shape) < 0.6
    found[..., 0] = True
    return found


def heads(rows: int = 4, keys: int = 5, count: int = 4, kv: int = 4, name: str = "f32") -> tuple[np.ndarray[Any, Any], ...]:
    shapes = ((2, count, rows, 8), (2, kv, keys, 8), (2, kv, keys, 6))
    return tuple(floats(*shape, seed=seed, name=name) for seed, shape in enumerate(shapes))


def flat(count: int = 4, kv: int = 4, name: str = "f32") -> tuple[np.ndarray[Any, Any], ...]:
    shapes = ((2, 4, count * 8), (2, 5, kv * 8), (2, 5, kv * 6))
    return tuple(floats(*shape, seed=seed, name=name) for seed, shape in enumerate(shapes))


def past(keys: int = 3, kv: int = 4) -> tuple[np.ndarray[Any, Any], ...]:
    return floats(2, kv, keys, 8, seed=5), floats(2, kv, keys, 6, seed=6)


def case(op: Any, inputs: tuple[Any, ...], name: str, **more: Any) -> Case:
    return Case(op, inputs, name, **{"tolerance": _NEAR[dtypes.dtype(inputs[0].dtype).name], **more})


_SHORT = {"onnxruntime": "it reads the mask as if it were as long as the keys"}
_CAPPED = {"onnx.reference": "it gives the capped products where the text has the raw ones"}
_HALVES = dict.fromkeys(("gradient", "gradient in onnxruntime"), "its weights are rounded to f16")
_NONE = np.array([[True, True, False, True, True], [False] * 5, [True] * 5, [False, False, False, False, True]])

SDPA: list[Case] = [
    case(ScaledDotProductAttention(), heads(), "ScaledDotProductAttention"),
    case(ScaledDotProductAttention(True), heads(), "ScaledDotProductAttention of the past"),
    case(ScaledDotProductAttention(True), heads(7, 5), "ScaledDotProductAttention of more rows than keys"),
    case(ScaledDotProductAttention(True), (*heads(), floats(4, 5, seed=3)), "ScaledDotProductAttention that ignores its mask"),
    *(
        case(ScaledDotProductAttention(), (*heads(), mask), f"ScaledDotProductAttention with {mask.dtype}{list(mask.shape)}")
        for mask in (
            seen(4, 5),
            seen(2, 1, 4, 5),
            seen(4, 1, 5),
            floats(4, 5, seed=3),
            floats(2, 4, 4, 5, seed=3),
            floats(1, 5, seed=3),
        )
    ),
    case(
        ScaledDotProductAttention(),
        (*heads(), np.float32(0)),
        "ScaledDotProductAttention without a mask, by a mask of 0",
        constants=(3,),
    ),
    case(
        ScaledDotProductAttention(), (*heads(), None, np.float32(0.25)), "ScaledDotProductAttention with a scale", constants=(4,)
    ),
    case(
        ScaledDotProductAttention(),
        (*heads(), seen(4, 5), np.array([0.25], np.float32)),
        "ScaledDotProductAttention with a scale in a vector",
    ),
    case(ScaledDotProductAttention(), (*heads(), _NONE), "ScaledDotProductAttention with a row that sees nothing"),
    case(
        ScaledDotProductAttention(), (*heads(), seen(4, 5)), "ScaledDotProductAttention with a mask that is known", constants=(3,)
    ),
    *(
        case(
            ScaledDotProductAttention(causal),
            (*heads(), mask, np.array(0.25, np.float32), sink),
            f"ScaledDotProductAttention with a sink {list(sink.shape)} {causal}",
            constants=(4,),
        )
        for sink in (floats(1, 4, 1, 1, seed=3), floats(2, 4, 4, 1, seed=3), floats(1, 4, 4, 1, seed=3))
        for causal, mask in ((False, floats(4, 5, seed=4)), (True, np.zeros((), np.float32)))
    ),
    case(ScaledDotProductAttention(), tuple(x[0] for x in heads()), "ScaledDotProductAttention of rank 3"),
    case(
        ScaledDotProductAttention(),
        (floats(3, 1, 4, 8), floats(1, 2, 5, 8, seed=1), floats(3, 2, 5, 6, seed=2)),
        "ScaledDotProductAttention that broadcasts",
    ),
    *(
        case(ScaledDotProductAttention(), heads(name=name), f"ScaledDotProductAttention of {name}")
        for name in ("f64", "f16", "bf16")
    ),
]

ONNX: list[Case] = [
    *(
        case(op, inputs, f"Attention {label} {what}")
        for label, inputs, counts in (
            ("of heads", heads(), {}),
            ("of shared heads", heads(count=4, kv=2), {}),
            ("of columns", flat(), {"q_num_heads": 4, "kv_num_heads": 4}),
            ("of columns of shared heads", flat(4, 1), {"q_num_heads": 4, "kv_num_heads": 1}),
        )
        for what, op in (
            ("as it is", Attention(**counts)),
            ("of the past", Attention(is_causal=True, **counts)),
            ("with a scale", Attention(scale=0.0625, **counts)),
            ("with a cap", Attention(softcap=2.0, **counts)),
        )
    ),
    *(
        case(Attention(short_mask=short), (*heads(), mask), f"Attention with {mask.dtype}{list(mask.shape)} {short}")
        for mask in (seen(4, 5), seen(2, 1, 4, 5), floats(4, 4, 5, seed=3), floats(2, 4, 4, 5, seed=3))
        for short in (False, True)
    ),
    case(Attention(is_causal=True), (*heads(), floats(4, 5, seed=3)), "Attention of the past with a mask"),
    case(Attention(), (*heads(), _NONE), "Attention with a row that sees nothing"),
    case(
        Attention(qk_matmul_output_mode="weights", outputs=4),
        (*heads(), _NONE),
        "Attention with the weights of a row that sees nothing",
    ),
    case(Attention(short_mask=True), (*heads(), seen(4, 3)), "Attention with a short mask", skip=_SHORT),
    *(
        case(
            Attention(is_causal=causal, outputs=3),
            (*heads(count=4, kv=kv), mask, *past(kv=kv)),
            f"Attention with a past {causal} {kv} {'-' if mask is None else mask.dtype}",
        )
        for causal in (False, True)
        for kv in (4, 2)
        for mask in (None, floats(4, 8, seed=3), seen(4, 8))
    ),
    case(
        Attention(q_num_heads=4, kv_num_heads=2, outputs=3), (*flat(4, 2), None, *past(kv=2)), "Attention of columns with a past"
    ),
    *(
        case(
            Attention(qk_matmul_output_mode=scores, softcap=1.5, outputs=4),
            (*heads(), floats(4, 5, seed=3)),
            f"Attention with its scores, {scores}",
            skip=_CAPPED if scores == "raw" else {},
        )
        for scores in ("raw", "capped", "masked", "weights")
    ),
    *(
        case(
            Attention(is_causal=causal),
            (*heads(2), None, None, None, np.array(lengths, np.int64)),
            f"Attention with lengths {lengths} {causal}",
        )
        for lengths in ([5, 3], [2, 4])
        for causal in (False, True)
    ),
    *(
        case(
            Attention(is_causal=causal, left_window_size=left, right_window_size=right),
            heads(5, 6),
            f"Attention in a window {left} {right} {causal}",
        )
        for causal, left, right in ((True, 1, -1), (False, 1, 1), (False, 0, -1), (False, -1, 2))
    ),
    case(Attention(softmax_precision=dtypes.f32), heads(name="f16"), "Attention of f16 with weights in f32"),
    case(Attention(softmax_precision=dtypes.f16), heads(), "Attention with weights in f16", tolerance=4e-3, skip=_HALVES),
    *(case(Attention(is_causal=True), heads(name=name), f"Attention of {name}") for name in ("f64", "f16", "bf16")),
]


def rotary_inputs(rank: int, size: int, name: str = "f32", positions: bool = True) -> tuple[np.ndarray[Any, Any], ...]:
    x = floats(2, 3, 4, 8, name=name) if rank == 4 else floats(2, 4, 24, name=name)
    shape = (10, size // 2) if positions else (2, 4, size // 2)
    angles = np.random.default_rng(4).uniform(0, 6, shape)
    tables = (np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype))
    return (x, *tables, *([np.array([[3, 1, 4, 1], [5, 9, 2, 6]], np.int64)] if positions else []))


ROTARY: list[Case] = [
    case(
        RotaryEmbedding(None if rank == 4 else 3, size, interleaved),
        rotary_inputs(rank, size or 8, positions=positions),
        f"RotaryEmbedding of rank {rank}, {size} columns, {interleaved} {positions}",
    )
    for rank in (4, 3)
    for size in (0, 4)
    for interleaved in (False, True)
    for positions in (True, False)
] + [case(RotaryEmbedding(), rotary_inputs(4, 8, name), f"RotaryEmbedding of {name}") for name in ("f16", "bf16")]

_EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bhwc,hkc->bhwk", ((2, 3, 4, 5), (3, 6, 5))),
    ("ij->ji", ((2, 3),)),
    ("AbC", ((1, 2, 3),)),
    ("ij->", ((2, 3),)),
    ("i , i", ((4,), (4,))),
    ("i,j->ij", ((2,), (3,))),
    (",i->i", ((), (3,))),
    ("ii->i", ((4, 4),)),
    ("kii->k", ((2, 3, 3),)),
    ("iii->i", ((3, 3, 3),)),
    ("...ii->...i", ((2, 3, 4, 4),)),
    ("dbbc,ca", ((3, 2, 2, 4), (4, 5))),
    ("ijk,lkj->il", ((2, 3, 4), (5, 4, 3))),
    ("ab,bcd,bc->ca", ((2, 5), (5, 3, 6), (5, 3))),
    ("aac,abd,ddde->ce", ((3, 3, 2), (3, 4, 5), (5, 5, 5, 6))),
    ("a...bc,...cd->...abd", ((2, 3, 4, 5), (3, 5, 6))),
    ("a...,b...->a...b", ((2, 3, 1), (5, 3, 4))),
    ("...->...", ((2, 3),)),
    ("ij,jk->ik", ((2, 0), (0, 3))),
)
_STRETCHED: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("a...b,b...->a...", ((9, 1, 4, 3), (3, 11, 7, 1))),
    ("a...,...->a...", ((3, 3), (1,))),
    ("ij,jk->ik", ((2, 1), (3, 4))),
    ("ab...,ac...,ade->...bc", ((2, 3, 4), (2, 7, 1), (2, 4, 7))),
    ("ij,ij->", ((1, 3), (4, 1))),
)

EINSUM: list[Case] = [
    *(
        case(
            Einsum(equation, broadcast),
            tuple(floats(*shape, seed=seed) for seed, shape in enumerate(shapes)),
            f"Einsum {equation} {list(map(list, shapes))}",
        )
        for broadcast, rows in ((False, _EQUATIONS), (True, _STRETCHED))
        for equation, shapes in rows
    ),
    *(
        case(Einsum("ij,jk->ik"), (floats(2, 3, name=name), floats(3, 4, seed=1, name=name)), f"Einsum of {name}")
        for name in ("f64", "f16")
    ),
    Case(
        Einsum("ij,jk->ki"),
        (np.arange(6, dtype=np.int64).reshape(2, 3), np.arange(12, dtype=np.int64).reshape(3, 4)),
        "Einsum of i64",
    ),
]

CASES: list[Case] = [*SDPA, *ONNX, *ROTARY, *EINSUM]
