"""PrePostProcessor: conversions of types, layouts, sizes, colors and values, as nodes before and behind a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from dovetail.compat.openvino.element_type import Type, to_type, type_of
from dovetail.compat.openvino.enumerations import Enumeration
from dovetail.compat.openvino.errors import Partial, Refusal, runtime_errors
from dovetail.compat.openvino.layout import Layout, common_transpose
from dovetail.compat.openvino.model import Model
from dovetail.compat.openvino.nodes import TensorPort, find_port
from dovetail.compat.openvino.shapes import Dimension, PartialShape, ShapeLike
from dovetail.compat.openvino.tensor import Array, Tensor
from dovetail.errors import EngineError, UnsupportedError
from dovetail.ir import dtypes
from dovetail.ir.builder import Builder
from dovetail.ir.edit import copy_model, move_readers, rename
from dovetail.ir.graph import Graph, Node, Value
from dovetail.ir.infer import infer_graph, pure_inference
from dovetail.ir.limits import counting
from dovetail.ir.state import own_inputs, own_outputs
from dovetail.ir.types import Tensor as TensorType

Numbers: TypeAlias = float | Sequence[float]
LayoutLike: TypeAlias = Layout | str


class ResizeAlgorithm(Enumeration):
    RESIZE_LINEAR = 0
    RESIZE_CUBIC = 1
    RESIZE_NEAREST = 2
    RESIZE_BILINEAR_PILLOW = 3
    RESIZE_BICUBIC_PILLOW = 4


class ColorFormat(Enumeration):
    UNDEFINED = 0
    NV12_SINGLE_PLANE = 1
    NV12_TWO_PLANES = 2
    I420_SINGLE_PLANE = 3
    I420_THREE_PLANES = 4
    RGB = 5
    BGR = 6
    GRAY = 7
    RGBX = 8
    BGRX = 9


class PaddingMode(Enumeration):
    CONSTANT = 0
    REFLECT = 2
    SYMMETRIC = 3


_PLANES = (ColorFormat.RGB, ColorFormat.BGR)

_RESIZES: dict[ResizeAlgorithm, dict[str, object]] = {
    ResizeAlgorithm.RESIZE_LINEAR: {"mode": "linear"},
    ResizeAlgorithm.RESIZE_CUBIC: {"mode": "cubic"},
    ResizeAlgorithm.RESIZE_NEAREST: {"mode": "nearest", "convention": "onnx"},
    ResizeAlgorithm.RESIZE_BILINEAR_PILLOW: {"mode": "linear", "antialias": True, "exclude_outside": True},
    ResizeAlgorithm.RESIZE_BICUBIC_PILLOW: {
        "mode": "cubic", "antialias": True, "exclude_outside": True, "cubic_coeff_a": -0.5,
    },
}  # fmt: skip
"""The attributes of Resize for each algorithm, as the importer of IR has them for Interpolate."""


@dataclass
class StepTensor:
    """StepTensor is a tensor between two steps, with its layout and color format, and the sizes of the model's port."""

    b: Builder
    value: Value
    layout: Layout
    color: ColorFormat
    model: PartialShape
    model_layout: Layout
    model_type: Type

    def axis(self, name: str) -> int:
        """Return the axis of that name, from 0. Raises EngineError [argument.value] for a layout without it."""
        if not self.layout.has_name(name):
            message = f"Layout {self.layout} doesn't have the dimension {name}: use set_layout, like `NCHW`"
            raise EngineError("argument.value", message)
        return self.layout.get_index_by_name(name) % self.rank

    @property
    def rank(self) -> int:
        return len(PartialShape.of_sizes(self.value.shape))


Step = Callable[[StepTensor], None]


def _convert_type(target: Type | None) -> Step:
    def apply(state: StepTensor) -> None:
        kind = target or state.model_type
        if type_of(state.value.dtype) is not kind:
            state.value = state.b.apply("Cast", state.value, to=dtypes.dtype(kind.to_string()))

    return apply


