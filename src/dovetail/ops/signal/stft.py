"""STFT, ISTFT and MelWeightMatrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir import arrays, dtypes, symbolic
from dovetail.ir.builder import shape_value
from dovetail.ir.dtypes import DType
from dovetail.ir.limits import refuse_table
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View, agree
from dovetail.ops.shape_values import elements_of, join_sizes
from dovetail.ops.signal.dft import DFT, IRDFT

if TYPE_CHECKING:
    from dovetail.ir.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def scalar_of(x: View, name: str) -> Any:
    """Return the element of a scalar or a vector of length 1; None if the element is unknown. Raises RuleError [shape.rank]."""
    if x.shape is not None and (len(x.shape) > 1 or (x.shape and symbolic.equal(x.shape[0], 1) is False)):
        raise RuleError("shape.rank", f"{name} must be a scalar, got shape {list(x.shape)}")
    elements = elements_of(x)
    return None if elements is None else elements[0]


class STFT(
    Op,
    sig="x: F, frame_step!: I, window?: F, frame_length?!: I1 -> y: F",
    onnx="STFT-17(x, frame_step, window?, frame_length?; onesided=1)",
):
    """Compute the short-time Fourier transform: [batch, frames, frequencies, 2], real and imaginary part last.

    ``x`` is [batch, elements, parts], with one part for a real and two parts for a complex signal, or [batch, elements] for a
    real signal. Frames of ``frame_length`` elements (by default the size of ``window``, or of the signal) begin every
    ``frame_step`` elements. All frames that lie within the signal are multiplied by ``window`` and transformed. With
    ``onesided`` a real signal gives the first frame_length // 2 + 1 frequencies, which determine all others.
    Sources: ONNX STFT 17; OpenVINO STFT-15.
    """

    onesided: bool = True

    def length_of(self, x: View, window: View | None, length: View | None) -> Any:
        """Return the frame length; None if it is not known."""
        known_length = None if length is None else scalar_of(length, "length")
        size = None if window is None or window.shape is None else window.shape[0]
        if known_length is not None and size is not None:
            return agree(known_length, size, "the frame length", ("window", 0))
        if length is not None:
            return known_length if known_length is not None else size
        if window is not None:
            return size
        return None if x.shape is None else x.shape[1]

    def shape(self, x: View, step: View, window: View | None = None, length: View | None = None) -> Any:
        if window is not None and window.shape is not None and len(window.shape) != 1:
            raise RuleError("shape.rank", f"window must be a vector, got rank {len(window.shape)}")
        every = scalar_of(step, "step")
        if isinstance(every, int) and every < 1:
            raise RuleError("attribute.range", f"frame_step must be at least 1, got {every}")
        if x.shape is not None:
            if len(x.shape) not in (2, 3):
                raise RuleError("shape.rank", f"rank must be 3 (batch, signal, parts) or 2, got {len(x.shape)}")
            allowed = (1,) if self.onesided else (1, 2)
            if len(x.shape) == 3 and all(symbolic.equal(x.shape[2], count) is False for count in allowed):
                expected = "1" if self.onesided else "1 or 2"
                raise RuleError("shape.disagree", f"size of the last axis (complex parts) must be {expected}, got {x.shape[2]}")
        size = self.length_of(x, window, length)
        if isinstance(size, int) and size < 1:
            raise RuleError("attribute.range", f"frame_length must be at least 1, got {size}")
        bins = None if size is None else size // 2 + 1 if self.onesided else size
        batch, frames = None, None
        if x.shape is not None:
            batch = x.shape[0]
            if size is not None and every is not None and symbolic.less(x.shape[1], size) is True:
                raise RuleError("attribute.range", f"frame_length ({size}) must not exceed the signal ({x.shape[1]})")
            if size is not None and isinstance(every, int):
                frames = (x.shape[1] - size) // every + 1
        return (batch, frames, bins, 2)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a transform")

    def decompose(self, b: Builder, x: Value, step: Value, window: Value | None = None, length: Value | None = None) -> Any:
        """Gather the frames, multiply the frames by the window, and apply DFT."""
        size, every = self.length_of(x, window, length), scalar_of(step, "step")
        if not isinstance(size, int) or not isinstance(every, int):
            raise UnsupportedError("type.unknown", "the decomposition needs frame_length and frame_step before run time")
        self.shape(x, step, window, length)
        if len(x.dims) == 2:
            x = b.Unsqueeze(x, [2])
        whole = x.dims[1]
        refuse_table((size,), 8, "the sample indices of a frame")
        if isinstance(whole, int):
            refuse_table(((whole - size) // every + 1, size), 8, "the sample indices of an STFT")
            starts = b.constant(np.arange((whole - size) // every + 1) * every)
        else:
            rest = b.Subtract(b.Gather(b.Shape(x), np.array(1), axis=0), b.constant(size))
            starts = b.Range(b.constant(0), b.Add(rest, b.constant(1)), b.constant(every))
        indices = b.Add(b.Unsqueeze(starts, [1]), b.constant(np.arange(size)))
        frames = b.Gather(x, indices, axis=1)
        if window is not None:
            frames = b.Multiply(frames, b.Unsqueeze(window, [1]))
        return b.add(DFT(onesided=self.onesided), frames, b.constant([2]))[0]


class ISTFT(
    Op,
    sig="x: F, window: F, frame_size!: I, frame_step!: I1, signal_length?!: I2 -> y: F",
    openvino="ISTFT-16(x, window, frame_size, frame_step, signal_length?; center, normalized)",
):
    """Compute the inverse STFT: the real signal [batch, elements] of a one-sided spectrum.

    ``x`` is [batch, frequencies, frames, 2], or without the batch axis. Frames of ``frame_size`` elements are transformed back,
    multiplied by ``window`` (zero-padded on both sides if it is shorter than a frame), added ``frame_step`` elements apart, and
    divided by the sum of the squared windows. An element for which that sum is 0 is 0.

    ``normalized`` multiplies the signal by sqrt(frame_size). ``center`` drops frame_size // 2 elements at the front and
    frame_size - frame_size // 2 elements at the end. ``signal_length`` cuts or zero-pads the end to that length instead. Source:
    OpenVINO ISTFT-16.
    """

    center: bool = False
    normalized: bool = False

    def sizes(self, x: View, length: View, step: View) -> tuple[Any, Any, Any]:
        """Return the frame size, the frame step and the number of elements that all frames cover; None for an unknown number."""
        size, every = scalar_of(length, "length"), scalar_of(step, "step")
        for number, name in ((size, "frame_size"), (every, "frame_step")):
            if isinstance(number, int) and number < 1:
                raise RuleError("attribute.range", f"{name} must be at least 1, got {number}")
        frames = None if x.shape is None else x.shape[-2]
        whole = None if frames is None or size is None or every is None else (frames - 1) * every + size
        return size, every, whole

    def shape(self, x: View, window: View, length: View, step: View, size: View | None = None) -> Any:
        if window.shape is not None and len(window.shape) != 1:
            raise RuleError("shape.rank", f"window must be a vector, got rank {len(window.shape)}")
        if x.shape is not None and len(x.shape) not in (3, 4):
            raise RuleError("shape.rank", f"rank must be 3 or 4 (frequencies, frames, parts), got {len(x.shape)}")
        frame, _, whole = self.sizes(x, length, step)
        if x.shape is not None:
            if symbolic.equal(x.shape[-1], 2) is False:
                raise RuleError("shape.disagree", f"size {x.shape[-1]} of the last axis must be 2 (complex parts)")
            if frame is not None:
                agree(x.shape[-3], frame // 2 + 1, ("x", len(x.shape) - 3), "the frame length // 2 + 1")
        if frame is not None and window.shape is not None and symbolic.less(frame, window.shape[0]) is True:
            raise RuleError("shape.disagree", f"window ({window.shape[0]}) must not exceed frame_size ({frame})")
        if size is not None:
            signal_length = scalar_of(size, "size")
            whole = signal_length if isinstance(signal_length, int) or signal_length is None else None
        elif whole is not None and self.center:
            whole = whole - frame
        return None if x.shape is None else (*x.shape[:-3], whole)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a transform")

    def decompose(self, b: Builder, x: Value, window: Value, length: Value, step: Value, size: Value | None = None) -> Any:
        frame, every, whole = self.sizes(x, length, step)
        signal_length = None if size is None else scalar_of(size, "size")
        if (
            not isinstance(whole, int)
            or not isinstance(window.dims[0], int)
            or (size is not None and not isinstance(signal_length, int))
        ):
            raise UnsupportedError("type.unknown", "the decomposition needs static frames and signal_length")
        self.shape(x, window, length, step, size)
        missing, rank = frame - window.dims[0], len(x.dims)
        if missing:
            window = b.Pad(window, [missing // 2, missing - missing // 2])
        order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
        pieces = b.add(IRDFT(), b.Transpose(x, order), b.constant([rank - 2]), b.constant([frame]))[0]
        count = int(pieces.dims[-2])
        refuse_table((count, frame), 16, "the sample indices of an ISTFT")
        indices = np.arange(count)[:, None] * every + np.arange(frame)
        y = _overlap_add(b, b.Multiply(pieces, window), indices, whole)
        weights = _overlap_add(b, b.Expand(b.Multiply(window, window), [count, frame]), indices, whole)
        is_empty = b.Equal(weights, 0.0)
        y = b.Where(is_empty, 0.0, b.Divide(y, b.Where(is_empty, 1.0, weights)))
        y = b.Multiply(y, float(np.sqrt(frame))) if self.normalized else y
        begin = frame // 2 if self.center else 0
        end = signal_length if signal_length is not None else whole - frame if self.center else whole
        y = b.Slice(y, [begin], [min(begin + end, whole)], [-1]) if begin or end < whole else y
        padding = end - (whole - begin)
        return b.Pad(y, b.constant([*[0] * (rank - 3), 0, *[0] * (rank - 3), padding])) if padding > 0 else y


def _overlap_add(b: Builder, frames: Value, indices: np.ndarray[Any, Any], size: int) -> Any:
    """Add the elements of frames (the last two axes) at ``indices`` of a vector of ``size`` elements."""
    batch = shape_value(b, frames, range(len(frames.dims) - 2))
    flat = b.Reshape(frames, join_sizes(b, [batch, indices.size]), special_zero=False)
    zero = b.constant(np.zeros((), frames.dtype.numpy), frames.dtype)
    target = b.Expand(b.constant(indices.reshape(-1)), shape_value(b, flat))
    return b.ScatterElements(b.Expand(zero, join_sizes(b, [batch, size])), target, flat, axis=-1, reduction="add")


class MelWeightMatrix(
    Op,
    sig="num_mel_bins!: I, dft_length!: I, sample_rate!: I, lower_edge_hertz: F, upper_edge_hertz: F -> y: R",
    onnx="MelWeightMatrix-17(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz; output_datatype=f32)",
):
    """Compute the weights of ``num_mel_bins`` triangular mel bands: [dft_length // 2 + 1, num_mel_bins].

    The bands are evenly spaced in mels from ``lower_edge_hertz`` to ``upper_edge_hertz``. A band rises linearly from 0 at the
    previous band's frequency to 1 at the band's frequency, and falls to 0 at the next band's frequency. The index of frequency f
    in hertz is floor((dft_length + 1) * f / sample_rate), with f = 700 * (10 ** (mel / 2595) - 1). Weights are computed in f64.
    Source: ONNX MelWeightMatrix 17 and its reference evaluator.
    """

    output_datatype: DType = dtypes.f32

    def types(self, *xs: View) -> list[Type]:
        plain_type = default_types(self, xs)[0]
        if not self.output_datatype.is_number or self.output_datatype.kind == "complex":
            raise RuleError("type.class", f"output_datatype must be a real number type, got {self.output_datatype}")
        return [Tensor(self.output_datatype, getattr(plain_type, "shape", None))]

    def shape(self, bins: View, length: View, rate: View, low: View, high: View) -> Any:
        for x, name in ((low, "low"), (high, "high"), (rate, "rate")):
            scalar_of(x, name)
        count, size = scalar_of(bins, "bins"), scalar_of(length, "length")
        return (None if size is None else size // 2 + 1, count)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("mel weights")

    def evaluate(self, xp: Namespace, bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Any:
        count, size, every = (int(np.asarray(x).reshape(-1)[0]) for x in (bins, length, rate))
        ends = [2595 * np.log10(1 + float(arrays.to_numpy(x).reshape(-1)[0]) / 700) for x in (low, high)]
        mels = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
        hertz = 700 * (10 ** (mels / 2595) - 1)
        edges = ((size + 1) * hertz // every).astype(np.int64)
        if edges.min() < 0 or edges[:-1].max() > size // 2:
            raise RuleError(
                "attribute.range", f"frequency indices of bands must be at most {size // 2}, got {int(edges[:-1].max())}"
            )
        y = np.zeros((size // 2 + 1, count))
        for band, (start, top, end) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
            rise = np.arange(start, top + 1)
            y[rise, band] = (rise - start) / (top - start) if top > start else 1
            fall = np.arange(top, end)
            if len(fall) and fall[-1] > size // 2:
                raise RuleError("attribute.range", f"frequency indices of bands must be at most {size // 2}, got {end}")
            y[fall, band] = (end - fall) / (end - top) if len(fall) else 0
        return arrays.from_numpy(xp, y.astype(self.output_datatype.numpy), low)
