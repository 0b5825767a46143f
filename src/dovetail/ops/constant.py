"""Where values come from, or leave unchanged: Constant, Identity, and operators we know only by what their file says."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.dtypes import DType
from dovetail.errors import DovetailError, UnsupportedError, printable
from dovetail.ir.op import Op, Windows
from dovetail.ir.types import UNKNOWN, Tensor, Type


class Constant(Op, sig="-> y: any"):
    """A tensor that is the same in every run. ``data`` holds one element per numpy element, read-only."""

    data: np.ndarray[Any, Any]
    dtype: DType

    def types(self) -> list[Type]:
        return [Tensor(self.dtype, self.data.shape)]

    def value(self) -> Any:
        return None

    def evaluate(self, xp: Any) -> Any:
        from dovetail import arrays

        return arrays.from_numpy(xp, self.data)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.data.shape))
        if self.data.size <= 8:
            return f"Constant({self.data.tolist()}, {self.dtype})"
        return f"Constant({self.dtype}[{shape}])"


class Identity(Op, sig="x: any -> y: any", onnx="Identity-1,13,14,16,19,21,23,24,25(x)"):
    """The same value under another name."""

    def types(self, x: Any) -> list[Type]:
        return [x.type]

    def evaluate(self, xp: Any, x: Any) -> Any:
        return x

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [g]

    def windows(self, x: Any) -> Windows:
        return Windows.whole(x.shape)


class Foreign(Op, sig="*xs: any -> *ys: any"):
    """An operator known only by what its file says: it can be shown, checked and written back, not converted or
    differentiated.

    ``fault`` is the error of an operator that is known and refuses its inputs, in a body that may never run.
    """

    format: str
    domain: str
    kind: str
    version: int
    attributes: tuple[tuple[str, Any], ...]
    outputs: int
    fault: DovetailError | None = None

    def types(self, *xs: Any) -> list[Type]:
        return [UNKNOWN] * self.outputs

    def evaluate(self, xp: Any, *xs: Any) -> Any:
        if self.fault is not None:
            raise self.fault.with_traceback(None)
        raise UnsupportedError(
            "op.unknown", f"no rule is known to run {self.domain + '.' if self.domain else ''}{self.kind}-{self.version}"
        )

    def __hash__(self) -> int:
        return hash((self.format, self.domain, self.kind, self.version, self.outputs))

    def __repr__(self) -> str:
        return printable(f"Foreign({self.domain + '.' if self.domain else ''}{self.kind}-{self.version})")
