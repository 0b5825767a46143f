"""Types: the element types and the sizes of an operator's outputs, derived from those of its operands."""

from __future__ import annotations

from typing import Any

from dovetail_check.elements import (
    ALONG,
    REDUCTIONS,
    Elements,
    slices_of,
    split_lengths,
)
from dovetail_check.pointwise import COMPARISONS, POINTWISE
from dovetail_check.sizes import ONE, ZERO, Size, Symbols, Unproved, product, size
from dovetail_check.text import Operator, Type

SAME = frozenset(
    "BatchNormalization CumSum Dropout FakeQuantize Identity InstanceNormalization LayerNormalization "
    "MeanVarianceNormalization RMSNormalization Trilu".split()
)
"""Operators whose first output has the type of the first operand."""


LAYOUTS = {
    "sequence_first": ("sbi", "sdbh", "dbh"),
    "batch_first": ("bsi", "bsdh", "bdh"),
    "direction_second": ("bsi", "bdsh", "bdh"),
}
"""The axes of x, of y and of states of a recurrent layer: sequence, batch, direction, input, hidden."""
RECURRENT = {"GRU": "zrh", "LSTM": "iofc", "RNN": "h"}
"""Recurrent layers and their gates."""


def recurrent_sizes(elements: Elements, op: Operator, xs: tuple[int | None, ...]) -> dict[str, Size]:
    """Return the sizes of the axes of a recurrent layer."""
    sizes = dict(zip(LAYOUTS[op.attributes.get("layout", "sequence_first")][0], elements.shape_of(xs[0]), strict=True))
    directions = size(2 if op.attributes.get("direction") == "bidirectional" else 1)
    return {**sizes, "d": directions, "h": elements.shape_of(xs[2])[2]}


def broadcast(symbols: Symbols, shapes: list[tuple[Size, ...]]) -> tuple[Size, ...]:
    rank = max(map(len, shapes), default=0)
    columns = zip(*([ONE] * (rank - len(shape)) + list(shape) for shape in shapes), strict=True)
    return tuple(symbols.operation("broadcast", *column) for column in columns)


