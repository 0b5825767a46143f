"""Elements exchanged between channels and space, or among channels: DepthToSpace, SpaceToDepth, ShuffleChannels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from dovetail import dims
from dovetail.errors import RuleError
from dovetail.op import Op, Window, Windows
from dovetail.ops.moving import dense, inverse
from dovetail.ops.reshaping import open_shape, reshaped, seen
from dovetail.types import Size, axis_in, static

_ONNX_MODES = "mode~{DCR:blocks_first,CRD:depth_first}"
_OPENVINO_MODES = "mode~{blocks_first:blocks_first,depth_first:depth_first}"


class _Blocks(Op):
    """Split the axes, permute the pieces, join them again."""

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The sizes of the pieces of all axes, and the order in which they come."""
        raise NotImplementedError

    def windows(self, x: Any) -> Windows:
        sizes, order = self.split(static(x.shape))
        ours = dense(sizes)
        moved = tuple(sizes[place] for place in order)
        return Windows((Window(0, 0, moved, 0, tuple(ours[place] for place in order), 0, dense(moved)),))

    def evaluate(self, xp: Any, x: Any) -> Any:
        shape = self.shape(seen(x))
        sizes, order = self.split(tuple(x.shape))
        return xp.reshape(xp.permute_dims(xp.reshape(x, tuple(sizes)), tuple(order)), shape)

    def decompose(self, b: Any, x: Any) -> Any:
        """As Reshape, Transpose, Reshape. Sizes that only run time knows are copied or computed from what follows them."""
        sizes, order = self.split(x.dims)
        moved = b.Transpose(_reshape(b, x, sizes), order)
        return _reshape(b, moved, self.shape(x), x)


def _reshape(b: Any, x: Any, sizes: Sequence[Size], like: Any = None) -> Any:
    """``x`` under ``sizes``, at run time if need be."""
    from dovetail.ops.moving import size_vector

    if all(isinstance(size, int) for size in sizes):
        return b.Reshape(x, list(sizes), copy_zeros=False)
    return b.Reshape(x, size_vector(b, sizes, (x, like) if like is not None else (x,)), copy_zeros=False)


def _check_rank(shape: Sequence[Any]) -> int:
    if len(shape) < 3:
        raise RuleError("shape.rank", f"a rank of at least 3 is needed, not {len(shape)}")
    return len(shape) - 2


def _quotient(size: Any, divisor: int, what: str) -> Any:
    if isinstance(size, int) and size % divisor:
        raise RuleError("blocks.divide", f"{what} {size} does not divide by {divisor}")
    found = dims.exact_quotient(size, divisor)
    return size // divisor if found is None else found


class _Depth(_Blocks):
    block_size: int = 1
    mode: str = "blocks_first"

    def validate(self) -> None:
        if self.block_size < 1:
            raise RuleError("blocks.size", f"a block size of {self.block_size}")
        if self.mode not in ("blocks_first", "depth_first"):
            raise RuleError("blocks.mode", f"{self.mode!r} is neither blocks_first nor depth_first")


class DepthToSpace(
    _Depth,
    sig="x: T -> y: T",
    onnx=(
        "DepthToSpace-1(x; blocksize:block_size | mode=blocks_first)",
        f"DepthToSpace-11,13,28(x; blocksize:block_size, {_ONNX_MODES}=blocks_first)",
    ),
    openvino=f"DepthToSpace-1(x; block_size=1, {_OPENVINO_MODES})",
):
    """Channels of ``x`` [N, C, *spatial] as blocks of ``block_size`` in every spatial axis: [N, C / block_size^k, *spatial * block_size].

    The channel index is (*block place, new channel) with ``blocks_first``, (new channel, *block place) with ``depth_first``.
    Sources: ONNX DepthToSpace 1 to 28 (DCR, CRD; two spatial axes); OpenVINO DepthToSpace-1.
    """

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        count = _check_rank(x.shape)
        channels = _quotient(x.shape[1], self.block_size**count, "the depth")
        return (x.shape[0], channels, *(size * self.block_size for size in x.shape[2:]))

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        count = _check_rank(shape)
        channels = _quotient(shape[1], self.block_size**count, "the depth")
        blocks, spatial = [self.block_size] * count, list(shape[2:])
        first = self.mode == "blocks_first"
        depth = [*blocks, channels] if first else [channels, *blocks]
        channel, block = (count + 1, 1) if first else (1, 2)
        pairs = [place for axis in range(count) for place in (count + 2 + axis, block + axis)]
        return [shape[0], *depth, *spatial], [0, channel, *pairs]

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [b.apply("SpaceToDepth", g, block_size=self.block_size, mode=self.mode)]


