"""The operators, a family a module. Importing this package registers them all."""

from dovetail.ops import control, joining, reshaping, source

__all__ = ["control", "joining", "reshaping", "source"]
