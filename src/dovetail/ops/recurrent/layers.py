"""Recurrent layers over whole sequences: RNN, GRU and LSTM."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dovetail.errors import EngineError, RuleError, UnsupportedError
from dovetail.ir import arrays
from dovetail.ir.op import Op
from dovetail.ir.types import Size, View, agree
from dovetail.ops.recurrent.cell_math import (
    DEFAULT_PARAMETERS,
    HAS_PARAMETERS,
    Activation,
    ArrayBackend,
    Backend,
    Data,
    GraphBackend,
    Step,
    activation,
    split_gates,
    unroll,
)
from dovetail.ops.recurrent.loop_form import loop_over_time

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

X_AXES = {"sequence_first": "sbi", "batch_first": "bsi", "direction_second": "bsi"}
Y_AXES = {"sequence_first": "sdbh", "batch_first": "bsdh", "direction_second": "bdsh"}
STATE_AXES = {"sequence_first": "dbh", "batch_first": "bdh", "direction_second": "bdh"}
"""Axes of the states in each layout. Letters of X_AXES, Y_AXES, STATE_AXES: sequence, batch, direction, input, hidden."""
UNROLL_LIMIT = 1024
"""Largest number of time steps that a decomposition unrolls; a longer sequence is decomposed to a Loop."""


def permutation_of(source: str, target: str) -> list[int]:
    """Return the permutation from one order of axes to another."""
    return [source.index(axis) for axis in target]


def activation_attributes(functions: list[tuple[str, float, float]], defaults: tuple[str, ...]) -> dict[str, Any]:
    """Return activations as attributes, which are empty for the default activations."""
    names = tuple(name for name, _, _ in functions)
    if names == defaults:
        return {"activations": (), "activation_alpha": (), "activation_beta": ()}
    alphas, betas = (
        tuple(entry[index + 1] for entry in functions if HAS_PARAMETERS.get(entry[0], (False, False))[index]) for index in (0, 1)
    )
    return {"activations": names, "activation_alpha": alphas, "activation_beta": betas}


class HasShape(Protocol):
    """HasShape is a View, an array, or any other object with a shape."""

    @property
    def shape(self) -> Any: ...


class RecurrentLayer(Op):
    """RecurrentLayer is the base of RNN, GRU and LSTM; X_AXES, Y_AXES and STATE_AXES define the axes of each ``layout``.

    ``w`` is [directions, gates * hidden, input], and ``r`` is [directions, gates * hidden, hidden]. ``b`` [directions,
    2 * gates * hidden] is the bias of ``w`` followed by the bias of ``r``; with ``summed_bias``, ``b`` is the sum of both.
    ``sequence_lens`` holds the length of each batch row. After the end of a row the output is 0, and the last state of a row is
    the state after its last time step (0 for a row of length 0). A reverse direction begins at the end of each row. Omitted
    initial states are 0. Without time steps the last states equal the initial states.

    ``activations`` lists one name per gate function of a cell, once for both directions or first for one and then for the other
    direction; an empty list means the defaults. ``activation_alpha`` and ``activation_beta`` are the parameters, in order, of the
    functions that have parameters; a missing parameter has its default. ``clip`` clips the arguments of the gates' functions to
    [-clip, clip]; None and 0 mean no clipping.
    """

    decomposes_in_f32 = True

    direction: str = "forward"
    hidden_size: int | None = None
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: str = "sequence_first"
    summed_bias: bool = False

    gate_count = 1
    default_activations: ClassVar[tuple[str, ...]] = ("tanh",)

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def validate(self) -> None:
        if self.direction not in ("forward", "reverse", "bidirectional"):
            raise RuleError("attribute.value", f"direction must be forward, reverse or bidirectional, got {self.direction!r}")
        if self.layout not in X_AXES:
            raise RuleError("attribute.value", f"layout must be one of {', '.join(X_AXES)}, got {self.layout!r}")
        if self.clip is not None and not 0 <= self.clip < float("inf"):
            raise RuleError("attribute.range", f"clip must be finite and not negative, got {self.clip}")
        if self.hidden_size is not None and self.hidden_size < 1:
            raise RuleError("attribute.range", f"hidden_size must be at least 1, got {self.hidden_size}")
        if not 1 <= self.__dict__["outputs"] <= len(self.signature.outputs):
            raise RuleError(
                "node.outputs", f"number of outputs must be 1 to {len(self.signature.outputs)}, got {self.__dict__['outputs']}"
            )
        self._validate_activations()

    def _validate_activations(self) -> None:
        count = len(self.default_activations)
        if len(self.activations) not in {0, count, count * self.directions}:
            raise RuleError(
                "attribute.length",
                f"number of activations must be {count} for each of {self.directions} directions, got {len(self.activations)}",
            )
        for name in self.activations:
            if name not in DEFAULT_PARAMETERS:
                raise RuleError("attribute.value", f"an activation must be one of {', '.join(DEFAULT_PARAMETERS)}, got {name!r}")
        for direction in range(self.directions):
            self.activations_of(direction)

    def activations_of(self, direction: int) -> list[tuple[str, float, float]]:
        """Return the activations of one direction as tuples (name, alpha, beta)."""
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        activations = []
        for name in self.activations or self.default_activations:
            takes_alpha, takes_beta = HAS_PARAMETERS.get(name, (False, False))
            alpha = next(alphas, DEFAULT_PARAMETERS[name][0]) if takes_alpha else 0.0
            beta = next(betas, DEFAULT_PARAMETERS[name][1]) if takes_beta else 0.0
            if alpha is None or beta is None:
                raise RuleError("attribute.conflict", f"activation {name} needs alpha and beta")
            activations.append((name, alpha, beta))
        count = len(self.default_activations)
        return activations[direction * count : (direction + 1) * count] if len(activations) > count else activations

    def canonical(self, *xs: View | None) -> Op:
        """Drop default activations, and the second direction's activations if both directions have equal activations."""
        canonical: Any = self if self.clip else self.with_(clip=None)
        if not self.activations:
            return self.with_(activation_alpha=(), activation_beta=(), clip=self.clip or None)
        both = [self.activations_of(direction) for direction in range(self.directions)]
        is_one = all(entries == both[0] for entries in both)
        canonical_op: Op = canonical.with_(
            **activation_attributes(both[0] if is_one else [*both[0], *both[1]], self.default_activations)
        )
        return canonical_op

    def shape(self, *xs: View | None) -> Any:
        sizes = self.sizes_of(*xs)
        state = tuple(sizes[axis] for axis in STATE_AXES[self.layout])
        count = self.__dict__["outputs"]
        return [tuple(sizes[axis] for axis in Y_AXES[self.layout]), state, state][:count]

    def sizes_of(self, *xs: HasShape | None) -> dict[str, Any]:
        """Return the size of each axis by letter, None if unknown. Raises RuleError for inputs of contradictory shapes."""
        inputs: list[Any] = [*xs, *[None] * (5 - len(xs))]
        x, w, r, bias, lengths, *states = inputs
        sizes: dict[str, Any] = {"d": self.directions, "s": None, "b": None, "i": None, "h": self.hidden_size}
        gate_count = self.gate_count
        gate_rows = self._gate_rows(sizes, r, w)
        for value, axes, name in (
            (x, X_AXES[self.layout], "x"),
            (lengths, "b", "sequence_lens"),
            (w, "dgi", "w"),
            (r, "dgh", "r"),
            *((state, STATE_AXES[self.layout], "an initial state") for state in states[: self.state_count]),
        ):
            _check_axes(sizes | {"g": gate_rows} if "g" in axes else sizes, sizes, value, axes, name)
        hidden = sizes["h"]
        if hidden is not None:
            _check_axes({**sizes, "g": hidden * gate_count}, {}, w, "dgi", "w")
            _check_axes({**sizes, "g": hidden * gate_count}, {}, r, "dgh", "r")
        _check_axes({**sizes, "g": None if hidden is None else hidden * self.bias_count}, {}, bias, "dg", "b")
        for value in states[self.state_count :]:
            _check_axes({**sizes, "g": None if hidden is None else hidden * 3}, {}, value, "dg", "p")
        return sizes

    def _gate_rows(self, sizes: dict[str, Any], r: HasShape | None, w: HasShape | None) -> Any:
        """Return the number of rows of the weights, gates * hidden, or None; if known, store the hidden size in ``sizes``."""
        rows = None
        for value in (w, r):
            if value is not None and value.shape is not None and len(value.shape) == 3:
                rows = value.shape[1] if rows is None else agree(rows, value.shape[1], ("w", 1), ("r", 1))
        if isinstance(rows, int):
            if rows % self.gate_count:
                raise RuleError("shape.multiple", f"rows of weights ({rows}) must be a multiple of the gates ({self.gate_count})")
            hidden: Any = rows // self.gate_count
            if sizes["h"] is not None:
                hidden = agree(sizes["h"], hidden, "hidden_size", "the rows of the weights / the number of gates")
            sizes["h"] = hidden
        return rows

    @property
    def bias_count(self) -> int:
        """Return the length of a bias as a multiple of the hidden size."""
        return self.gate_count if self.summed_bias else 2 * self.gate_count

    state_count = 1
    """The number of states of a cell."""

    def evaluate(
        self, xp: Namespace, x: Array, w: Array, r: Array, bias: Array = None, lengths: Array = None, *rest: Array
    ) -> Any:
        sizes = self.sizes_of(x, w, r, bias, lengths, *rest)
        self.check_lengths(xp, lengths, sizes)
        return self._compute(ArrayBackend(xp), sizes, x, w, r, bias, lengths, *rest)

    def check_lengths(self, xp: Namespace, lengths: Array, sizes: dict[str, Size | None]) -> None:
        if lengths is not None and arrays.is_numpy(xp) and bool(((lengths < 0) | (lengths > sizes["s"])).any()):
            raise EngineError(
                "attribute.range", f"sequence_lens must be in [0, {sizes['s']}], got {lengths.min()} to {lengths.max()}"
            )

    def check_hidden_size(self, sizes: dict[str, Size | None]) -> None:
        """Raise UnsupportedError [type.unknown] for an unknown hidden size, with which time steps cannot be emitted."""
        if not isinstance(sizes["h"], int):
            raise UnsupportedError(
                "type.unknown", f"{type(self).__name__} of a hidden size known only at run time cannot be unrolled"
            )

    def decompose(
        self,
        b: Builder,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        *rest: Value | None,
    ) -> Any:
        """Convert to layout sequence_first, then unroll time steps; emit a Loop for more than UNROLL_LIMIT or unknown steps."""
        return self.write_steps(b, UNROLL_LIMIT, x, w, r, bias, lengths, *rest)

    def write_steps(
        self,
        b: Builder,
        unrolled: int,
        x: Value,
        w: Value,
        r: Value,
        bias: Value | None = None,
        lengths: Value | None = None,
        *rest: Value | None,
    ) -> Any:
        """Emit the layer as ``decompose`` does, with a Loop for more than ``unrolled`` or an unknown number of time steps."""
        if self.layout != "sequence_first":
            from dovetail.ops.recurrent.layouts import convert_form

            return convert_form(b, self, (x, w, r, bias, lengths, *rest), layout="sequence_first")
        sizes = self.sizes_of(x, w, r, bias, lengths, *rest)
        self.check_hidden_size(sizes)
        with b:
            return list(self._compute(GraphBackend(b), sizes, x, w, r, bias, lengths, *rest, unrolled=unrolled))

    def _compute(
        self,
        m: Backend,
        sizes: dict[str, Any],
        x: Data,
        w: Data,
        r: Data,
        bias: Data,
        lengths: Data,
        *rest: Data,
        unrolled: int = UNROLL_LIMIT,
    ) -> Any:
        dtype = m.dtype_of(x)
        x = m.transpose(x, permutation_of(X_AXES[self.layout], "sbi"))
        initial = [
            None if value is None else m.transpose(value, permutation_of(STATE_AXES[self.layout], "dbh"))
            for value in rest[: self.state_count]
        ]
        states = [m.widen(value) for value in (*initial, *[None] * (self.state_count - len(initial)))]
        x, w, r, bias, *peepholes = (m.widen(value) for value in (x, w, r, bias, *rest[self.state_count :]))
        outputs: list[Any] = []
        last_states: list[tuple[Any, ...]] = []
        for direction in range(self.directions):
            first_states = tuple(m.zeros(x, x, 1, sizes["h"]) if value is None else m.index(value, direction) for value in states)
            weights = [None if value is None else m.index(value, direction) for value in (w, r, bias, *peepholes)]
            step, input_bias = self.make_step(m, direction, sizes["h"], *weights[1:])
            projected = m.matmul(x, m.prepare_weights(weights[0]))
            projected = projected if input_bias is None else projected + input_bias
            is_reverse = self.direction == "reverse" or direction == 1
            if isinstance(sizes["s"], int) and (isinstance(m, ArrayBackend) or sizes["s"] <= unrolled):
                step_outputs, states_of_direction = unroll(
                    m, [projected[t] for t in range(sizes["s"])], step, first_states, lengths, is_reverse
                )
                outputs.append(m.stack(step_outputs, 0) if step_outputs else m.zeros(x, x, 1, sizes["h"], (0,)))
            else:
                assert isinstance(m, GraphBackend)
                cell = partial(self._make_step, direction, sizes["h"])
                y, states_of_direction = loop_over_time(m, cell, projected, weights[1:], first_states, lengths, is_reverse)
                outputs.append(y)
            last_states.append(states_of_direction)
        y = m.stack(outputs, 1)
        ends = [m.stack([states[index] for states in last_states], 0) for index in range(self.state_count)]
        ys = [m.transpose(y, permutation_of("sdbh", Y_AXES[self.layout]))]
        ys += [m.transpose(states_of_direction, permutation_of("dbh", STATE_AXES[self.layout])) for states_of_direction in ends]
        return tuple(m.round_to(value, dtype) for value in ys[: self.__dict__["outputs"]])

    def _make_step(self, direction: int, size: int, m: Backend, *weights: Data) -> tuple[Step, Any]:
        return self.make_step(m, direction, size, *weights)

    def make_activations(self, m: Backend, direction: int) -> list[Activation]:
        return [activation(m, *entry, self.clip or 0) for entry in self.activations_of(direction)]

    def input_bias(self, m: Backend, bias: Data, size: int) -> Any:
        """Return the bias to add to the product of the input and ``w``."""
        if bias is None or self.summed_bias:
            return bias
        rows = self.gate_count * size
        return bias[:rows] + bias[rows:]

    def make_step(self, m: Backend, direction: int, size: int, r: Data, bias: Data, *more: Data) -> tuple[Step, Any]:
        """Return the step function of one direction, and the bias to add to the input projection."""
        raise NotImplementedError


