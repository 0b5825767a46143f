"""Pictures of graphs: scene, layout, SVG, PNG and HTML page. ``dovetail.report.draw.draw_model`` draws a model."""

from dovetail.report.draw.picture import Drawing, draw_model

__all__ = ["Drawing", "draw_model"]
