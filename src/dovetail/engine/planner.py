"""Planning computes a plan, its steps and the memory of every tensor from a rewritten graph and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.engine.memory.affine_layout import row_major_strides
from dovetail.engine.memory.alias_assignment import assign_aliases
from dovetail.engine.memory.aliasing import AliasMap
from dovetail.engine.memory.allocation import allocate
from dovetail.engine.memory.overlay import overlay_roots
from dovetail.engine.memory.physical_layout import PhysicalLayouts, choose_layouts
from dovetail.engine.memory.schedule import schedule_calls
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor, TensorMap
from dovetail.engine.plan import Plan
from dovetail.engine.rewrite.data_sizes import Partition
from dovetail.engine.select.fusion import fuse
from dovetail.engine.select.kernel_traits import traits_of
from dovetail.engine.select.kernels import select_kernel
from dovetail.engine.step_builder import NonAffineLayout, StepBuilder, fills_by_call
from dovetail.errors import DovetailError, EngineError
from dovetail.ir.builder import describe_op
from dovetail.ir.edit import copy_op
from dovetail.ir.graph import Graph, Node
from dovetail.ir.op import Windows, infer_types
from dovetail.ir.types import is_static, shape_of

ELIDE = ("auto", "all", "none")
Strides = Sequence[tuple[int, ...] | None]


def check_elide(elide: str) -> None:
    """Raise EngineError [argument.value] for an ``elide`` that is not in ELIDE."""
    if elide not in ELIDE:
        raise EngineError("argument.value", f"elide must be one of {', '.join(ELIDE)}, got {elide!r}")


class NonAffineInput(Exception):
    """NonAffineInput names an input whose strides rule out a view that the plan needs: a dense copy has to replace the input."""


class PlanOptions(NamedTuple):
    """PlanOptions holds the options of :func:`dovetail.compile` that change a plan."""

    elide: str = "auto"
    precision: str | None = None
    reproducible: bool = False


def make_plan(
    graph: Graph,
    tensor_map: TensorMap,
    strides: Strides,
    options: PlanOptions,
    like: Plan | None = None,
    *,
    apart: bool = False,
) -> Plan:
    """Return the plan for one set of input shapes. ``strides``: the strides of each input in elements; None for a dense input.

    ``like``: a plan whose order of calls is reused. ``apart``: each buffer of the arena has a separate index, as in
    :func:`allocate`. Raises NonAffineInput.
    """
    nodes = _needed_nodes(graph, tensor_map)
    for node in nodes:
        _check_types(node, tensor_map)
    calls = fuse([select_kernel(node, tensor_map) for node in nodes], graph, tensor_map)
    if options.precision == "bf16":
        for call in calls:
            if traits_of(call.kernel).rounds_to_bf16:
                call.attributes["precision"] = "bf16"
    for call in calls if options.reproducible else ():
        call.attributes["reproducible"] = 1
    elide = options.elide

    if like is not None:
        order = like.order if like.order is None or len(like.order) == len(calls) else None
        return _finish(_prepare(graph, tensor_map, calls, order, strides, elide), strides, apart=apart)
    first = _prepare(graph, tensor_map, calls, None, strides, elide)
    schedule = schedule_calls(calls, first.layouts.aliases)
    if schedule is None:
        return _finish(first, strides)
    other = _finish(_prepare(graph, tensor_map, calls, schedule.order, strides, elide), strides)
    copied = first.layouts.aliases.copied_bytes(call for call in (*calls, *first.output_copies) if call.kernel == MOVE)
    # The peak and the copied bytes of the first order are lower bounds for its plan, which therefore is rarely built.
    if other.arena_bytes < schedule.replaced_peak and other.copied_bytes <= copied:
        return other
    plan = _finish(first, strides)
    return other if other.arena_bytes < plan.arena_bytes and other.copied_bytes <= plan.copied_bytes else plan


def _check_types(node: Node, tensor_map: TensorMap) -> None:
    """Apply an operator's rules to the sizes of this run, where type inference was symbolic or incomplete."""
    tensors = [None if x is None else tensor_map.of(x) for x in node.inputs]
    is_known = all(value is None or is_static(value.type) for value in (*node.inputs, *node.outputs))
    if is_known and tensor_map.shape_tensors.isdisjoint(tensors):
        return
    # The engine of a partition applies the rules inside the partition.
    if isinstance(node.op, Partition) or any(tensor is not None and tensor.is_dynamic for tensor in tensors):
        return
    op = copy_op(node.op) if node.op.holds_graphs else node.op
    try:
        types = infer_types(op, tuple(None if tensor is None else tensor.as_view() for tensor in tensors))
    except DovetailError as error:
        raise error.at(node=node.label, op=describe_op(node.op, node.inputs)) from None
    for y, type in zip(node.outputs, types, strict=True):
        shape = tensor_map.of(y).shape
        if is_static(type) and shape is not None and shape_of(type) != shape:
            raise EngineError("run.shape", f"{y.name} must have the planned shape {list(shape)}, got {type}", node=node.label)


