"""Signal processing: DFT, STFT, window functions."""

from dovetail.ops.signal import (
    dft,
    stft,
)

__all__ = [
    "dft",
    "stft",
]
