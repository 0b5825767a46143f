"""Pictures of graphs: scene, layout, SVG, PNG and HTML page. ``dovetail.draw.draw_model`` draws a model."""

from dovetail.draw.drawing import Drawing, draw_model

__all__ = ["Drawing", "draw_model"]