def _transpose(state: StepTensor, order: Sequence[int]) -> None:
    state.value = state.b.apply("Transpose", state.value, list(order))


def _convert_layout(target: Layout | Sequence[int] | None) -> Step:
    def apply(state: StepTensor) -> None:
        if target is None or isinstance(target, Layout):
            layout = target or state.model_layout
            order = common_transpose(state.layout, layout, state.rank)
            if order is not None:
                _transpose(state, order)
            state.layout = layout if not layout.empty else state.layout
        else:
            _transpose(state, target)
            names = state.layout.names
            state.layout = Layout(f"[{','.join(names[axis] for axis in target)}]") if len(names) == len(target) else Layout()

    return apply


def _arithmetic(kind: str, values: Numbers) -> Step:
    def apply(state: StepTensor) -> None:
        if not state.value.dtype.is_float:
            message = f"{kind} can be applied to 'float' inputs. Consider using of 'convert_element_type' before. "
            raise EngineError("type.kind", f"{message}Current type is: {state.value.dtype}")
        numbers = np.asarray(values, state.value.dtype.numpy)
        if numbers.ndim:
            axis, shape = state.axis("C"), PartialShape.of_sizes(state.value.shape)
            if not shape.get_dimension(axis).compatible(Dimension(numbers.size)):
                raise EngineError("shape.disagree", f"{kind} has {numbers.size} values, for the shape {shape}, {state.layout}")
            numbers = numbers.reshape([-1 if each == axis else 1 for each in range(state.rank)])
        state.value = state.b.apply(kind, state.value, state.b.constant(numbers))

    return apply


def _resize(algorithm: ResizeAlgorithm, sizes: tuple[int, int] | None) -> Step:
    def apply(state: StepTensor) -> None:
        axes = state.axis("H"), state.axis("W")
        wanted = sizes
        if wanted is None:
            layout = state.model_layout if not state.model_layout.empty else state.layout
            rank = len(state.model)
            height, width = (state.model.get_dimension(layout.get_index_by_name(name) % rank) for name in "HW")
            wanted = height.get_length(), width.get_length()
        known = tuple(state.value.shape[axis] for axis in axes) if state.value.shape is not None else ()
        if known == wanted:
            return
        attributes: dict[str, object] = {"convention": "openvino", **_RESIZES[algorithm]}
        state.value = state.b.apply("Resize", state.value, state.b.constant(list(wanted)), axes=axes, **attributes)

    return apply


def _reverse_channels(state: StepTensor) -> None:
    axis = state.axis("C")
    dimension = PartialShape.of_sizes(state.value.shape).get_dimension(axis)
    order = list(range(dimension.get_length()))[::-1]
    state.value = state.b.apply("Gather", state.value, state.b.constant(order), axis=axis)


def _convert_color(target: ColorFormat) -> Step:
    def apply(state: StepTensor) -> None:
        if state.color is target:
            return
        if state.color not in _PLANES or target not in _PLANES:
            message = f"Source color format '{state.color.name}' is not convertible to '{target.name}': only RGB and BGR are"
            raise UnsupportedError("argument.value", message)
        _reverse_channels(state)
        state.color = target

    return apply


def _crop(begin: Sequence[int], end: Sequence[int]) -> Step:
    def apply(state: StepTensor) -> None:
        axes = list(range(len(begin)))
        parts = [state.b.constant(list(part)) for part in (begin, end, axes)]
        state.value = state.b.apply("Slice", state.value, *parts)

    return apply


def _pad(begin: Sequence[int], end: Sequence[int], value: Numbers, mode: PaddingMode) -> Step:
    if mode is not PaddingMode.CONSTANT or not isinstance(value, int | float):
        raise UnsupportedError("argument.value", f"pad needs the mode CONSTANT and one value, got {mode} and {value!r}")

    def apply(state: StepTensor) -> None:
        fill = state.b.constant(np.asarray(value, state.value.dtype.numpy))
        state.value = state.b.apply("Pad", state.value, state.b.constant([*begin, *end]), fill)

    return apply


