"""Sliding windows over the spatial axes (all but the first two), shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.errors import RuleError
from dovetail.ir import symbolic
from dovetail.ir.op import Op
from dovetail.ir.types import Size, Unknown, View

AUTO_PADS = ("explicit", "same_upper", "same_lower", "valid")

# The padding attributes of op mappings, in ONNX and in OpenVINO.
ONNX_PAD = "auto_pad~{NOTSET:explicit,SAME_UPPER:same_upper,SAME_LOWER:same_lower,VALID:valid}=NOTSET"
PADS = "pads_begin+pads_end:pads, auto_pad~{explicit:explicit,valid:valid,same_upper:same_upper,same_lower:same_lower}=explicit"
# OpenVINO: "pads_begin and pads_end are ignored when auto_pad is specified"; old converters left stale numbers in both.
STALE = "pads_begin:_, pads_end:_, auto_pad~{valid:valid,same_upper:same_upper,same_lower:same_lower}"


class Geometry(NamedTuple):
    """Geometry holds, per spatial axis, the kernel size, stride, dilation, padding at both ends and number of windows."""

    kernel: tuple[Any, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[Any, ...]
    ends: tuple[Any, ...]
    outs: tuple[Any, ...]

    @property
    def spans(self) -> tuple[Any, ...]:
        """Return the extent of a window along each axis, including the gaps of dilation."""
        return tuple(extent_of(size, dilation) for size, dilation in zip(self.kernel, self.dilations, strict=True))


def extent_of(kernel: Size, dilation: int) -> Any:
    """Return the extent of a dilated kernel. Raises RuleError [attribute.range] for a kernel without elements."""
    if kernel.__class__ is int and kernel < 1:
        raise RuleError("attribute.range", f"kernel must have at least 1 element along each axis, got {kernel}")
    return (kernel - 1) * dilation + 1


def split_padding(total: Size, upper: bool) -> tuple[Any, Any]:
    """Split padding between both ends; an odd element goes to the end if ``upper``, otherwise to the beginning."""
    less = total // 2
    return (less, total - less) if upper else (total - less, less)


class SlidingWindowOp(Op):
    """SlidingWindowOp is the base of sliding-window operators, with strides, dilations and padding.

    ``strides`` and ``dilations`` default to 1 along each axis. ``pads`` lists all begins and then all ends, and defaults to 0;
    negative pads crop. ``auto_pad`` ``explicit`` uses ``pads``, and ``valid`` means no padding. ``same_upper`` and
    ``same_lower`` pad to ceil(size / stride) windows, with an odd element at the end (same_upper) or at the beginning
    (same_lower).
    """

    strides: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    dilations: tuple[int, ...] | None = None
    auto_pad: str = "explicit"

    def validate(self) -> None:
        if self.auto_pad not in AUTO_PADS:
            raise RuleError("attribute.value", f"auto_pad must be one of {', '.join(AUTO_PADS)}, got {self.auto_pad!r}")
        for name in ("strides", "dilations"):
            if min(getattr(self, name) or (1,)) < 1:
                raise RuleError("attribute.range", f"{name} must be at least 1, got {list(getattr(self, name))}")
        if self.auto_pad != "explicit" and any(self.pads or ()):
            raise RuleError(
                "attribute.conflict", f"pads must be absent or 0 with auto_pad {self.auto_pad}, got {list(self.pads or ())}"
            )
        if self.auto_pad != "explicit":
            # ONNX allows pads or auto_pad, not both. Pads of 0 have no effect, and are dropped.
            self.__dict__["pads"] = None

    def _per_axis(self, name: str, count: int, default: int) -> tuple[int, ...]:
        values = getattr(self, name)
        if values is None or (not values and count):
            return (default,) * count
        if len(values) != count:
            raise RuleError("attribute.length", f"{name} must have {count} elements, got {list(values)}")
        return tuple(values)

    def steps(self, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the strides and dilations of ``count`` spatial axes."""
        return self._per_axis("strides", count, 1), self._per_axis("dilations", count, 1)

    def explicit_pads(self, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        pads = self._per_axis("pads", 2 * count, 0)
        return pads[:count], pads[count:]

    def geometry(self, sizes: Sequence[Any], kernel: Sequence[Any]) -> Geometry:
        """Compute the window positions over axes of ``sizes`` elements; sizes may be symbolic."""
        count = len(sizes)
        strides, dilations = self.steps(count)
        spans = [extent_of(size, dilation) for size, dilation in zip(kernel, dilations, strict=True)]
        if self.auto_pad.startswith("same"):
            outs = [symbolic.ceil_divide(n, stride) for n, stride in zip(sizes, strides, strict=True)]
            totals = [
                symbolic.maximum((out - 1) * stride + reach - n, 0)
                for n, out, stride, reach in zip(sizes, outs, strides, spans, strict=True)
            ]
            pairs = [split_padding(total, self.auto_pad == "same_upper") for total in totals]
            begins, ends = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        else:
            begins, ends = self.explicit_pads(count)
            outs = [
                self._count(n + begin + end - reach, n, begin, stride)
                for n, begin, end, reach, stride in zip(sizes, begins, ends, spans, strides, strict=True)
            ]
        return Geometry(tuple(kernel), strides, dilations, begins, ends, tuple(outs))

    def _count(self, rest: Any, size: Any, begin: int, stride: int) -> Any:
        """Return the number of windows of a padded axis that has ``rest`` elements after the first window."""
        del size, begin
        refuse_small_input(rest)
        return rest // stride + 1

    def value(self, *xs: View) -> Any:
        """Raise Unknown: shape values are not tracked through windows."""
        raise Unknown

    def plain(self, count: int) -> dict[str, Any]:
        """Return strides, dilations and pads with defaults filled in; pads are None unless ``auto_pad`` is explicit."""
        strides, dilations = self.steps(count)
        pads = sum(self.explicit_pads(count), ()) if self.auto_pad == "explicit" else None
        return {"strides": strides, "dilations": dilations, "pads": pads}


def refuse_small_input(rest: Size) -> None:
    if isinstance(rest, int) and rest < 0:
        raise RuleError("shape.range", f"window must lie within the padded input, but extends {-rest} elements beyond it")


def spatial_sizes(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Return the sizes behind the batch and channel axes. Raises RuleError [shape.rank] for a rank below 3."""
    if len(shape) < 3:
        raise RuleError("shape.rank", f"rank must be at least 3 (batch, channels, spatial axes), got {len(shape)}")
    return tuple(shape[2:])
