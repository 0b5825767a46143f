"""DepthToSpace, SpaceToDepth and ShuffleChannels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op, Window, Windows
from dovetail.ir.types import Size, View, axis_in, static
from dovetail.ops.shape_values import join_sizes, view_of
from dovetail.ops.tensor.transpose_expand_tile import inverse_of, strides_of

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value

_ONNX_MODES = "mode~{DCR:blocks_first,CRD:depth_first}"
_OPENVINO_MODES = "mode~{blocks_first:blocks_first,depth_first:depth_first}"


class _Blocks(Op):
    """_Blocks is the base of operators that split axes, permute the split axes and merge them: Reshape, Transpose, Reshape."""

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Return the sizes after splitting the axes, and the permutation of the split axes."""
        raise NotImplementedError

    def windows(self, x: View) -> Windows:
        sizes, order = self.split(static(x.shape))
        strides = strides_of(sizes)
        moved = tuple(sizes[index] for index in order)
        return Windows((Window(0, 0, moved, 0, tuple(strides[index] for index in order), 0, strides_of(moved)),))

    def evaluate(self, xp: Namespace, x: Array) -> Any:
        shape = self.shape(view_of(x))
        sizes, order = self.split(tuple(x.shape))
        return arrays.reshape(xp, xp.permute_dims(arrays.reshape(xp, x, tuple(sizes)), tuple(order)), shape)

    def factors(self, rank: int) -> tuple[int, ...]:
        """Return the numbers by which the operator multiplies or divides sizes."""
        raise NotImplementedError

    def decompose(self, b: Builder, x: Value) -> Any:
        """Decompose to Reshape, Transpose, Reshape."""
        factors = self.factors(len(x.dims))
        sizes, order = self.split(x.dims)
        transposed = b.Transpose(_reshape_to(b, x, sizes, x, factors), order)
        return _reshape_to(b, transposed, self.shape(x), x, factors)


def _reshape_to(b: Builder, value: Value, sizes: Sequence[Size], x: Value, factors: Sequence[int]) -> Any:
    """Reshape ``value`` to ``sizes``; symbolic sizes are computed from the sizes of ``x``."""
    if all(isinstance(size, int) for size in sizes):
        return b.Reshape(value, list(sizes), special_zero=False)
    parts = [size if isinstance(size, int) else _size_value(b, size, x, factors) for size in sizes]
    return b.Reshape(value, join_sizes(b, parts), special_zero=False)


