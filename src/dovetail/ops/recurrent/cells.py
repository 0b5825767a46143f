"""One moment of a recurrent layer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

from dovetail.ir.op import Op
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, _Recurrent

_INNER = "activations_alpha:alphas=[], activations_beta:betas=[], clip=0"


class _Cell(Op):
    """As a layer of one moment and one direction without axes for them: ``x`` [batch, input], states [batch, hidden], ``w``
    [gates * hidden, input], ``r`` [gates * hidden, hidden], ``bias`` (summed) [gates * hidden]."""

    hidden_size: int | None = None
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float | None = None

    layer: ClassVar[type[_Recurrent]]

    def sequence(self) -> Any:
        """The layer that does the same."""
        return self.layer(**self.__dict__, summed=True)

    def validate(self) -> None:
        self.sequence()

    def canonical(self, *xs: Any) -> Op:
        plain = self.sequence().canonical()
        return self.with_(**{name: plain.__dict__[name] for name in self.__dict__})

    def ordered(self, xs: Any) -> list[Any]:
        """The inputs as the layer has them: data, weights, bias, lengths, states."""
        count = self.layer.states
        given = [*xs, *[None] * (len(self.signature.inputs) - len(xs))]
        return [given[0], *given[1 + count : 4 + count], None, *given[1 : 1 + count]]

    def shape(self, *xs: Any) -> Any:
        views = [
            None if x is None else SimpleNamespace(shape=None if x.shape is None else (1, *x.shape)) for x in self.ordered(xs)
        ]
        sizes = self.sequence().sizes(*views)
        return [(sizes["b"], sizes["h"])] * self.layer.states

    def evaluate(self, xp: Any, *xs: Any) -> Any:
        given = [None if x is None else x[None, ...] for x in self.ordered(xs)]
        return tuple(y[0, ...] for y in self.sequence().evaluate(xp, *given)[1:])

    def decompose(self, b: Any, *xs: Any) -> Any:
        given = [None if x is None else b.Unsqueeze(x, [0]) for x in self.ordered(xs)]
        return [b.Squeeze(y, [0]) for y in b.add(self.sequence(), *given)[1:]]


class RNNCell(
    _Cell,
    sig="x: F, h: F, w: F, r: F, bias?: F -> y: F",
    openvino=f"RNNCell-1(x, h, w, r, bias?; hidden_size, activations=[tanh], {_INNER})",
):
    """One moment of RNN. Source: OpenVINO RNNCell-1."""

    layer = RNN


class GRUCell(
    _Cell,
    sig="x: F, h: F, w: F, r: F, bias?: F -> y: F",
    openvino=f"GRUCell-3(x, h, w, r, bias?; hidden_size, activations=[sigmoid,tanh], {_INNER}, linear_before_reset=false)",
):
    """One moment of GRU. Source: OpenVINO GRUCell-3."""

    linear_before_reset: bool = False

    layer = GRU


class LSTMCell(
    _Cell,
    sig="x: F, h: F, c: F, w: F, r: F, bias?: F -> next_h: F, next_c: F",
    openvino=(
        f"LSTMCell-1(x, h, c, w, r, bias?; hidden_size, activations=[sigmoid,tanh,tanh], {_INNER}, input_forget=false, "
        "weights_format:gates=fico)",
        f"LSTMCell-4(x, h, c, w, r, bias?; hidden_size, activations=[sigmoid,tanh,tanh], {_INNER} "
        "| input_forget=false, gates=fico)",
    ),
):
    """One moment of LSTM. Sources: OpenVINO LSTMCell-1 (with the order of gates and coupled gates that its files say), -4."""

    input_forget: bool = False
    gates: str = "fico"

    layer = LSTM
