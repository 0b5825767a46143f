"""Laws that eliminate an operator: the result has the bits of an input, or one operator replaces two."""

from __future__ import annotations

import numpy as np

from dovetail.errors import RuleError
from dovetail.ir.builder import Builder
from dovetail.ir.graph import Value
from dovetail.ir.op import Op
from dovetail.ir.types import Shape, Tensor, Type, are_equal_shapes, broadcast
from dovetail.laws.law import Inputs, Result, Types, permutation_of, producer
from dovetail.ops.elementwise.broadcast import BroadcastingOp, Elementwise
from dovetail.ops.elementwise.cast import Cast, CastLike, is_without_effect
from dovetail.ops.nn.dropout import is_inference
from dovetail.ops.nn.resize import Resize
from dovetail.ops.shape_values import integers_of
from dovetail.ops.tensor.transpose_expand_tile import Expand, Transpose


def _shape_of(type: Type) -> Shape | None:
    return type.shape if isinstance(type, Tensor) else None


def _has_type(x: Value, type: Type) -> bool:
    """Return whether a value has the element type and the shape of ``type``."""
    if x.type == type:
        return True
    return isinstance(type, Tensor) and x.dtype is type.dtype and are_equal_shapes(x.shape, type.shape)


def _in_same_shape(x: Value | None, types: Types) -> Value | None:
    return x if x is not None and are_equal_shapes(x.shape, _shape_of(types[0])) else None


