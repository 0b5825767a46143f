"""Sequences taken piece by piece, with and without what is left of the piece before; steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.attention.linear_attention import LinearAttention
from dovetail.ops.nn.causal_conv import CausalConvWithState
from dovetail.ops.training.optimizers import Adagrad, Adam, Momentum

_NEAR = {"f64": 1e-6, "f32": 1e-5, "f16": 4e-3, "bf16": 3e-2}


def case(op: Any, inputs: tuple[Any, ...], name: str, **more: Any) -> Case:
    return Case(op, inputs, name, **{"tolerance": _NEAR[dtypes.dtype(inputs[0].dtype).name], **more})


def remembered(op: LinearAttention, inputs: tuple[Any, ...], name: str, **skip: str) -> Case:
    loops = dict.fromkeys(("onnx", "ir"), "a loop is equal to itself alone")
    return case(op, inputs, f"LinearAttention {name}", skip={**loops, **skip})


def convolved(length: int = 5, size: int = 3, name: str = "f32") -> tuple[Any, ...]:
    return floats(2, 3, length, name=name), floats(3, 1, size, seed=1, name=name)


_BIAS, _STATE = floats(3, seed=2), floats(2, 3, 2, seed=3)

CONVOLUTIONS: list[Case] = [
    *(
        case(CausalConvWithState(activation), (*convolved(), *more), f"CausalConvWithState {activation}, {what}")
        for activation in ("plain", "silu")
        for what, more in (
            ("alone", ()),
            ("with a bias", (_BIAS,)),
            ("with a state", (None, _STATE)),
            ("with both", (_BIAS, _STATE)),
        )
    ),
    case(CausalConvWithState(), convolved(1), "CausalConvWithState of one place"),
    case(CausalConvWithState(), (*convolved(1), _BIAS, _STATE), "CausalConvWithState of one place after others"),
    case(CausalConvWithState(), convolved(size=1), "CausalConvWithState of a kernel of one place"),
    case(CausalConvWithState(outputs=1), convolved(), "CausalConvWithState that leaves no state"),
    *(case(CausalConvWithState("silu"), convolved(name=name), f"CausalConvWithState of {name}") for name in ("f16", "bf16")),
]


def attended(q_heads: int = 2, kv_heads: int = 2, rows: int = 4, name: str = "f32") -> tuple[Any, ...]:
    shapes = ((2, rows, q_heads * 3), (2, rows, kv_heads * 3), (2, rows, kv_heads * 5))
    return tuple(floats(*shape, seed=seed, name=name) for seed, shape in enumerate(shapes))


def decay(columns: int, rows: int = 4, name: str = "f32") -> Any:
    return (-np.abs(floats(2, rows, columns, seed=4).astype(np.float32))).astype(dtypes.dtype(name).numpy)


def beta(columns: int, rows: int = 4) -> Any:
    return (1 / (1 + np.exp(-floats(2, rows, columns, seed=5)))).astype(np.float32)


_MEMORY = floats(2, 2, 3, 5, seed=6)

ATTENTIONS: list[Case] = [
    *(
        remembered(LinearAttention(2, 2, scale, rule), (*attended(), *more), f"{rule}, {place}, {scale}")
        for scale in (0.0, 0.25)
        for place, (rule, more) in enumerate(
            (
                ("linear", ()),
                ("linear", (_MEMORY,)),
                ("gated", (None, decay(2))),
                ("gated", (_MEMORY, decay(6))),
                ("delta", (None, None, beta(2))),
                ("delta", (_MEMORY, None, beta(1))),
                ("gated_delta", (None, decay(6), beta(2))),
                ("gated_delta", (_MEMORY, decay(2), beta(1))),
            )
        )
        if not scale or place in (0, 7)
    ),
    remembered(LinearAttention(4, 2, update_rule="gated"), (*attended(4, 2), None, decay(2)), "of shared heads"),
    remembered(LinearAttention(4, 1), (*attended(4, 1), None, decay(3), beta(1)), "of one shared head"),
    remembered(LinearAttention(2, 2), (*attended(rows=1), _MEMORY, decay(6, 1), beta(2, 1)), "of one row"),
    remembered(LinearAttention(2, 2, update_rule="linear", outputs=1), attended(), "that leaves no state"),
    remembered(LinearAttention(2, 2, update_rule="gated"), (*attended(name="f16"), None, decay(2, name="f16")), "of f16"),
    remembered(
        LinearAttention(2, 2, update_rule="linear"),
        (*attended(name="f16"), _MEMORY),
        "of f16 with a state of f32",
        gradient="its other inputs are halves",
    ),
]


def trained(parts: int, many: int = 1, kind: str = "f32") -> tuple[Any, ...]:
    shapes = ((2, 3), (4,))[:many]
    found = [floats(*shape, seed=part, name=kind) for part in range(parts) for shape in shapes]
    # Sums and means of squares are not negative.
    return tuple(np.abs(x) if place >= (parts - 1) * many else x for place, x in enumerate(found))


_WIDE = {"onnx.reference": "it makes f64 of f32"}
STEPS: list[Case] = [
    case(
        op,
        (np.array(0.1, np.float32), np.array(count), *trained(parts, many)),
        f"{op}, step {count}",
        skip=_WIDE if count and isinstance(op, Adam) else {},
    )
    for many in (1, 2)
    for count in (0, 3)
    for parts, op in (
        (3, Momentum(alpha=0.75, beta=0.5, norm_coefficient=0.125, outputs=2 * many)),
        (3, Momentum(alpha=0.75, beta=0.5, mode="nesterov", outputs=2 * many)),
        (3, Adagrad(decay_factor=0.25, epsilon=0.0625, norm_coefficient=0.125, outputs=2 * many)),
        (3, Adagrad(outputs=2 * many)),
        (4, Adam(outputs=3 * many)),
        (4, Adam(alpha=0.5, beta=0.75, norm_coefficient=0.125, norm_coefficient_post=0.25, outputs=3 * many)),
    )
] + [
    case(
        Adam(outputs=3),
        (np.array([0.1], np.float64), np.array([2]), *trained(4)),
        "Adam with a rate of f64 in a vector",
        tolerance=1e-5,
        skip=_WIDE,
    )
]

CASES: list[Case] = [*CONVOLUTIONS, *ATTENTIONS, *STEPS]