_SIZE_NAMES = {
    "d": "the number of directions", "s": "the number of time steps", "b": "the batch size", "i": "the input size",
    "h": "the hidden size", "g": "gates * hidden size",
}  # fmt: skip


def _check_axes(
    known: dict[str, Size | None], unknown: dict[str, Size | None], value: HasShape | None, axes: str, name: str
) -> None:
    """Check the shape of one input against the sizes ``known``, and store newly known sizes in ``unknown``."""
    if value is None or value.shape is None:
        return
    if len(value.shape) != len(axes):
        raise RuleError("shape.rank", f"{name} must have rank {len(axes)}, got {len(value.shape)}")
    for index, (axis, size) in enumerate(zip(axes, value.shape, strict=True)):
        if size is None:
            continue
        known_size = known[axis]
        agreed = size if known_size is None else agree(known_size, size, _SIZE_NAMES[axis], (name, index))
        if axis in unknown:
            unknown[axis] = agreed


_ACTIVATIONS = (
    "Affine:affine,Elu:elu,HardSigmoid:hardsigmoid,LeakyRelu:leakyrelu,Relu:relu,ScaledTanh:scaledtanh,Sigmoid:sigmoid,"
    "Softplus:softplus,Softsign:softsign,Tanh:tanh,ThresholdedRelu:thresholdedrelu"
)
_COMMON = f"hidden_size?, direction=forward, activations~{{{_ACTIVATIONS}}}?, activation_alpha?, activation_beta?, clip?"
_LAYOUT = "layout~{0:sequence_first,1:batch_first}=0"
_BEFORE_14 = "output_sequence:_ | layout=sequence_first, summed_bias=false"
_INNER = "activations_alpha:activation_alpha=[], activations_beta:activation_beta=[], clip=0"


