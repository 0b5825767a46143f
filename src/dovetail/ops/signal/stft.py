"""Spectra of pieces of a signal: STFT, its inverse, and the weights that sum a spectrum up in mels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail import arrays, dtypes, symbolic
from dovetail.dtypes import DType
from dovetail.errors import RuleError, UnsupportedError
from dovetail.ir.builder import shape_value
from dovetail.ir.op import Op, default_types
from dovetail.ir.types import Tensor, Type, View, agree
from dovetail.ops.shape_values import elements_of, join_sizes
from dovetail.ops.signal.dft import DFT, IRDFT

if TYPE_CHECKING:
    from dovetail.arrays import Array, Namespace
    from dovetail.ir.builder import Builder
    from dovetail.ir.graph import Value


def one(x: View, what: str) -> Any:
    """The number in a scalar, or a vector of one; None where it is not known. Raises RuleError [input.rank]."""
    if x.shape is not None and (len(x.shape) > 1 or (x.shape and symbolic.equal(x.shape[0], 1) is False)):
        raise RuleError("input.rank", f"{what} should be one number, not of shape {list(x.shape)}")
    found = elements_of(x)
    return None if found is None else found[0]


class STFT(
    Op,
    sig="x: F, frame_step!: I, window?: F, frame_length?!: I1 -> y: F",
    onnx="STFT-17(x, frame_step, window?, frame_length?; onesided=1)",
):
    """The spectrum of each frame of a signal: [batch, frames, frequencies, 2], the last axis the real and the imaginary part.

    ``x`` [batch, elements, parts] is real with one part and complex with two. Frames of ``length`` elements (left out: as many as
    ``window`` has, or all) begin every ``step`` elements, as many as lie within the signal, and are multiplied by ``window``.
    With ``onesided`` a real signal gives the first length // 2 + 1 frequencies, from which the rest follows.
    Sources: ONNX STFT 17; OpenVINO STFT-15.
    """

    onesided: bool = True

    def length_of(self, x: View, window: Any, length: Any) -> Any:
        """How many elements a frame has; None where that is not known."""
        found = None if length is None else one(length, "length")
        size = None if window is None or window.shape is None else window.shape[0]
        if found is not None and size is not None:
            return agree(found, size)
        if length is not None:
            return found if found is not None else size
        if window is not None:
            return size
        return None if x.shape is None else x.shape[1]

    def shape(self, x: View, step: View, window: View | None = None, length: View | None = None) -> Any:
        if window is not None and window.shape is not None and len(window.shape) != 1:
            raise RuleError("fourier.window", f"a window should be a vector, not of rank {len(window.shape)}")
        every = one(step, "step")
        if isinstance(every, int) and every < 1:
            raise RuleError("fourier.step", f"a step of {every} elements")
        if x.shape is not None:
            if len(x.shape) != 3:
                raise RuleError("fourier.rank", f"a batch, a signal and its parts are needed, not the rank {len(x.shape)}")
            if all(symbolic.equal(x.shape[2], count) is False for count in ((1,) if self.onesided else (1, 2))):
                raise RuleError("fourier.parts", f"{x.shape[2]} parts of each number")
        size = self.length_of(x, window, length)
        if isinstance(size, int) and size < 1:
            raise RuleError("fourier.length", f"a frame of {size} elements")
        bins = None if size is None else size // 2 + 1 if self.onesided else size
        batch, frames = None, None
        if x.shape is not None:
            batch = x.shape[0]
            if size is not None and every is not None and symbolic.less(x.shape[1], size) is True:
                raise RuleError("fourier.length", f"a frame of {size} elements of a signal of {x.shape[1]}")
            if size is not None and isinstance(every, int):
                frames = (x.shape[1] - size) // every + 1
        return (batch, frames, bins, 2)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a transform")

    def decompose(self, b: Builder, x: Value, step: Value, window: Value | None = None, length: Value | None = None) -> Any:
        """The frames gathered, then transformed."""
        size, every = self.length_of(x, window, length), one(step, "step")
        if not isinstance(size, int) or not isinstance(every, int):
            raise UnsupportedError("fourier.size", "frames of a length or at a distance that only run time knows")
        self.shape(x, step, window, length)
        whole = x.dims[1]
        if isinstance(whole, int):
            starts = b.constant(np.arange((whole - size) // every + 1) * every)
        else:
            rest = b.Subtract(b.Gather(b.Shape(x), np.array(1), axis=0), b.constant(size))
            starts = b.Range(b.constant(0), b.Add(rest, b.constant(1)), b.constant(every))
        places = b.Add(b.Unsqueeze(starts, [1]), b.constant(np.arange(size)))
        frames = b.Gather(x, places, axis=1)
        if window is not None:
            frames = b.Multiply(frames, b.Unsqueeze(window, [1]))
        return b.add(DFT(onesided=self.onesided), frames, b.constant([2]))[0]


class ISTFT(
    Op,
    sig="x: F, window: F, frame_size!: I, frame_step!: I1, signal_length?!: I2 -> y: F",
    openvino="ISTFT-16(x, window, frame_size, frame_step, signal_length?; center, normalized)",
):
    """The real signal whose STFT, one side of it, is ``x`` [batch, frequencies, frames, 2], or the same without the batch:
    [batch, elements].

    Frames of ``length`` elements are transformed back, multiplied by ``window`` (between zeros where it is shorter), added up
    ``step`` elements apart, and divided by the sum of the windows' squares, 0 where that is 0. ``normalized`` multiplies by the
    root of ``length``. ``center`` drops length // 2 elements at the front, and as many at the end as leave ``length`` less;
    ``size``, where it is given, cuts the end or fills it up with zeros instead. Source: OpenVINO ISTFT-16.
    """

    center: bool = False
    normalized: bool = False

    def sizes(self, x: View, length: Any, step: Any) -> tuple[Any, Any, Any]:
        """The length of a frame, the distance between two, and how many elements all of them cover; None where not known."""
        size, every = one(length, "length"), one(step, "step")
        for number, what in ((size, "frame"), (every, "step")):
            if isinstance(number, int) and number < 1:
                raise RuleError("fourier.length" if what == "frame" else "fourier.step", f"a {what} of {number} elements")
        frames = None if x.shape is None else x.shape[-2]
        whole = None if frames is None or size is None or every is None else (frames - 1) * every + size
        return size, every, whole

    def shape(self, x: View, window: View, length: View, step: View, size: View | None = None) -> Any:
        if window.shape is not None and len(window.shape) != 1:
            raise RuleError("fourier.window", f"a window should be a vector, not of rank {len(window.shape)}")
        if x.shape is not None and len(x.shape) not in (3, 4):
            raise RuleError("fourier.rank", f"frequencies, frames and parts are needed, not the rank {len(x.shape)}")
        frame, _, whole = self.sizes(x, length, step)
        if x.shape is not None:
            if symbolic.equal(x.shape[-1], 2) is False:
                raise RuleError("fourier.parts", f"{x.shape[-1]} parts of each number")
            if frame is not None:
                agree(x.shape[-3], frame // 2 + 1)
        if frame is not None and window.shape is not None and symbolic.less(frame, window.shape[0]) is True:
            raise RuleError("fourier.window", f"a window of {window.shape[0]} elements for frames of {frame}")
        if size is not None:
            given = one(size, "size")
            whole = given if isinstance(given, int) or given is None else None
        elif whole is not None and self.center:
            whole = whole - frame
        return None if x.shape is None else (*x.shape[:-3], whole)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("a transform")

    def decompose(self, b: Builder, x: Value, window: Value, length: Value, step: Value, size: Value | None = None) -> Any:
        frame, every, whole = self.sizes(x, length, step)
        given = None if size is None else one(size, "size")
        if not isinstance(whole, int) or not isinstance(window.dims[0], int) or (size is not None and not isinstance(given, int)):
            raise UnsupportedError("fourier.size", "frames or a result of a size that only run time knows")
        self.shape(x, window, length, step, size)
        less, rank = frame - window.dims[0], len(x.dims)
        if less:
            window = b.Pad(window, [less // 2, less - less // 2])
        order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
        pieces = b.add(IRDFT(), b.Transpose(x, order), b.constant([rank - 2]), b.constant([frame]))[0]
        count = int(pieces.dims[-2])
        places = np.arange(count)[:, None] * every + np.arange(frame)
        y = _added(b, b.Multiply(pieces, window), places, whole)
        weights = _added(b, b.Expand(b.Multiply(window, window), [count, frame]), places, whole)
        is_empty = b.Equal(weights, 0.0)
        y = b.Where(is_empty, 0.0, b.Divide(y, b.Where(is_empty, 1.0, weights)))
        y = b.Multiply(y, float(np.sqrt(frame))) if self.normalized else y
        begin = frame // 2 if self.center else 0
        end = given if given is not None else whole - frame if self.center else whole
        y = b.Slice(y, [begin], [min(begin + end, whole)], [-1]) if begin or end < whole else y
        more = end - (whole - begin)
        return b.Pad(y, b.constant([*[0] * (rank - 3), 0, *[0] * (rank - 3), more])) if more > 0 else y


def _added(b: Builder, pieces: Any, places: np.ndarray[Any, Any], size: int) -> Any:
    """Pieces, the last two axes, added up at ``places`` of ``size`` elements."""
    batch = shape_value(b, pieces, range(len(pieces.dims) - 2))
    flat = b.Reshape(pieces, join_sizes(b, [batch, places.size]), special_zero=False)
    zero = b.constant(np.zeros((), pieces.dtype.numpy), pieces.dtype)
    target = b.Expand(b.constant(places.reshape(-1)), shape_value(b, flat))
    return b.ScatterElements(b.Expand(zero, join_sizes(b, [batch, size])), target, flat, axis=-1, reduction="add")


class MelWeightMatrix(
    Op,
    sig="num_mel_bins!: I, dft_length!: I, sample_rate!: I, lower_edge_hertz: F, upper_edge_hertz: F -> y: R",
    onnx="MelWeightMatrix-17(num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz; output_datatype=f32)",
):
    """How much each frequency of a spectrum gives to each of ``bins`` bands, evenly spaced in mels from ``low`` to ``high``
    hertz: [length // 2 + 1, bins].

    A band rises evenly from 0 at the frequency of the one before to 1 at its own, and falls to 0 at that of the next. The
    frequency of hertz f is floor((length + 1) * f / rate), f = 700 * (10 ** (mel / 2595) - 1). Computed in f64.
    Source: ONNX MelWeightMatrix 17 and its reference evaluator.
    """

    output_datatype: DType = dtypes.f32

    def types(self, *xs: View) -> list[Type]:
        found = default_types(self, xs)[0]
        if not self.output_datatype.is_number or self.output_datatype.kind == "complex":
            raise RuleError("type.class", f"weights of {self.output_datatype}")
        return [Tensor(self.output_datatype, getattr(found, "shape", None))]

    def shape(self, bins: View, length: View, rate: View, low: View, high: View) -> Any:
        for x, what in ((low, "low"), (high, "high")):
            if x.shape:
                raise RuleError("input.rank", f"{what} should be one number, not of shape {list(x.shape)}")
        one(rate, "rate")
        count, size = one(bins, "bins"), one(length, "length")
        return (None if size is None else size // 2 + 1, count)

    def value(self, *xs: View) -> Any:
        raise symbolic.Inexact("weights")

    def evaluate(self, xp: Namespace, bins: Array, length: Array, rate: Array, low: Array, high: Array) -> Any:
        count, size, every = (int(np.asarray(x).reshape(-1)[0]) for x in (bins, length, rate))
        ends = [2595 * np.log10(1 + float(arrays.to_numpy(x).reshape(-1)[0]) / 700) for x in (low, high)]
        mels = ends[0] + np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2))
        hertz = 700 * (10 ** (mels / 2595) - 1)
        edges = ((size + 1) * hertz // every).astype(np.int64)
        if edges.min() < 0 or edges[:-1].max() > size // 2:
            raise RuleError("mel.range", f"bands up to frequency {int(edges[:-1].max())} of {size // 2 + 1}")
        y = np.zeros((size // 2 + 1, count))
        for band, (start, top, end) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
            rise = np.arange(start, top + 1)
            y[rise, band] = (rise - start) / (top - start) if top > start else 1
            fall = np.arange(top, end)
            if len(fall) and fall[-1] > size // 2:
                raise RuleError("mel.range", f"bands up to frequency {end} of {size // 2 + 1}")
            y[fall, band] = (end - fall) / (end - top) if len(fall) else 0
        return arrays.from_numpy(xp, y.astype(self.output_datatype.numpy), low)
