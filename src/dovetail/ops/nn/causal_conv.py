"""Causal depthwise convolution with a carried state: CausalConvWithState."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op
from dovetail.ir.types import View, agree
from dovetail.ops.casts import as_type, wide_type
from dovetail.ops.shape_values import join_sizes

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class CausalConvWithState(
    Op,
    sig="input: F, weight: F, bias?: F, past_state?: F -> output: F, present_state: F",
    onnx="CausalConvWithState-27(input, weight, bias?, past_state?; activation~{none:plain,silu:silu,swish:silu}=none)",
):
    """CausalConvWithState convolves channel c of ``input`` with row c of ``weight``; no output element reads a later input.

    ``input`` is [batch, channels, length], ``weight`` [channels, 1, kernel size]. ``past_state`` [batch, channels, kernel
    size - 1], by default zeros, precedes ``input``; ``present_state`` is the ``past_state`` for the next part of the sequence.
    ``bias`` [channels] is added. ``activation`` is ``plain`` (none) or ``silu`` (y * sigmoid(y)).
    Source: ONNX CausalConvWithState 27.
    """

    cache_ports = ((3, 1),)

    activation: str = "plain"
    outputs: int = 2

    def validate(self) -> None:
        if self.activation not in ("plain", "silu"):
            raise RuleError("attribute.value", f"activation must be plain or silu, got {self.activation!r}")
        if not 1 <= self.outputs <= 2:
            raise RuleError("node.outputs", f"CausalConvWithState has 1 or 2 outputs, got {self.outputs}")

    def shape(self, input: View, weight: View, bias: View | None = None, past_state: View | None = None) -> Any:
        for x, rank, name in ((input, 3, "input"), (weight, 3, "weight"), (bias, 1, "bias"), (past_state, 3, "past_state")):
            if x is not None and x.shape is not None and len(x.shape) != rank:
                raise RuleError("shape.rank", f"{name} must have rank {rank}, got {x.type}")
        if input.shape is None:
            return [None] * self.outputs
        batch, channels, _ = input.shape
        state_size: Any = None
        if weight.shape is not None:
            agree(weight.shape[0], channels, ("weight", 0), ("input", 1))
            agree(weight.shape[1], 1, ("weight", 1), "the channels of a group")
            state_size = weight.shape[2] - 1
            if isinstance(state_size, int) and state_size < 0:
                raise RuleError("shape.range", f"kernel size must be at least 1, got {weight.type}")
        if bias is not None and bias.shape is not None:
            agree(bias.shape[0], channels, ("bias", 0), ("input", 1))
        if past_state is not None and past_state.shape is not None:
            agree(past_state.shape[0], batch, ("past_state", 0), ("input", 0))
            agree(past_state.shape[1], channels, ("past_state", 1), ("input", 1))
            length = past_state.shape[2]
            if state_size is not None:
                length = agree(length, state_size, ("past_state", 2), "the kernel size less 1")
            state_size = length
        return [input.shape, (batch, channels, state_size)][: self.outputs]

    def decompose(
        self, b: Builder, input: Value, weight: Value, bias: Value | None = None, past_state: Value | None = None
    ) -> Any:
        channels, _, kernel_size = weight.dims
        if not isinstance(channels, int):
            channels = input.dims[1]
        if not isinstance(channels, int) or not isinstance(kernel_size, int):
            raise UnsupportedError("type.unknown", f"CausalConvWithState needs known channels and kernel size, got {weight.type}")
        if past_state is None:
            past_state = b.Expand(
                b.constant(0, input.dtype), join_sizes(b, [shape_value(b, input, [0]), channels, kernel_size - 1])
            )
        extended = b.Concat(past_state, input, axis=2)
        y = b.Conv(extended, weight, *([] if bias is None else [bias]), group=channels)
        if self.activation == "silu":
            y = as_type(b, b.Swish(as_type(b, y, wide_type(y.dtype))), input.dtype)
        length = shape_value(b, input, [2])
        return [y, b.Slice(extended, length, [2**63 - 1], [2], [1])][: self.outputs]