class SpaceToDepth(
    _Depth,
    sig="x: T -> y: T",
    onnx=(
        "SpaceToDepth-1,13(x; blocksize:block_size | mode=blocks_first)",
        f"SpaceToDepth-28(x; blocksize:block_size, {_ONNX_MODES}=blocks_first)",
    ),
    openvino=f"SpaceToDepth-1(x; block_size=1, {_OPENVINO_MODES})",
):
    """Blocks of ``block_size`` in every spatial axis of ``x`` [N, C, *spatial] as channels: [N, C * block_size^k, *spatial / block_size].

    The inverse of DepthToSpace in the same ``mode``. Sources: ONNX SpaceToDepth 1 to 28 (two spatial axes); OpenVINO SpaceToDepth-1.
    """

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        count = _check_rank(x.shape)
        spatial = (_quotient(size, self.block_size, "the size") for size in x.shape[2:])
        return (x.shape[0], x.shape[1] * self.block_size**count, *spatial)

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        count = _check_rank(shape)
        pairs = [part for size in shape[2:] for part in (_quotient(size, self.block_size, "the size"), self.block_size)]
        spatial, blocks = list(range(2, 2 + 2 * count, 2)), list(range(3, 3 + 2 * count, 2))
        depth = [*blocks, 1] if self.mode == "blocks_first" else [1, *blocks]
        return [shape[0], shape[1], *pairs], [0, *depth, *spatial]

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        return [b.apply("DepthToSpace", g, block_size=self.block_size, mode=self.mode)]


class ShuffleChannels(_Blocks, sig="x: T -> y: T", openvino="ShuffleChannels-1(x; axis=1, group=1)"):
    """The places along ``axis`` taken as a matrix of ``group`` rows, transposed.

    ``group`` divides the size. Source: OpenVINO ShuffleChannels-1.
    """

    axis: int = 1
    group: int = 1

    def validate(self) -> None:
        if self.group < 1:
            raise RuleError("blocks.size", f"{self.group} groups")

    def shape(self, x: Any) -> Any:
        if x.shape is None:
            return None
        if not x.shape:
            raise RuleError("shape.scalar", "a scalar has no axis of channels")
        _quotient(x.shape[axis_in(self.axis, len(x.shape))], self.group, "the size")
        return x.shape

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        axis = axis_in(self.axis, len(shape))
        pieces = [self.group, _quotient(shape[axis], self.group, "the size")]
        order = [*range(axis), axis + 1, axis, *range(axis + 2, len(shape) + 1)]
        return [*shape[:axis], *pieces, *shape[axis + 1 :]], order

    def canonical(self, x: Any) -> Op:
        return self if x.shape is None else ShuffleChannels(axis_in(self.axis, len(x.shape)), self.group)

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        sizes, order = self.split(y.dims)
        if all(isinstance(size, int) for size in sizes):
            moved = [sizes[place] for place in order]
            back = b.Transpose(b.Reshape(g, moved, copy_zeros=False), inverse(order))
            return [b.Reshape(back, list(y.dims), copy_zeros=False)]
        axis = axis_in(self.axis, len(y.dims))
        if isinstance(y.dims[axis], int):
            # The transposed matrix has the other side's number of rows.
            return [b.apply("ShuffleChannels", g, axis=self.axis, group=y.dims[axis] // self.group if y.dims[axis] else 1)]
        return [reshaped(b, self.decompose(b, g), g)]


__all__ = ["DepthToSpace", "ShuffleChannels", "SpaceToDepth", "open_shape", "prod"]