class Steps(Partial):
    """Steps is a list of conversions, applied in the order of the calls. Each call returns the object itself."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.orders: list[Sequence[int]] = []
        """The orders of axes of all transpositions by axes."""
        self.last_layout: Layout | None = None
        """The layout of the last conversion to a layout; None without one."""

    def _add(self, step: Step) -> Steps:
        self.steps.append(step)
        return self

    def convert_element_type(self, type: Type | None = None) -> Steps:
        """Convert the elements, by default to the type of the model."""
        return self._add(_convert_type(None if type is None or type.is_dynamic() else type))

    def convert_layout(self, dst_layout: LayoutLike | Sequence[int] | None = None, *, dims: Sequence[int] = ()) -> Steps:
        """Transpose to a layout, by default that of the model, or in the order of axes."""
        target = dst_layout if dst_layout is not None else (list(dims) or None)
        target = Layout(target) if isinstance(target, str) else target
        if isinstance(target, Layout):
            self.last_layout = target
        elif target is not None:
            self.orders.append(target)
        return self._add(_convert_layout(target))

    custom = Refusal("operations of openvino.opset cannot be built")


class PreProcessSteps(Steps):
    """PreProcessSteps is the list of conversions of an input."""

    def mean(self, value: Numbers) -> Steps:
        """Subtract a number, or one number for each channel."""
        return self._add(_arithmetic("Subtract", value))

    def scale(self, value: Numbers) -> Steps:
        """Divide by a number, or by one number for each channel."""
        return self._add(_arithmetic("Divide", value))

    def resize(self, alg: ResizeAlgorithm, dst_height: int | None = None, dst_width: int | None = None) -> Steps:
        """Resize the axes H and W, by default to the sizes of the model."""
        sizes = None if dst_height is None or dst_width is None else (int(dst_height), int(dst_width))
        return self._add(_resize(alg, sizes))

    def reverse_channels(self) -> Steps:
        """Reverse the order of the channels."""
        return self._add(_reverse_channels)

    def convert_color(self, dst_format: ColorFormat) -> Steps:
        """Convert RGB to BGR, or BGR to RGB."""
        return self._add(_convert_color(dst_format))

    def crop(self, begin: Sequence[int], end: Sequence[int]) -> Steps:
        """Take a region: the begin and the end of each axis."""
        return self._add(_crop(begin, end))

    def pad(self, pads_begin: Sequence[int], pads_end: Sequence[int], value: Numbers, mode: PaddingMode) -> Steps:
        """Pad each axis with a constant."""
        return self._add(_pad(pads_begin, pads_end, value, mode))


class PostProcessSteps(Steps):
    """PostProcessSteps is the list of conversions of an output."""


@dataclass
class TensorInfo(Partial):
    """TensorInfo describes the tensor of the caller. Each call returns the object itself."""

    type: Type | None = None
    layout: Layout = field(default_factory=Layout)
    shape: PartialShape | None = None
    spatial: tuple[int, int] | None = None
    color: ColorFormat = ColorFormat.UNDEFINED

    def set_element_type(self, type: Type) -> TensorInfo:
        self.type = to_type(type)
        return self

    def set_layout(self, layout: LayoutLike) -> TensorInfo:
        self.layout = Layout(layout) if isinstance(layout, str) else layout
        return self

    def set_shape(self, shape: ShapeLike) -> TensorInfo:
        self.shape = PartialShape(shape)
        return self

    def set_from(self, tensor: Tensor | Array) -> TensorInfo:
        """Take the element type and the shape of a tensor or an array."""
        tensor = tensor if isinstance(tensor, Tensor) else Tensor(tensor)
        self.type, self.shape = tensor.element_type, PartialShape(tensor.shape)
        return self

    def set_spatial_dynamic_shape(self) -> TensorInfo:
        """Let height and width be dynamic."""
        self.spatial = -1, -1
        return self

    def set_spatial_static_shape(self, height: int, width: int) -> TensorInfo:
        """Set height and width."""
        self.spatial = int(height), int(width)
        return self

    def set_color_format(self, format: ColorFormat, sub_names: Sequence[str] = ()) -> TensorInfo:
        """Set the color format: RGB, BGR or UNDEFINED. Raises UnsupportedError [argument.value] for others."""
        if format not in (*_PLANES, ColorFormat.UNDEFINED) or sub_names:
            raise UnsupportedError("argument.value", f"the color format must be RGB or BGR, got {format}")
        self.color = format
        return self


@dataclass
class ModelInfo(Partial):
    """ModelInfo describes the port of the model."""

    layout: Layout = field(default_factory=Layout)

    def set_layout(self, layout: LayoutLike) -> ModelInfo:
        self.layout = Layout(layout) if isinstance(layout, str) else layout
        return self


class PortInfo:
    """PortInfo describes an input or output by the caller's tensor and the model's port."""

    def __init__(self, port: TensorPort) -> None:
        self.port = port
        self._tensor, self._model = TensorInfo(), ModelInfo(port.layout)

    def tensor(self) -> TensorInfo:
        return self._tensor

    def model(self) -> ModelInfo:
        return self._model


class InputInfo(PortInfo):
    """InputInfo is the description of an input: ``tensor()``, ``preprocess()`` and ``model()``."""

    def __init__(self, port: TensorPort) -> None:
        super().__init__(port)
        self._steps = PreProcessSteps()

    def preprocess(self) -> PreProcessSteps:
        return self._steps

    def tensor_shape(self) -> PartialShape:
        """Return the shape of the caller's tensor before the steps."""
        tensor, model = self._tensor, self.port.partial_shape
        if tensor.shape is not None:
            return tensor.shape
        shape = PartialShape(model)
        for axes in reversed(self._steps.orders):
            shape = PartialShape([shape.get_dimension(axes.index(axis)) for axis in range(len(axes))])
        layout = self._steps.last_layout or self._model.layout
        order = common_transpose(layout, tensor.layout, len(model)) if model.rank.is_static else None
        if order is not None:
            shape = PartialShape([shape.get_dimension(axis) for axis in order])
        if tensor.spatial is not None:
            layout = tensor.layout if not tensor.layout.empty else self._model.layout
            for name, size in zip("HW", tensor.spatial, strict=True):
                shape[layout.get_index_by_name(name) % len(shape)] = size
        return shape

    def describe(self) -> str:
        kind = self._tensor.type or self.port.element_type
        return f'Input "{self.port.value.name}": {self.tensor_shape()}, {self._tensor.layout}, {kind.to_string()}'


