"""The copies of a plan.

Small graphs whose tensors share memory unevenly, each with the copies that are left and their reasons.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import dovetail
from dovetail import Builder
from dovetail.engine.engine import Engine
from dovetail.ir.host import native_core

RNG = np.random.default_rng(11)

pytestmark = pytest.mark.skipif(not native_core.is_compiled, reason="no native core")


@pytest.fixture(autouse=True)
def verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_VERIFY", "1")


def soft(b: Builder, x: Any, axis: int = -1) -> Any:
    """Return a kernel that nothing is fused with, and that is fused with nothing."""
    return b.Softmax(x, axis=axis)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def conv(b: Builder, x: Any, channels: int) -> Any:
    return b.Conv(x, b.constant(weights(channels, x.type.shape[1], 1, 1)))


def twice(b: Builder, x: Any) -> Any:
    y = soft(b, x)
    return soft(b, b.Concat(y, y, axis=1))


def narrow(b: Builder, x: Any, width: int, *shape: int) -> Any:
    """Two columns of three rows as another shape: their elements do not lie evenly."""
    return b.Reshape(b.Slice(soft(b, x), [0], [width], [1]), list(shape))


def unequal_rows(b: Builder, x: Any, y: Any) -> Any:
    return soft(b, b.Concat(narrow(b, x, 2, 2, 3), b.Exp(y), axis=1))


def rows_into_unequal_rows(b: Builder, x: Any, y: Any, z: Any) -> Any:
    """Three rows of two become two rows of three of a wider tensor: neither side is a box of the other."""
    joined = b.Concat(narrow(b, x, 2, 6), soft(b, y), axis=0)
    return soft(b, b.Concat(b.Reshape(joined, [4, 3]), b.Exp(z), axis=1))


def box_into_rows(b: Builder, x: Any, y: Any, z: Any) -> Any:
    """Two by three by two elements become four rows of three."""
    part = b.Reshape(b.Slice(soft(b, x), [0, 0, 0], [2, 3, 2], [0, 1, 2]), [12])
    joined = b.Concat(part, soft(b, y), axis=0)
    return soft(b, b.Concat(b.Reshape(joined, [8, 3]), b.Exp(z), axis=1))


def rows_into_box(b: Builder, x: Any, y: Any) -> Any:
    """Four rows of three become two by three by two elements."""
    joined = b.Concat(b.Reshape(b.Slice(soft(b, x), [0], [3], [1]), [12]), soft(b, y), axis=0)
    return soft(b, b.Pad(b.Reshape(joined, [4, 3, 2]), [0, 0, 0, 0, 1, 1]))


def half_rows(b: Builder, x: Any, y: Any, z: Any) -> Any:
    """Parts of one and a half rows of what they go into."""
    joined = b.Concat(soft(b, x), soft(b, y), axis=0)
    return soft(b, b.Concat(b.Reshape(joined, [3, 4]), b.Exp(z), axis=1))


def half_rows_of_itself(b: Builder, x: Any, y: Any) -> Any:
    """Parts of one and a half rows of a tensor in which they already lie, at another offset."""
    x, y = soft(b, x), soft(b, y)
    joined = b.Concat(b.Reshape(x, [2, 3]), b.Reshape(y, [2, 3]), axis=1)
    return soft(b, b.Concat(b.Reshape(joined, [3, 4]), x, y, axis=1))


def view_that_would_be_uneven(b: Builder, x: Any, y: Any) -> Any:
    """Return a part of a row and a third, which would lie unevenly if the whole were written in place into the wider tensor."""
    whole = soft(b, x)
    part = b.Slice(b.Reshape(whole, [2, 6]), [0], [4], [1])
    return [soft(b, b.Concat(whole, y, axis=1)), soft(b, part)]


def view_of_a_part(b: Builder, x: Any, y: Any) -> Any:
    """Return a part of a row and a third of a concatenation, which is to be written in place into a wider tensor."""
    whole = b.Concat(soft(b, x), soft(b, y), axis=0)
    part = b.Slice(b.Reshape(whole, [4, 6]), [0], [4], [1])
    return [soft(b, b.Concat(whole, b.Exp(whole), axis=1)), soft(b, part)]


def reversed_rows(b: Builder, x: Any, y: Any) -> Any:
    return soft(b, b.Concat(b.Slice(soft(b, x), [-1], [-100], [0], [-1]), b.Exp(y), axis=1))


def transposed_rows(b: Builder, x: Any, y: Any) -> Any:
    """Return a transpose in rows that are no multiple of the rows of what it is taken from."""
    turned = b.Reshape(b.Transpose(soft(b, x), [1, 0]), [2, 6])
    return soft(b, b.Concat(turned, b.Exp(y), axis=1))


def transposed_evenly(b: Builder, x: Any, y: Any) -> Any:
    return soft(b, b.Concat(b.Transpose(soft(b, x), [1, 0]), b.Exp(y), axis=1))


def parts(b: Builder, x: Any) -> Any:
    """Halves in the other order."""
    x = soft(b, x)
    return soft(b, b.Concat(b.Slice(x, [3], [6], [1]), b.Slice(x, [0], [3], [1]), axis=1))


def padded(b: Builder, x: Any) -> Any:
    """Borders around borders, each of another number."""
    y = soft(b, x)
    for number in (1, 2, 3):
        y = b.Pad(y, [1, 0, 0, 1], b.constant(np.float32(number)))
    return soft(b, y)


def padded_side_by_side(b: Builder, x: Any) -> Any:
    left, right = soft(b, x), b.Exp(x)
    around = [b.Pad(y, [0, 1, 0, 1], b.constant(np.float32(n))) for n, y in ((5, left), (7, right))]
    return [soft(b, b.Pad(b.Concat(*around, axis=0), [1, 0, 1, 0], b.constant(np.float32(9)))), b.Tanh(x)]


def padded_and_cropped(b: Builder, x: Any) -> Any:
    y = soft(b, x)
    return [soft(b, b.Pad(y, [0, -1, 0, 2], b.constant(np.float32(4)))), soft(b, b.Pad(y, [0, -1, 0, -1]))]


def tiled(b: Builder, x: Any) -> Any:
    return soft(b, b.Tile(soft(b, x), [1, 3]))


def constants(b: Builder, x: Any) -> Any:
    return soft(b, b.Concat(b.constant(weights(2, 3)), soft(b, x), axis=1))


def inputs(b: Builder, x: Any) -> Any:
    return soft(b, b.Concat(x, soft(b, x), axis=1))


def results(b: Builder, x: Any) -> Any:
    y = soft(b, x)
    return [y, soft(b, b.Concat(y, b.Exp(x), axis=1)), b.Slice(y, [1], [2], [1]), y]


def result_backwards(b: Builder, x: Any, z: Any) -> Any:
    y = soft(b, x)
    return [y, soft(b, b.Concat(b.Slice(y, [-1], [-100], [0], [-1]), b.Exp(z), axis=1))]


def computed_into_the_beginning(b: Builder, x: Any, y: Any) -> Any:
    """Return an element by element computation whose result lies in a wider tensor as its input lies in its own buffer."""
    return soft(b, b.Concat(b.Tanh(soft(b, x)), b.Exp(y), axis=0))


def transposed_result(b: Builder, x: Any) -> Any:
    """Return a kernel that writes its result in another order of axes."""
    return b.Transpose(soft(b, x), [2, 0, 1])


def empties(b: Builder, x: Any, y: Any) -> Any:
    nothing = b.Exp(x)
    return [b.Concat(nothing, soft(b, y), axis=1), nothing, b.Reshape(nothing, [2, 0, 4]), soft(b, b.Concat(y, nothing, axis=1))]


def flat_images(b: Builder, x: Any) -> Any:
    """Convolutions joined in the order of their axes."""
    return soft(b, b.Concat(b.Flatten(conv(b, x, 6)), b.Flatten(conv(b, x, 5)), axis=1))


def images(b: Builder, x: Any) -> Any:
    return soft(b, b.GlobalAveragePool(b.Concat(conv(b, x, 6), conv(b, x, 5), axis=1)), 1)


def part_of_a_flat_image(b: Builder, x: Any) -> Any:
    """Elements from the middle of a channel on: channels-last they would not lie evenly."""
    y = conv(b, x, 6)
    return [soft(b, b.Slice(b.Flatten(y), [3], [10], [1])), b.GlobalAveragePool(y)]


def part_of_a_flat_image_that_is_joined(b: Builder, x: Any) -> Any:
    y = conv(b, x, 6)
    return [soft(b, b.Slice(b.Flatten(y), [3], [10], [1])), b.GlobalAveragePool(b.Concat(y, conv(b, x, 5), axis=1))]


def few_channels(b: Builder, x: Any) -> Any:
    return b.GlobalAveragePool(conv(b, x, 6))


def pooled_channels(b: Builder, x: Any) -> Any:
    return b.MaxPool(x, kernel_shape=(2, 2))


def view_of_a_view(b: Builder, x: Any) -> Any:
    """Every other row of every other row, backwards."""
    y = b.Slice(soft(b, x), [0], [100], [0], [2])
    return soft(b, b.Slice(y, [-1], [-100], [0], [-2]))


def view_of_an_uneven_view(b: Builder, x: Any) -> Any:
    """Return a transpose of three rows of two as two rows of three."""
    return soft(b, b.Transpose(narrow(b, x, 2, 2, 3), [1, 0]))


def wide_row_read_as_two(b: Builder, x: Any) -> Any:
    """Build a model in which a kernel reads a view that no strides describe."""
    return soft(b, narrow(b, x, 2, 2, 3))


class Row(NamedTuple):
    build: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    copies: list[tuple[str, str, int, str]]


UNPLANNED = "elide is none"
RESULT = "each output has a buffer of its own"
IMAGE = "the kernel reads channels-last"
GRAPHS: dict[str, Row] = {
    "unequal rows": Row(
        unequal_rows,
        ((3, 4), (2, 3)),
        [
            ("reshape", "reshape (dense)", 24, "reshape is only a part of softmax; its window is not affine"),
            ("reshape (dense)", "concat", 24, "reshape is only a part of softmax"),
        ],
    ),
    "rows into unequal rows": Row(
        rows_into_unequal_rows,
        ((3, 4), (6,), (4, 1)),
        [
            ("softmax_2 (temporary)", "softmax_2", 24, "softmax_2 does not write that layout"),
            ("reshape", "reshape (dense)", 24, "reshape is only a part of softmax; its window is not affine"),
            ("reshape (dense)", "concat", 24, "reshape is only a part of softmax; its window is not affine"),
        ],
    ),
    "box into rows": Row(
        box_into_rows,
        ((3, 4, 3), (12,), (8, 1)),
        [
            ("softmax_2 (temporary)", "softmax_2", 48, "softmax_2 does not write that layout"),
            ("reshape", "reshape (dense)", 48, "reshape is only a part of softmax; its window is not affine"),
            ("reshape (dense)", "concat", 48, "reshape is only a part of softmax; its window is not affine"),
        ],
    ),
    "rows into box": Row(
        rows_into_box,
        ((4, 4), (12,)),
        [
            ("softmax_2 (temporary)", "softmax_2", 48, "softmax_2 does not write that layout"),
            ("reshape", "reshape (dense)", 48, "reshape is only a part of softmax; its window is not affine"),
            ("reshape (dense)", "concat", 48, "reshape is only a part of softmax; its window is not affine"),
        ],
    ),
    "half rows": Row(
        half_rows,
        ((6,), (6,), (3, 1)),
        [
            ("softmax", "concat", 24, UNPLANNED),
            ("softmax_2", "concat", 24, UNPLANNED),
            ("concat", "reshape", 48, UNPLANNED),
            ("reshape", "concat_2", 48, UNPLANNED),
            ("exp", "concat_2", 12, UNPLANNED),
        ],
    ),
    "half rows of itself": Row(
        half_rows_of_itself,
        ((3, 2), (3, 2)),
        [
            ("softmax", "reshape", 24, UNPLANNED),
            ("softmax_2", "reshape_2", 24, UNPLANNED),
            ("reshape", "concat", 24, UNPLANNED),
            ("reshape_2", "concat", 24, UNPLANNED),
            ("concat", "reshape_3", 48, UNPLANNED),
            ("reshape_3", "concat_2", 48, UNPLANNED),
            ("softmax", "concat_2", 24, UNPLANNED),
            ("softmax_2", "concat_2", 24, UNPLANNED),
        ],
    ),
    "view that would be uneven": Row(
        view_that_would_be_uneven,
        ((4, 3), (4, 2)),
        [("softmax", "concat", 48, "softmax has no affine layout there"), ("x1", "concat", 32, "x1 aliases the input x1")],
    ),
    "view of a part": Row(view_of_a_part, ((4, 3), (4, 3)), [("concat", "concat_2", 96, "concat has no affine layout there")]),
    "reversed rows": Row(reversed_rows, ((4, 3), (4, 2)), [("slice", "concat", 48, "slice has no affine layout there")]),
    "transposed rows": Row(
        transposed_rows,
        ((4, 3), (2, 1)),
        [
            ("reshape", "reshape (dense)", 48, "reshape has no affine layout there; its window is not affine"),
            ("reshape (dense)", "concat", 48, "reshape has no affine layout there"),
        ],
    ),
    "transposed evenly": Row(transposed_evenly, ((4, 3), (3, 1)), []),
    "twice": Row(twice, ((2, 4),), [("softmax", "concat", 32, "softmax is read more than once")]),
    "parts": Row(
        parts,
        ((2, 6),),
        [
            ("slice", "concat", 24, "slice is only a part of softmax"),
            ("slice_2", "concat", 24, "slice_2 is only a part of softmax"),
        ],
    ),
    "padded": Row(padded, ((2, 3),), []),
    "padded side by side": Row(padded_side_by_side, ((2, 3),), []),
    "padded and cropped": Row(padded_and_cropped, ((2, 3),), [("softmax", "pad", 16, "softmax has no affine layout there")]),
    "tiled": Row(tiled, ((2, 3),), [("tile", "tile (copy)", 72, "the view has no single stride per axis")]),
    "constants": Row(constants, ((2, 3),), [("constant", "concat", 24, "constant is a constant")]),
    "inputs": Row(inputs, ((2, 3),), [("x0", "concat", 24, "x0 aliases the input x0")]),
    "results": Row(results, ((2, 3),), [("y0", "y0", 24, RESULT), ("y2", "y2", 8, RESULT), ("y3", "y3", 24, RESULT)]),
    "computed into the beginning": Row(computed_into_the_beginning, ((2, 3), (4, 3)), []),
    "transposed result": Row(transposed_result, ((2, 3, 4),), []),
    "result backwards": Row(result_backwards, ((4, 3), (4, 2)), [("slice", "concat", 48, "slice is an output")]),
    "empties": Row(empties, ((4, 0), (4, 3)), []),
    "flat images": Row(
        flat_images,
        ((2, 8, 3, 3),),
        [
            ("x0", "x0 (copy)", 576, IMAGE),
            ("conv (temporary)", "conv", 432, "conv does not write that layout"),
            ("conv_2 (temporary)", "conv_2", 360, "conv_2 does not write that layout"),
        ],
    ),
    "images": Row(images, ((2, 8, 3, 3),), [("x0", "x0 (copy)", 576, IMAGE)]),
    "part of a flat image": Row(
        part_of_a_flat_image,
        ((1, 8, 3, 3),),
        [("x0", "x0 (copy)", 288, IMAGE), ("conv (temporary)", "conv", 216, "conv does not write that layout")],
    ),
    "part of a flat image that is joined": Row(
        part_of_a_flat_image_that_is_joined,
        ((1, 8, 3, 3),),
        [
            ("x0", "x0 (copy)", 288, IMAGE),
            ("conv (temporary)", "conv", 216, "conv does not write that layout"),
            ("conv_2 (temporary)", "conv_2", 180, "conv_2 does not write that layout"),
        ],
    ),
    "few channels": Row(few_channels, ((8, 4, 3, 3),), []),
    "few channels of 1x5x3x3": Row(few_channels, ((1, 5, 3, 3),), [("x0", "x0 (copy)", 180, IMAGE)]),
    "pooled channels": Row(pooled_channels, ((1, 3, 4, 4),), [("x0", "x0 (copy)", 192, IMAGE), ("y0", "y0", 108, RESULT)]),
    "view of a view": Row(view_of_a_view, ((9, 3),), []),
    "view of an uneven view": Row(
        view_of_an_uneven_view,
        ((3, 4),),
        [
            ("reshape", "reshape (dense)", 24, "reshape is only a part of softmax; its window is not affine"),
            ("reshape (dense)", "transpose", 24, "reshape is only a part of softmax"),
        ],
    ),
    "wide row read as two": Row(
        wide_row_read_as_two, ((3, 4),), [("reshape", "reshape (copy)", 24, "the view has no single stride per axis")]
    ),
}


def model_of(row: Row) -> dovetail.Model:
    with Builder("moves") as b:
        made = row.build(b, *(b.input(f"x{place}", "f32", shape) for place, shape in enumerate(row.shapes)))
        for place, y in enumerate(made if isinstance(made, list) else [made]):
            b.output(f"y{place}", y)
    return b.model


@pytest.mark.parametrize("elide", ["auto", "all", "none"])
def test_results_do_not_depend_on_aliases(elide: str) -> None:
    for name, row in GRAPHS.items():
        model = model_of(row)
        given = {f"x{place}": RNG.standard_normal(shape).astype(np.float32) for place, shape in enumerate(row.shapes)}
        program = dovetail.compile(model, "native", threads=1, elide=elide)
        wanted = dovetail.run(model, given, "interpreter")
        for found in (program(given), program(given)):
            for key, want in wanted.items():
                np.testing.assert_allclose(found[key], want, rtol=1e-5, atol=1e-6, err_msg=f"{name}: {key}")


def test_copies_are_reported_with_their_reasons() -> None:
    plans = {name: dovetail.plan(model_of(row), rounds=0) for name, row in GRAPHS.items()}
    found = {name: [(copy.source, copy.target, copy.nbytes, copy.reason) for copy in plan.copies] for name, plan in plans.items()}
    assert found == {name: row.copies for name, row in GRAPHS.items()}


def test_copies_for_a_kernel_are_channels_last() -> None:
    """So does what a kernel makes that is copied to where it belongs."""
    model = model_of(GRAPHS["flat images"])
    plan = Engine(model, threads=1).plan()[0]
    operands = [each for step in plan.steps if step.kernel == "conv" for each in (step.reads[0], step.writes[0])]
    assert [(each.tensor.name, each.strides[1], each.strides[3]) for each in operands if each is not None] == [
        ("x0 (copy)", 4, 32), ("conv (temporary)", 4, 24), ("x0 (copy)", 4, 32), ("conv_2 (temporary)", 4, 20),
    ]  # fmt: skip
