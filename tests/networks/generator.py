"""Make a network of a number: ``generate(seed)`` always makes the same one.

A network begins with graph inputs of one family (images, sequences, rows, bytes, integers), goes through steps that are drawn by
the family's weights, and ends with some of its values as outputs: those that nothing reads, now and then one in the middle, a
graph input, or one value twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from networks import (
    control,
    convolution as conv,
    elementwise as each,
    few_bits,
    movement as move,
    products,
    quantization as bytes_,
)
from networks.maker import CHANNELS, Maker
from networks.network import Network

Step = Callable[[Maker], Any]

IMAGES: dict[Step, int] = {
    conv.conv: 5, conv.convolved: 8, conv.branches: 4, conv.conv_transpose: 2, conv.pool: 2, conv.global_pool: 1, conv.lrn: 1,
    conv.normalised: 1, conv.resize: 2, conv.blocks: 1, conv.batch_norm: 2,
}  # fmt: skip
PRODUCTS: dict[Step, int] = {
    products.matmul: 2, products.multiplied: 5, products.product: 3, products.vector_product: 1, products.gemm: 4,
    products.attention: 3, products.einsum: 1, products.whole_product: 1, products.transformed: 1,
}  # fmt: skip
NORMS: dict[Step, int] = {products.softmax: 2, products.layer_norm: 2, products.norms: 1}
RECURRENT: dict[Step, int] = {products.recurrent: 3}
FLOATS: dict[Step, int] = {
    each.activated: 4, each.unary: 4, each.binary: 5, each.chained: 4, each.compared: 2, each.chosen: 2, each.cast: 2,
    each.logical: 2, each.through_half: 1,
}  # fmt: skip
INTEGERS: dict[Step, int] = {each.integers: 6, each.compared: 2, each.cast: 2, each.logical: 1}
MOVES: dict[Step, int] = {
    move.concat: 6, move.split: 5, move.reshape: 4, move.transpose: 5, move.slice_: 4, move.pad: 3, move.expand: 1, move.tile: 1,
    move.squeezed: 2,
}  # fmt: skip
CHOOSING: dict[Step, int] = {
    move.gather: 3, move.gather_elements: 2, move.gather_nd: 2, move.scatter_elements: 1, move.scatter_nd: 2, move.trilu: 1,
    move.top_k: 2, move.arg_extreme: 2, move.cum_sum: 2, move.range_: 5, move.suppressed: 1,
}  # fmt: skip
REDUCING: dict[Step, int] = {move.reduce_: 4}
BYTES: dict[Step, int] = {
    bytes_.quantize: 2, bytes_.dequantize: 3, bytes_.layer: 6, bytes_.linear_conv: 4, bytes_.integer_product: 4, bytes_.added: 2,
    bytes_.byte_pool: 2, bytes_.fake: 1,
}  # fmt: skip
FEW_BITS: dict[Step, int] = {
    few_bits.of_16_bits: 3, few_bits.matmul_nbits: 4, few_bits.dequantized: 3, few_bits.cast_and_scaled: 3, few_bits.gathered: 1,
}  # fmt: skip
SMALL: dict[Step, int] = {**FLOATS, **MOVES, **NORMS, **REDUCING, conv.conv: 3, products.matmul: 3, products.gemm: 2}
"""What the subgraphs of If and Loop are made of."""


def _if(m: Maker) -> Any:
    return control.if_(m, list(SMALL))


def _loop(m: Maker) -> Any:
    return control.loop(m, list(SMALL))


CONTROL: dict[Step, int] = {_if: 2, _loop: 2}

LARGE, WIDE = 1_200_000, 200_000
"""The most elements of a tensor in networks of large data, and of wide products and convolutions."""
FAMILIES: dict[str, tuple[int, tuple[tuple[dict[Step, int], float], ...]]] = {
    "images": (6, (
        (IMAGES, 4), (MOVES, 1), (FLOATS, 0.8), (REDUCING, 0.2), (NORMS, 0.2), (CHOOSING, 0.1), (BYTES, 0.1), (CONTROL, 0.1),
    )),
    "rows": (4, ((PRODUCTS, 3), (FLOATS, 1), (NORMS, 1), (MOVES, 1), (REDUCING, 0.5), (CHOOSING, 0.3), (CONTROL, 0.2))),
    "sequences": (4, (
        (PRODUCTS, 2.5), (RECURRENT, 1.5), (NORMS, 1), (MOVES, 1), (FLOATS, 0.6), (CHOOSING, 0.3), (CONTROL, 0.15), (IMAGES, 0.3),
    )),
    "bytes": (3, ((BYTES, 5), (MOVES, 0.7), (FLOATS, 0.4), (IMAGES, 0.3), (INTEGERS, 0.3))),
    "elements": (3, ((FLOATS, 3), (MOVES, 2), (INTEGERS, 0.7), (CHOOSING, 1), (REDUCING, 1), (NORMS, 0.5), (CONTROL, 0.3))),
    "halves": (2, ((IMAGES, 1), (PRODUCTS, 1), (FLOATS, 2), (MOVES, 1), (NORMS, 1))),
    "large": (1, ((MOVES, 1),)),
    "wide": (1, ((PRODUCTS, 2), (IMAGES, 2), (FLOATS, 0.5), (NORMS, 0.5), (REDUCING, 0.5))),
    "anything": (3, (
        (IMAGES, 1), (PRODUCTS, 1), (RECURRENT, 0.4), (NORMS, 1), (FLOATS, 1), (INTEGERS, 0.5), (MOVES, 1), (CHOOSING, 1),
        (REDUCING, 1), (BYTES, 0.6), (CONTROL, 0.5),
    )),
}  # fmt: skip
"""For each family its weight, and the tables of steps with how often each is drawn from."""


PRECISE: dict[str, tuple[int, tuple[tuple[dict[Step, int], float], ...]]] = {
    "images": (2, ((FEW_BITS, 1), (IMAGES, 3), (MOVES, 0.5), (FLOATS, 0.5), (BYTES, 0.2))),
    "rows": (4, ((FEW_BITS, 3), (PRODUCTS, 2), (NORMS, 1), (FLOATS, 1), (MOVES, 0.7), (CONTROL, 0.15))),
    "sequences": (3, ((FEW_BITS, 2), (PRODUCTS, 2), (RECURRENT, 0.7), (NORMS, 1), (FLOATS, 0.6), (MOVES, 0.7))),
    "halves": (1, ((FEW_BITS, 1), (IMAGES, 0.5), (PRODUCTS, 1), (FLOATS, 1), (MOVES, 0.5), (NORMS, 0.5))),
    "wide": (1, ((FEW_BITS, 1), (PRODUCTS, 1), (IMAGES, 1), (FLOATS, 0.5), (NORMS, 0.5))),
}  # fmt: skip
"""The families of networks with layers of few bits."""


def generate(seed: int, precision: str | None = None) -> Network:
    """Return network number ``seed``; with a ``precision``, one of another series, with layers of 16 bits and of few bits.

    ``precision`` is that in which the network will be run: it decides which steps rounding makes unstable.
    """
    head = Maker(seed if precision is None else f"{seed} {precision}")
    runs = head.among((1, 1, 3))
    sizes = (
        {"n": tuple(head.random.sample(range(1, 8), runs)), "m": tuple(head.number(2, 7) for _ in range(runs))}
        if runs > 1
        else {}
    )
    m = Maker(f"{seed} itself" if precision is None else f"{seed} {precision} itself", sizes, runs)
    m.precision = precision or "f32"
    all_families = FAMILIES if precision is None else PRECISE
    families = list(all_families)
    family = m.random.choices(families, [all_families[name][0] for name in families])[0]
    _inputs(m, family)
    tables = all_families[family][1]
    wanted = m.number(1, 4) if family in ("large", "wide") else m.number(2, 12)
    for _ in range(3 * wanted):
        table = m.random.choices([table for table, _ in tables], [share for _, share in tables])[0]
        step = m.random.choices(list(table), list(table.values()))[0]
        if not m.network.steps and step is each.cast:
            continue
        step(m)
        if len(m.network.steps) >= wanted:
            break
    if not m.network.steps:
        m.one("Identity", m.values[0])
    _outputs(m)
    return m.network.pruned()


def _large_input(m: Maker) -> None:
    """Data beyond the caches, which is only moved or goes through a chain."""
    m.largest = LARGE
    rank = m.number(2, 5)
    sizes = [m.among((2, 3, 8, 16, 17, 31, 32, 64)) for _ in range(rank)]
    while np.prod(sizes) < LARGE // 8:
        sizes[m.number(0, rank - 1)] *= m.among((2, 2, 3))
    while np.prod(sizes) > 4 * LARGE:
        sizes[sizes.index(max(sizes))] //= 2
    m.input(m.among(("f32", "f32", "u8", "f16", "i64")), sizes)


def _inputs(m: Maker, family: str) -> None:
    n: Any = "n" if m.sizes and m.chance(0.8) else m.among((1, 1, 2, 3))
    length: Any = "m" if m.sizes and m.chance(0.5) else m.number(1, 12)
    c = m.among(CHANNELS)
    kind = "f32"
    if family == "halves":
        kind = m.kind = m.among(("f16", "bf16"))
    if family == "large":
        _large_input(m)
        return
    if family == "wide":
        m.largest = WIDE
        m.input(
            kind,
            (m.number(1, 200), m.number(100, 900)) if m.chance(0.6) else (1, m.number(40, 160), m.number(5, 14), m.number(5, 30)),
        )
        return
    if family == "anything":
        family = m.among(("images", "rows", "sequences", "bytes", "elements"))
    shape: tuple[Any, ...]
    if family in ("images", "bytes") or (family == "halves" and m.chance(0.5)):
        spatial = m.among((1, 2, 2, 2, 2, 2, 2, 3)) if family != "bytes" else 2
        rows = [m.among((1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17)) if spatial < 3 else m.number(1, 6) for _ in range(spatial)]
        if m.chance(0.04):
            rows = [size * 3 for size in rows]
        if m.sizes and m.chance(0.3):
            rows[m.number(0, spatial - 1)] = "m"
        shape = (n, c, *rows)
        if family == "bytes" and m.chance(0.7):
            kind = m.among(bytes_.BYTES)
    elif family == "sequences":
        shape = (length, n, c) if m.chance(0.3) else (n, length, c)
    elif family == "rows" or family == "halves":
        shape = m.among(((n, c), (n, c), (m.among(CHANNELS), c), (n, length, c), (n, 2, length, c)))
    else:
        shape = m.among(((n,), (n, c), (n, length, c), (n, 3, length, 4), (2, length, c), ()))
        if m.chance(0.25):
            kind = m.among((*each.INTEGERS, "boolean", "f64", "i64", "i32"))
    m.input(kind, shape)
    while m.chance(0.35) and len(m.values) < 4:
        other = m.among((kind, kind, kind, "f32"))
        again = list(shape)
        if again and m.chance(0.3):
            axis = m.number(0, len(again) - 1)
            again[axis] = 1 if m.chance(0.5) else again[axis]
        m.input(other, again)
    if family == "elements" and kind != "f32":
        m.input("f32", shape)


def _outputs(m: Maker) -> None:
    made = [name for step in m.network.steps for name in step.writes]
    read = {name for step in m.network.steps for name in step.reads}
    outputs = [name for name in made if name not in read]
    if len(outputs) > 5:
        outputs = m.random.sample(outputs, 5)
    for name in made:
        if name in read and m.chance(0.08):
            outputs.append(name)
    if m.chance(0.05):
        outputs.append(m.network.inputs[0].name)
    # Where every step was refused, the network is its input.
    outputs = outputs or [m.network.inputs[0].name]
    if m.chance(0.04):
        outputs.append(m.among(outputs))
    m.random.shuffle(outputs)
    m.network.outputs = outputs[:8]
