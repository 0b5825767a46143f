"""The passes of :func:`dovetail.simplify` by name, in the order in which a round applies them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dovetail.ir.graph import Graph
from dovetail.passes.simplification.algebra import simplify_algebra
from dovetail.passes.simplification.conditions import inline_conditions
from dovetail.passes.simplification.constants import fold_constants
from dovetail.passes.simplification.dead import remove_dead_nodes
from dovetail.passes.simplification.duplicates import merge_duplicates
from dovetail.passes.simplification.expands import remove_expands
from dovetail.passes.simplification.fusions import fuse_gelu, fuse_layer_normalization
from dovetail.passes.simplification.gemm import fuse_gemm
from dovetail.passes.simplification.identities import remove_identities
from dovetail.passes.simplification.partitions import split_partitions
from dovetail.passes.simplification.products import merge_products
from dovetail.passes.simplification.reshapes import merge_reshapes
from dovetail.passes.simplification.rules import Target
from dovetail.passes.simplification.shapes import fold_known_values
from dovetail.passes.simplification.slices import merge_slices
from dovetail.passes.simplification.transposes import merge_transposes
from dovetail.passes.simplification.weights import fold_into_weights


class Pass(NamedTuple):
    """One pass: ``apply`` changes a graph and returns the number of changes; an exact one keeps the bits of every result."""

    name: str
    apply: Callable[[Graph, Target], int]
    is_exact: bool = True


PASSES = {
    each.name: each
    for each in (
        Pass("common_subexpressions", merge_duplicates),
        Pass("dead_branches", inline_conditions),
        Pass("nop_elimination", remove_identities),
        Pass("constant_folding", fold_constants),
        Pass("shape_folding", fold_known_values),
        Pass("algebraic_simplification", simplify_algebra),
        Pass("reshape_fusion", merge_reshapes),
        Pass("transpose_fusion", merge_transposes),
        Pass("expand_elimination", remove_expands),
        Pass("slice_fusion", merge_slices),
        Pass("slices_to_split", split_partitions),
        Pass("weight_folding", fold_into_weights, is_exact=False),
        Pass("horizontal_fusion", merge_products, is_exact=False),
        Pass("gemm_fusion", fuse_gemm, is_exact=False),
        Pass("dead_code", remove_dead_nodes),
    )
}
"""The passes by name, in the order in which a round applies them."""


class Fusion(NamedTuple):
    """One fusion on request: its pass, and the first opset of ONNX with the operator; whether IR has the operator."""

    fuse: Pass
    opset: int
    is_in_ir: bool


FUSIONS = {
    each.fuse.name: each
    for each in (
        Fusion(Pass("Gelu", fuse_gelu, is_exact=False), 20, True),
        Fusion(Pass("LayerNormalization", fuse_layer_normalization, is_exact=False), 17, False),
    )
}
"""The fusions by the name of their operator."""