class RNN(
    RecurrentLayer,
    sig="x: F, w: F, r: F, b?: F, sequence_lens?: I, initial_h?: F -> y: F, y_h: F",
    onnx=(
        f"RNN-1(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, {_BEFORE_14})",
        f"RNN-7(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON} | layout=sequence_first, summed_bias=false)",
        f"RNN-14,22(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, {_LAYOUT} | summed_bias=false)",
    ),
    openvino=(
        f"RNNSequence-5(x, initial_h, sequence_lens, w, r, b; hidden_size, direction, activations=[tanh], {_INNER} "
        "| layout=direction_second, summed_bias=true, outputs=2)"
    ),
):
    """RNN computes ``h = f(x @ w.T + h @ r.T + b)`` for each time step; the default f is tanh.

    ``y`` holds h of each time step, ``y_h`` the last h.
    Sources: ONNX RNN 1, 7, 14, 22; OpenVINO RNNSequence-5.
    """

    outputs: int = 2

    def make_step(self, m: Backend, direction: int, size: int, r: Data, bias: Data, *more: Data) -> tuple[Step, Any]:
        (f,) = self.make_activations(m, direction)
        factor = m.prepare_weights(r)
        return lambda projected, h: (f(m.matmul(h, factor) + projected),), self.input_bias(m, bias, size)