def types_of(elements: Elements, op: Operator, xs: tuple[int | None, ...]) -> list[Type] | None:
    """Return the types of the outputs of an application; None where they are not derived. Raises Unproved."""
    name, attributes = op.name, op.attributes
    terms, symbols = elements.terms, elements.symbols
    own = [None if x is None else terms[x] for x in xs]
    first = own[0].dtype if own and own[0] is not None else None

    def shape(position: int) -> tuple[Size, ...]:
        return elements.shape_of(xs[position] if position < len(xs) else None)

    def integers(position: int) -> tuple[Size, ...] | None:
        return elements.integers_of(xs[position]) if position < len(xs) and xs[position] is not None else None

    if name in POINTWISE:
        dtype = first
        if name in COMPARISONS:
            dtype = "boolean"
        elif name == "Cast":
            dtype = str(attributes["to"])
        elif name == "Where":
            dtype = own[1].dtype if own[1] is not None else None
        return [Type(dtype, broadcast(symbols, [shape(position) for position, x in enumerate(xs) if x is not None]))]
    if name == "CastLike":
        return [Type(None if own[1] is None else own[1].dtype, shape(0))]
    if name in SAME or name in ALONG:
        return [Type(first, shape(0))]
    if name == "Scaler":
        return [Type("f32", shape(0))]
    if name == "Transpose":
        order = elements._order(xs, len(shape(0)))
        return [Type(first, tuple(shape(0)[axis] for axis in order))]
    if name == "Reshape":
        return [Type(first, _shape_of_reshape(symbols, shape(0), integers(1) or (), attributes))]
    if name == "Flatten":
        axis = int(attributes.get("axis", 1))
        axis = axis + len(shape(0)) if axis < 0 else axis
        return [Type(first, (product(shape(0)[:axis]), product(shape(0)[axis:])))]
    if name == "Unsqueeze":
        axes = [each.number for each in integers(1) or ()]
        rank = len(shape(0)) + len(axes)
        places = {int(axis) % rank for axis in axes}  # type: ignore[arg-type]
        rest = iter(shape(0))
        return [Type(first, tuple(ONE if axis in places else next(rest) for axis in range(rank)))]
    if name == "Squeeze":
        listed = integers(1)
        if listed is None:
            if any(each.number is None for each in shape(0)):
                raise Unproved("a squeeze of axes that are not known")
            return [Type(first, tuple(each for each in shape(0) if each != 1))]
        axes = [int(each.number) % len(shape(0)) for each in listed if each.number is not None]
        # Where an open size is not 1, the model is not defined.
        if any((shape(0)[axis].number or 1) != 1 or shape(0)[axis] == 0 for axis in axes):
            raise Unproved("a squeeze of an axis that is not 1")
        return [Type(first, tuple(each for axis, each in enumerate(shape(0)) if axis not in axes))]
    if name == "Expand":
        # Where a size of the target is below 0, the model is not defined: max(n, 0) is n.
        target = integers(1) or ()
        target = tuple(each if (extent := symbols.operation("max", each, 0)) not in shape(0) else extent for each in target)
        if attributes.get("bidirectional", True):
            return [Type(first, broadcast(symbols, [shape(0), tuple(target)]))]
        return [Type(first, tuple(target))]
    if name == "ConstantOfShape":
        return [Type(own[1].dtype if len(own) > 1 and own[1] is not None else None, tuple(integers(0) or ()))]
    if name in ("Slice", "ExactSlice"):
        sizes = list(shape(0))
        if name == "Slice":
            for axis, (_, length, _) in slices_of(elements, xs, shape(0)).items():
                sizes[axis] = length
        else:
            for start, length, place, step in zip(*(integers(position) or () for position in range(1, 5)), strict=True):
                axis = place.number or 0
                last = start + (length - 1) * step
                is_before = length != 0 and (step.number is None or step.number < 1) and not symbols.is_never_negative(last)
                if not symbols.is_never_negative(start) or symbols.is_less(sizes[axis] - 1, last) or is_before:
                    raise Unproved("a slice beyond its axis")
                sizes[axis] = length
        return [Type(first, tuple(sizes))]
    if name == "Split":
        axis = int(attributes.get("axis", 0)) % len(shape(0))
        lengths = split_lengths(elements, op, xs, shape(0)[axis])
        return [Type(first, (*shape(0)[:axis], length, *shape(0)[axis + 1 :])) for length in lengths]
    if name in ("Concat", "QLinearConcat"):
        places = range(len(xs)) if name == "Concat" else range(2, len(xs), 3)
        axis, own_shape = int(attributes["axis"]) % len(shape(places[0])), shape(places[0])
        total = ZERO
        for position in places:
            total = total + shape(position)[axis]
        dtype = first if name == "Concat" else terms[xs[1]].dtype  # type: ignore[index]
        return [Type(dtype, (*own_shape[:axis], total, *own_shape[axis + 1 :]))]
    if name == "Gather":
        axis, batch = int(attributes.get("axis", 0)) % len(shape(0)), int(attributes.get("batch_dims", 0))
        return [Type(first, (*shape(0)[:axis], *shape(1)[batch:], *shape(0)[axis + 1 :]))]
    if name == "QuantizeLinear":
        return [
            Type(own[2].dtype if len(own) > 2 and own[2] is not None else str(attributes.get("output_dtype", "u8")), shape(0))
        ]
    if name == "DequantizeLinear":
        return [Type(str(attributes.get("output_dtype") or (own[1].dtype if own[1] is not None else None)), shape(0))]
    if name == "QGemm" and len(xs) > 8 and xs[8] is not None:
        matrices = {f"transpose_{x}": attributes.get(f"trans_{x}", False) for x in "ab"}
        return [Type(terms[xs[8]].dtype, _product(symbols, shape(0), shape(3), matrices))]
    if name == "DynamicQuantizeMatMul":
        return [Type("f32", _product(symbols, shape(0), shape(1), {}))]
    if name in ("QLinearAdd", "QLinearMul"):
        return [Type(first, broadcast(symbols, [shape(0), shape(3)]))]
    if name in ("GlobalAveragePool", "QLinearGlobalAveragePool") and not attributes.get("channels_last"):
        return [Type(first, (*shape(0)[:2], *(ONE for _ in shape(0)[2:])))]
    if name == "DynamicQuantizeLinear":
        return [Type("u8", shape(0)), Type("f32", ()), Type("u8", ())]
    if name == "GatherElements":
        return [Type(first, shape(1))]
    if name == "Size":
        return [Type("i64", ())]
    if name == "Shape":
        rank = len(shape(0))
        start, end = attributes.get("start", 0), attributes.get("end")
        return [Type(str(attributes.get("output_type", "i64")), (size(len(range(rank)[start:end])),))]
    if name == "Pad":
        pads = integers(1) or ()
        rank = len(shape(0))
        listed = integers(3)
        axes = list(range(rank)) if listed is None else [int(each.number) % rank for each in listed if each.number is not None]
        sizes = list(shape(0))
        for position, axis in enumerate(axes):
            sizes[axis] = sizes[axis] + pads[position] + pads[position + len(axes)]
        return [Type(first, tuple(sizes))]
    if name == "Tile":
        counts, sizes = tuple(integers(1) or ()), list(shape(0))
        if attributes.get("extend"):
            rank = max(len(counts), len(sizes))
            counts, sizes = (ONE,) * (rank - len(counts)) + counts, [ONE] * (rank - len(sizes)) + sizes
        return [Type(first, tuple(each * count for each, count in zip(sizes, counts, strict=True)))]
    if name in REDUCTIONS or name in ("ArgMax", "ArgMin"):
        axes = elements.reduced_axes(op, xs)
        first = first if name in REDUCTIONS else "i64"
        if attributes.get("keepdims", True):
            return [Type(first, tuple(ONE if axis in axes else each for axis, each in enumerate(shape(0))))]
        return [Type(first, tuple(each for axis, each in enumerate(shape(0)) if axis not in axes))]
    if name in ("MatMul", "MatMulInteger"):
        return [Type(first if name == "MatMul" else "i32", _product(symbols, shape(0), shape(1), attributes))]
    if name == "ScaledDotProductAttention":
        batches = [shape(position)[:-2] for position in range(min(4, len(xs))) if xs[position] is not None]
        return [Type(first, (*broadcast(symbols, batches), shape(0)[-2], shape(2)[-1]))]
    if name in RECURRENT:
        places = recurrent_sizes(elements, op, xs)
        _, outer, state = LAYOUTS[attributes.get("layout", "sequence_first")]
        found = [Type(first, tuple(places[axis] for axis in axes)) for axes in (outer, state, state)]
        return found[: int(attributes.get("outputs", 3 if name == "LSTM" else 2))]
    if name == "Attention" and all(len(shape(position)) == 4 for position in range(3)):
        return [Type(first, (*shape(0)[:3], shape(2)[3]))]
    if name == "Gemm":
        rows = shape(0)[1 if attributes.get("transpose_a") else 0]
        return [Type(first, (rows, shape(1)[0 if attributes.get("transpose_b") else 1]))]
    if name == "GatherND":
        batch, count = int(attributes.get("batch_dims", 0)), shape(1)[-1].number
        if count is None:
            raise Unproved("a gather with indices of an open size")
        return [Type(first, (*shape(1)[:-1], *shape(0)[batch + count :]))]
    if name == "TopK":
        axis, (count,) = int(attributes.get("axis", -1)) % len(shape(0)), elements.integers_of(xs[1])
        sizes = [*shape(0)[:axis], count, *shape(0)[axis + 1 :]]
        return [Type(first, tuple(sizes)), Type(str(attributes.get("index_element_type", "i64")), tuple(sizes))]
    if name == "Resize" and len(xs) > 1 and xs[1] is not None and "keep_aspect_ratio_policy" not in attributes:
        resized = dict(zip(attributes.get("axes") or range(len(shape(0))), integers(1) or (), strict=True))
        return [Type(first, tuple(resized.get(axis, extent) for axis, extent in enumerate(shape(0))))]
    if name == "Range":
        start, stop, step = (elements.integers_of(x)[0] for x in xs)
        if step != 1:
            raise Unproved("a range")
        return [Type(str(attributes.get("output_type") or first), (symbols.operation("max", stop - start, 0),))]
    if name in ("AveragePool", "MaxPool") and attributes.get("rounding_type", "floor") == "floor":
        kernel = tuple(map(size, attributes["kernel_shape"]))
        return _type_of_convolution(symbols, first, shape(0), (shape(0)[1], ONE, *kernel), attributes)
    if name == "ConvTranspose" and len(xs) < 4 and attributes.get("auto_pad", "explicit") == "explicit":
        count = len(shape(0)) - 2
        strides, dilations = (attributes.get(key) or (1,) * count for key in ("strides", "dilations"))
        pads, more = attributes.get("pads") or (0,) * (2 * count), attributes.get("output_padding") or (0,) * count
        sizes = [
            (shape(0)[2 + axis] - 1) * strides[axis] + (shape(1)[2 + axis] - 1) * dilations[axis] + 1 + more[axis]
            - pads[axis] - pads[axis + count]
            for axis in range(count)
        ]  # fmt: skip
        return [Type(first, (shape(0)[0], shape(1)[1] * int(attributes.get("group", 1)), *sizes))]
    if name in ("Conv", "ConvInteger", "QLinearConv"):
        dtype = {"Conv": first, "ConvInteger": "i32"}.get(name) or terms[xs[7]].dtype  # type: ignore[index]
        return _type_of_convolution(symbols, dtype, shape(0), shape(3 if name == "QLinearConv" else 1), attributes)
    return None


