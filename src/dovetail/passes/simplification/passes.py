"""The passes of :func:`dovetail.simplify` by name, in the order in which a round applies them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from dovetail.ir.builder import Builder
from dovetail.ir.graph import Graph, Node
from dovetail.ir.host import plugins
from dovetail.laws.law import Result, is_among
from dovetail.ops.constant import Identity
from dovetail.ops.runtime_attributes import RuntimeAttributes, as_attributes
from dovetail.ops.tensor.reshape import Unsqueeze
from dovetail.passes.simplification.conditions import inline_conditions
from dovetail.passes.simplification.constants import fold_constants
from dovetail.passes.simplification.dead import remove_dead_nodes
from dovetail.passes.simplification.duplicates import merge_duplicates
from dovetail.passes.simplification.fusions import fuse_gelu, fuse_layer_normalization
from dovetail.passes.simplification.laws import apply_laws
from dovetail.passes.simplification.partitions import split_partitions
from dovetail.passes.simplification.products import merge_products
from dovetail.passes.simplification.rules import Rules, Target
from dovetail.passes.simplification.shapes import fold_known_values


class Pass(NamedTuple):
    """Pass is a named pass: ``apply`` returns the number of changes to a graph; an exact pass keeps the bits of every result."""

    name: str
    apply: Callable[[Graph, Target], int]
    is_exact: bool = True


def _of_laws(name: str, *, is_exact: bool = True) -> Pass:
    """Return the pass that applies the laws whose ``shrinks`` is ``name``."""
    return Pass(name, partial(apply_laws, name=name), is_exact)


def _remove_nops(graph: Graph, target: Target) -> int:
    """Remove nodes whose output has the bits of an input for all inputs. Returns their number."""
    rules: Rules = {RuntimeAttributes: as_attributes, **({Identity: _remove_in_subgraph} if target.is_subgraph else {})}
    return apply_laws(graph, target, "nop_elimination", rules)


def _remove_in_subgraph(b: Builder, node: Node) -> Result:
    """Remove an Identity, unless Scan needs it between a result of its body and a scan output of the same result."""
    x, y = node.input(0), node.outputs[0]
    is_scan_output = all(isinstance(each.op, Unsqueeze) and is_among(each.outputs[0], b.graph.outputs) for each, _ in y.uses)
    return None if y.uses and is_scan_output and is_among(x, (*b.graph.inputs, *b.graph.outputs)) else x


MIN_GEMM_OPSET = 7
"""The first opset in which the bias of Gemm broadcasts as the bias of Add does."""


def _fuse_gemm(graph: Graph, target: Target) -> int:
    """Fuse MatMul of two matrices and Add into Gemm if the target is ONNX. Returns the number of removed nodes."""
    has_gemm = target.format == "onnx" and target.opset >= MIN_GEMM_OPSET
    return apply_laws(graph, target, "gemm_fusion") if has_gemm else 0


PASSES = {
    each.name: each
    for each in (
        Pass("common_subexpressions", merge_duplicates),
        Pass("dead_branches", inline_conditions),
        Pass("nop_elimination", _remove_nops),
        Pass("constant_folding", fold_constants),
        Pass("shape_folding", fold_known_values),
        _of_laws("algebraic_simplification"),
        _of_laws("reshape_fusion"),
        _of_laws("transpose_fusion"),
        _of_laws("expand_elimination"),
        _of_laws("slice_fusion"),
        Pass("slices_to_split", split_partitions),
        _of_laws("weight_folding", is_exact=False),
        Pass("horizontal_fusion", merge_products, is_exact=False),
        Pass("gemm_fusion", _fuse_gemm, is_exact=False),
        Pass("dead_code", remove_dead_nodes),
    )
}
"""The passes by name, in the order in which a round applies them."""


def all_passes() -> dict[str, Pass]:
    """Return PASSES with the passes of plug-ins, which are applied before the removal of dead nodes."""
    loaded = plugins.load("passes", PASSES)
    own = {name: Pass(name, partial(plugins.call, "passes", name, each), is_exact=False) for name, each in loaded.items()}
    return {**{name: each for name, each in PASSES.items() if name != "dead_code"}, **own, "dead_code": PASSES["dead_code"]}


class Fusion(NamedTuple):
    """Fusion is a fusion on request: its pass, the first ONNX opset with its operator, and whether IR has the operator."""

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