def _size_value(b: Builder, size: Size, x: Value, factors: Sequence[int]) -> Any:
    """Emit the symbolic ``size`` as a vector of one element: a size of ``x``, possibly multiplied or divided by a factor."""
    for axis, known in enumerate(x.dims):
        if symbolic.equal(known, size) is True:
            return shape_value(b, x, [axis])
        for factor in factors:
            if symbolic.equal(known * factor, size) is True:
                return b.Multiply(shape_value(b, x, [axis]), factor)
            if symbolic.equal(known // factor, size) is True or symbolic.exact_quotient(known, factor) == size:
                return b.Divide(shape_value(b, x, [axis]), factor)
    raise UnsupportedError(
        "shape.multiple", f"the size {size} must be a multiple or a quotient of a dimension of {list(map(str, x.dims))}"
    )


def _check_rank(shape: Sequence[Any]) -> int:
    if len(shape) < 3:
        raise RuleError("shape.rank", f"the rank must be at least 3, got {len(shape)}")
    return len(shape) - 2


def _quotient(size: Size, divisor: int, name: str) -> Any:
    if isinstance(size, int) and size % divisor:
        raise RuleError("shape.multiple", f"{name} ({size}) must be a multiple of {divisor}")
    quotient = symbolic.exact_quotient(size, divisor)
    return size // divisor if quotient is None else quotient


class _Depth(_Blocks):
    blocksize: int = 1
    mode: str = "blocks_first"

    def factors(self, rank: int) -> tuple[int, ...]:
        return self.blocksize, self.blocksize ** (rank - 2)

    def validate(self) -> None:
        if self.blocksize < 1:
            raise RuleError("attribute.range", f"blocksize must be at least 1, got {self.blocksize}")
        if self.mode not in ("blocks_first", "depth_first"):
            raise RuleError("attribute.value", f"mode must be blocks_first or depth_first, got {self.mode!r}")


class DepthToSpace(
    _Depth,
    sig="input: T -> output: T",
    onnx=(
        "DepthToSpace-1(input; blocksize | mode=blocks_first)",
        f"DepthToSpace-11,13,28(input; blocksize, {_ONNX_MODES}=DCR)",
    ),
    openvino=f"DepthToSpace-1(input; block_size:blocksize=1, {_OPENVINO_MODES})",
):
    """Move channels of ``input`` [N, C, *spatial] into blocks: [N, C / blocksize^k, *spatial * blocksize].

    A block has ``blocksize`` elements along each of the k spatial axes. The channel index is (*position in the block, new
    channel) with ``blocks_first``, (new channel, *position in the block) with ``depth_first``. Sources: ONNX DepthToSpace 1 to 28
    (DCR, CRD; two spatial axes); OpenVINO DepthToSpace-1.
    """

    def shape(self, input: View) -> Any:
        if input.shape is None:
            return None
        count = _check_rank(input.shape)
        channels = _quotient(input.shape[1], self.blocksize**count, "the depth")
        return (input.shape[0], channels, *(size * self.blocksize for size in input.shape[2:]))

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        count = _check_rank(shape)
        channels = _quotient(shape[1], self.blocksize**count, "the depth")
        blocks, spatial = [self.blocksize] * count, list(shape[2:])
        first = self.mode == "blocks_first"
        depth = [*blocks, channels] if first else [channels, *blocks]
        channel, block = (count + 1, 1) if first else (1, 2)
        pairs = [index for axis in range(count) for index in (count + 2 + axis, block + axis)]
        return [shape[0], *depth, *spatial], [0, channel, *pairs]

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [b.apply("SpaceToDepth", g, blocksize=self.blocksize, mode=self.mode)]


class SpaceToDepth(
    _Depth,
    sig="input: T -> output: T",
    onnx=(
        "SpaceToDepth-1,13(input; blocksize | mode=blocks_first)",
        f"SpaceToDepth-28(input; blocksize, {_ONNX_MODES}=DCR)",
    ),
    openvino=f"SpaceToDepth-1(input; block_size:blocksize=1, {_OPENVINO_MODES})",
):
    """Move blocks of ``input`` [N, C, *spatial] into channels: [N, C * blocksize^k, *spatial / blocksize].

    SpaceToDepth is the inverse of DepthToSpace with the same ``mode``. Sources: ONNX SpaceToDepth 1 to 28 (two spatial axes);
    OpenVINO SpaceToDepth-1.
    """

    def shape(self, input: View) -> Any:
        if input.shape is None:
            return None
        count = _check_rank(input.shape)
        spatial = (_quotient(size, self.blocksize, "the size") for size in input.shape[2:])
        return (input.shape[0], input.shape[1] * self.blocksize**count, *spatial)

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        count = _check_rank(shape)
        pairs = [part for size in shape[2:] for part in (_quotient(size, self.blocksize, "the size"), self.blocksize)]
        spatial, blocks = list(range(2, 2 + 2 * count, 2)), list(range(3, 3 + 2 * count, 2))
        depth = [*blocks, 1] if self.mode == "blocks_first" else [1, *blocks]
        return [shape[0], shape[1], *pairs], [0, *depth, *spatial]

    def vjp(self, b: Builder, g: Value, y: Value, input: Value) -> Any:
        return [b.apply("DepthToSpace", g, blocksize=self.blocksize, mode=self.mode)]


class ShuffleChannels(_Blocks, sig="data: T -> output: T", openvino="ShuffleChannels-1(data; axis=1, group=1)"):
    """Shuffle the indices of ``axis``: reshape the indices to a matrix of ``group`` rows, and transpose the matrix.

    The size of ``axis`` must be a multiple of ``group``. Source: OpenVINO ShuffleChannels-1.
    """

    axis: int = 1
    group: int = 1

    def validate(self) -> None:
        if self.group < 1:
            raise RuleError("attribute.range", f"group must be at least 1, got {self.group}")

    def shape(self, data: View) -> Any:
        if data.shape is None:
            return None
        if not data.shape:
            raise RuleError("shape.rank", "ShuffleChannels needs a rank of at least 1, got a scalar")
        _quotient(data.shape[axis_in(self.axis, len(data.shape))], self.group, "the size")
        return data.shape

    def split(self, shape: Sequence[Any]) -> tuple[list[Any], list[int]]:
        axis = axis_in(self.axis, len(shape))
        pieces = [self.group, _quotient(shape[axis], self.group, "the size")]
        order = [*range(axis), axis + 1, axis, *range(axis + 2, len(shape) + 1)]
        return [*shape[:axis], *pieces, *shape[axis + 1 :]], order

    def factors(self, rank: int) -> tuple[int, ...]:
        return (self.group,)

    def canonical(self, data: View) -> Op:
        return self if data.shape is None else ShuffleChannels(axis_in(self.axis, len(data.shape)), self.group)

    def vjp(self, b: Builder, g: Value, y: Value, data: Value) -> Any:
        """Reshape ``axis`` of the gradient to the transposed matrix, and transpose the matrix back."""
        sizes, order = self.split(y.dims)
        factors = self.factors(len(y.dims))
        moved = _reshape_to(b, g, [sizes[index] for index in order], data, factors)
        return [_reshape_to(b, b.Transpose(moved, inverse_of(order)), y.dims, data, factors)]