def take_input(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    return xs[0]


def take_only_operand(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the only operand of a variadic operator with one operand."""
    return xs[0] if len(xs) == 1 else None


def take_only_part(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Split into one part."""
    return xs[0] if len(types) == 1 else None


def drop_same_shape(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of an operator that moves no element, if the shape does not change."""
    return _in_same_shape(xs[0], types)


def drop_whole_slice(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Slice with steps of 1 that keeps the shape."""
    steps = xs[4] if len(xs) > 4 else None
    numbers = [] if steps is None else integers_of(steps)
    return _in_same_shape(xs[0], types) if numbers is not None and all(step == 1 for step in numbers) else None


def drop_tile_of_ones(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Tile that repeats nothing."""
    repeats = integers_of(xs[1])
    return _in_same_shape(xs[0], types) if repeats is not None and all(count == 1 for count in repeats) else None


def drop_empty_pad(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Pad whose pads are all 0."""
    pads = integers_of(xs[1])
    return xs[0] if pads is not None and not any(pads) else None


def drop_same_resize(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a nearest Resize to the same sizes: at scale 1 each output index reads the same input index."""
    assert isinstance(op, Resize)
    if op.mode != "nearest" or op.coordinate_transformation_mode == "tf_crop_and_resize":
        return None
    scales = xs[2] if len(xs) > 2 else None
    if scales is not None and (scales.constant is None or not np.all(np.asarray(scales.constant) == 1)):
        return None
    return _in_same_shape(xs[0], types)


def drop_dropout(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Dropout outside training mode; the law applies only if nothing reads the mask."""
    return [xs[0], *[None] * (len(types) - 1)] if is_inference(xs[2] if len(xs) > 2 else None) else None


def drop_cast(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Drop a Cast to the same type, and a Cast that has no effect before another Cast."""
    x = xs[0]
    if not isinstance(op, Cast) or x is None or not isinstance(x.type, Tensor) or x.type.dtype is None or op.source is not None:
        return None
    if x.type.dtype is op.to:
        return x
    inner = producer(x, Cast)
    if inner is None or not isinstance(inner.op, Cast) or inner.op.source is not None:
        return None
    source = inner.input(0)
    if not isinstance(source.type, Tensor) or source.type.dtype is None:
        return None
    if not is_without_effect(source.type.dtype, x.type.dtype, op.to):
        return None
    return source if source.type.dtype is op.to else b.add(op, source)


def write_cast(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Rewrite CastLike as Cast, which does not read the second input."""
    assert isinstance(op, CastLike)
    like = None if xs[1] is None else xs[1].type
    return b.add(op.cast(like.dtype), xs[0]) if isinstance(like, Tensor) and like.dtype is not None else None


# Arithmetic


def drop_neutral(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the operand of an operator whose other operand is a neutral constant, for the types in ``neutral``."""
    assert isinstance(op, BroadcastingOp)
    for law in op.neutral:
        constant, other = xs[law.index], xs[1 - law.index]
        if constant is None or other is None or not law.holds(other.dtype, constant.constant, constant.dtype):
            continue
        if _has_type(other, types[0]):
            return other
    return None


def cancel_inverse(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return x for f(f(x)) if f is an involution for the type of x."""
    assert isinstance(op, Elementwise)
    inner = producer(xs[0], type(op))
    x = None if inner is None else inner.input(0)
    return x if x is not None and x.dtype.name in op.involution and _has_type(x, types[0]) else None


def drop_repetition(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return f(x) for f(f(x)) if f is idempotent for the type of x."""
    assert isinstance(op, Elementwise)
    x = xs[0]
    is_same = x is not None and producer(x, type(op)) is not None
    return x if is_same and x is not None and x.dtype.name in op.idempotent and _has_type(x, types[0]) else None


def take_chosen_operand(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the operand that Where selects for every element: by a constant condition, or because both are one value."""
    condition, first, second = xs
    if condition is None or first is None or second is None:
        return None
    data = condition.constant
    chosen = [first] if first is second else []
    if data is not None and data.size and (data.all() or not data.any()):
        chosen.append(first if data.all() else second)
    return next((x for x in chosen if _has_type(x, types[0])), None)


# Movement


def drop_sorted_transpose(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Return the input of a Transpose that keeps the order of the axes."""
    order = permutation_of(xs)
    return xs[0] if order is not None and order == sorted(order) else None


def merge_transposes(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Merge two successive Transpose into one, or into none if they cancel."""
    inner = producer(xs[0], Transpose)
    later, earlier = permutation_of(xs), None if inner is None else permutation_of(inner.inputs)
    if inner is None or later is None or earlier is None:
        return None
    order = [earlier[axis] for axis in later]
    return inner.input(0) if order == sorted(order) else b.Transpose(inner.input(0), order)


def read_before_expand(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Let an operator that broadcasts read the input of an Expand instead of the output of the Expand."""
    if not getattr(op, "broadcast", False) or all(producer(x, Expand) is None for x in xs):
        return None
    new = list(xs)
    for index, x in enumerate(xs):
        expand = producer(x, Expand)
        if expand is None:
            continue
        candidate = [*new[:index], expand.input(0), *new[index + 1 :]]
        if broadcasts_to(candidate, _shape_of(types[0])):
            new = candidate
    return None if all(x is y for x, y in zip(new, xs, strict=True)) else b.add(op, *new)


def broadcasts_to(xs: Inputs, shape: Shape | None) -> bool:
    """Return whether operands broadcast to a shape for all values of the symbols."""
    try:
        result = broadcast(*(None if x is None else x.shape for x in xs))
    except RuleError:
        return False
    return result is not None and None not in result and are_equal_shapes(result, shape)  # type: ignore[arg-type]


def merge_expands(b: Builder, op: Op, xs: Inputs, types: Types) -> Result:
    """Merge two successive Expand to constant shapes into one."""
    inner = producer(xs[0], Expand)
    outer_sizes = None if xs[1] is None else xs[1].constant
    inner_sizes = None if inner is None else inner.input(1).constant
    if inner is None or outer_sizes is None or inner_sizes is None:
        return None
    if not all(getattr(each, "bidirectional", False) for each in (op, inner.op)):
        return None
    first, second = (tuple(map(int, sizes)) for sizes in (inner_sizes, outer_sizes))
    rank = max(len(first), len(second))
    shape = broadcast(*((1,) * (rank - len(sizes)) + sizes for sizes in (first, second)))
    return None if shape is None else b.Expand(inner.input(0), [int(size) for size in shape if isinstance(size, int)])
