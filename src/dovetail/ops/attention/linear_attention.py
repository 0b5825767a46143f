"""Sequences taken piece by piece: what one piece leaves behind is handed to the next."""

from __future__ import annotations

from typing import Any

from dovetail import dtypes, symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.edit import inline
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, agree
from dovetail.ops.attention.heads import default_scale, length_of, share
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.shape_values import join_sizes


def _hold_rank(x: Any, rank: int, what: str) -> None:
    if x is not None and x.shape is not None and len(x.shape) != rank:
        raise RuleError("state.rank", f"{what} of rank {rank} is needed, not {x.type}")


class CausalConvWithState(
    Op,
    sig="x: F, w: F, bias?: F, state?: F -> y: F, present: F",
    onnx="CausalConvWithState-27(x, w, bias?, state?; activation~{none:plain,silu:silu,swish:silu}=none)",
):
    """Each channel of ``x`` [batch, channels, length] slid over by its own row of ``w`` [channels, 1, size], up to its own place.

    What lies before ``x`` is ``state`` [batch, channels, size - 1], or zeros; ``present`` is that for what follows. ``bias``
    [channels] is added. ``activation``: ``plain``, or ``silu`` (y * sigmoid(y)). Source: ONNX CausalConvWithState 27.
    """

    activation: str = "plain"
    outputs: int = 2

    def validate(self) -> None:
        if self.activation not in ("plain", "silu"):
            raise RuleError("state.activation", f"{self.activation!r} is none of plain, silu")
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"{self.outputs} outputs; there are 1 or 2")

    def shape(self, x: Any, w: Any, bias: Any = None, state: Any = None) -> Any:
        for each, rank, what in ((x, 3, "a sequence"), (w, 3, "a kernel"), (bias, 1, "a bias"), (state, 3, "a state")):
            _hold_rank(each, rank, what)
        if x.shape is None:
            return [None] * self.outputs
        batch, channels, _ = x.shape
        before: Any = None
        if w.shape is not None:
            agree(w.shape[0], channels)
            agree(w.shape[1], 1)
            before = w.shape[2] - 1
            if isinstance(before, int) and before < 0:
                raise RuleError("state.kernel", f"a kernel of no places: {w.type}")
        if bias is not None and bias.shape is not None:
            agree(bias.shape[0], channels)
        if state is not None and state.shape is not None:
            agree(state.shape[0], batch)
            agree(state.shape[1], channels)
            before = state.shape[2] if before is None else agree(state.shape[2], before)
        return [x.shape, (batch, channels, before)][: self.outputs]

    def decompose(self, b: Any, x: Any, w: Any, bias: Any = None, state: Any = None) -> Any:
        channels, _, size = w.dims
        if not isinstance(channels, int):
            channels = x.dims[1]
        if not isinstance(channels, int) or not isinstance(size, int):
            raise UnsupportedError("state.kernel", f"a kernel whose channels and places are not known: {w.type}")
        if state is None:
            state = b.Expand(b.constant(0, x.dtype), join_sizes(b, [length_of(b, x, 0), channels, size - 1]))
        whole = b.Concat(state, x, axis=2)
        y = b.Conv(whole, w, *([] if bias is None else [bias]), group=channels)
        if self.activation == "silu":
            y = as_type(b, b.Swish(as_type(b, y, wide_type(y.dtype))), x.dtype)
        length = shape_value(b, x, [2])
        return [y, b.Slice(whole, length, [2**63 - 1], [2], [1])][: self.outputs]


RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""For each rule whether the state decays, and whether what it holds already is taken off what is written."""


class LinearAttention(
    Op,
    sig="q: F, k: F, v: F, state?: F1, decay?: F, beta?: F -> y: F, present: F1",
    onnx="LinearAttention-27(q, k, v, state?, decay?, beta?; q_num_heads:q_heads, kv_num_heads:kv_heads, scale=0.0, "
    "update_rule:rule=gated_delta, chunk_size:_)",
):
    """Attention whose memory is a matrix S for each head, written and read row after row: ``S += k ⊗ w``, ``y = scale * q S``.

    ``q`` [batch, rows, q_heads * size], ``k`` [batch, rows, kv_heads * size], ``v`` [batch, rows, kv_heads * columns]; each head
    of ``k`` and ``v`` serves q_heads / kv_heads of ``q`` that follow each other. S is ``state`` [batch, kv_heads, size, columns]
    before the first row, or zeros, and ``present`` after the last one. ``rule``: with ``gated`` and ``gated_delta`` S is first
    multiplied by exp of ``decay`` [batch, rows, kv_heads], or a number for each of its rows, [batch, rows, kv_heads * size];
    what is written is w = v, with ``delta`` and ``gated_delta`` ``w = beta * (v - k S)``, ``beta`` [batch, rows, kv_heads or 1].
    All is computed in f32. A ``scale`` of 0 is 1 / sqrt(size). Source: ONNX LinearAttention 27.
    """

    q_heads: int
    kv_heads: int
    scale: float = 0.0
    rule: str = "gated_delta"
    outputs: int = 2

    def validate(self) -> None:
        if self.rule not in RULES:
            raise RuleError("state.rule", f"{self.rule!r} is none of {', '.join(RULES)}")
        if self.q_heads < 1 or self.kv_heads < 1 or self.q_heads % self.kv_heads:
            raise RuleError("attention.heads", f"{self.q_heads} heads of the query and {self.kv_heads} of the keys")
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"{self.outputs} outputs; there are 1 or 2")

    def types(self, q: Any, k: Any, v: Any, state: Any = None, decay: Any = None, beta: Any = None) -> list[Type]:
        bound = check_inputs(self, (q, k, v, state, decay, beta))
        kinds = [bound.get("F"), bound.get("F1") if state is not None else bound.get("F")]
        shapes = self._shapes(q, k, v, state, decay, beta)
        found: list[Type] = [Tensor(kind, shape) for kind, shape in zip(kinds, shapes, strict=True)]
        return found[: self.outputs]

    def _shapes(self, q: Any, k: Any, v: Any, state: Any, decay: Any, beta: Any) -> list[Any]:
        for x, needed, name in zip((decay, beta), RULES[self.rule], ("decay", "beta"), strict=True):
            if (x is not None) != needed:
                raise RuleError("state.rule", f"{self.rule} {'needs' if needed else 'has no'} {name}")
        for x, name in ((q, "a query"), (k, "a key"), (v, "a value"), (decay, "a decay"), (beta, "a beta")):
            _hold_rank(x, 3, name)
        _hold_rank(state, 4, "a state")
        if q.shape is None or v.shape is None:
            return [None, None]
        batch, rows, columns = q.shape
        size, wide = share(columns, self.q_heads), share(v.shape[2], self.kv_heads)
        for x in (k, v, decay, beta):
            if x is not None and x.shape is not None:
                agree(x.shape[0], batch)
                agree(x.shape[1], rows)
        if k.shape is not None:
            agree(k.shape[2], self.kv_heads * size)
        for x, allowed in ((decay, (self.kv_heads, self.kv_heads * size)), (beta, (self.kv_heads, 1))):
            if x is not None and x.shape is not None and all(symbolic.equal(x.shape[2], each) is False for each in allowed):
                raise RuleError("attention.heads", f"{x.type} has neither {allowed[0]} nor {allowed[1]} columns")
        whole = (batch, self.kv_heads, size, wide)
        if state is not None and state.shape is not None:
            tuple(map(agree, state.shape, whole))
        return [(batch, rows, self.q_heads * wide), whole]

    def decompose(self, b: Any, q: Any, k: Any, v: Any, state: Any = None, decay: Any = None, beta: Any = None) -> Any:
        kind, wide = q.dtype, wide_type(q.dtype)
        kept = kind if state is None else state.dtype
        scale = b.constant(self.scale, wide)
        if not self.scale:
            scale = default_scale(b, as_type(b, b.Reshape(q, [0, 0, self.q_heads, -1]), wide))
        group = self.q_heads // self.kv_heads
        pieces = {"q": (q, [self.kv_heads, group, -1]), "k": (k, [self.kv_heads, -1, 1]), "v": (v, [self.kv_heads, 1, -1])}
        if decay is not None:
            pieces["decay"] = (decay, [self.kv_heads, -1, 1])
        if beta is not None:
            pieces["beta"] = (beta, [-1, 1, 1])
        xs = {
            name: b.Transpose(b.Reshape(as_type(b, x, wide), [0, 0, *sizes]), [1, 0, 2, 3, 4])
            for name, (x, sizes) in pieces.items()
        }
        if state is None:
            sizes = [length_of(b, xs["k"], 1), self.kv_heads, length_of(b, xs["k"], 3), length_of(b, xs["v"], 4)]
            state = b.Expand(b.constant(0, wide), join_sizes(b, sizes))
        state = as_type(b, state, wide)
        body = self._body(state, xs)
        if xs["k"].dims[0] == 1:
            # One row, as when text is generated, is no loop.
            _, last, y = inline(b, body, [b.constant(0), state, *xs.values(), scale])
        else:
            loop = Loop(body=body, carried=1, scanned=((0, 1, False),) * len(xs), stacked=((0, False),), outputs=2)
            last, y = b.add(loop, None, None, state, *xs.values(), scale)
        y = as_type(b, b.Reshape(b.Transpose(y, [1, 0, 2, 3, 4]), [0, 0, -1]), kind)
        return [y, as_type(b, last, kept)][: self.outputs]

    def _body(self, state: Any, xs: dict[str, Any]) -> Any:
        """One row: the number of the trip, the state, a piece of each of ``xs`` and the scale go in."""
        b = Builder("row")
        b.input("trip", dtypes.i64, ())
        before = b.input_of("before", state.type)
        pieces = {name: b.input_of(name, Tensor(x.dtype, (1, *x.dims[1:]))) for name, x in xs.items()}
        scale = b.input("scale", state.dtype, ())
        row = {name: b.Squeeze(x, [0]) for name, x in pieces.items()}
        held, written = before, row["v"]
        if "decay" in row:
            held = b.Multiply(held, b.Exp(row["decay"]))
        if "beta" in row:
            written = b.Multiply(row["beta"], b.Subtract(written, b.MatMul(row["k"], held, transpose_a=True)))
        after = b.Add(held, b.Multiply(row["k"], written))
        y = b.Unsqueeze(b.Multiply(scale, b.MatMul(row["q"], after)), [0])
        b.graph.outputs = [b.constant(True), after, y]
        return b.graph


__all__ = ["CausalConvWithState", "LinearAttention"]