def _shape_of_reshape(
    symbols: Symbols, own: tuple[Size, ...], target: tuple[Size, ...], attributes: dict[str, Any]
) -> tuple[Size, ...]:
    special_zero = attributes.get("special_zero", True)
    found: list[Size | None] = []
    for axis, each in enumerate(target):
        if each == -1:
            found.append(None)
        elif each == 0 and special_zero:
            found.append(own[axis])
        elif special_zero and axis < len(own) and not _has_size(symbols, own, each):
            # Where the size is 0, that of the operand is copied, unless there are no elements.
            raise Unproved("a size that may be 0")
        else:
            found.append(each)
    if None in found:
        if attributes.get("empty") == "zero" and not all(each is None or symbols.is_less(0, each) for each in found):
            raise Unproved("a size of 0 beside one that is computed")
        quotient = _quotient_of(symbols, own, [each for each in found if each is not None])
        found = [quotient if each is None else each for each in found]
    # Where the numbers of elements differ, the model is not defined.
    return tuple(each for each in found if each is not None)


def _has_size(symbols: Symbols, own: tuple[Size, ...], each: Size) -> bool:
    """Return whether a size is 1 or more, or 0 only where there are no elements."""
    return (
        symbols.is_less(0, each)
        or symbols.is_multiple(product(own), each)
        or any(each in symbols.operands_of("broadcast", extent) or symbols.is_minimum_of(extent, each) for extent in own)
    )