class OutputInfo(PortInfo):
    """OutputInfo is the description of an output: ``tensor()``, ``postprocess()`` and ``model()``."""

    def __init__(self, port: TensorPort) -> None:
        super().__init__(port)
        self._steps = PostProcessSteps()

    def postprocess(self) -> PostProcessSteps:
        return self._steps

    def describe(self) -> str:
        kind = self._tensor.type or self.port.element_type
        return f'Output "{self.port.value.name}": {self._tensor.layout}, {kind.to_string()}'


class PrePostProcessor:
    """PrePostProcessor adds conversions before the inputs and behind the outputs of a Model; ``build`` changes the model."""

    def __init__(self, model: Model) -> None:
        if not isinstance(model, Model):
            raise TypeError(f"PrePostProcessor needs a Model, got {type(model)}")
        self._model = model
        self._inputs = [InputInfo(port) for port in model.inputs]
        self._outputs = [OutputInfo(port) for port in model.outputs]

    def input(self, key: int | str | None = None) -> InputInfo:
        """Return the description of the input with that index or name, or of the only input."""
        return self._inputs[_position([info.port for info in self._inputs], key, "Input")]

    def output(self, key: int | str | None = None) -> OutputInfo:
        """Return the description of the output with that index or name, or of the only output."""
        return self._outputs[_position([info.port for info in self._outputs], key, "Output")]

    def build(self) -> Model:
        """Add the conversions to the model, and return it. Raises RuntimeError, without a change, for steps that do not fit."""
        model = self._model
        with runtime_errors():
            new = copy_model(model.source)
            layouts = dict(model.layouts)
            for index, info in enumerate(self._inputs):
                _convert_input(new.graph, own_inputs(new)[index], info)
                layout = info.tensor().layout if not info.tensor().layout.empty else info.model().layout
                layouts[True, index] = layout
            with counting(new.limits), pure_inference():
                infer_graph(new.graph, file=new.file)
            for index, output in enumerate(self._outputs):
                layouts[False, index] = _convert_output(new.graph, own_outputs(new)[index], output)
        model.replace_source(new)
        model.layouts.update(layouts)
        return model

    def __repr__(self) -> str:
        lines = [*(info.describe() for info in self._inputs), *(info.describe() for info in self._outputs)]
        return f"<PrePostProcessor: {'; '.join(lines)}>"

    __str__ = __repr__


