"""Recurrent networks: one layer over a whole sequence."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from dovetail import arrays
from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.recurrent.cell_math import (
    DEFAULTS,
    PARAMETERS,
    Arrays,
    Function,
    Medium,
    Step,
    Values,
    activation,
    parts,
    through_time,
)
from dovetail.ops.recurrent.loop_form import through_loop

X_AXES = {"sequence_first": "sbi", "batch_first": "bsi", "direction_second": "bsi"}
Y_AXES = {"sequence_first": "sdbh", "batch_first": "bsdh", "direction_second": "bdsh"}
STATE_AXES = {"sequence_first": "dbh", "batch_first": "bdh", "direction_second": "bdh"}
"""The axes of the data, of what is put out and of states in each layout: sequence, batch, direction, input and hidden size."""


def order(source: str, target: str) -> list[int]:
    """The permutation from one order of axes to another."""
    return [source.index(axis) for axis in target]


def listed(functions: list[tuple[str, float, float]], usual: tuple[str, ...]) -> dict[str, Any]:
    """Functions as attributes: those that are usual are not listed."""
    names = tuple(name for name, _, _ in functions)
    if names == usual:
        return {"activations": (), "alphas": (), "betas": ()}
    alphas, betas = (
        tuple(each[place + 1] for each in functions if PARAMETERS.get(each[0], (False, False))[place]) for place in (0, 1)
    )
    return {"activations": names, "alphas": alphas, "betas": betas}


class _Recurrent(Op):
    """What the kinds of cells share. ``x``, the outputs and the states lie as ``layout`` says (see the tables above).

    ``w`` and ``r``: [directions, gates * hidden, input or hidden]; ``bias``: [directions, 2 * gates * hidden], that of ``w``
    before that of ``r``, or with ``summed`` their sum. ``lengths``: how far each row of the batch goes; after it 0 is put out,
    and the last state is that before it (0 for a row of no length). A reverse direction begins at the end of each row. States
    left out are 0. ``activations``: one for each function of a cell, for both directions or for one after the other; empty: the
    usual ones. ``alphas`` and ``betas``: their parameters, for those that have one, in order; one left out has its usual value.
    ``clip``: the arguments of the functions of gates are limited to [-clip, clip], unless it is 0 or None.
    """

    direction: str = "forward"
    hidden_size: int | None = None
    activations: tuple[str, ...] = ()
    alphas: tuple[float, ...] = ()
    betas: tuple[float, ...] = ()
    clip: float | None = None
    layout: str = "sequence_first"
    summed: bool = False

    gates_count = 1
    usual: ClassVar[tuple[str, ...]] = ("tanh",)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def validate(self) -> None:
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise RuleError("recurrent.direction", f"{self.direction!r} is none of forward, reverse, bidirectional")
        if self.layout not in X_AXES:
            raise RuleError("recurrent.layout", f"{self.layout!r} is none of {', '.join(X_AXES)}")
        if self.clip is not None and not 0 <= self.clip < float("inf"):
            raise RuleError("recurrent.clip", f"limits of {-self.clip} and {self.clip}")
        if self.hidden_size is not None and self.hidden_size < 1:
            raise RuleError("recurrent.hidden-size", f"a hidden size of {self.hidden_size}")
        if not 1 <= self.__dict__["outputs"] <= len(self.signature.outputs):
            raise RuleError("node.outputs", f"{self.__dict__['outputs']} outputs of {len(self.signature.outputs)}")
        self._validate_activations()

    def _validate_activations(self) -> None:
        usual = len(self.usual)
        if len(self.activations) not in {0, usual, usual * self.directions}:
            raise RuleError(
                "recurrent.activations",
                f"{len(self.activations)} activations of {usual} for each of {self.directions} directions",
            )
        for name in self.activations:
            if name not in DEFAULTS:
                raise RuleError("recurrent.activations", f"{name!r} is none of {', '.join(DEFAULTS)}")
        for direction in range(self.directions):
            self.functions(direction)

    def functions(self, direction: int) -> list[tuple[str, float, float]]:
        """The activation functions of one direction: name, alpha, beta."""
        alphas, betas = iter(self.alphas), iter(self.betas)
        found = []
        for name in self.activations or self.usual:
            takes_alpha, takes_beta = PARAMETERS.get(name, (False, False))
            alpha = next(alphas, DEFAULTS[name][0]) if takes_alpha else 0.0
            beta = next(betas, DEFAULTS[name][1]) if takes_beta else 0.0
            if alpha is None or beta is None:
                raise RuleError("recurrent.activations", f"{name} needs alpha and beta")
            found.append((name, alpha, beta))
        count = len(self.usual)
        return found[direction * count : (direction + 1) * count] if len(found) > count else found

    def canonical(self, *xs: Any) -> Op:
        """The usual functions are not listed, nor those of the second direction where they are those of the first."""
        plain: Any = self if self.clip else self.with_(clip=None)
        if not self.activations:
            return self.with_(alphas=(), betas=(), clip=self.clip or None)
        both = [self.functions(direction) for direction in range(self.directions)]
        is_one = all(each == both[0] for each in both)
        made: Op = plain.with_(**listed(both[0] if is_one else [*both[0], *both[1]], self.usual))
        return made

    # Shapes

    def shape(self, *xs: Any) -> Any:
        sizes = self.sizes(*xs)
        state = tuple(sizes[axis] for axis in STATE_AXES[self.layout])
        count = self.__dict__["outputs"]
        return [tuple(sizes[axis] for axis in Y_AXES[self.layout]), state, state][:count]

    def sizes(self, *xs: Any) -> dict[str, Any]:
        """The size of each axis by its letter; None where it is not known. Raises RuleError where inputs do not fit."""
        given: list[Any] = [*xs, *[None] * (5 - len(xs))]
        x, w, r, bias, lengths, *states = given
        found: dict[str, Any] = {"d": self.directions, "s": None, "b": None, "i": None, "h": self.hidden_size}
        gates = self.gates_count
        columns = self._columns(found, r, w)
        for value, axes, name in (
            (x, X_AXES[self.layout], "x"),
            (lengths, "b", "lengths"),
            (w, "dgi", "w"),
            (r, "dgh", "r"),
            *((state, STATE_AXES[self.layout], "a state") for state in states[: self.states]),
        ):
            _take(found | {"g": columns} if "g" in axes else found, found, value, axes, name)
        hidden = found["h"]
        if hidden is not None:
            _take({**found, "g": hidden * gates}, {}, w, "dgi", "w")
            _take({**found, "g": hidden * gates}, {}, r, "dgh", "r")
        _take({**found, "g": None if hidden is None else hidden * self.bias_count}, {}, bias, "dg", "bias")
        for value in states[self.states :]:
            _take({**found, "g": None if hidden is None else hidden * 3}, {}, value, "dg", "peephole")
        return found

    def _columns(self, found: dict[str, Any], r: Any, w: Any) -> Any:
        """gates * hidden as the weights have it; the hidden size that follows from it goes into ``found``."""
        columns = None
        for value in (w, r):
            if value is not None and value.shape is not None and len(value.shape) == 3:
                columns = value.shape[1] if columns is None else agree(columns, value.shape[1])
        if isinstance(columns, int):
            if columns % self.gates_count:
                raise RuleError("recurrent.gates", f"{columns} rows of weights do not divide into {self.gates_count} gates")
            found["h"] = columns // self.gates_count if found["h"] is None else agree(found["h"], columns // self.gates_count)
        return columns

    @property
    def bias_count(self) -> int:
        """How many times the hidden size a bias has."""
        return self.gates_count if self.summed else 2 * self.gates_count

    states = 1
    """How many states a cell has."""

    # Running

    def evaluate(self, xp: Any, x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, *rest: Any) -> Any:
        sizes = self.sizes(x, w, r, bias, lengths, *rest)
        self.check_lengths(xp, lengths, sizes)
        return self._computed(Arrays(xp), sizes, x, w, r, bias, lengths, *rest)

    def check_lengths(self, xp: Any, lengths: Any, sizes: dict[str, Any]) -> None:
        if lengths is not None and arrays.is_numpy(xp) and bool(((lengths < 0) | (lengths > sizes["s"])).any()):
            raise EngineError("recurrent.lengths", f"lengths of sequences should be in [0, {sizes['s']}]")

    def check_known(self, sizes: dict[str, Any]) -> None:
        """Raise UnsupportedError where the time steps cannot be written one by one."""
        if not isinstance(sizes["h"], int):
            raise UnsupportedError("recurrent.hidden-size", f"{type(self).__name__} step by step of an unknown hidden size")

    def decompose(self, b: Any, x: Any, w: Any, r: Any, bias: Any = None, lengths: Any = None, *rest: Any) -> Any:
        """In the first layout; there one time step after the other, or a Loop where only run time knows how many there are."""
        if self.layout != "sequence_first":
            from dovetail.ops.recurrent.layouts import recast

            return recast(b, self, (x, w, r, bias, lengths, *rest), layout="sequence_first")
        sizes = self.sizes(x, w, r, bias, lengths, *rest)
        self.check_known(sizes)
        with b:
            return list(self._computed(Values(b), sizes, x, w, r, bias, lengths, *rest))

    def _computed(self, m: Medium, sizes: dict[str, Any], x: Any, w: Any, r: Any, bias: Any, lengths: Any, *rest: Any) -> Any:
        kind = m.kind(x)
        x = m.turned(x, order(X_AXES[self.layout], "sbi"))
        given = [
            None if value is None else m.turned(value, order(STATE_AXES[self.layout], "dbh")) for value in rest[: self.states]
        ]
        states = [m.wide(value) for value in (*given, *[None] * (self.states - len(given)))]
        x, w, r, bias, *more = (m.wide(value) for value in (x, w, r, bias, *rest[self.states :]))
        made: list[Any] = []
        last: list[tuple[Any, ...]] = []
        for place in range(self.directions):
            begin = tuple(m.zeros(x, x, 1, sizes["h"]) if value is None else m.part(value, place) for value in states)
            pieces = [None if value is None else m.part(value, place) for value in (w, r, bias, *more)]
            step, bias_in = self.cell(m, place, sizes["h"], *pieces[1:])
            moments = m.product(x, m.factor(pieces[0]))
            moments = moments if bias_in is None else moments + bias_in
            backwards = self.direction == "reverse" or place == 1
            if isinstance(sizes["s"], int):
                rows, end = through_time(m, [moments[t] for t in range(sizes["s"])], step, begin, lengths, backwards)
                made.append(m.stacked(rows, 0) if rows else m.zeros(x, x, 1, sizes["h"], (0,)))
            else:
                cell = partial(self._cell_in, place, sizes["h"])
                y, end = through_loop(m, cell, moments, pieces[1:], begin, lengths, backwards)
                made.append(y)
            last.append(end)
        y = m.stacked(made, 1)
        ends = [m.stacked([each[index] for each in last], 0) for index in range(self.states)]
        ys = [m.turned(y, order("sdbh", Y_AXES[self.layout]))]
        ys += [m.turned(end, order("dbh", STATE_AXES[self.layout])) for end in ends]
        return tuple(m.rounded(value, kind) for value in ys[: self.__dict__["outputs"]])

    def _cell_in(self, place: int, size: int, m: Medium, *pieces: Any) -> tuple[Step, Any]:
        return self.cell(m, place, size, *pieces)

    def activated(self, m: Medium, place: int) -> list[Function]:
        return [activation(m, *each, self.clip or 0) for each in self.functions(place)]

    def bias_in(self, m: Medium, bias: Any, size: int) -> Any:
        """What is added to the product of the input and ``w``."""
        if bias is None or self.summed:
            return bias
        rows = self.gates_count * size
        return bias[:rows] + bias[rows:]

    def cell(self, m: Medium, place: int, size: int, r: Any, bias: Any, *more: Any) -> tuple[Step, Any]:
        """The step of one direction, and the bias that is added beforehand."""
        raise NotImplementedError


def _take(known: dict[str, Any], found: dict[str, Any], value: Any, axes: str, name: str) -> None:
    """Hold the shape of one input against the sizes ``known``, and put what it tells into ``found``."""
    if value is None or value.shape is None:
        return
    if len(value.shape) != len(axes):
        raise RuleError("recurrent.rank", f"{name} should have the rank {len(axes)}, not {len(value.shape)}")
    for axis, size in zip(axes, value.shape, strict=True):
        if size is None:
            continue
        agreed = size if known[axis] is None else agree(known[axis], size)
        if axis in found:
            found[axis] = agreed


_WORDS = (
    "Affine:affine,Elu:elu,HardSigmoid:hardsigmoid,LeakyRelu:leakyrelu,Relu:relu,ScaledTanh:scaledtanh,Sigmoid:sigmoid,"
    "Softplus:softplus,Softsign:softsign,Tanh:tanh,ThresholdedRelu:thresholdedrelu"
)
_SHARED = f"hidden_size?, direction=forward, activations~{{{_WORDS}}}?, activation_alpha:alphas?, activation_beta:betas?, clip?"
_LAYOUT = "layout~{0:sequence_first,1:batch_first}=0"
_OLD = "output_sequence:_ | layout=sequence_first, summed=false"
_INNER = "activations_alpha:alphas=[], activations_beta:betas=[], clip=0"


class RNN(
    _Recurrent,
    sig="x: F, w: F, r: F, bias?: F, lengths?: I, h?: F -> y: F, last_h: F",
    onnx=(
        f"RNN-1(x, w, r, bias?, lengths?, h?; {_SHARED}, {_OLD})",
        f"RNN-7(x, w, r, bias?, lengths?, h?; {_SHARED} | layout=sequence_first, summed=false)",
        f"RNN-14,22(x, w, r, bias?, lengths?, h?; {_SHARED}, {_LAYOUT} | summed=false)",
    ),
    openvino=(
        f"RNNSequence-5(x, h, lengths, w, r, bias; hidden_size, direction, activations=[tanh], {_INNER} "
        "| layout=direction_second, summed=true, outputs=2)"
    ),
):
    """``h = f(x @ w.T + h @ r.T + bias)`` for each moment of a sequence. Outputs: h at each moment, the last h.

    Usual: f = tanh. Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
    """

    outputs: int = 2

    def cell(self, m: Medium, place: int, size: int, r: Any, bias: Any, *more: Any) -> tuple[Step, Any]:
        (f,) = self.activated(m, place)
        factor = m.factor(r)
        return lambda now, h: (f(now + m.product(h, factor)),), self.bias_in(m, bias, size)


class GRU(
    _Recurrent,
    sig="x: F, w: F, r: F, bias?: F, lengths?: I, h?: F -> y: F, last_h: F",
    onnx=(
        f"GRU-1(x, w, r, bias?, lengths?, h?; {_SHARED}, output_sequence:_ | layout=sequence_first, summed=false, "
        "linear_before_reset=false)",
        f"GRU-3(x, w, r, bias?, lengths?, h?; {_SHARED}, linear_before_reset=0, {_OLD})",
        f"GRU-7(x, w, r, bias?, lengths?, h?; {_SHARED}, linear_before_reset=0 | layout=sequence_first, summed=false)",
        f"GRU-14,22(x, w, r, bias?, lengths?, h?; {_SHARED}, linear_before_reset=0, {_LAYOUT} | summed=false)",
    ),
    openvino=(
        f"GRUSequence-5(x, h, lengths, w, r, bias; hidden_size, direction, activations=[sigmoid,tanh], {_INNER}, "
        "linear_before_reset=false | layout=direction_second, summed=true, outputs=2)"
    ),
):
    """Gated recurrent units. Outputs: h at each moment, the last h. The gates stand in the order z, r, h::

        z = f(x @ wz.T + h @ rz.T + bz)
        r = f(x @ wr.T + h @ rr.T + br)
        n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
        n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
        h = (1 - z) * n + z * h

    A ``summed`` bias has with ``linear_before_reset`` four parts: z, r, that of wh, that of rh. Usual: f = sigmoid, g = tanh.
    Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
    """

    linear_before_reset: bool = False
    outputs: int = 2

    gates_count = 3
    usual = ("sigmoid", "tanh")

    @property
    def bias_count(self) -> int:
        return (4 if self.linear_before_reset else 3) if self.summed else 6

    def bias_in(self, m: Medium, bias: Any, size: int) -> Any:
        if bias is None or not self.linear_before_reset:
            return super().bias_in(m, bias, size)
        if self.summed:
            return bias[: 3 * size]
        both = bias[: 2 * size] + bias[3 * size : 5 * size]
        return m.joined([both, bias[2 * size : 3 * size]], 0)

    def cell(self, m: Medium, place: int, size: int, r: Any, bias: Any, *more: Any) -> tuple[Step, Any]:
        f, g = self.activated(m, place)
        begin = self.bias_in(m, bias, size)
        if self.linear_before_reset:
            inner = None if bias is None else bias[3 * size :] if self.summed else bias[5 * size :]
            return _linear_unit(m, f, g, m.factor(r), inner, size), begin
        gates, new = m.factor(r[: 2 * size]), m.factor(r[2 * size :])

        def step(now: Any, h: Any) -> tuple[Any, ...]:
            update, reset = parts(f(now[..., : 2 * size] + m.product(h, gates)), 2, size)
            fresh = g(now[..., 2 * size :] + m.product(reset * h, new))
            return ((1 - update) * fresh + update * h,)

        return step, begin


def _linear_unit(m: Medium, f: Function, g: Function, factor: Any, inner: Any, size: int) -> Step:
    def step(now: Any, h: Any) -> tuple[Any, ...]:
        before = m.product(h, factor)
        update, reset = parts(f(now[..., : 2 * size] + before[..., : 2 * size]), 2, size)
        linear = before[..., 2 * size :]
        linear = linear if inner is None else linear + inner
        fresh = g(now[..., 2 * size :] + reset * linear)
        return ((1 - update) * fresh + update * h,)

    return step


class LSTM(
    _Recurrent,
    sig="x: F, w: F, r: F, bias?: F, lengths?: I, h?: F, c?: F, peephole?: F -> y: F, last_h: F, last_c: F",
    onnx=(
        f"LSTM-1(x, w, r, bias?, lengths?, h?, c?, peephole?; {_SHARED}, input_forget=0, output_sequence:_ "
        "| layout=sequence_first, summed=false, gates=iofc)",
        f"LSTM-7(x, w, r, bias?, lengths?, h?, c?, peephole?; {_SHARED}, input_forget=0 "
        "| layout=sequence_first, summed=false, gates=iofc)",
        f"LSTM-14,22(x, w, r, bias?, lengths?, h?, c?, peephole?; {_SHARED}, input_forget=0, {_LAYOUT} "
        "| summed=false, gates=iofc)",
    ),
    openvino=(
        f"LSTMSequence-1,5(x, h, c, lengths, w, r, bias; hidden_size, direction, activations=[sigmoid,tanh,tanh], {_INNER} "
        "| layout=direction_second, summed=true, gates=fico, input_forget=false, outputs=3)"
    ),
):
    """Long short-term memory. Outputs: h at each moment, the last h, the last c. With p the peepholes, in the order i, o, f::

        i = f(x @ wi.T + h @ ri.T + bi + pi * c)
        f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
        n = g(x @ wc.T + h @ rc.T + bc)
        c = f * c + i * n
        o = f(x @ wo.T + h @ ro.T + bo + po * c)
        h = o * k(c)

    ``gates``: the order of the gates in ``w``, ``r`` and ``bias``. ``clip`` does not limit the argument of k, as the
    implementations have it. Usual: f = sigmoid, g = k = tanh. Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
    """

    input_forget: bool = False
    gates: str = "iofc"
    outputs: int = 3

    gates_count = 4
    usual = ("sigmoid", "tanh", "tanh")
    states = 2

    def validate(self) -> None:
        super().validate()
        if sorted(self.gates) != sorted("iofc"):
            raise RuleError("recurrent.gates", f"{self.gates!r} is no order of the gates i, o, f, c")

    def cell(self, m: Medium, place: int, size: int, r: Any, bias: Any, *more: Any) -> tuple[Step, Any]:
        f, g, _ = self.activated(m, place)
        name, alpha, beta = self.functions(place)[2]
        k = activation(m, name, alpha, beta, 0)
        peephole = more[0] if more else None
        peeps = dict.fromkeys("iof") if peephole is None else dict(zip("iof", parts(peephole, 3, size), strict=True))
        factor = m.factor(r)

        def seen(x: Any, gate: str, c: Any) -> Any:
            return x if peeps[gate] is None else x + peeps[gate] * c

        def step(now: Any, h: Any, c: Any) -> tuple[Any, ...]:
            known = dict(zip(self.gates, parts(now + m.product(h, factor), 4, size), strict=True))
            into = f(seen(known["i"], "i", c))
            kept = 1 - into if self.input_forget else f(seen(known["f"], "f", c))
            c = kept * c + into * g(known["c"])
            return f(seen(known["o"], "o", c)) * k(c), c

        return step, self.bias_in(m, bias, size)