class GRU(
    RecurrentLayer,
    sig="x: F, w: F, r: F, b?: F, sequence_lens?: I, initial_h?: F -> y: F, y_h: F",
    onnx=(
        f"GRU-1(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, output_sequence:_ "
        "| layout=sequence_first, summed_bias=false, linear_before_reset=false)",
        f"GRU-3(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, linear_before_reset=0, {_BEFORE_14})",
        f"GRU-7(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, linear_before_reset=0 "
        "| layout=sequence_first, summed_bias=false)",
        f"GRU-14,22(x, w, r, b?, sequence_lens?, initial_h?; {_COMMON}, linear_before_reset=0, {_LAYOUT} | summed_bias=false)",
    ),
    openvino=(
        f"GRUSequence-5(x, initial_h, sequence_lens, w, r, b; hidden_size, direction, activations=[sigmoid,tanh], {_INNER}, "
        "linear_before_reset=false | layout=direction_second, summed_bias=true, outputs=2)"
    ),
):
    """GRU computes a layer of gated recurrent units; its gates are in the order z, r, h::

        z = f(x @ wz.T + h @ rz.T + bz)
        r = f(x @ wr.T + h @ rr.T + br)
        n = g(x @ wh.T + (r * h) @ rh.T + bh)                 # or, with linear_before_reset,
        n = g(x @ wh.T + r * (h @ rh.T + bias of rh) + bias of wh)
        h = (1 - z) * n + z * h

    ``y`` holds h of each time step, ``y_h`` the last h. With ``linear_before_reset`` a summed bias has four parts: bz, br, the
    bias of wh and the bias of rh. Defaults: f = sigmoid, g = tanh.
    Sources: ONNX GRU 1, 3, 7, 14, 22; OpenVINO GRUSequence-5.
    """

    linear_before_reset: bool = False
    outputs: int = 2

    gate_count = 3
    default_activations = ("sigmoid", "tanh")

    @property
    def bias_count(self) -> int:
        return (4 if self.linear_before_reset else 3) if self.summed_bias else 6

    def input_bias(self, m: Backend, bias: Data, size: int) -> Any:
        if bias is None or not self.linear_before_reset:
            return super().input_bias(m, bias, size)
        if self.summed_bias:
            return bias[: 3 * size]
        both = bias[: 2 * size] + bias[3 * size : 5 * size]
        return m.concat([both, bias[2 * size : 3 * size]], 0)

    def make_step(self, m: Backend, direction: int, size: int, r: Data, bias: Data, *more: Data) -> tuple[Step, Any]:
        f, g = self.make_activations(m, direction)
        input_bias = self.input_bias(m, bias, size)
        if self.linear_before_reset:
            reset_bias = None if bias is None else bias[3 * size :] if self.summed_bias else bias[5 * size :]
            return linear_gru_step(m, f, g, m.prepare_weights(r), reset_bias, size), input_bias
        gates, candidate_weights = m.prepare_weights(r[: 2 * size]), m.prepare_weights(r[2 * size :])

        def step(projected: Data, h: Data) -> tuple[Any, ...]:
            update, reset = split_gates(f(m.matmul(h, gates) + projected[..., : 2 * size]), 2, size)
            candidate = g(m.matmul(reset * h, candidate_weights) + projected[..., 2 * size :])
            return ((1 - update) * candidate + update * h,)

        return step, input_bias


