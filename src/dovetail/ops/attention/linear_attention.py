"""Linear attention, with a state matrix per head instead of a growing cache: LinearAttention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import dtypes, symbolic
from dovetail.ir.builder import Builder, shape_value
from dovetail.ir.edit import inline
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View, agree, agree_shapes
from dovetail.ops.attention.heads import check_rank, default_scale, head_size_of
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.control_flow.loop import Loop
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.graph import Value


RULES = {"linear": (False, False), "gated": (True, False), "delta": (False, True), "gated_delta": (True, True)}
"""Two flags of each update rule: the rule decays the state; the rule subtracts the state's prediction from ``value``."""


class LinearAttention(
    Op,
    sig="query: F, key: F, value: F, past_state?: F1, decay?: F, beta?: F -> output: F, present_state: F1",
    onnx="LinearAttention-27(query, key, value, past_state?, decay?, beta?; q_num_heads, kv_num_heads, scale=0.0, "
    "update_rule=gated_delta, chunk_size:_)",
):
    """LinearAttention updates a state matrix S per head row after row: ``S += key ⊗ w``, ``output = scale * query S``.

    ``query`` is [batch, rows, q_num_heads * size], ``key`` [batch, rows, kv_num_heads * size], ``value`` [batch, rows,
    kv_num_heads * columns]. Each head of ``key`` and ``value`` serves q_num_heads / kv_num_heads consecutive heads of
    ``query``. The initial S is ``past_state`` [batch, kv_num_heads, size, columns], by default zeros; ``present_state`` is S
    after the last row.

    With ``update_rule`` ``gated`` or ``gated_delta`` S is first multiplied by exp of ``decay`` [batch, rows, kv_num_heads], or
    [batch, rows, kv_num_heads * size] for one number per row of S. The vector w is ``value``; with ``delta`` or ``gated_delta``
    it is ``beta * (value - key S)``, where ``beta`` is [batch, rows, kv_num_heads or 1]. The computation runs in f32, for f64
    inputs in f64. ``scale`` 0 means 1 / sqrt(size).
    Source: ONNX LinearAttention 27.
    """

    cache_ports = ((3, 1),)

    q_num_heads: int
    kv_num_heads: int
    scale: float = 0.0
    update_rule: str = "gated_delta"
    outputs: int = 2

    def validate(self) -> None:
        if self.update_rule not in RULES:
            raise RuleError("attribute.value", f"update_rule must be one of {', '.join(RULES)}, got {self.update_rule!r}")
        if self.q_num_heads < 1 or self.kv_num_heads < 1 or self.q_num_heads % self.kv_num_heads:
            raise RuleError(
                "attention.heads", f"query heads ({self.q_num_heads}) must be a multiple of key heads ({self.kv_num_heads})"
            )
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"LinearAttention has 1 or 2 outputs, got {self.outputs}")

    def types(
        self,
        query: View,
        key: View,
        value: View,
        past_state: View | None = None,
        decay: View | None = None,
        beta: View | None = None,
    ) -> list[Type]:
        variables = check_inputs(self, (query, key, value, past_state, decay, beta))
        dtypes_of_outputs = [variables.get("F"), variables.get("F1") if past_state is not None else variables.get("F")]
        shapes = self._shapes(query, key, value, past_state, decay, beta)
        types: list[Type] = [Tensor(dtype, shape) for dtype, shape in zip(dtypes_of_outputs, shapes, strict=True)]
        return types[: self.outputs]

    def _shapes(
        self, query: View, key: View, value: View, past_state: View | None, decay: View | None, beta: View | None
    ) -> list[Any]:
        for x, is_needed, name in zip((decay, beta), RULES[self.update_rule], ("decay", "beta"), strict=True):
            if (x is not None) != is_needed:
                raise RuleError(
                    "attribute.conflict", f"update_rule {self.update_rule} {'needs' if is_needed else 'takes no'} {name}"
                )
        for x, name in ((query, "query"), (key, "key"), (value, "value"), (decay, "decay"), (beta, "beta")):
            check_rank(x, 3, name)
        check_rank(past_state, 4, "past_state")
        if query.shape is None or value.shape is None:
            return [None, None]
        batch, rows, columns = query.shape
        size, value_size = head_size_of(columns, self.q_num_heads), head_size_of(value.shape[2], self.kv_num_heads)
        for name, x in (("key", key), ("value", value), ("decay", decay), ("beta", beta)):
            if x is not None and x.shape is not None:
                agree(x.shape[0], batch, (name, 0), ("query", 0))
                agree(x.shape[1], rows, (name, 1), ("query", 1))
        if key.shape is not None:
            agree(key.shape[2], self.kv_num_heads * size, ("key", 2), "kv_num_heads * head size")
        for x, allowed in ((decay, (self.kv_num_heads, self.kv_num_heads * size)), (beta, (self.kv_num_heads, 1))):
            if (
                x is not None
                and x.shape is not None
                and all(symbolic.equal(x.shape[2], columns_) is False for columns_ in allowed)
            ):
                raise RuleError(
                    "attention.heads",
                    f"{'decay' if x is decay else 'beta'} must have {allowed[0]} or {allowed[1]} columns, got {x.type}",
                )
        state_shape = (batch, self.kv_num_heads, size, value_size)
        if past_state is not None and past_state.shape is not None:
            agree_shapes(past_state.shape, state_shape, "past_state", "the state")
        return [(batch, rows, self.q_num_heads * value_size), state_shape]

    def decompose(
        self,
        b: Builder,
        query: Value,
        key: Value,
        value: Value,
        past_state: Value | None = None,
        decay: Value | None = None,
        beta: Value | None = None,
    ) -> Any:
        dtype, wide = query.dtype, wide_type(query.dtype)
        state_dtype = dtype if past_state is None else past_state.dtype
        scale = b.constant(self.scale, wide)
        if not self.scale:
            scale = default_scale(b, as_type(b, b.Reshape(query, [0, 0, self.q_num_heads, -1]), wide))
        group = self.q_num_heads // self.kv_num_heads
        inputs = {
            "q": (query, [self.kv_num_heads, group, -1]),
            "k": (key, [self.kv_num_heads, -1, 1]),
            "v": (value, [self.kv_num_heads, 1, -1]),
        }
        if decay is not None:
            inputs["decay"] = (decay, [self.kv_num_heads, -1, 1])
        if beta is not None:
            inputs["beta"] = (beta, [-1, 1, 1])
        rows = {
            name: b.Transpose(b.Reshape(as_type(b, x, wide), [0, 0, *sizes]), [1, 0, 2, 3, 4])
            for name, (x, sizes) in inputs.items()
        }
        if past_state is None:
            sizes = [
                shape_value(b, rows["k"], [1]),
                self.kv_num_heads,
                shape_value(b, rows["k"], [3]),
                shape_value(b, rows["v"], [4]),
            ]
            past_state = b.Expand(b.constant(0, wide), join_sizes(b, sizes))
        past_state = as_type(b, past_state, wide)
        body = self._build_row_body(past_state, rows)
        if rows["k"].dims[0] == 1:
            # One row, the case of text generation, needs no Loop.
            _, last, y = inline(b, body, [b.constant(0), past_state, *rows.values(), scale])
        else:
            loop = Loop(body=body, carried=1, scan_inputs=((0, 1, False),) * len(rows), scan_outputs=((0, False),), outputs=2)
            last, y = b.add(loop, None, None, past_state, *rows.values(), scale)
        y = as_type(b, b.Reshape(b.Transpose(y, [1, 0, 2, 3, 4]), [0, 0, -1]), dtype)
        return [y, as_type(b, last, state_dtype)][: self.outputs]

    def _build_row_body(self, state: Value, rows: dict[str, Value]) -> Any:
        """Build the Loop body for one row; the body's inputs are trip number, state, a slice of each of ``rows``, and scale."""
        b = Builder("row")
        b.input("trip", dtypes.i64, ())
        state_before = b.input_of("before", state.type)
        slices = {name: b.input_of(name, Tensor(x.dtype, (1, *x.dims[1:]))) for name, x in rows.items()}
        scale = b.input("scale", state.dtype, ())
        row = {name: b.Squeeze(x, [0]) for name, x in slices.items()}
        decayed, written = state_before, row["v"]
        if "decay" in row:
            decayed = b.Multiply(decayed, b.Exp(row["decay"]))
        if "beta" in row:
            written = b.Multiply(row["beta"], b.Subtract(written, b.MatMul(row["k"], decayed, transpose_a=True)))
        state_after = b.Add(decayed, b.Multiply(row["k"], written))
        y = b.Unsqueeze(b.Multiply(scale, b.MatMul(row["q"], state_after)), [0])
        b.graph.outputs = [b.constant(True), state_after, y]
        return b.graph