def _quotient_of(symbols: Symbols, own: tuple[Size, ...], others: list[Size]) -> Size:
    """Divide the number of elements by the known sizes; equal factors cancel first."""
    left = list(own)
    rest: list[Size] = []
    for each in others:
        if each in left:
            left.remove(each)
        else:
            rest.append(each)
    return symbols.operation("//", product(left), product(rest))


def _product(symbols: Symbols, left: tuple[Size, ...], right: tuple[Size, ...], attributes: dict[str, Any]) -> tuple[Size, ...]:
    if len(left) < 2 or len(right) < 2:
        if len(left) == 1 and len(right) == 1:
            return ()
        if len(left) == 1:
            return (*right[:-2], right[-2] if attributes.get("transpose_b") else right[-1])
        return (*left[:-2], left[-1] if attributes.get("transpose_a") else left[-2])
    rows = left[-1] if attributes.get("transpose_a") else left[-2]
    columns = right[-2] if attributes.get("transpose_b") else right[-1]
    return (*broadcast(symbols, [left[:-2], right[:-2]]), rows, columns)


def _type_of_convolution(
    symbols: Symbols, dtype: str | None, own: tuple[Size, ...], weights: tuple[Size, ...], attributes: dict[str, Any]
) -> list[Type] | None:
    axes = len(own) - 2
    if attributes.get("auto_pad", "explicit") != "explicit":
        return None
    strides = attributes.get("strides") or (1,) * axes
    dilations = attributes.get("dilations") or (1,) * axes
    pads = attributes.get("pads") or (0,) * (2 * axes)
    sizes = []
    for axis in range(axes):
        reach = (weights[2 + axis] - 1) * dilations[axis] + 1
        padded = own[2 + axis] + pads[axis] + pads[axis + axes]
        sizes.append(
            symbols.operation("//", padded - reach + strides[axis], strides[axis]) if strides[axis] != 1 else padded - reach + 1
        )
    return [Type(dtype, (own[0], weights[0], *sizes))]
