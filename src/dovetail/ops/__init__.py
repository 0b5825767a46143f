"""The operators, a family a module. Importing this package registers them all."""

from dovetail.ops import control, conv, joining, linear, pool, reshaping, source

__all__ = ["control", "conv", "joining", "linear", "pool", "reshaping", "source"]
