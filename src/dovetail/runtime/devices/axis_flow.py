"""Tensor parallelism of a trace: the choice of the weight axes to split over devices, so that products need few exchanges.

A weight of a product is split by columns, and the split axis of the result is followed through the trace. If a later product
contracts the split axis, the weight of that product is split by rows; the sum is then the only exchange (Shoeybi et al. 2019,
Megatron-LM). If the split axis reaches an operation that needs the whole axis, only the weight is split and the product's result
is gathered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dovetail.runtime.devices.trace_steps import Primitive, TraceSteps, reshaped_axis

ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh div eq erf "
    "erf_inv erfc exp exp2 expm1 floor ge gt imag integer_pow is_finite le log log1p logistic lt max min mul ne neg nextafter "
    "not or population_count pow real reduce_precision rem round rsqrt select_n shift_left shift_right_arithmetic "
    "shift_right_logical sign sin sinh sqrt square stop_gradient sub tan tanh xor".split()
)
"""Elementwise primitives: the result at an index depends only on the operands at the same index."""
REDUCTIONS = frozenset("argmax argmin reduce_and reduce_max reduce_min reduce_or reduce_prod reduce_sum reduce_xor".split())


class Obstacle(NamedTuple):
    """Obstacle is a primitive that needs all elements along a split axis, with the index of the primitive's node."""

    primitive: str
    node: int | None


class Split(NamedTuple):
    """Split describes one split weight or input: the split axis, its role, and the node of the product or gather that reads it.

    ``obstacle`` is the primitive that prevents the result from staying split.
    """

    axis: int
    role: str
    node: int | None
    obstacle: Obstacle | None = None


class _Conflict(Exception):
    """_Conflict is raised if an operation needs all elements along an axis that was split because of the weights ``origins``."""

    def __init__(self, origins: Iterable[int], obstacle: Obstacle) -> None:
        super().__init__(obstacle.primitive)
        self.origins, self.obstacle = frozenset(origins), obstacle


