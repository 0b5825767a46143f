"""Rotary position embedding: RotaryEmbedding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, View, agree, agree_shapes
from dovetail.ops.casts import as_type, wide_type

if TYPE_CHECKING:
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


class RotaryEmbedding(
    Op,
    sig="x: F, cos_cache: F, sin_cache: F, position_ids?: i64 -> y: F",
    onnx="RotaryEmbedding-23(x, cos_cache, sin_cache, position_ids?; num_heads?, rotary_embedding_dim=0, interleaved=0)",
):
    """RotaryEmbedding rotates pairs of columns (a, b) of each head of ``x``: to (a cos - b sin, a sin + b cos).

    ``x`` is [batch, heads, rows, size], or [batch, rows, heads * size] with ``num_heads``. The first ``rotary_embedding_dim``
    columns (0: all) are rotated, the rest is copied. Pair i is column i of the first half and column i of the second half of
    the rotated columns; with ``interleaved``, columns 2 * i and 2 * i + 1. ``cos_cache`` and ``sin_cache`` are [batch, rows,
    rotary_embedding_dim / 2]. With ``position_ids`` [batch, rows], which selects their rows, they are [positions,
    rotary_embedding_dim / 2].
    Source: ONNX RotaryEmbedding 23.
    """

    decomposes_in_f32 = True

    num_heads: int | None = None
    rotary_embedding_dim: int = 0
    interleaved: bool = False

    def validate(self) -> None:
        if self.rotary_embedding_dim < 0 or self.rotary_embedding_dim % 2:
            raise RuleError(
                "attribute.range", f"rotary_embedding_dim must be even and not negative, got {self.rotary_embedding_dim}"
            )
        if self.num_heads is not None and self.num_heads < 0:
            raise RuleError("attention.heads", f"num_heads must not be negative, got {self.num_heads}")

    def shape(self, x: View, cos_cache: View, sin_cache: View, position_ids: View | None = None) -> Any:
        self._check_tables(cos_cache, sin_cache, position_ids)
        if x.shape is None:
            return None
        rank = len(x.shape)
        if rank not in (3, 4):
            raise RuleError("shape.rank", f"x must have rank 3 or 4, got {x.type}")
        if rank == 3 and not self.num_heads:
            raise RuleError("attention.heads", f"x of rank 3 needs num_heads, got {self.num_heads} for {x.type}")
        self._check_size(x.shape, cos_cache, sin_cache)
        if cos_cache.shape is not None and position_ids is None:
            agree(cos_cache.shape[0], x.shape[0], ("cos_cache", 0), ("x", 0))
            agree(cos_cache.shape[1], x.shape[-2], ("cos_cache", 1), ("x", rank - 2))
        if position_ids is not None and position_ids.shape is not None:
            agree(position_ids.shape[0], x.shape[0], ("position_ids", 0), ("x", 0))
            agree(position_ids.shape[1], x.shape[-2], ("position_ids", 1), ("x", rank - 2))
        return x.shape

    def _check_tables(self, cos_cache: View, sin_cache: View, position_ids: View | None) -> None:
        table_rank = 3 if position_ids is None else 2
        for table in (cos_cache, sin_cache):
            if table.shape is not None and len(table.shape) != table_rank:
                raise RuleError("shape.rank", f"cos_cache and sin_cache must have rank {table_rank}, got {table.type}")
        if cos_cache.shape is not None and sin_cache.shape is not None:
            agree_shapes(cos_cache.shape, sin_cache.shape, "cos_cache", "sin_cache")
        if position_ids is not None and position_ids.shape is not None and len(position_ids.shape) != 2:
            raise RuleError("shape.rank", f"position_ids must have rank 2, got {position_ids.type}")

    def _check_size(self, shape: Shape, cos_cache: View, sin_cache: View) -> None:
        size = shape[-1]
        if len(shape) == 3:
            assert self.num_heads is not None
            if isinstance(size, int) and size % self.num_heads:
                raise RuleError("attention.heads", f"columns ({size}) must be a multiple of num_heads ({self.num_heads})")
            size = size // self.num_heads
        if isinstance(size, int) and (size % 2 or size < self.rotary_embedding_dim):
            minimum = f"rotary_embedding_dim ({self.rotary_embedding_dim})"
            raise RuleError("attribute.range", f"head size must be even and at least {minimum}, got {size}")
        for name, table in (("cos_cache", cos_cache), ("sin_cache", sin_cache)):
            if table.shape is not None and (self.rotary_embedding_dim or isinstance(size, int)):
                half = (self.rotary_embedding_dim or size) // 2
                agree(table.shape[-1], half, (name, len(table.shape) - 1), "half of the rotated size")

    def canonical(self, x: View, cos_cache: View, sin_cache: View, position_ids: View | None = None) -> Op:
        """Drop ``num_heads``, and a ``rotary_embedding_dim`` that equals the head size, if ``x`` has rank 4."""
        if x.shape is None or len(x.shape) != 4:
            return self
        dim = 0 if symbolic.equal(x.shape[-1], self.rotary_embedding_dim) is True else self.rotary_embedding_dim
        return self.with_(num_heads=None, rotary_embedding_dim=dim)

    def decompose(self, b: Builder, x: Value, cos_cache: Value, sin_cache: Value, position_ids: Value | None = None) -> Any:
        dtype, wide = x.dtype, wide_type(x.dtype)
        is_flat = len(x.dims) == 3
        y = as_type(b, b.Reshape(x, [0, 0, self.num_heads, -1]) if is_flat else x, wide)
        head_axis = 2 if is_flat else 1
        cos, sin = (
            b.Unsqueeze(self._rows(b, as_type(b, table, wide), position_ids), [head_axis]) for table in (cos_cache, sin_cache)
        )
        rotated, rest = y, None
        if self.rotary_embedding_dim and symbolic.equal(y.dims[-1], self.rotary_embedding_dim) is not True:
            rotated, rest = (
                b.index(y, (..., slice(self.rotary_embedding_dim))),
                b.index(y, (..., slice(self.rotary_embedding_dim, None))),
            )
        if self.interleaved:
            pairs = b.Reshape(rotated, [0, 0, 0, -1, 2])
            first, second = (b.index(pairs, (..., slice(index, index + 1))) for index in (0, 1))
            cos, sin = (b.Unsqueeze(table, [-1]) for table in (cos, sin))
        else:
            first, second = b.Split(rotated, axis=-1, outputs=2)
        parts = [
            b.Subtract(b.Multiply(first, cos), b.Multiply(second, sin)),
            b.Add(b.Multiply(first, sin), b.Multiply(second, cos)),
        ]
        if self.interleaved:
            parts = [b.Reshape(b.Concat(*parts, axis=-1), [0, 0, 0, -1])]
        y = b.Concat(*parts, *([] if rest is None else [rest]), axis=-1)
        return as_type(b, b.Reshape(y, [0, 0, -1]) if is_flat else y, dtype)

    def _rows(self, b: Builder, table: Value, position_ids: Value | None) -> Any:
        return table if position_ids is None else b.Gather(table, position_ids, axis=0)
