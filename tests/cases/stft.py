"""Spectra of frames: with a window and without, of real and complex signals, of one side and both, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from cases import Case
from cases.matmul import floats
from dovetail.ir import dtypes
from dovetail.ops.signal.stft import ISTFT, STFT, MelWeightMatrix

_STEP = np.array(3)
_NARROW = {"openvino": "OpenVINO's CPU plugin computes in f32"}


def window(size: int, kind: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.hamming(size).astype(kind)


def framed(op: STFT, name: str, *inputs: Any, **more: Any) -> Case:
    return Case(op, inputs, f"STFT {name}", **{"tolerance": 1e-5, **more})


def back(op: ISTFT, name: str, size: int, *rest: Any, x: Any = None, **more: Any) -> Case:
    given = (floats(2, 5, 4, 2) if x is None else x, window(size), np.array(8), np.array(2), *rest)
    return Case(op, given, f"ISTFT {name}", **{"tolerance": 1e-5, **more})


def mel(op: MelWeightMatrix, name: str, *numbers: Any, **more: Any) -> Case:
    ints = [np.array(number) for number in numbers[:3]]
    return Case(op, (*ints, *(np.float32(number) for number in numbers[3:])), f"MelWeightMatrix {name}", (3, 4), **more)


CASES: list[Case] = [
    framed(STFT(), "with a window", floats(2, 20, 1), _STEP, window(8)),
    framed(STFT(), "with a window and its length", floats(2, 20, 1), _STEP, window(8), np.array(8)),
    framed(STFT(), "without a window", floats(2, 20, 1), _STEP, None, np.array(7)),
    framed(STFT(False), "of both sides of real numbers", floats(2, 20, 1), _STEP, window(8)),
    framed(STFT(False), "of complex numbers", floats(2, 20, 2), _STEP, window(6), np.array(6)),
    framed(STFT(), "of one frame", floats(1, 8, 1), _STEP, window(8)),
    framed(STFT(), "of f64", floats(1, 12, 1, name="f64"), _STEP, window(5, np.float64), skip=_NARROW),
    *(
        back(ISTFT(center, normalized), f"{'from the middle' if center else 'whole'}{', normalised' if normalized else ''}", 8)
        for center in (False, True)
        for normalized in (False, True)
    ),
    back(ISTFT(), "with a shorter window", 5),
    back(ISTFT(True), "to a length", 8, np.array(9)),
    back(ISTFT(), "to a greater length", 8, np.array(19)),
    back(ISTFT(), "without a batch", 8, x=floats(5, 4, 2)),
    mel(MelWeightMatrix(), "of 8 bands", 8, 16, 8192, 0, 4096),
    mel(MelWeightMatrix(), "of 20 bands", 20, 512, 16000, 125, 7600, tolerance=1e-5),
    mel(MelWeightMatrix(dtypes.dtype("f64")), "of f64", 4, 64, 8000, 100, 3500, tolerance=1e-7),
]