def linear_gru_step(m: Backend, f: Activation, g: Activation, factor: Data, reset_bias: Data, size: int) -> Step:
    """Return the step function of a GRU with ``linear_before_reset``, for the recurrence weights ``factor`` of all gates."""

    def step(projected: Data, h: Data) -> tuple[Any, ...]:
        recurrent = m.matmul(h, factor)
        update, reset = split_gates(f(projected[..., : 2 * size] + recurrent[..., : 2 * size]), 2, size)
        linear = recurrent[..., 2 * size :]
        linear = linear if reset_bias is None else linear + reset_bias
        candidate = g(projected[..., 2 * size :] + reset * linear)
        return ((1 - update) * candidate + update * h,)

    return step


class LSTM(
    RecurrentLayer,
    sig="x: F, w: F, r: F, b?: F, sequence_lens?: I, initial_h?: F, initial_c?: F, p?: F -> y: F, y_h: F, y_c: F",
    onnx=(
        f"LSTM-1(x, w, r, b?, sequence_lens?, initial_h?, initial_c?, p?; {_COMMON}, input_forget=0, output_sequence:_ "
        "| layout=sequence_first, summed_bias=false, weights_format=iofc)",
        f"LSTM-7(x, w, r, b?, sequence_lens?, initial_h?, initial_c?, p?; {_COMMON}, input_forget=0 "
        "| layout=sequence_first, summed_bias=false, weights_format=iofc)",
        f"LSTM-14,22(x, w, r, b?, sequence_lens?, initial_h?, initial_c?, p?; {_COMMON}, input_forget=0, {_LAYOUT} "
        "| summed_bias=false, weights_format=iofc)",
    ),
    openvino=(
        "LSTMSequence-1,5(x, initial_h, initial_c, sequence_lens, w, r, b; hidden_size, direction, "
        f"activations=[sigmoid,tanh,tanh], {_INNER} "
        "| layout=direction_second, summed_bias=true, weights_format=fico, input_forget=false, outputs=3)"
    ),
):
    """LSTM computes a layer of long short-term memory; the peepholes ``p`` are in the order i, o, f::

        i = f(x @ wi.T + h @ ri.T + bi + pi * c)
        f = f(x @ wf.T + h @ rf.T + bf + pf * c)              # with input_forget: 1 - i
        n = g(x @ wc.T + h @ rc.T + bc)
        c = f * c + i * n
        o = f(x @ wo.T + h @ ro.T + bo + po * c)
        h = o * k(c)

    ``y`` holds h of each time step, ``y_h`` the last h, ``y_c`` the last c. ``weights_format`` is the order of the gates in
    ``w``, ``r`` and ``b``. As in the implementations, ``clip`` does not clip the argument of k. Defaults: f = sigmoid, g = k =
    tanh.
    Sources: ONNX LSTM 1, 7, 14, 22; OpenVINO LSTMSequence-1, -5.
    """

    input_forget: bool = False
    weights_format: str = "iofc"
    outputs: int = 3

    gate_count = 4
    default_activations = ("sigmoid", "tanh", "tanh")
    state_count = 2

    def validate(self) -> None:
        super().validate()
        if sorted(self.weights_format) != sorted("iofc"):
            raise RuleError("attribute.value", f"weights_format must order the gates i, o, f, c, got {self.weights_format!r}")

    def make_step(self, m: Backend, direction: int, size: int, r: Data, bias: Data, *more: Data) -> tuple[Step, Any]:
        f, g, _ = self.make_activations(m, direction)
        name, alpha, beta = self.activations_of(direction)[2]
        k = activation(m, name, alpha, beta, 0)
        peephole = more[0] if more else None
        peephole_of = dict.fromkeys("iof") if peephole is None else dict(zip("iof", split_gates(peephole, 3, size), strict=True))
        factor = m.prepare_weights(r)

        def with_peephole(x: Data, gate: str, c: Data) -> Any:
            return x if peephole_of[gate] is None else x + peephole_of[gate] * c

        def step(projected: Data, h: Data, c: Data) -> tuple[Any, ...]:
            gates = dict(zip(self.weights_format, split_gates(m.matmul(h, factor) + projected, 4, size), strict=True))
            input_gate = f(with_peephole(gates["i"], "i", c))
            forget_gate = 1 - input_gate if self.input_forget else f(with_peephole(gates["f"], "f", c))
            c = forget_gate * c + input_gate * g(gates["c"])
            return f(with_peephole(gates["o"], "o", c)) * k(c), c

        return step, self.input_bias(m, bias, size)