def _position(ports: Sequence[TensorPort], key: int | str | None, kind: str) -> int:
    try:
        return find_port(ports, key, kind).position
    except IndexError as error:
        raise EngineError("input.unknown", f"Model doesn't have {kind.lower()} with that index: {error}") from None


def _convert_input(graph: Graph, value: Value, info: InputInfo) -> None:
    """Change the type of a graph input to that of the caller's tensor, and insert the steps before all readers."""
    tensor, port = info.tensor(), info.port
    model_shape, model_type = port.partial_shape, port.element_type
    former = value.type
    readers = Value("")
    move_readers(value, readers)
    kind = tensor.type or model_type
    shape = info.tensor_shape()
    if shape != model_shape or kind is not model_type:
        value.type = TensorType(dtypes.dtype(kind.to_string()), shape.to_sizes(value.name))
        value.value = None
    b, mark = Builder(graph=graph), len(graph.nodes)
    layout = info.model().layout
    start = tensor.layout if not tensor.layout.empty else layout
    state = StepTensor(b, value, start, tensor.color, model_shape, layout, model_type)
    for step in [*info.preprocess().steps, _convert_type(None), _convert_layout(None)]:
        step(state)
    result = PartialShape.of_sizes(state.value.shape)
    if not result.compatible(model_shape):
        message = f"Resulting shape '{result}' after preprocessing is not aligned with original parameter's shape: {model_shape}"
        raise EngineError("shape.disagree", f"{message}, input parameter: {value.name}")
    if state.value is value:
        value.type = former
    added: list[Node] = graph.nodes[mark:]
    graph.nodes[mark:] = []
    graph.nodes[:0] = added
    graph.outputs = [state.value if output is value and state.value is not value else output for output in graph.outputs]
    move_readers(readers, state.value)


def _convert_output(graph: Graph, value: Value, info: OutputInfo) -> Layout:
    """Insert the steps between a graph output and the caller, and return the output's layout."""
    tensor = info.tensor()
    kind = tensor.type
    target_type = kind or type_of(value.dtype)
    layout = info.model().layout
    b = Builder(graph=graph)
    shape = PartialShape.of_sizes(value.shape)
    state = StepTensor(b, value, layout, ColorFormat.UNDEFINED, shape, tensor.layout, target_type)
    steps = list(info.postprocess().steps)
    if kind is not None or not steps:
        steps.append(_convert_type(target_type))
    for step in [*steps, _convert_layout(None)]:
        step(state)
    if state.value is not value:
        name, names = value.name, value.names
        new = state.value
        rename(graph, value, graph.claim(f"{name}/model"))
        rename(graph, new, name)
        new.names, value.names = names, ()
        new.metadata, value.metadata = dict(value.metadata), {}
        graph.outputs = [new if output is value else output for output in graph.outputs]
    return tensor.layout if not tensor.layout.empty else info.model().layout
