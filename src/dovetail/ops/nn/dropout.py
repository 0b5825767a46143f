"""Dropout: a seeded mask in training, the identity in inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import EngineError, RuleError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.op import Op, check_inputs
from dovetail.ir.types import Tensor, Type, View
from dovetail.ops.casts import as_type, round_to

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class Dropout(
    Op,
    sig="x: F, ratio?: F1, training_mode?: boolean -> y: F, mask: boolean",
    onnx=(
        "Dropout-7(x; ratio:_ | mask_like=true)",
        "> Dropout-7(x | outputs=1)",
        "Dropout-10(x; ratio:_)",
        "Dropout-12,13,22(x, ratio?, training_mode?; seed?)",
    ),
):
    """Set each element of ``x`` to 0 with probability ``ratio``, and scale the others by ``1 / (1 - ratio)``.

    If ``training_mode`` is absent or false, the result is ``x``. ``ratio`` defaults to 0.5. ``mask`` is true for the elements
    that are kept; with ``mask_like`` the mask has the element type of ``x``, and 1 means true. The random numbers are numpy's
    ``RandomState(seed).uniform``, as in onnx.reference; the default seed is 0.
    Sources: ONNX Dropout 1, 6 (is_test), 7, 10 (inference), 12, 13, 22.
    """

    seed: int | None = None
    mask_like: bool = False
    outputs: int = 1

    def is_random(self, *xs: Any) -> bool:
        """Test whether ``training_mode`` may be true and ``ratio`` may differ from 0."""
        _, ratio, training = (*xs, None, None)[:3]
        nothing = ratio is not None and ratio.constant is not None and not np.any(np.asarray(ratio.constant, np.float64))
        return not (nothing or is_inference(training))

    def validate(self) -> None:
        if self.outputs not in (1, 2):
            raise RuleError("node.outputs", f"Dropout has 1 or 2 outputs, got {self.outputs}")

    def types(self, x: View, ratio: View | None = None, training: View | None = None) -> list[Type]:
        bound = check_inputs(self, (x, ratio, training))
        for scalar, name in ((ratio, "ratio"), (training, "training_mode")):
            if scalar is not None and scalar.shape is not None and any(symbolic.equal(size, 1) is False for size in scalar.shape):
                raise RuleError("shape.single", f"{name} must be a scalar, got {scalar.type}")
        kind = bound.get("F")
        types: list[Type] = [Tensor(kind, x.shape), Tensor(kind if self.mask_like else dtypes.boolean, x.shape)]
        return types[: self.outputs]

    def evaluate(self, xp: Namespace, x: Array, ratio: Array | None = None, training: Array | None = None) -> Any:
        share = 0.5 if ratio is None else float(arrays.to_numpy(ratio).reshape(()).astype(np.float64))
        kind = arrays.element(x)
        if training is None or not bool(arrays.to_numpy(training).reshape(())) or share == 0:
            mask, y = xp.ones_like(x, dtype=xp.bool if hasattr(xp, "bool") else bool), x
        else:
            if not 0 <= share < 1:
                raise EngineError("attribute.range", f"ratio must be in [0, 1), got {share}")
            draws = np.random.RandomState((self.seed or 0) % 2**32).uniform(0, 1, tuple(x.shape))
            mask = arrays.from_numpy(xp, draws >= share, x)
            wide = arrays.widen(xp, x)
            y = round_to(xp, xp.where(mask, wide / (1 - share), xp.zeros_like(wide)), kind)
        return (y, arrays.cast(xp, mask, kind) if self.mask_like else mask)[: self.outputs]

    def vjp(
        self,
        b: Builder,
        g: Sequence[Value | None],
        y: Sequence[Value],
        x: Value,
        ratio: Value | None = None,
        training: Value | None = None,
    ) -> Any:
        """Scale the gradient of the elements that Dropout keeps; the same seed reproduces the mask."""
        if g[0] is None or training is None or is_inference(training):
            return [g[0]]
        mask = b.add(self.with_(outputs=2, mask_like=True), x, ratio, training)[1]
        share = b.constant(0.5, x.dtype) if ratio is None else as_type(b, ratio, x.dtype)
        scale = b.Where(training, b.Divide(b.constant(1.0, x.dtype), b.Subtract(1.0, share)), b.constant(1.0, x.dtype))
        return [b.Multiply(b.Multiply(g[0], mask), scale)]

    def canonical(self, x: View, ratio: View | None = None, training: View | None = None) -> Op:
        return self if self.outputs == 2 else self.with_(mask_like=False)


def is_inference(training: Value | None) -> bool:
    """Test whether ``training_mode`` is known to be false."""
    if training is None:
        return True
    data = training.value if training.constant is None else training.constant
    return data is not None and all(symbolic.equal(item, 0) for item in np.ravel(data).tolist())
