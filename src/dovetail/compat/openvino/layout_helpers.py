"""Axes of a layout by their meaning, and the layouts of ports."""

from __future__ import annotations

from dovetail.compat.openvino.layout import Layout
from dovetail.compat.openvino.nodes import ConstOutput, Output


def batch_idx(layout: Layout) -> int:
    return layout.get_index_by_name("N")


def channels_idx(layout: Layout) -> int:
    return layout.get_index_by_name("C")


def depth_idx(layout: Layout) -> int:
    return layout.get_index_by_name("D")


def height_idx(layout: Layout) -> int:
    return layout.get_index_by_name("H")


def width_idx(layout: Layout) -> int:
    return layout.get_index_by_name("W")


def has_batch(layout: Layout) -> bool:
    return layout.has_name("N")


def has_channels(layout: Layout) -> bool:
    return layout.has_name("C")


def has_depth(layout: Layout) -> bool:
    return layout.has_name("D")


def has_height(layout: Layout) -> bool:
    return layout.has_name("H")


def has_width(layout: Layout) -> bool:
    return layout.has_name("W")


def get_layout(port: Output | ConstOutput) -> Layout:
    """Return the layout of an input or output of a model; ``[...]`` if none is set."""
    return port.layout


def set_layout(port: Output, layout: Layout) -> None:
    """Set the layout of an input or output of a model."""
    port.layout = layout if isinstance(layout, Layout) else Layout(layout)
