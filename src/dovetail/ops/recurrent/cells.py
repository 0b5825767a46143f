"""Recurrent cells, one time step of a layer: RNNCell, GRUCell and LSTMCell."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.ir.arrays import Array, Namespace
from dovetail.ir.op import Op
from dovetail.ir.types import View
from dovetail.ops.recurrent.cell_math import Data
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, RecurrentLayer

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_INNER = "activations_alpha:activation_alpha=[], activations_beta:activation_beta=[], clip=0"


class RecurrentCell(Op):
    """RecurrentCell is the base of cells: layers of one time step and one direction, without axes for time and direction.

    ``x`` is [batch, input], and states are [batch, hidden]. ``w`` is [gates * hidden, input], ``r`` is [gates * hidden,
    hidden], and the summed bias ``b`` is [gates * hidden].
    """

    decomposes_in_f32 = True

    hidden_size: int | None = None
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None

    layer: ClassVar[type[RecurrentLayer]]

    def as_layer(self) -> Any:
        """Return the layer that computes this cell for a sequence of one time step."""
        return self.layer(**self.__dict__, summed_bias=True)

    def validate(self) -> None:
        self.as_layer()

    def canonical(self, *xs: View | None) -> Op:
        canonical = self.as_layer().canonical()
        return self.with_(**{name: canonical.__dict__[name] for name in self.__dict__})

    def layer_inputs(self, xs: Sequence[Data | None]) -> list[Any]:
        """Return the inputs in the order of the layer: data, weights, bias, lengths (None), states."""
        count = self.layer.state_count
        inputs = [*xs, *[None] * (len(self.signature.inputs) - len(xs))]
        return [inputs[0], *inputs[1 + count : 4 + count], None, *inputs[1 : 1 + count]]

    def shape(self, *xs: View | None) -> Any:
        views = [
            None if x is None else SimpleNamespace(shape=None if x.shape is None else (1, *x.shape))
            for x in self.layer_inputs(xs)
        ]
        sizes = self.as_layer().sizes_of(*views)
        return [(sizes["b"], sizes["h"])] * self.layer.state_count

    def evaluate(self, xp: Namespace, *xs: Array) -> Any:
        inputs = [None if x is None else x[None, ...] for x in self.layer_inputs(xs)]
        return tuple(y[0, ...] for y in self.as_layer().evaluate(xp, *inputs)[1:])

    def decompose(self, b: Builder, *xs: Value | None) -> Any:
        inputs = [None if x is None else b.Unsqueeze(x, [0]) for x in self.layer_inputs(xs)]
        return [b.Squeeze(y, [0]) for y in b.add(self.as_layer(), *inputs)[1:]]


class RNNCell(
    RecurrentCell,
    sig="x: F, initial_h: F, w: F, r: F, b?: F -> y_h: F",
    openvino=f"RNNCell-1(x, initial_h, w, r, b?; hidden_size, activations=[tanh], {_INNER})",
):
    """RNNCell computes one time step of RNN. Source: OpenVINO RNNCell-1."""

    layer = RNN


class GRUCell(
    RecurrentCell,
    sig="x: F, initial_h: F, w: F, r: F, b?: F -> y_h: F",
    openvino=f"GRUCell-3(x, initial_h, w, r, b?; hidden_size, activations=[sigmoid,tanh], {_INNER}, linear_before_reset=false)",
):
    """GRUCell computes one time step of GRU. Source: OpenVINO GRUCell-3."""

    linear_before_reset: bool = False

    layer = GRU


class LSTMCell(
    RecurrentCell,
    sig="x: F, initial_h: F, initial_c: F, w: F, r: F, b?: F -> y_h: F, y_c: F",
    openvino=(
        f"LSTMCell-1(x, initial_h, initial_c, w, r, b?; hidden_size, activations=[sigmoid,tanh,tanh], {_INNER}, "
        "input_forget=false, weights_format=fico)",
        f"LSTMCell-4(x, initial_h, initial_c, w, r, b?; hidden_size, activations=[sigmoid,tanh,tanh], {_INNER} "
        "| input_forget=false, weights_format=fico)",
    ),
):
    """LSTMCell computes one time step of LSTM.

    Sources: OpenVINO LSTMCell-1 (whose files have ``weights_format`` and ``input_forget``), -4.
    """

    input_forget: bool = False
    weights_format: str = "fico"

    layer = LSTM