class AxisFlow:
    """AxisFlow finds the splits of ``weights`` and ``inputs`` (values of the trace) into ``parts`` parts."""

    def __init__(self, trace: TraceSteps, weights: Sequence[int], inputs: Sequence[int], parts: int) -> None:
        self.trace, self.parts = trace, parts
        self.weights, self.sources = frozenset(weights), frozenset((*weights, *inputs))
        self.obstacles: dict[int, Obstacle] = {}
        self.splits: dict[int, Split] = {}

    def find(self) -> Mapping[int, Split]:
        """Return the splits by weight or input; values that are not split are absent."""
        while True:
            try:
                self._walk()
            except _Conflict as conflict:
                self.obstacles.update(dict.fromkeys(conflict.origins, conflict.obstacle))
            else:
                return self.splits

    def _walk(self) -> None:
        self.axes: dict[int, int] = {}
        self.origins: dict[int, frozenset[int]] = {}
        self.splits = {}
        self._pure = set(self.weights)
        for step in self.trace.steps:
            if all(x is None or x in self._pure for x in step.operands):
                self._pure.update(step.results)
                continue
            self._step(step)
        for step in self.trace.steps:
            if step.name == "gather" and step.operands[0] in self._pure:
                self._split_table(step)

    def _step(self, step: Primitive) -> None:
        split = [x for x in step.operands if x is not None and x in self.axes]
        if step.name in ("dot_general", "conv_general_dilated"):
            self._product(step)
        elif split:
            axis = self._output_axis(step, split)
            if axis is None:
                self._stop(step, split)
            else:
                self._set(step.results, axis, split)

    def _stop(self, step: Primitive, values: Iterable[int]) -> None:
        """Raise _Conflict for the weights whose split axis reaches a step that needs the whole axis."""
        origins = frozenset[int]().union(*(self.origins.get(value, frozenset()) for value in values))
        # Each conflict adds an origin to self.obstacles, so that the number of attempts is finite.
        if origins - self.obstacles.keys():
            raise _Conflict(origins, Obstacle(step.name, step.node))

    def _set(self, results: Iterable[int], axis: int, operands: Iterable[int]) -> None:
        origins = frozenset[int]().union(*(self.origins.get(value, frozenset()) for value in operands))
        for result in results:
            self.axes[result] = axis
            self.origins[result] = origins

    # Operations whose results have the axes of their operands, possibly in other places

    def _output_axis(self, step: Primitive, split: Sequence[int]) -> int | None:
        """Return the axis of the results that the operand's split axis becomes; None if the operation needs the whole axis."""
        first = split[0]
        axis, before, after = self.axes[first], self.trace.shapes[first], self.trace.shapes[step.results[0]]
        params = step.params
        if step.name in ELEMENTWISE:
            return axis if self._agree(step.operands, axis, after) else None
        if step.name in REDUCTIONS:
            axes = tuple(params["axes"])
            return None if axis in axes else axis - sum(other < axis for other in axes)
        if step.name == "broadcast_in_dim":
            return int(params["broadcast_dimensions"][axis])
        if step.name == "transpose":
            return tuple(params["permutation"]).index(axis)
        if step.name in ("reshape", "squeeze", "expand_dims"):
            return reshaped_axis(before, after, axis, self.parts)
        if step.name == "concatenate":
            return axis if params["dimension"] != axis and self._agree(step.operands, axis, None) else None
        if step.name in ("slice", "pad", "dynamic_slice", "split"):
            sizes = [self.trace.shapes[result][axis] for result in step.results]
            return axis if len(split) == 1 and all(size == before[axis] for size in sizes) else None
        if step.name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
            return axis if params["axis"] != axis else None
        if step.name in ("reduce_window_max", "reduce_window_sum"):
            return axis if params["window_dimensions"][axis] == 1 and before[axis] == after[axis] else None
        if step.name == "gather" and first == step.operands[0]:
            return self._gathered_axis(step, axis, before)
        return None

    def _gathered_axis(self, step: Primitive, axis: int, before: Sequence[int]) -> int | None:
        numbers = step.params["dimension_numbers"]
        gone = (*numbers.collapsed_slice_dims, *getattr(numbers, "operand_batching_dims", ()))
        if axis in gone or step.params["slice_sizes"][axis] != before[axis]:
            return None
        kept = [index for index in range(len(before)) if index not in gone]
        return int(numbers.offset_dims[kept.index(axis)])

    def _agree(self, operands: Iterable[int | None], axis: int, shape: Sequence[int] | None) -> bool:
        """Split ``axis`` of every operand, except scalars if ``shape`` is not None. Returns whether this split is possible."""
        return all(x is None or (shape is not None and not self.trace.shapes[x]) or self._require(x, axis) for x in operands)

    def _require(self, value: int | None, axis: int, role: str = "follows", node: int | None = None) -> bool:
        """Split ``value``, or the weights and inputs that it is computed from, so that ``axis`` of ``value`` is split.

        Returns whether this split is possible.
        """
        if value is None:
            return True
        if value in self.axes:
            return self.axes[value] == axis
        shape = self.trace.shapes[value]
        if value in self.sources:
            if value in self.splits:
                return self.splits[value].axis == axis
            if shape[axis] % self.parts:
                return False
            self.splits[value] = Split(axis, role, node)
            return True
        step = self.trace.producers.get(value)
        if step is None or step.name == "iota":
            return True
        source = step.operands[0] if step.operands else None
        if step.name == "broadcast_in_dim":
            axes = tuple(step.params["broadcast_dimensions"])
            if source is None or axis not in axes or self.trace.shapes[source][axes.index(axis)] == 1:
                return True
            return self._require(source, axes.index(axis), role, node)
        if step.name == "transpose":
            return self._require(source, step.params["permutation"][axis], role, node)
        if step.name in ("reshape", "squeeze", "expand_dims") and source is not None:
            back = reshaped_axis(shape, self.trace.shapes[source], axis, self.parts)
            return back is not None and self._require(source, back, role, node)
        if step.name in ELEMENTWISE:
            return all(x is None or not self.trace.shapes[x] or self._require(x, axis, role, node) for x in step.operands)
        return False

    # Products

    def _product(self, step: Primitive) -> None:
        left, right = step.operands[:2]
        if left is None or right is None:
            return
        contracted, batch, free = _product_axes(step, [len(self.trace.shapes[x]) for x in (left, right)])
        if step.name == "conv_general_dilated" and step.params["feature_group_count"] > 1:
            self._grouped_convolution(step, left, right)
            return
        for x, other, side in ((left, right, 0), (right, left, 1)):
            if x in self.axes:
                self._continue(step, x, other, side, contracted, batch, free)
                return
        for weight, other, side in ((right, left, 1), (left, right, 0)):
            if weight in self._pure and other not in self._pure:
                self._begin(step, weight, side, free)
                return

    def _continue(
        self,
        step: Primitive,
        x: int,
        other: int,
        side: int,
        contracted: Sequence[Sequence[int]],
        batch: Sequence[Sequence[int]],
        free: Sequence[Mapping[int, int]],
    ) -> None:
        """Follow a split operand through a product."""
        axis = self.axes[x]
        if axis in contracted[side]:
            if not self._require(other, contracted[1 - side][contracted[side].index(axis)], "row", step.node):
                self._stop(step, (x, other))
        elif axis in batch[side]:
            index = batch[side].index(axis)
            if self._require(other, batch[1 - side][index]):
                self._set(step.results, index, (x, other))
            else:
                self._stop(step, (x, other))
        elif axis not in free[side] or other in self.axes:
            self._stop(step, (x, other))
        else:
            self._set(step.results, free[side][axis], (x,))

    def _begin(self, step: Primitive, weight: int, side: int, free: Sequence[Mapping[int, int]]) -> None:
        """Split a weight by columns, and follow the split axis of the product's result unless it has a known obstacle."""
        origins = self._weights_of(weight)
        for axis, output in free[side].items():
            if self.trace.shapes[weight][axis] % self.parts or self.trace.shapes[weight][axis] == 1:
                continue
            if not self._require(weight, axis, "column", step.node):
                continue
            obstacle = next((self.obstacles[origin] for origin in origins if origin in self.obstacles), None)
            if obstacle is None:
                self._set(step.results, output, ())
                self.origins[step.results[0]] = origins
            else:
                for origin in origins & self.splits.keys():
                    self.splits[origin] = Split(self.splits[origin].axis, "gathered", step.node, obstacle)
            return

    def _grouped_convolution(self, step: Primitive, x: int, weight: int) -> None:
        """Follow a split batch or channel axis through a grouped convolution.

        A split of channels needs a number of groups that is a multiple of the parts.
        """
        numbers, groups = step.params["dimension_numbers"], step.params["feature_group_count"]
        if x not in self.axes:
            return
        if self.axes[x] == numbers.lhs_spec[0]:
            self._set(step.results, numbers.out_spec[0], (x,))
        elif self.axes[x] == numbers.lhs_spec[1] and groups % self.parts == 0 and self._require(weight, numbers.rhs_spec[0]):
            self._set(step.results, numbers.out_spec[1], (x,))
        else:
            self._stop(step, (x,))

    def _weights_of(self, value: int) -> frozenset[int]:
        """Return the weights that a value is computed from."""
        found: set[int] = set()
        stack: list[int | None] = [value]
        while stack:
            current = stack.pop()
            if current in self.weights:
                found.add(current)
            elif current is not None and current in self.trace.producers:
                stack.extend(self.trace.producers[current].operands)
        return frozenset(found)

    def _split_table(self, step: Primitive) -> None:
        """Split the table of a gather by rows, or by columns if the rows cannot be split."""
        table = step.operands[0]
        if step.params["dimension_numbers"].start_index_map != (0,) or table is None:
            return
        for axis, role in ((0, "table"), (1, "gathered")):
            shape = self.trace.shapes[table]
            if axis < len(shape) and shape[axis] > 1 and self._require(table, axis, role, step.node):
                return


def _product_axes(
    step: Primitive, ranks: Sequence[int]
) -> tuple[tuple[Sequence[int], ...], tuple[Sequence[int], ...], tuple[dict[int, int], ...]]:
    """Return the contracted axes, the batch axes and the free axes of both operands, each as (left, right).

    Free axes are dicts from the operand's axis to the output axis.
    """
    if step.name == "conv_general_dilated":
        numbers = step.params["dimension_numbers"]
        x, w, y = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
        # Spatial axes are neither free nor contracted: splitting them requires border exchanges with neighbouring devices.
        return ((x[1],), (w[1],)), ((), ()), ({x[0]: y[0]}, {w[0]: y[1]})
    (left, right), (left_batch, right_batch) = step.params["dimension_numbers"]
    free = []
    position = len(left_batch)
    for rank, used in ((ranks[0], (*left, *left_batch)), (ranks[1], (*right, *right_batch))):
        own = [axis for axis in range(rank) if axis not in used]
        free.append({axis: position + index for index, axis in enumerate(own)})
        position += len(own)
    return (left, right), (left_batch, right_batch), (free[0], free[1])
