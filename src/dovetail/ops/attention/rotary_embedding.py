"""Positions said by turning: RotaryEmbedding."""

from __future__ import annotations

from typing import Any

from dovetail import symbolic
from dovetail.errors import RuleError
from dovetail.ir.op import Op
from dovetail.ir.types import agree
from dovetail.ops.casts import as_type, wide_type


class RotaryEmbedding(
    Op,
    sig="x: F, cos: F, sin: F, positions?: i64 -> y: F",
    onnx="RotaryEmbedding-23(x, cos, sin, positions?; num_heads:heads?, rotary_embedding_dim:turned=0, interleaved=0)",
):
    """Pairs of columns of each head of ``x`` turned by angles: (a, b) becomes (a cos - b sin, a sin + b cos).

    ``x``: [batch, heads, rows, size], or [batch, rows, heads * size] with ``heads``. The first ``turned`` columns (0: all) are
    turned, a pair being column i of either half, or two that follow each other when ``interleaved``; the rest stays. ``cos`` and
    ``sin``: [batch, rows, turned / 2], or [places, turned / 2], of which ``positions`` [batch, rows] picks the rows.
    Source: ONNX RotaryEmbedding 23.
    """

    heads: int | None = None
    turned: int = 0
    interleaved: bool = False

    def validate(self) -> None:
        if self.turned < 0 or self.turned % 2:
            raise RuleError("rotary.turned", f"{self.turned} columns are not turned in pairs")
        if self.heads is not None and self.heads < 0:
            raise RuleError("rotary.heads", f"{self.heads} heads")

    def shape(self, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
        self._check_tables(cos, sin, positions)
        if x.shape is None:
            return None
        rank = len(x.shape)
        if rank not in (3, 4):
            raise RuleError("rotary.rank", f"a tensor of rank 3 or 4 is needed, not {x.type}")
        if rank == 3 and not self.heads:
            raise RuleError("rotary.heads", f"{x.type} needs the number of heads")
        self._check_size(x.shape, cos, sin)
        if cos.shape is not None and positions is None:
            agree(cos.shape[0], x.shape[0])
            agree(cos.shape[1], x.shape[-2])
        if positions is not None and positions.shape is not None:
            agree(positions.shape[0], x.shape[0])
            agree(positions.shape[1], x.shape[-2])
        return x.shape

    def _check_tables(self, cos: Any, sin: Any, positions: Any) -> None:
        wanted = 3 if positions is None else 2
        for table in (cos, sin):
            if table.shape is not None and len(table.shape) != wanted:
                raise RuleError("rotary.table", f"a table of rank {wanted} is needed here, not {table.type}")
        if cos.shape is not None and sin.shape is not None:
            tuple(map(agree, cos.shape, sin.shape))
        if positions is not None and positions.shape is not None and len(positions.shape) != 2:
            raise RuleError("rotary.positions", f"positions of rank 2 are needed, not {positions.type}")

    def _check_size(self, shape: Any, cos: Any, sin: Any) -> None:
        size = shape[-1]
        if len(shape) == 3:
            if isinstance(size, int) and size % self.heads:  # type: ignore[operator]
                raise RuleError("rotary.heads", f"{size} columns are no multiple of {self.heads} heads")
            size = size // self.heads
        if isinstance(size, int) and (size % 2 or size < self.turned):
            raise RuleError("rotary.turned", f"{self.turned or size} of {size} columns are not turned in pairs")
        for table in (cos, sin):
            if table.shape is not None and (self.turned or isinstance(size, int)):
                agree(table.shape[-1], (self.turned or size) // 2)

    def canonical(self, x: Any, cos: Any, sin: Any, positions: Any = None) -> Op:
        """A number of heads means nothing where an axis says it."""
        if x.shape is None or len(x.shape) != 4:
            return self
        turned = 0 if symbolic.equal(x.shape[-1], self.turned) is True else self.turned
        return self.with_(heads=None, turned=turned)

    def decompose(self, b: Any, x: Any, cos: Any, sin: Any, positions: Any = None) -> Any:
        kind, wide = x.dtype, wide_type(x.dtype)
        flat = len(x.dims) == 3
        y = as_type(b, b.Reshape(x, [0, 0, self.heads, -1]) if flat else x, wide)
        head_axis = 2 if flat else 1
        cos, sin = (b.Unsqueeze(self._rows(b, as_type(b, table, wide), positions), [head_axis]) for table in (cos, sin))
        turned, rest = y, None
        if self.turned and symbolic.equal(y.dims[-1], self.turned) is not True:
            turned, rest = b.index(y, (..., slice(self.turned))), b.index(y, (..., slice(self.turned, None)))
        if self.interleaved:
            pairs = b.Reshape(turned, [0, 0, 0, -1, 2])
            first, second = (b.index(pairs, (..., slice(place, place + 1))) for place in (0, 1))
            cos, sin = (b.Unsqueeze(table, [-1]) for table in (cos, sin))
        else:
            first, second = b.Split(turned, axis=-1, outputs=2)
        parts = [
            b.Subtract(b.Multiply(first, cos), b.Multiply(second, sin)),
            b.Add(b.Multiply(first, sin), b.Multiply(second, cos)),
        ]
        if self.interleaved:
            parts = [b.Reshape(b.Concat(*parts, axis=-1), [0, 0, 0, -1])]
        y = b.Concat(*parts, *([] if rest is None else [rest]), axis=-1)
        return as_type(b, b.Reshape(y, [0, 0, -1]) if flat else y, kind)

    def _rows(self, b: Any, table: Any, positions: Any) -> Any:
        return table if positions is None else b.Gather(table, positions, axis=0)
