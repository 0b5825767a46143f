"""Recurrent layers: RNN, GRU, LSTM."""

from dovetail.ops.recurrent import (
    cell_math,
    cells,
    dynamic_quantize_lstm,
    layers,
    layouts,
    loop_form,
)

__all__ = [
    "cell_math",
    "cells",
    "dynamic_quantize_lstm",
    "layers",
    "layouts",
    "loop_form",
]