def _needed_nodes(graph: Graph, tensor_map: TensorMap) -> list[Node]:
    """Return the nodes that lead to an output and whose results are not known at planning time."""
    needed = {id(value) for value in graph.outputs if tensor_map.of(value).data is None}
    nodes = []
    for node in reversed(graph.nodes):
        if not any(id(y) in needed for y in node.outputs):
            continue
        nodes.append(node)
        needed.update(id(x) for x in node.inputs if x is not None and tensor_map.of(x).data is None)
    return nodes[::-1]


class _Preparation(NamedTuple):
    """_Preparation holds the calls in the order of execution, with aliases and layouts, before any step is built."""

    graph: Graph
    tensor_map: TensorMap
    calls: list[KernelCall]
    order: Sequence[int] | None
    elide: str
    layouts: PhysicalLayouts
    results: list[RunTensor]
    outputs: list[RunTensor]
    output_copies: list[KernelCall]


def _prepare(
    graph: Graph, tensor_map: TensorMap, calls: list[KernelCall], order: Sequence[int] | None, strides: Strides, elide: str
) -> _Preparation:
    ordered = calls if order is None else [calls[number] for number in order]
    aliases = AliasMap()
    layouts = PhysicalLayouts(aliases)
    aliases.external.update(tensor_map.inputs)
    strided_inputs = _set_input_strides(tensor_map.inputs, strides, layouts)
    for call in ordered:
        aliases.external.update(tensor for tensor in call.operands() if tensor.data is not None)
    results = [tensor_map.of(value) for value in graph.outputs]
    if elide != "none":
        assign_aliases(ordered, aliases)
        overlay_roots(ordered, aliases, results)
    for tensor in strided_inputs:
        if any(layouts.layout(view) is None for view in aliases.members(tensor)):
            raise NonAffineInput(tensor.name)
    choose_layouts(ordered, layouts, results)
    outputs, output_copies = _create_outputs(graph, results, layouts)
    return _Preparation(graph, tensor_map, ordered, order, elide, layouts, results, outputs, output_copies)


def _finish(preparation: _Preparation, strides: Strides, *, apart: bool = False) -> Plan:
    """Return the plan; if a layout is not affine, return the plan without aliases, with a dense buffer for each tensor."""
    try:
        return _build(preparation, apart=apart)
    except NonAffineLayout:
        dense = _prepare(preparation.graph, preparation.tensor_map, preparation.calls, None, strides, "none")
        return _build(dense._replace(order=preparation.order), apart=apart)


def _build(preparation: _Preparation, *, apart: bool) -> Plan:
    _, tensor_map, calls, order, elide, layouts, results, outputs, output_copies = preparation
    builder = StepBuilder(layouts, tensor_map.inputs, outputs, elide)
    fills = fills_by_call(calls, layouts)
    for call in (*calls, *output_copies):
        for fill in fills.pop(id(call), ()):
            builder.add_fill(fill)
        builder.add(call)
    steps, buffers, arena_bytes, lower_bound = allocate(builder.steps, layouts, (*tensor_map.inputs, *outputs), apart=apart)
    own_constants = {id(data): data.nbytes for step in steps for data in step.constants() if not tensor_map.shares([data])}
    return Plan(
        inputs=tensor_map.inputs,
        outputs=outputs,
        steps=steps,
        arena_bytes=arena_bytes,
        lower_bound=lower_bound,
        buffers=buffers,
        moved_bytes=sum(tensor.nbytes for call in calls if call.kernel == MOVE for tensor in call.writes),
        activation_bytes=sum(tensor.nbytes for call in calls for tensor in call.writes),
        results=results,
        constant_bytes=sum(own_constants.values()),
        order=order,
    )


def _set_input_strides(inputs: Sequence[RunTensor], strides: Strides, layouts: PhysicalLayouts) -> list[RunTensor]:
    """Set the strides of each input that is not dense, and return the inputs whose strides were set."""
    strided = []
    for tensor, input_strides in zip(inputs, list(strides) or [None] * len(inputs), strict=True):
        if input_strides is not None:
            layouts.set_strides(tensor, input_strides)
            strided.append(tensor)
    return strided


def _create_outputs(
    graph: Graph, results: Sequence[RunTensor], layouts: PhysicalLayouts
) -> tuple[list[RunTensor], list[KernelCall]]:
    """Return a tensor for the buffer of each output, and the final copies of results that are not written in place there."""
    aliases = layouts.aliases
    outputs, copies = [], []
    for value, result in zip(graph.outputs, results, strict=True):
        if result.is_dynamic:
            outputs.append(result)
            continue
        output = result.like(value.name)
        aliases.external.add(output)
        outputs.append(output)
        if result.data is not None:
            aliases.external.add(result)
        windows = Windows.whole(result.sizes)
        (window,) = windows.windows
        root = aliases.of(result).root
        strides = layouts.strides(root)
        keeps_layout = strides == row_major_strides(root.sizes) or aliases.has_strides_inside(result, output, window, strides)
        if not keeps_layout or not aliases.write_into(result, output, window):
            copies.append(KernelCall(MOVE, (), [result], [output], windows=windows, reason="each output has a buffer of its own"))
    layouts.clear_caches()
    return outputs, copies
