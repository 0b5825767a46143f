"""Elements exchanged between channels and space, or among channels: DepthToSpace, SpaceToDepth, ShuffleChannels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail import symbolic
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import Size, axis_in, static
from dovetail.ops.shape_values import join_sizes, view_of
from dovetail.ops.tensor.transpose_expand_tile import dense, inverse

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
        shape = self.shape(view_of(x))
        sizes, order = self.split(tuple(x.shape))
        return xp.reshape(xp.permute_dims(xp.reshape(x, tuple(sizes)), tuple(order)), shape)

    def factors(self, rank: int) -> tuple[int, ...]:
        """The numbers by which sizes are multiplied and divided."""
        raise NotImplementedError

    def decompose(self, b: Any, x: Any) -> Any:
        """As Reshape, Transpose, Reshape."""
        factors = self.factors(len(x.dims))
        sizes, order = self.split(x.dims)
        moved = b.Transpose(_reshaped(b, x, sizes, x, factors), order)
        return _reshaped(b, moved, self.shape(x), x, factors)


def _reshaped(b: Any, value: Any, sizes: Sequence[Size], x: Any, factors: Sequence[int]) -> Any:
    """``value`` under ``sizes``; those that only run time knows follow from the sizes of ``x``."""
    if all(isinstance(size, int) for size in sizes):
        return b.Reshape(value, list(sizes), copy_zeros=False)
    parts = [size if isinstance(size, int) else _at_run_time(b, size, x, factors) for size in sizes]
    return b.Reshape(value, join_sizes(b, parts), copy_zeros=False)


def _at_run_time(b: Any, size: Size, x: Any, factors: Sequence[int]) -> Any:
    """A size that is one of ``x``, or one of them times or by a factor, as a vector of one element."""
    from dovetail.ir.builder import shape_value

    for axis, known in enumerate(x.dims):
        if symbolic.equal(known, size) is True:
            return shape_value(b, x, [axis])
        for factor in factors:
            if symbolic.equal(known * factor, size) is True:
                return b.Multiply(shape_value(b, x, [axis]), factor)
            if symbolic.equal(known // factor, size) is True or symbolic.exact_quotient(known, factor) == size:
                return b.Divide(shape_value(b, x, [axis]), factor)
    raise UnsupportedError(
        "blocks.size", f"the size {size} is not known to be one of {list(map(str, x.dims))} or a multiple of one"
    )


def _check_rank(shape: Sequence[Any]) -> int:
    if len(shape) < 3:
        raise RuleError("shape.rank", f"a rank of at least 3 is needed, not {len(shape)}")
    return len(shape) - 2


def _quotient(size: Any, divisor: int, what: str) -> Any:
    if isinstance(size, int) and size % divisor:
        raise RuleError("blocks.divide", f"{what} {size} does not divide by {divisor}")
    found = symbolic.exact_quotient(size, divisor)
    return size // divisor if found is None else found


class _Depth(_Blocks):
    block_size: int = 1
    mode: str = "blocks_first"

    def factors(self, rank: int) -> tuple[int, ...]:
        return self.block_size, self.block_size ** (rank - 2)

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
        f"DepthToSpace-11,13,28(x; blocksize:block_size, {_ONNX_MODES}=DCR)",
    ),
    openvino=f"DepthToSpace-1(x; block_size=1, {_OPENVINO_MODES})",
):
    """Channels of ``x`` [N, C, *spatial] as blocks of ``block_size`` in every spatial axis: [N, C / block_size^k, *spatial *
    block_size].

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
        f"SpaceToDepth-28(x; blocksize:block_size, {_ONNX_MODES}=DCR)",
    ),
    openvino=f"SpaceToDepth-1(x; block_size=1, {_OPENVINO_MODES})",
):
    """Blocks of ``block_size`` in every spatial axis of ``x`` [N, C, *spatial] as channels: [N, C * block_size^k, *spatial /
    block_size].

    The inverse of DepthToSpace in the same ``mode``. Sources: ONNX SpaceToDepth 1 to 28 (two spatial axes); OpenVINO
    SpaceToDepth-1.
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

    def factors(self, rank: int) -> tuple[int, ...]:
        return (self.group,)

    def canonical(self, x: Any) -> Op:
        return self if x.shape is None else ShuffleChannels(axis_in(self.axis, len(x.shape)), self.group)

    def vjp(self, b: Any, g: Any, y: Any, x: Any) -> Any:
        """Back by a transposition of the matrix that the places make."""
        sizes, order = self.split(y.dims)
        factors = self.factors(len(y.dims))
        moved = _reshaped(b, g, [sizes[place] for place in order], x, factors)
        return [_reshaped(b, b.Transpose(moved, inverse(order)), y.dims, x, factors)]
