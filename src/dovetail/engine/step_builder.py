"""Steps of a plan: kernel calls with the copies that their layouts require, the copies that aliases leave, and fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.engine.memory.affine_layout import Layout, Mode, common_refinement, compose, dense_layout
from dovetail.engine.memory.aliasing import covers_outputs
from dovetail.engine.memory.copy_cost import reason_to_copy
from dovetail.engine.memory.physical_layout import PhysicalLayouts
from dovetail.engine.memory.tensor import MOVE, KernelCall, RunTensor
from dovetail.engine.plan import COPY, FILL, UnallocatedStep
from dovetail.engine.select.kernel_traits import traits_of, writes_any_layout
from dovetail.ir.op import Window


class NonAffineLayout(Exception):
    """NonAffineLayout reports that a view that a step reads or writes has no affine physical layout."""


class StepBuilder:
    """StepBuilder appends the steps of kernel calls in order. ``inputs``, ``outputs`` and ``elide`` belong to the plan."""

    def __init__(self, layouts: PhysicalLayouts, inputs: Sequence[RunTensor], outputs: Sequence[RunTensor], elide: str) -> None:
        self.steps: list[UnallocatedStep] = []
        self._layouts = layouts
        self._inputs = inputs
        self._outputs = outputs
        self._elide = elide
        self._copies: dict[tuple[RunTensor, bool], RunTensor] = {}

    def add(self, call: KernelCall) -> None:
        """Append the step of a call, with copies of operands whose layout the kernel does not take."""
        if call.kernel == MOVE:
            self._add_moves(call)
            return
        reads = [None if tensor is None else self._readable(tensor, call) for tensor in call.reads]
        copies_after: list[tuple[RunTensor, RunTensor]] = []
        writes = [self._writable(tensor, call, copies_after) for tensor in call.writes]
        self.steps.append(UnallocatedStep(call.kernel, call, reads, writes, call.attributes, call.reason))
        for result, tensor in copies_after:
            self._add_copy(result, tensor, f"{call.label} does not write that layout")

    def add_fill(self, call: KernelCall) -> None:
        """Append the fill of a data movement whose windows do not cover its output."""
        (tensor,) = call.writes
        layout = self._layout_of(tensor)
        assert call.windows is not None and tensor.dtype is not None
        fill = np.asarray(call.windows.fill).astype(tensor.dtype.numpy)
        sizes, strides = tuple(size for size, _ in layout.modes), tuple(stride for _, stride in layout.modes)
        region = self._layouts.add_region(tensor, sizes, layout.offset, strides)
        self.steps.append(UnallocatedStep(FILL, call, [], [region], {"bytes": list(fill.tobytes())}, call.reason))

    def _readable(self, tensor: RunTensor, call: KernelCall) -> RunTensor:
        """Return the tensor, or a copy of it in a layout that the kernel reads."""
        if not tensor.count:
            return tensor
        wants_channels_last = tensor in call.channels_last and tensor.sizes[1] > traits_of(call.kernel).direct_channels
        operand = self._layouts.operand(tensor)
        faster = ""
        if operand is not None and not (wants_channels_last and not self._layouts.is_channels_last(tensor)):
            faster = reason_to_copy(call, tensor, operand[1]) if self._elide == "auto" else ""
            if not faster:
                return tensor
        key = (tensor, wants_channels_last)
        if key not in self._copies:
            copy = tensor.like(f"{tensor.name} (copy)")
            if wants_channels_last:
                self._layouts.set_channels_last(copy)
            unfit = "the kernel reads channels-last" if operand is not None else "the view has no single stride per axis"
            self._add_copy(tensor, copy, reason=faster or unfit)
            self._copies[key] = copy
        return self._copies[key]

    def _writable(self, tensor: RunTensor, call: KernelCall, copies_after: list[tuple[RunTensor, RunTensor]]) -> RunTensor:
        """Return the tensor, or a temporary in a layout that the kernel writes, which is copied to the tensor after the step."""
        if not tensor.count:
            return tensor
        wants_channels_last = tensor in call.channels_last and not writes_any_layout(call, tensor)
        is_strided = self._layouts.operand(tensor) is not None
        if is_strided and not (wants_channels_last and not self._layouts.is_channels_last(tensor)):
            return tensor
        result = tensor.like(f"{tensor.name} (temporary)")
        if wants_channels_last:
            self._layouts.set_channels_last(result)
        copies_after.append((result, tensor))
        return result

    # Copies

    def _add_moves(self, call: KernelCall) -> None:
        for window in self._layouts.aliases.windows_to_copy(call):
            source, target = call.reads[window.input], call.writes[window.output]
            assert source is not None
            self._add_window(window, source, target, call.reason or self._reason_of_copy(call, source))

    def _reason_of_copy(self, call: KernelCall, source: RunTensor) -> str:
        """Return the reason why a data movement copies ``source``."""
        if self._elide == "none":
            return "elide is none"
        if source.data is not None:
            return f"{source.name} is a constant"
        root = self._layouts.aliases.of(source).root
        if root in self._inputs:
            return f"{source.name} aliases the input {root.name}"
        if sum(tensor is source for tensor in call.reads) > 1:
            return f"{source.name} is read more than once"
        if root in self._outputs:
            return f"{source.name} is an output"
        if root.count != source.count:
            return f"{source.name} is only a part of {root.name}"
        return f"{source.name} has no affine layout there"

    def _add_window(self, window: Window, source: RunTensor, target: RunTensor, reason: str) -> None:
        """Append one window as one copy, or via a dense copy of the source where the window is not affine in the source."""
        read = self._window_of(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        if read is None:
            dense = source.like(f"{source.name} (dense)")
            self._add_copy(source, dense, f"{reason}; its window is not affine")
            source = dense
            read = self._window_of(source, window.source_offset, zip(window.sizes, window.source_strides, strict=True))
        written = self._window_of(target, window.target_offset, zip(window.sizes, window.target_strides, strict=True))
        if written is None:
            raise NonAffineLayout
        assert read is not None
        self._add_strided_copy(source, read, target, written, reason)

    def _window_of(self, tensor: RunTensor, offset: int, axes: Iterable[Mode]) -> Layout | None:
        return compose(self._layout_of(tensor), offset, axes)

    def _layout_of(self, tensor: RunTensor) -> Layout:
        layout = self._layouts.layout(tensor)
        if layout is None:
            raise NonAffineLayout
        return layout

    def _add_copy(self, source: RunTensor, target: RunTensor, reason: str) -> None:
        self._add_strided_copy(source, self._layout_of(source), target, self._layout_of(target), reason)

    def _add_strided_copy(self, source: RunTensor, read: Layout, target: RunTensor, written: Layout, reason: str) -> None:
        """Append a copy between two layouts of equal element count; two copies if their modes have no common refinement."""
        refined = common_refinement(read.modes, written.modes)
        if refined is None:
            temporary = RunTensor(f"{source.name} (dense)", source.type, (read.elements,), source.dtype)
            dense = dense_layout(read.elements)
            self._add_strided_copy(source, read, temporary, dense, f"{reason}; its window is not affine")
            self._add_strided_copy(temporary, dense, target, written, f"{reason}; its window is not affine")
            return
        sizes, read_strides, write_strides = refined
        source_region = self._layouts.add_region(source, sizes, read.offset, read_strides)
        target_region = self._layouts.add_region(target, sizes, written.offset, write_strides)
        self.steps.append(UnallocatedStep(COPY, None, [source_region], [target_region], {}, reason))


def fills_by_call(calls: Sequence[KernelCall], layouts: PhysicalLayouts) -> dict[int, list[KernelCall]]:
    """Return the data movements that fill their output, by the ``id`` of the first call that writes into the output's buffer."""
    fills: dict[int, list[KernelCall]] = {}
    for call in calls:
        if call.windows is None or covers_outputs(call):
            continue
        (output,) = call.writes
        root = layouts.aliases.of(output).root
        first = next(user for user in calls if any(layouts.aliases.of(tensor).root is root for tensor in user.writes))
        # A tensor that contains another filled tensor is filled first.
        fills.setdefault(id(first), []).insert(0, call)
    return fills
