"""The table of laws: laws of an operator class apply in table order, to terms in proofs and to graphs in simplify."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from dovetail.ir.op import Op
from dovetail.laws.law import Law
from dovetail.laws.rules import (
    arithmetic,
    conditions,
    constant_shapes,
    cuts,
    decompositions,
    gathers,
    gemm,
    identities,
    movement,
    pointwise,
    pools,
    products,
    real_arithmetic,
    reductions,
    reshapes,
    slices,
    weights,
)
from dovetail.laws.rules.pointwise_classes import ONE_OPERAND, SEVERAL_OPERANDS
from dovetail.ops.constant import Identity
from dovetail.ops.control_flow.if_op import If
from dovetail.ops.detection.nms import NonMaxSuppression
from dovetail.ops.elementwise import activation, binary, bitwise, logical
from dovetail.ops.elementwise.broadcast import Elementwise
from dovetail.ops.elementwise.cast import Cast, CastLike
from dovetail.ops.elementwise.clip import Clip
from dovetail.ops.elementwise.unary import Negative, Reciprocal
from dovetail.ops.linalg.matmul import Gemm, MatMul
from dovetail.ops.nn import pool
from dovetail.ops.nn.conv import Conv, ConvTranspose
from dovetail.ops.nn.dropout import Dropout
from dovetail.ops.nn.normalization import BatchNormalization
from dovetail.ops.nn.resize import Resize
from dovetail.ops.recurrent.layers import GRU, LSTM, RNN, RecurrentLayer
from dovetail.ops.reduction import reduce
from dovetail.ops.reduction.argminmax import ArgMax, ArgMin
from dovetail.ops.reduction.softmax import LogSoftmax, Softmax
from dovetail.ops.tensor.concat_split import Concat, Split
from dovetail.ops.tensor.gather import Gather, GatherND
from dovetail.ops.tensor.onehot_trilu_eye import Trilu
from dovetail.ops.tensor.pad import Pad
from dovetail.ops.tensor.reshape import Reshape, RowMajorOp
from dovetail.ops.tensor.shape import ConstantOfShape
from dovetail.ops.tensor.slice import Slice
from dovetail.ops.tensor.topk import TopK
from dovetail.ops.tensor.transpose_expand_tile import Expand, Tile, Transpose

if TYPE_CHECKING:
    from dovetail.laws.terms.terms import Rule

SUMS = "sums in one order"
PRODUCTS = "products in one order"
QUOTIENTS = "quotients as products"
PARTS = "{} in parts"
ONE_FORM = "{} in one form"
ONE_INDEX = "coordinates as one index"
WITHOUT_NAN = "Softmax without NaN"
NOP = "nop_elimination"
ALGEBRA = "algebraic_simplification"


def _of(*kinds: type[Op]) -> Callable[[type[Op]], bool]:
    """Return a test that is true for the classes and their subclasses."""
    return lambda other: issubclass(other, kinds)


def _with(trait: str) -> Callable[[type[Op]], bool]:
    """Return a test that is true for elementwise operators whose attribute ``trait``, such as ``neutral``, is not empty."""
    return lambda kind: issubclass(kind, Elementwise) and bool(getattr(kind, trait, ()))


LAWS = (
    # Composed operators over the real numbers
    Law(decompositions.add_bias_after, _of(Conv, ConvTranspose), over_reals="{} and bias"),
    Law(decompositions.write_one_form, (GRU, LSTM, RNN), over_reals=ONE_FORM),
    Law(decompositions.decompose, decompositions.is_composed, over_reals=PARTS),
    Law(
        decompositions.decompose,
        (
            ArgMax, ArgMin, activation.Celu, activation.Gelu, activation.HardSigmoid, activation.HardSwish, activation.Mish,
            activation.PRelu, activation.Shrink, activation.SwiGLU, activation.Swish, activation.ThresholdedRelu,
            binary.Mean, binary.SquaredDifference, binary.Sum, pool.GlobalAveragePool, pool.GlobalLpPool, pool.GlobalMaxPool,
            reduce.ReduceL1, reduce.ReduceL2, reduce.ReduceLogSum, reduce.ReduceSumSquare, Trilu,
        ),
        over_reals=PARTS,
    ),
    # Arithmetic over the real numbers
    Law(arithmetic.write_clip_as_extrema, (Clip,), over_reals="Clip in parts"),
    Law(pools.write_extremum, (TopK,), over_reals="TopK of one element in parts"),
    Law(gathers.write_flat_index, (GatherND,), over_reals=ONE_INDEX),
    Law(gathers.drop_nan_test, (logical.Where,), over_reals=WITHOUT_NAN),
    Law(real_arithmetic.write_quotient, (binary.Divide,), over_reals=QUOTIENTS),
    Law(real_arithmetic.write_negative, (Negative,), over_reals=PRODUCTS),
    Law(real_arithmetic.slice_product, (slices.ExactSlice,), over_reals="slices of products of matrices"),
    Law(real_arithmetic.slice_reduction, (slices.ExactSlice,), over_reals="slices of reductions"),
    Law(real_arithmetic.write_power, (binary.Power,), over_reals="powers as products and roots"),
    Law(real_arithmetic.write_reciprocal, (Reciprocal,), over_reals=QUOTIENTS),
    Law(real_arithmetic.write_difference, (binary.Subtract,), over_reals=SUMS),
    # Elimination of operators
    Law(conditions.inline_known_branch, (If,), "dead_branches"),
    Law(identities.take_input, (Identity,), NOP),
    Law(identities.drop_dropout, (Dropout,), NOP),
    Law(identities.take_only_operand, (Concat, binary.Maximum, binary.Mean, binary.Minimum, binary.Sum), NOP),
    Law(identities.take_only_part, (Split,), NOP),
    Law(identities.drop_same_shape, _of(RowMajorOp), NOP),
    Law(identities.drop_same_shape, (Expand,), NOP),
    Law(identities.drop_whole_slice, (Slice,), NOP),
    Law(identities.drop_tile_of_ones, (Tile,), NOP),
    Law(identities.drop_empty_pad, (Pad,), NOP),
    Law(identities.drop_same_resize, (Resize,), NOP),
    Law(identities.drop_sorted_transpose, (Transpose,), NOP),
    Law(identities.drop_cast, (Cast,), NOP),
    Law(identities.write_cast, (CastLike,), NOP),
    Law(identities.merge_transposes, (Transpose,), "transpose_fusion"),
    # Movement
    Law(movement.merge_concats, (Concat,)),
    Law(slices.merge_adjacent_slices, (Concat,)),
    Law(movement.expand_constant, (ConstantOfShape,)),
    Law(movement.write_expand, (Expand,)),
    Law(movement.write_pad, (Pad,)),
    Law(movement.write_reshape, _of(RowMajorOp)),
    Law(movement.write_tile_as_expand, (Tile,)),
    Law(movement.write_transpose, (Transpose,)),
    Law(slices.move_slice, (slices.ExactSlice,)),
    Law(slices.write_gather_as_slice, (Gather,)),
    Law(slices.write_slice_by_lengths, (Slice,)),
    Law(slices.write_split_as_slices, (Split,)),
    # Movement behind elementwise operators
    Law(pointwise.move_behind_unary, ONE_OPERAND),
    Law(pointwise.drop_axes_of_one, SEVERAL_OPERANDS),
    Law(pointwise.move_behind_operands, SEVERAL_OPERANDS),
    Law(pointwise.move_behind_trailing, SEVERAL_OPERANDS),
    Law(pointwise.drop_axes_beside_axis, (Concat, LogSoftmax, Softmax)),
    Law(pointwise.drop_counting, (Gather,)),
    Law(pointwise.drop_axes_of_gather, (Gather,)),
    Law(pointwise.drop_wider_indices, (Gather,)),
    Law(pointwise.write_any_bounds, (Gather,)),
    Law(pointwise.drop_batch_axes, (MatMul,)),
    Law(products.group_rows, (MatMul,), over_reals="products of regrouped rows"),
    Law(products.move_magnitude, (MatMul,), over_reals="scalar factors of products of matrices"),
    # Arithmetic
    Law(identities.drop_neutral, _with("neutral"), ALGEBRA),
    Law(identities.cancel_inverse, _with("involution"), ALGEBRA),
    Law(identities.drop_repetition, _with("idempotent"), ALGEBRA),
    Law(identities.take_chosen_operand, (logical.Where,), ALGEBRA),
    Law(arithmetic.write_absorbing, _with("absorbing")),
    Law(arithmetic.choose_by_negation, (logical.Where,)),
    Law(arithmetic.write_logical(logical.And), (bitwise.BitwiseAnd,)),
    Law(arithmetic.write_logical(logical.Not), (bitwise.BitwiseNot,)),
    Law(arithmetic.write_logical(logical.Or), (bitwise.BitwiseOr,)),
    Law(arithmetic.write_logical(logical.Xor), (bitwise.BitwiseXor,)),
    Law(arithmetic.write_both_bounds, (Clip,)),
    Law(arithmetic.divide_by_power_of_two, (binary.Divide,)),
    Law(arithmetic.compare_with_itself, (logical.Equal,)),
    Law(gemm.decompose_gemm, (Gemm,)),
    Law(arithmetic.mirror_comparison(logical.Less), (logical.Greater,)),
    Law(arithmetic.mirror_comparison(logical.LessEqual), (logical.GreaterEqual,)),
    Law(arithmetic.write_chain, (binary.Maximum, binary.Minimum)),
    Law(arithmetic.write_not_equal, (logical.NotEqual,)),
    Law(arithmetic.write_squared_difference, (binary.SquaredDifference,)),
    Law(arithmetic.subtract_as_add, (binary.Subtract,)),
    Law(arithmetic.negate, (binary.Multiply,)),
    Law(arithmetic.write_sum, (binary.Sum,)),
    Law(arithmetic.broadcast_operands, SEVERAL_OPERANDS),
    # Sums and products are ordered after the operands have their shortest form, and before terms are interned.
    Law(real_arithmetic.order_integers(binary.Add), (binary.Add,)),
    Law(real_arithmetic.order_integers(binary.Multiply), (binary.Multiply,)),
    Law(real_arithmetic.order_chain(binary.Add), (binary.Add,), over_reals=SUMS),
    Law(real_arithmetic.scale_weights, (binary.Multiply,), over_reals="constant factors in weights"),
    Law(real_arithmetic.scale_weights_before, (Conv, MatMul), over_reals="constant factors in weights"),
    Law(products.move_factor, (binary.Multiply,), over_reals="scalar factors of products of matrices"),
    Law(real_arithmetic.distribute, (binary.Multiply,), over_reals="constant factors of sums"),
    Law(products.move_magnitudes, (binary.Multiply,), over_reals="scalar factors of products"),
    Law(real_arithmetic.order_chain(binary.Multiply), (binary.Multiply,), over_reals=PRODUCTS),
    Law(arithmetic.order_operands, SEVERAL_OPERANDS),
    # Operators with several outputs, and reductions
    Law(pools.split_max_pool, (pool.MaxPool,)),
    Law(pools.drop_limits, (NonMaxSuppression,)),
    Law(pools.write_exclusive, (NonMaxSuppression,)),
    Law(pools.write_top_k, (TopK,)),
    Law(pools.write_all_outputs, _of(RecurrentLayer)),
    Law(reductions.move_transpose, _of(reduce.Reduction), over_reals="reductions before a Transpose"),
    Law(reductions.write_reduction, _of(reduce.Reduction)),
    Law(reductions.keep_axes, (ArgMax, ArgMin)),
    # Laws of graphs only: terms have these forms anyway, or are rewritten in the other direction
    Law(identities.merge_expands, (Expand,), "expand_elimination", is_of_terms=False),
    Law(identities.read_before_expand, SEVERAL_OPERANDS, "expand_elimination", is_of_terms=False),
    Law(reshapes.merge_reshapes, _of(RowMajorOp), "reshape_fusion", is_of_terms=False),
    Law(constant_shapes.write_constant_reshape, (Reshape,), "shape_folding", is_of_terms=False),
    Law(constant_shapes.write_constant_expand, (Expand,), "shape_folding", is_of_terms=False),
    Law(constant_shapes.write_constant_slice, (Slice,), "shape_folding", is_of_terms=False),
    Law(cuts.merge_slices, (Slice,), "slice_fusion", is_of_terms=False),
    Law(cuts.merge_parts, (Concat,), "slice_fusion", is_of_terms=False),
    Law(cuts.undo_concat, (Split,), "slice_fusion", is_of_terms=False),
    Law(
        weights.fold_into_weights,
        (binary.Add, BatchNormalization, binary.Divide, binary.Multiply, binary.Subtract),
        "weight_folding",
        over_reals="constants per channel in weights",
        is_of_terms=False,
    ),
    Law(gemm.fuse_gemm, (binary.Add,), "gemm_fusion", over_reals="Gemm", is_of_terms=False),
)  # fmt: skip
"""All laws. A law of a named pass of simplify makes no graph larger."""


_BY_KIND: dict[type[Op], tuple[Law, ...]] = {}


def laws_of(kind: type[Op]) -> tuple[Law, ...]:
    """Return the laws of an operator class, in the order in which they are tried."""
    if kind not in _BY_KIND:
        _BY_KIND[kind] = tuple(law for law in LAWS if law.is_about(kind))
    return _BY_KIND[kind]


def exact_rules(kind: type[Op]) -> Sequence[tuple[str, Rule]]:
    """Return the rules that rewrite terms of an operator class and keep the bits of every result, in the order of their trial."""
    return [("", law.rewrite) for law in laws_of(kind) if law.is_of_terms and not law.over_reals]


def real_rules(allowed: Collection[str] | None = None) -> Callable[[type[Op]], Sequence[tuple[str, Rule]]]:
    """Return a function from an operator class to the rules that rewrite its terms: exact rules, and rules over the real numbers.

    Exact rules have no name. ``allowed`` holds the names of the rewrites that may be used; None allows all.
    """

    def rules_of(kind: type[Op]) -> Sequence[tuple[str, Rule]]:
        named = [(law.over_reals.format(kind.__name__), law.rewrite) for law in laws_of(kind) if law.is_of_terms]
        return [(name, rule) for name, rule in named if not name or allowed is None or name in allowed]

    return rules_of
